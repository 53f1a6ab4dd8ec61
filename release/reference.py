"""Reference pages made from the code: every command and option, finding, threshold, metric and term.

In: the parser, the rules, the tables of metrics and terms.  Out: Markdown by page. Nothing here is written by hand, so
nothing can be missing; tests/unit/test_site.py looks all the same.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from detection_numbers import numbers

from tuiadvisor.cli.commands import build_parser
from tuiadvisor.exporters.tables import TABLES
from tuiadvisor.stream import frames, recording
from tuiadvisor.text.glossary import TERMS
from tuiadvisor.tui.control.registry import PAGES, command_table
from tuiadvisor_rules.evaluate import general_title
from tuiadvisor_rules.loader import load_catalog
from tuiadvisor_rules.message import without_figures
from tuiadvisor_rules.metric_names import ALL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tuiadvisor_rules.loader import Rule, RuleAction

SNAPSHOTS: Final = Path(__file__).parents[1] / "tests" / "snapshot" / "__snapshots__" / "test_screens"
# Of several pictures of a page, the one that tells most.
STATES: Final = {
    "overview": "overview-straggler",
    "ranks": "ranks-straggler",
    "finding": "finding-detail",
    "rank": "rank-detail",
    "overlap": "overlap-detailed",
}
UNITS: Final = {"s": "seconds", "share": "share, 0 to 1", "flag": "0 or 1", "text": "text, for messages"}


def pages() -> dict[str, str]:
    """Path of each page below the site's root -> its text."""
    rules = sorted(load_catalog(), key=lambda rule: rule.id)
    return {
        "reference/cli.md": "\n".join(_cli()),
        "reference/findings.md": "\n".join(_findings(rules)),
        "reference/thresholds.md": "\n".join(_thresholds(rules)),
        "reference/metrics.md": "\n".join(_metrics()),
        "reference/terms.md": "\n".join(_terms()),
        "reference/screens.md": "\n".join(_screens()),
        "reference/recording.md": "\n".join(_recording()),
    }


def _cli() -> Iterator[str]:
    yield from (
        "# Commands and options",
        "",
        "Made from the program's own parser; `tuiadvisor COMMAND --help` says the same.",
        "",
    )
    parser = build_parser()
    yield from _options(parser)
    for name, command in _commands(parser):
        yield from ("", f"## {name} {{ #{name.replace(' ', '-')} }}", "", command.description or "", "")
        # argparse wraps to the terminal's width, and this is none.
        usage = " ".join(command.format_usage().removeprefix("usage: ").split())
        yield from ("```text", usage, "```", "")
        yield from _options(command)
        if command.epilog:
            yield from ("", " ".join(command.epilog.split()))


