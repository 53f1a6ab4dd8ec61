from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from patience import PATIENCE_S, wait_until

from tuiadvisor.inject import (
    InjectError,
    identify,
    inject,
    outcome,
    preflight,
    process,
    refusals,
    remote_exec,
)
from tuiadvisor.inject.armed import arm_environment
from tuiadvisor.inject.refusals import ptrace_restriction

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is no Python."""
    started = subprocess.Popen(["/bin/sleep", "600"])
    yield started
    started.kill()
    started.wait()


@pytest.mark.parametrize(
    ("scope", "has_capability", "word"),
    [
        (None, False, None),
        ("0", False, None),
        ("1", True, None),
        ("1", False, "sysctl kernel.yama.ptrace_scope=0"),
        ("2", True, None),
        ("2", False, "sudo"),
        ("3", True, "reboot"),
    ],
)
def test_yama_names_the_exact_remedy(scope: str | None, has_capability: bool, word: str | None) -> None:
    """Each setting has another way out; armed mode is always one of them."""
    found = ptrace_restriction(scope, has_capability=has_capability)
    if word is None:
        assert found is None
        return
    assert found is not None
    assert word in found[1]
    assert "tuiadvisor arm --" in found[1]


def test_process_that_is_no_python(sleeper: subprocess.Popen[bytes]) -> None:
    """Refused without being touched, with reason, remedy and pid."""
    with pytest.raises(InjectError) as caught:
        inject(sleeper.pid, "pass")
    assert ("not_python", sleeper.pid) == (caught.value.reason, caught.value.pid)
    assert caught.value.remedy in str(caught.value)


def test_vanished_process() -> None:
    """A process id nobody has any more."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with pytest.raises(InjectError) as caught:
        preflight(ended.pid)
    assert caught.value.reason == "gone"


