"""A rank's link and the drain, with a probe that is played by the test itself."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tuiadvisor.agent import agent as agent_module
from tuiadvisor.agent import attach as attach_module
from tuiadvisor.agent import workingcopy
from tuiadvisor.agent.attach import Injector, attach_unless_importing
from tuiadvisor.agent.discovery import RankProcess
from tuiadvisor.agent.drain import ROWS_PER_FRAME, Drain, status_of
from tuiadvisor.agent.hello import hello
from tuiadvisor.agent.info import parse_info
from tuiadvisor.agent.payload import detach_code
from tuiadvisor.agent.rank_link import MAX_BROKEN_OFF, RETRY_NS, RankLink
from tuiadvisor.agent.session import LEASE_NS, RingSession, create_session
from tuiadvisor.events import EVENT_NAMES, STEP_COLUMNS, STEP_NAMES, EventKind, RankState
from tuiadvisor.inject import Identity, InjectError, Injection
from tuiadvisor.inject.payload import wrapped
from tuiadvisor.stream.frames import FrameKind, unpack_columns
from tuiadvisor.stream.shapes import check_payload
from tuiadvisor_probes import ring as ring_file
from tuiadvisor_probes.duty import DEFAULT_BUDGET_PPM

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW_NS = 10**12


class AtOnce(Executor):
    """Runs a job where it is submitted."""

    def submit(self, function: Any, /, *arguments: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(function(*arguments, **options))
        except Exception as error:  # noqa: BLE001  # a future carries any
            future.set_exception(error)
        return future


@dataclass
class Probe:
    """What an injection would put into the process: a writer on the ring that the code names."""

    writers: list[ring_file.RingWriter] = field(default_factory=list)
    codes: list[str] = field(default_factory=list)
    refusals: list[InjectError] = field(default_factory=list)
    has_torch: bool = True

    def inject(self, target: Identity, code: str) -> Injection:
        self.codes.append(code)
        if self.refusals:
            raise self.refusals.pop(0)
        if code.startswith("/"):
            self.writers.append(ring_file.RingWriter(code))
        return Injection(target.pid, "thread", 400_000, 9_000_000)

    def injector(self) -> Injector:
        return Injector(self.inject, lambda path, _: path, lambda: "#detach", lambda _: self.has_torch)

    @property
    def writer(self) -> ring_file.RingWriter:
        return self.writers[-1]

    def is_in(self, phase: int, since_ns: int, step: int) -> None:
        for index, value in ((0, since_ns << 4 | phase), (2, step)):
            self.writer.put_u64(ring_file.OFFSET_NOW + 8 * index, value & (1 << 64) - 1)

    def come_up(self, info: bytes = b'{"rank": 2, "world_size": 4, "python": "3.11.7"}') -> None:
        self.writer.put_info(info)
        self.writer.put_u64(ring_file.OFFSET_CLOCKS, 1)
        self.writer.put_u64(ring_file.OFFSET_STATE, ring_file.STATE_LIVE)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that can be watched and ended."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


@pytest.fixture
def probe() -> Iterator[Probe]:
    played = Probe()
    yield played
    for writer in played.writers:
        writer.close()


@pytest.fixture
def link(child: subprocess.Popen[bytes], probe: Probe) -> Iterator[RankLink]:
    made = RankLink(rank_process(child.pid), probe.injector())
    yield made
    made.release()


@pytest.fixture
def own_ring() -> Iterator[RingSession]:
    made = create_session(os.getpid(), os.geteuid())
    yield made
    made.remove()


def rank_process(pid: int, rank: int | None = 2) -> RankProcess:
    stat = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return RankProcess(
        pid=pid,
        ppid=os.getpid(),
        start_ticks=int(stat[19]),
        uid=os.geteuid(),
        rank=rank,
        local_rank=rank,
        world_size=4 if rank is not None else None,
        local_world_size=4,
        command="python train.py",
        label="train.py",
        python="3.11",
        start_wall_ns=None,
        master=None,
        run_id=None,
        job="run 1",
    )


def refusal(reason: str) -> InjectError:
    return InjectError(1, reason, "it is busy", "wait")


def advance(link: RankLink, seconds: float = 0.0) -> RankState:
    link.advance(NOW_NS + int(seconds * 10**9), AtOnce())
    link.read_info()
    return link.state


def live(link: RankLink, probe: Probe) -> None:
    advance(link)
    probe.come_up()
    advance(link)


def step_row(step: int) -> tuple[int, ...]:
    return (step, *range(100, 99 + len(STEP_COLUMNS)))


def test_attach_goes_from_found_over_waiting_to_live(link: RankLink, probe: Probe) -> None:
    """The ring is there before the code runs, with a lease; LIVE is what the probe says."""
    assert link.state == RankState.FOUND
    advance(link)
    assert advance(link) == RankState.WAITING_TO_ATTACH
    assert probe.writer.get_u64(ring_file.OFFSET_LEASE) == NOW_NS + LEASE_NS

    probe.come_up()

    assert advance(link, 5) == RankState.LIVE
    assert probe.writer.get_u64(ring_file.OFFSET_LEASE) == NOW_NS + 5 * 10**9 + LEASE_NS
    assert (link.rank, link.world_size, link.detail) == (2, 4, "")
    assert Injection(link.process.pid, "thread", 400_000, 9_000_000) == link.injection


def test_a_lease_begins_when_the_probe_is_put_in(link: RankLink, probe: Probe) -> None:
    """However long the attach waited for its turn or for the compiler: it is no second of the lease."""
    before_ns = time.monotonic_ns()
    advance(link)
    until_ns = probe.writer.get_u64(ring_file.OFFSET_LEASE)
    assert before_ns + LEASE_NS <= until_ns <= time.monotonic_ns() + LEASE_NS


def test_budget_and_bursts_reach_the_ring(link: RankLink, probe: Probe) -> None:
    """What is wished before the attach is written once the probe is there; later another watcher's word stands."""
    link.want_budget(1000)
    assert not link.ask_for_burst(3000)
    advance(link)
    advance(link)
    probe.come_up()
    assert advance(link) == RankState.LIVE
    assert 1001 == probe.writer.get_u64(ring_file.OFFSET_BUDGET)
    assert 1000 == link.budget_ppm
    before_ns = time.monotonic_ns()
    assert link.ask_for_burst(3000)
    assert before_ns + 3 * 10**9 <= probe.writer.get_u64(ring_file.OFFSET_BURST) < before_ns + 60 * 10**9
    probe.writer.put_u64(ring_file.OFFSET_BUDGET, 1 + 70)
    advance(link)
    assert 70 == link.budget_ppm


