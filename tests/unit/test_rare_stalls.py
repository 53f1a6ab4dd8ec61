"""Long stalls of one rank in few of its steps: since when, and when they no longer come."""

from __future__ import annotations

import pytest
from synthetic_run import MS, Fault, Job, final_view
from thinned import crossed

from tuiadvisor.views.run_view import Finding

BEGAN, ENDED = 487, 1100


def named(num_ranks: int, num_steps: int, seed: int) -> list[Finding]:
    """Of a rank that stalls for 120 ms in one of fourteen steps for a while, whatever it is called."""
    stalls = Fault("other", (1,), 120 * MS, onset=BEGAN, until=ENDED, chance=0.07)
    job = Job(
        num_ranks=num_ranks,
        num_steps=num_steps,
        seed=seed,
        forward_s=12 * MS,
        backward_s=14 * MS,
        faults=(stalls,),
    )
    return [found for found in final_view(job).findings if found.severity != "info"]


@pytest.mark.parametrize(("seed", "num_ranks"), crossed(range(3), [2, 4]))
def test_stalls_are_dated_by_the_first_of_them(num_ranks: int, seed: int) -> None:
    """Not by the beginning of the run, where the steps compared begin with them."""
    (found,) = named(num_ranks, 1000, seed)
    assert (1,) == found.ranks
    assert found.since_step is not None
    assert BEGAN <= found.since_step < BEGAN + 100
    assert f"since step {found.since_step}" in found.message


@pytest.mark.parametrize(("seed", "num_ranks"), crossed(range(3), [2, 4]))
def test_stalls_that_no_longer_come_are_over(num_ranks: int, seed: int) -> None:
    """A thousand steps without one after forty of them are no pause between two."""
    assert not named(num_ranks, 2100, seed)
