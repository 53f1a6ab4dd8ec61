"""A run that has ended and trains again by other processes is offered, and nothing else is."""

from __future__ import annotations

import os
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from tests.snapshot import views
from tuiadvisor.agent.discovery import FoundTraining, RankProcess
from tuiadvisor.app import started_again
from tuiadvisor.app.started_again import StartedAgain

if TYPE_CHECKING:
    from pathlib import Path

    from tuiadvisor.views.run_view import RunView

UID = os.getuid()


def training(pid: int, label: str = "train.py", uid: int = UID, num: int = 2) -> FoundTraining:
    """Ranks from this process on, their launcher the one before."""
    ranks = tuple(
        RankProcess(
            pid=pid + rank, ppid=pid - 1, start_ticks=1, uid=uid, rank=rank, local_rank=rank, world_size=num,
            local_world_size=num, command=label, label=label, python="3.11", start_wall_ns=None, master=None,
            run_id=None, job="",
        )
        for rank in range(num)
    )  # fmt: skip
    return FoundTraining(ranks, (pid - 1,))


def over() -> RunView:
    """The end of a run on this host, whose processes are 501 and on."""
    view = views.healthy()
    ranks = tuple(replace(row, pid=501 + row.rank) for row in view.ranks)
    run = replace(view.run, label="train.py", hosts=("here",))
    return replace(view, run=run, ranks=ranks, ended="run finished")


def said(view: RunView, *found: FoundTraining, host: str = "here", kept: str = "") -> str:
    """After one look."""
    return looked(view, *found, host=host, kept=kept)[0]


def looked(
    view: RunView, *found: FoundTraining, host: str = "here", kept: str = "", goes_on: bool = False
) -> tuple[str, tuple[str, ...]]:
    """What is said after one look, and the options for the key."""
    again = StartedAgain(lambda: (list(found), 0), kept=kept, goes_on=goes_on)
    again.sentence(view, host)
    again.wait()
    return again.sentence(view, host), again.options


@pytest.fixture(autouse=True)
def _nobody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(started_again, "mapped_rings", lambda _pid: ())


def test_the_same_job_by_other_processes_is_offered() -> None:
    """With what `watch` takes for it."""
    assert said(over(), training(901)) == "train.py trains here again (2 ranks): tuiadvisor watch --pid 900"


def test_a_run_that_is_kept_is_followed_by_one_that_is_kept(tmp_path: Path) -> None:
    """Only recorded runs are compared with what B marked: the command left the next one unrecorded."""
    kept = tmp_path / "my run.tuirec"
    kept.touch()
    (tmp_path / "my run-after.tuirec").touch()
    ends = f"tuiadvisor watch --pid 900 -o '{tmp_path}/my run-after2.tuirec'"
    assert said(over(), training(901), kept=str(kept)).endswith(ends)


@pytest.mark.parametrize(
    ("kept", "following"),
    [
        ("nl-after", "nl-after2"),
        ("nl-after2", "nl-after3"),
        ("-after", "-after-after"),
        ("hereafter", "hereafter-after"),
    ],
)
def test_a_further_run_counts_on(kept: str, following: str, tmp_path: Path) -> None:
    """The second restart was kept as nl-after-after.tuirec."""
    names = {"nl-after": ["nl", "nl-after"], "nl-after2": ["nl", "nl-after", "nl-after2"]}.get(kept, [])
    for name in names:
        (tmp_path / f"{name}.tuirec").touch()
    options = looked(over(), training(901), goes_on=True, kept=str(tmp_path / f"{kept}.tuirec"))[1]
    assert options[-1] == str(tmp_path / f"{following}.tuirec")


def test_screens_that_lead_on_have_a_key_for_it(tmp_path: Path) -> None:
    """Nothing has to be pasted into another terminal; without the key there are no options for it."""
    told, options = looked(over(), training(901), goes_on=True)
    assert told == "train.py trains here again (2 ranks): o watches it"
    assert options == ("--pid", "900")
    kept = str(tmp_path / "run.tuirec")
    told, options = looked(over(), training(901), goes_on=True, kept=kept)
    assert told == "train.py trains here again (2 ranks): o watches it, kept as run-after.tuirec"
    assert options == ("--pid", "900", "-o", str(tmp_path / "run-after.tuirec"))
    assert looked(over(), training(901), kept=kept)[1] == ()
    assert looked(over(), training(901, label="other.py"), goes_on=True) == ("", ())


def test_a_file_s_name_is_no_option() -> None:
    assert looked(over(), training(901), goes_on=True, kept="-x.tuirec")[1][-2:] == (
        "-o",
        "./-x-after.tuirec",
    )


