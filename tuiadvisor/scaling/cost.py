"""Hours and cost of a size, from its time and what the user said about the run.

In: a series, a size, a time in the table's unit, the Aim.  Out: hours of the whole run and its cost; where the
length of the run is unknown, the cost of one step or of a million samples, and no hours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.scaling.cost_of_batch import samples_factor

if TYPE_CHECKING:
    from tuiadvisor.scaling.columns import Quantity
    from tuiadvisor.scaling.series import Series

Objective = Literal["time", "efficiency", "cost"]
MILLION: Final = 1e6


@dataclass(frozen=True, slots=True)
class Aim:
    """What sizes are judged for, of what was stated for the run (session.intent) or for one command. None: not said."""

    objective: Objective | None = None
    price_per_device_hour: float | None = None
    deadline_h: float | None = None
    budget: float | None = None  # in the price's currency; in device-hours without a price
    price_of_time: float | None = None  # what one hour less is worth, in the price's currency
    remaining_steps: float | None = None
    remaining_samples: float | None = None
    noise_scale: float | None = None  # gradient noise scale, samples
    current: int | None = None  # devices in use; None: the largest measured size
    efficiency_floor: float = 0.8  # POP's "acceptable"
    overhead: float = 1.0  # hours that pass for an hour of steps: restarts, work done again, start-up

    @property
    def is_stated(self) -> bool:
        """Whether anything says which of two sizes is better, where neither is both slower and dearer."""
        return (self.objective, self.deadline_h, self.budget, self.price_of_time) != (None,) * 4


def check(aim: Aim, quantity: Quantity) -> None:
    """TuiadvisorError where a limit can't be judged from what was given."""
    if run_length_known(aim, quantity):
        return
    asked = [
        name
        for name, value in (
            ("--deadline", aim.deadline_h),
            ("--budget", aim.budget),
            ("--price-of-time", aim.price_of_time),
        )
        if value is not None
    ]
    if asked:
        option = "--remaining-steps N" if quantity.kind == "step" else "--remaining-samples N"
        raise TuiadvisorError(
            f"{asked[0]} is about the whole run, but the table has {quantity.column} and not its length: add {option}"
        )


def run_length_known(aim: Aim, quantity: Quantity) -> bool:
    """Whether hours of the whole run follow from a time of the table."""
    if quantity.kind == "total":
        return True
    return (aim.remaining_steps if quantity.kind == "step" else aim.remaining_samples) is not None


def hours(series: Series, aim: Aim, devices: int, time: float) -> float | None:
    """Hours of the whole run at this size; None when its length is not known."""
    if not run_length_known(aim, series.quantity):
        return None
    return _hours_of_unit(series, aim, devices, time)


def cost(series: Series, aim: Aim, devices: int, time: float) -> float:
    """Devices x hours x price; device-hours without a price. Of the run, or of `cost_unit`'s amount of work."""
    price = 1.0 if aim.price_per_device_hour is None else aim.price_per_device_hour
    return devices * _hours_of_unit(series, aim, devices, time) * price


def cost_unit(aim: Aim, quantity: Quantity) -> str:
    """What `cost` is of, in words."""
    money = "device-hours" if aim.price_per_device_hour is None else "price x device-hours"
    if run_length_known(aim, quantity):
        return f"{money} per run"
    return f"{money} per step" if quantity.kind == "step" else f"{money} per million {quantity.counts}"


def step_words(series: Series, aim: Aim) -> str:
    """Whose steps are counted where a step at another size holds another amount of work; "": all hold the same."""
    smallest, largest = series.sizes[0], series.sizes[-1]
    if series.quantity.kind != "step" or series.regime != "weak" or smallest == largest:
        return ""
    steps, what = largest / smallest, "cost is of a step with"
    if aim.remaining_steps is not None:
        steps, what = steps * aim.remaining_steps, f"the {aim.remaining_steps:,.0f} steps have"
    who = f"{smallest:,} device{' makes' if smallest == 1 else 's make'}"
    num_steps = f"{steps:,.0f}" if steps == round(steps) else f"{steps:,.4g}"
    return f"{what} the batch of {largest:,} devices, the largest measured: {who} {num_steps} for the same samples"


def _hours_of_unit(series: Series, aim: Aim, devices: int, time: float) -> float:
    """Hours of the run, or of one step or a million samples when the run's length is not known."""
    kind = series.quantity.kind
    amount = 1.0
    if kind == "step":
        amount = aim.remaining_steps or 1.0
        if series.regime == "weak":
            # A step at another size holds another amount of work; steps are counted at the largest measured batch.
            amount *= series.sizes[-1] / devices
    elif kind == "throughput":
        amount = aim.remaining_samples or MILLION
    # What a step or a million samples take is no run: nothing restarts within it.
    overhead = aim.overhead if kind != "total" and run_length_known(aim, series.quantity) else 1.0
    return time * series.quantity.seconds * amount * overhead * _more_samples(series, aim, devices) / 3600


def _more_samples(series: Series, aim: Aim, devices: int) -> float:
    batch, reference = series.batch_at(devices), series.batch_at(series.sizes[-1])
    # A measured time to the result already contains what the batch cost in progress.
    if aim.noise_scale is None or batch is None or reference is None or series.quantity.kind == "total":
        return 1.0
    return samples_factor(aim.noise_scale, reference, batch)
