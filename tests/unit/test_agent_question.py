"""Asking a process that may stand still: its answer in time, or why there is none; nothing of ours stays with it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from fake_time import FakeTime

from tuiadvisor.agent import flight_recorder, procfs, question, stack_samples, stacks
from tuiadvisor.agent.discovery import RankProcess
from tuiadvisor.agent.session import RingSession
from tuiadvisor.errors import FailureError
from tuiadvisor.inject.identity import OtherProcessError
from tuiadvisor.stream.probe_request import StackRequest

OWN = os.getpid()
HELD = "its interpreter does not answer: a thread is busy in C code"


@dataclass
class Process:
    """Takes what is injected; files: what it writes then. looks: after how many of our looks."""

    folder: Path
    files: dict[str, object] = field(default_factory=dict)
    looks: int = 0
    refuses: Exception | None = None
    calls: list[str] = field(default_factory=list)
    time: FakeTime = field(default_factory=lambda: FakeTime(0.0))

    def looked_at(self) -> None:
        """One more of our looks was in vain."""
        self.looks -= 1
        self.write()
        self.time.after(question.LOOK_S, self.looked_at)

    def write(self) -> None:
        if self.looks <= 0 and self.folder.exists():
            for name, said in self.files.items():
                (self.folder / name).write_bytes(said if isinstance(said, bytes) else orjson.dumps(said))

    def made(self, _: object) -> RingSession:
        """A folder for it."""
        self.folder.mkdir()
        descriptors = [os.open(place, os.O_RDONLY) for place in (self.folder, self.folder.parent)]
        return RingSession(str(self.folder), "/inside", *descriptors, probe_folder=None)

    def take(self, _: object, code: str) -> None:
        self.calls.append(code)
        if self.refuses is not None:
            raise self.refuses
        self.write()


Begin = Callable[..., Process]


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Begin:
    def begun(**more: Any) -> Process:
        made = Process(tmp_path / "asked", **more)
        made.time.after(question.LOOK_S, made.looked_at)
        monkeypatch.setattr(question, "time", made.time)
        monkeypatch.setattr(question, "new_folder", made.made)
        monkeypatch.setattr(question, "inject", made.take)
        monkeypatch.setattr(question, "standalone_code", lambda stem, call: f"{stem}.{call}")
        return made

    return begun


def own(rank: int | None = 0) -> RankProcess:
    """This process, which is there and runs."""
    found = procfs.stat(OWN)
    assert found is not None
    identity = SimpleNamespace(pid=OWN)
    made: Any = SimpleNamespace(
        pid=OWN, start_ticks=found.start_ticks, uid=os.geteuid(), rank=rank, identity=identity
    )
    return made  # type: ignore[no-any-return]


def test_an_answer_is_waited_for_and_its_folder_goes(begin: Begin) -> None:
    """Further files are read as long as it is there; a link in their place is no file of the process."""
    process = begin(files={"state.json": {"call": "x"}, "fr.json": b"recorded"}, looks=3)
    with question.asked(own(), "recorded", 5) as answer:
        (process.folder / "nccl.json").symlink_to("/etc/passwd")
        assert ({"call": "x"}, b"recorded") == (orjson.loads(answer.said), answer.read("fr.json", 100))
        assert (b"reco", b"", b"") == (
            answer.read("fr.json", 4),
            answer.read("nccl.json", 100),
            answer.read("none.json", 100),
        )
    assert ["stuck.recorded('/inside', 5)"] == process.calls
    assert not process.folder.exists()


def test_who_does_not_answer_is_given_up(begin: Begin) -> None:
    """After the patience that was meant, and its folder goes, too."""
    process = begin()
    with pytest.raises(FailureError, match=HELD), question.asked(own(), "report", patience_s=7.0):
        pass
    assert 7.0 == pytest.approx(process.time.now_s, abs=0.1)
    assert not process.folder.exists()


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, HELD),
        ({"refuses": FailureError("ptrace is forbidden")}, "ptrace is forbidden"),
        ({"refuses": OSError("no memory\x1b")}, "no memory?"),
        ({"files": {"state.json": {"groups": []}}}, "it has no process group"),
        ({"files": {"state.json": {"why": "no torch in it"}}}, "no torch in it"),
    ],
)
def test_a_recorder_that_says_nothing_says_why(begin: Begin, more: dict[str, Any], why: str) -> None:
    """In words that a terminal can show."""
    process = begin(**more)
    assert why == flight_recorder.ask_recorder(own())["why"]
    assert not process.folder.exists()


def test_a_recorders_calls_come_with_its_groups(begin: Begin) -> None:
    """Each recorder that was named is read."""
    said = {"recorders": {"fr": "", "nccl": "it is off"}, "groups": [], "why": ""}
    begin(files={"state.json": said, "fr.json": {"entries": []}})
    entry = flight_recorder.ask_recorder(own())
    assert [("fr", []), ("nccl", None)] == [(one["name"], one.get("entries")) for one in entry["recorders"]]
    (listed,) = flight_recorder.ask_recorders([own()])
    assert (OWN, 1) == (listed["pid"], listed["still_since_ns"])


@pytest.mark.parametrize(("state", "why"), [("T", flight_recorder.STOPPED), ("t", flight_recorder.STOPPED)])
def test_a_stopped_process_is_left_alone(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, state: str, why: str
) -> None:
    """Whoever stopped it did so on purpose."""
    process = begin()
    found = own()
    stat = SimpleNamespace(start_ticks=found.start_ticks, is_alive=True, state=state)
    monkeypatch.setattr(flight_recorder.procfs, "stat", lambda _: stat)
    assert {"why": why} == flight_recorder.ask_recorder(found)
    assert [] == process.calls


def test_another_process_of_the_number_is_not_asked(begin: Begin) -> None:
    """Neither for its recorder nor for its stacks."""
    process = begin()
    gone = own()
    gone.start_ticks += 1  # type: ignore[misc]
    assert {"why": "it has ended"} == flight_recorder.ask_recorder(gone)
    (told,) = stacks.stacks_of([gone], None)
    assert ("it has ended", False) == (told.why, told.was_asked)
    assert [] == process.calls


@pytest.mark.parametrize(("second", "moved"), [(4, False), (5, True)])
def test_a_rank_is_asked_twice_whether_it_moves(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, second: int, *, moved: bool
) -> None:
    """A number that rose meanwhile is of no hang."""
    process = begin()
    numbers = iter((4, second))
    monkeypatch.setattr(stacks, "time", process.time)
    monkeypatch.setattr(stacks, "present_session", lambda _: None)

    def take(*_: object) -> None:
        group = {"name": "0", "purpose": "", "members": [0, 1], "seq": next(numbers)}
        process.files = {"state.json": {"call": "all_reduce", "rank": 1, "groups": [group]}}
        process.write()

    monkeypatch.setattr(question, "inject", take)
    (told,) = stacks.stacks_of([own()], None)
    assert (1, "all_reduce", moved, True, second) == (
        told.rank,
        told.call,
        told.moved,
        told.was_asked,
        told.groups[0].seq,
    )


def test_a_rank_that_does_not_answer_says_why_with_its_stacks(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What py-spy could not see either stands beside it."""
    begin()
    monkeypatch.setattr(stacks, "present_session", lambda _: None)
    monkeypatch.setattr(stacks, "native_frames", lambda *_, **__: ((), "py-spy: not allowed"))
    (told,) = stacks.stacks_of([own()], "/bin/py-spy")
    assert (f"{HELD}; py-spy: not allowed", False) == (told.why, told.was_asked)


