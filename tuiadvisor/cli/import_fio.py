"""`tuiadvisor import fio`: fio's JSON output: the ceiling of this machine's storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuiadvisor.cli.importing import add_ceiling, show_ceiling
from tuiadvisor.importers.fio import fio_document, fio_summary

if TYPE_CHECKING:
    import argparse


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `fio FILE` to the kinds of import."""
    add_ceiling(subparsers, "fio", "fio's JSON output: the ceiling of this machine's storage")


def run(options: argparse.Namespace) -> int:
    """Import, print, and keep it if that was asked for."""
    return show_ceiling(options, fio_document, fio_summary)
