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

from tuiadvisor.events import STEP_NAMES
from tuiadvisor.stream.frames import FrameKind, decode, unpack_columns
from tuiadvisor.stream.source import FileSource

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

    begin_s: Floats  # K x R
    span_s: Floats  # of each of BORDERS, x K x R

    @property
    def arrive_s(self) -> Floats:
        """When each device had done its own backward, K x R."""
        own = self.span_s[: BORDERS.index("exchange")]
        return np.asarray(self.begin_s + own.sum(axis=0))

    @property
    def exchange_s(self) -> Floats:
        """From there until the gradients were there, K x R."""
        return np.asarray(self.span_s[BORDERS.index("exchange")])

    @property
    def step_s(self) -> float:
        """The mean step."""
        return float(np.diff(self.begin_s.mean(axis=1)).mean())

    def last_alone_s(self) -> Floats:
        """By rank, by how much it came after all others in the mean step: R."""
        arrive = self.arrive_s
        others = np.stack([np.delete(arrive, rank, axis=1).max(axis=1) for rank in range(arrive.shape[1])])
        return np.asarray(np.maximum(arrive.T - others, 0.0).mean(axis=1))


def _written(folder: Path, last: int | None) -> list[list[Any]]:
    """The lines of the last so many steps that all ranks have written (None: of all), K x R."""
    ranks = []
    for path in sorted(folder.glob("times.*"), key=lambda path: int(path.suffix[1:])):
        lines = path.read_text().splitlines(keepends=True)
        ranks.append([json.loads(line) for line in lines if line.endswith("\n")])
    end = min(len(steps) for steps in ranks)
    return [[steps[k] for steps in ranks] for k in range(0 if last is None else max(end - last, 0), end)]


def recorded_ns(recording: Path, last: int) -> tuple[int, int]:
    """From the begin to the end of the last so many steps of a recording, on the host's clock."""
    rows = []
    source = FileSource(recording)
    while frames := source.read(0):
        for frame in map(decode, frames):
            if frame.kind == FrameKind.STEPS:
                columns = unpack_columns(frame.payload, STEP_NAMES)
                rows.append(np.stack([columns["rank"], columns["begin_ns"], columns["end_ns"]]))
    source.close()
    rank, begin, end = np.concatenate(rows, axis=1)
    begins = np.sort(begin[rank == rank.min()])
    return int(begins[-min(last, begins.size)]), int(end.max())


def own_times(folder: Path, within_ns: tuple[int, int] | None = None) -> OwnTimes:
    """What the ranks wrote of all of their steps, or of those that began on rank 0 within a stretch of time."""
    steps = _written(folder, None)
    if within_ns is not None:
        steps = [step for step in steps if within_ns[0] <= step[0]["begin_ns"] <= within_ns[1]]
    return OwnTimes(
        np.array([[step["begin_ns"] / 1e9 for step in row] for row in steps]),
        np.array([[[step["ms"][name] / 1e3 for step in row] for row in steps] for name in BORDERS]),
    )


@dataclass(frozen=True)
class OwnChunks:
    """What the stages of tests/asynchronous_pipeline_training.py saw of their last steps."""

    step_s: float  # the mean one
    bubble: float  # idle share of ranks x the span from the first chunk to the last one, the median
    chunks_s: tuple[float, ...]  # by rank, of a step, the mean


def own_chunks(folder: Path, last: int) -> OwnChunks:
    """By their devices' clocks, which are one."""
    begins, bubbles, works = [], [], []
    for ranks in _written(folder, last):
        begin = min(chunk[2] for chunks in ranks for chunk in chunks)
        end = max(chunk[3] for chunks in ranks for chunk in chunks)
        work = [sum(chunk[3] - chunk[2] for chunk in chunks) for chunks in ranks]
        begins.append(begin)
        works.append(work)
        bubbles.append(1 - sum(work) / len(ranks) / (end - begin))
    mean_s = np.asarray(works).mean(axis=0) / 1e9
    return OwnChunks(float(np.diff(begins).mean()) / 1e9, float(np.median(bubbles)), tuple(mean_s.tolist()))
