"""Which thread trains and what it is doing while it stands still, told from /proc of real processes."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from patience import PATIENCE_S, wait_until

from tuiadvisor.agent import procfs
from tuiadvisor.agent.looks import is_stopped
from tuiadvisor.agent.training_thread import (
    LOOK_EVERY_NS,
    STANDING_NS,
    StandingThread,
    TrainingThread,
    host_thread,
)

S = 10**9


@contextmanager
def python(code: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs this code once it has said so."""
    process = subprocess.Popen([sys.executable, "-c", f"print(flush=True)\n{code}"], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def looks(process: subprocess.Popen[bytes], num: int = 2) -> list[str | None]:
    """Answers of looks a second apart by the given clock, however short the test really waits."""
    thread = StandingThread()
    return [thread.state(process.pid, 1, 1 + STANDING_NS + number * LOOK_EVERY_NS) for number in range(num)]


def until(process: subprocess.Popen[bytes], state: str) -> None:
    """Wait for the process's state letter."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        stat = procfs.stat(process.pid)
        if stat is not None and stat.state == state:
            return
        time.sleep(0.005)
    raise AssertionError(f"never came into state {state}")


def can_read_calls() -> bool:
    """Whether this kernel tells which system call a process is in."""
    return platform.machine() in {"x86_64", "aarch64"} and bool(procfs.read(os.getpid(), "syscall"))


def test_nothing_is_read_of_a_rank_that_moves() -> None:
    """Before two seconds of standing still nobody looks: process 0 does not exist and is not missed."""
    assert StandingThread().state(0, 10 * S, 11 * S) is None


def test_a_stopped_process_is_stopped() -> None:
    """One look is enough."""
    with python("import time; time.sleep(60)") as process:
        os.kill(process.pid, signal.SIGSTOP)
        until(process, "T")
        assert ["stopped"] == looks(process, 1)


TRACER = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
name, pid = sys.argv[1].encode(), int(sys.argv[2])
libc.prctl(15, name, 0, 0, 0)  # PR_SET_NAME
print(libc.ptrace(16, pid, None, None), flush=True)  # PTRACE_ATTACH
sys.stdin.read()
os._exit(0)  # the kernel detaches
"""


@contextmanager
def traced(pid: int, name: str, wrapper: str = "") -> Iterator[None]:
    """Another program holds the process meanwhile. wrapper: what starts it, so that it is no child of ours."""
    command = [sys.executable, "-c", TRACER, name, str(pid)]
    if wrapper:
        command = [sys.executable, "-c", wrapper, *command]
    held = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert held.stdin is not None
    assert held.stdout is not None
    try:
        if held.stdout.readline().strip() != b"0":
            pytest.skip("ptrace is forbidden here (a container without SYS_PTRACE)")
        yield
    finally:
        held.stdin.close()
        held.wait()
        held.stdout.close()


STARTED_BY_ANOTHER = "import subprocess, sys; subprocess.run(sys.argv[1:], check=False)"


@pytest.mark.parametrize(
    ("name", "wrapper", "seen"),
    [
        ("gdb", STARTED_BY_ANOTHER, ["waiting", "waiting", None, "stopped", "stopped"]),
        ("py-spy", STARTED_BY_ANOTHER, ["waiting"] * 5),  # somebody looks for what it hangs on
        ("python", "", ["waiting"] * 5),  # so do we
    ],
)
@pytest.mark.skipif(not can_read_calls(), reason="no /proc/PID/syscall (another kernel)")
def test_whoever_looks_at_a_stack_is_not_what_a_rank_hangs_on(
    name: str, wrapper: str, seen: list[str | None]
) -> None:
    """A debugger's stop counts once two looks have met it; a look into a hang leaves what was known of it."""
    with python("import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()") as process:
        thread, moment_ns = StandingThread(), 1 + STANDING_NS
        until(process, "S")

        def look() -> str | None:
            nonlocal moment_ns
            moment_ns += LOOK_EVERY_NS
            return thread.state(process.pid, 1, moment_ns)

        wait_until(lambda: look() == "waiting", "the wait for a lock")
        told = [look(), look()]
        with traced(process.pid, name, wrapper):
            until(process, "t")
            told += [look() for _ in range(3)]
            is_stopped_now = is_stopped(present(process))
        assert seen == told
        assert is_stopped_now == bool(wrapper)  # of the time that a profiler takes its steps know


def present(process: subprocess.Popen[bytes]) -> procfs.Stat:
    """Its stat now."""
    found = procfs.stat(process.pid)
    assert found is not None
    return found


@pytest.mark.skipif(not can_read_calls(), reason="no /proc/PID/syscall (another kernel)")
@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import time; time.sleep(60)", "asleep"),
        ("import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()", "waiting"),
    ],
)
def test_a_sleeper_and_one_that_waits_for_a_lock_are_told_apart(code: str, expected: str) -> None:
    """By the system call: a condition variable, as a collective's wait uses it, is a futex."""
    with python(code) as process:
        until(process, "S")
        deadline = time.monotonic() + PATIENCE_S
        while looks(process)[-1] != expected and time.monotonic() < deadline:
            time.sleep(0.01)  # it may sleep for another reason while the interpreter starts
        assert [None, expected] == looks(process)


