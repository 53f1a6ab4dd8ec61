"""Two recordings side by side: the same work or not, faster or slower beyond noise, and what limits each.

In: the frames of two recordings.  Out: Comparison. Deterministic; swapping the recordings inverts it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.advisor.compare.bottlenecks import NOT_COMPARED, TWO_MODELS, bottleneck, finding_changes
from tuiadvisor.advisor.compare.comparable import Terms, environment, longer, terms
from tuiadvisor.advisor.compare.distribution import distribution
from tuiadvisor.advisor.compare.goodput_change import PAUSES, STEPS, goodput_change
from tuiadvisor.advisor.compare.load import load_of
from tuiadvisor.advisor.compare.measured import Measured
from tuiadvisor.advisor.compare.recurring_pauses import narrowed
from tuiadvisor.advisor.compare.repeats import spread_of, spread_words
from tuiadvisor.advisor.compare.verdict_words import (
    may_be_load,
    more,
    of_pauses,
    says_nothing,
    sentence_of,
    why_blind,
)
from tuiadvisor.advisor.compare.work_unit import LoadMeter, WorkUnitCounter
from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.advisor.steps.step_series import SeriesCollector, StepSeries
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.events import NOTHING_GIVEN, STEP_NAMES
from tuiadvisor.metrics.diagnosis import MIN_STEADY_STEPS
from tuiadvisor.metrics.series.bootstrap import Ratio, difference_of_means, ratio_of_means
from tuiadvisor.metrics.window.regime import NEW_REGIME_SHARE
from tuiadvisor.phases import PHASES
from tuiadvisor.stream.frames import HUB_SOURCE, Frame, FrameKind, unpack_columns
from tuiadvisor.views.comparison import Change, Comparison, Gate, PhaseChange, Rates, RunSide

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tuiadvisor.events import GivenWork
    from tuiadvisor.metrics.steps.arrays import Floats
    from tuiadvisor.views.comparison import Outcome
    from tuiadvisor.views.run_view import RunView

SCHEMA: Final = 1
# Two runs of the same code on the same machine differ by memory layout, placement and clocks, which no resampling
# of one run's steps can show. Mytkowicz et al. (ASPLOS'09) measured up to several percent; 2 % is what CI uses.
NOISE_FLOOR: Final = 0.02
HICCUP_FACTOR: Final = 5.0  # a step this much longer than the median is a pause of its own, not a steady step
MAX_LONGER: Final = 100.0  # times as many steps: who would need more of them decides otherwise
NOTHING: Final = Change(None, None, None, None, None, significant=False)


@dataclass(frozen=True, slots=True)
class ComparisonOptions:
    """What the user said beyond the two files."""

    noise_floor: float = NOISE_FLOOR
    fail_if_slower: float | None = None
    same_work: bool = False  # the user vouches that a step does the same work where it could not be observed
    ignore_load: bool = False  # busy machines are reported, but do not withhold the verdict
    repeats: tuple[Measured, ...] = ()  # of the code of `before`: a change must exceed what they differ by


def measure(
    path: str,
    frames: Iterable[bytes],
    given: GivenWork = NOTHING_GIVEN,
    begun: Callable[[Advisor], None] = lambda _advisor: None,
) -> Measured:
    """Read one recording from end to end, in bounded memory. begun: told who folds it, before the first frame."""
    advisor = Advisor(given=given)
    collector, work, load = (
        SeriesCollector(advisor.store, advisor.steps_of_job),
        WorkUnitCounter(),
        LoadMeter(),
    )
    begun(advisor)
    for _, frame in advisor.fed(frames):
        if frame.source == HUB_SOURCE:
            continue
        if frame.kind == FrameKind.STEPS:
            _count(work, frame, advisor)
            collector.advance()
        elif frame.kind == FrameKind.HOST:
            load.add(frame.source, frame.payload)
    view = advisor.view()
    series = _without_hiccups(collector.finish())
    unit = replace(
        work.unit(view.run.world_size, advisor.roster.header.given, view.stack),
        num_parameters=_parameters(view),
    )
    return Measured(path, view, series, unit, load.load(), load.core_waits())


def _parameters(view: RunView) -> int | None:
    """Of the whole model; None where a rank sees its part of it alone, or not all of it was looked at."""
    stack = view.stack
    if stack is None or stack.number("not_looked_at") or stack.number("uninitialized") or view.pipeline:
        return None
    if stack.text("sharding").startswith("tensor parallel") or stack.differing:
        return None
    return stack.number("params") or None


def _count(work: WorkUnitCounter, frame: Frame, advisor: Advisor) -> None:
    try:
        work.add(advisor.roster.own_columns(frame.source, unpack_columns(frame.payload, STEP_NAMES)))
    except TuiadvisorError:
        return  # counted as a bad frame by the advisor


def _without_hiccups(series: StepSeries) -> StepSeries:
    if not series.steady_K.any():
        return series
    limit = HICCUP_FACTOR * float(np.median(series.steady_s))
    return replace(series, steady_K=series.steady_K & (series.step_s_K <= limit))


def compare(before: Measured, after: Measured, options: ComparisonOptions | None = None) -> Comparison:
    """The verdict on what changed between the two, and everything it rests on."""
    options = options or ComparisonOptions()
    found = terms(before.unit, after.unit, same_work=options.same_work)
    reasons = list(found.reasons)
    cautions = list(found.cautions)
    if found.basis is None and (scripts := _two_scripts(before, after)):
        reasons.insert(0, scripts)
    if found.basis is not None and (short := _too_short(before, after)):
        reasons += short
        found = replace(found, basis=None)
    spread = spread_of(before, options.repeats, same_work=options.same_work) if options.repeats else None
    floor = max(options.noise_floor, spread.margin if spread else 0.0)
    cautions += [spread_words(spread)] if spread else []
    steady = _change(before.series.steady_s, after.series.steady_s, found, floor)
    every = _change(before.series.step_s_K, after.series.step_s_K, found, floor)
    every = narrowed(every, steady, (before.series, after.series), floor)
    change = _deciding(steady, every)
    verdict = _verdict(change)
    if found.basis is None:
        verdict = "not comparable"
    load = load_of(before, after, change, is_same=verdict == "no change")
    gated = change
    if load is not None and verdict != "not comparable":
        gated = change if options.ignore_load else load.without(change)
        if options.ignore_load or load.leaves(change, floor):
            cautions.append(f"{load.words}{load.at_most()}")
        else:
            verdict = "not comparable"
            reasons.append(f"{load.words}; measure again on a quiet machine, or pass --ignore-load")
    sides = _side(before), _side(after)
    other = found.is_other_model
    if other:
        reasons.append(f"tuiadvisor advise {before.path} {after.path} sets the two beside each other")
    apart = TWO_MODELS if other else NOT_COMPARED if verdict == "not comparable" else ""
    throughput = NOTHING if other else _throughput(before, after, floor)
    detectable = _detectable(change, floor)
    gate = _gate(verdict, gated, every, options.fail_if_slower, detectable)
    if found.basis == "samples_per_device" and throughput.ratio is not None:
        cautions.append(f"all devices together do {more(1 / throughput.ratio)} samples a second")
    if verdict != "not comparable":
        cautions += of_pauses(change, every, found)
        if gate is not None and gate.exceeded is None:
            by_load = _exceeded(verdict, change, every, gate.limit, detectable) is True
            cautions.append(may_be_load(gate) if by_load else why_blind(gate, detectable, change, every))
    return Comparison(
        schema=SCHEMA,
        verdict=verdict,
        sentence=sentence_of(
            verdict,
            reasons,
            found,
            change,
            is_steady=change is steady,
            is_repeated=spread is not None,
            more_steps=_steps_to_decide(change, floor, max(side.num_steady_steps for side in sides)),
        ),
        reasons=tuple(reasons),
        cautions=tuple(cautions),
        basis=found.basis,
        before=sides[0],
        after=sides[1],
        change=change,
        steady=steady,
        every_step=every,
        throughput=throughput,
        phases=_phases(before.series, after.series, floor) if found.basis is not None else (),
        bottleneck=bottleneck(before.view, after.view, apart=apart),
        findings=finding_changes(before.view, after.view, apart=apart),
        environment=environment(before.view, after.view),
        noise_floor=floor,
        smallest_detectable=detectable,
        gate=gate,
        goodput=goodput_change(
            before.view,
            after.view,
            floor,
            apart=apart,
            by_chance=PAUSES if _open_pauses(steady, every) else STEPS if verdict == "not decided" else "",
        ),
        spread=spread,
        distribution=distribution(before.series.step_s_K, after.series.step_s_K),
    )


def _two_scripts(before: Measured, after: Measured) -> str:
    """What explains all else that is not the same; "": one, or not known."""
    names = before.view.run.label, after.view.run.label
    return f"{names[0]} before, {names[1]} after" if all(names) and names[0] != names[1] else ""


def _too_short(before: Measured, after: Measured) -> list[str]:
    """A reason for each side that has too few steady steps."""
    missing = {
        name: (MIN_STEADY_STEPS - int(side.series.steady_K.sum()), longer(side.view))
        for name, side in (("before", before), ("after", after))
    }
    return [
        f"{name}: {steps} more steady steps are needed; {how}"
        for name, (steps, how) in missing.items()
        if steps > 0
    ]


def _gate(
    verdict: Outcome, change: Change, every: Change, limit: float | None, detectable: float | None
) -> Gate | None:
    return None if limit is None else Gate(limit, _exceeded(verdict, change, every, limit, detectable))


def _change(before: Floats, after: Floats, found: Terms, floor: float) -> Change:
    """Time a unit of work: of the step, of a sample, or of a sample and device."""
    if found.basis is None:
        return NOTHING
    ratio = ratio_of_means(before, after)
    if ratio is None:
        return NOTHING
    return _scaled(
        ratio, float(before.mean()) * found.scale_before, float(after.mean()) * found.scale_after, floor
    )


def _scaled(ratio: Ratio, before: float, after: float, floor: float) -> Change:
    scale = after / before / ratio.expected
    low, high = ratio.low * scale, ratio.high * scale
    significant = low > 1 + floor or high < 1 / (1 + floor)
    return Change(before, after, ratio.expected * scale, low, high, significant)


def _throughput(before: Measured, after: Measured, floor: float) -> Change:
    samples = before.unit.samples_per_step, after.unit.samples_per_step
    ratio = ratio_of_means(before.series.steady_s, after.series.steady_s)
    if ratio is None or not samples[0] or not samples[1]:
        return NOTHING
    per_sample = (
        float(before.series.steady_s.mean()) / samples[0],
        float(after.series.steady_s.mean()) / samples[1],
    )
    return _scaled(ratio, *per_sample, floor)


def _deciding(steady: Change, every: Change) -> Change:
    """Steady steps decide; pauses do when only they changed, when they turn the balance round, or may have changed.

    A checkpoint every 150 steps leaves the steady steps alone, and may make the run three times as long.
    """
    if every.ratio is None or steady.ratio is None:
        return steady
    if not every.significant:
        return every if _is_same(steady) and not _is_same(every) else steady
    if steady.significant and (every.ratio > 1) == (steady.ratio > 1):
        return steady
    return every


def _verdict(change: Change) -> Outcome:
    """No change only where the whole interval is so small that the run itself would not begin a new window for it."""
    if change.ratio is None or change.low is None or change.high is None:
        return "not comparable"
    if change.significant:
        return "regressed" if change.ratio > 1 else "improved"
    return "no change" if _is_same(change) else "not decided"


def _is_same(change: Change) -> bool:
    """Whatever runs of the same code differ by: that is what cannot be told, and no band in which runs are equal."""
    if change.low is None or change.high is None or change.significant:
        return False
    same = 1 + NEW_REGIME_SHARE
    return 1 / same <= change.low and change.high <= same


def _open_pauses(steady: Change, every: Change) -> bool:
    """Whether the steady steps are decided, and what pauses make of the run is not."""
    return (steady.significant or _is_same(steady)) and not (every.significant or _is_same(every))


def _steps_to_decide(change: Change, floor: float, num_steps: int) -> int | None:
    """How many more steps either recording takes: an interval narrows with the root of their number.

    None where that is no answer: the steps differ too much, or the change lies on the border of what decides.
    """
    if change.ratio is None or change.low is None or change.high is None or says_nothing(change):
        return None
    size = abs(math.log(change.ratio))
    reach = max(math.log(change.high / change.ratio), math.log(change.ratio / change.low))
    room = max(math.log1p(NEW_REGIME_SHARE) - size, size - math.log1p(floor))
    times = (reach / room) ** 2 if room > 0 else math.inf
    if times > MAX_LONGER:
        return None
    more = max((times - 1) * num_steps, 1.0)
    digits = 10.0 ** max(math.floor(math.log10(more)) - 1, 0)  # two figures: it is an estimate
    return round(math.ceil(more / digits) * digits)


def _exceeded(
    verdict: Outcome, change: Change, every: Change, limit: float, detectable: float | None
) -> bool | None:
    if verdict == "not comparable" or change.low is None or change.high is None:
        return None
    if verdict == "regressed" and change.low > 1 + limit:
        return True
    # A check that would not have seen a slowdown of the limit, and cannot exclude one, has not passed.
    is_blind = detectable is None or detectable > limit
    if is_blind and change.high > 1 + limit:
        return None
    return None if _may_exceed(every, limit) else False


def _may_exceed(every: Change, limit: float) -> bool:
    """Rare pauses widen this interval alone: the steady steps' own narrow one says nothing of them."""
    return every.high is None or every.high > 1 + limit


