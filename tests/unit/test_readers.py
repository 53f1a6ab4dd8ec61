"""All ranks wait for their batches: whether whoever reads waits for storage, computes, or does neither."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from patience import wait_until
from simulated_devices import DeviceJob, simulate
from simulated_devices import folded as of_devices
from simulated_devices import frames as frames_of_devices
from synthetic_run import MS, Fault, Job, above_info
from test_storage_wait import READS, WORKERS_READ, Told, seen

from tuiadvisor.agent import looks as looks_module
from tuiadvisor.agent import procfs
from tuiadvisor.agent.looks import StateLooks
from tuiadvisor.agent.rank_link import DATA_WAIT, RankLink
from tuiadvisor.causes.cause import Measured
from tuiadvisor.causes.input_bound import _readers
from tuiadvisor.causes.straggler import OWN_CODE, layer_of, layer_of_host
from tuiadvisor.events import RankState
from tuiadvisor.metrics.lateness.off_core import OffCore
from tuiadvisor.metrics.lateness.readers import Readers, readers_of_all
from tuiadvisor.stream.frames import Frame, FrameKind
from tuiadvisor.views.run_view import Finding

JOB = Job(num_steps=600).with_faults(Fault("data", None, 9 * MS))  # of 27 ms, on all ranks
COMPUTE = {**WORKERS_READ, "worker_storage_looks": 1, "worker_running_looks": 17}
IN_STORAGE = {**WORKERS_READ, "worker_running_looks": 2}


def bound(told: Told) -> Finding:
    """The finding, all ranks told alike."""
    view = seen(JOB, dict.fromkeys(range(4), told))
    (found,) = [one for one in view.findings if one.id == "input_bound"]
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("told", "words", "layer", "first"),
    [
        (IN_STORAGE, "(the loaders' workers wait for storage in 80 % of the looks at them);", "storage", "Ask storage"),
        (
            COMPUTE,
            "(the loaders' workers compute in 85 % of the looks at them and wait for storage in 5 %)",
            "application",
            "Load with more worker processes, as far",
        ),
        (
            {**READS, "storage_looks": 4},
            "(the training threads, which read, wait for storage in 40 % of the looks at them)",
            "storage",
            "Ask storage",
        ),
        ({**READS, "storage_looks": 1}, "", "application", "Load with more worker processes and"),
        (WORKERS_READ, "(the loaders' workers wait for storage in 80 %", "storage", "Ask storage"),  # an older agent
        ({**COMPUTE, "worker_running_looks": 20}, "", "application", "Load with"),  # more than there were: forged
    ],
)  # fmt: skip
def test_what_the_readers_do_is_told_with_what_helps(told: Told, words: str, layer: str, first: str) -> None:
    """Slow storage, slow transforms and a slow network have other cures; what is not sure is not said."""
    found = bound(told)
    assert words in found.message
    assert bool(words) == ("of the looks" in found.message)
    assert layer == found.layer
    assert found.actions[0].text.startswith(first)
    assert ("Training waits for storage" == found.title) == ("for storage in 80" in words or "40 %" in words)


@pytest.mark.slow
def test_a_rank_that_is_late_by_itself_does_not_speak_for_all() -> None:
    """Its readers wait for storage, the others compute, and all wait for data."""
    job = Job(num_steps=600).with_faults(Fault("data", None, 9 * MS), Fault("data", (1,), 9 * MS))
    view = seen(job, {rank: IN_STORAGE if rank == 1 else COMPUTE for rank in range(4)})
    assert ("straggler", (1,), "data_wait") in above_info(view)
    (found,) = [one for one in view.findings if one.id == "input_bound"]
    assert "compute in 85 %" in found.message


def looked(
    storage: float | None, running: float | None = None, num: int = 100, workers: bool = True
) -> OffCore:
    return OffCore(storage=storage, num_looks=num, reads_in_workers=workers, running=running)


@pytest.mark.parametrize(
    ("own", "stage", "workers", "doing"),
    [
        (Readers(0.1, 0.1, True, "neither", most_workers=2), "workers", 2, "neither"),
        (Readers(0.1, 0.1, True, "neither", most_workers=6), "workers", 2, None),  # of another loader, too
        (
            Readers(0.1, 0.1, True, "neither", most_workers=2),
            None,
            2,
            None,
        ),  # whether they are behind was not seen
        (Readers(0.9, 0.1, True, "storage", most_workers=6), None, 2, "storage"),
        (Readers(0.9, 0.1, True, "storage", most_workers=2), "ready", 2, None),  # a batch lies ready
        (Readers(0.0, None, False, "computing", 0.9), None, 0, "computing"),
        (Readers(0.0, None, False, "neither", 0.9), None, 2, None),  # somebody else works for it
    ],
)
def test_who_sleeps_may_be_idle(own: Readers, stage: Any, workers: int, doing: str | None) -> None:
    """Workers of a validation loader sleep beside those that compute, and workers whose batches are not fetched do."""
    found = _readers(own, workers, stage)
    assert doing == (found.doing if found is not None else None)


def thread(run: float, wait: float = 0.0, storage: float = 0.0) -> OffCore:
    return OffCore(wait, run=run, storage=storage, num_looks=100)


@pytest.mark.parametrize(
    ("run", "wait", "storage", "expected"),
    [
        (0.95, 0.0, 0.0, "computing"),  # of a wait of 0.8 at least 0.75
        (0.3, 0.6, 0.0, "computing"),  # or wants to
        (0.2, 0.05, 0.0, "neither"),
        (0.5, 0.0, 0.0, None),
        (0.2, 0.05, 0.5, "storage"),
    ],
)
def test_what_a_training_thread_does_while_it_makes_its_batches(
    run: float, wait: float, storage: float, expected: str | None
) -> None:
    """By the kernel's count of its time: the rest of the step it ran all the time, or not at all."""
    found = readers_of_all([thread(run, wait, storage)] * 2, 0.8)
    assert found is not None
    assert expected == found.doing


