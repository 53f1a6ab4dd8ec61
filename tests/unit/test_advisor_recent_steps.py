"""What is held of the latest steps of every rank."""

from __future__ import annotations

import numpy as np

from tuiadvisor.advisor.steps.recent_steps import COLUMN, KEPT, RecentSteps
from tuiadvisor.advisor.steps.tracks import RankTracks


def stored(recent: RecentSteps, tracks: RankTracks, first: int, **told: int) -> None:
    """Two steps of ranks 0 and 1 each, from step `first` on, whose columns are 7 but for what is told."""
    row, step = np.array([0, 0, 1, 1]), np.array([first, first + 1] * 2)
    columns = np.full((len(KEPT), 4), 7, dtype=np.int64)
    columns[COLUMN["end_ns"]] = 10 * row + step
    for name, value in told.items():
        columns[COLUMN[name], -1] = value
    recent.store(row, step, columns)
    tracks.last_step[:2] = first + 1


def held(recent: RecentSteps, name: str, steps: range) -> list[list[int]]:
    """A column of these steps of both ranks."""
    present, block = recent.block(np.array([0, 1]), np.array([list(steps)] * 2))
    assert present.all()
    return [list(map(int, row)) for row in block[name]]


def test_a_column_that_tells_the_same_of_all_steps_takes_no_memory() -> None:
    """It is read as if it did; the first step that differs makes room, and what was told before stays."""
    tracks = RankTracks()
    recent = RecentSteps(tracks)
    recent.reserve(2)
    tracks.add(np.array([0, 1]))
    stored(recent, tracks, 0)
    stored(recent, tracks, 2)
    assert ["end_ns"] == list(recent._values)
    assert [[7] * 4] * 2 == held(recent, "eval_ns", range(4))
    assert [[0, 1, 2, 3], [10, 11, 12, 13]] == held(recent, "end_ns", range(4))
    stored(recent, tracks, 4, eval_ns=9)
    assert {"end_ns", "eval_ns"} == set(recent._values)
    assert [[7] * 6, [7] * 5 + [9]] == held(recent, "eval_ns", range(6))


def test_steps_of_ranks_that_began_together_are_read_as_those_of_others() -> None:
    """One span of slots for all rows, also where it begins anew with the first slot; rows in any order."""
    tracks = RankTracks()
    recent = RecentSteps(tracks)
    recent.reserve(2)
    tracks.add(np.array([0, 1]))
    first = recent.capacity - 3
    for step in range(first, first + 6, 2):
        stored(recent, tracks, step)
    steps = np.arange(first - 1, first + 7)
    is_held = (steps >= first) & (steps < first + 6)
    for rows in ([0, 1], [1, 0], [1]):
        local = np.array([steps] * len(rows))
        present, alike = recent.block(np.array(rows), local)
        assert (present == is_held).all()
        apart, each = recent.block(np.array([*rows, 0]), np.concatenate((local, local[:1] - 1)))
        assert (apart[:-1] == present).all()
        assert (alike["end_ns"][:, is_held] == 10 * np.array(rows)[:, None] + steps[is_held]).all()
        assert (alike["end_ns"][present] == each["end_ns"][:-1][present]).all()


def test_what_all_tell_stays_so_where_rows_are_added_and_shortened() -> None:
    """More ranks: more rows, then shorter ones; the columns that differ move, the others need not."""
    tracks = RankTracks()
    recent = RecentSteps(tracks)
    recent.reserve(2)
    tracks.add(np.array([0, 1]))
    stored(recent, tracks, 0, eval_ns=9)
    for num_rows in (40, 300):
        recent.reserve(num_rows)
        assert {"end_ns", "eval_ns"} == set(recent._values)
        assert [[0, 1], [10, 11]] == held(recent, "end_ns", range(2))
        assert [[7, 7], [7, 9]] == held(recent, "eval_ns", range(2))
        assert [[7, 7], [7, 7]] == held(recent, "forward_ns", range(2))
    assert recent.capacity < 2048
