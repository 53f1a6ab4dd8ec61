"""MFU, what it rests on, and the settings of a run in words: the same on screens, in reports and in `diagnose`.

In: RunView.  Out: pairs of name and text; "unknown: why" where something was not seen.
"""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Final

from tuiadvisor.text import format as text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tuiadvisor.views.devices import RankDevice
    from tuiadvisor.views.efficiency import Efficiency, Stack
    from tuiadvisor.views.run_view import RunView

UNITS: Final = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
DTYPES: Final = {"float32": "fp32", "tf32": "TF32", "bfloat16": "bf16", "float16": "fp16"}
HOW_TO_SEE: Final = (
    "Which operations are below the roof: tuiadvisor capture RANK --flops (some steps under torch's profiler, with "
    "shapes), or tuiadvisor import kineto DIR of traces made with record_shapes=True."
)


def scaled(value: float | None, unit: str) -> str:
    """'989 TFLOP/s', '48.3 GFLOP', '3.72 M'."""
    if value is None:
        return text_of.UNKNOWN
    for size, prefix in UNITS:
        if abs(value) >= 0.9995 * size:
            return f"{text_of.significant(value / size)} {prefix}{unit}".rstrip()
    shown = f"{value:.0f}" if value == int(value) else text_of.significant(value)  # 21 parameters, not 21.0
    return f"{shown} {unit}".rstrip()


def dtype_word(dtype: str | None) -> str:
    """As people write it."""
    return DTYPES.get(dtype or "", dtype or text_of.UNKNOWN)


def is_worth_showing(view: RunView) -> bool:
    """Whether anything is known of it: recordings of older versions say nothing."""
    found = view.efficiency
    tells = view.stack is not None and view.stack.tells_settings
    return tells or (found is not None and found.flops_per_step is not None)


def mfu_words(found: Efficiency) -> str:
    """The figure, with the reason where there is none."""
    if found.mfu is None:
        return f"{text_of.UNKNOWN}: {found.why or 'not observed'}"
    words = f"{text_of.share(found.mfu)} of {scaled(found.peak_flops, 'FLOP/s')} {dtype_word(found.dtype)} a device"
    return f"{words}, {found.peak_source}" if found.peak_source else words


def efficiency_facts(view: RunView) -> list[tuple[str, str]]:
    """Figures of the roofline, the most telling first."""
    found = view.efficiency
    if found is None:
        return []
    rows = [("MFU", mfu_words(found))]
    if found.judgement:
        rows.append(("for its kind", f"{found.judgement}: usual are 35 to 55 % ({found.judgement_source})"))
    if found.mfu is not None or found.hfu is not None:
        hfu = text_of.share(found.hfu) if found.hfu is not None else text_of.UNKNOWN
        rows.append(("HFU (with recomputation)", hfu))
    if found.mfu_of_clock is not None and found.clock_mhz is not None:
        clock = f"{text_of.share(found.mfu_of_clock)} of {scaled(found.clock_peak_flops, 'FLOP/s')}"
        rows.append(("MFU at its clock", f"{clock} at {found.clock_mhz:,.0f} MHz"))
    if found.flops_per_step is not None:
        source = f" ({found.flops_source})" if found.flops_source else ""
        rows.append(("FLOPs a step, all devices", scaled(found.flops_per_step, "FLOP") + source))
        rows.append(("achieved a device", scaled(found.flops_s_per_device, "FLOP/s")))
    if found.tokens_per_step is not None:
        rows.append(("tokens a step", f"{found.tokens_per_step:,.0f}"))
    if found.ridge_flop_byte is not None:
        rows.append(("memory-bound below", _ridge(found, found.ridge_flop_byte)))
    rows += device_facts(view.rank_devices)
    return rows + [("note", text) for text in found.notes]


def device_facts(found: Sequence[RankDevice]) -> list[tuple[str, str]]:
    """What the counters say of these ranks' devices, means over the recording; nothing where nobody told."""
    rows = []
    units = [
        f"{name} {text_of.share(mean)}"
        for name, mean in (
            ("multiprocessors", _mean(one.sm_active for one in found)),
            ("tensor cores", _mean(one.tensor_active for one in found)),
            ("memory bandwidth", _mean(one.dram_active for one in found)),
        )
        if mean is not None
    ]
    if units:
        rows.append(("units busy", " \u00b7 ".join(units)))
    clock, power = _mean(one.clock_mhz for one in found), _mean(one.power_w for one in found)
    said = [] if clock is None else [f"{clock:,.0f} MHz"]
    said += [] if power is None else [f"{power:,.0f} W"]
    held = [one.throttle_s for one in found if one.throttle_s is not None]
    if held:
        said.append(f"held back {text_of.seconds(max(held))}" if max(held) else "never held back")
    if said:
        rows.append(("clock and power", " \u00b7 ".join(said)))
    return rows


def _mean(values: Iterable[float | None]) -> float | None:
    """None unless each is known: a mean over some would be of these."""
    told = list(values)
    known = [value for value in told if value is not None]
    return fmean(known) if known and len(known) == len(told) else None


