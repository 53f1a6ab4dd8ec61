"""Overview: verdict, step time, where a step goes, one row or cell a rank, culprit, findings, losses.

The parts come from `sections`; this module only gives each its place. 80x24 holds all of them for a few
ranks; from 120 columns on findings and sources stand beside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tuiadvisor.text import format as text_of
from tuiadvisor.text.line import BLANK, Line, Span, beside, crop, fit, indent, line, rule, wrap, wrap_within
from tuiadvisor.text.printed_page import COPIED_WIDTH
from tuiadvisor.tui.contract.page import Page, opening
from tuiadvisor.tui.draw import bars
from tuiadvisor.tui.pages import rank_row, sections
from tuiadvisor.tui.pages.details import action
from tuiadvisor.tui.pages.once import plain_summary
from tuiadvisor.tui.pages.waiting import waiting
from tuiadvisor.views.deaths import GONE
from tuiadvisor.views.finding_keys import keyed
from tuiadvisor.views.shown_ranks import standing_out
from tuiadvisor.views.unheard import UNHEARD

if TYPE_CHECKING:
    from tuiadvisor.text.line import Target
    from tuiadvisor.tui.contract.feed import FeedState
    from tuiadvisor.views.run_view import Finding, RankRow, RunView

WIDE = 120  # columns from which findings stand beside
MARGIN = 1
ROOMY = 27  # rows of the page from which the newest steps have a chart beside that of the whole run
# Rows of a finding that is more than a remark, of a remark (0: its title alone), of such a title; roomiest first.
ROOM_OF_FINDINGS = ((9, 9, 1), (9, 6, 1), (9, 5, 1), (9, 4, 1), (9, 0, 3), (9, 0, 2), (9, 0, 1), (4, 0, 1))
MOST_UNKNOWN = 5  # rows of what nobody observed: boilerplate
FIRST_ROWS = 2  # of what to do first, in one column


class Overview(Page):
    """The first screen."""

    name = "overview"
    title = "Overview"
    about = (
        "Top to bottom: the decision, what the wall time is lost to, the step's time over "
        "the last steps, what a step is spent on, "
        "each rank, what was found. A rank that WAITS is a victim; the culprit arrives last (▶). "
        "Goodput is the share of "
        "the time seen that none of the named losses takes. Where MFU is unknown FLOPs per step or the device's peak "
        "are: F says which."
    )
    is_screen = True
    says_verdict = True
    may_be_first = True
    commands: ClassVar = (
        opening("overview", "1", "Overview", "verdict, step time, where a step goes, ranks, findings"),
    )
    terms = (
        "mean",
        "p95",
        "slowed",
        "data_wait",
        "exposed",
        "straggler",
        "next",
        "waiting",
        "overheads",
        "goodput",
    )
    # C only where a rank is late or the job stands; those behind the report where there is room for them.
    keys: tuple[str, ...] = (
        *("ranks", "open", "stacks", "help", "pause", "palette", "report"),
        *("dialogue", "events", "goodput", "quit"),
    )

    def lines(self, state: FeedState, width: int, height: int) -> list[Line]:
        """Return the whole screen; what does not fit is shortened part by part, the verdict never."""
        if state.view is None:
            self.targets = []
            return waiting(state, width, height)
        own = Overview.keys  # of a trace its kernels are what one came for
        self.keys = own if state.view.device_work is None else (*own[:2], "kernels", *own[2:])
        room = width - 2 * MARGIN
        chosen = self.cursor[1] if self.cursor is not None and self.cursor[0] == "finding" else ""
        if width >= WIDE:
            rows = _wide(state.view, room, height, chosen)
        else:
            # On a low screen the whole run above is the chart of the step's time.
            has_chart = not self.has_ribbon or height >= ROOMY
            rows = _narrow(state.view, room, height, chosen, has_chart=has_chart)
        return self.arranged([indent(row, MARGIN) if row.spans else row for row in rows], width, height)

    def can_open(self, state: FeedState) -> bool:
        """Enter opens the first finding without a cursor."""
        return super().can_open(state) or bool(state.view and state.view.findings)

    def meant(self, state: FeedState) -> Target | None:
        """The first finding."""
        findings = state.view.findings if state.view else ()
        return ("finding", findings[0].id) if findings else super().meant(state)

    def copied(self, state: FeedState) -> str:
        """Return the summary that --once prints: the screen itself has only what fits."""
        if state.view is None:
            return super().copied(state)
        return plain_summary(state.view, width=COPIED_WIDTH)


def _verdict(view: RunView, width: int, max_rows: int) -> list[Line]:
    """Return the verdict, or nothing while the banner above says who holds the job up; one that is over has none."""
    has_banner = view.stall is not None and (not view.ended or view.stall.for_s is None)
    return [] if has_banner else sections.verdict(view, width, max_rows)


def _narrow(
    view: RunView, width: int, height: int, chosen: str, *, has_chart: bool, more: int = 0
) -> list[Line]:
    """Arrange one column. The order below is the order of the screen; each part gets what is left.

    more: rows that were left over, which a verdict that was cut takes.
    """
    roomy = height >= 30
    tight = height < 19
    lost = sections.losses(view, width, 4 if roomy else 1)
    culprits = sections.culprits(view, width, 4 if roomy else 1 if tight else 2)
    # The sentence is what one came for: it takes the rows it needs, the chart gives way.
    most = (4 if roomy else 2 if tight else 3) + more
    verdict = _verdict(view, width, most)
    is_cut = len(verdict) == most and len(_verdict(view, width, most + 1)) > most
    verdict += [] if tight else sections.lenses(view, width)
    phases = sections.phases(view, width, 4 if roomy else 1 if tight else 3)
    found = [row for key, each in keyed(view.findings).items() for row in sections.finding(key, each, width)]
    figures = sections.step_figures(view, width, 1 if tight else 2)
    # Heads of four parts, the source line, one to spare; chart, ranks and findings share the rest.
    fixed = len(verdict) + len(figures) + len(phases) + len(culprits) + len(lost) + 5
    # What to do first has a row, a second one where ranks and findings have theirs.
    spare = height - fixed - 1 - min(len(view.ranks), 4)
    if is_cut and spare > FIRST_ROWS and not more:  # what it would gain stands at the sentence's end
        return _narrow(view, width, height, chosen, has_chart=has_chart, more=1)
    first = _first_action(view, width, FIRST_ROWS if spare > FIRST_ROWS and not more else 1)
    verdict += first
    fixed += len(first)
    chart_rows, rank_rows, finding_rows = shared_rows(
        height - fixed, len(view.ranks), len(found), has_chart=has_chart
    )
    spare = height - fixed - chart_rows - rank_rows - finding_rows
    speed = sections.throughput(view, width, spare) if has_chart else []
    rows = [
        *verdict,
        rule(sections.step_title("step time", view), width, *sections.windows(view)),
        *figures,
        *(sections.trend(view, width, chart_rows) if has_chart else []),
        *speed,
        rule("where a step goes", width, *sections.phases_notes(view)),
        *phases,
        rule("ranks", width, rank_summary(view)),
        *culprits,
        *rank_block(view, width, rank_rows),
        rule("findings", width, _finding_summary(view)),
        *_finding_rows(view, found, width, finding_rows, chosen),
    ]
    # Where even the least is too much the findings go first, what was lost never.
    rows = [*rows[: height - 1 - len(lost)], *lost]
    left_over = height - 1 - len(rows)
    if is_cut and left_over > 0 and more <= 1:
        return _narrow(view, width, height, chosen, has_chart=has_chart, more=more + left_over)
    return [*rows, *[BLANK] * left_over, sections.source(view, width)]


def shared_rows(
    room: int, num_ranks: int, num_findings: int, *, has_chart: bool = True
) -> tuple[int, int, int]:
    """Return the rows for chart, ranks and findings: a little for each, then in the order below."""
    rows = {"chart": int(has_chart), "ranks": 1, "findings": 1}
    requests = (
        ("ranks", min(num_ranks, 4)),
        ("findings", min(num_findings, 2)),
        ("chart", 2),
        ("ranks", min(num_ranks, 8)),
        ("findings", min(num_findings, 3)),
        ("ranks", min(num_ranks + 1, 9)),  # the head of the table
        ("chart", 4),
        ("ranks", num_ranks + 1),
        ("findings", num_findings),
        ("chart", 8),
    )
    for part, wanted in requests:
        if part == "chart" and not has_chart:
            continue
        rows[part] += min(max(wanted - rows[part], 0), max(room - sum(rows.values()), 0))
    return rows["chart"], rows["ranks"], rows["findings"]


def _wide(view: RunView, width: int, height: int, chosen: str) -> list[Line]:
    left_width = width * 62 // 100
    right_width = width - left_width - 3
    verdict = [*_verdict(view, width, 3), *sections.lenses(view, width)]
    body = height - len(verdict) - 2
    culprits = sections.culprits(view, left_width, 4)
    phases = sections.phases(view, left_width, 5)
    comm = [*sections.communication(view, left_width, 3), *sections.device(view, left_width, 2)]
    figures = sections.step_figures(view, left_width)
    fixed = 5 + len(figures) + len(phases) + len(comm) + len(culprits)
    chart_rows = min(max(body - fixed - len(view.ranks) - 1, 4), 12)
    speed = sections.throughput(view, left_width, body - fixed - len(view.ranks) - 1 - chart_rows)
    fixed += len(speed)
    rank_rows = max(body - fixed - chart_rows, 3)
    left = [
        rule(sections.step_title("step time", view), left_width, *sections.windows(view)),
        *figures,
        *sections.trend(view, left_width, chart_rows),
        *speed,
        BLANK,
        rule("where a step goes", left_width, *sections.phases_notes(view)),
        *phases,
        *comm,
        BLANK,
        rule("ranks", left_width, rank_summary(view)),
        *culprits,
        *rank_block(view, left_width, rank_rows),
    ]
    joined = beside(left[:body], left_width, _right(view, right_width, body, chosen)[:body])
    joined += [BLANK] * (body - len(joined))
    return [*verdict, BLANK, *joined[:body], sections.source(view, width)]


def _right(view: RunView, width: int, body: int, chosen: str) -> list[Line]:
    """What to do, what was found, hosts, what nobody observed, what was lost, in `body` rows.

    What to do never gives way to the others, and what was found is not cut while boilerplate has rows: what nobody
    observed has one until the findings and the actions have what they want.
    """
    hosts, lost = sections.hosts(view, width, 6), sections.losses(view, width, 6)
    has_unknown = bool(sections.unknowns(view, width, 1))
    fixed = (len(hosts) + 2) * bool(hosts) + (len(lost) + 1) * bool(lost) + 3 * has_unknown + 1
    actions = _first_actions(view, width, body // 3)
    finding_rows = max(body - fixed - len(actions), 3)
    found = _finding_blocks(view, width, finding_rows)
    shown = [*_finding_rows(view, found, width, finding_rows, chosen), *([BLANK] if not found else [])]
    actions = _first_actions(view, width, max(body // 3, body - fixed - len(shown) - 1))
    spare = max(body - fixed - len(actions) - len(shown), 0)
    unknown = sections.unknowns(view, width, min(1 + spare, MOST_UNKNOWN))
    return [
        *actions,
        rule("findings", width, _finding_summary(view)),
        *shown,
        *([rule("hosts", width), *hosts, BLANK] if hosts else []),
        *([rule("not observed", width), *unknown, BLANK] if unknown else []),
        *([rule(sections.loss_title(view), width), *lost] if lost else []),
    ]


def _first_finding(view: RunView) -> Finding | None:
    """Return the finding of the verdict; while the job stands, that of the hang."""
    wanted = "hang" if view.stall is not None else view.verdict.finding
    return next((each for each in view.findings if each.id == wanted), None)


def _first_action(view: RunView, width: int, max_rows: int) -> list[Line]:
    """Return what to do about the finding of the verdict, in a few rows; enter tells the rest of it."""
    first = _first_finding(view)
    if first is None or not first.actions:
        return []
    head = "→ first: "
    best, room = first.actions[0], width - len(head)
    # A command is never broken: pasted by halves it is another one.
    command = f"$ {best.command}" if best.command and len(best.command) + 2 <= room else ""
    rows = wrap(best.text, room)
    if command and len(rows[-1]) + 1 + len(command) <= room and len(rows) <= max_rows:
        rows[-1] += f" {command}"
    elif command and len(rows) < max_rows:
        rows.append(command)
    elif command:  # what is to be pasted comes first, and the end is cut off
        rows = [fit(f"{command} # {best.text}", room).rstrip()] if max_rows == 1 else [command, *rows]
    if len(rows) > max_rows:
        rows = [*rows[: max_rows - 1], fit(" ".join(rows[max_rows - 1 :]), width - len(head)).rstrip()]
    return [line((head if place == 0 else " " * len(head), "accent"), row) for place, row in enumerate(rows)]


def _first_actions(view: RunView, width: int, max_rows: int) -> list[Line]:
    """Return what to do about the finding of the verdict: the first action whole, of the others what fits."""
    first = _first_finding(view)
    if first is None or not first.actions:
        return []
    rows = [rule("what to do first", width)]
    for number, each in enumerate(first.actions, 1):
        block = action(number, each, width)
        if number > 1 and len(rows) + len(block) > max_rows:
            left = text_of.count(len(first.actions) - number + 1, "more action")
            rows.append(line((f"and {left}: enter", "dim")))
            break
        rows += block
    return [*rows, BLANK]


def _finding_blocks(view: RunView, width: int, most: int) -> list[Line]:
    """Return the findings with their sentences; where not all fit, a remark has less room, then the others have."""
    for most_of_warning, most_of_remark, most_of_title in ROOM_OF_FINDINGS:
        rows: list[Line] = []
        for key, each in keyed(view.findings).items():
            most_rows = most_of_remark if each.severity == "info" else most_of_warning
            if most_rows:
                rows += [*sections.finding_block(key, each, width, most_rows), BLANK]
            else:
                rows += sections.finding(key, each, width, most_of_title)
        if len(rows) <= most:
            break
    return rows


def _finding_summary(view: RunView) -> str:
    parts = [text_of.count(len(view.findings), "finding")] if view.findings else []
    parts += [f"{len(view.past):,} over by now: E"] if view.past else []
    return ", ".join(parts)


def _finding_rows(view: RunView, found: list[Line], width: int, most: int, chosen: str) -> list[Line]:
    """Return the findings that fit, the chosen one among them, or why there are none."""
    if not found:
        waiting = sections.not_enough(view)
        told = waiting or "nothing found that is worth acting on"
        return [line((row, "dim")) for row in wrap_within(told, width, most)]
    if len(found) <= most:
        return found
    target = ("finding", chosen)
    if target not in {row.target for row in found[: max(most - 1, 1)]}:
        first = next((place for place, row in enumerate(found) if row.target == target), 0)
        found = [*found[first:], *found[:first]]
    if most == 1:
        return found[:1]  # how many there are stands in the head
    left = len({row.target for row in found if row.target} - {row.target for row in found[: most - 1]})
    if left == 0:
        return found[:most]
    more = line((f"and {text_of.count(left, 'more finding')}: n shows the next", "dim"))
    *shown, last = found[: most - 1]
    if last.target is not None and found[most - 1].target == last.target:  # its sentence goes on
        last = crop(Line((*last.spans, (" …", "text")), last.target), width)
    return [*shown, last, more]


def rank_summary(view: RunView) -> str:
    """Return how many ranks there are and how many of them are watched."""
    if not view.ranks:
        return ""
    if view.stall is not None:
        return text_of.no_progress(view.stall.for_s)
    if view.without_step_s is not None:
        return f"no step for {text_of.timer(view.without_step_s)}"
    if view.ended or view.imported is not None:
        return text_of.count(len(view.ranks), "rank")
    live = len([rank for rank in view.ranks if rank.state == "live"])
    if any(rank.state == UNHEARD for rank in view.ranks):
        return f"{text_of.count(len(view.ranks), 'rank')}, state unknown"
    return f"{live:,} of {view.run.world_size or len(view.ranks):,} live"


def rank_block(view: RunView, width: int, rows: int) -> list[Line]:
    """Return the ranks in `rows` rows: a row each, or the ones that need eyes and a cell for each rank."""
    if not view.ranks:
        return [line(("no rank known yet", "dim"))]
    columns = rank_columns(view.ranks, width)
    length = max((len(rank.lateness_levels) for rank in view.ranks), default=0)
    left_step = bars.first_heat_step(view.heat_first_step or 0, length, columns.heat)
    if len(view.ranks) < rows:
        head = rank_row.header(columns, "lateness")
        return [
            head,
            *(rank_row.rank_line(rank, columns, view.heat_first_step, left_step) for rank in view.ranks),
        ]
    if len(view.ranks) == rows:
        return [rank_row.rank_line(rank, columns, view.heat_first_step, left_step) for rank in view.ranks]
    shown = standing_out(view.ranks)[: max(rows // 2, 1)]
    lines = [rank_row.rank_line(rank, columns, view.heat_first_step, left_step) for rank in shown]
    return [*lines, *rank_cells(view.ranks, width, max(rows - len(lines), 1))][:rows]


def rank_columns(ranks: tuple[RankRow, ...], width: int) -> rank_row.Columns:
    """Return the widths of the overview's rank rows."""
    number, host = rank_row.number_width(ranks), rank_row.host_width(ranks, 12 if width < 100 else 20)
    left = width - 1 - number - host - rank_row.STATE_WIDTH - 4
    bar = left * 3 // 10
    heat = left * 35 // 100
    return rank_row.Columns(number, host, (), bar, heat, left - bar - heat - 2)


