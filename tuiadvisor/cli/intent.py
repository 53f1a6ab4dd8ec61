"""`tuiadvisor intent`: what the training is for, in a small file of the project."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from tuiadvisor.cli.document import print_document
from tuiadvisor.session.intent import FILE_NAME, MEANINGS, changed, parse_settings, read_intent, write_intent
from tuiadvisor.text.printed import say_on_stderr

if TYPE_CHECKING:
    import argparse


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "--set",
        action="extend",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        dest="settings",
        help="state something; an empty value takes it back",
    )
    parser.add_argument("--file", default=FILE_NAME, metavar="FILE", help=f"default: {FILE_NAME} here")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(options: argparse.Namespace) -> int:
    """Change if asked, then show what is stated and what is not."""
    intent = changed(read_intent(options.file), parse_settings(options.settings))
    if options.settings:
        write_intent(options.file, intent)
        say_on_stderr(f"written to {options.file}")
    stated = asdict(intent)
    if options.json:
        print_document({"schema": 1, "intent": stated})
        return 0
    for name, value in stated.items():
        shown = "not stated" if value is None else f"{value:g}" if isinstance(value, float) else value
        print(f"{name:22} {shown:<12} {MEANINGS[name]}")
    return 0
