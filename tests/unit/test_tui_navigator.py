"""Every key: what it does, and what it says where it cannot."""

from __future__ import annotations

from dataclasses import replace

import pytest
from snapshot import views
from textual._xterm_parser import XTermParser
from textual.events import Key

from tuiadvisor.preferences import Preferences
from tuiadvisor.tui.contract.desk import NO_DESK, DeskState
from tuiadvisor.tui.contract.feed import (
    Capture,
    End,
    FeedCommand,
    FeedState,
    NextFinding,
    Pause,
    PreviousFinding,
    Resume,
    SeekStep,
    Speed,
    Stacks,
    Step,
)
from tuiadvisor.tui.control.in_time import next_speed
from tuiadvisor.tui.control.navigator import Navigator
from tuiadvisor.tui.control.registry import command_table
from tuiadvisor.tui.pages import sections
from tuiadvisor.tui.pages.overview import Overview
from tuiadvisor.tui.pages.rank import RankPage
from tuiadvisor.tui.pages.ranks import Ranks
from tuiadvisor.views.run_view import Imported, Losses


class FakeShell:
    """Remembers what the navigator asked for."""

    def __init__(self) -> None:
        self.asked: list[object] = []
        self.left = 0
        self.redrawn = 0
        self.copied: list[str] = []
        self.preferred: list[Preferences] = []
        self.alerted: list[str] = []

    def alert(self, text: str) -> None:
        self.alerted.append(text)

    def ask(self, command: object) -> None:
        self.asked.append(command)

    def leave(self, *, back: bool = False) -> None:
        self.left += 1
        self.went_back = back  # whether by q

    def redraw(self) -> None:
        self.redrawn += 1

    def to_shell(self) -> str:
        return "no shell"

    def next_theme(self) -> str:
        return "light"

    def prefer(self, preferences: Preferences) -> None:
        self.preferred.append(preferences)

    def copy(self, text: str) -> str:
        self.copied.append(text)
        return "copied"

    def picture(self) -> str:
        return "saved"


class Keyboard:
    """A navigator on 80x24 that is drawn after each key, as the application does."""

    def __init__(self, state: FeedState, intro: str | None = None, desk: DeskState = NO_DESK) -> None:
        self.shell = FakeShell()
        self.now_s = 0.0
        self.place = Navigator(self.shell, state, intro=intro, clock=lambda: self.now_s)
        self.place.take_desk(desk)
        self.draw()

    def draw(self) -> str:
        """Return the screen as text."""
        return "\n".join(row.text for row in self.place.rows(80, 24))

    def press(self, *keys: str) -> str:
        """Press keys; a single character is typed. Return the screen."""
        for key in keys:
            character = key if len(key) == 1 else " " if key == "space" else None
            self.place.key(key, character)
            self.draw()
        return self.draw()

    @property
    def page(self) -> str:
        return self.place.page.name

    @property
    def order(self) -> list[int]:
        """The ranks that have a row."""
        return self.place.at(Ranks).order(self.place.state.view)


@pytest.fixture
def live() -> Keyboard:
    return Keyboard(views.live(views.straggler()))


@pytest.fixture
def replaying() -> Keyboard:
    return Keyboard(views.replay())


def test_each_key_belongs_to_one_command() -> None:
    """No key does two things."""
    keys = [key for command in command_table().commands for key in command.keys]
    assert sorted(set(keys)) == sorted(keys)


def test_what_is_sent_to_the_feed_is_in_the_contract() -> None:
    """Names and types of values are those that ViewFeed promises to take."""
    keyboard = Keyboard(views.replay())
    keyboard.press("[", "]", "{", "}", "right", "left", "space", "x", "end")
    assert len(keyboard.shell.asked) == 9
    assert all(isinstance(command, FeedCommand) for command in keyboard.shell.asked)


def test_digits_change_the_screen(live: Keyboard) -> None:
    """1 and 2, from wherever one is."""
    assert "ranks by rank" in live.press("2")
    assert "where a step goes" in live.press("1")
    live.press("2", "enter", "?", "1")
    assert ["overview"] == [page.name for page in live.place.stack]


