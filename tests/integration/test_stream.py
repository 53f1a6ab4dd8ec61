"""Hub, agents and viewers as real processes and sockets: killed, late, hostile, out of disk."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import orjson
import pytest
import zmq
from patience import PATIENCE_S

from tuiadvisor.stream import hub as hub_module
from tuiadvisor.stream.attendance import (
    AGENT_RETURNED,
    AGENT_SILENT,
    BAD_FRAMES,
    FRAMES_MISSING,
    NOT_RECORDED,
)
from tuiadvisor.stream.frames import Frame, FrameKind, decode, encode, pack_columns
from tuiadvisor.stream.keys import Invitation
from tuiadvisor.stream.link import AgentLink
from tuiadvisor.stream.recording import RecordingReader
from tuiadvisor.stream.relay import Relay
from tuiadvisor.stream.scan import read_summary
from tuiadvisor.stream.source import FileSource, LiveSource
from tuiadvisor.stream.wire import Request, unpack_reply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass
class RunningHub:
    """A hub process; where it listens and what it writes."""

    process: subprocess.Popen[str]
    record: Path
    endpoint: str
    viewer: str

    def end(self, number: int = signal.SIGTERM) -> int:
        """Signal it and wait for its exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


@dataclass
class Bench:
    """Starts things and closes them all."""

    folder: Path
    hubs: list[RunningHub] = field(default_factory=list)
    links: list[AgentLink] = field(default_factory=list)
    viewers: list[LiveSource] = field(default_factory=list)
    context: zmq.Context[zmq.Socket[bytes]] = field(default_factory=zmq.Context)
    sockets: list[zmq.Socket[bytes]] = field(default_factory=list)

    def hub(
        self,
        name: str = "run",
        *arguments: str,
        scheme: str = "ipc",
        prepare: Callable[[], None] | None = None,
    ) -> RunningHub:
        """A hub in its own process, listening."""
        record = self.folder / f"{name}.tuirec"
        places = ["tcp://127.0.0.1:*"] * 2
        if scheme == "ipc":
            places = [f"ipc://{self.folder}/s/agent", f"ipc://{self.folder}/s/viewer"]
        command = [sys.executable, "-m", "tuiadvisor.stream.hub", "--record", str(record)]
        command += ["--endpoint", places[0], "--viewer", places[1], *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=prepare)  # noqa: PLW1509
        assert process.stdout is not None
        said = orjson.loads(process.stdout.readline())
        self.hubs.append(RunningHub(process, record, said["endpoint"], said["viewer"]))
        return self.hubs[-1]

    def link(self, hub: RunningHub, source: str = "h/1/2") -> AgentLink:
        """An agent's link to the hub."""
        self.links.append(AgentLink(hub.endpoint, source))
        return self.links[-1]

    def watch(self, hub: RunningHub) -> LiveSource:
        """A viewer of the hub."""
        self.viewers.append(LiveSource(hub.viewer))
        return self.viewers[-1]

    def socket(self, kind: int, url: str) -> zmq.Socket[bytes]:
        """A bare socket, for those who do not play by the rules."""
        self.sockets.append(self.context.socket(kind))
        self.sockets[-1].connect(url)
        return self.sockets[-1]

    def close(self) -> None:
        """End every process by its id, close every socket."""
        for viewer in self.viewers:
            viewer.close()
        for link in self.links:
            link.close(0)
        self.context.destroy(linger=0)
        for hub in self.hubs:
            if hub.process.poll() is None:
                hub.process.send_signal(signal.SIGCONT)
                hub.process.kill()
            hub.process.wait(PATIENCE_S)
            if hub.process.stdout is not None:
                hub.process.stdout.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def read_until(source: LiveSource, enough: Callable[[list[Frame]], bool]) -> list[Frame]:
    """What a viewer sees until it has seen enough."""
    frames: list[Frame] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while not enough(frames):
        assert time.monotonic() < deadline_s, (
            f"{Counter(frame.kind.name for frame in frames)} {source.status}"
        )
        frames += map(decode, source.read(0.5))
    return frames


def seen(kind: FrameKind, seq: int, source: str = "h/1/2") -> Callable[[list[Frame]], bool]:
    return lambda frames: any((f.kind, f.seq, f.source) == (kind, seq, source) for f in frames)


def gaps(frames: list[Frame], what: str) -> list[Frame]:
    return [frame for frame in frames if frame.kind is FrameKind.GAP and frame.payload["what"] == what]


