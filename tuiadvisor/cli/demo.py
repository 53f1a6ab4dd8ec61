"""`tuiadvisor demo`: a real training on this machine with one fault, and the screens on it while it runs."""

from __future__ import annotations

import contextlib
import importlib.util
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tuiadvisor import expendable
from tuiadvisor.advisor.judge.findings import catalog
from tuiadvisor.agent.discovery import find_ranks
from tuiadvisor.app.live_feed import LiveFeed
from tuiadvisor.app.live_session import Session
from tuiadvisor.cli.watching import say_goodbye, show, watch_once
from tuiadvisor.errors import FailureError, TuiadvisorError
from tuiadvisor.ownpython import own_environment, python_command
from tuiadvisor.text.printed import say, say_on_stderr
from tuiadvisor.text.terminal import shows_screens

if TYPE_CHECKING:
    import argparse

# Scenario -> (what the training is told, what to look for). The diagnosis sees neither.
SCENARIOS: Final = {
    "slow-backward": (
        ["--fault", "slow-backward", "--fault-rank", "2", "--delay-ms", "15"],
        "one rank computes its gradients late, yet all ranks show the same step time",
    ),
    "slow-data": (
        ["--fault", "slow-data", "--fault-rank", "1", "--delay-ms", "15"],
        "one rank waits for its data, the others wait for it",
    ),
    "input-bound": (["--fault", "slow-data", "--delay-ms", "15"], "all ranks wait for data"),
    "slow-forward": (
        ["--fault", "slow-forward", "--fault-rank", "3", "--delay-ms", "15"],
        "one rank is slow in forward",
    ),
    "heavy-comm": (["--fault", "heavy-comm"], "the gradients are large and the batch is small"),
    "checkpoint": (["--fault", "checkpoint"], "rank 0 stops every 40 steps to write a checkpoint"),
    "slow-start": (
        ["--fault", "slow-start", "--slow-steps", "60"],
        "the first steps are far slower than the rest",
    ),
    "onset": (
        ["--fault", "slow-backward", "--fault-rank", "2", "--delay-ms", "15", "--onset", "350"],
        "all is well at first; one rank becomes slow at step 350",
    ),
    "pipeline": (
        ["--forward-ms", "3", "--heavy-stage", "2"],
        "four stages of a pipeline, one of which holds twice the work of the others",
    ),
    "pipeline-bubble": (
        ["--forward-ms", "6", "--micro-batches", "5"],
        "four equal stages of a pipeline, but too few micro-batches to keep them busy",
    ),
    "healthy": (["--fault", "none"], "nothing: the advisor should find nothing worth acting on"),
}
NUM_RANKS: Final = 4
START_PATIENCE_S: Final = 60.0
WARM_S: Final = 3.0  # attach to a training that is under way, as a user would
TRAINING_S: Final = 3600.0
INTRO: Final = """A real training of {ranks} ranks runs on this machine. It knows nothing of tuiadvisor;
the probes went in while it was running.

Scenario: {scenario}: {what}.

{look}

1 overview   2 ranks   3 pipeline   4 overlap   enter details   ? keys   q leave (and end the demo's training)"""
LOOK: Final = """Look at the verdict at the top, then at the row of each rank:
who arrives last is the culprit, who waits is the victim."""
LOOK_AT_EXCHANGE: Final = """Look at the verdict at the top, then press 4: how much of the all-reduce
compute hides, and whether other buckets would hide more."""
LOOK_AT_PIPELINE: Final = """Look at the verdict at the top, then press 3: one step by rank and
micro-batch, what keeps the ranks idle, how even the stages are."""
LOOKS: Final = {"heavy-comm": LOOK_AT_EXCHANGE}
NEXT: Final = (
    """Another fault: tuiadvisor demo slow-data. Your own training, while it runs: tuiadvisor watch"""
)
# A verdict that comes at once may come too early where the fault begins later or ends soon: watch at least so long.
AT_LEAST_S: Final = {
    "onset": 30.0,
    "slow-start": 20.0,
    "checkpoint": 12.0,
    "pipeline": 12.0,
    "pipeline-bubble": 12.0,
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "scenario", nargs="?", default="slow-backward", choices=tuple(SCENARIOS), metavar="SCENARIO",
        help="one of: " + ", ".join(SCENARIOS),
    )  # fmt: skip
    parser.add_argument("--headless", action="store_true", help="no screens: print the verdict")
    parser.add_argument("--ranks", type=int, default=NUM_RANKS, help=argparse_ranks())


