"""Hosts whose clocks stood for a while: a machine that was suspended does not count the time (CLOCK_MONOTONIC).

In: releases common to all, by each host's clock.  Out: how far each host's clock is behind, step by step. Such a clock
goes no slower than before and never forward by itself, so the one that has counted most is right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

if TYPE_CHECKING:
    from tuiadvisor.metrics.steps.arrays import Floats

SIDE_STEPS: Final = 8  # compared before and after (chosen): one late release moves no median of so many
# Chosen: what clocks of 500 ppm (the most that NTP slews by) part in eight steps of a minute is half of it.
MIN_STOOD_S: Final = 0.5


def stood_HK(release_HK: Floats) -> Floats | None:
    """Seconds, at most 0, that each host's clock has lost by each step; None where none has. NaN: not known.

    release_HK: of releases that are common to all hosts, the first of which is the reference.
    """
    apart_HK = release_HK - release_HK[0]
    known_HK = np.isfinite(apart_HK)
    most = np.where(known_HK, apart_HK, -np.inf).max(axis=1, initial=-np.inf)
    least = np.where(known_HK, apart_HK, np.inf).min(axis=1, initial=np.inf)
    levels_HK = np.zeros(apart_HK.shape)
    for host in np.flatnonzero(most - least >= MIN_STOOD_S).tolist():
        known = np.flatnonzero(known_HK[host])
        for at, by_s in _jumps(apart_HK[host, known]):
            levels_HK[host, known[at] :] += by_s
    if not levels_HK.any():
        return None
    return np.asarray(levels_HK - levels_HK.max(axis=0))


def _jumps(apart_K: Floats) -> list[tuple[int, float]]:
    """(first step after it, by how much) of each lasting change of the distance between two clocks."""
    if apart_K.size < 2 * SIDE_STEPS:
        return []
    sides = np.median(sliding_window_view(apart_K, SIDE_STEPS), axis=1)
    by_s = sides[SIDE_STEPS:] - sides[:-SIDE_STEPS]
    jumped = np.flatnonzero(np.abs(by_s) >= MIN_STOOD_S)
    result = []
    for run in np.split(jumped, np.flatnonzero(np.diff(jumped) > 1) + 1) if jumped.size else []:
        first, last = int(run[0]), int(run[-1])
        # The steps before `at` are those up to there, of which the last is compared with the next.
        steps = np.abs(np.diff(apart_K[first : last + 2 * SIDE_STEPS]))
        at = first + 1 + int(np.argmax(steps))
        before, after = apart_K[max(0, at - SIDE_STEPS) : at], apart_K[at : at + SIDE_STEPS]
        result.append((at, float(np.median(after) - np.median(before))))
    return result
