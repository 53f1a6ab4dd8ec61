"""Overlap: compute and communication of a step as two lanes, what is hidden and exposed, each collective.

In: FeedState.  Out: lines. What was not observed is unknown, with the reason and what would measure it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tuiadvisor import phases
from tuiadvisor.phases import PHASES
from tuiadvisor.text import format as text_of
from tuiadvisor.text.line import BLANK, Cell, Line, crop, fit, indent, line, row, rule, wrap
from tuiadvisor.text.wording import collective_figures, late_and_waiting
from tuiadvisor.tui.contract.page import Page, opening
from tuiadvisor.tui.draw import bars
from tuiadvisor.tui.pages import sections
from tuiadvisor.tui.pages.by_rank import waits_of_ranks
from tuiadvisor.tui.pages.communication import exchange
from tuiadvisor.tui.pages.stalled import stalled_collectives
from tuiadvisor.tui.pages.waiting import waiting

if TYPE_CHECKING:
    from tuiadvisor.text.line import Span
    from tuiadvisor.tui.contract.feed import FeedState
    from tuiadvisor.views.run_view import CollectiveRow, RunView
    from tuiadvisor.views.shares import Shares

MARGIN = 1
NAME_WIDTH = 14
MORE_LANES = 6  # of ranks that wait, where there are rows for them
COMPUTE = phases.of_kind("copy", "compute", "rest")
HOW_TO_SEE = (
    "press D to see each call of the next 3 s, P on a rank (2, enter) to trace its next steps with "
    "torch's profiler, or read traces you have: tuiadvisor import kineto DIR"
)
TO_IMPORT = (
    "read traces you have: tuiadvisor import kineto DIR"  # of what is over nothing can be asked any more
)


class OverlapPage(Page):
    """The fourth screen."""

    tells_losses = True
    name = "overlap"
    title = "Overlap"
    about = (
        "Communication is cheap where compute hides it and costly where it is exposed: then either the last "
        "rank is waited for (skew), or data are moving (transfer). Each collective is seen in steps "
        "watched in detail, and "
        "DDP's buckets on CPU too: when each left, and what buckets of another size would hide (by a model)."
    )
    is_screen = True
    may_be_first = True
    commands: ClassVar = (
        opening("overlap", "4", "Overlap", "communication beside compute: hidden, exposed, each collective"),
    )
    terms = ("exposed", "hidden", "skew", "transfer", "collectives")
    keys = ("detail", "open", "ranks", "overview", "copy", "help", "pause", "quit")

    def lines(self, state: FeedState, width: int, height: int) -> list[Line]:
        """Return lanes, shares and the table."""
        view = state.view
        if view is None:
            self.targets = []
            return waiting(state, width, height)
        room = width - 2 * MARGIN
        roomy = height >= 26
        is_live = state.mode == "live" and state.replay is None
        gap = [BLANK] if roomy else []
        stalled = stalled_collectives(view, room)
        top = [
            *_spaced(stalled, gap),
            rule("a mean step, its phases in their order", room, *sections.windows(view)),
            *lanes("all ranks", view.step.seconds, view.overlap.hidden_s, room),
        ]
        rows = [
            *(_legend(view, room) if roomy else []),
            *gap,
            rule("communication of a step", room, _seen(view)),
            *_shares(view, room, is_live=is_live),
            *gap,
            *_spaced(exchange(view, room), gap),
            *(
                [rule("collectives", room, _basis(view)), *_table(view, room, is_live=is_live)]
                if view.collectives or not stalled
                else []
            ),
        ]
        lanes_of = _culprit_lanes(view, room, int(roomy))
        drawn = waits_of_ranks(view, room, height - len(top) - len(lanes_of) - len(rows) - 1)
        rows += [BLANK, *drawn] if drawn else []
        spare = (height - len(top) - len(lanes_of) - len(rows)) // 2
        rows = [
            *top,
            *(_culprit_lanes(view, room, int(roomy) + min(spare, MORE_LANES)) if spare > 0 else lanes_of),
            *rows,
        ]
        return self.arranged(
            [indent(crop(each, room), MARGIN) if each.spans else each for each in rows], width, height
        )


def _spaced(rows: list[Line], gap: list[Line]) -> list[Line]:
    return [*rows, *gap] if rows else []


def lanes(name: str, seconds: Shares, hidden_s: float | None, width: int) -> list[Line]:
    """Return two rows of the same scale: compute with its gaps, communication with its hidden part under backward."""
    room = width - NAME_WIDTH
    known = [(phase, value) for phase in PHASES if (value := seconds.get(phase)) is not None and value > 0]
    if not known:
        return [
            line(
                (fit(name, NAME_WIDTH), "strong"),
                (text_of.UNKNOWN, "unknown"),
                (": no phase seen yet", "dim"),
            )
        ]
    cells = bars.cells_of([value for _, value in known], room)
    compute: list[Span] = []
    comm: list[Span] = []
    for (phase, value), size in zip(known, cells, strict=True):
        if phase == "comm_exposed":
            compute.append(("·" * size, "dim"))
            comm.append((_filled("exposed", text_of.seconds(value), size, "exp."), "phase:comm_exposed"))
        elif phase in COMPUTE:
            compute.append((_of_phase(phase, text_of.seconds(value), size), f"phase:{phase}"))
            comm += _under(phase, value, size, hidden_s)
        else:
            compute.append((_of_phase(phase, text_of.seconds(value), size), f"phase:{phase}"))
            comm.append((" " * size, "text"))
    first: Span = (fit(name, NAME_WIDTH), "strong")
    second: Span = (fit("  comm", NAME_WIDTH), "dim")
    return [Line((first, *compute)), Line((second, *comm))]


def _under(phase: str, value: float, size: int, hidden_s: float | None) -> list[Span]:
    """Return what the communication lane holds beside a phase of compute: DDP hides under backward."""
    if phase != "backward" or not hidden_s:
        return [(" " * size, "text")]
    shown = min(hidden_s, value)
    hidden = min(max(bars.cells_of([shown, value - shown], size)[0], 1), size)
    return [
        (" " * (size - hidden), "text"),
        (_filled("hidden", text_of.seconds(hidden_s), hidden), "bar:comm_exposed"),
    ]


def _of_phase(phase: str, figure: str, size: int) -> str:
    return f"▏{bars.phase_label(phase, figure, size - 1)}".ljust(size) if size else ""


def _filled(name: str, figure: str, size: int, short: str = "") -> str:
    """short: what stands for the name where that leaves the figure no room."""
    for text in (f"▏{name} {figure}", f"▏{short or name} {figure}", f"▏{name}", "▏"):
        if len(text) <= size:
            return text.ljust(size)
    return ""


def _culprit_lanes(view: RunView, width: int, num_waiting: int) -> list[Line]:
    """Return the lanes of the ranks that come late, and of those that wait the longest for them."""
    rows: list[Line] = []
    for rank in late_and_waiting(view, num_waiting):
        what = "▶ rank" if rank.is_culprit else "  rank"
        rows += lanes(f"{what} {rank.rank}", rank.seconds, None, width)
    return rows


def _legend(view: RunView, width: int) -> list[Line]:
    text = "Both lanes share one scale. Dots: compute waits for communication."
    if view.exchange is None:
        text += " Where in backward the hidden part lies is not seen."
    return [line((each, "dim")) for each in wrap(text, width)]


def _seen(view: RunView) -> str:
    share = view.overlap.sampled_share
    if _is_alone(view):
        return ""
    if not share:
        return "* seen in no step" if view.pipeline is None else ""
    return f"* seen in {text_of.share(share)} of the steps, the rest in all"


def _shares(view: RunView, width: int, *, is_live: bool) -> list[Line]:
    overlap = view.overlap
    if _is_alone(view):
        return [line((ALONE, "dim"))]
    facts = (
        (
            "exposed",
            text_of.seconds(overlap.comm_exposed_s),
            f"{text_of.share(view.step.shares.get('comm_exposed'))} of the step: compute waits for it",
        ),
        ("  skew", text_of.seconds(overlap.skew_s), "waiting for the last rank to arrive"),
        ("  transfer", text_of.seconds(overlap.transfer_s), "moving data once all have arrived"),
        # A share: the steps in which it was timed have an exposed time of their own, which is not that above.
        ("hidden*", text_of.share(overlap.overlap), "of all communication, behind compute"),
    )
    rows = []
    for name, figure, about in facts:
        note = "" if figure == text_of.UNKNOWN else about
        number = (fit(figure, 9, "right"), sections.figure(figure)[1])
        rows.append(line((fit(name, NAME_WIDTH), "dim"), number, "  ", (note, "dim")))
    if overlap.comm_total_s is None:
        why = next(
            (item.why for item in view.unknown if item.metric == "overlap"), "no step was watched in detail"
        )
        how = f" To see it, {HOW_TO_SEE if is_live else TO_IMPORT}."
        how = how if view.pipeline is None and view.imported is None else ""
        rows += [line((text, "dim")) for text in wrap(f"What is hidden is unknown: {why}.{how}", width)]
    return rows


def _basis(view: RunView) -> str:
    if not view.collectives:
        return ""
    latest = max(row.last_step for row in view.collectives)
    return f"calls seen one by one, up to step {latest:,}"


def _table(view: RunView, width: int, *, is_live: bool) -> list[Line]:
    wide = width >= 100
    if _is_alone(view):
        return [line((ALONE, "dim"))]
    heads = list(zip(HEADS if wide else HEADS[:6], _sizes(wide=wide), strict=True))
    head = row(
        [
            Cell(name, size, "dim", "left" if place == 0 else "right")
            for place, (name, size) in enumerate(heads)
        ]
    )
    rows = [Line((*head.spans, ("  last arriver", "dim"))), _barrier(view, wide=wide)]
    rows += [_collective(each, wide=wide) for each in view.collectives]
    if not view.collectives:
        rows += [line((each, "dim")) for each in wrap(_untold(view, is_live=is_live), width)]
    return rows


def _untold(view: RunView, *, is_live: bool) -> str:
    """Why there is no row for each collective."""
    if view.imported is not None:
        return SOURCE_UNTOLD if view.imported.device is None else f"{SOURCE_UNTOLD} {BY_NAME}"
    return (OWN_UNSEEN if is_live else OWN_UNTOLD) if _is_own(view) else DDP_UNSEEN


def _barrier(view: RunView, *, wide: bool) -> Line:
    """Return the communication of a step as a whole, which every step shows."""
    overlap = view.overlap
    comers = [rank for rank in view.ranks if rank.last_arrivals is not None]
    last = max(comers, key=lambda rank: rank.last_arrivals or 0, default=None)
    who = f"rank {last.rank}, {text_of.share(last.last_arrivals)}" if last is not None else text_of.UNKNOWN
    # One a step by its nature, where there is one at all.
    num = text_of.UNKNOWN if overlap.skew_s is None else "1"
    figures = [text_of.UNKNOWN, num, _of_timed(overlap.comm_total_s)]
    figures += [text_of.seconds(overlap.skew_s), text_of.seconds(overlap.transfer_s)]
    figures += [text_of.UNKNOWN, _of_timed(overlap.hidden_s)] if wide else []
    return _figures(_name_of_all(view), figures, who, wide=wide)


def _of_timed(seconds: float | None) -> str:
    """Return a figure of the steps that were timed whole, with the star that says so."""
    return text_of.UNKNOWN if seconds is None else f"{text_of.seconds(seconds)}*"


def _name_of_all(view: RunView) -> str:
    if view.imported is not None:  # a trace's communication is of any kind
        return "all of it"
    return "loop's own comm" if _is_own(view) else "gradient comm"


def _collective(each: CollectiveRow, *, wide: bool) -> Line:
    name, *figures, who = collective_figures(each)
    if wide and each.last_rank is not None:
        who += f" of {text_of.count(each.num_seen, 'call')}"
    return _figures(name, figures if wide else figures[:5], who, wide=wide)


def _is_own(view: RunView) -> bool:
    """No wrapper was seen on the model, so what is exchanged need not be gradients."""
    return view.stack is not None and view.stack.is_own_exchange


def _is_alone(view: RunView) -> bool:
    return view.run.world_size == 1 and view.overlap.comm_exposed_s is None and not view.collectives


DDP_UNSEEN = "DDP's own all-reduces run in C++: here they are seen as one; a trace shows each of them."
OWN_UNSEEN = "Which collectives the loop calls was not seen yet: D watches each call of the next 3 s."
SOURCE_UNTOLD = (
    "Here a step's communication is one; which collective takes how much of it was not told apart."
)
BY_NAME = "What ran, by name: K."
OWN_UNTOLD = "Which collectives the loop calls was not seen."
ALONE = "one rank: there is no gradient communication"
HEADS = ("operation", "bytes", "a step", "time", "skew", "transfer", "bandwidth", "hidden")


def _sizes(*, wide: bool) -> tuple[int, ...]:
    """Return the widths of the columns: on 80 columns the last arriver's number and share still fit behind them."""
    return (18, 9, 7, 8, 8, 9, 11, 8) if wide else (17, 8, 7, 8, 8, 8)


def _figures(name: str, figures: list[str], who: str, *, wide: bool) -> Line:
    first, *sizes = _sizes(wide=wide)
    cells = [Cell(name, first)]
    cells += [
        Cell(text, size, "unknown" if text == text_of.UNKNOWN else "text", "right")
        for text, size in zip(figures, sizes, strict=True)
    ]
    shown = row(cells)
    return Line((*shown.spans, ("  ", "text"), (who, "unknown" if who == text_of.UNKNOWN else "text")))
