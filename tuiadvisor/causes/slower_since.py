"""Steps became longer at some step and stayed so, and nothing else that began just then explains it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.causes.cause import PHASE_WORDS, Cause
from tuiadvisor.metrics.series.what_if import gain as what_if
from tuiadvisor.metrics.steps.arrays import median
from tuiadvisor.metrics.window.regime import ONE_PHASE

if TYPE_CHECKING:
    from tuiadvisor.causes.cause import Values
    from tuiadvisor.causes.facts import Facts
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.metrics.series.what_if import Gain
    from tuiadvisor.views.run_view import Finding
    from tuiadvisor_rules.loader import Rule

SAME_ONSET_STEPS: Final = 10  # an onset is dated to within so many steps


def measure_job(diagnosis: Diagnosis, facts: Facts) -> Values:
    """How much longer, since when, in which phase."""
    shift = diagnosis.level_shift
    if shift is None:
        quiet = 0.0 if diagnosis.num_all_steady else None
        return {
            "level_shift_share": quiet,
            "level_shift_since": None,
            "level_shift_unexplained": 0,
            "level_shift_phase": None,
            "level_shift_words": None,
            "level_shift_cover": None,
            "level_shift_steps": 0,
            "level_shift_gradual": 0,
        }
    share = shift.after_s / shift.before_s - 1 if shift.before_s > 0 else None
    if shift.is_gradual:
        drift = diagnosis.input_drift
        told_s = [entry.late.mean_excess_s for entry in diagnosis.stragglers] + (
            [drift.growth_s] if drift else []
        )
        near = max(told_s, default=0.0) >= ONE_PHASE / 2 * (shift.after_s - shift.before_s)
    else:
        near = any(
            abs(onset - shift.since_step) <= SAME_ONSET_STEPS for onset in _other_onsets(diagnosis, facts)
        )
    near = near or is_more_work(shift.work_growth, share)
    return {
        "level_shift_share": share,
        "level_shift_gradual": int(shift.is_gradual),
        "level_shift_since": shift.since_step,
        "level_shift_unexplained": int(not near),
        "level_shift_phase": shift.phase,
        "level_shift_words": PHASE_WORDS.get(shift.phase, f"in {shift.phase}") if shift.phase else None,
        "level_shift_cover": shift.cover,
        "level_shift_steps": shift.num_steps,
    }


def is_more_work(work_growth: float | None, longer_share: float | None) -> bool:
    """Whether more tokens or samples explain steps that are longer by this share."""
    return longer_share is not None and (work_growth or 0.0) >= ONE_PHASE * longer_share


def _other_onsets(diagnosis: Diagnosis, facts: Facts) -> list[int]:
    """Since when ranks are late, the input or the network has its level, a stage is heavy."""
    onsets = [entry.since_step for entry in diagnosis.stragglers]
    onsets += [since for since in (diagnosis.input_since, diagnosis.transfer_since) if since is not None]
    limits = facts.pipelines.limits if facts.pipelines is not None else ()
    return onsets + [one.since_step for one in limits if one.since_step is not None]


def gain(diagnosis: Diagnosis, _facts: Facts) -> Gain | None:
    """At the level that the step had before, as restless about it as it is now."""
    shift, steps = diagnosis.level_shift, diagnosis.steady_barrier.cycle_K
    if shift is None or not steps.size or shift.before_s <= 0:
        return None
    before_s = (
        shift.before_s * float(steps.mean()) / median(steps)
    )  # levels are medians, a loss is of the mean
    return what_if(steps, steps - before_s)


def what_did_it(finding: Finding, rule: Rule) -> str:
    """A run whose steps take so much longer than they did is not well, though no phase alone tells why."""
    share = finding.evidence.get("level_shift_share")
    is_high = isinstance(share, float) and share >= rule.thresholds["high"].value
    return "what made them longer was not seen" if is_high else ""


SLOWER_SINCE: Final = Cause(
    rules=("slower_since",),
    metrics="""
job level_shift_share share by which the step became longer at level_shift_since, of the step before
job level_shift_since steps job step at which the step became longer
job level_shift_unexplained flag 1 if neither another finding nor more tokens or samples explain the longer step
job level_shift_gradual flag 1 if the step became longer little by little
job level_shift_phase text phase that grew most
job level_shift_words text the same in words
job level_shift_steps steps steady steps seen since the step became longer
job level_shift_cover share share of the growth that this phase holds
""",
    measure_job=measure_job,
    gain=gain,
    phase_metric="level_shift_phase",
    leaves_open=what_did_it,
)
