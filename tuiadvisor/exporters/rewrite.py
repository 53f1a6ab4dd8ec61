"""Frames into a new recording: never over an existing file, and no half of one is left behind.

In: frames, the first one RUN.  Out: a file that only its owner may read.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from tuiadvisor.errors import exists_already
from tuiadvisor.stream.frames import HUB_SOURCE, FrameKind, encode
from tuiadvisor.stream.recording import RecordingWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

BATCH_BYTES: Final = 1 << 20


def refuse_existing(path: str) -> None:
    """TuiadvisorError before the work begins rather than after it; creation itself refuses again."""
    if Path(path).exists() or Path(path).is_symlink():
        raise exists_already(path)


def write_recording(path: str, frames: Iterator[bytes]) -> int:
    """Write all frames, return the file's bytes. What was begun is removed if anything fails."""
    refuse_existing(path)
    first = next(frames, None)
    if first is None:  # a recording without a whole frame is still one
        first = encode(FrameKind.RUN, HUB_SOURCE, 0, 0, {"schema": 1})
    writer = RecordingWriter(path, first)
    try:
        batch: list[bytes] = []
        num_bytes = 0
        for data in frames:
            batch.append(data)
            num_bytes += len(data)
            if num_bytes >= BATCH_BYTES:
                writer.append(b"".join(batch), len(batch))
                batch, num_bytes = [], 0
        if batch:
            writer.append(b"".join(batch), len(batch))
    except BaseException:
        writer.close()
        Path(path).unlink(missing_ok=True)
        raise
    writer.close()
    return writer.num_bytes
