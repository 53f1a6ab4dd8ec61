"""Processes of one job that claim to be the same rank: which of them is watched under its number, if any.

In: the links of an agent.  Out: each link's `contested`, empty where nobody else claims its rank. What was started
like the job's other ranks is believed; else what is watched already; where neither tells them apart, none is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuiadvisor.events import RankState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tuiadvisor.agent.discovery import RankProcess
    from tuiadvisor.agent.rank_link import RankLink


def settle(links: Iterable[RankLink]) -> None:
    """Tell every link whether its rank is another's."""
    claims: dict[int, list[RankLink]] = {}
    for link in links:
        claim = None if link.is_over else link.claim
        if claim is None:
            link.contest("")
        else:
            claims.setdefault(claim, []).append(link)
    sure = [rivals[0].process for rivals in claims.values() if len(rivals) == 1]
    for rank, rivals in claims.items():
        chosen = rivals[0] if len(rivals) == 1 else preferred(rivals, sure)
        for link in rivals:
            link.contest("" if link is chosen else _why(rank, link, rivals, chosen))


def may_turn_away(link: RankLink, links: Iterable[RankLink]) -> bool:
    """Whether all who claim its rank with a probe in them have said which one they are: the environment may err."""
    rivals = [one for one in links if one.claim == link.claim and not one.is_over and one.reader is not None]
    return all(one.info.python for one in rivals)


def preferred(rivals: Sequence[RankLink], others: Sequence[RankProcess]) -> RankLink | None:
    """The one that is consistent with the other ranks' place in the process tree, or is watched already."""
    places = [_place(one.process, others) for one in rivals]
    best = [one for one, place in zip(rivals, places, strict=True) if place == max(places)]
    if len(best) > 1:
        watched = [_seniority(one) for one in best]
        best = [one for one, its in zip(best, watched, strict=True) if its == max(watched) > 0]
    return best[0] if len(best) == 1 else None


def _place(process: RankProcess, others: Sequence[RankProcess]) -> tuple[int, int, bool]:
    """How much it looks started by who started the others: the deeper the ancestor and the more alike the way."""
    depth, unlike = max((_kinship(process, other) for other in others), default=(0, 0))
    return depth, unlike, process.is_launched


def _kinship(process: RankProcess, other: RankProcess) -> tuple[int, int]:
    shared = next((one for one in process.ancestors if one in other.ancestors), None)
    if shared is None:
        return 0, 0
    way, its_way = process.ancestors.index(shared), other.ancestors.index(shared)
    return len(other.ancestors) - its_way, -abs(way - its_way)


def _seniority(link: RankLink) -> int:
    return 2 if link.state == RankState.LIVE else int(link.reader is not None or link.is_busy)


def _why(rank: int, link: RankLink, rivals: Sequence[RankLink], chosen: RankLink | None) -> str:
    if chosen is not None:
        pid, its_pid = link.process.pid, chosen.process.pid
        return f"process {pid} claims to be rank {rank} like process {its_pid}, which is taken for it"
    pids = " and ".join(str(one.process.pid) for one in rivals)
    return f"processes {pids} all claim to be rank {rank}, so none is watched; name the right one with --pid"