def test_a_budget_nobody_spoke_of_is_the_probes_own(link: RankLink, probe: Probe) -> None:
    """0 in the ring; and what no agent of ours would write is unknown."""
    advance(link)
    advance(link)
    assert link.budget_ppm == DEFAULT_BUDGET_PPM
    probe.writer.put_u64(ring_file.OFFSET_BUDGET, 1 << 62)
    advance(link)
    assert link.budget_ppm is None


def test_process_without_torch_is_waited_for(link: RankLink, probe: Probe) -> None:
    """Nothing is injected while the imports run; a second later it is tried again."""
    probe.has_torch = False
    assert advance(link) == RankState.FOUND
    assert link.detail == "has not imported torch yet"
    assert probe.codes == []

    probe.has_torch = True

    assert advance(link, 0.5) == RankState.FOUND
    advance(link, 1.1)
    assert advance(link, 1.2) == RankState.WAITING_TO_ATTACH


@pytest.mark.parametrize("reason", ["busy_in_c", "timeout", "stopped", "being_debugged"])
def test_rank_blocked_in_c_is_waited_for_and_no_failure(link: RankLink, probe: Probe, reason: str) -> None:
    """The way in is closed for now: WAITING_TO_ATTACH with the reason, then tried again."""
    probe.refusals = [refusal(reason)]
    advance(link)

    assert advance(link) == RankState.WAITING_TO_ATTACH
    assert link.detail == "it is busy; wait"
    assert len(probe.codes) == 1

    advance(link, 0.1 + RETRY_NS / 10**9)
    assert link.detail == "it is busy; wait"  # still in sight while it is tried
    advance(link, 0.2 + RETRY_NS / 10**9)
    probe.come_up()
    assert advance(link, 2) == RankState.LIVE


