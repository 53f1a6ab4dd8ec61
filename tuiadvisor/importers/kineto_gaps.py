"""What a job's traces do not tell, what of them was left out, and what makes their ranks unlike.

In: the traces, what their events come to, and who arrives last.  Out: sentences of the document.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from tuiadvisor.importers.kernelnames import POINT_TO_POINT
from tuiadvisor.importers.stepmarks import numbered
from tuiadvisor.metrics.traces.op_table import counted, named

if TYPE_CHECKING:
    from collections import Counter

    from tuiadvisor.importers.kineto import TraceFolder
    from tuiadvisor.importers.kineto_rows import Measured
    from tuiadvisor.importers.rank_trace import RankTrace
    from tuiadvisor.metrics.traces.collective_arrival import Arrivals

MAX_KINDS: Final = 4  # of devices, in a sentence
MAX_NUMBERS: Final = 1000  # of steps in a row without a mark
NO_TIME: Final = 0.1  # of a step: as the waterfall's
LEAST_DROPPED: Final = 0.01  # of the launches: in public traces it is none
# Counts of a trace: field, what the count is of, and what became of those.
LEFT_OUT: Final = (
    ("num_dropped", "device event", "device events", "without a usable time, dropped"),
    ("num_marks_dropped", "mark of a step", "marks of steps", "without a usable time, dropped"),
    ("num_halves_lost", "event", "events", "with a begin or an end alone, left out"),
)


def what_is_unknown(
    folder: TraceFolder,
    times: dict[str, Measured],
    world: int | None,
    found: Arrivals | None,
    missing: list[int],
) -> list[dict[str, str]]:
    """The document's `unknown`: a metric and why, rank by rank."""
    unknown = []
    for trace in folder.traces:
        who = trace.file if trace.rank is None else f"rank {trace.rank}"
        if trace.host is not None or trace.num_processes > 1:
            pass
        elif not times[trace.file].num_events:
            why = f"{who}: no GPU events in its trace: a training on a CPU, or only the CPU was profiled"
            unknown.append({"metric": "time on the device", "why": why})
        elif not trace.comm and (world or 1) > 1:
            why = f"{who}: {counted(world or 0, 'rank')} in the job but no communication kernel recognised by name"
            unknown.append({"metric": "overlap", "why": why})
        elif not trace.comm:
            unknown.append({"metric": "overlap", "why": f"{who}: no communication in its trace"})
        if trace.guessed:
            why = f"{who}: counted as communication by their look only: {named(sorted(trace.guessed))}"
            unknown.append({"metric": "communication kernels", "why": why})
        if trace.rank is None:
            unknown.append({"metric": "rank", "why": f"{trace.file} {trace.why_no_rank}"})
    if missing:
        # Without a world size the ranks here are all that is known of it.
        highest = max(trace.rank for trace in folder.traces if trace.rank is not None)
        total = world or f"at least {highest + 1}"
        have = "has" if len(missing) == 1 else "have"
        why = f"{len(missing)} of {total} ranks {have} no trace here: {named(missing)}"
        unknown.append({"metric": "late rank", "why": why})
    is_known = found is None or between_neighbours(folder.traces)  # why, which is said once
    clocks = [] if found is None or is_known else [row for row in found.ranks if row.why_not]
    return unknown + [{"metric": "clock", "why": f"rank {row.rank}: {row.why_not}"} for row in clocks]


def what_was_lost(
    folder: TraceFolder, counts: Counter[int | None], found: Arrivals | None, one_each: frozenset[str]
) -> list[str]:
    """The document's `losses`. counts: files of each rank; one_each: those that are compared."""
    losses = [
        f"{trace.file}: {counted(num, one, several)} {what}"
        for attribute, one, several, what in LEFT_OUT
        for trace in folder.traces
        if (num := getattr(trace, attribute))
    ]
    losses += [
        f"{trace.file}: {name} is no step: the trace ends {1e-6 * dur:.3g} ms into it, before anything began in it"
        for trace in folder.traces
        for name, _, dur in trace.stubs
    ]
    losses += [f"{trace.file}: {said}" for trace in folder.traces if (said := _dropped(trace))]
    losses += [f"{trace.file}: {said}" for trace in folder.traces if (said := _without_marks(trace))]
    losses += [
        f"{trace.file}: its list of events has no end: what would follow the last one is not known"
        for trace in folder.traces
        if trace.is_open
    ]
    if found is not None and found.num_left_out:
        num_all = found.num_left_out + found.num_collectives
        losses.append(
            f"{found.num_left_out} of {num_all} collectives {'does' if found.num_left_out == 1 else 'do'} not end "
            "together on their ranks: left out of who waits"
        )
    twice = sorted(rank for rank, count in counts.items() if rank is not None and count > 1)
    if twice and {trace.rank for trace in folder.traces if trace.file in one_each} >= set(twice):
        num = counts[twice[0]]
        return [*losses, f"each rank has {num} files, one after the other: the last of each is compared"]
    return losses + [f"rank {rank} has {counts[rank]} files: not compared with other ranks" for rank in twice]


def _without_marks(trace: RankTrace) -> str:
    """Steps that are not there, between others that are, though the time for them is."""
    steps = numbered(trace.steps)
    missing = [
        number
        for (one, _, end), (other, begin, ended) in pairwise(steps)
        if other > one + 1 and begin - end >= NO_TIME * (other - one - 1) * (ended - begin)
        for number in range(one + 1, min(other, one + 1 + MAX_NUMBERS))
    ]
    if not missing:
        return ""
    of = f"{counted(len(missing), 'step')} ({named(missing)})"
    return f"no mark of {of} between others: what was done then is not judged"


def _dropped(trace: RankTrace) -> str:
    """That kernels which ran are not in the trace, by what the profiler says or by launches without any."""
    num, num_all = trace.num_without_kernel
    if trace.said_dropped:
        found = f"the profiler dropped {counted(trace.said_dropped, 'record')} of the device"
    elif num and num >= LEAST_DROPPED * num_all:
        found = f"{num:,} of {num_all:,} launched kernels are not in it: dropped, or captured by a graph"
    else:
        return ""
    return f"{found}; what it shows as idle may have been work, and overlap more or less than it shows"


def unlike_devices(traces: tuple[RankTrace, ...]) -> list[str]:
    """That ranks have devices of different sizes, as parts of one or other models; one sentence, or none."""
    ranks_of: dict[tuple[str, int], list[int]] = {}
    for trace in traces:
        if trace.rank is not None and trace.num_multiprocessors is not None:
            key = (trace.device_name or "a device of unknown name", trace.num_multiprocessors)
            ranks_of.setdefault(key, []).append(trace.rank)
    if len(ranks_of) < 2:
        return []
    said = [
        f"{name} with {number} multiprocessors on rank{'s' * (len(ranks) > 1)} {named(ranks)}"
        for (name, number), ranks in sorted(ranks_of.items(), key=lambda item: item[1])
    ]
    return [f"devices differ: {', '.join(said[:MAX_KINDS])}"]


def between_neighbours(traces: tuple[RankTrace, ...]) -> bool:
    """Whether ranks communicate, and only by sending to and receiving from one another: stages of a pipeline."""
    names = {name.partition("@")[0] for trace in traces for name in trace.comm}
    return bool(names) and names <= POINT_TO_POINT