def test_zombie() -> None:
    """Ended, not yet waited for."""
    ended = subprocess.Popen(["/bin/true"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(InjectError) as caught:
        preflight(ended.pid)
    ended.wait()
    assert caught.value.reason == "zombie"


@pytest.mark.parametrize(
    ("state", "flags", "is_at_end"), [("R", 0, 0), ("R", 4, 1), ("D", 4, 1), ("Z", 4, 1)]
)
def test_a_process_within_its_exit_is_known_by_its_flags(
    monkeypatch: pytest.MonkeyPatch, state: str, flags: int, is_at_end: int
) -> None:
    """As the kernel shows it between the last instruction and the zombie; the name may hold anything."""
    line = f"7 (a) Z 4 (b) {state} 1 1 1 0 -1 {0x400000 + flags} 0 0".encode()
    monkeypatch.setattr(process, "_read", lambda *_: line)
    assert process.is_at_its_end(7) == bool(is_at_end)


@pytest.mark.parametrize(
    "met",
    [
        FileNotFoundError("/proc/7/exe"),
        refusals.refusal(7, "not_python", "it runs no program"),
        refusals.refusal(7, "ptrace_forbidden", "the system forbids tracing it (Operation not permitted)"),
        refusals.refusal(7, "changed", "its code is not that of the files it was started from"),
    ],
    ids=lambda met: getattr(met, "reason", "OSError"),
)
def test_what_is_missed_in_a_process_within_its_exit_is_its_end(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, met: Exception
) -> None:
    """It has no program, no mappings and may not be traced any more; of one that lives the same is said as it is."""

    def meet(_pid: int) -> None:
        raise met

    monkeypatch.setattr("tuiadvisor.inject.preflight", meet)
    with pytest.raises(type(met)) as caught:
        inject(sleeper.pid, "pass")
    assert met is caught.value
    monkeypatch.setattr(process, "is_at_its_end", lambda _: True)
    with pytest.raises(InjectError) as ended:
        inject(sleeper.pid, "pass")
    assert ("gone", "it ended during the injection") == (ended.value.reason, ended.value.what)


def test_stopped_process(sleeper: subprocess.Popen[bytes]) -> None:
    """State T: the remedy names the process."""
    os.kill(sleeper.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED | os.WNOWAIT)
    with pytest.raises(InjectError) as caught:
        preflight(sleeper.pid)
    assert caught.value.reason == "stopped"
    assert f"kill -CONT {sleeper.pid}" in caught.value.remedy


def test_kernel_thread() -> None:
    """No program, no memory."""
    parent = Path("/proc/2/status")
    if not parent.exists() or "kthreadd" not in parent.read_text():
        pytest.skip("no kernel threads visible (outside a container)")
    with pytest.raises(InjectError) as caught:
        preflight(2)
    assert caught.value.reason in {"not_python", "ptrace_forbidden", "other_user"}


def test_other_user(sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user's process without the capability."""
    monkeypatch.setattr(os, "geteuid", lambda: process.status(sleeper.pid).uid + 1)
    monkeypatch.setattr(refusals, "has_ptrace_capability", lambda: False)
    with pytest.raises(InjectError) as caught:
        preflight(sleeper.pid)
    assert caught.value.reason == "other_user"


def test_owner_who_switched_it_off() -> None:
    """PYTHON_DISABLE_REMOTE_DEBUG binds us on every Python version."""
    off = os.environ | {"PYTHON_DISABLE_REMOTE_DEBUG": "1"}
    target = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        env=off,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert target.stdout is not None
    target.stdout.readline()
    with pytest.raises(InjectError) as caught:
        preflight(target.pid)
    target.communicate(b"\n")
    assert caught.value.reason == "remote_debug_disabled"


def test_other_architecture(sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Machine code helps nobody else."""
    monkeypatch.setattr(refusals.machines, "IS_KNOWN", False)
    with pytest.raises(InjectError) as caught:
        preflight(sleeper.pid)
    assert caught.value.reason == "other_architecture"


WAITING = "print(flush=True); input(); print('ran', flush=True)"


@pytest.fixture
def waiting(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    """A Python that waits for a line; armed if asked for."""
    environment = dict(os.environ)
    if getattr(request, "param", ""):
        environment = arm_environment(environment)
    started = subprocess.Popen(
        [sys.executable, "-c", WAITING], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert started.stdout is not None
    started.stdout.readline()
    yield started
    started.communicate(b"\n")


@pytest.mark.parametrize("waiting", ["armed"], indirect=True)
def test_armed_process_is_entered_on_any_machine(
    waiting: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its listener runs the code: nothing of it depends on the machine."""
    monkeypatch.setattr(refusals.machines, "IS_KNOWN", False)
    marker = tmp_path / "marker"
    injection = inject(waiting.pid, f"open({str(marker)!r}, 'w')", timeout_s=PATIENCE_S)
    assert ("armed", 0) == (injection.way, injection.stopped_ns)
    wait_until(marker.exists, "the code has run")


def test_pythons_own_way_is_taken_on_any_machine(
    waiting: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the interpreter has it, asleep or not: there is no other."""
    monkeypatch.setattr(refusals.machines, "IS_KNOWN", False)
    monkeypatch.setattr(remote_exec, "FIRST_VERSION", sys.version_info[:2])
    told = outcome.Injection(waiting.pid, "remote_exec", 0, 1)
    monkeypatch.setattr(remote_exec, "inject_remote_exec", lambda *_, **__: told)
    assert told == inject(waiting.pid, "pass")


def test_without_either_a_machine_that_is_not_known_is_refused(
    waiting: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever way is asked for; the remedy is to start it armed."""
    monkeypatch.setattr(refusals.machines, "IS_KNOWN", False)
    monkeypatch.setattr(remote_exec, "FIRST_VERSION", (4, 0))
    for way in (None, "thread", "pending_call"):
        with pytest.raises(InjectError) as caught:
            inject(waiting.pid, "pass", way=way)
        assert caught.value.reason == "other_architecture"
        assert "tuiadvisor arm --" in caught.value.remedy


def test_program_of_32_bits(tmp_path: Path) -> None:
    """Its registers are others: told by its file alone."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    source, program = tmp_path / "pause.c", tmp_path / "pause"
    source.write_text('void _start(void) { for (;;) __asm__ volatile("int $0x80" :: "a"(29)); }\n')
    command = [str(compiler), "-m32", "-nostdlib", "-static", "-fno-pic", "-no-pie", "-o", program, source]
    if compiler is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no compiler for 32 bits (apt-get install gcc-multilib)")
    try:
        started = subprocess.Popen([program])
    except OSError:
        pytest.skip("no 32 bits (another kernel)")
    try:
        with pytest.raises(InjectError) as caught:
            preflight(started.pid)
    finally:
        started.kill()
        started.wait()
    assert caught.value.reason == "other_architecture"


def test_error_says_what_where_and_what_next() -> None:
    """One line for the user, parts for programs."""
    error = outcome.InjectError(7, "stopped", "it is stopped", "let it continue")
    assert str(error) == "process 7: it is stopped; let it continue"


def test_remote_exec_needs_the_same_version_at_hand() -> None:
    """Older targets never; our own version by ourselves; the target's program only if it is called python."""
    ours = sys.version_info[:2]
    assert remote_exec.caller_for(os.getpid(), (3, 13)) is None
    assert remote_exec.caller_for(os.getpid(), None) is None
    expected = sys.executable if ours >= (3, 14) else str(Path("/proc/self/exe").readlink())
    assert expected == remote_exec.caller_for(os.getpid(), max(ours, (3, 14)))


def test_remote_exec_of_another_user_is_never_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """His program could do anything with our rights."""
    monkeypatch.setattr(os, "geteuid", lambda: process.status(os.getpid()).uid + 1)
    assert remote_exec.caller_for(os.getpid(), (3, 99)) is None


RUNNING = f"""{sys.executable} -c '
import _thread, sys
_thread.start_new_thread = lambda function, arguments: function(*arguments)  # which would end with this process
exec(open(sys.argv[1]).read(), {{}})
' "$7"
"""


def test_remote_exec_hands_over_a_script_that_removes_itself(tmp_path: Path) -> None:
    """The API faked by a caller that runs the script as the target's main thread would."""
    marker = tmp_path / "marker"
    caller = tmp_path / "python"
    caller.write_text(f"#!/bin/sh\nexec {RUNNING}")
    caller.chmod(0o755)
    code = f"open({str(marker)!r}, 'w').write(__file__ if '__file__' in globals() else 'ran')"
    injection = remote_exec.inject_remote_exec(identify(os.getpid()), code, str(caller), timeout_s=30)
    assert (injection.way, injection.stopped_ns, marker.read_text()) == ("remote_exec", 0, "ran")
    assert not list(Path("/tmp").glob(f"tuiadvisor-*{injection.pid}*.py"))  # noqa: S108  where it was written


def test_remote_exec_overwrites_no_script_that_was_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process has room for one script; the caller here complains if there is one, and begins it a moment later."""
    monkeypatch.setattr(
        remote_exec, "_BEGUN_S", PATIENCE_S
    )  # the moment may be long where others have the cores
    caller = tmp_path / "python"
    caller.write_text(
        f"#!/bin/sh\nmkdir {tmp_path}/room || exit 1\n"
        f"(sleep 0.1; rmdir {tmp_path}/room; exec {RUNNING}) >/dev/null 2>&1 &\n"
    )
    caller.chmod(0o755)
    markers = [tmp_path / f"marker{number}" for number in range(3)]
    with ThreadPoolExecutor() as pool:
        codes = [f"open({str(marker)!r}, 'w')" for marker in markers]
        found, program = identify(os.getpid()), str(caller)
        list(pool.map(lambda code: remote_exec.inject_remote_exec(found, code, program, timeout_s=30), codes))
    # A script has begun when its caller returns; what it does comes a moment later.
    end_s = time.monotonic() + PATIENCE_S
    while not all(marker.exists() for marker in markers) and time.monotonic() < end_s:
        time.sleep(0.01)
    assert [True] * 3 == [marker.exists() for marker in markers]


def test_remote_exec_refused_is_an_error_with_a_reason(tmp_path: Path) -> None:
    """The complaint of Python's own call decides the reason."""
    caller = tmp_path / "python"
    caller.write_text("#!/bin/sh\necho 'RuntimeError: Remote debugging is not enabled' >&2; exit 1\n")
    caller.chmod(0o755)
    with pytest.raises(InjectError) as caught:
        remote_exec.inject_remote_exec(identify(os.getpid()), "pass", str(caller), timeout_s=30)
    assert caught.value.reason == "remote_debug_disabled"