def test_rank_that_still_imports_torch_is_tried_again(link: RankLink, probe: Probe) -> None:
    """The code found torch half imported and said so: no refusal, a new ring a second later."""
    advance(link)
    probe.writer.put_info(b'{"error": "torch is still being imported"}')
    probe.writer.put_u64(ring_file.OFFSET_STATE, ring_file.STATE_FAILED)

    assert advance(link) == RankState.FOUND
    assert link.detail == "torch is still being imported"

    advance(link, 1.1)
    probe.come_up()
    assert advance(link, 1.2) == RankState.LIVE
    assert len(probe.writers) == 2


def test_rank_whose_attach_was_broken_off_is_tried_again(link: RankLink, probe: Probe) -> None:
    """A signal's handler raised amid it, in the main thread. One that does so each time is not asked for ever."""
    for attempt in range(MAX_BROKEN_OFF):
        assert RankState.FOUND == link.state, link.detail
        advance(link, 1.1 * attempt)
        probe.writer.put_info(orjson.dumps({"error": ring_file.BROKEN_OFF}))
        probe.writer.put_u64(ring_file.OFFSET_STATE, ring_file.STATE_FAILED)
        advance(link, 1.1 * attempt)
        assert ring_file.BROKEN_OFF in link.detail
    assert RankState.REFUSED == link.state
    assert MAX_BROKEN_OFF == len(probe.writers)


class TimeLimitError(Exception):
    """What a handler of the training's raises."""


@pytest.mark.parametrize("place", ["step_clock.py", "install.py", "model_hooks.py"])
def test_an_attach_that_a_handler_breaks_off_says_so(own_ring: RingSession, place: str) -> None:
    """While modules are loaded or hooks installed: nothing stays, the ring says why, the exception is the host's."""

    def limit(*_: object) -> None:
        raise TimeLimitError

    def interrupt(frame: FrameType, *_: object) -> None:
        if frame.f_code.co_filename.endswith(place) and frame.f_code.co_name == names[place]:
            signal.raise_signal(signal.SIGUSR1)

    names = {"step_clock.py": "<module>", "install.py": "put_info", "model_hooks.py": "install"}
    torch = pytest.importorskip("torch")
    before = list(gc.callbacks), torch.autograd.backward
    former = signal.signal(signal.SIGUSR1, limit)
    try:
        sys.settrace(interrupt)
        with pytest.raises(TimeLimitError):
            exec(wrapped(attach_unless_importing(own_ring.inner_ring_path, None)), {})  # noqa: S102
    finally:
        sys.settrace(None)
        signal.signal(signal.SIGUSR1, former)

    reader = ring_file.RingReader(own_ring.ring_path)
    assert ring_file.STATE_FAILED == reader.get_u64(ring_file.OFFSET_STATE)
    assert ring_file.BROKEN_OFF == parse_info(reader.info()).error
    assert not [name for name in sys.modules if name.startswith("_tuiadvisor_probe")]
    assert before == (gc.callbacks, torch.autograd.backward)
    reader.close()


