"""Have a tracer carry out a plan, and make its outcome an `Injection` or an `InjectError`.

Each tracer is forked by a process that waits ready beside the watcher, the tracer's modules loaded (ready_tracer). A
Python started for each rank would take 20 ms of a core that the ranks compute on; a fork takes about two.
"""

from __future__ import annotations

import atexit
import marshal
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor import expendable
from tuiadvisor.inject.outcome import InjectError, Injection
from tuiadvisor.inject.plan import make_plan
from tuiadvisor.inject.refusals import REMEDIES
from tuiadvisor.inject.turns import COMPUTING

if TYPE_CHECKING:
    from tuiadvisor.inject.identity import Identity
    from tuiadvisor.inject.plan import Interpreter

# Only the tracer's own modules are loaded: with the packages' __init__ files the start takes 60 ms, not 20.
_START: Final = """\
import sys
for name in ("tuiadvisor", "tuiadvisor.inject"):
    module = sys.modules[name] = type(sys)(name)
    module.__path__ = [sys.argv[1] + "/" + name.replace(".", "/")]
from tuiadvisor.inject import ready_tracer
ready_tracer.main()
"""
_PACKAGES: Final = Path(__file__).resolve().parents[2]
_GRACE_S: Final = (
    10.0  # the tracer keeps its own deadlines and must never be killed while it holds the target
)
_END_S: Final = 2.0
_READ_BYTES: Final = 4096
_NUM_STARTS: Final = 2  # who waited ready may have been killed since


def inject_by_tracing(
    target: Identity, code: str, interpreter: Interpreter | None = None, *, timeout_s: float, way: str | None
) -> Injection:
    """Run the code by ptrace. `way` is 'thread', 'pending_call' or None for whichever fits."""
    started_ns = time.monotonic_ns()
    pid = target.pid
    with COMPUTING.turn():
        made = make_plan(target, code, interpreter)
    chosen = way if way is not None or made.has_lock else "pending_call"
    plan = made.as_dict() | {"way": chosen, "timeout_s": timeout_s}
    outcome = _carry_out(plan, timeout_s)
    if "reason" in outcome:
        reason = outcome["reason"]
        raise InjectError(pid, reason, outcome["what"], REMEDIES.get(reason, REMEDIES["other"]))
    return Injection(
        pid=pid,
        way=outcome["way"],
        stopped_ns=outcome["stopped_ns"],
        total_ns=time.monotonic_ns() - started_ns,
    )


class Ready:
    """The process that waits ready, and the socket by which tracers are asked of it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._end: tuple[str, str] | None = None
        self._asking, its = socket.socketpair()
        self._asking.settimeout(_END_S)  # one that was stopped takes what its queue holds, and then nothing
        # Tracers are as it is. One that the kernel took in the middle of a remote call would take the rank with it.
        with its, expendable.as_found():
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _START, str(_PACKAGES)],
                stdin=its.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Of the process that waits."""
        return self._process.pid

    def ask(self, connection: socket.socket) -> None:
        """Have a tracer forked that takes its plan from there. OSError where nobody waits ready any more."""
        socket.send_fds(self._asking, [b"f"], [connection.fileno()])

    def end(self) -> tuple[str, str]:
        """It is asked no more, and tracers complete what they have begun; (reason, what) of why it did not answer."""
        with self._lock:  # several may have asked
            if self._end is None:
                self._asking.close()
                complaint = b""
                try:
                    _, complaint = self._process.communicate(timeout=_END_S)
                except subprocess.TimeoutExpired:  # it holds nobody: tracers are processes of their own
                    self._process.kill()
                    self._process.communicate()
                self._end = self._why(complaint.decode(errors="replace").strip().splitlines())
        return self._end

    def _why(self, complaint: list[str]) -> tuple[str, str]:
        code = self._process.returncode
        if code is not None and code < 0:
            what = f"the process that injects was killed ({signal.Signals(-code).name}) before it began"
            return "tracer_killed", what
        return "tracer", f"the tracer failed: {complaint[-1] if complaint else 'no message'}"


class ReadyPlace:
    """The one that waits ready for all threads of this process: begun when first asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ready: Ready | None = None

    def get(self) -> Ready:
        """The present one."""
        with self._lock:
            if self._ready is None:
                self._ready = Ready()
            return self._ready

    def leave(self, ready: Ready) -> tuple[str, str]:
        """This one does not answer, the next comes in its place; (reason for programs, what for people)."""
        with self._lock:
            if self._ready is ready:
                self._ready = None
        return ready.end()

    def close(self) -> None:
        """Nobody waits ready any more."""
        with self._lock:
            ready, self._ready = self._ready, None
        if ready is not None:
            ready.end()


_PLACE: Final = ReadyPlace()
atexit.register(_PLACE.close)


def make_ready() -> None:
    """Start what tracers are forked from while there is nothing to do yet."""
    _PLACE.get()


def _carry_out(plan: dict[str, object], timeout_s: float) -> dict[str, Any]:
    reason = what = ""
    for _ in range(_NUM_STARTS):
        ready = _PLACE.get()
        try:
            begun, output = _answer(ready, marshal.dumps(plan), timeout_s + _GRACE_S)
        except TimeoutError:
            _PLACE.leave(ready)
            return {"reason": "timeout", "what": "the tracer gave no answer"}
        if output:
            outcome: dict[str, Any] = marshal.loads(output)  # noqa: S302  written by our own child
            return outcome
        if begun:
            what = "the process that injects was killed; whether it had begun is not known"
            return {"reason": "tracer_killed", "what": what}
        reason, what = _PLACE.leave(ready)
    return {"reason": reason, "what": what}


def _answer(ready: Ready, plan: bytes, limit_s: float) -> tuple[bool, bytes]:
    """(a tracer was there, its outcome or nothing). Raises TimeoutError."""
    ours, its = socket.socketpair()
    begun, output = b"", b""
    with ours:
        ours.settimeout(limit_s)
        try:
            with its:
                ready.ask(its)
            begun = ours.recv(1)
            with suppress(ConnectionError):  # it may have answered without the plan
                ours.sendall(plan)
                ours.shutdown(socket.SHUT_WR)
            while more := ours.recv(_READ_BYTES):
                output += more
        except TimeoutError:
            raise
        except OSError:  # nobody waits ready, or the tracer was killed
            return bool(begun), output
    return bool(begun), output
