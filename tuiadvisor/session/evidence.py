"""What a run offers the session: named values, each with its window and how far to trust it.

In: RunView.  Out: Facts of one run, the values questions ask about, and configurations side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuiadvisor.phases import GROWING, computing
from tuiadvisor.scaling.batch import law_of_batches
from tuiadvisor.views.devices import num_devices
from tuiadvisor.views.measured import mean_known, watched
from tuiadvisor.views.names import limit_name
from tuiadvisor_rules.message import seconds

if TYPE_CHECKING:
    from tuiadvisor.scaling.batch import BatchLaw
    from tuiadvisor.views.goodput import Goodput
    from tuiadvisor.views.run_view import Finding, PastFinding, PauseView, RunView, StepSummary
    from tuiadvisor.views.stack_card import StackCard
EXPOSED_PART: Final = "exposed communication"  # in the words of a device's part


@dataclass(frozen=True, slots=True)
class Facts:
    """One run as the session sees it. None: not observed."""

    name: str
    num_devices: int | None
    num_hosts: int | None
    num_stages: int | None
    has_gpu: bool | None
    step_s: float | None
    step_slack: float  # share by which the mean step may be shorter than it was seen, with 95 %
    samples_per_step: float | None
    tokens_per_step: float | None
    shares: dict[str, float | None]
    seconds: dict[str, float | None]
    comm_total_s: float | None
    comm_exposed_s: float | None
    transfer_s: float | None
    skew_s: float | None
    hidden_s: float | None  # this and skew_sampled_s: of the steps that comm_total_s is of
    skew_sampled_s: float | None
    overlap: float | None
    goodput: float | None
    goodput_losses: dict[str, float]
    num_stragglers: int
    findings: tuple[Finding, ...]  # above info
    notes: tuple[Finding, ...]  # info
    window: str
    confidence: str  # high, medium or low, with the reason
    enough: bool
    why_undecided: str  # although there were steps enough
    unknown: tuple[tuple[str, str], ...]
    past: tuple[PastFinding, ...] = ()  # over by the end
    model: tuple[str, int] | None = None  # its class and parameters as the probe saw them in its lowest rank
    on_device_clock: bool = (
        False  # all figures are by it; so they are where the device is the host's own processor
    )
    gradient_bytes: int | None = None  # of a step and rank: the size of the model that is trained
    num_collectives: int | None = None  # of a step and rank
    backend: str | None = None
    disk_read_bytes_s: float | None = None  # of the host that reads most
    wall: Goodput | None = None
    useful_step_s: float | None = None  # of step_s; what a step would take without its losses
    startup_s: float | None = None  # from the start of the process to the first step
    checkpoint_share: float | None = None  # of step_s
    checkpoint_every_s: float | None = None  # of work, without the checkpoint itself
    has_checkpoint_steps: bool = False  # in its window, whether or not they are a pause of their own
    host_busy: float | None = None  # of the busiest host: share of all its processors, mean
    iowait: float | None = None
    disk_busy: float | None = None  # of the busiest disk of any host
    disk_reads_s: float | None = None  # operations, of the host that reads most
    device_busy: float | None = None  # mean over devices
    device_memory: float | None = None  # highest share of a device's memory
    alloc_retries: int | None = None
    device_power_w: float | None = None  # of one device, mean over all of them
    mfu: float | None = None
    mfu_why: str = ""  # it is unknown
    is_over: bool = False  # the recorded run has ended: going on means starting again
    has_ended: bool = False  # as that, or a trace: nothing can be asked of it any more
    is_imported: bool = (
        False  # from a trace or a log: what ran is over, and its next run is what can be recorded
    )
    has_kernels: bool = False  # of a trace, imported or beside the run
    # Of that trace, mean over its devices: why they do not compute, with the share of their time, and compute itself.
    device_parts: tuple[tuple[str, float], ...] = ()
    device_compute: float | None = None
    look: StackCard | None = (
        None  # the newest one at the stacks of a rank in question that tells what it does
    )
    num_sharing: int | None = None  # ranks, where there are more than devices, as under CUDA MPS

    @property
    def num_ranks(self) -> int | None:
        """How many exchange gradients; each has a device of its own unless it is known that they share."""
        return self.num_sharing or self.num_devices


def facts(
    name: str, view: RunView, gradient_bytes: int | None = None, num_collectives: int | None = None
) -> Facts:
    """Everything the session takes from one view."""
    step, speed = view.step, view.step.throughput_steps_s
    step_s = 1 / speed if speed else step.median_s
    whole = _all_ranks_counted(view)
    checkpoints = _checkpoints(view)
    ranks, devices = view.run.world_size or (len(view.ranks) or None), num_devices(view.rank_devices)
    shared = devices is not None and devices < len(view.rank_devices) == ranks
    seen = watched(view.hosts, view.alloc_retries, step.shares)
    return Facts(
        name=name,
        num_devices=devices if shared else ranks,
        num_sharing=ranks if shared else None,
        has_ended=bool(view.ended),
        is_imported=view.imported is not None,
        has_kernels=view.device_work is not None,
        device_parts=_device_parts(view),
        device_compute=mean_known(one.compute for one in view.device_work.ranks)
        if view.device_work
        else None,
        num_hosts=len(view.run.hosts) or None,
        num_stages=_num_stages(view),
        has_gpu=None if view.run.device is None else view.run.device.startswith("cuda"),
        step_s=step_s,
        step_slack=_slack(step),
        samples_per_step=_per_step(step.throughput_samples_s, speed) if whole else None,
        tokens_per_step=_per_step(step.throughput_tokens_s, speed) if whole else None,
        shares=dict(step.shares),
        seconds=dict(step.seconds),
        comm_total_s=view.overlap.comm_total_s,
        comm_exposed_s=view.overlap.comm_exposed_s,
        transfer_s=view.overlap.transfer_s,
        skew_s=view.overlap.skew_s,
        hidden_s=view.overlap.hidden_s,
        skew_sampled_s=view.overlap.skew_sampled_s,
        overlap=view.overlap.overlap,
        goodput=view.useful_share,
        goodput_losses=dict(view.goodput_losses),
        num_stragglers=len(view.stragglers),
        findings=tuple(finding for finding in view.findings if finding.severity != "info"),
        notes=tuple(finding for finding in view.findings if finding.severity == "info"),
        window=_window(view),
        confidence=confidence(view),
        enough=view.window.enough,
        why_undecided=view.window.why_undecided,
        on_device_clock=view.clock == "device" or view.run.device == "cpu",
        unknown=tuple((entry.metric, entry.why) for entry in view.unknown),
        past=view.past,
        gradient_bytes=gradient_bytes,
        model=_model(view),
        num_collectives=num_collectives,
        backend=view.run.backend,
        disk_read_bytes_s=max(
            (host.disk_read_bytes_s for host in view.hosts if host.disk_read_bytes_s is not None),
            default=None,
        ),
        wall=view.wall,
        useful_step_s=_useful_step_s(view, step_s),
        startup_s=view.wall.startup_s if view.wall else None,
        checkpoint_share=checkpoints.share if checkpoints else None,
        checkpoint_every_s=_checkpoint_every_s(checkpoints, step_s),
        has_checkpoint_steps=bool(view.window.excluded.get("checkpoint")),
        host_busy=seen.host_busy,
        iowait=seen.iowait,
        disk_busy=seen.disk_busy,
        disk_reads_s=seen.disk_reads_s,
        device_busy=seen.device_busy,
        device_memory=seen.device_memory,
        alloc_retries=seen.alloc_retries,
        device_power_w=_power(view),
        mfu=view.efficiency.mfu if view.efficiency else None,
        mfu_why=(view.efficiency.why or "") if view.efficiency else "",
        is_over=bool(view.ranks) and all(row.state in {"exited", "killed"} for row in view.ranks),
        look=_look(view),
    )


def _device_parts(view: RunView) -> tuple[tuple[str, float], ...]:
    """Longest first. Waiting in collectives for late ranks, where it is told, is theirs and in no part."""
    found: dict[str, float] = {}
    devices = view.device_work.ranks if view.device_work is not None else ()
    for one in devices:
        waits = (one.collective_wait_s or 0.0) / one.window_s
        for part in one.parts:
            share = max(part.share - waits, 0.0) if EXPOSED_PART in part.words else part.share
            found[part.words] = found.get(part.words, 0.0) + share / len(devices)
    return tuple(sorted(found.items(), key=lambda part: (-part[1], part[0])))


def _look(view: RunView) -> StackCard | None:
    """One at a rank of which nothing is found any more tells of the past."""
    in_question = {rank for found in view.findings if found.severity != "info" for rank in found.ranks}
    return next((card for card in view.cards if card.kind and card.rank in in_question), None)


def _model(view: RunView) -> tuple[str, int] | None:
    """FSDP2 puts its name before that of the class."""
    params = view.stack.number("params") if view.stack is not None else None
    name = view.stack.text("class").removeprefix("FSDP") if view.stack is not None else ""
    return (name, params) if name and params else None


def _slack(step: StepSummary) -> float:
    """0 where no interval is known: there the floor of what two runs differ by has to do."""
    if not step.mean_s or step.mean_low_s is None:
        return 0.0
    return min(max(1 - step.mean_low_s / step.mean_s, 0.0), 1.0)


def _power(view: RunView) -> float | None:
    """None unless every rank's device tells it."""
    told = [one.power_w for one in view.rank_devices]
    return mean_known(told) if told and None not in told and _all_ranks_counted(view) else None


