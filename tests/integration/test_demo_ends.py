"""The demo's training never outlives the demo, however that ends."""

from __future__ import annotations

import signal
import subprocess
import sys

import psutil
import pytest
from patience import PATIENCE_S, wait_until

from tuiadvisor.agent.session import mapped_rings


@pytest.mark.parametrize(
    ("number", "is_watched"), [(signal.SIGTERM, False), (signal.SIGINT, True)], ids=["attaching", "watching"]
)
def test_the_training_ends_with_the_demo(number: signal.Signals, *, is_watched: bool) -> None:
    """Told to end while it attaches or watches: the launcher and its ranks go, the exit code says how it ended."""
    demo = subprocess.Popen(
        [sys.executable, "-m", "tuiadvisor", "demo", "onset", "--headless", "--ranks", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    training: list[psutil.Process] = []
    try:
        assert demo.stdout is not None
        for line in demo.stdout:
            if line.startswith("attaching"):
                break
        training = psutil.Process(demo.pid).children(recursive=True)
        ranks = [one.pid for one in training if "train.py" in " ".join(one.cmdline())]
        assert len(ranks) >= 2
        if is_watched:
            wait_until(lambda: any(map(mapped_rings, ranks)), "the ring of a rank")
        demo.send_signal(number)
        demo.communicate(timeout=PATIENCE_S)
        assert 128 + number == demo.returncode
        gone, alive = psutil.wait_procs(training, timeout=PATIENCE_S)
        assert len(gone) >= 3
        assert [] == alive
    finally:
        demo.kill()
        demo.wait()
        for process in training:
            if process.is_running():
                process.kill()
