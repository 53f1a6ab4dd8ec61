"""Each change that may be tried, as a purchase: what it gains, takes, risks and ties to, and what is left of it.

In: levers, Facts, Case.  Out: Candidates, what pays first, with the reason of each that falls below the cut-off. A
finding's gain is the most that any of its actions can bring; an interval that reaches zero is no gain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuiadvisor.session.case import COMPLEXITY, Interval

if TYPE_CHECKING:
    from tuiadvisor.session.case import Case
    from tuiadvisor.session.evidence import Facts
    from tuiadvisor.session.levers import Lever
    from tuiadvisor.views.run_view import Finding

# Engineer's hours for the words of rules/catalog: chosen, the upper reading of each, testing included.
HOURS: Final = {"minutes": 1.0, "a restart": 1.0, "an hour": 2.0, "a day": 8.0, "days": 40.0}
NONE_KNOWN: Final = "none known"
LAST_RESORT: Final = "a way out where none of the others fits: it takes nothing off this step"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One action for one finding. Hours and money are of the rest of this run and the planned ones; None: unknown."""

    finding: str
    action: str
    gain_s: Interval | None  # a step, at most; None: the finding has no measured interval
    effort_hours: float | None
    is_stated: bool  # the hours are the user's own estimate
    risk: str
    upkeep: str
    ties: str  # what it binds the program to
    saved_h: Interval | None
    net: Interval | None  # money saved less the effort's price
    pays_below_h: float | None  # an engineer's hours that the expected saving would pay
    why_not: str  # below the cut-off; "" where nothing speaks against it
    score: int = 0  # answers for it less answers against it
    order: str = ""  # what they say


def candidates(run: Facts, case: Case, levers: tuple[Lever, ...]) -> tuple[Candidate, ...]:
    """Those that pay first: what answers speak for, then what leaves most at least; else the order of the levers."""
    found = [_candidate(run, case, lever, is_first=at == 0) for at, lever in enumerate(levers)]
    return tuple(
        sorted(found, key=lambda one: (bool(one.why_not), -one.score, -(one.net.low if one.net else 0.0)))
    )


def _candidate(run: Facts, case: Case, lever: Lever, *, is_first: bool) -> Candidate:
    finding, action = lever.finding, lever.action
    is_stated = is_first and case.effort_hours is not None
    hours = case.effort_hours if is_stated else HOURS.get(action.effort)
    gain = None if action.last_resort else gain_of(finding, run.step_s)
    saved = _saved(case, gain, run.step_s, hours)
    net = _net(case, saved, hours)
    return Candidate(
        finding.id,
        action.text,
        gain,
        hours,
        is_stated,
        action.risk,
        action.upkeep or NONE_KNOWN,
        action.ties or NONE_KNOWN,
        saved,
        net,
        _pays_below(case, net, hours),
        # The hours of a rule's word are no estimate of this program: they order, and only the user's own refuse.
        LAST_RESORT
        if action.last_resort
        else _why_not(
            case, gain, saved, net if is_stated else None, case.change_complexity if is_first else None
        ),
        lever.score,
        "; ".join(lever.why),
    )


def gain_of(finding: Finding, step_s: float | None) -> Interval | None:
    """Seconds a step without the finding's loss, from its measured interval; None where it has none."""
    ratios = [finding.evidence.get(name) for name in ("speedup", "speedup_low", "speedup_high")]
    known = [ratio for ratio in ratios if isinstance(ratio, int | float) and ratio > 0]
    if step_s is None or len(known) < len(ratios):
        return None
    expected, low, high = (step_s * (1 - 1 / ratio) for ratio in known)
    return Interval(expected, min(low, expected), max(high, expected))


def _saved(case: Case, gain: Interval | None, step_s: float | None, hours: float | None) -> Interval | None:
    """Hours of what still runs when the change is ready, and of planned runs as long as the rest of this one."""
    if gain is None or not step_s or case.hours_now is None:
        return None
    left_h = max(case.hours_now - (hours or 0.0), 0.0) + (case.intent.planned_runs or 0.0) * case.hours_now
    return Interval(*(left_h * part / step_s for part in (gain.expected, gain.low, gain.high)))


def _net(case: Case, saved: Interval | None, hours: float | None) -> Interval | None:
    price, engineer = case.price_per_device_hour, case.intent.engineer_hour_price
    if saved is None or hours is None or price is None or engineer is None or case.num_devices is None:
        return None
    worth = case.num_devices * price + (case.intent.price_of_time or 0.0)
    return Interval(*(part * worth - hours * engineer for part in (saved.expected, saved.low, saved.high)))


def _pays_below(case: Case, net: Interval | None, hours: float | None) -> float | None:
    engineer = case.intent.engineer_hour_price
    return None if net is None or hours is None or not engineer else max(net.expected / engineer + hours, 0.0)


def _why_not(
    case: Case, gain: Interval | None, saved: Interval | None, net: Interval | None, given: str | None
) -> str:
    if gain is None:
        return "no measured interval: its gain is unknown"
    if gain.low <= 0:
        return "its gain may be nothing"
    limit = case.intent.max_complexity
    if limit is not None and given is not None and COMPLEXITY.index(given) > COMPLEXITY.index(limit):
        return f"it leaves {given} complexity and at most {limit} is accepted"
    if saved is not None and saved.expected <= 0:  # planned runs are in it
        return "the rest of the run is over before it is ready"
    if net is not None and net.expected <= 0:
        return "it costs more than it saves"
    return ""