def test_a_process_that_is_gone_is_unknown() -> None:
    """No exception, no word."""
    with python("import time; time.sleep(60)") as process:
        pass
    assert [None, None] == looks(process)


SLEEPER_BESIDE_A_WORKER = """
import threading
def work():
    print(threading.get_native_id(), flush=True)
    while True:
        pass
threading.Thread(target=work).start()
"""


@contextmanager
def beside_a_worker() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A process whose main thread waits for a thread at work, and that thread's id."""
    with python(SLEEPER_BESIDE_A_WORKER) as process:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())


@pytest.mark.slow
def test_the_thread_that_is_named_is_looked_at() -> None:
    """The main thread waits in a join, the one that trains runs."""
    with beside_a_worker() as (process, worker):
        moments = [1 + STANDING_NS + number * LOOK_EVERY_NS for number in range(2)]
        thread = StandingThread()
        assert thread.state(process.pid, 1, moments[0], worker) is None
        used = procfs.parse_stat(procfs.read(process.pid, f"task/{worker}/stat") or b"").cpu_ticks

        def has_run() -> bool:
            raw = procfs.read(process.pid, f"task/{worker}/stat") or b""
            return procfs.parse_stat(raw).cpu_ticks >= used + procfs.TICKS_PER_S

        wait_until(has_run, "a second of its processor time")
        assert "running" == thread.state(process.pid, 1, moments[1], worker)


def test_a_thread_of_this_namespace_is_found_by_its_own_id() -> None:
    """And one that is not there by none."""
    with beside_a_worker() as (process, worker):
        assert worker == host_thread(process.pid, worker)
        assert host_thread(process.pid, os.getpid()) is None
        assert [worker, process.pid] == [
            TrainingThread().of(process.pid, told) for told in (worker, os.getpid())
        ]
        assert process.pid == TrainingThread().of(process.pid, 0)


def test_a_thread_of_an_inner_namespace_is_found_by_its_last_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernel lists the ids: ours first, the process's own last."""
    status = {b"70": b"Name:\tx\nNSpid:\t70\t1\n", b"71": b"Name:\tx\nNSpid:\t71\t9\n"}
    monkeypatch.setattr(procfs, "read", lambda _pid, name: status.get(name.split("/")[1].encode()))
    monkeypatch.setattr(procfs, "threads", lambda _pid: [70, 71])
    assert [70, 71, None] == [host_thread(70, inner) for inner in (1, 9, 71)]


def test_counters_go_on_where_another_thread_takes_over() -> None:
    """Nobody takes the difference of two threads' counters for waiting."""
    known = TrainingThread()
    assert {"run_delay_s": 3.0} == known.going_on(1, {"run_delay_s": 3.0})
    assert {"run_delay_s": 4.0} == known.going_on(1, {"run_delay_s": 4.0})
    assert {"run_delay_s": 4.0} == known.going_on(2, {"run_delay_s": 900.0})
    assert {} == known.going_on(2, {})  # it has ended
    assert {"run_delay_s": 6.5} == known.going_on(2, {"run_delay_s": 902.5})
