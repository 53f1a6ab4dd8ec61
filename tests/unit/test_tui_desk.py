"""The screens beside the run: the list of recordings, and the comparison of two."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from snapshot import desks, views
from unit.test_tui_navigator import Keyboard
from unit.test_tui_pages import SIZES, screen

from tuiadvisor.scaling.cost import Aim
from tuiadvisor.text.wording import reasons
from tuiadvisor.tui.contract.desk import (
    Advise,
    Answer,
    Compare,
    DeskCommand,
    GoLive,
    ListRuns,
    MarkedBefore,
    NudgeSize,
    OpenRun,
    Scale,
    StateSize,
    WantRuns,
)
from tuiadvisor.tui.control.app import Screens
from tuiadvisor.tui.pages.runs import Runs
from tuiadvisor.views.prospect import Prospect

STATES = {
    "runs": (desks.desk(), ("8", "down", "m")),
    "runs replayed": (desks.desk(open_path="/runs/before.tuirec"), ("8",)),
    "nothing compared": (desks.desk(open_path="/runs/after.tuirec"), ("7", "down")),
    "compare": (desks.desk(comparison=desks.comparison()), ("7",)),
    "scaling": (desks.desk(scaling=desks.sized()), ("6", "down")),
    "scaling of one run": (desks.desk(scaling=desks.bounded()), ("6",)),
    "scaling without data": (desks.desk(scaling=desks.unsized()), ("6",)),
    "advisor": (desks.desk(session=desks.guided_session()), ("5", "enter")),
}


@pytest.fixture
def keyboard() -> Keyboard:
    return Keyboard(views.live(views.straggler()), desk=desks.desk())


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", STATES)
def test_it_fits(name: str, size: tuple[int, int]) -> None:
    """In every size no row is too wide and none too many."""
    desk, keys = STATES[name]
    assert screen(views.live(views.straggler()), *size, keys=keys, desk=desk)


def test_the_list_says_what_is_known_of_each_row(keyboard: Keyboard) -> None:
    """Read, being read, unread, without a step, broken: each in its own words; the selected one below."""
    text = keyboard.press("8")
    assert [ListRuns()] == keyboard.shell.asked
    for part in (
        "✓ keep",
        "◆ tune",
        "reading …",
        "not read yet",
        "… not yet",
        "no recording: it begins",
        "live  train.py",
    ):
        assert part in text
    assert "no loss found is worth acting on" in text
    assert ("/runs/old.tuirec",) == keyboard.place.wanted_runs()
    keyboard.press("1")
    assert () == keyboard.place.wanted_runs()


def test_search_keeps_the_rows_with_all_words(keyboard: Keyboard) -> None:
    """Name, job and verdict are searched; escape clears the search, then leaves."""
    text = keyboard.press("8", "/", *"train tune")
    assert "before" in text
    assert "torn" not in text
    assert "1 of 6 recordings" in text
    assert "contains" in keyboard.press("x", "x")
    assert "torn" in keyboard.press("escape")
    keyboard.press("/", "o", "l", "d", "enter", "escape")
    assert "" == keyboard.place.at(Runs).filter
    keyboard.press("escape")
    assert "overview" == keyboard.page


def test_a_mark_goes_on_to_the_next_row_and_says_so(keyboard: Keyboard) -> None:
    """m, down, m marked the first and the third, and no word said that m had moved the cursor."""
    assert "m Mark ↓" in keyboard.press("8", "down")
    first = keyboard.place.at(Runs).cursor
    text = keyboard.press("m")
    assert "is marked, the cursor on the next row: m marks another, c compares" in text
    assert first != keyboard.place.at(Runs).cursor
    keyboard.press("m")
    assert 2 == len(keyboard.place.at(Runs).marked)
    keys = (Path(__file__).parents[2] / "docs" / "keys.md").read_text(encoding="utf-8")
    assert "mark and go to the next row" in keys


def test_enter_opens_a_recording_and_the_live_row_leads_back(keyboard: Keyboard) -> None:
    """The overview follows; v does the same from anywhere once a recording is open."""
    keyboard.press("8", "down", "enter")
    assert OpenRun("/runs/before.tuirec") == keyboard.shell.asked[-1]
    assert "overview" == keyboard.page
    keyboard.place.take_desk(desks.desk(open_path="/runs/before.tuirec"))
    keyboard.press("8", "g", "enter")
    assert GoLive() == keyboard.shell.asked[-1]
    keyboard.press("2", "V")
    assert [GoLive()] * 2 == keyboard.shell.asked[-2:]


@pytest.mark.parametrize("keys", [("m", "m", "c"), ("down", "m", "up", "up", "m", "c")])
def test_two_marked_recordings_are_compared_the_older_one_as_before(
    keyboard: Keyboard, keys: tuple[str, ...]
) -> None:
    """In whichever order they were marked: m m took the mark away again, and the one marked first was before."""
    assert "none is so far" in keyboard.press("8", "c")
    text = keyboard.press(*keys[:-1])
    assert "c compares before (before) with after (after)" in text
    assert "1 before: before · 2 after: after" in text
    keyboard.press("c")
    assert Compare("/runs/before.tuirec", "/runs/after.tuirec") == keyboard.shell.asked[-1]
    assert "compare" == keyboard.page


def test_one_mark_is_not_enough_and_marking_again_takes_it_away(keyboard: Keyboard) -> None:
    """A third mark replaces the first; what has no recording cannot be marked."""
    assert "* marked: after" in keyboard.press("8", "m")
    assert "1 is so far" in keyboard.press("c")
    assert "after is no longer marked" in keyboard.press("up", "m")
    keyboard.press("m", "m", "m")
    assert ["/runs/before.tuirec", "/runs/node/pretrain-7b.tuirec"] == keyboard.place.at(Runs).marked
    assert "choose a recording first" in keyboard.press("g", "m")


def test_a_run_that_ended_undecided_is_open_not_to_be_waited_for(keyboard: Keyboard) -> None:
    """An import that nobody can wait for had "not yet" in the list."""
    after = replace(desks.desk().runs[0], decision=None, ended="run finished")
    for entry, word in ((after, "… open"), (replace(after, ended=""), "… not yet")):
        keyboard.place.take_desk(replace(desks.desk(), runs=(entry,)))
        assert word in keyboard.press("1", "8")


def test_what_an_open_verdict_says_is_not_its_reason_once_more() -> None:
    """The sentence stood again behind "because"."""
    said = "Ranks only send, as stages do: nothing tells who is late. Not decided: no micro-batch is named."
    told = "no micro-batch is named, and the trace has no more; the import: ranks only send, as stages do"
    verdict = replace(views.straggler().verdict, decision=None, sentence=said, because=told)
    assert reasons(verdict) == ""
    assert reasons(replace(verdict, because=f"one rank alone; {told}")) == "one rank alone"
    assert reasons(replace(verdict, decision="tune")) == told


def test_newer_recordings_of_other_jobs_hide_none_of_the_same(keyboard: Keyboard) -> None:
    """It said "none beside this one" with four in the folder: the newest 16 were imports."""
    after, before = desks.desk().runs[:2]
    others = tuple(replace(after, path=f"/runs/{number}.tuirec", label="trace.json") for number in range(20))
    entries = (after, *others, before)
    folder = replace(desks.desk(open_path=after.path), runs=entries)
    keyboard.place.take_desk(folder)
    shown = keyboard.press("1", "7")
    assert "before  " in shown
    assert "none beside this one" not in shown
    unread = tuple(replace(entry, state="unread", label="") for entry in others)
    keyboard.place.take_desk(replace(folder, runs=(after, *unread, before)))
    keyboard.press("1", "7")
    assert len(keyboard.place.wanted_runs()) == 16


def test_without_a_comparison_the_job_s_other_recordings_are_at_hand(keyboard: Keyboard) -> None:
    """Those of the same job; enter compares in the order of the files' ages, whichever of the two is shown."""
    assert "other recordings" not in keyboard.press("7")
    for shown, other in (("after", "before"), ("before", "after")):
        keyboard.place.take_desk(desks.desk(open_path=f"/runs/{shown}.tuirec"))
        text = keyboard.press("1", "7")
        assert "other recordings of train.py" in text
        assert "2 of 5 not read yet" in text
        assert f"{other}  " in text
        assert "short" not in text  # no step was seen of it
        assert ("/runs/old.tuirec",) == keyboard.place.wanted_runs()
        keyboard.press("home", "enter")
        assert Compare("/runs/before.tuirec", "/runs/after.tuirec") == keyboard.shell.asked[-1]
    keyboard.place.take_desk(desks.desk(comparison=desks.comparison(), open_path="/runs/after.tuirec"))
    assert "other recordings" not in keyboard.press("1", "7")
    assert () == keyboard.place.wanted_runs()


