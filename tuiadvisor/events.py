"""Names and units of everything a probe observes: the vocabulary shared by ring, frames, metrics and views.

Times are integers in nanoseconds on the host's monotonic clock. UNKNOWN (-1) means "not observed"; it is
never replaced by 0. The order of STEP_COLUMNS and EVENT_COLUMNS is the order of the slots in the ring
(`tuiadvisor_probes.ring`), which cannot import this module; a test keeps the two equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final

from tuiadvisor.phases import PHASES

UNNAMED_HOST: Final = "unknown host"  # of an import's ranks: how many hosts there are is not known, either
UNKNOWN: Final = -1
OPEN_END: Final = 1 << 62  # a range of steps without an end


# One row a rank and optimizer step. *_ns durations are self times: nested phases are never counted twice.
STEP_COLUMNS: Final = (
    "step",  # optimizer steps since the probe was installed, from 0
    "begin_ns",
    "end_ns",
    *(f"{name}_ns" for name in PHASES),
    "arrive_ns",  # clock at which this rank had its last gradient, i.e. entered the gradient barrier
    "release_ns",  # clock at which it left the gradient barrier
    "comm_total_ns",  # communication incl. what compute hides; known only on steps sampled in detail
    "group_seq",  # sequence number of the gradient process group at the step's end
    "num_collectives",  # collectives issued on that group within the step
    "comm_bytes",
    "micro_steps",  # backward passes within the step
    "samples",
    "tokens",
    "flags",  # StepFlag
    "observed",  # bit i set: PHASES[i] has a working hook, so a zero is a true zero
    "probe_cost_ns",  # the probe's own time within the step, measured on sampled steps
    "gc_ns",
    "peak_memory_bytes",  # most this process ever had allocated on its device, asked about once a second
    "cpu_ns",  # CPU time of the training thread within the step
)

# One row a collective call or mark.
EVENT_COLUMNS: Final = ("step", "begin_ns", "end_ns", "group", "seq", "num_bytes", "detail")
# As a frame carries them.
STEP_NAMES: Final = ("rank", *STEP_COLUMNS)
EVENT_NAMES: Final = ("rank", "kind", *EVENT_COLUMNS)


class StepFlag(IntFlag):
    """What makes a step unfit for steady-state statistics, or worth a word."""

    FIRST = 1  # the probe was installed in the middle of it
    COMPILE = 2
    CHECKPOINT = 4
    EVAL = 8
    SCALER_SKIP = 16
    GC = 32
    DETAIL = 64  # collectives and pipeline chunks of this step were recorded one by one
    NO_SYNC = 128  # no gradient barrier was seen
    CAPTURE = 256  # torch's profiler ran in it at our wish, or was switched on or off
    SAVING = 512  # a checkpoint was being written beside it, by another thread or process


class EventKind(IntEnum):
    """Kind of a row of the event ring. Values below 32 are collectives (detail: 1 if asynchronous)."""

    ALL_REDUCE = 1
    BROADCAST = 2
    ALL_GATHER = 3
    REDUCE_SCATTER = 4
    REDUCE = 5
    ALL_TO_ALL = 6
    GATHER = 7
    SCATTER = 8
    BARRIER = 9
    SEND = 10
    RECV = 11
    WAIT = 12  # Work.wait
    GRADIENT_BARRIER = 13  # the reducer's all-reduces of one backward seen as one: begin=arrive, end=release
    CHECKPOINT = 32
    EVAL = 33
    GC = 34
    COMPILE = 35
    SCALER_SKIP = 36
    HOOK_DISABLED = 37  # detail: index of the hook in the ring header's table
    DETACHED = 38  # the probe took itself out; detail: 0 asked, 1 lease expired, 2 process exit
    # The device's allocator gave its cached blocks back and tried again, some time between begin and end (detail: how
    # often).
    ALLOC_RETRY = 39
    # What the device spent on a phase, by CUDA events, on the host's clock at the earliest (group: index into PHASES;
    # seq: by how many ns it may all lie later; detail: ns the device was behind the training thread at its end;
    # num_bytes, of one of several waits of a step: how many these are, and in its lowest WAIT_PARTS_BITS which part of
    # them this one is in, in their order).
    DEVICE_PHASE = 48
    # DDP's gradient exchange in detail: one row a backward, after its pieces (begin: backward's; end: its release;
    # group: number of buckets; seq: number of pieces; detail: elements of all gradients).
    GRADIENT_BUCKETS = 49
    # Gradients of one bucket that became ready one after another (begin, end: the first and the last of them; group:
    # bucket; seq: place in the order of launch; detail: number of gradients).
    BUCKET_PIECE = 50
    # Work of a traced device (group: stream; seq: index into the names of kernels; num_bytes: how many of one kind
    # are joined in it, which lie closer than can be shown; detail: kind of work, as metrics.traces.gpu_timeline).
    DEVICE_SLICE = 51
    # A batch that the training thread asked its DataLoader for (begin: asked; end: it came; group: worker processes;
    # with them seq: batches ready for this thread when it asked, num_bytes: made and not yet pinned, unknown without a
    # thread that pins, detail: held because it is not their turn, and above BATCHES_HELD_BITS of it the batches not yet
    # made, plus one, 0 where they were not counted; without them detail: ns in collate).
    LOADER_BATCH = 52
    # Sequences that share the rows of such a batch (begin, end: it came; group: how many; seq: their tokens; detail:
    # sum of the squares of their lengths, what attention's work grows with).
    PACKED_BATCH = 53
    # Pipeline, one a chunk (group: stage index, seq: micro-batch). Detail of a backward: 1 with the weights'
    # gradients, 0 input gradients only. A wait (group and seq unknown) belongs to the chunk after it.
    STAGE_FORWARD = 64
    STAGE_BACKWARD = 65
    STAGE_WEIGHT_GRAD = 66
    P2P_WAIT = 67


BATCHES_HELD_BITS: Final = 20
WAIT_PARTS_BITS: Final = 3

PIPELINE_KINDS: Final = tuple(kind for kind in EventKind if kind >= EventKind.STAGE_FORWARD)


# What the training thread of a rank that stands still does, seen from outside. Only `waiting` may be in a collective.
THREAD_STATES: Final = ("stopped", "running", "blocked", "asleep", "waiting")
EXITING: Final = "the process is exiting"  # what a rank is said to do between its exit hooks and its end


class RankState(IntEnum):
    """What is known about a rank's process and its probe."""

    FOUND = 0
    WAITING_TO_ATTACH = 1  # injected, but the interpreter has not run the payload yet (blocked in C)
    LIVE = 2
    DETACHED = 3
    EXITED = 4
    KILLED = 5
    REFUSED = 6  # could not be attached; the reason goes with it


