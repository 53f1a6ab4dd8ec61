"""What a tall terminal has room for below a screen: the same figures of each rank, and over the last steps.

In: RunView, width, rows that are left.  Out: lines; nothing where there is no room for a head and a few rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tuiadvisor.phases import PHASES
from tuiadvisor.text import format as text_of
from tuiadvisor.text.line import Cell, Line, crop, fit, line, row, rule
from tuiadvisor.tui.draw import bars
from tuiadvisor.tui.pages import rank_row, sections
from tuiadvisor.tui.pages.rank_map import StepHeat, said
from tuiadvisor.views.shown_ranks import standing_out

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.views.devices import RankDevice
    from tuiadvisor.views.run_view import RankRow, RunView
    from tuiadvisor.views.step_map import StepMap

LEAST_ROWS: Final = 3  # below two rows of head
HEAD_ROWS: Final = 2
MOST_RANKS: Final = 64  # looked through for the highest level of a step
MOST_MAPPED: Final = 4  # rows of cells that all change: more of them take beyond 3 kB/s of a fast job
LINK_WIDTH: Final = 16
NARROWEST: Final = 40  # of a map over steps
WIDEST_PHASE: Final = 17  # of a column a phase: figures further apart are not seen side by side
COMM: Final = "comm_exposed"


def phases_of_ranks(
    view: RunView, width: int, rows: int, title: str = "the phases of each rank"
) -> list[Line]:
    """Return a row a rank: how long each phase takes there, coloured by how much longer than on its peers."""
    if not _has_room(view, rows):
        return []
    columns = _columns(view, width, ("step", "caused"))
    most = WIDEST_PHASE * len(rank_row.MAPPED_PHASES)
    columns = replace(columns, phases=True, heat=min(columns.heat, most))
    about = "colour: how much longer than on its peers"
    clock = sections.clock(view)
    head = rule(title, width, f"{clock} · {about}" if clock else about)
    drawn = [head, rank_row.header(columns, ""), *_ranks(view, columns, 0, rows - HEAD_ROWS)]
    return [crop(each, width) for each in drawn]


def chain_of_ranks(view: RunView, width: int, rows: int) -> list[Line]:
    """Return the same, called as below the chain of a step."""
    return phases_of_ranks(view, width, rows, "the chain on each rank")


def waits_of_ranks(view: RunView, width: int, rows: int) -> list[Line]:
    """Return a row a rank: how long it waits and makes wait, and its exposed communication over the last steps."""
    shown = next((each for each in view.step_maps if each.phase == COMM), None)
    if shown is None or not _has_room(view, rows):
        return []
    columns = _columns(view, width, ("wait", "caused", "last"))
    if columns.heat < NARROWEST:
        return []
    columns = replace(columns, values=shown, heat=_map_width(shown, columns.heat))
    heat, left = _placed(view, shown, columns.heat)
    head = rule(
        "waiting of each rank", width, f"{said(view, shown)}, highest {text_of.seconds(shown.top_s)} or more"
    )
    names = rank_row.header(columns, heat.title(view, columns.heat))
    drawn = [head, names, *_ranks(view, columns, left, min(rows - HEAD_ROWS, MOST_MAPPED + 1))]
    return [crop(each, width) for each in drawn]


def links_over_steps(view: RunView, width: int, rows: int) -> list[Line]:
    """Return a row a link of the chain: over the last steps, as long as it is on the rank where it is longest."""
    maps = [each for each in view.step_maps if each.clock == view.clock]
    longest = sorted(maps, key=lambda each: -(view.step.seconds.get(each.phase) or 0.0))[:MOST_MAPPED]
    links = sorted(longest, key=lambda each: PHASES.index(each.phase))
    room = width - 2 * LINK_WIDTH
    if rows < HEAD_ROWS + LEAST_ROWS or room < NARROWEST or not links:
        return []
    room = _map_width(links[0], room)
    ranks = [row.rank for row in _first(view, MOST_RANKS)]
    heat, left = _placed(view, links[0], room)
    of = (
        "of the rank that takes longest"
        if len(ranks) == len(view.ranks)
        else f"of {len(ranks)} ranks, the longest"
    )
    steps = heat.title(view, room).partition(" in ")[2]
    drawn = [rule("its longest links over the last steps", width, f"{steps}, {of}" if steps else of)]
    for each in links[: rows - 1]:
        cells = bars.heat_row(each.of(ranks), view.heat_first_step, left, room)
        name = fit(f"  {text_of.phase_name(each.phase)}", LINK_WIDTH)
        top = fit(f"to {text_of.seconds(each.top_s)}", LINK_WIDTH - 1, "right")
        drawn.append(Line(((name, "text"), *cells, (f" {top}", "dim"))))
    return [crop(each, width) for each in drawn]


def devices_of_ranks(view: RunView, width: int, rows: int) -> list[Line]:
    """Return a row a rank: what its device's counters say, means over the recording; nothing where nobody told."""
    columns = [(name, text) for name, text in COUNTERS if any(text(one) for one in view.rank_devices)]
    if not columns or rows < HEAD_ROWS + LEAST_ROWS:
        return []
    is_shared = any((one.num_ranks or 1) > 1 for one in view.rank_devices)
    note = "ranks share a device: counters are of all on it" if is_shared else "means over the recording"
    heads = [Cell(name, COUNTER_WIDTH, "dim", "right") for name, _ in columns]
    drawn = [
        rule("the device of each rank", width, note),
        row([Cell("rank", RANK_WIDTH, "dim", "right"), *heads]),
    ]
    room = rows - HEAD_ROWS
    told = {one.rank: one for one in view.rank_devices}
    shown = [each.rank for each in _first(view, room if len(told) <= room else room - 1) if each.rank in told]
    for number in shown:
        cells = [Cell(str(number), RANK_WIDTH, "text", "right")]
        drawn.append(row([*cells, *(_counter(text(told[number])) for _, text in columns)]))
    if more := len(told) - len(shown):
        drawn.append(line((f"and {text_of.count(more, 'more rank')}", "dim")))
    return [crop(each, width) for each in drawn]


