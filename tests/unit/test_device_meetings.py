"""Ranks that meet in layers: in forward a border shows who waits, in backward nobody sees it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from simulated_devices import MS, DeviceJob, Fault, true_loss_s, view_of

pytestmark = pytest.mark.slow


def layered(num_ranks: int, meetings: int, *faults: Fault) -> DeviceJob:
    """A job whose ranks meet in so many layers, with these faults."""
    return replace(DeviceJob(), num_ranks=num_ranks, sync_every=10, meetings=meetings).with_faults(*faults)


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_rank_slow_where_ranks_meet_within_backward_is_not_kept(num_ranks: int) -> None:
    """18 % of the step, of which the last layers show 4: it was kept, beside a remark."""
    verdict = view_of(layered(num_ranks, 4, Fault("backward", (1,), factor=1.4))).verdict
    assert verdict.decision is None
    assert "rank 1 late by" in verdict.sentence
    assert "a capture of kernels does" in verdict.sentence


@pytest.mark.parametrize(
    ("fault", "is_least"),
    [(Fault("device", (1,), factor=1.2), True), (Fault("data", (1,), 120 * MS), False)],
)
def test_what_a_rank_costs_is_a_least_where_a_part_of_it_lies_in_backward(
    fault: Fault, *, is_least: bool
) -> None:
    """Half of it is seen in forward. Late before its first layer, a rank is waited for there, and all of it is seen."""
    job = layered(2, 4, fault)
    view = view_of(job)
    (one,) = view.stragglers
    assert one.rank == 1
    assert is_least == ("would take at most" in view.verdict.sentence)
    assert is_least == (one.loss_s_per_step < 0.9 * true_loss_s(job))


@pytest.mark.parametrize(("meetings", "at_least"), [(4, "at least "), (0, "")])
def test_turns_that_cost_a_twentieth_are_said(meetings: int, at_least: str) -> None:
    """Devices lose 1 % by their own noise; 8 and 10 % by uneven work was 'no loss found', where half was seen."""
    job = layered(2, meetings, Fault("lengths", factor=0.15 if not meetings else 0.25))
    verdict = view_of(replace(job, num_steps=200)).verdict
    assert verdict.decision == "keep"
    assert f"stragglers that vary from step to step cost {at_least}" in verdict.sentence
    assert "cost at least" not in verdict.sentence or at_least


def test_buffers_that_are_sent_before_forward_are_no_layers() -> None:
    """DDP does so once a forward: what ranks wait in backward is all seen."""
    verdict = view_of(layered(2, 1, Fault("forward", (1,), factor=1.1))).verdict
    assert verdict.decision == "keep"
