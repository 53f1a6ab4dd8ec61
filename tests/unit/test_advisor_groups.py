"""Ranks put together: every figure from the ranks' own, none invented, none that stands out left out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from snapshot import views
from thinned import num_examples
from unit.synthetic_pipeline import Pipeline, pipeline_run
from unit.synthetic_run import MS, Fault, Job, final_view

from tuiadvisor.advisor.assemble.rank_groups import MAX_OUTLIERS, groupings
from tuiadvisor.advisor.assemble.rank_rows import UNKNOWN_LEVEL
from tuiadvisor.phases import PHASES

LATE = Job(
    num_ranks=16, ranks_per_host=4, num_steps=120, faults=(Fault("backward", (9,), 10 * MS, onset=30),)
)


def test_ranks_are_grouped_by_host_as_frames_tell() -> None:
    """Four hosts of four ranks; the late one is seen in its host's row, by count, by cause and by the map."""
    view = final_view(LATE)
    (grouping,) = view.groupings
    assert "host" == grouping.by
    assert [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11), (12, 13, 14, 15)] == [
        g.ranks for g in grouping.groups
    ]
    assert [(), (), (9,), ()] == [group.outliers for group in grouping.groups]
    assert [0, 0, 1, 0] == [group.num_culprits for group in grouping.groups]
    slow = grouping.groups[2]
    assert slow.lateness_levels[-40:] == view.ranks[9].lateness_levels[-40:]
    assert all((row.caused_each_s or 0) <= (row.step_s or 0) for row in view.ranks)
    assert slow.caused_each_s == pytest.approx(sum(row.caused_each_s or 0 for row in view.ranks[8:12]))
    assert slow.caused_wait_s == pytest.approx(sum(row.caused_wait_s or 0 for row in view.ranks[8:12]))
    assert slow.wait_s == pytest.approx(sum(row.wait_s or 0 for row in view.ranks[8:12]) / 4)
    assert slow.phase_levels[PHASES.index("backward")] >= 3
    assert 1 == pytest.approx(sum(value for value in slow.shares.values() if value is not None))


def test_a_healthy_run_has_no_outlier() -> None:
    """Noise alone makes nobody stand out."""
    view = final_view(replace(LATE, faults=()))
    assert [] == [row.rank for row in view.ranks if row.is_outlier]


def test_stages_and_replicas_are_grouped_where_ranks_name_them() -> None:
    """Two pipelines of two stages: a stage is a data-parallel group, a replica a pipeline."""
    view = pipeline_run(Pipeline(num_ranks=2, num_pipelines=2, num_steps=80, recorded=tuple(range(4, 60))))
    by = {grouping.by: grouping.groups for grouping in view.groupings}
    assert [("stage 0", (0, 2)), ("stage 1", (1, 3))] == [(g.name, g.ranks) for g in by["stage"]]
    assert [("replica 0", (0, 1)), ("replica 1", (2, 3))] == [(g.name, g.ranks) for g in by["replica"]]


def test_a_stage_is_not_slow_for_having_other_work() -> None:
    """The phases of a rank are held against those of its own stage; a stage of one rank against nothing."""
    view = pipeline_run(Pipeline(num_steps=80, recorded=tuple(range(4, 60)), heavy=((1, 2.0),)))
    assert {UNKNOWN_LEVEL} == {level for row in view.ranks for level in row.phase_levels}


def test_what_no_rank_tells_is_unknown() -> None:
    """Not zero: seconds, shares and levels of ranks that were never seen to step."""
    (grouping,) = groupings(views.unknown_everything().ranks, {}, {})
    (group,) = grouping.groups
    assert (None, None, None, None) == (group.step_s, group.wait_s, group.caused_wait_s, group.last_arrivals)
    assert {None} == set(group.seconds.values()) == set(group.shares.values())
    assert b"" == group.lateness_levels
    assert 0 == group.num_live
    assert () == groupings((), {}, {})


def test_the_unknown_steps_of_one_rank_hide_nothing() -> None:
    """The latest known rank of a step is shown; unknown only where nobody is known."""
    rows = views.straggler().ranks[:3]
    levels = (bytes((255, 1, 255)), bytes((255, 6, 2)), bytes((255, 255, 255)))
    rows = tuple(replace(row, lateness_levels=each) for row, each in zip(rows, levels, strict=True))
    assert bytes((255, 6, 2)) == groupings(rows, {}, {})[0].groups[0].lateness_levels


def test_many_outliers_are_counted_and_some_are_named() -> None:
    """The most waited for first."""
    rows = [replace(row, is_outlier=True, host="h") for row in views.many(256).ranks]
    rows[70] = replace(rows[70], caused_wait_s=9.0)
    (group,) = groupings(rows, {}, {})[0].groups
    assert 256 == group.num_outliers
    assert MAX_OUTLIERS == len(group.outliers)
    assert (255, 70) == group.outliers[:2]  # the culprit, then what costs most


@pytest.mark.slow
@settings(max_examples=num_examples(40), deadline=None)
@given(st.data())
def test_groups_hold_every_rank_once(data: st.DataObject) -> None:
    """Whatever hosts and stages they say; sums and worst levels are those of a loop over ranks."""
    base = views.many(24).ranks
    some = st.one_of(st.none(), st.floats(0, 10))
    rows = [
        replace(
            row,
            host=data.draw(st.sampled_from(["a", "b", ""])),
            caused_wait_s=data.draw(some),
            is_outlier=data.draw(st.booleans()),
            is_culprit=False,
            lateness_levels=bytes(
                data.draw(st.lists(st.sampled_from([0, 3, 7, 255]), min_size=2, max_size=2))
            ),
        )
        for row in base
    ]
    stages = {row.rank: (data.draw(st.integers(0, 2)),) for row in rows}
    for grouping in groupings(rows, stages, {}):
        assert list(range(24)) == sorted(rank for group in grouping.groups for rank in group.ranks)
        for group in grouping.groups:
            mine = [rows[rank] for rank in group.ranks]
            known = [row.caused_wait_s for row in mine if row.caused_wait_s is not None]
            assert group.caused_wait_s == (pytest.approx(sum(known)) if known else None)
            assert {row.rank for row in mine if row.is_outlier} == set(group.outliers)
            for step in range(2):
                levels = [row.lateness_levels[step] for row in mine if row.lateness_levels[step] != 255]
                assert max(levels, default=255) == group.lateness_levels[step]