def _ridge(found: Efficiency, ridge: float) -> str:
    """Where memory's roof meets that of the arithmetic, and what both are."""
    if found.peak_bytes_s is None:
        return f"{text_of.significant(ridge)} FLOP a byte"
    roofs = f"{scaled(found.peak_flops, 'FLOP/s')} {dtype_word(found.dtype)} over {scaled(found.peak_bytes_s, 'B/s')}"
    return f"{text_of.significant(ridge)} FLOP a byte: {roofs}"


def stack_facts(stack: Stack | None) -> list[tuple[str, str]]:
    """Model and settings as the probes saw them."""
    if stack is None or not stack.tells_settings:
        return []
    rows = [("model", _model(stack)), ("parts", _parts(stack)), ("precision", _precision(stack))]
    rows += [("attention", _attention(stack)), ("input", _input(stack)), ("loader", _loader(stack))]
    wrapped = [
        stack.text("wrappers"),
        "compiled" if stack.facts.get("compiled") else "",
        stack.text("sharding"),
        stack.text("sharding_strategy"),
        f"ZeRO stage {stage}" if (stage := stack.number("zero_stage")) is not None else "",
        f"gradients reduced in {reduced}" if (reduced := stack.text("reduce_dtype")) else "",
    ]
    wrapped.append(
        {"yes": "activations recomputed", "maybe": "activations perhaps recomputed"}.get(
            stack.text("recompute"), ""
        )
    )
    rows.append(("wrapped", " · ".join(part for part in (*wrapped, stack.text("mesh")) if part)))
    rows.append(("device", _device(stack)))
    rows.append(("allocator", stack.text("allocator")))
    return [(name, text) for name, text in rows if text]


def _model(stack: Stack) -> str:
    total, trained = stack.number("params"), stack.number("trainable")
    words = f"{stack.text('class') or 'a model'}, {'?' if total is None else scaled(total, '')} parameters"
    if total and trained is not None and trained < total:
        words += f", {scaled(trained, '') if trained else 'none'} of them trained"
    if stack.facts.get("cut"):
        words += "; cut: it has more modules than the probe looks at"
    return words


def _parts(stack: Stack) -> str:
    named = (
        ("embedding", stack.number("embedding")),
        ("head", stack.number("head") if _has_head(stack) else None),
        ("convolutions", stack.number("conv")),
        ("adapters", stack.number("lora")),
        ("experts", stack.number("mm_expert")),
    )
    words = [f"{name} {scaled(value, '')}" for name, value in named if value]
    if stack.facts.get("tied"):
        words.append("embedding and head are tied")
    if stack.number("experts"):
        top_k = stack.number("top_k") or stack.number("config_top_k")
        words.append(f"{stack.number('experts')} experts a layer, {top_k or '?'} a token")
    if stack.number("mm_odd"):
        words.append(f"dimensions that are no multiple of 8: {stack.text('odd_shape')}")
    return " · ".join(words)


def _device(stack: Stack) -> str:
    """Its name, and what of it the lowest rank is given."""
    words = [stack.text("device_name")]
    if words[0] and stack.number("multiprocessors"):
        words.append(f"{stack.number('multiprocessors')} multiprocessors")
    if words[0] and stack.text("mps_share"):
        words.append(f"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={stack.text('mps_share')}")
    return " \u00b7 ".join(words)


def _has_head(stack: Stack) -> bool:
    """The last of a row of alike layers is no head."""
    return any(stack.number(name) for name in ("layers", "config_layers", "embedding", "conv"))


def _precision(stack: Stack) -> str:
    words = [f"parameters {dtype_word(stack.text('param_dtype'))}"] if stack.text("param_dtype") else []
    if stack.text("autocast"):
        words.append(f"autocast {dtype_word(stack.text('autocast'))}")
    if stack.text("mixed_precision"):
        words.append(f"FSDP computes in {dtype_word(stack.text('mixed_precision'))}")
    if stack.text("device_name") and stack.number("tf32") is not None:
        words.append(f"TF32 {'on' if stack.number('tf32') else 'off'}")
        words.append(f"cudnn.benchmark {'on' if stack.number('cudnn_benchmark') else 'off'}")
    if not stack.text("device_name") and stack.number("threads"):
        words.append(text_of.count(stack.number("threads"), "thread"))
    return " · ".join(words)


def _attention(stack: Stack) -> str:
    layers = stack.number("layers")
    if not layers:
        return ""
    words = [text_of.count(layers, "layer")]
    if stack.number("heads"):
        words.append(text_of.count(stack.number("heads"), "head"))
    named = stack.text("attention")
    words.append(named or f"SDPA may use {stack.text('sdp')}" if named or stack.text("sdp") else "")
    return " · ".join(word for word in words if word)


def _input(stack: Stack) -> str:
    if not stack.text("input"):
        return ""
    return f"{stack.text('input').replace('x', text_of.TIMES)} {stack.text('input_dtype')} a call"


def _loader(stack: Stack) -> str:
    workers = stack.number("workers")
    if workers is None:
        return ""
    words = [text_of.count(workers, "worker") if workers else "no workers"]
    words.append(f"pin_memory {'on' if stack.number('pin_memory') else 'off'}")
    if stack.number("prefetch"):
        words.append(f"prefetch {stack.number('prefetch')}")
    if workers:
        words.append("persistent" if stack.number("persistent_workers") else "restarted each epoch")
    return " · ".join(words)
