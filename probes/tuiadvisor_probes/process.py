"""What this process is: rank, sizes and versions as it knows them itself, for the ring's info area."""

from __future__ import annotations

import json
import os
import platform
import sys
from typing import Any

from .guard import is_the_hosts
from .ring import INFO_BYTES

MAX_TEXT_CHARS = 60  # of a hook's reason, where the info area is full


def imported(module_name: str) -> Any:
    """The host's module, or None if it is not imported or another thread is still in the middle of it."""
    module = sys.modules.get(module_name)
    return None if getattr(getattr(module, "__spec__", None), "_initializing", False) else module


def describe_process() -> dict[str, Any]:
    """Rank, sizes and versions as the process itself knows them; absent ones are None."""
    torch = imported("torch")
    dist = imported("torch.distributed")
    live = dist is not None and dist.is_available() and dist.is_initialized()
    rank = dist.get_rank() if live and dist is not None else None
    # Never is_available(): it may start the driver in a process that will fork or choose its devices later.
    cuda = torch is not None and torch.cuda.is_initialized()
    return {
        "pid": os.getpid(),
        "rank": rank,
        "world_size": dist.get_world_size() if live and dist is not None else None,
        "backend": _backend(dist) if live else None,
        "python": platform.python_version(),
        "torch": str(torch.__version__) if torch is not None else None,
        "cuda": getattr(imported("torch.version"), "cuda", None),
        "nccl": _nccl_version(),
        "device": "cuda" if cuda else "cpu",
    }


def _backend(dist: Any) -> str:
    """Of the default process group; what torch took where the script chose none."""
    chosen = str(dist.get_backend())
    if chosen != "undefined" or not hasattr(dist, "get_backend_config"):
        return chosen
    config = str(dist.get_backend_config())  # as in: cpu:gloo,cuda:nccl
    taken = {part.rpartition(":")[2] for part in config.split(",")}
    return taken.pop() if len(taken) == 1 else config


def _nccl_version() -> str | None:
    """Of the NCCL that torch brings; builds for the CPU have none."""
    try:
        return ".".join(map(str, imported("torch.cuda.nccl").version()))
    except Exception as error:  # the guard: a version is not worth an attach
        if is_the_hosts(error):
            raise
        return None


def as_json(info: dict[str, Any]) -> bytes:
    """The info area's text. Cut JSON is no JSON: where it is too long, short reasons, no group names, then no model."""
    text = json.dumps(info).encode()
    if len(text) > INFO_BYTES:
        info["hooks"] = {name: said[:MAX_TEXT_CHARS] for name, said in info["hooks"].items()}
        info["groups"] = {}
        text = json.dumps(info).encode()
    if len(text) > INFO_BYTES:
        info["model"] = {}
        text = json.dumps(info).encode()
    return text
