"""Ranks that the others wait for at the gradient barrier: who, in which phase, since when, what a cure brings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.causes.before_window import since_before
from tuiadvisor.causes.cause import (
    PHASE_WORDS,
    Cause,
    Details,
    HiddenLimit,
    Loss,
    Measured,
    priority_words,
    rank_words,
    share_of,
    storage_words,
)
from tuiadvisor.causes.loader_stages import own_words
from tuiadvisor.causes.tensor_mates import is_one_group, tensor_groups, waits_for
from tuiadvisor.events import StepFlag
from tuiadvisor.metrics.lateness.held_clock import MAX_WITH_IT
from tuiadvisor.metrics.lateness.more_work import GROWS_WITH_THE_BATCH
from tuiadvisor.metrics.lateness.waited_before import waited_before_s
from tuiadvisor.metrics.series.what_if import at_least, down_to, gain, no_shorter_than, together
from tuiadvisor.metrics.steps.accounting import least_compute_s
from tuiadvisor.metrics.steps.arrays import mean_or_none
from tuiadvisor.metrics.steps.loader_stage import MIN_BATCHES
from tuiadvisor.phases import COMPUTE, PHASES
from tuiadvisor_rules.message import seconds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tuiadvisor.causes.cause import Values
    from tuiadvisor.causes.facts import Facts
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.metrics.lateness.late_phase import Cause as LatePhase
    from tuiadvisor.metrics.lateness.late_ranks import LateRank
    from tuiadvisor.metrics.series.what_if import Gain
    from tuiadvisor.metrics.steps.arrays import Floats
    from tuiadvisor.metrics.steps.loader_stage import LoaderBatches
    from tuiadvisor.views.efficiency import Stack
    from tuiadvisor.views.run_view import Finding, RunView, SeenCause

# What fixes a late loader is not what fixes a hot device.
LAYERS: Final = {
    "data_wait": "application",  # unless its readers are met waiting for storage
    "h2d": "runtime",
    "forward": "application",
    "backward": "application",
    "optimizer": "application",
    "host": "cpu-os",
    "device": "gpu-compute",
    "checkpoint": "storage",
}
OFF_CORE_WORDS: Final = {
    "core": "ready to run but without a core",
    "limit": "held back by the CPU limit of its container ({limit:.3g} cores)",
    "stopped": "its process being stopped again and again, by a signal or a debugger",
}
SEEN_OFF_CORE: Final[dict[str, SeenCause]] = {"core": "no core", "limit": "CPU limit", "stopped": "stopped"}
HIDDEN: Final = "the threads' wait for data"
OUTSIDE: Final = "its host or its device"
OWN_CODE: Final = (
    "outside the phases of its step: code of its own as logging or a sleep, for it lacked no core"
)
# Facts of the model that tell that ranks hold different parts of it, as the stages of a pipeline do.
PARTS: Final = frozenset({"modules", "layers", "conv", "mm"})
MOST_STEPS: Final = 0.5  # beside a save, of a rank and not of others: it may be what slows that rank
LONGER: Final = 1.05  # times the others' squared lengths: chosen, below it they are alike
MOSTLY: Final = 0.5  # of what a thread takes by itself: it is its wait for data
GROWING: Final = 0.5  # of its lateness: so much of it has come little by little
SMALL_PART: Final = 0.05  # of the largest: a phase with less excess is not listed


def measure_job(diagnosis: Diagnosis, _facts: Facts) -> Values:
    """What all late ranks cost together; unknown where arrivals were not compared."""
    step_s = mean_or_none(diagnosis.steady_barrier.cycle_K)
    compared = diagnosis.compared_rows.size > 1
    loss_K = diagnosis.straggler_loss_K
    return {
        "straggler_share": share_of(float(loss_K.mean()), step_s) if compared and loss_K.size else None,
        "num_stragglers": len(diagnosis.stragglers) if compared else None,
        "straggler_slowdown": diagnosis.slowdown.S if diagnosis.slowdown else None,
    }


def measure(diagnosis: Diagnosis, facts: Facts, job: Values) -> list[Measured]:
    """One subject a phase: ranks that are late for the same reason are one finding.

    Who is late only because a rank of its tensor parallel group is, is not named, but its loss is that one's; and not
    named either while it is too soon to name that one.
    """
    mesh = "" if facts.stack is None else facts.stack.text("mesh")
    mates = tensor_groups(mesh, len(diagnosis.table.ranks))
    groups: dict[tuple[str, str], list[LateRank]] = {}
    victims: dict[tuple[str, str], list[LateRank]] = {}
    for entry in diagnosis.stragglers:
        leader = waits_for(entry, (*diagnosis.stragglers, *diagnosis.open_late), mates)
        if leader is not None and leader.cause.is_open:
            continue
        one = leader or entry
        key = one.cause.name, one.host if one.whole_host else ""
        (victims if leader else groups).setdefault(key, []).append(entry)
    return [
        _measured(diagnosis, facts, job, group, victims.get(key, []), mates=mates)
        for key, group in groups.items()
    ]


def outside_words(stack: Stack | None, packed: str) -> str:
    """What may make a rank slow in all it computes: with its own part of the model, as a pipeline's stage, that too."""
    holds_part = stack is not None and bool(PARTS.intersection(stack.differing))
    found = f"{packed}, {OUTSIDE}" if packed else OUTSIDE
    return f"the part of the model that it holds, {found}" if holds_part else found


