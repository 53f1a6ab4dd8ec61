"""A rank that is late in data because its storage is slow: read from looks at whoever reads, and told as such."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from patience import wait_until
from synthetic_run import MS, Fault, Job, above_info, folded, frames
from test_advisor_oddities import host_frames

from tuiadvisor.advisor.cluster.off_core import Outside
from tuiadvisor.advisor.cluster.run_delay import CoreWait
from tuiadvisor.agent import looks as looks_module
from tuiadvisor.agent.looks import StateLooks
from tuiadvisor.metrics.lateness.late_phase import StorageWait
from tuiadvisor.metrics.lateness.off_core import OffCore
from tuiadvisor.metrics.lateness.storage_wait import storage_wait
from tuiadvisor.views.run_view import Finding, RunView

pytestmark = pytest.mark.slow

JOB = Job(num_steps=600)  # 11 s: a dozen samples, 120 looks at each rank
LATE = JOB.with_faults(Fault("data", (1,), 9 * MS))
RANKS = range(4)
Told = dict[str, int]
# At a training thread that makes its batches itself, a second; at two workers beside it.
READS = {"looks": 10, "stopped_looks": 0, "storage_looks": 4, "worker_looks": 0, "worker_storage_looks": 0}
CACHED = {**READS, "storage_looks": 0}
WORKERS_READ = {**CACHED, "worker_looks": 20, "worker_storage_looks": 16}
WORKERS_CACHED = {**WORKERS_READ, "worker_storage_looks": 1}


def seen(job: Job, told: dict[int, Told], waits: dict[int, float] | None = None) -> RunView:
    """told: of each rank what looks count in a second."""
    result = []
    for second, frame in enumerate(host_frames(job, waits or dict.fromkeys(RANKS, 0.02))):
        ranks = [
            {
                **entry,
                "cpu_s": 1.0 * second,
                "run_s": 0.2 * second,
                **{name: value * second for name, value in told.get(entry["rank"], {}).items()},
            }
            for entry in frame.payload["ranks"]  # type: ignore[attr-defined]
        ]
        for host in {rank // job.ranks_per_host for rank in RANKS}:  # each tells of its own
            own = [entry for entry in ranks if entry["rank"] // job.ranks_per_host == host]
            payload = {**frame.payload, "host": f"node{host}", "ranks": own}
            result.append(replace(frame, source=f"node{host}/1/1", payload=payload))
    return folded([*frames(job), *result]).view()


def late_in_data(view: RunView) -> Finding:
    assert [("straggler", (1,), "data_wait")] == above_info(view)
    return view.findings[0]


def told_of(rank: int, own: Told, others: Told) -> dict[int, Told]:
    return {each: own if each == rank else others for each in RANKS}


def test_a_training_thread_that_waits_for_storage_is_said() -> None:
    """8 of 10 looks, of a rank that is 9 of 27 ms late: what it waits for, and what helps."""
    found = late_in_data(seen(LATE, told_of(1, {**READS, "storage_looks": 8}, CACHED)))
    assert (
        "waiting for its next batch: its training thread waits for storage in 80 % of the looks at it, "
        "its peers' in 0 %" in found.message
    )
    assert "storage" == found.evidence["seen_cause"]
    assert (0.8, 0.0) == (found.evidence["storage_share"], found.evidence["peers_storage_share"])
    assert ["iostat -xm 5 2  # package sysstat"] == [one.command for one in found.actions if one.command]
    assert "this node's NVMe" in found.actions[1].text


def test_workers_that_wait_for_storage_are_said() -> None:
    """Where worker processes read, the training thread only sleeps."""
    found = late_in_data(seen(LATE, told_of(1, WORKERS_READ, WORKERS_CACHED)))
    assert (
        "waiting for its next batch: its loader's workers wait for storage in 80 % of the looks at them, "
        "its peers' in 5 %" in found.message
    )


@pytest.mark.parametrize(
    "told",
    [
        {},  # an older agent
        told_of(1, CACHED, CACHED),  # from the page cache: what is slow is its transforms
        told_of(1, READS, READS),  # all alike: a slow storage, but not what makes this rank late
        told_of(0, READS, CACHED),  # one that is not late
        told_of(1, WORKERS_READ, CACHED),  # how the others' workers fare was not seen
        told_of(1, {**CACHED, "storage_looks": 1}, CACHED),  # a tenth of its time is not a third of a step
    ],
    ids=["older", "cached", "alike", "another", "unseen", "little"],
)
def test_storage_is_not_said_without_a_difference(told: dict[int, Told]) -> None:
    """The rank and its data are named all the same."""
    found = late_in_data(seen(LATE, told))
    assert "for storage" not in found.message
    assert "seen_cause" not in found.evidence


@pytest.mark.parametrize("phase", ["forward", "backward", "checkpoint"])
def test_storage_is_said_of_data_alone(phase: str) -> None:
    """A rank that writes a checkpoint in each step waits for storage: its phase says so better."""
    view = seen(
        JOB.with_faults(Fault(phase, (1,), 9 * MS)), told_of(1, {**READS, "storage_looks": 8}, CACHED)
    )
    assert "for storage" not in view.findings[0].message


def test_a_host_whose_mount_is_slow_makes_all_its_ranks_late() -> None:
    """What they have in common is told with them."""
    job = replace(JOB, ranks_per_host=2).with_faults(Fault("data", (2, 3), 9 * MS))
    view = seen(job, {rank: {**READS, "storage_looks": 8 if rank > 1 else 0} for rank in RANKS})
    (found,) = [one for one in view.findings if one.id == "straggler"]
    assert (
        "all its ranks alike, mostly waiting for its next batch: its training thread waits" in found.message
    )
    assert "iostat" in str(found.actions[0].command)


@pytest.mark.parametrize(
    ("own", "words"),
    [
        (WORKERS_READ, ": its loader's workers wait for storage in 80 % of the looks at them"),
        (WORKERS_CACHED, ""),
    ],
)
def test_where_no_arrival_is_seen_storage_is_said_too(own: Told, words: str) -> None:
    """Layers of one's own that meet: a rank that waits for data and the others not."""
    job = replace(
        LATE, barrier_seen=False, observed=("data_wait", "forward", "backward", "optimizer", "other")
    )
    (found,) = [one for one in seen(job, told_of(1, own, WORKERS_CACHED)).findings if one.id == "held_rank"]
    assert (1,) == found.ranks
    assert f"the typical other one 1 %{words}" in found.message
    assert ("iostat -xm 5 2  # package sysstat" in [one.command for one in found.actions]) == bool(words)


