"""The one decision a run's findings lead to, in one honest sentence.

In: judged findings and metrics.  Out: Verdict. The first finding decides: the surest, and of those the costliest, as
every list shows them. Without enough steady steps nothing is decided, and without a finding above info the run is kept
as it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from tuiadvisor.advisor.cluster.ends import LEFT, in_short
from tuiadvisor.advisor.detail.untold_devices import in_words
from tuiadvisor.advisor.judge.unseen import mostly_unseen_s
from tuiadvisor.causes.cause import rank_words
from tuiadvisor.causes.registry import CAUSES, cause_of, is_found, limits_by_finding
from tuiadvisor.metrics.cover import MIN_COVER
from tuiadvisor.metrics.lateness.off_core import SETTLED_S
from tuiadvisor.metrics.lateness.stragglers import MIN_EXCESS_SHARE
from tuiadvisor.metrics.series.what_if import together
from tuiadvisor.metrics.steps.accounting import shares
from tuiadvisor.metrics.steps.barrier import has_stages
from tuiadvisor.phases import COMPUTE_AND_REST
from tuiadvisor.views.deaths import WITH_CODE
from tuiadvisor.views.run_view import DecisionWord, Speedup, Verdict
from tuiadvisor_rules.message import seconds

if TYPE_CHECKING:
    from tuiadvisor.advisor.detail.untold_devices import Untold
    from tuiadvisor.advisor.judge.findings import Judged
    from tuiadvisor.causes.cause import HiddenLimit
    from tuiadvisor.causes.facts import Pipelines
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.metrics.lateness.late_phase import Priority
    from tuiadvisor.metrics.lateness.late_ranks import LateRank
    from tuiadvisor.metrics.series.what_if import Gain
    from tuiadvisor.views.restart import Restart
    from tuiadvisor.views.run_view import Clock, Finding
    from tuiadvisor.views.shares import Shares
    from tuiadvisor.views.stall import NoStep

MIN_NEXT_SHARE: Final = 0.05  # of the step that remains: below this compute itself is the next constraint
# Of the step. xprof: a collective share from 15 % on is high (rule communication_bound): it is no step to be kept.
MAX_UNEVEN_WAITS: Final = 0.15
# Of the step, that ranks wait for each other in turns within it: TraceML warns of a late rank from there on. Of ranks
# whose layers vary by 1 % each from step to step it is about 1.5 % (64 simulated ones).
MAX_TURNS: Final = 0.05
NOTABLE_SHARE: Final = (
    0.1  # of the step: as rule communication_bound, from where exposed time deserves a look
)
LINES_SHOWN: Final = "py-spy top --pid PID shows the lines"
WORTH_SAYING_S: Final = 5.0  # until there is a verdict: less is not worth a word
HOST_CLOCK: Final = (
    "the ranks compute on devices, and the host's clock says when work was launched, not when it was done"
)
COMPUTED_LATE: Final = ("forward", "backward", "device", "host", "unknown")  # may go on into backward
WAITING_PHASES: Final = ("data_wait", "comm_exposed")  # in which a thread may sleep, and is seen to wait
NOT_DECIDED: Final = "Not decided"
NOTHING_FOUND: Final = "no loss found is worth acting on"  # where no rule says it
NOT_JUDGED: Final = "Too few steady steps were seen until then to judge them."
DEATH_IS_FIRST: Final = (
    "a rank that dies of a signal takes the job with it; its own output and the kernel's log (dmesg) say more"
)
ERROR_IS_FIRST: Final = (
    "a rank that ends by an error takes the job with it; its traceback stands in the job's output"
)
HANG_IS_OPEN: Final = (
    "whether the job hangs or works where no hook is was not seen; where each rank's threads stand would tell"
)
LEFT_IS_FIRST: Final = (
    "a rank that leaves in the middle takes the job with it; look for os._exit in all that it runs"
)


def verdict(
    judged: list[Judged],
    diagnosis: Diagnosis,
    job_seconds: Shares,
    num_not_compared: int = 0,
    clock: Clock = "host",
    *,
    stages: Pipelines | None = None,
    awake_share: float | None = None,
    untold: tuple[Untold, ...] = (),
) -> Verdict:
    """What to do about this run.

    num_not_compared: ranks whose arrival nobody saw. clock: that the times are from. stages: of ranks that hold some.
    awake_share: of its time the typical rank's training thread ran or was ready to; None where nobody counts. untold:
    those of the ranks not compared whose devices say nothing.
    """
    above = [entry for entry in judged if entry.finding.severity != "info"]
    num_missing = diagnosis.num_missing_steps if above else diagnosis.num_missing_to_keep
    # What no step of a trace tells, more of them would not, either.
    is_untold = diagnosis.named is not None and clock == "device" and _is_order_unknown(diagnosis)
    if num_missing > 0 and not is_untold:
        missing_s = diagnosis.last_s(num_missing)
        since = diagnosis.regime_step if num_missing > diagnosis.num_missing_steps else None
        return not_yet(num_missing, bool(diagnosis.table.num_steps), clock, missing_s, since_step=since)
    if not above and diagnosis.open_late:
        return replace(_undecided(_too_soon(diagnosis.open_late)), may_hide=True)
    on_devices = stages if clock == "device" else None
    if not above and clock == "device":
        told = _not_told(diagnosis, num_not_compared, untold)
        why = told if on_devices is None else _not_told_of_stages(on_devices, num_not_compared, untold)
        if why:
            # Of ranks whose devices say nothing more steps say nothing, either.
            are_mute = 0 < num_not_compared == len(untold)
            return replace(_undecided(why), is_final=is_untold or are_mute)
    if not above and clock == "host" and (why := _unseen(diagnosis, job_seconds, awake_share)):
        return replace(_undecided(why), is_final=True)
    if not above:
        return _of_remarks(judged, diagnosis, job_seconds, num_not_compared, on_devices)
    chosen = above[0]
    beside = _beside(chosen, above)
    gain = _together(chosen, beside)
    following = next_constraint(chosen, judged, diagnosis, job_seconds, beside)
    # A rank whose device says nothing may be as late as the one that is named; of stages their own times tell.
    at_best = chosen.at_best or bool(untold)
    is_unordered = _is_order_unknown(diagnosis) and chosen.rule.scope != "stage"
    return Verdict(
        decision=cast("DecisionWord", chosen.rule.decision),
        sentence=_sentence(chosen, diagnosis, gain, beside, at_best=at_best),
        finding=chosen.finding.id,
        pattern=chosen.finding.pattern,
        speedup=Speedup(gain.speedup, gain.speedup_low, gain.speedup_high) if gain else None,
        next_constraint=following,
        because=_because(chosen, diagnosis.open_late),
        verify=chosen.rule.verify,
        at_best=gain is not None and (is_unordered or at_best),
        may_hide=bool(diagnosis.open_late),
    )


def _because(chosen: Judged, still_open: tuple[LateRank, ...]) -> str:
    """What was found, and beside it whose lateness is not decided yet."""
    message = chosen.finding.message
    if not still_open:
        return message
    beside = _too_soon(still_open)
    return f"{message} {beside[0].upper()}{beside[1:]}."


def _too_soon(late: tuple[LateRank, ...]) -> str:
    """Ranks whose lateness may be chance: others want their cores, and who is last changes within seconds; or threads
    that meet nowhere, of which one is behind for long.
    """
    worst = max(late, key=lambda entry: entry.late.mean_excess_s)
    also = f", {_ranks(len(late) - 1)} too" if len(late) > 1 else ""
    late_by = f"rank {worst.rank} is {seconds(worst.late.mean_excess_s)} late a step{also}; "
    if worst.cause.is_of_thread:
        return (
            f"{late_by}its device waits for its thread, and more steps tell whether that is slower than the others' or "
            "only behind them: threads as fast as each other stay as far apart as chance or one stop left them"
        )
    return (
        f"{late_by}"
        f"{SETTLED_S:.0f} seconds of such steps without another change tell whether it lacks a core by more than chance"
    )


def _not_told_of_stages(stages: Pipelines, num_not_compared: int, untold: tuple[Untold, ...]) -> str:
    """The same of the stages of pipelines, which wait for each other within the step."""
    who = f": {in_words(untold)}" if untold else ""
    unseen = f"{_ranks(num_not_compared)} not compared and may be late{who}" if num_not_compared else ""
    return stages.why_not or stages.doubt or unseen


def _not_told(diagnosis: Diagnosis, num_not_compared: int, untold: tuple[Untold, ...]) -> str:
    """Why the devices' clocks do not support keeping the run as it is; empty where they do."""
    step_s = float(diagnosis.steady_barrier.cycle_K.mean())
    exposed_s = diagnosis.job_seconds["comm_exposed"]
    if _is_order_unknown(diagnosis) and exposed_s is not None:  # as of a trace's kernels
        return (
            f"a step takes {seconds(step_s)} on the devices, {seconds(exposed_s)} of it exposed communication, of "
            "which nothing tells what is waiting for another rank"
        )
    if _is_order_unknown(diagnosis):
        return (
            f"a step takes {seconds(step_s)} on the devices, and what they wait for each other within it lies in "
            "forward and backward, where a phase's clock does not tell it from compute (a capture of kernels does)"
        )
    if num_not_compared and diagnosis.table.num_ranks < 2:  # one alone
        who = f"; the other is {in_words(untold)} (a capture of kernels tells)" if len(untold) == 1 else ""
        who = f"; the others are {in_words(untold)} (a capture of kernels tells)" if len(untold) > 1 else who
        return f"one device's clock was seen, and what it waits for the others lies in it{who}"
    waits_s = diagnosis.waits_s or 0.0
    # Whoever came last waits for nobody: with a wait on every rank that was seen it may be one that was not.
    if num_not_compared and waits_s > MIN_EXCESS_SHARE * step_s:
        wait = f"all devices that were seen wait {seconds(waits_s)} a step, for the network or for "
        if num_not_compared == len(untold):
            return f"{wait}{in_words(untold)} (a capture of kernels tells which)"
        return (
            f"{wait}{'one rank' if num_not_compared == 1 else f'one of {num_not_compared} ranks'} whose device was not "
            f"seen{f', as {in_words(untold)}' if untold else ''}"
        )
    return _not_told_of_waits(diagnosis, waits_s, step_s) if diagnosis.table.num_ranks > 1 else ""


