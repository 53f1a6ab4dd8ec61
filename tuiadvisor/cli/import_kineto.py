"""`tuiadvisor import kineto`: PyTorch Profiler traces, one file a rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuiadvisor.cli.importing import add_import, show
from tuiadvisor.importers.kinetoreport import kineto_document, kineto_summary

if TYPE_CHECKING:
    import argparse


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `kineto DIR` to the kinds of import."""
    add_import(subparsers, "kineto", "DIR", "PyTorch Profiler traces, one file a rank")


def run(options: argparse.Namespace) -> int:
    """Import and print."""
    return show(options, kineto_document, kineto_summary)