def test_all_ranks_that_wait_for_storage_alike_have_no_straggler() -> None:
    view = seen(JOB.with_faults(Fault("data", None, 9 * MS)), dict.fromkeys(RANKS, READS))
    assert "straggler" not in {one.id for one in view.findings}


def test_a_rank_without_a_core_is_not_said_to_wait_for_storage() -> None:
    """Nine of 27 ms: a third of its time it was ready to run."""
    view = seen(LATE, told_of(1, {**READS, "storage_looks": 2}, CACHED), {0: 0.02, 1: 0.5, 2: 0.02, 3: 0.02})
    assert "ready to run but without a core" in view.findings[0].message


def explained(own: OffCore, peers: list[OffCore], excess_s: float = 0.4) -> StorageWait | None:
    """Of steps of a second."""
    return storage_wait(own, peers, excess_s)


def looked(share: float | None, num: int, *, in_workers: bool = False) -> OffCore:
    return OffCore(storage=share, num_looks=num, reads_in_workers=in_workers)


def test_how_much_is_beyond_chance() -> None:
    """Two standard deviations of so many looks at it and at its peers have to leave half of the lateness."""
    peers = [looked(0.02, 40)] * 3
    assert explained(looked(0.5, 40), peers) == StorageWait(0.5, 0.02, in_workers=False)
    assert explained(looked(0.3, 40), peers) is None  # 0.3 - 0.02 - 0.15 of a second do not make 0.2
    assert explained(looked(0.3, 4000), peers) is not None
    assert explained(looked(1.0, 2), [looked(0.0, 2)] * 3) is None  # two looks are chance
    assert explained(looked(0.9, 40), [looked(0.7, 40)] * 3) is None
    assert explained(looked(None, 0), peers) is None
    assert explained(looked(0.5, 40), [*peers, looked(None, 0)]) is None
    assert explained(looked(0.5, 40), []) is None
    assert explained(looked(0.5, 40, in_workers=True), peers) is None
    assert explained(looked(0.5, 40), peers, excess_s=1.0) is None  # it explains less than half


def outside(samples: list[Told]) -> OffCore:
    """One rank, a sample a second."""
    found = Outside(CoreWait())
    for second, told in enumerate(samples):
        found.take({"mono_ns": (second + 1) * 10**9, "ranks": [{"rank": 0, "cpu_s": 1.0 * second, **told}]})
    return found.seen([0], 60.0)[0]


def growing(told: Told, seconds: int = 8, begin: int = 0) -> list[Told]:
    return [{name: value * second for name, value in told.items()} for second in range(begin, seconds)]


def test_looks_are_counted_of_whoever_reads() -> None:
    thread, workers = outside(growing(READS)), outside(growing(WORKERS_READ))
    assert (0.4, 70, False) == (thread.storage, thread.num_looks, thread.reads_in_workers)
    # Workers of one loader are late together: as many looks as there were moments.
    assert (0.8, 70, True) == (workers.storage, workers.num_looks, workers.reads_in_workers)


@pytest.mark.parametrize(
    "told",
    [
        {"looks": 10, "stopped_looks": 0},  # an older agent
        {**READS, "storage_looks": 11},
        {**READS, "storage_looks": -4},
        {**WORKERS_READ, "worker_storage_looks": 21},
        {**WORKERS_READ, "worker_looks": 1 << 62},
        {**READS, "looks": 1 << 62, "storage_looks": 1 << 61},
        {**WORKERS_READ, "worker_looks": -20},
    ],
)
def test_counts_that_cannot_be_are_unknown(told: Told) -> None:
    """A forged frame: more that wait than looks, negative, or beyond what an agent can have done in that time."""
    assert outside(growing(told)).storage is None


