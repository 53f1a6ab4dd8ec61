"""`tuiadvisor scale`: how a job scales, what other sizes would take, and whether they are worth it."""

from __future__ import annotations

import argparse
import sys
from argparse import ArgumentTypeError
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor.advisor.compare.comparing import measure
from tuiadvisor.app import preferences_file
from tuiadvisor.app.desk import Desk
from tuiadvisor.app.progress import read_frames
from tuiadvisor.app.screens import show_screens
from tuiadvisor.app.sizing import Sizing
from tuiadvisor.cli.document import print_document
from tuiadvisor.cli.foreign import as_recordings, foreign
from tuiadvisor.cli.options.duration import seconds
from tuiadvisor.cli.recognizing import SIZES
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.scaling.analysis import analyse, pick
from tuiadvisor.scaling.cost import Aim, run_length_known
from tuiadvisor.scaling.document import document
from tuiadvisor.scaling.onerun import one_run
from tuiadvisor.scaling.onerundoc import one_run_document, one_run_text
from tuiadvisor.scaling.series import Target
from tuiadvisor.scaling.table import MAX_DEVICES, normal_layout, printable, read_table
from tuiadvisor.scaling.text import text
from tuiadvisor.session.entries import MAX_CANDIDATES, stated_in
from tuiadvisor.session.intent import FILE_NAME, read_intent
from tuiadvisor.session.machine import read_machine
from tuiadvisor.session.recorded import Recorded
from tuiadvisor.session.recordedsizes import parts_of, table_of
from tuiadvisor.text.printed import say_on_stderr
from tuiadvisor.tui.contract.desk import Scale

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.scaling.table import Table
    from tuiadvisor.session.entries import Stated

