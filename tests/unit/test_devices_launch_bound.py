"""Devices that wait for launches: who is to blame, what is not known, and what a full queue looks like beside."""

from __future__ import annotations

from dataclasses import replace

import pytest
from simulated_devices import MS, DeviceJob, Fault, simulate, view_of

SLOW_THREADS = Fault("host", None, factor=6)  # 150 ms of launches a step for 84 ms of kernels
SLOW_DEVICE = Fault("device", (1,), factor=1.2)
SYNCS = (0, 1, 10)


@pytest.mark.parametrize("sync_every", SYNCS)
@pytest.mark.parametrize("num_ranks", [2, 8])
def test_job_whose_threads_all_launch_slowly_is_not_kept(num_ranks: int, sync_every: int) -> None:
    """Four tenths of the step are waiting for launches: no device's clock tells it, and none denies it."""
    job = DeviceJob(num_ranks=num_ranks, sync_every=sync_every).with_faults(SLOW_THREADS)
    view = view_of(job)

    assert view.verdict.decision is None
    assert "launched" in view.verdict.sentence
    assert [one.rank for one in view.stragglers] == []
    assert "host_bound" in {found.id for found in view.findings}


@pytest.mark.parametrize("sync_every", SYNCS)
def test_healthy_job_of_many_launches_a_step_is_kept(sync_every: int) -> None:
    """A full queue is short beside a step of ten times as many launches: the device has work all along."""
    job = DeviceJob(num_forward=50, num_backward=100, num_optimizer=16, queue=10, sync_every=sync_every)
    view = view_of(job)

    assert view.verdict.decision == "keep"
    assert "host_bound" not in {found.id for found in view.findings}


@pytest.mark.parametrize(
    ("sync_every", "causes"), [(0, {"device", "unknown"}), (1, {"device"}), (10, {"device", "unknown"})]
)
def test_slow_device_behind_a_queue_short_beside_its_step_does_not_wait_for_launches(
    sync_every: int, causes: set[str]
) -> None:
    """Full queues are as short on all ranks; the slow device's holds as many launches, which take longer."""
    job = DeviceJob(num_forward=50, num_backward=100, num_optimizer=16, queue=10, sync_every=sync_every)
    view = view_of(job.with_faults(SLOW_DEVICE))

    assert [one.rank for one in view.stragglers] == [1]
    assert view.stragglers[0].cause in causes


@pytest.mark.parametrize("queue", [10, 20])
@pytest.mark.parametrize("micro_steps", [4, 16])
def test_slow_device_of_several_micro_steps_does_not_wait_for_launches(micro_steps: int, queue: int) -> None:
    """The queue is short beside a step of many passes, and not what the thread is late by."""
    job = DeviceJob(num_ranks=2, micro_steps=micro_steps, queue=queue, sync_every=10, num_steps=80)
    view = view_of(job.with_faults(SLOW_DEVICE))

    assert [one.rank for one in view.stragglers] == [1]
    assert view.stragglers[0].cause in {"device", "unknown"}


@pytest.mark.parametrize("num_ranks", [2, 4, 8])
def test_threads_that_launch_layers_equally_slowly_name_nobody(num_ranks: int) -> None:
    """Who is last by a hair works in its own phases while the others wait at each layer: that is no lateness."""
    view = view_of(DeviceJob(num_ranks=num_ranks, layers=16).with_faults(SLOW_THREADS))

    assert view.verdict.decision is None
    assert [one.rank for one in view.stragglers] == []
    assert "wandering_lateness" not in {found.id for found in view.findings}


@pytest.mark.parametrize("layers", [0, 16])
def test_slower_thread_among_slow_ones_is_named(layers: int) -> None:
    """Its own clock says that it launches for longer than the others."""
    job = DeviceJob(layers=layers).with_faults(SLOW_THREADS, Fault("host", (1,), factor=1.3))
    view = view_of(job)

    assert [(one.rank, one.cause) for one in view.stragglers] == [(1, "host")]


def test_devices_slow_in_turns_are_told_under_fsdp2() -> None:
    """Their threads are as fast as each other, and they are never done with what was launched."""
    job = DeviceJob(num_ranks=4, num_steps=200, layers=16).with_faults(Fault("rotate", factor=1.4))

    assert view_of(job).verdict.finding == "wandering_lateness"


def test_promise_for_whole_hosts_counts_no_wait_for_data_that_it_cures() -> None:
    """Late hosts are cured together: what one of them reads limits no step without it."""
    job = DeviceJob(num_ranks=16, ranks_per_host=4)
    hosts = Fault("device", (4, 5, 6, 7), factor=1.2), Fault("data", (8, 9, 10, 11), 120 * MS)
    view = view_of(job.with_faults(*hosts))
    now_s = simulate(job.with_faults(*hosts)).mean_cycle_s()
    cured_s = simulate(replace(job, faults=())).mean_cycle_s()

    assert view.verdict.speedup is not None
    assert now_s / view.verdict.speedup.expected == pytest.approx(cured_s, rel=0.02)
    assert not view.verdict.at_best


def test_slow_thread_behind_late_data_limits_its_promise_where_it_looks_at_each_loss() -> None:
    """Rank 0 launches for 150 ms a step, and its device is done with that before the late rank is there."""
    slow_thread = Fault("host", (0,), factor=6.0)
    job = DeviceJob(num_ranks=2).with_faults(slow_thread, Fault("data", (1,), 160 * MS))
    now_s, then_s = simulate(job).mean_cycle_s(), simulate(job.with_faults(slow_thread)).mean_cycle_s()
    view = view_of(job)

    assert view.verdict.speedup is not None
    assert now_s / view.verdict.speedup.expected == pytest.approx(then_s, rel=0.06)
    assert view.verdict.at_best
