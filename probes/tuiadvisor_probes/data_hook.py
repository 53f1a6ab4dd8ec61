"""Data wait: time inside the DataLoader, for the next batch and for starting its workers at an epoch.

A live `for` loop looks `__next__` up on the class, so patching the class is seen at the next batch. StatefulDataLoader
and the loaders of Accelerate and Lightning pass there too. Iterators that are no DataLoader: `iterator_hook`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from . import step_clock as sc
from .guard import timed

if TYPE_CHECKING:
    from .install import Probe

MAX_NESTING = 3
IDS_NAME = "input_ids"
SEQUENCES = (list, tuple)


def install(probe: Probe) -> None:
    """Patch the loader's iterators once torch's DataLoader is loaded."""
    probe.when_loaded("torch.utils.data.dataloader", "data_wait", lambda module: _patch_loader(probe, module))
    probe.when_loaded(
        "torchdata.stateful_dataloader.stateful_dataloader",
        "stateful_loader",
        lambda module: _patch_epoch_start(probe, module.StatefulDataLoader, "stateful_loader"),
    )


def _patch_loader(probe: Probe, module: Any) -> None:
    clock = probe.clock
    hook, seen = probe.hook("data_wait"), 1 << sc.DATA_WAIT

    def after(_begin_ns: int, _end_ns: int, _args: tuple[Any, ...], batch: Any) -> None:
        if batch is not None and clock.phase != sc.DATA_WAIT:  # a loader inside a loader's dataset
            count_batch(clock, batch)

    iterator = module._BaseDataLoaderIter
    probe.patch(
        iterator,
        "__next__",
        lambda original: timed(original, hook, clock, sc.DATA_WAIT, after, observes=seen),
    )
    _patch_epoch_start(probe, module.DataLoader, "data_wait")


def _patch_epoch_start(probe: Probe, loader_class: Any, name: str) -> None:
    clock = probe.clock
    hook = probe.hook(name + "_start")
    probe.patch(loader_class, "__iter__", lambda original: timed(original, hook, clock, sc.DATA_WAIT))


def count_batch(clock: sc.StepClock, batch: Any) -> None:
    """Add the batch's samples and tokens to the step, where its shape tells them. 0.5 us."""
    torch = sys.modules["torch"]
    tensor = batch[0] if type(batch) in SEQUENCES and batch else batch  # mostly; one cold function less
    if not isinstance(tensor, torch.Tensor) or not tensor.dim():
        tensor = first_tensor(batch)
        if tensor is None:
            return
    shape = tensor.shape
    length = shape[0]
    clock.samples = length if clock.samples < 0 else length + clock.samples
    # Ids of a vocabulary; masks are bool and pixels are uint8.
    if len(shape) == 2 and (tensor.dtype is torch.int64 or tensor.dtype is torch.int32):
        tokens = length * shape[1]
        clock.tokens = tokens if clock.tokens < 0 else tokens + clock.tokens


def first_tensor(batch: Any) -> Any:
    """The tensor that counts the samples: of a dict its token ids if it has some, else the first; None if none."""
    tensor_class = sys.modules["torch"].Tensor
    for _ in range(MAX_NESTING):
        if isinstance(batch, tensor_class):
            return batch if batch.dim() else None
        if isinstance(batch, (list, tuple)):
            if not batch:
                return None
            batch = batch[0]
        elif hasattr(batch, "keys") and not isinstance(batch, type):
            batch = batch[IDS_NAME] if IDS_NAME in batch else next(iter(batch.values()), None)
        else:
            return None
    return batch if isinstance(batch, tensor_class) and batch.dim() else None
