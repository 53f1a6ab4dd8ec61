"""`tuiadvisor info`: what a recording holds, and what is damaged or was lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuiadvisor.advisor.compare.recording_contents import contents
from tuiadvisor.app.progress import read_frames
from tuiadvisor.cli.document import print_document
from tuiadvisor.cli.foreign import as_recordings
from tuiadvisor.cli.options.recording import add_recording
from tuiadvisor.report.contents import contents_document
from tuiadvisor.stream.recordingindex import RecordingIndex
from tuiadvisor.stream.scan import read_summary
from tuiadvisor.tui.pages.contents import plain_contents

if TYPE_CHECKING:
    import argparse


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_recording(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document, schema 1")


def run(options: argparse.Namespace) -> int:
    """Read and print."""
    with as_recordings([options.file]) as read:
        path = read[options.file]
        with RecordingIndex(path) as index:
            opened = index.opened
        frames = read_frames(path, say=lambda *_: None)  # it says so itself
        held = contents(options.file, frames, read_summary(path), opened)
    if options.json:
        print_document(contents_document(held))
    else:
        print(plain_contents(held), end="")
    return 0