@pytest.mark.parametrize("key", ["q", "ctrl+c", "ctrl+q"])
@pytest.mark.parametrize("before", [(), ("2",), ("?",), ("2", "enter"), ("enter",)])
def test_quit_works_everywhere(live: Keyboard, key: str, before: tuple[str, ...]) -> None:
    """At once, from every page."""
    live.press(*before, key)
    assert 1 == live.shell.left


def test_ctrl_c_quits_while_typing_but_q_is_typed(live: Keyboard) -> None:
    """A filter may contain a q."""
    live.press("2", "/", "q")
    assert 0 == live.shell.left
    assert "q" == live.place.at(Ranks).filter
    live.press("ctrl+c")
    assert 1 == live.shell.left


def test_enter_opens_the_first_finding_and_escape_goes_back(live: Keyboard) -> None:
    """Evidence, what to do with its command, what to measure next."""
    text = live.press("enter")
    assert "Rank 2 reads its data late" in text
    assert "peers data wait 2.10 ms" in " ".join(text.split())
    assert "$ py-spy dump --pid 41202 --subprocesses" in text
    live.press("escape")
    assert "overview" == live.page


def test_the_cursor_moves_over_ranks_and_findings(live: Keyboard) -> None:
    """Down from the top: culprit, ranks, findings; enter opens what is marked."""
    live.press("down")
    assert ("rank", "2") == live.place.page.cursor
    live.press("G")
    assert ("finding", "straggler_data") == live.place.page.cursor
    live.press("n")
    assert ("finding", "exposed_comm") == live.place.page.cursor
    assert (
        "Communication is not hidden" in live.draw()
    )  # the one that is chosen is drawn, however little room
    assert "Communication is not hidden" in live.press("enter")
    live.press("escape", "g", "enter")
    assert "rank" == live.page
    assert 2 == live.place.at(RankPage).rank


def test_escape_and_a_digit_at_once_are_two_keys(live: Keyboard) -> None:
    """On a slow line both come in one read: "? does nothing here" stood there, and nothing was done."""
    parser = XTermParser()
    for typed, page in (("\x1b2", "ranks"), ("\x1b1", "overview"), ("\x1b4", "overlap")):
        (event,) = [each for each in parser.feed(typed) if isinstance(each, Key)]
        live.place.key(event.key, event.character)
        assert page == live.page
        assert "does nothing here" not in live.draw()
    assert "filter" in live.press("2", "/", "g")
    live.place.key("alt+1", "1")
    assert "overview" == live.page
    live.press("2", "/")
    live.place.key("pound", "£")
    assert "£" in live.draw()


def test_n_walks_the_findings(live: Keyboard) -> None:
    """Selecting on the overview, showing on the finding's page, round the end."""
    live.press("n")
    assert ("finding", "straggler_data") == live.place.at(Overview).cursor
    live.press("n", "n", "n")
    assert ("finding", "straggler_data") == live.place.at(Overview).cursor
    live.press("N")
    assert ("finding", "warmup") == live.place.at(Overview).cursor
    assert "The first steps were slow" in live.press("enter")
    assert "Rank 2 reads its data late" in live.press("n")
    assert "The first steps were slow" in live.press("N")


def test_sort_cycles_through_the_columns(live: Keyboard) -> None:
    """Largest first; r turns it round; the title says which."""
    live.press("2")
    assert [0, 1, 2, 3] == live.order
    assert "ranks by caused wait" in live.press("s")
    assert 2 == live.order[0]
    assert "ranks by caused wait, reversed" in live.press("r")
    assert 2 == live.order[-1]
    for _ in range(6):
        live.press("s")
    assert "rank" == live.place.at(Ranks).sort


@pytest.mark.parametrize("width", [80, 160])
def test_a_click_on_a_head_sorts_by_it_and_another_turns_it_round(live: Keyboard, width: int) -> None:
    """The arrow in the head says by what and which way; heads that sort nothing do nothing."""
    live.press("2")
    head = live.place.rows(width, 24)[4]
    assert head.text.startswith(" ▲ rank")
    for name, title, first in (("causes", "ranks by caused wait", 2), ("waits", "ranks by own wait", 0)):
        column = head.text.index(name)
        live.place.click(4, column)
        rows = live.place.rows(width, 24)
        assert title in rows[3].text
        assert f"{name} ▼" in rows[4].text
        assert first == live.order[0]
        assert column <= rows[4].text.index(f"{name} ▼") + 2  # it stays where it was clicked
        live.place.click(4, column)
        assert f"{title}, reversed" in live.place.rows(width, 24)[3].text
        assert f"{name} ▲" in live.place.rows(width, 24)[4].text
        assert first != live.order[0]
    before = live.place.at(Ranks).sort
    live.place.click(4, head.text.index("phases"))
    live.place.click(4, head.text.index("late"))
    assert before == live.place.at(Ranks).sort