@pytest.mark.parametrize(
    ("view", "found"),
    [
        (replace(over(), ended=""), training(901)),  # it goes on
        (over(), training(501)),  # a rank of the run itself
        (over(), training(901, label="other.py")),
        (replace(over(), run=replace(over().run, hosts=("elsewhere",))), training(901)),
    ],
)
def test_nothing_else_is(view: RunView, found: FoundTraining) -> None:
    assert said(view, found) == ""


def test_the_same_file_name_in_another_folder_is_another_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three people train a train.py on one machine: whose run ended was offered another one's."""
    folders = {501: "/home/me/job", 901: "/home/you/job", 951: "/home/me/job"}
    monkeypatch.setattr(started_again, "working_folder", lambda pid: folders.get(pid, ""))
    lives = replace(over(), ended="", ranks=tuple(replace(row, host="here") for row in over().ranks))
    offered = []
    for pid in (901, 951):
        again = StartedAgain(lambda pid=pid: ([training(pid)], 0))
        again.sentence(lives, "here")
        again.sentence(over(), "here")
        again.wait()
        offered.append(again.sentence(over(), "here"))
    assert offered == ["", "train.py trains here again (2 ranks): tuiadvisor watch --pid 950"]


def test_what_its_own_launcher_starts_anew_is_watched_on_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with torchrun --max-restarts: the screens offered the job that they were about to show again."""
    parent = SimpleNamespace(ppid=900)
    monkeypatch.setattr(started_again, "stat", lambda _pid: parent)
    monkeypatch.setattr(started_again, "working_folder", lambda _pid: "/home/me/job")
    now_s = [100.0]
    again = StartedAgain(lambda: ([training(901)], 0), lambda: now_s[0])
    lives = replace(over(), ended="", ranks=tuple(replace(row, host="here") for row in over().ranks))
    said_at = []
    again.sentence(lives, "here")
    for after_s in (1.0, 2 * started_again.PICKED_UP_S):
        now_s[0] += after_s
        again.sentence(over(), "here")
        again.wait()
        said_at.append(bool(again.sentence(over(), "here")))
    assert said_at == [False, True], "where nobody has picked it up by then it is worth a word"


def test_one_that_ran_beside_it_is_not_its_next_run() -> None:
    found = training(901)
    view = replace(over(), run=replace(over().run, started_wall_s=1_000.0))
    begun = [
        replace(found, ranks=tuple(replace(rank, start_wall_ns=int(at * 1e9)) for rank in found.ranks))
        for at in (900.0, 1_100.0)
    ]
    assert [bool(said(view, one)) for one in begun] == [False, True]


def test_one_that_began_while_it_still_ran_is_not_its_next_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of a sweep in one folder: who began beside it is no restart, and was to be kept as one."""
    monkeypatch.setattr(started_again, "working_folder", lambda _pid: "/home/me/job")
    lives = replace(over(), ended="", ranks=tuple(replace(row, host="here") for row in over().ranks))
    offered = []
    for began_s in (1_500.0, 2_001.0):
        ranks = tuple(replace(rank, start_wall_ns=int(began_s * 1e9)) for rank in training(901).ranks)
        found = replace(training(901), ranks=ranks)
        again = StartedAgain(lambda found=found: ([found], 0), wall_s=lambda: 2_000.0, goes_on=True)
        again.sentence(lives, "here")
        again.sentence(over(), "here")
        again.wait()
        offered.append(bool(again.sentence(over(), "here")))
        assert again.sentence(lives, "here") == ""
        assert again.options == (), "of a run that goes on after all nothing leads on"
    assert offered == [False, True]


def test_one_that_is_watched_already_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(started_again, "mapped_rings", lambda _pid: ("ring",))
    assert said(over(), training(901)) == ""


def test_it_looks_every_few_seconds_and_forgets_what_is_gone() -> None:
    """Not at every picture: there are ten a second."""
    now_s, looks = [100.0], []
    found = [training(901)]

    def look() -> tuple[list[FoundTraining], int]:
        looks.append(now_s[0])
        return list(found), 0

    again = StartedAgain(look, lambda: now_s[0])
    for _ in range(5):
        again.sentence(over(), "here")
        again.wait()
    assert looks == [100.0]
    assert again.sentence(over(), "here")
    found.clear()
    now_s[0] += started_again.LOOK_EVERY_S
    again.sentence(over(), "here")
    again.wait()
    assert again.sentence(over(), "here") == ""
    assert len(looks) == 2


def test_a_look_that_fails_is_no_matter_of_the_screens() -> None:
    def look() -> tuple[list[FoundTraining], int]:
        raise OSError("/proc is gone")

    again = StartedAgain(look)
    again.sentence(over(), "here")
    again.wait()
    assert again.sentence(over(), "here") == ""
