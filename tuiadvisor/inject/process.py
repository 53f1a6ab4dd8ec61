"""What /proc tells about a process before anybody touches it.

In: a process id as this process sees it.  Out: frozen facts. Raises ProcessLookupError when the process is
gone and PermissionError when it may not be looked at.
"""

from __future__ import annotations

import os
import re
import struct
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tuiadvisor.inject.elf import ElfFile, NotElfError
from tuiadvisor.inject.insideroot import open_inside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Names of the object that carries the interpreter: an embedding program may call itself anything.
_PYTHON_NAME = re.compile(r"python(\d)\.(\d+)")
_DELETED = " (deleted)"
# What has the file's name now may be a FIFO or a terminal.
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MAX_BYTES = 16 << 20  # of one file in /proc; 65,530 anonymous mappings, as many as there may be, take 5 MiB
_EXITING = 0x00000004  # PF_EXITING, include/linux/sched.h: set before the memory is given back
_MAX_OBJECTS = 4096  # mapped files that are looked into; a training has some hundreds


@dataclass(frozen=True, slots=True)
class Status:
    """The lines of /proc/PID/status that decide whether a process may be touched."""

    state: str
    """One letter: R running, S sleeping, D waiting for a device, T stopped, t traced, Z zombie."""
    tracer_pid: int
    uid: int
    inner_pid: int
    """The process id inside the innermost PID namespace: what getpid() returns there."""
    shadow_stack: bool


@dataclass(frozen=True, slots=True)
class Mapping:
    """One line of /proc/PID/maps."""

    start: int
    end: int
    executable: bool
    file_offset: int
    inode: int
    path: str

    @property
    def deleted(self) -> bool:
        """The file was replaced or removed after it was mapped, as an upgrade does."""
        return self.path.endswith(_DELETED)


def parse_status(text: str) -> Status:
    """Facts of one /proc/PID/status."""
    # The kernel's line end only: the process's name, in the first line, may hold every other.
    fields = dict(line.split(":", 1) for line in text.split("\n") if ":" in line)
    inner_pids = fields.get("NSpid", fields["Pid"]).split()
    return Status(
        state=fields["State"].split()[0],
        tracer_pid=int(fields["TracerPid"]),
        uid=int(fields["Uid"].split()[1]),
        inner_pid=int(inner_pids[-1]),
        shadow_stack="shstk" in fields.get("x86_Thread_features", ""),
    )


def parse_maps(text: str) -> list[Mapping]:
    """Mappings of one /proc/PID/maps, in address order."""
    mappings = []
    for line in filter(None, text.split("\n")):  # a path may hold every other line end
        span, perms, offset, _device, inode, *path = line.split(maxsplit=5)
        start, end = span.split("-")
        mappings.append(
            Mapping(
                start=int(start, 16),
                end=int(end, 16),
                executable="x" in perms,
                file_offset=int(offset, 16),
                inode=int(inode),
                path=path[0] if path else "",
            )
        )
    return mappings


def status(pid: int) -> Status:
    """Facts of the process."""
    return parse_status(_read(pid, "status").decode(errors="replace"))


def is_at_its_end(pid: int) -> bool:
    """Whether it has ended or is within its exit: its memory is gone from then on, and no parent is told yet."""
    try:
        fields = _read(pid, "stat").rpartition(b")")[2].split()
    except ProcessLookupError:
        return True
    return fields[0] in {b"Z", b"X"} or bool(int(fields[6]) & _EXITING)


def maps(pid: int) -> list[Mapping]:
    """Mappings of the process; empty for a zombie or a kernel thread."""
    whole_lines, newline, _ = _read(pid, "maps").rpartition(b"\n")
    return parse_maps((whole_lines + newline).decode(errors="surrogateescape"))


def environ(pid: int) -> dict[str, str]:
    """The environment the process was started with; what it changed itself later is not seen."""
    entries = _read(pid, "environ").decode(errors="surrogateescape").split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def command_line(pid: int) -> list[str]:
    """Arguments of the process."""
    return _read(pid, "cmdline").decode(errors="surrogateescape").split("\0")[:-1]


def same_root(pid: int) -> bool:
    """Whether paths mean the same for the process and for us: no container, no chroot."""
    process = Path(f"/proc/{pid}")
    return (process / "ns/mnt").readlink() == Path("/proc/self/ns/mnt").readlink() and (
        (process / "root").readlink() == Path("/proc/self/root").readlink()
    )


def mapped_objects(mappings: list[Mapping]) -> list[Mapping]:
    """The first mapping of each mapped file, likeliest carriers of Python and libc first."""
    first: dict[str, Mapping] = {}
    for mapping in mappings:
        if mapping.inode and mapping.path.startswith("/"):
            first.setdefault(mapping.path, mapping)
    executables = {mapping.path for mapping in mappings if mapping.executable}
    return sorted(
        (mapping for path, mapping in first.items() if path in executables),
        key=lambda mapping: not re.search(r"/(lib)?(python|c[.-]|pthread)[^/]*$", mapping.path),
    )[:_MAX_OBJECTS]


@contextmanager
def open_object(pid: int, mapping: Mapping) -> Iterator[ElfFile]:
    """The file behind a mapping, also when deleted or inside a container.

    Raises NotElfError when it is no 64-bit little-endian ELF file or cannot be opened.
    """
    last_error: OSError | None = None
    for way in _ways_to(pid, mapping):
        try:
            descriptor = way()
        except OSError as error:
            last_error = error
            continue
        try:
            yield ElfFile(descriptor)
        finally:
            os.close(descriptor)
        return
    raise NotElfError(f"{mapping.path}: {last_error}")


def python_version(pid: int, mapping: Mapping, elf: ElfFile) -> tuple[int, int] | None:
    """(major, minor) of the interpreter an object carries; None where it doesn't say."""
    address = elf.symbol("Py_Version")
    if address is not None:  # exported from 3.11 on
        (version_hex,) = struct.unpack("<Q", elf.read(address, 8))
        return version_hex >> 24, version_hex >> 16 & 0xFF
    executable = str(Path(f"/proc/{pid}/exe").readlink())
    match = _PYTHON_NAME.search(mapping.path) or _PYTHON_NAME.search(executable)
    return (int(match[1]), int(match[2])) if match else None


def _ways_to(pid: int, mapping: Mapping) -> Iterator[Callable[[], int]]:
    """Ways to open a mapped file; map_files needs a capability, the others a path."""
    yield lambda: os.open(f"/proc/{pid}/map_files/{mapping.start:x}-{mapping.end:x}", _FLAGS)
    if not mapping.deleted:
        yield lambda: open_inside(pid, mapping.path, _FLAGS)
    if str(Path(f"/proc/{pid}/exe").readlink()) == mapping.path:
        yield lambda: os.open(f"/proc/{pid}/exe", _FLAGS)


def _read(pid: int, name: str) -> bytes:
    try:
        with Path(f"/proc/{pid}/{name}").open("rb") as file:
            return file.read(_MAX_BYTES)
    except FileNotFoundError as error:
        raise ProcessLookupError(f"process {pid} is gone") from error
