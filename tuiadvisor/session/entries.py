"""What the user may state on the screen of scaling: shown, typed, nudged.

In: Stated, texts as typed.  Out: Stated, Entry rows. TuiadvisorError for a text that cannot be.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.scaling.cost import Aim
from tuiadvisor.scaling.oneruncurves import MODES
from tuiadvisor.scaling.picture import Entry
from tuiadvisor.scaling.table import MAX_DEVICES
from tuiadvisor.session.intent import checked, preset, price_of_device_hour, stated_steps

if TYPE_CHECKING:
    from tuiadvisor.scaling.columns import Quantity
    from tuiadvisor.scaling.onerun import Mode
    from tuiadvisor.session.intent import Intent

MAX_CANDIDATES: Final = 8
MOVES: Final = 1.1  # left and right change a number by a tenth
OBJECTIVES: Final = ("", "time", "efficiency", "cost")
THOUSANDS: Final = {"k": 1e3, "M": 1e6, "G": 1e9}


@dataclass(frozen=True, slots=True)
class Stated:
    """What was stated. None and (): nothing."""

    aim: Aim
    candidates: tuple[int, ...] = ()
    mode: Mode = "weak"  # one run alone: what becomes of the batch
    project: Intent | None = None  # the file all this is from


def stated_in(project: Intent, efficiency_floor: float) -> Stated:
    """What the project's file says of it."""
    return Stated(
        Aim(
            objective=preset(project).objective,
            price_per_device_hour=price_of_device_hour(project),
            deadline_h=project.deadline_h,
            budget=project.budget,
            price_of_time=project.price_of_time,
            remaining_steps=stated_steps(project, None, None),
            remaining_samples=project.remaining_samples,
            efficiency_floor=efficiency_floor,
        ),
        project=project,
    )


def entries(stated: Stated, quantity: Quantity, *, is_one_run: bool) -> tuple[Entry, ...]:
    """The rows of the screen, in their order."""
    aim = stated.aim
    work = "samples" if quantity.kind == "throughput" else "steps"
    left = aim.remaining_samples if work == "samples" else aim.remaining_steps
    found = [
        Entry(
            "price",
            "price of a device-hour",
            _text(aim.price_per_device_hour),
            "a number in your currency",
            "not stated: cost in device-hours",
        ),
        Entry("deadline", "deadline", _hours(aim.deadline_h), "from now: 12h, 3d", "none"),
        Entry("budget", "budget", _text(aim.budget), "for the rest of the run, in the same currency", "none"),
    ]
    if quantity.kind != "total":
        found.append(
            Entry(
                "left",
                f"{work} left",
                _text(left),
                "a number: 100000, 100k, 2M",
                "not stated: cost of one step",
            )
        )
    found.append(
        Entry(
            "candidates",
            "candidates",
            ", ".join(map(str, stated.candidates)),
            "device counts: 16, 32, 64",
            "not stated: twice the devices",
        )
    )
    if is_one_run:
        return (*found, Entry("mode", "with more devices", MODES[stated.mode], "weak or strong", ""))
    return (
        *found,
        Entry(
            "current",
            "devices now",
            "" if aim.current is None else str(aim.current),
            "how many you use",
            "not stated: the largest measured",
        ),
        Entry(
            "objective",
            "decided by",
            aim.objective or "",
            "time, efficiency or cost",
            "not stated: time, or the limits",
        ),
    )


def with_text(stated: Stated, quantity: Quantity, name: str, typed: str) -> Stated:
    """With one thing stated; an empty text takes it back."""
    text = typed.strip()
    aim = stated.aim
    if name == "candidates":
        return replace(stated, candidates=_sizes(text))
    if name == "mode":
        wanted = next((mode for mode in MODES if text and mode.startswith(text.lower())), None)
        if wanted is None:
            raise TuiadvisorError(
                f"{typed[:24]!r}: write weak (batch a device stays) or strong (total batch stays)"
            )
        return replace(stated, mode=wanted)
    if name == "left":
        field = "remaining_samples" if quantity.kind == "throughput" else "remaining_steps"
        value = _number(text, field) if text else None
        return replace(stated, aim=replace(aim, **{field: value}))  # type: ignore[arg-type]
    if name == "current":
        return replace(stated, aim=replace(aim, current=_sizes(text)[0] if text else None))
    fields = {
        "price": "price_per_device_hour",
        "deadline": "deadline_h",
        "budget": "budget",
        "objective": "objective",
    }
    field = fields[name]
    found = checked(field, _plain(text) if name in {"price", "budget"} else text) if text else None
    return replace(stated, aim=replace(aim, **{field: found}))  # type: ignore[arg-type]


def nudged(stated: Stated, quantity: Quantity, name: str, by: int, sizes: tuple[int, ...]) -> Stated:
    """A tenth more or less; the next of a choice; twice or half the largest candidate. sizes: measured ones."""
    aim = stated.aim
    if name == "objective":
        place = OBJECTIVES.index(aim.objective or "")
        return with_text(stated, quantity, name, OBJECTIVES[(place + by) % len(OBJECTIVES)])
    if name == "mode":
        return replace(stated, mode="strong" if stated.mode == "weak" else "weak")
    if name == "candidates":
        return replace(stated, candidates=_further(stated.candidates, by, sizes))
    if name == "current":
        known = sorted(set(sizes))
        here = aim.current if aim.current in known else known[-1] if known else None
        if here is None:
            return stated
        place = min(max(known.index(here) + by, 0), len(known) - 1)
        return replace(stated, aim=replace(aim, current=known[place]))
    values = {
        "price": aim.price_per_device_hour,
        "deadline": aim.deadline_h,
        "budget": aim.budget,
        "left": aim.remaining_samples if quantity.kind == "throughput" else aim.remaining_steps,
    }
    value = values[name]
    if value is None:
        raise TuiadvisorError("nothing is stated here yet: enter, then type it")
    return with_text(stated, quantity, name, f"{float(f'{value * MOVES**by:.3g}'):.12g}")


def _further(candidates: tuple[int, ...], by: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    largest = max((*candidates, *sizes), default=1)
    if by > 0:
        more = (*candidates, 2 * (max(candidates) if candidates else largest))
        return more[-MAX_CANDIDATES:] if more[-1] <= MAX_DEVICES else candidates
    return candidates[:-1]


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:,.12g}"


def _hours(value: float | None) -> str:
    return "" if value is None else f"{value:.4g} h"


def _plain(text: str) -> str:
    """Without thousands' commas."""
    return text.replace(",", "")


def _number(text: str, field: str) -> float:
    plain = _plain(text)
    factor = THOUSANDS.get(plain[-1:], 1.0)
    value = checked(field, plain[:-1] if factor > 1 else plain)
    return float(value) * factor


def _sizes(text: str) -> tuple[int, ...]:
    found: list[int] = []
    for part in text.replace(",", " ").split():
        if not (part.isascii() and part.isdigit() and len(part) <= 12 and 1 <= int(part) <= MAX_DEVICES):
            raise TuiadvisorError(f"{part[:24]!r} is not a device count; write 16, 32, 64")
        found.append(int(part))
    if len(found) > MAX_CANDIDATES:
        raise TuiadvisorError(f"{len(found)} candidates; give at most {MAX_CANDIDATES}")
    return tuple(dict.fromkeys(found))
