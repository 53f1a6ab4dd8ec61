"""GPU counters in a thread of their own: a driver in trouble may not stop the draining of rings.

In: nvidia-ml-py, imported only here and only when used.  Out: the latest dictionary of each device (`agent.nvml`). No
driver, no library, no device: no dictionaries, and no error.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from tuiadvisor.agent.nvml import Gpu, NvmlReader

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

SAMPLE_EVERY_S: Final = 1.0
STALE_AFTER_S: Final = 5.0


class GpuSampler:
    """The latest sample of every device, taken once a second in the background."""

    def __init__(self, load: Callable[[], ModuleType | None] | None = None) -> None:
        self._load = load or load_nvml
        self.driver: str | None = None  # its version
        self._latest: tuple[Gpu, ...] = ()
        self._sampled_at_s = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpu-sampler", daemon=True)

    def start(self) -> None:
        """Begin; where there is no NVML the thread ends at once."""
        self._thread.start()

    def stop(self) -> None:
        """End, without waiting for a driver that does not answer."""
        self._stop.set()
        if self._thread.ident is not None:  # it was begun
            self._thread.join(timeout=0.2)

    def latest(self, now_s: float | None = None) -> list[Gpu]:
        """The devices' counters; only their names when the driver has not answered for a while."""
        now_s = time.monotonic() if now_s is None else now_s
        if now_s - self._sampled_at_s <= STALE_AFTER_S:
            return list(self._latest)
        return [{"index": gpu["index"], "name": gpu["name"], "uuid": gpu["uuid"]} for gpu in self._latest]

    def names(self) -> list[str]:
        """One name a device, "?" where it has none to tell."""
        return [str(gpu["name"] or "?") for gpu in self._latest]

    def _run(self) -> None:
        nvml = self._load()
        if nvml is None:
            return
        reader = NvmlReader(nvml)
        self.driver = reader.driver()
        while not self._stop.is_set():
            self._latest, self._sampled_at_s = tuple(reader.sample()), time.monotonic()
            self._stop.wait(SAMPLE_EVERY_S)


def load_nvml() -> ModuleType | None:
    """NVML, initialized; None where there is no library, no driver or no device."""
    try:
        import pynvml  # noqa: PLC0415  # 20 ms that a machine without a GPU need not spend
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        return pynvml if pynvml.nvmlDeviceGetCount() > 0 else None
    except pynvml.NVMLError:
        return None
