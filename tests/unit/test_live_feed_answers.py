"""What a live feed says of its session and of what was asked for: phases, answers that give way, commands beside it."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from fake_time import FakeTime
from snapshot import views
from unit.test_cli_lookback import Watch
from unit.test_tui_pages import FakeShell

from tuiadvisor.advisor.assemble.picture import LET_GO
from tuiadvisor.agent.hello import host_name
from tuiadvisor.app import live_feed
from tuiadvisor.app.live_feed import ANSWER_S, BURST_MS, READ_AFTER_S, LiveFeed, attach_phase
from tuiadvisor.cli.watching import say_goodbye
from tuiadvisor.stream.probe_request import ProbeRequest
from tuiadvisor.stream.source import SourceStatus
from tuiadvisor.tui.contract.feed import Capture, Detail, FeedState, Pause, Stacks, Zoom
from tuiadvisor.tui.control.navigator import Navigator
from tuiadvisor.views.run_view import RunView

STATUS = SourceStatus("live", connected=True, bytes_behind=0, note="", ended=False)


class Command:
    """A command of ours beside the screens."""

    made: list[Command] = []  # noqa: RUF012 - emptied for each test

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.sentence, self.is_running, self.is_stopped = f"doing {arguments[0]}", True, False
        Command.made.append(self)

    def look(self) -> bool:
        was, self.sentence = self.sentence, "done" if not self.is_running else self.sentence
        return was != self.sentence

    def stop(self) -> None:
        self.is_stopped = True


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[Command]:
    Command.made = []
    monkeypatch.setattr(live_feed, "capture_subcommand", lambda rank, pid: Command("capture", rank, pid))
    monkeypatch.setattr(
        live_feed, "stacks_subcommand", lambda rank, pids: Command("stacks", rank, tuple(pids))
    )
    return Command.made


def here(view: RunView) -> RunView:
    """The same ranks, on this machine."""
    rows = tuple(replace(row, host=host_name(), pid=100 + row.rank) for row in view.ranks)
    return replace(view, ranks=rows)


def feed(
    view: RunView | None = None, error: str | None = None, **status: Any
) -> tuple[LiveFeed, list[ProbeRequest]]:
    """One that shows this, and what it asked of its agents."""
    requests: list[ProbeRequest] = []
    source: Any = SimpleNamespace(status=replace(STATUS, **status), close=lambda: None)
    made = LiveFeed(source, lambda: error, requests.append)
    made.view = view
    return made, requests


@pytest.mark.parametrize(
    ("view", "error", "status", "phase"),
    [
        (None, None, {}, "finding ranks"),
        (None, None, {"connected": False}, "finding ranks"),  # the hub has not answered yet
        (views.straggler(), None, {"connected": False}, "hub lost"),
        (None, None, {"ended": True}, "recording ended"),
        (views.straggler(), None, {"ended": True, "connected": False}, "recording ended"),
        (None, "it was killed", {}, "agent lost: it was killed"),
        (views.straggler(), None, {}, "live"),
        (replace(views.straggler(), ended="done"), None, {}, "ended"),
        (replace(views.straggler(), ended="done"), None, {"connected": False}, "ended"),
        (replace(views.straggler(), ended="done"), None, {"ended": True, "connected": False}, "ended"),
    ],
)
def test_a_session_says_where_it_stands(
    view: RunView | None, error: str | None, status: dict[str, Any], phase: str
) -> None:
    """A run that is over stays over; else a hub that is gone before an agent that is, that before what ranks do."""
    made, _ = feed(view, error, **status)
    assert (phase, None) == made._phase()


@pytest.mark.parametrize("lost", ["hub", "agent"])
def test_what_is_heard_no_more_is_not_live(lost: str) -> None:
    """The last figures stand; whether a rank still lives nobody can say."""
    view = views.grouped_many()
    made, _ = feed(view, "it was killed" if lost == "agent" else None, connected=lost != "hub")
    made._publish("")
    shown = made.latest().view
    assert shown is not None
    assert "live" in {row.state for row in view.ranks}
    assert "live" not in {row.state for row in shown.ranks}
    assert [row.step_s for row in view.ranks] == [row.step_s for row in shown.ranks]
    for width, height in ((80, 24), (160, 45)):
        for page in ("1", "2"):
            place = Navigator(FakeShell(), made.latest(), clock=lambda: 0.0)
            place.rows(width, height)
            place.key(page, page)
            text = "\n".join(row.text for row in place.rows(width, height))
            assert not re.search(r"\blive\b", text), text
            assert "unknown" in text
    made.source.status = STATUS
    made._agent_error = lambda: None
    made._publish("")
    assert view is made.latest().view


@pytest.mark.parametrize(("state", "is_over"), [("detached", False), ("live", False), ("exited", True)])
def test_ranks_that_were_let_go_are_not_over(state: str, is_over: bool) -> None:
    """A recording that ends in order takes its probes out: the training goes on, and a viewer must not say it ended."""
    view = views.straggler()
    rows = tuple(replace(row, state=state) for row in view.ranks)
    made, _ = feed(replace(view, ranks=rows, ended=LET_GO), ended=True, connected=False)
    made._publish("hub stopped")
    place = Navigator(FakeShell(), made.latest(), clock=lambda: 0.0)
    text = "\n".join(row.text for row in place.rows(80, 24))
    assert is_over == (" ENDED" in text)
    assert is_over != ("NO LONGER WATCHED" in text)
    assert LET_GO in text
    assert "hub stopped" not in text


def test_leaving_a_lost_hub_tells_where_its_recording_ends(capsys: pytest.CaptureFixture[str]) -> None:
    """Else the file seems to hold all of the run; of one that goes on, or is over, nothing is to be told."""
    view = views.straggler()
    for phase, ended, why in (
        ("hub lost", "", "the hub was lost"),
        ("recording ended", "", "the recording was ended"),
        ("ended", "done", ""),
        ("live", "", ""),
    ):
        state = FeedState(replace(view, ended=ended), "live", phase, "", None, None, 1, "")
        say_goodbye(state, "run.tuirec")
        said = capsys.readouterr().out
        assert bool(why) == ("it ends" in said), phase
        assert not why or f"it ends at step {view.last_step:,}, where {why}; the training" in said
        assert "look again with: tuiadvisor replay run.tuirec" in said


def test_attaching_counts_those_that_are_through() -> None:
    """Refused ones, too: nothing more comes of them."""
    view = views.straggler()
    states = ("found", "waiting_to_attach", "live", "refused", *["live"] * (len(view.ranks) - 4))
    rows = tuple(replace(row, state=state) for row, state in zip(view.ranks, states, strict=True))
    num = len(rows)
    assert (f"attaching {num - 2}/{num}", (num - 2, num)) == attach_phase(replace(view, ranks=rows))


def test_a_rank_here_is_profiled_and_one_of_a_hang_is_looked_at(commands: list[Command]) -> None:
    """While one runs no other begins; what came of it stays for the terminal."""
    view = here(views.straggler())
    made, _ = feed(view)
    made._obey(Capture(2))
    made._obey(Capture(0))
    assert [("capture", 2, 102)] == [one.arguments for one in commands]
    assert "doing capture" == made._notice()
    commands[0].is_running = False
    assert ("done", ["done"]) == (made._notice(), made.answers)
    made._notice()
    assert ["done"] == made.answers
    made.view = replace(view, findings=(replace(view.findings[0], id="hang"),))
    made._obey(Capture(2))
    assert ("stacks", 2, tuple(100 + row.rank for row in view.ranks)) == commands[1].arguments
    made.stop()
    assert [False, True] == [one.is_stopped for one in commands]


def test_a_rank_that_has_made_no_step_is_looked_at_too(commands: list[Command]) -> None:
    """A capture would wait for a step that does not come, and say so after minutes."""
    made, _ = feed(here(replace(views.straggler(), last_step=None)))
    made._obey(Capture(2))
    assert ["stacks"] == [one.arguments[0] for one in commands]
    made.stop()


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (Detail(()), "all ranks: every call of the next"),
        (Stacks(2, "straggler"), "rank 2"),
        (Zoom(1), "too few steps are held for a stretch of them"),
    ],
)
def test_a_commands_answer_gives_way_to_the_next(commands: list[Command], command: Any, says: str) -> None:
    """What ran is over, so what was asked for after it is what is said: else a key would seem to do nothing."""
    made, _ = feed(here(views.straggler()))
    made._obey(Capture(2))
    commands[0].is_running = False
    assert "done" == made._notice()
    made._obey(command)
    assert says in made._notice()


def test_an_announcement_is_over_when_what_it_announced_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A moment longer, to be read."""
    clock = FakeTime()
    monkeypatch.setattr(live_feed, "time", clock)
    made, requests = feed(views.straggler())
    made._obey(Detail((2,)))
    assert [ProbeRequest(burst_ms=BURST_MS, ranks=frozenset({2}))] == requests
    clock.sleep(BURST_MS / 1000 + READ_AFTER_S - 0.1)
    assert made._notice().startswith("rank 2: every call")
    clock.sleep(0.2)
    assert "every call" not in made._notice()