def squares_ratio(rank: int, squares: dict[int, Floats]) -> float | None:
    """Squared lengths of its packed batches against the typical other rank's; None where too few were seen of any."""
    means = {one: float(sums.mean()) for one, sums in squares.items() if sums.size >= MIN_BATCHES}
    others = [mean for one, mean in means.items() if one != rank]
    usual = float(np.median(others)) if others else 0.0
    return means[rank] / usual if rank in means and usual > 0 else None


def packed_words(stack: Stack | None, ratio: float | None) -> str:
    """What its batches hold, where sequences of several lengths were seen in a row or the input was not seen.

    Attention takes the square of each length: batches with the same number of tokens may be unequal work. Where they
    were read and are no longer than the others' (ratio), they are cleared.
    """
    if ratio is not None:
        longer = (
            f"what its batches hold (packed sequences: {ratio:.2f} times the squared lengths of the others)"
        )
        return longer if ratio >= LONGER else ""
    if stack is None or not (stack.text("packed") or not stack.text("input")):
        return ""
    seen = stack.text("packed")
    if not seen:
        return "what its batches hold (the model's input was not seen)"
    return f"what its batches hold (packed sequences, by {seen}: as many tokens, but not equal lengths)"


def _measured(
    diagnosis: Diagnosis,
    facts: Facts,
    job: Values,
    group: list[LateRank],
    victims: list[LateRank],
    *,
    mates: list[tuple[int, ...]],
) -> Measured:
    cycle = diagnosis.steady_barrier.cycle_K
    worst = group[0]
    packed = packed_words(facts.stack, squares_ratio(worst.rank, facts.squares))
    what_if = gain(cycle, np.sum([entry.late.loss_K for entry in (*group, *victims)], axis=0))
    if (worst.late.is_rare or worst.late.surely > 0) and len(group) == 1:
        what_if = worst.late.gain
    else:
        # Together they cost no less than each of them does.
        least_s = max(entry.late.gain.loss_low_s for entry in (*group, *victims))
        surely = min(entry.late.surely for entry in group)
        what_if = at_least(what_if, max(surely, least_s / what_if.loss_s if what_if.loss_s > 0 else 0.0))
    what_if = down_to(what_if, least_compute_s(diagnosis.steady))
    promised, limit = _promised(what_if, diagnosis, group)
    ranks = tuple(sorted(entry.rank for entry in group))
    hosts = tuple(sorted({entry.host for entry in group}))
    words = (
        _words(worst)
        + _loader_words(worst, facts.loaders)
        + _packed_words(worst, packed)
        + _saving_words(diagnosis, group)
        + _mates_words(ranks, victims, mates)
    )
    values: Values = {
        **job,
        "ranks": f"host {worst.host}" if worst.whole_host else rank_words(ranks),
        "host": worst.host,
        "phase_words": words.replace(OUTSIDE, outside_words(facts.stack, packed)),
        "steps_seen": int(cycle.size),
        "named_by_calls": int(bool(diagnosis.named) and set(ranks) <= set(diagnosis.named or ())),
        **_of_group(facts, group, what_if),
        "hidden_words": "" if limit is None else _hidden_words(limit),
        **_of_cause(worst.cause, whole_host=worst.whole_host),
    }
    return Measured(
        "straggler",
        values,
        ranks,
        hosts,
        worst.cause.name,
        promised,
        _details(group, what_if) | _on_core_in_wait(diagnosis, worst, facts.loaders),
        at_best=limit is not None or (worst.cause.name == "data_wait" and _make_ahead(ranks, facts.loaders)),
        hides=limit,
    )