def test_comparing_looks_for_recordings_where_none_were_looked_for() -> None:
    """The list is asked for once, by the screen that needs it first."""
    keyboard = Keyboard(views.live(views.straggler()), desk=replace(desks.desk(), runs=()))
    keyboard.press("7")
    assert [ListRuns()] == keyboard.shell.asked


def test_the_seventh_screen_says_what_b_marked_and_what_follows(keyboard: Keyboard) -> None:
    """The run and its step, and how far the live one is on its way to being compared."""
    marked = MarkedBefore("old/before.tuirec", "train.py", 119, 400)
    keyboard.place.take_desk(desks.desk(before=(marked,)))
    text = keyboard.press("7")
    assert "old/before.tuirec (train.py), marked at step 119" in text
    seen = views.straggler().window.num_steps
    assert f"with it after 400 steady steps: {seen} so far" in " ".join(text.split())
    keyboard.place.take_desk(desks.desk(before=(replace(marked, is_live=True),)))
    assert "It is this run." in keyboard.press("1", "7")
    other = replace(marked, label="other.py")
    keyboard.place.take_desk(desks.desk(before=(other,)))
    assert "The next recorded run of other.py" in keyboard.press("1", "7")
    keyboard.place.take_desk(desks.desk(before=(marked, other)))  # of two marks that of the job that is shown
    assert "(train.py), marked at step 119" in keyboard.press("1", "7")


