"""A window of the profiler in running ranks, from asking to the trace, against ranks that answer, refuse and vanish."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from fake_time import NS, FakeTime

from tuiadvisor.agent import capture as capturing
from tuiadvisor.agent.capture import RankCapture, capture
from tuiadvisor.agent.room import TraceLimit
from tuiadvisor.agent.session import RingSession
from tuiadvisor.errors import FailureError, TuiadvisorError
from tuiadvisor.events import RankState
from tuiadvisor.inject import InjectError
from tuiadvisor.phases import PHASES


class Crew:
    """Runs what it is given at once."""

    def submit(self, work: Callable[..., object], *arguments: Any) -> Future[object]:
        made: Future[object] = Future()
        try:
            made.set_result(work(*arguments))
        except (TuiadvisorError, ValueError) as error:
            made.set_exception(error)
        return made


@dataclass
class Rank:
    """A rank that is there; says: the state.json that it has written after each of our looks, the last for ever."""

    folder: Path
    number: int | None = 0
    pid: int = 4711
    says: list[dict[str, object]] = field(default_factory=list)
    refuses: Exception | None = None  # what the injection ends with
    lives_for: int = 1 << 30  # looks
    now: tuple[int, int, int] = (-1, 0, 0)
    trace: bytes | None = b'{"traceEvents": []}'
    state: RankState = RankState.LIVE
    detail: str = ""
    asked: str = ""
    busy_for: int = 0  # requests that find it so
    busy: str = "busy_in_c"
    has_heard: bool = False

    @property
    def link(self) -> Any:
        """As an attached rank."""
        process = SimpleNamespace(pid=self.pid, uid=os.geteuid(), identity=self)
        clock = SimpleNamespace(to_rank=lambda at_ns: at_ns)
        reader = SimpleNamespace(now=lambda: self.now)
        return SimpleNamespace(
            rank=self.number, process=process, clock=clock, reader=reader, of=self,
            state=self.state, detail=self.detail,
        )  # fmt: skip

    def opened(self) -> RingSession:
        """Its folder."""
        self.folder.mkdir()
        descriptors = [os.open(place, os.O_RDONLY) for place in (self.folder, self.folder.parent)]
        return RingSession(str(self.folder), "/inside", *descriptors, probe_folder="/inside/probes")

    def take(self, code: str) -> None:
        """What is injected arrives, or not."""
        self.asked = code
        if self.busy_for:
            self.busy_for -= 1
            raise InjectError(self.pid, self.busy, "its thread did not stop", "it is waited for")
        self.has_heard = True
        if self.trace is not None:
            (self.folder / "trace.json").write_bytes(self.trace)
        if self.refuses is not None:
            raise self.refuses

    def looked_at(self) -> bool:
        """It goes on by one look; whether it still lives."""
        if self.says and self.folder.exists() and self.has_heard:
            said = self.says.pop(0) if len(self.says) > 1 else self.says[0]
            (self.folder / "state.json").write_bytes(orjson.dumps(said))
        self.lives_for -= 1
        return self.lives_for >= 0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeTime]:
    made = FakeTime()
    monkeypatch.setattr(capturing, "time", made)
    monkeypatch.setattr(capturing, "new_folder", lambda process: process.identity.opened())
    monkeypatch.setattr(capturing, "trace_limit", lambda *given: TraceLimit(given[-1] << 20, "half"))
    monkeypatch.setattr(capturing, "inject", lambda identity, code: identity.take(code))
    return made


def captured(
    out: Path, *ranks: Rank, patience_s: float = 20.0, **more: Any
) -> tuple[list[RankCapture], list[str]]:
    """What came of it, and the lines that were shown meanwhile."""
    out.mkdir(exist_ok=True)
    said: list[str] = []
    batch: Any = SimpleNamespace(
        links=[rank.link for rank in ranks], executor=Crew(), advance=lambda link: link.of.looked_at()
    )
    return capture(batch, 5, out, patience_s, said.append, **more), said


@pytest.mark.usefixtures("clock")
def test_each_rank_gives_its_trace_when_its_steps_are_done(tmp_path: Path) -> None:
    """The file is named by the rank, by the process where no rank is known; nothing stays in the rank's folder."""
    running = [{"state": "armed"}, {"state": "running", "first_step": 40}]
    done = {"state": "done", "first_step": 40, "cost_ns": {"start": 3, "stop": 4, "write": 5}}
    ranks = [
        Rank(tmp_path / "a", 0, says=[*running, done], trace=b"of rank 0"),
        Rank(tmp_path / "b", None, 52, says=[done], trace=b"of 52"),
    ]
    found, said = captured(tmp_path / "out", *ranks, with_shapes=True)
    assert [tmp_path / "out" / "rank0.json", tmp_path / "out" / "pid52.json"] == [one.file for one in found]
    assert [b"of rank 0", b"of 52"] == [one.file.read_bytes() for one in found if one.file]
    assert (40, 4) == (found[0].told.first_step, found[0].told.cost.stop_ns)
    assert ["1 armed, 1 done", "1 running, 1 done", "2 done"] == said
    assert "begin('/inside', 5, " in ranks[0].asked
    assert ", True, (2097152, 'half'))" in ranks[0].asked
    assert not (tmp_path / "a").exists()
    assert not (tmp_path / "b").exists()


