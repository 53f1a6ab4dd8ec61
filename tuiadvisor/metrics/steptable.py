"""The steps of all ranks on one job axis: the input of every metric.

In: raw int64 columns, R ranks x K job steps, aligned by `metrics.align`.  Out: StepTable, seconds as floats,
NaN where something was not observed. The parts of a step sum to the step: `other` is the residual, and parts
that contradict the step (hostile or torn input) are scaled down to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.events import PHASES, UNKNOWN, StepFlag

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuiadvisor.metrics.arrays import Bools, Floats, Ints

NS: Final = 1e-9
PHASE_INDEX: Final = {name: index for index, name in enumerate(PHASES)}
OTHER: Final = PHASE_INDEX["other"]
COMM: Final = PHASE_INDEX["comm_exposed"]
# These run after the barrier of their record, so they delay the arrival of the next step.
AFTER_BARRIER: Final = ("optimizer", "checkpoint", "other")


@dataclass(frozen=True, slots=True)
class StepTable:
    """R ranks x K job steps; PRK arrays hold one layer a phase in the order of events.PHASES."""

    ranks: tuple[int, ...]
    hosts: tuple[str, ...]  # of each rank; clocks are comparable within one host only
    first_step: int  # job step of column 0; columns are consecutive
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
        return self.first_step + int(column)

    def flagged_RK(self, flag: StepFlag) -> Bools:
        """Where a flag is set."""
        return np.asarray((self.flags_RK & int(flag)) != 0)


def _seconds(values: Ints, known: Bools) -> Floats:
    return np.where(known, values * NS, np.nan)


def build_table(
    ranks: tuple[int, ...],
    hosts: tuple[str, ...],
    first_step: int,
    present_RK: Bools,
    columns: Mapping[str, Ints],
) -> StepTable:
    """StepTable from raw columns (events.STEP_COLUMNS names, int64 R x K, UNKNOWN where not observed)."""
    begin, end = columns["begin_ns"], columns["end_ns"]
    step_s = _seconds(end - begin, present_RK)
    origin_R = _origins(hosts, begin, present_RK)[:, None]
    observed = columns["observed"]
    has_bits = observed != UNKNOWN
    phase_s = np.empty((len(PHASES), *present_RK.shape))
    for index, name in enumerate(PHASES):
        values = columns[f"{name}_ns"]
        # Without the bitmask a positive time is evidence of a hook; a zero is not.
        hooked = np.where(has_bits, (observed >> index) & 1 == 1, values > 0)
        phase_s[index] = _seconds(values, present_RK & hooked & (values != UNKNOWN))
    _close_the_sum(phase_s, step_s)

    def clock(name: str) -> Floats:
        return _seconds(columns[name] - origin_R, present_RK & (columns[name] != UNKNOWN))

    def duration(name: str) -> Floats:
        return _seconds(columns[name], present_RK & (columns[name] != UNKNOWN))

    def count(name: str) -> Floats:
        return np.where(present_RK & (columns[name] > 0), columns[name].astype(np.float64), np.nan)

    return StepTable(
        ranks=ranks,
        hosts=hosts,
        first_step=first_step,
        present_RK=present_RK,
        step_s_RK=step_s,
        phase_s_PRK=phase_s,
        begin_s_RK=clock("begin_ns"),
        end_s_RK=clock("end_ns"),
        arrive_s_RK=clock("arrive_ns"),
        release_s_RK=clock("release_ns"),
        comm_total_s_RK=duration("comm_total_ns"),
        cpu_s_RK=duration("cpu_ns"),
        gc_s_RK=duration("gc_ns"),
        probe_cost_s_RK=duration("probe_cost_ns"),
        samples_RK=count("samples"),
        tokens_RK=count("tokens"),
        flags_RK=np.where(present_RK & (columns["flags"] != UNKNOWN), columns["flags"], 0),
        origin_ns_R=origin_R[:, 0],
    )


def _origins(hosts: tuple[str, ...], begin: Ints, present: Bools) -> Ints:
    """The earliest begin of each rank's host: float64 seconds keep nanoseconds only near zero."""
    largest = np.iinfo(np.int64).max
    first_R = np.where(present, begin, largest).min(axis=1, initial=largest)
    earliest: dict[str, int] = {}
    for host, first in zip(hosts, first_R.tolist(), strict=True):
        earliest[host] = min(first, earliest.get(host, largest))
    origin = np.array([earliest[host] for host in hosts], dtype=np.int64)
    return np.where(origin == largest, 0, origin)


def _close_the_sum(phase_s: Floats, step_s: Floats) -> None:
    """Make `other` the residual in place; parts beyond the step are scaled to fit it."""
    parts = np.where(np.isnan(phase_s[:OTHER]), 0.0, phase_s[:OTHER])
    total = parts.sum(axis=0)
    excess = total > step_s
    if excess.any():
        scale = np.where(excess, step_s / np.where(total > 0, total, 1.0), 1.0)
        phase_s[:OTHER] *= scale
        total = np.where(excess, step_s, total)
    phase_s[OTHER] = np.maximum(step_s - total, 0.0)


def select(table: StepTable, columns: Bools | Ints | slice) -> StepTable:
    """The table of some columns. Their job steps stay consecutive only for a slice."""
    start = _first_of(columns)
    return StepTable(
        ranks=table.ranks,
        hosts=table.hosts,
        first_step=table.first_step + start,
        present_RK=table.present_RK[:, columns],
        step_s_RK=table.step_s_RK[:, columns],
        phase_s_PRK=table.phase_s_PRK[:, :, columns],
        begin_s_RK=table.begin_s_RK[:, columns],
        end_s_RK=table.end_s_RK[:, columns],
        arrive_s_RK=table.arrive_s_RK[:, columns],
        release_s_RK=table.release_s_RK[:, columns],
        comm_total_s_RK=table.comm_total_s_RK[:, columns],
        cpu_s_RK=table.cpu_s_RK[:, columns],
        gc_s_RK=table.gc_s_RK[:, columns],
        probe_cost_s_RK=table.probe_cost_s_RK[:, columns],
        samples_RK=table.samples_RK[:, columns],
        tokens_RK=table.tokens_RK[:, columns],
        flags_RK=table.flags_RK[:, columns],
        origin_ns_R=table.origin_ns_R,
    )


def _first_of(columns: Bools | Ints | slice) -> int:
    if isinstance(columns, slice):
        return int(columns.start or 0)
    if columns.size == 0:
        return 0
    return int(np.argmax(columns)) if columns.dtype == np.bool_ else int(columns[0])
