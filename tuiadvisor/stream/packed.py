"""A recording that somebody packed with gzip, zstd, xz or bzip2: read from what it unpacks to, a nameless file.

In: an open file.  Out: one to read at any place. It is unpacked once for as long as it stays what it is and its reader
or the next few have it open; at its first bytes it must be a recording, so that no bomb is unpacked for nothing.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections import OrderedDict
from typing import IO, Final

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.unpacking import MAGIC_BYTES, MAX_FILE_BYTES, copied, into_temporary, packing, unpacked

MAX_KEPT: Final = 2  # unpacked at a time: of two that are compared neither is unpacked twice

_Identity = tuple[int, int, int, int]
_kept: OrderedDict[_Identity, IO[bytes]] = OrderedDict()
_lock = threading.Lock()


def plain(path: str, descriptor: int, begins: bytes) -> int:
    """The same descriptor, or where it is packed one of what it holds, the packed one closed. TuiadvisorError.

    begins: what a recording begins with.
    """
    kind = packing(os.pread(descriptor, MAGIC_BYTES, 0))
    if kind is None:
        return descriptor
    with os.fdopen(descriptor, "rb") as raw, _lock:
        held = os.fstat(descriptor)
        key = (held.st_dev, held.st_ino, held.st_size, held.st_mtime_ns)
        if key not in _kept:
            _kept[key] = _unpacked(path, raw, kind, begins)
        _kept.move_to_end(key)
        while len(_kept) > MAX_KEPT:
            _kept.popitem(last=False)[1].close()
        return os.dup(_kept[key].fileno())


def _unpacked(path: str, raw: IO[bytes], kind: str, begins: bytes) -> IO[bytes]:
    copy = tempfile.TemporaryFile(prefix="tuiadvisor-")  # noqa: SIM115 - whoever keeps it closes it
    try:
        with into_temporary(path, kind):
            _unpack(path, raw, kind, begins, copy)
    except BaseException:
        copy.close()
        raise
    return copy


def _unpack(path: str, raw: IO[bytes], kind: str, begins: bytes, copy: IO[bytes]) -> None:
    with unpacked(raw, kind) as file:
        head = file.read(len(begins))
        if head != begins:
            raise TuiadvisorError(
                f"{path}: not a recording of tuiadvisor, packed with {kind}; tuiadvisor open tells what it is"
            )
        copy.write(head)
        if not copied(file, copy):
            raise TuiadvisorError(
                f"{path}: above {MAX_FILE_BYTES >> 30} GiB unpacked; unpack it by hand if you trust it"
            )
    copy.flush()
