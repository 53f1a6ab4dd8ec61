"""What /proc says of processes, read so that one that vanishes or is not ours is None, never an exception.

In: process ids.  Out: frozen facts, raw bytes, names. Every read is one open and one read: a machine has
thousands of processes and the agent looks at all of them.
"""

# Thousands of /proc files a scan: pathlib costs three times the system call.
# ruff: noqa: PTH115, PTH119, PTH123, PTH208

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Final

from tuiadvisor.inject.identity import identify

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_KERNEL_THREAD: Final = 0x00200000  # PF_KTHREAD
_READ_BYTES: Final = 1 << 16
_MAX_BYTES: Final = 1 << 24
_SAMPLERS: Final = frozenset({"py-spy"})
_PYTHON_EXE: Final = re.compile(r"^(?:python|pypy)(\d(?:\.\d+)?)?")


@dataclass(frozen=True, slots=True)
class Stat:
    """The useful fields of /proc/PID/stat."""

    pid: int
    ppid: int
    comm: str
    state: str  # R running, S sleeping, D waiting for a device, T stopped, Z zombie, X dead
    is_kernel: bool
    start_ticks: int  # since boot: tells a process from a later one with the same id
    cpu_ticks: int
    num_threads: int
    rss_bytes: int
    exit_code: int  # of a zombie, as wait() codes it; 0 where the kernel does not tell
    last_cpu: int | None = None  # it ran on last
    nice: int = 0  # -20 to 19: whoever has a higher value yields to whoever has a lower one
    image: tuple[int, int] = (
        0,
        0,
    )  # where its code and stack begin: another program has others; zeros: not ours to see
    has_memory: bool = True  # gone from an exit's first moments on, when the state is still R

    @property
    def is_alive(self) -> bool:
        """It still runs code; a zombie only waits for its parent to ask for the exit code."""
        return self.state not in "ZX"


def parse_stat(raw: bytes) -> Stat:
    """Fields of one stat line; ValueError if it is cut."""
    # The command name may hold blanks and parentheses: count from the last one.
    head, separator, tail = raw.rpartition(b")")
    fields = tail.split()
    if not separator or len(fields) < 22:
        raise ValueError("a stat line is cut")
    pid, _, comm = head.partition(b" (")
    return Stat(
        pid=int(pid),
        ppid=int(fields[1]),
        comm=comm.decode(errors="replace"),
        state=fields[0].decode(),
        is_kernel=bool(int(fields[6]) & _KERNEL_THREAD),
        start_ticks=int(fields[19]),
        cpu_ticks=int(fields[11]) + int(fields[12]),
        num_threads=int(fields[17]),
        nice=int(fields[16]),
        rss_bytes=int(fields[21]) * PAGE_BYTES,
        last_cpu=int(fields[36]) if len(fields) > 36 else None,
        exit_code=int(fields[49]) if len(fields) > 49 else 0,
        image=(int(fields[23]), int(fields[25])) if len(fields) > 25 and fields[25] != b"0" else (0, 0),
        has_memory=fields[20] != b"0",
    )


def stat(pid: int) -> Stat | None:
    """The process's stat; None once it is gone."""
    raw = _read_once(pid)
    try:
        return parse_stat(raw) if raw else None
    except ValueError:
        return None


def stat_of_thread(pid: int, thread: int) -> Stat | None:
    """The same of one of its threads: state, priority and core are a thread's own."""
    try:
        return parse_stat(read(pid, f"task/{thread}/stat") or b"")
    except ValueError:
        return None


def tracer(pid: int, thread: int) -> Stat | None:
    """What traces the thread; None where nothing does, or nothing that we can see."""
    lines = (read(pid, f"task/{thread}/status") or b"").split(b"\n")
    found = next((int(line.split()[1]) for line in lines if line.startswith(b"TracerPid:")), 0)
    return stat(found) if found else None


def is_running(pid: int) -> bool:
    """Whether a process of this number still runs code, as far as is known."""
    found = stat(pid)
    return found is not None and found.is_alive


def is_at_its_end(pid: int) -> bool:
    """Whether it has ended or is within its exit, where nothing of it can be read and no parent is told yet."""
    found = stat(pid)
    return found is None or not found.is_alive or not found.has_memory


def is_ours(found: Stat | None) -> bool:
    """Whether that is this process or a child of it."""
    return found is not None and os.getpid() in {found.pid, found.ppid}


