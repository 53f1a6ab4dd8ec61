"""Ranks whose devices say nothing though their steps come: who they are, and what is missing of them.

In: where each rank's own steps and those that its device told are on the job's axis.  Out: Untold, and words for it.

A device whose times, or whose waits, do not come (its hook failed) is never told by more steps: whoever waits for them
waits for ever. So once enough of its steps have passed it is looked at as one that was not seen: the others are judged
without it, and what only it could tell is not decided.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from tuiadvisor.advisor.detail.threads_beside import (
    MAX_UNTIMED_PERIODS,
    MAX_UNTIMED_S,
    MAX_UNTIMED_STEPS,
    usual_distance,
)
from tuiadvisor.causes.cause import rank_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.advisor.detail.device_times import DeviceTimes
    from tuiadvisor.advisor.steps.step_store import StepStore
    from tuiadvisor.metrics.steps.step_table import StepTable

# Of a rank: no times of its device; times without what it waits for others; times that fit none of its own steps.
Missing = Literal["times", "waits", "fit"]
_ONE: Final[dict[Missing, str]] = {
    "times": "whose device's times were not seen",
    "waits": "whose device did not tell how long it waits for others",
    "fit": "whose device's times fit none of its thread's",
}
_OWN: Final[dict[Missing, str]] = {
    "times": "its device's times are not seen",
    "waits": "its device does not tell how long it waits for others",
    "fit": "its device's times fit none of its thread's steps",
}
_SEVERAL: Final[dict[Missing, str]] = {
    "times": "whose devices' times were not seen",
    "waits": "whose devices did not tell how long they wait for others",
    "fit": "whose devices' times fit none of their threads'",
}


@dataclass(frozen=True, slots=True)
class Untold:
    """A rank that makes steps, or has made them until it went."""

    rank: int
    missing: Missing
    num_steps: int  # of its own, since its device was last seen as it should be, or since it was attached
    last_step: int | None  # the job's, in which that was; None: never
    why: str = ""  # as its probe says it

    @property
    def of_its_device(self) -> str:
        """What is missing, for its own row."""
        return _OWN[self.missing] + (f" ({self.why})" if self.why else "")


def find_untold(
    store: StepStore,
    times: DeviceTimes,
    tables: tuple[StepTable, StepTable | None],
    bounds: tuple[int | None, int | None] = (None, None),
) -> tuple[Untold, ...]:
    """Ranks whose devices have told nothing for too many of their steps, ascending; also of those that are gone since.

    tables: of the threads' steps, and of those that devices told. bounds: the job steps that both are of. One that was
    attached lately has made too few steps to be blamed.
    """
    host, timed = tables
    newest, oldest, offsets = store.last_job_steps(), store.first_job_steps(), store.job_offsets()
    told: dict[int, int] = {}
    most = MAX_UNTIMED_STEPS
    if timed is not None:
        has_told_R = timed.present_RK.any(axis=1)
        last_R = timed.num_steps - 1 - np.argmax(timed.present_RK[:, ::-1], axis=1)
        told = {
            timed.ranks[row]: timed.step_of(int(last_R[row])) for row in np.flatnonzero(has_told_R).tolist()
        }
        told_K = timed.steps_of(np.flatnonzero(timed.present_RK.any(axis=0)))
        most = max(most, MAX_UNTIMED_PERIODS * usual_distance(told_K))
    result = []
    for row, rank in enumerate(host.ranks):
        if rank not in newest or rank not in oldest:
            continue
        since = told.get(rank, max(oldest[rank], 0 if bounds[0] is None else bounds[0]) - 1)
        until = newest[rank] if bounds[1] is None else min(newest[rank], bounds[1])
        num_steps = until - since
        if num_steps <= most:
            continue
        begin = max(host.column_of(since + 1), 0)
        if float(np.nansum(host.step_s_RK[row, begin:])) <= MAX_UNTIMED_S:
            continue
        missing = _missing(times, rank, (since - offsets[rank], until - offsets[rank]))
        result.append(Untold(rank, missing, num_steps, told.get(rank)))
    return tuple(sorted(result, key=lambda one: one.rank))


def _missing(times: DeviceTimes, rank: int, steps: tuple[int, int]) -> Missing:
    """steps: its own, since the first of which nothing of its device was taken until the last."""
    newest = times.newest(rank, steps[1])
    if newest is None or newest[0] <= steps[0]:
        return "times"
    return "fit" if newest[1] else "waits"


def in_words(untold: Sequence[Untold]) -> str:
    """Which ranks, what of them is missing, in how many steps, and why if that is known; empty of none."""
    parts = []
    for missing in _ONE:
        ranks = [one for one in untold if one.missing == missing]
        if not ranks:
            continue
        whose = (_ONE if len(ranks) == 1 else _SEVERAL)[missing]
        fewest = min(ranks, key=lambda one: one.num_steps)
        since = "" if fewest.last_step is None else f" since step {fewest.last_step:,}"
        why = next((one.why for one in ranks if one.why), "")
        parts.append(
            f"{rank_words(tuple(one.rank for one in ranks))}, {whose} in {fewest.num_steps:,} steps{since}"
            + (f" ({why})" if why else "")
        )
    return "; and ".join(parts)
