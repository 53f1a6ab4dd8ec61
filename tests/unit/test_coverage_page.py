"""The table of what the advisor knows names nothing that does not exist: it cannot rot unseen."""

from __future__ import annotations

import argparse
import re
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from scaling_tables import MEGASCALE, csv_of, write
from snapshot import views
from test_compare_repeats import held, measured
from test_import_serving import RECORDINGS
from test_scaling_classic import BATCHES

from tuiadvisor.advisor.compare.comparing import compare
from tuiadvisor.cli.commands import COMMANDS, build_parser
from tuiadvisor.importers.serving.page import read_page
from tuiadvisor.importers.serving.reading import serving_document, serving_view
from tuiadvisor.report.comparison import comparison_document
from tuiadvisor.report.document import document
from tuiadvisor.scaling.analysis import analyse
from tuiadvisor.scaling.cost import Aim
from tuiadvisor.scaling.document import document as scaling_document
from tuiadvisor.scaling.table import read_table
from tuiadvisor.session.economy import economy
from tuiadvisor.session.intent import Intent
from tuiadvisor.tui.control.registry import command_table
from tuiadvisor.views.devices import Link, RankDevice
from tuiadvisor.views.efficiency import Efficiency, Stack
from tuiadvisor.views.placement import RankPlacement
from tuiadvisor.views.run_view import HostRow
from tuiadvisor_rules.loader import load_catalog
from tuiadvisor_rules.questions import load_questions

PAGE = (Path(__file__).parents[2] / "docs" / "coverage.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| item")]
SPANS = re.compile(r"(\w+)? ?`([^`]+)`")


def named(kind: str) -> set[str]:
    """What the rows call so."""
    return {name for row in ROWS for word, name in SPANS.findall(row.split("|")[2]) if word == kind}


def test_every_item_that_was_not_full_has_a_row_that_says_where_or_why_not() -> None:
    assert len(ROWS) == 75
    assert all(len(row.split("|")) == 4 and row.split("|")[2].strip() for row in ROWS)
    assert len({row.split("|")[1] for row in ROWS}) == 75


def test_whatever_is_marked_as_a_name_is_of_a_kind_that_is_checked() -> None:
    """A name in a form that nobody checks could be of anything."""
    loose = [
        (word, name)
        for row in ROWS
        for word, name in SPANS.findall(row.split("|")[2])
        if word not in {"rule", "question", "intent", "screen", "JSON"} and not name.startswith("tuiadvisor ")
    ]
    assert loose == []


def test_rules_questions_intent_and_screens_exist() -> None:
    assert named("rule")
    assert named("rule") <= {rule.id for rule in load_catalog()}
    assert named("question") <= {question.id for question in load_questions()}
    assert named("intent") <= {field.name for field in fields(Intent)}
    assert named("screen") <= {command.shown for command in command_table().commands}


def test_commands_and_their_options_exist() -> None:
    spans = {name for row in ROWS for name in re.findall(r"`(tuiadvisor [^`]+)`", row)}
    assert len(spans) > 10
    for span in spans:
        words = span.split()[1:]
        assert words[0] in COMMANDS, span
        parser = build_parser(words[0])
        known = {option for one in _parsers(parser) for option in one._option_string_actions}
        names = {name for one in _subparsers(parser) for name in one.choices}
        for word in words[1:]:
            assert word in (known if word.startswith("-") else names), span


def _subparsers(parser: argparse.ArgumentParser) -> list[Any]:
    direct = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    return direct + [inner for one in direct for each in one.choices.values() for inner in _subparsers(each)]


def _parsers(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    inner = [each for one in _subparsers(parser) for each in one.choices.values()]
    return [parser, *inner]


def paths(value: object, prefix: str = "") -> set[str]:
    """Every key below, dotted; entries of a list are of one kind."""
    found: set[str] = set()
    if isinstance(value, dict):
        for name, inner in value.items():
            where = f"{prefix}.{name}" if prefix else str(name)
            found |= {where} | paths(inner, where)
    elif isinstance(value, list | tuple):
        for inner in value:
            found |= paths(inner, prefix)
    return found


@cache
def keys() -> dict[str, set[str]]:
    """Of `diagnose`, `compare`, `scale` and `import serving`."""
    shown = replace(
        views.straggler(),
        hosts=(HostRow("node0", None, None, None, 8, None, None),),
        stack=Stack({"attention": "sdpa", "pin_memory": 1}, ()),
        efficiency=Efficiency(),
        rank_devices=(RankDevice(0),),
        links=(Link("pcie", "node0", 0, None),),
        placements=(RankPlacement(0, "node0"),),
    )
    diagnosed = paths(document(shown)) | paths(document(views.from_start()))
    diagnosed |= paths(document(views.healthy())) | paths({"economics": economy(shown, Intent())})
    compared = comparison_document(compare(measured(1.0, 1), measured(1.1, 2), held(1.08, 0.94)))
    with TemporaryDirectory() as folder:
        tables = [read_table(write(Path(folder), text)) for text in (csv_of(MEGASCALE), BATCHES)]
    scaled = [scaling_document(table, analyse(table, (), Aim()), Aim()) for table in tables]
    page = next(iter(sorted(RECORDINGS.glob("vllm*")))).read_bytes()
    served = serving_document(serving_view((read_page(page, "page"),), {}))
    return {
        "diagnose": diagnosed,
        "compare": paths(compared),
        "scale": paths(scaled),
        "serving": paths(served),
    }


def of_command(row: str) -> str:
    """The command whose JSON a row names."""
    for name in ("compare", "scale"):
        if re.search(rf"`tuiadvisor {name}[^`]*` JSON", row):
            return name
    return "diagnose"


@pytest.mark.parametrize("row", [row for row in ROWS if "JSON `" in row])
def test_json_keys_exist(row: str) -> None:
    for path in re.findall(r"JSON `([^`]+)`", row):
        command = "serving" if path.startswith("serving.") else of_command(row)
        assert path in keys()[command], (command, path)


def test_a_key_that_is_not_there_would_be_found_missing() -> None:
    assert "goodput.by_layer" in keys()["diagnose"]
    assert "goodput.by_colour" not in keys()["diagnose"]
