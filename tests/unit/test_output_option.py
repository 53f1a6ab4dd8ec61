"""Where a command writes its result is one word everywhere: -o, or --output."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import pytest

from tuiadvisor.cli.commands import build_parser

if TYPE_CHECKING:
    from collections.abc import Iterator

OUTPUTS = {"output", "record", "out"}
WRITERS = (
    "watch",
    "record",
    "run",
    "import kineto",
    "import memory",
    "export",
    "report",
    "trim",
    "anonymize",
)


def parsers(parser: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Each command and each action of one, by what is typed."""
    yield name, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, below in action.choices.items():
                yield from parsers(below, f"{name} {word}".strip())


PARSERS = dict(parsers(build_parser()))


def outputs(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [
        one
        for one in parser._actions
        if OUTPUTS & {word.lstrip("-") for word in one.option_strings} or one.dest in OUTPUTS
    ]


@pytest.mark.parametrize("name", [name for name, parser in PARSERS.items() if outputs(parser)])
def test_an_output_is_called_output(name: str) -> None:
    (found,) = outputs(PARSERS[name])
    assert {"-o", "--output"} <= set(found.option_strings)
    assert "output" == found.dest


@pytest.mark.parametrize("name", WRITERS)
def test_what_writes_a_file_has_it(name: str) -> None:
    assert outputs(PARSERS[name])


@pytest.mark.parametrize("word", ["-o", "--output", "--record"])
def test_run_takes_it_before_the_command_and_leaves_the_commands_own(word: str) -> None:
    """What stands after -- is the training's, whatever it is called; scripts with the older name go on."""
    given = PARSERS["run"].parse_args([word, "r.tuirec", "--", "torchrun", "train.py", "-o", "model.pt"])
    assert "r.tuirec" == given.output
    assert ["--", "torchrun", "train.py", "-o", "model.pt"] == given.training
