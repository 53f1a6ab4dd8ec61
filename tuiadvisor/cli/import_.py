"""`tuiadvisor import KIND PATH`: other tools' recordings, read and judged."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from tuiadvisor.cli.importing import add_ceiling, add_import, show, show_ceiling
from tuiadvisor.cli.options.peaks import measured_peaks
from tuiadvisor.cli.options.serving import add_serving

if TYPE_CHECKING:
    import argparse


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of file: its reader's module is loaded when it is asked for."""

    help: str
    what: str  # the path's name in the help; empty: a benchmark's FILE, which may be kept as a ceiling
    module: str
    document: str  # function of the path: the JSON document
    summary: str  # function of the document: lines for people


KINDS: Final = {
    "kineto": Kind(
        "PyTorch Profiler traces, one file a rank", "DIR", "kinetoreport", "kineto_document", "kineto_summary"
    ),
    "ops": Kind(
        "a per-operation trace, parquet or CSV, into the what-if analysis",
        "TABLE",
        "opsreport",
        "ops_document",
        "ops_summary",
    ),
    "flight-recorder": Kind(
        "PyTorch flight-recorder dumps (JSON) of a hang", "DIR", "hangreport", "hang_document", "hang_summary"
    ),
    "nccl-tests": Kind(
        "what all_reduce_perf printed: the ceiling of this machine's links",
        "",
        "nccl_tests",
        "nccl_document",
        "nccl_summary",
    ),
    "fio": Kind(
        "fio's JSON output: the ceiling of this machine's storage", "", "fio", "fio_document", "fio_summary"
    ),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """One parser a kind."""
    subparsers = parser.add_subparsers(dest="kind", metavar=" | ".join((*KINDS, "serving")), required=True)
    for name, kind in KINDS.items():
        if kind.what:
            add_import(subparsers, name, kind.what, kind.help)
        else:
            add_ceiling(subparsers, name, kind.help)
    add_serving(subparsers)


def run(options: argparse.Namespace) -> int:
    """Read, print, and keep it if that was asked for."""
    if options.kind == "serving":
        code: int = importlib.import_module("tuiadvisor.cli.import_serving").run(options)
        return code
    kind = KINDS[options.kind]
    module = importlib.import_module(f"tuiadvisor.importers.{kind.module}")
    read = show if kind.what else show_ceiling
    document = getattr(module, kind.document)
    if options.kind == "kineto":
        document = partial(document, measured=measured_peaks())
        return read(options, document, importlib.import_module("tuiadvisor.cli.roof").summary_with_roof)
    return read(options, document, getattr(module, kind.summary))
