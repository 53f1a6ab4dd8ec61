"""What a hostile process shows of itself: names, paths and variables in /proc, objects it maps, its git folder.

The kernel writes the texts, the process chooses what stands in a few places of them: whoever reads must find the facts
that the kernel put there, whatever the names say. ELF files are wholly the process's.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from unittest import mock

import numpy as np
from fuzzing import damaged

from tuiadvisor.inject import process

if TYPE_CHECKING:
    import random

# Line ends of bytes, of text, and of neither; what a next line of the file would begin with.
ODD: Final = (
    *(
        b"\r",
        b"\x0b",
        b"\x0c",
        b"\x1c",
        b"\x85",
        b"\xc2\x85",
        b"\xe2\x80\xa8",
        b"\xff\xfe",
        b"\t",
        b" ",
        b")",
        b"(",
    ),
    *(
        b") S 1 1",
        b"Uid:\t0\t0\t0\t0",
        b"Pid:\t1",
        b"NSpid:\t1",
        b"TracerPid:\t0",
        b"State:\tZ",
        b"r-xp",
        b"=",
    ),
    *(
        b"7f00-8f00 r-xp 0 0:0 1 /x",
        b"libpython3.11.so",
        b" (deleted)",
        b"RANK=0",
        b"\x1b[2J",
        b"..",
        b"/",
        b":",
    ),
)
COMM_BYTES: Final = 15
MAX_MAPS: Final = 6


@dataclass(frozen=True)
class Shown:
    """A process's texts, and what the kernel says in them."""

    pid: int
    uid: int
    stat: bytes
    status: bytes
    maps: bytes
    environ: bytes
    starts: tuple[int, ...]  # of the mappings
    rank: str | None  # RANK's first value, as the process was started


def odd_name(chance: random.Random, limit: int, never: bytes) -> bytes:
    """A name out of odd parts. never: bytes that cannot be in it."""
    parts = [chance.choice((*ODD, b"python", b"x", bytes((chance.randrange(1, 256),)))) for _ in range(6)]
    name = b"".join(parts[: chance.randrange(1, 6)])
    return bytes(byte for byte in name if byte not in never)[:limit]


def odd_process(chance: random.Random) -> Shown:
    """One that says of itself what it likes."""
    pid, uid = chance.randrange(2, 1 << 22), chance.choice((0, 1000, 1 << 31))
    comm = odd_name(chance, COMM_BYTES, b"\0")
    fields = [b"S", b"1", *(b"%d" % chance.randrange(1 << 15) for _ in range(48))]
    fields[6] = b"4194304"
    shown = comm.replace(b"\\", b"\\\\").replace(b"\n", b"\\n")  # as the kernel does in status, not in stat
    status = (
        b"Name:\t%s\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t%d\nPid:\t%d\nPPid:\t1\nTracerPid:\t0\n"
        b"Uid:\t%d\t%d\t%d\t%d\nGid:\t0\t0\t0\t0\nNSpid:\t%d\nThreads:\t3\n"
        b"voluntary_ctxt_switches:\t15\nnonvoluntary_ctxt_switches:\t5\n"
    ) % (shown, pid, pid, uid, uid, uid, uid, pid)
    starts = tuple((n + 1) << 20 for n in range(chance.randrange(1, MAX_MAPS)))
    lines = []
    for start in starts:
        path = b"/" + odd_name(chance, 200, b"\0")
        blank = b" " * 20 + path.replace(b"\n", b"\\012") if chance.random() < 0.8 else b""
        lines.append(b"%08x-%08x r-xp 00000000 fe:01 %d%s\n" % (start, start + 4096, 12 * bool(blank), blank))
    entries = [odd_name(chance, 60, b"\0") for _ in range(chance.randrange(4))]
    rank = str(chance.randrange(64)) if chance.random() < 0.5 else None
    if rank is not None:
        entries.append(b"RANK=" + rank.encode())
    return Shown(
        pid=pid,
        uid=uid,
        stat=b"%d (%s) %s\n" % (pid, comm, b" ".join(fields)),
        status=status,
        maps=b"".join(lines),
        environ=b"\0".join(entries) + b"\0" * bool(entries),
        starts=starts,
        rank=rank,
    )


