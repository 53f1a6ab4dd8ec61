"""A profiler window in running ranks: ask each rank's probe, wait for its trace, never for a rank that gives none.

In: attached ranks, a number of steps, a folder for the traces.  Out: one RankCapture a rank, with its trace or the
reason why there is none. Leaving early takes the wish back: a window under way ends at its rank's next step border.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from tuiadvisor.agent.answer_fields import count, text
from tuiadvisor.agent.info import json_object
from tuiadvisor.agent.ownfolder import new_folder
from tuiadvisor.agent.payload import extension_code, write_bundle
from tuiadvisor.agent.rank_link import PASSING_REASONS
from tuiadvisor.agent.room import TraceLimit, trace_limit
from tuiadvisor.errors import FailureError, TuiadvisorError
from tuiadvisor.events import RankState
from tuiadvisor.inject import InjectError, inject
from tuiadvisor.phases import PHASES

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor, Future

    from tuiadvisor.agent.attach_batch import AttachBatch
    from tuiadvisor.agent.rank_link import RankLink
    from tuiadvisor.agent.session import RingSession
    from tuiadvisor.inject import Injection

NS: Final = 10**9
LOOK_S: Final = 0.05
MAX_TEXT_CHARS: Final = 400
HEADSTART_NS: Final = (
    300_000_000  # until all ranks have been asked: they begin at one border as far as possible
)
ANSWER_NS: Final = 10 * NS  # for the probe to say that it heard us
ASK_AGAIN_NS: Final = NS  # after a request that found the rank busy for a moment
MAX_STATE_BYTES: Final = 1 << 20
TRACE_NAME: Final = "trace.json"  # as in tuiadvisor_probes.capture, which is never imported here
STATE_NAME: Final = "state.json"
STEPS_NAME: Final = "steps"


@dataclass(frozen=True, slots=True)
class CaptureCost:
    """What the window took from the rank, nanoseconds; None where the rank did not say."""

    start_ns: int | None
    stop_ns: int | None
    write_ns: int | None
    step_ns_before: tuple[int, ...]  # whole steps without the profiler, just before
    step_ns_inside: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ToldState:
    """The rank's own words about its window, believed field by field."""

    state: str = ""
    why: str = ""
    fits: int | None = None  # so many steps, by what those so far have taken
    first_step: int | None = None
    cost: CaptureCost = field(default_factory=lambda: CaptureCost(None, None, None, (), ()))


@dataclass(frozen=True, slots=True)
class RankCapture:
    """What came of one rank: a file, and why it holds fewer steps than asked for; or why there is none."""

    rank: int | None
    pid: int
    file: Path | None
    why: str
    told: ToldState


def parse_state(raw: bytes) -> ToldState:
    """The believable part of a state.json, which a stranger's process wrote."""
    told = json_object(raw)
    cost = told.get("cost_ns")
    cost = cost if isinstance(cost, dict) else {}
    return ToldState(
        text(told.get("state"), MAX_TEXT_CHARS),
        text(told.get("why"), MAX_TEXT_CHARS),
        count(told.get("fits")),
        count(told.get("first_step")),
        CaptureCost(
            count(cost.get("start")),
            count(cost.get("stop")),
            count(cost.get("write")),
            _numbers(told.get("step_ns_before")),
            _numbers(told.get("step_ns_inside")),
        ),
    )


def _numbers(value: object) -> tuple[int, ...]:
    items = value[:1000] if isinstance(value, list) else []
    return tuple(number for item in items if (number := count(item)) is not None)


