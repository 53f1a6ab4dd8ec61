"""What a verdict promises on devices, where something else hides behind what it names: the same job with that cured."""

from __future__ import annotations

import pytest
from simulated_devices import MS, DeviceJob, Fault, simulate, view_of

from tuiadvisor.views.run_view import RunView

pytestmark = pytest.mark.slow

SLOW_DEVICE = Fault("device", (2,), factor=1.5)
NEAR = 0.1  # of the present step


def slow_data(milliseconds: float) -> Fault:
    """On all ranks."""
    return Fault("data", None, milliseconds * MS)


def then_s(job: DeviceJob, *left: Fault) -> float:
    """Of a step with these faults alone."""
    return simulate(job.with_faults(*left)).mean_cycle_s()


def promised_s(view: RunView, job: DeviceJob) -> float:
    """Of a step, as the verdict has it."""
    assert view.verdict.speedup is not None
    return simulate(job).mean_cycle_s() / view.verdict.speedup.expected


@pytest.mark.parametrize("sync", [0, 10])
def test_a_late_device_that_is_idle_for_data_is_cured_only_with_the_data(sync: int) -> None:
    """The thread takes 145 ms by itself: with the device cured alone no step gets shorter."""
    data = slow_data(120)
    job = DeviceJob(sync_every=sync).with_faults(data, SLOW_DEVICE)
    view = view_of(job)

    assert view.verdict.finding == "straggler"
    assert "and without the threads' wait for data, the mean step would take at best" in view.verdict.sentence
    assert promised_s(view, job) >= then_s(job) - 0.02 * then_s(job)
    assert promised_s(view, job) == pytest.approx(then_s(job), abs=NEAR * simulate(job).mean_cycle_s())
    assert view.verdict.next_constraint != "data_wait"
    (late,) = [one for one in view.findings if one.id == "straggler"]
    assert "only without both is a step sure to be shorter" in late.message
    assert late.loss_s_per_step is not None
    assert (
        late.loss_s_per_step < 0.3 * simulate(job).mean_cycle_s()
    )  # what the others wait for it, and no more


@pytest.mark.parametrize("sync", [0, 10])
def test_a_wait_for_data_behind_a_late_device_comes_next(sync: int) -> None:
    """Devices have work all the time; threads that read for 90 ms a step cannot go on in less."""
    job = DeviceJob(sync_every=sync).with_faults(slow_data(90), SLOW_DEVICE)
    view = view_of(job)

    assert (view.verdict.finding, view.verdict.next_constraint) == ("straggler", "data_wait")
    assert "would take at best" in view.verdict.sentence
    assert view.verdict.at_best
    assert 0.09 <= promised_s(view, job) <= then_s(job, slow_data(90))


def test_what_threads_take_by_themselves_is_known_where_they_are_ahead_between_looks_at_the_loss() -> None:
    """85 ms, and the healthy device takes 89: nothing hides, and the promise is no mere bound."""
    job = DeviceJob(sync_every=10).with_faults(slow_data(60), SLOW_DEVICE)
    view = view_of(job)

    assert (view.verdict.finding, view.verdict.at_best) == ("straggler", False)
    assert promised_s(view, job) == pytest.approx(then_s(job, slow_data(60)), rel=0.03)


def test_a_slow_thread_behind_another_ranks_slow_device_limits_its_promise() -> None:
    """Rank 1 launches for 150 ms a step, which its device does not show while it waits for rank 0's."""
    slow_thread = Fault("host", (1,), factor=6.0)
    job = DeviceJob(num_ranks=2, sync_every=10).with_faults(slow_thread, Fault("device", (0,), factor=2.0))
    view = view_of(job)

    assert (view.verdict.finding, view.verdict.next_constraint) == ("straggler", "host_bound")
    assert promised_s(view, job) == pytest.approx(
        then_s(job, slow_thread), abs=NEAR * simulate(job).mean_cycle_s()
    )


def test_one_slow_loader_among_slow_ones_leaves_the_others() -> None:
    """Their devices never wait for data while rank 1 makes all wait; their threads do."""
    job = DeviceJob(sync_every=0).with_faults(slow_data(160), Fault("data", (1,), 160 * MS))
    view = view_of(job)

    assert view.verdict.at_best
    assert 0.16 <= promised_s(view, job) <= then_s(job, slow_data(160))


def test_data_that_all_wait_for_is_no_faster_than_the_late_device_lets_it() -> None:
    """Without the wait the slow device still takes 131 ms, the others 89."""
    job = DeviceJob(sync_every=0).with_faults(slow_data(160), SLOW_DEVICE)
    view = view_of(job)

    assert (view.verdict.finding, view.verdict.next_constraint) == ("input_bound", "device")
    assert promised_s(view, job) == pytest.approx(then_s(job, SLOW_DEVICE), rel=0.03)


@pytest.mark.parametrize("milliseconds", [60, 120])
def test_where_threads_wait_for_their_devices_in_each_step_nothing_hides(milliseconds: float) -> None:
    """Both add up, and each is promised plainly."""
    data = slow_data(milliseconds)
    job = DeviceJob(sync_every=1).with_faults(data, SLOW_DEVICE)
    view = view_of(job)
    now_s = simulate(job).mean_cycle_s()

    assert (view.verdict.finding, view.verdict.at_best) == ("input_bound", False)
    assert promised_s(view, job) == pytest.approx(then_s(job, SLOW_DEVICE), rel=0.03)
    (late,) = [one for one in view.findings if one.id == "straggler"]
    assert now_s / float(late.evidence["speedup"] or 1) == pytest.approx(then_s(job, data), rel=0.03)


def test_a_rank_with_twice_the_batch_is_told_as_that_where_its_copy_is_long() -> None:
    """The copy of a batch grows with it as what is computed does."""
    job = DeviceJob().with_faults(Fault("copy", None, 20 * MS), Fault("batch", (2,), factor=2.0))
    view = view_of(job)

    assert "with 2.00 times the samples of the others" in view.verdict.sentence


@pytest.mark.parametrize(
    ("milliseconds", "sync", "is_known"), [(120, 0, False), (90, 10, False), (60, 1, True)]
)
def test_ranks_evened_out_are_no_faster_than_their_threads(
    milliseconds: float, sync: int, is_known: bool
) -> None:
    """Of threads that take 145 or 115 ms by themselves; with a look in each step nothing hides."""
    job = DeviceJob(sync_every=sync).with_faults(slow_data(milliseconds), SLOW_DEVICE)

    assert (view_of(job).slowdown is not None) == is_known