def _checkpoints(view: RunView) -> PauseView | None:
    return next((pause for pause in view.pauses if pause.kind == "checkpoint"), None)


def _checkpoint_every_s(found: PauseView | None, step_s: float | None) -> float | None:
    if found is None or not found.period_steps or step_s is None:
        return None
    return found.period_steps * step_s * (1 - (found.share or 0.0))


def _useful_step_s(view: RunView, step_s: float | None) -> float | None:
    """What a step would take without its losses and without pauses."""
    steady_s = view.step.mean_s or view.step.median_s
    if view.wall is None or view.wall.steady is None or steady_s is None or step_s is None:
        return None
    return min(view.wall.steady * steady_s, step_s)


def _num_stages(view: RunView) -> int | None:
    """Pipeline stages; one where data parallelism accounts for every rank."""
    parallel = view.run.parallel
    if "pp" in parallel:
        return parallel["pp"]
    return 1 if parallel.get("dp") is not None and parallel.get("dp") == view.run.world_size else None


def _all_ranks_counted(view: RunView) -> bool:
    """Whether samples a second are those of the whole job: a rank that was not recorded is missing from the sum."""
    counted = sum(row.step_s is not None for row in view.ranks)
    return not view.losses.ranks_missing and view.run.world_size in {None, counted}


