"""`tuiadvisor export`: a recording for other tools: Parquet tables, or a trace for Perfetto."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tuiadvisor.app.progress import Rereading
from tuiadvisor.cli.foreign import as_recordings
from tuiadvisor.cli.options.recording import add_recording
from tuiadvisor.exporters.chrome_trace import export_chrome_trace
from tuiadvisor.exporters.parquet import export_parquet
from tuiadvisor.text import format as text_of
from tuiadvisor.text.printed import say

if TYPE_CHECKING:
    import argparse


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_recording(parser)
    parser.add_argument(
        "--format",
        required=True,
        choices=("parquet", "chrome-trace"),
        help="parquet: a folder of tables; chrome-trace: one file for Perfetto, compressed if it ends in .gz",
    )
    parser.add_argument("-o", "--output", required=True, metavar="PATH", help="what to write")


def run(options: argparse.Namespace) -> int:
    """Write and say what."""
    with as_recordings([options.file]) as read:
        return _export(options, Rereading(read[options.file]))


def _export(options: argparse.Namespace, reading: Rereading) -> int:
    path = Path(options.output)
    if options.format == "parquet":
        rows = export_parquet(reading, path)
        said = ", ".join(text_of.count(number, name.removesuffix("s")) for name, number in rows.items())
        say(f"{path}: {said}; see {path / 'SCHEMA.md'}")
    else:
        written = export_chrome_trace(reading, path)
        say(
            f"{path}: {text_of.count(written.num_steps, 'rank-step')}, {text_of.count(written.num_events, 'event')}; "
            "open it at ui.perfetto.dev"
        )
    return 0
