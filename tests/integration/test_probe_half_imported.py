"""Attached while the host is in the middle of an import: modules lie in the table without their names."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest
import torch
from probing import probed

from tuiadvisor_probes import ring


def half_imported(name: str) -> ModuleType:
    """What `sys.modules` holds while the module's body runs."""
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    module.__spec__._initializing = True  # type: ignore[attr-defined] - as importlib sets it
    return module


@pytest.mark.parametrize(
    "name",
    [
        "torch._dynamo.utils",
        "torch.distributed",
        "torch.distributed.distributed_c10d",
        "torch.optim.optimizer",
        "torch.utils.data.dataloader",
        "torch.autograd",
        "torch.serialization",
    ],
)
def test_half_imported_module_is_waited_for(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probe lives, no hook fails, and what it waits for is hooked once it is there."""
    whole = sys.modules.get(name)
    parameter = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([parameter], lr=0.1)

    def train(num_steps: int) -> None:
        for _ in range(num_steps):
            optimizer.zero_grad()
            parameter.sum().backward()
            optimizer.step()

    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, name, half_imported(name))
        with probed(tmp_path) as observed:
            state = observed.reader.get_u64(ring.OFFSET_STATE)
            hooks = observed.info["hooks"]
            if whole is not None:
                patch.setitem(sys.modules, name, whole)
            train(5)
            errors = observed.errors

    assert ring.STATE_LIVE == state
    assert 0 == errors
    assert not [why for why in hooks.values() if "Error" in why]
