"""Options that state an intent for one command: they win over the project's file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.session.intent import FILE_NAME, Intent, changed, read_intent

if TYPE_CHECKING:
    import argparse

OPTIONS: Final = {
    "objective": ("time|efficiency|cost", "what decides"),
    "price_per_device_hour": ("X", "price of one device for an hour"),
    "deadline": ("12h", "the result is needed within this time"),
    "budget": ("X", "the rest of the run may cost this much"),
    "remaining_steps": ("N", "optimizer steps left"),
}


def add_intent_options(parser: argparse.ArgumentParser) -> None:
    """--objective and the like, and --intent FILE."""
    for name, (metavar, text) in OPTIONS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", metavar=metavar, help=text)
    parser.add_argument("--intent", default=FILE_NAME, metavar="FILE", help=f"default: {FILE_NAME} here")


def intent_of(options: argparse.Namespace) -> Intent:
    """The file's intent with what the command line says."""
    said = {name: getattr(options, name) for name in OPTIONS if getattr(options, name) is not None}
    return changed(read_intent(options.intent), said)
