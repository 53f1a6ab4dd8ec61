"""The run as plain text: for `--once`, for a demo without a terminal, for `diagnose` without --json.

In: RunView.  Out: str, as wide as the terminal it goes to, the same content as the screens; imports no Textual.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuiadvisor.text import format as text_of
from tuiadvisor.text.efficiency import efficiency_facts, is_worth_showing, stack_facts
from tuiadvisor.text.line import BLANK, Line, crop, fit, indent, line, rule, wrap
from tuiadvisor.text.printed_page import page_text, page_width
from tuiadvisor.text.wording import device_words, left_out_ranks, past_facts, reasons
from tuiadvisor.tui.pages import rank_row, sections
from tuiadvisor.tui.pages.details import action, bullet
from tuiadvisor.tui.pages.goodput import goodput_lines
from tuiadvisor.tui.pages.pipeline import pipeline_lines
from tuiadvisor.tui.pages.stack_card import card_lines
from tuiadvisor.tui.pages.stalled import stalled_collectives
from tuiadvisor.views.deaths import GONE
from tuiadvisor.views.shown_ranks import shown_ranks

if TYPE_CHECKING:
    from tuiadvisor.views.run_view import Finding, RankRow, RunView

MAX_RANKS = 32
MAX_SENTENCE_ROWS = 12  # of a verdict: nothing below it is out of sight here
MAX_CARDS = 3


def plain_summary(view: RunView, *, plain_ascii: bool | None = None, width: int | None = None) -> str:
    """Return the whole report, each line ended by a newline.

    plain_ascii: write ASCII only; None asks stdout and the locale. width: cells; None takes those of stdout.
    """
    width = page_width() if width is None else width
    rows = [
        *_job(view, width),
        BLANK,
        *_verdict(view, width),
        BLANK,
        *([*stalled, BLANK] if (stalled := stalled_collectives(view, width)) else []),
        *_step_head(view, width),
        *sections.step_figures(view, width),
        *_phases(view, width),
        *sections.communication(view, width, 9),
        *_exchange(view, width),
        *sections.device(view, width, 4),
        *(line(text) for text in (wrap(sections.probe_work(view.probe), width) if view.probe else ())),
        *([BLANK, *goodput_lines(view.wall, width)] if view.wall is not None else []),
        BLANK,
        *_efficiency(view, width),
        rule("ranks", width, f"{len(view.ranks):,} known"),
        *sections.culprits(view, width, 8),
        *_ranks(view, width),
        BLANK,
        rule("findings", width, f"{len(view.findings):,}"),
        *_findings(view, width),
        *_past(view, width),
        *(row for card in view.cards[:MAX_CARDS] for row in (BLANK, *card_lines(card, width)[:-1])),
        *(
            [BLANK, *pipeline_lines(view.pipeline, width, sections.clock(view))]
            if view.pipeline is not None
            else []
        ),
        *_unseen(view, width),
    ]
    return page_text([crop(row, width) for row in rows], plain_ascii=plain_ascii)


def _exchange(view: RunView, width: int) -> list[Line]:
    words = view.exchange.words if view.exchange is not None else ()
    return [line((text, "dim")) for sentence in words for text in wrap(sentence, width)]


def _efficiency(view: RunView, width: int) -> list[Line]:
    """Return MFU and the settings it rests on, where anything is known of them."""
    if not is_worth_showing(view):
        return []
    rows = [rule("efficiency", width)]
    for name, text in (*efficiency_facts(view), *stack_facts(view.stack)):
        rows += bullet(f"{name}:", text, width)
    return [*rows, BLANK]


def _step_head(view: RunView, width: int) -> list[Line]:
    """Return the head of the step's figures with their window, under it where both do not fit."""
    title, window = sections.step_title("step", view), sections.window(view)
    head = rule(title, width, window)
    if window in head.text:
        return [head]
    return [rule(title, width), *(line((row, "dim")) for row in wrap(window, width))]


def _job(view: RunView, width: int) -> list[Line]:
    run = view.run
    parts = [
        run.label or "unnamed job",
        text_of.count(run.world_size, "rank") if run.world_size is not None else "unknown world size",
        text_of.count(len(run.hosts), "host") if run.hosts else "unknown hosts",
        f"torch {run.torch or text_of.UNKNOWN}",
        run.backend or ("no process group" if run.world_size == 1 else "unknown backend"),
        device_words(view) or "unknown device",
    ]
    if view.last_step is not None:
        parts.append(f"step {view.last_step:,}")
    rows = [line(text) for text in wrap(" · ".join(parts), width)]
    if view.ended:
        rows.append(line(f"■ {view.ended}"))
    return rows


