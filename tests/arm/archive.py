"""A folder as the archive that a kernel unpacks into memory at its start (cpio, "newc"), compressed by gzip.

In: a folder.  Out: a file. Devices are named: an ordinary user makes no device files.
"""

from __future__ import annotations

import gzip
import stat
from collections.abc import Iterator
from pathlib import Path

DEVICES = (("dev/console", 5, 1), ("dev/null", 1, 3))
_MAGIC = b"070701"


def write_archive(folder: Path, output: Path) -> None:
    """All that lies below the folder, owned by root."""
    with gzip.open(output, "wb", compresslevel=1) as file:
        for number, part in enumerate(_members(folder), start=1):
            name, mode, device, content = part
            file.write(_member(number, name, mode, device, content))
        file.write(_member(0, "TRAILER!!!", 0, (0, 0), b""))


def _members(folder: Path) -> Iterator[tuple[str, int, tuple[int, int], bytes]]:
    for path in sorted(folder.rglob("*")):
        name, mode = str(path.relative_to(folder)), path.lstat().st_mode
        if stat.S_ISLNK(mode):
            yield name, mode, (0, 0), str(path.readlink()).encode()
        elif stat.S_ISREG(mode):
            yield name, mode, (0, 0), path.read_bytes()
        elif stat.S_ISDIR(mode):
            yield name, mode, (0, 0), b""
    for name, major, minor in DEVICES:
        yield name, stat.S_IFCHR | 0o600, (major, minor), b""


def _member(number: int, name: str, mode: int, device: tuple[int, int], content: bytes) -> bytes:
    raw = name.encode() + b"\0"
    fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(raw), 0)
    head = _MAGIC + b"".join(b"%08x" % field for field in fields) + raw
    return _padded(head) + _padded(content)


def _padded(content: bytes) -> bytes:
    return content + b"\0" * (-len(content) % 4)