def test_unknown_values_sort_last() -> None:
    """A rank without a figure is neither the largest nor, turned round, the smallest."""
    view = views.straggler()
    ranks = (replace(view.ranks[0], caused_each_s=None), *view.ranks[1:])
    keyboard = Keyboard(views.live(replace(view, ranks=ranks)))
    keyboard.press("2", "s")
    assert 0 == keyboard.order[-1]
    keyboard.press("r")
    assert 0 == keyboard.order[-1]


def test_filter_keeps_what_contains_the_text() -> None:
    """Host, rank, state or culprit; enter keeps it, esc clears it."""
    keyboard = Keyboard(views.live(views.many(64)))
    text = keyboard.press("2", "/", *"gpu003")
    assert list(range(24, 32)) == keyboard.order
    assert "8 of 64" in text
    keyboard.press("enter")
    assert keyboard.place.asking.prompt is None
    assert 8 == len(keyboard.order)
    keyboard.press("escape")
    assert 64 == len(keyboard.order)
    keyboard.press("/", *"culprit")
    assert [63] == keyboard.order
    assert "is “culpritx”" in keyboard.press("x")


def test_filter_can_be_edited() -> None:
    """Backspace, a word back, all; pasted text is cleaned."""
    keyboard = Keyboard(views.live(views.many(64)))
    keyboard.press("2", "/", "a", "b", "backspace")
    assert "a" == keyboard.place.at(Ranks).filter
    keyboard.press("ctrl+u")
    assert "" == keyboard.place.at(Ranks).filter
    keyboard.place.paste("gpu\x1b[2J00\n")
    assert "gpu[2J00 " == keyboard.place.at(Ranks).filter
    keyboard.press("ctrl+w")
    assert "" == keyboard.place.at(Ranks).filter


def test_a_long_table_scrolls_with_its_cursor() -> None:
    """Page keys, ends, and the wheel; the cursor stays in sight."""
    keyboard = Keyboard(views.live(views.many(1024)))
    # Two rows below the table belong to rank 612, which is late and out of sight; two above it to the whole run.
    assert "1\u201315 of 1,024" in keyboard.press("2")
    assert "1,010\u20131,024 of 1,024" in keyboard.press("G")
    assert ("rank", "1023") == keyboard.place.page.cursor
    assert "1\u201315 of 1,024" in keyboard.press("g")
    keyboard.press("pagedown")
    assert ("rank", "16") == keyboard.place.page.cursor
    keyboard.place.page.scroll(3)
    assert "6\u201320 of 1,024" in keyboard.draw()


def test_a_rank_opens_with_its_phases_and_neighbours(live: Keyboard) -> None:
    """Left and right follow the order of the table."""
    text = live.press("2", "s", "down", "enter")
    assert "rank 2" in text
    assert "arrives last in   98 % of the steps" in text
    live.press("right")
    assert 0 == live.place.at(RankPage).rank
    live.press("left", "left")
    assert 2 == live.place.at(RankPage).rank
    live.press("escape")
    assert "ranks" == live.page


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("]", "this is the newest step already"),
        ("}", "this is the newest step already"),
        ("b", "only in a replay"),
        ("x", "only in a replay"),
        ("s", "only on the ranks screen"),
        ("/", "only on a list"),
        ("m", "only on the list of recordings"),
        ("w", "only on a comparison"),
        ("V", "this is the live run already"),
        ("right", "this is the newest step already"),
        ("end", "newest step already"),
        ("z", "does nothing here"),
    ],
)
def test_a_disabled_key_says_why(live: Keyboard, key: str, reason: str) -> None:
    """In the footer, and for a few seconds only."""
    assert reason in live.press(key).splitlines()[-1]
    assert [] == live.shell.asked
    live.now_s = 5.0
    assert reason not in live.draw().splitlines()[-1]