def _not_told_of_waits(diagnosis: Diagnosis, waits_s: float, step_s: float) -> str:
    """The same of what all ranks wait, whoever is last."""
    if diagnosis.turns_s > MAX_TURNS * step_s:
        return (
            f"all devices wait {seconds(diagnosis.turns_s)} a step for one another: some come last at some of the "
            "step's exchanges and others at others, and what each of them costs is not told (a capture of kernels does)"
        )
    if waits_s > MAX_UNEVEN_WAITS * step_s:
        transfer = diagnosis.transfer
        is_even = transfer is not None and transfer.share_low >= NOTABLE_SHARE
        return f"all devices wait {seconds(waits_s)} a step, for the network or for one another, " + (
            "and nothing seen here tells which"
            if is_even
            else "but not in all of the measured steps alike: since when is not clear yet"
        )
    return ""


def _unseen(diagnosis: Diagnosis, job_seconds: Shares, awake_share: float | None) -> str:
    """Why a step that mostly passes outside of every hook is neither well nor ill; empty where it does not."""
    step_s, unseen_s = float(diagnosis.steady_barrier.cycle_K.mean()), mostly_unseen_s(diagnosis)
    if not unseen_s:
        return ""
    late = "; whether a rank is late could not be observed" if _is_order_unknown(diagnosis) else ""
    part = shares(job_seconds)  # of the ranks' own steps, as what is unseen is
    seen_waits_s = sum(part.get(name) or 0.0 for name in WAITING_PHASES) * step_s
    asleep_s = 0.0 if awake_share is None else (1 - awake_share) * step_s - seen_waits_s
    if asleep_s >= MIN_COVER * unseen_s:
        return (
            f"{seconds(unseen_s)} of the mean step's {seconds(step_s)} pass in code that no hook sees, and for "
            f"{seconds(min(asleep_s, unseen_s))} of it the thread sleeps: it waits for something that is not "
            "PyTorch's, as files of a slow mount, actors that feed it by a queue, a server, a lock or a sleep "
            f"(tuiadvisor stacks RANK --lines shows where){late}"
        )
    return (
        f"{seconds(unseen_s)} of the mean step's {seconds(step_s)} pass in code that no hook sees, "
        f"which may be the work itself or a loss ({LINES_SHOWN}){late}"
    )


