"""One decision from what was measured and what was stated: tune, rescale, stop or keep, or a hang.

In: Case.  Out: Decision. Only measured gains and measured sizes decide; answers can forbid, price or end something,
never replace a measurement. What is unknown stays None and is named.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from tuiadvisor.scaling.decide import sized
from tuiadvisor.session.economics import SECONDS_PER_HOUR, money
from tuiadvisor.session.fewer import NOISE, SAVING
from tuiadvisor.session.limits import NOTHING_FOUND, Least, Rest, amount, missed
from tuiadvisor.session.wanted import outcome, words

if TYPE_CHECKING:
    from tuiadvisor.session.economics import Move
    from tuiadvisor.session.fewer import Fewer, NotMore
    from tuiadvisor.session.intent import Intent
    from tuiadvisor.session.limits import Missed
    from tuiadvisor.session.remaining import Pace
    from tuiadvisor.session.wanted import Outcome, Wanted

SEE_INTENT: Final = (
    "tuiadvisor intent shows what is stated; tuiadvisor advise RUN OTHER tries a measured smaller size."
)
Kind = Literal["tune", "rescale", "stop", "keep", "hang"]
COMPLEXITY: Final = ("low", "medium", "high")


@dataclass(frozen=True, slots=True)
class Prospect:
    """What relieving the dominant constraint would bring: a measured loss, as a ratio of step times."""

    finding: str
    headline: str
    expected: float
    low: float
    high: float
    at_best: bool = False  # an upper bound: what others could do meanwhile was not seen


@dataclass(frozen=True, slots=True)
class Unpriced:
    """The dominant constraint where it was seen and what it costs was not: a job on cores that others want."""

    finding: str
    headline: str


@dataclass(frozen=True, slots=True)
class Case:
    """All that a decision may use."""

    enough: bool  # to decide on
    step_s: float | None
    num_devices: int | None
    remaining_steps: float | None
    price_per_device_hour: float | None
    intent: Intent
    prospect: Prospect | None
    moves: tuple[Move, ...] = ()  # measured sizes, same unit of work
    effort_hours: float | None = None
    change_complexity: str | None = None
    result_as_good_now: bool = False
    paid_anyway: bool = False  # nobody else can use the devices that a smaller size would free
    why_undecided: str = ""  # although there were steps enough
    on_device_clock: bool = False  # whose times all figures are
    step_slack: float = 0.0  # share by which the mean step may be shorter than it was seen
    pace: Pace | None = None  # with start-up, restarts and checkpoints; None: steps alone
    wanted: Wanted | None = None  # a size that was asked for and not measured
    is_imported: bool = False  # from a trace or a log of what is over
    hang: str = ""  # who waits for whom; "" while steps complete
    is_over: bool = False  # its processes have ended
    unpriced: Unpriced | None = None  # never beside a prospect
    fewer: Fewer | None = None  # by bounds of this run, where no other size was measured
    not_more: NotMore | None = None  # by the same bounds
    restart_h: float = 0.0  # of going on at another size: as stated, else the start-up of a live run
    kept_because: str = ""  # what was found of steps that are to be kept, in the words of their own verdict
    least: Least = NOTHING_FOUND  # of the step by all that was found
    held: str = ""  # what was decided of these steps before: it stays until it is likelier not to hold

    @property
    def dominant(self) -> str | None:
        """The finding that the decision rests on."""
        found = self.prospect or self.unpriced
        return None if found is None else found.finding

    @property
    def hours_now(self) -> float | None:
        """Hours of the remaining run as it is."""
        if self.remaining_steps is None or self.step_s is None:
            return None
        if self.pace is not None:
            return self.pace.hours(self.remaining_steps)
        return self.remaining_steps * self.step_s / SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class Interval:
    """A gain with its uncertainty."""

    expected: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do. Hours and money are of the remaining run; None: unknown."""

    decision: Kind
    why: str
    speedup: Interval | None = None
    saved_h: Interval | None = None
    saved_money: Interval | None = None
    cost_h: float | None = None  # an engineer's hours, or the restart's
    cost_money: float | None = None
    break_even_steps: float | None = None
    num_devices: int | None = None  # to move to
    ready_within_h: float | None = None  # a change that is ready later serves nothing of the rest
    is_open: bool = False  # nothing is decided yet: until more is seen it runs on as it is
    at_best: bool = False  # its gain is an upper bound
    missed: Missed | None = None  # limits that the rest misses as it is, and that end nothing