def capture(
    batch: AttachBatch,
    num_steps: int,
    folder: Path,
    patience_s: float,
    progress: Callable[[str], None] = lambda _: None,
    *,
    with_shapes: bool = False,
) -> list[RankCapture]:
    """A window of num_steps in every rank of the batch, traces into the folder; one result a rank, in their order.

    patience_s: how long a rank may be without the end of a step before it is given up.
    with_shapes: of operands, for FLOPs.
    """
    begin_ns = time.monotonic_ns() + HEADSTART_NS
    windows = [_Window(link, num_steps, folder, int(patience_s * NS)) for link in batch.links]
    for window in windows:
        window.with_shapes = with_shapes
        window.num_at_once = len(windows)
    try:
        for window in windows:
            window.ask(begin_ns, batch.executor)
        while any(window.result is None for window in windows):
            for window in windows:
                if window.result is None:
                    window.look(is_running=batch.advance(window.link))
            _end_together(windows)
            progress(_where(windows))
            time.sleep(LOOK_S)
    finally:
        for window in windows:
            window.take_back()
    return [window.result for window in windows if window.result is not None]


def _copy(source: IO[bytes], target: Path) -> None:
    """All of it or nothing: who reads the folder would take the beginning of a trace for all of it. OSError."""
    file = target.open("xb")
    try:
        with file:
            shutil.copyfileobj(source, file, 1 << 20)
    except BaseException:
        target.unlink()
        raise


def _end_together(windows: list[_Window]) -> None:
    """What fits in the rank with the least room is enough for all: others would wait for it while it writes."""
    told = [window.told.fits for window in windows if window.told.fits is not None]
    if told:
        for window in windows:
            window.is_enough(min(told))


def _where(windows: list[_Window]) -> str:
    counts: dict[str, int] = {}
    for window in windows:
        word = "done" if window.result is not None else window.told.state or "asked"
        counts[word] = counts.get(word, 0) + 1
    return ", ".join(f"{number} {word}" for word, number in counts.items())


