"""What PyTorch's caching allocator says of the device's memory: the peak so far, and when it had to try again.

Asked after a step, once a second, in the process itself: the allocator's own books, no call of the driver, no
synchronization (`torch._C._cuda_memoryStats`). A retry gives all cached blocks back to the driver, which waits for the
device: a pause of the step, and the last warning before an out-of-memory error.
"""

from __future__ import annotations

from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from . import step_clock as sc

if TYPE_CHECKING:
    from collections.abc import Callable

    from .guard import Hook

KIND_ALLOC_RETRY = 39
PERIOD_NS = 1_000_000_000
MAX_COST_SHARE = 0.0005  # of the time; slower books are asked less often


class DeviceMemory:
    """One device. stats() -> nested dict as torch._C._cuda_memoryStats returns it."""

    __slots__ = ("asked_ns", "due_ns", "hook", "num_retries", "put_event", "stats")

    def __init__(
        self, hook: Hook, put_event: Callable[[int, tuple[int, ...]], None], stats: Callable[[], Any]
    ) -> None:
        self.hook = hook
        self.put_event = put_event
        self.stats = stats
        self.due_ns = 0
        self.asked_ns = 0
        self.num_retries = sc.UNKNOWN  # those before the probe came are not ours to tell

    def peak_bytes(self, step: int, now: int) -> int:
        """Most bytes that were ever allocated at once, if it is time to ask, else UNKNOWN; writes new retries."""
        if now < self.due_ns or not self.hook.active:
            return sc.UNKNOWN
        try:
            books = self.stats()
            peak = books["allocated_bytes"]["all"]["peak"]
            num_retries = books["num_alloc_retries"]
            if type(peak) is not int or type(num_retries) is not int:
                self.hook.failed(TypeError("the allocator's books hold no whole numbers"))
                return sc.UNKNOWN
            if 0 <= self.num_retries < num_retries:
                unknown = sc.UNKNOWN
                slots = (step, self.asked_ns, now, unknown, unknown, unknown, num_retries - self.num_retries)
                self.put_event(KIND_ALLOC_RETRY, slots)
            self.num_retries = num_retries
            self.asked_ns = now
            cost_ns = monotonic_ns() - now
            self.due_ns = now + max(PERIOD_NS, int(cost_ns / MAX_COST_SHARE))
        except Exception as error:  # noqa: BLE001 - the guard: books of another shape
            self.hook.failed(error)
            return sc.UNKNOWN
        return peak
