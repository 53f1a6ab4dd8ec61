"""The events of a Chrome-trace JSON file, batch by batch, so that a trace of gigabytes needs megabytes.

In: a path, plain or gzip.  Out: batches of event objects, and the other top-level keys at the end.
Chunks are cut between two events. Where the text gives no safe cut, the file is parsed whole, within a limit.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Final

import orjson

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers.files import opened, read_whole
from tuiadvisor.unpacking import MAX_FILE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHUNK_BYTES: Final = 2 << 20
MAX_HEADER_BYTES: Final = 64 << 20
CUT_TRIES: Final = 8
CUT_WINDOW_BYTES: Final = 1 << 18

OPENING: Final = re.compile(rb'"traceEvents"\s*:\s*\[')
BETWEEN: Final = re.compile(rb"\}(\s*,)\s*\{")
BARE: Final = re.compile(rb"\s*\[")
FIRST_KEY: Final = re.compile(rb'\s*\{\s*("[A-Za-z_]+")')
# Microseconds since 1970 with a fraction reach the end of a double's precision: keep them as text.
LONG_TIME: Final = re.compile(rb'("ts"\s*:\s*)(\d{14,}\.\d+)')


class _NotChunkableError(Exception):
    """The text gives no safe place to cut."""


@dataclass(slots=True)
class TraceFile:
    """One trace being read. `rest` holds the other top-level keys once all batches were taken."""

    path: Path
    rest: dict[str, Any] = field(default_factory=dict)
    num_bytes: int = 0
    is_open: bool = False  # a list of events without its end, as a writer that may be killed leaves it
    _packed: list[IO[bytes]] = field(default_factory=list)
    _position: int = 0
    _is_bare: bool = False  # no object around the list of events

    def position(self) -> int:
        """Bytes of the file, as it lies there, that were read."""
        if self._packed and not self._packed[0].closed:
            self._position = self._packed[0].tell()
        return self._position

    def batches(self) -> Iterator[list[Any]]:
        """Lists of parsed events in file order. TuiadvisorError for what is no whole trace."""
        taken = 0
        try:
            for batch in self._chunked():
                taken += 1
                yield batch
        except _NotChunkableError:
            if taken:
                # The reader has seen some events: start over would count them twice.
                raise TuiadvisorError(
                    f"{self.path}: damaged or truncated JSON; copy the trace again"
                ) from None
            yield self._whole()

    def _chunked(self) -> Iterator[list[Any]]:
        with opened(self.path, self._packed) as file:
            head = b""
            while not (start := self._start(head)):
                piece = file.read(CHUNK_BYTES)
                if not piece or len(head) > MAX_HEADER_BYTES:
                    raise _NotChunkableError
                head += piece
            self.num_bytes = len(head)
            self._keep_header(head, start)
            buffer = head[start:]
            del head
            wanted = 0
            while len(piece := file.read(CHUNK_BYTES)):
                self.num_bytes += len(piece)
                if self.num_bytes > MAX_FILE_BYTES:
                    raise TuiadvisorError(
                        f"{self.path} is above {MAX_FILE_BYTES >> 30} GiB unpacked: trace fewer steps"
                    )
                buffer += piece
                if len(buffer) < wanted:
                    continue
                batch, buffer = _cut(buffer)
                wanted = (
                    0 if batch else 2 * len(buffer)
                )  # one large event is not looked through at each piece
                if batch:
                    yield batch
            self.position()
        last = self._last(buffer)
        del buffer
        events = last.pop("traceEvents")
        if not isinstance(events, list):  # the key a second time, with something else
            raise _NotChunkableError
        self.rest.update(last)
        yield events

    def _start(self, head: bytes) -> int:
        found = BARE.match(head) or OPENING.search(head)
        if found is None or not FIRST_KEY.match(head, found.end()):
            return 0
        self._is_bare = found.re is BARE
        return found.end()

    def _last(self, buffer: bytes) -> dict[str, Any]:
        """The last events, and what stands behind them. Of a bare list the end may lack: Chrome's format says so."""
        if not self._is_bare:
            parsed: dict[str, Any] = _parse(b'{"traceEvents":[' + buffer)
            return parsed
        whole = b"[" + buffer.rstrip()
        if whole.endswith((b"}", b"},")):
            whole, self.is_open = whole.rstrip(b",") + b"]", True
        return {"traceEvents": _parse(whole)}

    def _keep_header(self, head: bytes, start: int) -> None:
        if self._is_bare:
            return
        before = head[: head.rindex(b'"traceEvents"', 0, start)].rstrip().rstrip(b",")
        self.rest.update(_parse(before + b"}"))  # what ends so is an object, or no JSON

    def _whole(self) -> list[Any]:
        text = read_whole(self.path)
        self.num_bytes = len(text)
        try:
            # Lenient on purpose: control characters and broken UTF-8 inside names cost nothing.
            parsed = json.loads(_quoted(text).decode("utf-8", "replace"), strict=False)
        except (ValueError, RecursionError) as error:
            reason = str(error)[:120]
            raise TuiadvisorError(
                f"{self.path}: truncated or not JSON ({reason}); copy the trace again"
            ) from None
        if isinstance(parsed, list):
            return parsed
        events = parsed.pop("traceEvents", None) if isinstance(parsed, dict) else None
        if not isinstance(events, list):
            raise TuiadvisorError(
                f"{self.path} has no traceEvents: export it with the profiler's export_chrome_trace"
            )
        self.rest.update(parsed)
        return events


def _cut(buffer: bytes) -> tuple[list[Any], bytes]:
    """(events of the part up to a safe cut, the rest); nothing and all of it where one event or the tail fills it.

    A cut between two objects is safe if what stands before it is a list of JSON: within a nested list, within a text
    or behind the array's end it is none.
    """
    for window in (max(len(buffer) - CUT_WINDOW_BYTES, 0), 0):
        cuts = [(found.start() + 1, found.end(1)) for found in BETWEEN.finditer(buffer, window)]
        for end, after in _some_of(cuts):
            try:
                batch = _parse(b"[" + buffer[:end] + b"]")
            except _NotChunkableError:
                continue
            return (batch if isinstance(batch, list) else []), buffer[after:]
        if window == 0:
            break
    if len(buffer) < MAX_HEADER_BYTES:
        return [], buffer
    raise _NotChunkableError


def _some_of(cuts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The last few, then some spread over all of them: behind the array's end, or in a large event, none is safe."""
    last = cuts[-CUT_TRIES:][::-1]
    before = cuts[:-CUT_TRIES]
    return last + before[:: -max(len(before) // CUT_TRIES, 1)]


def _quoted(text: bytes) -> bytes:
    return LONG_TIME.sub(rb'\1"\2"', text) if LONG_TIME.search(text) else text


def _parse(text: bytes) -> Any:
    try:
        return orjson.loads(_quoted(text))
    except orjson.JSONDecodeError as error:
        if error.pos >= len(text) - 2:  # it has no end: leniency would not find one
            raise _NotChunkableError from None
    try:
        return json.loads(text.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        raise _NotChunkableError from None
