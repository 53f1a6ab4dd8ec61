"""The second tier on a real training of two ranks: hooks come and go, on the same steps, within the budget."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import detail_ranks
import pytest
from detail_ranks import BUDGET_PPM, NUM_STEPS, POOR_FROM
from ranks import run

from tuiadvisor.events import EventKind, StepFlag
from tuiadvisor_probes.duty import BURST_STEPS, FIRST_BURST_STEPS, FIRST_STEPS

pytest.importorskip("torch")

OWN_FIRST_BURST = FIRST_STEPS + FIRST_BURST_STEPS + 2  # unaligned: each rank learns what a burst costs it


def in_detail(rank: dict[str, Any]) -> list[dict[str, int]]:
    """The rank's steps in detail."""
    return [step for step in rank["steps"] if step["flags"] & StepFlag.DETAIL]


def own_cost(steps: list[dict[str, int]]) -> float:
    """Usual share of a step that the probe measured as its own; medians, since others use these cores too."""
    return statistics.median(step["probe_cost_ns"] / (step["end_ns"] - step["begin_ns"]) for step in steps)


def own_ns(steps: list[dict[str, int]]) -> float:
    """The same of a step, nanoseconds."""
    return statistics.median(step["probe_cost_ns"] for step in steps)


def test_hooks_of_the_detail_tier_come_and_go(tmp_path: Path) -> None:
    """Bursts on the same steps of both ranks; between them identical attributes; cost in budget; a new one counts."""
    ranks = run("_", 2, tmp_path, script=detail_ranks.__file__)
    for rank in ranks:
        assert 0 == rank["errors"]
        assert "ok" == rank["info"]["hooks"]["detail"]
        # Gradients may be reduced by these at each step, so they stay; a broadcast's hook is there in bursts only.
        assert {"allreduce", "wait"} <= set(rank["patched_always"])
        assert "broadcast" not in rank["patched_always"]
        shown = [set(seen["than_host"]) for seen in rank["seen"]]
        assert all(("broadcast" in names) == (names > set(rank["patched_always"])) for names in shown)
        assert any("broadcast" in names for names in shown)
        assert [] == rank["left"]
        between = [seen["than_always"] for seen in rank["seen"] if "broadcast" not in seen["than_host"]]
        assert len(between) > NUM_STEPS // 2
        assert [[]] * len(between) == between  # the identical objects, each time
        detail = in_detail(rank)
        called = {event["step"] for event in rank["events"] if event["kind"] <= EventKind.RECV}
        assert {step["step"] for step in detail} == called
        calls = [event["kind"] for event in rank["events"]]
        assert len(detail) == calls.count(EventKind.BROADCAST)
        late = POOR_FROM - rank["first"] + BURST_STEPS
        assert all(step["step"] <= late for step in detail)
        rich = [step for step in rank["steps"] if step["step"] < POOR_FROM - rank["first"]]
        light = [step for step in rich[OWN_FIRST_BURST:] if not step["flags"] & StepFlag.DETAIL]
        share = sum(1 for step in rich if step["flags"] & StepFlag.DETAIL) / len(rich)
        # By time: which steps others make longer is chance. Where the light ones alone are over the budget, bursts add
        # next to nothing.
        assert 0 < own_ns(light) < own_ns(detail)
        most = max(BUDGET_PPM / 1e6, 1.2 * own_cost(light))
        assert own_cost(light) * (1 - share) + own_cost(detail) * share < most
        assert {step["micro_steps"] for step in rank["steps"][2:-1]} == {1}
        assert all(step["arrive_ns"] > 0 for step in rank["steps"][1:-1])  # in detail or not
    aligned = [
        {step["group_seq"] for step in in_detail(rank) if step["step"] >= OWN_FIRST_BURST} for rank in ranks
    ]
    later = min(step["group_seq"] for step in ranks[1]["steps"][OWN_FIRST_BURST:])
    aligned = [{seq for seq in seqs if seq >= later} for seqs in aligned]
    assert len(aligned[0]) >= BURST_STEPS
    assert aligned[0] <= aligned[1] or aligned[1] <= aligned[0]
