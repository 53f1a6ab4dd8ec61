"""The card of stacks that were sampled, as text: screens and reports say it alike.

In: StackCard.  Out: heads and rows of words.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tuiadvisor.text import format as text_of

if TYPE_CHECKING:
    from tuiadvisor.views.stack_card import CardLine, StackCard

NO_SAMPLE = "0"
TEXT_COLUMNS = 3  # before the figures
IS_OVER = "as it stood; the stall is over"


def in_the_past(card: StackCard) -> StackCard:
    """A card of a stall that is over: its sentence was said while the rank stood."""
    return replace(card, words=card.words.replace(" stands at ", " stood at ", 1))


def tables(card: StackCard) -> list[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
    """(heads, rows) of what the card has: lines of the rank beside its peer's, its loader's, where ranks stand."""
    found: list[tuple[tuple[str, ...], list[tuple[str, ...]]]] = []
    if card.lines:
        beside = (f"rank {card.peer}", "") if card.num_peer_samples else ()
        found.append((("line", "in", "calls", f"rank {card.rank}", *beside), _rows(card)))
    if card.workers:
        found.append((("line", "in", "calls", workers_title(card)), list(worker_rows(card))))
    if card.stands:
        stands = [
            (who, place, name, calls + why.removeprefix(": "))
            for who, place, name, calls, why in stand_rows(card)
        ]
        found.append((("rank", "line", "in", "calls"), list(stands)))
    return found


def _rows(card: StackCard) -> list[tuple[str, ...]]:
    return [
        (
            line.place,
            line.name,
            line.calls,
            own_time(line),
            *((peer_time(line), verdict(line)) if card.num_peer_samples else ()),
        )
        for line in card.lines
    ]


def own_time(line: CardLine) -> str:
    """Of the rank in question."""
    return _time(line.num, line.share, line.seconds)


def peer_time(line: CardLine) -> str:
    """Of its peer."""
    return _time(line.peer_num or 0, line.peer_share or 0.0, line.peer_seconds)


def verdict(line: CardLine) -> str:
    """Whether the two differ there."""
    if not line.differs:
        return "within noise"
    return "more" if line.share > (line.peer_share or 0.0) else "less"


def worker_rows(card: StackCard) -> list[tuple[str, str, str, str]]:
    """Where the loader's processes are."""
    return [(line.place, line.name, line.calls, text_of.share(line.share)) for line in card.workers]


def stand_rows(card: StackCard) -> list[tuple[str, str, str, str, str]]:
    """Where each rank of a job that hangs is, or why that is not known."""
    return [
        (
            f"rank {one.rank}",
            one.place or text_of.UNKNOWN,
            one.name,
            one.calls,
            f": {one.why}" if one.why and not one.place else "",
        )
        for one in card.stands
    ]


def workers_title(card: StackCard) -> str:
    """What the workers' rows rest on."""
    return (
        f"{text_of.count(card.num_workers, 'worker')} of its data loader, {card.num_worker_samples:,} samples"
    )


def _time(num: int, share: float, seconds: float | None) -> str:
    if num == 0:
        return NO_SAMPLE
    return text_of.share(share) if seconds is None else text_of.seconds(seconds)
