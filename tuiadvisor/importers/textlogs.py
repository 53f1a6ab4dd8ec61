"""Step times in what Megatron-LM and NeMo print: one line an iteration, or one every few.

In: text, with whatever a launcher put before each line.  Out: iteration, seconds and samples of each line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuiadvisor.importers.files import opened
from tuiadvisor.metrics.series.plausible import StepLengths

if TYPE_CHECKING:
    from pathlib import Path

MAX_LINE: Final = 1 << 16
MAX_LINES: Final = 1_000_000
ITERATION: Final = re.compile(r"\biteration\s+(\d{1,12})\s*/\s*(?:\d{1,12}|infinity)\s*\|")
NUMBER: Final = r"(\d{1,12}(?:\.\d{1,20})?(?:[eE][+-]?\d{1,2})?)(?!\d|[.eE+-]*\d)"
MEGATRON_TIME: Final = re.compile(rf"\belapsed time per iteration \(ms\):\s*{NUMBER}")
NEMO_STEP: Final = re.compile(r"\bglobal_step[:=]\s*(\d{1,12})")
NEMO_TIME: Final = re.compile(rf"\btrain_step_timing in s[:=]\s*{NUMBER}")
BATCH: Final = re.compile(r"\bglobal[ _]batch[ _]size[:=]\s*(\d{1,9})\b")


@dataclass(frozen=True, slots=True)
class LoggedLine:
    """samples: of one step of the whole job."""

    number: int
    seconds: float
    samples: int | None


def read_lines(path: Path) -> tuple[str, list[LoggedLine], StepLengths]:
    """(Megatron-LM or NeMo, its lines in order, what was left out); of an iteration that is there twice the last."""
    found: dict[int, LoggedLine] = {}
    tool, count, lengths = "", 0, StepLengths()
    with opened(path) as file:
        while (raw := file.readline(MAX_LINE)) and count < MAX_LINES:
            # A progress bar is one line with a return before each of its states.
            for text in raw.decode("utf-8", "replace").split("\r"):
                kind, line = _line(text, lengths)
                if line is not None:
                    tool, count = kind, count + 1
                    found[line.number] = line
    return tool, [found[number] for number in sorted(found)], lengths


def _line(text: str, lengths: StepLengths) -> tuple[str, LoggedLine | None]:
    for kind, step, time, scale in (
        ("Megatron-LM", ITERATION, MEGATRON_TIME, 1e-3),
        ("NeMo", NEMO_STEP, NEMO_TIME, 1.0),
    ):
        number, seconds = step.search(text), time.search(text)
        if number and seconds and float(seconds[1]) > 0 and lengths.takes(float(seconds[1]) * scale):
            batch = BATCH.search(text)
            return kind, LoggedLine(
                int(number[1]), float(seconds[1]) * scale, int(batch[1]) if batch else None
            )
    return "", None
