"""The useful share of the time of the window, and what each named loss takes of it.

In: Diagnosis and the judged findings.  Out: Accounted, shares that sum to 1; None where the greatest part is not known.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tuiadvisor.advisor.judge.unseen import mostly_unseen_s, unseen_share
from tuiadvisor.causes.registry import CAUSES, cause_of, is_found
from tuiadvisor.metrics.steps.barrier import has_stages
from tuiadvisor.phases import PAUSES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tuiadvisor.advisor.judge.findings import Judged
    from tuiadvisor.causes.cause import Loss
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.metrics.pauses.pause import Pause

STAGE_WAITS: Final = ("pipeline_idle", "comm_exposed")
MAX_RANKS_IN_NAME: Final = 4  # of a part; more are counted


@dataclass(frozen=True, slots=True)
class Accounted:
    """The window's time, warm-up and pauses included."""

    value: float | None  # useful share
    losses: dict[str, float]  # shares; with the useful one 1
    elapsed_s: float = 0.0  # what the shares are of
    steady_s: float = 0.0  # of it, steady steps
    num_steady: int = 0
    of_steps: tuple[str, ...] = ()  # losses that each steady step has; the others are pauses and warm-up
    # Seconds before the window: of pauses of kinds that no record marks, and what steps lost as those of the window do.
    paused_before_s: dict[str, float] = field(default_factory=dict)
    lost_before_s: dict[str, float] = field(default_factory=dict)
    by_cores: str | None = (
        None  # of them the one that makes all of a step longer: no core was free, or a limit
    )
    unseen: float | None = (
        None  # share of the steady steps in code that no hook sees, useful or not; None: not known
    )

    @property
    def useful_step_s(self) -> float | None:
        """What a step would take without its losses."""
        if self.value is None or not self.num_steady:
            return None
        return self.value * self.elapsed_s / self.num_steady

    @property
    def steady(self) -> float | None:
        """Useful share of the steady steps alone."""
        if self.value is None or self.steady_s <= 0:
            return None
        return min(self.value * self.elapsed_s / self.steady_s, 1.0)


NOTHING: Final = Accounted(None, {})


def goodput(
    diagnosis: Diagnosis | None, judged: list[Judged], *, on_device: bool = False, is_alone: bool = False
) -> Accounted:
    """Useful share of the time of the window, pauses and warm-up included, and each loss as a share; together 1.

    on_device: what a thread waits for a core may be hidden behind its device, and is no loss that is known.
    is_alone: of a job of several only this rank was seen, and whether it waits for the others when it communicates
    nobody knows.
    Only steps of the present level count: what steps before a change lost is not known from those after it. Of pauses
    it was seen one by one, and of who was late in them already it shows in who came last.
    """
    if diagnosis is None or is_alone or _is_most_unknown(diagnosis, judged, on_device=on_device):
        return NOTHING
    steady_s = float(diagnosis.steady_barrier.cycle_K.sum())
    warmup = diagnosis.steadiness.warmup
    first = diagnosis.window_start  # pauses before a change of level say nothing of the time since
    lost = [float(pause.loss_K[first:].sum()) for pause in diagnosis.steadiness.pauses]
    elapsed = steady_s + sum(lost) + (0.0 if warmup is None else warmup.loss_s)
    if elapsed <= 0:
        return NOTHING
    losses: dict[str, float] = {}
    if warmup is not None:
        losses["warmup"] = warmup.loss_s / elapsed
    for pause, loss_s in zip(diagnosis.steadiness.pauses, lost, strict=True):
        if loss_s > 0:
            losses[_pause_name(diagnosis, pause)] = loss_s / elapsed
    scale = 1.0 if steady_s <= 0 else diagnosis.steady.num_steps / elapsed
    of_steps: dict[str, float] = {}
    lost_before_s: dict[str, float] = {}
    for loss in _step_losses(diagnosis, judged):
        # As checkpoints in steps beside those in pauses.
        kind = f"{loss.name}_in_step" if loss.name in losses else loss.name
        of_steps[kind] = of_steps.get(kind, 0.0) + loss.loss_s * scale
        lost_before_s[kind] = lost_before_s.get(kind, 0.0) + loss.before_s
    for kind, loss_s in _stage_losses(diagnosis, judged).items():
        of_steps[kind] = of_steps.get(kind, 0.0) + loss_s * scale
    of_steps |= _own_losses(judged, scale, 1 - sum(losses.values()) - sum(of_steps.values()))
    by_cores: dict[str, float] = {}
    if not on_device:
        by_cores = _lost_shares(judged, 1 - sum(losses.values()) - sum(of_steps.values()))
        of_steps |= by_cores
    losses |= of_steps
    total = sum(losses.values())
    if total > 1:  # overlapping estimates may not claim more than there was
        losses = {name: value / total for name, value in losses.items()}
        total = 1.0
    num_steady = diagnosis.steady.num_steps
    return Accounted(
        1 - total,
        losses,
        elapsed,
        steady_s,
        num_steady,
        tuple(of_steps),
        _paused_before_s(diagnosis, first),
        lost_before_s,
        max(by_cores, key=by_cores.__getitem__, default=None),
        None if on_device else unseen_share(diagnosis),
    )


