"""What breaks around a running training: its steps go on as before, and what was lost is said.

One training for all of them. TUIADVISOR_LONG_FAULTS=1 takes the full times: a cut of 30 s, a viewer stopped for 60.
"""

from __future__ import annotations

import os
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import orjson
import psutil
import pytest
from networks import HUB_ADDRESS, Network, can_make_networks, network
from patience import PATIENCE_S, wait_until
from training import running

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.app.live_session import Session
from tuiadvisor.errors import FailureError
from tuiadvisor.stream.attendance import (
    AGENT_RETURNED,
    AGENT_SILENT,
    BAD_FRAMES,
    FRAMES_MISSING,
    NOT_RECORDED,
)
from tuiadvisor.stream.frames import Frame, FrameKind, decode, unpack_columns
from tuiadvisor.stream.keys import Invitation, PeerKey, make_session_keys
from tuiadvisor.stream.link import AgentLink
from tuiadvisor.stream.recording import RecordingReader
from tuiadvisor.stream.scan import read_summary
from tuiadvisor.stream.source import LiveSource

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

IS_LONG = bool(os.environ.get("TUIADVISOR_LONG_FAULTS"))
CUT_S = 30.0 if IS_LONG else 6.0
STOPPED_S = 60.0 if IS_LONG else 5.0
TIMED = Path(__file__).parents[1] / "timed_training.py"
# The short cut needs an agent that gives a dead connection up sooner.
IMPATIENT = """
import tuiadvisor.agent.__main__ as agent, tuiadvisor.stream.connecting as connecting
connecting.UNACKNOWLEDGED_MS = 1500
agent.main()
"""
AGENT = ["-m", "tuiadvisor.agent"] if IS_LONG else ["-c", IMPATIENT]
VIEWER = """
import sys
from tuiadvisor.stream.source import LiveSource
source, num_bytes = LiveSource(sys.argv[1]), 0
while not source.status.ended:
    frames = source.read(0.2)
    num_bytes += sum(map(len, frames))
    print(num_bytes, source.status.bytes_behind, source.status.note, flush=True)
"""


@dataclass
class Job:
    """A training of two ranks, and when its steps ended."""

    pid: int
    prefix: Path
    usual_s: float = 0.0

    def steps_s(self, since_s: float, until_s: float) -> list[float]:
        """How long the steps took that ended within, rank 0's."""
        path = Path(f"{self.prefix}.0")
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        ends = [int(line) / 1e9 for line in lines]
        return [end - begin for begin, end in pairwise(ends) if since_s <= end <= until_s]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    prefix = tmp_path_factory.mktemp("training") / "steps"
    with running(2, "--step-ms", "40", "--step-times", str(prefix), script=TIMED) as (training, _):
        made = Job(training.pid, prefix)
        wait_until(lambda: len(made.steps_s(0, time.monotonic())) >= 80)
        made.usual_s = statistics.median(made.steps_s(0, time.monotonic())[20:])
        yield made
        assert training.poll() is None


@contextmanager
def unaffected(job: Job) -> Iterator[None]:
    """The training makes its steps while the fault lasts: no step waits for its end.

    What a step costs beside a watcher is a figure of the machine, and measured in `make bench`.
    """
    begin_s = time.monotonic()
    yield
    end_s = time.monotonic()
    steps_s = job.steps_s(begin_s, end_s)
    assert steps_s
    print(f"{len(steps_s)} steps in {end_s - begin_s:.1f} s, longest {max(steps_s):.3f} s")
    assert max(steps_s) < (end_s - begin_s) / 2


