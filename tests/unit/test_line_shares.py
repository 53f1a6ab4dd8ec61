"""Two ranks' samples line by line: what differs, what is chance, and what is too little to tell."""

from __future__ import annotations

import numpy as np
import pytest

from tuiadvisor.metrics.sampling.code_line import CodeLine
from tuiadvisor.metrics.sampling.line_shares import LIMITS, compared

WORK, WAIT, BACKWARD = (
    CodeLine("train.py", line, name) for line, name in ((23, "work"), (49, "wait"), (80, "main"))
)


def sampled(
    shares: dict[CodeLine, float], num: int, seed: int, samples_a_step: float = 6.0
) -> list[CodeLine]:
    """Samples at irregular distances of a loop whose step is at each line for a share of its time."""
    chance = np.random.default_rng(seed)
    at = np.cumsum((0.5 + chance.random(num)) / samples_a_step) + chance.random()
    lines, ends = list(shares), np.cumsum(list(shares.values()))
    return [lines[int(np.searchsorted(ends, place % 1.0))] for place in at]


def test_a_line_that_only_one_rank_is_at_differs() -> None:
    """And so does the line at which its peer waits for it meanwhile."""
    late = sampled({WORK: 0.55, WAIT: 0.35, BACKWARD: 0.1}, 150, 1)
    peer = sampled({WORK: 0.55, BACKWARD: 0.45}, 150, 2)
    found = {one.line: one for one in compared(late, peer)}
    assert {WAIT, BACKWARD} == {line for line, one in found.items() if one.differs}
    assert WAIT == compared(late, peer)[0].line
    assert (found[WAIT].peer_num, found[WAIT].num) == (0, late.count(WAIT))
    assert found[WAIT].share == pytest.approx(late.count(WAIT) / 150)


@pytest.mark.slow
@pytest.mark.parametrize("samples_a_step", [3.0, 6.0, 60.0])
def test_healthy_ranks_do_not_differ(samples_a_step: float) -> None:
    """However long their steps are against the distance of samples; fewer than one card in a hundred errs."""
    shares = {WORK: 0.5, WAIT: 0.2, BACKWARD: 0.3}
    wrong = sum(
        any(
            one.differs
            for one in compared(
                sampled(shares, 150, seed, samples_a_step), sampled(shares, 150, seed + 1000, samples_a_step)
            )
        )
        for seed in range(200)
    )
    assert wrong <= 200 * LIMITS["level"].value


def test_few_samples_do_not_tell() -> None:
    """Whatever they show."""
    few = int(LIMITS["least_samples"].value) - 1
    assert not any(one.differs for one in compared([WAIT] * few, [WORK] * 500))
    assert all(one.differs for one in compared([WAIT] * (few + 1), [WORK] * 500))


def test_samples_in_a_row_are_no_independent_ones() -> None:
    """One long stay at a line is one event, not a hundred."""
    assert not any(one.differs for one in compared([WORK] * 120 + [WAIT] * 30, [WORK] * 150))


def test_each_threshold_has_a_source() -> None:
    """As those of the rules do."""
    assert all(limit.source and limit.value > 0 for limit in LIMITS.values())
