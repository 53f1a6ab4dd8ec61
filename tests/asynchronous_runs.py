"""Trainings on asynchronous devices under the real commands, and what they themselves saw by their devices' clocks."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from asynchronous_training import BORDERS
from patience import PATIENCE_S, RECORD_FOR
from training import running

Floats = npt.NDArray[np.float64]


def tuiadvisor(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user would."""
    return subprocess.run(
        [sys.executable, "-m", "tuiadvisor", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@dataclass(frozen=True)
class Training:
    """What to start: torchrun with so many ranks of a script, which writes its own times with a prefix of files."""

    script: Path
    num_ranks: int
    arguments: tuple[str, ...] = ()


def diagnosed(training: Training, folder: Path, num_steps: int) -> dict[str, Any]:
    """Attach to the running training, record so many steps, and give the diagnosis: `diagnose --json`.

    folder: gets the training's own times, the recording and the diagnosis. RuntimeError where a command fails or the
    training ended meanwhile.
    """
    recording = folder / "run.tuirec"
    arguments = ["--times", str(folder / "times"), *training.arguments]
    with running(training.num_ranks, *arguments, script=training.script) as (launcher, _):
        length = ["--steps", str(num_steps), "--for", RECORD_FOR]
        done = tuiadvisor("record", "--pid", str(launcher.pid), "-o", str(recording), *length)
        if done.returncode or launcher.poll() is not None:
            raise RuntimeError(f"record: {done.returncode}, training: {launcher.poll()}: {done.stderr}")
    shown = tuiadvisor("diagnose", str(recording), "--json")
    if shown.returncode:
        raise RuntimeError(shown.stderr)
    (folder / "diagnosis.json").write_text(shown.stdout)
    document: dict[str, Any] = json.loads(shown.stdout)
    return document


@dataclass(frozen=True)
class OwnTimes:
    """What R ranks of tests/asynchronous_training.py saw of K steps, by devices' clocks that are one."""

    begin_s_KR: Floats
    span_s_BKR: Floats  # of each of BORDERS

    @property
    def arrive_s_KR(self) -> Floats:
        """When each device had done its own backward."""
        own = self.span_s_BKR[: BORDERS.index("exchange")]
        return np.asarray(self.begin_s_KR + own.sum(axis=0))

    @property
    def exchange_s_KR(self) -> Floats:
        """From there until the gradients were there."""
        return np.asarray(self.span_s_BKR[BORDERS.index("exchange")])

    @property
    def step_s(self) -> float:
        """The mean step."""
        return float(np.diff(self.begin_s_KR.mean(axis=1)).mean())

    def last_alone_s(self) -> Floats:
        """By rank, by how much it came after all others in the mean step: R."""
        arrive = self.arrive_s_KR
        others = np.stack([np.delete(arrive, rank, axis=1).max(axis=1) for rank in range(arrive.shape[1])])
        return np.asarray(np.maximum(arrive.T - others, 0.0).mean(axis=1))


def own_times(folder: Path, last: int) -> OwnTimes:
    """What the ranks wrote of their last so many steps."""
    ranks = []
    for path in sorted(folder.glob("times.*"), key=lambda path: int(path.suffix[1:])):
        lines = path.read_text().splitlines(keepends=True)
        ranks.append([json.loads(line) for line in lines if line.endswith("\n")])
    end = min(len(steps) for steps in ranks)
    steps_KR = [[steps[k] for steps in ranks] for k in range(max(end - last, 0), end)]
    return OwnTimes(
        np.array([[step["begin_ns"] / 1e9 for step in row] for row in steps_KR]),
        np.array([[[step["ms"][name] / 1e3 for step in row] for row in steps_KR] for name in BORDERS]),
    )
