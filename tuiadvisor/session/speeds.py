"""How fast the run would be at other numbers of devices: the figures of screen 6, looked up for the dialogue.

In: recordings.  Out: a function of size and batch, which answers with a Speed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.scaling.cost import Aim
from tuiadvisor.scaling.table import printable
from tuiadvisor.session.entries import Stated
from tuiadvisor.session.sizing import Known, picture_of
from tuiadvisor.session.wanted import Speed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.scaling.onerun import Mode
    from tuiadvisor.scaling.picture import Picture
    from tuiadvisor.session.machine import Machine
    from tuiadvisor.session.recorded import Recorded
    from tuiadvisor.session.wanted import SpeedAt

STEPS: Final = 1e6  # only ratios of hours are used
UNBOUND: Final = ("not bounded: ", "not predicted: ")
BATCH: Final[dict[Mode, str]] = {
    "strong": "the total batch as now",
    "weak": "the batch of each device as now",
}


def speeds(runs: Sequence[Recorded], machine: Machine) -> SpeedAt:
    """How fast other sizes are, each looked up once; the same figures as those of screen 6."""
    known = Known(runs[0], tuple(runs[1:]), all_count=True)
    current = runs[0].view.run.world_size
    found: dict[tuple[int, Mode], Speed] = {}

    def at(devices: int, mode: Mode) -> Speed:
        if (devices, mode) not in found:
            intent = Aim(remaining_steps=STEPS, current=current)
            picture = picture_of(known, Stated(intent, (devices,), mode), machine)
            found[devices, mode] = _speed(picture, devices, mode, printable(runs[0].name))
        return found[devices, mode]

    return at


def _speed(picture: Picture, devices: int, mode: Mode, name: str) -> Speed:
    here = next((row.hours for row in picture.rows if row.devices == picture.yours and row.is_measured), None)
    there = next(
        (row for row in picture.rows if row.devices == devices and devices != picture.yours and row.hours),
        None,
    )
    if here is None or there is None or there.hours is None:
        return Speed(None, why_unknown=_why_unknown(picture, name))
    now_h, then = here.expected, there.hours
    times = then.into(now_h)
    sizes = {row.devices for row in picture.rows if row.is_measured}
    if len(sizes) > 1:
        return Speed(times, f"90 % interval, fitted to {len(sizes)} measured sizes", is_fitted=True)
    return Speed(times, f"bounds from this run alone, {BATCH[mode]}")


def _why_unknown(picture: Picture, name: str) -> str:
    for note in picture.notes:
        if note.startswith(UNBOUND):
            return note.split(": ", 2)[-1]
    why = picture.missing[0] if picture.missing else "one size was recorded"
    return why.removeprefix(f"{name}: ")
