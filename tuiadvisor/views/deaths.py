"""Ranks that a signal killed or an error ended, as a picture of the run shows them.

In: RunView.  Out: Deaths, whoever ended the others first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuiadvisor.events import EXITING

if TYPE_CHECKING:
    from tuiadvisor.views.run_view import RankRow, RunView

# How a scheduler, a launcher or a person ends a process: mostly for another one's sake.
ASKED_TO_END: Final = ("SIGTERM", "SIGINT", "SIGHUP")
WITH_CODE: Final = "exited with code"
GONE: Final = frozenset({"exited", "killed", "refused"})  # states of ranks that tell nothing any more


def all_gone(view: RunView) -> bool:
    """Whether every rank has ended or is about to: else the run may go on though nobody watches it any more."""
    return all(row.state in GONE or row.state_detail == EXITING for row in view.ranks)


@dataclass(frozen=True, slots=True)
class Deaths:
    """At least one."""

    rank: int  # the likeliest cause of the others
    words: str  # "killed by SIGKILL after step 341; 1 more rank ended with it"
    was_asked: bool  # every one of them was ended from outside, as by scancel or Ctrl-C


def deaths_of(view: RunView) -> Deaths | None:
    """None while nobody died."""
    died = [row for row in view.ranks if _has_died(row)]
    if not died:
        return None
    # As the verdict orders them: who was seen to be killed by a signal, then who is gone, then an error of its own.
    first = min(
        died,
        key=lambda row: (
            _was_asked(row),
            row.state != "killed",
            not row.state_detail.startswith("killed"),
            row.ended_at,
            row.rank,
        ),
    )
    more = len(died) - 1
    others = f"; {more:,} more rank{'s' if more > 1 else ''} ended with it" if more else ""
    return Deaths(first.rank, f"{first.state_detail or first.state}{others}", _was_asked(first))


def _has_died(row: RankRow) -> bool:
    return row.state == "killed" or (row.state == "exited" and WITH_CODE in row.state_detail)


def _was_asked(row: RankRow) -> bool:
    return row.state == "killed" and any(name in row.state_detail for name in ASKED_TO_END)
