"""One Stack of what each rank's probe says.

In: facts by rank, as frames carry them: outside data.  Out: Stack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.views.efficiency import Stack

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_FACTS: Final = 100
MAX_TEXT: Final = 100
# What may differ by rank without a word: its own batch and cost, and what it holds of a model that is shared out.
OWN: Final = frozenset({"input", "packed", "gathered_us", "steps_before"})


def believed(value: object) -> dict[str, int | str]:
    """Numbers, flags and short texts by name; anything else is left out."""
    if not isinstance(value, dict):
        return {}
    found: dict[str, int | str] = {}
    for name, item in list(value.items())[:MAX_FACTS]:
        if not isinstance(name, str) or not name.isidentifier() or len(name) > MAX_TEXT:
            continue
        if isinstance(item, bool) or (isinstance(item, int) and 0 <= item < 1 << 62):
            found[name] = item
        elif isinstance(item, str) and item.isprintable():
            found[name] = item[:MAX_TEXT]
    return found


def stack_of(by_rank: Mapping[int, Mapping[str, int | str]]) -> Stack | None:
    """Of the lowest rank that says something, with the names in which others differ; None: nobody says anything."""
    told = [by_rank[rank] for rank in sorted(by_rank) if by_rank[rank]]
    if not told:
        return None
    first = told[0]
    names = {name for facts in told for name in facts} - OWN
    differing = sorted(
        name for name in names if any(facts.get(name) != first.get(name) for facts in told[1:])
    )
    return Stack(dict(first), tuple(differing))
