"""Who has been heard, and what is missing: sequence gaps and silences of every source, as GAP payloads.

In: the head of each frame, who sent it, and the hub's own clock.  Out: whether to keep the frame, and what to record as
missing. A source belongs to the first who spoke in its name, and no peer can bring so many that none are left for
others.
"""

from __future__ import annotations

import secrets
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuiadvisor.log import Logger
from tuiadvisor.stream.frames import HUB_SOURCE, FrameError, FrameHead, FrameKind
from tuiadvisor.stream.voice import NOBODYS, VOICE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

logger: Final = Logger(__name__)
SILENCE_S: Final = 3.0
MAX_SOURCES: Final = 16_384
# What an agent may lose and be believed: it sends some ten frames a second and keeps 512. A larger number is nobody's
# observation, and is not recorded as one.
LOST_AT_ONCE: Final = 2000
LOST_A_SECOND: Final = 100
PRIVATE: Final = ""  # the peer on a socket that only the hub's own user can reach

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
    voice: bytes
    peer: str
    begin_s: float
    heard_s: float
    next_seq: int = 0
    num_lost: int = 0  # believed so far
    is_silent: bool = False
    is_gone: bool = False  # it said BYE


def _private() -> str:
    return PRIVATE


class Attendance:
    """Every source heard so far."""

    def __init__(self, silence_s: float = SILENCE_S, max_sources: int = MAX_SOURCES) -> None:
        self._silence_s = silence_s
        self._max_sources = max_sources
        self._sources: dict[str, _Source] = {}
        self._num_of_peer: Counter[str] = Counter()
        self._gone: dict[str, dict[str, None]] = {}  # by peer, the first first

    def __len__(self) -> int:
        """Sources heard and not yet gone."""
        return sum(not source.is_gone for source in self._sources.values())

    def arrive(
        self, head: FrameHead, now_s: float, voice: bytes = NOBODYS, peer: Callable[[], str] = _private
    ) -> Sequence[Gap]:
        """What is missing before this frame. FrameError if it was seen before or its sender may not send it.

        peer: whose key and address it came with; asked for a new source only.
        """
        if head.source == HUB_SOURCE or head.kind in _OF_THE_HUB:
            raise FrameError(f"{head.kind.name} frame from {head.source}: only the hub itself writes these")
        source = self._sources.get(head.source)
        if source is None:
            source = self._admit(head.source, now_s, voice, peer())
        elif not secrets.compare_digest(voice, source.voice):
            raise FrameError(f"a frame of {head.source} from somebody else")
        if head.seq < source.next_seq:
            raise FrameError(f"frame {head.seq} of {head.source} came twice or out of order")
        gaps = []
        if source.is_silent:
            silent_s = now_s - source.heard_s
            gaps.append(gap(AGENT_RETURNED, head.source, None, f"heard again after {silent_s:.1f} s"))
        if missing := head.seq - source.next_seq:
            gaps.append(_missing(head.source, source, missing, now_s))
        source.next_seq, source.heard_s, source.is_silent = head.seq + 1, now_s, False
        if source.is_gone or head.kind is FrameKind.BYE:
            self._note_bye(head.source, source, is_gone=head.kind is FrameKind.BYE)
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

    def _note_bye(self, name: str, source: _Source, *, is_gone: bool) -> None:
        if is_gone:
            logger.info("%s said goodbye", name)
        source.is_gone = is_gone
        gone = self._gone.setdefault(source.peer, {})
        if is_gone:
            gone[name] = None
        else:
            gone.pop(name, None)

    def _admit(self, name: str, now_s: float, voice: bytes, peer: str) -> _Source:
        if peer != PRIVATE and len(voice) != VOICE_BYTES:
            raise FrameError(f"{name}: an agent of an older version; update it")
        self._make_room(peer)
        self._num_of_peer[peer] += 1
        logger.info("%s is heard for the first time", name)
        self._sources[name] = source = _Source(voice, peer, begin_s=now_s, heard_s=now_s)
        return source

    def _make_room(self, peer: str) -> None:
        """FrameError unless another source of this peer fits: none may have more than it leaves to others."""
        num, num_free = self._num_of_peer[peer], self._max_sources - len(self._sources)
        if num_free > (0 if peer == PRIVATE else num):
            return
        gone = self._gone.get(peer)
        if not gone:
            raise FrameError(f"more than {num} sources from one peer, of {self._max_sources} in all")
        first = next(iter(gone))
        del gone[first], self._sources[first]
        self._num_of_peer[peer] -= 1


def _missing(name: str, source: _Source, num_frames: int, now_s: float) -> Gap:
    believed = LOST_AT_ONCE + LOST_A_SECOND * (now_s - source.begin_s)
    if source.num_lost + num_frames > believed:
        why = f"its numbers jump by {num_frames}: how many were lost is not known"
        return gap(FRAMES_MISSING, name, None, why)
    source.num_lost += num_frames
    why = "lost before this hub heard of it" if source.next_seq == 0 else "lost on the way"
    return gap(FRAMES_MISSING, name, num_frames, why)