def test_disabled_keys_without_a_view() -> None:
    """Nothing to pause, open or walk through yet."""
    keyboard = Keyboard(views.looking())
    assert "nothing to pause yet" in keyboard.press("space")
    assert "nothing to open" in keyboard.press("enter")
    assert "no finding to go to" in keyboard.press("n")
    assert "looking for ranks" in keyboard.press("2")


def test_space_pauses_and_goes_on(live: Keyboard) -> None:
    """The feed is told; the footer says what the key would do next."""
    live.press("space")
    assert [Pause()] == live.shell.asked
    live.place.state = views.live(views.straggler(), phase="paused")
    assert "space Go on" in live.draw()
    assert "PAUSED" in live.draw()
    live.press("space", "end")
    assert [Pause(), Resume(), End()] == live.shell.asked


@pytest.mark.parametrize(
    ("key", "command"),
    [
        ("[", Step(-1)),
        ("]", Step(1)),
        ("{", PreviousFinding()),
        ("}", NextFinding()),
        ("x", Speed(8.0)),
        ("end", End()),
        ("space", Pause()),
    ],
)
@pytest.mark.parametrize("page", ["1", "2"])
def test_replay_keys(replaying: Keyboard, key: str, command: object, page: str) -> None:
    """On both screens."""
    replaying.press(page, key)
    assert [command] == replaying.shell.asked


def test_speed_goes_round() -> None:
    """After the fastest comes the slowest."""
    assert 8.0 == next_speed(4.0)
    assert 100.0 == next_speed(32.0)
    assert 0.5 == next_speed(1000.0)
    assert 4.0 == next_speed(3.0)


def test_seek_asks_for_a_step(replaying: Keyboard) -> None:
    """Thousands may be separated; what is no step of the recording is refused with its ends."""
    replaying.press("S", *"120", "enter")
    assert [SeekStep(120)] == replaying.shell.asked
    assert "0 to 549" in replaying.press("S", *"1,000", "enter")
    assert "digits only" in replaying.press("S", *"-3", "enter")
    replaying.press("S", "4", "escape", "S", "enter")
    assert [SeekStep(120)] == replaying.shell.asked


def test_no_marks_no_jump() -> None:
    """A recording without findings says so."""
    state = views.replay()
    assert state.replay is not None
    keyboard = Keyboard(replace(state, replay=replace(state.replay, marks=())))
    assert "nothing is marked" in keyboard.press("}")
    reading = Keyboard(replace(state, replay=replace(state.replay, marks=(), share_read=0.4)))
    assert "the recording is being read" in reading.press("}")


def test_beyond_the_last_mark_a_jump_says_why_not() -> None:
    """Neither silence nor a jump the other way; while a recording is opened its keys say so."""
    state = views.replay()
    assert state.replay is not None
    at_end = replace(state.replay, marks=((0.25, "late"), (0.5, "later")), position=0.5)
    keyboard = Keyboard(replace(state, replay=at_end))
    assert "further on in that direction" in keyboard.press("}")
    keyboard.press("{")
    assert [PreviousFinding()] == keyboard.shell.asked
    opening = Keyboard(replace(state, replay=None, view=None))
    assert "still being opened" in opening.press("x")


def test_help_is_about_the_page_below(live: Keyboard) -> None:
    """Its keys first; the same key closes it."""
    assert "on overview" in live.press("?")
    assert "on ranks" in live.press("2", "?")
    live.press("?")
    assert "ranks" == live.page


@pytest.mark.parametrize("key", [":", "ctrl+p"])
def test_the_palette_finds_and_does(live: Keyboard, key: str) -> None:
    """Type, choose, enter; esc leaves everything as it was."""
    text = live.press(key, *"heat")
    assert "1 of 31" in text or "a row and a heat map for each rank" in text
    live.press("enter")
    assert "ranks" == live.page
    live.press(key, *"help", "escape")
    assert "ranks" == live.page
    assert "no command contains" in live.press(key, *"xyzzy")
    live.press("enter")
    assert "ranks" == live.page


def test_the_palette_says_why_too(live: Keyboard) -> None:
    """A command that cannot be used now answers as its key would."""
    assert "only in a replay" in live.press(":", *"bookmark", "enter").splitlines()[-1]
    live.press(":", *"quit", "enter")
    assert 1 == live.shell.left


