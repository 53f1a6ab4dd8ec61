"""Trainings on asynchronous devices: whose fault it is, why, and what it costs, whatever the host's clock says.

Every situation is simulated with a look at the loss in every step, in every tenth and in none, and its healthy twin
with it. The simulation itself is held to what is known of it first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import pytest
from simulated_devices import (
    CLOSING,
    COMM,
    EVENT_NAMES,
    MS,
    DeviceJob,
    Fault,
    folded,
    frames,
    measured_rows,
    measured_steps,
    simulate,
    step_table,
    true_loss_s,
    view_of,
)
from synthetic_pipeline import Pipeline
from synthetic_pipeline import frames as pipeline_frames
from thinned import crossed, thinned

from tuiadvisor.phases import PHASES
from tuiadvisor.stream.frames import Frame, FrameKind, pack_columns, unpack_columns
from tuiadvisor.views.run_view import RunView

pytestmark = pytest.mark.slow

SYNCS = (1, 10, 0)


@dataclass(frozen=True)
class Situation:
    """A fault, and what must be said of it."""

    fault: Fault
    cause: str | None = None  # of the straggler; None: no rank is to be named
    finding: str | None = None  # above info; None: of the straggler


def guilty(num_ranks: int) -> int:
    """The rank that the faults below hit."""
    return 2 if num_ranks > 2 else 1


def situations(num_ranks: int) -> dict[str, Situation]:
    """What data-parallel training can suffer from."""
    one = (guilty(num_ranks),)
    return {
        "device slower by a fifth": Situation(Fault("device", one, factor=1.2), "device"),
        "data late on one": Situation(Fault("data", one, 120 * MS), "data_wait"),
        "data late on all": Situation(Fault("data", None, 120 * MS), None, "input_bound"),
        "copy slow on one": Situation(Fault("copy", one, 20 * MS), "h2d"),
        "thread launches late": Situation(Fault("host", one, factor=4.5), "host"),
        "link ten times slower": Situation(Fault("link", factor=10), None, "communication_bound"),
    }


NAMES = tuple(situations(4))


def said(view: RunView) -> str:
    """What a failure shows."""
    above = [
        f"{found.id} {found.ranks} {found.phase} {found.loss_s_per_step}"
        for found in view.findings
        if found.severity != "info"
    ]
    late = [
        f"rank {one.rank} {one.cause} {one.loss_s_per_step:.4f} s persistent={one.persistent}"
        for one in view.stragglers
    ]
    return f"{view.verdict.decision}: {view.verdict.sentence} | above: {above} | late: {late}"


def named(view: RunView) -> set[int]:
    """Ranks that a finding above info singles out, and the stragglers."""
    above = [found for found in view.findings if found.severity != "info"]
    from_findings = {rank for found in above if len(found.ranks) < len(view.ranks) for rank in found.ranks}
    return from_findings | {one.rank for one in view.stragglers}


def is_near(loss_s: float, true_s: float) -> bool:
    """Within a tenth and a millisecond."""
    return abs(loss_s - true_s) <= 0.1 * true_s + 1 * MS


def check(job: DeviceJob, one: Situation) -> None:
    """The view says it all, and nothing beside it."""
    view = view_of(job)
    true_s = true_loss_s(job)
    assert view.verdict.decision not in (None, "keep"), said(view)
    if one.cause is not None:
        assert one.fault.ranks is not None
        assert named(view) == set(one.fault.ranks), said(view)
        assert {late.rank: late.cause for late in view.stragglers} == dict.fromkeys(
            one.fault.ranks, one.cause
        ), said(view)
        loss_s = sum(late.loss_s_per_step for late in view.stragglers)
        assert is_near(loss_s, true_s), f"{loss_s * 1e3:.1f} of {true_s * 1e3:.1f} ms: {said(view)}"
    else:
        above = {found.id: found for found in view.findings if found.severity != "info"}
        assert one.finding in above, said(view)
        assert view.stragglers == (), said(view)
        loss_s = above[one.finding].loss_s_per_step or 0.0
        waits = simulate(job).waits_s()[20:].min(axis=1).mean() if one.fault.kind == "link" else true_s
        is_right = is_near(loss_s, true_s) or is_near(loss_s, float(waits))
        assert is_right, f"{loss_s * 1e3:.1f} of {true_s * 1e3:.1f} ms: {said(view)}"


def check_healthy(view: RunView) -> None:
    """Kept, and nobody blamed."""
    assert view.verdict.decision == "keep", said(view)
    assert named(view) == set(), said(view)
    assert not [found for found in view.findings if found.severity != "info"], said(view)
    assert view.pauses == ()


# -- the simulation -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sync", SYNCS)
@pytest.mark.parametrize("num_ranks", [2, 16])
def test_the_simulated_exchange_begins_when_the_last_device_is_there(sync: int, num_ranks: int) -> None:
    """Nobody is through before the last one's arrival, and the last one waits for no more than the transfer."""
    job = DeviceJob(num_ranks=num_ranks, sync_every=sync).with_faults(Fault("device", (1,), factor=1.2))
    run = simulate(job)
    arrived, through = run.passed[:, COMM], run.passed[:, COMM + 1]

    assert (through.min(axis=1) >= arrived.max(axis=1)).all()
    assert (run.waits_s()[:, 1] <= 1.5 * job.transfer_s / job.num_buckets).all()
    others = np.delete(run.waits_s(), 1, axis=1)
    assert float(others[20:].mean() - run.waits_s()[20:, 1].mean()) == pytest.approx(17 * MS, abs=2 * MS)


