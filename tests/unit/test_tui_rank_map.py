"""The map of ranks by steps: its value, its cursor, and the late rank on the screen whatever the number of ranks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from snapshot import views
from synthetic_run import HOOKED, Fault, Job, folded, frames, on_devices
from test_tui_navigator import Keyboard
from thinned import crossed

from tuiadvisor.advisor.assemble.step_maps import step_maps
from tuiadvisor.phases import EVERY_STEP
from tuiadvisor.tui.contract.feed import SeekStep
from tuiadvisor.tui.pages import overview
from tuiadvisor.tui.pages.ranks import Ranks
from tuiadvisor.views.run_view import RunView
from tuiadvisor.views.step_map import UNKNOWN_LEVEL, StepMap

LATE = Job(num_ranks=4, num_steps=160, faults=(Fault("data", (2,), 0.02, onset=100),))


def map_of(view: RunView, phase: str, clock: str = "host") -> StepMap:
    """The one map of this value."""
    (found,) = [each for each in view.step_maps if (each.phase, each.clock) == (phase, clock)]
    return found


def test_each_observed_phase_has_a_map_in_the_columns_of_lateness() -> None:
    """The rank that reads its data late is high in data wait from that step on, and typical before and elsewhere."""
    view = folded(frames(LATE)).view()
    waits = map_of(view, "data_wait")
    levels, first = waits.of((2,)), view.heat_first_step or 0
    assert len(levels) == len(view.ranks[2].lateness_levels)
    before, after = levels[: 100 - first], levels[101 - first :]
    assert max(before) <= 3 < min(after)
    assert max(waits.of((1,))[101 - first :]) <= 3
    spread = map_of(view, "forward")
    assert abs(np.median(list(spread.of((2,)))) - np.median(list(spread.of((1,))))) <= 1


def test_a_phase_that_nobody_observed_has_no_map() -> None:
    """Never a row of zeros in its place; copies, pauses and idling are not in this job."""
    view = folded(frames(LATE)).view()
    known = {phase for rank in view.ranks for phase, value in rank.seconds.items() if value is not None}
    assert {each.phase for each in view.step_maps} == known == {*EVERY_STEP} & {*HOOKED}


def test_on_devices_the_values_say_their_clock_and_input_is_the_threads() -> None:
    """Phases by the device's clock, and data wait by the host's beside them; each column has its own step."""
    view = folded(on_devices(frames(LATE))).view()
    assert view.clock == "device"
    assert {each.clock for each in view.step_maps if each.phase == "forward"} == {"device"}
    waits = map_of(view, "data_wait", "host")
    assert waits.num_steps == len(view.ranks[0].lateness_levels)
    assert max(waits.of((2,))[-10:]) > 3


def test_a_group_shows_its_highest_rank_and_unknown_only_where_nobody_is_known() -> None:
    """255 is the lowest, not the highest."""
    cells = StepMap("forward", "host", 1.0, 3, {4: 0, 9: 1}, bytes([1, 255, 255, 3, 0, 255]))
    assert cells.of((4, 9)) == bytes([3, 0, 255])
    assert cells.of((9,)) == bytes([3, 0, 255])
    assert cells.of((5,)) == bytes([UNKNOWN_LEVEL] * 3)


def test_one_pause_does_not_flatten_the_others() -> None:
    """The top is what a rank usually takes at most: a single long step fills its cell and no more."""
    table = folded(frames(LATE)).steps_of_job(0, 90)
    assert table is not None
    phase = table[0].phase_s_PRK
    phase[2, 1, 50] = 30.0
    (forward,) = [each for each in step_maps(table[0], "host") if each.phase == "forward"]
    assert forward.top_s < 0.1
    assert forward.of((1,))[50] == 7
    assert np.median(list(forward.of((0,)))) >= 2


@pytest.fixture
def board() -> Keyboard:
    keyboard = Keyboard(views.live(views.with_values(views.straggler())))
    keyboard.press("2")
    return keyboard


def row_of(keyboard: Keyboard, rank: int) -> str:
    """A rank's row on the screen."""
    return next(each.text for each in keyboard.place.drawn if each.target == ("rank", str(rank)))