def _of_remarks(
    judged: list[Judged],
    diagnosis: Diagnosis,
    job_seconds: Shares,
    num_not_compared: int,
    stages: Pipelines | None,
) -> Verdict:
    """Nothing stands above info: the run is kept, but beside what may cost something that nobody saw."""
    for entry in judged:
        if not_seen := _leaves_open(entry) or _lies_in_backward(entry, diagnosis):
            return _undecided(f"{entry.headline}, and {not_seen}")
    kept = _keep(judged, diagnosis, job_seconds, 0 if stages is not None else num_not_compared)
    return kept if stages is None else _of_stages(kept, judged, diagnosis, stages)


def _undecided(why: str) -> Verdict:
    return Verdict(None, f"{NOT_DECIDED}: {why}.", None, None, None, None, why, "")


def with_bound_ranks(found: Verdict, bound: str) -> Verdict:
    """Not kept, where ranks share fewer CPUs than they are and nobody has counted what that costs them.

    bound: who is bound to what; empty where nobody is. A short run is over before the kernel's counts tell.
    """
    if found.decision != "keep" or not bound:
        return found
    return _undecided(f"{bound}, and how long they wait for a core was not counted over these steps")


def not_yet(
    num_missing_steps: int,
    any_steps: bool,
    clock: Clock = "host",
    missing_s: float | None = None,
    *,
    why_none: str = "",
    since_step: int | None = None,
) -> Verdict:
    """No verdict before there is evidence for one.

    missing_s: what the missing steps take, None: not known; why_none: what was found of ranks that make no step.
    since_step: of the change before which there were enough.
    """
    steps = "steady steps" if clock == "host" else "steps on the devices' clocks"
    lasts = f", about {_rough(missing_s)}" if missing_s is not None and missing_s >= WORTH_SAYING_S else ""
    sentence = f"Not enough yet: {num_missing_steps} more {steps}{lasts}."
    if since_step is not None:
        sentence += f" The pace changed at step {since_step:,}; steps before it no longer count."
    if why_none:
        end = "" if why_none[-1].isdigit() else "."  # "kill -CONT 4091." is no command
        sentence = f"Not enough yet: no step was seen. {why_none}{end}"
    since = "" if since_step is None else f" since the pace changed at step {since_step:,}"
    because = f"too few steady steps were seen{since}" if any_steps else "no step was seen"
    return Verdict(
        None,
        sentence,
        None,
        None,
        None,
        None,
        because,
        "",
        may_hide=True,
        num_missing_steps=num_missing_steps,
    )


