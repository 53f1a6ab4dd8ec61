"""The run that is shown among the sizes that are known: which of them to fit, or bounds from the run alone.

In: the run, recordings of other sizes or a table, what was stated.  Out: Picture with its entries; where nothing can be
drawn, a Picture that says what is missing and what to do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.scaling import curves
from tuiadvisor.scaling.columns import STEP
from tuiadvisor.scaling.oneruncurves import one_run_picture
from tuiadvisor.scaling.picture import Picture
from tuiadvisor.scaling.table import printable
from tuiadvisor.session.entries import entries
from tuiadvisor.session.evidence import facts
from tuiadvisor.session.material import checkpoint_length
from tuiadvisor.session.recordedsizes import OTHER_WORK, parts_of, table_of, why_unusable
from tuiadvisor.session.remaining import pace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.scaling.columns import Quantity
    from tuiadvisor.scaling.table import Table
    from tuiadvisor.session.entries import Stated
    from tuiadvisor.session.machine import Machine
    from tuiadvisor.session.recorded import Recorded

HOW_TO_GET_DATA: Final = (
    "record this training at a second size beside this one: tuiadvisor record -o NAME.tuirec (screen 6: u finds it)",
    "or give a table of measured sizes (devices and step_s, throughput or total_h): tuiadvisor scale --table CSV --tui",
)


@dataclass(frozen=True, slots=True)
class Known:
    """What there is to judge by. current: the run that is shown; others: recordings beside it, newest first."""

    current: Recorded | None = None
    others: tuple[Recorded, ...] = ()
    table: Table | None = None
    all_count: bool = False  # the user chose these recordings: each of them is a row
    notes: tuple[str, ...] = ()

    @property
    def quantity(self) -> Quantity:
        """What a time is of."""
        return self.table.quantity if self.table is not None else STEP


def picture_of(known: Known, stated: Stated, machine: Machine) -> Picture:
    """The picture, whatever is known; never raises for what the data lack."""
    table, current = known.table, known.current
    stated = with_overhead(stated, current)
    why: tuple[str, ...] = ()
    if table is not None:
        return _fitted(table, stated, None, known.notes)
    every = [*([current] if current else []), *known.others]
    runs = every if known.all_count else of_each_size(current, known.others)
    if len({run.view.run.world_size for run in runs}) > 1:
        try:
            is_usable = current is not None and _is_usable(current)
            found = _fitted(table_of(runs), stated, 1 if is_usable else None, known.notes)
        except TuiadvisorError as error:
            why = (f"recordings of several sizes give no curve: {error}",)
        else:
            if current is None or (found.curves and found.curves[0].devices):
                return replace(found, source=_named(runs))
            why = tuple(note for note in found.notes if "left out" in note)
    if current is None:
        return _nothing(stated, STEP, (*why, "no run is open"), known.notes)
    try:
        parts = parts_of(current, machine)
    except TuiadvisorError as error:
        return _nothing(stated, STEP, (*why, str(error)), known.notes)
    name = printable(current.name, 40)
    found = one_run_picture(name, parts, stated.aim, stated.candidates, stated.mode)
    found = replace(found, notes=(*known.notes, *found.notes))
    return found.with_entries(entries(stated, STEP, is_one_run=True), why)


def with_overhead(stated: Stated, current: Recorded | None) -> Stated:
    """The hours of this screen by the session's reckoning: restarts, work done again and start-up are in them."""
    if stated.project is None or current is None:
        return stated
    run = facts(current.name, current.view, current.gradient_bytes)
    steps = stated.aim.remaining_steps
    if steps is None and stated.aim.remaining_samples is not None and run.samples_per_step:
        steps = stated.aim.remaining_samples / run.samples_per_step
    overhead = pace(run, stated.project, {}, checkpoint_length(run)).overhead(run.step_s, steps)
    return replace(stated, aim=replace(stated.aim, overhead=overhead))


def of_each_size(current: Recorded | None, others: Sequence[Recorded]) -> list[Recorded]:
    """The run and one recording of every other size of the same training, the newest: old ones may hold old faults."""
    chosen = [current] if current is not None else []
    for run in others:
        if current is not None and not _may_be_same(current, run):
            continue
        if all(_size(run) != _size(other) for other in chosen):
            chosen.append(run)
    if current is not None and current.gradient_bytes is None:
        # A live run that nobody records does not say how large its gradients are: its name and device must do.
        sizes = {run.gradient_bytes for run in chosen[1:]}
        if len(sizes) == 1:
            chosen[0] = replace(current, gradient_bytes=sizes.pop())
    return chosen


def _size(run: Recorded) -> tuple[object, ...]:
    return (
        run.view.run.world_size,
        tuple(sorted(run.view.run.parallel.items())),
        run.view.run.device,
        run.gradient_bytes,
    )


def _may_be_same(one: Recorded, other: Recorded) -> bool:
    mine, theirs = one.view.run, other.view.run
    if one.gradient_bytes and other.gradient_bytes:
        return (
            abs(other.gradient_bytes / one.gradient_bytes - 1) <= OTHER_WORK and mine.device == theirs.device
        )
    return (mine.label, mine.device) == (theirs.label, theirs.device)


def _is_usable(run: Recorded) -> bool:
    return not why_unusable(run.view, facts(run.name, run.view, run.gradient_bytes))


def _named(runs: Sequence[Recorded]) -> str:
    told = ", ".join(f"{printable(run.name, 24)} ({run.view.run.world_size})" for run in runs[:4])
    return f"{len(runs)} recordings: {told}{' and more' if len(runs) > 4 else ''}"


def _fitted(table: Table, stated: Stated, line: int | None, notes: tuple[str, ...]) -> Picture:
    rows = entries(stated, table.quantity, is_one_run=False)
    try:
        found = curves.picture(table, stated.aim, stated.candidates, line)
    except TuiadvisorError as error:
        if table.name.endswith("recordings"):
            raise
        return Picture(table.name, "", missing=(str(error),), entries=rows, notes=(*notes, *table.notes))
    return replace(found, notes=(*notes, *found.notes)).with_entries(rows)


def _nothing(stated: Stated, quantity: Quantity, why: tuple[str, ...], notes: tuple[str, ...]) -> Picture:
    return Picture(
        "nothing to draw yet",
        "",
        entries=entries(stated, quantity, is_one_run=False),
        missing=(*why, *HOW_TO_GET_DATA),
        notes=notes,
    )
