"""The unit of work of a run: what one step means, so that two runs are compared on the same thing or not at all.

In: columns of STEPS frames and HOST frames as they are fed.  Out: WorkUnit and MachineLoad; None where unknown.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.advisor.cluster.payload_fields import integer, number, objects
from tuiadvisor.efficiency.assess import copies_of_batch, rows_per_step
from tuiadvisor.events import NOTHING_GIVEN, UNKNOWN, StepFlag
from tuiadvisor.views.comparison import MachineLoad, WorkUnit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuiadvisor.advisor.cluster.payload_fields import Payload
    from tuiadvisor.events import GivenWork
    from tuiadvisor.metrics.steps.arrays import Ints
    from tuiadvisor.views.efficiency import Stack

MAX_RANKS: Final = 1 << 17
# Of the steps of all ranks: a batch that is so usual is what a step takes. Others are the last one of an epoch, and
# those of an evaluation, whose batches a step without an optimizer's own has beside its own (chosen).
MIN_USUAL: Final = 0.9
MAX_DISTINCT: Final = 256  # of a count that should be one number: beyond this it is noise


class WorkUnitCounter:
    """Mutable: feed it columns."""

    def __init__(self) -> None:
        self._usual = {name: Counter[int]() for name in ("num_collectives", "micro_steps")}
        self._gradient_bytes: dict[int, int] = {}
        self._totals = {name: dict[int, tuple[int, int]]() for name in ("samples", "tokens")}
        self._counts = {name: Counter[int]() for name in self._totals}
        self._ranks: set[int] = set()

    def add(self, columns: Mapping[str, Ints]) -> None:
        """Whole steps only: the first one began before the probe came."""
        flags = columns["flags"]
        whole = (columns["rank"] >= 0) & (columns["rank"] < MAX_RANKS)
        whole &= (flags == UNKNOWN) | (flags & int(StepFlag.FIRST) == 0)
        rank = columns["rank"][whole]
        self._ranks.update(np.unique(rank).tolist())
        for name, usual in self._usual.items():
            self._usual[name] = _counted(usual, columns[name][whole])
        size = columns["comm_bytes"][whole]
        self._gradient_bytes.update(zip(rank[size > 0].tolist(), size[size > 0].tolist(), strict=True))
        for name, totals in self._totals.items():
            _add_totals(totals, rank, columns[name][whole])
            self._counts[name] = _counted(self._counts[name], columns[name][whole])

    def unit(
        self, world_size: int | None, given: GivenWork = NOTHING_GIVEN, stack: Stack | None = None
    ) -> WorkUnit:
        """What a step of this run is; given: as its recording says that the user said.

        stack: as the probes saw it: ranks that work on one batch count it once, and where no loader tells a batch the
        ids of one call do, as in the throughput of `diagnose`.
        """
        all_seen = world_size is not None and len(self._ranks) == world_size
        sizes = [self._gradient_bytes.get(rank) for rank in self._ranks]
        known_sizes = [size for size in sizes if size is not None]
        samples, tokens = (self._per_step(name) if all_seen else None for name in self._totals)
        if stack is not None:
            copies = copies_of_batch(stack)
            samples, tokens = samples and samples / copies, tokens and tokens / copies
            if samples is tokens is None and all_seen:
                samples = rows_per_step(stack, len(self._ranks))
        return WorkUnit(
            world_size=world_size,
            samples_per_step=given.samples_per_step or samples,
            tokens_per_step=given.tokens_per_step or tokens,
            gradient_bytes=round(sum(known_sizes) / len(known_sizes)) if known_sizes else None,
            num_collectives=_most_usual(self._usual["num_collectives"]),
            micro_steps=_most_usual(self._usual["micro_steps"]),
            input_shape="" if stack is None else stack.text("input"),
        )

    def _per_step(self, name: str) -> float | None:
        totals = self._totals[name]
        if not self._ranks or set(totals) != self._ranks:
            return None
        batch = _most_usual(self._counts[name]) or 0
        num_steps = sum(count for _, count in totals.values())
        if batch and self._counts[name][batch] >= MIN_USUAL * num_steps:
            return float(batch * len(totals))
        return sum(total / count for total, count in totals.values())


def _counted(usual: Counter[int], values: Ints) -> Counter[int]:
    """With more values; unknown ones are none."""
    distinct, counts = np.unique(values[values >= 0], return_counts=True)
    usual.update(dict(zip(distinct.tolist(), counts.tolist(), strict=True)))
    return Counter(dict(usual.most_common(MAX_DISTINCT // 2))) if len(usual) > MAX_DISTINCT else usual


def _add_totals(totals: dict[int, tuple[int, int]], rank: Ints, values: Ints) -> None:
    known = values > 0
    ranks, place = np.unique(rank[known], return_inverse=True)
    sums = np.bincount(place, weights=values[known].astype(np.float64), minlength=ranks.size)
    counts = np.bincount(place, minlength=ranks.size)
    for one, total, count in zip(ranks.tolist(), sums.tolist(), counts.tolist(), strict=True):
        before = totals.get(one, (0, 0))
        totals[one] = (before[0] + int(total), before[1] + count)


def _most_usual(usual: Counter[int]) -> int | None:
    return min(usual, key=lambda value: (-usual[value], value), default=None)


class LoadMeter:
    """Mutable: feed it HOST payloads of all hosts."""

    def __init__(self) -> None:
        self._num_samples = 0
        self._busy_sum, self._cores_sum = 0.0, 0  # cores at work, and cores there are, over the samples
        self._first: dict[tuple[str, int], tuple[int, Payload]] = {}
        self._last: dict[tuple[str, int], tuple[int, Payload]] = {}

    def add(self, source: str, payload: Payload) -> None:
        """One host's sample."""
        cpu, cores, now_ns = number(payload, "cpu"), integer(payload, "num_cpus"), integer(payload, "mono_ns")
        if cpu is not None and cores:
            self._num_samples += 1
            self._busy_sum, self._cores_sum = self._busy_sum + cpu * cores, self._cores_sum + cores
        for entry in objects(payload, "ranks"):
            rank = integer(entry, "rank")
            if rank is None or now_ns is None or number(entry, "cpu_s") is None:
                continue
            if len(self._first) < MAX_RANKS:
                self._first.setdefault((source, rank), (now_ns, entry))
            if (source, rank) in self._first:
                self._last[source, rank] = (now_ns, entry)

    def load(self) -> MachineLoad | None:
        """Means over the recording; None without host samples."""
        if not self._num_samples:
            return None
        busy, cores = self._busy_sum / self._cores_sum, self._cores_sum / self._num_samples
        own_cores = sum(rate for key in self._first if (rate := self._rate(key, "cpu_s")) is not None)
        delays = [rate for key in self._first if (rate := self._rate(key, "run_delay_s")) is not None]
        sources = {source for source, _ in self._first} or {""}
        return MachineLoad(
            busy=min(busy, 1.0),
            other_cores=max(busy * cores - own_cores / len(sources), 0.0),
            num_cpus=cores,
            wait_for_core=float(np.mean(delays)) if delays else None,
        )

    def core_waits(self) -> dict[int, float]:
        """Share of its time that each rank's main thread was ready to run and had no core; known ranks only."""
        rates = {rank: self._rate((source, rank), "run_delay_s") for source, rank in self._first}
        return {rank: rate for rank, rate in rates.items() if rate is not None}

    def _rate(self, key: tuple[str, int], name: str) -> float | None:
        (begin_ns, first), (end_ns, last) = self._first[key], self._last[key]
        before, after = number(first, name), number(last, name)
        if before is None or after is None or end_ns <= begin_ns or after < before:
            return None
        return (after - before) / ((end_ns - begin_ns) / 1e9)
