"""What a trace says beside its events: its rank, its device, the software, and how its times count.

In: the keys of a file but its events, strangers' JSON.  Out: each within bounds, or unknown.
"""

from __future__ import annotations

from typing import Any, Final

from tuiadvisor.importers.files import rank_in_name
from tuiadvisor.importers.trace_values import integer

MAX_RANK: Final = 1 << 20  # ten times the largest job there was; ranks without a trace are listed
MAX_CUDA: Final = 1_000_000
EPOCH_NS: Final = 10**18  # 2001: an earlier time counts from elsewhere
NAME_IT: Final = "does not say which rank it is of: put the rank into its name, as rank3.json"


def about(rest: dict[str, Any], file: str) -> tuple[int | None, str, int]:
    """(the rank, why there is none, ranks of the job or 0)."""
    info = rest.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    world = integer(info.get("world_size"), -1)
    world = world if 0 < world <= MAX_RANK else 0
    return *_rank(integer(info.get("rank"), -1), rank_in_name(file), world), world


def _rank(written: int, named: int | None, world: int) -> tuple[int | None, str]:
    """(the rank, why there is none): what the trace says, else its name."""
    rank = written if written >= 0 else named
    if rank is None:
        return None, NAME_IT
    if rank >= (world or MAX_RANK):
        return None, f"says that it is of rank {rank}, of {world or MAX_RANK} ranks"
    return rank, ""


def device_name(properties: Any) -> str | None:
    """Of the first device; files of several name the same kind."""
    first = properties[0] if isinstance(properties, list) and properties else None
    return printable(first.get("name") if isinstance(first, dict) else None) or None


def num_multiprocessors(properties: Any) -> int | None:
    """Of each of its devices; None where they differ or the trace does not say."""
    devices = properties if isinstance(properties, list) else []
    found = {integer(one.get("numSms"), -1) if isinstance(one, dict) else -1 for one in devices}
    number = found.pop() if len(found) == 1 else -1
    return number if number > 0 else None


def software(rest: dict[str, Any]) -> dict[str, str]:
    """What the profiler says of it: of CUDA's version 13000 is 13.0."""
    info = rest.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    cuda = integer(rest.get("cuda_runtime_version"), -1)
    found = {
        "backend": printable(info.get("backend")),
        "nccl": printable(info.get("nccl_version")),
        "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}" if 0 < cuda < MAX_CUDA else "",
    }
    return {name: value for name, value in found.items() if value}


def num_threads(told: Any) -> int | None:
    """Of the rank that our own capture was taken of."""
    found = integer(told.get("threads"), -1) if isinstance(told, dict) else -1
    return found if 0 < found < 1 << 16 else None


def wall_of(base: Any, a_time_ns: int | None) -> int | None:
    """What a trace's times lack to be those of the wall clock: nothing, the base that it gives, or unknown."""
    if a_time_ns is None:
        return None
    return next((one for one in (0, integer(base, 0)) if one + a_time_ns > EPOCH_NS), None)


def printable(told: Any) -> str:
    """A name as it is said; "" for what is none."""
    return told[:80] if isinstance(told, str) and told.isprintable() else ""
