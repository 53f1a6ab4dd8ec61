"""Home: what runs and what was recorded; enter goes there, and nothing is attached to unasked."""

from __future__ import annotations

import importlib.util
import math
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from patience import PATIENCE_S
from snapshot import desks, views
from synthetic_run import Job
from test_contents import recording
from test_tui_navigator import Keyboard

from tuiadvisor.app import running_hubs as hubs_module
from tuiadvisor.app.desk import Desk
from tuiadvisor.app.job_reader import joined, told
from tuiadvisor.app.jobs import age, parsed_queue, slurm_jobs
from tuiadvisor.app.running_hubs import Followed, Hub, Watchings, running_hubs
from tuiadvisor.cli import watch
from tuiadvisor.cli.commands import build_parser
from tuiadvisor.errors import SeveralTrainingsError, TuiadvisorError
from tuiadvisor.tui.contract.desk import Attach, ListJobs, ListRuns, OpenRun
from tuiadvisor.tui.contract.feed import CLOSED
from tuiadvisor.tui.pages.home import job_lines
from tuiadvisor.views.job_list import Watched

if TYPE_CHECKING:
    from tuiadvisor.tui.contract.desk import DeskState
    from tuiadvisor.tui.contract.feed import FeedState

LISTED = desks.desk(jobs=desks.jobs(), is_looking=False, can_attach=True)


def keyboard(desk: DeskState = LISTED, state: FeedState | None = None) -> Keyboard:
    board = Keyboard(state or views.live(views.healthy()), desk=desk)
    board.press("0")
    return board


def test_home_looks_for_both_lists_and_enter_asks_before_it_attaches() -> None:
    """Yes attaches with the options that mean the training; nothing is sent before."""
    board = keyboard()
    assert board.shell.asked == [ListJobs(), ListRuns()]
    assert "Attach to sweep.py, 4 ranks? y or n, then enter" in board.press("down", "enter")
    assert len(board.shell.asked) == 2
    board.press("y", "enter")
    assert board.shell.asked[-1] == Attach(("--pid", "9000"))


@pytest.mark.parametrize(
    "desk",
    [
        replace(desks.desk(jobs=(), is_looking=True), runs=(), runs_note="looking …"),
        replace(desks.desk(jobs=desks.jobs(), is_looking=False), runs=(), runs_note="looking …"),
    ],
)
def test_what_was_not_looked_for_yet_is_not_none(desk: DeskState) -> None:
    """It said 0 trainings, 0 recordings and none of either while it was looking, with seventeen in the folder."""
    board = keyboard(desk)
    for key in ("0", "8"):
        text = board.press(key)
        assert "looking …" in text
        assert "0 recordings" not in text
        assert "0 trainings" not in text
        assert "none: " not in text


@pytest.mark.parametrize("width", [80, 160])
def test_jobs_of_one_script_are_told_apart(width: int) -> None:
    """Two rows of train.py differed in nothing that one could choose by; of a long folder its end is shown."""
    one = replace(LISTED.jobs[1], label="train.py", apart="--lr 0.1")
    other = replace(one, key="5.1", apart="in /home/somebody/experiments/of/this/week/b")
    board = keyboard(replace(LISTED, jobs=(one, other)))
    rows = [row.text for row in board.place.rows(width, 24)]
    assert any("train.py --lr 0.1" in row for row in rows)
    assert any("train.py in " in row and "week/b " in row for row in rows)
    assert "Attach to train.py --lr 0.1, 4 ranks? y or n, then enter" in board.press("enter")


def test_of_a_long_name_the_question_keeps_what_has_to_be_typed() -> None:
    """With two trainings of one script and long commands “y or n” was cut off at 80 columns."""
    one = replace(
        LISTED.jobs[1], label="train.py", apart="-u /work/of/somebody/train.py --seconds 3600 --seed 20271"
    )
    board = keyboard(replace(LISTED, jobs=(one,)))
    asked = board.press("enter").splitlines()[-1]
    assert "4 ranks? y or n, then enter" in asked
    assert "seed 20271" in asked


def recorded_walks() -> Any:
    """The module, which is no part of a package."""
    path = Path(__file__).parents[2] / "release" / "walks.py"
    spec = importlib.util.spec_from_file_location("walks", path)
    assert spec is not None
    assert spec.loader is not None
    walks = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = walks  # its dataclasses look their annotations up there
    try:
        spec.loader.exec_module(walks)
    finally:
        del sys.modules[spec.name]
    return walks


