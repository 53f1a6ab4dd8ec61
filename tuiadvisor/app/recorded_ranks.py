"""Whom a recording holds: the ranks that gave steps are counted, those that gave none are named with their reason.

In: a view.  Out: lines for whoever records without screens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuiadvisor.errors import one_line
from tuiadvisor.text.format import count

if TYPE_CHECKING:
    from tuiadvisor.views.run_view import RankRow, RunView


def recorded_ranks(view: RunView | None) -> str:
    """'16 of 60 ranks, up to step 341'; a rank counts when a step of it was seen."""
    if view is None or not view.ranks:
        return "no ranks yet"
    if view.last_step is None:
        return f"{count(len(view.ranks), 'rank')}, no steps yet"
    num_with_steps = sum(row.last_step is not None or row.is_apart for row in view.ranks)
    whom = count(len(view.ranks), "rank")
    if num_with_steps < len(view.ranks):
        whom = f"{num_with_steps:,} of {whom}"
    return f"{whom}, up to step {view.last_step}"


def why_nobody(view: RunView | None, *, ended_alone: bool) -> str | None:
    """Why there is nothing at all, where the job ended before a rank was seen; None where there is, or at ^C."""
    return "all ranks ended before one was seen" if ended_alone and (view is None or not view.ranks) else None


def left_out(view: RunView | None) -> list[str]:
    """A sentence for those that were refused, and one for others without a step; none where all ranks gave steps."""
    if view is None or view.last_step is None:
        return []
    without = [row for row in view.ranks if row.last_step is None and not row.is_apart]
    refused = [row for row in without if row.state == "refused"]
    others = [row for row in without if row.state != "refused"]
    return [*_said(refused, "refused"), *_said(others, "without a step")]


def _said(rows: list[RankRow], what: str) -> list[str]:
    if not rows:
        return []
    why = one_line(rows[0].state_detail or rows[0].state)
    example = f"rank {rows[0].rank}: {why}"
    return [f"{what}: {example}" if len(rows) == 1 else f"{what}: {len(rows):,} ranks, e.g. {example}"]
