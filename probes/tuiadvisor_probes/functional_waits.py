"""Waits for functional collectives (torch.distributed._functional_collectives): DTensor's, and calls by hand.

They pass neither ProcessGroup's methods nor Work.wait. What such a collective returns is a tensor that is waited for
where it is first used, by a method of its class: that is watched, of tensors on the host. On a device the thread goes
on at once, and only its stream waits: nothing is changed there. Torch's function `wait_tensor`, which that method
calls, stays what it is: compiled code names it, and would be compiled anew for another one in its place, at the attach
and at the detach. Compiled code does not look through that class.
"""

from __future__ import annotations

from functools import update_wrapper
from typing import TYPE_CHECKING, Any

from . import phases
from .guard import timed

if TYPE_CHECKING:
    from collections.abc import Callable

    from .host import Host

MODULE = "torch.distributed._functional_collectives"
WAITS = ("trigger_wait", "wait")


def install(probe: Host) -> None:
    """Patch the class, once the training has loaded it."""
    probe.when_loaded(
        MODULE, "functional_waits", lambda module: _patch_waits(probe, module.AsyncCollectiveTensor)
    )


def _patch_waits(probe: Host, tensor_class: Any) -> None:
    clock, pending = probe.clock, probe.forwards.pending
    hook, observes = probe.hook("functional_waits"), 1 << phases.COMM_EXPOSED

    def after(begin_ns: int, end_ns: int, _args: tuple[Any, ...], _result: Any) -> None:
        pending.waited(clock, begin_ns, end_ns)

    def watched(original: Any) -> Any:
        phase = phases.COMM_EXPOSED
        waits = timed(original, hook, clock, phase, after, observes=observes, is_looked_up=True)
        return _unless_complete(original, waits)

    for name in WAITS:
        if name in vars(tensor_class):
            probe.patch(tensor_class, name, watched)


def _unless_complete(original: Callable[..., Any], waits: Callable[..., Any]) -> Callable[..., Any]:
    """Each use of the tensor asks, once it is there too: no wait then, and nothing to note."""

    def tuiadvisor_hook(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        is_on_host = getattr(getattr(tensor, "elem", None), "is_cpu", False) is True
        if not is_on_host or getattr(tensor, "completed", False) is True:
            return original(tensor, *args, **kwargs)
        return waits(tensor, *args, **kwargs)

    update_wrapper(tuiadvisor_hook, original, updated=())
    tuiadvisor_hook._torchdynamo_inline = original  # type: ignore[attr-defined]  # as in guard.timed
    return tuiadvisor_hook