def wide(keyboard: Keyboard) -> str:
    """The screen where there is room for the whole title."""
    return "\n".join(row.text for row in keyboard.place.rows(160, 45))


def cells(keyboard: Keyboard, rank: int) -> str:
    """A rank's cells of the map."""
    heat = keyboard.place.at(Ranks).heat
    return row_of(keyboard, rank)[heat.start : heat.start + heat.width].strip()


def test_v_changes_the_value_and_head_and_legend_say_which(board: Keyboard) -> None:
    """Lateness, data wait, backward, and round again; heights carry what colours do."""
    assert "very late" in board.draw()
    text = board.press("v")
    assert "the map shows data wait" in text
    assert "data wait in steps" in wide(board)
    assert "data wait 0 ._▂▃▄▅▆█ 20.0 ms or more" in text
    assert (set(cells(board, 2)), set(cells(board, 1))) == ({"▆"}, {"_"})
    assert "backward" in board.press("v")
    assert "very late" in board.press("v")


def test_v_leaves_the_map_of_phases(board: Keyboard) -> None:
    """One map at a time."""
    board.press("M")
    board.press("v")
    assert "data wait in steps" in wide(board)


def test_a_run_without_values_says_so() -> None:
    """Nothing changes silently."""
    keyboard = Keyboard(views.live(views.straggler()))
    assert "no phase of these steps was observed" in keyboard.press("2", "v")


def test_the_cursor_of_the_map_goes_to_its_step(board: Keyboard) -> None:
    """The newest cell first, then back; enter goes there once, then opens the row again."""
    view = board.place.state.view
    assert view is not None
    newest = (view.heat_first_step or 0) + len(view.ranks[0].lateness_levels) - 1
    text = board.press("<", "<", "<")
    assert f"step {newest - 2}" in text
    assert "▼" in text
    board.press("enter")
    assert board.shell.asked == [SeekStep(newest - 2)]
    board.press("down", "enter")
    assert board.page == "rank"


def test_the_cursor_stays_on_the_map(board: Keyboard) -> None:
    """It ends at both sides, and the arrow's column is the cell that a click would take."""
    view = board.place.state.view
    assert view is not None
    board.press(*["<"] * 200)
    head = board.place.drawn[board.place.body_row + 1].text
    board.place.click(board.place.body_row + 3, head.index("▼"))
    board.press("enter")
    clicked, entered = board.shell.asked
    assert clicked == entered
    assert "M shows steps" in board.press("M", ">")


def test_columns_that_are_no_consecutive_steps_lead_to_their_own() -> None:
    """On devices every fifth step may be measured."""
    view = views.with_values(views.straggler())
    steps = tuple(range(1000, 1000 + 5 * 120, 5))
    keyboard = Keyboard(views.live(replace(view, heat_first_step=1000, heat_steps=steps)))
    keyboard.press("2", "<", "<", "enter")
    assert keyboard.shell.asked == [SeekStep(steps[-2])]


@pytest.mark.slow
@pytest.mark.parametrize(("num_ranks", "size"), crossed([4, 64, 1024, 16384], [(80, 24), (160, 45)]))
def test_the_late_rank_is_on_the_screen_with_every_value(num_ranks: int, size: tuple[int, int]) -> None:
    """Also at the end of the list, and by its arrow, not by a colour."""
    view = views.with_values(views.grouped(views.many(num_ranks), 4))
    late = next(rank.rank for rank in view.ranks if rank.is_culprit)
    keyboard = Keyboard(views.live(view))
    for keys in (("2",), ("v",), ("G",), ("e", "G"), ("g",)):
        keyboard.press(*keys)
        shown = [row.text for row in keyboard.place.rows(*size)]
        assert any(row.lstrip("@ ").startswith("▶") and f" {late} " in row for row in shown), "\n".join(shown)


def test_the_overview_keeps_the_late_rank_among_many_that_are_lost() -> None:
    """A hundred killed ranks with lower numbers do not take its row."""
    view = views.many(1024)
    ranks = tuple(replace(rank, state="killed") if rank.rank < 100 else rank for rank in view.ranks)
    rows = overview.rank_block(replace(view, ranks=ranks), 78, 8)
    assert rows[0].text.startswith("▶")
