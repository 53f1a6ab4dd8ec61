"""What a change costs and when it has paid for itself. Pure functions; None where a price or length is unknown.

Units: seconds for steps, hours for runs and people, minutes nowhere; money in the user's own currency.
Source: Daly 2006 for checkpoint intervals; the rest is division.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tuiadvisor.scaling.young_daly import daly, lost_share

SECONDS_PER_HOUR: Final = 3600.0
HOURS_PER_DAY: Final = 24.0


def money(device_hours: float | None, price_per_device_hour: float | None) -> float | None:
    """Price of device-hours; None while either is unknown."""
    return (
        None
        if device_hours is None or price_per_device_hour is None
        else device_hours * price_per_device_hour
    )


def break_even_steps(fixed_s: float, saved_s_per_step: float) -> float | None:
    """Steps after which a one-time delay (compilation, warm-up, restart) is earned back; None: never."""
    return fixed_s / saved_s_per_step if saved_s_per_step > 0 else None


def warmup_share(warmup_s: float, num_steps: float, step_s: float) -> float:
    """Share of a run of this many steady steps that its slow first steps add."""
    whole = warmup_s + num_steps * step_s
    return warmup_s / whole if whole > 0 else 0.0


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """How often to write a checkpoint. Hours; shares of the wall time."""

    interval_h: float  # Daly's optimum
    lost_share: float  # of the wall time at the optimum: writing, redone work and restarts
    current_h: float | None
    current_lost_share: float | None


def checkpoint_plan(
    checkpoint_s: float, failures_per_day: float, current_h: float | None = None, restart_h: float = 0.0
) -> CheckpointPlan | None:
    """The interval that loses least, beside the present one; None without failures or without a cost."""
    if failures_per_day <= 0 or checkpoint_s <= 0:
        return None
    cost_h, between_h = checkpoint_s / SECONDS_PER_HOUR, HOURS_PER_DAY / failures_per_day
    best_h = daly(cost_h, between_h)
    now = None if current_h is None or current_h <= 0 else lost_share(current_h, cost_h, between_h, restart_h)
    return CheckpointPlan(
        best_h,
        lost_share(best_h, cost_h, between_h, restart_h),
        current_h,
        now,
    )


@dataclass(frozen=True, slots=True)
class Move:
    """Going on at another number of devices. Positive savings are good; None: a price is missing."""

    num_devices: int
    hours: float  # of the rest of the run, restart and queue included
    hours_saved: float
    device_hours: float
    device_hours_saved: float
    cost: float | None
    cost_saved: float | None
    break_even_work: (
        float | None
    )  # share of the remaining work after which restart and queue are earned back in time


def move(
    now: tuple[int, float],
    then: tuple[int, float],
    restart_h: float,
    price_per_device_hour: float | None,
    queue_h: float = 0.0,
) -> Move:
    """What changing to another size does to the rest of the run.

    now, then: (devices, hours of the remaining work alone). The restart is paid for at the new size; the wait in the
    queue takes time and no device.
    """
    (devices_now, hours_now), (devices_then, hours_then) = now, then
    device_hours = devices_then * (hours_then + restart_h)
    hours = hours_then + restart_h + queue_h
    saved = hours_now - hours_then
    earned = (restart_h + queue_h) / saved if saved > 0 else None
    return Move(
        num_devices=devices_then,
        hours=hours,
        hours_saved=hours_now - hours,
        device_hours=device_hours,
        device_hours_saved=devices_now * hours_now - device_hours,
        cost=money(device_hours, price_per_device_hour),
        cost_saved=money(devices_now * hours_now - device_hours, price_per_device_hour),
        break_even_work=earned if earned is not None and earned <= 1 else None,
    )


def step_without(step_s: float, losses_s: tuple[float, ...]) -> float:
    """Step time once these losses are gone; never longer than now, never below 0. A loss below 0 is none."""
    return max(step_s - sum(max(loss, 0.0) for loss in losses_s), 0.0)
