"""Worker processes of a rank's data loader, found among its children."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tuiadvisor.agent import procfs
from tuiadvisor.inject.identity import identify

if TYPE_CHECKING:
    from tuiadvisor.agent.discovery import RankProcess

WORKER_THREAD: Final = b"pt_data_worker"  # torch names them so


def worker_pids(pid: int) -> list[int]:
    """Of those that surely are, by torch's name for them (2.5 and later): another child may write a checkpoint."""
    return [child for child in _children(pid) if _is_named(child)]


def loader_workers(process: RankProcess) -> list[RankProcess]:
    """By their process ids."""
    command = procfs.arguments(process.pid)
    return [
        worker
        for pid in _children(process.pid)
        if _is_worker(pid, command) and (worker := _worker(process, pid)) is not None
    ]


def _is_worker(pid: int, command: list[str]) -> bool:
    """By the name torch gives it; before it had one, a copy of the rank, or what multiprocessing starts."""
    if _is_named(pid):
        return True
    own = procfs.arguments(pid)
    return bool(own) and (own == command or any("multiprocessing.spawn" in word for word in own))


def _is_named(pid: int) -> bool:
    return (procfs.read(pid, "comm") or b"").strip() == WORKER_THREAD


def _worker(process: RankProcess, pid: int) -> RankProcess | None:
    try:
        identity = identify(pid)
    except (OSError, ValueError, IndexError):
        return None
    return replace(
        process,
        pid=pid,
        ppid=process.pid,
        start_ticks=identity.start_ticks,
        uid=identity.uid,
        namespaces=identity.namespaces,
    )


def _children(pid: int) -> list[int]:
    """Of every thread of the process: a loader may be made in any."""
    found: set[int] = set()
    for thread in procfs.threads(pid):
        found.update(int(word) for word in (procfs.read(pid, f"task/{thread}/children") or b"").split())
    return sorted(found)
