"""Conditions of rules: arithmetic and comparisons on named metrics, nothing else.

In: a line of text and the names it may use.  Out: True, False or None (unknown). A metric that was not observed
is None and makes what depends on it unknown; `and` and `or` decide without it where they can.
"""

from __future__ import annotations

import ast
import difflib
import math
import operator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

MAX_CHARACTERS: Final = 500
MAX_NODES: Final = 120
MAX_MESSAGE: Final = 600
MOST_NAMES: Final = 3  # in a hint
LEAST_PREFIX: Final = 3  # letters that are the begin of a name, and no accident
Number = float | int | bool
_ARITHMETIC: Final[dict[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_COMPARISONS: Final[dict[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_ALLOWED: Final = (
    *_ARITHMETIC,
    *_COMPARISONS,
    ast.Expression,
    ast.BoolOp,
    ast.And,
    ast.Or,
    ast.UnaryOp,
    ast.Not,
    ast.USub,
    ast.BinOp,
    ast.Compare,
    ast.Name,
    ast.Load,
    ast.Attribute,
    ast.Constant,
)


class RuleError(ValueError):
    """A rule that cannot be used: what, in which file and line, and what to write instead."""

    def __init__(self, text: str) -> None:
        super().__init__(one_line(text))


def one_line(text: str) -> str:
    """A stranger's text as one line that no terminal obeys."""
    line = "".join(character if character.isprintable() else "?" for character in text)
    return line if len(line) <= MAX_MESSAGE else line[: MAX_MESSAGE - 1] + "…"


def nearest(name: str, valid: Iterable[str]) -> str:
    """A hint naming the valid names that begin so, else the one that looks most alike; empty without either."""
    known = sorted(valid)
    close = [each for each in known if len(name) >= LEAST_PREFIX and each.startswith(name)]
    close = close or difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {' or '.join(map(repr, close[:MOST_NAMES]))}?" if close else ""


class Condition:
    """One parsed expression. RuleError when it uses anything but the allowed syntax and names."""

    def __init__(self, text: str, metrics: Iterable[str], thresholds: Mapping[str, float]) -> None:
        self.text = text
        self.thresholds = dict(thresholds)
        self.names: set[str] = set()
        if len(text) > MAX_CHARACTERS:
            raise RuleError(f"condition of {len(text)} characters exceeds {MAX_CHARACTERS}")
        try:
            self.tree = ast.parse(text.strip(), mode="eval")
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            raise RuleError(f"condition {text!r} is not an expression: {error}") from error
        self._check(frozenset(metrics))

    def _check(self, metrics: frozenset[str]) -> None:
        nodes = list(ast.walk(self.tree))
        if len(nodes) > MAX_NODES:
            raise RuleError(f"condition of {len(nodes)} parts exceeds {MAX_NODES}")
        owners = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
        for node in nodes:
            if not isinstance(node, _ALLOWED):
                raise RuleError(
                    f"condition {self.text!r} uses {type(node).__name__}; allowed are comparisons, and, or, not, "
                    "+ - * /, numbers, metrics and thresholds.NAME"
                )
            if isinstance(node, ast.Constant) and not isinstance(node.value, int | float):
                raise RuleError(f"condition {self.text!r}: {node.value!r} is not a number")
            if isinstance(node, ast.Attribute):
                self._check_threshold(node)
            elif isinstance(node, ast.Name) and id(node) not in owners:
                if node.id not in metrics:
                    raise RuleError(f"no metric {node.id!r}{nearest(node.id, metrics)}")
                self.names.add(node.id)

    def _check_threshold(self, node: ast.Attribute) -> None:
        if not isinstance(node.value, ast.Name) or node.value.id != "thresholds":
            raise RuleError(f"condition {self.text!r}: only thresholds.NAME may have a dot")
        if node.attr not in self.thresholds:
            raise RuleError(f"no threshold {node.attr!r}{nearest(node.attr, self.thresholds)}")

    def __call__(self, values: Mapping[str, object]) -> bool | None:
        """Whether it holds; None where a missing metric leaves it open."""
        result = self._value(self.tree.body, values)
        return None if result is None else bool(result)

    def unknown(self, values: Mapping[str, object]) -> list[str]:
        """The metrics it names that have no value."""
        return sorted(name for name in self.names if _number(values.get(name)) is None)

    def _value(self, node: ast.expr, values: Mapping[str, object]) -> Number | None:
        result: Number | None
        match node:
            case ast.Constant():
                result = _number(node.value)
            case ast.Name():
                result = _number(values.get(node.id))
            case ast.Attribute():
                result = self.thresholds[node.attr]
            case ast.BoolOp():
                parts = [self._value(part, values) for part in node.values]
                result = _junction(parts, is_and=isinstance(node.op, ast.And))
            case ast.UnaryOp():
                operand = self._value(node.operand, values)
                result = (
                    None if operand is None else not operand if isinstance(node.op, ast.Not) else -operand
                )
            case ast.BinOp():
                result = _arithmetic(node.op, self._value(node.left, values), self._value(node.right, values))
            case ast.Compare():
                result = self._comparison(node, values)
            case _:
                raise AssertionError(f"unchecked node {type(node).__name__}")
        return result

    def _comparison(self, node: ast.Compare, values: Mapping[str, object]) -> bool | None:
        operands = [self._value(part, values) for part in (node.left, *node.comparators)]
        results = [
            _compare(operation, left, right)
            for operation, left, right in zip(node.ops, operands[:-1], operands[1:], strict=True)
        ]
        joined = _junction(list(results), is_and=True)
        return None if joined is None else bool(joined)


def _number(value: object) -> Number | None:
    if not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _junction(parts: list[Number | None], *, is_and: bool) -> bool | None:
    decisive = not is_and
    if any(part is not None and bool(part) == decisive for part in parts):
        return decisive
    return None if any(part is None for part in parts) else is_and


def _arithmetic(operation: ast.operator, left: Number | None, right: Number | None) -> Number | None:
    if left is None or right is None or (isinstance(operation, ast.Div) and not right):
        return None
    return _number(_ARITHMETIC[type(operation)](left, right))


def _compare(operation: ast.cmpop, left: Number | None, right: Number | None) -> bool | None:
    if left is None or right is None:
        return None
    return bool(_COMPARISONS[type(operation)](left, right))
