"""Holding the target for half a millisecond.  In: a plan.  Out: an outcome.

In a process of its own (ready_tracer forks it), because a tracer that dies in the middle of a remote call takes the
target with it: there Ctrl-C, SIGTERM, SIGHUP and even SIGKILL of the watcher find nobody; every signal that can be
blocked is blocked. It raises its own priority, since most of a stop is the tracer waiting for a processor, and it is no
more expendable than the target: where memory runs out the kernel takes the watcher, which has nobody in its hands.
"""

from __future__ import annotations

import errno
import os
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from tuiadvisor import expendable
from tuiadvisor.inject import identity, idle_thread, ptrace, remote_call, seccomp
from tuiadvisor.inject.machines import HERE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tuiadvisor.inject.registers import Registers

_MMAP, _MUNMAP = HERE.calls["mmap"], HERE.calls["munmap"]
_PROT_READ_EXEC = 1 | 4
_MAP_PRIVATE_ANONYMOUS = 2 | 32
_NUM_SEARCHES = 3
_NUM_PENDING_TRIES = 5
_PENDING_CALL_S = 0.2
_CAP_SYS_NICE = 23
_NEXT_TRY_S = 0.005
_OTHER_TRACER_S = 0.2  # another watcher's injection into the same thread is over by then, a debugger is not
_NO_THREAD = frozenset({"no_thread", "seccomp", "seccomp_unread"})  # a pending call needs none
_FAILED = 0xFFFFFFFF  # -1 as an unsigned int


# What says that a thread is not there any more. OtherProcessError comes too where only the thread was looked for.
_ENDED = (ptrace.GoneError, ProcessLookupError, FileNotFoundError, identity.OtherProcessError)
_DEAD = (b"Z", b"X", b"x")
_STAT_BYTES = 1024


class RefusedError(Exception):
    """The target was left alone: (reason for programs, what for people)."""


class _Target(NamedTuple):
    """The process that was found, by descriptors that can be no other's."""

    found: identity.Identity
    process_fd: int
    memory_fd: int
    deadline_s: float


def run(plan: dict[str, Any]) -> dict[str, Any]:
    """{'way', 'stopped_ns'} or {'reason', 'what'}."""
    try:
        return _run(plan)
    except RefusedError as refused:
        reason, what = refused.args
    except identity.OtherProcessError as other:
        reason, what = other.reason, other.what
    except _ENDED:
        reason, what = "gone", "it ended during the injection"
    except ptrace.LateError:
        reason, what = "busy_in_c", "its thread did not stop or answer in time"
    except ptrace.ShadowStackError:
        reason, what = "shadow_stack", "its shadow stack forbids calls from outside"
    except remote_call.StoppedByUserError:
        reason, what = "stopped", "it is being stopped"
    except remote_call.FaultError as fault:
        reason, what = "fault", f"the remote call failed ({fault}) and was undone"
    except PermissionError as error:
        reason, what = "ptrace_forbidden", f"the system forbids tracing it ({error.strerror})"
    except OSError as error:
        reason, what = "system", f"the system refused: {error.strerror}"
    return {"reason": reason, "what": what}


def _run(plan: dict[str, Any]) -> dict[str, Any]:
    found = identity.Identity(*plan["identity"])
    deadline_s = time.monotonic() + plan["timeout_s"]
    with identity.opened(found.pid) as process_fd:
        identity.check(found, process_fd)
        expendable.no_sooner_than(found.pid)
        memory_fd = os.open("mem", os.O_RDWR | os.O_CLOEXEC, dir_fd=process_fd)
        target = _Target(found, process_fd, memory_fd, deadline_s)
        _check_proofs(plan, target)
        return _patiently(plan, target)


def _patiently(plan: dict[str, Any], target: _Target) -> dict[str, Any]:
    give_up_s = None
    while True:
        try:
            return _by_either_way(plan, target)
        except PermissionError:
            # From the first refusal on: on a busy machine the first try alone may take longer than that. A thread
            # that is just ending refuses as a traced one does, and is gone at the next try.
            give_up_s = give_up_s or time.monotonic() + _OTHER_TRACER_S
            if time.monotonic() < give_up_s:
                time.sleep(_NEXT_TRY_S)
            elif _is_traced(target.found.pid):
                raise RefusedError("being_debugged", "another process is tracing it") from None
            else:
                raise


