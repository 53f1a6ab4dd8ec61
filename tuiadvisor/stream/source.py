"""Where frames come from: a hub, or a file that may still grow. Everything after a Source is the same code.

In: an address or a path.  Out: raw frames in order, in bounded batches, and a status that says what is missing.
Replay with its own pace is in `replay`.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol

import zmq

from tuiadvisor.stream.connecting import connect
from tuiadvisor.stream.frames import FrameError, is_index, split
from tuiadvisor.stream.index import FILE_HEADER_BYTES
from tuiadvisor.stream.recording import CHUNK_BYTES, RecordingReader
from tuiadvisor.stream.wire import Request, check_endpoint, unpack_reply

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tuiadvisor.stream.keys import PeerKey

HUB_SILENCE_S: Final = 3.0
FOLLOW_POLL_S: Final = 0.05
BATCH_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """What a screen says about where its frames come from."""

    kind: Literal["live", "replay"]
    connected: bool
    bytes_behind: int  # frames recorded but not yet read
    note: str  # "" while all is well
    ended: bool  # nothing will come any more
    num_restarts: int = 0  # frames begin again from the first one: whoever folds them starts anew
    history_share: float | None = 1.0  # read of what was there when we came; None: nobody has answered yet


class Source(Protocol):
    """A run's frames, live or recorded."""

    @property
    def status(self) -> SourceStatus:
        """How it stands now."""
        ...

    def read(self, timeout_s: float) -> list[bytes]:
        """The next frames, a bounded batch; empty if none came within timeout_s."""
        ...

    def close(self) -> None:
        """Let go of socket or file."""
        ...


class LiveSource:
    """A hub, read by offset: the history first, then the live edge. Lost connections heal by themselves."""

    def __init__(
        self, url: str, clock: Callable[[], float] = time.monotonic, *, key: PeerKey | None = None
    ) -> None:
        """Connect in the background. TuiadvisorError for an address that leaves this machine without a key."""
        self._url = check_endpoint(url, has_key=key is not None)
        self._key = key
        self._clock = clock
        self._context = zmq.Context(io_threads=1)
        self._socket = self._connect()
        self._offset = FILE_HEADER_BYTES
        self._end = 0
        self._history_end = FILE_HEADER_BYTES  # where the recording ended at the first answer
        self._session: int | None = None
        self._request = 0
        self._asked_s: float | None = None  # an answer is due since then
        self._heard_s = self._listened_s = clock()
        self._num_bad_replies = 0
        self._num_restarts = 0
        self._note = ""
        self._ended = False

    @property
    def status(self) -> SourceStatus:
        """Connected means: the hub answered within the last three seconds in which we listened."""
        silent_s = self._listened_s - self._heard_s
        connected = self._session is not None and silent_s <= HUB_SILENCE_S and not self._ended
        return SourceStatus(
            kind="live",
            connected=connected,
            bytes_behind=max(0, self._end - self._offset),
            note=self._say(silent_s),
            ended=self._ended,
            num_restarts=self._num_restarts,
            history_share=self._history_share(),
        )

    def _history_share(self) -> float | None:
        if self._session is None:
            return None
        num_bytes = self._history_end - FILE_HEADER_BYTES
        return min((self._offset - FILE_HEADER_BYTES) / num_bytes, 1.0) if num_bytes > 0 else 1.0

    def read(self, timeout_s: float) -> list[bytes]:
        """The next frames from the hub; none if it has none or does not answer within timeout_s."""
        if self._ended:
            return []
        deadline_s = self._clock() + timeout_s
        while True:
            self._ask()
            left_s = max(0.0, deadline_s - self._clock())
            if self._socket.poll(int(min(left_s, HUB_SILENCE_S / 4) * 1000)):
                frames = self._take(self._socket.recv_multipart())
                if frames or self._ended:
                    self._ask()  # while these are folded the next ones travel
                    return frames
            else:
                self._listened_s = self._clock()
            if left_s <= 0:  # also where answers come that nobody can read
                return []

    def close(self) -> None:
        """Close the connection; the hub forgets it."""
        self._socket.close(linger=0)
        self._context.term()

    def _connect(self) -> zmq.Socket[bytes]:
        connected = self._context.socket(zmq.DEALER)
        connected.set(zmq.LINGER, 0)
        connect(connected, self._url, self._key)
        return connected

    def _ask(self) -> None:
        """One question at a time; one that was not answered dies with its connection."""
        if self._ended:
            return
        now_s = self._clock()
        if self._asked_s is not None:
            # On a busy machine the answer may lie here since long: we did not look, the hub is not silent.
            if now_s - self._asked_s <= HUB_SILENCE_S or self._socket.poll(0):
                return
            self._socket.close(linger=0)
            self._socket = self._connect()
        self._request += 1
        self._asked_s = now_s
        question = Request(self._request, self._session or 0, self._offset, BATCH_BYTES)
        with suppress(
            zmq.Again
        ):  # a hub that refuses our key leaves no way to it: ask anew when this is overdue
            self._socket.send(question.pack(), zmq.NOBLOCK)

    def _take(self, parts: list[bytes]) -> list[bytes]:
        try:
            reply = unpack_reply(parts)
            if reply.request != self._request:
                return []
            frames = list(split(reply.data))
        except FrameError:
            self._num_bad_replies += 1
            return []
        self._asked_s = None
        self._heard_s = self._listened_s = self._clock()
        if reply.session != self._session:  # a hub we do not know: it answers from the start
            self._num_restarts += self._session is not None
            self._session, self._offset = reply.session, FILE_HEADER_BYTES
            self._history_end = reply.end
        if reply.offset != self._offset:
            self._num_bad_replies += 1
            return []
        self._offset += sum(map(len, frames))
        self._end, self._note, self._ended = reply.end, reply.note, reply.is_ending
        return [frame for frame in frames if not is_index(frame)]

    def _say(self, silent_s: float) -> str:
        if self._ended:
            return self._note or "hub stopped"
        if silent_s > HUB_SILENCE_S:
            return f"hub {self._url} silent for {silent_s:.0f} s"
        if self._num_bad_replies:
            return f"{self._num_bad_replies} unreadable replies from {self._url}"
        return self._note