def with_priorities(found: Verdict, priorities: dict[int, Priority]) -> Verdict:
    """The same, while nothing is decided, with who yields to others' work more than the others: no step has to tell.

    priorities: by rank.
    """
    if found.decision is not None or not priorities:
        return found
    ranks = tuple(sorted(priorities))
    words = rank_words(ranks)
    nice = max(told.nice for told in priorities.values())
    others = min(told.others for told in priorities.values())
    seen = (
        f"{words[0].upper()}{words[1:]} run{'s' * (len(ranks) == 1)} at nice {nice}, the others at {others}."
    )
    return replace(found, sentence=f"{found.sentence} {seen}")


def _rough(duration_s: float) -> str:
    return f"{duration_s / 60:.2g} minutes" if duration_s >= 90 else f"{duration_s:.0f} s"


def unseen_device(why: str, *, is_final: bool = False) -> Verdict:
    """Nothing is decided on launches: when they are made says little of when a device does what they ask.

    is_final: no device has said anything for so long that more steps say nothing, either.
    """
    sentence = f"{NOT_DECIDED}: {why}."
    return Verdict(None, sentence, None, None, None, None, HOST_CLOCK, "", may_hide=True, is_final=is_final)


def _keep(judged: list[Judged], diagnosis: Diagnosis, job_seconds: Shares, num_not_compared: int) -> Verdict:
    step = diagnosis.steady_barrier.cycle_K
    mean_s = float(step.mean())
    unblamed = next((entry for entry in judged if _unblamed(entry)), None)
    healthy = next((entry for entry in judged if entry.rule.final), None)
    found = healthy.headline if healthy else NOTHING_FOUND
    sentence = f"Keep: {found}; the mean step takes {seconds(mean_s)}.{_largest(judged)}"
    ranks = f"{_ranks(num_not_compared)} not compared"
    if _is_order_unknown(diagnosis):
        what = f"the mean step takes {seconds(mean_s)}; whether a rank is late could not be observed"
        if num_not_compared >= diagnosis.table.num_ranks:
            return _undecided(f"{what}, and {ranks}")
        sentence = f"Keep: {what}{f', and {ranks}' if num_not_compared else ''}."
    elif num_not_compared:
        waits_s = diagnosis.waits_s
        if waits_s is None or waits_s > MIN_EXCESS_SHARE * mean_s:
            waits = (
                f", {seconds(waits_s)} of it waiting for the network or for a rank that was not seen"
                if waits_s is not None
                else ""
            )
            return _undecided(f"the mean step takes {seconds(mean_s)}{waits}. {ranks} and may be late")
        if (
            num_not_compared >= diagnosis.table.num_ranks
        ):  # most ranks set the pace, fewer may be what is slow
            return _undecided(
                f"the mean step takes {seconds(mean_s)}. {ranks}; those seen wait for hardly anybody, so it may be "
                "them that the others wait for"
            )
        sentence = (
            f"Keep: nothing found in what was seen; the mean step takes {seconds(mean_s)}. "
            f"{ranks}, but the others wait for hardly anybody."
        )
    elif unblamed is not None:
        # A loss stands beside this verdict: it must not say that there is none.
        sentence = (
            f"Keep: the mean step takes {seconds(mean_s)}. No rank or phase is to blame, but {unblamed.headline}: "
            "noise of the machine, or work that differs from batch to batch."
            f"{_largest(judged, beside=unblamed)}"
        )
    paused = next((entry for entry in judged if _remark(entry)), None)
    if paused is not None:
        sentence = f"{sentence} {paused.headline[0].upper()}{paused.headline[1:]}."
    return Verdict(
        decision="keep",
        sentence=sentence,
        finding=healthy.finding.id if healthy else None,
        pattern=healthy.finding.pattern if healthy else None,
        speedup=None,
        next_constraint=next_constraint(None, judged, diagnosis, job_seconds),
        because=unblamed.finding.message if unblamed else healthy.finding.message if healthy else sentence,
        verify=healthy.rule.verify if healthy else "",
    )


