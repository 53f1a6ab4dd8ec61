"""Conditions of rules: what they may say, what they mean, and that they can do nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuiadvisor_rules.condition import Condition, RuleError

METRICS = frozenset({"a", "b", "data_wait_share"})
LIMITS = {"high": 0.2}


def outcome(text: str, **values: object) -> bool | None:
    """The condition on these values."""
    return Condition(text, METRICS, LIMITS)(values)


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (True, "a > 1"),
        (False, "a > 2"),
        (True, "a >= 2 and b < 1"),
        (True, "a > 5 or b == 0.5"),
        (True, "not a > 5"),
        (True, "1 < a <= 2"),
        (True, "a * b - 1 == 0 and a / b == 4 and -a == 0 - 2"),
        (True, "b > thresholds.high"),
        (False, "b < thresholds.high / 2"),
    ],
)
def test_arithmetic_and_logic(expected: bool, text: str) -> None:
    """As they read."""
    assert expected is outcome(text, a=2, b=0.5)


@pytest.mark.parametrize(
    ("expected", "text"),
    [
        (None, "a > 1"),
        (None, "a > 1 and b == 1"),
        (False, "a > 1 and b == 2"),
        (True, "a > 1 or b == 1"),
        (None, "a > 1 or b == 2"),
        (None, "not a > 1"),
        (None, "a + b > 1"),
        (None, "b / 0 > 1"),
    ],
)
def test_what_was_not_observed_makes_unknown_what_depends_on_it(expected: bool | None, text: str) -> None:
    """An unknown metric never counts as 0; the rest decides where it can."""
    assert expected is outcome(text, a=None, b=1)
    assert expected is outcome(text, a=float("nan"), b=1)
    assert expected is outcome(text, b=1)


def test_a_condition_names_what_it_misses() -> None:
    """The unknown metrics are listed for the user."""
    assert ["a"] == Condition("a > 1 and b > 2", METRICS, LIMITS).unknown({"a": None, "b": 1})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("__import__('os')", "uses Call"),
        ("a.__class__ > 1", "only thresholds.NAME"),
        ("thresholds.__class__ > 1", "no threshold '__class__'"),
        ("thresholds > 1", "no metric 'thresholds'"),
        ("a if b else 1", "uses IfExp"),
        ("[a] > 1", "uses List"),
        ("a > 'x'", "is not a number"),
        ("a ** 99 > 1", "uses Pow"),
        ("lambda: a", "uses Lambda"),
        ("(a := 1) > 0", "uses NamedExpr"),
        ("a in b", "uses In"),
        ("a >", "is not an expression"),
        ("data_wait_shar > 1", "did you mean 'data_wait_share'"),
        ("a > thresholds.hihg", "did you mean 'high'"),
        ("a > 1 " * 200, "exceeds 500"),
        ("a" + "+a" * 200, "exceeds 120"),
        ("(" * 240 + "a", "is not an expression"),
    ],
)
def test_anything_else_is_refused_with_a_hint(text: str, says: str) -> None:
    """No calls, no attributes, no texts, bounded size; typos get the nearest valid name."""
    with pytest.raises(RuleError, match=says):
        Condition(text, METRICS, LIMITS)


@given(st.text(max_size=60), st.floats() | st.integers() | st.none())
def test_any_text_is_refused_or_evaluates(text: str, value: float | None) -> None:
    """Never another exception, and never anything but yes, no or unknown."""
    try:
        condition = Condition(text, METRICS, LIMITS)
    except RuleError:
        return
    assert condition({"a": value, "b": 1}) in {True, False, None}
