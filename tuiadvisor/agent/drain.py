"""Rings to frames: what the probes wrote since the last time, as columns with the rank in front.

In: links with open rings.  Out: payloads of STEPS, EVENTS and STATUS. Rows of a rank whose number is not known yet
stay in its ring, which is the buffer for them; what it overwrites meanwhile is counted as lost.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from tuiadvisor.events import EVENT_NAMES, STEP_NAMES, EventKind, RankState
from tuiadvisor.phases import PHASES
from tuiadvisor.stream.frames import FrameKind, pack_columns
from tuiadvisor_probes import ring as ring_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tuiadvisor.agent.rank_link import RankLink

ROWS_PER_FRAME: Final = 8192
MAX_KIND: Final = 1 << 31
BURST_TOLD_NS: Final = 10 * 10**9  # after its end: of frames that are lost on the way one comes through
Row = tuple[int, ...]


class Drain:
    """Rows taken from the rings and not yet sent."""

    def __init__(self) -> None:
        self._steps: list[Row] = []
        self._events: list[Row] = []
        self._has_sent_steps = False

    @property
    def has_first_steps(self) -> bool:
        """Steps were taken and none was ever sent: whoever watches waits for the first."""
        return bool(self._steps) and not self._has_sent_steps

    def take(self, link: RankLink) -> None:
        """Everything new in the link's ring."""
        reader, rank, session = link.reader, link.rank, link.session
        if reader is None or session is None or not session.is_whole(reader.num_bytes):
            return
        if rank is None:
            return
        prefix = (rank,)
        self._steps += [prefix + row for row in link.clock.steps(reader.take_steps())]
        # Its process may have written anything: a kind that no column can hold would cost every rank its rows.
        events = link.clock.events([row for row in reader.take_events() if row[0] < MAX_KIND])
        self._events += [prefix + row for row in events]
        for row in events:
            if row[0] == EventKind.DETACHED:
                link.detach_reason = row[-1]

    def frames(self) -> Iterator[tuple[FrameKind, dict[str, object]]]:
        """The rows taken, as payloads; afterwards they are gone from here."""
        self._has_sent_steps = self._has_sent_steps or bool(self._steps)
        steps, self._steps = self._steps, []
        events, self._events = self._events, []
        for kind, names, rows in (
            (FrameKind.STEPS, STEP_NAMES, steps),
            (FrameKind.EVENTS, EVENT_NAMES, events),
        ):
            for start in range(0, len(rows), ROWS_PER_FRAME):
                yield kind, pack_columns(rows[start : start + ROWS_PER_FRAME], names)


def status_of(link: RankLink) -> dict[str, object]:
    """A rank's entry of a STATUS frame."""
    status: dict[str, object] = {"rank": link.rank, "state": link.state.name.lower(), "detail": link.detail}
    reader, session = link.reader, link.session
    if reader is None or session is None or not session.is_whole(reader.num_bytes):
        # Its records go up to half a second before its end, its last word to the end.
        return status if link.last_step is None else {**status, "step": _bounded(link.last_step)}
    phase, since_ns, step = reader.now()
    since_ns = link.clock.to_us(since_ns)
    why = link.stepless.of_rank(link.rank)
    now_ns, burst_ns = time.monotonic_ns(), link.burst_ns
    so_far = link.under_way.so_far_ms(link.clock.to_rank(now_ns)) if link.state == RankState.LIVE else {}
    # A fresh ring is all zeros: no clock, no phase.
    is_inside = link.state == RankState.LIVE and 0 <= phase < len(PHASES) and since_ns > 0
    return {
        **status,
        "phase": PHASES[phase] if is_inside else None,
        "phase_since_ns": _bounded(since_ns) if is_inside else None,
        "thread": link.standing.state(link.process.pid, since_ns, now_ns, link.thread) if is_inside else None,
        "step": _bounded(step) if reader.get_u64(ring_file.OFFSET_CLOCKS) else None,
        "lost_steps": reader.num_lost_steps,
        "lost_events": reader.num_lost_events,
        "hooks_disabled": reader.get_u64(ring_file.OFFSET_DISABLED).bit_count(),
        "errors": _bounded(reader.get_u64(ring_file.OFFSET_ERRORS)),
        **({"so_far_ms": so_far} if so_far else {}),  # of a long step alone
        **({"burst_ns": list(burst_ns)} if burst_ns and now_ns <= burst_ns[1] + BURST_TOLD_NS else {}),
        **({"no_step": why} if why and link.state == RankState.LIVE else {}),  # said only where it is so
    }


def _bounded(value: int) -> int | None:
    """A header word that fits a frame; anything beyond was never written by a probe."""
    return value if 0 <= value < 1 << 63 else None
