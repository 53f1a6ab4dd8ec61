"""Why a rank is late: the phase that holds its excess over the ranks that are not late.

In: StepTable, the late rank, its peers, the steps in which it was late.  Out: Cause. A phase is named alone
only when it covers most of the delay (TraceML: 80 %); a delay spread over the compute phases, or in no hooked
phase at all, is the host's (contention, garbage collection, throttling) or the device's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np

from tuiadvisor import phases
from tuiadvisor.metrics.cover import MIN_COVER
from tuiadvisor.metrics.lateness.more_work import MoreWork, more_work
from tuiadvisor.metrics.steps.arrays import Floats, Ints, column_median, mad_sigma, median
from tuiadvisor.metrics.steps.step_table import OTHER, PHASE_INDEX
from tuiadvisor.phases import PHASES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tuiadvisor.metrics.steps.step_table import StepTable

# Of a phase beyond the peers'. typical: in most steps. strewn: on the mean, as stops have it that hit now this phase,
# now that one, no phase in most steps. rare: a handful of stalls, each in the phase in which it caught the rank.
ExcessKind = Literal["typical", "strewn", "rare"]
OffCoreReason = Literal["core", "limit", "stopped"]
HeldReason = Literal["core", "limit", "stopped", "data"]
MIN_TYPICAL: Final = (
    0.67  # chosen: of the mean delay; with less in most steps it is another phase's each time
)
SPREAD_SHARE: Final = 0.2  # of the delay in compute: a phase with less takes no part in a spread
MOST_IN_COMPUTE: Final = (
    0.5  # of the delay, chosen: more than all else together, whatever else is late beside
)
NUM_STANDARD_ERRORS: Final = 2.0  # a smaller difference between a rank and its peers is none
MIN_HELD_BACK: Final = 0.5  # of the samples: a device that is held back now and then is slow now and then
MIN_CLOCK_DEFICIT: Final = (
    0.03  # against the peers' median; devices of one kind differ by 1-2 % at the power limit
)
KEEPS_PACE_SHARE: Final = (
    0.05  # of the device's step: behind by less than this it has no queue worth the name
)
LAST_KERNELS: Final = (
    0.25  # of a phase: what of it may still be under way when its thread has launched it all
)
# CUDA's queue holds 1,024 launches, and a thread takes some 4 us or more for each: a full one lasts no less.
FULL_QUEUE_S: Final = 4e-3
MIN_FALLEN_BACK: Final = (
    0.5  # of its excess: so much further behind than its peers' a device has work, not pauses
)
MAX_LESS_AHEAD: Final = 0.5  # of what the others have queued. Chosen: a full queue holds as much on all ranks
MAX_STEPS: Final = 400  # enough for a median; keeps a view of a thousand ranks cheap
MAX_PEERS: Final = 16  # whose phases are looked at: the median of more is the same
WORK_PHASES: Final = phases.WORK
COMPUTE_PHASES: Final = phases.COMPUTE_AND_REST
EXPECTED_HOOKS: Final = phases.HOOKED


class Priority(NamedTuple):
    """Nice values of a rank that yields to others' work, and of the typical other rank, which does so less."""

    nice: int
    others: int


@dataclass(frozen=True, slots=True)
class DeviceClock:
    """What NVML tells of a rank's device over the window."""

    mhz: float  # median of its SM clock
    held_back_share: float  # of the samples in which it gave a reason for a lower clock; idle is none
    reasons: tuple[str, ...]  # most frequent first


@dataclass(frozen=True, slots=True)
class Pace:
    """How far a rank's device is behind its thread at the end of each compute phase."""

    step_s: float
    behind_s: Mapping[str, tuple[float, float]]  # at least and at most
    phase_s: Mapping[str, float]  # what the phase takes on the device


@dataclass(frozen=True, slots=True)
class StorageWait:
    """Of the looks at whoever reads for a rank, those that found it waiting for storage."""

    share: float
    others: float  # the same of the typical peer
    in_workers: bool  # of its loader; else in its training thread


