"""Host-to-device copies: Tensor.to, Tensor.cuda and Tensor.pin_memory of tensors in host memory.

Only where CUDA is in use; elsewhere h2d stays unobserved. What is measured is the training thread's time in the
call: a copy from pinned memory with non_blocking goes on behind it. A tensor that is on the device already costs one
test (0.1 us); a conversion that stays on the host is given back to the phase it happened in.
"""

from __future__ import annotations

import sys
from threading import get_ident
from types import FunctionType
from typing import TYPE_CHECKING, Any

from . import step_clock as sc

if TYPE_CHECKING:
    from collections.abc import Callable

    from .guard import Hook
    from .install import Probe

NAMES = ("to", "cuda", "pin_memory")


def install(probe: Probe) -> None:
    """Patch the methods as soon as CUDA is initialized."""
    probe.when(_cuda_is_used, "h2d", "no device", lambda: patch(probe))


def _cuda_is_used() -> bool:
    # Asking is_available() would touch the driver from our thread; the training has initialized it if it uses it.
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def patch(probe: Probe) -> None:
    """Patch Tensor's methods."""
    tensor_class = sys.modules["torch"].Tensor
    hook = probe.hook("h2d")
    for name in NAMES:
        probe.patch(tensor_class, name, lambda original: timed_copy(original, hook, probe.clock))
    probe.clock.said |= 1 << sc.H2D


def timed_copy(original: Callable[..., Any], hook: Hook, clock: sc.StepClock) -> Callable[..., Any]:
    """Wrap a method of Tensor that may copy to a device."""
    own = clock.own

    def tuiadvisor_hook(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if tensor.is_cuda or not hook.active or get_ident() != own[0]:
            return original(tensor, *args, **kwargs)
        try:
            begin_ns = clock.enter(sc.H2D)
        except Exception as error:  # noqa: BLE001 - the guard, as in guard.timed
            hook.failed(error)
            begin_ns = 0
        if not begin_ns:
            return original(tensor, *args, **kwargs)
        result = None
        try:
            result = original(tensor, *args, **kwargs)
        finally:
            try:
                end_ns = clock.leave()
                if not (getattr(result, "is_cuda", False) or original.__name__ == "pin_memory"):
                    clock.move(end_ns - begin_ns, sc.H2D, clock.phase)
            except Exception as error:  # noqa: BLE001 - the guard
                hook.failed(error)
        return result

    tuiadvisor_hook.__name__ = original.__name__
    tuiadvisor_hook.__qualname__ = original.__qualname__
    tuiadvisor_hook.__doc__ = original.__doc__
    if isinstance(original, FunctionType):
        tuiadvisor_hook._torchdynamo_inline = original  # type: ignore[attr-defined]
    return tuiadvisor_hook
