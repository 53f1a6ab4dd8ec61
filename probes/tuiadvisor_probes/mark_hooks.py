"""Marks: checkpoints, garbage-collection pauses, compilations.

Every torch.save passes `torch.serialization._save`, also through a reference taken before the probe came
(`from torch import save`); safetensors and torch.distributed.checkpoint have one such place each. The function that a
script calls stays what it is where that is possible: pickle finds a function by its name and refuses one that is not
the object found there, so a replaced torch.save could not be handed to another process. Not seen: libraries that write
files on their own.
"""

from __future__ import annotations

import gc
import os
from threading import get_ident
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from . import phases
from . import step_clock as sc
from .collections_log import collections_log
from .guard import guarded_callback, timed

if TYPE_CHECKING:
    from collections.abc import Callable

    from .guard import Hook
    from .host import Host

KIND_CHECKPOINT, KIND_COMPILE = 32, 35
LEGACY_SAVE = "_legacy_save"
STAY_OUT = -1
# (module, class or "" for the module itself, names)
CHECKPOINT_PLACES = (
    ("torch.serialization", "", (LEGACY_SAVE,)),
    ("torch.distributed.checkpoint", "", ("save", "async_save")),
    ("torch.distributed.checkpoint.state_dict_saver", "", ("save", "async_save")),
    ("transformers.trainer", "Trainer", ("_save_checkpoint", "save_model")),
    ("accelerate.accelerator", "Accelerator", ("save_state",)),
    ("lightning.pytorch.trainer.trainer", "Trainer", ("save_checkpoint",)),
    ("pytorch_lightning.trainer.trainer", "Trainer", ("save_checkpoint",)),
    ("deepspeed.runtime.engine", "DeepSpeedEngine", ("save_checkpoint",)),
)
# Checkpoints in several parts: (module, what begins one, what it does then, what ends it, where the bytes go out)
CHECKPOINT_PARTS = (
    (
        "torch.serialization",
        ("_open_zipfile_writer",),
        ("_save",),
        ("_open_zipfile_writer_file.__exit__", "_open_zipfile_writer_buffer.__exit__"),
    ),
    ("safetensors.torch", ("_flatten", "_flatten_as_ptr"), (), ("serialize_file",)),
)


def install(probe: Host) -> None:
    """Patch the save functions and listen to the garbage collector and to dynamo."""
    _patch_checkpoints(probe)
    _watch_gc(probe)
    probe.when_loaded(
        "torch._dynamo.callback", "compile", lambda module: _watch_compiler(probe, module.callback_handler)
    )


def _patch_checkpoints(probe: Host) -> None:
    clock = probe.clock
    hook = probe.hook("checkpoint")

    def after(begin_ns: int, end_ns: int, _args: tuple[Any, ...], result: Any) -> None:
        clock.flags |= sc.FLAG_CHECKPOINT
        if result is not None:
            probe.saves.begun(result)
        if os.getpid() == clock.pid:
            unknown = sc.UNKNOWN
            probe.ring.put_event(
                KIND_CHECKPOINT, (clock.step, begin_ns, end_ns, unknown, unknown, unknown, unknown)
            )

    made: dict[Any, Any] = {}  # one replacement for a function, under whatever names: pickle compares them

    def replacement(original: Any) -> Any:
        if original not in made:
            is_meant = _is_no_pickled_storage if original.__name__ == LEGACY_SAVE else None
            phase = _phase_of_legacy if is_meant is not None else phases.CHECKPOINT
            made[original] = timed(probe.saves.aside(original, is_meant), hook, clock, phase, after)
        return made[original]

    def patch(owner: Any, names: tuple[str, ...]) -> None:
        for name in names:
            if getattr(owner, name, None) not in (None, *made.values()):
                probe.patch(owner, name, replacement)

    def wait_for(module_name: str, class_name: str, names: tuple[str, ...]) -> None:
        probe.when_loaded(
            module_name,
            None,
            lambda module: patch(getattr(module, class_name) if class_name else module, names),
        )

    for place in CHECKPOINT_PLACES:
        wait_for(*place)
    for parts in CHECKPOINT_PARTS:
        _patch_parts(probe, hook, after, *parts)
    clock.said |= 1 << phases.CHECKPOINT


def _is_no_pickled_storage(args: tuple[Any, ...]) -> bool:
    """Whether it is more than what a tensor does when it is pickled, for a collective of objects say.

    Its storage saves itself into memory then, by the function for files of the old format.
    """
    return not args or type(args[0]).__module__ != "torch.storage"


def _phase_of_legacy(args: tuple[Any, ...]) -> int:
    return phases.CHECKPOINT if _is_no_pickled_storage(args) else STAY_OUT


def _patch_parts(
    probe: Host, hook: Hook, after: Callable[..., None], module_name: str, *parts: tuple[str, ...]
) -> None:
    """One mark from the first part's begin to the last one's end; a part that this version lacks is passed over."""
    began = [0]

    def begins(begin_ns: int, _end_ns: int, _args: tuple[Any, ...], _result: Any) -> None:
        began[0] = begin_ns

    def ends(begin_ns: int, end_ns: int, args: tuple[Any, ...], result: Any) -> None:
        after(began[0] or begin_ns, end_ns, args, result)
        began[0] = 0

    def patch(module: Any, place: str, role: Callable[..., None] | None) -> None:
        class_name, _, name = place.rpartition(".")
        owner = getattr(module, class_name, None) if class_name else module
        if hasattr(owner, name):
            probe.patch(
                owner,
                name,
                lambda original: timed(
                    probe.saves.aside(original), hook, probe.clock, phases.CHECKPOINT, role
                ),
            )

    def install_parts(module: Any) -> None:
        for places, role in zip(parts, (begins, None, ends), strict=True):
            for place in places:
                patch(module, place, role)

    probe.when_loaded(module_name, None, install_parts)


def _watch_compiler(probe: Host, handler: Any) -> None:
    """Dynamo tells when a compilation begins and ends; its time stays in the phase that needed it."""
    clock = probe.clock
    hook = probe.hook("compile")
    started = [0]

    def on_start(*_args: Any) -> None:
        started[0] = monotonic_ns() if get_ident() == clock.own[0] else 0

    def on_end(*_args: Any) -> None:
        if started[0] and clock.active and get_ident() == clock.own[0]:
            clock.flags |= sc.FLAG_COMPILE
            unknown = sc.UNKNOWN
            probe.ring.put_event(
                KIND_COMPILE,
                (clock.step, started[0], monotonic_ns(), unknown, unknown, unknown, unknown),
            )
        started[0] = 0

    for add, remove, function in (
        (handler.register_start_callback, handler.remove_start_callback, on_start),
        (handler.register_end_callback, handler.remove_end_callback, on_end),
    ):
        callback = guarded_callback(hook, function)
        add(callback)
        probe.registration(_Removal(remove, callback))


class _Removal:
    """A registration that is undone by a function."""

    def __init__(self, function: Any, argument: Any) -> None:
        self.function = function
        self.argument = argument

    def remove(self) -> None:
        self.function(self.argument)


def _watch_gc(probe: Host) -> None:
    log, callback = collections_log()
    probe.clock.gc_log = log
    gc.callbacks.append(callback)
    probe.registration(_GcCallback(callback))


class _GcCallback:
    def __init__(self, callback: Any) -> None:
        self.callback = callback

    def remove(self) -> None:
        if self.callback in gc.callbacks:
            gc.callbacks.remove(self.callback)
