"""A recording played at its own pace: speed, pause, single frames, seeking by time, frame or training step.

In: a path and a clock.  Out: a Source. The pace follows the frames' own clocks, each source's for itself, since
hosts do not share one; a silence longer than MAX_SILENCE_NS is shortened to it.

Going forward hands over every frame on the way at once; going back begins again at the first frame, and `seek`
says so, because whoever folds frames has to start anew then. Who kept a state from the way goes on from it
with `resume_at`.
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final

from tuiadvisor.stream.frames import FrameError, FrameKind, decode, unpack_columns
from tuiadvisor.stream.recording import RecordingReader, RecordingSummary
from tuiadvisor.stream.source import BATCH_BYTES, SourceStatus

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tuiadvisor.stream.frames import FrameHead

MAX_SILENCE_NS: Final = 60 * 1_000_000_000
MAX_WAIT_S: Final = 0.05
MAX_AGENTS_IN_TURN: Final = 32


class Timeline:
    """When each frame is due, nanoseconds after the first one; never runs backwards."""

    def __init__(self) -> None:
        self.due_ns = array("q")
        self._now_ns = 0
        self._bases_ns: dict[str, int] = {}

    def add(self, head: FrameHead) -> None:
        """Place the next frame by the clock of its own source."""
        base_ns = self._bases_ns.get(head.source)
        if base_ns is None:
            base_ns = head.time_ns - self._now_ns
        due_ns = head.time_ns - base_ns
        if due_ns > self._now_ns + MAX_SILENCE_NS:
            due_ns = self._now_ns + MAX_SILENCE_NS
            base_ns = head.time_ns - due_ns
        self._bases_ns[head.source] = base_ns
        self._now_ns = max(self._now_ns, due_ns)
        self.due_ns.append(self._now_ns)


class RecordingIndex:
    """Where every frame lies and when it is due: one pass over the file, no payload opened."""

    def __init__(self, reader: RecordingReader) -> None:
        timeline = Timeline()
        self.offsets = array("q")
        self.step_frames = array("q")  # which frames are STEPS
        self._reader = reader
        self._last_steps: dict[int, int] = {}
        reader.rewind()
        for located in reader.frames():
            if located.head.kind is FrameKind.STEPS:
                self.step_frames.append(len(self.offsets))
            self.offsets.append(located.offset)
            timeline.add(located.head)
        self.due_ns = timeline.due_ns
        self.summary: RecordingSummary = reader.summary()

    def __len__(self) -> int:
        """Frames in the recording."""
        return len(self.offsets)

    @property
    def duration_s(self) -> float:
        """From the first frame to the last."""
        return self.due_ns[-1] / 1e9 if self.due_ns else 0.0

    def frame_at(self, position_s: float) -> int:
        """How many frames are due by then."""
        return bisect_right(self.due_ns, int(position_s * 1e9))

    def frame_of_step(self, step: int) -> int:
        """How many frames it takes to have seen this training step; all of them if it is not there.

        Opens about log2 of the STEPS frames, trusting that steps grow along the recording.
        """
        found = bisect_left(self.step_frames, step, key=self._last_step)
        return self.step_frames[found] + 1 if found < len(self.step_frames) else len(self)

    def last_step(self) -> int | None:
        """The highest step number within the last few STEPS frames, one turn of all agents; None without any."""
        found = max((self._last_step(frame) for frame in self.step_frames[-MAX_AGENTS_IN_TURN:]), default=-1)
        return found if found >= 0 else None

    def _last_step(self, frame: int) -> int:
        known = self._last_steps.get(frame)
        if known is None:
            known = self._last_steps[frame] = self._read_last_step(frame)
        return known

    def _read_last_step(self, frame: int) -> int:
        self._reader.position = self.offsets[frame]
        try:
            steps = unpack_columns(decode(self._reader.take(1)[0].data).payload, ("step",))["step"]
        except (FrameError, IndexError):
            return -1
        return int(steps.max()) if len(steps) else -1


class ReplayClock:
    """Position within a recording while real time passes; pause and speed change it from now on only."""

    def __init__(self, speed: float = 1.0, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._speed = _check_speed(speed)
        self._paused = False
        self._since_s = now()
        self._from_s = 0.0

    @property
    def speed(self) -> float:
        """Recorded seconds a real second."""
        return self._speed

    @property
    def paused(self) -> bool:
        """True while the position stands."""
        return self._paused

    @property
    def position_s(self) -> float:
        """Seconds of the recording that have passed."""
        if self._paused:
            return self._from_s
        return self._from_s + (self._now() - self._since_s) * self._speed

    def jump(self, position_s: float) -> None:
        """Go on from there."""
        self._from_s, self._since_s = position_s, self._now()

    def pause(self) -> None:
        """Stand still."""
        self.jump(self.position_s)
        self._paused = True

    def resume(self) -> None:
        """Go on."""
        self.jump(self.position_s)
        self._paused = False

    def set_speed(self, speed: float) -> None:
        """Change the pace from here on. ValueError unless it is above 0."""
        checked = _check_speed(speed)
        self.jump(self.position_s)
        self._speed = checked


class ReplaySource:
    """A recording as a Source that keeps time."""

    def __init__(
        self,
        path: Path | str,
        speed: float = 1.0,
        start_step: int | None = None,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Open and index the recording. TuiadvisorError in one line if it is none."""
        self.path = path
        self._reader = RecordingReader(path)
        try:
            self.index = RecordingIndex(self._reader)
        except BaseException:
            self._reader.close()
            raise
        self._reader.rewind()
        self._now = now
        self._sleep = sleep
        self.clock = ReplayClock(speed, now)
        self.num_read = 0  # frames handed over
        self._num_wanted = 0  # frames to hand over at once, whatever the clock says
        self._num_restarts = 0
        if start_step is not None:
            self.seek_step(start_step)

    @property
    def position_s(self) -> float:
        """Where the clock stands, within 0..duration_s."""
        return min(max(self.clock.position_s, 0.0), self.duration_s)

    @property
    def duration_s(self) -> float:
        """Length of the recording in its own time."""
        return self.index.duration_s

    @property
    def status(self) -> SourceStatus:
        """bytes_behind counts what is due and not yet read; the note names damage."""
        return SourceStatus(
            kind="replay",
            connected=True,
            bytes_behind=max(0, self._offset(self._num_due()) - self._offset(self.num_read)),
            note="; ".join(self.index.summary.notes),
            ended=self.num_read >= len(self.index),
            num_restarts=self._num_restarts,
        )

    def read(self, timeout_s: float) -> list[bytes]:
        """The frames that are due, a bounded batch; waits for the next one up to timeout_s."""
        deadline_s = self._now() + timeout_s
        while True:
            if frames := self._take(self._num_due()):
                return frames
            left_s = deadline_s - self._now()
            if left_s <= 0 or self.num_read >= len(self.index):
                return []
            self._sleep(min(MAX_WAIT_S, left_s))

    def step_frame(self) -> None:
        """While paused: let the next `read` hand over one more frame."""
        self._num_wanted = min(len(self.index), max(self._num_wanted, self.num_read) + 1)
        self.clock.jump(self.index.due_ns[self._num_wanted - 1] / 1e9 if self._num_wanted else 0.0)

    def seek(self, position_s: float) -> bool:
        """Go to a time in seconds. True: frames begin again at the first one."""
        position_s = min(max(position_s, 0.0), self.duration_s)
        return self._go(self.index.frame_at(position_s), position_s)

    def seek_frame(self, num_frames: int) -> bool:
        """Go to where so many frames have been handed over. True: they begin again at the first one."""
        num_frames = min(max(num_frames, 0), len(self.index))
        return self._go(num_frames, self.index.due_ns[num_frames - 1] / 1e9 if num_frames else 0.0)

    def seek_step(self, step: int) -> bool:
        """Go to where this training step has been seen. True: frames begin again at the first one."""
        return self.seek_frame(self.index.frame_of_step(step))

    def resume_at(self, num_frames: int) -> None:
        """Count so many frames as handed over: whoever folds has the state that they lead to."""
        self.num_read = self._num_wanted = num_frames

    def close(self) -> None:
        """Close the file."""
        self._reader.close()

    def _go(self, num_frames: int, position_s: float) -> bool:
        restart = num_frames < self.num_read
        if restart:
            self.num_read = 0
            self._num_restarts += 1
        self._num_wanted = num_frames
        self.clock.jump(position_s)
        return restart

    def _num_due(self) -> int:
        return max(
            self._num_wanted, self.index.frame_at(self.clock.position_s) if not self.clock.paused else 0
        )

    def _offset(self, num_frames: int) -> int:
        offsets = self.index.offsets
        return offsets[num_frames] if num_frames < len(offsets) else self._reader.num_bytes

    def _take(self, num_due: int) -> list[bytes]:
        frames: list[bytes] = []
        num_bytes = 0
        while self.num_read < num_due and num_bytes < BATCH_BYTES:
            begin = self.num_read
            last = min(num_due, bisect_left(self.index.offsets, self._offset(begin) + BATCH_BYTES, begin + 1))
            self._reader.position = self._offset(begin)
            taken = self._reader.take(max(1, self._offset(last) - self._offset(begin)))[: last - begin]
            if not taken:
                break
            frames += [located.data for located in taken]
            num_bytes += sum(len(located.data) for located in taken)
            self.num_read += len(taken)
        return frames


def _check_speed(speed: float) -> float:
    if not 0 < speed < 1e9:
        raise ValueError(f"speed {speed} must be above 0")
    return speed
