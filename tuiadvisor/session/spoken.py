"""One moment of the dialogue as lines for a plain terminal: what moved, the ONE change, the decision.

In: Dialogue.  Out: lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tuiadvisor.session.dialogue import Cause, Dialogue

MAX_CAUSES: Final = 6
UNMOVED: Final = "It is kept; causes, change and decision stay as they were."
WEIGHTS: Final = "causes, of 100 by loss explained and answers: where to look first, not a probability"


def moment_lines(found: Dialogue, *, is_first: bool) -> list[str]:
    """What stands now; not at first, of the causes, the change and the decision only what the last answer moved."""
    rows = [f"answered by its stacks: {found.looked}"] if is_first and found.looked else []
    moved = [one for one in found.causes if is_first or _weight(one, former=True) not in ("", _weight(one))]
    if moved:
        rows += [WEIGHTS, *(f"  {_cause(one)}" for one in found.causes[:MAX_CAUSES])]
    if is_first or found.change_before:
        rows.append(f"ONE change{' now' if found.change_before else ''}: {found.change}")
    if is_first or found.decision_before:
        former = f"{found.decision_before} -> " if found.decision_before else ""
        rows.append(f"decision: {former}{found.decision}. {found.why}")
    if found.wanted and (is_first or found.wanted != found.wanted_before):
        rows.append(found.wanted)
    if not rows and found.last:
        rows.append(f"{found.meaning} {UNMOVED}".lstrip())
    if found.question is None:
        return [*rows, found.why_over]
    left = f"{found.num_left} question{'' if found.num_left == 1 else 's'}"
    return [*rows, "", f"({left} can still change it; this one: {found.why_asked})"]


def _cause(one: Cause) -> str:
    former, now = _weight(one, former=True), _weight(one)
    arrow = "" if former in ("", now) else " up" if one.now > (one.before or 0.0) else " down"
    weight = f"{former} -> {now}" if arrow else now
    return f"{weight:>9}  {one.words}{arrow and f' ({arrow.strip()})'}"


def _weight(one: Cause, *, former: bool = False) -> str:
    share = one.before if former else one.now
    return "" if share is None else f"{100 * share:.0f}"