def _per_step(rate: float | None, steps_s: float | None) -> float | None:
    return rate / steps_s if rate and steps_s else None


def _window(view: RunView) -> str:
    window = view.window
    if window.first_step is None or window.last_step is None:
        return "no steady step"
    return f"steps {window.first_step:,} to {window.last_step:,}, {window.num_steps:,} steady"


def confidence(view: RunView) -> str:
    """How far the run's numbers may be trusted, and why not further."""
    if not view.window.enough:
        return f"low: {view.window.why_not_enough}"
    lost = view.losses
    gaps = []
    if lost.ranks_missing:
        gaps.append(f"{len(lost.ranks_missing) + lost.ranks_missing_more} ranks were not recorded")
    if lost.events_dropped or lost.frames_lost or lost.frames_bad:
        gaps.append("records were lost")
    if lost.hooks_disabled:
        gaps.append("a hook switched itself off")
    return f"medium: {', '.join(gaps)}" if gaps else "high: enough steady steps, nothing lost"


def parts_sum_s(run: Facts) -> float | None:
    """The step as the sum of its parts; the step itself where none is known."""
    return sum(part for part in run.seconds.values() if part is not None) or run.step_s


def holds_pauses(run: Facts) -> bool:
    """Whether the step that hours are reckoned by is another than the steady one: with the pauses between steps."""
    steady_s = parts_sum_s(run)
    return run.step_s is not None and steady_s is not None and seconds(steady_s) != seconds(run.step_s)


def step_words(run: Facts) -> str | None:
    """The one place that says what a step takes: the steady one, which parts are of, and the one with pauses."""
    if run.step_s is None:
        return None
    if not holds_pauses(run):
        return seconds(run.step_s)
    return f"{seconds(parts_sum_s(run) or 0.0)} steady, {seconds(run.step_s)} pauses included"


def steps_of(run: Facts) -> str:
    """Of which steps `Facts.step_s` is."""
    return f"{run.window}, pauses included" if holds_pauses(run) else run.window


def share_of_step(run: Facts, value_s: float | None) -> float | None:
    """A part of the step as a share of it: of the parts' sum, as the table of the step has it.

    The pauses between the steps, and the two ends of a short window, are in its length alone.
    """
    whole_s = parts_sum_s(run)
    return None if value_s is None or not whole_s else value_s / whole_s


def compute_share(run: Facts) -> float | None:
    """Share of the step in forward, backward and optimizer; None when one of them was not seen."""
    return computing(run.shares)


