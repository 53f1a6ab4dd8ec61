"""Which lines two ranks spend their time at, and which of them differ beyond what sampling explains.

In: for each sample of a rank, in order, the line it was at.  Out: shares of samples, line by line.
Samples within a step resemble each other, so the error of a share is the larger of two: that of independent samples,
and that of means of batches in a row. A difference is said where it is beyond Student's t at LIMITS' level, divided by
the number of lines looked at.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence, Sized

    from tuiadvisor.metrics.sampling.code_line import CodeLine
    from tuiadvisor.metrics.steps.arrays import Floats


class Limit(NamedTuple):
    """A threshold and where it is from."""

    value: float
    source: str


LIMITS: Final = {
    "num_batches": Limit(10, "batch means: 10 to 30 batches in a row (Schmeiser 1982, Batch Size Effects)"),
    "level": Limit(0.01, "one false difference in a hundred cards; divided among the lines (Bonferroni)"),
    "least_samples": Limit(40, "four samples a batch; with fewer a batch's share has five values at most"),
    "least_share": Limit(0.01, "below one sample in a hundred nothing is worth a look, nor a test"),
    "little_of_peer": Limit(
        0.1, "chosen: a peer at a line for a tenth of the rank's time or more does the same work"
    ),
    "most_workers": Limit(
        0.5, "chosen: a stage in which the loader's workers are for less is one of several"
    ),
    "least_steps": Limit(3, "the first and the last step of a window are cut: one whole step between them"),
}
ADDED: Final = 1  # a hit and a miss more for each rank: no share is certain (Agresti and Caffo 2000)


@dataclass(frozen=True, slots=True)
class LineShare:
    """One line. peer_*: None without a peer."""

    line: CodeLine
    num: int
    share: float
    margin: float  # of the share, either way: where it is in 95 of 100 such samplings
    peer_num: int | None
    peer_share: float | None
    differs: bool  # beyond sampling noise


def compared(own: Sequence[CodeLine], peer: Sequence[CodeLine] | None) -> list[LineShare]:
    """Every line with a share worth a look: those that differ by most first, then by share."""
    if not own:
        return []
    counts, others = Counter(own), Counter(peer or ())
    least = LIMITS["least_share"].value
    lines = [
        line
        for line in dict.fromkeys((*counts, *others))
        if counts[line] >= least * len(own) or (peer and others[line] >= least * len(peer))
    ]
    number = {line: index for index, line in enumerate(counts | others)}
    own_at = np.array([number[line] for line in own])
    peer_at = np.array([number[line] for line in peer]) if peer else None
    found = [
        _compared(
            line,
            (own_at == number[line]).astype(np.float64),
            None if peer_at is None else (peer_at == number[line]).astype(np.float64),
            len(lines),
        )
        for line in lines
    ]
    return sorted(found, key=lambda one: (not one.differs, -_excess(one), -one.share))


def is_enough(own: Sized, peer: Sized) -> bool:
    """Whether there are samples enough to compare."""
    return min(len(own), len(peer)) >= LIMITS["least_samples"].value


def _excess(one: LineShare) -> float:
    return one.share - (one.peer_share or 0.0) if one.differs else 0.0


def _compared(line: CodeLine, own_hits: Floats, peer_hits: Floats | None, num_lines: int) -> LineShare:
    num, share = int(own_hits.sum()), float(own_hits.mean())
    margin = NormalDist().inv_cdf(0.975) * float(np.sqrt(_variance(own_hits)))
    if peer_hits is None:
        return LineShare(line, num, share, margin, None, None, differs=False)
    peer_share = float(peer_hits.mean())
    is_beyond = abs(share - peer_share) > _least_difference(own_hits, peer_hits, num_lines)
    differs = is_enough(own_hits, peer_hits) and is_beyond
    return LineShare(line, num, share, margin, int(peer_hits.sum()), peer_share, differs=differs)


def _least_difference(own_hits: Floats, peer_hits: Floats, num_lines: int) -> float:
    """How far two shares may be apart by chance."""
    variance = _variance(own_hits) + _variance(peer_hits)
    degrees = 2 * (int(LIMITS["num_batches"].value) - 1)
    return _t_quantile(1 - LIMITS["level"].value / (2 * max(num_lines, 1)), degrees) * float(
        np.sqrt(variance)
    )


def _variance(hits: Floats) -> float:
    """Of the share: as if samples were independent, or as batches of them vary, whichever is more."""
    share = (float(hits.sum()) + ADDED) / (len(hits) + 2 * ADDED)
    independent = share * (1 - share) / (len(hits) + 2 * ADDED)
    num_batches = int(LIMITS["num_batches"].value)
    means = [float(batch.mean()) for batch in np.array_split(hits, min(num_batches, len(hits)))]
    if len(means) < 2:
        return independent
    return max(independent, float(np.var(means, ddof=1)) / len(means))


def _t_quantile(probability: float, degrees: int) -> float:
    """Student's t by its expansion around the normal quantile (Abramowitz and Stegun 26.7.5)."""
    z = NormalDist().inv_cdf(probability)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / degrees + second / degrees**2 + third / degrees**3
