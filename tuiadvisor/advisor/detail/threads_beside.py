"""What the threads' own steps say of those that devices timed: whether these are believed, and what no device tells.

In: the two tables of one job, by the threads' clocks (all steps) and by the devices' (measured ones).  Out: why device
times are not believed, the mean of all steps with their pauses, and how long each thread waits for data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.diagnosis import MIN_STEADY_STEPS
from tuiadvisor.metrics.steps.arrays import median_or_none, row_mean
from tuiadvisor.metrics.steps.step_table import PHASE_INDEX
from tuiadvisor.phases import COMPUTE
from tuiadvisor_rules.message import seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.metrics.steps.arrays import Bools, Floats, Ints
    from tuiadvisor.metrics.steps.step_table import StepTable

# Device times that stop coming while steps go on: for so many steps, usual distances of measured ones, and seconds.
MAX_UNTIMED_STEPS: Final = 64
MAX_UNTIMED_PERIODS: Final = 4
MAX_UNTIMED_S: Final = 5.0
RECENT_MEASURED: Final = 16
MAX_UNLIKE: Final = 0.15  # of a mean step
NUM_ERRORS: Final = 4.0  # standard errors
MIN_COMPARED_STEPS: Final = 64


def why_stale(host: StepTable, timed: StepTable, alive_R: Bools) -> str:
    """What to say where steps go on whose device times have stopped coming; empty while they come.

    alive_R: of the timed table's ranks.
    """
    whole_K = timed.present_RK[alive_R].all(axis=0) if alive_R.any() else timed.present_RK.any(axis=0)
    steps = timed.steps_of(np.flatnonzero(whole_K))
    if not steps.size:
        return "no step was seen by the clocks of all devices"
    begin = max(host.column_of(int(steps[-1])) + 1, 0)
    unseen_s = median_or_none(np.nansum(host.step_s_RK[:, begin:], axis=1)) or 0.0
    newest = host.step_of(host.num_steps - 1)
    is_long = newest - int(steps[-1]) > max(MAX_UNTIMED_STEPS, MAX_UNTIMED_PERIODS * usual_distance(steps))
    if is_long and unseen_s > MAX_UNTIMED_S:
        return f"the clocks of all devices were last seen at step {int(steps[-1])}"
    return ""


def usual_distance(steps: Ints) -> int:
    """From one measured job step to the next, of the latest ones the longest."""
    return int(np.diff(steps[-RECENT_MEASURED:]).max(initial=1))


def why_unlike(host: StepTable, timed: StepTable) -> str:
    """What to say where the measured steps are not like all others; empty where they are.

    A thread that runs ahead takes as long as its device in the mean: else its device's clock is wrong, or the measured
    steps are not those of the present.
    """
    begin, end = (max(host.column_of(timed.step_of(column)), 0) for column in (0, timed.num_steps - 1))
    if timed.num_steps < MIN_STEADY_STEPS or end - begin < MIN_COMPARED_STEPS:
        return ""
    row_of = {rank: row for row, rank in enumerate(host.ranks)}
    for row, rank in enumerate(timed.ranks):
        own = timed.step_s_RK[row][np.isfinite(timed.step_s_RK[row])]
        every = host.step_s_RK[row_of[rank], begin : end + 1] if rank in row_of else own[:0]
        every = every[np.isfinite(every)]
        if own.size < MIN_STEADY_STEPS or every.size < MIN_COMPARED_STEPS:
            continue
        error_s = NUM_ERRORS * float(own.std() / own.size**0.5 + every.std() / every.size**0.5)
        own_s, every_s = float(own.mean()), float(every.mean())
        if abs(own_s - every_s) > max(MAX_UNLIKE * every_s, error_s):
            return (
                f"the steps that were measured on rank {rank}'s device take {seconds(own_s)} by its clock, all of them "
                f"{seconds(every_s)}"
            )
    return ""


def mean_step_s(host: StepTable, first_step: int) -> float | None:
    """Seconds a step of the threads, pauses included: in the mean over many they are as long as the devices'."""
    begin = min(max(host.column_of(first_step), 0), max(host.num_steps - MIN_STEADY_STEPS, 0))
    return median_or_none(row_mean(host.step_s_RK[:, begin:]))


def thread_data_s(host: StepTable, timed: StepTable, first_step: int) -> Floats:
    """Seconds a step that each rank of the timed table has its thread wait for data, from a job step on."""
    begin = min(host.column_of(first_step), max(host.num_steps - MIN_STEADY_STEPS, 0))
    return _mean_data_s(host, timed.ranks, np.arange(max(begin, 0), host.num_steps))


def thread_step_s(host: StepTable, timed: StepTable, rows: Ints, first_step: int) -> Floats:
    """Seconds of each step of these rows of the timed table by their threads, all steps from a job step on."""
    row_of = {rank: row for row, rank in enumerate(host.ranks)}
    begin = max(host.column_of(first_step), 0)
    result = np.full((rows.size, max(host.num_steps - begin, 0)), np.nan)
    for place, row in enumerate(rows.tolist()):
        if (own := row_of.get(timed.ranks[row])) is not None:
            result[place] = host.step_s_RK[own, begin:]
    return result


def thread_launch_s(host: StepTable, timed: StepTable, first_step: int) -> Floats:
    """Seconds that each rank of the timed table has its thread launch compute, in all steps from a job step on."""
    begin = max(host.column_of(first_step), 0)
    launch_s_RK = host.phase_s_PRK[[PHASE_INDEX[name] for name in COMPUTE], :, begin:].sum(axis=0)
    row_of = {rank: row for row, rank in enumerate(host.ranks)}
    unknown_K = np.full(launch_s_RK.shape[1], np.nan)
    return np.array([launch_s_RK[row_of[rank]] if rank in row_of else unknown_K for rank in timed.ranks])


def data_s_in(host: StepTable, ranks: Sequence[int], steps: Ints) -> Floats:
    """The same of these ranks over these job steps, as far as they are held."""
    return _mean_data_s(host, ranks, np.flatnonzero(np.isin(host.steps_of(np.arange(host.num_steps)), steps)))


def _mean_data_s(host: StepTable, ranks: Sequence[int], columns: Ints) -> Floats:
    wait_RK = host.phase_s_PRK[PHASE_INDEX["data_wait"]][:, columns]
    by_rank = dict(zip(host.ranks, row_mean(wait_RK).tolist(), strict=True))
    return np.array([by_rank.get(rank, np.nan) for rank in ranks])
