"""Clocks that jump in the midst of a run: a wall clock that is set, a machine that was suspended, hours of drift.

Nothing that is said may come from the jump: no verdict, pause, onset, rank, restart or silence. Fed as frames, and
through a recording that is replayed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest
import synthetic_run as on_hosts
from simulated_devices import MS, DeviceJob, DeviceRun, Fault, Floats, folded, frames, simulate
from thinned import crossed, thinned

from tuiadvisor.events import STEP_NAMES
from tuiadvisor.metrics.steps.stood_clocks import SIDE_STEPS, stood_HK
from tuiadvisor.stream.frames import HUB_SOURCE, Frame, FrameKind, decode, encode
from tuiadvisor.stream.recording import RecordingReader, RecordingWriter

if TYPE_CHECKING:
    from pathlib import Path

    from tuiadvisor.views.run_view import RunView

NS = 10**9
SUSPENDED_S = 30.0
AT_STEP = 150
BOOT = {"node0": "boot-a", "node1": "boot-b", "node2": "boot-c"}
SLOW = Fault("device", (2,), factor=1.2)
JOB = DeviceJob(num_ranks=4, ranks_per_host=2, num_steps=300)
WALL_NS = 1_700_000_000 * NS
FAULTS = {"healthy": (), "device slow": (SLOW,)}


def said(view: RunView, *, with_pauses: bool = True) -> object:
    """What a user acts on."""
    found = [
        (one.id, one.ranks, one.phase, one.severity)
        for one in view.findings
        if with_pauses or "pause" not in one.id
    ]
    late = [(one.rank, one.cause) for one in view.stragglers]
    onsets = [one.since_step for one in view.findings if with_pauses or "pause" not in one.id]
    return view.verdict.decision, view.verdict.finding, found, late, onsets, view.restarts, view.losses.notes


def greeted(sequence: list[Frame], start_ns: int = WALL_NS - 60 * NS) -> list[Frame]:
    """Agents tell which boot their host is in, and when its processes started."""
    result = []
    for frame in sequence:
        if frame.kind == FrameKind.HELLO:
            entries = cast("list[dict[str, object]]", frame.payload["ranks"])
            told = [{**one, "start_wall_ns": start_ns} for one in entries]
            host = cast("str", frame.payload["host"])
            frame = replace(frame, payload={**frame.payload, "ranks": told, "boot_id": BOOT[host]})  # noqa: PLW2901
        result.append(frame)
    return result


def with_statuses(sequence: list[Frame], set_by_s: float = 0.0, after: int = AT_STEP) -> list[Frame]:
    """A STATUS beside each frame of steps, by whose wall clock node1 was set in the middle."""
    result, seen = [], dict[str, int]()
    for frame in sequence:
        result.append(frame)
        if frame.kind != FrameKind.STEPS:
            continue
        host = frame.source.split("/", 1)[0]
        seen[host] = seen.get(host, 0) + 40
        is_set = host == "node1" and seen[host] > after
        wall_ns = WALL_NS - NS + frame.time_ns + round(is_set * set_by_s * NS)
        payload: dict[str, object] = {"host": host, "mono_ns": frame.time_ns, "wall_ns": wall_ns, "ranks": []}
        result.append(Frame(FrameKind.STATUS, frame.source, frame.seq + 1000, frame.time_ns, payload))
    return result


def another_agent(
    sequence: list[Frame], set_by_s: float, *, pid: int = 0, started_s: float = 0.0, moves_starts: bool = True
) -> list[Frame]:
    """From the middle on node1's frames come from an agent that has read the wall clock after it was set.

    moves_starts: with a clock that is set the kernel tells other starts of the same processes; with one that stood
    still it does not. pid: of other processes, which started so many seconds after those before.
    """
    hello = next(one for one in sequence if one.kind == FrameKind.HELLO and one.source.startswith("node1"))
    steps = [one for one in sequence if one.source == hello.source and one.kind == FrameKind.STEPS]
    first_ns = steps[len(steps) // 2].time_ns
    entries = cast("list[dict[str, int]]", hello.payload["ranks"])
    moved_ns = round((started_s + moves_starts * set_by_s) * NS)
    told = [
        {**one, "start_wall_ns": one["start_wall_ns"] + moved_ns, "pid": one["pid"] + pid} for one in entries
    ]
    wall_ns = cast("int", hello.payload["wall_ns"]) - cast("int", hello.payload["mono_ns"]) + first_ns
    payload = {**hello.payload, "ranks": told, "mono_ns": first_ns, "wall_ns": wall_ns + round(set_by_s * NS)}
    result, has_come = [], False
    for frame in sequence:
        if frame.source != hello.source or frame.time_ns < first_ns:
            result.append(frame)
            continue
        if not has_come:
            result += [
                Frame(FrameKind.BYE, hello.source, 10_000, first_ns, {"reason": "killed"}),
                Frame(FrameKind.HELLO, "node1/2/2", 0, first_ns, payload),
            ]
            has_come = True
        result.append(replace(frame, source="node1/2/2"))
    return result


def suspended(run: DeviceRun, at_s: float, host: int = 1) -> DeviceRun:
    """That host's clock does not count while it was suspended: its threads and devices stood, too."""
    is_its_own = np.arange(run.job.num_ranks) // run.job.ranks_per_host == host

    def read(times: Floats) -> Floats:
        stood = np.where(times < at_s, times, np.maximum(at_s, times - SUSPENDED_S))
        return np.asarray(np.where(is_its_own, stood, times))

    return replace(
        run,
        recorded=read(run.recorded),
        passed=read(run.passed),
        arrive=read(run.arrive),
        release=read(run.release),
    )


