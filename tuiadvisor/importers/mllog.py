"""Step times in a result log of MLPerf training: lines of `:::MLLOG` and an object, as mlperf_logging writes them.

In: text, with whatever a launcher put before each line.  Out: steps, and where the rest of the run's time went.
A log has the length of a step where the training tracks one (`tracked_stats` with train_step_time); else what lies
between two points that tell how many samples were seen, over the steps between them, where no evaluation is between.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
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
    tracked_samples: int = -1  # at the last of tracked
    num_bad: int = 0
    lengths: StepLengths = field(default_factory=StepLengths)
    begun_ms: dict[str, int] = field(default_factory=dict)
    last: tuple[int, int] | None = (
        None  # (time, samples) of the point before, none where an evaluation is between
    )

    @property
    def lines(self) -> list[LoggedLine]:
        """Lengths that were logged win over those that were worked out."""
        return self.tracked or self.between

    @property
    def is_of_points(self) -> bool:
        """Whether the lengths are means over the steps between two points."""
        return not self.tracked


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
    key, value, at = record.get("key"), record.get("value"), _count(record.get("time_ms"), MAX_MS)
    if not isinstance(key, str):
        return
    if key == "global_batch_size":
        run.batch = _count(value, MAX_BATCH) or run.batch
    elif key == "submission_benchmark" and isinstance(value, str):
        run.benchmark = value[:80]
    if at is None:
        return
    metadata = record.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    samples = _count(metadata.get("samples_count"), MAX_COUNT)
    if key in POINTS and samples is not None:
        _point(run, at, samples)
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


def _tracked(run: MllogRun, value: dict[str, Any], samples: int | None, step: int | None) -> None:
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
        run.last = None  # what follows begins behind it
    if name == "run" and end == "stop" and isinstance(status, str):
        run.status = status[:40]


def _count(value: object, limit: int) -> int | None:
    """A whole number above 0, or 0 of what may have none yet; some write it as a float."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and 0 <= value < limit else None
