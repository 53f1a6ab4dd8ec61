"""MFU and HFU of a job: FLOPs of its step, over what its devices could do in that time.

In: Stack, Work of the steady steps, measured and stated peaks.  Out: Efficiency; every None has its reason in `why`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Final

from tuiadvisor.efficiency.flops import FORMULA, TokenFlops, attention_width, token_flops
from tuiadvisor.efficiency.peaks import Peak, peak_of
from tuiadvisor.views.efficiency import Efficiency, Stack

if TYPE_CHECKING:
    from tuiadvisor.events import GivenWork
    from tuiadvisor.views.efficiency import Arithmetic, Judgement

POOR_BELOW: Final = 0.30
GOOD_FROM, GOOD_TO = 0.35, 0.55
JUDGED_BY: Final = (
    "dense transformers in bf16: PaLM 46 %, Megatron on H100 41 to 48 %, torchtitan 8B 33 to 39 %"
)
FULL_PRECISIONS: Final = frozenset({"float32", "tf32"})
HALVES: Final = frozenset({"bfloat16", "float16"})
MEASURE: Final = "tuiadvisor doctor --measure --threads {threads}"
PIPELINES: Final = frozenset({"pp", "pipe"})
NOT_DATA_PARALLEL: Final = PIPELINES | {"tp", "cp", "sp", "tensor", "context", "model"}
COUNTED: Final = "counted by the shapes of operators in the trace"
COUNTED_WHY: Final = (
    "a trace counts what is computed again, too, that is HFU; if nothing is: --flops-per-step"
)
IMPOSSIBLE: Final = 1.05  # of the peak: beyond what a clock above its data sheet explains
ABSURD: Final = 10.0  # chosen, times the peak: by how much more it is wrong tells nobody anything


@dataclass(frozen=True, slots=True)
class Work:
    """Of the steady steps of the job. None: not known."""

    step_s: float | None
    num_ranks: int  # whose batches were counted
    world_size: int | None
    tokens: float | None  # a step, all those ranks together
    samples: float | None
    device: str | None  # "cpu", "cuda"
    num_stages: int  # of a pipeline; 1: none
    clock_mhz: float | None = None
    num_devices: int | None = None  # that those ranks compute on: fewer where some share one


def assess(stack: Stack, work: Work, given: GivenWork) -> Efficiency:
    """All that can be said."""
    dtype = compute_dtype(stack, work.device)
    peak = _peak(stack, work, given, dtype)
    step_flops, hardware, source, each, why = _flops_per_step(stack, work, given)
    num = work.num_ranks
    if given.flops_per_step is not None:
        num = work.world_size or work.num_ranks
    if work.num_devices and work.num_ranks:
        num = max(round(num * work.num_devices / work.num_ranks), 1)
    whys = [why, peak.why]
    mfu = hfu = achieved = None
    if step_flops is not None and work.step_s and num:
        achieved = step_flops / work.step_s / num
        if peak.flops:
            mfu = achieved / peak.flops
            hfu = None if hardware is None else mfu * hardware / step_flops
    elif step_flops is not None:
        whys.append("no steady step was seen yet")
    notes = list(_notes(stack, work, given, dtype))
    if max(mfu or 0.0, hfu or 0.0) > IMPOSSIBLE:
        whys.append(_contradiction(max(mfu or 0.0, hfu or 0.0)))
        mfu = hfu = None
    clock_peak = (
        peak.flops * work.clock_mhz / peak.clock_mhz
        if peak.flops and work.clock_mhz and peak.clock_mhz
        else None
    )
    judgement = _judgement(stack, dtype, mfu, work.device)
    return Efficiency(
        mfu=mfu,
        hfu=hfu,
        flops_per_step=step_flops,
        peak_flops=peak.flops,
        peak_source=peak.source or None if peak.flops else None,
        dtype=dtype or None,
        flops_source=source or None,
        flops_per_token=each,
        tokens_per_step=_tokens(stack, work, given),
        flops_s_per_device=achieved,
        num_devices=num or None,
        clock_mhz=work.clock_mhz,
        clock_peak_flops=clock_peak,
        mfu_of_clock=achieved / clock_peak if achieved and clock_peak and mfu is not None else None,
        peak_bytes_s=peak.memory_bytes_s,
        ridge_flop_byte=peak.flops / peak.memory_bytes_s if peak.flops and peak.memory_bytes_s else None,
        judgement=judgement,
        judgement_source=JUDGED_BY if judgement else None,
        why="; ".join(dict.fromkeys(text for text in whys if text)) or None if mfu is None else None,
        notes=tuple(notes),
    )


def _contradiction(share: float) -> str:
    """Of more than the peak: that cannot be."""
    much = f"{100 * share:.0f} %" if share < ABSURD else f"more than {ABSURD:.0f} times"
    of = "of the peak" if share < ABSURD else "the peak"
    return f"the figures contradict each other: {much} {of} cannot be: FLOPs or peak are wrong"


def with_counted(
    found: Efficiency, counted: Arithmetic, step_s: float | None, num_devices: int | None
) -> Efficiency:
    """With FLOPs that traces counted, where the model does not tell them: what they reach is HFU."""
    if found.flops_per_step is not None:
        return found
    peak = found.peak_flops or counted.peak_flops
    achieved = counted.flops_per_step / step_s / num_devices if step_s and num_devices else None
    hfu = achieved / peak if achieved and peak else None
    why = COUNTED_WHY
    if hfu is not None and hfu > IMPOSSIBLE:
        why, hfu = _contradiction(hfu), None
    return replace(
        found,
        hfu=hfu,
        flops_per_step=counted.flops_per_step,
        flops_source=COUNTED,
        flops_s_per_device=achieved,
        num_devices=num_devices,
        peak_flops=peak,
        peak_source=found.peak_source if found.peak_flops else counted.peak_source,
        dtype=found.dtype or counted.dtype,
        intensity_flop_byte=counted.intensity_flop_byte,
        bound=counted.bound,
        why=why if found.mfu is None else None,
    )


def compute_dtype(stack: Stack, device: str | None) -> str:
    """In which precision matrices are multiplied; empty where it was not seen."""
    if stack.facts.get("fp8") or stack.text("autocast") == "fp8":
        return "fp8"
    autocast = stack.text("autocast")
    if autocast and autocast != "off":
        return autocast
    held = stack.text("mixed_precision") or stack.text("param_dtype")
    if held == "float32" and device not in {None, "cpu"} and stack.facts.get("tf32"):
        return "tf32"
    return held


def _peak(stack: Stack, work: Work, given: GivenWork, dtype: str) -> Peak:
    name = stack.text("device_name")
    known = peak_of(name, dtype) if name and dtype else None
    if given.peak_flops is not None:
        memory = known.memory_bytes_s if known else None
        return Peak(float(given.peak_flops), memory, known.clock_mhz if known else None, "stated")
    if not dtype:
        return Peak(None, None, None, "", "the precision of its matrices was not seen: state --peak-flops")
    if known is not None:
        return known
    if work.device not in {None, "cpu"}:
        return Peak(None, None, None, "", "the device's name was not seen: state --peak-flops")
    threads = stack.number("threads")
    for one in given.measured:
        if one.dtype == dtype and one.threads == threads:
            return Peak(
                one.flops,
                one.bytes_s,
                None,
                f"measured on this machine, {threads} thread{'s' * (one.threads > 1)}",
            )
    how = MEASURE.format(threads=threads or "N")
    return Peak(None, None, None, "", f"a CPU's peak in {dtype} has to be measured where it runs: {how}")


def _flops_per_step(
    stack: Stack, work: Work, given: GivenWork
) -> tuple[float | None, float | None, str, float | None, str]:
    """(model FLOPs, hardware FLOPs, where from, of one token, why not)."""
    if given.flops_per_step is not None:
        return float(given.flops_per_step), None, "stated", None, ""
    if work.num_stages > 1:
        return None, None, "", None, "the model is spread over pipeline stages: state --flops-per-step"
    tokens = _tokens(stack, work, given)
    each: TokenFlops = token_flops(stack, _length(stack, work))
    if each.model is None:
        return None, None, "", None, each.why
    if tokens is None:
        return None, None, "", each.model, _why_no_tokens(stack)
    hardware = None if each.hardware is None else each.hardware * tokens
    return each.model * tokens, hardware, FORMULA, each.model, ""


def _tokens(stack: Stack, work: Work, given: GivenWork) -> float | None:
    """Of a step, each once: as stated, else as the batches of ids say, else by the shape of one and the backwards."""
    if work.tokens is not None and given.tokens_per_step is not None:
        return work.tokens
    shape, copies = _shape(stack), copies_of_batch(stack)
    if work.tokens is not None and is_of_ids(stack):
        seen = work.tokens * (shape[1] / (shape[1] + 1) if _holds_target(shape, work) else 1.0)
        return seen / copies
    rows = rows_per_step(stack, work.num_ranks)
    return None if rows is None else rows * shape[1]


def is_of_ids(stack: Stack) -> bool:
    """Rows of token ids are what the model is given: of floats it makes patches, or fewer rows."""
    return len(_shape(stack)) == 2 and stack.text("input_dtype") in {"int64", "int32"}


def rows_per_step(stack: Stack, num_ranks: int) -> float | None:
    """Sequences of ids that a step works on, by the shape of one call and the number of backwards; None: not seen."""
    if not is_of_ids(stack) or not stack.number("micro_steps"):
        return None
    return _shape(stack)[0] * (stack.number("micro_steps") or 0) * num_ranks / copies_of_batch(stack)


def _holds_target(shape: tuple[int, ...], work: Work) -> bool:
    """Whether a batch has one id more a row than the model sees: inputs and targets are the same ids, shifted."""
    return len(shape) == 2 and bool(work.tokens) and work.tokens == (work.samples or 0) * (shape[1] + 1)


def _length(stack: Stack, work: Work) -> float | None:
    shape = _shape(stack)
    if work.tokens and work.samples and not _holds_target(shape, work):
        return work.tokens / work.samples
    return float(shape[1]) if len(shape) > 1 else None


def _shape(stack: Stack) -> tuple[int, ...]:
    parts = stack.text("input").split("x")
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else ()


def _why_no_tokens(stack: Stack) -> str:
    if len(_shape(stack)) >= 4:
        return "its input is images or the like: state --flops-per-step, or --tokens-per-step (patches)"
    return "how many tokens a step works on was not seen: state --tokens-per-step"


def copies_of_batch(stack: Stack) -> int:
    """Ranks that see the same batch, by the names of the mesh's dimensions; stages also where no mesh names them."""
    sizes = {}
    for part in stack.text("mesh").split():
        name, _, size = part.partition("=")
        if name in NOT_DATA_PARALLEL and size.isdigit():
            sizes[name] = max(int(size), 1)
    stages = 1 if sizes.keys() & PIPELINES else stack.number("stages") or 1
    return prod(sizes.values()) * stages