@dataclass(frozen=True, slots=True)
class Cause:
    """name: a phase, "host", "device" or "unknown"; parts: seconds beyond the peers, by phase."""

    name: str
    cover: float  # share of the excess that the named phase holds
    parts: dict[str, float]
    unobserved: tuple[str, ...]  # phases without a hook on this rank, whose time hides in "other"
    cpu_share: float | None  # CPU time of the training thread / wall time outside waiting
    gc_s: float | None  # Python collecting garbage beyond the peers, a step in which it was late
    is_spread: bool = False  # over the compute phases alike
    core_wait_s: float | None = None  # beyond the peers, a step: ready to run, and no core was free
    off_core: OffCoreReason | None = None  # what kept it off its cores, where that explains the delay
    limit_cores: float | None = None  # of its control group, where that is what held it back
    priority: Priority | None = None  # where it lacks a core and yields to others' work more than its peers
    clock: DeviceClock | None = None  # of its device, where that holds its clock back below its peers'
    peers_mhz: float | None = None
    is_launching: bool = False  # its device waits for its thread's launches
    may_be_launching: bool = False  # or computes longer: what is queued for it does not tell
    is_less_ahead: bool = False  # its thread is less far ahead of its device than the others' are of theirs
    more: MoreWork | None = None  # its batches are larger than its peers', and that explains the delay
    storage: StorageWait | None = None  # what it waits for while it is late in data
    is_open: bool = False  # a core that it lacked, or chance, may explain it: too little was seen to tell

    @property
    def is_of_thread(self) -> bool:
        """Whether its device may wait for its thread alone, of which the threads' own steps tell more."""
        return self.is_launching or self.may_be_launching or self.is_less_ahead

    @property
    def is_collecting(self) -> bool:
        """Whether garbage collection explains most of the delay."""
        total = sum(max(value, 0.0) for value in self.parts.values())
        return self.gc_s is not None and total > 0 and self.gc_s >= MIN_COVER * total


def phases_before_barrier(table: StepTable) -> dict[str, Floats]:
    """Seconds of each phase that fall between the previous release and this arrival, R x K.

    Column 0 of the phases after the barrier is unknown (it belongs to a step before the table).
    """
    result = {}
    for name in WORK_PHASES:
        values = table.phase_s_PRK[PHASE_INDEX[name]]
        if name in table.paid_later:
            shifted = np.full_like(values, np.nan)
            shifted[:, 1:] = values[:, :-1]
            values = shifted
        result[name] = values
    return result


def _excess(values_RK: Floats, row: int, peers: Ints, kind: ExcessKind) -> float | None:
    own = values_RK[row]
    if not np.isfinite(own).any():
        return None
    reference = column_median(values_RK[peers])
    difference = own - reference
    difference = difference[np.isfinite(difference)]
    if not difference.size:
        return None
    if kind == "rare":
        return float(difference.mean())
    if kind == "typical":
        excess = median(difference)
        error = 1.25 * mad_sigma(difference) / math.sqrt(difference.size)
    else:
        excess = float(difference.mean())
        error = float(difference.std()) / math.sqrt(difference.size)
    return excess if abs(excess) > NUM_STANDARD_ERRORS * error else 0.0


def find_cause(
    table: StepTable,
    phases: dict[str, Floats],
    row: int,
    peers: Ints,
    columns: Ints,
    *,
    on_accelerator: bool,
    is_rare: bool = False,
) -> Cause:
    """Cause of one late rank. phases: from phases_before_barrier; columns: steps in which it was late."""
    columns, peers = _spread_over(columns, MAX_STEPS), _spread_over(peers, MAX_PEERS)
    rows = np.concatenate(([row], peers))
    own, others = 0, np.arange(1, rows.size)

    def parts_of(kind: ExcessKind) -> dict[str, float]:
        at = np.ix_(rows, columns)
        found = {name: _excess(phases[name][at], own, others, kind) for name in WORK_PHASES}
        return {name: excess for name, excess in found.items() if excess is not None}

    parts = parts_of("rare" if is_rare else "typical")
    is_strewn = False
    if not is_rare:
        is_strewn = _positive(parts) < MIN_TYPICAL * _positive(parts_of("strewn"))
        parts = parts_of("rare") if is_strewn else parts
    own_phases = table.phase_s_PRK[:, row, columns]
    unobserved = tuple(
        name for name in EXPECTED_HOOKS if not np.isfinite(own_phases[PHASE_INDEX[name]]).any()
    )
    positive = {name: max(value, 0.0) for name, value in parts.items()}
    total = sum(positive.values())
    cpu_share = _cpu_share(table.cpu_s_RK[row, columns], own_phases)
    gc_s = _collecting_s(table, row, peers, columns, is_rare=is_rare)
    if total <= 0:
        return Cause("unknown", 0.0, parts, unobserved, cpu_share, gc_s)
    largest = max(positive, key=lambda name: (positive[name], -PHASES.index(name)))
    cover = positive[largest] / total
    name = largest
    if largest == PHASES[OTHER]:
        # Without all hooks the residual may be any of the unhooked phases: the honest name is "other".
        name = "other" if unobserved else "host"
    # No code of one phase stalls now in this phase, now in that one: something outside stops the process.
    is_spread = cover < MIN_COVER and (is_rare or is_strewn or _spread(positive, total))
    if is_spread:
        name = "device" if on_accelerator else "host"
    more = None if is_rare else more_work(table, phases, row, peers, columns=columns, parts=parts)
    if more is not None:
        return Cause(more.phase, positive[more.phase] / total, parts, unobserved, cpu_share, gc_s, more=more)
    if gc_s is not None and gc_s >= MIN_COVER * total:
        name = "host"  # it happens in any phase that allocates: that phase's code is not slow
    return Cause(name, cover, parts, unobserved, cpu_share, gc_s, is_spread)


