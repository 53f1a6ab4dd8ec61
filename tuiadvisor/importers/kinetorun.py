"""Profiler traces of a job as a run: the document of `import kineto`, and each rank's steps for a recording.

In: a folder's path.  Out: ImportedRun. NoStepsError where no trace has a step, NotOneRunError where they are of several
runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tuiadvisor.importers.devicework import recorded_work
from tuiadvisor.importers.imported import ImportedRank, ImportedRun, NoStepsError, NotOneRunError
from tuiadvisor.importers.kineto_gaps import between_neighbours
from tuiadvisor.importers.kinetoreport import look_at
from tuiadvisor.importers.slices import MAX_SLICES, DeviceSlices, device_slices, with_slices
from tuiadvisor.importers.stepmarks import numbered
from tuiadvisor.importers.tracesteps import MAX_CALLS, RankRows, rank_rows
from tuiadvisor.importers.tracework import arithmetic
from tuiadvisor.metrics.steps.step_alignment import MIN_MATCHES
from tuiadvisor.metrics.traces.collective_alignment import SILENT
from tuiadvisor.metrics.traces.op_table import counted, named

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tuiadvisor.events import MeasuredPeak
    from tuiadvisor.importers.imported import Progress
    from tuiadvisor.importers.kinetoreport import Looked
    from tuiadvisor.importers.rank_trace import RankTrace
    from tuiadvisor.metrics.traces.collective_arrival import Arrivals

NO_STEPS: Final = (
    "no trace has ProfilerStep marks, so there are no steps for a recording: call prof.step() after each step"
)


def kineto_run(
    path: Path, measured: tuple[MeasuredPeak, ...] = (), progress: Progress | None = None
) -> tuple[dict[str, Any], ImportedRun]:
    """(the import's document, the run)."""
    rows: dict[str, RankRows] = {}
    launched: set[str] = set()
    slices: dict[str, DeviceSlices] = {}
    names: dict[str, int] = {}

    def keep(trace: RankTrace) -> None:
        if trace.num_processes == 1 and trace.work is not None:
            rows[trace.file] = rank_rows(trace, trace.work.runs())
            slices[trace.file] = device_slices(trace, numbered(trace.steps), names, MAX_SLICES)
            if trace.comm or trace.linked.any():
                launched.add(trace.file)

    looked = look_at(path, measured, keep, progress)
    run = _run(path, looked, rows, launched)
    return looked.document, with_slices(run, _of_ranks(run, looked, slices), names)


def _of_ranks(run: ImportedRun, looked: Looked, slices: dict[str, DeviceSlices]) -> dict[int, DeviceSlices]:
    """By rank; a single trace that does not say which it is of stands as rank 0."""
    kept = {one.rank for one in run.ranks}
    found = {trace.rank or 0: slices[trace.file] for trace in looked.folder.traces if trace.file in slices}
    return {rank: those for rank, those in found.items() if rank in kept}


def _chosen(
    path: Path, looked: Looked, rows: dict[str, RankRows]
) -> tuple[list[RankTrace], dict[str, int], list[str]]:
    """(the traces that become the recording, the rank of each file, what is said of the others)."""
    traces = looked.folder.traces
    with_steps = [trace for trace in traces if trace.file in rows and rows[trace.file].steps]
    if not with_steps:
        merged = [trace for trace in traces if trace.num_processes > 1]
        why = f"{merged[0].file} {merged[0].why_no_rank}" if merged else NO_STEPS
        raise NoStepsError(f"{path}: {why}", looked.document)
    if looked.of_jobs:
        raise NotOneRunError(f"{path}: {looked.of_jobs}")
    notes = []
    chosen = [trace for trace in with_steps if trace.file in looked.one_each]
    ranks = {trace.file: trace.rank or 0 for trace in chosen}
    if len(traces) == 1 and not chosen:
        chosen, ranks = with_steps, {with_steps[0].file: 0}
        notes.append(
            "the trace does not say which rank it is of: it stands as rank 0; a name like rank3.json says it"
        )
    if not chosen:
        raise NotOneRunError(
            f"{path}: {len(traces)} traces do not say of which ranks they are: name each by its rank, as rank0.json"
        )
    left = [trace.file for trace in traces if trace.file not in ranks]
    if left:
        notes.append(f"left out, without steps, of no known rank or of an earlier time: {named(left)}")
    few = [ranks[trace.file] for trace in chosen if len(rows[trace.file].steps) < MIN_MATCHES]
    if few and len(chosen) > 1:
        notes.append(
            f"ranks of fewer than {MIN_MATCHES} steps are not compared with the others: {named(few)}"
        )
    beyond = sum(rows[trace.file].num_left_out for trace in chosen)
    if beyond:
        notes.append(
            f"not recorded one by one, beyond {MAX_CALLS} of a rank: {counted(beyond, 'collective')}"
        )
    notes += _unseen(chosen, rows)
    notes += [f"lost: {loss}" for loss in looked.document["losses"]]
    return chosen, ranks, notes


def _run(path: Path, looked: Looked, rows: dict[str, RankRows], launched: set[str]) -> ImportedRun:
    traces, document = looked.folder.traces, looked.document
    chosen, ranks, notes = _chosen(path, looked, rows)
    found = looked.arrivals
    compared = found is not None and found.num_collectives > 0
    offsets = {row.rank: row.clock_offset_ns for row in found.ranks} if found is not None else {}
    # Ranks of one host have one clock: where it is not known for some, no rank is put on its host.
    alone = len(chosen) == 1
    on_named_hosts = all(
        trace.machine and _shift(offsets.get(ranks[trace.file]), alone=alone) is not None for trace in chosen
    )
    on_device = any(rows[trace.file].events for trace in chosen)
    return ImportedRun(
        kind="kineto",
        source=path.name or str(path),
        words="PyTorch Profiler traces, by the devices' clocks"
        if on_device
        else "PyTorch Profiler traces of CPUs",
        ranks=tuple(
            ImportedRank(
                ranks[trace.file],
                rows[trace.file].steps,
                rows[trace.file].events,
                _device(rows[trace.file], is_cuda=trace.file in launched),
                _shift(offsets.get(ranks[trace.file]), alone=alone),
                host=trace.machine if on_named_hosts else "",
                software=trace.software,
                compute_device=_compute_device(trace),
            )
            for trace in chosen
        ),
        world_size=document["run"]["world_size"],
        late_ranks=_late(document, found) if compared else None,
        because=document["stragglers"]["because"],
        says=". ".join(document["says"]) or document["stragglers"]["because"],
        notes=tuple(notes),
        parallel={"pp": document["run"]["world_size"] or len(chosen)} if between_neighbours(traces) else {},
        device=recorded_work(document, ranks),
        arithmetic=arithmetic(document),
        steps_tell=not on_device and looked.steps_tell,
        waits_share=found.waits_share if compared and found is not None else None,
        uncompared=() if between_neighbours(traces) else _uncompared(looked),
    )


def _unseen(chosen: Sequence[RankTrace], rows: dict[str, RankRows]) -> list[str]:
    """Steps of which the device's part is not there: what it did in them is neither useful nor idle, but unknown."""
    return [
        f"lost: {trace.file}: nothing of the device in {counted(len(unseen), 'step')} ({named(list(unseen))}): "
        "not judged"
        for trace in chosen
        if (unseen := rows[trace.file].unseen)
    ]


def _late(document: dict[str, Any], found: Arrivals | None) -> tuple[int, ...]:
    """Whom the comparison names, and whom it saw late behind those: the steps may name these, too."""
    named = tuple(row["rank"] for row in document["stragglers"]["ranks"])
    return named + (found.behind if found is not None else ())


def _uncompared(looked: Looked) -> tuple[int, ...]:
    """Ranks that communicate and whose clock nothing ties to the others'; where no two are tied, all of them."""
    rows = () if looked.arrivals is None else looked.arrivals.ranks
    apart = [row.rank for row in rows if row.clock_offset_ns is None and row.why_not != SILENT]
    return tuple(row.rank for row in rows) if apart and len(apart) >= len(rows) - 1 else tuple(apart)


def _compute_device(trace: RankTrace) -> dict[str, int | str]:
    """As torch told it: of ranks with unlike ones a finding says so."""
    told = {"device_name": trace.device_name, "multiprocessors": trace.num_multiprocessors}
    return {name: value for name, value in told.items() if value is not None}


def _shift(offset_ns: int | None, *, alone: bool) -> int | None:
    if alone:
        return 0
    return None if offset_ns is None else -offset_ns


def _device(rows: RankRows, *, is_cuda: bool) -> str:
    """As torch calls it; ROCm's are cuda there, too."""
    if not rows.events:
        return "cpu"
    return "cuda" if is_cuda else "accelerator"
