from __future__ import annotations

import ctypes
import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from tuiadvisor.inject import process
from tuiadvisor.inject.elf import ElfFile, NotElfError, gnu_hash
from tuiadvisor.inject.machines import AARCH64, HERE

if TYPE_CHECKING:
    from collections.abc import Callable


def _own_object(part_of_name: str) -> process.Mapping:
    return next(m for m in process.mapped_objects(process.maps(os.getpid())) if part_of_name in m.path)


def test_gnu_hash_is_that_of_the_linker() -> None:
    """Known values: the empty name and the examples every linker agrees on."""
    assert [gnu_hash(b""), gnu_hash(b"printf"), gnu_hash(b"syscall")] == [5381, 0x156B2BB8, 0xBAC212A0]


@pytest.mark.parametrize("name", ["munmap", "getpid", "malloc"])
def test_exported_symbol_is_where_the_linker_put_it(name: str) -> None:
    """Linked address plus load bias is the address a program would call."""
    libc = _own_object("/libc.so")
    with process.open_object(os.getpid(), libc) as elf:
        linked = elf.symbol(name)
        bias = elf.load_bias(libc.start, libc.file_offset)
        assert linked is not None
        content = elf.read(linked, 16)
    expected = ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value
    assert expected == linked + bias
    assert ctypes.string_at(expected, 16) == content


def test_load_bias_is_the_same_from_every_mapping() -> None:
    """The first mapping of a file need not be the one at offset 0."""
    libc = _own_object("/libc.so")
    parts = [m for m in process.maps(os.getpid()) if m.path == libc.path]
    with process.open_object(os.getpid(), libc) as elf:
        biases = {elf.load_bias(part.start, part.file_offset) for part in parts}
    assert len(biases) == 1


def test_indirect_functions_are_not_taken() -> None:
    """The address of `strlen` is that of a resolver, which must not be called in its place."""
    with process.open_object(os.getpid(), _own_object("/libc.so")) as elf:
        assert elf.symbol("strlen") is None


def test_missing_symbol_is_none() -> None:
    """An unknown name is no error: other objects are asked next."""
    with process.open_object(os.getpid(), _own_object("/libc.so")) as elf:
        assert elf.any_symbol("tuiadvisor_no_such_symbol") is None


