"""Commands that the documents show are commands that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from snapshot import views

from tuiadvisor.cli.commands import COMMANDS, build_parser
from tuiadvisor.importers.kinds import KINDS
from tuiadvisor.report.document import document
from tuiadvisor.tui.control.registry import command_table

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "rules" / "README.md"]


def commands() -> list[tuple[str, str]]:
    """(document, command) of every line that begins with a command, in code blocks."""
    found = []
    for path in DOCUMENTS:
        for line in path.read_text().splitlines():
            # After the indentation of a code block, a list's dash or the key of a workflow.
            match = re.match(r"^( {4,}|\s+- run: |\s+run: )(tuiadvisor [a-z].*)", line)
            if match:
                found.append((path.name, match[2].partition(" # ")[0].partition(" || ")[0].strip()))
    return found


def test_the_documents_show_commands() -> None:
    """The pattern above finds them."""
    assert {"README.md", "performance-check.md"} <= {name for name, _ in commands()}


@pytest.mark.parametrize(("name", "command"), commands())
def test_every_command_shown_parses(name: str, command: str) -> None:
    """Options that were renamed would make a document lie."""
    words = shlex.split(re.sub(r"\s{2,}.*", "", command).replace("[DIR]", "DIR").replace("…", "x"))[1:]
    assert build_parser(words[0]).parse_args(words).command == words[0], name


def test_every_key_of_the_document_is_described() -> None:
    """Scripts rely on them; a key that is added without a word fails here."""
    page = (ROOT / "docs" / "diagnose.md").read_text()
    described = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    found = document(views.straggler())
    assert {*found, "economics"} == described
    for name in ("run", "window", "overlap", "goodput", "losses", "verdict", "step", "batch_law"):
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
        unnamed = {key for key in found[name] if f"`{key}`" not in row} - {"pattern", "why"}  # type: ignore[attr-defined]
        assert set() == unnamed, name


def test_the_pages_name_every_command_and_every_key() -> None:
    """Beside the reference that is generated: these two are written by hand, in the order of what one wants to do."""
    page = (ROOT / "docs" / "commands.md").read_text()
    assert set(COMMANDS) <= {
        word for span in re.findall(r"`([^`]+)`", page) for word in re.findall(r"[a-z]+", span)
    }
    imports = " ".join(re.findall(r"`tuiadvisor import ([^`]+)`", page))
    untold = KINDS.keys() - set(re.findall(r"[a-z-]+", imports))
    assert set() == untold, "tell of each in docs/commands.md: `tuiadvisor import KIND`"
    page = (ROOT / "docs" / "keys.md").read_text()
    named = {
        word
        for row in re.findall(r"^\| (`.+?`) \|", page, re.MULTILINE)
        for word in re.findall(r"`(\S+)`", row)
    }
    named |= {str(digit) for digit in range(1, 9)} | {"←", "→"}
    shown = {command.shown for command in command_table().commands}
    assert set() == shown - named, "give each a row in docs/keys.md"
