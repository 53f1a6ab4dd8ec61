"""Who has been heard, and what is missing: sequence gaps and silences of every source, as GAP payloads.

In: the head of each frame and the hub's own clock.  Out: whether to keep the frame, and what to record as missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuiadvisor.stream.frames import HUB_SOURCE, FrameError, FrameHead, FrameKind

if TYPE_CHECKING:
    from collections.abc import Sequence

SILENCE_S: Final = 3.0
MAX_SOURCES: Final = 16_384

# The "what" of a GAP: readers match on these words.
FRAMES_MISSING: Final = "frames missing"
AGENT_SILENT: Final = "agent silent"
AGENT_RETURNED: Final = "agent returned"
BAD_FRAMES: Final = "bad frames"
NOT_RECORDED: Final = "not recorded"
PEERS_REFUSED: Final = "peers refused"

Gap = dict[str, object]

_OF_THE_HUB: Final = frozenset({FrameKind.RUN, FrameKind.GAP, FrameKind.INDEX})


def gap(what: str, source: str | None, num_frames: int | None, why: str) -> Gap:
    """The payload of a GAP frame; num_frames is None when nobody can know it."""
    return {"what": what, "source": source, "num_frames": num_frames, "why": why}


@dataclass(slots=True)
class _Source:
    next_seq: int
    heard_s: float
    is_silent: bool = False
    is_gone: bool = False  # it said BYE


class Attendance:
    """Every source heard so far."""

    def __init__(self, silence_s: float = SILENCE_S, max_sources: int = MAX_SOURCES) -> None:
        self._silence_s = silence_s
        self._max_sources = max_sources
        self._sources: dict[str, _Source] = {}

    def __len__(self) -> int:
        """Sources heard and not yet gone."""
        return sum(not source.is_gone for source in self._sources.values())

    def arrive(self, head: FrameHead, now_s: float) -> Sequence[Gap]:
        """What is missing before this frame. FrameError if it was seen before or nobody may send it."""
        if head.source == HUB_SOURCE or head.kind in _OF_THE_HUB:
            raise FrameError(f"{head.kind.name} frame from {head.source}: only the hub itself writes these")
        source = self._sources.get(head.source)
        if source is None:
            source = self._admit(head.source, now_s)
        if head.seq < source.next_seq:
            raise FrameError(f"frame {head.seq} of {head.source} came twice or out of order")
        gaps = []
        if source.is_silent:
            silent_s = now_s - source.heard_s
            gaps.append(gap(AGENT_RETURNED, head.source, None, f"heard again after {silent_s:.1f} s"))
        if missing := head.seq - source.next_seq:
            why = "lost before this hub heard of it" if source.next_seq == 0 else "lost on the way"
            gaps.append(gap(FRAMES_MISSING, head.source, missing, why))
        source.next_seq, source.heard_s, source.is_silent = head.seq + 1, now_s, False
        source.is_gone = head.kind is FrameKind.BYE
        return gaps

    def overdue(self, now_s: float) -> Sequence[Gap]:
        """One GAP for each source that has just become silent; a source that said BYE may be."""
        gaps = []
        for name, source in self._sources.items():
            silent_s = now_s - source.heard_s
            if not source.is_silent and not source.is_gone and silent_s > self._silence_s:
                source.is_silent = True
                gaps.append(gap(AGENT_SILENT, name, None, f"not heard for {silent_s:.1f} s"))
        return gaps

    def _admit(self, name: str, now_s: float) -> _Source:
        if len(self._sources) >= self._max_sources:
            gone = next((name for name, source in self._sources.items() if source.is_gone), None)
            if gone is None:
                raise FrameError(f"more than {self._max_sources} sources")
            del self._sources[gone]
        self._sources[name] = source = _Source(next_seq=0, heard_s=now_s)
        return source
