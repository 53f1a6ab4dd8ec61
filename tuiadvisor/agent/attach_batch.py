"""Several ranks attached for a moment: in together, and out again as they were before.

In: the ranks' processes.  Out: their links, live where that was possible; a rank somebody else watches is shared.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Self

from tuiadvisor.agent.attach import REAL_INJECTOR, Injector
from tuiadvisor.agent.crew import Crew
from tuiadvisor.agent.rank_link import RankLink
from tuiadvisor.events import RankState

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tuiadvisor.agent.discovery import RankProcess

LOOK_S: Final = 0.02
LEAVE_S: Final = 1.0  # a rank at work makes an event within this time
PUSH_OUT_S: Final = 6.0


class AttachBatch:
    """The links of some ranks; a context manager, which takes out on leaving what it put in."""

    def __init__(self, processes: Sequence[RankProcess], injector: Injector = REAL_INJECTOR) -> None:
        self.links = [RankLink(process, injector) for process in processes]
        self.executor = Crew()

    def __enter__(self) -> Self:
        """Nothing is touched yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Every probe that nobody else watches comes out."""
        self.leave(self.links)
        self.executor.finish()
        for link in self.links:
            link.release()

    def attach(self, patience_s: float, chosen: Collection[int] | None = None) -> None:
        """Until every rank is live, or it is clear that it will not be; TuiadvisorError is never raised.

        chosen: keep links to these ranks only, where a rank's number shows only inside it; None keeps all.
        """
        if chosen is not None:
            self._keep(chosen, only_known=True)
        deadline_s = time.monotonic() + patience_s
        while time.monotonic() < deadline_s:
            for link in self.links:
                self.advance(link)
            if all(is_settled(link) for link in self.links):
                break
            time.sleep(LOOK_S)
        if len(self.links) == 1 and self.links[0].rank is None:
            self.links[0].assumed_rank = 0  # a training of one process has no process group
        if chosen is not None:
            self._keep(chosen, only_known=False)

    def advance(self, link: RankLink) -> bool:
        """Move one link on: attach, renew its lease, see its end; whether its process still runs."""
        if link.is_over:
            return False
        has_ended = not link.is_busy and link.look_for_end()
        link.advance(time.monotonic_ns(), self.executor)
        link.read_info()
        if has_ended:
            link.end()
        return not has_ended

    def leave(self, links: Sequence[RankLink]) -> None:
        """Take these probes out, from outside where a rank makes no step; shared ones stay with the other watcher."""
        for link in links:
            link.ask_to_leave()
        if not self._are_out(links, LEAVE_S):
            for link in links:
                link.push_out(self.executor)
            self._are_out(links, PUSH_OUT_S)

    def _keep(self, chosen: Collection[int], *, only_known: bool) -> None:
        keep = [link for link in self.links if link.rank in chosen or (only_known and link.rank is None)]
        others = [link for link in self.links if link not in keep]
        if not only_known:
            self.leave(others)
        for link in others:
            link.release()
        self.links = keep

    def _are_out(self, links: Sequence[RankLink], limit_s: float) -> bool:
        deadline_s = time.monotonic() + limit_s
        while True:
            for link in links:
                self.advance(link)
            if not any(link.state == RankState.LIVE or link.is_busy for link in links):
                return True
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(LOOK_S)


def is_settled(link: RankLink) -> bool:
    """Nothing more is to be waited for: live with its own words read, or not to be had."""
    if link.state == RankState.LIVE:
        return bool(link.info.python)
    return link.state in {RankState.REFUSED, RankState.DETACHED} or link.is_over