def test_a_comparison_says_how_far_the_live_run_was_and_is_made_anew_with_u(keyboard: Keyboard) -> None:
    """Else a frozen picture looks like the present."""
    keyboard.place.take_desk(desks.desk(comparison=desks.comparison()))
    assert "of the live run up to" not in keyboard.press("7")
    keyboard.place.take_desk(desks.desk(comparison=desks.comparison(), compared_step=250))
    assert "of the live run up to step 250; made anew" in " ".join(keyboard.press("1", "7").split())
    found = desks.comparison()
    assert "at once" not in keyboard.draw()
    # Four seconds later the former steps stood there still: to read both takes as long as it takes.
    assert "until then this is the former comparison" in keyboard.press("u")
    assert Compare(found.before.path, found.after.path) == keyboard.shell.asked[-1]


def test_a_comparison_of_others_says_so_under_the_header_of_what_is_open(keyboard: Keyboard) -> None:
    """With another recording opened it stood there as if it were of that."""
    found = desks.comparison()

    def shown(**changes: object) -> str:
        keyboard.place.take_desk(desks.desk(comparison=found, **changes))
        return " ".join(keyboard.press("1", "7").split())

    assert "Of two others, not of third.tuirec, which is open" in shown(open_path="/runs/third.tuirec")
    assert "Of two recordings, not of the live run" in shown()
    assert "Of two " not in shown(open_path=found.after.path)
    assert "Of two " not in shown(compared_step=250)


def test_a_comparison_can_be_turned_round(keyboard: Keyboard) -> None:
    """Nothing yet: what to do; then w asks for after against before."""
    assert "Nothing compared yet" in keyboard.press("7")
    assert "nothing is compared yet" in keyboard.press("w")
    keyboard.place.take_desk(desks.desk(comparison=desks.comparison()))
    text = keyboard.press("7") + keyboard.press("pagedown")
    for part in ("▼ IMPROVED", "A step takes 16.9 ms instead of 28.6 ms", "note:", "-3.00 ms *"):
        assert part in text
    keyboard.press("w")
    assert Compare("/runs/after.tuirec", "/runs/before.tuirec") == keyboard.shell.asked[-1]


def advising(**answers: str | float) -> Keyboard:
    keyboard = Keyboard(views.live(views.straggler()), desk=desks.desk(session=desks.guided_session(answers)))
    keyboard.press("5")
    return keyboard


def test_the_session_is_walked_with_the_arrow_keys() -> None:
    """Left and right change the pattern, up and down the question; the decision stays in sight."""
    keyboard = advising()
    assert [Advise()] == keyboard.shell.asked
    text = keyboard.draw()
    for part in ("P1 Bottlenecks are inevitable", "▶1 Bottleneck", "saved in", "decision", "◆ TUNE"):
        assert part in text
    assert "P2 Amortized overheads" in keyboard.press("right")
    assert "P6 Cost is a first-class" in keyboard.press("right", "right", "right", "right", "right", "right")
    assert "P5 Optimization costs" in keyboard.press("left")
    assert "enter answers:" in keyboard.press("down")


