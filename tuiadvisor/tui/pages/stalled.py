"""The collectives in which ranks of a standing job wait, by their flight recorders: who has entered each, who has not.

In: RunView.  Out: lines; none where no recorder told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuiadvisor.text import format as text_of
from tuiadvisor.text.line import Line, indent, line, rule, wrap

if TYPE_CHECKING:
    from tuiadvisor.views.run_view import RunView
    from tuiadvisor.views.stall import StalledCollective

MARGIN = 2


def stalled_collectives(view: RunView, width: int, rank: int | None = None) -> list[Line]:
    """Return a rule and two rows or more for each. rank: only those that it has entered or has not."""
    found = () if view.stall is None else view.stall.collectives
    shown = [each for each in found if rank is None or rank in each.members or rank in each.waiting]
    if not shown:
        return []
    rows = [rule("collectives that do not end", width, text_of.count(len(shown), "collective"))]
    for each in shown:
        rows += [line((text, "strong")) for text in wrap(_name(each), width)]
        rows += [
            indent(line((text, role)), MARGIN)
            for words, role in _who(each)
            for text in wrap(words, width - MARGIN)
        ]
    return rows


def _name(each: StalledCollective) -> str:
    what = " ".join(part for part in (each.operation.rpartition(":")[2], each.size, each.dtype) if part)
    purpose = f" ({each.description})" if each.description and each.description != each.group else ""
    return f"{what}, collective {each.seq} of group {each.group}{purpose}"


def _who(each: StalledCollective) -> list[tuple[str, str]]:
    rows = [(f"not entered by {text_of.ranks(each.missing, 16)}", "bad")] if each.missing else []
    rows += [
        (f"completed by rank {peer}: the device of rank {rank} has stopped", "bad")
        for rank, peer in each.stopped
    ]
    rows += (
        [(f"entered by {text_of.ranks(each.waiting, 16)}, which {_wait(each.waiting)}", "text")]
        if each.waiting
        else []
    )
    return rows + ([(f"not known of {text_of.ranks(each.unknown, 16)}", "unknown")] if each.unknown else [])


def _wait(ranks: tuple[int, ...]) -> str:
    return "waits" if len(ranks) == 1 else "wait"
