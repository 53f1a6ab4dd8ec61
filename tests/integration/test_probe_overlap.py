"""Overlap from the probe's own records, on a schedule of DDP whose hidden share the ranks themselves measure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_S

pytest.importorskip("torch")
NUM_TURNS = 6

# DDP with two buckets. The rank whose turn it is launches the first, computes for its share of the time by which the
# other one is late, and then waits. Communication is under way all the time from before `between` computes until
# backward returns, which is what the stopwatch here measures.
SCHEDULE = """
import json, os, sys, time
import torch, torch.distributed as dist
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from probing import probed

rank, folder = int(os.environ["RANK"]), sys.argv[1]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
LATE_S, SHARES, HURRIED, TURNS = 0.4, (0.6, 0.25), 5, 6
delays_s = {"before": 0.0, "between": 0.0}
begun = computed = 0.0

class Delay(torch.autograd.Function):
    @staticmethod
    def forward(context, value, name):
        context.name = name
        return value.clone()

    @staticmethod
    def backward(context, gradient):
        global begun, computed
        if context.name == "between":
            begun = time.monotonic()
        time.sleep(delays_s[context.name])
        if context.name == "between":
            computed = time.monotonic()
        return gradient, None

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(8, 8, bias=False), torch.nn.Linear(8, 8, bias=False)

    def forward(self, value):
        value = Delay.apply(self.first(value), "between")
        return Delay.apply(self.last(value), "before")

model = torch.nn.parallel.DistributedDataParallel(Model(), bucket_cap_mb=0.0001)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
truth = {}
with probed(Path(folder), detail_s=600) as observed:
    for iteration in range(HURRIED + TURNS + 1):
        turn = iteration % 2 if 0 <= iteration - HURRIED < TURNS else None  # the step after the last one ends it
        delays_s["before"] = LATE_S if turn is not None and rank != turn else 0.0
        delays_s["between"] = LATE_S * SHARES[rank] if rank == turn else 0.0
        loss = model(torch.ones(4, 8)).sum()
        loss.backward()
        if rank == turn:
            truth[iteration] = (computed - begun) / (time.monotonic() - begun)
        optimizer.step()
        optimizer.zero_grad()
    steps = [step for step in observed.steps if step["comm_total_ns"] >= 0]
    long = [step for step in steps if step["comm_total_ns"] > 0.9e9 * LATE_S]
    found = [1 - step["comm_exposed_ns"] / step["comm_total_ns"] for step in long]
json.dump([list(truth.values()), found], open(f"{folder}/overlap{rank}.json", "w"))
dist.barrier()
dist.destroy_process_group()
"""


def test_overlap_of_a_schedule_of_known_lengths(tmp_path: Path) -> None:
    """Each rank's hidden share of communication within three points of its own stopwatch, and not the other's."""
    script = tmp_path / "schedule.py"
    script.write_text(SCHEDULE)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), str(tmp_path), str(Path(__file__).parents[1])],
            env={**environment, "RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    texts = [rank.communicate(timeout=PATIENCE_S)[1] for rank in ranks]
    assert [0, 0] == [rank.returncode for rank in ranks], texts
    shares = []
    for rank in range(2):
        truth, found = json.loads((tmp_path / f"overlap{rank}.json").read_text())
        assert NUM_TURNS // 2 == len(truth) == len(found), (truth, found)
        # On a busy machine threads wake up late, between the stopwatch and the probe: the quietest turn counts.
        errors = [abs(real - seen) for real, seen in zip(truth, found, strict=True)]
        assert min(errors) <= 0.03, (truth, found)
        shares.append(found[errors.index(min(errors))])
    assert shares[0] > shares[1] + 0.2, shares
