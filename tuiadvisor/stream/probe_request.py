"""What a session wants of its agents while they run: another budget for the probes, a burst of detail, stacks.

One line of JSON, from whoever started the agents. `ProbeRequest` is what is left after every field was checked.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final, TypeGuard

import orjson

PPM: Final = 1_000_000
MAX_BURST_MS: Final = 600_000
MAX_SAMPLING_MS: Final = 10_000
MAX_SAMPLED: Final = 16  # ranks of one request
SUBJECTS: Final = ("straggler", "input", "host", "hang")  # what the stacks are to explain
_MAX_RANKS: Final = 1 << 16
_MAX_RANK: Final = 1 << 24


@dataclass(frozen=True, slots=True)
class StackRequest:
    """Stacks of a few ranks at one time, the one in question first."""

    look: int  # number of this request: answers to one belong together
    subject: str  # of SUBJECTS
    ranks: tuple[int, ...]
    window_ms: int


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """Nothing is wanted where a field is None."""

    budget_ppm: int | None = None  # millionths of the step time that the probe may take
    burst_ms: int | None = None  # every step in detail for so long
    ranks: frozenset[int] | None = None  # whom the burst is for; None: all
    stacks: StackRequest | None = None

    def line(self) -> bytes:
        """As it travels."""
        document = {
            "budget_ppm": self.budget_ppm,
            "burst_ms": self.burst_ms,
            "ranks": None if self.ranks is None else sorted(self.ranks),
            "stacks": None if self.stacks is None else asdict(self.stacks),
        }
        return orjson.dumps(document) + b"\n"


def parse_probe_request(line: bytes) -> ProbeRequest | None:
    """The request in a line; None if it is none, or any field of it cannot be."""
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(found, dict):
        return None
    budget_ppm, burst_ms, ranks = (found.get(name) for name in ("budget_ppm", "burst_ms", "ranks"))
    fits = (
        (budget_ppm is None or _within(budget_ppm, 0, PPM))
        and (burst_ms is None or _within(burst_ms, 1, MAX_BURST_MS))
        and (ranks is None or _is_ranks(ranks))
    )
    stacks = None if (asked := found.get("stacks")) is None else _stacks(asked)
    if not fits or (asked is not None and stacks is None):
        return None
    return ProbeRequest(budget_ppm, burst_ms, None if ranks is None else frozenset(ranks), stacks)


def _stacks(asked: object) -> StackRequest | None:
    if not isinstance(asked, dict):
        return None
    look, subject, ranks, window_ms = (asked.get(name) for name in ("look", "subject", "ranks", "window_ms"))
    if not _is_ranks(ranks) or subject not in SUBJECTS or not _within(look, 0, 1 << 62):
        return None
    if not 0 < len(ranks) <= MAX_SAMPLED or not _within(window_ms, 1, MAX_SAMPLING_MS):
        return None
    return StackRequest(look, subject, tuple(ranks), window_ms)


def _within(value: object, low: int, high: int) -> TypeGuard[int]:
    return type(value) is int and low <= value <= high


def _is_ranks(value: object) -> TypeGuard[list[int]]:
    return (
        isinstance(value, list)
        and len(value) <= _MAX_RANKS
        and all(_within(rank, 0, _MAX_RANK) for rank in value)
    )