def test_names_that_were_not_exported_are_found_in_the_full_table(tmp_path: Path) -> None:
    """A static interpreter may export nothing and still be served, unless it was stripped."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler (apt-get install gcc)")
    source, program = tmp_path / "quiet.c", tmp_path / "quiet"
    source.write_text("int quiet_function(int n) { return n + 1; } int main(void) { return 0; }\n")
    subprocess.run([compiler, "-o", program, source], check=True)
    with program.open("rb") as file:
        elf = ElfFile(file.fileno())
        assert elf.symbol("quiet_function") is None
        assert elf.any_symbol("quiet_function") is not None


def test_instruction_is_found_near_a_function() -> None:
    """Getpid holds a system call within its first bytes."""
    with process.open_object(os.getpid(), _own_object("/libc.so")) as elf:
        getpid = elf.symbol("getpid")
        assert getpid is not None
        found = elf.find(re.escape(HERE.system_call), HERE.instruction_bytes, getpid, 32)
        assert found is not None
        address, code = found
        assert (HERE.system_call, code) == (code, elf.read(address, len(code)))
        assert elf.find(b"\x00{4096}", 1, getpid, 32) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"#!/bin/sh\n",
        b"\x7fELF\x01\x01" + bytes(58),
        b"\x7fELF\x02\x02" + bytes(58),
    ],
    ids=["empty", "script", "32-bit", "big-endian"],
)
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    """Not ELF, 32-bit and big-endian files each end in NotElfError."""
    path = tmp_path / "file"
    path.write_bytes(content)
    with path.open("rb") as file, pytest.raises(NotElfError):
        ElfFile(file.fileno())


@pytest.mark.parametrize("machine", [183, 243, 258], ids=["aarch64", "riscv", "loongarch"])
def test_names_are_found_whatever_the_machine(machine: int, tmp_path: Path) -> None:
    """Tables are the same on all of them: an interpreter is recognised where nothing can be put into it."""
    libc = _own_object("/libc.so")
    with process.open_object(os.getpid(), libc) as elf:
        expected = elf.symbol("getpid")
    copy = bytearray(Path(libc.path).read_bytes())
    copy[18:20] = machine.to_bytes(2, "little")
    path = tmp_path / "libc.so"
    path.write_bytes(copy)
    with path.open("rb") as file:
        elf = ElfFile(file.fileno())
        assert (machine, expected) == (elf.machine, elf.symbol("getpid"))


def test_instructions_of_fixed_length_are_found_where_they_begin(tmp_path: Path) -> None:
    """The bytes of `svc #0` and `brk #1000` across two other instructions are neither."""
    svc, brk = 0xD4000001, 0xD4207D00
    code = struct.pack("<6I", 0x01000000, 0x01D40000, svc, 0x00AAAAAA, brk, 0)
    crossed = code[:2] + struct.pack("<I", svc) + code[6:]
    header = (
        b"\x7fELF\x02\x01"
        + bytes(10)
        + struct.pack("<HHIQQQIHHHHHH", 3, 183, 1, 0, 64, 0, 0, 64, 56, 1, 64, 0, 0)
    )
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 256, 256, 4096)
    path = tmp_path / "code"
    path.write_bytes((header + segment).ljust(160, b"\0") + crossed.ljust(96, b"\0"))
    with path.open("rb") as file:
        elf = ElfFile(file.fileno())
        assert (168, struct.pack("<I", svc)) == elf.find(re.escape(AARCH64.system_call), 4)
        assert (176, struct.pack("<I", brk)) == elf.find(AARCH64.trap, 4)


def test_version_of_our_own_interpreter() -> None:
    """Py_Version is read from the file, before anything is touched."""
    for mapping in process.mapped_objects(process.maps(os.getpid())):
        with process.open_object(os.getpid(), mapping) as elf:
            if elf.any_symbol("PyGILState_Ensure") is not None:
                assert process.python_version(os.getpid(), mapping, elf) == sys.version_info[:2]
                return
    pytest.fail("no interpreter found in ourselves")


def _opened(path: Path) -> None:
    """As it is looked into when a plan is made."""
    mapping = process.Mapping(0, 1, executable=True, file_offset=0, inode=1, path=str(path))
    with process.open_object(os.getpid(), mapping) as elf:
        elf.any_symbol("munmap")
        elf.load_bias(0, 0)
        elf.find(re.escape(HERE.system_call), HERE.instruction_bytes)


@pytest.mark.slow
def test_damaged_files_are_no_elf_files_and_nothing_worse(tmp_path: Path) -> None:
    """Somebody else's object may say anything of itself: sizes of exabytes, tables beyond the end, no buckets."""
    path = tmp_path / "libc.so"
    whole = Path(_own_object("/libc.so").path).read_bytes()
    random = Random(7)  # noqa: S311  damage, not secrets
    # The header, the program headers and the tables of names lie at the beginning, the section headers at the end.
    places = [(0, 64), (0, 1024), (0, 64 << 10), (len(whole) - 4096, 4088)]
    num_refused = 0
    for _ in range(300):
        content = bytearray(whole)
        start, size = random.choice(places)
        for _ in range(random.randint(1, 4)):
            at = start + random.randrange(size)
            content[at : at + 8] = random.choice([b"\0" * 8, b"\xff" * 8, random.randbytes(8)])
        path.write_bytes(content[: len(whole)])
        try:
            _opened(path)
        except NotElfError:
            num_refused += 1
    assert 0 < num_refused < 300


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_plain_file_is_not_looked_into(make: Callable[[Path], object], tmp_path: Path) -> None:
    """Whatever has taken the name of a mapped file since; a FIFO would hold us until somebody writes to it."""
    make(tmp_path / "libc.so")
    with pytest.raises(NotElfError):
        _opened(tmp_path / "libc.so")


def test_a_hash_chain_without_end_is_left(tmp_path: Path) -> None:
    """A sparse file of a terabyte of zeros after the table: each step would be a read, a name would take days."""
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 1 << 40, 1 << 40, 4096)
    dynamic = struct.pack("<IIQQQQQQ", 2, 6, 0x100, 0x100, 0, 64, 64, 8)
    header = (
        b"\x7fELF\x02\x01"
        + bytes(10)
        + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0)
    )
    tags = struct.pack("<8Q", 0x6FFFFEF5, 0x200, 5, 0x400, 6, 0x400, 0, 0)
    table = struct.pack("<IIIIQI", 1, 1, 1, 0, 0, 1)  # one bucket, whose chain begins at symbol 1
    path = tmp_path / "libc.so"
    path.write_bytes((header + segment + dynamic).ljust(0x100, b"\0") + tags.ljust(0x100, b"\0") + table)
    os.truncate(path, 1 << 40)
    with path.open("rb") as file:
        assert ElfFile(file.fileno()).symbol("munmap") is None
