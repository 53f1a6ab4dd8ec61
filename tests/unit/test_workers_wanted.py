"""How many loader workers would keep up: by what the workers there are deliver while ranks wait."""

from __future__ import annotations

import pytest

from tuiadvisor.causes.input_bound import workers_wanted
from tuiadvisor.metrics.series.what_if import Gain


def waited(work_ms: float, rest_ms: float, workers: int) -> Gain:
    """A step of rest_ms beside a loader whose workers take work_ms a batch; without workers one after the other."""
    step = max(rest_ms, work_ms / workers) if workers else rest_ms + work_ms
    return Gain(
        step, step - rest_ms, step - rest_ms, step - rest_ms, step / rest_ms, step / rest_ms, step / rest_ms
    )


@pytest.mark.parametrize("workers", [0, 1, 2, 4])
@pytest.mark.parametrize(("work_ms", "rest_ms"), [(110.0, 20.0), (95.0, 20.0), (400.0, 7.0)])
def test_that_many_keep_up_and_one_less_does_not(workers: int, work_ms: float, rest_ms: float) -> None:
    """The step beside them waits no more, but for a tenth of a worker's share; with one less it does."""
    wanted = workers_wanted(workers, waited(work_ms, rest_ms, workers))
    assert wanted is not None
    assert work_ms / wanted <= rest_ms * 1.1
    assert wanted == 1 or work_ms / (wanted - 1) > rest_ms


def test_unknown_where_nothing_but_waiting_was_seen() -> None:
    """A step that is all wait says nothing of the rest; one without wait needs nobody."""
    assert workers_wanted(2, Gain(1.0, 1.0, 1.0, 1.0, 9.0, 9.0, 9.0)) is None
    assert workers_wanted(2, Gain(1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0)) is None