@dataclass
class Place:
    """A hub, agents and viewers of a test, all ended with it."""

    folder: Path
    hubs: list[subprocess.Popen[bytes]] = field(default_factory=list)
    agents: list[subprocess.Popen[bytes]] = field(default_factory=list)
    viewers: list[LiveSource] = field(default_factory=list)

    def hub(self, name: str, endpoint: str, *, prefix: tuple[str, ...] = (), keys: bytes = b"") -> str:
        """Start one that records to NAME; the address for agents."""
        command = [*prefix, sys.executable, "-m", "tuiadvisor.stream.hub", "--record", str(self.record(name))]
        command += ["--endpoint", endpoint, "--viewer", self.viewer_url, *(["--keys"] if keys else [])]
        hub = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.hubs.append(hub)
        assert hub.stdin is not None
        assert hub.stdout is not None
        with hub.stdin:
            hub.stdin.write(keys)
        return str(orjson.loads(hub.stdout.readline())["endpoint"])

    @property
    def viewer_url(self) -> str:
        """Where viewers come in."""
        return f"ipc://{self.folder}/s/viewer"

    def record(self, name: str) -> Path:
        """Where a hub of this name records."""
        return self.folder / f"{name}.tuirec"

    def agent(
        self, job: Job, url: str, *, prefix: tuple[str, ...] = (), key: PeerKey | None = None
    ) -> subprocess.Popen[bytes]:
        """Start one for the training."""
        command = [*prefix, sys.executable, *AGENT, "--from-stdin", "--pid", str(job.pid)]
        agent = subprocess.Popen(command, stdin=subprocess.PIPE)
        self.agents.append(agent)
        assert agent.stdin is not None
        agent.stdin.write(orjson.dumps(Invitation(url, key).document()) + b"\n")
        agent.stdin.flush()
        return agent

    def watch(self) -> LiveSource:
        """A viewer in this process."""
        self.viewers.append(LiveSource(self.viewer_url))
        return self.viewers[-1]

    def leave(self) -> None:
        """Agents take their probes out, the hubs close their files."""
        for agent in self.agents:
            if agent.stdin is not None:
                agent.stdin.close()
        for agent in self.agents:
            agent.wait(PATIENCE_S)
        for hub in self.hubs:
            if hub.poll() is None:
                hub.send_signal(signal.SIGTERM)
            hub.wait(PATIENCE_S)

    def close(self) -> None:
        """Whatever is left."""
        for viewer in self.viewers:
            viewer.close()
        for process in [*self.agents, *self.hubs]:
            if process.poll() is None:
                process.kill()
            process.wait(PATIENCE_S)
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.close()


