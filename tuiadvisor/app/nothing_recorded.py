"""A recording in which nothing of any rank is: left where it lies, it only stands in the way of the next try.

In: the path of a recording that a session of ours has begun and ended.  Out: whether it was removed. Whatever is not
surely nothing stays: a step, an event, a look at a rank's stack, a rank that was watched, a file that cannot be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.errors import TuiadvisorError, one_line
from tuiadvisor.stream.frames import FrameKind, decode
from tuiadvisor.stream.recording import RecordingReader

if TYPE_CHECKING:
    from pathlib import Path

_OF_RANKS: Final = frozenset({FrameKind.HELLO, FrameKind.STATUS})
_OF_NOBODY: Final = frozenset({FrameKind.RUN, FrameKind.HOST, FrameKind.BYE})
_NEVER_WATCHED: Final = frozenset({"found", "waiting_to_attach", "refused", "exited", "killed"})
_LOOKS: Final = ("stacks", "recorders")  # at ranks, in a STATUS frame


def remove_if_nothing(path: Path) -> bool:
    """True if nothing was recorded there, and the file is gone."""
    try:
        if not _holds_nothing(path):
            return False
        path.unlink()
    except (OSError, TuiadvisorError):  # a FrameError is one, too
        return False
    return True


def nothing_left(path: str) -> str:
    """What is said where it was removed."""
    return f"nothing was recorded, and no {one_line(path)} is left"


def _holds_nothing(path: Path) -> bool:
    with RecordingReader(path) as reader:
        for located in reader.frames():
            kind = located.head.kind
            if kind in _OF_RANKS:
                if _is_of_a_watched_rank(decode(located.data).payload):
                    return False
            elif kind not in _OF_NOBODY:
                return False
        return not reader.summary().notes


def _is_of_a_watched_rank(payload: dict[str, object]) -> bool:
    if any(payload.get(name) for name in _LOOKS):
        return True
    ranks = payload.get("ranks")
    entries = ranks if isinstance(ranks, list) else []
    return any(not isinstance(entry, dict) or entry.get("state") not in _NEVER_WATCHED for entry in entries)
