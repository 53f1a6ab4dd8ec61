"""Ranks of a script of our own without a launcher: started, watched by the real commands, ended by pid.

A script is called with a KIND and a FOLDER, and touches FOLDER/ready.RANK once it trains.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from patience import PATIENCE_S, RECORD_FOR, wait_until
from training import end


@contextlib.contextmanager
def training(script: str, kind: str, folder: Path, num_ranks: int = 2) -> Iterator[list[int]]:
    """So many ranks of `tests/script KIND FOLDER` under way; their pids."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    shared = {**os.environ, "OMP_NUM_THREADS": "1"}
    if num_ranks > 1:
        shared |= {"WORLD_SIZE": str(num_ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ranks = []
    for rank in range(num_ranks):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank)} if num_ranks > 1 else {}
        with (folder / f"log.{rank}").open("wb") as log:
            ranks.append(
                subprocess.Popen(
                    [sys.executable, str(Path(__file__).parent / script), kind, str(folder)],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=shared | own, start_new_session=True,
                )
            )  # fmt: skip

    def is_ready() -> bool:
        for rank in ranks:
            assert rank.poll() is None, "".join(path.read_text()[-2000:] for path in folder.glob("log.*"))
        return len(list(folder.glob("ready.*"))) >= num_ranks

    try:
        wait_until(is_ready, f"{num_ranks} ranks train")
        yield [rank.pid for rank in ranks]
    finally:
        for rank in ranks:
            end(rank)


def tuiadvisor(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "tuiadvisor", *arguments],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip


def diagnosis(pids: list[int], folder: Path, num_steps: int) -> dict[str, Any]:
    """Attach, record, leave, diagnose."""
    recording = str(folder / "run")
    steps = ["--steps", str(num_steps), "--for", RECORD_FOR]
    done = tuiadvisor("record", "--pid", *map(str, pids), "-o", recording, *steps)
    assert done.returncode == 0, done.stderr
    done = tuiadvisor("diagnose", recording, "--json")
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result
