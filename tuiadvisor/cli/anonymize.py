"""`tuiadvisor anonymize`: a copy of a recording that names nobody, to share with others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuiadvisor.app.progress import Rereading
from tuiadvisor.cli.foreign import as_recordings
from tuiadvisor.cli.options.recording import add_recording
from tuiadvisor.exporters.anonymize import anonymize
from tuiadvisor.exporters.rewrite import refuse_existing, write_recording
from tuiadvisor.text.printed import say

if TYPE_CHECKING:
    import argparse


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_recording(parser)
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the recording to write")


def run(options: argparse.Namespace) -> int:
    """Write, and say what is still in it."""
    refuse_existing(options.output)
    with as_recordings([options.file]) as read:
        num_bytes = write_recording(options.output, anonymize(Rereading(read[options.file])))
    say(
        f"{options.output}, {num_bytes:,} bytes: no host, path, user, command line or process id of the original; "
        "times, sizes, versions and device models are kept"
    )
    return 0