def test_a_walk_that_is_ended_ends_what_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ended by SIGTERM it left its training, its tmux and the screens behind; a second one changes nothing."""
    walks, ended = recorded_walks(), []

    def walk(*_: object) -> list[Path]:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            ended.append("training")
        return []

    monkeypatch.setattr(walks, "walk", walk)
    monkeypatch.setattr(sys, "argv", ["walks.py", str(tmp_path)])
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGTERM, lambda *_: ended.append("nobody listened"))
    try:
        with pytest.raises(SystemExit) as left:
            walks.main()
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
    assert ["training"] == ended
    assert 143 == left.value.code


def test_the_recorded_walk_waits_for_the_words_of_this_question() -> None:
    """It waited for words that home no longer said, and ended there: all four stories were unproved."""
    walks = recorded_walks()
    (stop,) = (each for each in walks.STORIES["slow"].stops if each.name == "asks")
    board = keyboard()
    assert not re.search(stop.shows, board.press("down"))
    assert re.search(stop.shows, board.press("enter"))


def test_what_is_watched_is_looked_along_with_unasked() -> None:
    """Nothing more is put into it, so there is nothing to ask."""
    board = keyboard()
    board.press("enter")
    assert board.shell.asked[-1] == Attach(("ipc:///run/viewers",))


def test_while_its_recording_is_read_a_watched_one_is_not_attached_to() -> None:
    """A second agent would look at ranks that one watches already."""
    unread = replace(LISTED.jobs[0], watched=Watched("", "", 0.4))
    board = keyboard(replace(LISTED, jobs=(unread,)))
    assert "reading what was recorded: 40 %" in "\n".join(row.text for row in board.place.rows(120, 30))
    assert "a moment" in board.press("enter")
    assert len(board.shell.asked) == 2


def test_what_was_opened_from_home_is_left_for_home() -> None:
    """A second q leaves; the footer says where the key leads."""
    board = keyboard()
    assert "q Home" in board.press("1")
    assert "q Quit" in board.press("q")
    assert (board.page, board.shell.left) == ("home", 0)
    board.press("q")
    assert (board.shell.left, board.shell.went_back) == (1, True)
    assert "q Home" in keyboard(replace(LISTED, can_attach=False, leads_home=True)).press("1")


def test_a_job_is_joined_with_the_recording_of_its_ranks(tmp_path: Path) -> None:
    """By process ids; Slurm's by its number; a recording of other ranks says nothing of it."""
    hub = Hub(1, 2, str(recording(tmp_path / "a.tuirec", Job())), "ipc:///run/viewers", "slurm job 481223")
    one = Followed(hub)
    here = replace(LISTED.jobs[0], watched=None, rank_pids=(4711,))
    assert [job.watched for job in joined([here], [one])] == [Watched("", "", one.share)]
    one.read(math.inf)
    assert one.view is not None
    pid = one.view.ranks[0].pid
    assert pid is not None
    mine, other, queued = joined([replace(here, rank_pids=(pid,)), here, LISTED.jobs[4]], [one])
    assert other.watched is None
    assert mine.watched == queued.watched == told(one)
    assert mine.watched is not None
    assert mine.watched.step_s == one.view.step.mean_s
    assert mine.watched.last_step == one.view.last_step
    one.close()


def test_a_hub_that_has_just_begun_is_followed_once_it_has_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looked at before that, it stayed unknown as long as home was open."""
    path = tmp_path / "a.tuirec"
    hub = Hub(1, 2, str(path), "ipc:///run/viewers", "")
    monkeypatch.setattr(hubs_module, "running_hubs", lambda: [hub])
    watchings = Watchings()
    assert [] == watchings.look(math.inf)
    path.touch()
    assert [] == watchings.look(math.inf)
    path.unlink()
    recording(path, Job())
    (one,) = watchings.look(math.inf)
    assert one.view is not None
    assert one.view.last_step is not None
    watchings.close()


def test_what_one_hub_too_many_watches_is_not_denied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looked whose the oldest hub's recording is."""
    monkeypatch.setattr(hubs_module, "MAX_FOLLOWED", 1)
    paths = [tmp_path / "new.tuirec", tmp_path / "old.tuirec"]
    for path in paths:
        recording(path, Job())
    found = [Hub(number, 2, str(path), "ipc:///run/viewers", "") for number, path in enumerate(paths)]
    monkeypatch.setattr(hubs_module, "running_hubs", lambda: found)
    watchings = Watchings()
    (one,) = watchings.look(math.inf)
    assert one.hub == found[0]
    stranger = replace(LISTED.jobs[0], watched=None, is_watched=True, rank_pids=(1 << 30,))
    (row,) = joined((stranger,), [one], watchings.num_not_followed)
    watchings.close()
    told = keyboard(replace(LISTED, jobs=(row,)))
    assert "perhaps by an older hub of yours" in "\n".join(row.text for row in told.place.rows(240, 30))