def _promised(found: Gain, diagnosis: Diagnosis, group: list[LateRank]) -> tuple[Gain, HiddenLimit | None]:
    """The gain of late ranks, and what hides behind them.

    Where late devices are idle for data too the gain is of both cures, for that of the devices alone may bring nothing;
    else no step gets shorter than a thread takes by itself, of those that stay as they are.
    """
    threads, late = diagnosis.thread_limits, [entry.late.row for entry in group]
    if threads is None:
        return found, None
    on_device = all(map(_is_on_device, group))
    if on_device and all(map(threads.is_bound, late)):
        both = together((found, gain(diagnosis.steady_barrier.cycle_K, threads.idle_K)))
        return both, HiddenLimit("data_wait", HIDDEN, float(threads.data_s_R[late].max()), found)
    # Other late ranks are cured with them, as the verdict has it.
    cured = [entry.late.row for entry in diagnosis.stragglers if not _is_on_device(entry)]
    limit = threads.of(np.setdiff1d(diagnosis.compared_rows, cured))
    if limit is None or (not limit.is_open and limit.step_s <= found.step_s - found.loss_s):
        return found, None
    phase = "data_wait" if limit.data_s >= MOSTLY * limit.step_s else "host_bound"
    return no_shorter_than(found, limit.step_s), HiddenLimit(phase, HIDDEN, limit.step_s, None)


def _is_on_device(entry: LateRank) -> bool:
    """Where it is late; of all ranks of a host, in what they mostly are."""
    cause = entry.cause
    name = _mostly(entry) if entry.whole_host else cause.name
    return name != "data_wait" and not cause.is_launching and cause.off_core is None


def _mostly(entry: LateRank) -> str:
    """The phase that holds most of its delay."""
    return max(entry.cause.parts, key=lambda name: (entry.cause.parts[name], name), default="other")


def _hidden_words(limit: HiddenLimit) -> str:
    takes = "waits" if limit.phase == "data_wait" else "takes"
    wait = f"while a thread {takes} {seconds(limit.least_s)} a step {'for data' * (takes == 'waits') or 'by itself'}"
    return f", {wait}" if limit.own is None else f", {wait}: only without both is a step sure to be shorter"


def _make_ahead(ranks: tuple[int, ...], loaders: dict[int, LoaderBatches]) -> bool:
    """Whether others have worker processes: behind a late rank nobody sees how fast these could be."""
    return any((batches.workers_B > 0).any() for rank, batches in loaders.items() if rank not in ranks)


def _late_together(group: list[LateRank]) -> tuple[float, float]:
    """By how much a group is late in the steps in which any of it is, seconds, and the share of these.

    In each step as late as the one of those late then that is late by most: one may be so always, another seldom.
    """
    if len(group) == 1:
        return group[0].late.late_by_s, group[0].late.hit_share
    hit_CK = np.stack([entry.late.hit_K for entry in group])
    late_K = np.where(hit_CK, [[entry.late.late_by_s] for entry in group], 0.0).max(axis=0)
    return float(late_K[hit_CK.any(axis=0)].mean()), float(hit_CK.any(axis=0).mean())


def _of_group(facts: Facts, group: list[LateRank], what_if: Gain) -> Values:
    """How late, how often and since when."""
    since = min(entry.since_step for entry in group)
    excess_s, hit_share = _late_together(group)
    return {
        "loss_s": what_if.loss_s,
        "loss_share": what_if.loss_s / what_if.step_s,
        "loss_share_low": what_if.loss_low_s / what_if.step_s,
        "excess_s": excess_s,
        "excess_share": max(entry.late.mean_excess_s for entry in group) / what_if.step_s,
        "hit_share": hit_share,
        "score": min(entry.late.score for entry in group),
        "since": since,
        "beyond_past": _least(entry.late.beyond_past for entry in group),
        "since_words": _since_words(group, since, unseen=since_before(facts, what_if)),
    }


def _since_words(group: list[LateRank], since: int, *, unseen: str) -> str:
    """Since when, or how much later it has become little by little; unseen: the words where nobody saw it."""
    grown_s = [entry.late.drift.growth_s for entry in group if entry.late.drift is not None]
    if len(grown_s) == len(group) and min(grown_s) >= GROWING * group[0].late.mean_excess_s:
        return f"growing, by {seconds(max(grown_s))} since the first steps compared"
    if all(entry.late.onset_seen for entry in group):
        return f"since step {since:,}"
    return unseen


