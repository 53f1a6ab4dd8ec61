"""`tuiadvisor import KIND PATH`: other tools' recordings, read and judged."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import argparse

KINDS: Final = {
    "kineto": "import_kineto",
    "ops": "import_ops",
    "flight-recorder": "import_flight_recorder",
    "nccl-tests": "import_nccl_tests",
    "fio": "import_fio",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """One parser a kind."""
    subparsers = parser.add_subparsers(dest="kind", metavar=" | ".join(KINDS), required=True)
    for module in KINDS.values():
        importlib.import_module(f"tuiadvisor.cli.{module}").add_parser(subparsers)


def run(options: argparse.Namespace) -> int:
    """Hand over to the kind."""
    code: int = importlib.import_module(f"tuiadvisor.cli.{KINDS[options.kind]}").run(options)
    return code