def argparse_ranks() -> str:
    """Help of --ranks."""
    return f"ranks to train with (default {NUM_RANKS})"


def run(options: argparse.Namespace) -> int:
    """Start the training, attach, show, end the training."""
    if importlib.util.find_spec("torch") is None:
        raise TuiadvisorError(
            "the demo trains with torch, which is not installed: pip install 'tuiadvisor[demo]'"
        )
    if not 1 < options.ranks <= 64:
        raise TuiadvisorError(f"--ranks {options.ranks}: the demo trains with 2 to 64 ranks")
    catalog()  # a wrong rule file is said before the training is started
    arguments, what = SCENARIOS[options.scenario]
    script = training_script("pipeline.py" if options.scenario.startswith("pipeline") else "train.py")
    headless = options.headless or not shows_screens()
    stream = sys.stdout if headless else sys.stderr
    say(f"starting a training of {options.ranks} ranks ({options.scenario}: {what}) ...", stream=stream)
    training = start_training(options.ranks, script, arguments)
    try:
        wait_for_ranks(training, options.ranks)
        say("attaching to it while it runs ...", stream=stream)
        with Session(
            [training.pid], None, script.name, f"demo/{script.name} " + " ".join(arguments)
        ) as session:
            feed = LiveFeed(session.source(), session.agent_error, session.request)
            feed.start()
            try:
                if headless:
                    return watch_once(session, feed, 60.0, AT_LEAST_S.get(options.scenario, 2.0))
                look = LOOK_AT_PIPELINE if script.name == "pipeline.py" else LOOKS.get(options.scenario, LOOK)
                intro = INTRO.format(ranks=options.ranks, scenario=options.scenario, what=what, look=look)
                show(feed, intro)
            finally:
                feed.stop()
        say_goodbye(feed.latest(), None)
        say(NEXT)
    finally:
        # Whoever read what we print may be gone (`| head`): the training must not outlive us for that.
        with contextlib.suppress(OSError):
            say_on_stderr("ending the demo's training ...")
        end_training(training)
    return 0


def training_script(name: str) -> Path:
    """A script of demo/: beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parents[1]
    for path in (package.parent / "demo" / name, package / "demo" / name):
        if path.is_file():
            return path
    raise FailureError(f"{package}: demo/{name} is missing; reinstall tuiadvisor")


def start_training(num_ranks: int, path: Path, arguments: list[str]) -> subprocess.Popen[bytes]:
    """Run torchrun on the demo script, in a session of its own."""
    ranks = ["--standalone", f"--nproc-per-node={num_ranks}"]
    script = [str(path), "--seconds", str(TRAINING_S), "--print-every", "0", *arguments]
    with expendable.as_found():
        return subprocess.Popen(
            python_command("torch.distributed.run", *ranks, *script),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**own_environment(), "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )


def wait_for_ranks(training: subprocess.Popen[bytes], num_ranks: int) -> None:
    """Until all ranks run. FailureError if the training ends before."""
    deadline = time.monotonic() + START_PATIENCE_S
    while time.monotonic() < deadline:
        if training.poll() is not None:
            raise FailureError(
                f"the demo training ended with exit code {training.returncode} before it began"
            )
        try:
            if len(find_ranks([training.pid])) >= num_ranks:
                time.sleep(WARM_S)
                return
        except TuiadvisorError:
            pass  # the launcher has not started them yet
        time.sleep(0.2)
    raise FailureError(f"the demo training did not start {num_ranks} ranks within {START_PATIENCE_S:.0f} s")


def end_training(training: subprocess.Popen[bytes]) -> None:
    """Ask the launcher to end its ranks; insist after a while."""
    if training.poll() is None:
        training.terminate()
        try:
            training.wait(15)
        except subprocess.TimeoutExpired:
            training.kill()
            training.wait()