def _commands(
    parser: argparse.ArgumentParser, above: str = ""
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for name, command in action.choices.items():
                yield f"{above}{name}", command
                yield from _commands(command, f"{above}{name} ")


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    shown = [
        action
        for action in parser._actions  # noqa: SLF001
        if action.help != argparse.SUPPRESS and not isinstance(action, argparse._SubParsersAction)  # noqa: SLF001
    ]
    yield from ("| option | what it does |", "|---|---|")
    formatter = parser._get_formatter()  # noqa: SLF001
    for action in shown:
        words = formatter._format_action_invocation(action)  # noqa: SLF001
        said = formatter._expand_help(action) if action.help else ""  # noqa: SLF001
        yield f"| {_code(words)} | {_cell(said)} |"


def _findings(rules: list[Rule]) -> Iterator[str]:
    yield from (
        "# Findings",
        "",
        f"All {len(rules)} of them, as the rules have them; your own rules extend or override them by id",
        "([Rules](../rules.md)). Their numbers are in [Thresholds](thresholds.md), what they are judged on in",
        "[Metrics](metrics.md).",
        "",
    )
    for rule in rules:
        yield from (
            f"## {rule.id} {{ #{rule.id} }}",
            "",
            f"**{_text(general_title(rule))}.** Pattern {rule.pattern}, layer {rule.layer}.",
            "",
        )
        yield from (f"Fires when `{rule.condition.text}`.", "")
        yield from (f"- {level} when `{condition.text}`" for level, condition in rule.levels)
        yield from ("", _text(rule.why), "", f"*Verify:* {_text(rule.verify)}", "")
        yield from _actions(rule.actions)
        for variant in rule.variants:
            yield from (f"Where `{variant.when.text}`:", "")
            yield from ([_text(variant.why), ""] if variant.why else [])
            yield from _actions(variant.actions or ())
        if rule.measure_next:
            yield from (
                "What to measure next:",
                "",
                *(f"- {_text(entry)}" for entry in rule.measure_next),
                "",
            )


def _actions(actions: tuple[RuleAction, ...]) -> Iterator[str]:
    for action in actions:
        yield f"- {_text(without_figures(action.text))} (risk {action.risk}, effort {action.effort})"
        if action.command:
            yield f"  `{action.command}`"
    yield ""


def _thresholds(rules: list[Rule]) -> Iterator[str]:
    yield from (
        "# Thresholds",
        "",
        "Each number of the rules, with where it is from. A file of your own changes them: [Rules](../rules.md).",
        "",
    )
    yield from ("| finding | threshold | value | source |", "|---|---|---|---|")
    for rule in rules:
        for name, entry in rule.thresholds.items():
            yield f"| [{rule.id}](findings.md#{rule.id}) | `{name}` | {entry.value:g} | {_cell(entry.source)} |"
    yield from (
        "",
        "## Numbers of the measuring",
        "",
        "What decides whom and what a rule is about. Where no source is named the number was chosen: what it does",
        "to right and wrong names is shown by `make accuracy`.",
        "",
        "| where | number | value | what it is |",
        "|---|---|---|---|",
    )
    for one in numbers():
        yield f"| `{one.file}` | `{one.name}` | `{_cell(one.value)}` | {_cell(one.words)} |"


def _metrics() -> Iterator[str]:
    yield from (
        "# Metrics",
        "",
        "What rules may name; what was not observed is unknown, never 0. Those for Prometheus and OpenTelemetry are in",
        "[Metrics, alerts and webhooks](../prometheus.md).",
        "",
    )
    yield from ("| metric | of | unit | meaning |", "|---|---|---|---|")
    for entry in ALL:
        yield f"| `{entry.name}` | {entry.scope} | {UNITS.get(entry.unit, entry.unit)} | {_cell(entry.meaning)} |"


def _terms() -> Iterator[str]:
    yield from (
        "# Terms",
        "",
        "The words of the screens; `?` shows them with their figures in the run.",
        "",
        "| term | meaning |",
        "|---|---|",
    )
    for term in sorted(TERMS.values(), key=lambda term: term.word.lower()):
        yield f"| {_cell(term.word)} | {_cell(term.means)} |"


def pictures() -> dict[str, Path]:
    """Page's name -> its picture among those that the tests hold the screens to."""
    found = {}
    for page in PAGES:
        for name in (STATES.get(page.name, page.name), page.name):
            path = next(iter(sorted(SNAPSHOTS.glob(f"test_*[[]{name}-160x45].svg"))), None)
            if path is not None:
                found[page.name] = path
                break
    return found


def _screens() -> Iterator[str]:
    yield from (
        "# Screens",
        "",
        "Every screen as a terminal of 160 columns shows it, with what its keys do. The",
        "words on them are in [Terms](terms.md).",
        "",
    )
    drawn, table = pictures(), command_table()
    for page in PAGES:
        yield from (f"## {page.title} {{ #{page.name} }}", "", _text(page.about), "")
        if page.name in drawn:
            yield from (f"![The screen: {page.title}](../screens/{page.name}.svg)", "")
    yield from ("## Keys", "", "| key | what it does |", "|---|---|")
    for command in table.commands:
        yield f"| {_code(command.shown)} | {_cell(command.about)} |"


def _recording() -> Iterator[str]:
    yield from (
        "# The recording",
        "",
        "What `record` writes, from the sources that read it. `tuiadvisor info FILE` says what one holds, and",
        "`tuiadvisor export` makes tables of it.",
        "",
        "## The file",
        "",
    )
    yield from (
        "```text",
        (recording.__doc__ or "").strip(),
        "```",
        "",
        "## A frame",
        "",
        "```text",
        (frames.__doc__ or "").strip(),
        "```",
        "",
    )
    yield from ("Kinds: " + ", ".join(f"{kind.value} {kind.name}" for kind in frames.FrameKind) + ".", "")
    yield "What `export --format parquet` writes, and `run.steps()` and its kin return in Python:"
    for name, columns in TABLES.items():
        yield from ("", f"## Table {name} {{ #{name} }}", "", "| column | type | meaning |", "|---|---|---|")
        yield from (f"| `{column.name}` | {column.kind} | {_cell(column.meaning)} |" for column in columns)


def _text(text: str) -> str:
    """Prose in which nothing is Markdown or HTML by accident; what stands between two backticks is code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        parts = [text.replace("`", "'")]
    return "`".join(
        part if at % 2 else re.sub(r"([\\*_<\[])", r"\\\1", part) for at, part in enumerate(parts)
    )


def _cell(text: str) -> str:
    return _text(" ".join(text.split())).replace("|", "\\|")


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")
