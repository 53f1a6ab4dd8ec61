"""The line of code that sampled stacks named, in place of the advice to look for it.

In: judged findings, StackCards.  Out: the same findings; their first action names the line where one explains the loss.
A line at which the peer is not is in the evidence too, with its share of the loss: no answer outranks what was seen.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tuiadvisor.advisor.assemble.stack_cards import own_time, peer_time
from tuiadvisor.metrics.sampling.line_kinds import COLLECTIVE
from tuiadvisor.metrics.sampling.line_shares import LIMITS
from tuiadvisor.views.measured import NAMED_LINE, NAMED_LINE_SHARE
from tuiadvisor.views.run_view import Action
from tuiadvisor.views.stall import HANG

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tuiadvisor.advisor.judge.findings import Judged
    from tuiadvisor.views.run_view import Finding
    from tuiadvisor.views.stack_card import CardLine, StackCard

ASKS_FOR_LINES: Final = re.compile(r"\btuiadvisor stacks \S+ --lines\b")
ASKS_FOR_STACKS: Final = re.compile(r"\btuiadvisor stacks\b|C shows the line of code")
GO_ON: Final = "kill -CONT"
LEAST_OF_LOSS: Final = 0.5  # chosen: a line that explains less leaves the larger part to be looked for
LEAST_OF_SAMPLES: Final = 0.5  # chosen: of the loader's workers, whose steps nobody counts


def with_lines(
    judged: list[Judged], cards: Sequence[StackCard], of_stand: Collection[int] = ()
) -> list[Judged]:
    """Each with the line that the newest look at its rank named, unless it was taken before the trouble began.

    of_stand: looks since which that rank stands still.
    """
    of_now = [card for card in cards if card.subject == HANG and card.look in of_stand]
    return [
        replace(
            entry,
            finding=_with_stand(entry.finding, of_now)
            if entry.finding.id == HANG
            else _with_line(entry.finding, [one for one in cards if not _is_older(one, entry.finding)]),
        )
        for entry in judged
    ]


def _is_older(card: StackCard, found: Finding) -> bool:
    """Whether a look is known to show steps before those of the finding; at its first step a look has begun before."""
    return card.step is not None and found.onset_step is not None and card.step <= found.onset_step


def _with_stand(found: Finding, cards: Sequence[StackCard]) -> Finding:
    """A hang whose stacks were seen: who still waits to be told to look at them has looked."""
    asks = [act for act in found.actions if ASKS_FOR_STACKS.search(f"{act.text} {act.command or ''}")]
    seen = [one for card in cards for one in card.stands if one.place]
    # Whom the others wait for; where nobody is known to be missing, any of them shows what does not end.
    at = next((one for one in seen if one.rank in found.ranks or not found.ranks), None)
    if not asks or at is None:
        return found
    if any((act.command or "").startswith(GO_ON) for act in found.actions):
        # Where a signal met it explains nothing: it goes on from there once it is let.
        return replace(found, actions=tuple(act for act in found.actions if act not in asks))
    calls = f", which calls {at.calls}" if at.calls else ""
    line = f"rank {at.rank} at {at.place} in {at.name}{calls}"
    text = f"Change what keeps {line}: the others wait for it."
    if not found.ranks:
        text = f"Find out why nothing releases {line}: no rank is seen to be missing."
    named = Action(text, None, asks[0].risk, "an hour")
    return replace(
        found,
        actions=tuple(named if act is asks[0] else act for act in found.actions if act not in asks[1:]),
        measure_next=tuple(each for each in found.measure_next if not ASKS_FOR_STACKS.search(each)),
    )


def _with_line(found: Finding, cards: Sequence[StackCard]) -> Finding:
    asks = [act for act in found.actions if ASKS_FOR_LINES.search(act.command or "")]
    card = next(
        (one for one in cards if one.rank in found.ranks and one.subject in {"straggler", "input"}), None
    )
    text = _change(found, card) if asks and card is not None else ""
    if not text:
        return found
    named = Action(text, None, asks[0].risk, "an hour")
    # What is to be changed is a line of the training's own, whatever part of the step it is in.
    rest = tuple(act for act in found.actions if act not in asks)
    evidence = found.evidence | (_explained(found, card) if card is not None else {})
    return replace(found, actions=(named, *rest), layer="application", evidence=evidence)


def _explained(found: Finding, card: StackCard) -> dict[str, float | str]:
    """The line and what it explains, where the rank alone is at it; nothing where a reason is still to be asked for.

    Work that the peer does as well, for less, may be slow for whatever slows the rank down.
    """
    more = _most_beyond_peer(card)
    if more is None or card.kind in {"", COLLECTIVE} or not found.loss_s_per_step:
        return {}
    if (more.peer_share or 0.0) >= LIMITS["little_of_peer"].value * more.share:
        return {}
    share = ((more.seconds or 0.0) - (more.peer_seconds or 0.0)) / found.loss_s_per_step
    if share < LEAST_OF_LOSS:
        return {}
    named = f"what rank {card.rank} does at {more.place} in {more.name}"
    return {NAMED_LINE: named, NAMED_LINE_SHARE: min(share, 1.0)}


def _most_beyond_peer(card: StackCard) -> CardLine | None:
    return next((line for line in card.lines if line.differs and line.share > (line.peer_share or 0.0)), None)


def _change(found: Finding, card: StackCard) -> str:
    """What to change at the line that explains the finding; "" where the look names none."""
    if found.phase == "data_wait" and card.workers:
        most = card.workers[0]
        if most.share < LEAST_OF_SAMPLES:
            return ""
        share = f"{100 * most.share:.0f} % of their time"
        return f"Shorten what the loader's workers of rank {card.rank} do at {most.place} in {most.name}: {share}."
    first = _most_beyond_peer(card)
    if first is None or first.seconds is None or first.peer_seconds is None or card.peer is None:
        return ""
    longest_s = first.seconds - first.peer_seconds + (first.margin_s or 0.0)
    if found.loss_s_per_step is None or longest_s < LEAST_OF_LOSS * found.loss_s_per_step:
        return ""
    # A thread that waits for its loader stands at one line too; what it waits for is not done there.
    if found.phase == "data_wait" and first.calls:
        return ""
    beside = f"its peer, rank {card.peer}: {peer_time(first)}"
    return (
        f"Shorten what rank {card.rank} does at {first.place} in {first.name}: {own_time(first)}; {beside}."
    )