@dataclass
class Listener(Rank):
    """Notes what stands in its folder at each look."""

    heard: list[str] = field(default_factory=list)

    def looked_at(self) -> bool:
        steps = self.folder / "steps"
        self.heard.append(steps.read_text() if steps.exists() else "")
        return super().looked_at()


@pytest.mark.usefixtures("clock")
def test_all_ranks_are_told_what_fits_in_the_one_with_the_least_room(tmp_path: Path) -> None:
    """Where all fit, nobody is told; a link in the place of the file is not written through."""
    (tmp_path / "victim").write_text("untouched")
    recording, done = {"state": "recording"}, {"state": "done"}
    fits = [{**recording, "fits": number} for number in (9, 3, 3)]
    ranks = [
        Listener(tmp_path / "a", 0, says=[recording, recording, recording, done]),
        Listener(tmp_path / "b", 1, says=[*fits, done]),
    ]
    links = [rank.link for rank in ranks]
    made = ranks[1].opened
    ranks[1].opened = lambda: (made(), (tmp_path / "b" / "steps").symlink_to(tmp_path / "victim"))[0]  # type: ignore[method-assign]
    batch: Any = SimpleNamespace(links=links, executor=Crew(), advance=lambda link: link.of.looked_at())
    capture(batch, 5, tmp_path / "out", 20.0, lambda _: None)
    assert ["", "", "3", "3"] == ranks[0].heard
    assert ["untouched", "untouched", "3", "3"] == ranks[1].heard
    assert "untouched" == (tmp_path / "victim").read_text()


@pytest.mark.usefixtures("clock")
def test_a_trace_of_fewer_steps_says_why(tmp_path: Path) -> None:
    """The file is there, and so is the reason."""
    why = "it ended after 2 of 5 steps"
    (found,), _ = captured(tmp_path / "out", Rank(tmp_path / "a", says=[{"state": "done", "why": why}]))
    assert (tmp_path / "out" / "rank0.json", why) == (found.file, found.why)


@pytest.mark.parametrize(
    ("rank", "why"),
    [
        ({"says": [{"state": "refused", "why": "kineto is in use"}]}, "kineto is in use"),
        ({"says": [{"state": "refused"}]}, "it does not say why"),
        ({"state": RankState.EXITED, "detail": "it has ended"}, "it has ended"),
        ({"state": RankState.EXITED}, "it did not answer in time"),
        ({"lives_for": 2}, "it ended; it left no trace"),
        ({"refuses": FailureError("ptrace is forbidden")}, "ptrace is forbidden"),
        ({"refuses": ValueError("odd")}, "the request failed: ValueError('odd')"),
        ({}, "its interpreter did not take the request: it is busy in C, or its probe is of another version"),
        (
            {"says": [{"state": "armed"}], "now": (PHASES.index("data_wait"), 1000 * NS, 7)},
            "no step ended within 20 s, in data wait for 20 s; given up (--patience waits longer)",
        ),
        ({"says": [{"state": "armed"}]}, "no step ended within 20 s; given up (--patience waits longer)"),
    ],
)
@pytest.mark.usefixtures("clock")
def test_a_rank_that_gives_no_trace_says_why(tmp_path: Path, rank: dict[str, Any], why: str) -> None:
    """And the window is taken back from it."""
    (found,), _ = captured(tmp_path / "out", Rank(tmp_path / "a", **rank))
    assert (None, why) == (found.file, found.why)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("reason", ["busy", "busy_in_c", "timeout", "stopped", "being_debugged"])
def test_a_rank_that_is_busy_when_it_is_asked_is_asked_again(
    tmp_path: Path, clock: FakeTime, reason: str
) -> None:
    """Once a second, until its patience is over: that it was busy for a moment is no reason to go without its trace."""
    begun_ns = clock.now_ns
    rank = Rank(tmp_path / "a", says=[{"state": "done"}], busy_for=3, busy=reason)
    (found,), _ = captured(tmp_path / "out", rank)
    assert ("", 0) == (found.why, rank.busy_for)
    assert 3 * NS <= clock.now_ns - begun_ns < 5 * NS


