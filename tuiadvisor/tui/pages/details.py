"""What enter opens: everything known about one finding, or about one rank.

In: FeedState and the target that was opened.  Out: lines.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, ClassVar

from tuiadvisor.phases import PHASES
from tuiadvisor.text import evidence, placement
from tuiadvisor.text import format as text_of
from tuiadvisor.text.efficiency import device_facts
from tuiadvisor.text.line import BLANK, Cell, Line, beside, crop, fit, indent, line, row, rule, wrap
from tuiadvisor.tui.contract.page import Page
from tuiadvisor.tui.draw import bars
from tuiadvisor.tui.pages import rank_row, sections
from tuiadvisor.tui.pages.stack_card import (
    ask_for_finding,
    card_lines,
    finding_card,
    of_finding,
    rank_card_lines,
)
from tuiadvisor.tui.pages.stalled import stalled_collectives
from tuiadvisor.tui.pages.waiting import waiting
from tuiadvisor.views.finding_keys import key_of, keyed
from tuiadvisor.views.shares import known_phases

if TYPE_CHECKING:
    from tuiadvisor.tui.contract.feed import FeedState
    from tuiadvisor.tui.contract.page import Place
    from tuiadvisor.views.run_view import Action, Finding, RankRow, RunView

MARGIN = 1
WIDE = 116  # columns from which two blocks stand side by side
NAME_WIDTH = 18  # of a fact


def open_finding(place: Place, key: str) -> None:
    """Show a finding."""
    page = place.at(FindingPage)
    page.key, page.shown = key, None
    place.show_detail(page)
    ask_for_finding(place, key)


def open_neighbour(place: Place, by: int) -> None:
    """Show the finding beside this one."""
    found = place.at(FindingPage).neighbour(place.state.view, by)
    if found is not None:
        open_finding(place, found)


class FindingPage(Page):
    """One finding: evidence, what to measure next, what to do."""

    name = "finding"
    title = "Finding"
    about = "The evidence is what made the rule fire, in the steps named beside it."
    does: ClassVar = {
        "next_finding": lambda place: open_neighbour(place, 1),
        "previous_finding": lambda place: open_neighbour(place, -1),
    }
    opens: ClassVar = {"finding": open_finding}
    terms = ("pattern", "lens", "layer", "evidence")
    keys = ("next_finding", "previous_finding", "back", "copy", "help", "pause", "quit")

    def __init__(self) -> None:
        super().__init__()
        self.key = ""
        self.shown: Finding | None = None  # of that key, as seen last

    def lines(self, state: FeedState, width: int, height: int) -> list[Line]:
        """Return the finding, or that it is no longer there."""
        if state.view is None:
            return waiting(state, width, height)
        by_key = keyed(state.view.findings)
        if self.key not in by_key:  # another one of its rule came or went
            self.key = key_of(state.view.findings, self.shown) or self.key
        found = by_key.get(self.key)
        self.shown = found or self.shown
        room = width - 2 * MARGIN
        rows = finding_lines(state.view, found, room) if found else _gone(self.key, room)
        rows = [indent(each, MARGIN) if each.spans else each for each in rows]
        shown = self.arranged(rows, width, height)
        self.targets = []
        return shown

    def shows_announced(self, state: FeedState) -> bool:
        """The card that explains this finding."""
        view = state.view
        found = keyed(view.findings).get(self.key) if view else None
        asked = of_finding(view, found) if view is not None and found is not None else None
        return asked is not None and state.notice_card == (asked.rank, asked.subject)

    def neighbour(self, view: RunView | None, by: int) -> str | None:
        """Return the key of the next finding, around the end."""
        keys = list(keyed(view.findings)) if view else []
        if not keys:
            return None
        index = keys.index(self.key) if self.key in keys else -1 if by > 0 else 0
        return keys[(index + by) % len(keys)]


def _gone(key: str, width: int) -> list[Line]:
    text = f"The finding {key} no longer holds: the steps seen since then do not show it. Press esc."
    return [BLANK, *(line((row_text, "dim")) for row_text in wrap(text, width))]


def finding_lines(view: RunView, found: Finding, width: int) -> list[Line]:
    """Return everything about a finding."""
    where = text_of.ranks(found.ranks) if found.ranks else "the whole job"
    facts = [where, *([", ".join(found.hosts)] if found.hosts else [])]
    facts += [text_of.phase_name(found.phase)] if found.phase else []
    since = text_of.since(found.since_step, seen=found.onset_seen)
    facts += [since] if since else []
    cost = found.loss_s_per_step
    facts += [f"costs {text_of.seconds(cost)} a step"] if cost is not None else []
    rows = [
        line(
            (f" {sections.SEVERITIES[found.severity]} ", f"badge:{found.severity}"),
            " ",
            (found.title, "strong"),
        ),
        *(line(text) for text in wrap(found.message, width)),
        *(line((text, "dim")) for text in wrap(" · ".join(facts), width)),
        line((f"{found.id} · pattern {found.pattern} · lens {found.lens} · layer {found.layer}", "dim")),
        BLANK,
        rule("evidence", width, *sections.windows(view)),
    ]
    card = finding_card(view, found)
    if card is not None:
        rows[-1:-1] = card_lines(card, width)
    names = {name: evidence.name_of(name) for name in found.evidence}
    name_width = min(max((len(name) for name in names.values()), default=0) + 2, width * 2 // 3)
    rows += [
        crop(
            line((fit(names[name], name_width), "dim"), sections.figure(evidence.value_of(name, value))),
            width,
        )
        for name, value in found.evidence.items()
    ] or [line(("no figures were kept for this finding", "dim"))]
    rows += [BLANK, rule("what to do", width)]
    for number, act in enumerate(found.actions, 1):
        rows += action(number, act, width)
    if not found.actions:
        rows.append(line(("nothing: this is for your information", "dim")))
    if found.measure_next:
        rows += [BLANK, rule("measure next", width)]
        rows += [each for text in found.measure_next for each in bullet("·", text, width)]
    if view.verdict.finding == found.id and view.verdict.verify:
        rows += [BLANK, rule("how to check it afterwards", width)]
        rows += [line(text) for text in wrap(view.verdict.verify, width)]
    return [crop(each, width) for each in rows]


def bullet(mark: str, text: str, width: int, role: str = "text") -> list[Line]:
    """Return a wrapped text with a mark before its first row."""
    lead = f"{mark} "
    rows = wrap(text, width - len(lead))
    return [
        line((lead if index == 0 else " " * len(lead), "accent"), (each, role))
        for index, each in enumerate(rows)
    ]


def action(number: int, act: Action, width: int) -> list[Line]:
    """Return an action: what, at what risk and effort, with which command."""
    rows = bullet(f"{number}.", act.text, width)
    rows.append(indent(line((f"risk {act.risk} · effort {act.effort}", "dim")), 3))
    if act.command:
        rows += [indent(each, 3) for each in bullet("$", act.command, width - 5, "accent")]
    return rows


def rank_lines(view: RunView, rank: RankRow, width: int) -> list[Line]:
    """Return everything about a rank; where there is room its arrivals stand beside its step."""
    glyph, role = rank_row.state_text(rank)
    host, local_rank = rank.host or "unknown host", text_of.count(rank.local_rank)
    place = f"{host} · local rank {local_rank} · pid {rank.pid or text_of.UNKNOWN}"
    rows = [
        line((f"rank {rank.rank}", "strong"), "  ", (glyph, role), ("  " + place, "dim")),
        *(line((text, role)) for text in wrap(rank.why_no_figures, width)),
        *([line(("now in ", "dim"), text_of.activity(rank.now))] if rank.now else []),
        *([line(("its step so far ", "dim"), text_of.so_far(rank.so_far))] if rank.so_far else []),
        *[each for each in sections.culprits(view, width, 99) if each.target == ("rank", str(rank.rank))],
        BLANK,
        *([*stalled, BLANK] if (stalled := stalled_collectives(view, width, rank.rank)) else []),
        *rank_card_lines(view, rank.rank, width),
    ]
    if width >= WIDE:
        left = width * 55 // 100
        rows += beside(_step_rows(view, rank, left), left, _barrier_rows(view, rank, width - left - 3))
    else:
        rows += [*_step_rows(view, rank, width), BLANK, *_barrier_rows(view, rank, width)]
    mine = [
        row
        for key, each in keyed(view.findings).items()
        if rank.rank in each.ranks
        for row in sections.finding(key, each, width)
    ]
    rows += [BLANK, rule("its findings", width), *mine] if mine else []
    return [crop(each, width) for each in rows]


def _step_rows(view: RunView, rank: RankRow, width: int) -> list[Line]:
    return [
        rule("where its step goes", width, f"step {text_of.seconds(rank.step_s)}"),
        Line(tuple(bars.stacked_bar(rank.shares, width, named=True))),
        *_phase_rows(view, rank, width),
    ]


def _barrier_rows(view: RunView, rank: RankRow, width: int) -> list[Line]:
    """Return its arrivals, how it overlaps, its device, where it runs."""
    return [
        rule("at the gradient barrier", width, f"last step {text_of.count(rank.last_step)}"),
        _fact("arrives last in", text_of.share(rank.last_arrivals), " of the steps"),
        _fact("makes others wait", text_of.seconds(rank.caused_each_s), " a step, each of them"),
        _fact("waits itself", text_of.seconds(rank.wait_s), " a step"),
        _fact(
            "exposed comm", text_of.seconds(rank.comm_exposed_s), f", overlap {text_of.share(rank.overlap)}"
        ),
        *_lateness(view, rank, width),
        *_device_rows(view, rank, width),
        *_placement_rows(view, rank, width),
        *(
            [line((text, "dim")) for text in wrap(sections.probe_work(view.probe), width)]
            if view.probe
            else []
        ),
    ]


def _fact(name: str, value: str, after: str) -> Line:
    return line((name.ljust(NAME_WIDTH), "dim"), sections.figure(value), (after, "dim"))


def _long_fact(name: str, value: str, after: str, width: int) -> list[Line]:
    """Say the same in as many rows as it takes: what would be cut off begins below the value."""
    if NAME_WIDTH + len(value) + len(after) <= width:
        return [_fact(name, value, after)]
    below = wrap(after.removeprefix(", "), width - NAME_WIDTH)
    return [_fact(name, value, ""), *(line(" " * NAME_WIDTH, (text, "dim")) for text in below)]


def _phase_rows(view: RunView, rank: RankRow, width: int) -> list[Line]:
    if not known_phases(rank.shares):
        return []  # the bar says that nothing was observed
    heads = (Cell(head, 12, "dim", "right") for head in ("this rank", "share", "mean of all"))
    rows = [row([Cell("", 1), Cell("phase", 16, "dim"), *heads])]
    unseen: list[str] = []
    for phase in PHASES:
        value, mean_s = rank.seconds.get(phase), view.step.seconds.get(phase)
        if value == 0 and not mean_s:
            continue  # observed, and nobody spends time there
        if value is None and mean_s is None:
            unseen.append(text_of.phase_name(phase))
            continue
        own, mean = text_of.seconds(value), text_of.seconds(mean_s)
        rows.append(
            row(
                [
                    Cell(bars.PHASE_LETTERS[phase], 1, f"phase:{phase}"),
                    Cell(text_of.phase_name(phase), 16),
                    Cell(own, 12, sections.figure(own)[1], "right"),
                    Cell(text_of.share(rank.shares.get(phase)), 12, "dim", "right"),
                    Cell(mean, 12, "dim", "right"),
                ]
            )
        )
    if unseen:
        rows += bullet(f"{text_of.UNKNOWN}:", ", ".join(unseen), width, "dim")
    return rows


def _device_rows(view: RunView, rank: RankRow, width: int) -> list[Line]:
    """Whether its device waits for its thread, and what its counters say, where that was measured."""
    rows = []
    if rank.device is not None:
        measured = f", in {rank.device.num_steps} measured steps"
        rows += _long_fact("its device", sections.pace(rank.device), measured, width)
    found = [one for one in view.rank_devices if one.rank == rank.rank]
    for name, text in device_facts(found):
        first, *more = wrap(text, width - NAME_WIDTH)
        rows += [_fact(name, first, ""), *(line(" " * NAME_WIDTH, each) for each in more)]
    if any((one.num_ranks or 1) > 1 for one in found):
        others = text_of.count((found[0].num_ranks or 1) - 1, "other rank")
        rows += [
            line((text, "dim"))
            for text in wrap(f"It shares its device with {others}: these counters are of all of them.", width)
        ]
    return rows


def _placement_rows(view: RunView, rank: RankRow, width: int) -> list[Line]:
    """Where it may run and how far its device and the links are; nothing where nobody told."""
    found = [one for one in view.placements if one.rank == rank.rank]
    if not placement.placement_rows(found):
        return []
    one = found[0]
    links = [link for link in view.links if link.rank == rank.rank]
    return [
        BLANK,
        rule("where it is", width),
        *_long_fact("may run on", placement.cpus(one), f", memory {placement.memory(one)}", width),
        *(
            _long_fact("its device", placement.device(one), f", {placement.distance(one)}", width)
            if one.device
            else []
        ),
        *(_long_fact("nearest card", placement.card(one), "", width) if one.device else []),
        *itertools.chain.from_iterable(
            _long_fact(name, rate, f" of {ceiling} each way, busier way {mean}, at most {most}", width)
            for name, _, rate, ceiling, mean, most in placement.link_rows(links)
        ),
    ]


def _lateness(view: RunView, rank: RankRow, width: int) -> list[Line]:
    if not rank.lateness_levels:
        return [_fact("recent steps", text_of.UNKNOWN, ": no arrival was seen")]
    room = width - NAME_WIDTH
    left = bars.first_heat_step(view.heat_first_step or 0, len(rank.lateness_levels), room)
    heat = bars.heat_row(rank.lateness_levels, view.heat_first_step, left, room)
    legend = bars.level_legend(room)
    return [Line((("recent steps      ", "dim"), *heat)), indent(legend, 18)]