def test_what_came_of_a_command_stands_for_a_minute(
    commands: list[Command], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stood on all pages until the next command; the log and the terminal keep it."""
    clock = FakeTime()
    monkeypatch.setattr(live_feed, "time", clock)
    made, _ = feed(here(views.straggler()))
    made._obey(Capture(2))
    clock.sleep(10 * ANSWER_S)
    assert "doing capture" == made._notice()
    commands[0].is_running = False
    assert "done" == made._notice()
    clock.sleep(ANSWER_S - 1)
    assert "done" == made._notice()
    clock.sleep(2)
    assert ("", ["done"]) == (made._notice(), made.answers)
    made._obey(Capture(2))
    assert "doing capture" == made._notice()


def test_stacks_are_asked_for_once_and_of_whom_they_can_be() -> None:
    """Presses while the answer is on its way change nothing; a rank that is gone has none; a visitor cannot ask."""
    view = views.straggler()
    made, requests = feed(view)
    for _ in range(3):
        made._obey(Stacks(2, "straggler"))
    assert [True] == [request.stacks is not None and 2 in request.stacks.ranks for request in requests]
    rows = tuple(replace(row, state="exited") if row.rank == 2 else row for row in view.ranks)
    gone, requests = feed(replace(view, ranks=rows))
    gone._obey(Stacks(2, "straggler"))
    assert [] == requests
    assert "rank 2" in gone._notice()
    visitor = LiveFeed(SimpleNamespace(status=STATUS), lambda: None)  # type: ignore[arg-type]
    visitor._obey(Stacks(2, "straggler"))
    assert "whoever began it can ask for stacks" in visitor._notice()


def test_a_stretch_of_what_is_not_held_says_so() -> None:
    """A run of a few steps has none; one that goes on shows one."""
    watch = Watch()
    watch.feed._obey(Zoom(1))
    assert "too few steps are held for a stretch of them" == watch.feed._notice()
    watch.give(0.8)
    watch.turn()
    watch.turn(Pause())
    assert "paused" == watch.feed.latest().phase
    watch.turn(Zoom(1))
    assert "stretch" == watch.feed.latest().phase
    assert watch.feed.stretch is not None