def test_enter_asks_what_is_open_and_goes_on() -> None:
    """From answer to answer without another key; a choice by its number; empty skips; esc stops."""
    keyboard = advising()
    keyboard.press("right", "right")
    first = keyboard.press("down", "enter")
    assert "1 time  2 efficiency  3 cost" in first
    prompt = keyboard.place.asking.prompt
    assert prompt is not None
    assert "cost" == prompt.typed  # stated in the intent: shown, and can be taken back
    keyboard.press("ctrl+u", "1", "enter")
    assert Answer("objective", "time") == keyboard.shell.asked[-1]
    assert keyboard.place.asking.prompt is None
    assert "last open question of this pattern" in keyboard.draw()
    keyboard.press("right", "right", "right")  # the first is stated, two are open
    keyboard.press("down", "down", "enter")
    assert keyboard.place.asking.prompt is not None
    num_asked = len(keyboard.shell.asked)
    keyboard.press("enter")  # the next one, nothing sent
    assert num_asked == len(keyboard.shell.asked)
    assert keyboard.place.asking.prompt is not None
    keyboard.press("escape")
    assert keyboard.place.asking.prompt is None


def test_an_answer_is_shown_as_stated() -> None:
    """With its unit, apart from what was measured."""
    keyboard = advising(effort_hours=4.0)
    keyboard.press("right", "right", "right", "right")
    assert "(stated)" in "\n".join(keyboard.press("down") for _ in range(4))


def test_what_is_sent_to_the_desk_is_in_the_contract(keyboard: Keyboard) -> None:
    """Names and types of values are those that Desk promises to take."""
    keyboard.press("8", "m", "m", "c", "8", "u", "enter", "V")
    assert {ListRuns, Compare, OpenRun} <= {type(command) for command in keyboard.shell.asked}
    assert all(isinstance(command, DeskCommand) for command in keyboard.shell.asked)


def test_answers_of_the_desk_are_said_once(keyboard: Keyboard) -> None:
    """In the footer, until the next one or for a few seconds."""
    keyboard.place.take_desk(desks.desk(answer="opened before", num_answers=1))
    assert "opened before" in keyboard.draw().splitlines()[-1]
    keyboard.now_s = 9.0
    keyboard.place.take_desk(desks.desk(answer="opened before", num_answers=1))
    assert "opened before" not in keyboard.draw()


async def test_the_application_asks_for_the_rows_on_its_screen() -> None:
    """Once a change, not once a tick."""
    desk = desks.FakeDesk(desks.desk())
    feed = views.FakeFeed(views.live(views.straggler()))
    app = Screens(feed, desk=desk, first_page="runs", theme="dark", ascii_only=False)
    async with app.run_test(size=(80, 24)) as pilot:
        app.take_state()
        app.take_state()
        await pilot.press("8")
    assert [WantRuns(("/runs/old.tuirec",)), ListRuns()] == desk.commands


async def test_without_a_desk_the_screens_say_so() -> None:
    """The list of a feed that has none."""
    app = Screens(views.FakeFeed(views.live(views.straggler())), theme="dark", ascii_only=False)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("8")
        assert "not available in these screens" in app.canvas.render_line(23).text


def test_each_key_of_scaling_changes_what_is_stated() -> None:
    """Enter types, left and right nudge, u looks again, up and down choose; the desk makes the next picture."""
    keyboard = Keyboard(views.live(views.straggler()), desk=desks.desk(scaling=desks.sized()))
    text = keyboard.press("6")
    assert [Scale()] == keyboard.shell.asked
    assert "RESCALE to 64 devices" in text
    assert "price of a device-hour" in keyboard.press("enter")
    keyboard.press("backspace", "backspace", "backspace", *"3.1", "enter")
    assert StateSize("price", "3.1") == keyboard.shell.asked[-1]
    keyboard.press("down", "right", "left")
    assert [NudgeSize("deadline", 1), NudgeSize("deadline", -1)] == keyboard.shell.asked[-2:]
    num_asked = len(keyboard.shell.asked)
    keyboard.press("enter", "escape")
    keyboard.press("enter", "enter")
    assert num_asked == len(keyboard.shell.asked), "nothing typed, nothing asked"
    keyboard.press("enter", "ctrl+u", "enter")
    assert StateSize("deadline", "") == keyboard.shell.asked[-1]
    keyboard.press("u")
    assert Scale() == keyboard.shell.asked[-1]
    assert "on scaling and cost" in keyboard.press("?")
    keyboard.press("escape", ":", *"scaling", "enter")
    assert "scaling" == keyboard.page
    assert "More" in keyboard.press("up").splitlines()[-1]
    keyboard.press("5", "6", "escape")
    assert "overview" == keyboard.page


