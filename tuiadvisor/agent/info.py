"""What a probe says of its process in the ring's info area, believed only field by field.

In: JSON written by a stranger's process.  Out: ProbeInfo; a field of the wrong type is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import orjson

_MAX_TEXT_CHARS: Final = 300
_MAX_ENTRIES: Final = 100
_TEXTS: Final = (
    "backend",
    "python",
    "torch",
    "device",
    "cuda",
    "nccl",
    "device_uuid",
    "error",
    "unmeasured",
    "unstepped",
    "stepping",
    "core",
    "core_why",
)
_MAX_RANK: Final = 1 << 24
_MAX_COUNT: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class ProbeInfo:
    """Rank, versions and hooks as the process itself knows them."""

    pid: int | None = None  # as it sees itself: in a container not as its host does
    rank: int | None = None
    world_size: int | None = None
    local_rank: int | None = None
    backend: str | None = None
    python: str | None = None
    torch: str | None = None
    device: str | None = None
    cuda: str | None = None
    nccl: str | None = None
    device_uuid: str | None = None  # as CUDA knows it: NVML's without the prefix
    schedule: str | None = None  # class of the pipeline's schedule
    error: str | None = None  # why the probe could not be installed
    unmeasured: str | None = None  # why it measures nothing although there is a training
    unstepped: str | None = None  # name of a thread that runs backward without any optimizer step
    stepping: str | None = None  # class of an optimizer whose step was under way when the probe came
    core: str | None = None  # what its hooks run on: native or python
    core_why: str | None = None  # why not on the native one, where that was asked for
    parallel: dict[str, int] = field(default_factory=dict)
    pipeline: dict[str, int] = field(default_factory=dict)  # stages, ranks, micro_batches, first_rank
    hooks: dict[str, str] = field(default_factory=dict)  # name -> "ok" or why not
    model: dict[str, int | str] = field(default_factory=dict)  # of the model and of torch's settings


def json_object(raw: bytes) -> dict[str, Any]:
    """The object in it; {} where there is none."""
    try:
        found = orjson.loads(raw) if raw else {}
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def parse_info(raw: bytes) -> ProbeInfo:
    """The believable part of an info area; all unknown where it is empty or no JSON."""
    told = json_object(raw)
    rank, world_size = _number(told.get("rank")), _number(told.get("world_size"))
    if rank is not None and world_size is not None and rank >= world_size:
        rank = world_size = None
    texts = {name: _text(told.get(name)) for name in _TEXTS}
    pipeline = told.get("pipeline")
    return ProbeInfo(
        pid=_number(told.get("pid")),
        rank=rank,
        world_size=world_size,
        local_rank=_number(told.get("local_rank")),
        schedule=_text(pipeline.get("schedule")) if isinstance(pipeline, dict) else None,
        parallel=_numbers(told.get("parallel")),
        pipeline=_numbers(pipeline),
        hooks={name: text for name, said in _entries(told.get("hooks")) if (text := _text(said)) is not None},
        model=_plain(told.get("model")),
        **texts,
    )


def _entries(value: object) -> list[tuple[str, object]]:
    if not isinstance(value, dict):
        return []
    return [(str(name)[:_MAX_TEXT_CHARS], item) for name, item in list(value.items())[:_MAX_ENTRIES]]


def _numbers(value: object) -> dict[str, int]:
    return {name: size for name, said in _entries(value) if (size := _number(said)) is not None}


def _plain(value: object) -> dict[str, int | str]:
    """Numbers, flags and short texts by name."""
    return {
        name: item[:_MAX_TEXT_CHARS] if isinstance(item, str) else item
        for name, item in _entries(value)
        if isinstance(item, str) or (isinstance(item, int) and 0 <= item < _MAX_COUNT)
    }


def _number(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < _MAX_RANK else None


def _text(value: object) -> str | None:
    return value[:_MAX_TEXT_CHARS] if isinstance(value, str) else None
