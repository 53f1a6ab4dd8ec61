"""The whole run above a page, and clicks that go to a step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from snapshot import views
from test_tui_navigator import Keyboard

from tuiadvisor.tui.contract.feed import ChooseSteps, SeekStep
from tuiadvisor.tui.control import ribbon
from tuiadvisor.tui.draw import bars, event_marks
from tuiadvisor.views import event
from tuiadvisor.views.event import Event
from tuiadvisor.views.run_view import PauseView


@pytest.fixture
def live() -> Keyboard:
    return Keyboard(views.live(views.straggler()))


@pytest.mark.parametrize("key", [*"1234567", "d", "W", "E", "K", "Z", "F", "?"])
def test_the_whole_run_stands_on_every_screen_of_it_and_goes_with_its_key(live: Keyboard, key: str) -> None:
    """On 80x24 two rows above figures of the run, one above texts, lists and answers; 5 to 7, d and E had none."""
    before = live.press(key)
    chart, below = before.splitlines()[1:3]
    assert chart.startswith(" run ")
    assert set("▁▂▃▄▅▆▇█") & set(chart)
    is_in_one = "═" not in below
    assert is_in_one == (key not in "1234W")
    assert ("▲" in chart) == is_in_one
    assert ("[" in chart) == (is_in_one and live.place.page.of_run)
    assert " run  " not in live.press("H")
    assert live.press("H") == before


@pytest.mark.parametrize("key", ["0", "8"])
@pytest.mark.parametrize("size", [(80, 24), (160, 45)])
def test_lists_of_many_runs_have_none(live: Keyboard, key: str, size: tuple[int, int]) -> None:
    """Each row has the trend of its own run."""
    live.press(key)
    assert not any(row.text.startswith(" run ") for row in live.place.rows(*size))


@pytest.mark.parametrize("key", ["5", "6", "7"])
def test_a_tall_screen_has_it_above_what_speaks_of_the_run_as_a_whole(live: Keyboard, key: str) -> None:
    """Without brackets: those screens judge other steps than the window."""
    live.press(key)
    drawn = [row.text for row in live.place.rows(160, 45)]
    assert drawn[1].startswith(" run ")
    assert "[" not in drawn[2]
    assert "▲" in drawn[2]


def test_in_one_row_marks_stand_in_the_chart_and_the_rest_of_it_stays(live: Keyboard) -> None:
    """Cell by cell as in two rows: the mark where there is one, else the step."""
    state = live.place.state
    assert state.view is not None
    chart, marks = (
        row.text for row in ribbon.rows(state.view, 80, num_rows=ribbon.WITH_MARKS, with_brackets=False)
    )
    (only,) = ribbon.rows(state.view, 80, num_rows=ribbon.ALL_IN_ONE, with_brackets=False)
    for column in range(ribbon.HEAD, 80 - ribbon.TAIL):
        assert only.text[column] in {chart[column], marks[column]}
    assert only.text[80 - ribbon.TAIL :] == chart[80 - ribbon.TAIL :]
    assert only.text.count("▲") == marks.count("▲") > 0


def test_what_the_view_no_longer_holds_stays_on_it() -> None:
    """A view knows the marks of the steps it holds: an onset of hours ago left the ribbon, and captures never came."""
    view = views.straggler()
    trend = replace(view.trend, first_step=0, marks=())
    later = replace(view, trend=trend, pauses=())
    told = (
        Event("onset", 60, (2,), "Rank 2 reads its data late"),
        Event("resolved", 90, (2,), "Rank 2 reads its data late", by_then=True),
        Event("capture", 120, (2,), "the profiler saw steps 120\u2013122"),
        Event("bookmark", 180, (), ""),
        Event("checkpoint", 240, (), "4.1 s"),
        Event("onset", 9_999, (1,), "of a step that is not drawn"),
    )
    bare = ribbon.rows(later, 200)
    drawn = ribbon.rows(later, 200, events=told)
    assert not set("▲*bC") & set(bare[1].text)
    marks = drawn[1].text[ribbon.HEAD :]
    assert [marks.count(each) for each in "▲*bC"] == [1, 1, 1, 1]
    assert marks.index("▲") < marks.index("*") < marks.index("b") < marks.index("C")
    for said in (
        "step 60 Rank 2 reads its data late",
        "step 120 capture",
        "step 180 bookmark",
        "step 240 checkpoint",
    ):
        assert said in drawn[2].text
    assert "9,999" not in drawn[2].text


def test_the_row_of_events_says_of_changes_where_they_are_listed() -> None:
    """It said "none at a known step" below thirteen marks, and E listed thirteen events."""
    view = views.straggler()
    trend = replace(view.trend, first_step=0, marks=())
    bare = replace(view, trend=trend, pauses=())
    told = (
        Event("change", 60, (2,), "rank 2 works 9 ms more"),
        Event("change", 90, (), "a step is 2 ms longer"),
    )
    said = ribbon.rows(bare, 120, events=told)[2].text
    assert "2 changes of the job's pace, the last at step 90: E lists them" in said
    assert "none at a known step" in ribbon.rows(bare, 120)[2].text
    with_onset = (*told, Event("onset", 70, (2,), "Rank 2 reads its data late"))
    assert "step 70 Rank 2 reads its data late" in ribbon.rows(bare, 120, events=with_onset)[2].text


def test_while_a_recording_is_read_no_absence_is_told_as_a_fact() -> None:
    """It said "none at a known step" of hours that it had not read yet."""
    view = views.straggler()
    bare = replace(view, trend=replace(view.trend, first_step=0, marks=()), pauses=())
    said = ribbon.rows(bare, 120, share_read=0.349)[2].text
    assert "still reading the recording: 34 %: later events are not known yet" in said
    assert "none" not in said
    read = ribbon.rows(view, 200, share_read=0.9999)[2].text  # what is known already stays beside it
    assert read.strip().endswith("still reading the recording: 99 %: later events are not known yet")
    assert view.trend.marks[0][1] in read


def test_a_beginning_that_is_dated_anew_is_told_once() -> None:
    """The list keeps the first date, the view has the better one."""
    view = views.straggler()
    ((step, name),) = view.trend.marks
    told = (Event("onset", step - 2, (2,), name),)
    assert 1 == ribbon.rows(view, 200, events=told)[2].text.count(name)


def test_what_was_there_when_it_was_first_seen_is_said_to_have_begun_then_or_before() -> None:
    """The list of events says "by": the ribbon gave the step as that of the beginning."""
    view = views.straggler()
    told = (Event("onset", 60, (), "Oversubscribed host", by_then=True),)
    assert "step 60 or before: Oversubscribed host" in ribbon.rows(view, 200, events=told)[2].text


def test_on_a_low_screen_it_is_the_chart_of_the_step(live: Keyboard) -> None:
    """Nothing is drawn twice on 24 rows; without it the chart comes back."""
    assert not any("███" in row for row in live.draw().splitlines()[3:])
    assert any("███" in row for row in live.press("H").splitlines()[1:])


def test_a_tall_screen_names_the_events(live: Keyboard) -> None:
    """There is room for it; a very low one has no ribbon."""
    assert any(row.text.startswith(" events") for row in live.place.rows(200, ribbon.TALL))
    assert not any(row.text.startswith(" events") for row in live.place.rows(200, ribbon.TALL - 1))
    assert not any(row.text.startswith(" run ") for row in live.place.rows(200, ribbon.LOWEST - 1))


@pytest.mark.parametrize("width", [60, 80, 200])
def test_it_marks_findings_pauses_and_the_steps_of_the_figures(width: int) -> None:
    """The finding covers what lies on the same column; brackets stand around the window."""
    view = views.straggler()
    drawn = ribbon.rows(view, width)
    assert [True] * 3 == [len(row.text) <= width for row in drawn]
    marks = drawn[1].text
    assert marks.count("▲") == len(view.trend.marks)
    assert marks.index("[") < marks.index("]")
    assert "step 222 rank 2 late" in drawn[2].text


@pytest.mark.parametrize("width", [60, 80, 200])
def test_where_events_have_no_row_each_mark_has_its_name(width: int) -> None:
    """Beside its arrow, as far as nothing else stands there; the brackets stay."""
    view = views.straggler()
    plain, named = (
        ribbon.rows(view, width)[1].text,
        ribbon.rows(view, width, num_rows=ribbon.WITH_MARKS)[1].text,
    )
    assert "222 rank 2 late" in named
    assert [plain.index(each) for each in "▲[]"] == [named.index(each) for each in "▲[]"]
    close = tuple((step, "rank 2 late") for step in range(200, 224, 4))
    crowded = ribbon.rows(
        replace(view, trend=replace(view.trend, marks=close)), width, num_rows=ribbon.WITH_MARKS
    )
    assert crowded[1].text.count("▲") >= 2


def test_each_pause_is_named_once_with_its_own_length() -> None:
    """Not with the mean of two, which neither took; the mark of the same pause is no second event."""
    view = views.straggler()
    paused = PauseView(
        "irregular", (3,), (150, 210), (27.0, 17.0), None, 22.0, 44.0, 0.3, "backward", "stopped"
    )
    marks = ((150, "pause, rank 3"), (210, "pause, rank 3"))
    told = replace(view, pauses=(paused,), trend=replace(view.trend, marks=marks))
    events = ribbon.rows(told, 200)[2].text.strip()
    assert events == "events step 150 pause 27.0 s · step 210 pause 17.0 s"


def test_nothing_is_drawn_before_the_first_step() -> None:
    """No step, no run to show."""
    view = views.straggler()
    assert ribbon.rows(replace(view, trend=replace(view.trend, step_s=())), 80) == []


def test_a_jump_is_never_lost_and_nothing_moves_until_it_is_full() -> None:
    """One long bucket among many is drawn; a further value changes its own column alone."""
    values = [1.0] * 200
    values[101] = 9.0
    narrow = bars.RibbonScale(len(values), 20, is_full=False)
    assert max(value or 0.0 for value in narrow.columns(values)) == 9.0
    former = bars.RibbonScale(len(values), 60, is_full=False).columns(values)
    later = bars.RibbonScale(len(values) + 1, 60, is_full=False).columns([*values, 1.0])
    assert former == later[: len(former)]


def test_a_column_leads_to_the_step_that_is_drawn_there() -> None:
    """There and back; a column of the future leads nowhere, and a run that is over has none."""
    for is_full in (False, True):
        scale = bars.RibbonScale(150, 240, is_full=is_full)
        for value in range(150):
            found = scale.value_at(scale.column_of(value))
            assert found is not None
            assert abs(found - value) <= 1
        assert (scale.value_at(239) is None) == (not is_full)


@pytest.mark.parametrize("num_steps", [1, 30, 143, 256, 900])
def test_the_ribbon_of_a_run_that_is_over_takes_the_whole_width(num_steps: int) -> None:
    """It ended in the middle of the row, and the newest step stood at the end of it."""
    view = views.straggler()
    trend = replace(view.trend, first_step=0, steps_per_bucket=1, step_s=(0.03,) * num_steps, marks=())
    over = replace(view, trend=trend, ended="run finished", last_step=num_steps - 1, pauses=())
    chart = ribbon.rows(over, 118)[0].text
    room = 118 - ribbon.HEAD - ribbon.TAIL
    assert " " not in chart[ribbon.HEAD : ribbon.HEAD + room]
    assert ribbon.step_at(over, trend, ribbon.HEAD + room - 1, 118) == (room - 1) * num_steps // room


def test_a_click_on_the_ribbon_goes_to_that_step(live: Keyboard) -> None:
    """On the mark it goes to where the finding began."""
    row = next(
        number for number, each in enumerate(live.place.drawn) if "▲" in each.text and "[" in each.text
    )
    live.place.click(row, live.place.drawn[row].text.index("▲"))
    (asked,) = live.shell.asked
    assert isinstance(asked, SeekStep)
    assert abs(asked.step - 222) <= live.place.state.view.trend.steps_per_bucket * 2  # type: ignore[union-attr]


def test_a_drag_over_the_ribbon_chooses_the_steps_below_it(live: Keyboard) -> None:
    """Either way; within one column it is a click, and beside the ribbon nothing."""
    view = live.place.state.view
    assert view is not None
    row = live.place.ribbon_row
    for begin, end in ((20, 40), (40, 20)):
        assert live.place.drag((row, begin), (row + 1, end))
    assert live.shell.asked[0] == live.shell.asked[1]
    asked = live.shell.asked[0]
    assert isinstance(asked, ChooseSteps)
    assert view.trend.first_step < asked.first_step < asked.last_step <= (view.last_step or 0)
    assert not live.place.drag((row, 20), (row, 21))
    assert not live.place.drag((row, 20), (row + 9, 40))


def test_a_click_on_a_cell_of_the_heat_map_goes_to_its_step_and_elsewhere_opens_the_rank(
    live: Keyboard,
) -> None:
    """The map's first known column is its first step; a click before the map opens the rank."""
    live.press("2")
    view = live.place.state.view
    assert view is not None
    row = next(number for number, each in enumerate(live.place.drawn) if each.target == ("rank", "2"))
    column = live.place.drawn[row - 3].text.index("lateness")
    live.place.click(row, column + 2)
    (asked,) = live.shell.asked
    assert isinstance(asked, SeekStep)
    # The last known cell of the row is the newest step of the map: what lies right of the click leads there.
    cells = live.place.drawn[row].text[column:].rstrip()
    newest = (view.heat_first_step or 0) + len(view.ranks[0].lateness_levels) - 1
    assert asked.step == newest - (len(cells) - 1) + 2
    live.place.click(row, 4)
    assert live.page == "rank"