@pytest.mark.parametrize("sync", SYNCS)
def test_simulated_steps_are_whole_and_in_order(sync: int) -> None:
    """Borders follow one another on both clocks, none is passed before it was recorded, and steps touch."""
    run = simulate(DeviceJob(sync_every=sync))

    assert (np.diff(run.passed, axis=1) >= 0).all()
    assert (np.diff(run.recorded, axis=1) >= 0).all()
    assert (run.passed > run.recorded).all()
    assert (run.passed[1:, 0] == run.passed[:-1, CLOSING]).all()


def test_simulated_thread_runs_ahead_as_far_as_its_queue_and_its_looks_at_the_loss_allow() -> None:
    """Less than a step where it looks in each, two and a half where in none, ten where a step is a graph."""
    ahead = {
        sync: float(simulate(DeviceJob(sync_every=sync)).ahead_s()[20:].max() / (90 * MS)) for sync in SYNCS
    }
    graphs = float(simulate(DeviceJob(sync_every=10).graphed()).ahead_s()[20:].max() / (90 * MS))

    assert ahead[1] < 1
    assert 2 < ahead[0] < 3
    assert ahead[1] < ahead[10] <= ahead[0]
    assert graphs > 8


@pytest.mark.parametrize(
    ("fault", "sync", "low_ms", "high_ms"),
    [
        (Fault("device", (2,), factor=1.2), 0, 16, 18),
        (Fault("device", (2,), factor=1.2), 1, 16, 18),
        (Fault("data", (2,), 120 * MS), 1, 115, 121),
        (Fault("data", (2,), 120 * MS), 0, 50, 60),  # 120 + 25 of the thread, less the 89 of a healthy step
        (Fault("data", (2,), 40 * MS), 0, 0, 0.5),
        (Fault("copy", (2,), 20 * MS), 0, 19, 21),
        (Fault("host", (2,), factor=3), 0, 0, 0.5),
        (Fault("host", (2,), factor=4.5), 0, 18, 32),
        (Fault("link", factor=10), 10, 90, 105),
    ],
)
def test_simulated_faults_cost_what_they_must(fault: Fault, sync: int, low_ms: float, high_ms: float) -> None:
    """What the thread's lead hides is free; all else costs what the devices wait."""
    loss_s = true_loss_s(DeviceJob(sync_every=sync).with_faults(fault))

    assert low_ms * MS - 1e-6 <= loss_s <= high_ms * MS


