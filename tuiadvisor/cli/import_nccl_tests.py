"""`tuiadvisor import nccl-tests`: what all_reduce_perf printed: the ceiling of this machine's links."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuiadvisor.cli.importing import add_ceiling, show_ceiling
from tuiadvisor.importers.nccl_tests import nccl_document, nccl_summary

if TYPE_CHECKING:
    import argparse


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `nccl-tests FILE` to the kinds of import."""
    add_ceiling(subparsers, "nccl-tests", "what all_reduce_perf printed: the ceiling of this machine's links")


def run(options: argparse.Namespace) -> int:
    """Import, print, and keep it if that was asked for."""
    return show_ceiling(options, nccl_document, nccl_summary)