@pytest.mark.parametrize("size", [(80, 24), (160, 45)])
def test_the_decision_about_the_size_is_whole_and_said_once(size: tuple[int, int]) -> None:
    """At 80 columns it ended in "..." below a badge with nothing beside it; at 160 it stood there twice."""
    held = desks.sized(Aim(), (64,), ((8, 100.0), (16, 52.0), (32, 28.0)))
    keyboard = Keyboard(views.live(views.straggler()), desk=desks.desk(scaling=held))
    keyboard.press("6")
    shown = " ".join(" ".join(row.text for row in keyboard.place.rows(*size)).split())
    assert held.because.endswith("of the preferences)")
    assert 1 == shown.count(held.because)


def test_scaling_without_curves_says_why_and_what_next() -> None:
    """Never an empty panel."""
    for state, part in (
        (desks.desk(), "not been looked at yet"),
        (desks.desk(scaling_note="reading before.tuirec: 43 %"), "43 %"),
        (desks.desk(scaling=desks.unsized()), "record this training at a second size"),
    ):
        assert part in " ".join(Keyboard(views.live(views.straggler()), desk=state).press("6").split())


def test_scaling_without_curves_shows_what_one_run_tells() -> None:
    """Two thirds of a tall screen were empty: its figures, and a step if one thing were changed."""
    prospect = Prospect(
        "rank 2 fixed", 0.0286, 0.0208, 0.02, 0.022, at_best=False, basis="what-if", share=0.73
    )
    view = replace(views.straggler(), prospects=(prospect,))
    keyboard = Keyboard(views.live(view), desk=desks.desk(scaling=desks.unsized()))
    keyboard.press("6")
    tall = "\n".join(row.text for row in keyboard.place.rows(160, 45))
    assert "this run as it is now" in tall
    assert "rank 2 fixed" in tall
    assert "this run as it is now" not in keyboard.draw()
    sized = Keyboard(views.live(view), desk=desks.desk(scaling=desks.sized()))
    sized.press("6")
    assert "as it is now" not in "\n".join(row.text for row in sized.place.rows(160, 45))


@pytest.mark.slow
async def test_scaling_in_the_application() -> None:
    """Keys by the names Textual gives them reach the desk."""
    beside = desks.FakeDesk(desks.desk(scaling=desks.sized()))
    app = Screens(views.FakeFeed(views.live(views.straggler())), theme="dark", ascii_only=False, desk=beside)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("6", "down", "down", "right", "enter", "ctrl+u", "2", "d", "enter", "u")
    asked = [command for command in beside.commands if not isinstance(command, WantRuns)]
    assert [
        Scale(),
        NudgeSize("deadline", 1),
        StateSize("deadline", "2d"),
        Scale(),
    ] == asked


def test_unknown_ranks_of_a_trace_are_a_whole_word() -> None:
    """The list cut it after five letters."""
    entry = replace(desks.runs()[0], world_size=None)
    board = Keyboard(views.live(views.straggler()), desk=replace(desks.desk(), runs=(entry,)))
    assert " unknown " in board.press("8")


def test_two_columns_of_unknown_figures_fit_beside_each_other() -> None:
    """A unit behind unknown took so much room that of each column after the first half of the figures was cut."""
    known = desks.comparison()
    before, after = (
        replace(
            side,
            rates=replace(side.rates, samples_s=None),
            unit=replace(side.unit, samples_per_step=None, input_shape="64x3x224x224"),
        )
        for side in (known.before, known.after)
    )
    found = replace(known, before=before, after=after)
    text = screen(views.live(views.straggler()), 120, 40, keys=("7",), desk=desks.desk(comparison=found))
    rows = {row[2:20].strip(): row[20:58] for row in text}
    assert "…" not in rows["throughput"] + rows["95th percentile"]
    assert rows["throughput"].split() == ["unknown", "unknown"]
    assert rows["model's input"].split() == ["64x3x224x224"] * 2
