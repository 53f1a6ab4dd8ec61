"""Threads that feed their devices scatter: of threads as fast as each other one stays behind; nobody is to blame."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from simulated_devices import MS, DeviceJob, Fault, view_of
from test_device_situations import named, said
from thinned import thinned

from tuiadvisor.metrics.lateness.thread_pace import thread_pace
from tuiadvisor.metrics.steps.arrays import Floats

# The devices wait for launches: 91 ms of them a step, for 85 ms of kernels.
HOST_BOUND = DeviceJob(
    num_steps=140, sync_every=0, forward_host_s=30 * MS, backward_host_s=52 * MS, optimizer_host_s=8 * MS
)
STEP_S = 0.09


def scattered(num_ranks: int, scatter: float, seed: int) -> DeviceJob:
    """scatter: sigma of the lognormal factor on each launching phase."""
    return replace(HOST_BOUND, num_ranks=num_ranks, host_noise=scatter, seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_ranks", "scatter", "seed"),
    thinned(
        [(ranks, scatter, seed) for ranks in (2, 4) for scatter in (0.15, 0.25, 0.4) for seed in range(6)],
        [(2, 0.15, 2), (2, 0.25, 4), (2, 0.4, 3), (4, 0.25, 0), (4, 0.25, 4), (4, 0.4, 2)],
        is_row=True,
    ),
)
def test_of_threads_that_scatter_nobody_is_named(num_ranks: int, scatter: float, seed: int) -> None:
    """All are as fast as each other; of 240 jobs 88 named whose thread was behind."""
    view = view_of(scattered(num_ranks, scatter, seed))

    assert set() == named(view), said(view)


@pytest.mark.slow
@pytest.mark.parametrize("scatter", [0.03, 0.08])
def test_thread_that_stopped_once_is_behind_and_no_slower(scatter: float) -> None:
    """It stays behind for the rest of the run, for all are as fast; 12 of 12 were named."""
    stopped = Fault("save", (1,), 1.0, onset=30, until=31)
    view = view_of(replace(scattered(4, scatter, 0), num_steps=300).with_faults(stopped))

    assert set() == named(view), said(view)


@pytest.mark.slow
@pytest.mark.parametrize("sync", [1, 10, 0])
@pytest.mark.parametrize(("scatter", "factor"), [(0.03, 1.1), (0.15, 1.4), (0.25, 1.4)])
@pytest.mark.parametrize("num_ranks", [2, 4])
def test_slower_thread_among_threads_that_scatter_is_named(
    num_ranks: int, scatter: float, factor: float, sync: int
) -> None:
    """It costs 9 and 28 % of the step."""
    slower = Fault("host", (1,), factor=factor)
    view = view_of(replace(scattered(num_ranks, scatter, 0), sync_every=sync).with_faults(slower))

    assert {1: "host"} == {late.rank: late.cause for late in view.stragglers}, said(view)


def steps(stream: np.random.Generator, mean_s: float = STEP_S, num_steps: int = 200) -> Floats:
    """Seconds of a thread's steps, each by itself."""
    return np.asarray(mean_s * stream.lognormal(0.0, 0.1, num_steps))


def test_thread_that_others_leave_behind_is_slower() -> None:
    """By a tenth, and nothing makes them wait."""
    stream = np.random.default_rng(0)
    own, others = steps(stream, 1.1 * STEP_S), np.stack([steps(stream), steps(stream)])

    assert thread_pace(own, others, 0.1 * STEP_S, 3) == "slower"


def test_thread_that_others_wait_for_is_slower() -> None:
    """They have no more room in their queues: they do what it does, three steps later."""
    stream = np.random.default_rng(0)
    own = steps(stream)
    waiting = np.concatenate((steps(stream, num_steps=3), own[:-3]))

    assert thread_pace(own, waiting[None], 0.1 * STEP_S, 2) == "slower"


def test_threads_that_meet_every_ten_steps_keep_their_distance() -> None:
    """The other is faster by a tenth, and looks at the loss every ten steps, where both are as far."""
    stream = np.random.default_rng(0)
    own, other = steps(stream, 1.1 * STEP_S), steps(stream)
    ahead_s = (own - other).reshape(-1, 10).sum(axis=1)
    other[9::10] += ahead_s

    assert thread_pace(own, other[None], 0.1 * STEP_S, 2) == "slower"


@pytest.mark.parametrize("num_steps", [60, 200, 400])
def test_threads_alike_are_seldom_called_slower(num_steps: int) -> None:
    """One in a thousand may be; a stop of one of them changes nothing."""
    stream = np.random.default_rng(0)
    found = []
    for _ in range(300):
        own, other = steps(stream, num_steps=num_steps), steps(stream, num_steps=num_steps)
        own[20] += 1.0
        found.append(thread_pace(own, other[None], 0.1 * STEP_S, 2))

    assert found.count("slower") <= 1
    assert found.count("alike") >= 0.9 * len(found)


def test_few_steps_tell_nothing() -> None:
    """Neither is sure."""
    stream = np.random.default_rng(0)

    assert thread_pace(steps(stream, num_steps=12), steps(stream, num_steps=12)[None], 0.01, 2) == "open"
