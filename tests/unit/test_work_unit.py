"""What a step of a run is and who else used its machine: what two runs are compared on, or not at all."""

from __future__ import annotations

import numpy as np
import pytest

from tuiadvisor.advisor.compare.work_unit import MAX_DISTINCT, MAX_RANKS, LoadMeter, WorkUnitCounter
from tuiadvisor.events import UNKNOWN, GivenWork, StepFlag
from tuiadvisor.views.comparison import WorkUnit

S = 10**9


def counted(**columns: list[int]) -> dict[str, np.ndarray]:
    """Columns of a STEPS frame, unknown where they are not given."""
    size = len(next(iter(columns.values())))
    names = ("rank", "flags", "num_collectives", "micro_steps", "comm_bytes", "samples", "tokens")
    plain = {name: [0 if name == "flags" else UNKNOWN] * size for name in names}
    return {name: np.array(values, dtype=np.int64) for name, values in {**plain, **columns}.items()}


def unit(
    *frames: dict[str, np.ndarray], world_size: int | None = 2, given: GivenWork | None = None
) -> WorkUnit:
    counter = WorkUnitCounter()
    for frame in frames:
        counter.add(frame)
    return counter.unit(world_size) if given is None else counter.unit(world_size, given)


def test_a_step_of_the_job_is_what_its_ranks_do_together() -> None:
    """Batches add up, gradients are those of one rank, counts are the most usual ones."""
    found = unit(
        counted(rank=[0, 1, 0], samples=[8, 8, 16], tokens=[512, 256, 512], comm_bytes=[400, 200, 400]),
        counted(rank=[0, 1, 1], num_collectives=[3, 3, 9], micro_steps=[4, 4, 1]),
    )
    assert WorkUnit(2, 12.0 + 8.0, 512.0 + 256.0, 300, 3, 4) == found


def test_an_evaluation_beside_a_step_is_no_work_of_it() -> None:
    """Its thousands of samples were a mean of twice the batch: a run that was slower had "improved" by 93 %."""
    usual, whole = [64] * 39, [64] * 39 + [8192]
    found = unit(counted(rank=[0] * 40 + [1] * 40, samples=[*usual, 8192, *usual, 64]))
    assert 128.0 == found.samples_per_step
    packed = unit(counted(rank=[0] * 4, samples=[10, 20, 30, 40]), world_size=1)
    assert 25.0 == packed.samples_per_step  # of batches that differ the mean
    assert 64.0 == unit(counted(rank=[0] * 40, samples=whole), world_size=1).samples_per_step


def test_a_step_that_began_before_the_probe_came_does_not_count() -> None:
    """Nor do ranks that cannot be; where the flags are unknown the step is a whole one."""
    first = int(StepFlag.FIRST)
    found = unit(
        counted(rank=[0, 0, 1, -1, MAX_RANKS], flags=[first, 0, UNKNOWN, 0, 0], samples=[1, 8, 8, 999, 999])
    )
    assert 16.0 == found.samples_per_step


@pytest.mark.parametrize(
    ("frame", "world_size"),
    [
        (counted(rank=[0, 1], samples=[8, 8]), 4),
        (counted(rank=[0, 1], samples=[8, 8]), None),
        (counted(rank=[0, 1], samples=[8, UNKNOWN]), 2),
        (counted(rank=[0, 1], samples=[8, 0]), 2),
        (counted(rank=[-1], samples=[8]), 0),
    ],
)
def test_the_batch_is_unknown_where_a_rank_tells_none(
    frame: dict[str, np.ndarray], world_size: int | None
) -> None:
    """A part of the job is not its step; what the user states holds then."""
    assert unit(frame, world_size=world_size).samples_per_step is None
    stated = unit(frame, world_size=world_size, given=GivenWork(samples_per_step=64))
    assert 64 == stated.samples_per_step


def test_nothing_was_seen() -> None:
    """Unknown, not zero."""
    assert WorkUnit(None, None, None, None, None, None) == unit(world_size=None)


def test_a_count_that_is_never_the_same_costs_no_memory_and_hides_no_usual_one() -> None:
    """Of hostile counts the most frequent stay; of two alike the smaller one is told."""
    noise = list(range(10, 10 + 3 * MAX_DISTINCT))
    counter = WorkUnitCounter()
    counter.add(counted(rank=[0] * 4, num_collectives=[5, 5, 7, 7]))
    counter.add(counted(rank=[0] * len(noise), num_collectives=noise))
    assert len(counter._usual["num_collectives"]) <= MAX_DISTINCT
    assert 5 == counter.unit(1).num_collectives


def sample(at_s: float, cpu: object = 0.5, cores: object = 8, ranks: object = ()) -> dict[str, object]:
    return {"cpu": cpu, "num_cpus": cores, "mono_ns": round(at_s * S), "ranks": [*ranks]}  # type: ignore[misc]


def entry(rank: object, cpu_s: object, run_delay_s: object = None) -> dict[str, object]:
    return {"rank": rank, "cpu_s": cpu_s, "run_delay_s": run_delay_s}


