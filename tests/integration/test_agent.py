"""The agent as a process of its own, with ranks that are processes and a probe that is played by them.

The stand-in for an injection is a file named after the rank's pid: the rank opens the ring it names, as the probe
would. `test_agent_torch.py` does the same with the real probe.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import zmq
from patience import PATIENCE_S

from tuiadvisor.agent.session import mapped_rings
from tuiadvisor.events import EVENT_COLUMNS, STEP_COLUMNS
from tuiadvisor.stream.frames import Frame, FrameKind, decode, unpack_columns
from tuiadvisor.stream.voice import hear

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RANK = """
import atexit, json, os, sys, time
from tuiadvisor_probes import ring
inbox, behaviour = sys.argv[1], sys.argv[2]
if behaviour == "worker-too" and os.fork() == 0:
    time.sleep(60); os._exit(0)
writer, step = None, 0
def leave(reason):
    writer.put_event(38, (step, 0, 0, -1, -1, -1, reason))
    writer.put_u64(ring.OFFSET_STATE, ring.STATE_DETACHED)
def at_exit():
    if writer is not None and writer.get_u64(ring.OFFSET_STATE) == ring.STATE_LIVE: leave(2)
atexit.register(at_exit)
mine = os.path.join(inbox, str(os.getpid()))
while behaviour != "end" or step < 40:
    time.sleep(0.005)
    if os.path.exists(mine):
        code = open(mine).read(); os.unlink(mine)
        if code == "detach": leave(0); writer = None
        elif behaviour != "blocked":
            writer = ring.RingWriter(code)
            told = {"rank": int(os.environ["RANK"]), "world_size": 2, "python": "3.11.7"}
            writer.put_info(json.dumps(told).encode())
            writer.put_u64(ring.OFFSET_CLOCKS, time.time_ns())
            writer.put_u64(ring.OFFSET_STATE, ring.STATE_LIVE)
    if writer is None: continue
    writer.put_step((step, *range(1, ring.NUM_STEP_SLOTS))); step += 1
    for index, word in ((0, time.monotonic_ns() << 4 | 2), (2, step)): writer.put_u64(ring.OFFSET_NOW + 8 * index, word)
    if behaviour != "deaf" and writer.get_u64(ring.OFFSET_COMMAND) == ring.COMMAND_DETACH: leave(0); writer = None
    if behaviour == "restart" and step == 40: sys.exit(3)
    if behaviour == "exec" and step == 40: os.execv(sys.executable, [*sys.orig_argv[:-1], "step"])
"""

LAUNCHER = """
import os, subprocess, sys
def start(rank, behaviour):
    variables = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "TORCHELASTIC_RUN_ID": sys.argv[2]}
    command = [sys.executable, "-c", sys.argv[1], sys.argv[3], behaviour]
    return subprocess.Popen(command, env=os.environ | variables)
told = [(rank, *one.rpartition("=")[::2]) for rank, one in enumerate(sys.argv[4:])]  # "1=step": another rank's number
ranks = [start(claimed or rank, behaviour) for rank, claimed, behaviour in told]
print(*[rank.pid for rank in ranks], flush=True)
while True:
    for line in sys.stdin:
        rank = int(line)
        ranks[rank].wait()
        ranks[rank] = start(rank, "step")
        print(ranks[rank].pid, flush=True)
    for rank in ranks: rank.wait()
    break
"""

AGENT = """
import os, sys
from tuiadvisor.agent.agent import AgentConfig, run_agent
from tuiadvisor.agent.attach import Injector
from tuiadvisor.inject import Injection
inbox = sys.argv[1]
def inject(target, code):
    path = os.path.join(inbox, str(target.pid))
    with open(path + ".new", "w") as file: file.write(code)
    os.rename(path + ".new", path)
    return Injection(target.pid, "thread", 500_000, 9_000_000)
