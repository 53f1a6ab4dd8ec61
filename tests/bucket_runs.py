"""Runs of `bucket_training.py` under the real commands, and what is said of their exchange."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("bucket_training.py")
PATIENCE_S = 180


def recorded(
    folder: Path, name: str, *, cap_mb: float, backward_ms: float = 0.0, products: int = 0, steps: int = 100
) -> dict[str, Any]:
    """The `exchange` of the run's diagnosis, and its `step` under that name."""
    recording = folder / f"{name}.tuirec"
    training = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        str(SCRIPT),
    ]
    arguments = ["--cap-mb", str(cap_mb), "--backward-ms", str(backward_ms), "--steps", str(steps)]
    arguments += ["--products", str(products)]
    # Half of the step for the probe: as many steps in detail as there may be.
    _run("run", "--record", str(recording), "--no-ui", "--budget", "50%", "--", *training, *arguments)
    document = json.loads(_run("diagnose", str(recording), "--json"))
    assert document["exchange"] is not None, document["unknown"]
    return {**document["exchange"], "step": document["step"]}


def _run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tuiadvisor", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
