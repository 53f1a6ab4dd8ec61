"""What the rest of a run could take at best by everything that is found in it, and the stated limits that it misses.

In: Facts, Rest.  Out: Least, Missed. A bound, never a promise: a limit is out of reach only where this misses it too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuiadvisor.session.evidence import compute_share
from tuiadvisor.session.fewer import NOISE
from tuiadvisor.session.sums import UNCOUNTED

if TYPE_CHECKING:
    from tuiadvisor.session.evidence import Facts
    from tuiadvisor.session.intent import Intent
    from tuiadvisor.views.run_view import Finding

WHOLE_FROM: Final = 1000.0  # money: beyond it digits after the point tell nothing
OF_COMPUTE: Final = ("half_saves_share", "tf32_saves_share")  # of the step at best; they do not add up
MOST_NAMED: Final = 2


@dataclass(frozen=True, slots=True)
class Least:
    """Share of the step that surely stays, and what was found that would take the others; "" for nothing."""

    share: float = 1.0
    finding: Finding | None = None  # that would take most
    named: str = ""


NOTHING_FOUND: Final = Least()


@dataclass(frozen=True, slots=True)
class Rest:
    """Of the run, as it is: hours, its cost where it has a price, and by which share its step may be shorter."""

    hours: float
    cost: float | None
    slack: float
    least: Least


@dataclass(frozen=True, slots=True)
class Missed:
    """Limits that the rest misses as it is. reachable: by what was found, at best."""

    words: str
    reachable: bool
    would_change: str


def least(run: Facts) -> Least:
    """All losses gone together, and compute in the cheapest precision."""
    if not run.step_s:
        return NOTHING_FOUND
    step_s = run.step_s
    losses = {id(one): one.loss_s_per_step or 0.0 for one in (*run.findings, *run.notes)}
    useful = _useful(run, sum(losses.values()) / step_s)
    computes = compute_share(run)
    precise = {id(one): _saved_share(one) for one in (*run.findings, *run.notes)}
    saved = max(precise.values(), default=0.0)
    # Of what is useful at most the compute shrinks, and that by the ratio of peaks.
    ratio = max(1 - saved / computes, 0.0) if saved and computes else 1.0
    share = max(useful - saved, useful * ratio)
    worth = sorted(
        (*run.findings, *run.notes),
        key=lambda one: -max(losses[id(one)] / step_s, precise[id(one)]),
    )
    named = [one for one in worth if losses[id(one)] or precise[id(one)]]
    # Two precisions are one lever.
    first = next((one for one in named if precise[id(one)]), None)
    named = [one for one in named if not precise[id(one)] or one is first][:MOST_NAMED]
    return Least(min(share, 1.0), named[0] if named else None, "; ".join(one.title for one in named))


def _useful(run: Facts, lost: float) -> float:
    """Of the step, without its losses; without an account of the wall time by the findings' own figures."""
    if run.useful_step_s is not None and run.step_s:
        return run.useful_step_s / run.step_s
    return max(1 - lost, compute_share(run) or 0.0)


def _saved_share(found: Finding) -> float:
    values = [found.evidence.get(name) for name in OF_COMPUTE]
    return max((float(value) for value in values if isinstance(value, int | float)), default=0.0)


def missed(rest: Rest, intent: Intent, gain: float) -> Missed | None:
    """Budget and deadline that even the shortest step as it is misses. gain: of the verdict at its highest."""
    hours, cost = rest.hours, rest.cost
    surely = max(1 - NOISE - rest.slack, 0.0)
    share = min(surely * rest.least.share, surely / gain)
    said, changes, is_reachable = [], [], True
    if intent.budget is not None and cost is not None and cost * surely > intent.budget:
        said.append(
            f"the rest of the run costs {amount(cost)}, beyond the budget of {amount(intent.budget)}: "
            f"{amount(cost * share)} at best"
        )
        changes.append("a larger budget")
        is_reachable = cost * share <= intent.budget
    if intent.deadline_h is not None and hours * surely > intent.deadline_h:
        said.append(
            f"the rest of the run takes {amount(hours)} h, after the deadline in {amount(intent.deadline_h)} h: "
            f"{amount(hours * share)} h at best"
        )
        changes.append("a later deadline")
        is_reachable = is_reachable and hours * share <= intent.deadline_h
    if not said:
        return None
    by = (
        f", with every loss that was found gone ({rest.least.named})"
        if rest.least.named and share < surely
        else ""
    )
    what = "it" if len(said) == 1 else "both"
    could = (
        f"; that would keep {what} at best" if is_reachable else f"; nothing that was found would keep {what}"
    )
    change = ", ".join([*changes, "fewer steps"])
    return Missed(f"{'; '.join(said)}{by}{could}", is_reachable, f"{change[0].upper()}{change[1:]}.")


def amount(value: float) -> str:
    """Of money or hours, so that sums that differ look different: three digits of small ones."""
    return f"{value:,.0f}" if WHOLE_FROM <= abs(value) < UNCOUNTED else f"{value:.3g}"
