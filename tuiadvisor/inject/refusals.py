"""Refusals that can be known before a process is touched, each with what to do about it.

In: a process id.  Out: nothing, or InjectError with a short reason and a remedy.
"""

from __future__ import annotations

import os
import struct
import time
from pathlib import Path

from tuiadvisor.inject import armed, machines, process, remote_exec, seccomp
from tuiadvisor.inject.outcome import InjectError
from tuiadvisor.inject.plan import Interpreter, find_interpreter

_ARM = "start the job armed: tuiadvisor arm -- CMD"
REMEDIES = {
    "gone": "it has ended: look for the rank's new process id",
    "zombie": "it has ended and waits for its parent: look for the rank's new process id",
    "stopped": "let it continue first: kill -CONT PID",
    "being_debugged": "leave the debugger or the other tool that traces it first",
    "changed": "see what it is now; if it is still the one you mean, run the command again",
    "other_user": "run tuiadvisor as that user or as root",
    "other_architecture": _ARM,
    "remote_debug_disabled": "start the job without PYTHON_DISABLE_REMOTE_DEBUG and -X disable_remote_debug",
    "ptrace_forbidden": f"run as root, or {_ARM}",
    "shadow_stack": _ARM,
    "no_code": _ARM,
    "no_thread": "raise its limit of threads, then try again",
    "seccomp": "the filter has to allow this call, or to refuse it with an error",
    "seccomp_unread": "run tuiadvisor as root, who can read the filter, or inside the same container",
    "busy": "let tuiadvisor choose the way",
    "busy_in_c": "wait until it leaves the system call it is in, then try again",
    "tracer_killed": "see whether the process still runs, then try again",
    "timeout": "the machine may be overloaded: try again",
    "other": f"try again; if it stays so, {_ARM}",
}
_UNSEEN = "the system keeps its memory from you (it changed its user, has more rights, or is in another user namespace)"
_CAP_SYS_PTRACE = 19
_OTHER_WATCHER_S = 0.05


def preflight(pid: int) -> Interpreter:
    """Its interpreter. Raises InjectError when it is already clear that nothing can be injected."""
    try:
        status = _settled_status(pid)
        _refuse_state(pid, status)
        _refuse_owner(pid, status)
        _refuse_kernel_thread(pid)
        _refuse_disabled(pid)
        if not armed.is_armed(pid):
            if not is_traceable(pid) and not _takes_scripts(pid):
                refuse_architecture(pid)
            _refuse_ptrace(pid, status)
        elif (harm := seccomp.harm_unread(pid, pid)) is not None:  # its listener is a thread like any other
            raise refusal(pid, "seccomp_unread", harm)
        return find_interpreter(pid)
    except ProcessLookupError:
        raise refusal(pid, "gone", "no such process") from None
    except PermissionError:
        raise refusal(pid, "ptrace_forbidden", _UNSEEN) from None


def refuse_unseen(pid: int) -> None:
    """Raise InjectError where its links in /proc may not be read: nothing of it can be reached then."""
    try:
        Path(f"/proc/{pid}/ns/mnt").readlink()
    except PermissionError:
        _refuse_owner(pid, process.status(pid))
        raise refusal(pid, "ptrace_forbidden", _UNSEEN) from None
    except FileNotFoundError:
        raise refusal(pid, "gone", "it has ended") from None


def refusal(pid: int, reason: str, what: str) -> InjectError:
    """An InjectError with the remedy that belongs to the reason."""
    remedy = REMEDIES.get(reason, REMEDIES["other"]).replace("PID", str(pid))
    return InjectError(pid, reason, what, remedy)


def ptrace_restriction(scope: str | None, *, has_capability: bool) -> tuple[str, str] | None:
    """(what, remedy) where Yama's kernel.yama.ptrace_scope forbids tracing a process that is not our child.

    `scope` is the content of /proc/sys/kernel/yama/ptrace_scope, None on a kernel without Yama.
    Source: Documentation/admin-guide/LSM/Yama.rst of the Linux kernel.
    """
    what = f"kernel.yama.ptrace_scope is {scope}"
    if scope == "3":
        return what, f"nothing but a reboot changes that: {_ARM}"
    if scope == "2" and not has_capability:
        return what, f"run with sudo, or {_ARM}"
    if scope == "1" and not has_capability:
        return what, f"run with sudo, or sudo sysctl kernel.yama.ptrace_scope=0, or {_ARM}"
    return None


def _settled_status(pid: int) -> process.Status:
    """The status, looked at again when another watcher's injection may be holding it for a millisecond."""
    status = process.status(pid)
    if status.tracer_pid:
        time.sleep(_OTHER_WATCHER_S)
        status = process.status(pid)
    return status


def _refuse_state(pid: int, status: process.Status) -> None:
    if status.state in "ZX":
        raise refusal(pid, "zombie", "it has ended (zombie)")
    if status.tracer_pid:
        raise refusal(pid, "being_debugged", f"process {status.tracer_pid} is tracing it")
    if status.state in "Tt":
        raise refusal(pid, "stopped", "it is stopped (state T)")


def _refuse_owner(pid: int, status: process.Status) -> None:
    uid = os.geteuid()
    if status.uid != uid and not has_ptrace_capability():
        raise refusal(pid, "other_user", f"it belongs to user {status.uid}, you are {uid}")


def _refuse_kernel_thread(pid: int) -> None:
    try:
        Path(f"/proc/{pid}/exe").readlink()
    except FileNotFoundError:
        raise refusal(pid, "not_python", "it runs no program") from None


def _refuse_disabled(pid: int) -> None:
    options = process.command_line(pid)
    if process.environ(pid).get("PYTHON_DISABLE_REMOTE_DEBUG") or "disable_remote_debug" in options:
        raise refusal(pid, "remote_debug_disabled", "its owner switched remote debugging off")


def is_traceable(pid: int) -> bool:
    """Whether there is machine code of ours for the process: its program is of this machine's kind and 64 bits wide."""
    with Path(f"/proc/{pid}/exe").open("rb") as program:
        header = program.read(20)
    (machine,) = struct.unpack_from("<H", header, 18)
    return machines.IS_KNOWN and machine == machines.HERE.elf_machine and header[4] == 2


def refuse_architecture(pid: int) -> None:
    """Raise InjectError where nothing of ours runs in it."""
    if not is_traceable(pid):
        what = (
            "only 64-bit x86-64 and aarch64 processes can be entered from outside, on a machine of their kind"
        )
        raise refusal(pid, "other_architecture", what)


def _takes_scripts(pid: int) -> bool:
    """Whether Python's own way, `sys.remote_exec`, is open: that needs no machine code of ours."""
    try:
        return remote_exec.caller_for(pid, find_interpreter(pid).version) is not None
    except InjectError:
        return False


def _refuse_ptrace(pid: int, status: process.Status) -> None:
    if status.shadow_stack:
        raise refusal(pid, "shadow_stack", "its shadow stack forbids calls from outside")
    scope_file = Path("/proc/sys/kernel/yama/ptrace_scope")
    scope = scope_file.read_text().strip() if scope_file.exists() else None
    restriction = ptrace_restriction(scope, has_capability=has_ptrace_capability())
    if restriction is not None:
        raise InjectError(pid, "ptrace_forbidden", *restriction)


def has_ptrace_capability() -> bool:
    """Whether we may trace processes whatever their user and Yama say."""
    status = Path("/proc/self/status").read_text()
    (effective,) = [line.split()[1] for line in status.splitlines() if line.startswith("CapEff")]
    return bool(int(effective, 16) >> _CAP_SYS_PTRACE & 1)
