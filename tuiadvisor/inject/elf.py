"""Symbols and bytes of a 64-bit little-endian ELF file, of whatever machine, by address.

In: a file descriptor.  Out: addresses as linked (add `load_bias` for a running process). Exported names come
from DT_GNU_HASH, a few reads each; names that were not exported from the section tables, if not stripped. Whoever may
map a file can have written it: whatever does not fit is one NotElfError, and nothing is read or followed without bound.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_PT_LOAD, _PT_DYNAMIC = 1, 2
_PF_X = 1
_DT_STRTAB, _DT_SYMTAB, _DT_GNU_HASH = 5, 6, 0x6FFFFEF5
_SHT_SYMTAB, _SHT_DYNSYM = 2, 11
_STT_GNU_IFUNC = 10
_SYMBOL = struct.Struct("<IBBHQQ")
_PROGRAM = struct.Struct("<IIQQQQ")
_SECTION = struct.Struct("<IIQQQQI")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MAX_READ_BYTES = 1 << 29  # an executable segment of libtorch_cuda has a few hundred megabytes
_MAX_SEGMENTS = 256
_MAX_CHAIN = 1 << 16  # names with one hash in a row: a linker makes a handful


class NotElfError(ValueError):
    """No 64-bit little-endian ELF file, or one that contradicts itself."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of the file that is mapped."""

    offset: int
    address: int
    size: int
    executable: bool


