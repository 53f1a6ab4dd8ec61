"""`tuiadvisor capture` on real ranks: overlap of a schedule of known lengths, beside a watch, on a hung rank."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from training import running

from tuiadvisor.agent.session import mapped_rings
from tuiadvisor.app.live_session import Session
from tuiadvisor.importers.kinetoreport import kineto_document

pytest.importorskip("torch")
pytestmark = pytest.mark.slow
NUM_WINDOWS = 3

# The rank whose turn it is issues an all-reduce, computes for its known share of the time the other one lets it wait,
# and then waits. Its own stopwatch is the truth: how much of the time in collectives, from issue to completion, it
# computed; a busy machine lengthens both.
SCHEDULE = """
import json, os, sys, time
import torch, torch.distributed as dist
sys.path.insert(0, sys.argv[2])
from probing import probed
from tuiadvisor.agent.payload import extension_code

rank, folder = int(os.environ["RANK"]), sys.argv[1]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
weight = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([weight], lr=0.1)
matrix, payload = torch.randn(192, 192), torch.ones(64)
LATE_S, SHARES, WINDOWS = 0.12, (0.5, 0.25), 3
comm_s = hidden_s = 0.0

def compute(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        matrix @ matrix

def step():
    global comm_s, hidden_s
    (weight * 1.0).sum().backward()
    for turn in (0, 1):
        begun = time.monotonic()
        dist.barrier()
        comm_s += time.monotonic() - begun
        if rank != turn:
            time.sleep(LATE_S)
            begun = time.monotonic()
            dist.all_reduce(payload)
            comm_s += time.monotonic() - begun
            continue
        issued = time.monotonic()
        work = dist.all_reduce(payload, async_op=True)
        begin = time.monotonic()
        compute(LATE_S * SHARES[rank])
        computed = time.monotonic()
        work.wait()
        comm_s += time.monotonic() - issued
        hidden_s += computed - begin
    optimizer.step()

for _ in range(2):
    step()
from pathlib import Path
truth = []
with probed(Path(folder)):
    for number in range(WINDOWS):
        wish = f"{folder}/wish{rank}.{number}"
        os.mkdir(wish)
        exec(extension_code("capture", f"begin({wish!r}, 3, (0, {time.monotonic_ns() + 10**11}))", wish), {})
        step()
        step()
        comm_s = hidden_s = 0.0
        for _ in range(3):
            step()
        truth.append(hidden_s / comm_s)
        step()
json.dump(truth, open(f"{folder}/truth{rank}.json", "w"))
dist.barrier()
dist.destroy_process_group()
time.sleep(0.2)  # gloo's thread that lets go of a tensor while the interpreter ends is a SIGABRT, watched or not
"""


@pytest.mark.alone
def test_overlap_of_a_schedule_of_known_lengths(tmp_path: Path) -> None:
    """Within ten points of the constructed overlap on each of two gloo ranks, and different on each."""
    script = tmp_path / "schedule.py"
    script.write_text(SCHEDULE)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    arguments = [sys.executable, str(script), str(tmp_path), str(Path(__file__).parents[1])]
    ranks = [
        subprocess.Popen(arguments, env={**environment, "RANK": str(rank)}, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    texts = [rank.communicate(timeout=PATIENCE_S)[1] for rank in ranks]
    assert [0, 0] == [rank.returncode for rank in ranks], "\n".join(texts)  # pytest cuts a list short
    found = [overlaps(tmp_path, number) for number in range(NUM_WINDOWS)]
    for rank in range(2):
        truth = json.loads((tmp_path / f"truth{rank}.json").read_text())
        # On a busy machine threads wake up late, between the stopwatch and the trace: three points when it is quiet.
        errors = [abs(real - seen[rank]) for real, seen in zip(truth, found, strict=True)]
        assert statistics.median(errors) <= 0.1, (truth, found)


def overlaps(folder: Path, number: int) -> dict[int, float]:
    """By rank, of one window's traces."""
    traces = folder / f"traces{number}"
    traces.mkdir()
    for rank in range(2):
        (folder / f"wish{rank}.{number}" / "trace.json").rename(traces / f"rank{rank}.json")
    rows = kineto_document(traces)["per_rank"]
    assert ["cpu", "cpu"] == [row["device"] for row in rows]
    return {row["rank"]: row["overlap"] for row in rows}


def capture(training: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "tuiadvisor", "capture", *arguments, "--pid", str(training)],
        capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip


def test_beside_a_watch_and_alone(tmp_path: Path) -> None:
    """A watch keeps its probes through a capture; alone, the capture takes out what it put in."""
    with running(2, "--step-ms", "30") as (training, ranks):
        with Session([training.pid], str(tmp_path / "run.tuirec"), "train.py", "") as session:
            deadline = time.monotonic() + PATIENCE_S
            while not all(mapped_rings(rank.pid) for rank in ranks) and time.monotonic() < deadline:
                time.sleep(0.1)
            shared = [mapped_rings(rank.pid) for rank in ranks]
            done = capture(training.pid, "all", "--steps", "2", "-o", str(tmp_path / "both"), "--json")
            assert done.returncode == 0, done.stderr
            assert shared == [mapped_rings(rank.pid) for rank in ranks]
            assert session.agent.poll() is None
        document: dict[str, Any] = json.loads(done.stdout)
        assert [0, 1] == [entry["rank"] for entry in document["capture"]["ranks"]]
        assert all(Path(entry["file"]).stat().st_size > 1000 for entry in document["capture"]["ranks"])
        assert all(row["comm_total_s"] > 0 for row in document["per_rank"])
        assert [2, 2] == [len(row["steps"]) for row in document["per_rank"]]
        assert [[], []] == [mapped_rings(rank.pid) for rank in ranks]
        alone = capture(training.pid, "1,7", "-o", str(tmp_path / "one"))
        assert alone.returncode == 1, alone.stderr
        assert "not on this machine" in alone.stdout
        assert ["rank1.json"] == [path.name for path in (tmp_path / "one").iterdir()]
        assert [[], []] == [mapped_rings(rank.pid) for rank in ranks]
        assert training.poll() is None


def test_ranks_that_hang_are_reported_and_left(tmp_path: Path) -> None:
    """A stopped rank and the one that waits for it are named with where they are; both go on training afterwards."""
    with running(2, "--step-ms", "30") as (training, ranks):
        os.kill(ranks[1].pid, signal.SIGSTOP)
        try:
            for patience_s in (2, 8, 32, 128):  # a machine may need longer to attach at all
                hung = capture(
                    training.pid, "all", "-o", str(tmp_path / "none"), "--patience", f"{patience_s}s"
                )
                if "attaching" not in hung.stderr and "waiting for the interpreter" not in hung.stderr:
                    break
        finally:
            os.kill(ranks[1].pid, signal.SIGCONT)
        assert hung.returncode == 1
        assert f"rank 0: no step ended within {patience_s} s" in hung.stderr
        assert "rank 1: it is stopped" in hung.stderr
        assert not (tmp_path / "none").exists()
        after = capture(training.pid, "all", "-o", str(tmp_path / "after"))
        assert after.returncode == 0, after.stderr
