"""What the textbook laws say of a measured series: serial part, its bound, and what to attack.

In: a series and its Choice.  Out: Classic. s is Amdahl's: what of one device's work no device takes over.

| figure | formula | source |
|---|---|---|
| bound | 1/s | Amdahl 1967 |
| scaled speed-up at N | N - s'(N-1), s' the serial share of the run on N devices | Gustafson 1988 |
| halve the serial part | time at N less half of c, of W = b + c·N | Amdahl |
| double the devices | the averaged prediction at 2N | models.py |
| smallest size that beats one device | against its fastest row, any layout | McSherry et al. 2015 (COST) |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.scaling.decide import SAME, sized
from tuiadvisor.scaling.models import AMDAHL, fit_law

if TYPE_CHECKING:
    from tuiadvisor.scaling.choose import Choice
    from tuiadvisor.scaling.series import Series, Subject

LEAST: Final = 1e-6  # a serial part below this is a rounding error of the fit


@dataclass(frozen=True, slots=True)
class Classic:
    """None: not defined for this regime, or not measured. Speed-ups are of the same work."""

    devices: int  # the largest size, where the two remedies are compared
    serial_fraction: float | None
    max_speedup: float | None  # 1/s
    scaled_speedup: float | None
    halved_serial: float | None  # how many times faster with half of the serial part, devices as they are
    doubled_devices: float | None  # how many times faster with twice the devices
    beats_one_device: int | None  # smallest measured size
    one_device_measured: bool


def classic(series: Series, choice: Choice | None, subject: Subject, *, is_open: bool = False) -> Classic:
    """The figures of the main series. is_open: a larger row contradicts these, so nothing is said of larger sizes."""
    largest = series.sizes[-1]
    one = _one_device(series, subject)
    faster = [
        size for size in series.sizes if one is not None and size > 1 and SAME * _pace(series, size) <= one
    ]
    beats = min(faster, default=None)
    if choice is None or series.family not in {"strong", "result"}:
        return Classic(largest, None, None, None, None, None, beats, one is not None)
    devices = np.array([float(row.devices) for row in series.rows])
    fit = fit_law(AMDAHL, devices, np.array([series.device_time(row) for row in series.rows]))
    b, c = fit.coefficients
    share = c * largest / (b + c * largest)
    # From what was measured to what is predicted, as the table and the decision have it: no fit's own value for now.
    now = largest * _pace(series, largest)
    (then,) = choice.device_time(np.array([2.0 * largest])).tolist()
    serial = c / (b + c)
    return Classic(
        largest,
        serial,
        1 / serial if serial > LEAST else None,
        largest - share * (largest - 1),
        1 / (1 - share / 2),
        None if is_open else 2 * now / then,
        beats,
        one is not None,
    )


def classic_words(found: Classic) -> list[str]:
    """Lines for people; empty where nothing is known."""
    lines = []
    if found.serial_fraction is not None and found.max_speedup is not None:
        lines.append(
            f"serial part {found.serial_fraction:.3g} of one device's work: at most {found.max_speedup:.3g} x one "
            f"device (Amdahl); scaled speed-up at {sized(found.devices)} {found.scaled_speedup:.3g} (Gustafson)"
        )
        doubled = (
            "twice the devices: unknown, the next row contradicts the others"
            if found.doubled_devices is None
            else f"twice the devices: {found.doubled_devices:.2f} x, on twice the devices"
        )
        lines.append(
            f"at {sized(found.devices)}, half the serial part: {found.halved_serial:.2f} x as fast; {doubled}"
        )
    if found.one_device_measured:
        lines.append(
            "no measured size beats one device"
            if found.beats_one_device is None
            else f"smallest measured size that beats one device: {sized(found.beats_one_device)}"
        )
    return lines


def _pace(series: Series, devices: int) -> float:
    """Time of the same work at a measured size, the best of its rows."""
    return min(series.device_time(row) for row in series.rows if row.devices == devices) / devices


def _one_device(series: Series, subject: Subject) -> float | None:
    """Time of the same work in the best row on one device, whatever its layout; of steps only the same work."""
    same_work = [
        (other, row)
        for other, row in subject.rows
        if row.devices == 1
        and (
            series.quantity.kind != "step"
            or (other.regime == series.regime and other.batch_at(1) == series.batch_at(1))
        )
    ]
    return min((series.device_time(row) for _, row in same_work), default=None)