def is_being_sampled(pid: int, thread: int) -> bool:
    """By us, or by a sampler of stacks, which lets it go on: a debugger keeps it."""
    found = tracer(pid, thread)
    return is_ours(found) or (found is not None and found.comm in _SAMPLERS)


def snapshot() -> dict[int, Stat]:
    """Stat of every process there is, kernel threads left out."""
    lines = (_read_once(int(name)) for name in os.listdir("/proc") if name.isdecimal())
    # A node with many cores has thousands of kernel threads, children of process 2: not worth parsing. In a
    # container process 2 is just a process.
    second = stat(2)
    not_worth = b"2 " if second is not None and second.is_kernel else b""
    found = {}
    for raw in lines:
        if raw and raw.rpartition(b") ")[2][2:4] != not_worth:
            with suppress(ValueError):
                one = parse_stat(raw)
                if not one.is_kernel:
                    found[one.pid] = one
    return found


def _read_once(pid: int) -> bytes | None:
    """The stat line, which the kernel hands out in one piece."""
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(descriptor, 4096)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def read(pid: int, name: str) -> bytes | None:
    """The whole of /proc/PID/name; None when the process is gone or not ours to look at."""
    try:
        descriptor = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return _read_all(descriptor)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _read_all(descriptor: int) -> bytes:
    # maps comes in pieces of whole lines, at most a page: only an empty read is the end.
    parts, total = [], 0
    while (data := os.read(descriptor, _READ_BYTES)) and total < _MAX_BYTES:
        parts.append(data)
        total += len(data)
    return b"".join(parts)


def arguments(pid: int) -> list[str]:
    """Command line; empty when unknown."""
    raw = read(pid, "cmdline") or b""
    return [part.decode(errors="replace") for part in raw.rstrip(b"\0").split(b"\0")] if raw else []


def environment(pid: int, names: frozenset[str]) -> dict[str, str] | None:
    """Those variables of the environment the process started with; None when it may not be read."""
    raw = read(pid, "environ")
    if raw is None:
        return None
    found = {}
    for entry in raw.split(b"\0"):
        name, separator, value = entry.partition(b"=")
        text = name.decode(errors="replace")
        if separator and text in names:
            found[text] = value.decode(errors="replace")
    return found


def executable(pid: int) -> str:
    """Path of the program; empty when unknown."""
    return _link(f"/proc/{pid}/exe")


def working_folder(pid: int) -> str:
    """Path of the folder it works in; empty when unknown."""
    return _link(f"/proc/{pid}/cwd")


def python_version(pid: int) -> str | None:
    """Version the interpreter's file name tells ("3.11"; "" when it does not); None: no python by name."""
    match = _PYTHON_EXE.match(os.path.basename(executable(pid)))
    return (match[1] or "") if match else None


def maps_file(pid: int, name: bytes) -> bool:
    """Whether a file whose path contains `name` is mapped."""
    return name in (read(pid, "maps") or b"")


def threads(pid: int) -> list[int]:
    """Ids of the threads; empty when unknown."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task") if name.isdecimal()]
    except OSError:
        return []


def thread_names(pid: int) -> list[str]:
    """Names of the threads; empty when unknown."""
    names = (read(pid, f"task/{thread}/comm") for thread in threads(pid))
    return [name.decode(errors="replace").strip() for name in names if name]


def owner(pid: int) -> int | None:
    """User id with which the process opens files."""
    # Not the owner of /proc/PID: that is root as soon as a process has dropped its privileges.
    # The first line is its name, which may hold any line end but the kernel's own.
    lines = (read(pid, "status") or b"").split(b"\n")
    return next((int(line.split()[4]) for line in lines if line.startswith(b"Uid:")), None)


def namespaces(pid: int) -> tuple[str, ...]:
    """As in an Identity; empty when the process is gone."""
    try:
        return identify(pid).namespaces
    except OSError:
        return ()


def namespace_links(pid: int, names: tuple[str, ...]) -> tuple[str, ...]:
    """Which namespaces of these kinds it is in; "" for what may not be seen."""
    return tuple(_link(f"/proc/{pid}/ns/{name}") for name in names)


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def start_wall_ns(start_ticks: int) -> int | None:
    """Wall clock at which a process with these start ticks began."""
    boot_s = _boot_wall_s()
    return None if boot_s is None else boot_s * 10**9 + start_ticks * (10**9 // TICKS_PER_S)


@cache
def _boot_wall_s() -> int | None:
    try:
        with open("/proc/stat", "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith(b"btime ")), None)
