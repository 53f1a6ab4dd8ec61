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
    takes: tuple[tuple[str, float], ...] = ()  # what is named, and the share of the step that each takes


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
    takes = tuple((one.title, max(losses[id(one)] / step_s, precise[id(one)])) for one in named)
    first_of_all = named[0] if named else None
    return Least(min(share, 1.0), first_of_all, "; ".join(one.title for one in named), takes)


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
    said, bests, changes, is_reachable = [], [], [], True
    if intent.budget is not None and cost is not None and cost * surely > intent.budget:
        said.append(f"costs {amount(cost)}, beyond the budget of {amount(intent.budget)}")
        bests.append(f"cost {amount(cost * share)}")
        changes.append("a larger budget")
        is_reachable = cost * share <= intent.budget
    if intent.deadline_h is not None and hours * surely > intent.deadline_h:
        said.append(f"takes {amount(hours)} h, but the deadline is in {amount(intent.deadline_h)} h")
        bests.append(f"take {amount(hours * share)} h")
        changes.append("a later deadline")
        is_reachable = is_reachable and hours * share <= intent.deadline_h
    if not said:
        return None
    what = f"the rest of the run {' and '.join(said)}"
    change = ", ".join([*changes, "fewer steps"])
    would_change = f"{change[0].upper()}{change[1:]}."
    if share >= surely:
        return Missed(f"{what}; nothing that was found would change that", is_reachable, would_change)
    in_limits = {True: "within ", False: "still not within "}[is_reachable] + (
        "both" if len(said) > 1 else "it"
    )
    saved = _saved_words(rest, share, in_hours="take" in bests[-1])
    best = f"without all losses that were found it would {' and '.join(bests)} at best"
    return Missed(f"{what}; {best}, {in_limits}{saved}", is_reachable, would_change)


def _saved_words(rest: Rest, share: float, *, in_hours: bool) -> str:
    """How much less that is, and which part of it the largest losses are; "" where they are said to take more."""
    whole, unit = (rest.hours, " h") if in_hours else (rest.cost or 0.0, "")
    takes = rest.least.takes
    if not takes or sum(part for _, part in takes) > 1 - share:
        return ""
    parts = " and ".join(f"{amount(whole * part)}{unit} by “{title}”" for title, part in takes)
    return (
        f": {amount(whole * (1 - share))}{unit} less, of which {parts}, the rest by smaller losses and chance"
    )


def amount(value: float) -> str:
    """Of money or hours, so that sums that differ look different: three digits of small ones."""
    return f"{value:,.0f}" if WHOLE_FROM <= abs(value) < UNCOUNTED else f"{value:.3g}"
