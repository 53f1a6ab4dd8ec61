"""Recordings as the sizes of a scaling analysis: several as a table, one as the parts of its step.

In: recordings.  Out: a Table for `scaling.analysis`, or Parts for `scaling.onerun`. What could not be observed is
refused, never guessed: an unknown batch hides whether the work grew with the devices.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tuiadvisor import phases
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.scaling.columns import STEP
from tuiadvisor.scaling.onerun import Parts
from tuiadvisor.scaling.table import Row, Table, normal_layout, printable
from tuiadvisor.session.evidence import facts, steps_of
from tuiadvisor.session.machine import Machine
from tuiadvisor.views.devices import num_devices
from tuiadvisor_rules.message import seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.session.evidence import Facts
    from tuiadvisor.session.recorded import Recorded
    from tuiadvisor.views.run_view import RunView

COMPUTE: Final = tuple(name for name in phases.of_kind("copy", "compute") if name in phases.GROWING)
OTHER_WORK: Final = 0.01  # gradients that differ by more are another model's
SMALL_BYTES: Final = 8 << 10  # up to here an all-reduce is latency alone
LARGE_FAULT: Final = 0.1  # of the step: the curve would be drawn through a fault
MOST_TOLD: Final = 8  # recordings of which a note says of which steps their figures are
OF_SIZE: Final = {"comm_exposed"}  # what a finding may be about and yet be a matter of size


def table_of(runs: Sequence[Recorded]) -> Table:
    """One row a recording; those of which too little is known are left out and named in the notes.

    Raises TuiadvisorError when no two recordings are of the same work.
    """
    usable: list[tuple[Recorded, Facts]] = []
    notes: list[str] = []
    for run in runs:
        known = facts(run.name, run.view, run.gradient_bytes)
        why = why_unusable(run.view, known)
        if why:
            notes.append(f"{printable(run.name)} is left out: {why}")
            continue
        usable.append((run, known))
        notes += _faults(known)
    if not usable:
        raise TuiadvisorError("; ".join(notes))
    if any(known.num_hosts == 1 and not known.has_gpu for _, known in usable):
        notes.append(
            "ranks that share the processors of one host: more of them than cores is not more devices"
        )
    works = _works(usable)
    if len(set(works)) > 1 and max(Counter(works).values()) == 1:
        told = ", ".join(
            f"{printable(run.name)}: {work}" for (run, _), work in zip(usable, works, strict=True)
        )
        raise TuiadvisorError(
            f"no two recordings are of the same work ({told}): record one training at two sizes"
        )
    several = len(set(works)) > 1
    if any(not run.gradient_bytes for run, _ in usable):
        notes.append("the size of the gradients was not observed everywhere: taken as one training")
    told_of = [f"{printable(run.name)}: {steps_of(known)}" for run, known in usable[:MOST_TOLD]]
    notes.append(f"step_s is of {'; '.join(told_of)}{'; and more' if len(usable) > MOST_TOLD else ''}")
    layouts = [_layout(run.view) for run, _ in usable]
    rows = tuple(
        Row(
            line=place,
            devices=known.num_devices or 0,
            value=known.step_s,
            global_batch=known.samples_per_step,
            layout=layout if len(set(layouts)) > 1 else None,
            label=work if several else None,
        )
        for place, ((_, known), work, layout) in enumerate(zip(usable, works, layouts, strict=True), 1)
    )
    doubt = next((fault for _, known in usable for fault in _faults(known, LARGE_FAULT)), None)
    return Table(f"{len(rows)} recordings", STEP, rows, tuple(notes), doubt)


def parts_of(run: Recorded, machine: Machine | None = None) -> Parts:
    """The parts of one run's step. TuiadvisorError where they do not say how it would scale."""
    known, view = facts(run.name, run.view, run.gradient_bytes, run.num_collectives), run.view
    name = printable(run.name)
    why = why_unusable(view, known, needs_batch=False)
    if why:
        raise TuiadvisorError(f"{name}: {why}")
    layout = _layout(view)
    if layout != "data parallel":
        raise TuiadvisorError(
            f"{name}: its layout is {layout}; one run shows how data parallelism scales, "
            "give one recording of each size"
        )
    if view.run.device is None or (known.num_hosts == 1 and not known.has_gpu):
        raise TuiadvisorError(
            f"{name}: its ranks share the processors of one host, so one size says nothing about another; "
            "give one recording of each size"
        )
    if known.num_devices != 1 and (known.transfer_s is None or known.skew_s is None):
        raise TuiadvisorError(
            f"{name}: who waits for whom was not observed, so communication cannot be told from waiting; "
            "give one recording of each size"
        )
    return replace(_parts(view, known), latency_s=_latency_s(known, machine or Machine()))