@pytest.mark.parametrize("function", ["flush", "end", "Patch.remove", "forget_modules", "put_event"])
def test_what_a_handler_raises_while_the_probe_leaves_comes_when_it_has_left(
    own_ring: RingSession, function: str
) -> None:
    """As at a step's end, in the training thread: the half of it would stay for ever, and bar the next."""

    def limit(*_: object) -> None:
        raise TimeLimitError

    def interrupt(frame: FrameType, *_: object) -> None:
        if "tuiadvisor_probes" in frame.f_code.co_filename and frame.f_code.co_qualname.endswith(function):
            signal.raise_signal(signal.SIGUSR1)

    torch = pytest.importorskip("torch")
    before = list(gc.callbacks), torch.autograd.backward
    exec(attach_unless_importing(own_ring.inner_ring_path, None), {})  # noqa: S102
    assert before != (gc.callbacks, torch.autograd.backward)
    former = signal.signal(signal.SIGUSR1, limit)
    interrupted = False
    try:
        sys.settrace(interrupt)
        exec(wrapped(detach_code()), {})  # noqa: S102
    except TimeLimitError:
        interrupted = True
    finally:
        sys.settrace(None)
        signal.signal(signal.SIGUSR1, former)

    reader = ring_file.RingReader(own_ring.ring_path)
    assert ring_file.STATE_DETACHED == reader.get_u64(ring_file.OFFSET_STATE)
    assert not [name for name in sys.modules if name.startswith("_tuiadvisor_probe")]
    assert before == (gc.callbacks, torch.autograd.backward)
    assert interrupted
    reader.close()


@pytest.mark.parametrize("has_spec", [True, False])
def test_attach_code_stands_back_while_torch_is_imported(
    own_ring: RingSession, monkeypatch: pytest.MonkeyPatch, has_spec: bool
) -> None:
    """Run as an injection would: the ring says why, and nothing is loaded."""
    half_torch = ModuleType("torch")
    half_torch.__spec__ = ModuleSpec("torch", None) if has_spec else None
    if half_torch.__spec__ is not None:
        half_torch.__spec__._initializing = True  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "torch", half_torch)
    else:
        monkeypatch.delitem(sys.modules, "torch", raising=False)

    exec(attach_unless_importing(own_ring.inner_ring_path, None), {})  # noqa: S102  # that is what it is for

    reader = ring_file.RingReader(own_ring.ring_path)
    assert reader.get_u64(ring_file.OFFSET_STATE) == ring_file.STATE_FAILED
    assert parse_info(reader.info()).error == "torch is still being imported"
    assert not [name for name in sys.modules if name.startswith("_tuiadvisor_probe")]
    reader.close()