def _of_stages(kept: Verdict, judged: list[Judged], diagnosis: Diagnosis, stages: Pipelines) -> Verdict:
    """Of pipelines on devices all of whose step is their stages' work and their schedule's own bubble."""
    limits = stages.shown
    idle = f", {100 * limits.bubble:.0f} % of it idle" if limits is not None else ""
    mean_s = float(diagnosis.steady_barrier.cycle_K.mean())
    sentence = (
        f"Keep: the pipeline's stages take equally long and wait for little but the schedule's own bubble; the mean "
        f"step takes {seconds(mean_s)}{idle}.{_largest(judged)}"
    )
    return replace(kept, sentence=sentence)


def _largest(judged: list[Judged], beside: Judged | None = None) -> str:
    """A remark of size: on a crowded host a loss of half the step may be nobody's fault, and is there nevertheless.

    beside: what the sentence names already; empty where that is the largest.
    """
    losses = [
        (entry.gain.loss_s, place, entry.headline)
        for place, entry in enumerate(judged)
        if entry.gain is not None and entry.gain.loss_low_s >= NOTABLE_SHARE * entry.gain.step_s
    ]
    largest = max(losses, default=None)
    if largest is None or (beside is not None and judged[largest[1]] is beside):
        return ""
    return f" Largest loss seen: {largest[2]}."


