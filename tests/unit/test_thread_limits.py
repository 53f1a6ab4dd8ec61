"""How long a thread takes for a step by itself, told by its steps without waits."""

from __future__ import annotations

import numpy as np
import pytest

from tuiadvisor.events import STEP_COLUMNS, UNKNOWN
from tuiadvisor.metrics.lateness.thread_limits import ThreadLimits, thread_limits
from tuiadvisor.metrics.steps.step_table import PHASE_INDEX, StepTable, build_table

# Milliseconds of steps of real threads on an asynchronous device whose step takes 115. One waits for room in its queue,
# now more, now less, and would take 17 by itself; one reads for 90 and waits for room in every other step.
BEHIND_A_FULL_QUEUE = [75, 97, 85, 103, 128, 115, 165, 116, 165, 119, 156, 126, 115, 90, 87, 121, 100, 75]
READING = [103, 128, 103, 128, 103, 128, 103, 128, 115, 108, 114, 103, 116, 128, 112, 128, 120, 120]
DEVICE_S = 0.115


def limits(steps_ms: list[int], data_s: float, *, idle_s: float = 0.0) -> ThreadLimits:
    """Of two such threads whose devices are idle for data for so long in each step."""
    num_steps = 30
    columns = {name: np.full((2, num_steps), UNKNOWN) for name in STEP_COLUMNS}
    columns["begin_ns"][:] = np.arange(num_steps) * round(DEVICE_S * 1e9)
    columns["end_ns"][:] = columns["begin_ns"] + round(DEVICE_S * 1e9)
    columns["data_wait_ns"][:] = round(idle_s * 1e9)
    columns["observed"][:] = 1 << PHASE_INDEX["data_wait"]
    table: StepTable = build_table(
        (0, 1), ("node0",) * 2, 0, np.ones((2, num_steps), dtype=np.bool_), columns
    )
    found = thread_limits(
        table,
        np.arange(2),
        np.full(num_steps, DEVICE_S),
        np.full(2, data_s),
        np.tile(np.array(steps_ms) * 1e-3, (2, 1)),
    )
    assert found is not None
    return found


def test_steps_of_any_length_tell_nothing_but_the_wait_for_data() -> None:
    found = limits(BEHIND_A_FULL_QUEUE, 0.006).of(np.arange(2))

    assert found is not None
    assert (found.step_s, found.data_s, found.is_open) == (0.006, 0.006, True)


def test_steps_without_waits_tell_what_a_thread_takes() -> None:
    found = limits(READING, 0.09).of(np.arange(2))

    assert found is not None
    assert found.step_s == pytest.approx(0.103, abs=0.001)
    assert not found.is_open


def test_steps_as_long_as_the_devices_tell_nothing() -> None:
    """It waits in each of them, or takes as long: nobody knows."""
    found = limits([115] * 30, 0.09).of(np.arange(2))

    assert found is not None
    assert (found.step_s, found.is_open) == (0.09, True)


def test_a_wait_that_the_device_shares_hides_nothing() -> None:
    found = limits([115] * 30, 0.09, idle_s=0.09)

    open_limit = found.of(np.arange(2))
    assert open_limit is not None
    assert not open_limit.is_open
    assert not found.is_bound(0)


def test_a_device_that_is_idle_for_a_part_of_the_wait_is_bound_to_its_thread() -> None:
    assert limits([115] * 30, 0.09, idle_s=0.01).is_bound(1)


def test_ranks_that_nobody_saw_limit_nothing() -> None:
    assert limits([115] * 30, np.nan).of(np.arange(2)) is None