def _by_either_way(plan: dict[str, Any], target: _Target) -> dict[str, Any]:
    if plan["way"] != "pending_call":
        outcome = None
        try:
            outcome = _by_thread(plan, target)
        except RefusedError as refused:
            if plan["way"] == "thread" or refused.args[0] not in _NO_THREAD:
                raise
        if outcome or plan["way"] == "thread":
            return outcome or {"reason": "busy", "what": "it has no idle thread"}
    return _by_pending_call(plan, target)


def _by_thread(plan: dict[str, Any], target: _Target) -> dict[str, Any] | None:
    """Start a thread from one that is asleep; None when none stays asleep."""
    for _ in range(_NUM_SEARCHES):
        for candidate in idle_thread.candidates(target.found.pid, plan["libc_code"]):
            started = False
            try:
                _refuse_filtered(candidate.tid, plan, target, seccomp.BY_THREAD)
                with _held(candidate.tid, plan, target) as thread:
                    started = _still_asleep(thread.registers, candidate.sleep) and _start_thread(plan, thread)
            except _ENDED:
                # Threads come and go: that this one has ended says nothing of its process.
                if started or candidate.tid == target.found.pid or not _is_alive(target):
                    raise
            if started:
                return {"way": "thread", "stopped_ns": thread.stopped_ns}
    return None