def test_other_work_is_what_the_ranks_did_not_do() -> None:
    """Half of eight cores are busy, the two ranks took three: one core is somebody else's."""
    meter = LoadMeter()
    meter.add("node0", sample(10, ranks=[entry(0, 5.0, 1.0), entry(1, 7.0, 1.0)]))
    meter.add("node0", sample(20, ranks=[entry(0, 25.0, 2.0), entry(1, 17.0, 4.0)]))
    found = meter.load()
    assert found is not None
    assert (0.5, 1.0, 8.0, 0.2) == pytest.approx(
        (found.busy, found.other_cores, found.num_cpus, found.wait_for_core)
    )


def test_ranks_of_two_hosts_are_divided_among_them() -> None:
    """Cores are those of one host: what all ranks took is shared by as many hosts."""
    meter = LoadMeter()
    for at_s, spent_s in ((10, 0.0), (20, 20.0)):
        for host, rank in (("node0", 0), ("node1", 1)):
            meter.add(host, sample(at_s, ranks=[entry(rank, spent_s)]))
    found = meter.load()
    assert found is not None
    assert (4.0 - 2.0, None) == pytest.approx((found.other_cores, found.wait_for_core))


def test_of_unlike_hosts_cores_are_counted_not_shares() -> None:
    """A quarter of 24 cores and three quarters of 8: 12 of 32 are at work, not half of them."""
    meter = LoadMeter()
    meter.add("large", {**sample(10, cpu=0.25), "num_cpus": 24})
    meter.add("small", {**sample(10, cpu=0.75), "num_cpus": 8})
    found = meter.load()
    assert found is not None
    assert (12 / 32, 6.0, 16.0) == pytest.approx((found.busy, found.other_cores, found.num_cpus))


def test_a_long_recording_counts_from_its_beginning() -> None:
    """Early samples were thinned out again and again: of a long run only the end was told."""
    meter = LoadMeter()
    third = 1 << 16
    for number in range(3 * third):
        meter.add("node0", sample(number, cpu=0.9 if number < third else 0.0))
    found = meter.load()
    assert found is not None
    assert 0.3 == pytest.approx(found.busy)


@pytest.mark.parametrize(
    "odd",
    [
        {"cpu": None, "num_cpus": 8},
        {"cpu": "busy", "num_cpus": 8},
        {"cpu": 0.5, "num_cpus": 0},
        {"cpu": 0.5, "num_cpus": None},
        {"cpu": float("nan"), "num_cpus": 8},
        {},
    ],
)
def test_a_sample_without_load_is_none(odd: dict[str, object]) -> None:
    """Of a host that tells none nothing is known; beside one that does it weighs nothing."""
    meter = LoadMeter()
    meter.add("node0", odd)
    assert meter.load() is None
    meter.add("node0", sample(10))
    found = meter.load()
    assert found is not None
    assert (0.5, 8.0) == (found.busy, found.num_cpus)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (entry(0, 9.0), entry(0, 2.0)),  # the counter began anew: another process
        (entry(0, 9.0), entry(0, "much")),
        (entry(0, None), entry(0, 9.0)),
        (entry(None, 1.0), entry(None, 9.0)),
        (entry(-3, 1.0), entry("0", 9.0)),
    ],
)
def test_a_rank_whose_counter_tells_nothing_took_nothing(
    before: dict[str, object], after: dict[str, object]
) -> None:
    """All of the load is somebody else's then; none of it is negative."""
    meter = LoadMeter()
    meter.add("node0", sample(10, ranks=[before, "no entry"]))
    meter.add("node0", sample(20, ranks=[after]))
    found = meter.load()
    assert found is not None
    assert (4.0, None) == (found.other_cores, found.wait_for_core)


def test_two_looks_at_one_time_are_no_rate() -> None:
    """Nor is one of a clock that went back; more than all cores cannot be busy, less than none not be others'."""
    meter = LoadMeter()
    for at_s, spent_s in ((10, 1.0), (10, 9.0), (5, 10.0)):
        meter.add("node0", sample(at_s, cpu=1.5, cores=2, ranks=[entry(0, spent_s)]))
    found = meter.load()
    assert found is not None
    assert (1.0, 3.0) == (found.busy, found.other_cores)
    busy = LoadMeter()
    for at_s, spent_s in ((10, 0.0), (20, 80.0)):
        busy.add("node0", sample(at_s, ranks=[entry(0, spent_s)]))
    found = busy.load()
    assert found is not None
    assert 0.0 == found.other_cores


@pytest.mark.slow
def test_more_ranks_than_any_job_has_are_not_held() -> None:
    """Those that came first are; one of them is still measured."""
    meter = LoadMeter()
    meter.add("node0", sample(10, ranks=[entry(rank, 0.0) for rank in range(MAX_RANKS)]))
    meter.add("node0", sample(20, ranks=[entry(MAX_RANKS, 0.0), entry(0, 10.0)]))
    meter.add("node0", sample(30, ranks=[entry(MAX_RANKS, 30.0)]))
    assert MAX_RANKS == len(meter._first) == len(meter._last)
    found = meter.load()
    assert found is not None
    assert 3.0 == pytest.approx(found.other_cores)
