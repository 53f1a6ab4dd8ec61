"""Bytes that this machine moved to and from network file systems: NFS and Lustre clients' own counters.

In: /proc/self/mountstats, llite's statistics.  Out: bytes read from and written to servers so far, None where there is
no such file system or its counters may not be read. Disks' counters miss all of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

MAX_BYTES: Final = 1 << 20
MAX_MOUNTS: Final = 256
LUSTRE: Final = ("proc/fs/lustre/llite", "sys/fs/lustre/llite", "sys/kernel/debug/lustre/llite")
# "bytes:" in mountstats: read and written by callers, the same past the page cache, then from and to the server.
_SERVER: Final = (4, 5)


def bytes_moved(root: Path = Path("/")) -> tuple[int | None, int | None]:
    """(read from servers, written to servers), all mounts together."""
    found = [*_nfs(root), *_lustre(root)]
    if not found:
        return None, None
    return sum(read for read, _ in found), sum(written for _, written in found)


def _nfs(root: Path) -> list[tuple[int, int]]:
    """One item an export: mounted twice it has the same counters."""
    by_export: dict[str, tuple[int, int]] = {}
    export = ""
    for line in _text(root / "proc/self/mountstats").splitlines():
        words = line.split()
        if words[:1] == ["device"]:
            is_nfs = "fstype" in words and words[words.index("fstype") + 1 :][:1] in (["nfs"], ["nfs4"])
            export = words[1] if is_nfs and len(words) > 1 else ""
        elif export and words[:1] == ["bytes:"] and len(by_export) < MAX_MOUNTS:
            counts = words[1:]
            if len(counts) > _SERVER[1] and all(count.isdecimal() for count in counts):
                read, written = (int(counts[at]) for at in _SERVER)
                by_export[export] = read, written
    return list(by_export.values())


def _lustre(root: Path) -> list[tuple[int, int]]:
    for place in LUSTRE:
        try:
            mounts = sorted((root / place).glob("*/stats"))[:MAX_MOUNTS]
        except OSError:
            continue
        found = [counted for path in mounts if (counted := _llite(_text(path))) is not None]
        if found:
            return found
    return []


def _llite(text: str) -> tuple[int, int] | None:
    """Of lines as "read_bytes 12 samples [bytes] 4096 4194304 25165824"; an operation that never was has none."""
    sums = {"read_bytes": 0, "write_bytes": 0}
    is_one = False
    for line in text.splitlines():
        words = line.split()
        is_one |= words[:1] == ["snapshot_time"] or words[:1] == ["snapshot_time:"]
        if words and words[0] in sums and len(words) >= 7 and words[3] == "[bytes]" and words[6].isdecimal():
            sums[words[0]], is_one = int(words[6]), True
    return (sums["read_bytes"], sums["write_bytes"]) if is_one else None


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return ""
