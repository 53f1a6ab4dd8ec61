"""Compute against communication: time that ranks wait for a late one moves no data."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from synthetic_run import Job, final_view

from tuiadvisor.session.conduct import conduct
from tuiadvisor.session.evidence import compute_to_communication
from tuiadvisor.session.intent import Intent
from tuiadvisor.session.recorded import Recorded
from tuiadvisor.views.run_view import RunView
from tuiadvisor_rules.questions import load_questions

SECONDS = {"forward": 0.004, "backward": 0.008, "optimizer": 0.0}


@pytest.mark.parametrize(
    ("total_s", "skew_s", "transfer_s", "ratio"),
    [
        (0.024, 0.018, 0.005, 2.0),  # 24 ms in collectives, 18 of them waiting: 6 are communication
        (None, None, 0.006, 2.0),
        (0.024, None, 0.006, 2.0),  # how much of the total is waiting was not seen
        (0.018, 0.018, 0.006, 2.0),
        (None, None, None, None),
        (None, 0.018, None, None),
    ],
)
def test_waiting_for_a_late_rank_is_no_communication(
    total_s: float | None, skew_s: float | None, transfer_s: float | None, ratio: float | None
) -> None:
    """Else a straggler makes a job seem bound by its network, and more devices a waste."""
    run = SimpleNamespace(
        seconds=SECONDS,
        comm_total_s=total_s,
        skew_sampled_s=skew_s,
        transfer_s=transfer_s,
        comm_exposed_s=0.024,
    )
    found = compute_to_communication(run)  # type: ignore[arg-type]
    assert (None if ratio is None else pytest.approx(ratio)) == (found[0] if found else None)


def test_all_communication_and_what_is_exposed_of_it_are_never_set_side_by_side() -> None:
    """Of one workload all of it was seen, of the other what is exposed: both are shown by the exposed part."""
    seen: RunView = final_view(Job(num_ranks=4, num_steps=150))
    total_s, transfer_s = 0.03, 0.006
    with_all = replace(
        seen,
        overlap=replace(seen.overlap, comm_total_s=total_s, skew_sampled_s=0.0, transfer_s=transfer_s),
    )
    without = replace(with_all, overlap=replace(with_all.overlap, comm_total_s=None))

    def compared(*views: RunView) -> list[str]:
        runs = [
            Recorded(name, view, gradient_bytes)
            for (name, gradient_bytes), view in zip((("a", 10**6), ("b", 10**8)), views, strict=True)
        ]
        session = conduct(runs, Intent(), {}, load_questions())
        rows = [
            item for stage in session.stages for item in stage.evidence if item.name.startswith("workload ")
        ]
        return [(item.text or "").split(" for a second of ")[1].split(",")[0] for item in rows]

    assert compared(with_all, with_all) == ["all communication"] * 2
    assert compared(with_all, without) == ["exposed communication"] * 2
