"""What the rest of the machine does to a training: another process on a rank's core, a rank stopped now and then.

    with DISTURBANCES["pause"](ranks): ...

In: processes by rank.  Out: nothing; everything started is ended and everything stopped is continued.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

SPIN = "while True: pass"
VICTIM = 1
LIMIT_CORES = 0.25
PERIOD_US = 100_000  # of the kernel's CPU limits, unless it is told otherwise


@contextlib.contextmanager
def spinning(core: int | None, num: int = 1, nice: int = 0) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that do nothing but use a core."""
    hogs = [
        subprocess.Popen([sys.executable, "-c", f"import os; os.nice({nice})\n{SPIN}"]) for _ in range(num)
    ]
    try:
        for hog in hogs:
            if core is not None:
                os.sched_setaffinity(hog.pid, {core})
        yield hogs
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def _pin(pid: int, cores: set[int]) -> None:
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(task.name), cores)


@contextlib.contextmanager
def hog_on_core(pids: dict[int, int]) -> Iterator[None]:
    """One rank shares its only core with six busy processes; the others have the remaining cores."""
    cores = sorted(os.sched_getaffinity(0))
    for rank, pid in pids.items():
        _pin(pid, {cores[0]} if rank == VICTIM else set(cores[1:]) or {cores[0]})
    with spinning(cores[0], num=6):
        yield


@contextlib.contextmanager
def noise(pids: dict[int, int]) -> Iterator[None]:
    """One busy process anywhere: all ranks suffer alike."""
    assert pids
    with spinning(None, nice=5):
        yield


@contextlib.contextmanager
def low_priority(pids: dict[int, int]) -> Iterator[None]:
    """One rank yields to everybody, while others have work."""
    _renice(pids[VICTIM], 19)
    with spinning(None, num=2):
        yield


@contextlib.contextmanager
def reniced(pids: dict[int, int]) -> Iterator[None]:
    """One rank gets about a quarter of a core, which it shares with a busy process of a higher priority.

    In one control group, as the kernel weighs priorities within a session's own group only (sched_autogroup).
    """
    group = cpu_group(None)
    assert group is not None, "no control group can be made here"
    with spinning(None, num=2, nice=5) as hogs:
        for pid in [*pids.values(), *(hog.pid for hog in hogs)]:
            (group / "cgroup.procs").write_text(str(pid))
        _renice(pids[VICTIM], 10)
        try:
            yield
        finally:
            _renice(pids[VICTIM], 0)
            _empty(group, group.parent / "cgroup.procs")
    group.rmdir()


def _renice(pid: int, nice: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, int(task.name), nice)


@contextlib.contextmanager
def _stopped(pid: int, go_s: float, stop_s: float) -> Iterator[None]:
    over = threading.Event()

    def stop_and_go() -> None:
        with contextlib.suppress(ProcessLookupError):  # it has ended
            while not over.wait(go_s):
                os.kill(pid, signal.SIGSTOP)
                over.wait(stop_s)
                os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=stop_and_go)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def pauses(pids: dict[int, int]) -> AbstractContextManager[None]:
    """One rank is stopped for 300 ms every 2 s."""
    return _stopped(pids[VICTIM], 1.7, 0.3)


def throttled(pids: dict[int, int]) -> AbstractContextManager[None]:
    """One rank is stopped for 10 ms of every 25, as a limit on its CPU time does."""
    return _stopped(pids[VICTIM], 0.015, 0.01)


def pulses(pids: dict[int, int]) -> AbstractContextManager[None]:
    """One rank is stopped for 20 ms of every 50, as a profiler or a debugger does."""
    return _stopped(pids[VICTIM], 0.03, 0.02)


def cpu_group(cores: float | None) -> Path | None:
    """A new control group that may use so many cores, None: all; None where none can be made here."""
    quota = None if cores is None else str(round(cores * PERIOD_US))
    for parent in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup/cpu,cpuacct")):
        group = parent / f"limited_{os.getpid()}"
        with contextlib.suppress(OSError):
            group.mkdir()
            if quota is None and (group / "cgroup.procs").exists():
                return group
            for name, text in (("cpu.max", f"{quota} {PERIOD_US}"), ("cpu.cfs_quota_us", f"{quota}")):
                if quota is not None and (group / name).exists():
                    (group / name).write_text(text)
                    return group
            group.rmdir()
    return None


