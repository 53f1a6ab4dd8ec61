"""How much several runs of the same code differ: what no resampling of one run's steps can show.

In: measured recordings of the same work.  Out: Spread; its margin is what two single runs may differ by at 95 %.
Source: prediction interval of a difference of two draws, Student's t on the logarithms of the mean steady steps.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.advisor.compare.comparable import environment, longer, terms
from tuiadvisor.errors import TuiadvisorError, one_line
from tuiadvisor.metrics.diagnosis import MIN_STEADY_STEPS
from tuiadvisor.views.comparison import Spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.advisor.compare.measured import Measured

MIN_RUNS: Final = 3  # of two runs the interval is 13 times their difference: no margin to judge by
# 97.5 % quantiles of Student's t by degrees of freedom, to two digits; 1.96 beyond.
STUDENT: Final = {2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26, 10: 2.23}
STUDENT_MANY: Final = 2.2


def spread_of(before: Measured, repeats: Sequence[Measured], *, same_work: bool = False) -> Spread:
    """Of `before` and its repeats. TuiadvisorError where one of them is not the same work, or they are too few."""
    runs = (before, *repeats)
    if len(runs) < MIN_RUNS:
        raise TuiadvisorError(
            f"--repeat: {MIN_RUNS - len(runs)} more recording of the same code is needed: a spread takes {MIN_RUNS}"
        )
    for other in repeats:
        _check(before, other, same_work=same_work)
    means = [float(run.series.steady_s.mean()) for run in runs]
    deviation = float(np.std(np.log(means), ddof=1))
    margin = math.expm1(STUDENT.get(len(runs) - 1, STUDENT_MANY) * deviation * math.sqrt(2))
    differing = {one.what for other in repeats for one in environment(before.view, other.view)}
    return Spread(tuple(run.path for run in runs), tuple(means), deviation, margin, tuple(sorted(differing)))


def _check(before: Measured, other: Measured, *, same_work: bool) -> None:
    name = one_line(other.path)
    found = terms(before.unit, other.unit, same_work=same_work)
    as_many = before.unit.world_size == other.unit.world_size
    if found.basis is None or found.scale_before != found.scale_after or not as_many:
        why = "it has another number of ranks" if not as_many else "its steps do another amount of work"
        why = found.reasons[0] if found.reasons else why
        raise TuiadvisorError(f"--repeat {name}: no repeat of {one_line(before.path)}: {why}")
    missing = MIN_STEADY_STEPS - int(other.series.steady_K.sum())
    if missing > 0:
        raise TuiadvisorError(
            f"--repeat {name}: {missing} more steady steps are needed; {longer(other.view)}"
        )


def spread_words(spread: Spread) -> str:
    """What it means for the comparison, in a sentence."""
    low, high = min(spread.step_s), max(spread.step_s)
    said = (
        f"{len(spread.step_s)} runs of the same code differ by {100 * (high / low - 1):.1f} %: a change below "
        f"{100 * spread.margin:.1f} % cannot be told from that"
    )
    if spread.differing:
        said += f"; not the same among them: {', '.join(spread.differing)}"
    return said
