"""A real training, recorded while its own profiler writes traces: these find their steps in the recording."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from patience import PATIENCE_S

from tuiadvisor.app.timeline import SlicesRead
from tuiadvisor.app.whole_recording import frames_of

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

# Trains until both ranks are watched, then some steps more; ACTIVE steps of them under torch.profiler.
TRAINING = """
import os, sys, time
import torch, torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, schedule
from tuiadvisor.agent.session import mapped_rings

rank, folder = int(os.environ["RANK"]), sys.argv[1]
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def step():
    optimizer.zero_grad()
    model(torch.ones(8, 64)).sum().backward()
    optimizer.step()
    time.sleep(0.02 + 0.08 * rank)

watched = torch.zeros(1)
while not watched.item():
    step()
    watched = torch.tensor([float(bool(mapped_rings(os.getpid())))])
    dist.all_reduce(watched, op=dist.ReduceOp.MIN)
for _ in range(25):
    step()
def save(profiler):
    profiler.export_chrome_trace(f"{folder}/rank{rank}.json")
with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=0, warmup=1, active=5, repeat=1),
             on_trace_ready=save) as profiler:
    for _ in range(10):
        step()
        profiler.step()
dist.destroy_process_group()
"""


def test_the_trainings_own_traces_find_their_steps(tmp_path: Path) -> None:
    """Five steps of both ranks, their operators by name, the late rank's sleep as what it is: no operator."""
    script, traces, run = tmp_path / "train.py", tmp_path / "traces", tmp_path / "run.tuirec"
    script.write_text(TRAINING)
    traces.mkdir()
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script), str(traces)]
    ours = [sys.executable, "-m", "tuiadvisor"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    trained = subprocess.run(
        [*ours, "run", "--no-ui", "--record", str(run), "--", sys.executable, *torchrun],
        env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert trained.returncode == 0, trained.stderr[-4000:]
    opened = subprocess.run(
        [*ours, "open", str(run), str(traces), "--json"],
        env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert opened.returncode == 0, opened.stderr
    told = json.loads(opened.stdout)
    traced = told["traced"]
    assert [0, 1] == traced["ranks"]
    # A mark of the profiler and a step of ours have borders of their own.
    assert 4 <= traced["last_step"] - traced["first_step"] + 1 <= 6
    assert "operators" == traced["device"]["unit"]
    assert "gloo:all_reduce" in {one["name"] for one in traced["device"]["kernels"]}
    # What the exchange itself takes is the machine's; which of the two ranks sleeps longer is not.
    host = {one["rank"]: one["host"] for one in traced["device"]["ranks"]}
    assert host[1] > host[0]
    out = tmp_path / "out.tuirec"
    beside = [*ours, "import", "kineto", str(traces), "--beside", str(run), "-o", str(out)]
    assert (
        0
        == subprocess.run(
            beside, env=environment, capture_output=True, timeout=PATIENCE_S, check=False
        ).returncode
    )
    lanes = SlicesRead(frames_of(str(out))).picture(0.0, None, 100).lanes
    assert {0, 1} == {lane.rank for lane in lanes}