def _paused_before_s(diagnosis: Diagnosis, first: int) -> dict[str, float]:
    """Seconds of pauses before column `first`; not of those whose phase the whole of the rank's time tells."""
    found: dict[str, float] = {}
    for pause in diagnosis.steadiness.pauses:
        loss_s = float(pause.loss_K[:first].sum())
        if pause.kind not in PAUSES and loss_s > 0:
            name = _pause_name(diagnosis, pause)
            found[name] = found.get(name, 0.0) + loss_s
    return found


def _explained_s(judged: list[Judged]) -> float:
    """Of the mean step, what the findings above info say is lost."""
    above = [entry.finding for entry in judged if entry.finding.severity != "info"]
    return sum(found.loss_s_per_step or 0.0 for found in above)


def _is_most_unknown(diagnosis: Diagnosis, judged: list[Judged], *, on_device: bool) -> bool:
    """Of a step: what it does, or how long it is; or of what it loses: what ranks wait within stages, or anywhere, or
    for one of which nothing is decided yet.
    """
    if not diagnosis.enough or (not on_device and mostly_unseen_s(diagnosis, _explained_s(judged))):
        return True
    above = [cause_of(entry.rule.id) for entry in judged if entry.finding.severity != "info"]
    if not above and diagnosis.num_missing_to_keep:  # so few since a change do not tell that nothing is lost
        return True
    is_told = any(_tells_loss(entry) for entry in judged)
    are_waits_unseen = diagnosis.job_seconds["comm_exposed"] is None and diagnosis.table.num_ranks > 1
    if not is_told and (diagnosis.open_late or are_waits_unseen):
        return True
    if are_waits_unseen and any(cause is not None and cause.in_stage_waits for cause in above):
        return True
    return diagnosis.job_seconds["pipeline_idle"] is None and has_stages(diagnosis.table)


def _tells_loss(entry: Judged) -> bool:
    """Whether it is above info and says what is lost: of a rank that is kept from running only a bound is known."""
    cause = cause_of(entry.rule.id)
    has_share = cause is not None and bool(cause.lost_share)
    return entry.finding.severity != "info" and (has_share or entry.finding.loss_s_per_step is not None)


def _step_losses(diagnosis: Diagnosis, judged: list[Judged]) -> Iterator[Loss]:
    """What each step loses."""
    rules = [entry.rule for entry in judged]
    for cause in CAUSES:
        if cause.counts_once_found and not is_found(cause, rules):
            continue
        loss = cause.loss(diagnosis)
        if loss is not None:
            yield loss


def _stage_losses(diagnosis: Diagnosis, judged: list[Judged]) -> dict[str, float]:
    """Seconds a step that the ranks of pipelines wait: for a heavy stage, and else for neighbours and in collectives.

    None of a job without stages, whose barrier tells them. Nothing tells who arrives last among
    stages, so a wait for another pipeline is in their collectives too.
    """
    if not has_stages(diagnosis.table):
        return {}
    waits = {
        kind: seconds
        for kind in STAGE_WAITS
        if (seconds := diagnosis.job_seconds[kind]) is not None and seconds > 0
    }
    # The slowest pipeline sets the pace: without its heavy stage the step is that much shorter, whoever waits where.
    heavy_s, heavy = max(
        (
            (entry.finding.loss_s_per_step or 0.0, entry.rule.id)
            for entry in judged
            if (cause := cause_of(entry.rule.id)) is not None and cause.in_stage_waits
        ),
        default=(0.0, ""),
    )
    if heavy_s <= 0:
        return waits
    left = max(1 - heavy_s / sum(waits.values()), 0.0) if waits else 0.0
    return {heavy: heavy_s} | {kind: seconds * left for kind, seconds in waits.items() if left > 0}


def _own_losses(judged: list[Judged], scale: float, left: float) -> dict[str, float]:
    """Kinds of loss that rules bring, within what no other kind has claimed: what overlaps is not known."""
    found: dict[str, float] = {}
    for entry in judged:
        loss_s = entry.finding.loss_s_per_step if entry.rule.own_loss else None
        share = min((loss_s or 0.0) * scale, left)
        if share > 0:
            found[entry.rule.id] = share
            left -= share
    return found


def _lost_shares(judged: list[Judged], left: float) -> dict[str, float]:
    """What makes all that a step does longer, as waiting for a core: the same share of what no other kind has claimed.

    At least that: within what the others have claimed a thread mostly sleeps, and is not ready to run.
    """
    found: dict[str, float] = {}
    for entry in judged:
        cause = cause_of(entry.rule.id)
        if cause is None or not cause.lost_share or entry.finding.severity == "info":
            continue
        seen = entry.finding.evidence.get(cause.lost_share)
        share = seen * left if isinstance(seen, float) else 0.0
        if share > 0:
            found[entry.rule.id] = share
            left -= share
    return found


def _pause_name(diagnosis: Diagnosis, pause: Pause) -> str:
    """What a loss to pauses is called: what is done in them, else who makes them."""
    if pause.kind in PAUSES:
        return pause.kind
    name = "periodic_pause" if pause.kind == "periodic" else "pause"
    ranks = [diagnosis.table.ranks[row] for row in pause.rows]
    return f"{name}_rank_{'_'.join(map(str, ranks[:MAX_RANKS_IN_NAME]))}" if ranks else name