def heard(frames: list[Frame]) -> list[Frame]:
    """Without what a hub says of silences: on a loaded machine anybody may be silent for three seconds."""
    silences = {AGENT_SILENT, AGENT_RETURNED}
    return [frame for frame in frames if frame.payload.get("what") not in silences]


def recorded(path: Path) -> list[Frame]:
    with RecordingReader(path) as reader:
        return [decode(located.data) for located in reader.frames()]


def steps(seq: int) -> dict[str, object]:
    return pack_columns([(rank, seq) for rank in range(4)], ("rank", "step"))


def test_the_viewer_sees_what_the_recording_holds(bench: Bench) -> None:
    """Live and file give the same bytes in the same order, from RUN to the hub's BYE, and the hub exits with 0."""
    hub = bench.hub("run", "--label", "train.py", "--command", "torchrun train.py")
    link, viewer = bench.link(hub), bench.watch(hub)
    for seq in range(30):
        link.send(FrameKind.STEPS, steps(seq))
    live = _read_raw(viewer, 31)
    assert 0 == hub.end()
    deadline_s = time.monotonic() + PATIENCE_S
    while not viewer.status.ended and time.monotonic() < deadline_s:
        live += viewer.read(0.5)
    assert ("hub stopped", 0) == (viewer.status.note, viewer.status.bytes_behind)
    source = FileSource(hub.record)
    assert live == source.read(0.0)
    source.close()
    first, last = decode(live[0]), decode(live[-1])
    assert (FrameKind.RUN, "train.py", "torchrun train.py") == (
        first.kind,
        first.payload["label"],
        first.payload["command"],
    )
    assert (FrameKind.BYE, "hub") == (last.kind, last.source)
    assert 0o600 == hub.record.stat().st_mode & 0o777
    assert [] == list((bench.folder / "s").iterdir())


def _read_raw(viewer: LiveSource, num_frames: int) -> list[bytes]:
    frames: list[bytes] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while len(frames) < num_frames:
        assert time.monotonic() < deadline_s
        frames += viewer.read(0.5)
    return frames


def test_loopback_tcp_carries_the_same(bench: Bench) -> None:
    """A port given as * is announced, and works."""
    hub = bench.hub(scheme="tcp")
    bench.link(hub).send(FrameKind.STATUS, {"host": "h"})
    frames = heard(read_until(bench.watch(hub), seen(FrameKind.STATUS, 0)))
    assert [FrameKind.RUN, FrameKind.STATUS] == [frame.kind for frame in frames]


def test_a_killed_hub_leaves_every_frame_a_viewer_saw(bench: Bench) -> None:
    """Kill -9 in the middle: the recording opens, holds at least all that was seen, and is whole."""
    hub = bench.hub()
    link, viewer = bench.link(hub), bench.watch(hub)
    for seq in range(200):
        link.send(FrameKind.STEPS, steps(seq))
        if seq == 100:
            live = read_until(viewer, seen(FrameKind.STEPS, 50))
            assert -signal.SIGKILL == hub.end(signal.SIGKILL)
    kept = recorded(hub.record)
    assert live == kept[: len(live)]
    seqs = [frame.seq for frame in kept if frame.source == "h/1/2"]
    assert [*range(len(seqs))] == seqs
    assert () == read_summary(hub.record).notes


def test_agents_and_viewers_find_a_hub_that_came_back(bench: Bench) -> None:
    """A new hub at the same address: HELLO is said again, the hole is recorded, the viewer starts anew."""
    hub = bench.hub("first")
    link, viewer = bench.link(hub), bench.watch(hub)
    link.send(FrameKind.HELLO, {"host": "h", "ranks": []})
    link.send(FrameKind.STATUS, {"host": "h"})
    read_until(viewer, seen(FrameKind.STATUS, 1))
    hub.end(signal.SIGKILL)
    bench.hub("second")
    frames: list[Frame] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while not any(frame.kind is FrameKind.HELLO for frame in frames):
        assert time.monotonic() < deadline_s
        link.send(FrameKind.STATUS, {"host": "h"})
        frames += map(decode, viewer.read(0.1))
    assert 1 == viewer.status.num_restarts
    assert (FrameKind.RUN, FrameKind.GAP) == (frames[0].kind, frames[1].kind)
    assert frames[2].seq == _num_frames(frames[1]) >= 2


