"""A smaller size that saves by the bounds of one run, and from where on a difference decides.

In: nothing.  Out: Fewer, NotMore.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tuiadvisor.session.economics import Move

SAVING: Final = frozenset({"cost", "efficiency"})  # objectives that fewer devices may serve
NOISE: Final = 0.02  # two runs of the same code differ by as much: a smaller difference decides nothing


@dataclass(frozen=True, slots=True)
class Fewer:
    """A smaller size that surely saves device-hours. Shares of the device-hours; cases: worst, likely, best."""

    devices: int
    instead_of: int
    saved_low: float
    saved_high: float
    cases: tuple[Move, ...] = ()  # of the rest; empty where its length was not stated


@dataclass(frozen=True, slots=True)
class NotMore:
    """Why more devices cannot pay, even at best, and what would change that."""

    why: str
    would_change: str
