"""Notes as hooks make them, for the books of both cores. Only the probe is imported, so any Python can run it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tuiadvisor_probes import books, phases


def noted(seed: int) -> Iterator[tuple[int, Any]]:
    """Notes of some steps: nested phases, moved time, barriers, hidden communication, measured steps."""
    chance = random.Random(seed)  # noqa: S311 - synthetic data
    now, step = 1_000, 0
    for _ in range(chance.randrange(200, 400)):
        now += chance.randrange(0, 10**7)
        what = chance.random()
        if what < 0.9:
            yield chance.randrange(phases.NUM_PHASES) | chance.randrange(4) << 4, now
        elif what < 0.91:
            yield books.LATER, ("synchronized", chance.randrange(10**6))
        elif what < 0.93:
            yield (
                books.LATER,
                (("move", "hide")[chance.randrange(2)], chance.randrange(10**6)),
            )
        else:
            rest = (
                *(chance.randrange(-1, 1 << 40) for _ in range(5)),
                chance.randrange(256),
                *(chance.randrange(10**7) for _ in range(2)),
                chance.randrange(3),
                chance.randrange(10**6),
                chance.randrange(12),
            )
            said, momentary = chance.randrange(1 << 10), 1 << phases.FORWARD
            yield books.CLOSED, (now, step, said, momentary, chance.randrange(3), rest)
            step += 1


def told(kept: Any, notes: list[tuple[int, Any]]) -> None:
    """The notes into these books, half a note at a time or whole, as hooks do."""
    log: Any = kept if hasattr(kept, "append") else []
    for bits in (1, 1 << 2, 1 << 3 | books.COUNTS_MICRO_STEP):
        kept.group(bits)
    for number, value in notes:
        if number == books.LATER:
            name, duration = value
            arguments = {
                "move": (duration, phases.BACKWARD, phases.COMM_EXPOSED),
                "synchronized": (kept.since - duration, kept.since),
            }.get(name, (duration,))
            log.extend((books.LATER, (getattr(kept, name), arguments)))
        elif number == books.CLOSED:
            log.extend((number, value))
        else:
            log.append(number)
            log.append(value)
        kept.book(log)
