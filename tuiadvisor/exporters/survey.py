"""The first reading of a recording that is going to be written anew: who takes part, and where their steps lie.

In: a recording's frames.  Out: Survey: the Advisor at the end, the job axis, and the span of the job's steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tuiadvisor.advisor.cluster.membership import Roster
from tuiadvisor.advisor.cluster.payload_fields import integer
from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.advisor.intake import CHUNK_ROWS
from tuiadvisor.advisor.steps.job_axis import JobAxis
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.events import EVENT_NAMES, STEP_NAMES
from tuiadvisor.stream.frames import HUB_SOURCE, Frame, FrameKind, decode, pack_columns, unpack_columns

if TYPE_CHECKING:
    from collections.abc import Iterable

_NAMES: Final = {
    FrameKind.STEPS: STEP_NAMES,
    FrameKind.EVENTS: EVENT_NAMES,
}
CHUNK_FRAMES: Final = 128
# Reads the recording from the start, saying on the progress line what it is read for.
Reading = Callable[[str], Iterator[bytes]]


@dataclass(frozen=True, slots=True)
class Survey:
    """What the first reading found."""

    advisor: Advisor
    axis: JobAxis
    num_frames: int  # that could be decoded
    first_begin_ns: dict[str, int]  # source -> begin of its earliest step, on its own clock

    def clock_shift_ns(self, source: str) -> int | None:
        """Add to a source's clock to read the wall clock; None when it was not said."""
        agent = self.advisor.roster.agents.get(source)
        return agent.wall_shift_ns if agent else None

    def host(self, source: str) -> str:
        """The host that a source speaks for."""
        agent = self.advisor.roster.agents.get(source)
        return agent.host if agent else source.split("/", 1)[0]


def survey(reading: Reading) -> Survey:
    """Read the recording once, in bounded memory."""
    advisor = Advisor()
    axis = JobAxis(advisor.store)
    num_frames = 0
    first_begin_ns: dict[str, int] = {}
    for frame in decoded(reading("reading")):
        num_frames += 1
        advisor.feed_frame(frame)
        if is_steps(frame):
            try:
                columns = unpack_columns(frame.payload, ("rank", "begin_ns"))
            except TuiadvisorError:
                axis.num_frames += 1
                continue
            axis.watch(columns["rank"])
            begins = columns["begin_ns"][columns["begin_ns"] > 0]
            if begins.size:
                earliest = int(begins.min())
                first_begin_ns[frame.source] = min(earliest, first_begin_ns.get(frame.source, earliest))
    return Survey(advisor, axis, num_frames, first_begin_ns)


def believed(frames: Iterable[bytes], found: Survey) -> Iterator[Frame]:
    """The frames that can be decoded, without the rows that the fold left out because they are another source's."""
    if not found.advisor.roster.owners.is_contested:
        yield from decoded(frames)
        return
    roster = Roster()
    for frame in decoded(frames):
        roster.take(frame)
        yield _own(frame, roster) if frame.kind in _NAMES else frame


def _own(frame: Frame, roster: Roster) -> Frame:
    names = _NAMES[frame.kind]
    try:
        columns = unpack_columns(frame.payload, names)
    except TuiadvisorError:
        return frame
    own = roster.own_columns(frame.source, columns)
    if own is columns:
        return frame
    rows = list(zip(*(own[name].tolist() for name in names), strict=True))
    return replace(frame, payload=pack_columns(rows, names))


def next_chunk(frames: Iterator[Frame], max_frames: int | None = None) -> list[Frame]:
    """The next frames, a bounded number of frames and rows; none at the end."""
    chunk: list[Frame] = []
    num_rows = 0
    for frame in frames:
        chunk.append(frame)
        num_rows += integer(frame.payload, "rows") or 0
        if len(chunk) >= (max_frames or CHUNK_FRAMES) or num_rows >= CHUNK_ROWS:
            break
    return chunk


def is_steps(frame: Frame) -> bool:
    """Whether a frame counts for the job axis: every reader must count the same ones."""
    return frame.kind == FrameKind.STEPS and frame.source != HUB_SOURCE


def decoded(frames: Iterable[bytes]) -> Iterator[Frame]:
    """The frames that can be decoded; what is damaged is nobody's evidence."""
    for data in frames:
        try:
            yield decode(data)
        except TuiadvisorError:
            continue