def test_a_process_that_only_names_our_modules_is_no_hub() -> None:
    """A training may get any words as its arguments."""
    code = "import sys; sys.stdin.read()"
    words = ["--record=/tmp/x.tuirec", "--viewer=ipc:///tmp/x", "tuiadvisor.stream.hub"]
    process = subprocess.Popen([sys.executable, "-c", code, *words], stdin=subprocess.PIPE)
    try:
        assert process.pid not in {hub.pid for hub in running_hubs()}
    finally:
        process.communicate()


def test_an_empty_answer_is_asked_again() -> None:
    """A second enter took back the first without a word, then was answered by the same row as if it were dead."""
    board = keyboard()
    board.press("down", "enter")
    again = board.press("enter")
    assert "Type y or n, then enter: attach to sweep.py, 4 ranks?" in again
    assert board.press("w", "enter") == again
    assert "not attached" in board.press("n", "enter")
    board.press("enter", "enter", "y", "enter")
    assert board.shell.asked[-1] == Attach(("--pid", "9000"))


def test_jobs_that_squeue_does_not_tell_are_unknown_not_none() -> None:
    desk = replace(LISTED, jobs=(), slurm_note="squeue: fatal: no controller")
    rows = [row.text for row in job_lines(desk, 80)]
    assert any("yours in Slurm" in row and "unknown" in row for row in rows)
    assert not any("0 jobs" in row for row in rows)


@pytest.mark.parametrize("answer", [("n", "enter"), ("enter",), ("escape",)])
def test_anything_but_yes_attaches_to_nothing(answer: tuple[str, ...]) -> None:
    """An empty answer is no yes."""
    board = keyboard()
    board.press("down", "enter", *answer)
    assert Attach not in {type(each) for each in board.shell.asked}


@pytest.mark.parametrize(
    ("place", "said"),
    [(3, "a training of user anna"), (5, "1 node, pending: it can be watched once it runs")],
)
def test_what_cannot_be_attached_to_says_why(place: int, said: str) -> None:
    """Another user's training, a job that waits for its nodes."""
    board = keyboard()
    assert said in board.press(*["down"] * place, "enter")
    assert board.place.asking.prompt is None


def test_beside_an_open_run_the_command_is_told_instead() -> None:
    """One session watches one training; the other one gets a terminal of its own."""
    board = keyboard(replace(LISTED, can_attach=False))
    assert "tuiadvisor watch --pid 9000" in board.press("down", "enter")


def test_a_job_in_slurm_is_reached_through_slurm() -> None:
    """One agent a node, by its number."""
    board = keyboard()
    board.press(*["down"] * 4, "enter", "y", "enter")
    assert board.shell.asked[-1] == Attach(("--slurm", "481223"))


def test_enter_on_a_recording_replays_it() -> None:
    """As on the list of runs."""
    board = keyboard(replace(LISTED, jobs=()))
    board.press("enter")
    assert board.shell.asked[-1] == OpenRun(LISTED.runs[0].path)
    assert board.page == "overview"


def test_the_screens_end_with_what_was_chosen(tmp_path: Path) -> None:
    """Whoever showed them goes on to watch it."""
    desk = Desk(None, tmp_path, can_attach=True)
    assert desk.desk().can_attach
    desk._obey(Attach(("--pid", "1")))
    assert desk.chosen == ("--pid", "1")
    assert desk.latest().phase == CLOSED


