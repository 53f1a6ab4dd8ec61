"""A slow exchange beside an overfull host, by the devices' clocks; and what looks like it and is none.

Real trainings on asynchronous devices with 8 to 11 threads a core had waits that differed by
0 to 2 % of the step between ranks, and threads that were a step ahead.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from simulated_devices import (
    EVENT_NAMES,
    MS,
    DeviceJob,
    DeviceRun,
    Fault,
    Ints,
    edited,
    folded,
    frames,
    simulate,
)

from tuiadvisor.phases import PHASES
from tuiadvisor.stream.frames import Frame, FrameKind
from tuiadvisor.views.run_view import RunView

GROUP, BEHIND = (EVENT_NAMES.index(name) for name in ("group", "detail"))
COMM = PHASES.index("comm_exposed")
NUM_CORES, PACKED, ROOMY = 2, 22, 2
LINK = Fault("link", factor=5)  # 56 ms of 131 are exposed then
JOB = DeviceJob(num_steps=160, host_noise=0.3)


def on_host_with(run: DeviceRun, num_ready: int) -> list[Frame]:
    """The run's frames, and each second of it how many threads want the cores of each host."""
    job = run.job
    result = frames(run)
    hosts = dict.fromkeys(job.host(rank) for rank in range(job.num_ranks))
    for second in range(1, int(run.passed.max()) + 1):
        for host in hosts:
            payload: dict[str, object] = {
                "host": host,
                "mono_ns": second * 10**9,
                "wall_ns": 1_700_000_000_000_000_000 + second * 10**9,
                "run_queue": num_ready,
                "num_cpus": NUM_CORES,
                "ranks": [],
            }
            result.append(Frame(FrameKind.HOST, f"{host}/1/1", 10_000 + second, second * 10**9, payload))
    return result


def crowded(job: DeviceJob) -> RunView:
    """The view at the end of the job on an overfull host."""
    return folded(on_host_with(simulate(job), PACKED))


def says_exchange(view: RunView) -> bool:
    """Whether the exchange is found, above a remark."""
    return any(one.id == "communication_bound" and one.severity != "info" for one in view.findings)


@pytest.mark.parametrize("sync_every", [0, 1, 10])
@pytest.mark.parametrize("num_ranks", [2, 4, 64])
def test_devices_that_wait_equally_long_wait_for_the_network_however_full_the_host(
    num_ranks: int, sync_every: int
) -> None:
    """No rank is late for the others, and all was launched before: told, sized, and with the host's load beside it."""
    job = replace(JOB, num_ranks=num_ranks, sync_every=sync_every).with_faults(LINK)
    view = crowded(job)
    true_s = simulate(job).mean_cycle_s() - simulate(replace(job, transfer_s=0.0)).mean_cycle_s()

    assert view.verdict.decision == "tune"
    assert "exposed gradient communication, on an oversubscribed host" in view.verdict.sentence
    assert view.stragglers == ()
    told_s = next(one.loss_s_per_step for one in view.findings if one.id == "communication_bound")
    assert told_s == pytest.approx(true_s, rel=0.1)


def test_a_wait_that_a_thread_may_have_held_up_tells_nothing_on_a_full_host() -> None:
    """Each device is through with its wait as soon as its thread comes, as if all threads were slow there alike."""

    def no_queue(rows: Ints) -> Ints:
        rows = rows.copy()
        rows[rows[:, GROUP] == COMM, BEHIND] = 0
        return rows

    sequence = on_host_with(simulate(JOB.with_faults(LINK)), PACKED)

    assert says_exchange(folded(sequence))
    assert not says_exchange(folded(edited(sequence, no_queue)))
    assert folded(edited(sequence, no_queue)).verdict.decision is None
    # Where cores are free a thread is not suspected.
    assert says_exchange(folded(edited(on_host_with(simulate(JOB.with_faults(LINK)), ROOMY), no_queue)))


LATE_IN_TURNS = Fault("rotate", factor=1.25)
LATE_NOW_AND_THEN = Fault("spikes", amount_s=12 * MS, chance=0.15)


@pytest.mark.parametrize("late", [LATE_IN_TURNS, LATE_NOW_AND_THEN])
def test_ranks_that_are_late_in_turns_are_no_even_wait(late: Fault) -> None:
    """Beside a slow link; what of the waits is whose is left open where so many others want the cores."""
    assert not says_exchange(crowded(JOB.with_faults(LINK, late)))


def test_waits_at_several_meetings_of_a_step_are_not_added_up_to_an_even_one() -> None:
    """Batch statistics: ranks meet in forward, and unseen in backward."""
    assert not says_exchange(crowded(replace(JOB, meetings=3).with_faults(LINK)))


@pytest.mark.parametrize(
    ("job", "faults"),
    [
        (JOB, (Fault("host", factor=12),)),
        (replace(JOB, sync_every=0), (Fault("host", factor=12),)),
        (JOB, (Fault("data", amount_s=60 * MS),)),
        (replace(JOB, num_ranks=16), (Fault("host", tuple(range(8)), factor=12),)),
        (replace(JOB, num_ranks=16), (Fault("device", tuple(range(8)), factor=1.3),)),
        (replace(JOB, meetings=3), (Fault("device", (1,), factor=1.3),)),
        (JOB, (Fault("device", (1,), factor=1.3),)),
    ],
)
def test_what_is_no_slow_exchange_becomes_none(job: DeviceJob, faults: tuple[Fault, ...]) -> None:
    """Threads slow on all ranks or on a whole host, slow data, slow devices, all on a full host."""
    assert not says_exchange(crowded(job.with_faults(*faults)))


def test_the_evidence_stands_beside_the_finding() -> None:
    """By how much the waits differ, and how much of them the threads had launched before."""
    view = crowded(JOB.with_faults(LINK))
    evidence = next(one for one in view.findings if one.id == "communication_bound").evidence

    assert 0 <= evidence["wait_spread_share"] <= 0.05
    assert evidence["wait_launched_share"] == pytest.approx(1.0)
