"""Real trainings for tests: the demo script below a launcher, started, found and surely ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
from patience import PATIENCE_S, wait_until

from tuiadvisor.agent.discovery import RankProcess, find_ranks
from tuiadvisor.errors import TuiadvisorError

SCRIPT = Path(__file__).parents[1] / "demo" / "train.py"
LIGHT = Path(__file__).parent / "light"
# Of Gloo itself, and of torch where its Gloo names no thread (Debian's).
GLOO_LOOPS = ("gloo_tcp_loop", "pt_gloo_runloop")
STEPS_WOKEN = 6  # gloo's loop wakes once or more for what a peer sends in a step


def launch(
    num_ranks: int,
    arguments: list[str],
    script: Path = SCRIPT,
    prefix: tuple[str, ...] = (),
    is_whole: bool = False,
) -> subprocess.Popen[bytes]:
    """Run the demo training below a launcher, in a session of its own; quiet unless it fails.

    prefix: a command that starts it. is_whole: with torchrun itself, where costs or every process of a job matter. Else
    the launcher is one that does not import torch, which costs as much processor time as a rank's start.
    """
    torchrun = ["-m", "torch.distributed.run"] if is_whole else [str(LIGHT / "torchrun")]
    return subprocess.Popen(
        [
            *prefix,
            sys.executable,
            *torchrun,
            "--standalone",
            f"--nproc-per-node={num_ranks}",
            str(script),
            *arguments,
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"},
        start_new_session=True,
    )


def end(training: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """Kill the launcher and every process below it, by pid."""
    family = []
    with contextlib.suppress(psutil.NoSuchProcess):
        family = psutil.Process(training.pid).children(recursive=True)
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)
    if training.poll() is None:
        training.kill()
    training.wait()


def wait_for_ranks(training: subprocess.Popen[bytes], num_ranks: int) -> list[RankProcess]:
    """Until all ranks have a process group and train: torch's library is mapped and gloo's threads run."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        assert training.poll() is None, f"training ended early with {training.returncode}"
        with contextlib.suppress(TuiadvisorError, psutil.Error):
            ranks = find_ranks([training.pid])
            if len(ranks) == num_ranks and all(_trains(rank.pid) for rank in ranks):
                return ranks
        time.sleep(0.1)
    raise AssertionError(f"{num_ranks} ranks did not start within {PATIENCE_S} s")


def _trains(pid: int) -> bool:
    """Gloo's loop threads exist once the process group is up."""
    return _num_woken(pid) is not None


def _num_woken(pid: int) -> int | None:
    """How often gloo's loop threads have woken for a message; None as long as there is none."""
    num_woken = []
    for thread in psutil.Process(pid).threads():
        task = Path(f"/proc/{pid}/task/{thread.id}")
        with contextlib.suppress(OSError):  # a thread may end while we look
            if (task / "comm").read_text().strip() in GLOO_LOOPS:
                said = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines())
                num_woken.append(int(said["voluntary_ctxt_switches"]))
    return sum(num_woken) if num_woken else None


def wait_for_steps(training: subprocess.Popen[bytes], ranks: list[RankProcess]) -> None:
    """Until the ranks have exchanged gradients a few times: the loop is under way."""
    first = {rank.pid: _num_woken(rank.pid) or 0 for rank in ranks}

    def have_stepped() -> bool:
        assert training.poll() is None, f"training ended early with {training.returncode}"
        return all((_num_woken(pid) or 0) >= num + STEPS_WOKEN for pid, num in first.items())

    wait_until(have_stepped, "the ranks make steps")


@contextlib.contextmanager
def running(
    num_ranks: int,
    *arguments: str,
    script: Path = SCRIPT,
    prefix: tuple[str, ...] = (),
    is_whole: bool = False,
) -> Iterator[tuple[subprocess.Popen[bytes], list[RankProcess]]]:
    """A training that is under way; ended afterwards whatever happens."""
    training = launch(num_ranks, ["--print-every", "0", *arguments], script, prefix=prefix, is_whole=is_whole)
    try:
        ranks = wait_for_ranks(training, num_ranks)
        wait_for_steps(training, ranks)
        yield training, ranks
    finally:
        end(training)
