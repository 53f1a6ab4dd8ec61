"""A process under a seccomp filter that may kill: entered where the filter lets us, else left alone and told why."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from patience import wait_until

from tuiadvisor.inject import InjectError, inject, seccomp
from tuiadvisor.inject.armed import arm_environment, is_armed

pytestmark = pytest.mark.slow
PATIENCE_S = 60.0
# A filter over all threads: `action` for the system call `number`, only for executable memory if `executable`.
FILTER = """
import ctypes, os, struct, sys, threading, time
def put_on(action, number, executable):
    one = lambda code, if_true, if_false, k: struct.pack("<HBBI", code, if_true, if_false, k)
    look = [one(0x20, 0, 0, 32), one(0x45, 0, 1, 4)] if executable else []
    code = b"".join([one(0x20, 0, 0, 0), one(0x15, 0, len(look) + 1, number), *look, one(6, 0, 0, action),
                     one(6, 0, 0, 0x7FFF0000)])
    room = ctypes.create_string_buffer(code)
    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]
    libc = ctypes.CDLL(None)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    program = Program(len(code) // 8, ctypes.addressof(room))
    assert libc.syscall(317, 1, 1, ctypes.byref(program)) == 0
"""
WORK = """
print("ready", flush=True)
while not os.path.exists(sys.argv[1]):
    sum(range(1000))
print("well ended", flush=True)
os._exit(0)  # as it has no executable memory to load anything at its exit
"""
IDLE = "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
KILL_PROCESS, KILL_THREAD, TRAP, NOT_PERMITTED, NO_SUCH_CALL = 0x80000000, 0, 0x30000, 0x50001, 0x50026
MMAP, OPENAT, CLONE3 = 9, 257, 435
# Code that is run in a process of its own: an injection by somebody who may read no filter.
UNPRIVILEGED = """
import os, sys
from tuiadvisor.inject import InjectError, inject
try:
    print(inject(int(sys.argv[1]), sys.argv[2]).way)
except InjectError as error:
    print(error.reason, error)
"""


@contextmanager
def filtered(
    folder: Path,
    action: int,
    number: int,
    *,
    executable: bool = False,
    idle: bool = True,
    prefix: tuple[str, ...] = (),
) -> Iterator[subprocess.Popen[str]]:
    """A process at work that has put on a filter."""
    source = f"{FILTER}{IDLE if idle else ''}put_on({action}, {number}, {executable})\n{WORK}"
    process = subprocess.Popen(
        [*prefix, sys.executable, "-c", source, str(folder / "stop")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
        (folder / "stop").touch()
        assert ("well ended\n", None) == process.communicate(timeout=PATIENCE_S)
        assert 0 == process.returncode
    finally:
        process.kill()
        process.communicate()


def marking(path: Path) -> str:
    """Code that leaves a file."""
    return f"open({str(path)!r}, 'w').close()"


def needs_root() -> None:
    if not seccomp.may_read():
        pytest.skip("filters cannot be read without CAP_SYS_ADMIN, or under a filter of our own")


@pytest.mark.parametrize("action", [KILL_PROCESS, KILL_THREAD, TRAP])
@pytest.mark.parametrize(
    ("number", "executable", "call"),
    [(MMAP, True, "mmap of executable memory"), (OPENAT, False, "openat")],
)
def test_a_filter_that_would_kill_is_read_and_obeyed(
    action: int, number: int, executable: bool, call: str, tmp_path: Path
) -> None:
    """Nothing is tried; the sentence names the call; the process works on to its end."""
    needs_root()
    with filtered(tmp_path, action, number, executable=executable) as target:
        threads = len(list(Path(f"/proc/{target.pid}/task").iterdir()))
        with pytest.raises(InjectError, match=f"its seccomp filter would end it.* at our {call}; ") as caught:
            inject(target.pid, marking(tmp_path / "marker"))
        assert "seccomp" == caught.value.reason
        assert threads == len(list(Path(f"/proc/{target.pid}/task").iterdir()))
    assert not (tmp_path / "marker").exists()


def test_executable_memory_that_is_refused_with_an_error(tmp_path: Path) -> None:
    """As a service that may not write code does it: said, and undone."""
    with filtered(tmp_path, NOT_PERMITTED, MMAP, executable=True) as target:
        if seccomp.may_read():
            with pytest.raises(InjectError, match="it may not map executable memory") as caught:
                inject(target.pid, marking(tmp_path / "marker"))
            assert "no_code" == caught.value.reason
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize("action", [KILL_PROCESS, NOT_PERMITTED])
def test_where_no_thread_may_be_started_the_main_thread_takes_the_code(action: int, tmp_path: Path) -> None:
    """A filter on clone3 alone leaves the pending call."""
    needs_root()
    with filtered(tmp_path, action, CLONE3) as target:
        assert "pending_call" == inject(target.pid, marking(tmp_path / "marker")).way
        wait_until((tmp_path / "marker").exists, "the code runs")


def test_a_harmless_filter_is_no_hindrance(tmp_path: Path) -> None:
    """clone3 that does not exist, as Docker says it: the C library takes clone."""
    needs_root()
    with filtered(tmp_path, NO_SUCH_CALL, CLONE3) as target:
        assert "thread" == inject(target.pid, marking(tmp_path / "marker")).way
        wait_until((tmp_path / "marker").exists, "the code runs")


def test_a_filter_nobody_may_read_is_trusted_only_if_it_is_older_than_the_program(tmp_path: Path) -> None:
    """One that the process put on itself keeps us out; the same one inherited from whoever started it does not."""
    own = subprocess.run(
        [sys.executable, "-c", f"{FILTER}put_on({NO_SUCH_CALL}, {CLONE3}, False)\n{UNPRIVILEGED}", "0", ""],
        capture_output=True, text=True, check=True,
    )  # fmt: skip  # under a filter ourselves we may read none, root or not
    assert own.stdout.startswith("gone"), own
    with filtered(tmp_path, KILL_PROCESS, OPENAT) as target:
        source = (
            f"{FILTER}put_on({NO_SUCH_CALL}, {CLONE3}, False)\n{UNPRIVILEGED}"  # as many as the target has
        )
        said = _said(source, target.pid, tmp_path / "marker")
        assert said.startswith("seccomp_unread ")
        assert "run tuiadvisor as root, who can read the filter, or inside the same container" in said
    (tmp_path / "stop").unlink()
    inherited = (
        f"{FILTER}put_on({NO_SUCH_CALL}, 436, False)\nimport subprocess\nsubprocess.run(sys.argv[1:])\n"
    )
    with filtered_below(tmp_path, inherited) as target_pid:
        source = f"{FILTER}put_on({NO_SUCH_CALL}, 436, False)\nput_on({NO_SUCH_CALL}, {CLONE3}, False)\n{UNPRIVILEGED}"
        assert "thread\n" == _said(source, target_pid, tmp_path / "marker")
        wait_until((tmp_path / "marker").exists, "the code runs")


def test_an_armed_process_with_a_filter_of_its_own_is_left_alone(tmp_path: Path) -> None:
    """Its listener would make the same calls."""
    source = f"{FILTER}put_on({KILL_PROCESS}, {OPENAT}, False)\n{WORK}"
    target = subprocess.Popen(
        [sys.executable, "-c", source, str(tmp_path / "stop")],
        stdout=subprocess.PIPE, text=True, env=arm_environment(dict(os.environ)),
    )  # fmt: skip
    assert target.stdout is not None
    try:
        assert target.stdout.readline() == "ready\n"
        wait_until(lambda: is_armed(target.pid))
        with pytest.raises(InjectError) as caught:
            inject(target.pid, marking(tmp_path / "marker"))
        assert "seccomp_unread" == caught.value.reason
        (tmp_path / "stop").touch()
        assert 0 == target.wait(PATIENCE_S)
    finally:
        target.kill()
        target.communicate()


@contextmanager
def filtered_below(folder: Path, launcher: str) -> Iterator[int]:
    """A process at work, started by a launcher that has put on a filter."""
    work = f"import os, sys, threading\n{IDLE}print(os.getpid())\n{WORK}"
    command = [sys.executable, "-c", launcher, sys.executable, "-c", work, str(folder / "stop")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        pid = int(process.stdout.readline())
        assert process.stdout.readline() == "ready\n"
        yield pid
    finally:
        (folder / "stop").touch()
        assert ("well ended\n", None) == process.communicate(timeout=PATIENCE_S)


def _said(source: str, pid: int, marker: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", source, str(pid), marking(marker)], capture_output=True, text=True, check=True
    )
    return done.stdout