def _unblamed(entry: Judged) -> bool:
    cause = cause_of(entry.rule.id)
    return cause is not None and cause.blames_nobody


def _leaves_open(entry: Judged) -> str:
    cause = cause_of(entry.rule.id)
    return "" if cause is None else cause.leaves_open(entry.finding, entry.rule)


def _lies_in_backward(entry: Judged, diagnosis: Diagnosis) -> str:
    """What the others wait for a rank that computes longer is not known where they meet within backward, too."""
    if not diagnosis.table.meets_within or not _is_late_in_compute(entry):
        return ""
    return "ranks meet within backward, too, where no clock tells what they wait for it: a capture of kernels does"


def _is_late_in_turns(entry: Judged, diagnosis: Diagnosis) -> bool:
    """Late ranks that wait for others in the same step: over all of it each makes others wait for less than it is."""
    step_s = float(diagnosis.steady_barrier.cycle_K.mean())
    return entry.rule.scope == "straggler" and diagnosis.turns_s > MAX_TURNS * step_s


def _is_late_in_compute(entry: Judged) -> bool:
    """Late before forward, a rank is waited for at the first meeting, and all of that is seen."""
    return entry.rule.scope == "straggler" and entry.finding.phase in COMPUTED_LATE


def _remark(entry: Judged) -> bool:
    cause = cause_of(entry.rule.id)
    return cause is not None and cause.is_remark


def stands_still(hang: Judged, died: tuple[str, ...] = ()) -> Verdict:
    """While nothing moves, no step can be made faster. died: of `deaths`, where its ranks did so standing."""
    then = f"; then {in_short(died)}" if died else ""
    return Verdict(
        decision=cast("DecisionWord", hang.rule.decision),
        sentence=f"Stalled: {hang.headline}{then}.",
        finding=hang.finding.id,
        pattern=hang.finding.pattern,
        speedup=None,
        next_constraint=None,
        because=hang.finding.message,
        verify=hang.rule.verify,
    )


def with_deaths(found: Verdict, deaths: tuple[str, ...]) -> Verdict:
    """The verdict on a run that lost ranks to a signal or an error: said in any case, and never to be kept as it is.

    deaths: one sentence a rank, the likeliest cause first.
    """
    if not deaths:
        return found
    died = in_short(deaths)
    because = DEATH_IS_FIRST
    if LEFT in deaths[0] or WITH_CODE in deaths[0]:
        because = LEFT_IS_FIRST if LEFT in deaths[0] else ERROR_IS_FIRST
    if found.decision is None:
        is_undecided = found.sentence.startswith(NOT_DECIDED)  # else there were too few steps
        said = f"{found.sentence[:1].lower()}{found.sentence[1:]}"
        judged = f"Of the steps until then: {said}" if is_undecided else NOT_JUDGED
        return replace(found, decision="stop", sentence=f"Stop: {died}. {judged}", because=because)
    if found.decision != "keep":
        return replace(
            found, sentence=f"{died[0].upper()}{died[1:]}. Of the steps until then: {found.sentence}"
        )
    return replace(
        found,
        decision="stop",
        sentence=f"Stop: {died}. Of the steps until then: {_after_colon(found.sentence)}",
        finding=None,
        pattern=None,
        because=because,
        verify="",
    )


