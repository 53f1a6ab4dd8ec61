"""Message templates: text with metrics in it, formatted by their unit.

In: "{ranks} arrive {excess_s} late"; values.  Out: the sentence. {name} is formatted by the metric's unit;
an unknown value reads "unknown".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tuiadvisor_rules.condition import RuleError, nearest
from tuiadvisor_rules.metric_names import METRICS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_FIELD: Final = re.compile(r"\{([^{}]*)\}")


def check_template(text: str, metrics: Iterable[str]) -> None:
    """RuleError if the template names something that does not exist."""
    known = frozenset(metrics)
    for name in _FIELD.findall(text):
        if name not in known:
            raise RuleError(f"no metric {name!r} for the message{nearest(name, known)}")
    if _FIELD.sub("", text).strip("{}") != _FIELD.sub("", text) or "{" in _FIELD.sub("", text):
        raise RuleError(f"unbalanced braces in {text!r}")


def fill(text: str, values: Mapping[str, object]) -> str:
    """The template with its values."""
    return _FIELD.sub(lambda match: worded(match[1], values.get(match[1])), text)


def generalize(text: str) -> str:
    """The template where no case is meant: "Others wait for {ranks}" is said of some ranks."""
    return _FIELD.sub(lambda match: f"some {match[1].replace('_', ' ')}", text)


def without_figures(text: str) -> str:
    """The template where no case is meant and only a figure is open: "takes … a step less"."""
    return _FIELD.sub("\u2026", text)


def worded(name: str, value: object) -> str:
    """One value as people read it: seconds scaled, shares in percent."""
    unit = METRICS[name].unit if name in METRICS else "text"
    if value is None:
        return "unknown"
    if unit == "text" or not isinstance(value, int | float):
        return str(value)
    if unit == "s":
        return seconds(float(value))
    if unit == "share":
        return share(float(value))
    if unit == "ratio":
        return f"{value:.2f}"
    return f"{value:,.0f}"


def share(value: float) -> str:
    """'41 %', '0.4 %', '<0.1 %': what was seen is no zero, however small."""
    percent = 100 * value
    size = abs(percent)
    if size == 0 or size >= 9.95:
        return f"{percent:.0f} %"
    return f"{percent:.1f} %" if size >= 0.1 else "<0.1 %"


LAST_BELOW_1000: Final = 999.5  # what rounds to 1,000 is 1 of the next unit, and not "1e+03"


def seconds(value: float) -> str:
    """A duration with three significant digits in the unit people would use."""
    size = abs(value)
    if size >= 100:
        return f"{value:.0f} s"
    if size >= LAST_BELOW_1000 * 1e-3:
        return f"{value:.3g} s"
    if size >= LAST_BELOW_1000 * 1e-6:
        return f"{1e3 * value:.3g} ms"
    return f"{1e6 * value:.3g} \u00b5s"
