"""Step times in a result log of MLPerf training: lines of `:::MLLOG` and an object, as mlperf_logging writes them.

In: text, with whatever a launcher put before each line.  Out: steps, and where the rest of the run's time went.
A log has the length of a step where the training tracks one (`tracked_stats` with train_step_time); else what lies
between two points that tell how many samples were seen, or which step it is, over the steps between them, where no
evaluation is between; else an epoch without one over its steps, train_samples / global_batch_size.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import orjson

from tuiadvisor.importers.files import opened
from tuiadvisor.importers.jsontext import parsed
from tuiadvisor.importers.textlogs import MAX_LINES, LoggedLine
from tuiadvisor.metrics.series.plausible import StepLengths

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_LINE: Final = 1 << 20
MAX_MS: Final = 1 << 51
MAX_COUNT: Final = 1 << 50
MAX_BATCH: Final = 1 << 31
MAX_STEP: Final = 1 << 40
MARK: Final = re.compile(rb":::MLLOG\s+(?=\{)")
# What a training logs between two evaluations; epochs as samples are told by the same field in some.
POINTS: Final = frozenset({"train_loss", "tracked_stats", "block_start", "eval_start"})
STEP_TIMES: Final = ("train_step_time", "step_time")
AGREES: Final = 0.1  # of the time of a step by two ways to tell it
INTERVALS: Final = ("init", "run", "eval")


@dataclass(slots=True)
class MllogRun:
    """Filled line by line. seconds: of all intervals of a kind; None where none was closed."""

    benchmark: str | None = None
    status: str | None = None
    batch: int | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    num_evals: int = 0
    tracked: list[LoggedLine] = field(default_factory=list)
    between: list[LoggedLine] = field(default_factory=list)
    numbered: list[LoggedLine] = field(default_factory=list)  # between points that tell their step
    epochs: list[LoggedLine] = field(default_factory=list)
    train_samples: int | None = None
    samples_s: list[float] = field(default_factory=list)  # throughput, where it is tracked
    num_epochs: int = 0
    epoch_begun_ms: int | None = None  # None, too, where an evaluation lies within the epoch
    tracked_samples: int = -1  # at the last of tracked
    num_bad: int = 0
    lengths: StepLengths = field(default_factory=StepLengths)
    begun_ms: dict[str, int] = field(default_factory=dict)
    last: tuple[int, int] | None = (
        None  # (time, samples) of the point before, none where an evaluation is between
    )
    last_step: tuple[int, int] | None = None  # (time, step) of one that tells its step

    @property
    def lines(self) -> list[LoggedLine]:
        """Lengths that were logged win over those that were worked out."""
        return self.tracked or self.between or self.numbered or (self.epochs if self._epochs_agree() else [])

    @property
    def is_of_points(self) -> bool:
        """Whether the lengths are means over the steps between two points."""
        return not self.tracked and bool(self.between or self.numbered)

    @property
    def is_of_epochs(self) -> bool:
        """Whether they are means over the steps of an epoch."""
        return not (self.tracked or self.between or self.numbered) and bool(self.lines)

    def _epochs_agree(self) -> bool:
        """With the throughput, where it is told: some logs count batches as train_samples."""
        if not (self.epochs and self.samples_s and self.batch):
            return bool(self.epochs)
        by_throughput = self.batch / median(self.samples_s)
        return abs(median(one.seconds for one in self.epochs) / by_throughput - 1) <= AGREES

    @property
    def tells_anything(self) -> bool:
        """How long its parts took, or whether it succeeded."""
        return bool(self.seconds or self.status)


def read_mllog(path: Path) -> MllogRun | None:
    """None where no line is of MLPerf's."""
    run, has_any = MllogRun(), False
    for record in _records(path, run):
        has_any = True
        _take(run, record)
    return run if has_any or run.num_bad else None


def _records(path: Path, run: MllogRun) -> Iterator[dict[str, Any]]:
    count = 0
    with opened(path) as file:
        while (raw := file.readline(MAX_LINE)) and count < MAX_LINES:
            found = MARK.search(raw)
            if found is None:
                continue
            count += 1
            try:
                record = parsed(raw[found.end() :].rstrip())
            except orjson.JSONDecodeError:
                run.num_bad += 1
                continue
            if isinstance(record, dict):
                yield record


