"""The verdict against what the run is for: fewer devices, or the end of it, where bounds of this one run suffice.

In: RunView, Intent.  Out: the same view, beside its verdict one that says rescale or stop, where one follows. Only
where the whole interval is a gain: a loss that can surely be removed comes first, and one run never decides to grow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.scaling.onerun import FLOOR, one_run, sized_at, why_not
from tuiadvisor.session.decide import NOISE, beyond_budget, tuning
from tuiadvisor.session.evidence import facts
from tuiadvisor.session.intent import Intent
from tuiadvisor.session.material import gather
from tuiadvisor.session.recorded import Recorded
from tuiadvisor.session.recordedsizes import parts_of
from tuiadvisor.views.run_view import Verdict

if TYPE_CHECKING:
    from tuiadvisor.scaling.onerun import Parts
    from tuiadvisor.session.machine import Machine
    from tuiadvisor.session.material import Material
    from tuiadvisor.views.run_view import RunView

SMALLER: Final = (2, 4, 8)  # parts of today's size
SAVING: Final = frozenset({"cost", "efficiency"})


@dataclass(frozen=True, slots=True)
class _Fewer:
    devices: int
    saved_low: float  # share of the device-hours, in the worst case
    saved_high: float
    hours_high: float | None


def with_intent(view: RunView, intent: Intent, machine: Machine | None = None) -> RunView:
    """The view with the verdict that follows from what was stated beside its own."""
    found = view.verdict
    if (
        intent == Intent()
        or found.decision not in {"tune", "keep"}
        or any(one.id == "hang" for one in view.findings)
    ):
        return view
    material = gather(facts("run", view), (), found, intent, {}, machine=machine)
    verdict = _stop(material, found)
    if verdict is None and not _is_sure(found):
        verdict = _about_sizes(view, material, found, machine)
    return view if verdict is None else replace(view, against_intent=verdict)


def _is_sure(verdict: Verdict) -> bool:
    """Whether there is a loss whose removal surely brings something: it comes before any other size.

    An upper bound is none: how much of a slow exchange can be hidden nobody has measured, fewer devices' saving is.
    """
    if verdict.decision != "tune" or verdict.at_best:
        return False
    return verdict.speedup is None or verdict.speedup.low > 1


def _stop(material: Material, found: Verdict) -> Verdict | None:
    if not material.case.enough:
        return None
    stop = beyond_budget(material.case, tuning(material.case))
    if stop is None:
        return None
    why = f"{stop.why}. A larger budget, fewer steps or a smaller size would change it"
    return replace(
        found,
        decision="stop",
        sentence=f"Stop: {stop.why}.",
        finding=None,
        pattern="P6",
        speedup=None,
        because=f"{why}. Of the steps themselves: {found.sentence}",
        verify="tuiadvisor intent shows what is stated; tuiadvisor advise RUN OTHER tries a measured smaller size.",
    )


def _about_sizes(
    view: RunView, material: Material, found: Verdict, machine: Machine | None
) -> Verdict | None:
    try:
        parts = parts_of(Recorded("run", view), machine)
    except TuiadvisorError:
        return None  # it says nothing about other sizes
    fewer = _fewer(parts, material) if material.intent.objective in SAVING else None
    if fewer is not None:
        return _rescaled(parts, fewer, found, material)
    alone = one_run(parts, ())
    if found.decision == "keep" and alone.decision.decision == "stop":
        return replace(
            found,
            because=f"Not worth more than {parts.devices} devices: {alone.decision.because}. {found.because}",
        )
    return None


def _fewer(parts: Parts, material: Material) -> _Fewer | None:
    """The size that surely saves device-hours: the smallest that surely keeps the deadline, without one only the next.

    Fewer devices nearly always save something, and take longer: without a deadline it must be more than what is
    acceptable to lose to parallel work.
    """
    case, intent = material.case, material.intent
    least = NOISE if intent.deadline_h is not None else 1 - FLOOR
    best = None
    for divisor in SMALLER:
        devices = parts.devices // divisor
        if devices < 2 or parts.devices % divisor or why_not(parts, devices):
            continue
        step = sized_at(parts, devices, "strong").step_s  # the same batch in all, so the same steps
        ratio = devices / parts.devices
        low, high = 1 - ratio * step.high / parts.step_s, 1 - ratio * step.low / parts.step_s
        hours = None if case.hours_now is None else case.hours_now * step.high / parts.step_s
        is_late = intent.deadline_h is not None and (hours is None or hours > intent.deadline_h)
        if low > least and not is_late:
            best = _Fewer(devices, low, high, hours)
        if intent.deadline_h is None:
            break
    return best


def _rescaled(parts: Parts, fewer: _Fewer, found: Verdict, material: Material) -> Verdict:
    saved = f"{100 * fewer.saved_low:.0f} to {100 * fewer.saved_high:.0f} % of the device-hours"
    deadline = material.intent.deadline_h
    met = ""
    if fewer.hours_high is not None:
        met = f" and take {fewer.hours_high:.3g} h at most"
        met += f", before the deadline in {deadline:.3g} h" if deadline is not None else ""
    return Verdict(
        decision="rescale",
        sentence=f"Rescale: {fewer.devices} devices instead of {parts.devices} save {saved}{met}.",
        finding=None,
        pattern="P6",
        speedup=None,
        next_constraint=found.next_constraint,
        because=(
            f"Bounds from this run alone, the total batch as now; you decide by {material.intent.objective}. Time as "
            "the objective, or an earlier deadline, would change it; so would a batch that does not fit fewer devices."
            + (f" Of the steps themselves: {found.sentence}" if found.decision == "tune" else "")
        ),
        verify=(
            f"Record at {fewer.devices} devices, then tuiadvisor advise RUN OTHER: device-hours a sample must fall by "
            f"at least {100 * fewer.saved_low:.0f} %."
        ),
    )
