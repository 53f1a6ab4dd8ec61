"""Profiler traces of all ranks but one: who is named where the late rank's is missing, and where an innocent one's is.

    python tests/accuracy/missing_trace.py

972 simulated jobs a row: 3, 4 or 8 ranks that meet in one collective a step, 60 steps of 10 ms, jitter of three sizes,
ranks that are unlike by nature, one late by 0.6 to 6 ms, transfers of 10 to 600 us. Truth is the rank that is last by
nature and fault together.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass

import numpy as np

from tuiadvisor.metrics.traces.collective_arrival import arrivals
from tuiadvisor.metrics.traces.collective_clock import Calls

NUM_STEPS = 60
STEP_US = 10_000.0
LATE = 1
SEEDS = range(4)


@dataclass(frozen=True, slots=True)
class Job:
    """Microseconds; jitter is the sigma of the lognormal factor on a rank's step."""

    num_ranks: int
    jitter: float
    unlike_us: float
    late_us: float
    transfer_us: float
    seed: int
    transfer_jitter: float = 0.1  # sigma of the lognormal factor on a transfer


def said(job: Job, missing: int) -> str:
    """right, wrong or nobody."""
    generator = np.random.default_rng(job.seed)
    offset = generator.uniform(0, job.unlike_us, job.num_ranks)
    offset[LATE] += job.late_us
    free = np.zeros(job.num_ranks)
    begins, ends = [], []
    for _ in range(NUM_STEPS):
        begin = free + STEP_US * np.exp(generator.normal(0, job.jitter, job.num_ranks)) + offset
        end = begin.max() + job.transfer_us * np.exp(generator.normal(0, job.transfer_jitter))
        begins.append(begin)
        ends.append(end + generator.normal(0, 3, job.num_ranks))
        free = end + generator.normal(0, 20, job.num_ranks)
    begin_ns, end_ns = ((1e3 * np.array(values)).astype(np.int64) for values in (begins, ends))
    calls = {
        rank: {"all_reduce": Calls(begin_ns[:, rank], end_ns[:, rank])}
        for rank in range(job.num_ranks)
        if rank != missing
    }
    found = arrivals(calls, {"all_reduce": tuple(range(job.num_ranks))}, complete=False)
    if not found.culprits:
        return "nobody"
    return "right" if found.culprits == (int(offset.argmax()),) else "wrong"


def main() -> None:
    """Both rows."""
    jobs = [
        Job(*parts)
        for parts in itertools.product(
            (3, 4, 8), (0.002, 0.02, 0.08), (0, 500, 3000), (600, 2000, 6000), (10, 150, 600), SEEDS
        )
    ]
    for name, missing in (("the late rank's trace is missing", LATE), ("an innocent rank's is", 0)):
        print(name, len(jobs), dict(Counter(said(job, missing) for job in jobs)))


if __name__ == "__main__":
    main()
