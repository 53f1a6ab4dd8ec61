"""Rescale, stop or keep: what the sizes, their cost and the user's objective say.

In: candidates (measured and predicted sizes) and the Aim.  Out: a SizeDecision with its reason.
A predicted size counts with the slow end of its interval. A dearer device-hour never leads to more devices: all
costs rise alike, and every rule prefers, of what is allowed, less cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.scaling.columns import TimeUnit
    from tuiadvisor.scaling.cost import Aim, Objective

LEAST_SHOWN: Final = 0.01  # of the speed: below it a percentage of what is slower tells nobody anything
NOT_AIMED: Final = "no objective was stated, and without one no number of devices is better than another"
UNSURE: Final = "is too wide to say whether that pays"
MAX_BESIDE: Final = 2  # sizes that cannot be judged, in one sentence
MANY, TOO_MANY = 1e3, 1e15  # a cost between them is written out, as in the table
SAME: Final = 1.02  # times or costs closer than the noise floor are the same


@dataclass(frozen=True, slots=True)
class Candidate:
    """One size that could be chosen. The cautious values are those of the slow end of the interval."""

    devices: int
    time: float
    cautious_time: float
    efficiency: float
    cost: float
    cautious_cost: float
    hours: float | None
    cautious_hours: float | None
    is_predicted: bool
    best_efficiency: float | None = None  # the fast end of a predicted interval


@dataclass(frozen=True, slots=True)
class Unjudged:
    """A measured size that no law of the judged rows holds for: no candidate, and perhaps better than all of them."""

    devices: int
    time: float  # as its row has it
    why: str  # it is none: "it has global batch 6144, the judged rows have global batch 2048"
    measured: Candidate | None  # for the same work as the candidates; None where that cannot be told


@dataclass(frozen=True, slots=True)
class SizeDecision:
    """What the sizes alone say: what to do, at how many devices, and why."""

    decision: Literal["rescale", "stop", "keep"]
    devices: int | None
    because: str


def sized(devices: int) -> str:
    """'1 device', '8 devices'."""
    return f"{devices:,} device{'' if devices == 1 else 's'}"


def decide(
    candidates: Sequence[Candidate],
    aim: Aim,
    unit: TimeUnit,
    refused: str | None,
    doubt: str | None = None,
    *,
    unjudged: Sequence[Unjudged] = (),
) -> SizeDecision:
    """The decision for one series. At least one candidate is measured.

    unit: in which the times are told. refused: why sizes beyond the measured ones are unknown, if they are.
    doubt: what makes the rows ambiguous; nothing is decided on them then. unjudged: rows beside the candidates, which
    are never chosen; what is said of the chosen size is said of those that can be judged, and nobody is told to stop
    before one of them that was measured to be better.
    """
    measured = sorted((one for one in candidates if not one.is_predicted), key=lambda one: one.devices)
    current = _current(measured, aim)
    undecided = _not_decided(measured, current, aim, refused=refused, doubt=doubt, unjudged=unjudged)
    if undecided is not None:
        return undecided
    allowed = [one for one in candidates if _is_within_limits(one, aim)]
    best = _best(allowed, current, aim) if allowed else None
    if best is None:
        fitting = [
            one for one in unjudged if one.measured is not None and _is_within_limits(one.measured, aim)
        ]
        return _unless_measured(_nothing_allowed(candidates, current, aim, unjudged), fitting, unit, aim)
    better = [one for one in unjudged if one.measured is not None and _is_better(one.measured, best, aim)]
    reason = _reason(best, candidates, allowed, aim, unit, is_of_all=not unjudged)
    reason += _beside_words(better, unit, aim)
    if best.devices == current.devices:
        larger = [one for one in better if one.devices > current.devices]
        return _unless_measured(_stay(current, candidates, aim, reason, refused), larger, unit, aim)
    wasted = _wasted_step(measured, best, current)
    if wasted:
        return SizeDecision("stop", best.devices, f"{wasted}; {reason}")
    return _to(best, current, aim, reason)


def _not_decided(
    measured: list[Candidate],
    current: Candidate,
    aim: Aim,
    *,
    refused: str | None,
    doubt: str | None,
    unjudged: Sequence[Unjudged],
) -> SizeDecision | None:
    """What keeps these rows from deciding anything; None where they do."""
    if doubt:
        return SizeDecision("keep", current.devices, f"nothing is decided on these rows: {doubt}")
    in_use = [one for one in unjudged if one.devices == aim.current]
    if in_use and current.devices != aim.current:
        why = f"nothing is decided: of the {sized(in_use[0].devices)} in use {in_use[0].why}"
        return SizeDecision("keep", in_use[0].devices, why)
    if len(measured) < 2:
        return SizeDecision(
            "keep", current.devices, refused or "one size can't show how a job scales: measure a second one"
        )
    return None


def _to(best: Candidate, current: Candidate, aim: Aim, reason: str) -> SizeDecision:
    """To another size, where anything was stated by which one that wastes nothing is better than another."""
    if not aim.is_stated:
        return SizeDecision("keep", current.devices, f"{NOT_AIMED}; by time it would be {reason}")
    return SizeDecision("rescale", best.devices, reason)


def _unless_measured(
    decision: SizeDecision, better: Sequence[Unjudged], unit: TimeUnit, aim: Aim
) -> SizeDecision:
    """Nothing is decided where a row that cannot be judged was measured to be what a stop says there is not."""
    if decision.decision != "stop" or not better:
        return decision
    said = _beside_words(better, unit, aim)
    named = "" if said in decision.because else said
    return SizeDecision(
        "keep",
        decision.devices,
        f"nothing is decided: of the sizes that can be judged {decision.because}{named}",
    )


def _is_better(one: Candidate, best: Candidate, aim: Aim) -> bool:
    """By what the best of the candidates was chosen for, within the same limits, and by more than noise."""
    if not _is_within_limits(one, aim):
        return False
    if aim.price_of_time is not None:
        return SAME * _with_time(one, aim.price_of_time) < _with_time(best, aim.price_of_time)
    objective = effective_objective(aim)
    if objective == "efficiency":  # theirs is not known: it is told against the smallest of the same setting
        return one.devices > best.devices
    if objective == "cost":
        return SAME * one.cautious_cost < best.cautious_cost
    return SAME * _duration(one) < _duration(best)


def _with_time(one: Candidate, worth: float) -> float:
    return one.cautious_cost + worth * (one.cautious_hours or 0.0)


def _beside_words(better: Sequence[Unjudged], unit: TimeUnit, aim: Aim) -> str:
    """'; better as measured, but not judged: 6,144 devices, measured 12.2 min: it has ...'; empty without any."""
    said = [
        f"{sized(one.devices)}, measured {one.time * unit.factor:.4g} {unit.words}: {one.why}"
        for one in better[:MAX_BESIDE]
    ]
    more = f"; {len(better) - MAX_BESIDE} more" if len(better) > MAX_BESIDE else ""
    is_better = aim.price_of_time is not None or effective_objective(aim) != "efficiency"
    what = "better as measured" if is_better else "more devices"
    return f"; {what}, but not judged: {'; '.join(said)}{more}" if said else ""


def effective_objective(aim: Aim) -> Objective:
    """What a deadline alone means is cheapest in time; otherwise time, when nothing was said."""
    if aim.objective is not None:
        return aim.objective
    return "cost" if aim.deadline_h is not None and aim.budget is None else "time"


def fastest_within(candidates: Sequence[Candidate], budget: float) -> Candidate | None:
    """The fastest size whose cost, at the slow end of its interval, is within the budget."""
    return _fastest([one for one in candidates if one.cautious_cost <= budget])


def cheapest_by(candidates: Sequence[Candidate], deadline_h: float) -> Candidate | None:
    """The cheapest size that is done in time even at the slow end of its interval."""
    return _cheapest(
        [one for one in candidates if one.cautious_hours is not None and one.cautious_hours <= deadline_h]
    )


def _fastest(candidates: list[Candidate]) -> Candidate | None:
    if not candidates:
        return None
    fastest = min(_duration(one) for one in candidates)
    return min(
        (one for one in candidates if _duration(one) <= SAME * fastest),
        key=lambda one: (one.cautious_cost, one.devices),
    )


def _cheapest(candidates: list[Candidate]) -> Candidate | None:
    if not candidates:
        return None
    least = min(one.cautious_cost for one in candidates)
    return min(
        (one for one in candidates if one.cautious_cost <= SAME * least),
        key=lambda one: (_duration(one), one.devices),
    )


def _best(allowed: list[Candidate], current: Candidate, aim: Aim) -> Candidate | None:
    if aim.price_of_time is not None:
        worth = aim.price_of_time
        return min(allowed, key=lambda one: (_with_time(one, worth), one.devices))
    objective = effective_objective(aim)
    if objective == "efficiency":
        good = [one for one in allowed if one.efficiency >= aim.efficiency_floor]
        return (
            max(good, key=lambda one: one.devices)
            if good
            else min(allowed, key=lambda one: one.cautious_cost)
        )
    if objective == "cost":
        return _cheapest(allowed)
    reachable = [one for one in allowed if _is_worth_growing(one, current, aim)] or allowed
    return _fastest(reachable)


def _is_worth_growing(one: Candidate, current: Candidate, aim: Aim) -> bool:
    """Beyond today's size: a budget says how far money may go, otherwise efficiency must stay acceptable."""
    if one.devices <= current.devices or aim.budget is not None:
        return True
    return one.efficiency >= aim.efficiency_floor


