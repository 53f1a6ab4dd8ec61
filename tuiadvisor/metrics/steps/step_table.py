"""The steps of all ranks on one job axis: the input of every metric.

In: raw int64 columns, R ranks x K job steps, aligned by `step_alignment`.  Out: StepTable, seconds as floats, NaN
where something was not observed. The parts of a step sum to the step: `other` is the residual, and parts
that contradict the step (hostile or torn input) are scaled down to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
import numpy.typing as npt

from tuiadvisor.events import UNKNOWN, StepFlag
from tuiadvisor.phases import AFTER_BARRIER, PHASES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuiadvisor.metrics.steps.arrays import Bools, Floats, Ints

Scalar = TypeVar("Scalar", bound=np.generic)

NS: Final = 1e-9  # seconds
PHASE_INDEX: Final = {name: index for index, name in enumerate(PHASES)}
OTHER: Final = PHASE_INDEX["other"]
COMM: Final = PHASE_INDEX["comm_exposed"]
NUM_OTHERS: Final = 12  # times, counts and flags of a step, beside its phases


@dataclass(frozen=True, slots=True)
class StepTable:
    """R ranks x K job steps; PRK arrays hold one layer a phase in the order of events.PHASES."""

    ranks: tuple[int, ...]
    hosts: tuple[str, ...]  # of each rank; clocks are comparable within one host only
    first_step: int  # job step of column 0
    present_RK: Bools  # a record of this rank and step was seen
    step_s_RK: Floats
    phase_s_PRK: Floats
    begin_s_RK: Floats  # seconds on the host's clock, relative to an origin common to the host
    end_s_RK: Floats
    arrive_s_RK: Floats
    release_s_RK: Floats
    comm_total_s_RK: Floats
    cpu_s_RK: Floats
    gc_s_RK: Floats
    probe_cost_s_RK: Floats
    samples_RK: Floats
    tokens_RK: Floats
    flags_RK: Ints  # 0 where absent
    origin_ns_R: Ints  # on the host's clock: where its seconds begin
    steps: Ints | None = None  # job step of each column, where they are not consecutive
    is_of_launches: bool = False  # ranks launch work for devices: how long their steps are says nothing of it
    # Layers in whose forward ranks meet (SyncBatchNorm, experts): in their backward they do, too, where no border is,
    # and what is waited for there looks like compute of whoever waits.
    meets_within: bool = False
    # Seconds of each step that all ranks wait at the same places of it (FSDP2's many collectives), whoever is last at
    # which of them; NaN where that is not told. None: nothing is, and whoever waits least waits for nobody.
    shared_wait_K: Floats | None = None

    @property
    def num_ranks(self) -> int:
        """R."""
        return len(self.ranks)

    @property
    def num_steps(self) -> int:
        """K."""
        return int(self.present_RK.shape[1])

    def step_of(self, column: int) -> int:
        """Job step of a column."""
        return int(self.steps_of(np.array([column]))[0])

    def steps_of(self, columns: Ints) -> Ints:
        """Job steps of columns."""
        return self.first_step + columns if self.steps is None else self.steps[columns]

    def column_of(self, step: int) -> int:
        """The first column at or after a job step."""
        return step - self.first_step if self.steps is None else int(np.searchsorted(self.steps, step))

    @property
    def last_end_ns_R(self) -> Ints:
        """When each rank's newest step ended, on its host's clock; where none did, where its seconds begin."""
        ends_s_R = np.max(np.where(np.isfinite(self.end_s_RK), self.end_s_RK, 0.0), axis=1, initial=0.0)
        return np.asarray(self.origin_ns_R + (ends_s_R * 1e9).astype(np.int64))

    @property
    def is_whole_RK(self) -> Bools:
        """Steps that were seen from their beginning to their end: a first one was caught in the middle."""
        return np.asarray(np.isfinite(self.step_s_RK) & ~self.flagged_RK(StepFlag.FIRST))

    @property
    def whole_steps_span_s(self) -> float:
        """From the beginning of the first step that was seen whole to the newest step's end; 0 without such a step."""
        is_whole_RK = self.is_whole_RK
        begins_s_R = np.min(np.where(is_whole_RK, self.begin_s_RK, np.inf), axis=1, initial=np.inf)
        ends_s_R = np.max(np.where(is_whole_RK, self.end_s_RK, -np.inf), axis=1, initial=-np.inf)
        return max(float(np.max(ends_s_R - begins_s_R, initial=0.0)), 0.0)

    @property
    def paid_later(self) -> frozenset[str]:
        """Phases whose time makes a rank late in the next record: those after the barrier.

        A device's record tells no arrival, only how long it waits: what a rank is late by stands in its own record.
        What makes a step longer may stand elsewhere: `barrier.records_before`.
        """
        return frozenset() if self.steps is not None else frozenset(AFTER_BARRIER)

    @property
    def tells_releases(self) -> bool:
        """Whether a device's own clock tells of each record when its exchange was over, with none missing between."""
        is_of_devices = self.steps is not None and not self.is_sampled
        return is_of_devices and bool(np.isfinite(self.release_s_RK).any())

    @property
    def is_sampled(self) -> bool:
        """Whether steps are missing between its columns, so that distances between them mean nothing."""
        return self.steps is not None and bool((np.diff(self.steps) != 1).any())

    @property
    def gap_K(self) -> Ints | None:
        """Job steps from each column to the next one, of the last as of the one before; None where all are 1."""
        if not self.is_sampled:
            return None
        gaps = np.diff(np.asarray(self.steps))
        return np.append(gaps, gaps[-1:])

    def flagged_RK(self, flag: StepFlag) -> Bools:
        """Where a flag is set."""
        return np.asarray((self.flags_RK & int(flag)) != 0)