def test_a_rank_that_stays_busy_is_given_up(tmp_path: Path, clock: FakeTime) -> None:
    """With what kept the request out."""
    begun_ns = clock.now_ns
    (found,), _ = captured(tmp_path / "out", Rank(tmp_path / "a", busy_for=1000))
    assert found.why.endswith("its thread did not stop; it is waited for")
    assert 20 * NS < clock.now_ns - begun_ns < 23 * NS


@pytest.mark.usefixtures("clock")
def test_a_request_that_failed_late_and_arrived_is_followed(tmp_path: Path) -> None:
    """Who asked was told that it did not answer in time, and the rank has begun all the same."""
    says: list[dict[str, object]] = [*[{"state": "recording"}] * 30, {"state": "done"}]
    late = InjectError(4711, "fault", "the remote call failed", "look")
    (found,), _ = captured(tmp_path / "out", Rank(tmp_path / "a", says=says, refuses=late))
    assert "" == found.why
    assert found.file is not None


def test_a_rank_whose_steps_go_on_is_waited_for(tmp_path: Path, clock: FakeTime) -> None:
    """Patience counts from the last step that ended."""
    rank = Rank(tmp_path / "a", says=[{"state": "running"}] * 900 + [{"state": "done"}])
    begun_ns = clock.now_ns

    def looked_at() -> bool:
        rank.now = (0, 0, (clock.now_ns - begun_ns) // (15 * NS))
        return Rank.looked_at(rank)

    link = rank.link
    (tmp_path / "out").mkdir()
    batch: Any = SimpleNamespace(
        links=[link], executor=Crew(), advance=lambda _: (setattr(link.of, "now", rank.now), looked_at())[1]
    )
    (found,) = capture(batch, 5, tmp_path / "out", 20.0)
    assert "" == found.why
    assert clock.now_ns - begun_ns > 40 * NS


@pytest.mark.usefixtures("clock")
def test_a_folder_that_cannot_be_made_is_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is asked then."""

    def full(_: object) -> RingSession:
        raise TuiadvisorError("no room for it")

    monkeypatch.setattr(capturing, "new_folder", full)
    (found,), _ = captured(tmp_path / "out", Rank(tmp_path / "a"))
    assert (None, "no room for it") == (found.file, found.why)


@pytest.mark.usefixtures("clock")
def test_a_link_in_place_of_the_trace_is_not_followed(tmp_path: Path) -> None:
    """A rank's user could name any file that we may read."""
    secret = tmp_path / "secret"
    secret.write_text("ours")
    rank = Rank(tmp_path / "a", says=[{"state": "done"}], trace=None, has_heard=True)
    rank.take = lambda _: (rank.folder / "trace.json").symlink_to(secret)  # type: ignore[method-assign,assignment,return-value]
    (found,), _ = captured(tmp_path / "out", rank)
    assert found.file is None
    assert found.why.startswith("its trace could not be fetched: ")
    assert [] == list((tmp_path / "out").iterdir())


@pytest.mark.usefixtures("clock")
def test_a_trace_that_cannot_be_fetched_whole_leaves_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What reads the folder later would take the beginning of a trace for damage, or for all of it."""

    def full(source: Any, file: Any, _: int) -> None:
        file.write(source.read(4))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(capturing.shutil, "copyfileobj", full)
    (found,), _ = captured(tmp_path / "out", Rank(tmp_path / "a", says=[{"state": "done"}]))
    assert found.file is None
    assert "No space left on device" in found.why
    assert [] == list((tmp_path / "out").iterdir())


@pytest.mark.usefixtures("clock")
def test_a_trace_of_before_is_not_written_over(tmp_path: Path) -> None:
    """Nor removed."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "rank0.json").write_text("of before")
    (found,), _ = captured(tmp_path / "out", Rank(tmp_path / "a", says=[{"state": "done"}]))
    assert found.file is None
    assert "of before" == (tmp_path / "out" / "rank0.json").read_text()


@pytest.mark.usefixtures("clock")
def test_leaving_early_takes_the_wish_back(tmp_path: Path) -> None:
    """Its folder goes, and the rank's window with it."""

    class EarlyError(Exception):
        pass

    def leave(_: object) -> bool:
        raise EarlyError

    rank = Rank(tmp_path / "a", says=[{"state": "running"}])
    (tmp_path / "out").mkdir()
    batch: Any = SimpleNamespace(links=[rank.link], executor=Crew(), advance=leave)
    with pytest.raises(EarlyError):
        capture(batch, 5, tmp_path / "out", 20.0)
    assert not (tmp_path / "a").exists()