def _is_within_limits(one: Candidate, aim: Aim) -> bool:
    if aim.deadline_h is not None and (one.cautious_hours is None or one.cautious_hours > aim.deadline_h):
        return False
    return aim.budget is None or one.cautious_cost <= aim.budget


def _current(measured: list[Candidate], aim: Aim) -> Candidate:
    at_most = [one for one in measured if aim.current is None or one.devices <= aim.current]
    return (at_most or measured)[-1]


def _expected_duration(one: Candidate) -> float:
    return one.hours if one.hours is not None else one.cost / one.devices


def _duration(one: Candidate) -> float:
    """Time of the same work, cautiously: cost over devices, because a weak-scaling step is another amount of work."""
    return one.cautious_hours if one.cautious_hours is not None else one.cautious_cost / one.devices


def _stay(
    current: Candidate, candidates: Sequence[Candidate], aim: Aim, reason: str, refused: str | None
) -> SizeDecision:
    larger = sorted((one for one in candidates if one.devices > current.devices), key=lambda one: one.devices)
    if not larger:
        unknown = refused or "no larger size was measured or predicted"
        return SizeDecision("keep", current.devices, f"{reason}; beyond it: {unknown}")
    following = larger[0]
    gain = _expected_duration(current) / _expected_duration(following) - 1
    worst = _duration(current) / _duration(following) - 1
    unsure = f" (at worst {_changes(worst).removeprefix('makes the run ')})" if following.is_predicted else ""
    step = (
        f"going to {sized(following.devices)} {_changes(gain)}{unsure} "
        f"at {following.cost / current.cost:.2f} times the cost and efficiency {_beside_floor(following, aim)}"
    )
    if following.efficiency < aim.efficiency_floor:
        step += f", below {_floor_words(aim)}"
    stopped_by_limits = not _is_within_limits(following, aim)
    if stopped_by_limits or effective_objective(aim) == "cost":
        return SizeDecision("keep", current.devices, f"{reason}; {step}")
    if current.efficiency < aim.efficiency_floor:
        step += (
            f"; {sized(current.devices)} themselves are at {current.efficiency:.2f}, "
            f"below the floor of {aim.efficiency_floor:g}"
        )
    best = following.best_efficiency or following.efficiency
    most = (1 + gain) * best / following.efficiency - 1
    if most < SAME - 1:  # slower and dearer, even at best: by whatever one decides
        return SizeDecision("stop", current.devices, f"{step}; {reason}")
    if not aim.is_stated:
        return SizeDecision("keep", current.devices, f"{NOT_AIMED}; {step}")
    if following.is_predicted and best >= aim.efficiency_floor:
        holds = "reaches the floor" if following.efficiency < aim.efficiency_floor else UNSURE
        return SizeDecision("keep", current.devices, f"{step}; its interval {holds}: measure it; {reason}")
    return SizeDecision("stop", current.devices, f"{step}; {reason}")


