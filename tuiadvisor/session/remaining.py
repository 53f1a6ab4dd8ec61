"""How long the rest of the run takes: one reckoning for hours, deadline, cost and goodput, so that all agree.

In: Facts, what was stated and answered.  Out: Pace. Start-up + steps x step / (1 - lost): what was not observed or
stated is counted as nothing and named.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuiadvisor.scaling.young_daly import lost_share
from tuiadvisor.session.economics import HOURS_PER_DAY, SECONDS_PER_HOUR

if TYPE_CHECKING:
    from tuiadvisor.session.evidence import Facts
    from tuiadvisor.session.intent import Intent

MAX_LOST: Final = 0.999  # beyond it the run never ends
NEVER_DONE: Final = "with the restarts and the checkpoint interval as stated nothing would ever finish"


@dataclass(frozen=True, slots=True)
class Pace:
    """Of the rest of the run. Seconds; share of the wall time."""

    startup_s: float  # to be paid once more: the recorded run is over
    step_s: float | None  # without what `lost` holds
    lost: float  # to checkpoints and restarts, where these were stated
    useful_step_s: float | None
    is_stated: bool  # lost rests on what was stated
    has_checkpoints: bool  # lost holds the checkpoints too; else they are in step_s

    def hours(self, num_steps: float) -> float | None:
        """Until so many steps are done; None: the step is not known, or nothing would ever be done."""
        if self.step_s is None or self.lost >= MAX_LOST:
            return None
        return (self.startup_s + num_steps * self.step_s / (1 - self.lost)) / SECONDS_PER_HOUR

    @property
    def never_done(self) -> str:
        """Why no step would ever be done; "" where some are."""
        return NEVER_DONE if self.lost >= MAX_LOST else ""

    def overhead(self, step_s: float | None, num_steps: float | None) -> float:
        """Hours of the rest for an hour of its steps; 1 where neither is known, endless where nothing gets done."""
        hours = None if not num_steps else self.hours(num_steps)
        if not step_s or not num_steps:
            return 1.0
        return float("inf") if hours is None else hours * SECONDS_PER_HOUR / (num_steps * step_s)

    def goodput(self, num_steps: float | None = None) -> float | None:
        """Useful share of these hours; of endlessly many steps where their number is not known."""
        if self.useful_step_s is None or not self.step_s:
            return None
        rate = self.useful_step_s / self.step_s * (1 - self.lost)
        hours = None if num_steps is None else self.hours(num_steps)
        if not hours or not num_steps:
            return min(rate, 1.0)
        return min(num_steps * self.useful_step_s / (hours * SECONDS_PER_HOUR), 1.0)


def pace(run: Facts, intent: Intent, answers: dict[str, str | float], checkpoint_s: float | None) -> Pace:
    """How the rest of this run goes on, on what is known."""
    startup_s = startup(run, answers)
    every_h = checkpoint_interval_h(run, answers)
    failures = intent.failures_per_day or 0.0
    restart_h = restart_hours(run, intent, answers)
    step_s, lost, has_checkpoints = run.step_s, 0.0, False
    if checkpoint_s and every_h and step_s is not None and (failures or "checkpoint_every" in answers):
        step_s *= 1 - (run.checkpoint_share or 0.0)
        cost_h, has_checkpoints = checkpoint_s / SECONDS_PER_HOUR, True
        if failures:
            lost = lost_share(every_h, cost_h, HOURS_PER_DAY / failures, restart_h)
        else:
            lost = cost_h / (every_h + cost_h)
    elif failures:  # the work that is done again is not known without an interval
        lost = min(failures * restart_h / HOURS_PER_DAY, 1.0)
    return Pace(
        startup_s=(startup_s or 0.0) if run.is_over else 0.0,
        step_s=step_s,
        lost=lost,
        useful_step_s=run.useful_step_s,
        is_stated=lost > 0,
        has_checkpoints=has_checkpoints,
    )


def device_power(run: Facts, intent: Intent) -> float | None:
    """Watts of one device: as its own meter says, else as stated."""
    return run.device_power_w if run.device_power_w is not None else intent.device_power_w


def samples_a_joule(run: Facts, power_w: float | None) -> float | None:
    """Work for the energy of all devices."""
    if not power_w or not (run.samples_per_step and run.step_s and run.num_devices):
        return None
    return run.samples_per_step / (run.step_s * run.num_devices * power_w)


def startup(run: Facts, answers: dict[str, str | float]) -> float | None:
    """Seconds from the start of the process to the first step: measured, else answered."""
    if run.startup_s is not None:
        return run.startup_s
    answer = answers.get("start_up_min")
    return 60.0 * answer if isinstance(answer, int | float) else None


def restart_hours(run: Facts, intent: Intent, answers: dict[str, str | float]) -> float:
    """What one restart takes: as stated, else at least a start-up; 0 where neither is known."""
    if intent.restart_min is not None:
        return intent.restart_min / 60
    return (startup(run, answers) or 0.0) / SECONDS_PER_HOUR


def checkpoint_interval_h(run: Facts, answers: dict[str, str | float]) -> float | None:
    """Time between two checkpoints: as answered, else as recorded."""
    answer = answers.get("checkpoint_every")
    if isinstance(answer, int | float) and answer > 0:
        return answer / 60
    return None if run.checkpoint_every_s is None else run.checkpoint_every_s / SECONDS_PER_HOUR