class ElfFile:
    """Reads what is asked for, never the whole file: libtorch alone has hundreds of megabytes."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise NotElfError("not a plain file")
        self._num_bytes = found.st_size
        header = self._at(0, 64)
        if len(header) < 64 or header[:6] != b"\x7fELF\x02\x01":
            raise NotElfError("not a 64-bit little-endian ELF file")
        (self.machine,) = struct.unpack_from("<H", header, 18)
        self._header = header
        self.segments: list[Segment] = []
        self._dynamic: dict[int, int] = {}
        self._read_program_headers()

    def read(self, address: int, size: int) -> bytes:
        """Bytes at a linked address, all of them. Raises NotElfError where nothing of the file is mapped."""
        for segment in self.segments:
            if segment.address <= address and address + size <= segment.address + segment.size:
                found = self._at(address - segment.address + segment.offset, size)
                if len(found) == size:
                    return found
        raise NotElfError(f"no file bytes at {address:#x}")

    def _at(self, offset: int, size: int) -> bytes:
        """What the file holds there: not more than it is long, whatever its tables promise."""
        size = min(size, self._num_bytes - offset)
        if size > _MAX_READ_BYTES:
            raise NotElfError(f"a part of {size} bytes")
        return os.pread(self._fd, size, offset) if size > 0 else b""

    def _table(
        self, offset: int, entry: struct.Struct, entry_size: int, num_entries: int
    ) -> list[tuple[int, ...]]:
        """The whole entries of a table; the file may give each more room than we read."""
        raw = self._at(offset, entry_size * num_entries)
        num_whole = min(num_entries, len(raw) // entry_size) if entry_size >= entry.size else 0
        return [entry.unpack_from(raw, number * entry_size) for number in range(num_whole)]

    def load_bias(self, start: int, file_offset: int) -> int:
        """Running minus linked address, from any mapping of the file; 0 for a non-PIE executable."""
        for segment in self.segments:
            first_page = segment.offset // _PAGE * _PAGE
            if first_page <= file_offset < segment.offset + segment.size:
                return start - (segment.address + file_offset - segment.offset)
        raise NotElfError(f"no segment at file offset {file_offset:#x}")

    def symbol(self, name: str) -> int | None:
        """Linked address of a name that other objects can see."""
        if _DT_GNU_HASH not in self._dynamic:
            return self._from_sections(name, _SHT_DYNSYM)
        return self._from_gnu_hash(name.encode())

    def any_symbol(self, name: str) -> int | None:
        """Linked address of a name, exported or not; reads the full symbol table when it must."""
        address = self.symbol(name)
        return address if address is not None else self._from_sections(name, _SHT_SYMTAB)

    def find(
        self, pattern: bytes, step: int, start: int = 0, size: int | None = None
    ) -> tuple[int, bytes] | None:
        """Linked address and bytes of the first such instruction in executable code, from `start` on.

        pattern: a regular expression.  step: instructions begin at multiples of it.
        """
        for segment in self.segments:
            if not segment.executable or start >= segment.address + segment.size:
                continue
            begin = max(start, segment.address)
            room = segment.address + segment.size - begin
            code = self.read(begin, room if size is None else min(size, room))
            for found in re.finditer(pattern, code, re.DOTALL):
                if not (begin + found.start()) % step:
                    return begin + found.start(), found.group()
        return None

    def _read_program_headers(self) -> None:
        (table,) = struct.unpack_from("<Q", self._header, 32)
        entry_size, num_entries = struct.unpack_from("<HH", self._header, 54)
        if num_entries > _MAX_SEGMENTS:
            raise NotElfError(f"{num_entries} segments")
        for kind, flags, offset, address, _, size in self._table(table, _PROGRAM, entry_size, num_entries):
            if kind == _PT_LOAD:
                num_here = min(size, max(self._num_bytes - offset, 0))
                self.segments.append(Segment(offset, address, num_here, bool(flags & _PF_X)))
            elif kind == _PT_DYNAMIC:
                raw = self._at(offset, size)
                self._dynamic = dict(struct.iter_unpack("<QQ", raw[: len(raw) & ~15]))

    def _from_gnu_hash(self, name: bytes) -> int | None:
        table = self._dynamic[_DT_GNU_HASH]
        num_buckets, first_hashed, num_bloom, _ = struct.unpack("<IIII", self.read(table, 16))
        if not num_buckets or not {_DT_SYMTAB, _DT_STRTAB} <= self._dynamic.keys():
            raise NotElfError("names by hash, but no table of them")
        buckets = table + 16 + 8 * num_bloom
        chains = buckets + 4 * num_buckets
        name_hash = gnu_hash(name)
        (index,) = struct.unpack("<I", self.read(buckets + 4 * (name_hash % num_buckets), 4))
        for _ in range(_MAX_CHAIN if index >= first_hashed else 0):
            (chained,) = struct.unpack("<I", self.read(chains + 4 * (index - first_hashed), 4))
            if chained | 1 == name_hash | 1:
                address = self._dynamic_symbol(index, name)
                if address is not None:
                    return address
            if chained & 1:  # the lowest bit ends a chain
                return None
            index += 1
        return None

    def _dynamic_symbol(self, index: int, name: bytes) -> int | None:
        raw = self.read(self._dynamic[_DT_SYMTAB] + _SYMBOL.size * index, _SYMBOL.size)
        name_offset, *_ = _SYMBOL.unpack(raw)
        found = self.read(self._dynamic[_DT_STRTAB] + name_offset, len(name) + 1)
        return _usable_address(raw) if found == name + b"\0" else None

    def _from_sections(self, name: str, kind: int) -> int | None:
        for symbols, strings in islice(self._symbol_sections(kind), 1):  # there is one of each kind
            name_offset = strings.find(b"\0" + name.encode() + b"\0") + 1
            if not name_offset:
                continue
            for position in range(0, len(symbols) - _SYMBOL.size + 1, _SYMBOL.size):
                if struct.unpack_from("<I", symbols, position)[0] == name_offset:
                    return _usable_address(symbols[position : position + _SYMBOL.size])
        return None

    def _symbol_sections(self, kind: int) -> Iterator[tuple[bytes, bytes]]:
        (table,) = struct.unpack_from("<Q", self._header, 40)
        entry_size, num_entries = struct.unpack_from("<HH", self._header, 58)
        headers = self._table(table, _SECTION, entry_size, num_entries)
        for _, section_kind, _, _, offset, size, link in headers:
            if section_kind == kind and link < len(headers):
                _, _, _, _, strings_offset, strings_size, _ = headers[link]
                yield self._at(offset, size), self._at(strings_offset, strings_size)


def gnu_hash(name: bytes) -> int:
    """Bernstein's hash as the dynamic linker uses it: h * 33 + byte, 32 bits."""
    value = 5381
    for byte in name:
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def _usable_address(raw: bytes) -> int | None:
    _, info, _, section, address, _ = _SYMBOL.unpack(raw)
    # An indirect function's address is that of its resolver: calling it would do something else.
    return address if section and info & 15 != _STT_GNU_IFUNC else None