def decide(case: Case) -> Decision:
    """What is to be done, with the limits that are missed by it."""
    found = _decided(case)
    if found.is_open or found.decision not in {"tune", "keep"}:
        return found
    hours, devices = case.hours_now, case.num_devices
    if hours is None:
        return found
    cost = None if devices is None else money(devices * hours, case.price_per_device_hour)
    rest = Rest(hours, cost, case.step_slack, case.least)
    limits = missed(rest, case.intent, _gain_at_best(case, tuning(case)))
    if limits is None:
        return found
    # Steps are not to be kept as they are where only another step could keep a limit.
    kind: Kind = "tune" if limits.reachable else found.decision
    said = limits.words if kind != found.decision else f"{found.why.rstrip('.')}; {limits.words}"
    return replace(found, decision=kind, why=said, missed=limits)


def _decided(case: Case) -> Decision:
    """The first of: a result as good today, a hang, no evidence, beyond the budget, tune, rescale, stop, keep."""
    if case.result_as_good_now:
        return _ended(case)
    if case.hang:
        until = "of a job that hung" if case.is_imported or case.is_over else "until it moves again"
        return Decision("hang", f"{case.hang.rstrip('.')}; nothing else can be decided {until}")
    if not case.enough or case.step_s is None:
        why = case.why_undecided or "too few steady steps were seen"
        said = f"not decided yet: {why}, and until more is seen it runs on as it is"
        return Decision("keep", f"not decided: {why}" if case.is_imported else said, is_open=True)
    tuned = tuning(case)
    if (broke := beyond_budget(case, tuned)) is not None:
        return broke
    refused = why_not(case, tuned)
    if tuned is not None and refused is None and not (tuned.at_best and _is_saved_elsewhere(case)):
        return tuned
    return _otherwise(case, tuned, refused)


def _is_saved_elsewhere(case: Case) -> bool:
    """Whether who decides by what it costs has a surer way than a change whose gain is an upper bound."""
    if case.intent.objective not in SAVING:
        return False
    return case.fewer is not None or best_move(case) is not None


def _ended(case: Case) -> Decision:
    hours = case.hours_now
    saved = None if hours is None else Interval(hours, hours, hours)
    return Decision(
        "stop",
        "you said that the result would be as good if the run ended today: ending it saves all that remains",
        saved_h=saved,
        saved_money=_priced(saved, case),
    )


def _otherwise(case: Case, tuned: Decision | None, refused: str | None) -> Decision:
    """Where no change pays: another measured size, or none."""
    if (elsewhere := _elsewhere(case)) is not None:
        return elsewhere
    if wasted := _wasted(case):
        return Decision("stop", wasted)
    if tuned is not None and refused is not None:
        return replace(tuned, decision="stop", why=f"stop optimizing this: {refused}")
    if case.unpriced is not None:
        return Decision(
            "tune", f"{case.unpriced.headline} What that costs was not measured: no gain is promised."
        )
    return Decision("keep", _why_kept(case))


def _elsewhere(case: Case) -> Decision | None:
    """To another size: the one that was asked for, a measured one, or a smaller one by the bounds of this run."""
    best = best_move(case)
    if case.wanted is not None and _is_foretold(case, case.wanted, best):
        return _grown(case, case.wanted)
    if best is not None:
        return _moved(case, best)
    if case.fewer is not None and case.unpriced is None:
        return _shrunk(case, case.fewer)
    return None


def _why_kept(case: Case) -> str:
    found, held = case.wanted, wanted_outcome(case)
    if found is None or not held:
        more = f". {not_more_words(case)}" if case.not_more is not None else ""
        kept = case.kept_because.rstrip(".") or "no measured loss is worth acting on"
        return f"{kept}, and no measured size serves the objective better{more}"
    if held == "never":
        return f"{found.devices} devices do not pay, even in the best case"
    if held == "pays":
        return (
            f"{found.devices} devices pay even in the worst case, but bounds of one run never decide to move"
        )
    if case.intent.objective is None:
        return f"whether {found.devices} devices pay is open: what decides, time or cost, was not stated"
    return f"whether {found.devices} devices pay is open: it depends on how well the job scales"


def wanted_outcome(case: Case) -> Outcome:
    """Whether the size that was asked for pays, in its worst case and in its best."""
    return outcome(case.wanted, lambda entry: _serves(entry, case))


def size_words(case: Case) -> str:
    """What the size that was asked for would bring; "" where none was."""
    return "" if case.wanted is None else words(case.wanted, wanted_outcome(case))