@dataclass(frozen=True, slots=True)
class MeasuredPeak:
    """What a matrix product got on the machine at hand, with so many threads and nothing beside it."""

    dtype: str
    threads: int
    flops: float  # a second
    bytes_s: float | None  # of a copy, read and written


@dataclass(frozen=True, slots=True)
class GivenWork:
    """What one optimizer step of the whole job works on, as the user says; None: count it from the batches."""

    samples_per_step: int | None = None
    tokens_per_step: int | None = None
    flops_per_step: int | None = None
    peak_flops: int | None = None  # of one device, a second
    measured: tuple[MeasuredPeak, ...] = ()  # of the machine at hand: no part of a recording

    def document(self) -> dict[str, int]:
        """What is given, by name: part of a recording's first frame."""
        named = {
            "samples_per_step": self.samples_per_step,
            "tokens_per_step": self.tokens_per_step,
            "flops_per_step": self.flops_per_step,
            "peak_flops": self.peak_flops,
        }
        return {name: value for name, value in named.items() if value is not None}

    def over(self, other: GivenWork) -> GivenWork:
        """This, and what the other says where this says nothing."""
        samples, tokens = self.samples_per_step, self.tokens_per_step
        return GivenWork(
            other.samples_per_step if samples is None else samples,
            other.tokens_per_step if tokens is None else tokens,
            other.flops_per_step if self.flops_per_step is None else self.flops_per_step,
            other.peak_flops if self.peak_flops is None else self.peak_flops,
            self.measured or other.measured,
        )


NOTHING_GIVEN: Final = GivenWork()
MAX_WORK_PER_STEP: Final = 1 << 50
MAX_FLOPS: Final = (1 << 63) - 1  # what a frame can carry