def rank_cells(ranks: tuple[RankRow, ...], width: int, rows: int) -> list[Line]:
    """Return one cell a rank, the lateness in its latest step, `width` ranks a row with the first rank's number."""
    lead = len(f"{ranks[-1].rank:,}") + 1
    across = max((width - lead) // 16 * 16, 16)
    lines: list[Line] = []
    for start in range(0, len(ranks), across):
        chunk = ranks[start : start + across]
        if len(lines) == rows - 1 and start + across < len(ranks):
            left = len(ranks) - start
            lines.append(line((f"and {text_of.count(left, 'more rank')}: press 2 for all of them", "dim")))
            break
        label: Span = (fit(f"{chunk[0].rank:,}", lead - 1, "right") + " ", "dim")
        lines.append(crop(Line((label, *_cells(chunk))), width))
    return lines


def _cells(ranks: tuple[RankRow, ...]) -> list[Span]:
    return [_cell(rank) for rank in ranks]


def _cell(rank: RankRow) -> Span:
    if rank.state in GONE:
        glyph, role = rank_row.state_text(rank)
        return glyph[0], role
    level = rank.lateness_levels[-1] if rank.lateness_levels else bars.LEVEL_UNKNOWN
    if level >= len(bars.LEVELS) and rank.held:
        glyph, role = rank_row.state_text(rank)
        return glyph[0], role
    if level >= len(bars.LEVELS):
        return bars.NOT_SEEN, "heat:unknown"
    if level < bars.VISIBLE_LEVEL:
        return bars.LEVELS[0], "heat:0"
    return bars.LEVELS[level], f"heat:{level}"
