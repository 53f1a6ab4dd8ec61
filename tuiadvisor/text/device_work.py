"""What a trace's devices did, as words and rows: for the screen of kernels and for reports.

In: RunView.  Out: sentences, and (heads, rows) of tables; nothing where there is no trace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.text import format as text_of

if TYPE_CHECKING:
    from tuiadvisor.views.device_work import DeviceTime, DeviceWork
    from tuiadvisor.views.run_view import RunView, Traced

Table = tuple[tuple[str, ...], list[tuple[str, ...]]]
MAX_RANKS: Final = 64
TITLE: Final = "What a trace shows"


def beside(traced: Traced) -> str:
    """Which steps the figures are of, and what the traces say of late ranks."""
    of = f"steps {traced.first_step} to {traced.last_step}" if traced.first_step is not None else "some steps"
    who = text_of.ranks(traced.ranks)
    return f"Beside the recording, {traced.source}: {of} of {who}. The trace says: {traced.because}."


def said(view: RunView) -> list[str]:
    """The sentences that stand before the figures."""
    found = view.device_work
    lines = [] if view.traced is None else [beside(view.traced)]
    return lines + ([] if found is None else [f"{says}." for says in found.says])


def tables(view: RunView) -> list[Table]:
    """Ranks, kinds, the longest kernels or operators."""
    found = view.device_work
    return [] if found is None else [_ranks(found), _kinds(found), _longest(found)]


def shown_first(view: RunView, found: DeviceWork) -> DeviceTime:
    """Whose device is shown in full: the first late rank's, where the trace has it, else whose host is latest."""
    of_trace = view.imported or view.traced
    late = (*(one.rank for one in view.stragglers), *((of_trace and of_trace.late_ranks) or ()))
    of_rank = {each.rank: each for each in found.ranks}
    return next(
        (of_rank[rank] for rank in late if rank in of_rank), max(found.ranks, key=lambda each: each.host)
    )


def idle_name(found: DeviceWork) -> str:
    """What the rest is called: a device waits for launches, a CPU has none."""
    return "host late" if found.unit == "kernels" else "neither"


def _ranks(found: DeviceWork) -> Table:
    heads = ("rank", "window", "computes", "exposed comm", idle_name(found), "waits for later ranks")
    return heads, [
        (
            str(each.rank),
            text_of.seconds(each.window_s),
            *(text_of.share(share) for share in (each.compute, each.communication, each.host)),
            text_of.seconds(each.collective_wait_s),
        )
        for each in found.ranks[:MAX_RANKS]
    ]


def _kinds(found: DeviceWork) -> Table:
    heads = (f"{found.unit} by kind", "share", "time", "calls")
    return heads, [
        (each.kind, text_of.share(each.share), text_of.seconds(each.seconds), f"{each.kernels:,}")
        for each in found.kinds
    ]


def _longest(found: DeviceWork) -> Table:
    heads = (f"longest {found.unit}", "share", "time", "calls")
    return heads, [
        (each.name, text_of.share(each.share), text_of.seconds(each.seconds), f"{each.kernels:,}")
        for each in found.kernels
    ]