def test_the_palette_cursor_moves(live: Keyboard) -> None:
    """Up and down choose while the text is typed."""
    live.press(":", "down", "enter")
    assert "ranks" == live.page


def test_any_key_closes_the_intro_and_screen_keys_act() -> None:
    """Esc, enter and space only close it."""
    for key, page in (("escape", "overview"), ("enter", "overview"), ("z", "overview"), ("2", "ranks")):
        keyboard = Keyboard(views.live(views.straggler()), intro="Look at rank 2.")
        assert "Look at rank 2." in keyboard.draw()
        assert "Look at rank 2." not in keyboard.press(key)
        assert page == keyboard.page
        assert [] == keyboard.shell.asked
    keyboard = Keyboard(views.live(views.straggler()), intro="Look at rank 2.")
    keyboard.press("q")
    assert 1 == keyboard.shell.left


def test_theme_and_redraw(live: Keyboard) -> None:
    """The theme is named with how to keep it."""
    assert "colours: light (, keeps them" in live.press("t")
    live.press("ctrl+l")
    assert 1 == live.shell.redrawn


def test_a_click_opens_what_is_there(live: Keyboard) -> None:
    """Rank rows, findings, commands of the palette; elsewhere nothing."""
    rows = live.draw().splitlines()
    live.place.click(next(index for index, row in enumerate(rows) if "critical P1" in row))
    assert "finding" == live.page
    assert "Rank 2 reads its data late" in live.draw()
    live.press("escape")
    live.place.click(0)
    live.place.click(99)
    assert "overview" == live.page
    rows = live.press(":").splitlines()
    live.place.click(next(index for index, row in enumerate(rows) if "Ranks" in row))
    assert "ranks" == live.page


def test_a_finding_that_is_gone_says_so(live: Keyboard) -> None:
    """The page stays open and does not show another finding in its place."""
    live.press("enter")
    live.place.state = views.live(views.healthy())
    assert "no longer holds" in live.draw()
    live.press("escape")
    assert "overview" == live.page


def test_a_rank_that_is_gone_says_so(live: Keyboard) -> None:
    """A restart with fewer ranks leaves the page readable."""
    live.press("2", "G", "enter")
    live.place.state = views.live(views.one_rank())
    assert "not in this run any more" in live.draw()


def test_capture_is_asked_for_the_rank_that_is_shown_or_selected(live: Keyboard) -> None:
    """On a rank's page and from the palette above it; elsewhere the key says what to do first."""
    assert "choose a rank first" in live.press("P")
    live.press("2", "down", "P", "enter")
    shown = live.place.at(RankPage).rank
    live.press(":", "c", "a", "p", "t", "enter", "right", "P")
    beside = live.place.at(RankPage).rank
    assert [Capture(shown), Capture(shown), Capture(beside)] == live.shell.asked


def test_a_recording_cannot_be_captured(replaying: Keyboard) -> None:
    """The key says why."""
    assert "only in a live run" in replaying.press("2", "down", "enter", "P")
    assert [] == replaying.shell.asked


def test_what_came_of_a_capture_stays_in_sight() -> None:
    """The sentence stands above the page, whatever is pressed."""
    keyboard = Keyboard(replace(views.live(views.straggler()), notice="rank 2: trace in here/rank2.json"))
    assert "trace in here/rank2.json" in keyboard.press("2", "down", "enter")


@pytest.mark.parametrize(
    ("state", "keys", "asked"),
    [
        (views.live(views.straggler()), ("2", "j", "j", "j", "enter"), [Stacks(2, "straggler")]),
        (views.live(views.straggler()), ("2", "j", "enter"), []),  # nobody waits for rank 0
        (views.live(views.straggler()), ("2", "j", "enter", "C"), [Stacks(0, "straggler")]),
        (views.live(views.with_card()), ("2", "j", "j", "j", "enter"), []),  # it is there
        (views.live(views.with_card()), ("2", "j", "j", "j", "enter", "C"), [Stacks(2, "straggler")]),
        (views.live(views.stalled()), ("enter",), [Stacks(3, "hang")]),
        (views.live(views.straggler()), ("C",), [Stacks(2, "straggler")]),  # the one that holds up the others
        (views.live(views.stalled()), ("C",), [Stacks(3, "hang")]),
        (views.live(views.standing()), ("C",), [Stacks(0, "hang")]),
        (views.live(views.healthy()), ("C",), []),
        (views.replay(), ("2", "j", "j", "j", "enter", "C"), []),
    ],
)
def test_enter_on_a_late_rank_asks_for_its_lines_of_code(
    state: FeedState, keys: tuple[str, ...], asked: list[Stacks]
) -> None:
    """Of whom others wait for, once; of anybody by its key; never of a recording."""
    keyboard = Keyboard(state)
    keyboard.press(*keys)
    assert asked == [command for command in keyboard.shell.asked if isinstance(command, Stacks)]


