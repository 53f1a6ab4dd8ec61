"""A device or its host is late in some of the steps only: the steps in which it is late tell which of them it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from simulated_devices import MS, DeviceJob, Fault, true_loss_s, view_of
from test_device_situations import is_near, named, said

pytestmark = pytest.mark.slow

# The threads are as slow as the devices: either may be what a step waits for.
HOST_BOUND = {"forward_host_s": 30 * MS, "backward_host_s": 52 * MS, "optimizer_host_s": 8 * MS}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("sync", [1, 10, 0])
@pytest.mark.parametrize(
    ("fault", "cause", "parts"),
    [
        (Fault("host", (1,), factor=12.0, every=3), "host", {}),
        (Fault("host", (1,), factor=6.0, every=10, length=3), "host", {}),
        (Fault("host", (1,), factor=6.0, onset=150), "host", {}),
        (Fault("device", (1,), factor=1.6, every=3), "device", HOST_BOUND),
        (Fault("device", (1,), factor=2.5, every=5), "device", HOST_BOUND),
    ],
)
def test_host_and_device_are_told_apart_in_the_steps_that_are_late(
    fault: Fault, cause: str, parts: dict[str, Any], sync: int, seed: int
) -> None:
    """All were told as the other of the two, by what the typical step showed."""
    job = DeviceJob(num_steps=300, sync_every=sync, seed=seed, faults=(fault,), **parts)
    view = view_of(job)
    if view.verdict.decision in (None, "keep"):
        assert true_loss_s(job) < 0.1 * (view.step.mean_s or 0), said(
            view
        )  # hidden behind what is launched ahead
        return
    assert {1} == named(view), said(view)
    assert {1: cause} == {late.rank: late.cause for late in view.stragglers}, said(view)


@pytest.mark.parametrize(
    ("factor", "data_s", "sync"),
    [(12.0, 60 * MS, 0), (12.0, 60 * MS, 10), (6.0, 90 * MS, 0), (6.0, 90 * MS, 10)],
)
def test_steps_in_which_a_device_waits_tell_it_apart_from_later_ones_that_are_late_too(
    factor: float, data_s: float, sync: int
) -> None:
    """A thread slow in every third step, whose data is late as all ranks' is, catches up over the next ones."""
    job = DeviceJob(num_ranks=8, num_steps=300, sync_every=sync).with_faults(
        Fault("host", (1,), factor=factor, every=3), Fault("data", None, data_s)
    )
    view = view_of(job)

    assert {1: "host"} == {late.rank: late.cause for late in view.stragglers}, said(view)


@pytest.mark.parametrize("num_ranks", [3, 4, 8])
@pytest.mark.parametrize(("before", "after"), [(20, 50), (50, 50), (80, 50)])
def test_another_devices_trouble_that_is_over_is_no_noise(num_ranks: int, before: int, after: int) -> None:
    """It hid who was late all along: keep, at 19 % of the step."""
    slow = Fault("device", (1,), factor=1.25)
    over = Fault("device", (2,), factor=1.6, until=before)
    job = DeviceJob(num_ranks=num_ranks, num_steps=before + after)
    view = view_of(job.with_faults(slow, over))
    assert {1} == named(view), said(view)
    assert is_near(view.stragglers[0].loss_s_per_step, true_loss_s(job.with_faults(slow))), said(view)


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_collections_that_began_in_the_middle_of_a_run_are_said(num_ranks: int) -> None:
    """Few long steps after many without tell little of a mean; but the collector was seen in each of them."""
    fault = Fault("gc", None, 0.2, chance=1 / 30, onset=200)
    job = replace(DeviceJob(), num_ranks=num_ranks, sync_every=7, seed=1, num_steps=500, queue=12)
    view = view_of(job.with_faults(fault))
    assert [("unaligned_collection", "warning")] == [
        (one.id, one.severity) for one in view.findings if one.severity != "info"
    ]