def _counter(text: str) -> Cell:
    return Cell(text or text_of.UNKNOWN, COUNTER_WIDTH, "text" if text else "unknown", "right")


def _share(value: float | None) -> str:
    return "" if value is None else text_of.share(value)


def _held_back(one: RankDevice) -> str:
    if one.throttle_s is None:
        return ""
    return text_of.seconds(one.throttle_s) if one.throttle_s else "never"


COUNTER_WIDTH = 11
RANK_WIDTH = 6
# A counter's column: "" where it was not observed.
COUNTERS: Final[tuple[tuple[str, Callable[[RankDevice], str]], ...]] = (
    ("any kernel", lambda one: _share(one.utilization)),
    ("SMs busy", lambda one: _share(one.sm_active)),
    ("tensor", lambda one: _share(one.tensor_active)),
    ("memory", lambda one: _share(one.dram_active)),
    ("clock", lambda one: "" if one.clock_mhz is None else f"{one.clock_mhz:,.0f} MHz"),
    ("power", lambda one: "" if one.power_w is None else f"{one.power_w:,.0f} W"),
    ("held back", _held_back),
)


def _has_room(view: RunView, rows: int) -> bool:
    return rows >= HEAD_ROWS + LEAST_ROWS and any(any(row.seconds.values()) for row in view.ranks)


def _columns(view: RunView, width: int, figures: tuple[str, ...]) -> rank_row.Columns:
    number, host = (
        rank_row.number_width(view.ranks),
        rank_row.host_width(view.ranks, 12 if width < 100 else 20),
    )
    left = width - 1 - number - host - rank_row.STATE_WIDTH - 4 - (rank_row.FIGURE_WIDTH + 1) * len(figures)
    return rank_row.Columns(number, host, figures, 0, max(left, 0), 0)


def _map_width(shown: StepMap, room: int) -> int:
    """As wide as there are steps; not one wider with each step, which would move all of it."""
    return min(room, max(-(-shown.num_steps // NARROWEST) * NARROWEST, NARROWEST))


def _placed(view: RunView, shown: StepMap, width: int) -> tuple[StepHeat, int]:
    """The map of a value, and its leftmost step."""
    heat = StepHeat()
    heat.value = (shown.phase, shown.clock)
    return heat, heat.place(view, shown.num_steps, 0, width)


def _first(view: RunView, most: int) -> list[RankRow]:
    """Those that stand out, and further ones as far as there is room, in the order of ranks."""
    if len(view.ranks) <= most:
        return list(view.ranks)
    chosen = {row.rank for row in standing_out(view.ranks)[:most]}
    for each in view.ranks:
        if len(chosen) >= most:
            break
        chosen.add(each.rank)
    return [row for row in view.ranks if row.rank in chosen]


def _ranks(view: RunView, columns: rank_row.Columns, left: int, rows: int) -> list[Line]:
    """A row each, and how many are left out."""
    shown = _first(view, rows if len(view.ranks) <= rows else rows - 1)
    drawn = [rank_row.rank_line(row, columns, view.heat_first_step, left) for row in shown]
    if more := len(view.ranks) - len(shown):
        drawn.append(line((f"and {text_of.count(more, 'more rank')}: 2 has all of them", "dim")))
    return drawn