def _serves(entry: Move, case: Case) -> bool | None:
    """Whether a size serves objective and limits; None where none was stated that could tell."""
    hours, devices, deadline = case.hours_now, case.num_devices, case.intent.deadline_h
    if hours is None or devices is None:
        return None
    if not _is_affordable(entry, case) or (deadline is not None and entry.hours > deadline):
        return False
    if deadline is not None and hours > deadline:
        return True
    if case.intent.objective == "time":
        return entry.hours_saved > NOISE * hours and _is_worth(entry, case)
    if case.intent.objective in {"cost", "efficiency"}:
        return not case.paid_anyway and entry.device_hours_saved > NOISE * hours * devices
    return None


def _is_foretold(case: Case, found: Wanted, measured: Move | None) -> bool:
    """Whether the size that was asked for surely pays by several measured ones, and more than the best of these."""
    if not found.speed.is_fitted or wanted_outcome(case) != "pays":
        return False
    if measured is None:
        return True
    worst = found.cases[0]
    if case.intent.objective == "time":
        return worst.hours < measured.hours
    return worst.device_hours < measured.device_hours


def _grown(case: Case, found: Wanted) -> Decision:
    """To a size that was foretold from several measured ones, where the whole interval pays."""
    worst, likely, best = found.cases
    hours = case.hours_now or 0.0

    def interval(name: str) -> Interval | None:
        values = [getattr(one, name) for one in (likely, worst, best)]
        return None if None in values else Interval(*values)

    return Decision(
        "rescale",
        words(found, "pays"),
        Interval(*(hours / one.hours for one in (likely, worst, best))),
        interval("hours_saved"),
        interval("cost_saved"),
        None if case.intent.restart_min is None else case.intent.restart_min / 60,
        None,
        None,
        found.devices,
    )


def _shrunk(case: Case, found: Fewer) -> Decision:
    """To fewer devices, where even the worst case of this run's bounds saves."""
    saved = f"{100 * found.saved_low:.0f} to {100 * found.saved_high:.0f} % of the device-hours"
    why = f"{sized(found.devices)} instead of {found.instead_of} save {saved}"
    if not found.cases:
        return Decision("rescale", why, num_devices=found.devices)
    worst, likely, best = found.cases
    hours, deadline = case.hours_now or 0.0, case.intent.deadline_h
    why += f" and take {amount(worst.hours)} h at most instead of {amount(hours)}"
    if deadline is not None:
        why += f", before the deadline in {amount(deadline)} h"

    def interval(name: str) -> Interval | None:
        values = [getattr(one, name) for one in (likely, worst, best)]
        return None if None in values else Interval(*values)

    restart_h = case.restart_h or None
    return Decision(
        "rescale",
        why,
        Interval(*(hours / one.hours for one in (likely, worst, best))),
        interval("hours_saved"),
        interval("cost_saved"),
        restart_h,
        None if restart_h is None else money(restart_h * found.devices, case.price_per_device_hour),
        None,
        found.devices,
    )


def tuning(case: Case) -> Decision | None:
    """The tuning decision, if it were taken."""
    prospect = case.prospect
    if prospect is None or case.step_s is None:
        return None
    speedup = _ordered(prospect)
    saved = None
    if case.hours_now is not None:
        # Only what still runs when the change is ready can profit from it.
        left_h = max(case.hours_now - (case.effort_hours or 0.0), 0.0)
        saved = Interval(
            *(left_h * (1 - 1 / ratio) for ratio in (speedup.expected, speedup.low, speedup.high))
        )
    return Decision(
        "tune",
        prospect.headline,
        speedup,
        saved,
        _priced(saved, case),
        case.effort_hours,
        _effort_money(case),
        _break_even(case, speedup),
        ready_within_h=case.hours_now,
        at_best=prospect.at_best,
    )


def _ordered(prospect: Prospect) -> Interval:
    """Relieving a loss never makes the prediction worse than now."""
    expected = max(prospect.expected, 1.0)
    return Interval(expected, min(max(prospect.low, 1.0), expected), max(prospect.high, expected))


def _priced(saved: Interval | None, case: Case) -> Interval | None:
    if saved is None or case.num_devices is None or case.price_per_device_hour is None:
        return None
    factor = case.num_devices * case.price_per_device_hour
    return Interval(saved.expected * factor, saved.low * factor, saved.high * factor)


def _effort_money(case: Case) -> float | None:
    if case.effort_hours is None or case.intent.engineer_hour_price is None:
        return None
    return case.effort_hours * case.intent.engineer_hour_price


