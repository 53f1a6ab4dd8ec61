"""The device slices of a recording, read once, and pictures of any stretch of them.

In: a recording of a trace, or with one beside it.  Out: views.timeline.Timeline; TuiadvisorError: why there is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.events import EventKind
from tuiadvisor.metrics.traces.gpu_timeline import COMM, COMM_GUESSED, COMPUTE, MEMORY
from tuiadvisor.metrics.traces.lanes import NOTHING, cells, lanes_of, longest
from tuiadvisor.stream.frames import HUB_SOURCE, FrameError, FrameKind, decode, peek, unpack_columns
from tuiadvisor.views.timeline import Timeline, TimelineLane

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tuiadvisor.metrics.steps.arrays import Ints
    from tuiadvisor.metrics.traces.lanes import Lane
    from tuiadvisor.stream.frames import Frame

COLUMNS: Final = ("rank", "group", "begin_ns", "end_ns", "seq", "detail", "kind", "step")
MAX_SLICES: Final = 1_000_000
MAX_LANES: Final = 512
LETTERS: Final = {COMPUTE: "C", COMM: "N", COMM_GUESSED: "N", MEMORY: "M"}
NONE: Final = (
    "no device's work one by one in this recording: tuiadvisor open TRACE, or import kineto -o, has it"
)
NO_RECORDING: Final = "no recording is open: the timeline is of imported traces, tuiadvisor open TRACE"
LEAST_NS: Final = 1_000  # a stretch is not shorter than a microsecond


class SlicesRead:
    """Everything of one recording."""

    def __init__(self, frames: Iterable[bytes]) -> None:
        """TuiadvisorError where there is nothing to show."""
        self._names: list[str] = []
        self._resolution_ns = 0
        rows = self._read(frames)
        self._lanes = lanes_of(rows)[:MAX_LANES]
        self._num_left_out = (
            len(lanes_of(rows[:, :6])) - len(self._lanes) if len(self._lanes) == MAX_LANES else 0
        )
        if not self._lanes:
            raise TuiadvisorError(NONE)
        self._first_ns = min(int(lane.begin_ns.min()) for lane in self._lanes)
        self._last_ns = max(int(lane.end_ns.max()) for lane in self._lanes)
        order = np.argsort(rows[:, 2], kind="stable")
        steps, at = np.unique(rows[order, 6], return_index=True)
        self._steps = [(int(step), int(rows[order[one], 2])) for step, one in zip(steps, at, strict=True)]

    def _read(self, frames: Iterable[bytes]) -> Ints:
        found: list[Ints] = []
        shift_ns: dict[str, int] = {}
        num = 0
        for data in frames:
            try:
                head = peek(data)
                if head.kind == FrameKind.RUN:
                    self._take_names(decode(data).payload)
                if head.kind == FrameKind.HELLO:
                    _take_clock(decode(data), shift_ns)
                if head.kind != FrameKind.EVENTS or head.source == HUB_SOURCE:
                    continue
                columns = unpack_columns(decode(data).payload, COLUMNS)
            except (FrameError, TuiadvisorError):
                continue  # the screens say what is damaged
            good = (columns["kind"] == EventKind.DEVICE_SLICE) & (columns["begin_ns"] >= 0)
            rows = np.stack([columns[name][good] for name in COLUMNS if name != "kind"], axis=1)
            rows[:, [2, 3]] += shift_ns.get(head.source, 0)
            if num + len(rows) > MAX_SLICES:
                break
            found.append(rows)
            num += len(rows)
        return np.concatenate(found) if found else np.empty((0, len(COLUMNS) - 1), dtype=np.int64)

    def _take_names(self, payload: dict[str, object]) -> None:
        told = payload.get("imported") or payload.get("traced")
        device = told.get("device") if isinstance(told, dict) else None
        names = device.get("names") if isinstance(device, dict) else None
        resolution = device.get("resolution_ns") if isinstance(device, dict) else None
        if isinstance(names, list):
            self._names = [name[:200] if isinstance(name, str) else "" for name in names]
        if type(resolution) is int and 0 <= resolution < 1 << 53:
            self._resolution_ns = resolution

    def picture(self, begin_s: float, end_s: float | None, num_cells: int) -> Timeline:
        """end_s None: to the end."""
        whole_ns = max(self._last_ns - self._first_ns, LEAST_NS)
        end_ns = whole_ns if end_s is None else min(max(round(end_s * 1e9), LEAST_NS), whole_ns)
        begin_ns = min(max(round(begin_s * 1e9), 0), end_ns - LEAST_NS)
        borders = self._first_ns + np.linspace(begin_ns, end_ns, max(num_cells, 1) + 1).astype(np.int64)
        width = max(end_ns - begin_ns, 1)
        running = [(0, step) for step, at in self._steps if at <= borders[0]][-1:]
        marks = [((at - self._first_ns - begin_ns) * num_cells // width, step) for step, at in self._steps]
        return Timeline(
            begin_ns / 1e9,
            end_ns / 1e9,
            whole_ns / 1e9,
            tuple(self._lane(lane, borders) for lane in self._lanes),
            (*running, *((int(cell), step) for cell, step in marks if 0 < cell < num_cells)),
            self._resolution_ns / 1e9,
            self._num_left_out,
        )

    def _lane(self, lane: Lane, borders: Ints) -> TimelineLane:
        kinds, shares = cells(lane, borders)
        text = "".join(
            "." if kind == NOTHING else _letter(kind, share)
            for kind, share in zip(kinds.tolist(), shares.tolist(), strict=True)
        )
        names = [
            (self._names[name] if 0 <= name < len(self._names) else "another kernel", took / 1e9)
            for name, took in longest(lane, int(borders[0]), int(borders[-1]))
        ]
        return TimelineLane(lane.rank, lane.stream, text, float(shares.mean()), tuple(names))


def _take_clock(frame: Frame, shift_ns: dict[str, int]) -> None:
    """A host's clock begins with its boot: beside each other stand times of the wall clock. An import has one clock."""
    wall, mono = frame.payload.get("wall_ns"), frame.payload.get("mono_ns")
    if type(wall) is int and type(mono) is int and 0 <= mono <= wall < 1 << 62:
        shift_ns.setdefault(frame.source, wall - mono)


def _letter(kind: int, share: float) -> str:
    letter = LETTERS.get(kind, "?")
    return letter if share >= 0.5 else letter.lower()
