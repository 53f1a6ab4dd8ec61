"""The hub: takes frames from agents, appends them raw to the recording, lets viewers read it by offset.

A process of its own, so that a stopped terminal never stops recording. It opens no payload: header and CRC are
checked, the bytes are written, and only viewers decode. What is missing goes into the same recording as GAP frames.

    python -P -m tuiadvisor.stream.hub --record FILE --endpoint ipc:///… --viewer ipc:///… [--label … --command …]

With --keys it reads one JSON line with its keys from standard input, and every tcp port demands one of them.
Prints one JSON line with the real endpoints once it listens; ends on SIGTERM, SIGINT or the death of --parent.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import secrets
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson
import zmq

from tuiadvisor import __version__, expendable, log, priority
from tuiadvisor.errors import FailureError, TuiadvisorError
from tuiadvisor.events import NOTHING_GIVEN, GivenWork
from tuiadvisor.loglimits import Count
from tuiadvisor.stream.attendance import BAD_FRAMES, NOT_RECORDED, Attendance, Gap, gap
from tuiadvisor.stream.diskroom import DiskRoom
from tuiadvisor.stream.frames import HUB_SOURCE, MAX_FRAME_BYTES, FrameError, FrameKind, encode, peek
from tuiadvisor.stream.gate import Gate, peer_of
from tuiadvisor.stream.keys import AGENTS, VIEWERS, HubKeys, read_hub_keys, use_as_hub
from tuiadvisor.stream.recording import RecordingWriter
from tuiadvisor.stream.serving import Viewers
from tuiadvisor.stream.voice import PREFIX_BYTES, hear
from tuiadvisor.stream.wire import check_endpoint, is_network, prepare_socket_path, remove_socket

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

logger: Final = log.Logger("tuiadvisor.stream.hub")  # as a process it is __main__
POLL_S: Final = 0.2
# Frames of thousands of agents are taken a few dozen at a time: waking for each costs more than recording it.
GATHER_S: Final = 0.02
BATCH_FRAMES: Final = 256
BATCH_BYTES: Final = 4 << 20
BURST: Final = 64  # messages taken in one go after which more are looked for at once
# Of one agent, so that a burst fits that comes while others' frames are gathered: with more on its way ZeroMQ stops
# reading, and what an agent sent right before it closed is lost.
RECEIVE_HIGH_WATER: Final = 256
DRAIN_S: Final = 2.0
RETRY_DISK_S: Final = 1.0
TICK_S: Final = 1.0
MAX_DESCRIPTORS: Final = 1 << 17


@dataclass(frozen=True, slots=True)
class HubConfig:
    """Where the hub listens and what its recording says of the run."""

    record: str
    endpoint: str
    viewer: str
    label: str = ""
    command: str = ""
    parent_pid: int | None = None  # end when this process is no longer our parent
    share: str = ""  # a second address for viewers, on other machines
    keys: HubKeys | None = None  # every tcp port demands one of them
    work: GivenWork = NOTHING_GIVEN  # what one step of the job is, as the user says


class Hub:
    """One recording, its agents and its viewers. `run` returns when `stop` was called."""

    def __init__(self, config: HubConfig) -> None:
        """Listen, then create the recording. TuiadvisorError if either is refused."""
        self.num_bad_frames = 0
        self._config = config
        self._is_stopping = False
        self._attendance = Attendance()
        self._next_seq = 0
        self._num_bad_unsaid = 0
        self._bad_why = ""
        self._bad_log = Count()
        self._num_unwritten = 0
        self._note = ""
        self._why_full = ""  # why nothing more is recorded
        self._retry_s = self._tick_s = 0.0
        self._shared = ""
        self._context = zmq.Context(io_threads=1)
        self._gate = Gate(self._context, config.keys) if config.keys else None
        try:
            self._agents = self._listen(zmq.PULL, config.endpoint, AGENTS)
            self._viewer_socket = self._listen(zmq.ROUTER, config.viewer, VIEWERS)
            self._viewer_address = _address(self._viewer_socket)
            if config.share:
                self._bind(self._viewer_socket, config.share, VIEWERS)
                self._shared = _address(self._viewer_socket)
            self._writer = RecordingWriter(config.record, self._own(FrameKind.RUN, _run_payload(config)))
            self._room = DiskRoom(self._writer.descriptor)
            self._refuse_without_room()
        except BaseException:
            self._context.destroy(linger=0)
            raise
        self._viewers = Viewers(self._viewer_socket, self._writer, secrets.randbits(63) + 1)

    def _refuse_without_room(self) -> None:
        """FailureError, and no recording, where it would end at its first frame."""
        short = self._room.shortage(time.monotonic(), 0)
        if short:
            self._writer.close()
            Path(self._config.record).unlink()  # ours, and nothing is in it
            raise FailureError(f"{self._config.record}: {short}; free space or record elsewhere")

    @property
    def endpoints(self) -> dict[str, str]:
        """Where it really listens: a port given as * has its number here."""
        return {
            "endpoint": _address(self._agents),
            "viewer": self._viewer_address,
            "record": self._config.record,
        } | ({"share": self._shared} if self._shared else {})

    def stop(self) -> None:
        """Ask `run` to drain and return; safe in a signal handler."""
        self._is_stopping = True

    def run(self) -> None:
        """Receive, record and serve until stopped; then take what is still on its way, and close.

        FailureError, with the recording closed in order, where its file system has become too full to go on.
        """
        everybody, others = zmq.Poller(), zmq.Poller()
        everybody.register(self._agents, zmq.POLLIN)
        for asking in (self._viewer_socket, *(self._gate.sockets if self._gate else ())):
            everybody.register(asking, zmq.POLLIN)
            others.register(asking, zmq.POLLIN)
        logger.info("records in %s", self._config.record)
        take_s = answer_s = 0.0  # when agents are listened to again, when the next viewer gets its answer
        try:
            while not self._is_stopping:
                now_s = time.monotonic()
                is_gathering = now_s < take_s
                until_s = min(answer_s, take_s if is_gathering else now_s + POLL_S)
                poller = others if is_gathering else everybody
                ready = dict(poller.poll(math.ceil(1000 * max(until_s - now_s, 0.0))))
                if self._gate:
                    self._gate.serve()
                # An agent of which so many lie here already must not wait.
                if self._agents in ready and self._receive() < BURST:
                    take_s = time.monotonic() + GATHER_S
                answer_s = self._viewers.serve(time.monotonic(), self._note)
                self._tick()
            self._drain()
        finally:
            self._writer.close()
            logger.info("ends with %d frames, %d refused", self._writer.num_frames, self.num_bad_frames)
            if self._gate:
                self._gate.close()
            self._context.destroy(linger=500)
            for endpoint in (self._config.endpoint, self._config.viewer):
                remove_socket(endpoint)
        if self._why_full:
            raise FailureError(self._why_full)

    def _listen(self, kind: int, endpoint: str, domain: str) -> zmq.Socket[bytes]:
        listening = self._context.socket(kind)
        listening.set(zmq.MAXMSGSIZE, MAX_FRAME_BYTES + PREFIX_BYTES if kind == zmq.PULL else 1024)
        listening.set(zmq.RCVHWM, RECEIVE_HIGH_WATER)
        listening.set(zmq.SNDHWM, 4)  # per viewer: one who asks and never reads holds four replies, no more
        listening.set(zmq.HEARTBEAT_IVL, 5000)
        listening.set(zmq.HEARTBEAT_TIMEOUT, 15_000)
        if self._gate:
            self._gate.guard(listening)
        self._bind(listening, endpoint, domain)
        return listening

    def _bind(self, listening: zmq.Socket[bytes], endpoint: str, domain: str) -> None:
        """One more address; ZeroMQ takes a socket's options as they are at its bind."""
        keys = self._config.keys
        check_endpoint(endpoint, has_key=keys is not None)
        prepare_socket_path(endpoint)
        if endpoint.startswith("tcp://["):
            listening.set(zmq.IPV6, 1)
        if keys is not None and is_network(endpoint):
            use_as_hub(listening, keys, domain)
        old_mask = os.umask(0o177)
        try:
            listening.bind(endpoint)
        except zmq.ZMQError as error:
            raise FailureError(f"{endpoint}: cannot listen there: {error}; choose another endpoint") from None
        finally:
            os.umask(old_mask)

    def _receive(self) -> int:
        """Take a bounded batch, write it in one piece; how many messages there were."""
        batch: list[bytes | memoryview] = []
        num_bytes = num_messages = 0
        while num_messages < BATCH_FRAMES and num_bytes < BATCH_BYTES:
            try:
                message = self._agents.recv(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                break
            num_messages += 1
            num_bytes += len(message)
            if message.more:
                num_bytes += self._skip_parts()
            else:
                batch.extend(self._admit(message))
        self._write(batch)
        return num_messages

    def _skip_parts(self) -> int:
        """The rest of a message of several parts, which no frame has; how many bytes."""
        num_bytes, more = 0, True
        while more:
            part = self._agents.recv(copy=False)
            num_bytes, more = num_bytes + len(part), part.more
        self._count_bad("a message of several parts")
        return num_bytes

    def _admit(self, message: zmq.Frame) -> list[bytes | memoryview]:
        """The frame as it came, after the GAP frames that it reveals; nothing if it is no good frame."""
        voice, data = hear(message.buffer)
        try:
            gaps = self._attendance.arrive(peek(data), time.monotonic(), voice, lambda: peer_of(message))
        except FrameError as error:
            self._count_bad(str(error))
            return []
        for one in gaps:
            logger.debug("%s: %s, %s", one["source"], one["what"], one["why"])
        return [*map(self._gap, gaps), data]

    def _count_bad(self, why: str) -> None:
        self.num_bad_frames += 1
        self._num_bad_unsaid += 1
        self._bad_why = why
        if num := self._bad_log.add():
            logger.warning("%d frames refused, the last one: %s", num, why)

    def _write(self, batch: Sequence[bytes | memoryview]) -> None:
        """Append a batch. A full disk loses it, not the hub: tried again each second, the loss recorded then."""
        if not batch:
            return
        now_s = time.monotonic()
        said: list[bytes] = []
        if self._is_full(sum(map(len, batch))):
            self._num_unwritten += len(batch)
            return
        if self._num_unwritten:
            if now_s < self._retry_s:
                self._num_unwritten += len(batch)
                return
            said = [self._gap(gap(NOT_RECORDED, None, self._num_unwritten, self._note))]
        try:
            self._writer.append(b"".join([*said, *batch]), len(said) + len(batch))
        except FailureError as error:
            self._num_unwritten += len(batch)
            self._retry_s = now_s + RETRY_DISK_S
            if not self._note:
                logger.warning("frames are lost: %s", error)
            self._note = str(error)
        else:
            self._num_unwritten, self._note = 0, ""

    def _is_full(self, num_bytes: int) -> bool:
        """Whether the file system may take so many bytes no more, nor any later: the training writes there too."""
        if not self._why_full:
            short = self._room.shortage(time.monotonic(), self._writer.num_bytes + num_bytes)
            if short:
                self._why_full = self._note = (
                    f"{self._config.record}: {short}; the recording ends here and is whole "
                    f"({self._writer.num_frames} frames); free space or record elsewhere"
                )
                logger.warning("%s", self._why_full)
                self.stop()
        return bool(self._why_full)

    def _tick(self) -> None:
        """Once a second: silences, bad frames since the last time, and whether our parent still lives."""
        now_s = time.monotonic()
        since_s, parent_pid = now_s - self._tick_s, self._config.parent_pid
        if since_s < TICK_S:
            return
        self._tick_s = now_s
        if parent_pid is not None and os.getppid() != parent_pid:
            logger.info("process %d, which started us, is gone", parent_pid)
            self.stop()
        # After a stop of this process itself, agents only seem silent: first read what they sent meanwhile.
        gaps = list(self._attendance.overdue(now_s)) if since_s < 2 * TICK_S else []
        for silent in gaps:
            logger.info("%s: %s, %s", silent["source"], silent["what"], silent["why"])
        gaps += self._gate.news(now_s) if self._gate else []
        self._is_full(0)  # others fill it as well
        self._write([*map(self._gap, gaps), *self._bad_frames()])

    def _bad_frames(self) -> list[bytes]:
        """One GAP frame for all bad frames since the last one: a flood must not fill the disk."""
        if not self._num_bad_unsaid:
            return []
        bad = gap(BAD_FRAMES, None, self._num_bad_unsaid, self._bad_why)
        self._num_bad_unsaid = 0
        return [self._gap(bad)]

    def _drain(self) -> None:
        deadline_s = time.monotonic() + DRAIN_S
        while (
            not self._why_full
            and self._agents.poll(100)
            and self._receive()
            and time.monotonic() < deadline_s
        ):
            pass
        refused = self._gate.news(time.monotonic(), is_last=True) if self._gate else []
        said = [*map(self._gap, refused), *self._bad_frames()]
        if self._why_full:
            self._end_early(said)
        else:
            self._write([*said, self._own(FrameKind.BYE, {"reason": "hub stopped"})])
        deadline_s = time.monotonic() + DRAIN_S
        while self._viewers.num_watching(now_s := time.monotonic()) and now_s < deadline_s:
            self._viewers.serve(now_s, self._note, is_ending=True)
            self._viewer_socket.poll(50)

    def _end_early(self, said: list[bytes]) -> None:
        """The last frames of a recording that may grow no more: a few hundred bytes."""
        if self._num_unwritten:
            said = [self._gap(gap(NOT_RECORDED, None, self._num_unwritten, self._why_full)), *said]
        said.append(self._own(FrameKind.BYE, {"reason": self._why_full}))
        with suppress(FailureError):  # full to the last byte by now: what is there stays whole
            self._writer.append(b"".join(said), len(said))

    def _gap(self, payload: Gap) -> bytes:
        return self._own(FrameKind.GAP, payload)

    def _own(self, kind: FrameKind, payload: dict[str, object]) -> bytes:
        data = encode(kind, HUB_SOURCE, self._next_seq, time.monotonic_ns(), payload)
        self._next_seq += 1
        return data


def run_hub(config: HubConfig, announce: Callable[[str], None]) -> None:
    """Run a hub in this process until a signal ends it; `announce` gets one JSON line once it listens."""
    _raise_descriptor_limit()
    priority.give_way()
    hub = Hub(config)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: hub.stop())
    announce(orjson.dumps(hub.endpoints).decode())
    try:
        hub.run()
    finally:
        priority.no_longer()


