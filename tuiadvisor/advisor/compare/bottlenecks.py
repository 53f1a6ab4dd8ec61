"""What limited each of two runs, and where the bottleneck went.

In: two RunViews.  Out: the findings as resolved, new or remaining, and one sentence on the dominant one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.causes.registry import cause_of
from tuiadvisor.phases import COMPUTE_AND_REST
from tuiadvisor.views.comparison import Bottleneck, FindingChange, FindingState
from tuiadvisor.views.names import limit_name
from tuiadvisor_rules.message import seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.views.run_view import Finding, RunView


# What runs are of which nothing has moved from one to the other
TWO_MODELS: Final = "Two models"
NOT_COMPARED: Final = "Not compared"
STILL_THERE: Final = 0.5  # of its seconds: less than half of it left is a success worth its name

_BY_A_REMARK: Final[dict[FindingState, FindingState]] = {"new": "uncovered", "resolved": "hidden"}


def finding_changes(before: RunView, after: RunView, *, apart: str = "") -> tuple[FindingChange, ...]:
    """Every finding above info of either run, largest loss first. apart: as of `bottleneck`."""
    old, new = _by_kind(before), _by_kind(after)
    remarks = _by_kind(before, of_remarks=True), _by_kind(after, of_remarks=True)
    changes = []
    for key in sorted(set(old) | set(new)):
        first, second = old.get(key), new.get(key)
        if apart:
            changes.append(_change(first, second, _whose(first, second)))
            continue
        noted = first or remarks[0].get(key), second or remarks[1].get(key)
        known = first or second
        assert known is not None  # noqa: S101  # the key came from one of the two
        amounts = _amount(known, noted[0], before), _amount(known, noted[1], after)
        state = _state(first, second, *amounts)
        # Where no number says how much of it is in the other run, that this says so itself, if only as a remark, does.
        if None in amounts and None not in noted:
            state = _BY_A_REMARK.get(state, state)
        changes.append(_change(first, second, state, noted))
    changes.sort(key=lambda entry: -max(entry.loss_before_s or 0.0, entry.loss_after_s or 0.0))
    return tuple(changes)


def _by_kind(view: RunView, *, of_remarks: bool = False) -> dict[tuple[str, str], Finding]:
    """Findings above info by id and phase, the costliest of each: one of another rank is the same kind of trouble.

    of_remarks: those of info instead.
    """
    result: dict[tuple[str, str], Finding] = {}
    for finding in view.findings:
        if (finding.severity == "info") == of_remarks:
            result.setdefault((finding.id, finding.phase or ""), finding)
    return result


def _amount(finding: Finding, noted: Finding | None, view: RunView) -> float | None:
    """Seconds a step of what the finding is about, whether or not the view found it worth a finding.

    noted: what the view itself says of it, if only as a remark. None where that was not observed, or where no single
    number stands for it.
    """
    cause = cause_of(finding.id)
    found = cause.amount(finding, view) if cause is not None else None
    return noted.loss_s_per_step if found is None and noted is not None else found


def _change(
    before: Finding | None,
    after: Finding | None,
    state: FindingState,
    noted: tuple[Finding | None, Finding | None] = (None, None),
) -> FindingChange:
    """noted: the same, or remarks, which cost something as well."""
    first, second = before or noted[0], after or noted[1]
    shown = after or before
    assert shown is not None  # noqa: S101  # the key came from one of the two
    return FindingChange(
        id=shown.id,
        title=shown.title,
        state=state,
        phase=shown.phase,
        ranks_before=first.ranks if first else (),
        ranks_after=second.ranks if second else (),
        loss_before_s=first.loss_s_per_step if first else None,
        loss_after_s=second.loss_s_per_step if second else None,
    )


def _whose(before: Finding | None, after: Finding | None) -> FindingState:
    """What one run loses and another one that is not compared with it does not was never resolved."""
    if before is not None and after is not None:
        return "both"
    return "after" if before is None else "before"


def _state(
    before: Finding | None, after: Finding | None, amount_before: float | None, amount_after: float | None
) -> FindingState:
    """A share of the step falls when the step grows: who says "resolved" has to look at the seconds."""
    if before is not None and after is not None:
        return "remaining"
    shown, other = (amount_before, amount_after) if after is None else (amount_after, amount_before)
    is_there = shown is not None and other is not None and shown > 0 and other >= STILL_THERE * shown
    if after is None:
        return "hidden" if is_there else "resolved"
    return "uncovered" if is_there else "new"


def bottleneck(before: RunView, after: RunView, *, apart: str = "") -> Bottleneck:
    """The finding each verdict rests on, and where it went.

    apart: what the runs are that are not compared, as in "Two models"; nothing of one has changed in the other.
    """
    old, new = _dominant(before), _dominant(after)
    name_old, name_new = _name(old), _name(new)
    said_old, said_new = _said(old), _said(new)
    sides = ((said_old, old, before), (said_new, new, after))
    num_open = sum(found is None and view.verdict.decision is None for _, found, view in sides)
    if num_open or (old is None and new is None) or apart:
        sentence = _each_alone(sides, num_open, apart)
        return Bottleneck(name_old, name_new, moved=False, sentence=sentence)
    if old is None:
        return Bottleneck(
            None, name_new, moved=True, sentence=f"A bottleneck appeared: {said_new}{_cost(new)}."
        )
    if new is None:
        sentence = f"The bottleneck is gone: {said_old}{_cost(old)}{_left(after)}."
        return Bottleneck(name_old, None, moved=True, sentence=sentence)
    if (old.id, old.phase, old.ranks) == (new.id, new.phase, new.ranks):
        cost = ""
        if old.loss_s_per_step is not None and new.loss_s_per_step is not None:
            cost = f"; it cost {seconds(old.loss_s_per_step)} a step, now {seconds(new.loss_s_per_step)}"
        return Bottleneck(
            name_old, name_new, moved=False, sentence=f"The bottleneck is the same: {said_new}{cost}."
        )
    foretold = before.verdict.next_constraint
    as_said = ", as the first run predicted" if foretold and foretold == new.phase else ""
    return Bottleneck(
        name_old,
        name_new,
        moved=True,
        sentence=f"The bottleneck moved from {said_old}{_cost(old)}, to {said_new}{_cost(new)}{as_said}.",
    )


def _left(view: RunView) -> str:
    """What is largest in a run without a bottleneck: a loss may well be smaller than the compute beside it."""
    left = view.verdict.next_constraint
    if not left:
        return ""
    return f"; the largest {'part' if left in COMPUTE_AND_REST else 'loss'} left is {limit_name(left)}"


def _each_alone(
    sides: Sequence[tuple[str | None, Finding | None, RunView]], num_open: int, apart: str
) -> str:
    """Of two runs of which nothing moved from one to the other. num_open: how many of them nothing is decided of."""
    if num_open == len(sides):
        return "What limits either run was not decided."
    if not num_open and all(found is None for _, found, _ in sides):
        return "No finding above info limits either run."
    first, second = (_standing(*side) for side in sides)
    return f"{apart}: before, {first}; after, {second}." if apart else f"Before, {first}; after, {second}."


def _standing(name: str | None, found: Finding | None, view: RunView) -> str:
    """What limits a run; of one that was not judged, as of too few steps, that nobody knows."""
    if name and found is not None:
        return f"{name}{_cost(found)}"
    return "what limits it was not decided" if view.verdict.decision is None else "nothing above info"


def _dominant(view: RunView) -> Finding | None:
    above = [finding for finding in view.findings if finding.severity != "info"]
    return next(
        (finding for finding in above if finding.id == view.verdict.finding), above[0] if above else None
    )


def _name(finding: Finding | None) -> str | None:
    if finding is None:
        return None
    where = f" in {finding.phase.replace('_', ' ')}" if finding.phase else ""
    ranks = ""
    cause = cause_of(finding.id)
    if cause is not None and cause.names_ranks and finding.ranks:
        listed = ", ".join(map(str, finding.ranks[:8])) + (" and more" if len(finding.ranks) > 8 else "")
        ranks = f" (rank {listed})" if len(finding.ranks) == 1 else f" (ranks {listed})"
    return f"{finding.id}{where}{ranks}"


def _said(finding: Finding | None) -> str | None:
    """Its title within a sentence, and its phase where the title does not have it."""
    if finding is None:
        return None
    title = finding.title
    if title[1:2].islower():
        title = title[:1].lower() + title[1:]
    phase = limit_name(finding.phase or "")
    return title if not phase or phase in title.lower() else f"{title} ({phase})"


def _cost(finding: Finding | None) -> str:
    if finding is None or finding.loss_s_per_step is None:
        return ""
    return f", {seconds(finding.loss_s_per_step)} a step"