def test_a_hub_above_gets_what_the_agents_said(bench: Bench) -> None:
    """Through two hubs: the agents' own frames, each once, and the upper hub's recording is whole."""
    low, high = bench.hub("low"), bench.hub("high", scheme="tcp")
    first, second = bench.link(low, "h/1/2"), bench.link(low, "h/3/4")
    first.send(FrameKind.HELLO, {"host": "h", "ranks": []})
    relay = Relay(LiveSource(low.viewer), Invitation(high.endpoint))
    relay.start()
    for seq in range(100):
        first.send(FrameKind.STEPS, steps(seq))
        second.send(FrameKind.STEPS, steps(seq))
    while first._queued or second._queued:  # a hub that is slow to begin takes the rest later
        first.flush()
        second.flush()
    viewer = bench.watch(high)
    frames = read_until(
        viewer, lambda got: seen(FrameKind.STEPS, 100)(got) and seen(FrameKind.STEPS, 99, "h/3/4")(got)
    )
    relay.stop()
    for source, count in (("h/1/2", 101), ("h/3/4", 100)):
        assert [*range(count)] == [frame.seq for frame in frames if frame.source == source]
        own = [frame for frame in recorded(low.record) if frame.source == source]
        assert own == [frame for frame in recorded(high.record) if frame.source == source]
    assert [] == gaps(frames, FRAMES_MISSING) + gaps(frames, BAD_FRAMES)


def test_a_hub_above_that_came_back_goes_on(bench: Bench) -> None:
    """Nothing is lost below meanwhile; a new one at its place hears HELLO, and the hole before it is recorded."""
    low = bench.hub("low", scheme="tcp")
    high = bench.hub("high")
    link = bench.link(low)
    relay = Relay(LiveSource(low.viewer), Invitation(high.endpoint))
    relay.start()
    link.send(FrameKind.HELLO, {"host": "h", "ranks": []})
    link.send(FrameKind.STATUS, {"host": "h"})
    read_until(bench.watch(high), seen(FrameKind.STATUS, 1))
    high.end(signal.SIGKILL)
    for seq in range(50):
        link.send(FrameKind.STEPS, steps(seq))
    again = bench.watch(bench.hub("again"))
    link.send(FrameKind.STATUS, {"host": "h"})
    frames = read_until(again, seen(FrameKind.STATUS, 52))
    relay.stop()
    assert FrameKind.HELLO == frames[1].kind
    missing = sum(_num_frames(frame) for frame in gaps(frames, FRAMES_MISSING))
    assert 52 == missing + len([frame for frame in frames if frame.source == "h/1/2"]) - 1
    assert 53 == len([frame for frame in recorded(low.record) if frame.source == "h/1/2"])


def test_a_late_viewer_gets_the_history_and_a_stopped_one_costs_nothing(bench: Bench) -> None:
    """One viewer asks and never reads, one comes late; the late one has it all, agents drop nothing."""
    hub = bench.hub()
    lazy = bench.socket(zmq.DEALER, hub.viewer)
    for request in range(200):
        lazy.send(Request(request, 0, 0, 1 << 22).pack())
    link = bench.link(hub)
    noise = os.urandom(40_000).hex()
    for seq in range(150):
        link.send(FrameKind.EVENTS, {"rows": 0, "columns": {}, "noise": noise, "seq": seq})
        while link._queued:
            link.flush()
        lazy.send(Request(1000 + seq, 0, 0, 1 << 22).pack())
    early = bench.watch(hub)
    frames = heard(read_until(early, seen(FrameKind.EVENTS, 149)))
    assert [*range(150)] == [frame.payload["seq"] for frame in frames[1:]]
    late = bench.watch(hub)
    assert frames == heard(
        read_until(late, lambda got: seen(FrameKind.EVENTS, 149)(got) and not late.status.bytes_behind)
    )
    assert 0 == link.num_dropped


def test_a_restarted_agent_is_another_source(bench: Bench) -> None:
    """The old one's end and the new one's start are both there, and nothing is called missing."""
    hub = bench.hub()
    first = bench.link(hub, "h/1/2")
    first.send(FrameKind.STATUS, {"host": "h"})
    first.send(FrameKind.BYE, {"reason": "killed"})
    second = bench.link(hub, "h/7/9")
    second.send(FrameKind.STATUS, {"host": "h"})
    viewer = bench.watch(hub)
    frames = read_until(
        viewer, lambda got: seen(FrameKind.STATUS, 0, "h/7/9")(got) and seen(FrameKind.BYE, 1)(got)
    )
    assert [] == gaps(frames, FRAMES_MISSING)
    assert {"hub", "h/1/2", "h/7/9"} == {frame.source for frame in frames}