def _wasted_step(measured: list[Candidate], best: Candidate, current: Candidate) -> str | None:
    """The first measured step above the best size that bought nothing, in words."""
    above = [one for one in measured if best.devices <= one.devices <= current.devices]
    for small, large in pairwise(above):
        if _duration(small) <= SAME * _duration(large):
            gain = _duration(small) / _duration(large) - 1
            price = f"{large.cost / small.cost:.2f} times the cost"
            return f"going from {small.devices} to {sized(large.devices)} {_changes(gain)} at {price}"
    return None


def _beside_floor(one: Candidate, aim: Aim) -> str:
    """Two digits, three where two would not tell on which side of the floor it is."""
    shown = f"{one.efficiency:.2f}"
    return f"{one.efficiency:.3f}" if float(shown) == aim.efficiency_floor else shown


def _changes(gain: float) -> str:
    if abs(gain) < SAME - 1:
        return "makes the run no faster"
    if 1 + gain < LEAST_SHOWN:
        return "makes the run many times slower"
    slower = 1 / (1 + gain) - 1
    return (
        f"makes the run {100 * gain:.0f} % faster"
        if gain > 0
        else f"makes the run {100 * slower:.0f} % slower"
    )


def _cheapest_words(best: Candidate, allowed: Sequence[Candidate]) -> str:
    """Of sizes whose costs differ by noise alone the fastest was chosen: a cheaper one is named."""
    least = min(allowed, key=lambda one: (one.cautious_cost, one.devices))
    if least.cautious_cost >= best.cautious_cost:
        return "the cheapest"
    more = 100 * (best.cautious_cost / least.cautious_cost - 1)
    return (
        f"as cheap as {sized(least.devices)} within the noise of {100 * (SAME - 1):.0f} % "
        f"(cost {_amount(best.cautious_cost)} against {_amount(least.cautious_cost)}, {more:.1f} % more), and faster"
    )


