"""What every kind of import shares: its options, and printing a document or its summary."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from tuiadvisor.cli.document import print_document
from tuiadvisor.session.machine import FILE_NAME, save_ceiling
from tuiadvisor.text.printed import say_on_stderr, unbroken

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable


def add_import(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser], kind: str, metavar: str, text: str
) -> argparse.ArgumentParser:
    """One kind's parser: a path and --json."""
    parser = subparsers.add_parser(kind, help=text, description=text[0].upper() + text[1:] + ".")
    parser.add_argument("path", metavar=metavar)
    parser.add_argument("--json", action="store_true", help="one JSON document, schema 1")
    parser.add_argument(
        "--verdict",
        action="store_true",
        help="with --json: also verdict and findings on its steps, as diagnose --json has them",
    )
    add_output(parser)
    return parser


def add_output(parser: argparse.ArgumentParser) -> None:
    """-o, also where a source has no steps: then it says so."""
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="also write the run as a recording, for replay, diagnose, advise, compare, report and export",
    )


def show(
    options: argparse.Namespace,
    read: Callable[[Path], dict[str, Any]],
    summary: Callable[[dict[str, Any]], str],
) -> int:
    """Read the path and print the document or its summary."""
    print_import(options, read(Path(options.path)), summary)
    return 0


def print_import(
    options: argparse.Namespace,
    document: dict[str, Any],
    summary: Callable[[dict[str, Any]], str],
    verdict: str = "",
) -> None:
    """The document, or its summary for people; verdict: on its steps, as diagnose says it."""
    if named := getattr(options, "named", None):  # an archive: what it holds lies in a folder that goes
        document.get("source", document)["path"] = named
    if options.json:
        print_document(document, orjson.OPT_NON_STR_KEYS)
    else:
        text = _led(summary(document), verdict)
        # Names come from files of others: a terminal must not obey them.
        print("".join(c if c.isprintable() or c == "\n" else "?" for c in text))


def _led(summary: str, verdict: str) -> str:
    """The summary with the verdict right under its head, without the lines that say what that says."""
    if not verdict:
        return summary
    head, *lines = summary.split("\n")
    lines = [line for line in lines if line.rstrip(".").casefold() not in verdict.casefold()]
    return "\n".join([head, verdict, *lines])


def add_ceiling(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser], kind: str, text: str
) -> None:
    """One benchmark's parser: a file, --json, and --save."""
    parser = subparsers.add_parser(kind, help=text, description=text[0].upper() + text[1:] + ".")
    parser.add_argument("path", metavar="FILE")
    parser.add_argument("--json", action="store_true", help="one JSON document, schema 1")
    parser.add_argument(
        "--save", action="store_true", help=f"keep it in {FILE_NAME}: advise compares runs with it"
    )
    add_output(parser)


def show_ceiling(
    options: argparse.Namespace,
    read: Callable[[Path], dict[str, Any]],
    summary: Callable[[dict[str, Any]], str],
) -> int:
    """As every import; with --save it is kept for this project."""
    kept: list[dict[str, Any]] = []

    def read_once(path: Path) -> dict[str, Any]:
        kept.append(read(path))
        return kept[0]

    code = show(options, read_once, summary)
    if options.save:
        save_ceiling(kept[0])
        say_on_stderr(f"kept in {FILE_NAME}: {unbroken('tuiadvisor advise RUN --why link|storage')}")
    return code
