"""Why NVML is there and shows no device: which of its refusals it is, and what to do.

In: an exception of nvidia-ml-py.  Out: the name of a reason, which goes with HELLO; its
words are in `tuiadvisor.views.devices`. A machine without anything of NVIDIA's has no reason: nothing is amiss there.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from types import ModuleType

DRIVER_FILES: Final = (Path("/proc/driver/nvidia/version"), Path("/sys/module/nvidia"))
DEVICE_FILES: Final = Path("/dev/nvidiactl")
CARDS: Final = Path("/sys/bus/pci/devices")
NVIDIA: Final = "0x10de"  # PCI vendor
CONTROLLERS: Final = "0x03"  # PCI class: displays, 3D
# Key: NVML's error (nvml.h, nvmlReturn_t), by its name: numbers alone are not in every version of its Python library.
REASONS: Final = {
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": "version mismatch",
    "NVML_ERROR_FUNCTION_NOT_FOUND": "old driver",
    "NVML_ERROR_NO_PERMISSION": "no permission",
    "NVML_ERROR_UNKNOWN": "refused",
    "NVML_ERROR_GPU_IS_LOST": "lost",
}
OTHER: Final = "failed"
NONE_GIVEN: Final = (
    "none given"  # NVML answers and counts no device: of a container that has none, or no card is in
)


def reason_of(nvml: ModuleType, error: Any) -> str:
    """Of an NVMLError; empty where no driver of NVIDIA's is."""
    value = getattr(error, "value", None)
    named = {getattr(nvml, name, None): reason for name, reason in REASONS.items()}
    if value == getattr(nvml, "NVML_ERROR_LIBRARY_NOT_FOUND", 12):
        return "no library" if _has_driver() else ""
    if value == getattr(nvml, "NVML_ERROR_DRIVER_NOT_LOADED", 9):
        if _has_driver() and not DEVICE_FILES.exists():
            return "no device files"
        return (
            "not loaded" if _has_card() else ""
        )  # the library alone comes with images that run on CPUs, too
    if value is not None and value in named:
        is_bare = named[value] in {"no permission", "refused"} and not DEVICE_FILES.exists()
        return "no device files" if is_bare else named[value]
    return OTHER


def _has_card() -> bool:
    """Whether a display or 3D controller of NVIDIA's is on the bus."""
    for card in CARDS.glob("*"):
        with suppress(OSError):
            kind = (card / "class").read_text()
            if kind.startswith(CONTROLLERS) and (card / "vendor").read_text().strip() == NVIDIA:
                return True
    return False


def _has_driver() -> bool:
    return any(path.exists() for path in DRIVER_FILES)
