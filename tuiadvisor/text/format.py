"""Numbers to short strings with their unit; an unobserved value is the word "unknown", never a zero.

In: values of a RunView.  Out: str, at most 12 characters for one number.
"""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING

from tuiadvisor import phases
from tuiadvisor.views.names import limit_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tuiadvisor.views.run_view import Verdict

UNKNOWN = "unknown"
TALLEST = 2.5  # medians: what is taller is cut and said
TIMES = "\u00d7"
TO = "\u2013"  # between the ends of a range

DECIMAL = ((1, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB"))
BINARY = ((1, "B"), (1 << 10, "KiB"), (1 << 20, "MiB"), (1 << 30, "GiB"))
_UNITS_OF_BYTES: list[tuple[float, str]] = list(DECIMAL)

_LEFT_OUT = {
    "warmup": "of warm-up",
    "checkpoint": "in or right after a checkpoint",
    "eval": "in or right after a forward without backward",
    "capture": "under a capture",
    "periodic_pause": "with a periodic pause",
    "irregular_pause": "with an irregular pause",
    "before_change": "before the change",
    "before_restart": "of the processes before a restart",
    "beyond_view": "more than one view holds",
    "partial": "not seen whole",
}

SEEN_S = 0.1  # a look of the agent: shorter times of a step under way are chance
PHASE_NAMES = {phase.name: phase.label for phase in phases.TABLE}


def phase_name(phase: str) -> str:
    """Return how a phase, or a cause that limits the step, is called on the screen."""
    return PHASE_NAMES.get(phase) or limit_name(phase)


def following_label(decision: str | None, limit: str) -> str:
    """What a verdict's next constraint is: without a cure it is what the step loses most to, or is longest in."""
    if decision != "keep":
        return "then the next constraint"
    return f"largest {'part' if limit in phases.COMPUTE_AND_REST else 'loss'} of a step"


def activity(now: str, width: int | None = None) -> str:
    """What a rank is doing, its phase in words: 'data_wait 3.1 s' is 'data wait 3.1 s', 'data_wait 0.0 s' the name.

    width: what there is room for; a shorter name leaves the time whole.
    """
    first, blank, rest = now.partition(" ")
    phase = phases.BY_NAME.get(first)
    names = (first,) if phase is None else (phase.label, phase.short, phase.tiny)
    said = [name if rest == "0.0 s" else f"{name}{blank}{rest}" for name in names]
    return next((each for each in said if width is None or len(each) <= width), said[0])


def so_far(phases: Sequence[tuple[str, float]]) -> str:
    """Phases of the step under way: 'forward 12.3 s, data wait 3.1 s'; those that a look cannot tell apart left out."""
    shown = [
        f"{PHASE_NAMES.get(name, name)} {spent_s:.1f} s" for name, spent_s in phases if spent_s >= SEEN_S
    ]
    return ", ".join(shown)


def significant(value: float) -> str:
    """Three significant digits, no exponent, thousands separated."""
    size = abs(value)
    if size >= 99.95:
        return f"{value:,.0f}"
    if size >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}"


def seconds(value: float | None) -> str:
    """'850 µs', '21.3 ms', '1.69 s', '2 min 5 s', '3 h 12 min'."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    size = abs(value)
    if size == 0:
        return "0 s"
    if size < 0.9995e-3:
        return f"{value * 1e6:.0f} µs"
    if size < 0.9995:
        return f"{significant(value * 1e3)} ms"
    if size < 99.5:
        return f"{significant(value)} s"
    return _long_seconds(value)


def _long_seconds(value: float) -> str:
    sign = "-" if value < 0 else ""
    minutes, rest = divmod(round(abs(value)), 60)
    if minutes < 60:
        return f"{sign}{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{sign}{hours} h {minutes} min"


def share(value: float | None) -> str:
    """'41 %', '0.4 %', '<0.1 %'."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    percent = value * 100
    size = abs(percent)
    if size == 0 or size >= 9.95:
        return f"{percent:.0f} %"
    if size >= 0.1:
        return f"{percent:.1f} %"
    return "<0.1 %"


def share_read(value: float) -> str:
    """Of a recording that is still being read: what lies beyond is not known yet."""
    return f"still reading the recording: {math.floor(min(max(value, 0.0), 0.99) * 100)} %"


def weight(value: float) -> str:
    """A share of what is no quantity, of 100 and without a sign that would pass it off as a probability."""
    return f"{100 * value:.0f}"


def timer(value: float) -> str:
    """Return whole seconds that run: 41 s, 2 min 05 s, 3 h 12 min."""
    whole = int(max(value, 0))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60:02d} min"


