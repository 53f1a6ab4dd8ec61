"""What a comparison says of its verdict, in sentences: how much, how sure, and what it takes where nothing is.

In: Change, Terms, Gate, as compared.  Out: str.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from tuiadvisor.metrics.window.regime import NEW_REGIME_SHARE
from tuiadvisor_rules.message import seconds

if TYPE_CHECKING:
    from tuiadvisor.advisor.compare.comparable import Terms
    from tuiadvisor.views.comparison import Change, Gate, Outcome

# Times between the ends of an interval: one so wide says nothing, as of steps that other jobs make now short, now long.
TOO_WIDE: Final = 10.0
WHOLE_FROM: Final = 1000.0  # a rate beyond it needs no digits after the point
REPEATS: Final = "repeat both runs several times (--repeat)"
MORE_REPEATS: Final = "more repeats (--repeat) narrow what runs of the same code differ by"


def says_nothing(change: Change) -> bool:
    """Of an interval of decades no figure is told."""
    return change.low is not None and change.high is not None and change.high > TOO_WIDE * change.low


def percent(value: float) -> str:
    """'63 %', '4.2 %'."""
    size = abs(100 * value)
    return f"{100 * value:.0f} %" if size >= 9.95 else f"{100 * value:.1f} %"


def why_blind(
    gate: Gate, detectable: float | None, change: Change | None = None, every: Change | None = None
) -> str:
    """detectable: the least slowdown that these recordings would show."""
    asked = _asked(gate)
    is_seen = detectable is not None and detectable <= gate.limit
    if is_seen or (change is not None and change.high is not None and change.high <= 1 + gate.limit):
        most = ""
        if every is not None and every.high is not None and not says_nothing(every):
            most = f", up to {percent(every.high - 1)}"
        return f"{asked}pauses included, it may be more{most}; record longer"
    unseen = "no change would be" if detectable is None else f"less than {percent(detectable)} would not be"
    # Pauses are the training's own wherever it runs.
    where = "" if change is not None and change is every else ", or on a quiet machine"
    return f"{asked}{unseen} seen in these two recordings; record longer{where}"


def may_be_load(gate: Gate) -> str:
    """It is slower than the limit, and without what the busier machine explains it may not be."""
    asked = _asked(gate)
    return f"{asked}it may be what the busier machine explains; measure again on a quiet one, or pass --ignore-load"


def _asked(gate: Gate) -> str:
    return f"cannot tell whether it is {percent(gate.limit)} slower: "


def of_pauses(change: Change, every: Change, found: Terms) -> list[str]:
    """That a change of the steady steps may be undone by pauses, where it may."""
    if not change.significant or every.significant or every.low is None or every.high is None:
        return []
    assert change.ratio is not None  # noqa: S101  # a significant change has one
    # Only as far as the run itself would begin a new window for it.
    undone = every.high if change.ratio < 1 else 1 / every.low
    if undone <= 1 + NEW_REGIME_SHARE:
        return []
    if says_nothing(every):
        return [
            "this is of the steady steps; pauses included, the steps differ so much that it may be chance"
        ]
    ends = (every.low, every.high) if found.basis == "step" else (1 / every.high, 1 / every.low)
    what = "a step's time" if found.basis == "step" else "throughput"
    return [f"this is of the steady steps; pauses included, {what} may have changed by {_range(*ends)}"]


def more(factor: float) -> str:
    """'63 % more', '4.2 % fewer'."""
    return f"{percent(abs(factor - 1))} {'more' if factor > 1 else 'fewer'}"


def plain(rate: float) -> str:
    """Never with an exponent."""
    return f"{rate:,.0f}" if rate >= WHOLE_FROM else f"{rate:.4g}"


def sentence_of(
    verdict: Outcome,
    reasons: list[str],
    found: Terms,
    change: Change,
    *,
    is_steady: bool,
    is_repeated: bool = False,
    more_steps: int | None = None,
) -> str:
    """is_repeated: runs of the same code are beside them; more_steps: that would decide it."""
    if verdict == "not comparable":
        return f"Not comparable: {'; '.join(reasons) or 'a step time is unknown'}."
    assert change.ratio is not None  # noqa: S101  # a verdict rests on a ratio
    assert change.low is not None  # noqa: S101
    assert change.high is not None  # noqa: S101
    if found.basis == "step":
        what = "a step" if is_steady else "a step, pauses included,"
        words = f"{what} takes {seconds(change.after or 0.0)} instead of {seconds(change.before or 0.0)}"
        middle, low, high, more, less = change.ratio, change.low, change.high, "longer", "less"
    else:
        who = "each device" if found.basis == "samples_per_device" else "the job"
        who += " does" if is_steady else ", pauses included, does"
        rates = 1 / (change.after or math.inf), 1 / (change.before or math.inf)
        words = f"{who} {plain(rates[0])} samples/s instead of {plain(rates[1])}"
        middle, low, high, more, less = 1 / change.ratio, 1 / change.high, 1 / change.low, "more", "less"
    if verdict == "not decided":
        # All steps are what is not decided where the steady ones alone are the same.
        lead = "" if is_steady else "the steady steps did not change; "
        otherwise = MORE_REPEATS if is_repeated else REPEATS if is_steady else "record longer"
        return f"Not decided: {lead}{words}{_why_open(change, low, high, more_steps, otherwise)}"
    if verdict == "no change":
        # The interval is of these steps; what differs from run to run is in none of them.
        why = "within noise" if low <= 1 <= high else "no more than two runs of the same code may differ by"
        return f"No change: {words}; {_range(low, high)} with 95 % confidence, {why}."
    size = f"{percent(abs(middle - 1))} {more if middle > 1 else less}"
    bounds = sorted((abs(low - 1), abs(high - 1)))
    return f"{verdict.capitalize()}: {words}, {size} (95 %: {percent(bounds[0])} to {percent(bounds[1])})."


def _why_open(change: Change, low: float, high: float, more_steps: int | None, otherwise: str) -> str:
    """otherwise: what helps where no number of steps is an answer."""
    if says_nothing(change):
        return ", but the steps of a run differ so much that this may be chance."
    takes = (
        otherwise
        if more_steps is None
        else f"it takes about {more_steps:,} more steady steps in each recording"
    )
    return f"; {_range(low, high)} with 95 % confidence, which may be a change or none: {takes}."


def _range(low: float, high: float) -> str:
    return f"{100 * (low - 1):+.1f} to {100 * (high - 1):+.1f} %"
