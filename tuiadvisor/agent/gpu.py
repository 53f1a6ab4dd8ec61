"""GPU counters in a thread of their own: a driver in trouble may not stop the draining of rings.

In: nvidia-ml-py or amdsmi, imported only here and only when used.  Out: the latest dictionary of each device
(`agent.nvml`, `agent.amd`). No driver, no library, no device: no dictionaries, and no error.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, Protocol

from tuiadvisor.agent.amd import AmdReader, load_amdsmi
from tuiadvisor.agent.no_devices import NONE_GIVEN, reason_of
from tuiadvisor.agent.nvml import Gpu, NvmlReader

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

SAMPLE_EVERY_S: Final = 1.0
STALE_AFTER_S: Final = 5.0


class GpuReader(Protocol):
    """A vendor's library, asked for all devices."""

    def driver(self) -> str | None:
        """Version of the driver."""
        ...

    def sample(self) -> list[Gpu]:
        """One dictionary a device."""
        ...


class GpuSampler:
    """The latest sample of every device, taken once a second in the background."""

    def __init__(self, load: Callable[[], GpuReader | None] | None = None) -> None:
        self._load = load
        self.driver: str | None = None  # its version
        self.why_none = ""  # a reason of `agent.no_devices`
        self._latest: tuple[Gpu, ...] = ()
        self._sampled_at_s = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpu-sampler", daemon=True)

    def start(self) -> None:
        """Begin; where there is no device the thread ends at once."""
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
        reader, self.why_none = (self._load(), "") if self._load is not None else find_reader()
        if reader is None:
            return
        self.driver = reader.driver()
        while not self._stop.is_set():
            self._latest, self._sampled_at_s = tuple(reader.sample()), time.monotonic()
            self._stop.wait(SAMPLE_EVERY_S)


def load_reader() -> GpuReader | None:
    """Of the first vendor that has a device here; None where none has."""
    return find_reader()[0]


def find_reader() -> tuple[GpuReader | None, str]:
    """The same, and the name of the reason for which NVML, which is here, shows no device."""
    nvml, why_none = find_nvml()
    if nvml is not None:
        return NvmlReader(nvml), ""
    amdsmi = load_amdsmi()
    return (AmdReader(amdsmi), "") if amdsmi is not None else (None, why_none)


def load_nvml() -> ModuleType | None:
    """NVML, initialized; None where there is no library, no driver or no device."""
    return find_nvml()[0]


def find_nvml() -> tuple[ModuleType | None, str]:
    """The same, and why not; no reason where nothing of NVIDIA's is."""
    try:
        import pynvml  # noqa: PLC0415  # 20 ms that a machine without a GPU need not spend
    except ImportError:
        return None, ""
    try:
        pynvml.nvmlInit()
        return (pynvml, "") if pynvml.nvmlDeviceGetCount() > 0 else (None, NONE_GIVEN)
    except pynvml.NVMLError as error:
        return None, reason_of(pynvml, error)