def _of_cause(cause: LatePhase, *, whole_host: bool) -> Values:
    """What the rank is late in; conditions of rules are numbers."""
    phase = cause.name
    return {
        "phase": phase,
        "cover": cause.cover,
        "whole_host": int(whole_host),
        "in_data": int(phase == "data_wait"),
        "in_compute": int(phase in COMPUTE),
        "in_host": int(phase in {"host", "device"}),
        "in_copy": int(phase == "h2d"),
        "in_device": int(phase == "device" or cause.clock is not None),
        "in_launches": int(cause.is_launching),
        "in_checkpoint": int(phase == "checkpoint"),
        "in_collection": int(cause.is_collecting),
        "lacks_cores": int(cause.off_core == "core"),
        "yields_cores": int(cause.priority is not None),
        "is_limited": int(cause.off_core == "limit"),
        "is_stopped": int(cause.off_core == "stopped"),
        "waits_for_storage": int(cause.storage is not None),
    }


def _details(group: list[LateRank], what_if: Gain) -> Details:
    """Evidence without a rule on it: the parts of the delay, and what was seen beside the rank."""
    cause = group[0].cause
    details: Details = {
        f"excess_{name}_s": value
        for name, value in sorted(cause.parts.items(), key=lambda part: -part[1])
        if value > SMALL_PART * max(cause.parts.values())
    }
    if (seen := _seen_cause(cause)) is not None:
        details["seen_cause"] = seen
    details["onset_seen"] = int(all(entry.late.onset_seen for entry in group))
    details["loss_low_s"], details["loss_high_s"] = what_if.loss_low_s, what_if.loss_high_s
    if cause.cpu_share is not None:
        details["cpu_share_of_compute"] = cause.cpu_share
    if cause.clock is not None:
        details["sm_clock_mhz"], details["peers_sm_clock_mhz"] = cause.clock.mhz, cause.peers_mhz
        details["clock_held_back_by"] = ", ".join(cause.clock.reasons)
    if cause.more is not None:
        details[f"{cause.more.unit}_ratio"] = cause.more.ratio
    if cause.is_collecting:
        details["excess_gc_s"] = cause.gc_s
    if cause.storage is not None:
        details["storage_share"], details["peers_storage_share"] = cause.storage.share, cause.storage.others
    known = {"excess_core_wait_s": cause.core_wait_s, "cpu_limit_cores": cause.limit_cores}
    details |= {name: value for name, value in known.items() if value is not None}
    if cause.priority is not None:
        details["nice"], details["peers_nice"] = cause.priority
    if cause.unobserved:
        details["unobserved"] = ", ".join(cause.unobserved)
    return details


def _on_core_in_wait(diagnosis: Diagnosis, entry: LateRank, loaders: dict[int, LoaderBatches]) -> Details:
    """Of a rank that makes its batches itself: for which share of that its thread can have been on a core, at most.

    The kernel counts its time over the whole step. What it does in the rest, a sleep, a lock, a read, is not known.
    """
    batches = loaders.get(entry.rank)
    if entry.cause.name != "data_wait" or batches is None or not batches.workers_B.size:
        return {}
    table, row = diagnosis.steady, entry.late.row
    wait_s_K, cpu_s_K = table.phase_s_PRK[PHASES.index("data_wait"), row], table.cpu_s_RK[row]
    known_K = np.isfinite(wait_s_K) & np.isfinite(cpu_s_K)
    wait_s = float(wait_s_K[known_K].sum())
    if (batches.workers_B > 0).any() or wait_s <= 0:
        return {}
    return {"wait_on_core_share": min(float(cpu_s_K[known_K].sum()) / wait_s, 1.0)}


def _seen_cause(cause: LatePhase) -> SeenCause | None:
    """What makes it late, beyond the phase that is longer: None where only the phase was seen."""
    if cause.off_core is not None:
        return SEEN_OFF_CORE[cause.off_core]
    if cause.is_collecting or cause.is_launching:
        return "garbage collection" if cause.is_collecting else "launches"
    if cause.clock is not None or cause.storage is not None:
        return "storage" if cause.clock is None else "clock"
    return None if cause.more is None else "more work"


def _least(values: Iterable[float | None]) -> float | None:
    """The smallest; None where one is not known."""
    known = list(values)
    return None if None in known else min(value for value in known if value is not None)