def test_a_job_that_stood_before_anybody_came_leads_to_where_its_ranks_stand() -> None:
    """Nothing on its first screen said what to press, and what C brought was on a page two keys away."""
    keyboard = Keyboard(views.live(views.standing()))
    assert "C shows the line of code at which each rank stands" in keyboard.press("1")
    keyboard.press("C")
    assert "rank" == keyboard.page
    assert "C shows" not in Keyboard(views.live(views.too_early())).press("1")


def test_a_recording_shows_the_lines_that_were_sampled() -> None:
    """The card is part of it."""
    keyboard = Keyboard(replace(views.replay(), view=views.with_card()))
    assert "dataset.py:118  __getitem__ → loads" in keyboard.press("2", "j", "j", "j", "enter")


def test_each_numbered_screen_is_a_tab_that_a_click_opens(live: Keyboard) -> None:
    """By name where there is room; on 80 columns the open one by name, the others by number; on 60 none."""
    for width, names in ((160, ["1 Overview", "2 Ranks", "6 Scaling", "8 Runs"]), (80, ["1 Overview"])):
        head = live.place.rows(width, 24)[0]
        assert [name for name in names if name in head.text] == names
        assert "step 341" in head.text
        for number, _, command in ((3, "", "pipeline"), (8, "", "runs"), (1, "", "overview")):
            start = next(start for start, _, name in live.place.drawn[0].spots if name == command)
            assert str(number) == live.place.drawn[0].text[start : start + 2].strip()
            live.place.click(0, start + 1)
            assert command == live.page
            live.place.rows(width, 24)
    assert not live.place.rows(60, 16)[0].spots


@pytest.mark.parametrize("key", ["1", "2", "3", "4"])
def test_what_was_lost_takes_one_row_of_a_low_screen(key: str) -> None:
    """The notes that fit whole, how many more there are, and where: the rows belong to the figures."""
    notes = tuple(f"agent on node{number:02}: agent returned, heard again after 4.3 s" for number in range(9))
    view = replace(views.straggler(), losses=Losses(notes=notes))
    text = Keyboard(views.live(view)).press(key)
    (said,) = [row for row in text.splitlines() if "node0" in row and "agent" in row]
    assert "▲ note   agent on node00: agent returned, heard again after 4.3 s; 8 more: L" in said
    short = replace(view, losses=Losses(notes=("agent on node01 silent", "rank 3: killed")))
    assert "▲ note   agent on node01 silent; rank 3: killed" in Keyboard(views.live(short)).press(key)


def test_only_what_was_lost_is_called_lost() -> None:
    """Above "not live: imported from ..." and notes on the figures stood "lost"."""
    notes = ("not live: imported from a table of steps", "forward and backward are one span in the log")
    view = replace(
        views.straggler(),
        imported=Imported("steps", "run.csv", "a table of steps", "", None),
        losses=Losses(frames_lost=3, notes=notes),
    )
    shown = ["".join(text for text, _ in row.spans).rstrip() for row in sections.losses(view, 100, 4)]
    assert shown == [
        "▲ lost   3 frames lost",
        "▲ note   forward and backward are one span in the log",
        "imported from a table of steps",
    ]
    assert "lost" == sections.loss_title(view)
    assert "notes" == sections.loss_title(replace(view, losses=Losses(notes=notes)))
    assert "source" == sections.loss_title(replace(view, losses=Losses(notes=notes[:1])))
    (row,) = sections.losses(replace(view, losses=Losses(notes=notes)), 100, 1)
    assert row.text.startswith(
        "▲ note   forward and backward are one span in the log; imported from a table of steps"
    )


