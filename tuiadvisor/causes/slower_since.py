"""Steps became longer at some step and stayed so, and nothing else that began just then explains it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.causes.before_window import LEAST_WAITS
from tuiadvisor.causes.cause import PHASE_WORDS, Cause
from tuiadvisor.metrics.series.what_if import gain as what_if
from tuiadvisor.metrics.steps.arrays import median
from tuiadvisor.metrics.window.regime import ONE_PHASE
from tuiadvisor.metrics.window.waves import ALIKE, MAX_LONGER

if TYPE_CHECKING:
    from tuiadvisor.causes.cause import Values
    from tuiadvisor.causes.facts import Facts
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.metrics.series.what_if import Gain
    from tuiadvisor.metrics.window.level_shift import LevelShift
    from tuiadvisor.metrics.window.slow_stretches import SlowStretches
    from tuiadvisor.views.run_view import Finding
    from tuiadvisor_rules.loader import Rule

SAME_ONSET_STEPS: Final = 10  # an onset is dated to within so many steps
FAR_MORE: Final = 2.0  # times what the window shows: then the run's is told, by a rougher date


def measure_job(diagnosis: Diagnosis, facts: Facts) -> Values:
    """How much longer, since when, in which phase."""
    shift = _shift(diagnosis, facts)
    if shift is None:
        quiet = 0.0 if diagnosis.num_all_steady else None
        return {
            "level_shift_share": quiet,
            "level_shift_since": None,
            "level_shift_unexplained": 0,
            "level_shift_phase": None,
            "level_shift_words": None,
            "level_shift_in_waits": 0,
            "level_shift_cover": None,
            "level_shift_steps": 0,
            "level_shift_gradual": 0,
            "level_shift_within": 0,
        }
    return {
        "level_shift_share": _share(shift),
        "level_shift_gradual": int(shift.is_gradual),
        "level_shift_since": shift.since_step,
        "level_shift_unexplained": int(not _is_explained(shift, diagnosis, facts)),
        "level_shift_phase": shift.phase,
        "level_shift_words": PHASE_WORDS.get(shift.phase, f"in {shift.phase}") if shift.phase else None,
        "level_shift_in_waits": int(shift.phase == "comm_exposed"),
        "level_shift_cover": shift.cover,
        "level_shift_steps": shift.num_steps,
        "level_shift_within": shift.within,
    }


def _shift(diagnosis: Diagnosis, facts: Facts) -> LevelShift | None:
    """What the window shows, dated to the step, or what had begun before it where that is far more.

    Of two of which one is explained by another finding, the other.
    """
    seen, of_run = diagnosis.level_shift, facts.run_shift
    if seen is None or of_run is None:
        return seen or of_run
    if _is_explained(seen, diagnosis, facts):
        return of_run
    is_more = (_share(of_run) or 0.0) >= FAR_MORE * (_share(seen) or 0.0)
    return of_run if is_more and not _is_explained(of_run, diagnosis, facts) else seen


def _share(shift: LevelShift) -> float | None:
    return shift.after_s / shift.before_s - 1 if shift.before_s > 0 else None


def _is_explained(shift: LevelShift, diagnosis: Diagnosis, facts: Facts) -> bool:
    """Whether another finding, or more work, says why the steps became longer."""
    if is_more_work(shift.work_growth, _share(shift)):
        return True
    if _comes_and_goes(shift, diagnosis.slow_stretches):
        return True
    if shift.is_gradual or shift.within:
        told_s = _told_of_run_s(shift, diagnosis, facts) if shift.within else _told_s(diagnosis)
        return max(told_s, default=0.0) >= ONE_PHASE / 2 * (shift.after_s - shift.before_s)
    return any(abs(onset - shift.since_step) <= SAME_ONSET_STEPS for onset in _other_onsets(diagnosis, facts))


def _comes_and_goes(shift: LevelShift, stretches: SlowStretches | None) -> bool:
    """Whether the present level is the slow one of two that come and go."""
    return (
        stretches is not None
        and not shift.is_gradual
        and shift.since_step >= stretches.first_step
        and shift.num_steps <= MAX_LONGER * stretches.num_steps
        and (_share(shift) or 0.0) <= (1 + ALIKE) * stretches.longer_share
    )


def _told_s(diagnosis: Diagnosis) -> list[float]:
    """What others say that a step loses by now, seconds each."""
    drift = diagnosis.input_drift
    told_s = [entry.late.mean_excess_s for entry in diagnosis.stragglers]
    return [*told_s, drift.growth_s] if drift is not None else told_s


def _told_of_run_s(shift: LevelShift, diagnosis: Diagnosis, facts: Facts) -> list[float]:
    """The same of what may have begun with steps that became longer before the window, by the phase that grew."""
    told_s: list[float] = []
    if shift.phase == "data_wait" or shift.waits is None:
        told_s += [diagnosis.input.gain.loss_s] if diagnosis.input is not None else []
        told_s += [diagnosis.input_drift.growth_s] if diagnosis.input_drift is not None else []
    if shift.waits is None or shift.waits >= LEAST_WAITS:
        oldest = diagnosis.table.first_step + SAME_ONSET_STEPS
        told_s += [entry.late.mean_excess_s for entry in diagnosis.stragglers if entry.since_step <= oldest]
    if shift.waits is not None and shift.waits >= LEAST_WAITS:
        losses = [loss.gain for loss in (diagnosis.transfer,) if loss is not None]
        losses += [diagnosis.turn_taking] if diagnosis.turn_taking is not None else []
        told_s += [loss.loss_s for loss in losses]
        if facts.pipelines is not None and facts.pipelines.limits:
            told_s.append(shift.after_s)
    return told_s


def is_more_work(work_growth: float | None, longer_share: float | None) -> bool:
    """Whether more tokens or samples explain steps that are longer by this share."""
    return longer_share is not None and (work_growth or 0.0) >= ONE_PHASE * longer_share


def _other_onsets(diagnosis: Diagnosis, facts: Facts) -> list[int]:
    """Since when ranks are late, the input or the network has its level, a stage is heavy."""
    onsets = [entry.since_step for entry in diagnosis.stragglers]
    # With ranks that were not seen nobody tells a longer exchange from a late one of them, and no finding has it.
    transfer_since = None if facts.num_missing else diagnosis.transfer_since
    onsets += [since for since in (diagnosis.input_since, transfer_since) if since is not None]
    limits = facts.pipelines.limits if facts.pipelines is not None else ()
    return onsets + [one.since_step for one in limits if one.since_step is not None]


def gain(diagnosis: Diagnosis, facts: Facts) -> Gain | None:
    """At the level that the step had before, as restless about it as it is now."""
    shift, steps = _shift(diagnosis, facts), diagnosis.steady_barrier.cycle_K
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
job level_shift_within steps so exactly the step is known, where that is longer ago than the steps looked at; else 0
job level_shift_in_waits flag 1 if that phase is communication, in which ranks wait for each other
job level_shift_cover share share of the growth that this phase holds
""",
    measure_job=measure_job,
    gain=gain,
    phase_metric="level_shift_phase",
    leaves_open=what_did_it,
)