MAX_RUNS: Final = 32
OF_WHOLE_RUN: Final = ("deadline_h", "budget", "price_of_time")
# What only several sizes can answer.
OF_SEVERAL: Final = (
    "global_batch", "layout", "label", "objective", "price_per_device_hour", "price_of_time", "deadline", "budget",
    "remaining_steps", "remaining_samples", "noise_scale", "current",
)  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "runs",
        nargs="*",
        metavar="RUN",
        help="recordings of one training at several sizes; a single one is carried over from its parts",
    )
    parser.add_argument(
        "--table",
        metavar="CSV",
        help="columns devices and one of step_s, throughput, total_h, total_min, total_days; optional global_batch, "
        "layout, label. A row without a time is predicted",
    )
    parser.add_argument(
        "--predict", type=_sizes, metavar="N,N", default=(), help="device counts; default: twice the largest"
    )
    parser.add_argument("--global-batch", type=_positive, metavar="B", help="predict at this batch only")
    parser.add_argument("--layout", metavar="TEXT", help="predict in this layout only")
    parser.add_argument("--label", metavar="TEXT", help="only the rows with this label")
    parser.add_argument("--objective", choices=("time", "efficiency", "cost"), help="what to choose by")
    parser.add_argument("--price-per-device-hour", type=_positive, metavar="X")
    parser.add_argument("--price-of-time", type=_positive, metavar="X", help="what an hour saved is worth")
    parser.add_argument(
        "--deadline", type=seconds, metavar="12h", help="the run must take no longer than this"
    )
    parser.add_argument(
        "--budget",
        type=_positive,
        metavar="X",
        help="the run must cost no more than this (device-hours without a price)",
    )
    parser.add_argument(
        "--remaining-steps", type=_positive, metavar="N", help="length of the run, for step_s"
    )
    parser.add_argument(
        "--remaining-samples",
        type=_positive,
        metavar="N",
        help="length of the run, in what the column of throughput counts",
    )
    parser.add_argument(
        "--noise-scale", type=_positive, metavar="PHI", help="gradient noise scale, in samples"
    )
    parser.add_argument(
        "--current", type=_size, metavar="N", help="devices in use; default: the largest measured"
    )
    parser.add_argument(
        "--tui", action="store_true", help="as a screen: prices and limits change it while you look"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document, schema 1")


def run(options: argparse.Namespace) -> int:
    """Read, judge and print."""
    if options.table is None and len(options.runs) == 1:
        found = foreign(options.runs[0])
        if found is not None and found.kind == SIZES:
            options.table, options.runs = str(found.path), []
    if bool(options.runs) == (options.table is not None):
        raise TuiadvisorError("give recordings, or --table CSV: one of the two")
    if len(options.runs) > MAX_RUNS:
        raise TuiadvisorError(f"{len(options.runs)} recordings; give at most {MAX_RUNS}")
    if options.tui:
        with as_recordings(options.runs) as read:
            options.runs = [read[path] for path in options.runs]
            return _screen(options)
    if len(options.runs) == 1:
        return _one_run(options)
    table = measured_sizes(options.runs, options.table)
    layout = None if options.layout is None else normal_layout(options.layout)
    targets = [Target(devices, options.global_batch, layout) for devices in options.predict]
    if not targets and (options.global_batch is not None or layout is not None):
        raise TuiadvisorError("--global-batch and --layout say at what to predict: add --predict N,N")
    aim, note = over_stated(_aim(options), table)
    if note:
        say_on_stderr(f"tuiadvisor scale: {note}")
    reports = pick(analyse(table, targets, aim), options.label)
    if options.json:
        print_document(document(table, reports, aim))
    else:
        sys.stdout.write(text(table, reports, aim))
    return 0


def measured_sizes(runs: Sequence[str], table: str | None) -> Table:
    """Rows of a CSV table, or one a recording. TuiadvisorError where they are not of one training."""
    if table:
        return read_table(table)
    with as_recordings(runs) as read:
        return table_of([_recorded(path, read[path]) for path in runs])


def over_stated(given: Aim, table: Table) -> tuple[Aim, str]:
    """What was said for this once, over what the project's file says of the training; and what of that is not counted.

    A limit of the file that is about the whole run is left out where the table does not give its length.
    """
    stated = _stated().aim
    aim = replace(stated, **_typed(given))
    if run_length_known(aim, table.quantity):
        return aim, ""
    left = [
        name for name in OF_WHOLE_RUN if getattr(stated, name) is not None and getattr(given, name) is None
    ]
    nothing: dict[str, Any] = dict.fromkeys(left)
    note = (
        f"{', '.join(left)} of {FILE_NAME} not counted: how long the run is, in what the column "
        f"{table.quantity.column} counts, is not stated"
    )
    return replace(aim, **nothing), note if left else ""


def _stated() -> Stated:
    """What the project's file and the preferences say."""
    return stated_in(read_intent(FILE_NAME), preferences_file.current().efficiency_floor)


def _typed(given: Aim) -> dict[str, Any]:
    """What was said on the command line."""
    return {
        name: value
        for name, value in asdict(given).items()
        if value is not None and name not in {"efficiency_floor", "overhead"}
    }


def _aim(options: argparse.Namespace) -> Aim:
    return Aim(
        objective=options.objective,
        price_per_device_hour=options.price_per_device_hour,
        deadline_h=None if options.deadline is None else options.deadline / 3600,
        budget=options.budget,
        price_of_time=options.price_of_time,
        remaining_steps=options.remaining_steps,
        remaining_samples=options.remaining_samples,
        noise_scale=options.noise_scale,
        current=options.current,
    )


def _screen(options: argparse.Namespace) -> int:
    """The sixth screen on the table, on the recordings, or on a single one among those beside it."""
    given = [
        name
        for name in ("global_batch", "layout", "label", "noise_scale")
        if getattr(options, name) is not None
    ]
    if given:
        raise TuiadvisorError(
            f"--{given[0].replace('_', '-')} cannot be shown with --tui; leave one of the two out"
        )
    known = _stated()
    aim = replace(known.aim, **_typed(_aim(options)))
    stated = replace(known, aim=aim, candidates=tuple(options.predict)[:MAX_CANDIDATES])
    several = tuple(options.runs) if len(options.runs) > 1 else ()
    sizing = Sizing(options.table or "", stated, chosen=several)
    alone = options.runs[0] if len(options.runs) == 1 else ""
    desk = Desk(None, Path(options.runs[0] if options.runs else ".").parent, live_path=alone, sizing=sizing)
    desk.command(Scale())
    show_screens(desk, first_page="scaling")
    return 0


def _one_run(options: argparse.Namespace) -> int:
    """Bounds from the parts of a single run."""
    given = [name for name in OF_SEVERAL if getattr(options, name) is not None]
    if given:
        raise TuiadvisorError(
            f"--{given[0].replace('_', '-')} needs measured sizes: give one recording of each size, or --table CSV"
        )
    with as_recordings(options.runs) as read:
        recorded = _recorded(options.runs[0], read[options.runs[0]])
    found = one_run(parts_of(recorded, read_machine()), options.predict, _stated().aim)
    name = printable(options.runs[0])
    if options.json:
        print_document(one_run_document(name, found))
    else:
        sys.stdout.write(one_run_text(name, found))
    return 0


def _recorded(path: str, read: str) -> Recorded:
    measured = measure(path, read_frames(read))
    return Recorded(path, measured.view, measured.unit.gradient_bytes, measured.unit.num_collectives)


def _sizes(argument: str) -> tuple[int, ...]:
    sizes = tuple(dict.fromkeys(_size(part) for part in argument.split(",") if part.strip()))
    if not 0 < len(sizes) <= 100:
        raise ArgumentTypeError("give one to a hundred device counts: 64,128")
    return sizes


def _size(argument: str) -> int:
    plain = argument.strip()
    if not (plain.isascii() and plain.isdigit() and len(plain) <= 12 and 1 <= int(plain) <= MAX_DEVICES):
        raise ArgumentTypeError(f"{argument[:24]!r} is not a device count; write 64,128")
    return int(plain)


def _positive(argument: str) -> float:
    try:
        value = float(argument)
    except ValueError:
        value = 0.0
    if not 1e-12 <= value <= 1e18:
        raise ArgumentTypeError(f"{argument[:24]!r} is not a positive number")
    return value
