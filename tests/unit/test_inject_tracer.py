"""The tracer's patience: what passes by itself is tried again, what stays is refused with its reason."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from patience import INJECT_S, wait_until

from tuiadvisor.agent import procfs
from tuiadvisor.inject import InjectError, identify, inject, plan, process, tracer, tracer_process

if TYPE_CHECKING:
    from collections.abc import Iterator

MANY = 1_000_000  # times each proof is read: for longer than the test lasts
WORK_S = 0.05  # of processor time: more than it takes to begin
STARTED = {"way": "thread", "stopped_ns": 1}


def run(monkeypatch: pytest.MonkeyPatch, num_refusals: int, try_s: float) -> dict[str, Any]:
    """What comes of a plan whose first tries the kernel refuses, each of them taking some time."""
    clock_s = 0.0
    left = num_refusals

    def by_either_way(*_: object) -> dict[str, Any]:
        nonlocal clock_s, left
        clock_s += try_s
        left -= 1
        if left >= 0:
            raise PermissionError(1, "Operation not permitted")
        return STARTED

    def sleep(seconds: float) -> None:
        nonlocal clock_s
        clock_s += seconds

    made = {
        "identity": tuple(identify(os.getpid())), "proofs": [], "timeout_s": 5.0, "way": None,
    }  # fmt: skip
    with monkeypatch.context() as patched:
        patched.setattr(tracer, "_by_either_way", by_either_way)
        patched.setattr(time, "monotonic", lambda: clock_s)
        patched.setattr(time, "sleep", sleep)
        return tracer.run(made)


@pytest.mark.parametrize(("num_refusals", "try_s"), [(0, 0.0), (1, 3.0), (10, 0.001)])
def test_a_thread_that_was_just_ending_is_not_the_last_word(
    monkeypatch: pytest.MonkeyPatch, num_refusals: int, try_s: float
) -> None:
    """Refused as if tracing were forbidden, and gone a moment later; on a busy machine one try takes seconds."""
    assert run(monkeypatch, num_refusals, try_s) == STARTED


def test_a_lasting_refusal_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a fifth of a second of tries, as forbidden where nobody traces it."""
    assert run(monkeypatch, 10**6, 0.001)["reason"] == "ptrace_forbidden"


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[tracer_process.ReadyPlace]:
    """Of this test alone; what waits in it ends with the test."""
    own = tracer_process.ReadyPlace()
    monkeypatch.setattr(tracer_process, "_PLACE", own)
    yield own
    own.close()


@pytest.fixture
def sleeper() -> Iterator[int]:
    """A Python with nothing to do."""
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", "import time; print(flush=True); time.sleep(600)"],
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


def program_in_place_of_python(monkeypatch: pytest.MonkeyPatch, folder: Path, line: str) -> None:
    """What is started to wait ready."""
    program = folder / "python"
    program.write_text(f"#!/bin/sh\n{line}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    ("line", "reason", "said"),
    [
        ("kill -KILL $$", "tracer_killed", "the process that injects was killed (SIGKILL) before it began"),
        ("echo ImportError: no such module >&2; exit 1", "tracer", "failed: ImportError: no such module"),
        ("exit 0", "tracer", "the tracer failed: no message"),
    ],
)
def test_who_never_waits_ready_is_told_with_the_cause(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str, reason: str, said: str
) -> None:
    """The process itself was never touched."""
    program_in_place_of_python(monkeypatch, tmp_path, line)
    with pytest.raises(InjectError) as caught:
        inject(os.getpid(), "pass", way="thread")
    assert caught.value.reason == reason
    assert said in str(caught.value)


def test_who_waited_ready_and_was_killed_is_followed_by_another(
    place: tracer_process.ReadyPlace, sleeper: int
) -> None:
    """Memory ran out, say, between two attaches: nobody was held, and the next attach is as the first."""
    former = place.get()
    os.kill(former.pid, signal.SIGKILL)
    assert inject(sleeper, "pass").pid == sleeper
    assert place.get().pid != former.pid


def test_one_that_waits_ready_serves_all(place: tracer_process.ReadyPlace, sleeper: int) -> None:
    """One process for them all, from any thread, and nothing is left of a tracer whose plan is done."""
    ready = place.get()
    with ThreadPoolExecutor(1) as pool:
        injected = list(pool.map(lambda _: inject(sleeper, "pass"), range(8)))
    assert [injection.pid for injection in injected] == [sleeper] * 8
    assert place.get() is ready
    assert psutil.Process(ready.pid).children() == []


def test_an_injection_reads_the_mappings_once(
    monkeypatch: pytest.MonkeyPatch, place: tracer_process.ReadyPlace, sleeper: int
) -> None:
    """A rank has hundreds, and all ranks of a node are attached at once, on cores that they need themselves."""
    read, maps = [], process.maps

    def counted(pid: int) -> list[process.Mapping]:
        read.append(pid)
        return maps(pid)

    monkeypatch.setattr(process, "maps", counted)
    assert inject(sleeper, "pass").pid == sleeper
    assert read == [sleeper]


def test_a_tracer_killed_at_work_is_told_as_such(place: tracer_process.ReadyPlace, sleeper: int) -> None:
    """It is no refusal of the process's: nobody knows how far it had come."""
    ready = psutil.Process(place.get().pid)
    made = plan.make_plan(identify(sleeper), "pass").as_dict()
    endless = made | {"way": None, "timeout_s": INJECT_S, "proofs": made["proofs"] * MANY}
    with ThreadPoolExecutor(1) as pool:
        attempt = pool.submit(tracer_process._carry_out, endless, INJECT_S)
        while not (at_work := [child for child in ready.children() if sum(child.cpu_times()) > WORK_S]):
            assert not attempt.done(), attempt.result()
        at_work[0].kill()
    outcome = attempt.result()
    assert outcome["reason"] == "tracer_killed"
    assert "whether it had begun is not known" in outcome["what"]


def test_that_no_process_can_be_started_is_told_as_such(
    monkeypatch: pytest.MonkeyPatch, place: tracer_process.ReadyPlace, sleeper: int
) -> None:
    """As where a limit of processes is reached: nobody was held, and nothing is unknown about it."""
    refuse = "def no(): raise OSError(11, 'Resource temporarily unavailable')\nready_tracer.os.fork = no\n"
    start = tracer_process._START.replace("ready_tracer.main()", f"{refuse}ready_tracer.main()")
    monkeypatch.setattr(tracer_process, "_START", start)
    for _ in range(3):
        with pytest.raises(InjectError) as caught:
            inject(sleeper, "pass")
        assert caught.value.reason == "tracer"
        assert "no process could be started for it: Resource temporarily unavailable" in str(caught.value)
    assert psutil.pid_exists(place.get().pid)


def test_one_that_hangs_at_its_start_is_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: tracer_process.ReadyPlace
) -> None:
    """It reads nothing, so that it would not see when nobody can ask it any more."""
    monkeypatch.setattr(tracer_process, "_END_S", 0.1)
    program_in_place_of_python(monkeypatch, tmp_path, "exec sleep 600")
    ready = place.get()
    place.close()
    assert not psutil.pid_exists(ready.pid)


def test_nobody_waits_ready_for_a_watcher_that_is_gone() -> None:
    """However it ended."""
    code = (
        "import os, signal, time\n"
        "from tuiadvisor.inject import tracer_process\n"
        "tracer_process.make_ready()\n"
        "print(tracer_process._PLACE.get().pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    ready = int(done.stdout)
    # Whoever it is left to may never ask for its exit code, as the first process of a container.
    wait_until(lambda: not procfs.is_running(ready), "it ends")