def _break_even(case: Case, speedup: Interval) -> float | None:
    cost = _effort_money(case)
    if cost is None or case.num_devices is None or not case.price_per_device_hour or case.step_s is None:
        return None
    saved_s = case.step_s * (1 - 1 / speedup.expected)
    saved = case.num_devices * saved_s / SECONDS_PER_HOUR * case.price_per_device_hour
    return cost / saved if saved > 0 else None


def why_not(case: Case, tuned: Decision | None) -> str | None:
    """Why the change is not worth making; None: nothing speaks against it."""
    if tuned is None or tuned.speedup is None:
        return "no measured loss to remove"
    if tuned.speedup.low <= 1.0:
        return "its gain may be nothing: the interval of the measured loss reaches zero"
    limit, given = case.intent.max_complexity, case.change_complexity
    if limit is not None and given is not None and COMPLEXITY.index(given) > COMPLEXITY.index(limit):
        return f"the change leaves {given} complexity and you accept at most {limit}"
    if tuned.saved_h is not None and tuned.saved_h.expected <= 0 and not case.intent.planned_runs:
        return "the remaining run is over before the change is ready"
    worth = _worth(case, tuned)
    # Whoever wants the result early and has put no price on time has not asked for money to decide.
    prices_decide = case.intent.objective != "time" or case.intent.price_of_time is not None
    if prices_decide and worth is not None and tuned.cost_money is not None and tuned.cost_money >= worth:
        return f"the change costs {amount(tuned.cost_money)} and {_giving(case)} back {amount(worth)}"
    return None


def _giving(case: Case) -> str:
    more = case.intent.planned_runs
    return f"the remaining run and {more:g} planned give" if more else "the remaining run gives"


def _worth(case: Case, tuned: Decision) -> float | None:
    """Money that the change is worth: device-hours, and time where it has a price."""
    if tuned.saved_money is None or tuned.saved_h is None:
        return None
    saved = tuned.saved_money.expected + tuned.saved_h.expected * (case.intent.price_of_time or 0.0)
    if not case.intent.planned_runs or tuned.speedup is None or case.hours_now is None:
        return saved
    # Runs to come are served whole; how early they end has no price here.
    hour_price = (case.num_devices or 0) * (case.price_per_device_hour or 0.0)
    saved_h = case.hours_now * (1 - 1 / tuned.speedup.expected)
    return saved + case.intent.planned_runs * saved_h * hour_price


def beyond_budget(case: Case, tuned: Decision | None) -> Decision | None:
    """Stop when not even the best case fits what may be spent: the gain at its highest, the step at its shortest."""
    hours, devices, budget = case.hours_now, case.num_devices, case.intent.budget
    if hours is None or devices is None or budget is None:
        return None
    now = money(devices * hours, case.price_per_device_hour)
    if now is None:
        return None
    slack = 0.0 if case.held == "stop" else NOISE + case.step_slack
    surely = now * max(1 - slack, 0.0)
    best = surely / _gain_at_best(case, tuned)
    if best <= budget or any(_is_affordable(entry, case) for entry in case.moves):
        return None
    if case.fewer is not None:  # whose cost surely fits, or it would not be there
        return None
    if (best := min(best, surely * case.least.share)) <= budget:
        return None  # said beside what is to be done
    costs = f"the rest of the run costs {amount(now)}, at best {amount(best)}"
    return Decision("stop", f"{costs}, beyond the budget of {amount(budget)}")


def _gain_at_best(case: Case, tuned: Decision | None) -> float:
    """Of the change that the verdict names, where nothing speaks against it."""
    return tuned.speedup.high if tuned and tuned.speedup and why_not(case, tuned) is None else 1.0


def best_move(case: Case) -> Move | None:
    """The measured size that serves the stated objective and limits better than this one; None if none does."""
    if case.hours_now is None or case.num_devices is None:
        return None
    allowed = [entry for entry in case.moves if entry.num_devices != case.num_devices]
    allowed = [entry for entry in allowed if _is_affordable(entry, case)]
    deadline = case.intent.deadline_h
    if deadline is not None:
        allowed = [entry for entry in allowed if entry.hours <= deadline]
        if case.hours_now > deadline:
            return min(allowed, key=lambda entry: (entry.device_hours, entry.num_devices), default=None)
    if case.intent.objective == "time":
        faster = [
            entry
            for entry in allowed
            if entry.hours_saved > NOISE * case.hours_now and _is_worth(entry, case)
        ]
        return min(faster, key=lambda entry: (entry.hours, entry.num_devices), default=None)
    if case.intent.objective in {"cost", "efficiency"} and not case.paid_anyway:
        least = NOISE * case.hours_now * case.num_devices
        cheaper = [entry for entry in allowed if entry.device_hours_saved > least]
        return min(cheaper, key=lambda entry: (entry.device_hours, entry.num_devices), default=None)
    return None  # without an objective no size is better than another


