"""What a device has suffered since its driver was loaded: time at a clock held back, and errors of memory and links.

In: nvidia-ml-py.  Out: counters that only grow, each under a key of its own; None where the device, the driver or this
container does not tell it, never 0. The time at a clock held back is counted by the device in nanoseconds, so nothing
between two of our samples is missed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Ask = Callable[..., Any]

# Of nvmlFieldValue_t.scopeId: all links of a device together. Without it the counters are of link 0 alone (nvml.h).
ALL_LINKS: Final = 0xFFFFFFFF
MAX_LINKS: Final = 36
# Key: NVML's field, nanoseconds. Before driver 560 the first two have older names and the others do not exist.
HELD_BACK: Final = {
    "held_power_s": ("CLOCKS_EVENT_REASON_SW_POWER_CAP", "PERF_POLICY_POWER"),
    "held_sync_boost_s": ("CLOCKS_EVENT_REASON_SYNC_BOOST", "PERF_POLICY_SYNC_BOOST"),
    "held_heat_s": ("CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN", "PERF_POLICY_THERMAL"),
    "held_heat_hardware_s": ("CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN",),
    "held_power_brake_s": ("CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN",),
}
# Key: NVML's fields of the device, else those of each link. Blackwell has none of the second kind.
LINK_ERRORS: Final = {
    "nvlink_replays": ("NVLINK_REPLAY_ERROR_COUNT_TOTAL", "NVLINK_ERROR_DL_REPLAY"),
    "nvlink_recoveries": ("NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "NVLINK_ERROR_DL_RECOVERY"),
    "nvlink_crc_errors": ("NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "NVLINK_ERROR_DL_CRC"),
}
ROWS: Final = (
    "remapped_rows_corrected",
    "remapped_rows_uncorrected",
    "row_remap_pending",
    "row_remap_failed",
)
KEYS: Final = (*HELD_BACK, *LINK_ERRORS, "pcie_replays", *ROWS)
_NS: Final = 10**9
# nvmlValueType_t: double, unsigned int, unsigned long, unsigned long long, signed long long, int, unsigned short.
_MEMBERS: Final = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


def health(nvml: Any, ask: Ask, handle: Any, num_links: int) -> dict[str, float | int | None]:
    """Every counter of KEYS.

    ask(name, *arguments): a call of NVML, None where it fails. num_links: active ones of NVLink.
    """
    rows = ask("nvmlDeviceGetRemappedRows", handle) or (None,) * len(ROWS)
    return {
        **_held_back(nvml, ask, handle),
        **_link_errors(nvml, ask, handle, min(num_links, MAX_LINKS)),
        "pcie_replays": ask("nvmlDeviceGetPcieReplayCounter", handle),
        **{name: _count(value) for name, value in zip(ROWS, rows, strict=True)},
    }


def fields(
    nvml: Any, ask: Ask, handle: Any, names: Sequence[str], scopes: Sequence[int] = (0,)
) -> list[float | None]:
    """Values of fields, each in each scope; None where one is not told. names: without NVML_FI_DEV_."""
    asked = [
        (field, scope)
        for name in names
        for scope in scopes
        if (field := getattr(nvml, f"NVML_FI_DEV_{name}", None)) is not None
    ]
    told = iter(ask("nvmlDeviceGetFieldValues", handle, asked) or () if asked else ())
    found: list[float | None] = []
    for name in names:
        is_known = hasattr(nvml, f"NVML_FI_DEV_{name}")
        found += [_value(nvml, next(told, None)) if is_known else None for _ in scopes]
    return found


def _value(nvml: Any, told: Any) -> float | None:
    """In the type that the value says it has."""
    if told is None or told.nvmlReturn != nvml.NVML_SUCCESS or not 0 <= told.valueType < len(_MEMBERS):
        return None
    value = float(getattr(told.value, _MEMBERS[told.valueType]))
    return value if value >= 0 else None


def _held_back(nvml: Any, ask: Ask, handle: Any) -> dict[str, float | None]:
    names = [name for ways in HELD_BACK.values() for name in ways]
    told = dict(zip(names, fields(nvml, ask, handle, names), strict=True))
    known = {key: [told[name] for name in ways if told[name] is not None] for key, ways in HELD_BACK.items()}
    return {key: (values[0] or 0.0) / _NS if values else None for key, values in known.items()}


def _link_errors(nvml: Any, ask: Ask, handle: Any, num_links: int) -> dict[str, int | None]:
    if not num_links:
        return dict.fromkeys(LINK_ERRORS)
    found: dict[str, int | None] = {}
    for key, (of_device, of_link) in LINK_ERRORS.items():
        (total,) = fields(nvml, ask, handle, [of_device])
        if total is None:
            each = fields(nvml, ask, handle, [of_link], range(num_links))
            total = sum(value for value in each if value is not None) if None not in each else None
        found[key] = None if total is None else int(total)
    return found


def _count(value: object) -> int | None:
    return int(value) if isinstance(value, int) else None
