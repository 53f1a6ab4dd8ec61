"""Garbage that ranks collect at different steps: what it costs, and when it costs nothing."""

from __future__ import annotations

import numpy as np
import pytest

from tuiadvisor.metrics.lateness.collections import collection_loss

STEPS, RANKS = 300, 4
WORK_S = 0.1
ALL_FOLLOW = np.ones(STEPS, dtype=np.bool_)


def job(every: int, length_s: float, hidden_s: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Work, collections and cycle of ranks of which each collects every so many steps, at its own time."""
    rng = np.random.default_rng(0)
    work = rng.normal(WORK_S, 0.001, (RANKS, STEPS))
    gc = np.zeros((RANKS, STEPS))
    for rank in range(RANKS):
        gc[rank, 3 + 5 * rank :: every] = length_s
    work += np.maximum(gc - hidden_s, 0.0)
    return work, gc, work.max(axis=0)


def test_collections_of_ranks_in_turn_cost_what_the_others_wait() -> None:
    """Four ranks, 60 ms every thirtieth step of each: 8 ms a step."""
    work, gc, cycle = job(30, 0.06)
    found = collection_loss(work, gc, cycle, ALL_FOLLOW)

    assert found is not None
    assert found.gain.loss_s == pytest.approx(0.06 * RANKS / 30, rel=0.05)
    assert found.length_s == pytest.approx(0.06, abs=0.003)


@pytest.mark.parametrize("hidden_s", [0.06, 0.1])
def test_collection_that_the_device_does_not_wait_for_costs_nothing(hidden_s: float) -> None:
    """The thread is ahead by more than that: what is left is chance."""
    work, gc, cycle = job(30, 0.06, hidden_s)
    found = collection_loss(work, gc, cycle, ALL_FOLLOW)

    assert found is None or found.gain.loss_s < 0.02 * WORK_S


def test_rank_that_alone_collects_is_no_matter_of_all() -> None:
    """Of one rank it is a straggler's."""
    work, gc, cycle = job(30, 0.06)
    gc[1:] = 0.0

    assert collection_loss(work, gc, cycle, ALL_FOLLOW) is None


def test_what_all_ranks_collect_in_every_step_explains_nobodys_lateness() -> None:
    """5 ms on every rank and step, beside ranks that are late by chance for other reasons."""
    rng = np.random.default_rng(1)
    work = rng.normal(WORK_S, 0.01, (RANKS, STEPS))
    found = collection_loss(work, np.full((RANKS, STEPS), 0.005), work.max(axis=0), ALL_FOLLOW)

    assert found is None


def test_step_before_counts_only_where_it_was_measured() -> None:
    """A collection after the optimizer delays the next step; the measured step before may be a long time ago."""
    work, gc, cycle = job(30, 0.06)
    earlier = np.concatenate((gc[:, 1:], np.zeros((RANKS, 1))), axis=1)

    assert collection_loss(work, earlier, cycle, ALL_FOLLOW) is not None
    assert collection_loss(work, earlier, cycle, np.zeros(STEPS, dtype=np.bool_)) is None