def _raise_descriptor_limit() -> None:
    """A connection each for thousands of agents: the usual soft limit of 1,024 is for programs that use select(2)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _address(listening: zmq.Socket[bytes]) -> str:
    address = listening.get(zmq.LAST_ENDPOINT)
    assert isinstance(address, bytes)  # noqa: S101  # this option is a text; pyzmq types all options alike
    return address.decode().rstrip("\0")


def _run_payload(config: HubConfig) -> dict[str, object]:
    return {
        "created_wall_ns": time.time_ns(),
        "tuiadvisor": __version__,
        "label": config.label,
        "command": config.command,
        "hub_host": socket.gethostname(),
        "schema": 1,
        **config.work.document(),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The hub's own command line; exit code as everywhere."""
    # Of all our processes it most of all: no option of ZeroMQ bounds the parts of one message, so who holds a key could
    # fill it.
    expendable.go_first()
    parser = argparse.ArgumentParser(prog="tuiadvisor hub", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--record", required=True)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--viewer", required=True)
    parser.add_argument("--label", default="")
    parser.add_argument("--command", default="")
    parser.add_argument("--parent", type=int, default=None)
    parser.add_argument("--share", default="", help="a second address for viewers; needs --keys")
    parser.add_argument("--samples-per-step", type=int)
    parser.add_argument("--tokens-per-step", type=int)
    parser.add_argument("--flops-per-step", type=int)
    parser.add_argument("--peak-flops", type=int)
    parser.add_argument("--keys", action="store_true", help="read one line with keys from standard input")
    log.add_options(parser)
    given = parser.parse_args(arguments)
    try:
        log.start_beside("hub", given, is_remote=False)
        keys = read_hub_keys(sys.stdin.buffer) if given.keys else None
        config = HubConfig(
            given.record,
            given.endpoint,
            given.viewer,
            given.label,
            given.command,
            given.parent,
            given.share,
            keys,
            GivenWork(given.samples_per_step, given.tokens_per_step, given.flops_per_step, given.peak_flops),
        )
        run_hub(config, lambda line: print(line, flush=True))
    except TuiadvisorError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
