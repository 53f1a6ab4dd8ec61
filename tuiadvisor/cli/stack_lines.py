"""`tuiadvisor stacks RANK --lines`: the lines of code at which a rank spends more time than a peer, without a watch."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from tuiadvisor.advisor.assemble.stack_cards import stack_cards
from tuiadvisor.advisor.cluster.stack_looks import StackLooks
from tuiadvisor.agent.stack_samples import sample_processes
from tuiadvisor.app.stack_look import WINDOW_MS
from tuiadvisor.cli.document import print_document
from tuiadvisor.errors import FailureError, TuiadvisorError
from tuiadvisor.stream.probe_request import StackRequest
from tuiadvisor.text.printed_page import page_text, page_width
from tuiadvisor.tui.pages.stack_card import card_lines

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tuiadvisor.agent.discovery import RankProcess
    from tuiadvisor.views.stack_card import StackCard


def print_lines(processes: Sequence[RankProcess], ranks: Collection[int] | None, *, as_json: bool) -> int:
    """Sample the rank and its neighbour, print what differs. FailureError where nothing was seen."""
    card = _card(*_pair(processes, ranks))
    if not card.num_samples:
        raise FailureError(card.words)
    if as_json:
        print_document({"schema": 1, "card": asdict(card)})
    else:
        print(page_text(card_lines(card, page_width())[:-1]), end="")
    return 0


def _pair(processes: Sequence[RankProcess], ranks: Collection[int] | None) -> list[RankProcess]:
    """The rank in question and its neighbour; a process that trains by itself is rank 0, and has none."""
    if len(processes) == 1 and (not ranks or processes[0].rank in {None, *ranks}):
        return [replace(processes[0], rank=processes[0].rank or 0)]
    if ranks is None or len(ranks) != 1:
        raise TuiadvisorError(
            "--lines looks at one rank beside a peer: name it, as in `tuiadvisor stacks 2 --lines`"
        )
    (rank,) = ranks
    own = [each for each in processes if each.rank == rank]
    if not own:
        raise TuiadvisorError(f"rank {rank}: not on this machine")
    others = [each for each in processes if each.rank is not None and each.rank != rank]
    return [*own[:1], *sorted(others, key=lambda each: abs((each.rank or 0) - rank))[:1]]


def _card(own: RankProcess, *peers: RankProcess) -> StackCard:
    named = {each.rank: each for each in (own, *peers) if each.rank is not None}
    request = StackRequest(time.time_ns() // 1_000_000, "straggler", tuple(named), WINDOW_MS)
    looks = StackLooks()
    for entry in sample_processes(named, request):
        looks.take(entry)
    (card,) = stack_cards(looks.newest_first())
    return card