class FileSource:
    """A recording from its first frame to its last; with follow, one that still grows."""

    def __init__(
        self,
        path: Path | str,
        *,
        follow: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Open it. TuiadvisorError in one line if it is no recording."""
        self._reader = RecordingReader(path)
        self._follow = follow
        self._clock = clock
        self._sleep = sleep
        self._ended = False

    @property
    def status(self) -> SourceStatus:
        """The note names damage as soon as it was met."""
        found = self._reader.summary()
        notes = found.warnings if self._ended else [note for note in found.notes if "ends inside" not in note]
        behind = 0 if self._ended else found.num_tail_bytes
        return SourceStatus(
            "replay", connected=True, bytes_behind=behind, note="; ".join(notes), ended=self._ended
        )

    @property
    def share(self) -> float:
        """How much of the file was read, 0..1."""
        return min(self._reader.position / max(self.num_bytes, 1), 1.0)

    @property
    def num_bytes(self) -> int:
        """Size of the file as it is now."""
        return self._reader.num_bytes

    def read(self, timeout_s: float, max_bytes: int = CHUNK_BYTES) -> list[bytes]:
        """The next frames; at the end of a growing file, waits up to timeout_s for more."""
        deadline_s = self._clock() + timeout_s
        while True:
            if frames := [located.data for located in self._reader.take(max_bytes)]:
                return frames
            if not self._follow:
                self._ended = True
                return []
            left_s = deadline_s - self._clock()
            if left_s <= 0:
                return []
            self._sleep(min(FOLLOW_POLL_S, left_s))

    def close(self) -> None:
        """Close the file."""
        self._reader.close()