def _is_affordable(entry: Move, case: Case) -> bool:
    """A stated budget forbids what is dearer, and what cannot be priced."""
    if case.intent.budget is None:
        return True
    return entry.cost is not None and entry.cost <= case.intent.budget


def _is_worth(entry: Move, case: Case) -> bool:
    """Where time has a price, faster may not cost more than it is worth."""
    if case.intent.price_of_time is None or entry.cost_saved is None:
        return True
    return -entry.cost_saved <= case.intent.price_of_time * entry.hours_saved


def _moved(case: Case, best: Move) -> Decision:
    hours = case.hours_now or 0.0
    restart = "restart included" if case.intent.restart_min is not None else "restart not stated, not counted"
    if case.intent.queue_h:
        restart += f", after {case.intent.queue_h:.3g} h in the queue"
    why = (
        f"{best.num_devices} devices finish in {amount(best.hours)} h and {amount(best.device_hours)} device-hours, "
        f"{restart}; {case.num_devices} would take {amount(hours)} h and {amount(hours * (case.num_devices or 0))}"
    )
    if case.intent.deadline_h is not None and hours > case.intent.deadline_h:
        why += f"; the deadline is in {amount(case.intent.deadline_h)} h"
    # Two runs of the same code differ by NOISE: so may what was measured at another size.
    slack_h = NOISE * hours
    steps = restart_h = None
    if case.intent.restart_min is not None:
        restart_h = case.intent.restart_min / 60
        if best.break_even_work is not None and case.remaining_steps is not None:
            steps = best.break_even_work * case.remaining_steps
    gain = None
    if best.hours > 0:
        gain = Interval(*(hours / (best.hours * factor) for factor in (1.0, 1 + NOISE, 1 - NOISE)))
    slack_money = money(slack_h * best.num_devices, case.price_per_device_hour) or 0.0
    return Decision(
        "rescale",
        why,
        gain,
        _around(best.hours_saved, slack_h),
        None if best.cost_saved is None else _around(best.cost_saved, slack_money),
        restart_h,
        None if restart_h is None else money(restart_h * best.num_devices, case.price_per_device_hour),
        steps,
        best.num_devices,
    )


def _around(value: float, slack: float) -> Interval:
    return Interval(value, value - slack, value + slack)


def _wasted(case: Case) -> str | None:
    """Devices beyond a measured smaller size that bought no time."""
    hours, devices = case.hours_now, case.num_devices
    if hours is None or devices is None or case.intent.objective is None:
        return None
    same = [
        entry.num_devices
        for entry in case.moves
        if entry.num_devices < devices and entry.hours_saved >= -NOISE * hours
    ]
    if not same:
        return None
    return f"stop adding devices: {min(same)} finish the rest as soon as {devices} do"


def decided_limits(case: Case, decision: Decision) -> str:
    """What would change a decision for fewer devices, no more of them, or the end; "" for any other."""
    if decision.decision == "rescale" and case.fewer is not None:
        return "Time as the objective, an earlier deadline, or a batch that does not fit fewer devices."
    if decision.decision == "stop" and case.intent.budget is not None and not case.result_as_good_now:
        return "A larger budget, fewer steps, or a measured size that costs less."
    if decision.missed is not None:
        return decision.missed.would_change
    if decision.decision == "keep" and case.not_more is not None:
        return case.not_more.would_change
    return ""


def not_more_words(case: Case) -> str:
    """Why more devices than now are not worth it; "" where nothing tells."""
    if case.not_more is None:
        return ""
    return f"Not worth more than {sized(case.num_devices or 0)}: {case.not_more.why}"


def verified(case: Case, decision: Decision, of_the_run: str) -> str:
    """How to see afterwards that it was right; of_the_run: how that is seen of the steps' own verdict."""
    if decision.decision == "stop":
        return SEE_INTENT
    if decision.decision == "rescale" and case.fewer is not None:
        return fewer_verified(case.fewer)
    if decision.decision == "rescale":
        return (
            f"Record at {decision.num_devices} devices: samples per second and device-hours must come out as measured "
            "before, and the loss must fall as it did."
        )
    return of_the_run


def fewer_verified(found: Fewer) -> str:
    """How to see afterwards that fewer devices were right."""
    return (
        f"Record at {sized(found.devices)}, then tuiadvisor advise RUN OTHER: device-hours a sample must fall by at "
        f"least {100 * found.saved_low:.0f} %."
    )