def _take(run: MllogRun, record: dict[str, Any]) -> None:
    key, value, at = record.get("key"), record.get("value"), _moment(record.get("time_ms"))
    if not isinstance(key, str):
        return
    if key == "global_batch_size":
        run.batch = _count(value, MAX_BATCH) or run.batch
    elif key == "train_samples":
        run.train_samples = _count(value, MAX_COUNT) or run.train_samples
    elif key == "submission_benchmark" and isinstance(value, str):
        run.benchmark = value[:80]
    if at is None:
        return
    metadata = record.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    samples = _count(metadata.get("samples_count"), MAX_COUNT)
    if key in POINTS and samples is not None:
        _point(run, at, samples)
    step = _count(metadata.get("step_num"), MAX_COUNT)
    if key in POINTS and step is not None:
        _step_point(run, at, step)
    _epoch(run, key, at)
    if key == "tracked_stats" and isinstance(value, dict):
        _tracked(run, value, samples, _count(metadata.get("step"), MAX_COUNT))
    _interval(run, key, at, metadata.get("status"))


def _point(run: MllogRun, at: int, samples: int) -> None:
    """So many samples had been seen then; several lines of one moment tell it once."""
    last, run.last = run.last, (at, samples)
    if last is None or not run.batch or samples <= last[1] or (samples - last[1]) % run.batch:
        return
    num_steps, seconds = (samples - last[1]) // run.batch, (at - last[0]) / 1e3
    if seconds and run.lengths.takes(seconds / num_steps):
        _add(run.between, samples // run.batch, seconds / num_steps, run.batch)


def _step_point(run: MllogRun, at: int, step: int) -> None:
    """This step was done then."""
    last, run.last_step = run.last_step, (at, step)
    if last is None or step <= last[1]:
        return
    seconds = (at - last[0]) / 1e3 / (step - last[1])
    if seconds and run.lengths.takes(seconds):
        _add(run.numbered, step, seconds, run.batch)


def _epoch(run: MllogRun, key: str, at: int) -> None:
    """An epoch from its beginning to its end, over its steps."""
    if key == "eval_start":
        run.epoch_begun_ms = None
    elif key == "epoch_start":
        run.epoch_begun_ms = at
    elif key == "epoch_stop":
        begun, run.epoch_begun_ms = run.epoch_begun_ms, None
        num_steps = round(run.train_samples / run.batch) if run.train_samples and run.batch else 0
        run.num_epochs += 1
        if begun is None or not num_steps or at <= begun:
            return
        seconds = (at - begun) / 1e3 / num_steps
        if run.lengths.takes(seconds):
            _add(run.epochs, run.num_epochs * num_steps, seconds, run.batch)


def _tracked(run: MllogRun, value: dict[str, Any], samples: int | None, step: int | None) -> None:
    throughput = value.get("throughput")
    if isinstance(throughput, int | float) and 0 < throughput < MAX_COUNT and len(run.samples_s) < MAX_LINES:
        run.samples_s.append(float(throughput))
    seconds = next((value[name] for name in STEP_TIMES if name in value), None)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return
    # At an evaluation the mean of the steps since the one before is told again, with the samples at that one.
    if "eval" in run.begun_ms or (samples is not None and samples <= run.tracked_samples):
        return
    run.tracked_samples = run.tracked_samples if samples is None else samples
    number = samples // run.batch if samples is not None and run.batch else step
    if number is None:
        number = run.tracked[-1].number + 1 if run.tracked else 0
    if run.lengths.takes(float(seconds)):
        _add(run.tracked, number, float(seconds), run.batch)


def _add(lines: list[LoggedLine], number: int, seconds: float, samples: int | None) -> None:
    """In order; a number that is there already is of another process of the job."""
    if seconds <= 0 or number >= MAX_STEP:
        return
    if not lines or number > lines[-1].number:
        lines.append(LoggedLine(number, seconds, samples))


def _interval(run: MllogRun, key: str, at: int, status: object) -> None:
    name, _, end = key.rpartition("_")
    if name not in INTERVALS:
        return
    if end == "start":
        run.begun_ms.setdefault(name, at)
    elif end == "stop" and (begun := run.begun_ms.pop(name, None)) is not None and at >= begun:
        run.seconds[name] = run.seconds.get(name, 0.0) + (at - begun) / 1e3
        run.num_evals += name == "eval"
    if name == "eval":
        run.last = run.last_step = None  # what follows begins behind it
    if name == "run" and end == "stop" and isinstance(status, str):
        run.status = status[:40]


def _moment(value: object) -> int | None:
    """Milliseconds; some write a part of one."""
    if isinstance(value, float) and 0 <= value < MAX_MS:
        return round(value)
    return _count(value, MAX_MS)


def _count(value: object, limit: int) -> int | None:
    """A whole number above 0, or 0 of what may have none yet; some write it as a float."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value < limit else None
