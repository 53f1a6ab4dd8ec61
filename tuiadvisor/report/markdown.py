"""The report as Markdown: for a pull request, a ticket or a logbook.

In: Dossiers, a Comparison where there are two.  Out: str; what came from outside is inert.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.report.facts import (
    DECISIONS,
    change_rows,
    environment_facts,
    losses_text,
    overlap_facts,
    rank_rows,
    sentence,
    shown_ranks,
    step_facts,
    what_if_facts,
)
from tuiadvisor.tui import format as text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tuiadvisor.advisor.comparison import Comparison
    from tuiadvisor.advisor.view import Finding, RunView
    from tuiadvisor.report.page import Dossier

SPARK: Final = "▁▂▃▄▅▆▇█"


def markdown_report(runs: Sequence[Dossier], comparison: Comparison | None, made_by: str) -> str:
    """The whole report."""
    lines: list[str] = []
    if comparison is not None:
        lines += ["# Before and after", "", f"**{_plain(comparison.sentence)}**", ""]
        lines += [_plain(comparison.bottleneck.sentence), ""]
        lines += [*(f"- {_plain(text)}" for text in comparison.cautions), ""]
        lines += _table(("", "before", "after", "change"), change_rows(comparison))
    for run in runs:
        lines += _run(run)
    return "\n".join(
        [*lines, f"*{_plain(made_by)}. A figure that was not observed is unknown, never 0.*", ""]
    )


def _run(run: Dossier) -> list[str]:
    view, verdict = run.view, run.view.verdict
    decision = DECISIONS.get(verdict.decision or "", "not yet")
    lines = [
        f"# {_plain(view.run.label or 'unnamed job')}",
        "",
        f"{_plain(run.name)}, {text_of.steps(0, view.last_step)}",
        "",
    ]
    lines += [f"**{decision.upper()}**: {_plain(sentence(view))}", ""]
    for name, text in (
        ("Because", verdict.because),
        ("Verify", verdict.verify),
        ("Not seen", losses_text(view.losses)),
    ):
        lines += [f"- {name}: {_plain(text)}"] if text else []
    lines += ["", *_pairs(step_facts(view)), f"Step time: `{_spark(view)}`", ""]
    lines += ["## Where a step goes", ""]
    lines += _table(
        ("phase", "a step", "share"),
        (
            (text_of.phase_name(phase), text_of.seconds(view.step.seconds.get(phase)), text_of.share(value))
            for phase, value in view.step.shares.items()
        ),
    )
    shown, left = shown_ranks(view.ranks)
    lines += ["## Ranks", ""]
    lines += _table(
        ("rank", "host", "state", "step", "waits", "causes", "last", "main phase"), rank_rows(shown)
    )
    lines += [f"and {text_of.count(left, 'more rank')}, live and on time", ""] if left else []
    lines += ["## Findings", ""]
    for found in view.findings:
        lines += _finding(found)
    lines += (
        ["Nothing found that is worth acting on.", ""] if not view.findings and view.window.enough else []
    )
    lines += ["## Communication", "", *_pairs(overlap_facts(view))]
    rows = what_if_facts(view)
    lines += ["## What if", "", *_pairs(rows)] if rows else []
    lines += _session(run)
    lines += ["## Environment", "", *_pairs(environment_facts(view))]
    return (
        lines
        + [
            f"- not observed: {_plain(text_of.phase_name(item.metric))}: {_plain(item.why)}"
            for item in view.unknown
        ]
        + [""]
    )


def _finding(found: Finding) -> list[str]:
    lines = [f"### {found.severity}: {_plain(found.title)}", "", _plain(found.message), ""]
    lines += [
        f"- {_plain(text_of.evidence_name(name))}: {_plain(text_of.evidence(name, value))}"
        for name, value in found.evidence.items()
    ]
    lines += [
        "",
        *(_action(number, act.text, act.command) for number, act in enumerate(found.actions, 1)),
        "",
    ]
    return lines


def _action(number: int, text: str, command: str | None) -> str:
    return f"{number}. {_plain(text)}" + (f" {_code(command)}" if command else "")


def _session(run: Dossier) -> list[str]:
    session = run.session
    if session is None:
        return []
    lines = [
        "## Guided session",
        "",
        f"**{session.decision.upper()}**: {_plain(session.why)}",
        "",
        *_pairs(session.card),
    ]
    return [*lines, *(f"- {stage.pattern}: {_plain(stage.conclusion)}" for stage in session.stages), ""]


def _spark(view: RunView) -> str:
    values = view.trend.step_s[-60:]
    highest = max((value for value in values if value is not None), default=0.0)
    if not highest:
        return text_of.UNKNOWN
    return "".join("?" if value is None else SPARK[min(int(value / highest * 8), 7)] for value in values)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return [*lines, *("| " + " | ".join(_plain(cell) for cell in row) + " |" for row in rows), ""]


def _pairs(rows: Iterable[tuple[str, str]]) -> list[str]:
    return [*(f"- {_plain(name)}: {_plain(text)}" for name, text in rows), ""]


def _plain(text: object) -> str:
    shown = "".join(letter if letter.isprintable() else " " for letter in str(text))
    for mark in "\\`*<>[]|#":
        shown = shown.replace(mark, "\\" + mark)
    return shown


def _code(text: str) -> str:
    return "`" + "".join(letter if letter.isprintable() else " " for letter in text).replace("`", "'") + "`"
