"""What a screen calls a finding by: its rule's id, with a number where the rule found more than one thing.

In: the findings of a view.  Out: a key each, and the finding of a key.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tuiadvisor.views.run_view import Finding


def keyed(findings: Iterable[Finding]) -> dict[str, Finding]:
    """Return the findings in their order, by keys that differ: two pauses are two findings of one rule."""
    seen: Counter[str] = Counter()
    found: dict[str, Finding] = {}
    for each in findings:
        seen[each.id] += 1
        found[each.id if seen[each.id] == 1 else f"{each.id} {seen[each.id]}"] = each
    return found