@pytest.mark.parametrize("period", [1, 4, 16])
def test_simulated_ranks_measure_the_same_steps(period: int) -> None:
    """Every step, a fourth, a sixteenth of them; rows of a step touch, and cover what the device's step took."""
    job = DeviceJob(num_ranks=3, period=period, sync_every=10, attach=(0, 5, 0))
    run = simulate(job)
    steps = measured_steps(job)
    rows = measured_rows(run)
    column = {name: index for index, name in enumerate(EVENT_NAMES)}

    assert (
        period / 2 < (job.num_steps - 2) / len(steps) < 2 * period
    )  # drawn by lot, so that nothing is in step
    for rank, attach in enumerate(job.attach):
        mine = [one.step for one in rows if one.rank == rank]
        assert set(steps[2:-12]) <= set(mine) | set(range(attach + 2))
    for one in rows:
        begin, end = one.rows[:, column["begin_ns"]], one.rows[:, column["end_ns"]]
        assert (begin[1:] == end[:-1]).all()
        whole = run.passed[one.step, CLOSING, one.rank] - run.passed[one.step, 0, one.rank]
        assert (end[-1] - begin[0]) / 1e9 == pytest.approx(float(whole), abs=1e-8)
        assert (one.rows[:, column["step"]] == one.step - job.attach[one.rank]).all()
        true_begin_ns = run.passed[one.step, 0, one.rank] * 1e9
        assert begin[0] - 2 <= true_begin_ns <= begin[0] + one.rows[0, column["seq"]] + 2


def test_simulated_host_rows_do_not_show_the_devices_wait() -> None:
    """A device that is 17 ms late: on the threads' clocks nobody waits in the exchange."""
    run = simulate(DeviceJob(sync_every=1).with_faults(Fault("device", (2,), factor=1.2)))
    host_wait_s = run.release - run.arrive

    assert float(host_wait_s.max()) < 1 * MS
    assert float(run.waits_s()[20:, 0].mean()) > 15 * MS
    assert step_table(run).shape[:2] == (140, 4)


# -- what is said -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sync", SYNCS)
@pytest.mark.parametrize("num_ranks", [4, pytest.param(64, marks=pytest.mark.extended)])
@pytest.mark.parametrize("name", NAMES)
def test_fault_is_told_with_rank_cause_and_size(name: str, num_ranks: int, sync: int) -> None:
    """Whoever is named is guilty, for the right reason, and at what it costs the devices."""
    one = situations(num_ranks)[name]
    check(DeviceJob(num_ranks=num_ranks, sync_every=sync).with_faults(one.fault), one)


@pytest.mark.parametrize("sync", SYNCS)
@pytest.mark.parametrize("num_ranks", [4, 64])
def test_healthy_twin_is_kept(num_ranks: int, sync: int) -> None:
    """Most of the step is compute, by the device's own clock."""
    view = view_of(DeviceJob(num_ranks=num_ranks, sync_every=sync))
    check_healthy(view)
    shares = [view.step.shares[name] for name in ("forward", "backward", "optimizer")]

    assert sum(share or 0.0 for share in shares) > 0.85


@pytest.mark.parametrize(
    ("num_ranks", "sync", "name"),
    [
        (2, 1, "device slower by a fifth"),
        (2, 0, "thread launches late"),
        (8, 10, "copy slow on one"),
        (8, 0, "data late on one"),
        (256, 1, "device slower by a fifth"),
        pytest.param(1024, 1, "device slower by a fifth", marks=pytest.mark.extended),
        pytest.param(1024, 0, "link ten times slower", marks=pytest.mark.extended),
    ],
)
def test_other_sizes_of_the_job(num_ranks: int, sync: int, name: str) -> None:
    """Two ranks have one witness each, hundreds have many."""
    one = situations(num_ranks)[name]
    check(DeviceJob(num_ranks=num_ranks, sync_every=sync, num_steps=100).with_faults(one.fault), one)