def build_table(
    ranks: tuple[int, ...],
    hosts: tuple[str, ...],
    first_step: int,
    present_RK: Bools,
    columns: Mapping[str, Ints],
    *,
    steps: Ints | None = None,
) -> StepTable:
    """StepTable from raw columns (events.STEP_COLUMNS names, int64 R x K, UNKNOWN where not observed).

    Each column is asked for once, one after the other. steps: the job step of each, where they are not consecutive.
    """
    begin, end = columns["begin_ns"], columns["end_ns"]
    origin_R = _origins(hosts, begin, present_RK)[:, None]
    # In one block: the system gives it large pages, and clearing many small ones took longer than what is done here.
    block = np.empty((len(PHASES) + NUM_OTHERS, *present_RK.shape))
    phase_s, space = block[: len(PHASES)], iter(block[len(PHASES) :])
    step_s = _floats(end - begin, present_RK, NS, next(space))

    def clock(values: Ints) -> Floats:
        return _floats(values - origin_R, present_RK & (values != UNKNOWN), NS, next(space))

    def duration(values: Ints) -> Floats:
        values = _one_for_all(values)
        return _floats(values, present_RK & (values != UNKNOWN), NS, next(space))

    def count(values: Ints) -> Floats:
        values = _one_for_all(values)
        return _floats(values, present_RK & (values > 0), 1.0, next(space))

    begin_s, end_s = clock(begin), clock(end)
    del begin, end
    _phases(columns, present_RK, step_s, phase_s)
    flags = _one_for_all(columns["flags"])
    return StepTable(
        ranks=ranks,
        hosts=hosts,
        first_step=first_step,
        present_RK=present_RK,
        step_s_RK=step_s,
        phase_s_PRK=phase_s,
        begin_s_RK=begin_s,
        end_s_RK=end_s,
        arrive_s_RK=clock(columns["arrive_ns"]),
        release_s_RK=clock(columns["release_ns"]),
        comm_total_s_RK=duration(columns["comm_total_ns"]),
        cpu_s_RK=duration(columns["cpu_ns"]),
        gc_s_RK=duration(columns["gc_ns"]),
        probe_cost_s_RK=duration(columns["probe_cost_ns"]),
        samples_RK=count(columns["samples"]),
        tokens_RK=count(columns["tokens"]),
        flags_RK=np.multiply(flags, present_RK & (flags != UNKNOWN), out=next(space).view(np.int64)),
        origin_ns_R=origin_R[:, 0],
        steps=steps,
    )


def _one_for_all(values: Ints) -> Ints:
    """One cell for all, of a column that takes no memory, as those do in which every step tells the same."""
    return values if not values.size or any(values.strides) else values[:1, :1]


def _floats(values: Ints, known: Bools, unit: float, out: Floats) -> Floats:
    if not known.any():
        out.fill(np.nan)
        return out
    np.multiply(values, unit, out=out)
    if not known.all():
        np.copyto(out, np.nan, where=~known)
    return out


