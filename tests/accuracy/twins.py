"""Profiler traces of ranks alike, and of one that is late: who is named by the order of arrival.

    python tests/accuracy/twins.py

2, 4 or 8 ranks that meet in four all-reduces a step, 12, 24 or 48 steps of 27 ms, eleven kinds of noise in each rank's
compute. A row a fault, a column a kind of noise: named right / nobody / wrong, of 54.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.traces.collective_arrival import arrivals
from tuiadvisor.metrics.traces.collective_clock import Calls

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.metrics.steps.arrays import Bools, Floats

FORWARD_US, BACKWARD_US, MOVING_US, OPTIMIZER_US = 9_000.0, 17_000.0, 1_400.0, 30.0
NUM_BUCKETS: Final = 4
NUM_RANKS, NUM_STEPS, SEEDS = (2, 4, 8), (12, 24, 48), range(6)
NOISES: Final = (
    ("each step", 0.01),
    ("each step", 0.03),
    ("each step", 0.06),
    ("each step", 0.12),
    ("longer only", 0.05),
    ("stalls", 0.05),
    ("stalls", 0.12),
    ("slow", 0.02),
    ("slow", 0.05),
    ("common", 0.03),
    ("unlike by nature", 0.01),
)


def in_some(share: float, is_late: Bools) -> Floats:
    """Of a step's compute, in the steps in which it is late."""
    return np.where(is_late, share, 0.0).astype(np.float64)


FAULTS: Final[dict[str, Callable[[int], Floats]]] = {
    "healthy": np.zeros,
    "3 %": lambda steps: np.full(steps, 0.03),
    "5 %": lambda steps: np.full(steps, 0.05),
    "10 %": lambda steps: np.full(steps, 0.1),
    "20 %": lambda steps: np.full(steps, 0.2),
    "15 % in the second half": lambda steps: in_some(0.15, np.arange(steps) >= steps // 2),
    "20 % in every other step": lambda steps: in_some(0.2, np.arange(steps) % 2 == 1),
    "30 % in every fourth step": lambda steps: in_some(0.3, np.arange(steps) % 4 == 0),
    "four times as long, once": lambda steps: in_some(3.0, np.arange(steps) == steps // 3),
}


def noisy(kind: str, size: float, shape: tuple[int, int], generator: np.random.Generator) -> Floats:
    """Factors of each rank's compute, S steps x R ranks."""
    if kind == "each step":
        return 1 + generator.normal(0, size, shape)
    if kind == "longer only":
        return 1 + generator.exponential(size, shape)
    if kind == "stalls":
        is_long = generator.random(shape) < 0.12
        return 1 + generator.normal(0, 0.01, shape) + is_long * generator.exponential(4 * size, shape)
    if kind == "slow":  # correlated by 0.8 from step to step
        fresh = generator.normal(0, 1, shape)
        for step in range(1, shape[0]):
            fresh[step] = 0.8 * fresh[step - 1] + 0.6 * fresh[step]
        return 1 + size * fresh
    if kind == "common":
        every = np.abs(generator.normal(0, 3 * size, (shape[0], 1)))
        return 1 + every + generator.normal(0, size / 2, shape)
    return 1 + generator.normal(0, 0.004, (1, shape[1])) + generator.normal(0, size, shape)


def said(factors: Floats, late: int | None) -> str:
    """right, nobody or wrong. factors: of each rank's compute, S steps x R ranks."""
    num_steps, num_ranks = factors.shape
    free = np.zeros(num_ranks)
    begins, ends = [], []
    for factor in factors:
        at, end = free + FORWARD_US * factor, np.zeros(num_ranks)
        for _ in range(NUM_BUCKETS):
            at = at + BACKWARD_US / NUM_BUCKETS * factor
            begin = np.maximum(at + 5, end)
            end = np.full(num_ranks, begin.max() + MOVING_US)
            begins.append(begin)
            ends.append(end)
        free = end + OPTIMIZER_US
    begin_ns, end_ns = ((1e3 * np.array(values)).astype(np.int64) for values in (begins, ends))
    calls = {rank: {"all_reduce": Calls(begin_ns[:, rank], end_ns[:, rank])} for rank in range(num_ranks)}
    found = arrivals(calls, {"all_reduce": tuple(range(num_ranks))}, True, num_steps)
    if not found.culprits:
        return "nobody"
    return "right" if late is not None and found.culprits == (late,) else "wrong"


def main() -> None:
    """Print the table."""
    for fault, of in FAULTS.items():
        row = []
        for kind, size in NOISES:
            counts: Counter[str] = Counter()
            for num_ranks in NUM_RANKS:
                for num_steps in NUM_STEPS:
                    for seed in SEEDS:
                        key = [seed, num_ranks, num_steps, round(1000 * size), *map(ord, kind)]
                        generator = np.random.default_rng(key)
                        factors = np.maximum(noisy(kind, size, (num_steps, num_ranks), generator), 0.5)
                        late = int(generator.integers(num_ranks))
                        factors[:, late] *= 1 + of(num_steps)
                        counts[said(factors, None if fault == "healthy" else late)] += 1
            row.append(
                f"{kind} {100 * size:.0f} %: "
                + "/".join(str(counts[one]) for one in ("right", "nobody", "wrong"))
            )
        print(f"{fault:26}", *row, sep="  ", flush=True)


if __name__ == "__main__":
    main()