def _is_alive(target: _Target) -> bool:
    try:
        identity.check(target.found, target.process_fd)
        stat_fd = os.open("stat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=target.process_fd)
    except (identity.OtherProcessError, OSError):
        return False
    try:
        state = os.read(stat_fd, _STAT_BYTES).rpartition(b")")[2].split()[0]
    except (OSError, IndexError):
        return False
    finally:
        os.close(stat_fd)
    return state not in _DEAD


def _by_pending_call(plan: dict[str, Any], target: _Target) -> dict[str, Any]:
    """Queue a call on the main thread, wherever it is, that starts a thread; or runs the code where none may be."""
    entry = plan["start_entry"] if _may_start_thread(plan, target) else plan["pending_entry"]
    for _ in range(_NUM_PENDING_TRIES):
        # The queue has a lock. If the main thread itself was stopped inside it, our call can't return:
        # it is abandoned and tried again a moment later.
        queued = False
        with _held(target.found.pid, plan, target) as thread:
            if thread.sleeps_anew():
                raise RefusedError("busy_in_c", "its main thread sleeps for a span that would begin anew")
            thread.answer_within(_PENDING_CALL_S)
            with suppress(ptrace.LateError):
                _add_pending_call(plan, thread, entry)
                queued = True
        if queued:
            return {"way": "pending_call", "stopped_ns": thread.stopped_ns}
    raise ptrace.LateError


def _may_start_thread(plan: dict[str, Any], target: _Target) -> bool:
    """Whether code of ours may run beside the main thread's. Raises RefusedError where it may not run at all."""
    pid = target.found.pid
    if plan["has_lock"]:
        try:
            _refuse_filtered(pid, plan, target, seccomp.BY_THREAD)
        except RefusedError as refused:
            if refused.args[0] != "seccomp":
                raise
        else:
            return True
    _refuse_filtered(pid, plan, target, ())
    return False


@contextmanager
def _held(tid: int, plan: dict[str, Any], target: _Target) -> Iterator[remote_call.HeldThread]:
    """The thread stopped, and proved to be one of the process that was found, with the code that was looked at."""

    def prove() -> None:
        identity.check(target.found, target.process_fd, tid)
        _check_proofs(plan, target)  # a process that has started another program meanwhile has other memory

    with _hurrying(tid), remote_call.held(tid, target.memory_fd, target.deadline_s, prove) as thread:
        yield thread


def _refuse_filtered(tid: int, plan: dict[str, Any], target: _Target, also: seccomp.Calls) -> None:
    """Raise RefusedError where a seccomp filter of the thread may end it at one of our system calls."""
    pid = target.found.pid
    if seccomp.is_free(pid, tid):
        return
    harm, reason = seccomp.harm_unread(pid, tid), "seccomp_unread"
    if harm != seccomp.STRICT and seccomp.may_read():
        with suppress(ptrace.UnreadableError):
            with _held(tid, plan, target):
                programs = ptrace.seccomp_filters(tid)
            harm, reason = seccomp.harm(programs, (*seccomp.BY_TRACING, *also, *seccomp.INSIDE)), "seccomp"
    if harm is not None:
        raise RefusedError(reason, harm)


def _start_thread(plan: dict[str, Any], thread: remote_call.HeldThread) -> bool:
    block = _map_block(plan, thread)
    arguments = (thread.scratch(), 0, block + plan["thread_entry"], block)
    code = thread.call(plan["pthread_create"], arguments, plan["trap_at"])
    if code:
        _unmap_block(plan, thread, block)
        raise RefusedError("no_thread", f"it cannot start a thread ({os.strerror(code)})")
    return True


def _add_pending_call(plan: dict[str, Any], thread: remote_call.HeldThread, entry: int) -> None:
    block = _map_block(plan, thread)
    arguments = (block + entry, block)
    if thread.call(plan["add_pending_call"], arguments, plan["trap_at"]) == _FAILED:
        _unmap_block(plan, thread, block)
        raise RefusedError("busy_in_c", "its queue of pending calls is full")


def _map_block(plan: dict[str, Any], thread: remote_call.HeldThread) -> int:
    size = len(plan["block"])
    try:
        block = thread.system_call(
            plan["syscall_at"], _MMAP, 0, size, _PROT_READ_EXEC, _MAP_PRIVATE_ANONYMOUS, _FAILED, 0
        )
    except OSError as error:  # a seccomp filter or a security module
        raise RefusedError("no_code", f"it may not map executable memory ({error.strerror})") from error
    thread.write(block, plan["block"])
    return block


def _unmap_block(plan: dict[str, Any], thread: remote_call.HeldThread, block: int) -> None:
    thread.system_call(plan["syscall_at"], _MUNMAP, block, len(plan["block"]))


def _still_asleep(registers: Registers, sleep: idle_thread.Sleep) -> bool:
    """Nothing may have happened between the look and the stop."""
    return registers.is_asleep_in(sleep.system_call, sleep.stack_pointer, sleep.instruction)


def _check_proofs(plan: dict[str, Any], target: _Target) -> None:
    for address, content in plan["proofs"]:
        try:
            same = os.pread(target.memory_fd, len(content), address) == content
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            same = False
        if not same:
            raise RefusedError("changed", "its code is not that of the files it was started from")


def _is_traced(pid: int) -> bool:
    for tid in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208  pathlib costs more and says no more
        with open(f"/proc/{pid}/task/{tid}/status", "rb") as status:  # noqa: PTH123  as above
            if b"TracerPid:\t0\n" not in status.read():
                return True
    return False


@contextmanager
def _hurrying(tid: int) -> Iterator[None]:
    """Real-time priority for us and for the thread we hold: a stop is mostly waiting for a processor.

    Needs CAP_SYS_NICE, which also allows to take it back; without it nothing is changed. What the thread
    starts meanwhile does not inherit it.
    """
    ordinary = os.sched_param(0)
    raised = False
    with suppress(OSError):
        if os.sched_getscheduler(tid) == os.SCHED_OTHER and _has_nice_capability():
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(2))
            os.sched_setscheduler(tid, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
            raised = True
    try:
        yield
    finally:
        if raised:
            with suppress(ProcessLookupError):
                os.sched_setscheduler(tid, os.SCHED_OTHER, ordinary)
        os.sched_setscheduler(0, os.SCHED_OTHER, ordinary)


def _has_nice_capability() -> bool:
    with open("/proc/self/status", "rb") as status:  # noqa: PTH123  pathlib costs more and says no more
        effective = int(status.read().partition(b"CapEff:")[2].split()[0], 16)
    return bool(effective >> _CAP_SYS_NICE & 1)