REQUEST = StackRequest(7, "straggler", (0,), 1000)
SAMPLED = {
    "frames": [["step", "/home/me/train.py", 9], ["main", "/home/me/train.py", 20]],
    "stacks": [[0, 1], [1]],
    "samples": [0, 0, 1],
}


def sampled(monkeypatch: pytest.MonkeyPatch, spy: str | None = None) -> dict[str, Any]:
    """The one entry of a rank's thread."""
    monkeypatch.setattr(stack_samples, "find_spy", lambda: spy)
    monkeypatch.setattr(stack_samples, "loader_workers", lambda _: [])
    monkeypatch.setattr(stack_samples, "confirm", lambda _: None)
    (entry,) = stack_samples.sample_processes({0: own()}, REQUEST)
    return dict(entry)


def test_without_py_spy_a_thread_inside_samples(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """For as long and as often as was asked."""
    process = begin(files={"state.json": SAMPLED})
    entry = sampled(monkeypatch)
    assert ("inside", [0, 0, 1], "") == (entry["way"], entry["samples"], entry["why"])
    assert (0, 7, "straggler", 0) == (entry["rank"], entry["look"], entry["subject"], entry["of"])
    assert process.calls[0].startswith("stuck.sample('/inside', 1000000000, 10309278, ")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (None, HELD),
        ({}, "no stack was seen"),
        ({**SAMPLED, "samples": [9]}, "what it said of its stacks cannot be read"),
        ({**SAMPLED, "frames": [1]}, "what it said of its stacks cannot be read"),
        ({**SAMPLED, "stacks": [[7]]}, "what it said of its stacks cannot be read"),
    ],
)
def test_samples_that_cannot_be_had_say_why(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, said: object, why: str
) -> None:
    """Strangers' words end nothing."""
    begin(files={} if said is None else {"state.json": said})
    entry = sampled(monkeypatch)
    assert why == entry["why"]
    assert "samples" not in entry


def test_py_spys_reason_stands_beside_the_other(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways were tried."""
    begin()
    monkeypatch.setattr(stack_samples, "_by_spy", lambda *_: ({}, "py-spy: not permitted"))
    assert f"py-spy: not permitted; {HELD}" == sampled(monkeypatch, "/bin/py-spy")["why"]


def test_a_process_that_is_another_now_is_not_looked_at(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That is the reason, whatever the looks brought."""
    process = begin()

    def gone(_: object) -> None:
        raise OtherProcessError("gone", "it has ended")

    monkeypatch.setattr(stack_samples, "find_spy", lambda: None)
    monkeypatch.setattr(stack_samples, "loader_workers", lambda _: [])
    monkeypatch.setattr(stack_samples, "confirm", gone)
    (entry,) = stack_samples.sample_processes({0: own()}, REQUEST)
    assert "it has ended" == entry["why"]
    assert [] == process.calls