def _phases(columns: Mapping[str, Ints], present_RK: Bools, step_s: Floats, result: Floats) -> None:
    """Seconds of each phase, P x R x K: `other` is the residual, parts beyond the step are scaled to fit it."""
    observed = _one_for_all(columns["observed"])
    has_bits = observed != UNKNOWN
    all_bits = bool((has_bits | ~present_RK).all())
    total = result[OTHER]
    total.fill(0.0)
    for index, name in enumerate(PHASES[:OTHER]):
        # Without the bitmask a positive time is evidence of a hook; a zero is not.
        hooked = (observed & (1 << index)) != 0
        if all_bits and not hooked.any():
            result[index].fill(np.nan)
            continue
        values = columns[f"{name}_ns"]
        if not all_bits:
            hooked = np.where(has_bits, hooked, values > 0)
        known = present_RK & hooked & (values != UNKNOWN)
        seconds = np.multiply(values, NS, out=result[index])
        unknown = None if known.all() else ~known
        if unknown is not None:  # added as nothing: an addition with a condition takes three times as long
            np.copyto(seconds, 0.0, where=unknown)
        total += seconds
        if unknown is not None:
            np.copyto(seconds, np.nan, where=unknown)
    excess = total > step_s
    if excess.any():
        scale = np.where(excess, step_s / np.where(total > 0, total, 1.0), 1.0)
        result[:OTHER] *= scale
        np.copyto(total, step_s, where=excess)
    np.subtract(step_s, total, out=total)
    np.maximum(total, 0.0, out=total)


def _origins(hosts: tuple[str, ...], begin: Ints, present: Bools) -> Ints:
    """The earliest begin of each rank's host: float64 seconds keep nanoseconds only near zero."""
    largest = np.iinfo(np.int64).max
    first_R = np.where(present, begin, largest).min(axis=1, initial=largest)
    earliest: dict[str, int] = {}
    for host, first in zip(hosts, first_R.tolist(), strict=True):
        earliest[host] = min(first, earliest.get(host, largest))
    origin = np.array([earliest[host] for host in hosts], dtype=np.int64)
    return np.where(origin == largest, 0, origin)


def select(table: StepTable, columns: Bools | Ints | slice) -> StepTable:
    """The table of some columns, not to be written to. Their job steps stay consecutive only for a slice."""
    start = _first_of(columns)
    which = columns if isinstance(columns, slice) else consecutive(columns)

    def of(values: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
        return picked(values, which)

    return StepTable(
        ranks=table.ranks,
        hosts=table.hosts,
        first_step=table.step_of(start) if start < table.num_steps else table.first_step + start,
        present_RK=of(table.present_RK),
        step_s_RK=of(table.step_s_RK),
        phase_s_PRK=of(table.phase_s_PRK),
        begin_s_RK=of(table.begin_s_RK),
        end_s_RK=of(table.end_s_RK),
        arrive_s_RK=of(table.arrive_s_RK),
        release_s_RK=of(table.release_s_RK),
        comm_total_s_RK=of(table.comm_total_s_RK),
        cpu_s_RK=of(table.cpu_s_RK),
        gc_s_RK=of(table.gc_s_RK),
        probe_cost_s_RK=of(table.probe_cost_s_RK),
        samples_RK=of(table.samples_RK),
        tokens_RK=of(table.tokens_RK),
        flags_RK=of(table.flags_RK),
        origin_ns_R=table.origin_ns_R,
        steps=None if table.steps is None else of(table.steps),
        is_of_launches=table.is_of_launches,
        meets_within=table.meets_within,
        shared_wait_K=None if table.shared_wait_K is None else of(table.shared_wait_K),
    )


def cells(values_RK: npt.NDArray[Scalar], rows: Ints, columns: Ints) -> npt.NDArray[Scalar]:
    """A copy of these rows and columns: `np.ix_` looks up each cell, also where they lie beside one another."""
    return np.ascontiguousarray(picked(values_RK[consecutive(rows)], consecutive(columns)))


def picked(values: npt.NDArray[Scalar], which: slice | Ints) -> npt.NDArray[Scalar]:
    """Some columns, not to be written to; which: from `consecutive`."""
    return values[..., which] if isinstance(which, slice) else values.take(which, axis=-1)


def consecutive(columns: Bools | Ints) -> slice | Ints:
    """The same columns as a slice where they lie beside one another: a view of an array then, not a copy."""
    found = np.flatnonzero(columns) if columns.dtype == np.bool_ else columns
    if found.size and int(found[-1]) - int(found[0]) + 1 == found.size and bool((np.diff(found) == 1).all()):
        return slice(int(found[0]), int(found[-1]) + 1)
    return np.asarray(found, dtype=np.int64)


def _first_of(columns: Bools | Ints | slice) -> int:
    if isinstance(columns, slice):
        return int(columns.start or 0)
    if columns.size == 0:
        return 0
    return int(np.argmax(columns)) if columns.dtype == np.bool_ else int(columns[0])