def test_no_step_before_the_first_is_named() -> None:
    """Ranks that were met at different steps may begin before the count of all."""
    view = views.straggler()
    early = replace(view, trend=replace(view.trend, first_step=-1))
    assert ribbon.rows(early, 80)[1].text.split()[0] == "0"


def test_of_a_stall_it_ends_at_the_step_of_the_header() -> None:
    """The last steps before it may not have been told yet: 425 and 421 stood above each other."""
    view = views.stalled()
    assert view.stall is not None
    ahead = replace(view, stall=replace(view.stall, step=(view.last_step or 0) + 4))
    drawn = [row.text for row in Keyboard(views.live(ahead)).place.rows(80, 24)]
    below = next(row for row, above in zip(drawn[1:], drawn, strict=False) if above.startswith(" run "))
    assert drawn[0].split()[-1] == below.split()[-1]


@pytest.mark.parametrize("kind", [each for each in event_marks.MARKS if event_marks.on_ribbon(each)])
def test_what_marks_an_event_on_the_ribbon_marks_it_in_the_list(kind: str) -> None:
    """Pauses, checkpoints and bookmarks were letters above and dots in the list."""
    view = views.straggler()
    view = replace(view, trend=replace(view.trend, first_step=0, marks=()), pauses=())
    state = replace(views.live(view), events=(Event(kind, 200, (2,), "words"),))
    above = ribbon.rows(view, 200, events=state.events)[1].text[ribbon.HEAD :]
    listed = next(row for row in Keyboard(state).press("E").splitlines() if f" {kind} " in row)
    mark = event_marks.MARKS[kind].glyph
    assert mark in above
    assert listed.split()[4] == mark


def test_every_kind_of_event_has_a_mark() -> None:
    """One without it would end the screens as it comes."""
    kinds = {value for name, value in vars(event).items() if name.isupper() and isinstance(value, str)}
    assert event_marks.MARKS.keys() == kinds | set(event.PAUSE_KINDS.values())