class _Window:
    """One rank's window, seen from outside."""

    def __init__(self, link: RankLink, num_steps: int, folder: Path, patience_ns: int) -> None:
        self.link = link
        self.num_steps = self.num_enough = num_steps
        self.with_shapes = False
        self.num_at_once = 1
        self.limit = TraceLimit(0, "")
        self.out = folder
        self.patience_ns = patience_ns
        self.told = ToldState()
        self.result: RankCapture | None = None
        self.files: RingSession | None = None
        self._request: Callable[[], Future[Injection]] | None = None  # to the executor
        self._asked: Future[Injection] | None = None
        self._ask_again_at_ns = 0
        self._moved_at_ns = self._asked_at_ns = time.monotonic_ns()
        self._seen: tuple[int, bytes] = (-1, b"")

    def ask(self, begin_ns: int, executor: Executor) -> None:
        """Put the module into the rank's probe and ask for the window."""
        if self.link.state != RankState.LIVE:
            self._end(None, self.link.detail or "it did not answer in time")
            return
        process = self.link.process
        try:
            self.files = new_folder(process)
            if self.files.probe_folder is None:
                here = Path(f"/proc/self/fd/{self.files.directory_fd}")
                write_bundle(here, process.identity, ("capture",))
            self.limit = trace_limit(process.pid, self.files.directory_fd, self.num_at_once)
        except (OSError, TuiadvisorError) as error:
            self._end(None, str(error))
            return
        inner = self.files.inner_directory
        probes = self.files.probe_folder

        def request() -> Future[Injection]:
            first_ns = self.link.clock.to_rank(max(begin_ns, time.monotonic_ns()))
            between_ns = (first_ns, first_ns + self.patience_ns)
            wish = (inner, self.num_steps, between_ns, self.with_shapes, tuple(self.limit))
            code = extension_code("capture", f"begin{wish!r}", inner, probes)
            return executor.submit(inject, process.identity, code)

        self._request = request
        self._asked = self._request()

    def look(self, *, is_running: bool) -> None:
        """See what has come of it."""
        now_ns = time.monotonic_ns()
        raw = self._read_state()
        if raw:
            self.told = parse_state(raw)
        if self.told.state == "done":
            self._collect()
        elif self.told.state == "refused":
            self._end(None, self.told.why or "it does not say why")
        elif not is_running:
            self._end(None, f"{self.link.detail or 'it ended'}; it left no trace")
        elif self.link.state != RankState.LIVE:
            self._end(None, self.link.detail)
        elif not raw and self._has_failed() and not self._asks_again(now_ns):
            self._end(None, self._failure())
        elif not raw and now_ns - self._asked_at_ns > max(ANSWER_NS, self.patience_ns):
            self._end(
                None,
                "its interpreter did not take the request: it is busy in C, or its probe is of another version",
            )
        else:
            self._watch_progress(now_ns, raw)

    def is_enough(self, num_steps: int) -> None:
        """Tell the rank, once, if that is fewer than it was asked for."""
        if self.files is None or num_steps >= self.num_enough:
            return
        self.num_enough = num_steps
        where = self.files.directory_fd
        with suppress(OSError):  # without it the rank ends when its own room does
            with suppress(FileNotFoundError):
                os.unlink(STEPS_NAME, dir_fd=where)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(STEPS_NAME, flags, 0o644, dir_fd=where), "wb") as file:
                file.write(b"%d" % num_steps)

    def take_back(self) -> None:
        """Remove what is left: the wish goes with it."""
        if self.files is not None:
            self.files.remove()
            self.files = None

    def _watch_progress(self, now_ns: int, raw: bytes) -> None:
        reader = self.link.reader
        phase, since_ns, step = reader.now() if reader is not None else (-1, 0, 0)
        if (step, raw) != self._seen:
            self._seen, self._moved_at_ns = (step, raw), now_ns
        elif now_ns - self._moved_at_ns > self.patience_ns:
            where = ""
            if 0 <= phase < len(PHASES) and 0 < since_ns < now_ns:
                where = f", in {PHASES[phase].replace('_', ' ')} for {(now_ns - since_ns) / NS:.0f} s"
            limit = f"{self.patience_ns / NS:.0f} s"
            self._end(None, f"no step ended within {limit}{where}; given up (--patience waits longer)")

    def _asks_again(self, now_ns: int) -> bool:
        """Whether the request is repeated: it found the rank busy, stopped or held by another tracer, which passes."""
        error = self._asked.exception() if self._asked is not None else None
        if not isinstance(error, InjectError) or error.reason not in PASSING_REASONS:
            return False
        if now_ns - self._asked_at_ns > max(ANSWER_NS, self.patience_ns):
            return False
        if not self._ask_again_at_ns:
            self._ask_again_at_ns = now_ns + ASK_AGAIN_NS
        elif now_ns >= self._ask_again_at_ns and self._request is not None:
            self._ask_again_at_ns, self._asked = 0, self._request()
        return True

    def _has_failed(self) -> bool:
        return self._asked is not None and self._asked.done() and self._asked.exception() is not None

    def _failure(self) -> str:
        error = self._asked.exception() if self._asked is not None else None
        if isinstance(error, TuiadvisorError | OSError):
            return str(error)
        return f"the request failed: {error!r}"

    def _read_state(self) -> bytes:
        if self.files is None:
            return b""
        try:
            descriptor = self._open(STATE_NAME)
        except (OSError, FailureError):
            return b""
        with os.fdopen(descriptor, "rb") as file:
            return file.read(MAX_STATE_BYTES)

    def _collect(self) -> None:
        name = f"pid{self.link.process.pid}" if self.link.rank is None else f"rank{self.link.rank}"
        target = self.out / f"{name}.json"
        try:
            with os.fdopen(self._open(TRACE_NAME), "rb") as source:
                _copy(source, target)
        except (OSError, FailureError) as error:
            self._end(None, f"its trace could not be fetched: {error}")
        else:
            self._end(target, self.told.why)

    def _open(self, name: str) -> int:
        """A file the rank wrote: only a plain one of its own, nothing that a link points at."""
        if self.files is None:
            raise FailureError("it has no folder")
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=self.files.directory_fd)
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in {self.link.process.uid, os.geteuid()}:
            os.close(descriptor)
            raise FailureError(f"{name} is not a plain file of the rank's user")
        return descriptor

    def _end(self, file: Path | None, why: str) -> None:
        self.result = RankCapture(self.link.rank, self.link.process.pid, file, why, self.told)
        with suppress(OSError):
            self.take_back()
