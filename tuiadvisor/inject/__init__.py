"""Run Python code inside a process that is already running and knows nothing of us.

In: a process and source code.  Out: an `Injection`, or an `InjectError` that says what to do. Four ways:
the listener of a job started armed; our own ptrace with a thread started from one that is asleep; the same with a
thread started by a pending call on the main thread; `sys.remote_exec` (3.14+) where no machine code of ours can go in.
The last comes last because its script begins in the main thread's own frames: what a signal's handler raises just then
Python prints and drops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuiadvisor.inject import armed, process, remote_exec, seccomp
from tuiadvisor.inject.identity import Identity, OtherProcessError, confirm, identify
from tuiadvisor.inject.outcome import InjectError, Injection
from tuiadvisor.inject.refusals import is_traceable, preflight, refusal, refuse_architecture
from tuiadvisor.inject.tracer_process import inject_by_tracing, make_ready
from tuiadvisor.inject.turns import COMPUTING

if TYPE_CHECKING:
    from tuiadvisor.inject.plan import Interpreter

_NO_MACHINE_CODE = frozenset({"no_symbols", "no_code"})

__all__ = ["Identity", "InjectError", "Injection", "identify", "inject", "make_ready", "preflight"]


def inject(target: Identity | int, code: str, *, timeout_s: float = 5.0, way: str | None = None) -> Injection:
    """Hand `code` to the process; returns when it has started, or is queued on the main thread.

    target: the process as it was found, and no other that has its id meanwhile; a bare id means whoever has it now.
    The code runs in a namespace of its own and is silent when it fails: let it report by a file. All ways but
    'thread' and 'armed' wait while the main thread is blocked in C. `way` forces one of 'thread',
    'pending_call', 'remote_exec', 'armed'. Raises InjectError.
    """
    pid = target.pid if isinstance(target, Identity) else target
    try:
        with COMPUTING.turn():
            if isinstance(target, Identity):
                confirm(target)
            interpreter = preflight(pid)
            found = target if isinstance(target, Identity) else identify(pid)
        return _inject(found, code, interpreter, timeout_s=timeout_s, way=way)
    except OtherProcessError as other:
        raise refusal(pid, other.reason, other.what) from None
    except ProcessLookupError:
        raise refusal(pid, "gone", "it ended during the injection") from None
    except (InjectError, OSError) as error:
        # Within its exit it has no program, no mappings and no right to be traced: whatever is missed says so.
        if (isinstance(error, InjectError) and error.reason == "zombie") or not process.is_at_its_end(pid):
            raise
        raise refusal(pid, "gone", "it ended during the injection") from None


def _inject(
    target: Identity, code: str, interpreter: Interpreter, *, timeout_s: float, way: str | None
) -> Injection:
    pid = target.pid
    if way == "armed" or (way is None and armed.is_armed(pid)):
        return armed.inject_armed(target, code, timeout_s=timeout_s)
    caller = remote_exec.caller_for(pid, interpreter.version)
    if caller is not None and (harm := seccomp.harm_unread(pid, pid)) is not None:
        if way == "remote_exec":
            raise refusal(pid, "seccomp_unread", harm)
        caller = None  # our own way can read the filter
    if way == "remote_exec" and caller is None:
        raise refusal(pid, "remote_exec", "no interpreter of its version, 3.14 or later, is at hand")
    if caller is not None and (way == "remote_exec" or (way is None and not is_traceable(pid))):
        return remote_exec.inject_remote_exec(target, code, caller, timeout_s=timeout_s)
    refuse_architecture(pid)
    try:
        return inject_by_tracing(target, code, interpreter, timeout_s=timeout_s, way=way)
    except InjectError as error:
        if caller is None or way is not None or error.reason not in _NO_MACHINE_CODE:
            raise
    return remote_exec.inject_remote_exec(target, code, caller, timeout_s=timeout_s)
