"""When a device has done its own part of a backward and waits for the other ranks: told by its own clock.

DDP waits for its all-reduces in a final callback of autograd, queued when the last gradient became ready. One that was
queued before, as soon as the gradient of the loss is there, runs before it: all work of this rank's backward lies on
the stream then, and nothing yet that waits for others. It records one event, in whatever thread autograd is in.

Asked before a backward, a node of the graph, nothing of the host's tensors; left out where the loss is no plain tensor
and where compiled autograd would trace what we ask.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from .attributes import unheard
from .guard import attempt

if TYPE_CHECKING:
    from .device_times import DeviceTimes
    from .guard import Hook


def ask(hook: Hook, device: DeviceTimes, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Let the device's arrival be told in the backward that is about to begin; a handle with remove(), or None.

    args, kwargs: of torch.autograd.backward or of what runs the engine for it; the losses come first in both.
    """
    torch = sys.modules["torch"]
    compiled: Any = sys.modules.get("torch._dynamo.compiled_autograd")
    if compiled is not None and getattr(compiled, "compiled_autograd_enabled", False):
        return None
    tensors = args[0] if args else kwargs.get("tensors")
    losses: Any = tensors if isinstance(tensors, (list, tuple)) else (tensors,)
    with unheard():
        nodes = [loss.grad_fn for loss in losses if type(loss) is torch.Tensor and loss.grad_fn is not None]
    if len(nodes) != len(losses) or not nodes:
        return None
    stream = device.device.stream()  # this thread's: autograd may call back in another
    engine = torch.autograd.Variable._execution_engine
    asked: list[None] = []  # by whichever of the losses comes first

    def tuiadvisor_arrived() -> None:
        if hook.active and device.is_measuring:
            device.arrives(stream)

    def tuiadvisor_begun(_gradients: Any) -> None:
        if hook.active and not asked:
            asked.append(None)
            attempt(hook, engine.queue_callback, tuiadvisor_arrived)

    return Asked([node.register_prehook(tuiadvisor_begun) for node in nodes])


class Asked:
    """What was put into a graph."""

    __slots__ = ("handles",)

    def __init__(self, handles: list[Any]) -> None:
        self.handles = handles

    def remove(self) -> None:
        """Take it out."""
        for handle in self.handles:
            handle.remove()
