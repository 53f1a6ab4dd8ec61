"""The numbers that detection rests on: each with the words that stand beside it in the code.

In: the sources of metrics, causes and judging.  Out: one row a number. A comment behind it or above it (above a run of
lines: for those that have none of their own) says what it is a share or a count of, and where it is from.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE: Final = Path(__file__).parents[1] / "tuiadvisor"
ROOMS: Final = ("metrics", "causes", "advisor/judge")
_PARTS: Final = (ast.Constant, ast.UnaryOp, ast.BinOp, ast.Tuple, ast.operator, ast.unaryop, ast.expr_context)


class Number(NamedTuple):
    """words: empty where nothing says what it is."""

    file: str
    name: str
    value: str
    words: str


def numbers() -> list[Number]:
    """In the order of files and lines."""
    paths = [path for room in ROOMS for path in sorted((PACKAGE / room).rglob("*.py"))]
    return [
        number
        for path in paths
        for number in numbers_in(path.read_text(encoding="utf-8"), str(path.relative_to(PACKAGE)))
    ]


def numbers_in(source: str, file: str) -> Iterator[Number]:
    """Those that a module names at its top."""
    lines = source.splitlines()
    above, end = "", 0
    for node in ast.parse(source).body:
        if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
            above = ""
            continue
        if end != node.lineno - 1 or not above:
            above = _above(lines, node.lineno - 1)
        end = node.end_lineno or node.lineno
        if node.value is not None and _is_number(node.value):
            own = " ".join(filter(None, map(_comment, lines[node.lineno - 1 : end])))
            yield Number(file, node.target.id, ast.unparse(node.value), own or above)


def _is_number(value: ast.expr) -> bool:
    """Made of numbers alone; log(...) of one is a number too."""
    if isinstance(value, ast.Call):
        return ast.unparse(value.func).endswith("log") and all(map(_is_number, value.args))
    return all(
        isinstance(part, _PARTS) and not (isinstance(part, ast.Constant) and not _is_plain(part.value))
        for part in ast.walk(value)
    )


def _is_plain(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _comment(line: str) -> str:
    return line.partition("#")[2].strip()


def _above(lines: list[str], number: int) -> str:
    """The comment that ends right above this line."""
    begin = number
    while begin and lines[begin - 1].startswith("#"):
        begin -= 1
    return " ".join(map(_comment, lines[begin:number]))
