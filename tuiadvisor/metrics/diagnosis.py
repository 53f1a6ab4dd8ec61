"""What is measured of one table: what the rules judge and the screens show.

In: what `diagnosing` computes.  Out: Diagnosis. Its `steady` columns are the window of every statistic: steady steps
since the job's present level began (a fault that starts at step N is sized from N on).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.metrics.lateness.off_core import HeldRank
from tuiadvisor.metrics.steps.arrays import Bools, Floats, Ints, column_median, mean_or_none, median
from tuiadvisor.metrics.steps.barrier import least_wait_K

if TYPE_CHECKING:
    from tuiadvisor.metrics.lateness.collections import CollectionLoss
    from tuiadvisor.metrics.lateness.job_losses import (
        CommonLoss,
    )
    from tuiadvisor.metrics.lateness.late_ranks import LateRank
    from tuiadvisor.metrics.lateness.off_core import HeldRank
    from tuiadvisor.metrics.lateness.readers import Readers
    from tuiadvisor.metrics.lateness.sequence_lengths import LengthLoss
    from tuiadvisor.metrics.lateness.thread_limits import ThreadLimits
    from tuiadvisor.metrics.lateness.wanderers import Wanderers
    from tuiadvisor.metrics.pauses.steady_steps import Steadiness
    from tuiadvisor.metrics.series.drift import Drift
    from tuiadvisor.metrics.series.what_if import Gain, Slowdown
    from tuiadvisor.metrics.steps.accounting import PhaseTimes
    from tuiadvisor.metrics.steps.barrier import Barrier
    from tuiadvisor.metrics.steps.step_table import StepTable
    from tuiadvisor.metrics.window.level_shift import LevelShift
    from tuiadvisor.metrics.window.slow_stretches import SlowStretches

# Below this a median of noisy steps still moves by a tenth; the aim is a verdict within seconds, not minutes.
MIN_STEADY_STEPS: Final = 20
# Where steps are long, a rank that makes the others wait in most of so few is said before that. Chosen: noise alone
# makes one of two ranks the last in all of 8 steps once in 128 runs, and hardly ever by a tenth of the step.
MIN_CLEAR_STEPS: Final = 8
MIN_CLEAR_HITS: Final = 0.75  # of the steps
MIN_CLEAR_LOSS: Final = 0.1  # of the step, the lower end of the interval
LONG_STEP_S: Final = (
    0.5  # 20 steps of that are 10 s; shorter ones are worth waiting for, where more of them come
)
MIN_LOPSIDED: Final = 0.08  # of the step, chosen: worth a second look, with habitual pauses taken out
MAX_TURNS_OF_ONE: Final = 0.7  # of what ranks lose in turns


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything measured. Rows of arrays follow table.ranks."""

    table: StepTable
    barrier: Barrier
    steadiness: Steadiness
    regime_step: int | None  # job step at which the window begins because the level changed there
    regime_shift_s: float | None  # by how much, of the rank's own work or of the whole job's step
    regime_rank: int | None  # whose work changed; None: the job's step did, or a phase of it
    regime_phase: str | None  # which one, on all ranks alike
    earlier_changes: tuple[
        tuple[int, float, int | None], ...
    ]  # before it: job step, shift (s), whose; None: the job's
    steady: StepTable
    steady_barrier: Barrier
    steady_steps: Ints  # job steps of the window
    num_all_steady: int  # steady steps including those before the present level
    seconds_PR: Floats
    job_seconds: PhaseTimes  # mean over ranks, of each phase
    stragglers: tuple[LateRank, ...]
    straggler_loss_K: Floats
    compared_rows: Ints  # ranks whose arrival was compared
    num_not_compared: (
        int  # ranks that are there beside them, as one that has just joined; 0 where none was compared
    )
    input: CommonLoss | None
    checkpoint: CommonLoss | None  # that is a part of the steps
    copies: CommonLoss | None  # of batches to the devices
    transfer: CommonLoss | None
    turn_taking: Gain | None
    turns_of_one: float  # the largest part of it that one rank has
    wandering: Wanderers | None
    lengths: LengthLoss | None
    collections: CollectionLoss | None  # that ranks make at different steps
    slow_stretches: SlowStretches | None  # of steps that are slower on all ranks
    slowdown: Slowdown | None
    level_shift: LevelShift | None
    input_since: int | None
    input_drift: Drift | None  # over all steady steps: a drift has no level
    transfer_since: int | None
    input_drift_gain: Gain | None = None  # in the window, if the wait had not grown
    open_late: tuple[
        LateRank, ...
    ] = ()  # late, but perhaps for want of a core or by chance: too soon to name them
    waits_alike: tuple[LateRank, ...] = ()  # late in data, but for loaders no slower than the others'
    lacking_ranks: tuple[
        int, ...
    ] = ()  # by the kernel's count late for want of a core, for longer than the window
    held: tuple[HeldRank, ...] = ()  # from outside, where nobody's arrival is seen
    is_stage_clear: bool = False  # a pipeline's heavy stage shows in the steps seen so far, however few
    lacks_cores: bool = (
        False  # by the kernel's count waiting for a core is what the typical rank's step is bound by
    )
    readers: Readers | None = None  # where all ranks wait for their batches
    is_sliding: bool = (
        False  # nothing happened at `regime_step`: lateness grows, and the window moves on with it
    )
    thread_limits: ThreadLimits | None = None  # of a table of device times
    named: tuple[int, ...] | None = None  # late ranks by a source that has no more steps; None: more may come

    @property
    def window_start(self) -> int:
        """Column at which the window begins."""
        return self.table.column_of(int(self.steady_steps[0])) if self.steady_steps.size else 0

    @property
    def elapsed_K(self) -> Bools:
        """Columns of the window with the pauses between its steps: the time that the job spends on them."""
        result = self.steadiness.elapsed_K.copy()
        result[: self.window_start] = False
        return result

    @property
    def waits_s(self) -> float | None:
        """Mean seconds a step that even the last arrival seen waits: for the network, or for a rank that was not seen.

        Of one rank alone all that it waits. None where the order of arrival is not known.
        """
        barrier, is_one = self.steady_barrier, self.steady.num_ranks == 1
        return mean_or_none(least_wait_K(self.steady, barrier) if is_one else barrier.transfer_K)

    @property
    def turns_s(self) -> float:
        """Mean seconds a step that even whoever waits least waits for others, late at other places of the step."""
        turns_K = self.steady_barrier.turns_K
        return 0.0 if turns_K is None else mean_or_none(turns_K) or 0.0

    @property
    def is_lopsided(self) -> bool:
        """Whether most of what ranks lose in turns is one rank's: no turns, but pauses too many for pauses."""
        turns = self.turn_taking
        return (
            turns is not None
            and turns.loss_s >= MIN_LOPSIDED * turns.step_s
            and self.turns_of_one > MAX_TURNS_OF_ONE
        )

    @property
    def enough(self) -> bool:
        """Whether the window supports a verdict."""
        return self.num_missing_steps == 0

    @property
    def num_missing_steps(self) -> int:
        """Steady steps still to be seen before a verdict."""
        return 0 if self.is_clear_early else max(0, MIN_STEADY_STEPS - self.num_all_steady)

    @property
    def num_missing_to_keep(self) -> int:
        """Steady steps still to be seen of the present level before nothing found means that nothing is wrong.

        A fault may be told from fewer; that there is none is not known from what was there before a change.
        """
        return max(self.num_missing_steps, MIN_STEADY_STEPS - int(self.steady_steps.size), 0)

    @property
    def is_clear_early(self) -> bool:
        """Most steps lose much to one thing: few of them tell, where they are long or no more will come.

        That is one rank or stage, the data that all wait for, or cores: how long ranks wait for these the kernel counts
        over all of the time, so that nothing of it is left to how few steps there are. Of a source that has no more
        steps, whom it names itself and the data are told as early.
        """
        cycle_K = self.steady_barrier.cycle_K
        if self.num_all_steady < MIN_CLEAR_STEPS or not cycle_K.size:
            return False
        waits = self.lacks_cores or (self.input is not None and is_clear(1.0, self.input.gain))
        if self.named is not None:
            # The source tells it from chance call by call: one steady amount, or a large one, is no condition.
            costly = {entry.rank for entry in self.stragglers if entry.late.gain.loss_low_s > 0}
            return waits or not costly.isdisjoint(self.named)
        clear = any(
            entry.late.persistent and is_clear(entry.late.hit_share, entry.late.gain)
            for entry in self.stragglers
        )
        return float(median(cycle_K)) >= LONG_STEP_S and (waits or self.is_stage_clear or clear)

    def last_s(self, num_steps: int) -> float | None:
        """What so many more steps take, by the steady ones, else by those seen whole; None where none was."""
        whole_s_RK = np.where(self.table.is_whole_RK, self.table.step_s_RK, np.nan)
        if not num_steps:
            return 0.0 if np.isfinite(whole_s_RK).any() else None
        # The first steps of a job take many times as long: they tell only while nothing else does.
        steady_K = self.steady_barrier.cycle_K
        step_K = steady_K if np.isfinite(steady_K).any() else column_median(whole_s_RK)
        seen_K = step_K[np.isfinite(step_K)]
        return num_steps * float(median(seen_K)) if seen_K.size else None


def is_clear(hit_share: float, gain: Gain) -> bool:
    """Whether what is in so many of the steps and costs so much is no chance, though the steps be few."""
    return hit_share >= MIN_CLEAR_HITS and gain.loss_low_s >= MIN_CLEAR_LOSS * gain.step_s