def with_no_step(found: Verdict, now: NoStep | None, *, any_steps: bool = True) -> Verdict:
    """The verdict while no step ends, though nothing is seen to hang: it is of those before, which is said first.

    Open where nobody is seen to work: a job that hangs is neither kept nor made faster.
    """
    if now is None:
        return found
    said = f"No step for {int(now.for_s)} s: {now.words}"  # whole seconds that are over, as timers show
    if not any_steps:
        since = f"No step since the attach {int(now.for_s)} s ago: {now.words}"
        return replace(
            found, sentence=f"{since}; whether the job hangs is not decided.", because=HANG_IS_OPEN
        )
    until_then = f"Of the steps until then: {found.sentence}"
    if now.is_at_work or found.decision is None:
        return replace(found, sentence=f"{said}. {until_then}")
    sentence = f"{said}; whether the job hangs is not decided. {until_then}"
    return replace(_undecided(HANG_IS_OPEN), sentence=sentence, may_hide=True)


def with_failed_restart(found: Verdict, restart: Restart, died: tuple[str, ...]) -> Verdict:
    """The verdict of a run whose new processes ended before their first step: what ended the former ones is said first.

    died: of `deaths`, what is known of the end of the new ones.
    """
    how = restart.how_ended or "the ranks ended"
    then = f": {in_short(died)}" if died else ""
    return with_deaths(found, (f"{how}; started anew, they ended before their first step{then}",))


def after_the_end(found: Verdict) -> Verdict:
    """What a job can be asked that has ended: nothing until it runs again."""
    again = f"{LINES_SHOWN} when it runs again"
    return replace(
        found,
        sentence=found.sentence.replace(LINES_SHOWN, again),
        because=found.because.replace(LINES_SHOWN, again),
    )


def with_restart(found: Verdict, restart: Restart | None) -> Verdict:
    """The verdict while new processes have made no step yet: it is of those before, which is said first."""
    if restart is None or restart.waits_s is None:
        return found
    waits = f"no step yet, {seconds(restart.waits_s)} after the new start."
    if restart.after_step is None:
        return replace(found, sentence=f"Restarted: {waits}")
    if restart.how_ended:
        told = f"Restarted: {restart.how_ended}; {waits}"
    else:
        told = f"Restarted after step {restart.after_step:,}: {waits}"
    return replace(found, sentence=f"{told} Of the steps until then: {found.sentence}")


def _after_colon(sentence: str) -> str:
    return sentence.partition(": ")[2] or sentence


def _ranks(num_ranks: int) -> str:
    return "1 rank was" if num_ranks == 1 else f"{num_ranks} ranks were"


def _beside(chosen: Judged, above: list[Judged]) -> list[Judged]:
    """Other late ranks. Where several are late in the same steps, each one's share is won only if all are cured."""
    if chosen.rule.scope != "straggler" or chosen.gain is None:
        return []
    return [
        entry for entry in above if entry is not chosen and entry.rule.id == chosen.rule.id and entry.gain
    ]


def _together(chosen: Judged, beside: list[Judged]) -> Gain | None:
    """The gain if all of them are cured: their shares are parts of one loss, so they add up."""
    if chosen.gain is None or not beside:
        return chosen.gain
    # What hides behind all of them is had once.
    is_counted = bool(_counted(chosen))
    own = [one.own if is_counted and (one := _counted(entry)) else entry.gain for entry in beside]
    return together((chosen.gain, *(gain for gain in own if gain is not None)))


def _counted(entry: Judged) -> HiddenLimit | None:
    """What hides behind it and is cured too in its gain."""
    return entry.hides if entry.hides is not None and entry.hides.own is not None else None


