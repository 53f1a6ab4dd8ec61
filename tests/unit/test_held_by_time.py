"""Of few ranks as many steps are looked at as take twenty seconds: of short ones more than of others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic_run import MS, Job, folded, frames

from tuiadvisor.advisor.steps.recent_steps import CAPACITIES
from tuiadvisor.advisor.steps.step_store import LEAST_TABLE_S, USUAL_TABLE_STEPS

SHORT = Job(
    num_ranks=2,
    num_steps=6000,
    data_s=0.1 * MS,
    forward_s=1.5 * MS,
    backward_s=1.5 * MS,
    optimizer_s=0.2 * MS,
    other_s=0.1 * MS,
    transfer_s=0.3 * MS,
    spike_chance=0.0,
)


def test_of_short_steps_twenty_seconds_are_looked_at() -> None:
    """Two thousand steps of 4 ms are 8 s, from which nobody can be said to lack a core."""
    store = folded(frames(SHORT)).store
    found = store.table()
    assert found is not None
    table, _ = found
    assert USUAL_TABLE_STEPS < table.num_steps == store.table_width < SHORT.num_steps
    assert LEAST_TABLE_S == pytest.approx(table.whole_steps_span_s, rel=0.05)


def test_the_newest_steps_say_how_many_are_looked_at() -> None:
    """A record that is lost at the very place does not: half of them tell it, too."""
    store = folded(frames(SHORT)).store
    row = 0
    lost = int(store.tracks.last_step[row]) - USUAL_TABLE_STEPS
    width = store.table_width
    store.recent._steps[row, lost % store.capacity] = -1
    assert width == pytest.approx(store.table_width, rel=0.05)


@pytest.mark.parametrize(
    "job",
    [
        replace(SHORT, num_steps=3000, forward_s=9 * MS),
        replace(SHORT, num_steps=2400, num_ranks=CAPACITIES[0][0] + 1),
        replace(SHORT, num_steps=900),
    ],
    ids=["longer steps", "more ranks", "too few to tell"],
)
def test_of_others_as_many_as_ever(job: Job) -> None:
    """A view of many ranks must not take longer, and of longer steps these are half a minute."""
    assert USUAL_TABLE_STEPS == folded(frames(job)).store.table_width


def test_of_steps_of_a_millisecond_no_more_than_are_held() -> None:
    """8,192 of half a millisecond are 4 s: the most there is."""
    tiny = replace(SHORT, num_steps=9000, forward_s=0.1 * MS, backward_s=0.1 * MS)
    assert CAPACITIES[0][1] == folded(frames(tiny)).store.table_width
