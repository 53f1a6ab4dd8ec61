"""Start the tracer process, hand it a plan, and make its outcome an `Injection` or an `InjectError`."""

from __future__ import annotations

import marshal
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuiadvisor.inject.outcome import InjectError, Injection
from tuiadvisor.inject.plan import make_plan
from tuiadvisor.inject.refusals import REMEDIES

if TYPE_CHECKING:
    from tuiadvisor.inject.identity import Identity

# Only the tracer's own modules are loaded: with the packages' __init__ files the start takes 60 ms, not 20.
_START = """\
import sys
for name in ("tuiadvisor", "tuiadvisor.inject"):
    module = sys.modules[name] = type(sys)(name)
    module.__path__ = [sys.argv[1] + "/" + name.replace(".", "/")]
from tuiadvisor.inject import tracer
tracer.main()
"""
_PACKAGES = Path(__file__).resolve().parents[2]
_GRACE_S = 10.0  # the tracer keeps its own deadlines and must never be killed while it holds the target


def inject_by_tracing(target: Identity, code: str, *, timeout_s: float, way: str | None) -> Injection:
    """Run the code by ptrace. `way` is 'thread', 'pending_call' or None for whichever fits."""
    started_ns = time.monotonic_ns()
    pid = target.pid
    made = make_plan(target, code)
    chosen = way if way is not None or made.has_lock else "pending_call"
    plan = made.as_dict() | {"way": chosen, "timeout_s": timeout_s}
    outcome = _carry_out(pid, plan, timeout_s)
    if "reason" in outcome:
        reason = outcome["reason"]
        raise InjectError(pid, reason, outcome["what"], REMEDIES.get(reason, REMEDIES["other"]))
    return Injection(
        pid=pid,
        way=outcome["way"],
        stopped_ns=outcome["stopped_ns"],
        total_ns=time.monotonic_ns() - started_ns,
    )


def _carry_out(pid: int, plan: dict[str, object], timeout_s: float) -> dict[str, Any]:
    tracer = subprocess.Popen(  # no `with`: it would wait for ever, and nobody may kill the tracer
        [sys.executable, "-I", "-S", "-c", _START, str(_PACKAGES)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        output, complaint = tracer.communicate(marshal.dumps(plan), timeout_s + _GRACE_S)
    except subprocess.TimeoutExpired:
        raise InjectError(pid, "timeout", "the tracer gave no answer", REMEDIES["timeout"]) from None
    if tracer.returncode < 0:
        name = signal.Signals(-tracer.returncode).name
        what = f"the process that injects was killed ({name}); whether it had begun is not known"
        raise InjectError(pid, "tracer_killed", what, REMEDIES["tracer_killed"])
    if tracer.returncode or not output:
        raise InjectError(pid, "tracer", f"the tracer failed: {_last_line(complaint)}", REMEDIES["other"])
    outcome: dict[str, Any] = marshal.loads(output)  # noqa: S302  written by our own child
    return outcome


def _last_line(complaint: bytes) -> str:
    lines = complaint.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no message"
