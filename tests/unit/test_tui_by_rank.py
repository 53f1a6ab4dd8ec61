"""What a tall terminal has room for below the chain and the communication of a step: each rank, and the last steps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from snapshot import views
from test_tui_navigator import Keyboard

from tuiadvisor.text.line import length
from tuiadvisor.tui.pages import by_rank
from tuiadvisor.views.devices import RankDevice

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.text.line import Line
    from tuiadvisor.views.run_view import RunView

BLOCKS = (
    by_rank.chain_of_ranks,
    by_rank.devices_of_ranks,
    by_rank.waits_of_ranks,
    by_rank.links_over_steps,
)


def with_comm(view: RunView) -> RunView:
    """Also the exposed communication of each step."""
    made = views.with_values(view)
    told = tuple(RankDevice(row.rank, 0.49, 0.1, 0.2, 0.99, 1980.0, 438.0, 0.0) for row in view.ranks)
    made = replace(made, rank_devices=told)
    return replace(made, step_maps=(*made.step_maps, replace(made.step_maps[0], phase="comm_exposed")))


FEW, MANY = with_comm(views.straggler()), with_comm(views.many(1024))


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("view", [FEW, MANY, views.unknown_everything(), views.too_early()])
def test_no_more_is_drawn_than_there_is_room_for(
    block: Callable[[RunView, int, int], list[Line]], view: RunView
) -> None:
    """Whatever the size: nothing on top of other rows or beyond the width, and no head alone."""
    for width in (78, 98, 158, 198):
        for rows in range(-3, 30):
            drawn = block(view, width, rows)
            assert len(drawn) <= max(rows, 0)
            assert not drawn or len(drawn) > 2
            assert all(length(row) <= width for row in drawn)


def test_whom_the_verdict_names_is_among_the_ranks_that_have_room() -> None:
    """Of 1,024 there are a few rows; how many are left out is said."""
    named = next(row.rank for row in MANY.ranks if row.is_culprit)
    for block in (by_rank.chain_of_ranks, by_rank.waits_of_ranks, by_rank.devices_of_ranks):
        drawn = block(MANY, 158, 9)
        shown = {row.target[1] for row in drawn if row.target}
        shown = shown or {first for row in drawn if (first := row.text.split()[0]).isdecimal()}
        assert str(named) in shown
        assert f"and {1024 - len(shown):,} more ranks" in drawn[-1].text


def test_no_more_rows_of_cells_are_drawn_than_a_slow_line_carries() -> None:
    """Each cell changes: twenty rows took 7 kB/s."""
    for block in (by_rank.waits_of_ranks, by_rank.links_over_steps):
        assert len(block(MANY, 198, 40)) <= 2 + by_rank.MOST_MAPPED + 1


def test_tall_screens_tell_of_each_rank_what_low_ones_have_no_room_for() -> None:
    """The lower half of 3 and a third of 4 were empty at 160x45."""
    for key, title in (
        ("3", "the chain on each rank"),
        ("3", "longest links over the last steps"),
        ("4", "waiting of each rank"),
    ):
        keyboard = Keyboard(views.live(FEW))
        assert title not in keyboard.press(key)
        tall = [row.text for row in keyboard.place.rows(160, 45)]
        assert any(title in row for row in tall)
        assert len([row for row in tall if not row.strip()]) < 20


def test_nothing_compared_yet_leaves_room_for_the_run_itself() -> None:
    """Two thirds of 7 were empty at 160x45."""
    keyboard = Keyboard(views.live(FEW))
    keyboard.press("7")
    tall = "\n".join(row.text for row in keyboard.place.rows(160, 45))
    assert "this run as it is now" in tall
    assert "its step time" in tall


def test_of_a_recording_nothing_is_said_to_be_asked_of_its_ranks() -> None:
    """“press D to see each call of the next 3 s” stood on screen 4 of a replay, where D does nothing."""
    unseen = replace(FEW, overlap=replace(FEW.overlap, comm_total_s=None))
    for state, is_live in ((views.live(unseen), True), (views.replay(unseen), False)):
        keyboard = Keyboard(state)
        keyboard.press("4")
        shown = "\n".join(row.text for row in keyboard.place.rows(160, 45))
        assert is_live == ("press D" in shown)
        assert "tuiadvisor import kineto DIR" in shown


@pytest.mark.parametrize("view", [FEW, with_comm(views.healthy())])
def test_below_few_ranks_stand_one_of_them_the_phases_and_the_devices_of_all(view: RunView) -> None:
    """Two thirds of screen 2 were empty where nobody was late, a third where one was."""
    keyboard = Keyboard(views.live(view))
    keyboard.press("2")
    tall = "\n".join(row.text for row in keyboard.place.rows(160, 58))
    assert "where its step goes" in tall
    assert "the phases of each rank" in tall
    assert "the device of each rank" in tall
    assert "438 W" in tall
    keyboard.press("M")
    assert "the phases of each rank" not in "\n".join(row.text for row in keyboard.place.rows(160, 58))


def test_without_kernels_stands_what_was_seen_of_the_devices() -> None:
    """K said where kernels come from, in two of 45 rows; of a trace it has its kernels."""
    keyboard = Keyboard(views.live(FEW))
    keyboard.press("K")
    tall = "\n".join(row.text for row in keyboard.place.rows(160, 45))
    assert "No kernels" in tall
    assert "the phases of each rank" in tall
    assert "the device of each rank" in tall
    traced = Keyboard(views.live(views.traced()))
    traced.press("K")
    assert "the phases of each rank" not in "\n".join(row.text for row in traced.place.rows(160, 45))


@pytest.mark.parametrize("width", range(100, 170))
def test_the_last_phase_is_never_cut(width: int) -> None:
    """Its figure ended in "µ…" at every seventh width: the gap behind the last column took a cell too many."""
    rows = by_rank.phases_of_ranks(views.straggler(), width, 20)
    assert not [row.text for row in rows if "…" in row.text]