@pytest.mark.parametrize("num_ranks", [2, 8, pytest.param(1024, marks=pytest.mark.extended)])
def test_other_sizes_of_a_healthy_job(num_ranks: int) -> None:
    """The latest of a thousand is late in every step, but never the same."""
    check_healthy(view_of(DeviceJob(num_ranks=num_ranks, sync_every=10, num_steps=100)))


@pytest.mark.parametrize(("period", "num_steps"), thinned([(4, 240), (16, 640)], [(4, 240)], is_row=True))
@pytest.mark.parametrize("name", NAMES)
def test_fault_is_told_from_few_measured_steps(name: str, period: int, num_steps: int) -> None:
    """Events that cost much are recorded in few steps."""
    one = situations(4)[name]
    check(DeviceJob(period=period, num_steps=num_steps, sync_every=10).with_faults(one.fault), one)


@pytest.mark.parametrize(("sync", "ranks_per_host"), crossed(SYNCS, [4, 8]))
def test_whole_node_that_is_late_is_named(ranks_per_host: int, sync: int) -> None:
    """Its clock is off by hours, and nothing of it may be taken for a shift of the clock."""
    late = tuple(range(ranks_per_host, 2 * ranks_per_host))
    job = DeviceJob(
        num_ranks=2 * ranks_per_host,
        ranks_per_host=ranks_per_host,
        sync_every=sync,
        host_clock_s={1: 7200.0},
        attach=(0,) * ranks_per_host + (7,) * ranks_per_host,
    )
    view = view_of(job.with_faults(Fault("device", late, factor=1.2)))

    assert named(view) == set(late), said(view)
    assert {host for found in view.findings if found.id == "slow_host" for host in found.hosts} == {"node1"}
    check_healthy(view_of(job))


def test_ranks_attached_one_after_another_on_hosts_with_clocks_of_their_own() -> None:
    """Steps are matched by what they exchange, not by their numbers."""
    job = DeviceJob(
        num_ranks=8, ranks_per_host=2, attach=(0, 3, 9, 1, 0, 25, 4, 2), host_clock_s={1: 5.0, 2: 300.0}
    )
    check_healthy(view_of(job))
    check(job.with_faults(Fault("device", (5,), factor=1.2)), Situation(Fault("device", (5,)), "device"))


@pytest.mark.parametrize(("sync", "num_ranks"), crossed([10, 0], [4, 64]))
def test_slow_thread_behind_a_slower_device_is_free(num_ranks: int, sync: int) -> None:
    """Three times as slow, and its device never waits for it."""
    job = DeviceJob(num_ranks=num_ranks, sync_every=sync).with_faults(Fault("host", (2,), factor=3))

    assert true_loss_s(job) < 1 * MS
    check_healthy(view_of(job))


@pytest.mark.parametrize("sync", [1, 10, 50])
def test_graphs_with_a_look_at_the_loss_now_and_then_do_not_pause(sync: int) -> None:
    """The thread's steps take 1 ms, and each tenth of them 900: on the device they are equal."""
    view = view_of(DeviceJob(sync_every=sync).graphed())

    check_healthy(view)
    assert view.step.median_s == pytest.approx(89 * MS, abs=3 * MS)


@pytest.mark.parametrize("sync", SYNCS)
def test_device_that_holds_its_clock_back_has_two_witnesses(sync: int) -> None:
    """Its times, and NVML."""
    job = DeviceJob(sync_every=sync, mhz=(1755, 1755, 1462, 1755)).with_faults(
        Fault("device", (2,), factor=1.2)
    )
    view = view_of(job)

    assert {one.rank: one.cause for one in view.stragglers} == {2: "device"}, said(view)
    assert any("1462 MHz" in found.message for found in view.findings if 2 in found.ranks), said(view)


@pytest.mark.parametrize("sync", SYNCS)
def test_blocking_copy_that_is_slow_is_a_copy_too(sync: int) -> None:
    """The thread waits for it as well."""
    fault = Fault("copy", (2,), 20 * MS)
    job = DeviceJob(sync_every=sync, is_copy_blocking=True)

    check_healthy(view_of(job))
    check(job.with_faults(fault), Situation(fault, "h2d"))


