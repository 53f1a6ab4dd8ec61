"""SECURITY.md promises nothing without a test: each one that it names is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text()


def rows() -> list[list[str]]:
    """Cells of the tables whose last column names tests."""
    tables = re.findall(r"\|[^\n]*\| test \|\n\|[-|]+\|\n((?:\|[^\n]*\|\n)+)", PAGE)
    return [row.strip("|").split(" | ") for table in tables for row in table.splitlines()]


def test_every_promise_names_tests_that_exist() -> None:
    """A test that is renamed or taken out takes its promise with it."""
    written = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        written |= set(re.findall(r"def (test_\w+)\(", path.read_text()))
    promised = [re.findall(r"`([^`]+)`", row[-1]) for row in rows()]
    assert len(promised) > 20
    assert [] == [row for row, names in zip(rows(), promised, strict=True) if not names]
    tests = {name for names in promised for name in names if name.startswith("test_")}
    programs = {name for names in promised for name in names if name.startswith("tests/")}
    assert set() == tests - written
    assert [] == [name for name in programs if not (ROOT / name).is_file()]