def test_the_screens_stay_where_what_was_chosen_has_ended_meanwhile(tmp_path: Path) -> None:
    """They would end in a line of the shell, and with them what was looked at."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    desk = Desk(None, tmp_path, can_attach=True)
    with pytest.raises(TuiadvisorError, match="that training has ended meanwhile"):
        desk._obey(Attach(("--pid", str(gone.pid), "-o", "next.tuirec")))
    assert desk.chosen == ()
    desk._obey(Attach(("--pid", str(gone.pid), str(os.getpid()), "-o", "next.tuirec")))
    assert desk.chosen[:1] == ("--pid",)


@pytest.mark.parametrize(
    ("said", "note"),
    [
        ("squeue: fatal: Could not establish a configuration source", ""),
        (
            "slurm_load_jobs error: Unable to contact slurm controller",
            "squeue: slurm_load_jobs error: Unable to",
        ),
    ],
)
def test_a_client_without_a_cluster_is_no_slurm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, note: str
) -> None:
    """Its message stood on home at each look; of a cluster that does not answer the reason stays."""
    program = tmp_path / "squeue"
    program.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found, why = slurm_jobs()
    assert not found
    assert why.startswith(note)
    assert bool(note) == bool(why)


def test_rows_of_squeue_are_read_whatever_a_job_is_called() -> None:
    """The name is last, for it may hold the separator; rows that are none are left out."""
    text = "481223|RUNNING|8|6:00:00|a|b\n\nerror\n481230|PENDING|1|0:00|eval\n"
    running, waiting = parsed_queue(text)
    assert (running.slurm, running.label, running.where) == ("481223", "a|b", "8 nodes, running")
    assert (waiting.where, waiting.is_running) == ("1 node, pending", False)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-3, "0 s"), (59.9, "59 s"), (1300, "21 m"), (8040, "2 h 14 m"), (270_000, "3 d 3 h")],
)
def test_ages_are_rough(seconds: float, words: str) -> None:
    """Nobody needs the seconds of a job that runs for days."""
    assert age(seconds) == words


@pytest.mark.slow
def test_without_a_terminal_the_list_is_text(tmp_path: Path) -> None:
    """A pipe gets both lists, and success; nothing waits for a key."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tuiadvisor"], cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "running here" in done.stdout
    assert "0 recordings in ." in done.stdout


@pytest.mark.parametrize("key", ["0", "8"])
def test_the_selected_sentence_is_whole_on_a_tall_screen_and_never_cut_without_a_sign(key: str) -> None:
    """A third row of it was dropped silently, beside twenty that were empty."""
    said = " ".join(f"word{number}" for number in range(60))
    listed = replace(LISTED, jobs=(), runs=tuple(replace(each, sentence=said) for each in LISTED.runs[:1]))
    board = keyboard(listed)
    board.press(key)

    def shown(width: int, height: int) -> str:
        return " ".join(" ".join(row.text.split()) for row in board.place.rows(width, height))

    assert said in shown(160, 45)
    assert f"{said[:100]}" in shown(80, 24)
    assert "…" in shown(80, 24).partition("selected")[2]


def test_a_run_that_has_ended_leads_on_to_the_next() -> None:
    """By o, and by home's list, where whoever shows the screens goes on; beside a run that goes on neither does."""
    listed = replace(LISTED, can_attach=False, goes_on=True)
    over = replace(views.live(views.healthy()), next_run=("--pid", "9000"))
    over = replace(over, view=replace(views.healthy(), ended="run finished"))
    board = keyboard(listed, over)
    board.press("1", "o")
    assert board.shell.asked[-1] == Attach(("--pid", "9000"))
    board.press("0", "down", "enter", "y", "enter")
    assert board.shell.asked[-1] == Attach(("--pid", "9000"))

    alone = keyboard(listed, replace(over, next_run=()))
    assert "does not train here again" in alone.press("1", "o")
    board = keyboard(listed, views.live(views.healthy()))
    assert "only in a live view whose run has ended" in board.press("1", "o")
    assert "in another terminal, tuiadvisor watch" in board.press("0", "down", "enter")


def test_the_next_run_is_watched_as_the_last_one_was() -> None:
    """With its options, but for what is watched and where it is kept; a training elsewhere has its own alone."""
    options = build_parser("watch").parse_args(["watch", "--pid", "7", "-o", "a.tuirec", "--budget", "0.1%"])
    following = watch._for_next(options, ("--pid", "9000", "-o", "b.tuirec"))
    assert (following.pid, following.output, following.budget_ppm) == ([9000], "b.tuirec", options.budget_ppm)
    elsewhere = watch._for_next(options, ("--slurm", "481223"))
    assert (elsewhere.pid, elsewhere.slurm, elsewhere.output) == ([], "481223", None)