def test_an_agent_that_restarts_goes_on() -> None:
    """Its counts begin anew: those before are kept, none is taken off."""
    found = outside([*growing({**READS, "storage_looks": 8}), *growing({**READS, "storage_looks": 8}, 8)])
    assert found.storage == pytest.approx(0.8)
    # Only one count falls: what this is nobody knows.
    samples = growing(WORKERS_READ, begin=1)
    samples[-1] |= {"worker_storage_looks": 3}
    assert outside(samples).storage is None


# Who makes a process waits, as for a disk, until that has begun its program: it cannot, for nobody writes its input.
BLOCKED = """
import os, sys
def wait(path):
    os.mkfifo(path)
    os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, path, os.O_RDONLY, 0)])
"""
IN_THREAD = """
import threading
def told_then_waits():
    print(threading.get_native_id(), flush=True)
    wait(sys.argv[1])
thread = threading.Thread(target=told_then_waits)
thread.start()
thread.join()
"""
IN_CHILD = """
child = os.fork()
if not child:
    os.close(1)
    if sys.argv[2]:
        open("/proc/self/comm", "w").write(sys.argv[2])
    else:
        os.execl(sys.executable, sys.executable, "-c", sys.argv[3] + "wait(sys.argv[1])", sys.argv[1])
    wait(sys.argv[1])
print(child, flush=True)
os.waitpid(child, 0)
"""


@contextlib.contextmanager
def blocked(name: str, folder: Path) -> Iterator[tuple[int, int]]:
    """A process and its thread, or a child of that name, that is in the state in which one waits for a disk."""
    code = BLOCKED + (IN_THREAD if name == "thread" else IN_CHILD)
    command = [sys.executable, "-c", code, str(folder / "fifo"), name, BLOCKED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            task = int(process.stdout.readline())
            stat = Path(f"/proc/{process.pid if name == 'thread' else task}/task/{task}/stat")
            wait_until(lambda: ") D " in stat.read_text(), "it waits as for a disk")
            yield process.pid, task
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_a_training_thread_that_waits_is_met(tmp_path: Path) -> None:
    """Which thread trains is known; the main one may sleep meanwhile."""
    looks = StateLooks()
    with blocked("thread", tmp_path) as (pid, thread):
        for _ in range(3):
            looks.look({pid: thread})
        looks.look({pid: pid})
    assert looks.counts(pid) == {
        "looks": 4, "stopped_looks": 0, "storage_looks": 3, "worker_looks": 0, "worker_storage_looks": 0,
        "worker_running_looks": 0, "data_storage_looks": 0, "workers": 0,
    }  # fmt: skip


@pytest.mark.parametrize(("name", "num"), [("pt_data_worker", 3), ("", 0)])
def test_workers_that_wait_are_met_by_their_name(name: str, num: int, tmp_path: Path) -> None:
    """Another child, as one that writes a checkpoint, is none of the loader."""
    looks = StateLooks()
    with blocked(name, tmp_path) as (pid, _):
        for _ in range(3):
            looks.look({pid: pid})
    told = looks.counts(pid)
    assert (num, num) == (told["worker_looks"], told["worker_storage_looks"])
    assert 0 == told["storage_looks"]


def test_of_very_many_workers_some_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any child may call itself a worker: a process with thousands costs no more than one with some."""
    asked: list[int] = []
    own = looks_module.procfs.stat(os.getpid())

    def told(pid: int) -> object:
        asked.append(pid)
        return own

    monkeypatch.setattr(looks_module, "worker_pids", lambda _pid: list(range(1000, 9000)))
    monkeypatch.setattr(looks_module.procfs, "stat", told)
    StateLooks().look({os.getpid(): os.getpid()})
    assert len(asked) <= 1 + looks_module.MAX_KNOWN + looks_module.MAX_WORKERS


def test_a_worker_s_number_that_another_process_got_is_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the moment it began; and who has gone is looked for anew, but once a second at most."""
    looks, now_ns, num_searches = StateLooks(), [10**9], []
    search = looks_module.worker_pids

    def counted(pid: int) -> list[int]:
        num_searches.append(pid)
        return search(pid)

    monkeypatch.setattr(looks_module, "worker_pids", counted)
    monkeypatch.setattr(looks_module.time, "monotonic_ns", lambda: now_ns[0])
    with blocked("pt_data_worker", tmp_path) as (pid, worker):
        looks.look({pid: pid})
        real: Any = looks_module.procfs.stat
        monkeypatch.setattr(
            looks_module.procfs,
            "stat",
            lambda one: replace(found, start_ticks=1) if (found := real(one)) and one == worker else found,
        )
        looks.look({pid: pid})
        looks.look({pid: pid})
        assert 1 == looks.counts(pid)["worker_looks"]
        assert 1 == len(num_searches)
        now_ns[0] += 2 * 10**9
        looks.look({pid: pid})
        assert 2 == len(num_searches)
