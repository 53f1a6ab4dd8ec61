"""A training log's step times: CSV, plain or gzip, with one row a step.

In: columns step_time_s and, if there, step, samples_seen and wall_ms; or step and the time since the beginning, as
Lightning's ThroughputMonitor logs it.  Out: seconds a step, its label, samples, clock.
"""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers.files import read_whole, separator

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tuiadvisor.metrics.steps.arrays import Floats

MAX_BYTES: Final = 64 << 20
TIME: Final = "step_time_s"
TIMES: Final = (
    TIME,
    "train_step_timing in s",
    "step_time",
)  # as Lightning's loggers have it from NeMo and others
# lightning/pytorch/callbacks/throughput_monitor.py: seconds of training so far, validations left out, each with one of
# the separators that its users choose.
ELAPSED: Final = ("train/time", "train|time")
NO_TIME: Final = ("", "nan")  # as rows of a validation have it
SAMPLES: Final = "samples_seen"
WALL: Final = "wall_ms"
LABELS: Final = ("step", SAMPLES)
MAX_NAMES: Final = 12  # of columns in a line
MAX_NAME_CHARS: Final = 40
MIN_ROWS: Final = 3  # to see a count fall back and go on


@dataclass(frozen=True, slots=True)
class StepLog:
    """label: the log's own count at each step; label_name says of what."""

    step_s: Floats
    label: Floats
    label_name: str
    samples_seen: Floats | None = None  # beside the label
    wall_ms: Floats | None = None  # the clock at each row
    is_of_points: bool = False  # lengths are means over the steps since the row before


def read_step_log(path: Path) -> StepLog:
    """The log's columns. TuiadvisorError on a missing column or a cell that is no positive number."""
    try:
        text = read_whole(path, MAX_BYTES).decode("utf-8-sig")
        rows = list(csv.DictReader(io.StringIO(text), delimiter=separator(text.partition("\n")[0])))
    except (csv.Error, UnicodeDecodeError) as error:
        raise TuiadvisorError(f"{path}: no readable CSV ({error}); write it as UTF-8 with a header") from None
    name = next((one for one in TIMES if rows and one in rows[0]), None)
    elapsed = next((one for one in ELAPSED if rows and one in rows[0] and LABELS[0] in rows[0]), None)
    if name is None and elapsed is not None:
        return _between_points(path, rows, elapsed)
    if name is None:
        raise TuiadvisorError(f"{path}: {no_time(list(rows[0]) if rows else [])}")
    if name != TIME:
        rows = [row for row in rows if (row[name] or "").strip().lower() not in NO_TIME]
        if not rows:
            raise TuiadvisorError(f"{path}: no row has a time under {name}")
    label_name = next((name for name in LABELS if name in rows[0]), "row")
    step_s = np.array([_positive(path, name, number, row[name]) for number, row in enumerate(rows, 2)])
    if label_name == "row":
        label = np.arange(len(rows), dtype=np.float64)
    else:
        label = np.array([_positive(path, label_name, n, row[label_name]) for n, row in enumerate(rows, 2)])
    more = {
        column: np.array([_positive(path, column, n, row[column]) for n, row in enumerate(rows, 2)])
        for column in (SAMPLES, WALL)
        if column in rows[0]
    }
    return StepLog(step_s, label, label_name, more.get(SAMPLES), more.get(WALL))


def _between_points(path: Path, rows: list[dict[str, str]], elapsed: str) -> StepLog:
    """Of each row its mean step since the one before; where the time or the step begins anew a row is a point alone."""
    told = [(n, row) for n, row in enumerate(rows, 2) if (row[elapsed] or "").strip().lower() not in NO_TIME]
    step = np.array([_positive(path, LABELS[0], number, row[LABELS[0]]) for number, row in told])
    took_s, num_steps = (
        np.diff(np.array([_positive(path, elapsed, number, row[elapsed]) for number, row in told])),
        np.diff(step),
    )
    goes_on = (took_s > 0) & (num_steps > 0)
    if not goes_on.any():
        raise TuiadvisorError(
            f"{path}: {elapsed} and step tell no step's length: two rows in order are needed"
        )
    return StepLog(took_s[goes_on] / num_steps[goes_on], step[1:][goes_on], LABELS[0], is_of_points=True)


def no_time(found: Sequence[object]) -> str:
    """Which columns are read, and which are there instead. found: the names of the header."""
    names = [name for name in found if isinstance(name, str) and name.isprintable() and name.strip()]
    cut = [name if len(name) <= MAX_NAME_CHARS else f"{name[:MAX_NAME_CHARS]}…" for name in names]
    there = ", ".join(cut[:MAX_NAMES]) + (", ..." if names[MAX_NAMES:] else "")
    read = " or ".join(f'"{name}"' if " " in name else name for name in TIMES)
    return (
        f"no column of step times: found {there or 'no header'}; read is {read}, each step's duration in seconds, and "
        f"beside it {', '.join((*LABELS, WALL))}; or {ELAPSED[0]}, as Lightning's ThroughputMonitor logs it"
    )


def without_evaluations(log: StepLog) -> tuple[StepLog, int]:
    """(the rows that are of steps, how many are not).

    At an evaluation MLPerf's logs repeat the mean of the steps since the one before, with the count of samples at
    that one: a row at which the count falls back once, and then goes on from where it was.
    """
    seen = log.samples_seen
    if seen is None or seen.size < MIN_ROWS:
        return log, 0
    is_back = seen[1:] < seen[:-1]
    goes_on = np.append(seen[2:] > seen[:-2], True)  # behind the last row nobody knows
    is_step = np.append(True, ~(is_back & goes_on))
    kept = replace(
        log,
        step_s=log.step_s[is_step],
        label=log.label[is_step],
        samples_seen=seen[is_step],
        wall_ms=None if log.wall_ms is None else log.wall_ms[is_step],
    )
    return kept, int(np.count_nonzero(~is_step))


def _positive(path: Path, name: str, line: int, cell: str | None) -> float:
    try:
        value = float(cell or "")
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise TuiadvisorError(
            f"{path}, line {line}: {name} is {str(cell)[:40]!r}, no number from 0 up; drop the row"
        )
    return value
