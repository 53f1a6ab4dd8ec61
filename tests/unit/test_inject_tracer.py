"""The tracer's patience: what passes by itself is tried again, what stays is refused with its reason."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from tuiadvisor.inject import InjectError, identify, inject, tracer

if TYPE_CHECKING:
    from pathlib import Path

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

    plan = {
        "identity": tuple(identify(os.getpid())), "proofs": [], "timeout_s": 5.0, "way": None,
    }  # fmt: skip
    with monkeypatch.context() as patched:
        patched.setattr(tracer, "_by_either_way", by_either_way)
        patched.setattr(time, "monotonic", lambda: clock_s)
        patched.setattr(time, "sleep", sleep)
        return tracer.run(plan)


@pytest.mark.parametrize(("num_refusals", "try_s"), [(0, 0.0), (1, 3.0), (10, 0.001)])
def test_a_thread_that_was_just_ending_is_not_the_last_word(
    monkeypatch: pytest.MonkeyPatch, num_refusals: int, try_s: float
) -> None:
    """Refused as if tracing were forbidden, and gone a moment later; on a busy machine one try takes seconds."""
    assert run(monkeypatch, num_refusals, try_s) == STARTED


def test_a_lasting_refusal_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a fifth of a second of tries, as forbidden where nobody traces it."""
    assert run(monkeypatch, 10**6, 0.001)["reason"] == "ptrace_forbidden"


def test_a_killed_tracer_is_told_as_such(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is no refusal of the process's: nobody knows how far it had come."""
    tracer_program = tmp_path / "python"
    tracer_program.write_text("#!/bin/sh\nkill -KILL $$\n")
    tracer_program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tracer_program))
    with pytest.raises(InjectError) as caught:
        inject(os.getpid(), "pass", way="thread")
    assert caught.value.reason == "tracer_killed"
    assert "killed (SIGKILL); whether it had begun is not known" in str(caught.value)