def test_attach_that_fails_leaves_the_process_open_for_the_next(
    own_ring: RingSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ring was gone when the interpreter came to it, because the agent had left: nothing of it stays."""
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    own_ring_path = own_ring.inner_ring_path

    with pytest.raises(FileNotFoundError):
        exec(attach_unless_importing(own_ring_path + ".gone", None), {})  # noqa: S102  # that is what it is for

    assert not [name for name in sys.modules if name.startswith("_tuiadvisor_probe")]


def test_forbidden_process_is_refused_with_its_remedy(link: RankLink, probe: Probe) -> None:
    """Refused for good, nothing left behind, never tried again."""
    probe.refusals = [InjectError(1, "ptrace_forbidden", "tracing is forbidden", "run as root")]
    advance(link)

    assert advance(link) == RankState.REFUSED
    assert link.detail == "tracing is forbidden; run as root"
    assert advance(link, 60) == RankState.REFUSED
    assert len(probe.codes) == 1
    assert not Path(probe.codes[0]).exists()


def test_probe_that_cannot_be_installed_is_refused_with_its_words(link: RankLink, probe: Probe) -> None:
    """STATE_FAILED comes with an error in the info area."""
    advance(link)
    probe.writer.put_info(b'{"error": "no optimizer hooks in torch 1.8"}')
    probe.writer.put_u64(ring_file.OFFSET_STATE, ring_file.STATE_FAILED)

    assert advance(link) == RankState.REFUSED
    assert link.detail == "the probe could not be installed: no optimizer hooks in torch 1.8"


def killed(pid: int) -> InjectError:
    return InjectError(pid, "tracer_killed", "the process that injects was killed (SIGKILL)", "try again")


def test_a_killed_tracer_that_had_done_its_work_is_no_refusal(
    link: RankLink, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is true shows in the ring: the probe is awake, so the rank is attached to."""
    injector = probe.injector()

    def inject(target: Identity, code: str) -> Injection:
        injector.inject(target, code)
        probe.come_up()
        raise killed(target.pid)

    own = RankLink(link.process, replace(injector, inject=inject))
    advance(own)
    assert (advance(own), own.injection) == (RankState.LIVE, None)
    own.release()


def test_a_killed_tracer_that_had_not_begun_is_tried_again(
    link: RankLink, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ring stays empty: it is deleted, and the next try makes its own."""
    monkeypatch.setattr(attach_module, "WAKES_UP_S", 0.0)
    probe.refusals.append(killed(link.process.pid))
    advance(link)
    assert advance(link) == RankState.WAITING_TO_ATTACH
    assert "was killed (SIGKILL)" in link.detail
    advance(link, 1.1)
    probe.come_up()
    assert advance(link, 1.2) == RankState.LIVE


def test_a_file_system_that_hangs_holds_no_attach_up(
    link: RankLink, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit is looked up beside the attach and named once it is known."""
    answers = threading.Event()
    monkeypatch.setattr(workingcopy, "_find", lambda _: "c0ffee" if answers.wait(60) else "given up")
    live(link, probe)
    assert link.git_commit is None

    answers.set()
    for thread in threading.enumerate():
        if thread.name == "git commit":
            thread.join(60)
    assert link.git_commit == "c0ffee"


def test_second_agent_shares_the_probe_and_counts_nothing_twice(link: RankLink, probe: Probe) -> None:
    """It finds the ring in this process's maps and reads from the present head on."""
    own = RankLink(rank_process(os.getpid()), probe.injector())
    live(own, probe)
    probe.writer.put_step(step_row(0))
    second = RankLink(own.process, probe.injector())

    advance(second)
    assert advance(second) == RankState.LIVE
    probe.writer.put_step(step_row(1))

    assert len(probe.codes) == 1
    assert second.injection is None
    assert second.reader is not None
    assert [step_row(1)] == second.reader.take_steps()

    second.ask_to_leave()
    assert (second.state, second.detail) == (RankState.DETACHED, "another watcher keeps the probe")
    assert probe.writer.get_u64(ring_file.OFFSET_COMMAND) == ring_file.COMMAND_NONE
    assert advance(own) == RankState.LIVE
    own.release()


def test_agents_that_come_in_the_same_moment_share_the_probe_that_was_first(
    link: RankLink, probe: Probe
) -> None:
    """The later one's code finds a probe there and does nothing: its own ring never wakes up."""
    own = RankLink(rank_process(os.getpid()), probe.injector())
    nothing = replace(probe.injector(), inject=lambda target, _: Injection(target.pid, "thread", 1, 1))
    late = RankLink(own.process, nothing)
    for one in (own, late, late):
        advance(one)
    assert late.session is not None
    never_woken = Path(late.session.directory)
    probe.come_up()
    assert advance(own) == RankState.LIVE

    advance(late, 1.1)

    assert advance(late, 1.2) == RankState.LIVE
    assert late.injection is None
    assert not never_woken.exists()
    late.ask_to_leave()
    assert (late.state, late.detail) == (RankState.DETACHED, "another watcher keeps the probe")
    assert advance(own, 1.3) == RankState.LIVE
    own.release()


def test_probe_without_a_file_is_sent_away_before_ours_comes(link: RankLink, probe: Probe) -> None:
    """The process still maps a deleted ring: the code first takes that probe out."""
    own = RankLink(rank_process(os.getpid()), probe.injector())
    live(own, probe)
    own.release()
    second = RankLink(own.process, probe.injector())

    advance(second)

    assert probe.codes[-1].startswith("#detach")
    second.release()
    assert not Path(probe.codes[-1].removeprefix("#detach")).exists()


def test_detach_is_a_word_in_the_ring_and_the_probe_answers(link: RankLink, probe: Probe) -> None:
    """No injection is needed while the rank makes steps."""
    live(link, probe)

    link.ask_to_leave()

    assert probe.writer.get_u64(ring_file.OFFSET_COMMAND) == ring_file.COMMAND_DETACH
    probe.writer.put_u64(ring_file.OFFSET_STATE, ring_file.STATE_DETACHED)
    assert advance(link) == RankState.DETACHED
    link.push_out(AtOnce())
    assert len(probe.codes) == 1


def test_rank_that_makes_no_events_is_cleaned_from_outside(link: RankLink, probe: Probe) -> None:
    """Without an answer the removal is injected."""
    live(link, probe)
    link.ask_to_leave()
    advance(link)

    link.push_out(AtOnce())

    assert probe.codes[-1] == "#detach"


def test_probe_that_left_for_want_of_a_lease_is_put_in_again(link: RankLink, probe: Probe) -> None:
    """The agent was stopped for a while: its ranks come back without the user's help."""
    live(link, probe)
    probe.writer.put_event(EventKind.DETACHED, (7, 0, 0, -1, -1, -1, 1))
    probe.writer.put_u64(ring_file.OFFSET_STATE, ring_file.STATE_DETACHED)
    advance(link)
    Drain().take(link)

    link.come_back()
    advance(link, 60)
    probe.come_up()

    assert advance(link, 61) == RankState.LIVE
    assert len(probe.writers) == 2


def test_probe_taken_out_by_somebody_stays_out(link: RankLink, probe: Probe) -> None:
    """Tuiadvisor detach in another terminal is respected."""
    live(link, probe)
    probe.writer.put_event(EventKind.DETACHED, (7, 0, 0, -1, -1, -1, 0))
    probe.writer.put_u64(ring_file.OFFSET_STATE, ring_file.STATE_DETACHED)
    advance(link)
    Drain().take(link)
    link.come_back()

    assert advance(link, 60) == RankState.DETACHED
    assert link.detail.startswith("somebody else took the probe out: `tuiadvisor detach`, or")


@pytest.mark.parametrize("rank", [2, None])
def test_probe_that_leaves_with_its_process_was_taken_out_by_nobody(
    rank: int | None, child: subprocess.Popen[bytes], probe: Probe
) -> None:
    """Said at once: a change of state is sent before the ring is drained, and one without a number never is."""
    link = RankLink(rank_process(child.pid, rank), probe.injector())
    advance(link)
    probe.come_up(b'{"python": "3.11.7"}')
    assert advance(link, 1) == RankState.LIVE
    probe.writer.put_event(EventKind.DETACHED, (7, 0, 0, -1, -1, -1, 2))
    probe.writer.put_u64(ring_file.OFFSET_STATE, ring_file.STATE_DETACHED)

    assert advance(link, 2) == RankState.DETACHED
    assert link.detail == "the process is exiting"
    link.release()


@pytest.mark.parametrize("under_way", [340, 341])
def test_rank_killed_while_live_is_killed_with_its_signal(
    link: RankLink, probe: Probe, child: subprocess.Popen[bytes], under_way: int
) -> None:
    """A zombie still tells its signal; the last steps are read before the ring goes.

    under_way: as the ring tells, which one that is killed right behind its record does not say any more.
    """
    live(link, probe)
    probe.writer.put_step(step_row(340))
    probe.is_in(2, 5, under_way)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    drain = Drain()

    assert not drain.has_first_steps
    assert link.look_for_end()
    drain.take(link)
    assert drain.has_first_steps
    link.end()

    assert (link.state, link.detail) == (RankState.KILLED, "killed by SIGKILL after step 340")
    assert unpack_columns(next(drain.frames())[1], STEP_NAMES)["step"].tolist() == [340]
    assert not drain.has_first_steps
    assert not Path(probe.codes[0]).exists()


def test_a_rank_that_left_by_os_exit_with_code_0_was_not_killed(probe: Probe) -> None:
    """Its zombie tells the code, its ring the last step; it was "gone: killed, or os._exit"."""
    code = "import os, sys; sys.stdin.read(); os._exit(0)"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as leaving:
        link = RankLink(rank_process(leaving.pid), probe.injector())
        live(link, probe)
        probe.is_in(2, 5, 341)
        assert leaving.stdin is not None
        leaving.stdin.close()
        os.waitid(os.P_PID, leaving.pid, os.WEXITED | os.WNOWAIT)
        assert link.look_for_end()
        link.end()

        assert RankState.EXITED == link.state
        assert "left with exit code 0 after step 340, without its exit hooks (os._exit)" == link.detail
        assert 341 == status_of(link)["step"]


@pytest.mark.parametrize(
    ("reason", "state", "words"),
    [
        (None, RankState.KILLED, "gone without its exit hooks after step 11"),
        (2, RankState.EXITED, "exited after step 11"),
        (0, RankState.EXITED, "exited or was killed after step 11"),
    ],
)
def test_end_that_nobody_saw_is_told_by_the_ring(  # noqa: PLR0917  # three are fixtures
    link: RankLink,
    probe: Probe,
    child: subprocess.Popen[bytes],
    reason: int | None,
    state: RankState,
    words: str,
) -> None:
    """The parent took the exit code: an orderly exit wrote DETACHED, a kill did not."""
    live(link, probe)
    probe.is_in(-1, 0, 12)
    if reason is not None:
        probe.writer.put_event(EventKind.DETACHED, (12, 0, 0, -1, -1, -1, reason))
        probe.writer.put_u64(ring_file.OFFSET_STATE, ring_file.STATE_DETACHED)
    advance(link)
    child.kill()
    child.wait()
    assert link.look_for_end()
    Drain().take(link)

    link.end()

    assert (state, words) == (link.state, link.detail.partition(":")[0])


def test_reused_pid_counts_as_ended(child: subprocess.Popen[bytes], probe: Probe) -> None:
    """Another start time is another process."""
    process = rank_process(child.pid)

    assert not RankLink(process, probe.injector()).look_for_end()
    assert RankLink(replace(process, start_ticks=process.start_ticks - 1), probe.injector()).look_for_end()


def test_shortened_ring_ends_the_link_and_not_the_agent(link: RankLink, probe: Probe) -> None:
    """Somebody cut the file: said so, never read again."""
    live(link, probe)
    os.truncate(probe.codes[0], 5000)
    drain = Drain()

    drain.take(link)
    status_of(link)

    assert advance(link) == RankState.REFUSED
    assert link.detail == "its ring was deleted or cut short by somebody"
    assert list(drain.frames()) == []


def test_rank_of_the_process_itself_outweighs_its_environment(link: RankLink, probe: Probe) -> None:
    """SLURM_PROCID 2 may be rank 0 of the process group."""
    advance(link)
    probe.come_up(b'{"rank": 0, "world_size": 2}')
    advance(link)

    assert (link.rank, link.world_size) == (0, 2)


def test_steps_of_a_rank_without_a_number_wait_in_the_ring(
    child: subprocess.Popen[bytes], probe: Probe
) -> None:
    """Nothing is sent under a guessed rank, and nothing is lost by waiting."""
    link = RankLink(rank_process(child.pid, rank=None), probe.injector())
    advance(link)
    probe.come_up(b'{"rank": null, "python": "3.11.7"}')
    advance(link)
    probe.writer.put_step(step_row(0))
    drain = Drain()
    drain.take(link)
    assert list(drain.frames()) == []

    probe.writer.put_info(b'{"rank": 3, "world_size": 4, "python": "3.11.7"}')
    advance(link)
    drain.take(link)

    ((kind, payload),) = drain.frames()
    assert kind == FrameKind.STEPS
    assert unpack_columns(payload, STEP_NAMES)["rank"].tolist() == [3]
    link.release()


def test_frames_carry_every_row_once_and_stay_below_the_limit(link: RankLink, probe: Probe) -> None:
    """Many rows are several frames; the columns are those of the ring with the rank in front."""
    live(link, probe)
    drain = Drain()
    for start in range(0, 10_000, 2_000):
        for step in range(start, start + 2_000):
            probe.writer.put_step(step_row(step))
        drain.take(link)
    probe.writer.put_event(EventKind.GC, (5, 10, 20, -1, -1, -1, 2))
    drain.take(link)

    frames = list(drain.frames())

    assert [kind for kind, _ in frames] == [FrameKind.STEPS, FrameKind.STEPS, FrameKind.EVENTS]
    assert [payload["rows"] for _, payload in frames] == [ROWS_PER_FRAME, 10_000 - ROWS_PER_FRAME, 1]
    steps = [unpack_columns(payload, STEP_NAMES) for _, payload in frames[:2]]
    assert list(range(10_000)) == [*steps[0]["step"].tolist(), *steps[1]["step"].tolist()]
    assert {step_row(0)[STEP_COLUMNS.index("cpu_ns")]} == set(steps[0]["cpu_ns"].tolist())
    events = unpack_columns(frames[2][1], EVENT_NAMES)
    assert (2, int(EventKind.GC), 5, 2) == tuple(
        int(events[name][0]) for name in ("rank", "kind", "step", "detail")
    )
    assert list(drain.frames()) == []


def test_status_says_phase_step_losses_and_disabled_hooks(link: RankLink, probe: Probe) -> None:
    """What is overwritten before it is read is counted, and shown."""
    live(link, probe)
    assert link.reader is not None
    for step in range(link.reader.step_capacity + 10):
        probe.writer.put_step(step_row(step))
    probe.is_in(3, 777, 4106)
    probe.writer.put_u64(ring_file.OFFSET_DISABLED, 0b101)
    probe.writer.put_u64(ring_file.OFFSET_ERRORS, 2)
    Drain().take(link)

    status = status_of(link)

    assert status == {
        "rank": 2,
        "state": "live",
        "detail": "",
        "phase": "backward",
        "phase_since_ns": 777,
        "step": 4106,
        "lost_steps": 10,
        "lost_events": 0,
        "hooks_disabled": 2,
        "errors": 2,
        "thread": None,
    }


def test_fresh_ring_tells_no_phase(link: RankLink, probe: Probe) -> None:
    """Zeros in a new header are not "in data_wait since 0"."""
    live(link, probe)

    assert (status_of(link)["phase"], status_of(link)["phase_since_ns"]) == (None, None)


def test_hello_introduces_ranks_in_the_form_of_its_frame(link: RankLink, probe: Probe) -> None:
    """Versions from the process, the measured attach, and nothing that the frame's check refuses."""
    live(link, probe)

    payload = hello("node1", [link], (["NVIDIA H200"], None, ""))

    assert payload is check_payload(FrameKind.HELLO, payload)
    ranks: Any = payload["ranks"]
    assert tuple(ranks[0][name] for name in ("rank", "state", "python", "label", "attach_stopped_ns")) == (
        2,
        "live",
        "3.11.7",
        "train.py",
        400_000,
    )


def test_successors_are_looked_for_before_they_are_given_up() -> None:
    """A dear look comes seldom, but not while a restarted job is waited for."""
    assert agent_module.SEARCH_NS == agent_module.search_pause_ns(0, is_waiting=False)
    dear_ns = agent_module.RESTART_NS // 50
    assert 2 * agent_module.RESTART_NS == agent_module.search_pause_ns(dear_ns, is_waiting=False)
    assert agent_module.RESTART_NS > 4 * agent_module.search_pause_ns(dear_ns, is_waiting=True)
