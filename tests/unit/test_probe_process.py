"""What a process says of itself: the backend of its process group."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from tuiadvisor_probes.process import describe_process


@pytest.mark.parametrize(
    ("chosen", "config", "told"),
    [
        ("nccl", "cuda:nccl", "nccl"),
        ("undefined", "cpu:gloo", "gloo"),
        ("undefined", "cpu:gloo,cuda:gloo", "gloo"),
        ("undefined", "cpu:gloo,cuda:nccl", "cpu:gloo,cuda:nccl"),
        ("undefined", None, "undefined"),  # an older torch
    ],
)
def test_where_nobody_chose_a_backend_the_one_that_torch_took_is_told(
    chosen: str, config: str | None, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """init_process_group() without one: torch calls it undefined."""
    dist: Any = ModuleType("torch.distributed")
    dist.is_available = dist.is_initialized = lambda: True
    dist.get_rank, dist.get_world_size, dist.get_backend = lambda: 1, lambda: 4, lambda: chosen
    if config is not None:
        dist.get_backend_config = lambda: config
    torch: Any = ModuleType("torch")
    torch.__version__, torch.distributed = "2.13.0", dist
    torch.cuda = ModuleType("torch.cuda")
    torch.cuda.is_initialized = lambda: False
    for name, module in (("torch", torch), ("torch.distributed", dist), ("torch.cuda", torch.cuda)):
        monkeypatch.setitem(sys.modules, name, module)
    assert told == describe_process()["backend"]
