"""The recording that a command is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def add_recording(parser: argparse.ArgumentParser, name: str = "file", metavar: str = "RUN") -> None:
    """One of ours, or another tool's file, which is read by its import (`cli/foreign.py`)."""
    parser.add_argument(
        name, metavar=metavar, help="a recording, or what `tuiadvisor open` reads of other tools' steps"
    )