def test_the_job_is_said_whole_or_not_at_all_beside_the_tabs(live: Keyboard) -> None:
    """No half of a host's name."""
    for width in range(60, 220):
        head = live.place.rows(width, 24)[0].text
        assert len(head) == width
        assert "…" not in head


def test_a_key_of_the_footer_can_be_clicked(live: Keyboard) -> None:
    """It does what the key does; a prompt that is open is taken back."""
    live.press("2", "/", "x")
    live.press("escape")
    foot = live.place.drawn[-1]
    for name, shown in (("sort", "s Sort"), ("open", "enter Open")):
        start, end, _ = next(spot for spot in foot.spots if spot[2] == name)
        assert shown == foot.text[start:end]
    before = live.place.at(Ranks).sort
    live.place.click(len(live.place.drawn) - 1, foot.text.index("Sort"))
    assert before != live.place.at(Ranks).sort


def test_a_click_on_the_line_of_a_replay_goes_to_that_step(replaying: Keyboard) -> None:
    """Its ends are the ends of the recording."""
    row = len(replaying.place.drawn) - 2
    text = replaying.place.drawn[row].text
    state = replaying.place.state.replay
    assert state is not None
    track = [place for place, glyph in enumerate(text) if glyph in "━─●▲" and place > 14]
    replaying.place.click(row, track[0])
    replaying.place.click(row, track[-1])
    replaying.place.click(row, 1)
    assert [SeekStep(state.first_step or 0), SeekStep(state.last_step or 0)] == replaying.shell.asked


def test_control_z_goes_to_the_shell_or_says_why_not(live: Keyboard) -> None:
    """Nothing happens in silence."""
    assert "no shell" in live.press("ctrl+z")


@pytest.mark.parametrize(("key", "shows_line"), [("0", False), ("8", False), ("1", True), ("d", True)])
def test_only_pages_of_a_run_have_its_line_of_time(replaying: Keyboard, key: str, shows_line: bool) -> None:
    """Home kept the line of a recording that had been left: it spoke of nothing that stood there."""
    replaying.press(key)
    line_of_time = replaying.place.rows(80, 24)[-2].text
    assert ("━" in line_of_time) == shows_line
    replaying.place.click(22, 60)
    assert any(isinstance(each, SeekStep) for each in replaying.shell.asked) == shows_line


def test_where_the_lines_of_code_stand_no_notice_leads_to_them() -> None:
    """It said "are on its page (2, enter)" above that very page, and above the page of the finding they explain."""
    told = "rank 2: the lines of code where it spends its time are on its page (2, enter)"
    board = Keyboard(views.live(views.with_card(), notice=told, notice_card=(2, "straggler")))
    assert "are on its page" in board.press("2")
    board.place.open_target(("rank", "1"))
    assert "are on its page" in board.draw()
    board.place.open_target(("rank", "2"))
    assert "are on its page" not in board.draw()

    view = views.with_card()
    found = replace(view.findings[0], id="input_bound", ranks=(2,))
    state = views.live(replace(view, findings=(found,)), notice=told, notice_card=(2, "input"))
    board = Keyboard(state)
    board.place.open_target(("finding", "input_bound"))
    assert "are on its page" not in board.draw()
    board.place.take_state(
        replace(state, notice_card=None, notice="no stacks of rank 2: no agent answers for it")
    )
    assert "no agent answers" in board.draw()


@pytest.mark.parametrize("key", ["5", "2"])
def test_out_of_the_dialogue_one_is_where_it_was_opened(live: Keyboard, key: str) -> None:
    """It led to the overview, wherever one came from."""
    live.press(key)
    opened_from = live.page
    live.press("d")
    assert live.page == "dialogue"
    live.press("escape")
    assert live.page == opened_from


@pytest.mark.parametrize(("ended", "told"), [("", "■ RECORDED SO FAR"), ("run finished", "■ END OF REPLAY")])
def test_a_recording_that_still_grows_has_no_end(ended: str, told: str) -> None:
    """END OF REPLAY stood beside ranks that are live."""
    state = replace(views.replay(replace(views.straggler(), ended=ended)), phase="ended")
    assert told in Keyboard(state).draw().splitlines()[0]
