"""`tuiadvisor import serving PAGE [PAGE]`: the metrics page of a serving process, or two of them some time apart."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tuiadvisor import __version__
from tuiadvisor.cli.document import document_bytes, print_document
from tuiadvisor.errors import TuiadvisorError, unwritable
from tuiadvisor.importers.files import read_whole
from tuiadvisor.importers.serving.fetch import Fetched, checked_address, fetch, is_address
from tuiadvisor.importers.serving.page import MAX_BYTES, read_page
from tuiadvisor.importers.serving.reading import serving_document, serving_view
from tuiadvisor.report.serving import html_serving, markdown_serving
from tuiadvisor.text.printed import redraw, say_on_stderr
from tuiadvisor.text.serving import summary
from tuiadvisor.views.serving import OBJECTIVES

if TYPE_CHECKING:
    import argparse

    from tuiadvisor.importers.serving.page import Page
    from tuiadvisor.views.serving import ServingView

MAX_EVERY_S: Final = 24 * 3600.0
LEAST_AGE_S: Final = 10.0  # both ends are told in whole seconds: a younger age would be a guess
SUFFIXES: Final = (".json", ".md", ".html")


def run(options: argparse.Namespace) -> int:
    """Read, judge, show, keep."""
    _check(options)
    limits = {
        signal: limit for signal in OBJECTIVES if (limit := getattr(options, f"{signal}_slo")) is not None
    }
    view = _read(options, limits)
    if options.output:
        _write(options.output, view)
    if options.json:
        print_document(serving_document(view))
    else:
        # Names come from a page of others: a terminal must not obey them.
        print("".join(c if c.isprintable() or c == "\n" else "?" for c in summary(view)))
    return 0


def _check(options: argparse.Namespace) -> None:
    """TuiadvisorError before anything is asked for."""
    pages = options.pages
    addresses = [page for page in pages if is_address(page)]
    if len(pages) > 2 or (addresses and len(pages) > 1):
        raise TuiadvisorError(
            "name one address (with --every SECONDS for two pages of it), one file, or two files"
        )
    if options.every is not None:
        if len(pages) == 1 and not addresses:
            raise TuiadvisorError("--every needs an address to read twice, or two files")
        if options.every > MAX_EVERY_S:
            raise TuiadvisorError("--every takes at most a day")
    if options.output and Path(options.output).suffix not in SUFFIXES:
        raise TuiadvisorError(f"{options.output}: written as {', '.join(SUFFIXES)}")


def _read(options: argparse.Namespace, limits: dict[str, float]) -> ServingView:
    if is_address(options.pages[0]):
        return _from_server(options, limits)
    pages = tuple(read_page(read_whole(Path(path), MAX_BYTES), path) for path in options.pages)
    return serving_view(pages, limits, every_s=options.every, model=options.model)


def _from_server(options: argparse.Namespace, limits: dict[str, float]) -> ServingView:
    address = checked_address(options.pages[0])
    first = fetch(address)
    page = read_page(first.raw, address)
    if options.every is None:
        return serving_view((page,), limits, since_start_s=_age_s(page, first), model=options.model)
    if not page.servers:  # it will not hold them a minute later either
        return serving_view((page,), limits, model=options.model)
    _wait(options.every)
    second = fetch(address)
    pages = (page, read_page(second.raw, address))
    return serving_view(pages, limits, every_s=second.at_s - first.at_s, model=options.model)


def _age_s(page: Page, fetched: Fetched) -> float | None:
    """How long the server has run; None where its page does not say when it began, or that was only just now."""
    if page.start_s is None or fetched.served_s - page.start_s < LEAST_AGE_S:
        return None
    return fetched.served_s - page.start_s


def _wait(every_s: float) -> None:
    """Until the second page is due; says how long that is."""
    until_s = time.monotonic() + every_s
    if not sys.stderr.isatty():
        say_on_stderr(f"the second page in {every_s:.0f} s")
        time.sleep(every_s)
        return
    while (left_s := until_s - time.monotonic()) > 0:
        redraw(f"the second page in {left_s:.0f} s")
        time.sleep(min(left_s, 1.0))
    redraw("")


def _write(path: str, view: ServingView) -> None:
    suffix = Path(path).suffix
    if suffix == ".json":
        content = document_bytes(serving_document(view))
    else:
        made_by = f"tuiadvisor {__version__}, {time.strftime('%Y-%m-%d %H:%M')}"
        content = (markdown_serving if suffix == ".md" else html_serving)(view, made_by).encode()
    try:
        Path(path).write_bytes(content)
    except OSError as error:
        raise unwritable(path, error) from error
