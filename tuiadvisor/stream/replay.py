"""A recording played at its own pace: speed, pause, single frames, seeking by time, frame or training step.

In: a path and a clock.  Out: a Source. The pace follows the frames' own clocks, each source's for itself, since
hosts do not share one; a silence longer than MAX_SILENCE_NS is shortened to it.

A place is an offset in the file, so a state that was kept there stays true whatever the index says. Going forward
hands over every frame on the way at once; going back begins again at the first frame, and `seek` says so, because
whoever folds frames has to start anew then. Who kept a state from the way goes on from it with `resume_at`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from tuiadvisor.stream.index import FILE_HEADER_BYTES
from tuiadvisor.stream.recording import RecordingReader
from tuiadvisor.stream.recordingindex import RecordingIndex
from tuiadvisor.stream.source import BATCH_BYTES, SourceStatus

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MAX_WAIT_S: Final = 0.05


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
            self.index = RecordingIndex(path)
        except BaseException:
            self._reader.close()
            raise
        self._now = now
        self._sleep = sleep
        self.clock = ReplayClock(speed, now)
        self.offset = FILE_HEADER_BYTES  # where the frames end that were handed over
        self._wanted = (
            FILE_HEADER_BYTES  # frames before this are handed over at once, whatever the clock says
        )
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
            bytes_behind=max(0, self._due() - self.offset),
            note="; ".join(self.index.summary.notes),
            ended=self.offset >= self.index.end,
            num_restarts=self._num_restarts,
        )

    def read(self, timeout_s: float) -> list[bytes]:
        """The frames that are due, a bounded batch; waits for the next one up to timeout_s."""
        deadline_s = self._now() + timeout_s
        while True:
            if frames := self._take(self._due()):
                return frames
            left_s = deadline_s - self._now()
            if left_s <= 0 or self.offset >= self.index.end:
                return []
            self._sleep(min(MAX_WAIT_S, left_s))

    def seek(self, position_s: float) -> bool:
        """Go to a time in seconds. True: frames begin again at the first one."""
        position_s = min(max(position_s, 0.0), self.duration_s)
        return self.seek_offset(self.index.offset_at(position_s), position_s)

    def seek_offset(self, offset: int, position_s: float) -> bool:
        """Go to where the frames before this offset have been handed over. True: they begin again at the first one."""
        restart = offset < self.offset
        if restart:
            self.offset = FILE_HEADER_BYTES
            self._num_restarts += 1
        self._wanted = offset
        self.clock.jump(position_s)
        return restart

    def seek_step(self, step: int) -> bool:
        """Go to where this training step has been seen. True: frames begin again at the first one."""
        offset = self.index.offset_of_step(step)
        return self.seek_offset(offset, self.index.position_s(offset))

    def resume_at(self, offset: int) -> None:
        """Count the frames before this offset as handed over: whoever folds has the state that they lead to."""
        self.offset = self._wanted = offset

    def close(self) -> None:
        """Close the file."""
        self._reader.close()
        self.index.close()

    def _due(self) -> int:
        """Where the frames end that are due now."""
        if self.clock.paused:
            return self._wanted
        return max(self._wanted, self.index.offset_at(self.clock.position_s))

    def _take(self, due: int) -> list[bytes]:
        """Frames before this offset, a bounded batch."""
        frames: list[bytes] = []
        num_bytes = 0
        while self.offset < due and num_bytes < BATCH_BYTES:
            self._reader.position = self.offset
            taken = self._reader.take(min(due - self.offset, BATCH_BYTES))
            taken = [located for located in taken if located.offset < due]
            if not taken:
                self.offset = due  # damage up to there
                break
            frames += [located.data for located in taken]
            num_bytes += sum(len(located.data) for located in taken)
            self.offset = taken[-1].offset + len(taken[-1].data)
        return frames


def _check_speed(speed: float) -> float:
    if not 0 < speed < 1e9:
        raise ValueError(f"speed {speed} must be above 0")
    return speed
