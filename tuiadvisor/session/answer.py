"""An answer in plain words, and what it leaves open."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Why:
    """A question, what the run says, and what it cannot say with the way to find out."""

    name: str
    question: str
    answer: str
    unknown: str