injector = Injector(inject, lambda path, folder: path, lambda: "detach", lambda pid: True)
parent = int(sys.argv[4]) if len(sys.argv) > 4 else None
sys.exit(run_agent(AgentConfig(sys.argv[2], (int(sys.argv[3]),), parent), injector))
"""


class Job:
    """A launcher and its ranks."""

    def __init__(self, inbox: Path, *behaviours: str, run_id: str = "") -> None:
        run_id = run_id or f"test-{os.getpid()}-{time.time_ns()}"
        command = [sys.executable, "-c", LAUNCHER, RANK, run_id, str(inbox)]
        self.launcher = subprocess.Popen(
            [*command, *behaviours], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pids = [int(word) for word in self._line().split()]

    def restart(self, rank: int) -> int:
        """Start a rank anew once it has ended; its pid."""
        assert self.launcher.stdin is not None
        self.launcher.stdin.write(f"{rank}\n")
        self.launcher.stdin.flush()
        self.pids.append(int(self._line()))
        return self.pids[-1]

    def stop(self) -> None:
        """Nothing of it is left."""
        for pid in [child.pid for child in psutil.Process(self.launcher.pid).children(recursive=True)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.launcher.kill()
        self.launcher.communicate()

    def _line(self) -> str:
        assert self.launcher.stdout is not None
        return self.launcher.stdout.readline()


class Hub:
    """Takes an agent's frames and keeps them."""

    def __init__(self, folder: Path) -> None:
        self.endpoint = f"ipc://{folder}/hub"
        self.frames: list[Frame] = []
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PULL)
        self._socket.bind(self.endpoint)

    def until(self, is_enough: Callable[[Hub], Any], limit_s: float = PATIENCE_S) -> Any:
        """Receive until this holds; what it returned."""
        deadline_s = time.monotonic() + limit_s
        while time.monotonic() < deadline_s:
            found = is_enough(self)
            if found:
                return found
            if self._socket.poll(50):
                self.frames.append(decode(hear(memoryview(self._socket.recv()))[1]))
        raise AssertionError(
            f"not within {limit_s} s; last: {[frame.kind.name for frame in self.frames[-9:]]}"
        )

    def of(self, kind: FrameKind) -> list[Any]:
        """Payloads of that kind so far."""
        return [frame.payload for frame in self.frames if frame.kind is kind]

    def states(self) -> dict[int | None, tuple[str, str]]:
        """Rank to (state, detail) by the latest status."""
        statuses = self.of(FrameKind.STATUS)
        return (
            {one["rank"]: (one["state"], one["detail"]) for one in statuses[-1]["ranks"]} if statuses else {}
        )

    def steps(self, rank: int) -> list[int]:
        """All steps received of a rank, in order."""
        found: list[int] = []
        for payload in self.of(FrameKind.STEPS):
            columns = unpack_columns(payload, ("rank", *STEP_COLUMNS))
            found += columns["step"][columns["rank"] == rank].tolist()
        return found

    def all_live(self, num_ranks: int = 2) -> bool:
        """Every rank is live."""
        return [state for state, _ in self.states().values()] == ["live"] * num_ranks

    def close(self) -> None:
        """Let go of the socket."""
        self._context.destroy(linger=0)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    there = Hub(tmp_path)
    yield there
    there.close()


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    started: list[Job] = []
    inbox = tmp_path / "inbox"
    inbox.mkdir()

    def start(*behaviours: str, run_id: str = "") -> Job:
        started.append(Job(inbox, *behaviours, run_id=run_id))
        return started[-1]

    yield start
    for job in started:
        job.stop()