def _verdict(view: RunView, width: int) -> list[Line]:
    verdict = view.decided
    rows = sections.verdict(view, width, MAX_SENTENCE_ROWS)
    rows = [Line(((row.text.strip() if index == 0 else row.text, "text"),)) for index, row in enumerate(rows)]
    if verdict.speedup is not None:
        rows.append(line(text_of.speedup(verdict)))
    for name, text in (("because", reasons(verdict)), ("verify", verdict.verify)):
        if text:
            rows += bullet(f"{name}:", text, width)
    return rows


def _phases(view: RunView, width: int) -> list[Line]:
    step = view.step
    rows, unknown = [], []
    for phase, value in step.shares.items():
        if value == 0:
            continue  # observed, and no time went there
        if value is None and step.seconds.get(phase) is None:
            unknown.append(text_of.phase_name(phase))  # why is said below
            continue
        spent, part = text_of.seconds(step.seconds.get(phase)), text_of.share(value)
        room = width - 42
        bar = "█" * min(max(round(value * room), 1), room) if value is not None else ""
        name = fit(text_of.phase_name(phase), 16)
        rows.append(line("  ", name, fit(spent, 10, "right"), fit(part, 10, "right"), "  ", bar))
    label = f"  {fit(text_of.UNKNOWN, 16)}   "
    for number, text in enumerate(wrap(", ".join(unknown), width - len(label)) if unknown else ()):
        rows.append(line(label if number == 0 else " " * len(label), text))
    return rows


def _ranks(view: RunView, width: int) -> list[Line]:
    if not view.ranks:
        return [line("no rank known")]
    shown, left = shown_ranks(view.ranks, MAX_RANKS)
    host = rank_row.host_width(view.ranks, 14)
    head = [fit(name, 9, "right") for name in ("step", "waits", "causes", "last")]
    rows = [
        line(f"  {'rank':>5} {fit('host', host)} {fit('state', rank_row.STATE_WIDTH)}", *head, "  main phase")
    ]
    rows += [row for rank in shown for row in _rank(rank, host, width)]
    return [*rows, line(f"  {left_out_ranks(left)}")] if left else rows


def _rank(rank: RankRow, host: int, width: int) -> list[Line]:
    mark = "▶" if rank.is_culprit else " "
    state, _ = rank_row.state_text(rank)
    lead = (
        f"{mark} {rank.rank:>5} {fit(rank.host or text_of.UNKNOWN, host)} {fit(state, rank_row.STATE_WIDTH)}"
    )
    finished = rank.state == "exited" and rank.step_s is not None
    if not finished and (rank.state in GONE or rank.step_s is None):
        why = wrap(rank.why_no_figures or "no step seen", width - len(lead) - 2)
        return [line(" " * len(lead) if index else lead, "  ", text) for index, text in enumerate(why)]
    figures = [fit(rank_row.figure_text(rank, name), 9, "right") for name in rank_row.FIGURES]
    known = [(value, phase) for phase, value in rank.shares.items() if value]
    share, phase = max(known, default=(None, ""))
    main = f"{text_of.phase_name(phase)} {text_of.share(share)}" if phase else ""
    return [line(lead, *figures, "  ", main)]


def _findings(view: RunView, width: int) -> list[Line]:
    if not view.findings:
        return [line(sections.not_enough(view) or "nothing found that is worth acting on")]
    rows: list[Line] = []
    for found in view.findings:
        rows += [*_finding(found, width), BLANK]
    return rows[:-1]


def _past(view: RunView, width: int) -> list[Line]:
    """Return what stood for a while and is over, with its sentence of then."""
    rows = [BLANK, rule("over by now", width, f"{len(view.past):,}")] if view.past else []
    for past in view.past:
        rows.append(line(f"✓ {past.finding.title}"))
        rows += [indent(line(text), 2) for text in wrap(past_facts(past), width - 2)]
        rows += [indent(line(text), 2) for text in wrap(f"then: {past.finding.message}", width - 2)]
    return rows


def _finding(found: Finding, width: int) -> list[Line]:
    facts = [found.id, found.pattern, text_of.ranks(found.ranks) if found.ranks else "the whole job"]
    if found.loss_s_per_step is not None:
        facts.append(f"{text_of.seconds(found.loss_s_per_step)} a step")
    rows = [line(f"{sections.SEVERITIES[found.severity]}  {found.title}")]
    rows += [indent(line(text), 2) for text in wrap(" · ".join(facts), width - 2)]
    rows += [indent(line(text), 2) for text in wrap(found.message, width - 2)]
    for number, act in enumerate(found.actions, 1):
        rows += [indent(each, 2) for each in action(number, act, width - 2)]
    rows += [indent(each, 2) for text in found.measure_next for each in bullet("measure:", text, width - 2)]
    return rows


def _unseen(view: RunView, width: int) -> list[Line]:
    lost, unknown = sections.losses(view, width, 9), sections.unknowns(view, width, 9)
    return [BLANK, rule("not seen", width), *lost, *unknown] if lost or unknown else []
