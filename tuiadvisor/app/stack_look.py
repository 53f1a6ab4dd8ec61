"""One request for stacks, from the key to the answer: whom to look at, for how long, and when to give up.

In: the view, the rank in question.  Out: a StackRequest; the sentence when its answer is there, or does not come.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from tuiadvisor.stream.probe_request import MAX_SAMPLING_MS, StackRequest
from tuiadvisor.views.deaths import GONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.advisor.cluster.stack_looks import Look
    from tuiadvisor.views.run_view import RankRow, RunView

WINDOW_MS: Final = 2000
STEPS_A_WINDOW: Final = 6  # long steps are looked at for longer: a part of one says little of the whole
HANG_MS: Final = 1000  # nothing moves: one look would do
MAX_HANGING: Final = 8
PATIENCE_S: Final = 25.0  # an agent gives up first, and says why


class StackLook:
    """Mutable: what was asked, and since when."""

    def __init__(self, view: RunView, rank: int, subject: str) -> None:
        ranks = ranks_to_look_at(view, rank, subject)
        window_ms = _window_ms(view, subject)
        number = time.time_ns() // 1_000_000
        self.request = StackRequest(number, subject, ranks, window_ms)
        self._deadline_s = time.monotonic() + window_ms / 1000 + PATIENCE_S
        beside = f" and {'its peer ' if len(ranks) == 2 else ''}{_named(ranks[1:])}" if ranks[1:] else ""
        self.doing = f"looking where rank {rank}{beside} spend their time: {window_ms / 1000:.0f} s …"
        if not ranks[1:]:
            self.doing = f"looking where rank {rank} spends its time: {window_ms / 1000:.0f} s …"

    def missing(self, looks: Sequence[Look]) -> set[int]:
        """Whose stacks have not come."""
        look = next((one for one in looks if one.number == self.request.look), None)
        return set(self.request.ranks) - ({one.rank for one in look.threads} if look is not None else set())

    def answer(self, looks: Sequence[Look]) -> str:
        """What to say; "" while there is nothing to be said."""
        missing = self.missing(looks)
        rank = self.request.ranks[0]
        if not missing and self.request.subject == "hang":
            return f"where {_named(sorted(self.request.ranks))} stand: on the page of rank {rank} (2, enter)"
        if not missing:
            return f"rank {rank}: the lines of code where it spends its time are on its page (2, enter)"
        if time.monotonic() < self._deadline_s:
            return ""
        return f"no stacks of {_named(sorted(missing))}: no agent answers for it"


def why_no_stacks(view: RunView, rank: int) -> str:
    """What stands in the way of asking; "" where nothing does."""
    row = next((each for each in view.ranks if each.rank == rank), None)
    if row is None:
        return f"rank {rank} is not in this run any more"
    if row.state in GONE:
        return f"rank {rank} has no stacks to look at: {row.state_detail or row.state}"
    return ""


def ranks_to_look_at(view: RunView, rank: int, subject: str) -> tuple[int, ...]:
    """The rank, and whom its stacks are held against: a peer, or all that hang with it."""
    if subject == "hang":
        # Where no step was ever seen all may stand; a hang that is over has nobody any more.
        never = view.ranks if view.last_step is None else ()
        held = tuple(row.rank for row in never if row.state == "live")
        held = held if view.stall is None else (*view.stall.missing, *view.stall.waiting)
        return (rank, *[each for each in held if each != rank][: MAX_HANGING - 1])
    peer = peer_of(view, rank) if subject == "straggler" else None
    return (rank,) if peer is None else (rank, peer)


def peer_of(view: RunView, rank: int) -> int | None:
    """A rank that does the same work and is not late itself: of its stage, on its host if there is one."""
    own = next((row for row in view.ranks if row.rank == rank), None)
    late = {one.rank for one in view.stragglers}
    stage = next(
        (
            set(group.ranks)
            for grouping in view.groupings
            if grouping.by == "stage"
            for group in grouping.groups
            if rank in group.ranks
        ),
        None,
    )

    def fits(row: RankRow) -> bool:
        is_other = row.rank != rank and row.rank not in late and not row.is_culprit
        return is_other and row.state == "live" and (stage is None or row.rank in stage)

    found = [row for row in view.ranks if fits(row)]
    host = own.host if own is not None else ""
    return min(
        (row.rank for row in sorted(found, key=lambda row: (row.host != host, abs(row.rank - rank)))[:1]),
        default=None,
    )


def _window_ms(view: RunView, subject: str) -> int:
    if subject == "hang":
        return HANG_MS
    step_s = view.step.mean_s or view.step.median_s or 0.0
    seconds = max(WINDOW_MS / 1000, STEPS_A_WINDOW * step_s)
    return min(-(-int(seconds * 1000) // 1000) * 1000, MAX_SAMPLING_MS)


def _named(ranks: Sequence[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))