@pytest.mark.parametrize("given", [[], ["-o", "kept.tuirec", "--budget", "0.1%"]])
def test_watch_lists_the_trainings_where_there_are_several(
    given: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended with a list of numbers to type; who names one, or has no terminal, is told as before."""
    watched = []

    def watch_one(options: Any, **_: object) -> tuple[bool, tuple[str, ...]]:
        watched.append(options)
        if not options.pid or options.pid == [7]:
            raise SeveralTrainingsError("2 trainings run here: ...")
        return True, ()

    monkeypatch.setattr(watch, "_watch_one", watch_one)
    monkeypatch.setattr(watch, "shows_screens", lambda: True)
    monkeypatch.setattr(watch, "choice", lambda *_: ("--pid", "9000"))
    parser = build_parser("watch")
    assert watch.run(parser.parse_args(["watch", *given])) == 0
    asked, chosen = watched
    assert (chosen.pid, chosen.output, chosen.budget_ppm) == ([9000], asked.output, asked.budget_ppm)

    with pytest.raises(SeveralTrainingsError):
        watch.run(parser.parse_args(["watch", "--pid", "7"]))
    monkeypatch.setattr(watch, "choice", lambda *_: ())
    watched.clear()
    assert watch.run(parser.parse_args(["watch"])) == 0
    assert len(watched) == 1


def pointed(board: Keyboard) -> list[str]:
    """The rows with the cursor's arrow."""
    return [row for row in board.draw().splitlines() if "▶" in row]


def test_the_arrow_is_the_cursor_and_never_a_mark_of_what_is_watched() -> None:
    """It stood before each watched job, while a faint ground alone told what enter takes."""
    board = keyboard()
    (row,) = pointed(board)
    assert LISTED.jobs[0].label in row
    board.press("down")
    (row,) = pointed(board)
    assert "sweep.py" in row
    board.press("G")
    (row,) = pointed(board)
    assert LISTED.runs[-1].name in row
    assert not any("▶" in each.text for each in job_lines(LISTED, 80))


def test_where_the_selected_job_ends_its_neighbour_is_selected() -> None:
    """Nothing was selected any more, and the next key down began at the top."""
    board = keyboard()
    board.press("down")
    board.place.take_desk(replace(LISTED, jobs=(LISTED.jobs[0], *LISTED.jobs[2:])))
    (row,) = pointed(board)
    assert LISTED.jobs[2].label in row
    board.place.take_desk(replace(LISTED, jobs=LISTED.jobs[:1]))
    (row,) = pointed(board)
    assert LISTED.runs[0].name in row


@pytest.mark.parametrize("ended", ["", "run finished"])
def test_the_key_to_the_next_run_says_in_a_recording_where_it_works(ended: str) -> None:
    """It said that the job does not train here again, which nobody had looked for."""
    state = views.replay(replace(views.straggler(), ended=ended))
    assert "o: only in a live view whose run has ended" in keyboard(LISTED, state).press("1", "o")


@pytest.mark.parametrize(("given", "kept"), [([], ""), (["-o", "run.tuirec"], "recorded in run.tuirec")])
def test_that_one_of_several_is_to_be_chosen_stands_there_until_it_was(
    given: list[str], kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Home opened as if it had been asked for, and nothing told that the choice would be recorded."""
    told: list[str] = []

    def several(*_: object, **__: object) -> tuple[bool, tuple[str, ...]]:
        raise SeveralTrainingsError("2 trainings run here: ...")

    monkeypatch.setattr(watch, "_watch_one", several)
    monkeypatch.setattr(watch, "shows_screens", lambda: True)
    monkeypatch.setattr(watch, "choice", lambda *words: told.append(words[-1]) or ())
    assert watch.run(build_parser("watch").parse_args(["watch", *given])) == 0
    board = keyboard(replace(LISTED, choosing=told[0]))
    board.now_s += 60
    text = board.press("down")
    assert "Several trainings run here: choose the one to watch" in text
    assert kept in text


@pytest.mark.parametrize("key", ["q", "escape"])
def test_back_at_home_it_looks_again(key: str) -> None:
    """The rows were those from before the recording was opened."""
    board = Keyboard(views.replay(), desk=LISTED)
    board.place.home = board.place.by_name["home"]
    board.press("1", key)
    assert board.page == "home"
    assert board.shell.asked[-2:] == [ListJobs(), ListRuns()]
