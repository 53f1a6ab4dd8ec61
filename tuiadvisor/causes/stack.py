"""Settings that leave a device's arithmetic unused: precision, TF32, odd sizes, a loader without workers; a low MFU.

What each would bring at best is the ratio of peaks over the part of a step that computes: an upper bound, no forecast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.causes.cause import Cause
from tuiadvisor.efficiency.assess import FULL_PRECISIONS
from tuiadvisor.efficiency.peaks import device_of, has_tensor_cores
from tuiadvisor.metrics.steps.accounting import shares
from tuiadvisor.phases import COMPUTE

if TYPE_CHECKING:
    from tuiadvisor.causes.cause import Values
    from tuiadvisor.causes.facts import Facts
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.views.efficiency import Efficiency, Stack

METRICS: Final = """
job mfu share model FLOPs of a step against what the devices' dense peak allows in it
job mfu_is_poor flag 1 if it is below what dense transformers in half precision usually reach; 0 if not, or not judged
job full_precision flag 1 if matrices are multiplied in fp32 or TF32 on a device whose tensor cores are faster in bf16
job half_saves_share share of the step that half precision would save at best: compute, by the ratio of peaks
job tf32_is_off flag 1 if matrices are multiplied in fp32 on a device that could take TF32
job tf32_saves_share share of the step that TF32 would save at best: compute, by the ratio of peaks
job odd_weights_share share of the multiplied weights in matrices with a side that is no multiple of 8, on tensor cores
job odd_shape text the largest such matrix
job loader_workers count worker processes of the DataLoader
job rank_threads count threads with which PyTorch computes in each rank; unknown where they differ
job dtype_words text precision in which matrices are multiplied
"""
NAMES: Final = tuple(line.split()[1] for line in METRICS.strip().splitlines())


def measure_job(diagnosis: Diagnosis, facts: Facts) -> Values:
    """Flags are unknown where the device or the setting is."""
    stack, efficiency = facts.stack, facts.efficiency
    if stack is None or efficiency is None:
        return dict.fromkeys(NAMES)
    part = shares(diagnosis.job_seconds)
    computes = sum(part[name] or 0.0 for name in COMPUTE)
    return {
        **dict.fromkeys(NAMES),
        **_precision(stack, efficiency, computes),
        "mfu": efficiency.mfu,
        "mfu_is_poor": int(efficiency.judgement == "poor") if efficiency.mfu is not None else None,
        "loader_workers": stack.number("workers"),
        "rank_threads": None if "threads" in stack.differing else stack.number("threads"),
        "dtype_words": _words(efficiency.dtype),
        "odd_shape": stack.text("odd_shape") or None,
    }


def _precision(stack: Stack, efficiency: Efficiency, computes: float) -> Values:
    name, dtype = stack.text("device_name"), efficiency.dtype
    row = device_of(name) if name and dtype else None
    if row is None or not has_tensor_cores(name):
        return {}
    now = row.tflops.get(dtype or "", 0.0)
    half = row.tflops.get("bfloat16", row.tflops["float16"])
    tf32 = row.tflops.get("tf32", 0.0)
    multiplied = (stack.number("mm") or 0) + (stack.number("mm_frozen") or 0)
    is_full = dtype in FULL_PRECISIONS
    return {
        "full_precision": int(is_full),
        "half_saves_share": computes * (1 - now / half) if is_full and now else None,
        "tf32_is_off": int(dtype == "float32" and tf32 > now) if stack.number("tf32") is not None else None,
        "tf32_saves_share": computes * (1 - now / tf32) if dtype == "float32" and tf32 > now > 0 else None,
        "odd_weights_share": (stack.number("mm_odd") or 0) / multiplied if multiplied else None,
    }


def _words(dtype: str | None) -> str | None:
    return {"float32": "fp32", "tf32": "TF32", "bfloat16": "bf16", "float16": "fp16"}.get(dtype or "", dtype)


STACK: Final = Cause(
    rules=("full_precision", "tf32_off", "odd_sizes", "loader_without_workers", "low_mfu"),
    metrics=METRICS,
    measure_job=measure_job,
    is_remark=True,
)