def after_suspension(
    faults: tuple[Fault, ...], sync: int, job: DeviceJob = JOB, host: int = 1, at_step: int = AT_STEP
) -> list[Frame]:
    """A host was suspended for 30 s after a step; the ranks of the others waited for it in the next one."""
    ranks = (2 * host, 2 * host + 1)
    stood = Fault("save", ranks, SUSPENDED_S, onset=at_step, until=at_step + 1)
    run = simulate(replace(job, sync_every=sync).with_faults(*faults, stood))
    at_s = float(run.recorded[at_step, run.job.closing - 1, list(ranks)].max()) + 1 * MS
    return greeted(frames(suspended(run, at_s, host)))


@pytest.mark.slow
@pytest.mark.parametrize(("faults", "sync"), crossed(FAULTS, [1, 10, 0]))
def test_suspended_machine_changes_no_verdict_and_is_not_silent(faults: str, sync: int) -> None:
    """Its clock is 30 s behind for good; the pause is there, and nobody else's."""
    plain = folded(greeted(frames(simulate(replace(JOB, sync_every=sync).with_faults(*FAULTS[faults])))))
    view = folded(after_suspension(FAULTS[faults], sync))

    assert said(plain, with_pauses=False) == said(view, with_pauses=False)
    assert view.losses.notes == ()
    (pause,) = view.pauses
    assert set(pause.ranks) <= {2, 3}
    # By half of the ranks it lasted 30 s, by the others' clocks no time; a device with a queue makes up for some.
    assert pause.length_s == pytest.approx(SUSPENDED_S, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(("period", "stood", "num_ranks"), crossed([1, 4], [0, 1], [4, 6]))
def test_suspended_machine_of_devices_makes_one_pause_of_its_length(
    period: int, stood: int, num_ranks: int
) -> None:
    """Whichever host it is; where it falls between two measured steps no device saw it, and none is made up."""
    job = replace(JOB, num_ranks=num_ranks, num_steps=300 * period, period=period)
    at_step = AT_STEP * period
    plain = folded(greeted(frames(simulate(job))))
    sequence = after_suspension((), 1, job, stood, at_step)
    view = folded(sequence)

    assert said(plain, with_pauses=False) == said(view, with_pauses=False)
    assert len(view.pauses) <= 1
    if period == 1:
        assert view.pauses
    for pause in view.pauses:
        assert set(pause.ranks) <= {2 * stood, 2 * stood + 1}
        assert pause.length_s == pytest.approx(SUSPENDED_S, rel=0.02)


CLOCKS = [STEP_NAMES.index(name) for name in ("begin_ns", "end_ns", "arrive_ns", "release_ns")]
OTHER, END = STEP_NAMES.index("other_ns"), STEP_NAMES.index("end_ns")
ON_HOSTS = on_hosts.Job(num_ranks=4, ranks_per_host=2, num_steps=400, seed=3)
LATE = {"healthy": (), "late in forward": (on_hosts.Fault("forward", (3,), 6 * MS),)}


def seen_on_hosts(faults: str, stood: tuple[int, ...], at_step: int, num_ranks: int) -> RunView:
    """The machine of these ranks was suspended for 30 s after a step; no device is there."""
    fault = on_hosts.Fault("other", stood, SUSPENDED_S, onset=at_step, until=at_step + 1)
    job = replace(ON_HOSTS, num_ranks=num_ranks, faults=(*LATE[faults], *((fault,) if stood else ())))
    run = on_hosts.simulate(job)
    if not stood:
        return on_hosts.folded(on_hosts.frames(job, 40, run)).view()
    lost_ns = round(SUSPENDED_S * NS)
    begin_ns = max(run.rows[rank][at_step][END] for rank in stood) - lost_ns - 100_000

    def read(row: tuple[int, ...]) -> tuple[int, ...]:
        result = list(row)
        for column in CLOCKS:
            result[column] = min(row[column], max(begin_ns, row[column] - lost_ns))
        result[OTHER] -= lost_ns * (row[1] == at_step)
        return tuple(result)

    rows = {
        rank: [read(row) if rank in stood else row for row in records] for rank, records in run.rows.items()
    }
    return on_hosts.folded(on_hosts.frames(job, 40, on_hosts.Simulated(rows, run.cycle_s))).view()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("at_step", "stood", "num_ranks"), crossed([150, 185, 130, 250], [(2, 3), (0, 1)], [4, 6])
)
@pytest.mark.parametrize("faults", LATE)
def test_suspended_host_makes_one_pause_of_its_length(
    faults: str, at_step: int, stood: tuple[int, ...], num_ranks: int
) -> None:
    """Wherever in a block of steps its clock stood: not a second pause at the block's end, nobody who takes turns."""
    plain, view = (seen_on_hosts(faults, who, at_step, num_ranks) for who in ((), stood))

    assert said(plain, with_pauses=False) == said(view, with_pauses=False)
    (pause,) = view.pauses
    assert (pause.ranks, pause.kind) == (stood, "irregular")
    assert pause.length_s == pytest.approx(SUSPENDED_S, rel=0.01)


