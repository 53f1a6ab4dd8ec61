"""`tuiadvisor import flight-recorder`: PyTorch flight-recorder dumps (JSON) of a hang."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuiadvisor.cli.importing import add_import, show
from tuiadvisor.importers.hangreport import hang_document, hang_summary

if TYPE_CHECKING:
    import argparse


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `flight-recorder DIR` to the kinds of import."""
    add_import(subparsers, "flight-recorder", "DIR", "PyTorch flight-recorder dumps (JSON) of a hang")


def run(options: argparse.Namespace) -> int:
    """Import and print."""
    return show(options, hang_document, hang_summary)