def follow(source: LiveSource, frames: list[Frame], enough: Callable[[list[Frame]], object]) -> None:
    """Read on until it is enough."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not enough(frames):
        assert time.monotonic() < deadline_s, (Counter(f.kind.name for f in frames), source.status)
        frames += map(decode, source.read(0.2))


def gaps(frames: list[Frame], what: str) -> list[Frame]:
    return [frame for frame in frames if frame.kind is FrameKind.GAP and frame.payload["what"] == what]


def num_missing(frames: list[Frame]) -> int:
    return sum(int(str(frame.payload["num_frames"])) for frame in gaps(frames, FRAMES_MISSING))


def step_frames(frames: list[Frame]) -> int:
    return sum(frame.kind is FrameKind.STEPS for frame in frames)


def recorded(path: Path) -> list[Frame]:
    with RecordingReader(path) as reader:
        return [decode(located.data) for located in reader.frames()]


def steps_of(frames: list[Frame], rank: int) -> list[int]:
    """Every step of this rank in the order in which it was recorded."""
    found: list[int] = []
    for frame in frames:
        if frame.kind is FrameKind.STEPS:
            columns = unpack_columns(frame.payload, ("rank", "step"))
            found += columns["step"][columns["rank"] == rank].tolist()
    return found


def check_counted_once(frames: list[Frame]) -> None:
    """No step twice, no frame twice, and nothing was refused."""
    for rank in (0, 1):
        steps = steps_of(frames, rank)
        assert steps
        assert sorted(set(steps)) == steps
    assert [] == gaps(frames, BAD_FRAMES)
    heads = [(frame.source, frame.seq) for frame in frames]
    assert len(heads) == len(set(heads))


@pytest.fixture
def hosts() -> Iterator[Network]:
    with network() as made:
        yield made


@pytest.mark.skipif(
    os.geteuid() != 0 or not can_make_networks(),
    reason="no network namespaces (be root, apt-get install iproute2)",
)
def test_a_network_that_is_cut_costs_what_was_on_its_way(job: Job, place: Place, hosts: Network) -> None:
    """Hub and agent on two hosts, the switch between them dead: silence is said, the agent comes back by itself, what
    was lost is counted, nothing twice.
    """
    keys = make_session_keys()
    at_hub, at_node = tuple(hosts.enter(hosts.hub)), tuple(hosts.enter(hosts.node))
    lines = orjson.dumps(keys.hub.document()) + b"\n"
    url = place.hub("run", f"tcp://{HUB_ADDRESS}:*", prefix=at_hub, keys=lines)
    agent = place.agent(job, url, prefix=at_node, key=keys.agent)
    viewer, frames = place.watch(), list[Frame]()
    follow(viewer, frames, lambda got: step_frames(got) >= 3)
    with unaffected(job):
        hosts.cut()
        mend_s = time.monotonic() + CUT_S
        follow(viewer, frames, lambda got: gaps(got, AGENT_SILENT))
        while time.monotonic() < mend_s:
            frames += map(decode, viewer.read(0.2))
        before = step_frames(frames)
        hosts.mend()
        follow(viewer, frames, lambda got: gaps(got, AGENT_RETURNED) and gaps(got, FRAMES_MISSING))
        print(
            f"heard again {time.monotonic() - mend_s:.1f} s after the cut, {num_missing(frames)} frames missing"
        )
        follow(viewer, frames, lambda got: step_frames(got) > before + 5)
    assert agent.poll() is None
    place.leave()
    kept = recorded(place.record("run"))
    assert frames == kept[: len(frames)]
    check_counted_once(kept)
    said = [frame.seq for frame in kept if frame.source != "hub"]
    assert said[-1] + 1 == len(said) + num_missing(kept)
    assert 2 <= sum(frame.kind is FrameKind.HELLO for frame in kept)
    advisor = Advisor()
    with RecordingReader(place.record("run")) as reader:
        for located in reader.frames():
            advisor.feed(located.data)
    assert num_missing(kept) == advisor.view().losses.frames_lost
    assert any("agent returned" in note for note in advisor.view().losses.notes), advisor.view().losses.notes


def test_an_agent_that_was_killed_is_followed_by_another(job: Job, place: Place) -> None:
    """Kill -9, then a new one: it goes on in the same rings, and no step is counted twice."""
    url = place.hub("run", f"ipc://{place.folder}/s/agent")
    viewer, frames = place.watch(), list[Frame]()
    with unaffected(job):
        first = place.agent(job, url)
        follow(viewer, frames, lambda got: step_frames(got) >= 3)
        first.kill()
        first.wait()
        follow(viewer, frames, lambda got: gaps(got, AGENT_SILENT))
        place.agent(job, url)
        before = step_frames(frames)
        follow(viewer, frames, lambda got: step_frames(got) >= before + 3)
    place.leave()
    kept = recorded(place.record("run"))
    check_counted_once(kept)
    assert 2 == len({frame.source for frame in kept if frame.source != "hub"})
    advisor = Advisor()
    for frame in kept:
        advisor.feed_frame(frame)
    assert [0, 1] == [row.rank for row in advisor.view().ranks]


def test_a_hub_that_was_killed_is_followed_by_another(job: Job, place: Place) -> None:
    """Kill -9: the first file is whole; at the same address a new hub hears the same agent, and says what it missed."""
    endpoint = f"ipc://{place.folder}/s/agent"
    url = place.hub("first", endpoint)
    agent = place.agent(job, url)
    viewer, frames = place.watch(), list[Frame]()
    with unaffected(job):
        follow(viewer, frames, lambda got: step_frames(got) >= 3)
        place.hubs[0].kill()
        place.hubs[0].wait()
        killed_s = time.monotonic()
        wait_until(lambda: len(job.steps_s(killed_s, time.monotonic())) > 30)  # steps that no hub hears of
        place.hub("second", endpoint)
        again: list[Frame] = []
        follow(viewer, again, lambda got: step_frames(got) >= 3)
    assert 1 == viewer.status.num_restarts
    assert agent.poll() is None
    place.leave()
    first, second = recorded(place.record("first")), recorded(place.record("second"))
    assert () == read_summary(place.record("first")).notes
    assert frames == first[: len(frames)]
    check_counted_once(second)
    assert not set(steps_of(first, 0)) & set(steps_of(second, 0))
    heard = [frame for frame in second if frame.source != "hub"]
    assert FrameKind.HELLO in [frame.kind for frame in heard]  # after what the agent's socket held
    assert heard[0].seq == num_missing(second[: second.index(heard[0]) + 1])


def test_a_stopped_viewer_holds_up_nobody(job: Job, place: Place) -> None:
    """SIGSTOP of a viewer while much is recorded: hub and another viewer go on, the hub keeps nothing for the stopped
    one, and when it runs again it reads what it missed to the last byte.
    """
    url = place.hub("run", f"ipc://{place.folder}/s/agent")
    place.agent(job, url)
    hub, frames, viewer = psutil.Process(place.hubs[0].pid), list[Frame](), place.watch()
    follow(viewer, frames, lambda got: step_frames(got) >= 2)
    loud = AgentLink(url, "loud/1/1")
    noise = os.urandom(60_000).hex()
    log = place.folder / "viewer"
    with log.open("wb") as out:
        stopped = subprocess.Popen([sys.executable, "-c", VIEWER, place.viewer_url], stdout=out)
    try:
        wait_until(lambda: log.read_bytes().count(b"\n") >= 3)
        held = hub.memory_info().rss
        with unaffected(job):
            stopped.send_signal(signal.SIGSTOP)
            end_s, before = time.monotonic() + STOPPED_S, step_frames(frames)
            num_sent = 0
            deadline_s = time.monotonic() + PATIENCE_S
            # How many frames a second the ranks and their agent make is the machine's.
            while (
                time.monotonic() < end_s or num_sent < 500 or step_frames(frames) <= before + STOPPED_S
            ) and time.monotonic() < deadline_s:
                if num_sent < 500:
                    loud.send(FrameKind.EVENTS, {"rows": 0, "columns": {}, "noise": noise})
                    num_sent += 1
                else:
                    loud.send(FrameKind.STATUS, {"host": "loud"})
                frames += map(decode, viewer.read(0.01 if num_sent < 500 else 0.2))
        grown = hub.memory_info().rss - held
        print(
            f"the hub grew by {grown / 1e6:.1f} MB, its file to {place.record('run').stat().st_size / 1e6:.0f} MB"
        )
        assert grown < 24e6
        assert step_frames(frames) > before + STOPPED_S
        read_before = int(log.read_bytes().split(b"\n")[-2].split()[0])
        stopped.send_signal(signal.SIGCONT)
        loud.close()
        wait_until(lambda: b" 0 " in log.read_bytes()[-40:] and _num_read(log) > read_before + 20e6)
        place.leave()
        assert 0 == stopped.wait(PATIENCE_S)
    finally:
        stopped.kill()
        stopped.wait()
    assert b"hub stopped" in log.read_bytes().split(b"\n")[-2]
    kept = read_summary(place.record("run"))
    assert kept.num_bytes - kept.num_index_bytes - 16 == _num_read(log)
    check_counted_once(recorded(place.record("run")))


def _num_read(log: Path) -> int:
    return int(log.read_bytes().split(b"\n")[-2].split()[0])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    leave, mount = (
        ["umount", "--lazy", str(folder)],  # a page of the file may still be written
        ["mount", "-t", "tmpfs", "-o", "size=96k", "tuiadvisor-test", str(folder)],
    )
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no file system of its own (be root)")
    try:
        yield folder
    finally:
        subprocess.run(leave, check=True)


def test_a_disk_that_is_nearly_full_ends_the_recording_alone(job: Job, small_disk: Path) -> None:
    """Before it is full: whoever watches learns why, the file is whole, and the training notices nothing."""
    path = small_disk / "run.tuirec"
    (small_disk / "ballast").write_bytes(bytes(60_000))
    with Session([job.pid], str(path), "train.py", "") as session:
        viewer, frames = session.source(), list[Frame]()
        with unaffected(job):
            deadline_s = time.monotonic() + PATIENCE_S
            while not viewer.status.ended:
                assert time.monotonic() < deadline_s, viewer.status
                frames += map(decode, viewer.read(0.2))
            assert "are left to the training; the recording ends here" in viewer.status.note
            assert session.hub.wait(PATIENCE_S) == FailureError.exit_code
            assert session.why_hub_ended() == viewer.status.note
        viewer.close()
    assert () == read_summary(path).notes
    check_counted_once(recorded(path))


def test_a_quota_that_is_used_up_stops_neither_training_nor_viewers(job: Job, tmp_path: Path) -> None:
    """Writing fails although the disk has room: said while it lasts, counted when it works again, file whole."""
    path = tmp_path / "run.tuirec"
    with Session([job.pid], str(path), "train.py", "") as session:
        resource.prlimit(session.hub.pid, resource.RLIMIT_FSIZE, (16_384, resource.RLIM_INFINITY))
        viewer, frames = session.source(), list[Frame]()
        with unaffected(job):
            deadline_s = time.monotonic() + PATIENCE_S
            while "File too large" not in viewer.status.note:
                assert time.monotonic() < deadline_s, viewer.status
                frames += map(decode, viewer.read(0.2))
            assert path.stat().st_size <= 16_384
            assert () == read_summary(path).notes
            resource.prlimit(session.hub.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
            follow(viewer, frames, lambda got: gaps(got, NOT_RECORDED))
            before = step_frames(frames)
            follow(viewer, frames, lambda got: step_frames(got) > before + 2)
        viewer.close()
    kept = recorded(path)
    assert () == read_summary(path).notes
    check_counted_once(kept)
    (lost,) = {str(frame.payload["num_frames"]) for frame in gaps(kept, NOT_RECORDED)}
    said = [frame.seq for frame in kept if frame.source != "hub"]
    assert said[-1] + 1 <= len(said) + int(lost)
