"""The named metrics of rules, taken from a Diagnosis.

In: Diagnosis.  Out: subjects: what a rule is judged on: the job, each group of stragglers with one cause (pauses and
pipeline stages have modules of their own). Names, units and meanings are those of tuiadvisor_rules.metric_names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.lateness.job_losses import hideable_s
from tuiadvisor.metrics.lateness.late_phase import MIN_COVER
from tuiadvisor.metrics.series.what_if import Gain, gain
from tuiadvisor.metrics.steps.accounting import job_seconds, shares
from tuiadvisor.metrics.steps.arrays import mean_or_none
from tuiadvisor.metrics.steps.step_table import COMM
from tuiadvisor_rules.message import seconds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tuiadvisor.advisor.cluster.crowding import Crowd
    from tuiadvisor.advisor.cluster.memory import Filling
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.metrics.lateness.late_ranks import LateRank
    from tuiadvisor.views.run_view import DeviceView

BREAK_EVEN_SHARE: Final = 0.05
LEVEL_SHIFT_EXPLAINED_STEPS: Final = 10
EXPLAINED_BY_TOKENS: Final = 0.5  # as in rules/catalog/uneven_lengths.toml: then that is the finding
COMPUTE: Final = ("forward", "backward", "optimizer")
PHASE_WORDS: Final = {
    "data_wait": "waiting for its next batch",
    "h2d": "copying to the device",
    "forward": "in forward",
    "backward": "in backward",
    "optimizer": "in the optimizer",
    "checkpoint": "writing a checkpoint",
    "eval": "evaluating",
    "other": "in code without a hook",
    "host": "outside the phases of its step (logging, garbage collection, its host)",
    "device": "in all compute phases alike, so on its device",
    "unknown": "for a reason the phases do not show",
}


@dataclass(frozen=True, slots=True)
class Subject:
    """What one rule is judged on."""

    scope: str  # of tuiadvisor_rules.metric_names.SCOPES
    values: dict[str, object]
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    phase: str | None
    gain: Gain | None
    details: dict[str, float | int | str | None]  # evidence beyond the named metrics


def overlap_seconds(diagnosis: Diagnosis) -> tuple[float | None, float | None, float | None]:
    """(total communication, its exposed part, share of steps seen in detail), seconds a step; both of those steps."""
    steady = diagnosis.steady
    total = steady.comm_total_s_RK
    known = np.isfinite(total)
    if not known.any():
        return None, None, 0.0 if steady.num_steps else None
    # What is exposed is a part of what was timed: measured in two ways, it may seem a little more.
    exposed = np.where(known, np.fmin(steady.phase_s_PRK[COMM], total), np.nan)
    detail = float(known.any(axis=0).mean())
    return mean_or_none(total), mean_or_none(exposed), detail


def job_values(
    diagnosis: Diagnosis,
    num_missing: int,
    cores_per_rank: float | None = None,
    device: DeviceView | None = None,
    crowd: Crowd | None = None,
) -> dict[str, object]:
    """Metrics of scope `job`, all but num_findings_above_info."""
    table, steady = diagnosis.table, diagnosis.steady
    cycle = diagnosis.steady_barrier.cycle_K
    step_s = mean_or_none(cycle)
    phase_share = shares(job_seconds(diagnosis.seconds_PR))
    total, exposed, _ = overlap_seconds(diagnosis)
    data, transfer, warmup = diagnosis.input, diagnosis.transfer, diagnosis.steadiness.warmup
    compute = [phase_share[name] for name in COMPUTE]
    compared = diagnosis.compared_rows.size > 1
    loss_K = diagnosis.straggler_loss_K
    observed_s = float(
        np.nansum(np.where(np.isfinite(diagnosis.barrier.cycle_K), diagnosis.barrier.cycle_K, 0))
    )
    return {
        "num_ranks": table.num_ranks,
        "num_ranks_missing": num_missing,
        "cores_per_rank": cores_per_rank,
        "ready_per_core": crowd.ready_per_core if crowd else None,
        "core_wait_share": crowd.core_wait_share if crowd else None,
        "host_crowded": int(crowd is not None and crowd.is_crowded),
        "host_packed": int(crowd is not None and crowd.is_packed),
        "crowd_words": crowd.words if crowd else "",
        "crowd_note": ", on a crowded host" if crowd is not None and crowd.is_crowded else "",
        "device_behind_share": device.behind_share if device else None,
        "device_step_s": device.step_s if device else None,
        "num_hosts": len(set(table.hosts)),
        "steady_steps": steady.num_steps,
        "step_s": step_s,
        "data_wait_share": data.share if data else None,
        "data_wait_share_low": data.share_low if data else None,
        "data_wait_loss_s": data.gain.loss_s if data else None,
        "data_wait_since": diagnosis.input_since,
        "transfer_share": transfer.share if transfer else None,
        "transfer_share_low": transfer.share_low if transfer else None,
        "transfer_s": transfer.gain.loss_s if transfer else None,
        "transfer_since": diagnosis.transfer_since,
        **_hiding_values(diagnosis),
        "barrier_wait_s": mean_or_none(diagnosis.steady_barrier.transfer_K),
        "barrier_wait_share": _share(mean_or_none(diagnosis.steady_barrier.transfer_K), step_s),
        "comm_exposed_share": phase_share["comm_exposed"],
        "overlap": 1 - min(exposed / total, 1.0) if total and exposed is not None else None,
        "straggler_share": _share(float(loss_K.mean()), step_s) if compared and loss_K.size else None,
        "num_stragglers": len(diagnosis.stragglers) if compared else None,
        "straggler_slowdown": diagnosis.slowdown.S if diagnosis.slowdown else None,
        **_turn_values(diagnosis),
        **_drift_values(diagnosis, step_s),
        **_length_values(diagnosis),
        **_warmup_values(diagnosis, observed_s),
        **_shift_values(diagnosis),
        "compute_share": sum(c for c in compute if c is not None)
        if any(c is not None for c in compute)
        else None,
        "warmup_share": warmup.loss_s / observed_s if warmup and observed_s > 0 else None,
    }


def memory_values(filling: Filling | None) -> dict[str, object]:
    """Of the memory that is full first; all unknown where none fills."""
    if filling is None:
        return dict.fromkeys(("memory_share", "memory_left_s", "memory_span_s", "memory_words"))
    creep = filling.creep
    return {
        "memory_share": creep.share,
        "memory_left_s": creep.left_s,
        "memory_span_s": creep.span_s,
        "memory_words": filling.words,
    }


def _share(value: float | None, step_s: float | None) -> float | None:
    return value / step_s if value is not None and step_s else None


def _hiding_values(diagnosis: Diagnosis) -> dict[str, object]:
    transfer, mean_s = diagnosis.transfer, job_seconds(diagnosis.seconds_PR)
    forward_s, backward_s = mean_s["forward"], mean_s["backward"]
    if transfer is None or not transfer.gain.loss_s or forward_s is None or backward_s is None:
        return {"hideable_s": None, "hide_words": ""}
    total, exposed, _ = overlap_seconds(diagnosis)
    hidden = max(total - exposed, 0.0) if total is not None and exposed is not None else None
    most = hideable_s(transfer.gain.loss_s, forward_s + backward_s, hidden)
    words = f"; at most {seconds(most)} of it could be hidden behind forward and backward"
    return {"hideable_s": most, "hide_words": words if most < 0.9 * transfer.gain.loss_s else ""}


def _drift_values(diagnosis: Diagnosis, step_s: float | None) -> dict[str, object]:
    drift = diagnosis.input_drift
    return {
        "data_wait_first_s": drift.first_s if drift else None,
        "data_wait_last_s": drift.last_s if drift else None,
        "data_wait_growth_share": _share(drift.growth_s, step_s) if drift else None,
    }


def _turn_values(diagnosis: Diagnosis) -> dict[str, object]:
    """Lateness of no single rank: in stretches, and drawn anew each step."""
    turns, wanders = diagnosis.turn_taking, diagnosis.wandering
    compared = diagnosis.compared_rows.size > 1 and bool(diagnosis.steady.num_steps)
    share = 0.0 if compared else None
    values: dict[str, object] = {
        "turn_taking_s": turns.loss_s if turns else None,
        "turn_taking_share": turns.loss_s / turns.step_s if turns else None,
        "wandering_share": share,
        "wandering_share_low": share,
        **dict.fromkeys(("wandering_s", "wandering_steps", "wandering_since", "wandering_phase")),
        "wandering_words": "",
    }
    explained = diagnosis.lengths is not None and diagnosis.lengths.fit >= EXPLAINED_BY_TOKENS
    if wanders is not None and share is not None and not explained:
        loss = wandering_gain(diagnosis)
        whole = f", mostly {PHASE_WORDS.get(wanders.phase, wanders.phase)}" if wanders.phase else ""
        values |= {
            "wandering_s": loss.loss_s,
            "wandering_share": loss.loss_s / loss.step_s,
            "wandering_share_low": loss.loss_low_s / loss.step_s,
            "wandering_steps": round(wanders.found.stretch_steps),
            "wandering_since": wanders.since_step,
            "wandering_phase": wanders.phase,
            "wandering_words": f"{rank_words(wanders.ranks)}{whole if wanders.cover >= MIN_COVER else ''}",
        }
    return values


def wandering_gain(diagnosis: Diagnosis) -> Gain:
    """Of the window. ValueError where no lateness wanders."""
    if diagnosis.wandering is None:
        raise ValueError("no lateness wanders")
    cycle_K = diagnosis.steady_barrier.cycle_K
    return gain(cycle_K, diagnosis.wandering.found.loss_K[-cycle_K.size :])


def _length_values(diagnosis: Diagnosis) -> dict[str, object]:
    found = diagnosis.lengths
    if found is None:
        names = ("length_fit", "length_spread", "length_loss_s", "length_loss_share", "length_loss_share_low")
        return dict.fromkeys(names)
    return {
        "length_fit": found.fit,
        "length_spread": found.spread,
        "length_loss_s": found.gain.loss_s,
        "length_loss_share": found.gain.loss_s / found.gain.step_s,
        "length_loss_share_low": found.gain.loss_low_s / found.gain.step_s,
    }


def _warmup_values(diagnosis: Diagnosis, observed_s: float) -> dict[str, object]:
    warmup = diagnosis.steadiness.warmup
    if warmup is None:
        return {
            "warmup_steps": 0 if observed_s else None,
            "warmup_s": 0.0 if observed_s else None,
            "warmup_break_even_steps": None,
        }
    return {
        "warmup_steps": warmup.num_steps,
        "warmup_s": warmup.loss_s,
        "warmup_break_even_steps": warmup.loss_s / (BREAK_EVEN_SHARE * warmup.steady_step_s),
    }


def _shift_values(diagnosis: Diagnosis) -> dict[str, object]:
    """A longer step since some step, unless a straggler, the input or the network began just then."""
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
        }
    onsets = [entry.since_step for entry in diagnosis.stragglers]
    onsets += [since for since in (diagnosis.input_since, diagnosis.transfer_since) if since is not None]
    near = any(abs(onset - shift.since_step) <= LEVEL_SHIFT_EXPLAINED_STEPS for onset in onsets)
    return {
        "level_shift_share": shift.after_s / shift.before_s - 1 if shift.before_s > 0 else None,
        "level_shift_since": shift.since_step,
        "level_shift_unexplained": int(not near),
        "level_shift_phase": shift.phase,
        "level_shift_words": PHASE_WORDS.get(shift.phase, f"in {shift.phase}") if shift.phase else None,
        "level_shift_cover": shift.cover,
        "level_shift_steps": shift.num_steps,
    }


def straggler_subjects(diagnosis: Diagnosis, job: dict[str, object]) -> list[Subject]:
    """One subject a cause: ranks that are late for the same reason are one finding."""
    groups: dict[tuple[str, str], list[LateRank]] = {}
    for entry in diagnosis.stragglers:
        host = entry.host if entry.whole_host else ""
        groups.setdefault((entry.cause.name, host), []).append(entry)
    return [_straggler_subject(diagnosis, job, group) for group in groups.values()]


def _straggler_subject(diagnosis: Diagnosis, job: dict[str, object], group: list[LateRank]) -> Subject:
    cycle = diagnosis.steady_barrier.cycle_K
    worst = group[0]
    what_if = gain(cycle, np.sum([entry.late.loss_K for entry in group], axis=0))
    if worst.late.is_rare and len(group) == 1:
        what_if = worst.late.gain
    ranks = tuple(sorted(entry.rank for entry in group))
    hosts = tuple(sorted({entry.host for entry in group}))
    since = min(entry.since_step for entry in group)
    seen = all(entry.late.onset_seen for entry in group)
    cause = worst.cause
    phase = cause.name
    excess_s = max(entry.late.excess_s for entry in group)
    values: dict[str, object] = {
        **job,
        "ranks": f"host {worst.host}" if worst.whole_host else rank_words(ranks),
        "host": worst.host,
        "phase": phase,
        "phase_words": _words(worst),
        "loss_s": what_if.loss_s,
        "loss_share": what_if.loss_s / what_if.step_s,
        "loss_share_low": what_if.loss_low_s / what_if.step_s,
        "excess_s": excess_s,
        "excess_share": max(entry.late.mean_excess_s for entry in group) / what_if.step_s,
        "cover": cause.cover,
        "hit_share": max(entry.late.hit_share for entry in group),
        "score": min(entry.late.score for entry in group),
        "since": since,
        "steps_seen": int(cycle.size),
        "beyond_past": _least(entry.late.beyond_past for entry in group),
        "since_words": f"since step {since}" if seen else "from the first step compared on",
        "whole_host": int(worst.whole_host),
        "in_data": int(phase == "data_wait"),
        "in_compute": int(phase in COMPUTE),
        "in_host": int(phase in {"host", "device"}),
    }
    details: dict[str, float | int | str | None] = {
        f"excess_{name}_s": value
        for name, value in sorted(cause.parts.items(), key=lambda part: -part[1])
        if value > 0.05 * max(cause.parts.values())
    }
    details["onset_seen"] = int(seen)
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
    if cause.core_wait_s is not None:
        details["excess_core_wait_s"] = cause.core_wait_s
    if cause.unobserved:
        details["unobserved"] = ", ".join(cause.unobserved)
    return Subject("straggler", values, ranks, hosts, phase, what_if, details)


def _least(values: Iterable[float | None]) -> float | None:
    """The smallest; None where one is not known."""
    known = list(values)
    return None if None in known else min(value for value in known if value is not None)


def _words(entry: LateRank) -> str:
    if entry.whole_host:
        largest = max(entry.cause.parts, key=lambda name: (entry.cause.parts[name], name), default="other")
        return f"all its ranks alike, mostly {PHASE_WORDS.get(largest, largest)}"
    if entry.cause.is_collecting:
        return "while Python collects garbage"
    if (
        entry.cause.name == "host"
        and (entry.cause.core_wait_s or 0.0) >= MIN_COVER * entry.late.mean_excess_s
    ):
        return "ready to run but without a core, so on its host"
    clock = entry.cause.clock
    if clock is not None:
        why = f" ({', '.join(clock.reasons)})" if clock.reasons else ""
        return (
            f"on its device, which runs at {clock.mhz:.0f} MHz against {entry.cause.peers_mhz or 0:.0f}{why}"
        )
    if entry.cause.is_spread and entry.cause.name == "host":
        return "in all of its phases alike: its host or its device"
    words = PHASE_WORDS.get(entry.cause.name, f"in {entry.cause.name}")
    more = entry.cause.more
    return words if more is None else f"{words}, with {more.ratio:.2f} times the {more.unit} of the others"


def rank_words(ranks: tuple[int, ...]) -> str:
    """Words for ascending ranks: rank 2; ranks 1 and 3; ranks 1, 3, 5 and 9 more; ranks 192 to 255."""
    names = [str(rank) for rank in ranks]
    if len(names) == 1:
        return f"rank {names[0]}"
    if len(names) > 6 and ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"ranks {ranks[0]} to {ranks[-1]}"
    if len(names) > 6:
        return f"ranks {', '.join(names[:5])} and {len(names) - 5} more"
    return f"ranks {', '.join(names[:-1])} and {names[-1]}"