@pytest.mark.parametrize(
    ("storages", "expected"),
    [((0.95, 0.95, 0.95, 0.02), None), ((0.95, 0.95, 0.95, 0.55), "storage"), ((0.9, 0.9, 0.5, 0.5), None)],
)
def test_a_few_ranks_do_not_speak_for_all(storages: tuple[float, ...], expected: str | None) -> None:
    """The mean of four was storage in 71 % of the looks, of which the fourth computed."""
    found = readers_of_all([looked(one, 0.98 - one) for one in storages], 0.3)
    assert found is not None
    assert expected == found.doing


def test_looks_at_a_thread_count_while_it_waits_for_data_alone() -> None:
    """A checkpoint of all ranks is a wait for storage too."""
    writes = {**READS, "storage_looks": 4, "data_storage_looks": 0}
    assert "for storage" not in bound(writes).message
    assert "for storage in 40 %" in bound({**writes, "data_storage_looks": 4}).message


THREADED = """
import hashlib, sys, threading
open("/proc/self/comm", "w").write("pt_data_worker")
thread = threading.Thread(target=lambda: [hashlib.pbkdf2_hmac("sha256", b"a", b"b", 10**6) for _ in range(10**6)])
thread.daemon = True
thread.start()
print(flush=True)
sys.stdin.read()
"""


