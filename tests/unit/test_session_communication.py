"""Compute against communication: time that ranks wait for a late one moves no data."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tuiadvisor.session.evidence import compute_to_communication

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
