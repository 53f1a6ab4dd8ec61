"""Who speaks: the host, its agent, and the ranks with their versions, devices and hooks.

In: links.  Out: the payload of a HELLO frame.
"""

from __future__ import annotations

import os
import platform
import socket
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from tuiadvisor.agent import machine_facts
from tuiadvisor.agent.discovery import LeftOut

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.agent.rank_link import RankLink
    from tuiadvisor.agent.topology import Topology


NONE_LEFT_OUT: Final = LeftOut()
MAX_LEFT_OUT: Final = 64  # that are told


def host_name() -> str:
    """The machine's own name."""
    return socket.gethostname() or "localhost"


def hello(
    host: str,
    links: Sequence[RankLink],
    gpus: tuple[Sequence[str], str | None, str] = ((), None, ""),
    topology: Topology | None = None,
    *,
    left_out: LeftOut = NONE_LEFT_OUT,
) -> dict[str, object]:
    """The agent's introduction, replacing its former one. topology: of this machine, where it was read.

    gpus: the devices' names, the driver's version, and the name of the reason where none is shown.
    """
    names, driver, why_none = gpus
    distances = topology.distances if topology is not None else {}
    return {
        "host": host,
        "agent_pid": os.getpid(),
        "boot_id": _boot_id(),
        "wall_ns": time.time_ns(),
        "mono_ns": time.monotonic_ns(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "num_cpus": psutil.cpu_count(),
        "cpu_model": _cpu_model(),
        "numa_nodes": sorted(distances),
        "numa_distances": [distances[node] for node in sorted(distances)],
        "memory_bytes": psutil.virtual_memory().total,
        "network_cards": machine_facts.network_cards(topology) if topology is not None else [],
        "storage": machine_facts.storage(),
        "gpus": list(names),
        "driver": driver,
        "why_no_gpus": why_none or None,
        "ranks": [_introduction(link) for link in links],
        "left_out": [{"rank": rank, "pid": pid} for rank, pid in left_out.ranks[:MAX_LEFT_OUT]],
        "job_pids": [{"pid": pid} for pid in left_out.pids[:MAX_LEFT_OUT]],
    }


def _introduction(link: RankLink) -> dict[str, object]:
    process, info, injection = link.process, link.info, link.injection
    return {
        "rank": link.rank,
        "local_rank": process.local_rank if info.local_rank is None else info.local_rank,
        "world_size": link.world_size,
        "pid": process.pid,
        "own_pid": info.pid,
        "state": link.state.name.lower(),
        "detail": link.detail,
        "python": info.python or process.python,
        "torch": info.torch,
        "backend": info.backend,
        "device": info.device,
        "command": process.command,
        "label": process.label,
        "parallel": info.parallel,
        "pipeline": info.pipeline,
        "schedule": info.schedule,
        "start_wall_ns": process.start_wall_ns,
        "hooks": info.hooks,
        "cuda": info.cuda,
        "nccl": info.nccl,
        "git_commit": link.git_commit,
        "device_uuid": info.device_uuid,
        "model": info.model,
        "budget_ppm": link.budget_ppm,
        "container": machine_facts.container(process.pid),
        "core": info.core,
        "core_why": info.core_why,
        "attach_way": injection.way if injection else None,
        "attach_stopped_ns": injection.stopped_ns if injection else None,
        "attach_total_ns": injection.total_ns if injection else None,
    }


@cache
def _cpu_model() -> str | None:
    """Name of the processor, of the first one."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)


def _boot_id() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None
