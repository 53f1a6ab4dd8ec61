from __future__ import annotations

import ctypes
import os
import shutil
import struct
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tuiadvisor.inject import process
from tuiadvisor.inject.elf import ElfFile, NotElfError, gnu_hash

if TYPE_CHECKING:
    from pathlib import Path


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
        found = elf.find(b"\x0f\x05", getpid, 32)
        assert found is not None
        assert elf.read(found, 2) == b"\x0f\x05"
        assert elf.find(b"\x00" * 4096, getpid, 32) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"#!/bin/sh\n",
        b"\x7fELF\x01\x01" + bytes(58),
        b"\x7fELF\x02\x01" + bytes(12) + struct.pack("<H", 183) + bytes(44),
    ],
    ids=["empty", "script", "32-bit", "aarch64"],
)
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    """Not ELF, 32-bit and other machines each end in NotElfError."""
    path = tmp_path / "file"
    path.write_bytes(content)
    with path.open("rb") as file, pytest.raises(NotElfError):
        ElfFile(file.fileno())


def test_version_of_our_own_interpreter() -> None:
    """Py_Version is read from the file, before anything is touched."""
    for mapping in process.mapped_objects(process.maps(os.getpid())):
        with process.open_object(os.getpid(), mapping) as elf:
            if elf.any_symbol("PyGILState_Ensure") is not None:
                assert process.python_version(os.getpid(), mapping, elf) == sys.version_info[:2]
                return
    pytest.fail("no interpreter found in ourselves")
