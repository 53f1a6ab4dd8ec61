"""`tuiadvisor capture RANKS`: a few steps of running ranks under torch's own profiler, a trace file a rank.

It works beside a running watch and shares its probes; without one the probes go in for the window and out after it.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor.agent.attach_batch import AttachBatch
from tuiadvisor.agent.capture import RankCapture, capture
from tuiadvisor.cli.document import print_document
from tuiadvisor.cli.options.duration import seconds
from tuiadvisor.cli.options.peaks import measured_peaks
from tuiadvisor.cli.options.rank_set import rank_set, said
from tuiadvisor.cli.options.target import ranks_of
from tuiadvisor.cli.options.training import add_target
from tuiadvisor.cli.roof import summary_with_roof
from tuiadvisor.errors import FailureError, TuiadvisorError
from tuiadvisor.importers.kinetoreport import kineto_document
from tuiadvisor.text.printed import redraw, say

if TYPE_CHECKING:
    from types import FrameType

    from tuiadvisor.agent.discovery import RankProcess

MAX_STEPS: Final = 1000
ATTACH_S: Final = 15.0  # at most, and no longer than the patience
NS: Final = 1e9


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("ranks", type=rank_set, metavar="RANKS", help="0,3-5 or all; ranks of this machine")
    parser.add_argument(
        "--steps", type=_num_steps, default=3, metavar="N", help="length of the window (default 3)"
    )
    parser.add_argument(
        "-o", "--output", metavar="DIR", help="a new folder for the traces (default tuiadvisor-capture-TIME)"
    )
    parser.add_argument(
        "--flops", action="store_true",
        help="record the shapes of operands too: FLOPs of a step, and each operation under the roofline; costs more an "
        "operator, in the window alone",
    )  # fmt: skip
    add_target(parser)
    parser.add_argument(
        "--patience", type=seconds, default=60.0, metavar="60s",
        help="how long to wait for a rank to end a step before giving up on it (default 60s)",
    )  # fmt: skip
    parser.add_argument(
        "--json", action="store_true", help="one JSON document, as `import kineto` with the cost"
    )


def _num_steps(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0
    if not 1 <= number <= MAX_STEPS:
        raise argparse.ArgumentTypeError(f"{text!r}: give 1 to {MAX_STEPS} steps; a trace grows by each")
    return number


def run(options: argparse.Namespace) -> int:
    """Capture, analyse, print. 1 if a rank gave no trace."""
    processes = ranks_of(options)
    folder = _new_folder(options.output)
    # As Ctrl-C: the wish is taken back and our probes come out, whoever ends us.
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        results = _capture(processes, folder, options)
    except BaseException:
        _remove_if_empty(folder)
        raise
    missing = [] if options.ranks is None else sorted(options.ranks - {result.rank for result in results})
    if not any(result.file for result in results):
        _remove_if_empty(folder)
        raise FailureError("no trace: " + "; ".join(map(_failure, results)))
    document = _document(folder, options.steps, results, missing)
    if options.json:
        print_document(document)
    else:
        say("\n".join(_lines(document, results, missing)))
    return int(bool(missing) or any(result.file is None for result in results))


def _capture(processes: list[RankProcess], folder: Path, options: argparse.Namespace) -> list[RankCapture]:
    with AttachBatch(processes) as batch:
        batch.attach(min(ATTACH_S, options.patience), options.ranks)
        if not batch.links:
            known = frozenset(process.rank for process in processes if process.rank is not None)
            here = f"; here are {said(known)}" if known else ""
            raise TuiadvisorError(f"{said(options.ranks)}: not on this machine{here}")
        progress = _Progress()
        try:
            return capture(
                batch, options.steps, folder, options.patience, progress.show, with_shapes=options.flops
            )
        finally:
            progress.end()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _new_folder(output: str | None) -> Path:
    folder = Path(output or f"tuiadvisor-capture-{time.strftime('%Y%m%d-%H%M%S')}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_empty = next(folder.iterdir(), None) is None
    except OSError as error:
        raise TuiadvisorError(f"{folder}: {error.strerror}; choose another folder with -o") from None
    if not is_empty:
        raise TuiadvisorError(f"{folder} is not empty: traces of two captures do not mix; choose another -o")
    return folder


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return  # traces are in it


class _Progress:
    """One line on a terminal's stderr that is redrawn and taken away."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._shown = ""

    def show(self, text: str) -> None:
        if self._is_terminal and text != self._shown:
            redraw(f"capturing: {text}")
            self._shown = text

    def end(self) -> None:
        if self._shown:
            redraw("")


def _document(folder: Path, num_steps: int, results: list[RankCapture], missing: list[int]) -> dict[str, Any]:
    document = kineto_document(folder, measured_peaks())
    document["capture"] = {
        "directory": str(folder),
        "steps": num_steps,
        "ranks": [_entry(result) for result in results],
        "not_here": missing,
    }
    return document


def _entry(result: RankCapture) -> dict[str, Any]:
    cost = result.told.cost
    return {
        "rank": result.rank,
        "pid": result.pid,
        "file": str(result.file) if result.file else None,
        "why": result.why or None,
        "first_step": result.told.first_step,
        "steps": len(cost.step_ns_inside) or None,
        "cost": {
            "start_s": _seconds(cost.start_ns),
            "stop_s": _seconds(cost.stop_ns),
            "write_s": _seconds(cost.write_ns),
            "step_before_s": _median_s(cost.step_ns_before),
            "step_inside_s": _median_s(cost.step_ns_inside),
        },
    }


def _seconds(value_ns: int | None) -> float | None:
    return None if value_ns is None else value_ns / NS


def _median_s(values_ns: tuple[int, ...]) -> float | None:
    return statistics.median(values_ns) / NS if values_ns else None


def _lines(document: dict[str, Any], results: list[RankCapture], missing: list[int]) -> list[str]:
    lines = [summary_with_roof(document)]
    lines += [f"{_name(result)}: {result.file}" for result in results if result.file]
    lines += [_cost(entry) for entry in document["capture"]["ranks"] if entry["file"]]
    lines += [_failure(result) for result in results if result.file is not None and result.why]
    lines += [f"no trace of {_failure(result)}" for result in results if result.file is None]
    if missing:
        lines.append(f"not on this machine, or without a process group: {said(frozenset(missing))}")
    lines.append("open a trace in https://ui.perfetto.dev; it stays on your machine")
    return lines


def _name(result: RankCapture) -> str:
    return f"process {result.pid}" if result.rank is None else f"rank {result.rank}"


def _failure(result: RankCapture) -> str:
    return f"{_name(result)}: {result.why}"


def _cost(entry: dict[str, Any]) -> str:
    cost = entry["cost"]
    parts = [
        f"{word} {1000 * cost[key]:.1f} ms"
        for word, key in (("start", "start_s"), ("stop", "stop_s"), ("write", "write_s"))
        if cost[key] is not None
    ]
    name = f"process {entry['pid']}" if entry["rank"] is None else f"rank {entry['rank']}"
    words = f"cost {name}: paused {', '.join(parts)}"
    before, inside = cost["step_before_s"], cost["step_inside_s"]
    if before and inside:
        words += f"; a step took {1000 * inside:.1f} ms in the window, {1000 * before:.1f} ms before it"
    return words