def _detectable(change: Change, floor: float) -> float | None:
    if change.ratio is None or change.high is None or change.low is None or says_nothing(change):
        return None
    reach = max(change.high / change.ratio, change.ratio / change.low)
    return reach * (1 + floor) - 1


def _phases(before: StepSeries, after: StepSeries, floor: float) -> tuple[PhaseChange, ...]:
    steps = before.steady_s, after.steady_s
    if min(steps[0].size, steps[1].size) == 0:
        return ()
    smallest = floor * min(float(steps[0].mean()), float(steps[1].mean()))
    result = []
    for index, name in enumerate(PHASES):
        old, new = before.phase_s_PK[index][before.steady_K], after.phase_s_PK[index][after.steady_K]
        old_s, new_s = _known_mean(old), _known_mean(new)
        moved = difference_of_means(old, new) if old_s is not None and new_s is not None else None
        change, low, high = moved if moved is not None else (None, None, None)
        sure = low is not None and high is not None and (low > smallest or high < -smallest)
        result.append(PhaseChange(name, old_s, new_s, change, low, high, significant=sure))
    return tuple(result)


def _known_mean(values: Floats) -> float | None:
    """A phase is known or unknown for a whole run; one that became known late counts as unknown."""
    return float(values.mean()) if values.size and np.isfinite(values).all() else None


def _side(run: Measured) -> RunSide:
    series, unit, window = run.series, run.unit, run.view.window
    steady = series.steady_s
    step_s = float(steady.mean()) if steady.size else None
    samples_s = unit.samples_per_step / step_s if step_s and unit.samples_per_step else None
    return RunSide(
        path=run.path,
        label=run.view.run.label,
        hosts=run.view.run.hosts,
        unit=unit,
        num_steady_steps=int(steady.size),
        num_steps=int(series.step_s_K.size),
        step_s=step_s,
        p95_s=float(np.percentile(steady, 95)) if steady.size else None,
        every_step_s=float(series.step_s_K.mean()) if series.step_s_K.size else None,
        rates=Rates(
            steps_s=1 / step_s if step_s else None,
            samples_s=samples_s,
            samples_s_per_device=samples_s / unit.world_size if samples_s and unit.world_size else None,
        ),
        load=run.load,
        judged_s=run.view.step.mean_s,
        judged_steps=(window.first_step, window.last_step)
        if window.first_step is not None and window.last_step is not None
        else None,
    )
