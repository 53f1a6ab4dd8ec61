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
# What is read in a single forward or at a single batch, together: where none of it is told it was not seen there.
SEEN_AT_ONCE: Final = (
    ("autocast",),
    ("input", "input_dtype", "packed"),
    ("micro_steps",),
    ("workers", "pin_memory", "persistent_workers", "prefetch"),
)


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
    """Of the lowest rank that says something, with the names in which others differ; None: nobody says anything.

    What is seen at a single moment is told by the lowest rank that saw it, and differs only among those.
    """
    told = [by_rank[rank] for rank in sorted(by_rank) if by_rank[rank]]
    if not told:
        return None
    together = {name for group in SEEN_AT_ONCE for name in group}
    facts = {name: value for name, value in told[0].items() if name not in together}
    differing = _differing(told, {name for each in told for name in each} - OWN - together)
    for group in SEEN_AT_ONCE:
        saw = [each for each in told if any(name in each for name in group)]
        if saw:
            facts |= {name: saw[0][name] for name in group if name in saw[0]}
            differing += _differing(saw, set(group) - OWN)
    return Stack(facts, tuple(sorted(differing)))


def _differing(told: list[Mapping[str, int | str]], names: set[str]) -> list[str]:
    return [name for name in names if any(each.get(name) != told[0].get(name) for each in told[1:])]
