"""Kernels: what the devices of a trace did, and why they did not compute.

In: FeedState.  Out: lines. A recording of probes has no kernels: said, with what shows them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tuiadvisor.text import device_work as words
from tuiadvisor.text import format as text_of
from tuiadvisor.text.line import BLANK, Cell, Line, crop, fit, indent, line, row, rule, wrap
from tuiadvisor.tui.contract.page import Page, opening
from tuiadvisor.tui.draw import bars
from tuiadvisor.tui.pages.by_rank import devices_of_ranks, phases_of_ranks
from tuiadvisor.tui.pages.waiting import waiting

if TYPE_CHECKING:
    from tuiadvisor.tui.contract.feed import FeedState
    from tuiadvisor.views.device_work import DeviceTime, DeviceWork, KernelSum

MARGIN = 1
BAR_WIDTH = 20
SHARE_WIDTH = 7
NONE_SEEN = (
    "No kernels: probes record steps and collectives. P on a rank (2, enter) traces its next steps with torch's "
    "profiler; tuiadvisor open DIR shows traces, and tuiadvisor open RUN TRACE puts one beside its recording."
)
NOT_YET = "The traces are still being read: kernels are worked out once they are read to their end."
NOT_SHOWN = (
    "The imported source does not show what devices did; traces of PyTorch's profiler and Nsight Systems do."
)
NO_DEVICE = "The trace beside this recording holds no work of a device."


class DeviceWorkPage(Page):
    """Kernels by cause, kind and name."""

    tells_losses = True
    name = "kernels"
    title = "Kernels"
    about = (
        "Of a trace, imported or beside a recording: each device's window from its first event to its last, split into "
        "computing, exposed communication, and idle by what came too late; then kernels by kind, and the longest. "
        "The first rank that is late stands on top. Kernels on several streams at once count on each."
    )
    commands: ClassVar = (
        opening(
            "kernels",
            "K",
            "Kernels",
            "of a trace: why its devices do not compute, kernels by kind, the longest",
        ),
    )
    terms = ("exposed",)
    keys = ("overview", "overlap", "efficiency", "copy", "help", "quit")

    def lines(self, state: FeedState, width: int, height: int) -> list[Line]:
        """Return sentences, the ranks, kinds and kernels."""
        view = state.view
        if view is None:
            self.targets = []
            return waiting(state, width, height)
        room = width - 2 * MARGIN
        found = view.device_work
        none = NONE_SEEN if view.traced is None else NO_DEVICE
        if view.imported is not None:
            none = NOT_YET if view.imported.kind == "part" else NOT_SHOWN
        rows = (
            [line((each, "dim")) for each in wrap(none, room)]
            if found is None
            else _rows(found, words.shown_first(view, found), room)
        )
        if view.traced is not None:
            said = [line((each, "text")) for each in wrap(words.beside(view.traced), room)]
            rows = [*said, BLANK, *rows]
        if found is None:  # what was seen of the devices without their kernels
            for below in (phases_of_ranks, devices_of_ranks):
                more = below(view, room, height - len(rows) - 1)
                rows += [BLANK, *more] if more else []
        shown = [indent(crop(each, room), MARGIN) if each.spans else each for each in rows]
        return self.arranged(shown, width, height)


def _rows(found: DeviceWork, first: DeviceTime, width: int) -> list[Line]:
    unit = found.unit
    device = "device" if unit == "kernels" else "CPU"
    rows = [line((each, "strong")) for says in found.says for each in wrap(f"{says}.", width)]
    rows += [rule(f"rank {first.rank}: where {text_of.seconds(first.window_s)} of its {device} went", width)]
    rows += _bar("computes", first.compute, "phase:forward", width)
    rows += [
        each for part in first.parts for each in _bar(part.words, part.share, "phase:comm_exposed", width)
    ]
    if first.collective_wait_s is not None:
        text = f"of its collectives, waiting for later ranks: {text_of.seconds(first.collective_wait_s)}"
        rows.append(line((text, "dim")))
    if len(found.ranks) > 1:
        rows += [BLANK, rule("all ranks", width), *_ranks(found.ranks, words.idle_name(found))]
    whole = f"of all {unit}' time" + (", all ranks" if len(found.ranks) > 1 else "")
    rows += [BLANK, rule(f"{unit} by kind", width, whole)]
    rows += [_sum(each, each.kind) for each in found.kinds]
    return [*rows, BLANK, rule(f"longest {unit}", width), *(_sum(each, each.name) for each in found.kernels)]


def _bar(words: str, share: float, role: str, width: int) -> list[Line]:
    size = min(BAR_WIDTH, width // 4)
    filled, empty = bars.cells_of([share, 1 - share], size)
    lead = SHARE_WIDTH + size + 2
    head, *more = wrap(words, max(width - lead, 1)) or [""]
    first = line(
        (fit(text_of.share(share), SHARE_WIDTH, "right"), "strong"),
        " ",
        ("█" * filled, role),
        ("░" * empty, "dim"),
        " ",
        head,
    )
    return [first, *(indent(line(text), lead) for text in more)]


def _ranks(ranks: tuple[DeviceTime, ...], idle: str) -> list[Line]:
    heads = [Cell("rank", 6, "dim", "right")]
    heads += [Cell(name, 12, "dim", "right") for name in ("window", "computes", "comm", idle, "waits for")]
    rows = [row(heads)]
    for each in ranks:
        figures = [text_of.seconds(each.window_s)]
        figures += [text_of.share(share) for share in (each.compute, each.communication, each.host)]
        figures += [text_of.seconds(each.collective_wait_s)]
        cells = [Cell(str(each.rank), 6, "strong", "right")]
        rows.append(row([*cells, *(Cell(text, 12, _role(text), "right") for text in figures)]))
    return rows


def _role(text: str) -> str:
    return "unknown" if text == text_of.UNKNOWN else "text"


def _sum(each: KernelSum, name: str) -> Line:
    return line(
        (fit(text_of.share(each.share), 7, "right"), "strong"),
        (fit(text_of.seconds(each.seconds), 10, "right"), "text"),
        (fit(f"{each.kernels:,} x", 11, "right"), "dim"),
        "  ",
        name,
    )