def test_hostile_messages_are_counted_and_never_recorded(bench: Bench) -> None:
    """Garbage, forged hub frames, repeats, huge and split messages: one GAP with the count, good frames go on."""
    hub = bench.hub()
    attacker = bench.socket(zmq.PUSH, hub.endpoint)
    good = encode(FrameKind.STATUS, "h/1/2", 0, 1, {"host": "h"})
    bad = [
        b"",
        b"garbage" * 20,
        good[:-1],
        good + b"x",
        encode(FrameKind.RUN, "h/1/2", 0, 1, {"label": "forged"}),
        encode(FrameKind.STATUS, "hub", 0, 1, {"host": "forged"}),
    ]
    for data in bad:
        attacker.send(data)
    attacker.send_multipart([good, good])
    attacker.send(good)
    attacker.send(good)
    frames = read_until(bench.watch(hub), lambda got: 8 == sum(map(_num_frames, gaps(got, BAD_FRAMES))))
    assert [good] == [
        encode(f.kind, f.source, f.seq, f.time_ns, f.payload) for f in frames if f.source != "hub"
    ]
    attacker.send(bytes(17 << 20))  # beyond the bound: the connection is closed, the hub lives
    link = bench.link(hub, "h/7/9")
    link.send(FrameKind.STATUS, {"host": "h"})
    read_until(bench.watch(hub), seen(FrameKind.STATUS, 0, "h/7/9"))
    assert 0 == hub.end()


def _num_frames(gap: Frame) -> int:
    number = gap.payload["num_frames"]
    assert isinstance(number, int)
    return number


def test_hostile_viewers_get_nothing_and_change_nothing(bench: Bench) -> None:
    """Malformed requests are dropped without an answer; a good one from the same viewer is served."""
    hub = bench.hub()
    before = hub.record.read_bytes()
    attacker = bench.socket(zmq.DEALER, hub.viewer)
    whole = Request(1, 0, 16, 1000).pack()
    for message in (
        [b""],
        [whole[:-1]],
        [whole + b"x"],
        [whole, whole],
        [b"../../etc/passwd"],
        [whole[::-1]],
    ):
        attacker.send_multipart(message)
    attacker.send(Request(2, 0, 16, 1000).pack())
    assert attacker.poll(int(PATIENCE_S * 1000))
    reply = unpack_reply(attacker.recv_multipart())
    assert (2, before[16:], "") == (reply.request, reply.data, reply.note)
    attacker.send(Request(3, reply.session, 17, 1000).pack())  # inside a frame: nothing begins there
    assert not attacker.poll(100)
    assert before == hub.record.read_bytes()


def test_missing_frames_are_recorded_where_they_are_missing(bench: Bench) -> None:
    """A hole of five in an agent's numbers: a GAP frame right before the frame that showed it."""
    hub = bench.hub()
    agent = bench.socket(zmq.PUSH, hub.endpoint)
    for seq in (0, 6):
        agent.send(encode(FrameKind.STATUS, "h/1/2", seq, 1, {"host": "h"}))
    frames = heard(read_until(bench.watch(hub), seen(FrameKind.STATUS, 6)))
    assert [FrameKind.RUN, FrameKind.STATUS, FrameKind.GAP, FrameKind.STATUS] == [f.kind for f in frames]
    assert (FRAMES_MISSING, "h/1/2", 5) == tuple(
        frames[2].payload[key] for key in ("what", "source", "num_frames")
    )


def test_a_silent_agent_is_noticed_and_its_return_too(bench: Bench) -> None:
    """Three seconds without a word give one GAP; the next word gives another."""
    hub = bench.hub()
    link, viewer = bench.link(hub), bench.watch(hub)
    link.send(FrameKind.STATUS, {"host": "h"})
    frames = read_until(viewer, lambda got: bool(gaps(got, AGENT_SILENT)))
    link.send(FrameKind.STATUS, {"host": "h"})
    frames += read_until(viewer, seen(FrameKind.STATUS, 1))
    said = [frame.payload["what"] if frame.kind is FrameKind.GAP else frame.seq for frame in frames[1:]]
    assert [0, AGENT_SILENT, AGENT_RETURNED, 1] == said[:4]


