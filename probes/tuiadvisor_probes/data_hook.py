"""Data wait: time inside the DataLoader, for the next batch and for starting its workers at an epoch.

A live `for` loop looks `__next__` up on the class, so patching the class is seen at the next batch. StatefulDataLoader
and the loaders of Accelerate and Lightning pass there too. Iterators that are no DataLoader: `iterator_hook`.
"""

from __future__ import annotations

import sys
from functools import update_wrapper
from threading import get_ident
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from . import native, phases
from . import step_clock as sc
from .attributes import entries, items, shape_and_type
from .books import MAX_NOTES
from .guard import INSPECTION, attempt, failing, nothing, through, timed
from .step_clock import BROKEN, CARE, DEVICE, GONE, MEASURING, NOW, STOPPED

if TYPE_CHECKING:
    from collections.abc import Callable

    from .guard import Hook
    from .host import Host

MAX_NESTING = 3
IDS_NAME = "input_ids"
SEQUENCES = (list, tuple)
MISSING: Any = object()


def install(probe: Host) -> None:
    """Patch the loader's iterators once torch's DataLoader is loaded."""
    probe.when_loaded("torch.utils.data.dataloader", "data_wait", lambda module: _patch_loader(probe, module))
    probe.when_loaded(
        "torchdata.stateful_dataloader.stateful_dataloader",
        "stateful_loader",
        lambda module: _patch_epoch_start(probe, module.StatefulDataLoader, "stateful_loader"),
    )


def _patch_loader(probe: Host, module: Any) -> None:
    clock = probe.clock
    hook = probe.hook("data_wait")
    probe.patch(module._BaseDataLoaderIter, "__next__", lambda original: _timed_next(original, hook, clock))
    _patch_epoch_start(probe, module.DataLoader, "data_wait")


def _timed_next(  # noqa: PLR0915 - likewise one function
    original: Callable[[Any], Any], hook: Hook, clock: sc.StepClock
) -> Callable[[Any], Any]:
    """What `guard.timed` makes, for one argument and with the batch counted in the same frame: once in every step."""
    own, thin, log, words, admit = clock.own, clock.thin, clock.log, clock.words, clock.admit
    note = log.append
    code = clock.books.group(1 << phases.DATA_WAIT) | phases.DATA_WAIT
    torch: Any = sys.modules["torch"]
    tensor_class, id_types = torch.Tensor, (torch.int64, torch.int32)
    # A mode of the training's own, which would be told that we ask: then `count_batch` does, past it.
    core = getattr(torch, "_C", None)
    is_heard = getattr(
        core, "_is_torch_function_mode_enabled", getattr(core, "_len_torch_function_stack", bool)
    )

    def tuiadvisor_hook(iterator: Any) -> Any:  # noqa: PLR0912 - likewise
        if get_ident() != own[0]:
            return original(iterator)
        called_ns = begin_ns = 0
        try:
            alert, outer = thin.alert, thin.phase
            if not 5 < outer < 8 and (not alert & STOPPED or (hook.active and clock.active)):
                if alert & MEASURING:
                    called_ns = monotonic_ns()
                    clock.stand_in(iterator)
                begin_ns = admit(0) if alert & CARE else monotonic_ns()
                if begin_ns:
                    thin.phase = 0  # phases.DATA_WAIT
                    note(code)
                    note(begin_ns)
                    words[NOW] = begin_ns << 4
                    if called_ns:
                        clock.count_own(monotonic_ns() - called_ns)
        except BaseException as error:  # noqa: BLE001 - the guard, as in guard.timed
            if hook.failed(error):
                clock.alert(BROKEN, True)
        if not begin_ns:
            return original(iterator)
        batch = None
        try:
            batch = original(iterator)
        finally:
            try:
                now = monotonic_ns()
                thin.phase = outer
                if not thin.alert & GONE:
                    note(outer)
                    note(now)
                    words[NOW] = now << 4 | outer
                    if alert & DEVICE:
                        clock.device.ends(0, outer, now)
                    if len(log) > MAX_NOTES:  # a loader that is only looked through
                        clock.catch_up()
                    if batch is not None and outer:  # else a loader inside a loader's dataset
                        tensor = batch[0] if type(batch) in SEQUENCES and batch else batch
                        if (
                            type(tensor) is tensor_class
                            and clock.samples < 0
                            and not is_heard()
                            and (shape := tensor.shape)
                        ):
                            clock.samples = shape[0]
                            if len(shape) == 2 and tensor.dtype in id_types:
                                clock.tokens = shape[0] * shape[1]
                        else:
                            count_batch(clock, batch)
                    if called_ns:
                        clock.count_own(monotonic_ns() - now)
            except BaseException as error:  # noqa: BLE001 - likewise
                if hook.failed(error):
                    clock.alert(BROKEN, True)
        return batch

    made: Callable[[Any], Any] = tuiadvisor_hook
    if native.core is not None:
        gate = native.core.Gate(
            clock,
            original,
            tuiadvisor_hook,
            failing(hook, clock),
            count_batch,
            nothing,
            phases.DATA_WAIT,
            code - phases.DATA_WAIT,
            native.core.NEXT_BATCH,
            tensor=tensor_class,
            id_types=id_types,
            shape=tensor_class.shape,
            dtype=tensor_class.dtype,
            is_heard=is_heard,
        )
        made = through(gate)
    update_wrapper(made, original, updated=())
    made._torchdynamo_inline = original  # type: ignore[attr-defined]  # as in guard.timed
    return made


def _patch_epoch_start(probe: Host, loader_class: Any, name: str) -> None:
    clock = probe.clock
    hook = probe.hook(name + "_start")
    probe.patch(loader_class, "__iter__", lambda original: timed(original, hook, clock, phases.DATA_WAIT))


def count_batch(clock: sc.StepClock, batch: Any) -> None:
    """Add the batch's samples and tokens to the step, where its shape tells them. 0.6 us, of a UserDict 2 us."""
    torch = sys.modules["torch"]
    told = attempt(INSPECTION, _size_of, batch)
    if told is None:
        return
    shape, dtype = told
    length = shape[0]
    clock.samples = length if clock.samples < 0 else length + clock.samples
    # Ids of a vocabulary; masks are bool and pixels are uint8.
    if len(shape) == 2 and (dtype is torch.int64 or dtype is torch.int32):
        tokens = length * shape[1]
        clock.tokens = tokens if clock.tokens < 0 else tokens + clock.tokens


def _size_of(batch: Any) -> tuple[Any, Any] | None:
    tensor = find_tensor(batch)
    return None if tensor is None else shape_and_type(tensor)


def first_tensor(batch: Any) -> Any:
    """The tensor that counts the samples; None where there is none with a shape that can be read."""
    tensor = find_tensor(batch)
    return None if tensor is None or shape_and_type(tensor) is None else tensor


def find_tensor(batch: Any) -> Any:
    """The tensor in question: of a dict its token ids if it has some, else the first; None if none.

    No code of a batch's class is run for it: reading may use up, load or change what is read.
    """
    tensor_class = sys.modules["torch"].Tensor
    for _ in range(MAX_NESTING + 1):
        kind = type(batch)
        if kind is tensor_class:
            return batch
        if kind is list or kind is tuple:
            batch = batch[0] if batch else None
            continue
        held = batch if kind is dict else entries(batch)
        if held is None:
            if issubclass(kind, tensor_class):
                return batch
            held = items(batch)
            if held is None:
                return None
            batch = held[0] if held else None
            continue
        batch = dict.get(held, IDS_NAME, MISSING)
        if batch is MISSING:
            batch = next(iter(dict.values(held)), None)
    return None
