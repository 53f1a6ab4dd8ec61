"""Step times in what Megatron-LM and NeMo print: one line an iteration, or one every few.

In: text, with whatever a launcher put before each line.  Out: iteration, seconds and samples of each line, and how many
lines have no time or tell an iteration again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tuiadvisor.importers.files import opened
from tuiadvisor.metrics.series.plausible import StepLengths

if TYPE_CHECKING:
    from pathlib import Path

MAX_LINE: Final = 1 << 16
MAX_LINES: Final = 1_000_000
ITERATION: Final = re.compile(r"\biteration\s+(\d{1,12})\s*/\s*(?:\d{1,12}|infinity)\s*\|")
# A comma before a digit groups thousands or begins the decimals: which of them is not told.
NUMBER: Final = r"(\d{1,12}(?:\.\d{1,20})?(?:[eE][+-]?\d{1,2})?)(?!\d|[.,eE+-]*\d)"
MEGATRON_TIME: Final = re.compile(rf"\belapsed time per iteration \(ms\):\s*{NUMBER}")
NEMO_STEP: Final = re.compile(r"\bglobal_step[:=]\s*(\d{1,12})")
NEMO_TIME: Final = re.compile(rf"\btrain_step_timing in s[:=]\s*{NUMBER}")
FORMS: Final = (
    ("Megatron-LM", ITERATION, "elapsed time per iteration", MEGATRON_TIME, 1e-3),
    ("NeMo", NEMO_STEP, "train_step_timing in s", NEMO_TIME, 1.0),
)
BATCH: Final = re.compile(r"\bglobal[ _]batch[ _]size[:=]\s*(\d{1,9})\b")


@dataclass(frozen=True, slots=True)
class LoggedLine:
    """samples: of one step of the whole job."""

    number: int
    seconds: float
    samples: int | None


@dataclass(slots=True)
class TextLog:
    """Megatron-LM's or NeMo's lines in order; of an iteration that is there twice the last."""

    tool: str = ""
    lines: list[LoggedLine] = field(default_factory=list)
    lengths: StepLengths = field(default_factory=StepLengths)
    untimed: set[int] = field(default_factory=set)  # iterations whose time is no number above 0
    num_zeros: int = 0  # lines whose time is 0
    again: set[int] = field(default_factory=set)  # those that are there with another time, too

    def words(self) -> list[str]:
        """What to say of lines that are not among the steps."""
        said = self.lengths.words()
        if self.untimed:
            said.append(f"{_iterations(self.untimed)} left out, whose time is no number above 0")
        if self.again:
            said.append(
                f"{_iterations(self.again)} there again with another time, as after a restart or of two jobs in one "
                "log: the last of each counts"
            )
        return said


def _iterations(numbers: set[int]) -> str:
    return f"{len(numbers)} iteration{'s' * (len(numbers) > 1)}"


def read_lines(path: Path) -> TextLog:
    """The step times in a text. tool is empty where no line is of one, lines where none of them has a time."""
    found: dict[int, LoggedLine] = {}
    log, count = TextLog(), 0
    with opened(path) as file:
        while (raw := file.readline(MAX_LINE)) and count < MAX_LINES:
            # A progress bar is one line with a return before each of its states.
            for text in raw.decode("utf-8", "replace").split("\r"):
                if (line := _line(text, log)) is not None:
                    count += 1
                    before = found.get(line.number)
                    if before is not None and before.seconds != line.seconds:
                        log.again.add(line.number)
                    found[line.number] = line
    log.lines = [found[number] for number in sorted(found)]
    log.untimed -= found.keys()
    return log


def _line(text: str, log: TextLog) -> LoggedLine | None:
    """A line's step; what has none is counted in the log."""
    for tool, step, label, time, scale in FORMS:
        number = step.search(text)
        if number is None or label not in text:
            continue
        log.tool = log.tool or tool
        seconds = time.search(text)
        if seconds is None or not float(seconds[1]) > 0:
            log.num_zeros += seconds is not None
            if len(log.untimed) < MAX_LINES:
                log.untimed.add(int(number[1]))
        elif log.lengths.takes(float(seconds[1]) * scale):
            batch = BATCH.search(text)
            return LoggedLine(int(number[1]), float(seconds[1]) * scale, int(batch[1]) if batch else None)
    return None
