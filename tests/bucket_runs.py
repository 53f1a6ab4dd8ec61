"""Runs of `bucket_training.py`, and what is said of their exchange."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from patience import PATIENCE_S

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.events import EVENT_COLUMNS, STEP_COLUMNS
from tuiadvisor.stream.frames import Frame, FrameKind, pack_columns
from tuiadvisor.views.run_view import RunView

SCRIPT = Path(__file__).with_name("bucket_training.py")
NUM_RANKS = 2
HOST = "here/1/1"


def seen(folder: Path, *options: str) -> RunView:
    """The view of a run of which every step was seen in detail; folder: of this run alone."""
    _run(*_training(), "--tell", str(folder), *options)
    ranks = [
        {"rank": rank, "world_size": NUM_RANKS, "state": "live", "device": "cpu"} for rank in range(NUM_RANKS)
    ]
    hello = {
        "host": "here",
        "agent_pid": 1,
        "wall_ns": 1,
        "mono_ns": 1,
        "num_cpus": os.cpu_count(),
        "ranks": ranks,
    }
    advisor = Advisor()
    advisor.feed_frame(Frame(FrameKind.HELLO, HOST, 0, 1, hello))
    told = [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(NUM_RANKS)]
    kinds = (
        (FrameKind.STEPS, "steps", ("rank", *STEP_COLUMNS)),
        (FrameKind.EVENTS, "events", ("rank", "kind", *EVENT_COLUMNS)),
    )
    for number, (kind, what, names) in enumerate(kinds, 1):
        rows = [tuple(row) for one in told for row in one[what]]
        advisor.feed_frame(Frame(kind, HOST, number, 2, pack_columns(rows, names)))
    return advisor.view()


def _training() -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return [*launcher, f"--nproc-per-node={NUM_RANKS}", str(SCRIPT)]


def _run(*command: str) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
