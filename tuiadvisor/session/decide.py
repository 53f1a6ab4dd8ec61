"""One decision from what was measured and what was stated: tune, rescale, stop or keep, or a hang.

In: Case.  Out: Decision. Only measured gains and measured sizes decide; answers can forbid, price or end something,
never replace a measurement. What is unknown stays None and is named.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tuiadvisor.scaling.decide import sized
from tuiadvisor.session.case import Decision, Interval
from tuiadvisor.session.economics import money
from tuiadvisor.session.fewer import NOISE, SAVING
from tuiadvisor.session.limits import Rest, amount, missed
from tuiadvisor.session.other_size import (
    best_move,
    elsewhere,
    is_affordable,
    not_more_words,
    wanted_outcome,
    wasted,
)
from tuiadvisor.session.tuning import priced, tuning, why_not

if TYPE_CHECKING:
    from tuiadvisor.session.case import Case, Kind
    from tuiadvisor.session.fewer import Fewer

SEE_INTENT: Final = (
    "tuiadvisor intent shows what is stated; tuiadvisor advise RUN OTHER tries a measured smaller size."
)


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
    if (broke := _beyond_budget(case, tuned)) is not None:
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
        saved_money=priced(saved, case),
    )


def _otherwise(case: Case, tuned: Decision | None, refused: str | None) -> Decision:
    """Where no change pays: another measured size, or none."""
    if (moved := elsewhere(case)) is not None:
        return moved
    if unused := wasted(case):
        return Decision("stop", unused)
    if tuned is not None and refused is not None:
        return replace(tuned, decision="stop", why=f"stop optimizing this: {refused}")
    if case.unpriced is not None:
        return Decision(
            "tune", f"{case.unpriced.headline} What that costs was not measured: no gain is promised."
        )
    return Decision("keep", _why_kept(case))


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


def _beyond_budget(case: Case, tuned: Decision | None) -> Decision | None:
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
    if best <= budget or any(is_affordable(entry, case) for entry in case.moves):
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


def verified(case: Case, decision: Decision, of_the_run: str) -> str:
    """How to see afterwards that it was right; of_the_run: how that is seen of the steps' own verdict."""
    if decision.decision == "stop":
        return SEE_INTENT
    if decision.decision == "rescale" and case.fewer is not None:
        return _fewer_verified(case.fewer)
    if decision.decision == "rescale":
        return (
            f"Record at {decision.num_devices} devices: samples per second and device-hours must come out as measured "
            "before, and the loss must fall as it did."
        )
    return of_the_run


def _fewer_verified(found: Fewer) -> str:
    """How to see afterwards that fewer devices were right."""
    return (
        f"Record at {sized(found.devices)}, then tuiadvisor advise RUN OTHER: device-hours a sample must fall by at "
        f"least {100 * found.saved_low:.0f} %."
    )
