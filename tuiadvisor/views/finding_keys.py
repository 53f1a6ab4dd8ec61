"""What a screen calls a finding by: its rule's id, and what it is of where the rule found more than one thing.

In: the findings of a view.  Out: a key each, and the finding of a key.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tuiadvisor.views.run_view import Finding


def keyed(findings: Iterable[Finding]) -> dict[str, Finding]:
    """Return the findings in their order, by keys that differ: two pauses are two findings of one rule.

    A key does not depend on that order, which is by what they cost now: the two may change places.
    """
    all_found = list(findings)
    of_rule = Counter(each.id for each in all_found)
    of_subject = Counter((each.id, each.subject) for each in all_found)
    seen: Counter[str] = Counter()
    found: dict[str, Finding] = {}
    for each in all_found:
        key = each.id
        if of_rule[each.id] > 1:
            ranks = ",".join(map(str, each.ranks)) if of_subject[each.id, each.subject] > 1 else ""
            key = " ".join(filter(None, (each.id, each.subject, ranks)))
        seen[key] += 1
        found[key if seen[key] == 1 else f"{key} {seen[key]}"] = each
    return found


def key_of(findings: Iterable[Finding], former: Finding | None) -> str | None:
    """Return the key that a finding has now, be it of more or fewer ranks than it was; None where it is gone."""
    return next(
        (key for key, each in keyed(findings).items() if former is not None and each.is_of(former)), None
    )