@pytest.mark.parametrize("sync", SYNCS)
def test_few_measured_steps_decide_nothing(sync: int) -> None:
    """Eight in 140 steps: which clock is missing is said."""
    job = DeviceJob(period=16, sync_every=sync)
    for one in (job, job.with_faults(Fault("device", (2,), factor=1.2))):
        view = view_of(one)
        assert view.verdict.decision is None, said(view)
        assert "device" in view.verdict.sentence
        assert named(view) == set(), said(view)


@pytest.mark.parametrize(("sync", "name"), crossed(SYNCS, ["healthy", *NAMES]))
def test_without_the_devices_clock_nothing_is_decided(name: str, sync: int) -> None:
    """Probes that record no device times on a device: neither well nor ill, no rank, no pause."""
    job = DeviceJob(sync_every=sync)
    if name != "healthy":
        job = job.with_faults(situations(4)[name].fault)
    view = view_of(job, with_devices=False)

    assert view.verdict.decision not in ("keep", "tune"), said(view)
    assert view.stragglers == (), said(view)
    assert view.pauses == ()


def test_lost_frames_of_device_times_decide_nothing() -> None:
    """Three of four ranks' device times are not all ranks'."""
    job = DeviceJob(num_ranks=4, ranks_per_host=1).with_faults(Fault("device", (2,), factor=1.2))

    def is_lost(frame: Frame) -> bool:
        return frame.kind == FrameKind.EVENTS and frame.source.startswith("node2/")

    view = folded([frame for frame in frames(simulate(job)) if not is_lost(frame)])

    assert named(view) <= {2}, said(view)
    assert view.verdict.decision != "keep", said(view)


@pytest.mark.parametrize(
    ("sync", "num_ranks", "fault"),
    crossed(
        SYNCS,
        [4, 64],
        [
            Fault("spikes", chance=0.01, amount_s=50 * MS),
            Fault("spikes", chance=0.05, amount_s=8 * MS),
            Fault("rotate", factor=1.2),
        ],
    ),
)
def test_lateness_that_is_nobodys_names_nobody(fault: Fault, num_ranks: int, sync: int) -> None:
    """Spikes here and there, or each rank slow for twenty steps in turn: no rank is late for good."""
    view = view_of(DeviceJob(num_ranks=num_ranks, num_steps=200, sync_every=sync).with_faults(fault))

    assert [one.rank for one in view.stragglers if one.persistent] == [], said(view)
    critical = [found for found in view.findings if found.severity == "critical" and len(found.ranks) == 1]
    assert not critical, said(view)


@pytest.mark.parametrize("sync", SYNCS)
def test_onset_is_dated_by_measured_steps(sync: int) -> None:
    """Seen from step 100 on, at the size it has since."""
    fault = Fault("device", (2,), factor=1.2, onset=100)
    job = DeviceJob(num_steps=200, sync_every=sync).with_faults(fault)
    view = view_of(job)
    late = {one.rank: one for one in view.stragglers}

    assert set(late) == {2}, said(view)
    assert late[2].since_step == pytest.approx(100, abs=5)
    assert is_near(late[2].loss_s_per_step, true_loss_s(job, 100)), said(view)


def test_short_run_is_not_judged() -> None:
    """Fifteen steps, all measured."""
    view = view_of(replace(DeviceJob(), num_steps=15))

    assert view.verdict.decision is None, said(view)


def test_spans_shown_are_the_devices() -> None:
    """Forward 28 ms, backward 50, not the 9 and 12 that the thread launches for."""
    view = view_of(DeviceJob())
    assert view.device is not None

    for name, wanted_ms in (("h2d", 1.1), ("forward", 28), ("backward", 50), ("optimizer", 6)):
        assert name in PHASES
        assert view.device.seconds[name] == pytest.approx(wanted_ms * MS, rel=0.03)


