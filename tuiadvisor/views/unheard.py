"""The last picture of a run that nobody hears any more: its figures stand, and what its ranks do now is unknown.

In: RunView.  Out: RunView.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tuiadvisor.views.run_view import RunView

UNHEARD: Final = "unknown"  # state of a rank of which the last word was that it is live


def unheard(view: RunView) -> RunView:
    """The same, and no rank is called live or doing anything."""
    ranks = tuple(
        replace(row, state=UNHEARD, now="", held="") if row.state == "live" else row for row in view.ranks
    )
    live = {row.rank for row in ranks if row.state == UNHEARD}
    groupings = tuple(
        replace(
            each,
            groups=tuple(
                replace(group, num_live=None) if live.intersection(group.ranks) else group
                for group in each.groups
            ),
        )
        for each in view.groupings
    )
    return replace(view, ranks=ranks, groupings=groupings)
