"""`tuiadvisor import ops`: a per-operation trace, parquet or CSV, into the what-if analysis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuiadvisor.cli.importing import add_import, show
from tuiadvisor.importers.opsreport import ops_document, ops_summary

if TYPE_CHECKING:
    import argparse


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `ops TABLE` to the kinds of import."""
    add_import(subparsers, "ops", "TABLE", "a per-operation trace, parquet or CSV, into the what-if analysis")


def run(options: argparse.Namespace) -> int:
    """Import and print."""
    return show(options, ops_document, ops_summary)
