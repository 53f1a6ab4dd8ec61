"""Which ranks are shown where there is no room for all: screens, text, reports and metrics ask here.

In: rows of a RunView.  Out: the rows to show and those that are left out. The culprits come first, so no limit hides
whom the verdict names behind ranks that only look odd.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.views.run_view import RankRow

# Nobody watches such a rank, or it is lost: each has a reason to read, even where all ranks have the same.
UNWELL: Final = frozenset({"killed", "refused", "waiting_to_attach"})
HOLDS_UP: Final = frozenset({"stopped", "missing"})


def stands_out(row: RankRow) -> bool:
    """It is named, late, lost, unwatched, in another state than most ranks, or holds the job up."""
    return row.is_culprit or row.is_outlier or row.state in UNWELL or row.held in HOLDS_UP


def standing_out(rows: Sequence[RankRow]) -> list[RankRow]:
    """Those of the rows; the culprits first, then in their order."""
    return sorted(filter(stands_out, rows), key=lambda row: not row.is_culprit)


def shown_ranks(rows: Sequence[RankRow], most: int) -> tuple[Sequence[RankRow], list[RankRow]]:
    """(shown, left out): all in their order where they fit, else at most so many of those that stand out."""
    if len(rows) <= most:
        return rows, []
    shown = standing_out(rows)[:most]
    numbers = {row.rank for row in shown}
    return shown, [row for row in rows if row.rank not in numbers]