def _mates_words(ranks: tuple[int, ...], victims: list[LateRank], mates: list[tuple[int, ...]]) -> str:
    if victims:
        return "; its tensor parallel group waits for it inside forward and backward"
    if is_one_group(ranks, mates):
        return "; one of them may hold up the others inside their tensor parallel layers"
    return ""


def _words(entry: LateRank) -> str:
    if entry.whole_host:
        return f"all its ranks alike, {_host_words(entry)}"
    if entry.cause.is_launching or entry.cause.is_collecting:
        launching = "while its device waits for its thread's launches, so on its host"
        return launching if entry.cause.is_launching else "while Python collects garbage"
    if entry.cause.off_core is not None:
        words = OFF_CORE_WORDS[entry.cause.off_core].format(limit=entry.cause.limit_cores or 0.0)
        return words + priority_words(entry.cause.priority)
    if entry.cause.clock is not None:
        return f"on its device, which runs at {_clock_words(entry)}"
    if entry.cause.is_spread and entry.cause.name == "host":
        return f"in all of its phases alike: {OUTSIDE}"
    is_own = entry.cause.name == "host" and _had_its_cores(entry)
    words = OWN_CODE if is_own else PHASE_WORDS.get(entry.cause.name, f"in {entry.cause.name}")
    more = entry.cause.more
    return words if more is None else f"{words}, with {more.ratio:.2f} times the {more.unit} of the others"


def _host_words(entry: LateRank) -> str:
    if entry.cause.clock is not None:
        return f"on their devices, which run at {_clock_words(entry)}"
    largest = _mostly(entry)
    return f"mostly {PHASE_WORDS.get(largest, largest)}"


def layer_of(subject: Measured) -> str | None:
    """Of what explains the lateness, where something does; else of the phase that it falls into."""
    found = layer_of_host(subject)
    if found is None and str(subject.values.get("phase_words") or "").startswith(OWN_CODE):
        return "application"
    return found or LAYERS.get(subject.phase or "")


def layer_of_host(subject: Measured) -> str | None:
    """None where nothing explains it but the phase: then it is whatever the ranks of a host share."""
    values = subject.values
    if values.get("waits_for_storage"):
        return "storage"
    if values.get("in_device"):
        return LAYERS["device"]
    return LAYERS["host"] if any(map(values.get, ("lacks_cores", "is_limited", "is_stopped"))) else None


def _clock_words(entry: LateRank) -> str:
    """Its device's clock against its peers', or its own otherwise, and why; then: while it is late."""
    clock = entry.cause.clock
    if clock is None:
        return ""
    then = "" if entry.late.persistent or entry.late.hit_share > MAX_WITH_IT else " then"
    why = f" ({', '.join(clock.reasons)})" if clock.reasons else ""
    return f"{clock.mhz:.0f} MHz{then} against {entry.cause.peers_mhz or 0:.0f}{why}"


def _loader_words(entry: LateRank, loaders: dict[int, LoaderBatches]) -> str:
    """Of a rank that is late while it waits for data: what its own loader waits for."""
    if entry.cause.storage is not None:
        return storage_words(entry.cause.storage)
    is_by_time = entry.cause.name == "data_wait" and entry.cause.off_core is None
    return own_words(loaders.get(entry.rank)) if is_by_time and not entry.whole_host else ""


def _packed_words(entry: LateRank, packed: str) -> str:
    """Beside a phase or a device that is blamed by its time alone; `outside_words` has them already."""
    cause = entry.cause
    is_by_time = (
        cause.clock is None and cause.off_core is None and cause.more is None and not cause.is_launching
    )
    # Not copies: as many tokens are as many bytes, however long the sequences.
    names = {"device", *(name for name in GROWS_WITH_THE_BATCH if name in COMPUTE)}
    return (
        f", or by {packed}" if packed and is_by_time and cause.name in names and not entry.whole_host else ""
    )


def _saving_words(diagnosis: Diagnosis, group: list[LateRank]) -> str:
    """Of ranks beside which a checkpoint is written in most steps, and not beside the others."""
    steady = diagnosis.steady
    share_R = (steady.flagged_RK(StepFlag.SAVING) & steady.present_RK).mean(axis=1)
    rows = [entry.late.row for entry in group]
    least = float(share_R[rows].min())
    others = np.setdiff1d(diagnosis.compared_rows, rows)
    if least < MOST_STEPS or (others.size and float(share_R[others].max()) >= MOST_STEPS):
        return ""
    return f", while a checkpoint is written in its background in {100 * least:.0f} % of the steps"


