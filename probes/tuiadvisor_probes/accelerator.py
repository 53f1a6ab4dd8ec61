"""The device that a training's parameters are on, as one object: its kind, its events, the stream they go to.

Whatever `torch.get_device_module` gives, if its events tell times: CUDA, and ROCm by the same name; XPU, Ascend and MPS
have the same calls and were not tried. Nothing here starts a driver or waits for a device.

Two things would harm: an event that goes to the thread's current device instead of the training's makes a context
there, so each is recorded on a stream of the parameters' own device; and an event that is recorded or asked while a
graph is captured, on whatever stream or thread, spoils the capture, so captures are counted where they begin and end.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from .attributes import unheard

if TYPE_CHECKING:
    from collections.abc import Callable

    from .guard import Hook
    from .host import Host

NOT_ON_DEVICE = "the optimizer's parameters are not on a device with a clock of its own"

NO_TIMES = "torch's events of KIND devices tell no times"
NO_DEVICES = ("cpu", "meta")


class Accelerator:
    """One device. captures: an item for each graph that is being captured now."""

    __slots__ = (
        "captures",
        "device_type",
        "event_class",
        "index",
        "is_current_capturing",
        "kind",
        "module",
        "stream_of",
    )

    def __init__(self, module: Any, index: int, captures: list[None], device_type: str = "") -> None:
        """module: torch.cuda or one like it; index: of the device in this process; device_type: of its parameters."""
        self.module = module
        self.device_type = device_type
        self.kind = str(module.__name__).rpartition(".")[2]
        self.index = index
        self.captures = captures
        self.event_class = module.Event
        self.stream_of: Callable[[int], Any] | None = getattr(module, "current_stream", None)
        self.is_current_capturing: Callable[[], bool] = getattr(module, "is_current_stream_capturing", bool)

    def event(self) -> Any:
        """A new event that will hold the device's time."""
        return self.event_class(enable_timing=True)

    def stream(self) -> Any:
        """The stream that this thread's work for the device goes to now; None where the device has but one."""
        return None if self.stream_of is None else self.stream_of(self.index)

    def record(self, event: Any, stream: Any) -> None:
        """The device will write its time into the event when it has done all that lies before it on the stream."""
        if stream is None:
            event.record()
        else:
            event.record(stream)

    def is_capturing(self) -> bool:
        """Whether events have to be left alone."""
        return bool(self.captures) or self.is_current_capturing()

    def uuid(self) -> str | None:
        """As NVML names the device; None where torch does not tell."""
        properties = getattr(self.module, "get_device_properties", None)
        return str(getattr(properties(self.index), "uuid", "")) or None if properties is not None else None


def device_of(parameter: Any) -> Any:
    """Where it is, without a word of it to the training's own modes."""
    with unheard():
        return parameter.device


def of_parameter(parameter: Any, captures: list[None]) -> Accelerator | None:
    """The device of a parameter; None for the processor, and where events tell no times."""
    torch = sys.modules["torch"]
    device = device_of(parameter)
    kind = device.type
    module_of = getattr(torch, "get_device_module", None)
    try:
        module = getattr(torch, kind, None) if module_of is None else module_of(device)
    except RuntimeError:  # a kind that nobody has given torch a module for
        return None
    if not hasattr(getattr(module, "Event", None), "elapsed_time"):
        return None
    return Accelerator(module, device.index or 0, captures, str(kind))


def watch_captures(probe: Host) -> list[None]:
    """The list that holds an item for each graph that is being captured, on any stream by any thread."""
    captures: list[None] = []
    hook = probe.hook("graph_captures")

    def patch(module: Any) -> None:
        graph_class = module.CUDAGraph
        probe.patch(
            graph_class, "capture_begin", lambda original: _counted(original, hook, captures, begins=True)
        )
        probe.patch(
            graph_class, "capture_end", lambda original: _counted(original, hook, captures, begins=False)
        )

    probe.when_loaded("torch.cuda.graphs", None, patch)
    return captures


def _counted(original: Any, hook: Hook, captures: list[None], *, begins: bool) -> Any:
    """capture_begin counted before it begins, capture_end after it has ended, whatever they raise."""

    def tuiadvisor_capture(*args: Any, **kwargs: Any) -> Any:
        if begins and hook.active:
            captures.append(None)
        try:
            return original(*args, **kwargs)
        except BaseException:
            if begins and captures:
                captures.pop()
            raise
        finally:
            if not begins and captures:  # empty: it began before we came
                captures.pop()

    return tuiadvisor_capture