@pytest.fixture
def agents(tmp_path: Path, hub: Hub) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(pid: int, *more: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", AGENT, str(tmp_path / "inbox"), hub.endpoint, str(pid), *more]
        started.append(subprocess.Popen(command))
        return started[-1]

    yield start
    for agent in started:
        agent.terminate()
    for agent in started:
        agent.wait(PATIENCE_S)


def rings_of(job: Job) -> list[str]:
    """Ring files of the job's processes that still exist."""
    paths = [path for pid in job.pids for path, _ in mapped_rings(pid)]
    return [path for path in paths if Path(path).exists()]


def pids_of(hub: Hub, rank: int) -> list[int]:
    """The processes that the agent introduced last as this rank."""
    return [one["pid"] for one in hub.of(FrameKind.HELLO)[-1]["ranks"] if one["rank"] == rank]


def test_ranks_are_found_attached_and_streamed_until_the_agent_is_stopped(
    hub: Hub, jobs: Callable[..., Job], agents: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """From discovery to orderly detach: every step once and in order, nothing left behind."""
    job = jobs("worker-too", "step")
    agent = agents(job.launcher.pid)
    hub.until(lambda hub: min(len(hub.steps(0)), len(hub.steps(1))) > 50)
    hub.until(lambda hub: len(hub.of(FrameKind.HOST)) > 1)
    rings = rings_of(job)

    agent.send_signal(signal.SIGTERM)
    hub.until(lambda hub: hub.of(FrameKind.BYE))

    assert agent.wait(PATIENCE_S) == 0
    assert hub.of(FrameKind.BYE) == [{"reason": "stopped by SIGTERM"}]
    assert [rank["pid"] for rank in hub.of(FrameKind.HELLO)[-1]["ranks"]] == job.pids
    for rank in (0, 1):
        assert hub.steps(rank) == list(range(len(hub.steps(rank))))
        assert hub.states()[rank] == ("detached", "probe taken out")
    assert len(rings) == 2
    assert [path for path in rings if Path(path).parent.exists()] == []
    assert [rank["rank"] for rank in hub.of(FrameKind.HOST)[-1]["ranks"]] == [0, 1]
    assert hub.of(FrameKind.HOST)[-1]["ranks"][0]["rss_bytes"] > 0
    assert [frame.seq for frame in hub.frames] == list(range(len(hub.frames)))


def test_killed_and_exited_ranks_are_told_apart_and_the_other_runs_on(
    hub: Hub, jobs: Callable[..., Job], agents: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """One rank ends by itself, then the other is killed; the agent says BYE when none is left."""
    job = jobs("step", "end")
    agent = agents(job.launcher.pid)
    hub.until(lambda hub: hub.states().get(1, ("", ""))[0] == "exited")
    num_steps = len(hub.steps(0))
    hub.until(lambda hub: len(hub.steps(0)) > num_steps + 20)

    os.kill(job.pids[0], signal.SIGKILL)
    hub.until(lambda hub: hub.states()[0][0] == "killed")
    hub.until(lambda hub: hub.of(FrameKind.BYE))

    assert hub.of(FrameKind.BYE) == [{"reason": "all ranks ended"}]
    assert agent.wait(PATIENCE_S) == 0
    assert hub.states()[1][1] == "exited after step 39"
    assert hub.steps(1) == list(range(40))
    assert f"after step {len(hub.steps(0)) - 1}" in hub.states()[0][1]
    assert hub.states()[0][1].startswith(("killed by SIGKILL", "gone without its exit hooks"))
    assert rings_of(job) == []


def test_restarted_rank_takes_the_place_of_the_one_that_ended(
    hub: Hub, jobs: Callable[..., Job], agents: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """An elastic restart: the launcher starts rank 1 anew, and it is watched without being asked."""
    job = jobs("step", "restart")
    agents(job.launcher.pid)
    hub.until(lambda hub: hub.states().get(1, ("", ""))[0] == "exited")
    new_pid = job.restart(1)

    hub.until(lambda hub: hub.all_live())

    assert [rank["pid"] for rank in hub.of(FrameKind.HELLO)[-1]["ranks"]] == [job.pids[0], new_pid]


@pytest.mark.parametrize("named", ["launcher", "rank"])
def test_a_rank_that_replaces_itself_by_exec_begins_anew(
    named: str, hub: Hub, jobs: Callable[..., Job], agents: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """Process id and start time stay, the probe is gone: the first life has ended, the second is watched."""
    job = jobs("exec", "step")
    agents(job.launcher.pid if named == "launcher" else job.pids[0])
    hub.until(
        lambda hub: hub.states().get(0, ("", "")) == ("exited", "replaced itself by exec after step 39")
    )
    hub.until(lambda hub: hub.states().get(0, ("", ""))[0] == "live" and len(hub.steps(0)) > 100)

    assert hub.steps(0)[:60] == [*range(40), *range(20)]
    assert pids_of(hub, 0) == [job.pids[0]]
    assert len(rings_of(job)) == (2 if named == "launcher" else 1)


def test_of_two_that_claim_a_rank_without_more_none_is_watched(
    hub: Hub, jobs: Callable[..., Job], agents: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """Both were started like rank 0: it is said, and who is left once one has ended is watched."""
    job = jobs("step", "step", "1=step")
    agents(job.launcher.pid)
    hub.until(lambda hub: len(hub.steps(0)) > 50)

    pids = f"{job.pids[1]} and {job.pids[2]}"
    why = f"processes {pids} all claim to be rank 1, so none is watched; name the right one with --pid"
    assert hub.states()[None] == ("waiting_to_attach", why)
    assert hub.steps(1) == []

    os.kill(job.pids[1], signal.SIGKILL)
    hub.until(lambda hub: hub.steps(1) and hub.states().get(1, ("", ""))[0] == "live")
    assert [rank["pid"] for rank in hub.of(FrameKind.HELLO)[-1]["ranks"] if rank["rank"] == 1] == [
        job.pids[2]
    ]


@pytest.mark.parametrize("is_watched", [True, False], ids=["watched", "not-yet-watched"])
def test_of_two_that_claim_a_rank_the_one_its_launcher_started_is_watched(
    tmp_path: Path,
    hub: Hub,
    jobs: Callable[..., Job],
    agents: Callable[..., subprocess.Popen[bytes]],
    *,
    is_watched: bool,
) -> None:
    """The other one was there before the job, perhaps even watched: it is given up, and that is said."""
    run_id = f"test-{os.getpid()}-{time.time_ns()}"
    variables = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": run_id}
    with subprocess.Popen(
        [sys.executable, "-c", RANK, str(tmp_path / "inbox"), "step"], env=os.environ | variables
    ) as other:
        try:
            if is_watched:
                agents(os.getpid())
                hub.until(lambda hub: hub.states().get(1, ("", ""))[0] == "live")
            job = jobs("step", "step", run_id=run_id)
            if not is_watched:
                agents(os.getpid())
            why = f"process {other.pid} claims to be rank 1 like process {job.pids[1]}, which is taken for it"
            hub.until(lambda hub: hub.states().get(None, ("", ""))[1].endswith(why))
            hub.until(lambda hub: hub.states().get(1, ("", ""))[0] == "live")
            assert pids_of(hub, 1) == [job.pids[1]]
        finally:
            other.kill()


def test_blocked_rank_waits_and_does_not_hold_up_the_others(
    hub: Hub, jobs: Callable[..., Job], agents: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """Its interpreter never runs the code: WAITING_TO_ATTACH, and the agent still leaves in order."""
    job = jobs("blocked", "step")
    agent = agents(job.launcher.pid)
    hub.until(lambda hub: len(hub.steps(1)) > 20)

    hub.until(lambda hub: hub.states()[0] == ("waiting_to_attach", "waiting for the interpreter"))

    agent.send_signal(signal.SIGINT)
    hub.until(lambda hub: hub.of(FrameKind.BYE))
    assert agent.wait(PATIENCE_S) == 0
    assert hub.steps(0) == []


def test_rank_that_does_not_listen_is_cleaned_from_outside(
    hub: Hub, jobs: Callable[..., Job], agents: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """It never looks at the command in its ring: after a second the removal is injected."""
    job = jobs("deaf", "step")
    agent = agents(job.launcher.pid)
    hub.until(lambda hub: hub.all_live())

    agent.send_signal(signal.SIGHUP)
    hub.until(lambda hub: hub.of(FrameKind.BYE))

    assert agent.wait(PATIENCE_S) == 0
    assert hub.states()[0] == ("detached", "probe taken out")
    assert rings_of(job) == []


def test_probes_leave_when_the_agents_parent_is_gone(
    hub: Hub, jobs: Callable[..., Job], agents: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """The command that started the agent was killed: the ranks are cleaned all the same."""
    job = jobs("step", "step")
    parent = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    agent = agents(job.launcher.pid, str(parent.pid))
    hub.until(lambda hub: hub.all_live())

    parent.kill()
    parent.communicate()
    hub.until(lambda hub: hub.of(FrameKind.BYE))

    assert hub.of(FrameKind.BYE) == [{"reason": "the command that watched has ended"}]
    assert agent.wait(PATIENCE_S) == 0
    assert rings_of(job) == []


def test_agent_after_a_killed_agent_takes_over_the_rings(
    hub: Hub, jobs: Callable[..., Job], agents: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """Kill -9 of the agent: the next one reads on in the same rings and counts no step twice."""
    job = jobs("step", "step")
    first = agents(job.launcher.pid)
    hub.until(lambda hub: hub.all_live() and hub.steps(0) and hub.steps(1))
    rings = rings_of(job)
    first.kill()
    first.wait()
    agent = agents(job.launcher.pid)
    hub.until(lambda hub: len({frame.source for frame in hub.frames}) == 2)
    num_steps = len(hub.steps(0))
    hub.until(lambda hub: hub.all_live() and len(hub.steps(0)) > num_steps + 20)

    assert rings_of(job) == rings
    assert len(hub.steps(0)) == len(set(hub.steps(0)))
    assert [rank["attach_way"] for rank in hub.of(FrameKind.HELLO)[-1]["ranks"]] == [None, None]

    agent.send_signal(signal.SIGTERM)
    hub.until(lambda hub: hub.of(FrameKind.BYE))
    assert agent.wait(PATIENCE_S) == 0
    assert [path for path in rings if Path(path).exists()] == []


def test_stopped_rank_stays_live_and_shows_where_it_is(
    hub: Hub, jobs: Callable[..., Job], agents: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """A rank that stands still is no failure: its phase and since when tell that it hangs."""
    job = jobs("step", "step")
    agents(job.launcher.pid)
    hub.until(lambda hub: hub.all_live() and hub.steps(0))
    os.kill(job.pids[0], signal.SIGSTOP)
    num_statuses = len(hub.of(FrameKind.STATUS))
    hub.until(lambda hub: len(hub.of(FrameKind.STATUS)) > num_statuses + 4)

    latest = hub.of(FrameKind.STATUS)[-1]
    (rank,) = [one for one in latest["ranks"] if one["rank"] == 0]
    assert (rank["state"], rank["phase"]) == ("live", "forward")
    assert latest["mono_ns"] - rank["phase_since_ns"] > 10**9
    os.kill(job.pids[0], signal.SIGCONT)


def test_detach_mark_reaches_the_hub(
    hub: Hub, jobs: Callable[..., Job], agents: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """What the probe wrote last is sent before BYE."""
    job = jobs("step", "step")
    agent = agents(job.launcher.pid)
    hub.until(lambda hub: hub.all_live())
    agent.send_signal(signal.SIGTERM)
    hub.until(lambda hub: hub.of(FrameKind.BYE))

    events = [
        unpack_columns(payload, ("rank", "kind", *EVENT_COLUMNS)) for payload in hub.of(FrameKind.EVENTS)
    ]
    marks = {
        (int(rank), int(kind)) for one in events for rank, kind in zip(one["rank"], one["kind"], strict=True)
    }
    assert marks == {(0, 38), (1, 38)}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--pid", str(1 << 22)], "no such process; leave --pid out"),
        (["--pid", "1", "--endpoint", "tcp://0.0.0.0:5555"], "only ipc:///path and tcp://127.0.0.1:port"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_two(hub: Hub, arguments: list[str], words: str) -> None:
    """The command says what is wrong; no traceback."""
    command = [sys.executable, "-m", "tuiadvisor.agent", "--endpoint", hub.endpoint, *arguments]

    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    assert ended.returncode == 2
    assert words in ended.stderr
    assert ended.stderr.count("\n") == 1
