"""Two runs side by side as plain text, for `compare` without --json.

In: Comparison.  Out: str, at most 80 columns; imports no Textual.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from tuiadvisor.tui import format as text_of
from tuiadvisor.tui.details import bullet
from tuiadvisor.tui.environment import ascii_only
from tuiadvisor.tui.line import BLANK, Line, crop, fit, line, rule, to_ascii, wrap

if TYPE_CHECKING:
    from tuiadvisor.advisor.comparison import Comparison, FindingChange, PhaseChange

WIDTH = 80


def plain_comparison(comparison: Comparison, *, plain_ascii: bool | None = None) -> str:
    """The whole comparison, each line ended by a newline; plain_ascii None asks stdout and the locale."""
    if plain_ascii is None:
        plain_ascii = ascii_only(os.environ, getattr(sys.stdout, "encoding", None))
    rows = [line(text) for text in wrap(comparison.sentence, WIDTH)]
    rows += [row for text in comparison.cautions for row in bullet("note:", text, WIDTH)]
    rows += _gate(comparison)
    rows += [BLANK, rule("a step", WIDTH), *_sides(comparison)]
    if comparison.phases:
        rows += [BLANK, rule("phases", WIDTH, "mean over ranks; * beyond noise"), *_phases(comparison)]
    rows += [BLANK, rule("bottleneck", WIDTH)]
    rows += [line(text) for text in wrap(comparison.bottleneck.sentence, WIDTH)]
    rows += [row for finding in comparison.findings for row in _finding(finding)]
    if comparison.environment:
        rows += [BLANK, rule("not the same in both", WIDTH)]
        for entry in comparison.environment:
            rows += bullet(f"{entry.what}:", f"{entry.before} -> {entry.after}", WIDTH)
    text = "\n".join(crop(row, WIDTH).text.rstrip() for row in rows) + "\n"
    return to_ascii(text) if plain_ascii else text


def _gate(comparison: Comparison) -> list[Line]:
    gate = comparison.gate
    if gate is None:
        return []
    words = {None: "cannot be told", True: "exceeded", False: "kept"}[gate.exceeded]
    return [line(f"limit of {text_of.share(gate.limit)} slower: {words}")]


def _sides(comparison: Comparison) -> list[Line]:
    before, after = comparison.before, comparison.after
    rows = [
        ("", "before", "after"),
        ("steady step", text_of.seconds(before.step_s), text_of.seconds(after.step_s)),
        ("95th percentile", text_of.seconds(before.p95_s), text_of.seconds(after.p95_s)),
        ("pauses included", text_of.seconds(before.every_step_s), text_of.seconds(after.every_step_s)),
        ("steady steps", text_of.count(before.num_steady_steps), text_of.count(after.num_steady_steps)),
        (
            "throughput",
            text_of.rate(before.rates.samples_s, "samples/s"),
            text_of.rate(after.rates.samples_s, "samples/s"),
        ),
        ("ranks", text_of.count(before.unit.world_size), text_of.count(after.unit.world_size)),
        ("samples a step", _number(before.unit.samples_per_step), _number(after.unit.samples_per_step)),
        (
            "gradient",
            text_of.num_bytes(before.unit.gradient_bytes),
            text_of.num_bytes(after.unit.gradient_bytes),
        ),
        (
            "collectives",
            text_of.count(before.unit.num_collectives),
            text_of.count(after.unit.num_collectives),
        ),
    ]
    return [
        line("  ", fit(name, 18), fit(old, 22, "right"), fit(new, 22, "right")) for name, old, new in rows
    ]


def _number(value: float | None) -> str:
    return text_of.UNKNOWN if value is None else f"{value:,.6g}"


def _phases(comparison: Comparison) -> list[Line]:
    rows = [line("  ", fit("", 18), *(fit(name, 14, "right") for name in ("before", "after", "change")))]
    return rows + [_phase(entry) for entry in comparison.phases if entry.before_s or entry.after_s]


def _phase(entry: PhaseChange) -> Line:
    change = text_of.seconds(entry.change_s)
    if entry.change_s is not None and entry.change_s > 0:
        change = f"+{change}"
    figures = (text_of.seconds(entry.before_s), text_of.seconds(entry.after_s), change)
    return line(
        "  ",
        fit(text_of.phase_name(entry.phase), 18),
        *(fit(text, 14, "right") for text in figures),
        " *" if entry.significant else "",
    )


def _finding(entry: FindingChange) -> list[Line]:
    costs = f"{_cost(entry.loss_before_s)} -> {_cost(entry.loss_after_s)} a step"
    return bullet(f"{entry.state}:", f"{entry.title} ({costs})", WIDTH)


def _cost(loss_s: float | None) -> str:
    return "-" if loss_s is None else text_of.seconds(loss_s)