def named_values(run: Facts, others: tuple[Facts, ...]) -> dict[str, object]:
    """The evidence that a question's `when` may name."""
    sizes = {entry.num_devices for entry in (run, *others) if entry.num_devices is not None}
    warmup = next((entry.evidence.get("warmup_s") for entry in run.notes if entry.id == "warmup"), None)
    return {
        "num_devices": run.num_ranks,
        "num_hosts": run.num_hosts,
        "num_runs": 1 + len(others),
        "num_sizes": len(sizes),
        "step_s": run.step_s,
        "data_wait_share": run.shares.get("data_wait"),
        "comm_exposed_share": run.shares.get("comm_exposed"),
        "transfer_share": share_of_step(run, run.transfer_s),
        "skew_share": share_of_step(run, run.skew_s),
        "compute_share": compute_share(run),
        "checkpoint_share": run.shares.get("checkpoint"),
        "other_share": run.shares.get("other"),
        "pipeline_idle_share": run.shares.get("pipeline_idle"),
        "warmup_s": warmup,
        "num_stragglers": run.num_stragglers if run.enough else None,
        "num_stages": run.num_stages,
        "has_gpu": None if run.has_gpu is None else int(run.has_gpu),
        "goodput": run.goodput,
        "host_busy": run.host_busy,
        "iowait": run.iowait,
        "device_busy": run.device_busy,
        "device_memory": run.device_memory,
        "alloc_retries": run.alloc_retries,
    }


def fixed_and_growing(run: Facts) -> tuple[float, float] | None:
    """(seconds of a step that no batch changes, seconds that grow where compute and input do); None: cannot be told.

    Fixed: the exchange once everyone is there and the optimizer. Waiting for late ranks is neither. What a late rank
    itself spends stands within the growing phases, and one batch does not show whether it grows: see `late_parts`.
    """
    if late_parts(run):
        return None
    transfer = run.transfer_s if run.transfer_s is not None else run.seconds.get("comm_exposed")
    if transfer is None and run.num_ranks == 1:
        transfer = 0.0  # there is nobody to exchange with
    growing = [run.seconds.get(name) for name in GROWING]
    found = [value for value in growing if value is not None]
    if not found or transfer is None:
        return None
    return transfer + (run.seconds.get("optimizer") or 0.0), sum(found)


def late_parts(run: Facts) -> tuple[Finding, ...]:
    """What makes ranks late within the phases that are taken to grow with the batch: it may be as long at any."""
    return tuple(
        found for found in run.findings if found.ranks and found.loss_s_per_step and found.phase in GROWING
    )


def batch_law(run: Facts, others: tuple[Facts, ...]) -> BatchLaw | None:
    """What a batch costs by recordings of several at this number of devices; None where there is one batch, or no line.

    others: of the same work; another model's samples are no measure of this one's.
    """
    measured = sorted(
        (one.samples_per_step, one.step_s)
        for one in (run, *others)
        if one.num_devices == run.num_devices and one.samples_per_step and one.step_s
    )
    if run.num_devices is None or len({batch for batch, _ in measured}) < 2:
        return None
    found = law_of_batches(run.num_devices, None, measured)
    return None if found.fixed_s is None or found.per_sample_s is None else found


def measured_parts(run: Facts, others: tuple[Facts, ...]) -> tuple[float, float] | None:
    """As `fixed_and_growing`, by the batches that were recorded; None where they do not tell."""
    law = batch_law(run, others)
    if law is None or law.fixed_s is None or law.per_sample_s is None or run.samples_per_step is None:
        return None
    return max(law.fixed_s, 0.0), law.per_sample_s * run.samples_per_step


def gain_of_twice(parts: tuple[float, float]) -> float:
    """Times the samples a second at twice the batch, of its (fixed, growing) seconds."""
    fixed, growing = parts
    return 2 * (fixed + growing) / (fixed + 2 * growing) if growing else 2.0


def compute_to_communication(run: Facts, *, of_exposed: bool = False) -> tuple[float, str] | None:
    """Compute against communication in a step, and against which; None when one was not seen or is zero.

    of_exposed: against what is exposed although all of it was seen, beside runs of which it was not.

    Waiting for a late rank moves no data: with more devices it is neither more nor less.
    """
    compute = computing(run.seconds)
    total_s, skew_s = run.comm_total_s, run.skew_sampled_s
    moving_s = None if total_s is None or skew_s is None or of_exposed else max(total_s - skew_s, 0.0)
    for spent, which in (
        (moving_s, "all communication, waiting for late ranks left out"),
        (run.transfer_s, "exposed communication, waiting for late ranks left out"),
    ):
        if spent and compute:
            return compute / spent, which
    return None


def largest_parts(run: Facts) -> list[tuple[str, float, float | None]]:
    """(phase, seconds, share) of the step, longest first."""
    parts = [(name, value, run.shares.get(name)) for name, value in run.seconds.items() if value]
    return sorted(parts, key=lambda part: (-part[1], part[0]))


def part_words(part: tuple[str, float, float | None]) -> str:
    """A phase with its time and share: forward 12 ms (40 %)."""
    name, spent, share = part
    percent = "" if share is None else f" ({100 * share:.0f} %)"
    return f"{limit_name(name)} {seconds(spent)}{percent}"
