"""Pipelines on devices, healthy and with one fault each: what is decided, and whether nothing slow is kept.

    python tests/accuracy/stages.py [--ranks 2 4 8 16] [--seeds 1] [--only PATTERN]

A fault makes a stage, a device, a thread or a link slow by a tenth and more. "keep" beside one is wrong, unless it
costs nothing; so is a name that is not the guilty rank's, and beside a healthy job anything but "keep" or "tune" for
the micro-batches, of which "not decided" is counted by itself.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

import numpy as np
from simulated_devices import folded
from simulated_stages import MS, StageJob, frames, simulate

if TYPE_CHECKING:
    from collections.abc import Iterator

NUM_STEPS = 40
COSTS = 0.1  # of the step
CHUNKS = {"1f1b": 1, "gpipe": 1, "interleaved": 2}


def healthy(num_ranks: int) -> Iterator[tuple[str, StageJob]]:
    """Schedules, looks at the loss, replicas, numbers of micro-batches."""
    for schedule, each in CHUNKS.items():
        for look in (1, 10, 0):
            for pipelines, measured in ((1, 1), (2, 1), (1, 2)):
                many = StageJob(
                    num_ranks=num_ranks,
                    num_pipelines=pipelines,
                    per_rank=each,
                    num_micro_batches=(5 if num_ranks > 4 else 8) * num_ranks,
                    num_steps=NUM_STEPS * measured,
                    schedule=schedule,
                    look_every=look,
                    exchange_s=2 * MS if pipelines > 1 else 0.0,
                    measured=measured,
                    detail=tuple(range(4, NUM_STEPS * measured)),
                )
                words = f"{schedule}, look {look}, {pipelines} pipelines, 1 in {measured}"
                yield words, many
                if measured == 1:
                    yield f"few, {words}", replace(many, num_micro_batches=num_ranks)


def faults(job: StageJob) -> Iterator[tuple[str, StageJob, tuple[int, ...]]]:
    """(fault, the job with it, who is guilty; nobody of what is everybody's)."""
    step_s, depth = float(np.mean(simulate(job).step_s[10:])), job.num_ranks
    num, tenth_s = job.num_micro_batches, 0.12 * step_s
    everyone = tuple(range(job.world_size))
    for rank in sorted({0, depth // 2, depth - 1}):
        yield f"device of rank {rank} 1.12x", replace(job, slow_rank=((rank, 1.12),)), (rank,)
        yield f"link of rank {rank}", replace(job, slow_link=((rank, _dear(job, rank, tenth_s)),)), ()
        paused = replace(job, pause_s=((rank, tenth_s + 0.012 * num),))
        yield f"thread of rank {rank} logs", paused, (rank,)
        launches = 1.3 * (job.backward_s + job.forward_s) / 2 / job.launch_s / job.per_rank
        yield f"thread of rank {rank} launches slowly", replace(job, slow_thread=((rank, launches),)), (rank,)
        dear = 1 + (tenth_s + 3 * (job.forward_s + job.backward_s) * depth) / job.optimizer_s
        yield f"optimizer of rank {rank}", replace(job, slow_optimizer=((rank, dear),)), (rank,)
    stage = job.num_stages // 2
    guilty = tuple(range(stage % depth, job.world_size, depth))
    yield f"stage {stage} 1.12x", replace(job, slow_stage=((stage, 1.12),)), guilty
    yield "data of the first rank", replace(job, data_s=((0, tenth_s + 0.02),)), (0,)
    bound = 1.3 * job.backward_s / job.launch_s / job.per_rank
    yield "all threads launch slowly", replace(job, slow_thread=tuple((r, bound) for r in everyone)), ()
    yield "all links", replace(job, send_s=_dear(job, None, tenth_s)), ()
    if job.num_pipelines > 1:
        replica = tuple(range(depth, 2 * depth))
        yield "one replica 1.12x", replace(job, slow_rank=tuple((r, 1.12) for r in replica)), replica
        yield "exchange", replace(job, exchange_s=job.exchange_s + tenth_s), ()


def _dear(job: StageJob, rank: int | None, loss_s: float) -> float:
    """Seconds a send by which the step becomes so much longer, found by trying."""
    few, send_s = replace(job, num_steps=4, noise=0.0), 0.5 * MS
    clean_s = np.mean(simulate(few).step_s[2:])
    while send_s < 1.0:
        slow = replace(few, send_s=send_s) if rank is None else replace(few, slow_link=((rank, send_s),))
        if np.mean(simulate(slow).step_s[2:]) - clean_s >= loss_s:
            break
        send_s *= 1.4
    return send_s


def main() -> int:
    """Print what was wrong and a line a kind; 1 when anything was."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", default="*")
    options = parser.parse_args()
    begin, tables = process_time(), dict[str, Counter[str]]()
    for num_ranks in options.ranks:
        for name, job in healthy(num_ranks):
            if not fnmatch.fnmatch(name, options.only):
                continue
            for seed in range(options.seeds):
                _count(tables, "healthy", f"{num_ranks} {name}", replace(job, seed=seed), (None, 0.0))
            if name.startswith("few") or job.measured > 1:
                continue
            clean_s = np.mean(simulate(job).step_s[10:])
            for kind, faulty, guilty in faults(job):
                costs = float(1 - clean_s / np.mean(simulate(faulty).step_s[10:]))
                for seed in range(options.seeds):
                    words = kind.split(" of rank")[0]
                    where = f"{num_ranks} {name}: {kind} costs {costs:.0%}"
                    _count(tables, words, where, replace(faulty, seed=seed), (guilty, costs))
    print(f"\n{'':32} runs  keep  tune  undecided  right name  wrong")
    for kind, count in tables.items():
        figures = (count[one] for one in ("runs", "keep", "tune", "None", "named", "wrong"))
        print(f"{kind:32} " + "  ".join(f"{figure:5}" for figure in figures))
    print(f"{process_time() - begin:.0f} s of CPU")
    return int(any(count["wrong"] for count in tables.values()))


def _count(
    tables: dict[str, Counter[str]],
    kind: str,
    where: str,
    job: StageJob,
    truth: tuple[tuple[int, ...] | None, float],
) -> None:
    """truth: who is guilty, None of a healthy job, and what it costs."""
    guilty, costs = truth
    count, view = tables.setdefault(kind, Counter()), folded(frames(job))
    decision = view.verdict.decision
    named = {rank for found in view.findings if found.severity != "info" for rank in found.ranks}
    if len(named) == job.world_size:
        named = set()  # of all ranks
    count["runs"] += 1
    count[str(decision)] += 1
    if guilty is None:
        bubble = decision == "tune" and view.verdict.finding == "pipeline_bubble"
        wrong = decision is not None and decision != "keep" and not bubble
    else:
        is_slow = costs >= COSTS or "1.12x" in where
        wrong = (decision == "keep" and is_slow) or bool(named - set(guilty))
        count["named"] += bool(named) and named <= set(guilty)
    count["wrong"] += wrong
    if wrong or (guilty is None and decision is None):
        print(f"{'WRONG' if wrong else 'open '} {where}: {view.verdict.sentence}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