def _latency_s(known: Facts, machine: Machine) -> float | None:
    """Seconds of a step's exchange that are latency, by the benchmark on the same kind of link; None: not measured."""
    network = machine.network_for(known.num_devices, known.num_hosts)
    ranks = known.num_devices or 0
    if network is None or known.num_collectives is None or known.backend != "nccl" or ranks < 2:
        return None
    size, message_s = network.rows[0]
    if size > SMALL_BYTES or (network.num_ranks or 0) < 2:
        return None
    return known.num_collectives * message_s * (ranks - 1) / ((network.num_ranks or ranks) - 1)


def _parts(view: RunView, known: Facts) -> Parts:
    step_s, devices = known.step_s or 0.0, known.num_devices or 1
    compute = sum(known.seconds.get(name) or 0.0 for name in COMPUTE)
    data_wait, transfer, skew = (
        known.seconds.get("data_wait") or 0.0,
        known.transfer_s or 0.0,
        known.skew_s or 0.0,
    )
    a_host = max(Counter(row.host for row in view.ranks).values(), default=devices)
    devices_seen = [len(host.gpus) for host in view.hosts if host.gpus]
    return Parts(
        devices=devices,
        num_hosts=known.num_hosts or 1,
        devices_a_host=a_host,
        room_a_host=max(a_host, *devices_seen) if devices_seen else None,
        step_s=step_s,
        compute_s=compute,
        backward_s=known.seconds.get("backward") or 0.0,
        transfer_s=transfer,
        hidden_s=known.hidden_s,
        skew_s=skew,
        data_wait_s=data_wait,
        # The rest, so that the parts are the step: optimizer, logging, Python, what no hook saw.
        fixed_s=max(step_s - compute - data_wait - transfer - skew, 0.0),
        global_batch=known.samples_per_step,
        steps=steps_of(known),
    )


def why_unusable(view: RunView, known: Facts, *, needs_batch: bool = True) -> str:
    """Why a recording says nothing about its size; empty if it does."""
    if not known.enough or known.step_s is None:
        return view.window.why_not_enough or "no steady step was seen"
    if view.run.world_size is None:
        return "how many ranks the job has was not observed"
    devices = num_devices(view.rank_devices)
    if devices is not None and devices < len(view.rank_devices):
        return (
            f"{len(view.rank_devices)} ranks share {devices} device{'s' * (devices != 1)}: what a device for each "
            "would bring was not measured"
        )
    if needs_batch and known.samples_per_step is None:
        return (
            "samples a step were not observed, so nothing says whether the batch grew with the devices; "
            "write a table with devices, step_s and global_batch"
        )
    return ""


def _works(usable: Sequence[tuple[Recorded, Facts]]) -> list[str]:
    """What each recording trains, in words that are equal for the same work."""
    seen: list[int] = []
    works = []
    for run, _ in usable:
        size = run.gradient_bytes
        model = "model of unknown size"
        if size:
            same = next((other for other in seen if abs(size / other - 1) <= OTHER_WORK), None)
            if same is None:
                seen.append(size)
            model = f"{(same or size) / 1e6:.4g} MB of gradients"
        works.append(f"{model} on {run.view.run.device or 'an unknown device'}")
    return works


def _layout(view: RunView) -> str:
    """Everything but the data-parallel degree."""
    sizes = [f"{name}{size}" for name, size in sorted(view.run.parallel.items()) if size > 1]
    return normal_layout(" ".join(sizes))


def _faults(known: Facts, least: float = 0.0) -> list[str]:
    """What made this size slow without being a matter of size; least: of the step."""
    return [
        f"{printable(known.name)}: its step holds {seconds(finding.loss_s_per_step)} of {finding.id}, which is no "
        "matter of size: fix it first, or it is read as one"
        for finding in known.findings
        if finding.loss_s_per_step
        and finding.phase not in OF_SIZE
        and finding.loss_s_per_step >= least * (known.step_s or 0.0)
    ]
