"""The report as one HTML file: no network, no scripts, charts inside; light, dark and on paper.

In: Dossiers, a Comparison where there are two.  Out: str. Everything that came from outside is escaped, and the file
forbids itself to load or run anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuiadvisor.report import charts, sections
from tuiadvisor.report.facts import (
    MAX_RANKS,
    WHAT_IF_NOTE,
    change_rows,
    decision_word,
    environment_facts,
    losses_rows,
    nothing_found,
    rank_rows,
    sentence,
    step_facts,
    what_if_facts,
    window_note,
)
from tuiadvisor.report.html import facts, figure, table
from tuiadvisor.report.inert import inert as _e
from tuiadvisor.text import evidence
from tuiadvisor.text import format as text_of
from tuiadvisor.text.wording import left_out_ranks, past_facts, reasons, steps_seen
from tuiadvisor.views.shown_ranks import shown_ranks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.scaling.picture import Picture
    from tuiadvisor.session.guided import Guided
    from tuiadvisor.views.comparison import Comparison
    from tuiadvisor.views.efficiency import Roofline
    from tuiadvisor.views.run_view import Finding, RunView

STYLE: Final = """
:root { color-scheme: light dark; --ground: #f7f8fa; --text: #23282f; --dim: #5b6674; --line: #c6ccd6; --card: #fff;
  --accent: #0b5cad; --good: #0a7a53; --warn: #8a5a00; --bad: #b3261e; --edge: #2f6fb0; --area: #b7cfe8; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171c; --text: #d5dae3; --dim: #8b97a8; --line: #343c49;
  --card: #1b2028; --accent: #8fc7ff; --good: #5fd3a5; --warn: #f0c05a; --bad: #ff7a66; --edge: #6ea8e0;
  --area: #24405f; } }
@media print { :root { --ground: #fff; --text: #000; --card: #fff; } .finding, svg { break-inside: avoid; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1040px; padding: 24px 20px 60px; background: var(--ground); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 24px; margin: 0 0 4px; }
h2 { font-size: 18px; margin: 34px 0 8px; border-bottom: 1px solid var(--line); }
h3 { font-size: 15px; margin: 14px 0 4px; }
p { margin: 4px 0 8px; }
.dim, .note { color: var(--dim); }
.note { font-size: 13px; }
.unknown { color: var(--dim); font-style: italic; }
svg { width: 100%; height: auto; display: block; }
svg text { font: 11px system-ui, sans-serif; fill: var(--dim); }
svg text.in { font-size: 12px; fill: #111; }
svg text.light { fill: #fff; }
svg .grid { stroke: var(--line); stroke-width: .6; }
svg .area { fill: var(--area); }
svg .edge { stroke: var(--edge); stroke-width: 1.6; fill: none; }
svg rect.idle, .box.idle { fill: var(--line); background: var(--line); }
svg text.name { font-size: 13px; font-weight: 600; fill: var(--text); }
svg rect.yours { fill: var(--text); }
svg circle.seen { fill: var(--edge); stroke: var(--edge); }
svg circle.asked { fill: var(--ground); stroke: var(--edge); stroke-width: 1.6; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(400px, 1fr)); gap: 10px; }
svg line.mark { stroke: var(--warn); stroke-dasharray: 4 3; }
svg text.mark { fill: var(--warn); font-weight: 600; }
.verdict, .finding, .figures div { background: var(--card); border: 1px solid var(--line); border-radius: 6px; }
.verdict { border-left-width: 6px; padding: 12px 16px; margin: 14px 0; }
.verdict.tune { border-left-color: var(--warn); }
.verdict.rescale { border-left-color: var(--accent); }
.verdict.stop, .verdict.hang { border-left-color: var(--bad); }
.verdict.keep { border-left-color: var(--good); }
.verdict strong { font-size: 17px; }
.badge { font-weight: 700; letter-spacing: .04em; margin-right: 8px; }
.finding { padding: 10px 16px; margin: 10px 0; }
.critical .badge { color: var(--bad); }
.warning .badge { color: var(--warn); }
.info .badge { color: var(--accent); }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 8px; }
.figures div { padding: 6px 12px; }
.figures b { display: block; font-size: 17px; }
.figures span { color: var(--dim); font-size: 13px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
td, th { text-align: left; padding: 3px 10px 3px 0; vertical-align: top; border-bottom: 1px solid var(--line); }
th { color: var(--dim); font-weight: 600; }
table.facts th { width: 36%; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
tr.culprit td { font-weight: 700; }
code { font: 13px ui-monospace, monospace; border: 1px solid var(--line); border-radius: 4px; padding: 0 4px; }
.box { display: inline-block; width: 14px; height: 12px; }
.bars { display: grid; grid-template-columns: 70px 1fr; gap: 2px 8px; align-items: center; }
.bars svg { height: 16px; }
.scroll { overflow-x: auto; }
"""


@dataclass(frozen=True, slots=True)
class Dossier:
    """One run of a report."""

    name: str  # of the recording
    view: RunView
    session: Guided | None = None
    roofline: Roofline | None = None  # of traces of it


def html_report(
    runs: Sequence[Dossier], comparison: Comparison | None, made_by: str, sizes: Picture | None = None
) -> str:
    """The whole file. made_by: tool and time, for the foot; sizes: the job among other sizes, if that was asked."""
    title = ", ".join(run.view.run.label or run.name for run in runs)
    body = [_run(run, is_only=len(runs) == 1) for run in runs]
    if comparison is not None:
        body.insert(0, _comparison(comparison))
    if len(runs) > 1:
        body.insert(0, _runs(runs))
    return document(f"{title}: training report", "".join(body) + sections.scaling(sizes), made_by)


def document(title: str, body: str, made_by: str) -> str:
    """A whole file that loads and runs nothing."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        'img-src data:">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{_e(title)}</title><style>{STYLE}</style></head><body>{body}"
        f'<p class="note">{_e(made_by)}. A figure that was not observed is unknown, never 0.</p></body></html>\n'
    )


def _run(run: Dossier, *, is_only: bool) -> str:
    view = run.view
    level = 1 if is_only else 2
    info = view.run
    world = text_of.count(info.world_size, "rank") if info.world_size is not None else "unknown world size"
    where = f"{text_of.count(len(info.hosts), 'host')}" if info.hosts else "unknown hosts"
    head = " · ".join((run.name, world, where, steps_seen(view), view.ended or "still running when written"))
    parts = [
        f'<h{level}>{_e(info.label or "unnamed job")}</h{level}><p class="dim">{_e(head)}</p>',
        _verdict(view),
        _losses(view),
        '<div class="figures">'
        + "".join(
            f"<div><b>{figure(text)}</b><span>{_e(name)}</span></div>" for name, text in step_facts(view)
        )
        + "</div>",
        f"<section><h2>Step time</h2>{charts.trend_chart(view.trend)}</section>",
        _accounting(view),
        sections.goodput(view),
        sections.pipeline(view),
        _ranks(view),
        "<h2>Findings</h2>",
        *(finding(found) for found in view.findings),
        "" if view.findings else f"<p>{_e(nothing_found(view))}</p>",
        _past(view),
        sections.lines_of_code(view),
        sections.communication(view),
        sections.traced(view),
        sections.efficiency(view, run.roofline),
        _what_if(view),
        _session(run.session),
        _environment(view),
    ]
    return "".join(parts)


def _past(view: RunView) -> str:
    rows = "".join(
        f'<li><strong>{_e(past.finding.title)}</strong> <span class="dim">{_e(past_facts(past))}</span><br>'
        f"{_e(past.finding.message)}</li>"
        for past in view.past
    )
    return f"<h3>Over by now</h3><ul>{rows}</ul>" if rows else ""


def _verdict(view: RunView) -> str:
    verdict = view.decided
    decision = verdict.decision or ""
    following = text_of.following_label(decision, verdict.next_constraint or "").capitalize()
    rest = "".join(
        f'<p><span class="dim">{name}</span> {_e(text)}</p>'
        for name, text in (
            ("Because:", reasons(verdict)),
            (f"{following}:", text_of.phase_name(verdict.next_constraint or "")),
            ("Verify:", verdict.verify),
        )
        if text
    )
    if verdict.speedup is not None:
        said = text_of.speedup(verdict)
        rest = f"<p>{_e(said[0].upper() + said[1:])}.</p>{rest}"
    badge = decision_word(view).upper()
    return (
        f'<div class="verdict {_e(decision)}"><strong><span class="badge">{_e(badge)}</span>'
        f"{_e(sentence(view))}</strong>{rest}</div>"
    )


def _losses(view: RunView) -> str:
    return "".join(f'<p class="note">▲ {name}: {_e(text)}</p>' for name, text in losses_rows(view.losses))


def _accounting(view: RunView) -> str:
    step = view.step
    rows = [
        (text_of.phase_name(phase), text_of.seconds(step.seconds.get(phase)), text_of.share(value))
        for phase, value in step.shares.items()
    ]
    return (
        f"<section><h2>Where a step goes</h2>{charts.phase_bar(step.shares, step.seconds)}"
        f'<p class="note">{_e(window_note(view))}</p>{table(("phase", "a step", "share"), rows)}</section>'
    )


def _ranks(view: RunView) -> str:
    if not view.ranks:
        return ""
    shown, left = shown_ranks(view.ranks, MAX_RANKS)
    marked = frozenset(index for index, rank in enumerate(shown) if rank.is_culprit)
    heads = ("rank", "host", "state", "step", "waits", "causes", "arrives last", "main phase")
    more = f'<p class="note">{left_out_ranks(left)}</p>' if left else ""
    bars = "".join(
        f'<span class="note">rank {rank.rank}</span>'
        + charts.phase_bar(rank.shares, rank.seconds, height=16, named=False)
        for rank in shown[:32]
        if any(rank.shares.values())
    )
    return (
        f"<section><h2>Ranks</h2>{table(heads, rank_rows(shown), 3, marked)}{more}"
        f"<h3>Lateness at the gradient barrier</h3>"
        + charts.heat_map(view.ranks, view.heat_first_step)
        + charts.heat_legend()
        + (f'<h3>Phases of each rank</h3><div class="bars">{bars}</div>' if bars else "")
        + "</section>"
    )


def finding(found: Finding, whole: str = "the whole job") -> str:
    """A finding with its evidence and actions. whole: what it is of where it names no ranks."""
    where = text_of.ranks(found.ranks) if found.ranks else whole
    said = [where, *found.hosts[:4], text_of.phase_name(found.phase) if found.phase else ""]
    said.append(text_of.since(found.since_step, seen=found.onset_seen))
    cost = found.loss_s_per_step
    said.append(f"costs {text_of.seconds(cost)} a step" if cost is not None else "")
    figures = facts(
        (evidence.name_of(name), evidence.value_of(name, value)) for name, value in found.evidence.items()
    )
    actions = "".join(
        f'<li>{_e(act.text)} <span class="note">risk {_e(act.risk)}, effort {_e(act.effort)}</span>'
        + (f"<br><code>{_e(act.command)}</code>" if act.command else "")
        + "</li>"
        for act in found.actions
    )
    measure = "".join(f"<li>{_e(text)}</li>" for text in found.measure_next)
    kind = f"{found.id}, pattern {found.pattern}, lens {found.lens}, layer {found.layer}"
    note = " · ".join(fact for fact in (*said, kind) if fact)
    return (
        f'<div class="finding {_e(found.severity)}"><h3><span class="badge">{_e(found.severity)}</span>'
        f'{_e(found.title)}</h3><p>{_e(found.message)}</p><p class="note">{_e(note)}</p>'
        + (f"<h3>Evidence</h3>{figures}" if found.evidence else "")
        + (f"<h3>What to do</h3><ol>{actions}</ol>" if actions else "")
        + (f"<h3>Measure next</h3><ul>{measure}</ul>" if measure else "")
        + "</div>"
    )


def _what_if(view: RunView) -> str:
    rows = what_if_facts(view)
    note = f'<p class="note">{_e(WHAT_IF_NOTE)}</p>'
    return f"<section><h2>What if</h2>{facts(rows)}{note}</section>" if rows else ""


def _session(session: Guided | None) -> str:
    if session is None:
        return ""
    stated = [
        (
            f"{stage.pattern} {asked.ask}",
            f"{asked.answer:g} {asked.unit}" if isinstance(asked.answer, float) else str(asked.answer),
        )
        for stage in session.stages
        for asked in stage.asked
        if asked.answer is not None
    ]
    conclusions = "".join(
        f"<li><b>{_e(stage.pattern)}</b> {_e(stage.conclusion)}</li>" for stage in session.stages
    )
    change = "".join(f"<li>{_e(text)}</li>" for text in session.would_change)
    return (
        f'<section><h2>Guided session</h2><div class="verdict {_e(session.decision)}"><strong><span class="badge">'
        f"{_e(session.decision.upper())}</span>{_e(session.why)}</strong></div>{facts(session.card)}"
        f"<ul>{conclusions}</ul>"
        + (f"<h3>Stated, not measured</h3>{facts(stated)}" if stated else "")
        + (f"<h3>Would change the decision</h3><ul>{change}</ul>" if change else "")
        + "</section>"
    )


def _environment(view: RunView) -> str:
    unknown = facts((text_of.phase_name(item.metric), f"unknown: {item.why}") for item in view.unknown)
    hosts = table(
        ("host", "cpu", "memory", "disk", "network", "devices"),
        (
            (
                host.host,
                text_of.share(host.cpu),
                text_of.share(host.memory),
                _rate(host.disk_read_bytes_s),
                _rate(host.net_bytes_s),
                "; ".join(host.gpus) or host.no_gpus or "none seen",
            )
            for host in view.hosts[:64]
        ),
    )
    return (
        f"<section><h2>Environment</h2>{facts(environment_facts(view))}"
        + (f"<h3>Hosts, last sample</h3>{hosts}" if view.hosts else "")
        + sections.placement(view)
        + (f"<h3>Not observed</h3>{unknown}" if view.unknown else "")
        + "</section>"
    )


def _rate(value: float | None) -> str:
    return text_of.UNKNOWN if value is None else f"{text_of.num_bytes(value)}/s"


def _runs(runs: Sequence[Dossier]) -> str:
    rows = [
        (
            run.name,
            text_of.count(run.view.run.world_size),
            text_of.seconds(run.view.step.mean_s),
            text_of.rate(run.view.step.throughput_steps_s, "steps/s"),
            decision_word(run.view),
        )
        for run in runs
    ]
    return f"<h1>{len(runs)} runs</h1>" + table(("recording", "ranks", "step", "throughput", "verdict"), rows)


def _comparison(comparison: Comparison) -> str:
    notes = "".join(f'<p class="note">{_e(text)}</p>' for text in comparison.cautions)
    return (
        f'<section><h2>Before and after</h2><div class="verdict"><strong>{_e(comparison.sentence)}</strong>'
        f"<p>{_e(comparison.bottleneck.sentence)}</p>{notes}</div>"
        f"{table(('', 'before', 'after', 'change'), change_rows(comparison))}</section>"
    )