def _spread_over(indices: Ints, most: int) -> Ints:
    """So many of them, from the first to the last."""
    if indices.size <= most:
        return indices
    return indices[np.linspace(0, indices.size - 1, most).astype(np.int64)]


def _cpu_share(cpu_s_K: Floats, phases_PK: Floats) -> float | None:
    """Share of its compute phases that a rank spends on a core, median over steps; None where it is not known."""
    compute = phases_PK[[PHASE_INDEX[name] for name in COMPUTE_PHASES]]
    busy_K = np.where(np.isnan(compute), 0.0, compute).sum(axis=0)
    known = np.isfinite(cpu_s_K) & (busy_K > 0)
    return float(min(np.median(cpu_s_K[known] / busy_K[known]), 1.0)) if known.any() else None


def _collecting_s(table: StepTable, row: int, peers: Ints, columns: Ints, *, is_rare: bool) -> float | None:
    """Mean seconds of garbage collection beyond the typical peer; None where it was not observed.

    A rank whose late steps are picked out may have collected after the barrier of the step before.
    """
    gc = table.gc_s_RK[np.concatenate(([row], peers))]
    if is_rare or columns.size < table.num_steps // 2:
        before = np.concatenate((np.zeros((gc.shape[0], 1)), gc[:, :-1]), axis=1)
        gc = np.fmax(gc, before)
    own, others = gc[0, columns], column_median(gc[1:, columns])
    difference = (own - others)[np.isfinite(own) & np.isfinite(others)]
    return float(difference.mean()) if difference.size else None


def with_device_clock(
    cause: Cause, own: DeviceClock | None, peers_mhz: float | None, compute_s: float, excess_s: float
) -> Cause:
    """The cause, with what NVML says: a device below its peers' clock is slow in whatever it computes.

    compute_s: what a peer computes in a step; at a clock lower by a factor it takes at most that factor longer.
    """
    if (
        cause.off_core is not None
        or own is None
        or not peers_mhz
        or own.held_back_share < MIN_HELD_BACK
        or own.mhz <= 0
    ):
        return cause
    slower = peers_mhz / own.mhz - 1
    if slower < MIN_CLOCK_DEFICIT or slower * compute_s < MIN_COVER * excess_s:
        return cause
    if cause.name not in {*COMPUTE_PHASES, "unknown", "device"} and not (
        cause.name == "host" and cause.is_spread
    ):
        return cause
    return replace(cause, name="device", clock=own, peers_mhz=peers_mhz)


def with_pace(cause: Cause, own: Pace | None, peers: Sequence[Pace]) -> Cause:
    """The cause of a rank whose device takes long in compute, by whether it waits for launches there.

    Where that is not known of a device that is slow in all it does, host and device are not told apart.
    """
    if cause.name not in {"device", *COMPUTE_PHASES}:
        return cause
    cause = replace(cause, is_less_ahead=own is not None and _is_less_ahead(own, peers))
    waits_s = works_s = open_s = 0.0
    for name, part_s in cause.parts.items():
        if part_s <= 0 or name not in phases.COMPUTE or cause.name not in {"device", name}:
            continue
        is_waiting = None if own is None else _waits_for_launches(own, peers, name, part_s)
        waits_s += part_s * (is_waiting is True)
        works_s += part_s * (is_waiting is False)
        open_s += part_s * (is_waiting is None)
    if waits_s > works_s + open_s:
        return replace(cause, name="host", clock=None, peers_mhz=None, is_launching=True)
    cause = replace(cause, may_be_launching=own is not None and waits_s + open_s > works_s)
    if cause.name == "device" and works_s == 0 and cause.clock is None:
        return replace(cause, name="unknown")
    return cause


