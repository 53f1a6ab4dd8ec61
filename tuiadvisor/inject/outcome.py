"""What an injection ends in: an `Injection` that says how it went, or an `InjectError` that says why not."""

from __future__ import annotations

from dataclasses import dataclass

from tuiadvisor.errors import TuiadvisorError


@dataclass(frozen=True, slots=True)
class Injection:
    """Code handed over to a process; whether the code itself succeeded is told by what it writes."""

    pid: int
    way: str
    """'thread' | 'pending_call' | 'remote_exec' | 'armed'"""
    stopped_ns: int
    """How long the traced thread stood still; 0 where nothing is traced."""
    total_ns: int


class InjectError(TuiadvisorError):
    """The process was left as it was; `reason` is for programs, the message and `remedy` for people."""

    def __init__(self, pid: int, reason: str, what: str, remedy: str) -> None:
        super().__init__(f"process {pid}: {what}; {remedy}")
        self.pid = pid
        self.reason = reason
        self.what = what
        self.remedy = remedy