def good_object() -> bytes:
    """The smallest shared object that is here for sure: one of NumPy's."""
    return min((path.read_bytes() for path in Path(np.__file__).parent.rglob("*.so")), key=len)


def names_in(path: Path) -> list[int | None]:
    """Addresses of names that are there and names that are not, as the injection looks them up. NotElfError: none."""
    mapping = process.Mapping(0x7F0000000000, 0x7F0000001000, True, 0, 1, str(path))
    with (
        mock.patch.object(process, "_ways_to", return_value=[lambda: os.open(path, os.O_RDONLY)]),
        process.open_object(1, mapping) as elf,
    ):
        found = [elf.any_symbol(name) for name in ("PyInit_x", "_init", "Py_Version", "no_such_name")]
        for address in found:
            if address is not None:
                assert len(elf.read(address, 8)) == 8
        if elf.segments:
            elf.load_bias(mapping.start, elf.segments[0].offset)
        elf.find(b"\x0f\x05", 1)
        return found


WORDS: Final = (
    0,
    1,
    7,
    24,
    4096,
    1 << 16,
    (1 << 31) - 1,
    (1 << 32) - 1,
    1 << 40,
    (1 << 63) - 1,
    (1 << 64) - 1,
)


def hurt_object(good: bytes, chance: random.Random) -> bytes:
    """Words of its header, of the tables of segments, sections, dynamic entries and names; or bytes anywhere."""
    if chance.random() < 0.1:
        return damaged(good, chance)
    data = bytearray(good)
    segments, sections = struct.unpack_from("<QQ", data, 32)
    places = [
        (0, 64),
        (segments, 56 * 10),
        (sections, 64 * 30),
        _dynamic(good, segments),
        _hashes(good, sections),
    ]
    for _ in range(chance.choice((1, 1, 2, 4))):
        begin, num_bytes = chance.choice(places)
        num_word = chance.choice((2, 4, 8))
        at = begin + chance.randrange(max(num_bytes // num_word, 1)) * num_word
        if at + num_word > len(data):
            continue
        word = chance.choice(WORDS) if chance.random() < 0.7 else chance.getrandbits(8 * num_word)
        if chance.random() < 0.3:
            word = len(data) + chance.randrange(-64, 64)
        data[at : at + num_word] = (word & ((1 << 8 * num_word) - 1)).to_bytes(num_word, "little")
    return bytes(data[: chance.choice((len(data), len(data), len(data), chance.randrange(1, len(data))))])


def _dynamic(good: bytes, segments: int) -> tuple[int, int]:
    (number,) = struct.unpack_from("<H", good, 56)
    for index in range(number):
        kind, _, offset, _, _, size = struct.unpack_from("<IIQQQQ", good, segments + 56 * index)
        if kind == 2:
            return offset, size
    return 0, 64


def _hashes(good: bytes, sections: int) -> tuple[int, int]:
    """The table of exported names by hash, section type SHT_GNU_HASH."""
    (number,) = struct.unpack_from("<H", good, 60)
    for index in range(number):
        _, kind, _, _, offset, size = struct.unpack_from("<IIQQQQ", good, sections + 64 * index)
        if kind == 0x6FFFFFF6:
            return offset, size
    return 0, 64


GIT_ODD: Final = (
    *(
        b"ref: refs/heads/main",
        b"ref: refs/../../../etc/passwd",
        b"gitdir: ",
        b"gitdir: /etc",
        b"/",
        b"..",
        b"\n",
    ),
    *(b"a" * 40, b"0" * 64, b"A" * 40, b"\0", b"\xff", b" ", b"refs/heads/", b"(a+)+" * 20, b"# pack-refs"),
)


def odd_repository(folder: Path, chance: random.Random) -> None:
    """Fill a working folder with HEAD, refs and packed refs of odd parts."""
    git = folder / ".git"
    (git / "refs" / "heads").mkdir(parents=True, exist_ok=True)
    files = (git / "HEAD", git / "refs" / "heads" / "main", git / "packed-refs", git / "commondir")
    usual = (b"ref: refs/heads/main\n", b"b" * 40 + b"\n", b"c" * 40 + b" refs/heads/main\n", b".\n")
    for file, text in zip(files, usual, strict=True):
        odd = chance.random() < 0.6
        file.write_bytes(damaged(text, chance, GIT_ODD) if odd else text)
