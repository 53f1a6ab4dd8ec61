"""What a busier machine may have caused of a difference, and what it may have hidden."""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic_run import MS, Fault, encoded, frames
from unit.test_compare import JOB, host_frames, measured, scaled, with_unit

from tuiadvisor.advisor.compare.comparing import ComparisonOptions, Measured, compare, measure

pytestmark = pytest.mark.slow

LATE = JOB.with_faults(Fault("other", (1,), 200 * MS))


def waiting(run: Measured, *waits: float) -> Measured:
    """Ranks that were ready to run without a core for these shares of their time."""
    assert run.load is not None
    return replace(
        run,
        core_waits=dict(enumerate(waits)),
        load=replace(run.load, wait_for_core=sum(waits) / len(waits)),
    )


@pytest.fixture(scope="module")
def crowded() -> Measured:
    """One rank works 200 ms more a step and waits for cores; to the others all of that is communication."""
    return waiting(measured(LATE, busy=1.0), 0.2, 0.5)


def test_what_waiting_cannot_explain_decides(crowded: Measured) -> None:
    """From 217 to 17 ms: it was refused, for the others' wait for the late rank passed for the load's."""
    calm = waiting(measured(JOB, busy=1.0), 0.05, 0.05)
    better, worse = (
        compare(*pair, ComparisonOptions(fail_if_slower=0.05)) for pair in ((crowded, calm), (calm, crowded))
    )
    assert "improved" == better.verdict
    assert "regressed" == worse.verdict
    assert worse.gate is not None
    assert worse.gate.exceeded is True
    (told,) = (text for text in better.cautions if "busier before" in text)
    assert told.endswith("ms before")
    assert "that explains at most 1" in told, "half of the late rank's step, and its own communication"


def test_what_is_left_must_exceed_the_gate() -> None:
    """Twice as long, of which waiting explains up to half: longer for certain, but not by a limit of 90 %."""
    calm, slow = (
        waiting(measured(JOB, busy=1.0), 0.01, 0.01),
        waiting(measured(scaled(2.0), busy=1.0), 0.3, 0.3),
    )
    found = compare(calm, slow, ComparisonOptions(fail_if_slower=0.9))
    assert "regressed" == found.verdict
    assert found.gate is not None
    assert found.gate.exceeded is not True
    ignored = compare(calm, slow, ComparisonOptions(fail_if_slower=0.9, ignore_load=True))
    assert ignored.gate is not None
    assert ignored.gate.exceeded is True


@pytest.mark.parametrize("late", [0, 1])
def test_a_small_difference_under_unequal_load_stays_open(late: int) -> None:
    """A quarter longer where the late rank waited for a core a fifth of its time."""
    calm = waiting(measured(JOB, busy=1.0), 0.01, 0.01)
    waits = [0.1, 0.1]
    waits[late] = 0.25
    slow = waiting(measured(JOB.with_faults(Fault("other", (late,), 4 * MS)), busy=1.0), *waits)
    assert "not comparable" == compare(calm, slow).verdict
    assert "not comparable" == compare(slow, calm).verdict


def test_no_change_is_not_told_where_load_may_hide_one() -> None:
    """As long on a machine where ranks lacked a core a fifth of the time: the code itself may have become slower."""
    calm, busy = measured(JOB, busy=1.0), measured(JOB, busy=1.0)
    assert "no change" == compare(calm, busy).verdict
    for share, verdict in ((0.2, "not comparable"), (0.033, "no change")):
        loaded = waiting(busy, share, share)
        for pair in ((calm, loaded), (loaded, calm)):
            found = compare(*pair)
            assert verdict == found.verdict, (share, found.sentence)
            assert "the machine was busier" in " ".join((found.sentence, *found.cautions))
    ignored = compare(calm, waiting(busy, 0.2, 0.2), ComparisonOptions(ignore_load=True))
    assert "no change" == ignored.verdict


def test_each_ranks_wait_is_read() -> None:
    """By rank, from what the hosts told."""
    parts = [*with_unit(frames(JOB), comm_bytes=1000), *host_frames(1.0, 0.25)]
    run = measure("run.tuirec", map(encoded, parts))
    assert {0: pytest.approx(0.25), 1: pytest.approx(0.25)} == run.core_waits
    assert {0, 1} == set(run.series.comm_s)
