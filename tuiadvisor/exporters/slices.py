"""Where within a step its phases lie, as far as that is known.

The probe measures how long each phase of a step took, and at which clock the gradient barrier began and ended. The
order in between is canonical, not measured: a step that computes forward twice shows it once, at its full length.
In: one step record.  Out: pieces that follow each other without gap or overlap and fill the step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuiadvisor.phases import PHASES, TABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuiadvisor.phases import Phase

ROUNDING_NS: Final = 10  # lengths and clocks rounded each for itself may disagree by so much


def in_order(table: tuple[Phase, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(what lies before the gradient barrier, what after it): all of a step but communication and the rest."""
    own = [phase for phase in table if phase.kind not in {"sync", "rest"}]
    after = [phase.is_after_barrier or phase.kind == "pause" for phase in own]
    return (
        tuple(phase.name for phase, is_after in zip(own, after, strict=True) if not is_after),
        tuple(phase.name for phase, is_after in zip(own, after, strict=True) if is_after),
    )


BEFORE_BARRIER, AFTER_BARRIER = in_order(TABLE)
ORDER: Final = (*BEFORE_BARRIER, "comm_exposed", *AFTER_BARRIER, "other")


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a step. is_measured: begin and end were observed, not only the length."""

    phase: str
    begin_ns: int
    end_ns: int
    is_measured: bool = False


def lay_out(
    begin_ns: int, end_ns: int, phase_ns: Mapping[str, int], arrive_ns: int, release_ns: int
) -> list[Piece]:
    """The step's phases in order. phase_ns: lengths, negative or absent where unknown; -1 for unknown clocks."""
    lengths = {name: length if (length := phase_ns.get(name, 0)) > 0 else 0 for name in PHASES}
    anchored = _around_barrier(begin_ns, end_ns, lengths, (arrive_ns, release_ns))
    if anchored is not None:
        return anchored
    pieces: list[Piece] = []
    cursor = _chain(pieces, begin_ns, end_ns, ORDER[:-1], lengths)
    _fill(pieces, cursor, end_ns)
    return pieces


def _around_barrier(
    begin_ns: int, end_ns: int, lengths: dict[str, int], barrier: tuple[int, int]
) -> list[Piece] | None:
    """With the barrier at its measured place; None when the lengths do not fit around it."""
    arrive_ns, release_ns = barrier
    other_comm_ns = lengths["comm_exposed"] - (release_ns - arrive_ns)
    if arrive_ns < begin_ns or not arrive_ns < release_ns <= end_ns or other_comm_ns < -ROUNDING_NS:
        return None
    other_comm_ns = max(other_comm_ns, 0)
    before_ns = sum(lengths[name] for name in BEFORE_BARRIER) + other_comm_ns
    after_ns = sum(lengths[name] for name in AFTER_BARRIER)
    if max(begin_ns + before_ns - arrive_ns, release_ns + after_ns - end_ns) > ROUNDING_NS:
        return None
    pieces: list[Piece] = []
    cursor = _chain(pieces, begin_ns, arrive_ns, BEFORE_BARRIER, lengths)
    cursor = _chain(pieces, cursor, arrive_ns, ("comm_exposed",), {"comm_exposed": other_comm_ns})
    _fill(pieces, cursor, arrive_ns)
    pieces.append(Piece("comm_exposed", arrive_ns, release_ns, is_measured=True))
    cursor = _chain(pieces, release_ns, end_ns, AFTER_BARRIER, lengths)
    _fill(pieces, cursor, end_ns)
    return pieces


def _chain(
    pieces: list[Piece], cursor: int, limit: int, names: tuple[str, ...], lengths: Mapping[str, int]
) -> int:
    """One after the other from cursor, never beyond limit; returns where it ends."""
    for name in names:
        length = lengths[name]
        if length and cursor < limit:  # most phases of a step are empty
            until = min(cursor + length, limit)
            pieces.append(Piece(name, cursor, until))
            cursor = until
    return cursor


def _fill(pieces: list[Piece], cursor: int, until: int) -> None:
    """What no phase claims is `other`."""
    if until > cursor:
        pieces.append(Piece("other", cursor, until))