@pytest.mark.parametrize("seed", thinned([0, 1, 2, 3], [0, 1]))
def test_data_that_is_late_on_all_is_nobodys_fault_although_threads_drift_apart(seed: int) -> None:
    """Without a look at the loss no thread waits for another: the last one's device idles, by chance that rank's."""
    fault = Fault("data", None, 90 * MS)
    job = DeviceJob(num_ranks=8, num_steps=400, sync_every=0, seed=seed).with_faults(fault)
    view = view_of(job)

    assert named(view) == set(), said(view)
    (found,) = [one for one in view.findings if one.id == "input_bound"]
    assert found.severity != "info", said(view)
    # No device is idle for as long as is said, so whose clock says it stands beside it.
    assert "by their threads' clocks" in found.message


def test_measured_steps_stand_for_all_whatever_the_distance_of_looks_at_the_loss() -> None:
    """The thread's lead hides the data in most steps and not after a look: one in ten, one in five of the measured."""
    fault = Fault("data", (2,), 90 * MS)
    job = DeviceJob(num_steps=400, sync_every=10, period=4).with_faults(fault)
    check(job, Situation(fault, "data_wait"))


def test_the_time_line_is_the_devices() -> None:
    """A look at the loss in every tenth step: on the thread one step in ten is long, on the device all are alike."""
    view = view_of(DeviceJob(num_steps=140, sync_every=10).graphed())
    known = [value for value in view.trend.step_s if value is not None]

    assert len(known) > 20
    assert max(known) < 1.5 * min(known)


def test_throughput_is_that_of_all_steps() -> None:
    """Measured or not, ahead or not: steps a second are those of the job."""
    run = simulate(DeviceJob(num_steps=400, sync_every=10, period=4).graphed())
    view = folded(frames(run))

    assert view.step.throughput_steps_s == pytest.approx(1 / run.mean_cycle_s(), rel=0.05)
    assert view.step.median_s == pytest.approx(run.mean_cycle_s(), rel=0.05)


@pytest.mark.parametrize("fault", [None, Fault("device", (2,), factor=1.3), Fault("link", factor=10)])
def test_without_an_exchange_of_its_own_nothing_is_kept_and_nobody_named(fault: Fault | None) -> None:
    """As under HSDP: the waits for other ranks lie in forward and backward, where they look like compute."""
    job = DeviceJob(num_ranks=4) if fault is None else DeviceJob(num_ranks=4).with_faults(fault)
    sequence = []
    for frame in frames(simulate(job)):
        shown = frame
        if frame.kind == FrameKind.EVENTS:
            columns = unpack_columns(frame.payload, EVENT_NAMES)
            phase = columns["group"]
            phase = np.where(phase == PHASES.index("comm_exposed"), PHASES.index("backward"), phase)
            rows = np.stack([phase if name == "group" else columns[name] for name in EVENT_NAMES], axis=1)
            shown = replace(frame, payload=pack_columns(rows, EVENT_NAMES))
        sequence.append(shown)
    view = folded(sequence)

    assert view.verdict.decision is None, said(view)
    assert "what they wait for each other" in view.verdict.sentence
    assert named(view) == set()
    assert view.overlap.transfer_s is None


def test_a_pipelines_launches_measure_no_stage() -> None:
    """The chunks' times are the host's: no bubble, no heavy stage, no keep."""
    sequence = []
    for frame in pipeline_frames(Pipeline(heavy=((2, 1.6),))):
        shown = frame
        if frame.kind == FrameKind.HELLO:
            ranks = [
                {**entry, "device": "cuda"}
                for entry in cast("list[dict[str, object]]", frame.payload["ranks"])
            ]
            shown = replace(frame, payload={**frame.payload, "ranks": ranks})
        sequence.append(shown)
    view = folded(sequence)

    assert view.verdict.decision is None, said(view)
    assert named(view) == set()
    assert view.pipeline is not None
    assert "when they were launched" in view.pipeline.why_unknown