@pytest.mark.parametrize("by_s", [0.0, 30.0, 2.0])
def test_clock_that_stood_is_found_to_the_step(by_s: float) -> None:
    """Beside drift, steps that are not known, and a host that left one exchange five seconds late."""
    rng = np.random.default_rng(0)
    true_s = np.arange(200) * 1.0
    releases = true_s + rng.exponential(1e-4, (3, 200)) + np.array([[0.0], [3e5], [-7e3]])
    releases[1] += 1e-4 * true_s - by_s * (np.arange(200) >= 77)
    releases[2, 50] += 5.0
    releases[:, [10, 78]] = np.nan
    found = stood_HK(releases)

    if by_s == 0:
        assert found is None
        return
    assert found is not None
    assert np.flatnonzero(found[1]).tolist() == list(range(77, 200))
    assert found[1, -1] == pytest.approx(-by_s, abs=2 * SIDE_STEPS * 1e-4)
    assert not found[[0, 2]].any()


def test_reference_whose_clock_stood_is_behind_the_others() -> None:
    """Of two clocks that part the one that has counted more is right."""
    releases = np.vstack([np.arange(100.0), np.arange(100.0) + 40.0])
    releases[0, 30:] -= 12.0
    found = stood_HK(releases)

    assert found is not None
    assert found[0, 30:].tolist() == pytest.approx([-12.0] * 70)
    assert not found[0, :30].any()
    assert not found[1].any()