def _sentence(
    chosen: Judged, diagnosis: Diagnosis, gain: Gain | None, beside: list[Judged], *, at_best: bool
) -> str:
    first = f"{chosen.rule.decision.capitalize()}: {chosen.headline}"
    if gain is None:
        return f"{first}."
    now, then = seconds(gain.step_s), seconds(gain.step_s - gain.loss_s)
    if _is_order_unknown(diagnosis) and chosen.rule.scope != "stage":
        return f"{first}; without that the mean step would take at best {then} instead of {now}."
    best = "at best " if at_best else ""
    if chosen.cure:
        other = f", {chosen.above} {seconds(gain.step_s / gain.speedup_high)}" if chosen.above else ""
        taken = f"{best}{then} instead of {now} ({gain.speedup:.2f}x){other}"
        return f"{first}; {chosen.cure} the mean step would take {taken}."
    within = diagnosis.table.meets_within and _is_late_in_compute(chosen)
    if within or _is_late_in_turns(chosen, diagnosis):
        # What others wait for it within backward, or elsewhere in the step, comes to it; what hides behind it goes off.
        best = "about " if at_best else "at most "
    # The mean that stands elsewhere is that of the steps between them.
    step = "the mean step, pauses included," if chosen.rule.scope == "pause" else "the mean step"
    also = []
    if beside:
        named = rank_words(tuple(sorted(rank for entry in beside for rank in entry.finding.ranks)))
        also.append(f"{named} being late too")
    if (counted := _counted(chosen)) is not None:
        also.append(counted.words)
    if also:
        return (
            f"{first}; without that and without {' and '.join(also)}, the mean step would take {best}{then} "
            f"instead of {now} ({gain.speedup:.2f}x)."
        )
    return f"{first}; without that {step} would take {best}{then} instead of {now} ({gain.speedup:.2f}x)."


def _is_order_unknown(diagnosis: Diagnosis) -> bool:
    """Among stages of a pipeline nobody asks for the order of arrival: there the stages' times tell who is slow."""
    barrier, table = diagnosis.steady_barrier, diagnosis.table
    return barrier.evidence == "none" and table.num_ranks > 1 and not has_stages(table)


def next_constraint(
    chosen: Judged | None,
    judged: list[Judged],
    diagnosis: Diagnosis,
    job_seconds: Shares,
    beside: list[Judged] | None = None,
) -> str | None:
    """What limits the step once the chosen finding is gone: the largest other loss, else the longest compute."""
    cycle = diagnosis.steady_barrier.cycle_K
    if not cycle.size:
        return None
    cured = [entry.finding for entry in ([chosen] if chosen else []) + (beside or [])]
    gain = _together(chosen, beside or []) if chosen else None
    remaining = float(cycle.mean()) - (gain.loss_s if gain else 0.0)
    hidden = chosen.hides if chosen is not None else None
    if hidden and not hidden.own and hidden.least_s >= (1 - MIN_NEXT_SHARE) * remaining:
        return hidden.phase
    losses = _other_losses(chosen, judged, diagnosis, cured)
    largest = max(losses, key=lambda name: (losses[name], name), default=None)
    if largest is not None and remaining > 0 and losses[largest] >= MIN_NEXT_SHARE * remaining:
        return largest
    compute = {name: job_seconds.get(name) or 0.0 for name in COMPUTE_AND_REST}
    longest = max(compute, key=lambda name: compute[name])
    return longest if compute[longest] > 0 else None


def _other_losses(
    chosen: Judged | None, judged: list[Judged], diagnosis: Diagnosis, cured: list[Finding]
) -> dict[str, float]:
    """Seconds a step of what is not cured, by the name that it has as a constraint."""
    losses: dict[str, float] = {}
    rules = [entry.rule for entry in judged]
    for cause in CAUSES:
        is_cured = chosen is not None and cause_of(chosen.rule.id) is cause
        if cause.scope != "job" or is_cured or (cause.counts_once_found and not is_found(cause, rules)):
            continue
        if (loss := cause.loss(diagnosis)) is not None:
            losses[loss.name] = loss.loss_s
    if chosen is not None and (counted := _counted(chosen)) is not None:
        losses.pop(counted.phase, None)
    if chosen is not None and chosen.rule.scope == "held":  # whose wait is all that the job's is
        losses.pop(chosen.finding.phase or "", None)
    for entry in judged:
        same = any(entry.finding is finding for finding in cured)
        if same or not limits_by_finding(entry.rule) or entry.finding.loss_s_per_step is None:
            continue
        name = entry.finding.phase or entry.finding.id
        losses[name] = losses.get(name, 0.0) + entry.finding.loss_s_per_step
    return losses
