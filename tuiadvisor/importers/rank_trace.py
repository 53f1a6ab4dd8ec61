"""One rank's trace of its device, or of its operators where the training was on a CPU.

In: nothing.  Out: RankTrace and its parts; None where the trace does not say.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuiadvisor.efficiency.roofline import OpWork
    from tuiadvisor.importers.hostwork import HostWork
    from tuiadvisor.metrics.steps.arrays import Bools, Ints
    from tuiadvisor.metrics.traces.gpu_timeline import GpuEvents


@dataclass(frozen=True, slots=True)
class CommCalls:
    """A rank's communication kernels of one collective and process group, in order of their begin."""

    begin_ns: Ints
    end_ns: Ints
    members: tuple[int, ...]  # ranks of the process group, empty when the trace does not say
    hidden_ns: Ints  # of each call, behind computation
    launch_ns: Ints  # when its thread called it; -1 where the trace does not say
    num_bytes: Ints  # what is moved, the larger of input and output; -1 where the trace does not say


@dataclass(frozen=True, slots=True)
class RankTrace:
    """One file. rank and world_size None when the trace does not say, or not the same twice."""

    file: str
    rank: int | None
    world_size: int | None
    events: GpuEvents
    host: (
        GpuEvents | None
    )  # operators and calls on the CPU, where nothing ran on a GPU and communication was there
    linked: Bools  # events whose launch is in the file
    comm: dict[str, CommCalls]
    guessed: dict[str, int]  # names that only look like communication -> count
    steps: tuple[tuple[str, int, int], ...]  # name, begin and duration in nanoseconds
    num_events: int
    num_dropped: int  # events without a usable time
    num_bytes: int
    num_marks_dropped: int = 0  # of steps, without a usable time
    stubs: tuple[tuple[str, int, int], ...] = ()  # marks as of steps, cut off before anything began in them
    num_halves_lost: int = 0  # begins and ends of events without the other
    digest: bytes = b""  # of its events' times and its marks: two files of one trace have the same
    is_open: bool = False  # its list of events has no end
    works: tuple[OpWork, ...] = ()  # operators with their shapes, where it was recorded with them
    device_name: str | None = None
    threads: int | None = None  # of the rank, where our own capture wrote it
    why_no_rank: str = ""
    num_processes: int = 1  # whose events are in the file: of more than one its times are nobody's
    work: HostWork | None = None  # where it was asked for: what the training thread did
    kernel_names: tuple[str, ...] = ()  # of operators, where it is of a CPU
    name_of: Ints | None = None  # of each of worked: an index into kernel_names
    pid: int | None = None  # of the process that wrote it, as that sees itself
    num_multiprocessors: int | None = None  # of its device, as far as its process may use them
    software: dict[str, str] = field(default_factory=dict)  # names of rank_facts: backend, cuda, nccl
    machine: str = ""  # the name of its host; "": the trace does not say, as those of older torch
    export: str = ""  # whose process it is, where its rank is the number of its device there
    num_without_kernel: tuple[int, int] = (0, 0)  # launches whose kernel is not in the trace, of how many
    said_dropped: int = 0  # records of the device that the profiler itself says it dropped
    wall_ns: int | None = None  # added to its times it gives the wall clock; None: the trace does not say

    @property
    def span_ns(self) -> tuple[int, int] | None:
        """First and last moment of its device's, or its operators', events and its steps; None without any."""
        begins = [begin for _, begin, _ in self.steps]
        ends = [begin + dur for _, begin, dur in self.steps]
        if self.worked.begin_ns.size:
            begins.append(int(self.worked.begin_ns.min()))
            ends.append(int(self.worked.end_ns.max()))
        return (min(begins), max(ends)) if begins else None

    @property
    def worked(self) -> GpuEvents:
        """What computed: a device's events, or the operators where the training was on a CPU."""
        return self.events if self.host is None else self.host