@pytest.mark.slow
@pytest.mark.parametrize(("faults", "set_by_s"), crossed(FAULTS, [5.0, -5.0, 3600.0, -3600.0]))
def test_wall_clock_that_is_set_changes_nothing(faults: str, set_by_s: float) -> None:
    """The agents go on, and tell another wall clock from then on."""
    sequence = greeted(frames(simulate(JOB.with_faults(*FAULTS[faults]))))
    plain, view = folded(with_statuses(sequence)), folded(with_statuses(sequence, set_by_s))

    assert said(plain) == said(view)
    assert view.event_time_s == plain.event_time_s


@pytest.mark.parametrize("set_by_s", thinned([5.0, -5.0, 3600.0, -3600.0], [5.0, -5.0]))
def test_agent_that_comes_after_the_clock_was_set_tells_of_no_restart(set_by_s: float) -> None:
    """The kernel says now that the same processes started seconds later, or earlier; nobody is silent."""
    sequence = greeted(frames(simulate(JOB)))
    plain, view = folded(sequence), folded(another_agent(sequence, set_by_s))

    assert view.restarts == ()
    assert said(plain) == said(view)
    assert view.wall is not None
    assert plain.wall is not None
    assert view.wall.end_to_end == pytest.approx(plain.wall.end_to_end)
    assert (view.wall.num_restarts, view.wall.num_stepless) == (0, plain.wall.num_stepless)
    assert view.event_time_s == plain.event_time_s


def test_agent_that_comes_after_a_suspension_tells_of_no_restart() -> None:
    """The wall clock is 30 s ahead of what it was by the host's own, and the starts are where they were."""
    sequence = after_suspension((), 1)
    view = folded(another_agent(sequence, SUSPENDED_S, moves_starts=False))

    assert view.restarts == ()
    assert view.losses.notes == ()
    assert view.verdict.decision == "keep"


@pytest.mark.parametrize("set_by_s", [5.0, -5.0, -3600.0])
def test_restart_is_told_whatever_the_clock_was_set_by(set_by_s: float) -> None:
    """Other processes took the ranks three seconds after the first: by the wall clock they may be older."""
    sequence = greeted(frames(simulate(JOB)))
    view = folded(another_agent(sequence, set_by_s, pid=500, started_s=3.0))

    assert [one.ranks for one in view.restarts] == [(2, 3)]


def test_agent_that_falls_silent_is_still_seen_to() -> None:
    """Nothing comes from node1 for the second half of the run, with a clock that was set and without."""
    sequence = greeted(frames(simulate(JOB)))
    last_ns = max(one.time_ns for one in sequence) // 2
    view = folded([one for one in sequence if one.source.startswith("node0") or one.time_ns < last_ns])

    assert [note for note in view.losses.notes if "silent" in note]


def test_jumps_are_the_same_in_a_recording_that_is_replayed(tmp_path: Path) -> None:
    """Suspended, and watched by another agent after the clock was set back."""
    sequence = another_agent(with_statuses(after_suspension((SLOW,), 1), -5.0), -5.0)
    run = encode(FrameKind.RUN, HUB_SOURCE, 0, NS, {})
    writer = RecordingWriter(tmp_path / "jumps.tuiad", run)
    for frame in sequence:
        writer.append(encode(frame.kind, frame.source, frame.seq, frame.time_ns, frame.payload))
    writer.close()
    with RecordingReader(tmp_path / "jumps.tuiad") as reader:
        replayed = folded([decode(found.data) for found in reader.frames()])

    assert said(folded(sequence)) == said(replayed)
    assert replayed.restarts == ()
    assert [(one.rank, one.cause) for one in replayed.stragglers] == [(2, "device")]