def _waits_for_launches(own: Pace, peers: Sequence[Pace], name: str, excess_s: float) -> bool | None:
    """Whether the device is done with a phase when its thread is, but for its last kernels; None: not known.

    A device that needs longer for the same work falls behind by what it needs more; one that waits does not.
    """
    if name not in own.behind_s or name not in own.phase_s:
        return None
    low_s, high_s = own.behind_s[name]
    usual = [peer.behind_s[name][0] for peer in peers if name in peer.behind_s]
    if usual and low_s - float(np.median(usual)) >= MIN_FALLEN_BACK * excess_s:
        return False
    limit_s = max(KEEPS_PACE_SHARE * own.step_s, LAST_KERNELS * own.phase_s[name])
    if high_s >= limit_s:
        return False if low_s >= limit_s else None
    if high_s < FULL_QUEUE_S:
        return True
    # In the optimizer what was launched while they waited for this rank lies before the others.
    if name != "optimizer" and usual and high_s < MAX_LESS_AHEAD * float(np.median(usual)):
        return True
    # Its last kernels, or a full queue that is short beside so long a phase: the others' is as full. As many launches
    # last longer on a device that takes longer for each.
    return False if _has_more_queued(own, peers, name) else None


def _has_more_queued(own: Pace, peers: Sequence[Pace], name: str) -> bool:
    """Whether it is surely further behind than its peers, about as much as it takes longer for the phase."""
    seen = [peer for peer in peers if name in peer.behind_s and peer.phase_s.get(name)]
    if not seen:
        return False
    longer = own.phase_s[name] / float(np.median([peer.phase_s[name] for peer in seen])) - 1
    usual_s = float(np.median([peer.behind_s[name][1] for peer in seen]))
    return longer > 0 and own.behind_s[name][0] >= usual_s * (1 + MIN_FALLEN_BACK * longer)


def launched_phases(own: Pace) -> list[str]:
    """Compute phases that a device ends when its thread has launched them: nothing is queued for it then.

    Whether it computes in them or waits for the next launch its clock does not tell.
    """
    return [
        name
        for name, (_, high_s) in own.behind_s.items()
        if high_s < FULL_QUEUE_S
        and high_s < max(KEEPS_PACE_SHARE * own.step_s, LAST_KERNELS * own.phase_s.get(name, 0.0))
    ]


def launched_share(own: Pace) -> float | None:
    """Share of a device's step in `launched_phases`; None: not known."""
    if not own.behind_s or own.step_s <= 0:
        return None
    return sum(own.phase_s.get(name, 0.0) for name in launched_phases(own)) / own.step_s


def _is_less_ahead(own: Pace, peers: Sequence[Pace]) -> bool:
    """Whether less is queued for its device than for the others' at the end of each phase: they wait, and it does not.

    A slow device has as much queued as they have: its thread, too, goes on until there is no more room.
    """
    shorter = []
    for name, (_, high_s) in own.behind_s.items():
        usual = [peer.behind_s[name][0] for peer in peers if name in peer.behind_s]
        if usual:
            shorter.append(high_s < MAX_LESS_AHEAD * float(np.median(usual)))
    return bool(shorter) and all(shorter)


def _positive(parts: Mapping[str, float]) -> float:
    return sum(max(value, 0.0) for value in parts.values())


def _spread(positive: dict[str, float], total: float) -> bool:
    """Whether most of the delay lies in several compute phases at once: no single piece of code explains that.

    What is late beside, as a wait for data that another reason has, leaves it so. What no hook sees is a sleep in the
    loop as well as a slow processor: beside it alone one longer phase is no second one.
    """
    compute = {name: positive.get(name, 0.0) for name in COMPUTE_PHASES}
    least_s = SPREAD_SHARE * sum(compute.values())
    several = sum(compute[name] > least_s for name in phases.COMPUTE) >= 2
    return several and sum(compute.values()) >= MOST_IN_COMPUTE * total