def _notes(stack: Stack, work: Work, given: GivenWork, dtype: str) -> list[str]:
    notes = []
    if work.num_devices and work.num_devices < work.num_ranks:
        of = "one device" if work.num_devices == 1 else f"{work.num_devices} devices"
        notes.append(f"{work.num_ranks} ranks compute on {of}: each device's peak counts once")
    if work.world_size and work.num_ranks < work.world_size and given.flops_per_step is None:
        notes.append(f"of {work.num_ranks} of {work.world_size} ranks: those whose steps could be compared")
    if stack.differing:
        notes.append("ranks differ in " + ", ".join(stack.differing[:6]))
    if stack.text("recompute") == "maybe":
        notes.append("HFU is unknown: a forward may recompute parts, and which was not seen")
    if copies_of_batch(stack) > 1:
        of = stack.text("mesh") or f"stages={stack.number('stages')}"
        notes.append(f"{copies_of_batch(stack)} ranks each see the same batch ({of})")
    if dtype == "fp8":
        notes.append("no source says what an MFU in fp8 should be")
    return notes


def _judgement(stack: Stack, dtype: str, mfu: float | None, device: str | None) -> Judgement:
    """Only where sources agree what is usual: dense transformers in half precision on devices."""
    is_dense = bool(attention_width(stack)) and not stack.number("mm_expert") and not stack.number("conv")
    if mfu is None or not is_dense or dtype not in HALVES or device in {None, "cpu"}:
        return ""
    if mfu < POOR_BELOW:
        return "poor"
    return "good" if GOOD_FROM <= mfu <= GOOD_TO else ""
