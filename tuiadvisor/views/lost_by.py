"""The lost wall time summed by layer and by lens: which part of the stack takes it, and which kind of constraint it is.

In: RunView.  Out: LostBy rows, largest first; together they are what the waterfall calls lost. A part belongs where the
finding on it says; without one, where such time usually passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tuiadvisor.views.goodput import WallPart
    from tuiadvisor.views.run_view import Finding, RunView

NOWHERE: Final = "not known"
# (layer, lens) in which such time usually passes.
USUAL: Final = {
    "startup": ("runtime", "L-AMORT"),
    "warmup": ("runtime", "L-AMORT"),
    "data_wait": ("application", "L-BALANCE"),
    "comm_exposed": ("network", "L-AMORT"),
    "straggler": ("scheduler", "L-BALANCE"),
    "pipeline_idle": ("application", "L-BALANCE"),
    "heavy_stage": ("application", "L-BALANCE"),
    "checkpoint": ("storage", "L-AMORT"),
    "checkpoint_in_step": ("storage", "L-AMORT"),
    "background_save": ("storage", "L-AMORT"),
    "eval": ("application", "L-AMORT"),
    "periodic_pause": ("application", "L-AMORT"),
    "pause": ("cpu-os", "L-BALANCE"),
    "crowded_host": ("cpu-os", "L-BALANCE"),
    "cpu_limit": ("cpu-os", "L-BALANCE"),
    "restart": ("scheduler", "L-AMORT"),
    "gap": ("scheduler", "L-AMORT"),
    "done_again": ("scheduler", "L-AMORT"),
    "hang": ("runtime", "L-BALANCE"),
}
NAMED_LATE: Final = frozenset({"straggler", "slow_host"})  # rules that say for whom all others wait
# What each lens looks at, in words that say it without the name: balance, amortize, co-design, purpose.
LENSES: Final = {
    "L-BALANCE": "waiting",
    "L-AMORT": "overheads",
    "L-CODESIGN": "hardware fit",
    "L-PURPOSE": "goodput",
}


@dataclass(frozen=True, slots=True)
class LostBy:
    """What one layer or lens takes. share: of the span of the waterfall."""

    name: str
    seconds: float
    share: float
    kinds: tuple[str, ...]  # of the waterfall, largest first


def by_layer(view: RunView) -> tuple[LostBy, ...]:
    """Of each layer that takes anything; empty where no wall time is known."""
    return _summed(view, 0)


def by_lens(view: RunView) -> tuple[LostBy, ...]:
    """Of each lens that takes anything."""
    return _summed(view, 1)


def lens_share(view: RunView, lens: str) -> float | None:
    """What a lens takes of the wall time that could be judged, as goodput is of; None where that is not known.

    lens: NOWHERE of what is lost and not explained; None where nothing is. What is found to cost something, and nobody
    can say how much, costs no nothing; nor does what was not judged. Before anything useful was judged the start alone
    is known, and no share of it.
    """
    if view.wall is None or view.useful_share is None:
        return None
    known_s = sum(part.seconds for part in view.wall.waterfall if part.sort != "unknown")
    lost = {row.name: row.seconds / known_s for row in by_lens(view)} if known_s > 0 else {}
    is_unpriced = any(each.lens == lens and each.severity != "info" for each in view.findings)
    if lens not in lost and (lens == NOWHERE or is_unpriced or known_s <= 0):
        return None
    return lost.get(lens, 0.0)


def _summed(view: RunView, column: int) -> tuple[LostBy, ...]:
    lost = [part for part in view.wall.waterfall if part.sort == "lost"] if view.wall is not None else []
    groups: dict[str, list[WallPart]] = {}
    for part in sorted(lost, key=lambda part: -part.seconds):
        groups.setdefault(_place(part.kind, view.findings)[column], []).append(part)
    rows = [
        LostBy(
            name,
            sum(part.seconds for part in parts),
            sum(part.share for part in parts),
            tuple(part.kind for part in parts),
        )
        for name, parts in groups.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.seconds, row.name)))


@dataclass(frozen=True, slots=True)
class LateStretch:
    """Ranks that all others waited for, and when: of those late only before a change the waterfall has no time."""

    ranks: tuple[int, ...]
    first_step: int | None  # None: it was there before anything was seen
    last_step: int | None  # None: it goes on


def late_stretches(view: RunView) -> tuple[LateStretch, ...]:
    """Whoever was named late in this run, in the order in which it began; once where one has several names."""
    over = [
        LateStretch(past.finding.ranks, past.first_step, past.last_step)
        for past in view.past
        if past.finding.id in NAMED_LATE and past.finding.ranks
    ]
    going = [
        LateStretch(found.ranks, found.onset_step, None)
        for found in view.findings
        if found.id in NAMED_LATE and found.ranks and found.severity != "info"
    ]
    found = sorted(
        dict.fromkeys([*over, *going]),
        key=lambda one: (
            one.first_step or 0,
            view.last_step or 0 if one.last_step is None else one.last_step,
        ),
    )
    return tuple(found)


def _place(kind: str, findings: Iterable[Finding]) -> tuple[str, str]:
    """(layer, lens) of the finding that this time is of; the surest and costliest comes first."""
    for found in findings:
        is_loud = found.severity != "info"
        if kind == found.id or (is_loud and kind in {found.phase, *_LATE.get(found.id, ())}):
            return found.layer, found.lens
    usual = USUAL.get(kind) or next(
        (place for name, place in USUAL.items() if kind.startswith(f"{name}_rank")), None
    )
    return usual or (NOWHERE, NOWHERE)


# Rules whose loss the waterfall has under another name.
_LATE: Final = {
    "slow_host": ("straggler",),
    "wandering_lateness": ("straggler",),
    "taking_turns": ("straggler",),
    "checkpoint_pause": ("checkpoint",),
}