def _had_its_cores(entry: LateRank) -> bool:
    """Whether its host is no part of it: what it waited for a core beyond its peers explains next to nothing."""
    waited_s = entry.cause.core_wait_s
    return waited_s is not None and waited_s < SMALL_PART * entry.late.mean_excess_s


def loss(diagnosis: Diagnosis) -> Loss | None:
    """Of every step, all late ranks together; where they are late because they write checkpoints, it is theirs."""
    causes = {entry.cause.name for entry in diagnosis.stragglers}
    name = "checkpoint" if causes == {"checkpoint"} else "straggler"
    loss_s = max(float(diagnosis.straggler_loss_K.mean()), 0.0)
    table = diagnosis.table
    before_s = waited_before_s(
        diagnosis.barrier,
        diagnosis.steadiness.steady_K,
        diagnosis.window_start,
        compared_rows=diagnosis.compared_rows,
        late=[(entry.late.row, max(table.column_of(entry.since_step), 0)) for entry in diagnosis.stragglers],
        loss_s=loss_s,
    )
    return Loss(name, loss_s, before_s)


def amount(finding: Finding, view: RunView) -> float | None:
    """By how much its ranks take longer in its phase than the typical other rank."""
    phase = finding.phase
    if phase is None:
        return None
    own = [row.seconds.get(phase) for row in view.ranks if row.rank in finding.ranks]
    peers = [row.seconds.get(phase) for row in view.ranks if row.rank not in finding.ranks]
    known = [value for value in own if value is not None]
    usual = sorted(value for value in peers if value is not None)
    return max(known) - usual[len(usual) // 2] if known and usual else None


STRAGGLER: Final = Cause(
    rules=("straggler",),
    metrics="""
job straggler_share share of the step that all stragglers together cost
job num_stragglers count ranks that others wait for
job straggler_slowdown ratio mean step against every rank at the mean of its peers (S)
straggler ranks text ranks of the group, e.g. "rank 2" or "ranks 1 and 3"
straggler host text host of the group
straggler phase text where the delay arises: a phase, "host", "device", "other" or "unknown"
straggler phase_words text the phase in plain words
straggler loss_s s a step that others wait for the group, gone if it worked like its peers (but see hidden_words)
straggler loss_share share of the step
straggler loss_share_low share lower end of its interval
straggler excess_s s by which the group arrives later than its peers, mean of the steps in which it is late
straggler excess_share share lateness of the group as a share of the step, mean over all steps
straggler cover share of the delay that the named phase holds
straggler hit_share share of the steps in which the group is late
straggler score ratio peers' work between barriers against the group's
straggler since steps job step since which the group is late
straggler steps_seen steps steps of the window in which it was compared
straggler named_by_calls flag 1 where a trace's own collectives, compared call by call, name all of them beyond chance
straggler beyond_past ratio lateness since its onset against the largest of any rank before, over as many steps
straggler hidden_words text what threads wait for data behind a late device; empty where that limits no step
straggler since_words text "since step 57", "since the first step compared" (with the run's own onset) or "growing ..."
straggler whole_host flag 1 if all ranks of one host are late and no others
straggler in_data flag 1 if the delay arises while waiting for data
straggler in_compute flag 1 if it arises in forward, backward or optimizer
straggler in_host flag 1 if it arises on the host or device as a whole
straggler in_copy flag 1 if it arises while its batch is copied to the device
straggler in_device flag 1 if its device is slow in all it computes
straggler in_launches flag 1 if its device waits for its thread's launches
straggler in_checkpoint flag 1 if it arises while writing a checkpoint
straggler in_collection flag 1 if it arises while Python collects garbage
straggler lacks_cores flag 1 if the rank is ready to run but has no core
straggler yields_cores flag 1 if it lacks one at a lower priority than the others, a higher nice value
straggler is_limited flag 1 if the CPU limit of its container holds it back
straggler is_stopped flag 1 if it is stopped again and again by a signal or a debugger
straggler waits_for_storage flag 1 if whoever reads for it waits for storage, and its peers' readers do not
""",
    scope="straggler",
    measure_job=measure_job,
    measure=measure,
    layer_of=layer_of,
    loss=loss,
    counts_once_found=True,
    limits_by_finding=True,
    names_ranks=True,
    amount=amount,
)
# All ranks of one host alike: a rule of its own on the same subjects.
SLOW_HOST: Final = Cause(
    rules=("slow_host",), scope="straggler", layer_of=layer_of_host, limits_by_finding=True
)