@contextlib.contextmanager
def limited(pids: dict[int, int]) -> Iterator[None]:
    """One rank's control group may use a quarter of a core."""
    group = cpu_group(LIMIT_CORES)
    assert group is not None, "no control group with a CPU limit can be made here"
    pid = pids[VICTIM]
    before = group.parent / "cgroup.procs"
    try:
        (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        _empty(group, before)
        group.rmdir()


def slow_reads(folder: Path, bytes_s: int) -> Callable[[dict[int, int]], AbstractContextManager[None]]:
    """One rank, its loader's workers included, reads no faster from the disk that holds a folder."""

    @contextlib.contextmanager
    def of(pids: dict[int, int]) -> Iterator[None]:
        group = io_group(folder, bytes_s)
        assert group is not None, "no limit of reads can be set here"
        try:
            for pid in [pids[VICTIM], *_children(pids[VICTIM])]:
                (group / "cgroup.procs").write_text(str(pid))
            yield
        finally:
            _empty(group, group.parent / "cgroup.procs")
            group.rmdir()

    return of


def io_group(folder: Path, bytes_s: int) -> Path | None:
    """A new control group that reads no faster from a folder's disk; None where none can be made here."""
    device = folder.stat().st_dev
    disk = f"{os.major(device)}:{os.minor(device)}"
    for parent in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/blkio")):
        group = parent / f"reading_{os.getpid()}"
        with contextlib.suppress(OSError):
            group.mkdir()
            for name, text in (
                ("io.max", f"{disk} rbps={bytes_s}"),
                ("blkio.throttle.read_bps_device", f"{disk} {bytes_s}"),
            ):
                with contextlib.suppress(OSError):  # of a partition or a file system without a disk
                    if (group / name).exists():
                        (group / name).write_text(text)
                        return group
            group.rmdir()
    return None


def _children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def _empty(group: Path, before: Path) -> None:
    """Move everybody back, loader workers that started meanwhile too; several times, as others may be starting."""
    for _ in range(20):
        members = (group / "cgroup.procs").read_text().split()
        if not members:
            return
        for member in members:
            with contextlib.suppress(OSError):
                before.write_text(member)


@contextlib.contextmanager
def _after(seconds: float, pid: int, number: signal.Signals) -> Iterator[None]:
    timer = threading.Timer(seconds, lambda: os.kill(pid, number))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def stopped_once(pids: dict[int, int]) -> Iterator[None]:
    """One rank is stopped for three seconds, once."""
    pid = pids[VICTIM]
    timers = [
        threading.Timer(13.0, os.kill, (pid, signal.SIGSTOP)),
        threading.Timer(16.0, os.kill, (pid, signal.SIGCONT)),
    ]
    for timer in timers:
        timer.start()
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def frozen(pids: dict[int, int]) -> AbstractContextManager[None]:
    """One rank is stopped for good after six seconds."""
    return _after(6.0, pids[VICTIM], signal.SIGSTOP)


def killed(pids: dict[int, int]) -> AbstractContextManager[None]:
    """One rank is killed after six seconds."""
    return _after(6.0, pids[VICTIM], signal.SIGKILL)


@contextlib.contextmanager
def nothing(pids: dict[int, int]) -> Iterator[None]:
    """Peace."""
    assert pids
    yield


DISTURBANCES: dict[str, Callable[[dict[int, int]], AbstractContextManager[None]]] = {
    "": nothing,
    "hog": hog_on_core,
    "noise": noise,
    "nice": low_priority,
    "renice": reniced,
    "pause": pauses,
    "once": stopped_once,
    "throttle": throttled,
    "pulses": pulses,
    "limit": limited,
    "frozen": frozen,
    "killed": killed,
}
