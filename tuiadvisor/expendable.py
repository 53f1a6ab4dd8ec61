"""Where memory runs out the kernel takes a process of ours before any training.

A watcher in the memory cgroup of its ranks (a container, a pod, a Slurm step) uses what they need, and the kernel would
take the largest of the group: the training. So each of our processes says first thing that nothing is as expendable;
anybody may say so of itself, and take back what it said. Children inherit it, and what a user has us start is no more
expendable than we were. Source: the kernel's document on /proc, "oom_score_adj".
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST: Final = (
    1000  # the kernel's own scale: with any memory of the group at all it is taken before all others
)
_OWN: Final = Path("/proc/self/oom_score_adj")
_GROUP: Final = Path("/proc/self/cgroup")
_POINT: Final = Path("/sys/fs/cgroup")  # where version 2 is mounted; elsewhere it has no memory to limit
_POINT_1: Final = Path("/sys/fs/cgroup/memory")  # version 1's groups of memory
# What all processes of a watcher may take: `record` of two ranks took 94 MiB at the most, `watch` 124 (2026-12-01), and
# half as much again for larger jobs.
WATCHER_BYTES: Final = 192 << 20


class _Said:
    """What this process has said of itself, and what it was before."""

    def __init__(self) -> None:
        self.lock = threading.Lock()  # one thread starts a user's command while another one starts another
        self.found: int | None = None  # None: nothing was said, or it was not heard


_said: Final = _Said()


def go_first() -> None:
    """From now on, for this process and for those it starts. Who is not heard (another system, a sandbox) goes on."""
    with _said.lock, suppress(OSError, ValueError):
        found = _score(_OWN)
        if found < MOST:
            _OWN.write_text(f"{MOST}")
            _said.found = found


def groups_that_end_together() -> list[Path]:
    """Control groups of ours of which the kernel, short of memory, ends all processes at once: no use in going first.

    Kubernetes has set `memory.oom.group` of every container since 1.28. Without version 2: none.
    """
    return [folder for folder in _groups("0::", _POINT) if _ends_all(folder)]


def may_run_short() -> bool:
    """Whether a control group of ours is charged to its limit but for what we take, pages to be given back included.

    Only there is it worth a look what is really left, and who would go before us.
    """
    return any(
        _is_nearly_used(folder, "memory.max", "memory.current") for folder in _groups("0::", _POINT)
    ) or any(
        _is_nearly_used(folder, "memory.limit_in_bytes", "memory.usage_in_bytes")
        for folder in _groups(":memory:", _POINT_1)
    )


def _groups(marker: str, point: Path) -> list[Path]:
    """Ours and those above it, as far as they are mounted there. marker: what stands before the group in its line."""
    try:
        lines = _GROUP.read_text().splitlines()
    except (OSError, ValueError):
        return []
    path = next((line.partition(marker)[2] for line in lines if marker in line), "")
    if not path or ".." in path:
        return []
    own = point / path.lstrip("/")
    return [folder for folder in (own, *own.parents) if point in (folder, *folder.parents)]


def _is_nearly_used(folder: Path, *names: str) -> bool:
    try:
        limit, used = ((folder / name).read_text().strip() for name in names)
    except (OSError, ValueError):
        return False
    return limit.isdecimal() and used.isdecimal() and int(limit) - int(used) < WATCHER_BYTES  # "max": none


def _ends_all(folder: Path) -> bool:
    try:
        return (folder / "memory.oom.group").read_text().strip() == "1"
    except (OSError, ValueError):
        return False


def score_of(pid: int) -> int | None:
    """What a process says of itself, -1000 (never) to 1000; None where that is not to be read."""
    try:
        return _score(Path(f"/proc/{pid}/oom_score_adj"))
    except (OSError, ValueError):
        return None


def no_longer() -> None:
    """As we were found: this process stands for the training, and who waits for it waits for that."""
    with _said.lock:
        found, _said.found = _said.found, None
        if found is not None:
            _say(found)


@contextmanager
def as_found() -> Iterator[None]:
    """For the moment in which something is started that is not to be taken first: it inherits what we say meanwhile."""
    with _said.lock:
        if _said.found is not None:
            _say(_said.found)
        try:
            yield
        finally:
            if _said.found is not None:
                _say(MOST)


def no_sooner_than(pid: int) -> None:
    """Be no more expendable than this process, as far as that is ours to say."""
    with suppress(OSError, ValueError):
        its = _score(Path(f"/proc/{pid}/oom_score_adj"))
        if its < _score(_OWN):
            _say(its)


def _score(path: Path) -> int:
    return int(path.read_text())


def _say(score: int) -> None:
    with suppress(OSError):
        _OWN.write_text(f"{score}")