def no_progress(for_s: float | None) -> str:
    """'no progress for 41 s'; without the time where it is not known."""
    return "no progress" if for_s is None else f"no progress for {timer(for_s)}"


def stalled(for_s: float | None) -> str:
    """'stalled 41 s'; without the time where it is not known."""
    return "stalled" if for_s is None else f"stalled {timer(for_s)}"


def small_share(value: float | None) -> str:
    """'0.083 %', '1.2 %': of what should be next to nothing, so small ones are told apart."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return f"{100 * value:.2g} %" if abs(value) < 0.1 else share(value)


def at_least(value: float | None) -> str:
    """'≥ 0.083 %': a share of which the least is known."""
    shown = small_share(value)
    return shown if shown == UNKNOWN else f"≥ {shown}"


def rate(value: float | None, unit: str) -> str:
    """'47.6 steps/s', '1,523 samples/s', '1.20 M tokens/s'."""
    if value is None or not math.isfinite(value):
        return f"{UNKNOWN} {unit}"
    if abs(value) >= 999_500:
        return f"{significant(value / 1e6)} M {unit}"
    return f"{significant(value)} {unit}"


def use_binary_bytes(*, binary: bool) -> None:
    """Show bytes in KiB, MiB and GiB from now on, or in kB, MB and GB."""
    _UNITS_OF_BYTES[:] = BINARY if binary else DECIMAL


def num_bytes(value: float | None) -> str:
    """'512 B', '12.3 kB', '1.20 GB': decimal units, unless binary ones are preferred."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    *smaller, (largest, name) = _UNITS_OF_BYTES
    for divisor, unit in smaller:
        if abs(value) < 999.5 * divisor:
            return f"{value:.0f} B" if divisor == 1 else f"{significant(value / divisor)} {unit}"
    return f"{significant(value / largest)} {name}"


def factor(value: float | None) -> str:
    """'1.69 times' with the sign."""
    return UNKNOWN if value is None or not math.isfinite(value) else f"{value:.2f}{TIMES}"


def left_out(excluded: Mapping[str, int]) -> str:
    """'20 of warm-up, 1 not seen whole': steps of a window that no figure is from."""
    return ", ".join(f"{num:,} {_LEFT_OUT.get(why, why)}" for why, num in excluded.items() if num)


def speedup(verdict: Verdict) -> str:
    """'expected speed-up: 1.69 times (1.66 to 1.72, 90 %)'; 'at best' where the loss can only be made less."""
    if verdict.speedup is None:
        return ""
    low, high = factor(verdict.speedup.low), factor(verdict.speedup.high)
    name = "speed-up at best" if verdict.at_best else "expected speed-up"
    return f"{name}: {factor(verdict.speedup.expected)} ({low} to {high}, 90 %)"


def count(value: int | None, noun: str = "", plural: str = "") -> str:
    """'1,024', or with a noun '1 step', '3 steps'; plural: where it is not the noun with an s."""
    if value is None:
        return UNKNOWN
    if not noun:
        return f"{value:,}"
    return f"{value:,} {noun}" if value == 1 else f"{value:,} {plural or noun + 's'}"


def steps(first: int | None, last: int | None) -> str:
    """'steps 20 to 180' with a dash, 'step 20', or 'no steps yet'."""
    if first is None or last is None:
        return "no steps yet"
    return f"step {first:,}" if first == last else f"steps {first:,}{TO}{last:,}"


def readable_top(values: Sequence[float | None]) -> float:
    """Where a chart of step times ends: 2.5 medians at most, or one slow step would leave the others flat."""
    known = [value for value in values if value is not None]
    return min(max(known), TALLEST * median(known)) if known else 0.0


def since(step: int | None, *, seen: bool) -> str:
    """'since step 412'; 'since step 412 or earlier' where that is only the first step compared; '' without one."""
    if step is None:
        return ""
    return f"since step {step:,}" if seen else f"since step {step:,} or earlier"


def ranks(numbers: tuple[int, ...], limit: int = 6) -> str:
    """'rank 2', 'ranks 0, 3, 5', 'ranks 0 to 15' with a dash, 'ranks 0, 2, 4 and 61 more'."""
    if not numbers:
        return "no rank"
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    if len(numbers) > 2 and numbers == tuple(range(numbers[0], numbers[-1] + 1)):
        return f"ranks {numbers[0]}{TO}{numbers[-1]}"
    shown = ", ".join(str(rank) for rank in numbers[:limit])
    left = len(numbers) - limit
    return f"ranks {shown} and {left:,} more" if left > 0 else f"ranks {shown}"
