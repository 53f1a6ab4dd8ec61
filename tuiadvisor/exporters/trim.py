"""Some steps of a recording as a recording of its own, with everything needed to diagnose them.

In: a recording and job steps first..last.  Out: frames. Step records and events keep their numbers and clocks; of
host samples and states those between the first and the last kept step are kept. Frames that were lost within the
range stay lost: only frames left out here close their gap in the sequence.

The release before the first kept step is gone with its record, so statistics begin one step later.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.events import EVENT_NAMES, STEP_NAMES
from tuiadvisor.exporters.survey import Reading, Survey, decoded, is_steps, survey
from tuiadvisor.stream.frames import HUB_SOURCE, Frame, FrameKind, encode, pack_columns, unpack_columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tuiadvisor.metrics.steps.arrays import Bools

OPEN_END: Final = 1 << 61  # a last step beyond this was not given
_ALWAYS: Final = frozenset({FrameKind.RUN, FrameKind.HELLO})


@dataclass(slots=True)
class _Span:
    """Positions of the first and the last frame with a kept step, and which steps there are at all."""

    first_frame: int | None = None
    last_frame: int = -1
    first_step: int | None = None
    last_step: int | None = None
    first_ns: dict[str, int] = field(default_factory=dict)  # source -> time of its first frame that is kept


@dataclass(slots=True)
class Trimmed:
    """What was written, for the one line at the end."""

    num_rank_steps: int = 0
    num_frames: int = 0
    sequence: dict[str, int] = field(default_factory=dict)  # source -> frames left out so far


def trim(reading: Reading, steps: tuple[int, int], told: Trimmed) -> Iterator[bytes]:
    """The frames of job steps first..last, both included. TuiadvisorError when none is there."""
    found = survey(reading)
    span = _find_span(reading, found, steps)
    if span.first_frame is None:
        held = "no aligned step" if span.first_step is None else f"steps {span.first_step}:{span.last_step}"
        last = "" if steps[1] >= OPEN_END else str(steps[1])
        raise TuiadvisorError(f"--steps {steps[0]}:{last}: nothing there; the recording holds {held}")
    starts_late = span.first_step is not None and steps[0] > span.first_step
    reaches_end = span.last_step is not None and steps[1] >= span.last_step
    num_steps_frames = 0
    for position, frame in enumerate(decoded(reading("writing"))):
        kept: Frame | None = frame
        if is_steps(frame):
            kept = _kept_steps(frame, found, num_steps_frames, steps, told)
            num_steps_frames += 1
        elif frame.kind == FrameKind.EVENTS and frame.source != HUB_SOURCE:
            kept = _kept_events(frame, found, num_steps_frames, steps)
        elif frame.kind not in _ALWAYS:
            inside = span.first_frame <= position and (position <= span.last_frame or reaches_end)
            kept = frame if inside else None
        elif position > span.last_frame and not reaches_end:
            kept = None
        if kept is None:
            told.sequence[frame.source] = told.sequence.get(frame.source, 0) + 1
        else:
            told.num_frames += 1
            seq = frame.seq - told.sequence.get(frame.source, 0)
            time_ns = kept.time_ns
            if (
                starts_late and position < span.first_frame
            ):  # an introduction from before: no silence until the first step
                time_ns = max(time_ns, span.first_ns.get(kept.source, time_ns))
            yield encode(kept.kind, kept.source, max(seq, 0), time_ns, kept.payload)


def _find_span(reading: Reading, found: Survey, steps: tuple[int, int]) -> _Span:
    span, num_steps_frames = _Span(), 0
    for position, frame in enumerate(decoded(reading("finding the steps in"))):
        if not is_steps(frame):
            continue
        try:
            columns = unpack_columns(frame.payload, ("rank", "step", "begin_ns"))
        except TuiadvisorError:
            num_steps_frames += 1
            continue
        jobs = found.axis.job_steps(num_steps_frames, columns["rank"], columns["step"], columns["begin_ns"])
        num_steps_frames += 1
        known = jobs[jobs >= 0]
        if known.size:
            low, high = int(known.min()), int(known.max())
            span.first_step = low if span.first_step is None else min(span.first_step, low)
            span.last_step = high if span.last_step is None else max(span.last_step, high)
        if bool(((jobs >= max(steps[0], 0)) & (jobs <= steps[1])).any()):
            span.first_ns.setdefault(frame.source, frame.time_ns)
            span.first_frame = position if span.first_frame is None else span.first_frame
            span.last_frame = position
    return span


def _kept_steps(
    frame: Frame, found: Survey, num_before: int, steps: tuple[int, int], told: Trimmed
) -> Frame | None:
    trimmed = _rows_within(frame, found, num_before, steps, STEP_NAMES)
    if trimmed is not None:
        rows = trimmed.payload["rows"]
        told.num_rank_steps += rows if isinstance(rows, int) else 0
    return trimmed


def _kept_events(frame: Frame, found: Survey, num_before: int, steps: tuple[int, int]) -> Frame | None:
    # Events travel with the steps around them, so the frame behind tells the rank's generation.
    return _rows_within(frame, found, num_before, steps, EVENT_NAMES)


def _rows_within(
    frame: Frame, found: Survey, num_before: int, steps: tuple[int, int], names: tuple[str, ...]
) -> Frame | None:
    """The frame with the rows of these job steps alone; the same frame if all of them are."""
    try:
        columns = unpack_columns(frame.payload, names)
    except TuiadvisorError:
        return None
    jobs = found.axis.job_steps(num_before, columns["rank"], columns["step"], columns["begin_ns"])
    inside: Bools = np.asarray((jobs >= max(steps[0], 0)) & (jobs <= steps[1]))
    if not inside.any():
        return None
    if inside.all():
        return frame
    rows = list(zip(*(columns[name][inside].tolist() for name in names), strict=True))
    return Frame(frame.kind, frame.source, frame.seq, frame.time_ns, pack_columns(rows, names))
