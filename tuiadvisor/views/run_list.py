"""One recording in a list of recordings: what its row shows; nothing computes after it.

In: a RunView at the end of a recording.  Out: RunEntry; None means that it was not observed, or not read yet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from tuiadvisor.views.run_view import DecisionWord, RunView

SPARK_VALUES: Final = 24
TALLEST: Final = 3.0


@dataclass(frozen=True, slots=True)
class RunEntry:
    """A row of the list."""

    path: str
    name: str  # as shown: below the folder of the list
    when: str  # local time of the last change, "11-21 19:05", of another year "2025-11-21"
    num_bytes: int
    state: Literal["unread", "reading", "read", "broken"] = "unread"
    problem: str = ""  # why it is broken
    label: str = ""
    world_size: int | None = None
    last_step: int | None = None
    step_s: float | None = None  # mean of the steady ones
    spark: tuple[float | None, ...] = ()  # seconds, oldest first
    decision: DecisionWord | None = None
    sentence: str = ""
    ended: str = ""


def summarized(entry: RunEntry, view: RunView) -> RunEntry:
    """The row of a recording that was read to its end."""
    return replace(
        entry,
        state="read",
        label=view.run.label,
        world_size=view.run.world_size,
        last_step=view.last_step,
        step_s=view.step.mean_s,
        spark=thinned(view.trend.step_s, SPARK_VALUES),
        decision=view.decided.decision,
        sentence=view.decided.sentence,
        ended=view.ended,
    )


def thinned(values: tuple[float | None, ...], most: int) -> tuple[float | None, ...]:
    """At most so many values, each the median of its neighbours; None where none of them is known.

    A pause or a slow start would press everything else flat: nothing is drawn taller than three medians.
    """
    size = max(-(-len(values) // most), 1)
    groups = [
        [value for value in values[start : start + size] if value is not None]
        for start in range(0, len(values), size)
    ]
    middles = [median(group) if group else None for group in groups]
    known = [value for value in middles if value is not None]
    tallest = TALLEST * median(known) if known else 0.0
    return tuple(None if value is None else min(value, tallest) for value in middles)
