"""`tuiadvisor trim`: some steps of a recording as a recording of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuiadvisor.app.progress import Rereading
from tuiadvisor.cli.foreign import as_recordings
from tuiadvisor.cli.options.recording import add_recording
from tuiadvisor.cli.options.step_range import step_range
from tuiadvisor.exporters.rewrite import refuse_existing, write_recording
from tuiadvisor.exporters.trim import Trimmed, trim
from tuiadvisor.text.printed import say

if TYPE_CHECKING:
    import argparse


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_recording(parser)
    parser.add_argument(
        "--steps", type=step_range, required=True, metavar="A:B", help="only these steps, both included"
    )
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the recording to write")


def run(options: argparse.Namespace) -> int:
    """Write and say how much."""
    refuse_existing(options.output)
    told = Trimmed()
    with as_recordings([options.file]) as read:
        frames = trim(Rereading(read[options.file]), options.steps, told)
        num_bytes = write_recording(options.output, frames)
    say(f"{told.num_rank_steps:,} rank-steps in {options.output}, {num_bytes:,} bytes")
    return 0