def test_a_full_disk_is_said_and_survived(bench: Bench) -> None:
    """A file-size limit stops the recording: the viewer hears it, the file is whole, the hub serves and ends well."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, resource.RLIM_INFINITY))

    hub = bench.hub(prepare=limit)
    link, viewer = bench.link(hub), bench.watch(hub)
    noise = os.urandom(4000).hex()
    deadline_s = time.monotonic() + PATIENCE_S
    while "File too large" not in viewer.status.note:
        assert time.monotonic() < deadline_s
        link.send(FrameKind.EVENTS, {"rows": 0, "columns": {}, "noise": noise})
        viewer.read(0.05)
    assert "keeps its" in viewer.status.note
    summary = read_summary(hub.record)
    assert () == summary.notes
    assert summary.num_bytes <= 60_000
    resource.prlimit(hub.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    frames: list[Frame] = []
    while not gaps(frames, NOT_RECORDED):
        assert time.monotonic() < deadline_s
        link.send(FrameKind.EVENTS, {"rows": 0, "columns": {}, "noise": noise})
        frames += map(decode, viewer.read(0.2))
    assert _num_frames(gaps(frames, NOT_RECORDED)[0]) > 0
    assert 0 == hub.end()
    source_seqs = [frame.seq for frame in recorded(hub.record) if frame.source == "h/1/2"]
    lost = sum(map(_num_frames, gaps(recorded(hub.record), NOT_RECORDED)))
    assert lost == source_seqs[-1] + 1 - len(source_seqs)


def test_a_hub_refuses_what_it_must(bench: Bench) -> None:
    """Open addresses, an existing recording, a link in its place, a second hub: one line, exit code 2."""
    hub = bench.hub()
    (bench.folder / "link.tuirec").symlink_to(bench.folder / "elsewhere")
    ipc = [f"ipc://{bench.folder}/t/agent", f"ipc://{bench.folder}/t/viewer"]
    for record, endpoint, viewer, words in [
        ("new.tuirec", "tcp://0.0.0.0:*", ipc[1], "ssh tunnel"),
        ("new.tuirec", ipc[0], "tcp://*:1", "ssh tunnel"),
        ("run.tuirec", *ipc, "exists already"),
        ("link.tuirec", *ipc, "exists already"),
        ("new.tuirec", hub.endpoint, ipc[1], "already"),
    ]:
        command = [sys.executable, "-m", "tuiadvisor.stream.hub", "--record", str(bench.folder / record)]
        done = subprocess.run(
            [*command, "--endpoint", endpoint, "--viewer", viewer],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert (2, 1, "") == (done.returncode, done.stderr.count("\n"), done.stdout)
        assert words in done.stderr
    assert not (bench.folder / "elsewhere").exists()
    bench.link(hub).send(FrameKind.STATUS, {"host": "h"})
    read_until(bench.watch(hub), seen(FrameKind.STATUS, 0))


def test_a_hub_ends_with_the_one_who_started_it(bench: Bench) -> None:
    """When the process it was told to belong to is gone, the hub closes its recording and exits."""
    starter = (
        "import subprocess, sys, os;"
        "p = subprocess.Popen([sys.executable, '-m', 'tuiadvisor.stream.hub', *sys.argv[1:],"
        " '--parent', str(os.getpid())], stdout=subprocess.PIPE, text=True);"
        "p.stdout.readline(); print(p.pid, flush=True); os._exit(0)"
    )
    record = bench.folder / "run.tuirec"
    places = ["--endpoint", f"ipc://{bench.folder}/s/agent", "--viewer", f"ipc://{bench.folder}/s/viewer"]
    done = subprocess.run(
        [sys.executable, "-c", starter, "--record", str(record), *places],
        stdout=subprocess.PIPE,
        timeout=PATIENCE_S,
        check=True,
    )
    pid = int(done.stdout)
    deadline_s = time.monotonic() + PATIENCE_S
    while recorded(record)[-1].kind is not FrameKind.BYE:
        assert time.monotonic() < deadline_s, f"hub {pid} still runs"
        time.sleep(0.05)
    assert () == read_summary(record).notes


def test_where_memory_runs_out_the_hub_goes_before_the_training(bench: Bench) -> None:
    """The kernel is told that nothing is as expendable as the hub."""
    pid = bench.hub().process.pid
    assert "1000" == Path(f"/proc/{pid}/oom_score_adj").read_text().strip()


def test_a_hub_that_stops_answering_is_reported(bench: Bench) -> None:
    """A stopped hub: the viewer says for how long it is silent; when it goes on, so does the viewer."""
    hub = bench.hub()
    link, viewer = bench.link(hub), bench.watch(hub)
    read_until(viewer, bool)
    hub.process.send_signal(signal.SIGSTOP)
    deadline_s = time.monotonic() + PATIENCE_S
    while viewer.status.connected:
        assert time.monotonic() < deadline_s
        viewer.read(0.5)
    assert f"hub {hub.viewer} silent for" in viewer.status.note
    link.send(FrameKind.STATUS, {"host": "h"})
    hub.process.send_signal(signal.SIGCONT)
    frames = read_until(viewer, seen(FrameKind.STATUS, 0))
    assert (True, "") == (viewer.status.connected, viewer.status.note)
    assert [] == gaps(frames, AGENT_SILENT)


def test_a_hub_that_slept_does_not_blame_its_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a pause of the hub itself agents are given another second; one that stays silent is reported then."""
    now_s = 1000.0
    clock = SimpleNamespace(monotonic=lambda: now_s, monotonic_ns=time.monotonic_ns, time_ns=time.time_ns)
    monkeypatch.setattr(hub_module, "time", clock)
    places = (f"ipc://{tmp_path}/s/agent", f"ipc://{tmp_path}/s/viewer")
    hub = hub_module.Hub(hub_module.HubConfig(str(tmp_path / "run.tuirec"), *places))
    hub._tick()
    hub._write(hub._admit(zmq.Frame(encode(FrameKind.STATUS, "h/1/2", 0, 1, {"host": "h"}))))
    now_s += 60
    hub._tick()
    assert [] == gaps(recorded(tmp_path / "run.tuirec"), AGENT_SILENT)
    now_s += 1
    hub._tick()
    assert 1 == len(gaps(recorded(tmp_path / "run.tuirec"), AGENT_SILENT))
    hub.stop()
    hub.run()


