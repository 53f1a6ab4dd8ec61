"""Which rows the ranks screen has, in which order: ranks, or groups with their ranks below them.

In: RunView and what the user chose (grouping, sort, filter, open groups).  Out: RankList. It is made anew only when one
of them changes, so a screen that stands still costs nothing at 16,384 ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from tuiadvisor.text import format as text_of
from tuiadvisor.tui.pages import rank_row
from tuiadvisor.views.shown_ranks import stands_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tuiadvisor.text.line import Target
    from tuiadvisor.views.rank_group import Grouping, RankGroup
    from tuiadvisor.views.run_view import RankRow, RunView

# From so many ranks on the screen begins with a row a host.
GROUPED_FROM = 129
UNKNOWN = float("inf")  # in a sort key
SHOWN_OUTLIERS = 4  # of a closed group; the others are counted in its row


def _largest_first(name: str) -> Callable[[Any], tuple[float | str, int]]:
    """Sort key of ranks and groups: largest first, unknown last, then by rank."""

    def key(row: RankRow | RankGroup) -> tuple[float | str, int]:
        number = getattr(row, name)
        return (UNKNOWN if number is None else -number, _first_rank(row))

    return key


def _first_rank(row: RankRow | RankGroup) -> int:
    rank: int = row.rank if hasattr(row, "rank") else row.ranks[0]
    return rank


def _by_host(row: RankRow | RankGroup) -> tuple[float | str, int]:
    return (row.host if hasattr(row, "host") else row.name, _first_rank(row))


def _by_state(row: Any) -> tuple[float | str, int]:
    if hasattr(row, "rank"):
        return ("" if stands_out(row) else row.state, row.rank)
    return (float(-row.num_outliers), row.ranks[0])


def by_suspicion(row: RankRow) -> tuple[bool, float, float, int]:
    """Who is named first, then who is furthest behind."""
    return (not row.is_culprit, -(row.behind_s or 0.0), -(row.caused_wait_s or 0.0), row.rank)


SORTS: dict[str, Callable[[Any], tuple[float | str, int]]] = {
    "rank": lambda row: (0.0, _first_rank(row)),
    "caused wait": _largest_first("caused_each_s"),
    "own wait": _largest_first("wait_s"),
    "last arrivals": _largest_first("last_arrivals"),
    "step time": _largest_first("step_s"),
    "host": _by_host,
    "state": _by_state,
}


ASCENDING = frozenset({"rank", "host", "state"})  # of SORTS; the others begin with the largest


@dataclass(frozen=True, slots=True)
class Choice:
    """What the user chose."""

    by: str | None  # a grouping; None: as the number of ranks suggests; any other word: a row a rank
    sort: str  # of SORTS
    is_reversed: bool
    filter: str
    turned: frozenset[str]  # groups that are not as `all_open` says
    all_open: bool

    def sorted(self, rows: Iterable[Any]) -> list[Any]:
        """Ranks or groups in the order of the sort."""
        key = SORTS[self.sort]
        placed = sorted(((key(row), row) for row in rows), key=itemgetter(0), reverse=self.is_reversed)
        # What is unknown is neither the least nor the most: it stands last either way.
        return [
            row
            for is_unknown in (False, True)
            for (value, _), row in placed
            if (value == UNKNOWN) == is_unknown
        ]

    def opens(self, group: str) -> bool:
        """Whether the ranks of a group have rows."""
        return self.all_open != (group in self.turned)


@dataclass(frozen=True, slots=True)
class RankList:
    """The rows, of which only the visible ones are ever drawn."""

    targets: list[Target]  # ("group", name) or ("rank", "2"), in the order of the screen
    ranks: dict[str, RankRow]  # those that pass the filter, by number
    groups: dict[str, RankGroup]  # those with a row
    outliers: list[Target]  # ranks that stand out and pass the filter, the most waited for first
    grouping: Grouping | None
    num_all: int  # ranks, whether they pass the filter or not
    num_live: int  # of these
    num_levels: int  # steps in the heat map
    number_width: int
    name_width: int  # of hosts and groups


def shown_grouping(view: RunView, wanted: str | None) -> Grouping | None:
    """The grouping the user asked for, else the one that many ranks begin with. wanted: None, not chosen yet."""
    if wanted is None:
        is_large = (
            len(view.ranks) >= GROUPED_FROM and len(view.groupings[0].groups if view.groupings else ()) > 1
        )
        return view.groupings[0] if is_large else None
    return next((grouping for grouping in view.groupings if grouping.by == wanted), None)


def listed(view: RunView, choice: Choice) -> RankList:
    """The rows in their order."""
    wanted = choice.filter.strip().lower()
    grouping = shown_grouping(view, choice.by)
    named = _named_groups(view, wanted)
    kept = {str(row.rank): row for row in view.ranks if row.rank in named or passes(row, wanted)}
    outliers = sorted(
        filter(stands_out, kept.values()),
        key=by_suspicion,
    )
    if grouping is None:
        rows = choice.sorted(kept.values())
        targets: list[Target] = [("rank", str(row.rank)) for row in rows]
        groups: dict[str, RankGroup] = {}
    else:
        targets, groups = _in_groups(grouping, kept, choice)
    marked = [("rank", str(row.rank)) for row in outliers]
    names = {row.host or text_of.UNKNOWN for row in view.ranks}.union(groups)
    return RankList(
        targets=targets,
        ranks=kept,
        groups=groups,
        outliers=marked,
        grouping=grouping,
        num_all=len(view.ranks),
        num_live=len([row for row in view.ranks if row.state == "live"]),
        num_levels=max((len(row.lateness_levels) for row in view.ranks), default=0),
        number_width=max(
            rank_row.number_width(view.ranks),
            *(len(rank_row.group_size(group, is_open=True)) for group in groups.values()),
            0,
        ),
        name_width=max(map(len, names), default=0),
    )


def _in_groups(
    grouping: Grouping, kept: dict[str, RankRow], choice: Choice
) -> tuple[list[Target], dict[str, RankGroup]]:
    targets: list[Target] = []
    groups: dict[str, RankGroup] = {}
    for group in choice.sorted(grouping.groups):
        inside = [number for rank in group.ranks if (number := str(rank)) in kept]
        if not inside:
            continue
        groups[group.name] = group
        targets.append(("group", group.name))
        # What was looked for is shown, however its group stands.
        if choice.opens(group.name) or len(inside) < len(group.ranks):
            rows = choice.sorted(kept[number] for number in inside)
            targets += [("rank", str(row.rank)) for row in rows]
        else:
            targets += [("rank", str(rank)) for rank in group.outliers[:SHOWN_OUTLIERS] if str(rank) in kept]
    return targets, groups


def _named_groups(view: RunView, wanted: str) -> frozenset[int]:
    """Ranks of the stages and replicas that are called what is looked for; hosts are in the ranks' own rows."""
    if not wanted or wanted.isdecimal():
        return frozenset()
    return frozenset(
        rank
        for grouping in view.groupings
        if grouping.by != "host"
        for group in grouping.groups
        if wanted == group.name
        for rank in group.ranks
    )


def passes(rank: RankRow, wanted: str) -> bool:
    """Return whether a rank passes the filter: its number begins so or lies in a range, a text is anywhere."""
    if not wanted:
        return True
    if wanted.isdecimal():
        return str(rank.rank).startswith(wanted)
    first, dash, last = wanted.partition("-")
    if dash and first.isdecimal() and last.isdecimal():
        return int(first) <= rank.rank <= int(last)
    said = "culprit" if rank.is_culprit else ""
    said += " outlier" if stands_out(rank) else ""
    return wanted in f"{rank.host} {rank.state} {rank.why_no_figures} {said}".lower()
