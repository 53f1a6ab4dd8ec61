"""Viewers read the recording by offset; the hub remembers nothing of them but who waits for more.

Late viewers get the history first, slow ones ask later, stopped ones cost a few bytes until they are forgotten. Whoever
has everything gets what is new a few times a second, not frame by frame: a look at a frame alone costs hub and viewer
several times what it costs among others, and a screen shows two pictures a second.
Nothing that a viewer sends is written anywhere or names anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import zmq

from tuiadvisor.log import Logger
from tuiadvisor.loglimits import Count
from tuiadvisor.stream.frames import HEADER_BYTES, FrameError, frame_length
from tuiadvisor.stream.index import FILE_HEADER_BYTES
from tuiadvisor.stream.wire import Reply, Request, unpack_request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.stream.recording import RecordingWriter

logger: Final = Logger(__name__)
LONG_POLL_S: Final = 1.0
GATHER_S: Final = 0.1  # who has seen all there was waits so long for more than the next frame
GATHER_BYTES: Final = 256 << 10  # ... unless so much came meanwhile
NO_REQUEST: Final = 0  # questions are numbered from 1 on: nobody takes this for an answer
MAX_WAITING: Final = 4096
WATCHING_S: Final = 3.0
# Between two looks at the agents at most so many: recording comes first.
MAX_SERVED: Final = 64


@dataclass(frozen=True, slots=True)
class _Waiting:
    request: Request
    from_s: float  # before then only a good deal of news is an answer
    until_s: float


class Viewers:
    """Those who asked and have not been answered."""

    def __init__(self, router: zmq.Socket[bytes], recording: RecordingWriter, session: int) -> None:
        self._bad_log = Count()
        self._router = router
        router.set(zmq.ROUTER_MANDATORY, 1)  # who is gone is said, where it would be dropped in silence
        self._recording = recording
        self._session = session
        self._waiting: dict[bytes, _Waiting] = {}
        self._asked_s: dict[bytes, float] = {}  # who shall hear that the recording ends

    def num_watching(self, now_s: float) -> int:
        """Viewers who asked lately and have not been told the end."""
        self._asked_s = {viewer: at_s for viewer, at_s in self._asked_s.items() if now_s - at_s < WATCHING_S}
        return len(self._asked_s)

    def serve(self, now_s: float, note: str, *, is_ending: bool = False) -> float:
        """Answer those for whom there is something and those who waited long enough; when the next one is due."""
        for _ in range(MAX_SERVED):
            try:
                viewer, *parts = self._router.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            self._accept(viewer, parts, now_s)
        due_s = {viewer: self._due_s(waiting) for viewer, waiting in self._waiting.items()}
        due = [viewer for viewer, at_s in due_s.items() if is_ending or at_s <= now_s]
        for viewer in due[:MAX_SERVED]:
            self._answer(viewer, self._waiting.pop(viewer).request, note, is_ending=is_ending)
            del due_s[viewer]
        if is_ending:
            self._forget_the_gone()
        return min(due_s.values(), default=now_s + LONG_POLL_S)

    def _due_s(self, waiting: _Waiting) -> float:
        """When a viewer gets its answer, by what is recorded now."""
        num_bytes = self._recording.num_bytes - self._begin(waiting.request)
        if num_bytes >= min(GATHER_BYTES, waiting.request.max_bytes):
            return 0.0
        return waiting.from_s if num_bytes else waiting.until_s

    def _accept(self, viewer: bytes, parts: Sequence[bytes], now_s: float) -> None:
        try:
            request = unpack_request(parts)
        except FrameError as error:
            self._refuse(str(error))
            return
        # The oldest makes room and asks again; a second question of one viewer replaces its first.
        self._waiting.pop(viewer, None)
        if len(self._waiting) >= MAX_WAITING:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            self._asked_s.pop(oldest, None)
        # It has just been answered and asks for what follows; a first question is answered at once.
        from_s = now_s + GATHER_S if request.session == self._session else now_s
        self._waiting[viewer] = _Waiting(request, from_s, now_s + LONG_POLL_S)
        if len(self._asked_s) < MAX_WAITING:
            self._asked_s[viewer] = now_s

    def _answer(self, viewer: bytes, request: Request, note: str, *, is_ending: bool) -> None:
        end = self._recording.num_bytes
        offset = self._begin(request)
        data = self._whole_frames(offset, request.max_bytes)
        if data is None:
            self._refuse(f"no frame begins at {offset}")
            return
        is_last = is_ending and offset + len(data) == end
        if is_last:
            self._asked_s.pop(viewer, None)
        reply = Reply(request.request, self._session, offset, end, is_last, data, note)
        self._send(viewer, reply)

    def _forget_the_gone(self) -> None:
        """Who closed its connection after its last answer asks for nothing more: the end is not kept waiting for it."""
        end = self._recording.num_bytes
        for viewer in [one for one in self._asked_s if one not in self._waiting]:
            self._send(viewer, Reply(NO_REQUEST, self._session, end, end, is_ending=False, data=b"", note=""))

    def _send(self, viewer: bytes, reply: Reply) -> None:
        try:
            self._router.send_multipart([viewer, *reply.pack()], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            # One that does not read will ask again or not.
            if error.errno == zmq.EHOSTUNREACH:
                self._asked_s.pop(viewer, None)

    def _refuse(self, why: str) -> None:
        if num := self._bad_log.add():
            logger.warning("%d questions of viewers refused, the last one: %s", num, why)

    def _begin(self, request: Request) -> int:
        if request.session != self._session:
            return FILE_HEADER_BYTES
        return min(max(request.offset, FILE_HEADER_BYTES), self._recording.num_bytes)

    def _whole_frames(self, offset: int, max_bytes: int) -> bytes | None:
        """About max_bytes from offset on, cut after a whole frame, at least one; None if no frame begins there."""
        window = self._recording.read(offset, max(max_bytes, HEADER_BYTES))
        length = 0
        try:
            while (num_bytes := frame_length(window, length)) is not None:
                if length + num_bytes > len(window):
                    if length:
                        break
                    return self._recording.read(offset, num_bytes)
                length += num_bytes
        except FrameError:
            return None
        return window[:length]