def test_a_worker_works_whichever_of_its_threads_does() -> None:
    """Its main thread waits for a pool of its own."""
    with subprocess.Popen(
        [sys.executable, "-c", THREADED], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as worker:
        try:
            assert worker.stdout is not None
            worker.stdout.readline()

            def does() -> tuple[bool, bool]:
                found = procfs.stat(worker.pid)
                assert found is not None
                return looks_module._does(found)

            wait_until(lambda: does() == (False, True), "a thread of it runs", seen=does)
        finally:
            worker.kill()


@pytest.mark.parametrize(
    ("seen_ranks", "wait", "expected"),
    [
        ([looked(0.9, 0.05)] * 4, 0.3, "storage"),
        ([looked(0.55, 0.3)] * 4, 0.3, None),  # within two standard deviations of the half
        ([looked(0.05, 0.9)] * 4, 0.3, "computing"),
        ([looked(0.05, None)] * 4, 0.3, None),
        ([looked(0.1, 0.1)] * 4, 0.3, "neither"),
        (
            [looked(0.25, workers=False)] * 4,
            0.3,
            "storage",
        ),  # half of a third of its time is a sixth of the looks
        ([looked(0.02, workers=False)] * 4, 0.3, None),
    ],
)
def test_one_part_has_to_be_surely_the_larger(
    seen_ranks: list[OffCore], wait: float, expected: str | None
) -> None:
    found = readers_of_all(seen_ranks, wait)
    assert found is not None
    assert expected == found.doing


@pytest.mark.parametrize(
    "seen_ranks",
    [
        [],
        [looked(0.9), looked(None)],  # one that nobody looked at
        [looked(0.9), looked(0.9, workers=False)],
        [looked(0.9, num=10)] * 4,  # a second of looks
    ],
)
def test_too_little_is_nothing(seen_ranks: list[OffCore]) -> None:
    assert readers_of_all(seen_ranks, 0.3) is None


def test_shares_are_means_over_the_ranks() -> None:
    assert readers_of_all([looked(0.8, 0.1), looked(1.0, 0.0)], 0.3) == Readers(0.9, 0.05, True, "storage")


@pytest.mark.parametrize(
    ("values", "phase", "layer", "of_host"),
    [
        ({}, "forward", "application", None),
        ({"is_stopped": 1}, "forward", "cpu-os", "cpu-os"),
        ({"lacks_cores": 1}, "data_wait", "cpu-os", "cpu-os"),
        ({"waits_for_storage": 1}, "data_wait", "storage", "storage"),
        ({"in_device": 1}, "backward", "gpu-compute", "gpu-compute"),
        ({"in_device": 0, "is_limited": 0}, "h2d", "runtime", None),
        ({}, "host", "cpu-os", None),
        ({"phase_words": OWN_CODE}, "host", "application", None),
        ({"phase_words": OWN_CODE, "is_stopped": 1}, "host", "cpu-os", "cpu-os"),
    ],
)
def test_a_late_rank_s_layer_is_that_of_what_explains_it(
    values: dict[str, object], phase: str, layer: str, of_host: str | None
) -> None:
    """A rank that a signal stops in forward lost its time to the application."""
    subject = Measured("straggler", values, phase=phase)
    assert (layer, of_host) == (layer_of(subject), layer_of_host(subject))


def test_a_thread_is_asked_whether_it_waits_for_data_only_when_it_waits_for_storage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What its ring says is a read more for each rank; a ring that is gone ends no agent."""
    own, asked = os.getpid(), list[int]()

    def waits(pid: int) -> bool:
        asked.append(pid)
        return True

    looks = StateLooks()
    looks.look({own: own}, waits)
    assert asked == []
    monkeypatch.setattr(looks_module, "waits_for_storage", lambda *_: True)
    looks.look({own: own}, waits)
    looks.look({own: own})
    told = looks.counts(own)
    assert (asked, told["storage_looks"], told["data_storage_looks"]) == ([own], 2, 1)


@pytest.mark.parametrize(
    ("phase", "state", "waits"),
    [(DATA_WAIT, RankState.LIVE, True), (-1, RankState.LIVE, False), (DATA_WAIT, RankState.DETACHED, False)],
)
def test_the_ring_tells_whether_a_rank_waits_for_data(phase: int, state: RankState, waits: bool) -> None:
    """Also where reading it fails: then nothing is known."""
    link = object.__new__(RankLink)
    link.state, link.reader = state, SimpleNamespace(now=lambda: (phase, 0, 7))  # type: ignore[assignment]
    assert waits == link.waits_for_data

    def gone() -> tuple[int, int, int]:
        raise OSError("bad file descriptor")

    link.reader = SimpleNamespace(now=gone)  # type: ignore[assignment]
    assert not link.waits_for_data


def test_a_thread_waits_beside_its_device_for_longer_than_that_waits_for_it() -> None:
    """By its own clock: of 66 ms in which it fetches a batch the device waits 20, and how long it slept was unknown.

    So on a crowded host a fifth of the step was "CPU contention", and the run was kept.
    """
    job = DeviceJob(
        num_steps=250,
        sync_every=10,
        forward_s=19 * MS,
        backward_s=39 * MS,
        data_host_s=66 * MS,
        num_forward=6,
        num_backward=6,
        num_optimizer=1,
    )
    run = simulate(job)
    sequence, end_ns = frames_of_devices(run), int(run.passed.max() * 1e9)
    hello = sequence[0]
    ranks = [{**entry, "model": {"workers": 0}} for entry in hello.payload["ranks"]]  # type: ignore[attr-defined]
    sequence[0] = replace(hello, payload={**hello.payload, "ranks": ranks})  # type: ignore[dict-item]
    for second in range(1, end_ns // 10**9 + 1):
        own = {"run_delay_s": 0.07 * second, "run_s": 0.05 * second, "cpu_s": 0.1 * second}
        looks = {"looks": 10 * second, "stopped_looks": 0, "storage_looks": 0, "data_storage_looks": 0}
        looks |= dict.fromkeys(("worker_looks", "worker_storage_looks", "worker_running_looks"), 0)
        payload = {
            "host": "node0",
            "mono_ns": second * 10**9,
            "wall_ns": (1_700_000_000 + second) * 10**9,
            "num_cpus": 2,
            "run_queue": 8,
            "ranks": [{"rank": rank, **own, **looks} for rank in range(job.num_ranks)],
        }
        sequence.append(Frame(FrameKind.HOST, "node0/1/1", 10_000 + second, second * 10**9, payload))
    view = of_devices(sequence)
    (found,) = [one for one in view.findings if one.id == "input_bound"]
    assert "neither compute nor wait for a core or storage for at least 8" in found.message
    assert "info" != found.severity
    assert "tune" == view.verdict.decision
