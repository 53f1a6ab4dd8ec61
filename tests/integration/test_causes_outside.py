"""What the rest of the machine does to one rank of a real training has one name, whatever phase it falls into."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from training import end, launch, wait_for_ranks

pytest.importorskip("torch")
# Ten looks a second at a process, by an agent that gives way to everybody, tell that it was stopped: where no core is
# free for them, a rank is late and why is not told. tests/unit/test_causes_outside.py has the same in known looks.
pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.extended]

ACCURACY = Path(__file__).parents[1] / "accuracy"
sys.path.insert(0, str(ACCURACY))

from disturbances import LIMIT_CORES, cpu_group, limited, pulses  # noqa: E402

RECORDED = "24s"  # looks at a process come once a second, and some of them have to meet what is looked for


def diagnosed(disturb: Callable[[dict[int, int]], AbstractContextManager[None]], folder: Path) -> Any:
    """Two ranks that compute on their cores, one of them disturbed: what is said of them."""
    recording = folder / "run.tuirec"
    command = [sys.executable, "-m", "tuiadvisor"]
    training = launch(2, ["ddp:none", "--busy", "--scale", "2"], ACCURACY / "zoo.py")
    try:
        pids = {rank.rank: rank.pid for rank in wait_for_ranks(training, 2) if rank.rank is not None}
        target = ["--pid", str(training.pid), "-o", str(recording), "--for", RECORDED]
        with disturb(pids):
            done = subprocess.run(
                [*command, "record", *target], capture_output=True, text=True, timeout=PATIENCE_S, check=False
            )
        assert done.returncode == 0, done.stderr
    finally:
        end(training)
    told = subprocess.run(
        [*command, "diagnose", str(recording), "--json"], capture_output=True, timeout=PATIENCE_S, check=True
    )
    return json.loads(told.stdout)


def the_late_rank(document: Any) -> tuple[int, str, str]:
    """(rank, cause, the verdict's words) of the straggler; exactly one is named."""
    assert "straggler" == document["verdict"]["finding"], document["verdict"]
    ((late),) = document["stragglers"]["ranks"]
    return late["rank"], late["cause"], document["verdict"]["sentence"]


def test_a_rank_that_is_stopped_again_and_again(tmp_path: Path) -> None:
    """20 ms of every 50, by a signal: in all phases alike."""
    rank, cause, sentence = the_late_rank(diagnosed(pulses, tmp_path))
    assert (1, "host") == (rank, cause), sentence
    assert "stopped again and again" in sentence


def test_a_rank_whose_container_has_a_quarter_of_a_core(tmp_path: Path) -> None:
    """A CPU limit, in a control group of its own."""
    group = cpu_group(LIMIT_CORES)
    if group is None:
        pytest.skip("no CPU limit can be set here (as root, with /sys/fs/cgroup writable)")
    group.rmdir()
    rank, cause, sentence = the_late_rank(diagnosed(limited, tmp_path))
    assert (1, "host") == (rank, cause), sentence
    assert f"CPU limit of its container ({LIMIT_CORES} cores)" in sentence