def _perhaps_cheaper(best: Candidate, allowed: Sequence[Candidate]) -> str:
    """A prediction whose cost is less as expected and not at the slow end: beside it "the cheapest" reads as wrong."""
    least = min(allowed, key=lambda one: (one.cost, one.devices))
    if not least.is_predicted or SAME * least.cost >= best.cost or least.cautious_cost <= best.cautious_cost:
        return ""
    return (
        f"; {sized(least.devices)} may cost less ({_amount(least.cost)} as predicted), "
        f"but at worst more ({_amount(least.cautious_cost)}): measure it"
    )


def _too_late(best: Candidate, candidates: Sequence[Candidate], aim: Aim) -> str:
    """The cheapest of all where it misses the deadline: the table shows it as the cheaper one."""
    least = min(candidates, key=lambda one: (one.cautious_cost, one.devices))
    late_h = least.cautious_hours
    if aim.deadline_h is None or late_h is None or late_h <= aim.deadline_h:
        return ""
    if least.cautious_cost >= best.cautious_cost:
        return ""
    return f"; {sized(least.devices)} would cost {_amount(least.cautious_cost)}, but need {late_h:.4g} h"


def _floor_words(aim: Aim) -> str:
    """Nobody states it with the objective: where it comes from is said with it."""
    return f"the efficiency floor of {aim.efficiency_floor:g} (efficiency_floor of the preferences)"


def _reason(
    best: Candidate,
    candidates: Sequence[Candidate],
    allowed: Sequence[Candidate],
    aim: Aim,
    unit: TimeUnit,
    *,
    is_of_all: bool,
) -> str:
    """Why this size. is_of_all: there are no sizes that cannot be judged beside the candidates."""
    judged = "" if is_of_all else ", of the sizes that can be judged"
    low = f", at worst {best.cautious_time * unit.factor:.4g}" if best.is_predicted else ""
    source = "predicted" if best.is_predicted else "measured"
    time = f"{best.time * unit.factor:.4g} {unit.words}"
    at = f"{sized(best.devices)} ({source} {time}{low}, efficiency {best.efficiency:.2f})"
    limits = _limits(aim)
    if aim.price_of_time is not None:
        return f"{at}: least cost plus time at {_amount(aim.price_of_time)} an hour{limits}{judged}"
    if aim.objective == "efficiency":
        if best.efficiency < aim.efficiency_floor:
            return f"{at}: no size keeps efficiency {aim.efficiency_floor:g}{limits}, this one is nearest{judged}"
        return f"{at}: the most devices that keep efficiency {aim.efficiency_floor:g}{limits}{judged}"
    if effective_objective(aim) == "cost":
        free = "" if limits else "; no deadline was given, so time does not count"
        beside = f"{_perhaps_cheaper(best, allowed)}{_too_late(best, candidates, aim)}"
        return f"{at}: {_cheapest_words(best, allowed)}{limits}{judged}{free}{beside}"
    if aim.budget is None and any(one.devices > best.devices for one in candidates):
        floor = f"larger ones gain nothing or fall below {_floor_words(aim)}"
        return f"{at}: the fastest{limits}{judged}, {floor}"
    compared = " of the sizes compared" if is_of_all else " of the sizes that can be judged"
    compared += ", in time for the same work"  # not of a step, which at another size may be more of it
    return f"{at}: the fastest{f'{limits}{judged}' if limits else compared}"


def _amount(value: float) -> str:
    """A cost in four digits, a large one in whole units: nobody reads money as 4.333e+05."""
    return f"{value:,.0f}" if MANY <= abs(value) < TOO_MANY else f"{value:.4g}"


def _limits(aim: Aim) -> str:
    parts = [f"within the budget of {_amount(aim.budget)}"] if aim.budget is not None else []
    parts += [f"by the deadline of {aim.deadline_h:g} h"] if aim.deadline_h is not None else []
    return " " + " and ".join(parts) if parts else ""


def _nothing_allowed(
    candidates: Sequence[Candidate], current: Candidate, aim: Aim, unjudged: Sequence[Unjudged]
) -> SizeDecision:
    judged = " that can be judged" if unjudged else ""
    fastest = min(
        candidates, key=lambda one: one.cautious_hours if one.cautious_hours is not None else one.time
    )
    cheapest = min(candidates, key=lambda one: one.cautious_cost)
    parts = []
    if aim.deadline_h is not None and fastest.cautious_hours is not None:
        parts.append(f"the fastest{judged}, {sized(fastest.devices)}, needs {fastest.cautious_hours:.4g} h")
    if aim.budget is not None:
        parts.append(
            f"the cheapest{judged}, {sized(cheapest.devices)}, costs {_amount(cheapest.cautious_cost)}"
        )
    return SizeDecision(
        "stop", current.devices, f"no measured or predicted size fits{_limits(aim)}: {' and '.join(parts)}"
    )