def test_waiting_for_a_hub_that_never_comes_piles_nothing_up(tmp_path: Path) -> None:
    """An hour and a half of asking an empty address: no error, one question open at a time, and the note says so."""
    now_s = 0.0
    source = LiveSource(f"ipc://{tmp_path}/nobody", clock=lambda: now_s)
    num_open = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(1500):
        assert [] == source.read(0.0)
        now_s += 4
        # ZeroMQ closes what was given up in a thread of its own; no real time passes here for it to keep up.
        deadline_s = time.monotonic() + PATIENCE_S
        while len(os.listdir("/proc/self/fd")) > num_open + 50:  # noqa: PTH208
            assert time.monotonic() < deadline_s
            time.sleep(0.001)
    source.read(0.0)  # silence is what was heard while we listened
    assert "silent for 6000 s" in source.status.note
    source.close()


def test_without_a_hub_detail_goes_first_and_nothing_waits(tmp_path: Path) -> None:
    """A full queue drops events, then host samples, then status, and keeps steps, newest kept, all counted."""
    link = AgentLink(f"ipc://{tmp_path}/nobody", "h/1/2", max_queued=8)
    kinds = [FrameKind.EVENTS, FrameKind.HOST, FrameKind.STATUS, FrameKind.STEPS]
    for _ in range(64):  # what ZeroMQ itself takes before it says that it is full
        link.send(FrameKind.STEPS, steps(0))
    for kind in kinds * 3:
        link.send(kind, {})
    assert 64 + 12 - 8 - 64 == link.num_dropped
    assert Counter({FrameKind.EVENTS: 3, FrameKind.HOST: 1}) == link.dropped
    for seq in range(20):
        link.send(FrameKind.STEPS, steps(seq))
    assert 0 == link.dropped[FrameKind.HELLO]
    assert Counter({FrameKind.EVENTS: 3, FrameKind.HOST: 3, FrameKind.STATUS: 3}) == link.dropped - Counter(
        {FrameKind.STEPS: link.dropped[FrameKind.STEPS]}
    )
    assert 8 == len(link._queued)
    link.close(0)
    assert 8 + 12 + 20 - 8 == link.num_dropped


def test_a_link_hands_over_what_it_has_before_it_closes(bench: Bench) -> None:
    """Everything sent right before close arrives, BYE last."""
    hub = bench.hub()
    link = AgentLink(hub.endpoint, "h/1/2")
    for seq in range(300):
        link.send(FrameKind.STEPS, steps(seq))
    link.send(FrameKind.BYE, {"reason": "done"})
    link.close(int(PATIENCE_S * 1000))
    assert 0 == link.num_dropped
    frames = read_until(bench.watch(hub), seen(FrameKind.BYE, 300))
    assert [*range(301)] == [frame.seq for frame in frames if frame.source == "h/1/2"]
