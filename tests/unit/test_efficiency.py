"""FLOPs against published figures, peaks by name, MFU and its refusals, the roofline's arithmetic."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tuiadvisor.advisor.assemble.job_efficiency import with_work
from tuiadvisor.efficiency.assess import Work, _contradiction, assess, compute_dtype
from tuiadvisor.efficiency.flops import attention_width, token_flops
from tuiadvisor.efficiency.gathering import believed, stack_of
from tuiadvisor.efficiency.peaks import device_of, has_tensor_cores, peak_of
from tuiadvisor.efficiency.roofline import OpWork, dot_of, roofline, sentences
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.events import NOTHING_GIVEN, GivenWork, MeasuredPeak
from tuiadvisor.session.machine import read_machine, save_ceiling
from tuiadvisor.text.efficiency import scaled, stack_facts
from tuiadvisor.text.roofline import letters
from tuiadvisor.views.efficiency import Efficiency, Stack
from tuiadvisor.views.run_view import StepSummary

H100 = "NVIDIA H100 80GB HBM3"
WORK = Work(step_s=0.1, num_ranks=8, world_size=8, tokens=65_536.0, samples=32.0, device="cuda", num_stages=1)


def dense(weights: int, layers: int, width: int, **more: int | str) -> Stack:
    """A dense transformer of which all weights are trained."""
    facts: dict[str, int | str] = {"mm": weights, "layers": layers, "attention_width": layers * width}
    ids = {"input": "4x2048", "input_dtype": "int64"}
    return Stack({**facts, **ids, "models": 1, "recompute": "no", "param_dtype": "bfloat16", **more})


@pytest.mark.parametrize(
    ("weights", "layers", "width", "length", "tokens_s", "devices", "peak", "published"),
    [
        # PaLM 540B, 2204.02311 table 3: 46.2 % of 6144 TPU v4 (275 TFLOP/s) at 238.3 k tokens/s.
        (540_350_000_000, 118, 48 * 256, 2048, 238_300, 6144, 275e12, 0.462),
        # Megatron-Turing NLG 530B, the same table: 30.2 % with attention, 2240 A100, 65.43 k tokens/s.
        (530_000_000_000, 105, 20_480, 2048, 65_430, 2240, 312e12, 0.302),
    ],
)
def test_published_mfu_comes_out(  # noqa: PLR0917 - a row of a table
    weights: int,
    layers: int,
    width: int,
    length: int,
    tokens_s: float,
    devices: int,
    peak: float,
    published: float,
) -> None:
    each = token_flops(dense(weights, layers, width), length).model
    assert each is not None
    assert each * tokens_s / devices / peak == pytest.approx(published, abs=0.002)


def test_nanogpt_124m() -> None:
    """6 N + 12 L H Q T with nanoGPT's N: all but the positions, 123.65 M; ours leaves norms out too."""
    published = 6 * 123_653_376 + 12 * 12 * 12 * 64 * 1024
    ours = token_flops(dense(123_532_032, 12, 768), 1024)
    assert ours.model == pytest.approx(published, rel=0.002)
    assert ours.hardware == ours.model


LAYER = {"layers": 1, "attention_width": 1}  # of sequences without length: what is left are the weights


def test_frozen_parts_adapters_and_experts() -> None:
    """4 N where gradients pass through, 2 N before the first that is trained; k of E experts."""
    facts = {**LAYER, "mm": 10, "mm_frozen": 100, "mm_frozen_before": 40, "lora": 10, "recompute": "no"}
    assert token_flops(Stack(facts), 0).model == 6 * 10 + 4 * 60 + 2 * 40
    mixture = Stack({**LAYER, "mm": 1000, "mm_expert": 800, "experts": 8, "top_k": 2, "recompute": "no"})
    assert token_flops(mixture, 0).model == 6 * (200 + 800 / 4)
    in_part = {**LAYER, "mm": 60, "mm_frozen": 40, "lora": 4, "mm_expert": 95, "experts": 20, "top_k": 1}
    assert token_flops(Stack(in_part), 0).model is None  # it was -20
    assert "which of its experts are frozen" in token_flops(Stack(in_part), 0).why
    unclear = replace(mixture, facts={**mixture.facts, "top_k": 0})
    assert token_flops(unclear, 0).model is None
    assert "experts" in token_flops(unclear, 0).why


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"mm": 100}, "recognized as attention"),
        ({**LAYER, "mm": 100, "config_layers": 12}, "shared"),
        ({**LAYER, "mm": 100, "mm_frozen": 50}, "frozen"),
    ],
)
def test_where_weights_may_be_used_otherwise_nothing_is_counted(facts: dict[str, int], why: str) -> None:
    """A classifier, an unrolled cell, shared layers, a teacher: up to 64 times too much by the formula."""
    found = token_flops(Stack(facts), 8)
    assert found.model is None
    assert why in found.why
    assert "capture RANK --flops" in found.why


def test_full_recomputation_is_a_third_more() -> None:
    """8 N against 6 N; where it cannot be told, HFU is unknown and not MFU."""
    again = Stack({**LAYER, "mm": 100, "mm_recomputed": 100, "recompute": "yes"})
    found = token_flops(again, 0)
    assert found.model == 600
    assert found.hardware == 800
    assert token_flops(Stack({**LAYER, "mm": 100, "recompute": "maybe"}), 0).hardware is None


def test_attention_by_what_was_seen_else_by_the_configuration() -> None:
    assert attention_width(dense(1, 4, 256)) == 1024
    config = Stack({"layers": 2, "attention_unclear": 1, "config_layers": 2, "config_hidden": 64})
    assert attention_width(config) == 128
    assert attention_width(Stack({"layers": 2})) is None
    assert attention_width(Stack({"mm": 5})) == 0
    windowed = dense(10, 1, 10, config_window=4)
    assert token_flops(windowed, 100).attention == 12 * 10 * 4


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        ({}, "no model was seen"),
        ({"mm": 100, "cut": 1}, "more modules"),
        ({"mm": 100, "not_looked_at": 1}, "could not be looked at"),
        ({"mm": 100, "uninitialized": 2}, "lazy"),
        ({"mm": 100, "quantized": 1}, "quantized"),
        ({"mm": 100, "conv": 50}, "convolutions"),
        (
            {"mm": 100, "models": 2},
            "2 models are trained together; count them: tuiadvisor capture RANK --flops",
        ),
        ({"mm": 100, "encoder_decoder": 1}, "encoder"),
        ({"mm": 100, "sharding": "tensor parallel: sizes of one rank"}, "shards"),
        ({"params": 5}, "no weight"),
    ],
)
def test_unknown_says_what_to_state(facts: dict[str, int | str], word: str) -> None:
    found = assess(
        Stack({**facts, "device_name": H100, "param_dtype": "bfloat16"} if facts else {}), WORK, NOTHING_GIVEN
    )
    assert found.mfu is None
    assert found.flops_per_step is None
    assert found.why is not None
    assert word in found.why
    assert "--flops-per-step" in found.why


@pytest.mark.parametrize(
    ("name", "tflops"),
    [
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H200", 989),
        ("NVIDIA H20", 148),
        ("NVIDIA GB200", 2500),
        ("NVIDIA B200", 2250),
        ("NVIDIA L40S", 362),
        ("NVIDIA L4", 121),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA A10", 125),
        ("NVIDIA A10G", 70),
        ("NVIDIA GeForce RTX 4090", 165.2),
        ("AMD Instinct MI300X", 1307),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("NVIDIA L40", None),
        ("NVIDIA Future X9", None),
        ("Tesla V100-SXM2-32GB", None),
    ],
)
def test_peaks_by_the_longest_name(name: str, tflops: float | None) -> None:
    peak = peak_of(name, "bfloat16")
    assert peak.flops == (None if tflops is None else tflops * 1e12)
    assert bool(peak.why) == (tflops is None)


def test_volta_has_tensor_cores_for_fp16_alone() -> None:
    assert peak_of("Tesla V100-SXM2-32GB", "float16").flops == 125e12
    assert has_tensor_cores("Tesla V100-SXM2-32GB")
    assert not has_tensor_cores("NVIDIA Future X9")
    assert device_of("") is None


def test_mfu_of_a_job_and_its_judgement() -> None:
    stack = dense(1_000_000_000, 24, 2048, device_name=H100)
    found = assess(stack, replace(WORK, step_s=0.14), NOTHING_GIVEN)
    flops = (6e9 + 12 * 24 * 2048 * 2048) * 65_536
    assert found.flops_per_step == pytest.approx(flops)
    assert found.mfu == pytest.approx(flops / 0.14 / 8 / 989e12)
    assert found.judgement == "good"
    assert found.peak_source
    slow = assess(stack, replace(WORK, step_s=1.0), NOTHING_GIVEN)
    assert slow.judgement == "poor"
    fast = assess(stack, replace(WORK, step_s=0.005), NOTHING_GIVEN)
    assert fast.mfu is None  # ten times the peak
    assert "contradict" in (fast.why or "")
    assert assess(dense(10**9, 24, 2048, device_name=H100, fp8=1), WORK, NOTHING_GIVEN).judgement == ""
    clocked = assess(stack, replace(WORK, step_s=0.2, clock_mhz=1830 / 2), NOTHING_GIVEN)
    assert clocked.mfu_of_clock == pytest.approx(2 * (clocked.mfu or 0.0))


def why(stack: Stack, given: GivenWork = NOTHING_GIVEN, **more: object) -> str:
    """Why there is no MFU."""
    return assess(stack, replace(WORK, **more), given).why or ""  # type: ignore[arg-type]


def test_every_gap_says_what_would_fill_it() -> None:
    """Each by itself, in the order in which a user would meet them."""
    stack = dense(10**9, 24, 2048, device_name=H100)
    assert "no steady step was seen yet" == why(stack, step_s=None)
    assert "the precision of its matrices was not seen: state --peak-flops" == why(
        replace(stack, facts={**stack.facts, "param_dtype": ""})
    )
    assert "the device's name was not seen: state --peak-flops" == why(
        replace(stack, facts={**stack.facts, "device_name": ""})
    )
    flat = replace(stack, facts={**stack.facts, "input": "", "input_dtype": "int64"})
    assert why(flat, tokens=None, samples=None).startswith("the length of a sequence was not seen")
    uncounted = replace(stack, facts={**stack.facts, "micro_steps": 0})
    assert "how many tokens a step works on was not seen" in why(uncounted, tokens=None, samples=None)
    images = replace(uncounted, facts={**uncounted.facts, "input": "4x3x8x8"})
    assert "its input is images or the like" in why(images, tokens=None, samples=None)
    no_width = replace(stack, facts={**stack.facts, "attention_width": 0})
    assert "the width of its attention was not seen: state --flops-per-step" == why(no_width)


@pytest.mark.parametrize(
    ("facts", "device", "dtype"),
    [
        ({"param_dtype": "float32"}, "cuda", "float32"),
        ({"param_dtype": "float32", "tf32": 1}, "cuda", "tf32"),
        ({"param_dtype": "float32", "tf32": 1}, "cpu", "float32"),
        ({"param_dtype": "float32", "autocast": "float16"}, "cuda", "float16"),
        ({"param_dtype": "bfloat16", "autocast": "off"}, "cuda", "bfloat16"),
        ({"param_dtype": "float32", "mixed_precision": "bfloat16", "tf32": 1}, "cuda", "bfloat16"),
        ({"autocast": "fp8"}, "cuda", "fp8"),
        ({}, "cuda", ""),
    ],
)
def test_the_precision_is_that_of_the_products(facts: dict[str, int | str], device: str, dtype: str) -> None:
    """A context wins over what the weights are held in; TF32 is of devices."""
    assert dtype == compute_dtype(Stack(facts), device)


def test_what_makes_a_figure_uncertain_is_noted() -> None:
    """Beside the figure, which stands."""
    stack = replace(
        dense(10**9, 24, 2048, device_name=H100, recompute="maybe"), differing=("params", "class")
    )
    found = assess(stack, replace(WORK, step_s=0.14, num_ranks=4), NOTHING_GIVEN)
    assert found.mfu is not None
    assert found.hfu is None
    assert (
        "of 4 of 8 ranks: those whose steps could be compared",
        "ranks differ in params, class",
        "HFU is unknown: a forward may recompute parts, and which was not seen",
    ) == found.notes


def test_stated_figures_are_of_the_whole_job_and_need_no_precision() -> None:
    given = GivenWork(flops_per_step=10**13, peak_flops=10**14)
    found = assess(Stack(), replace(WORK, num_ranks=4), given)
    assert found.mfu == pytest.approx(1e13 / 0.1 / 8 / 1e14)
    assert found.flops_source == "stated"


def test_tokens_by_the_shape_where_no_loader_counts() -> None:
    stack = dense(10**9, 24, 2048, device_name=H100, input="4x2048", input_dtype="int64", micro_steps=2)
    found = assess(stack, replace(WORK, tokens=None, samples=None), NOTHING_GIVEN)
    assert found.tokens_per_step == 4 * 2048 * 2 * 8
    images = dense(
        10**9, 24, 2048, device_name=H100, input="4x3x224x224", input_dtype="float32", micro_steps=1
    )
    unknown = assess(images, replace(WORK, tokens=None, samples=32.0), NOTHING_GIVEN)
    assert unknown.mfu is None
    assert "images" in (unknown.why or "") or "length" in (unknown.why or "")


def test_a_row_with_its_target_has_one_token_more_than_the_model_sees() -> None:
    """x, y = batch[:, :-1], batch[:, 1:]: the model works on one id less a row."""
    stack = dense(10**9, 24, 2048, device_name=H100, input="8x64", input_dtype="int64", micro_steps=1)
    assert assess(stack, replace(WORK, tokens=520.0, samples=8.0), NOTHING_GIVEN).tokens_per_step == 512
    assert assess(stack, replace(WORK, tokens=528.0, samples=8.0), NOTHING_GIVEN).tokens_per_step == 528


def test_ranks_of_one_tensor_parallel_group_see_one_batch() -> None:
    stack = dense(10**9, 24, 2048, device_name=H100, mesh="dp=4 tp=2", sharding="DTensor: whole sizes")
    half = assess(stack, WORK, NOTHING_GIVEN)
    whole = assess(replace(stack, facts={**stack.facts, "mesh": "dp=8"}), WORK, NOTHING_GIVEN)
    assert half.flops_per_step == pytest.approx((whole.flops_per_step or 0.0) / 2)


def test_a_pipeline_and_an_unknown_device_stay_unknown() -> None:
    stack = dense(10**9, 24, 2048, device_name=H100)
    assert "pipeline" in (assess(stack, replace(WORK, num_stages=4), NOTHING_GIVEN).why or "")
    other = assess(dense(10**9, 24, 2048, device_name="Strange 1"), WORK, NOTHING_GIVEN)
    assert other.mfu is None
    assert other.flops_per_step
    assert "--peak-flops" in (other.why or "")


def test_a_cpu_is_held_against_what_was_measured_with_its_threads(tmp_path: Path) -> None:
    stack = dense(10**6, 2, 64, threads=2)
    stack.facts["param_dtype"] = "float32"
    work = replace(WORK, device="cpu", num_ranks=1, world_size=1, step_s=10.0)
    alone = assess(stack, work, NOTHING_GIVEN)
    assert "doctor --measure --threads 2" in (alone.why or "")
    path = tmp_path / "machine.json"
    for threads in (1, 2):
        save_ceiling(
            {"kind": "peak", "threads": threads, "flops_s": {"float32": threads * 1e11}, "bytes_s": 1e10},
            path,
        )
    peaks = read_machine(path).peaks
    assert {one.threads for one in peaks} == {1, 2}
    found = assess(stack, work, GivenWork(measured=peaks))
    assert found.peak_flops == 2e11
    assert found.ridge_flop_byte == 20
    assert found.judgement == ""
    save_ceiling({"kind": "peak", "threads": 0, "flops_s": {}}, path)
    with pytest.raises(TuiadvisorError, match="measure again"):
        read_machine(path)


def test_facts_of_strangers_are_believed_by_type() -> None:
    told = {
        "mm": 5,
        "neg": -1,
        "class": "A\nB",
        "big": 1 << 70,
        "autocast": "off",
        "x y": 1,
        "f": 1.5,
        "flag": True,
    }
    assert believed(told) == {"mm": 5, "autocast": "off", "flag": True}
    assert believed([1]) == {}
    found = stack_of({1: {"mm": 5, "autocast": "off"}, 0: {"mm": 5, "autocast": "bfloat16"}, 2: {}})
    assert found is not None
    assert found.text("autocast") == "bfloat16"
    assert found.differing == ("autocast",)
    assert stack_of({0: {}}) is None


def test_what_one_rank_did_not_see_is_no_difference() -> None:
    """Input and precision are read in a single forward, and that of rank 0 may not have come by."""
    seen: dict[str, int | str] = {"mm": 5, "autocast": "off", "input": "4x64", "input_dtype": "int64"}
    found = stack_of({0: {"mm": 5}, 1: seen, 2: {**seen, "autocast": "bfloat16"}})
    assert found is not None
    assert found.facts == seen
    assert found.differing == ("autocast",)
    without = stack_of({0: {"mm": 5}, 1: {"mm": 5, "wrappers": "DDP"}})
    assert without is not None
    assert without.differing == ("wrappers",)  # its absence is an answer


def test_a_loader_is_told_as_one_rank_has_it() -> None:
    """Without workers there is nothing to prefetch: another rank's answer to that is not this one's."""
    loader: dict[str, int | str] = {"workers": 2, "pin_memory": 0, "prefetch": 2}
    found = stack_of({0: {"mm": 5, "workers": 0, "pin_memory": 0}, 1: {"mm": 5, **loader}})
    assert found is not None
    assert found.facts == {"mm": 5, "workers": 0, "pin_memory": 0}
    assert found.differing == ("prefetch", "workers")


def work(name: str, flops: float, num_bytes: float, seconds: float) -> OpWork:
    return OpWork(name, "8x8", "float32", 2, seconds, flops, num_bytes)


def test_roof_memory_and_compute() -> None:
    low = dot_of(work("a", 1e9, 1e9, 0.5), 1e11, 1e10)  # 1 FLOP a byte: 1e10 FLOP/s at best, 2e9 reached
    assert (low.bound, low.of_roof) == ("memory", pytest.approx(0.2))
    high = dot_of(work("b", 1e11, 1e9, 2.0), 1e11, 1e10)
    assert (high.bound, high.of_roof) == ("compute", pytest.approx(0.5))
    assert dot_of(work("c", 1e9, 1e9, 1.0), None, None).bound is None


def test_roofline_of_a_cpu_trace_in_letters_and_words() -> None:
    works = [work("mm", 1e11, 1e9, 2.0), work("bmm", 1e9, 1e9, 0.5), work("add", 0.0, 0.0, 1.0)]
    measured = (MeasuredPeak("float32", 1, 1e11, 1e10),)
    held = roofline(works, None, 1, measured, on_cpu=True)
    assert held.ridge == 10
    assert held.counted_s == 2.5
    assert held.other_s == 1.0
    assert "compute-bound, at 50 %" in sentences(held)[1]
    assert "lower precision" not in " ".join(sentences(held))  # on a CPU it seldom is faster
    on_device = sentences(replace(held, device="NVIDIA H200"))
    assert on_device[1].endswith("larger or better aligned sizes, or a lower precision.")
    rows = letters(held)
    assert all(len(row) <= 80 for row in rows[:16])
    assert any("ridge 10.0" in row for row in rows)
    # A ridge far to the right: it was written over ("ridg3,838 FLOP/byte").
    far = roofline([work("bmm", 1e6, 1e9, 0.5)], None, 1, measured, on_cpu=True)
    axis = next(row for row in letters(far) if "FLOP/byte" in row)
    assert "ridge 10.0 " in axis
    assert axis.endswith(" FLOP/byte")
    assert "measured" in roofline(works, None, 2, measured, on_cpu=True).why  # other threads
    assert letters(roofline([], None, on_cpu=True))[0].startswith("roofline unknown")
    assert roofline(works, H100, on_cpu=False).peak_flops == 67e12


def test_figures_in_words() -> None:
    assert scaled(989e12, "FLOP/s") == "989 TFLOP/s"
    assert scaled(None, "FLOP") == "unknown"
    assert Efficiency().mfu is None


def stepped(**more: float | tuple[str, ...]) -> StepSummary:
    """Ten steps a second."""
    nothing: dict[str, float | None] = {}
    step = StepSummary(0.1, 0.1, 10.0, None, None, nothing, nothing)
    return replace(step, mean_s=0.1, mean_with_pauses_s=0.1, **more)  # type: ignore[arg-type]


TENSOR_PARALLEL = "dp=2 tp=4"


def test_ranks_that_see_one_batch_do_not_count_it_twice() -> None:
    """4 of 8 ranks each work on the same rows: tokens a step times FLOPs a token are the FLOPs of a step."""
    stack = dense(10**9, 24, 2048, device_name=H100, mesh=TENSOR_PARALLEL, micro_steps=1)
    found = assess(stack, WORK, NOTHING_GIVEN)
    assert found.tokens_per_step == WORK.tokens / 4  # type: ignore[operator]
    assert found.flops_per_step == pytest.approx(found.tokens_per_step * (found.flops_per_token or 0))
    step = with_work(stepped(throughput_samples_s=320.0, throughput_tokens_s=655_360.0), stack, found, 8)
    assert (step.throughput_samples_s, step.throughput_tokens_s) == (80.0, pytest.approx(163_840.0))
    stated = replace(NOTHING_GIVEN, tokens_per_step=65_536)
    assert assess(stack, WORK, stated).tokens_per_step == 65_536
    given = stepped(throughput_samples_s=320.0, throughput_tokens_s=655_360.0, given=("samples", "tokens"))
    assert with_work(given, stack, found, 8) == given


def test_stages_of_a_pipeline_share_a_batch_without_a_mesh_too() -> None:
    """The last stage loads the targets of what the first one loads: 2 stages were told twice the samples a second."""
    floats = replace(dense(10**9, 24, 2048), facts={"class": "Part", "stages": 2, "input": "16x256"})
    step = with_work(stepped(throughput_samples_s=2560.0), floats, assess(floats, WORK, NOTHING_GIVEN), 2, 2)
    assert step.throughput_samples_s == 1280.0
    named = replace(floats, facts={**floats.facts, "mesh": "dp=2 pp=2"})  # the mesh names them: not twice
    step = with_work(stepped(throughput_samples_s=2560.0), named, assess(named, WORK, NOTHING_GIVEN), 4, 4)
    assert step.throughput_samples_s == 1280.0


def test_of_stages_alone_nothing_is_said_of_the_model() -> None:
    """A rank of an interleaved schedule holds several, none of which is the model: their batch is one all the same."""
    alone = Stack({"stages": 2})
    step = with_work(stepped(throughput_samples_s=2560.0), alone, assess(alone, WORK, NOTHING_GIVEN), 2, 2)
    assert step.throughput_samples_s == 1280.0
    assert [] == stack_facts(alone)


def test_samples_and_tokens_a_second_are_those_that_mfu_rests_on() -> None:
    """Where no loader tells them: rows of ids by the shape of a call, of all micro-batches and ranks."""
    stack = dense(10**9, 24, 2048, device_name=H100, micro_steps=2)
    found = assess(stack, replace(WORK, tokens=None, samples=None), NOTHING_GIVEN)
    step = with_work(stepped(), stack, found, 8)
    assert step.throughput_samples_s == 4 * 2 * 8 / 0.1
    assert step.throughput_tokens_s == (found.tokens_per_step or 0) / 0.1 == 4 * 2048 * 2 * 8 / 0.1
    images = replace(stack, facts={**stack.facts, "input_dtype": "float32"})
    unknown = with_work(stepped(), images, assess(images, WORK, NOTHING_GIVEN), 8)
    assert unknown.throughput_samples_s is unknown.throughput_tokens_s is None


@pytest.mark.parametrize(
    ("flops", "said"),
    [
        (3.0, "300 % of the peak cannot be"),
        (2.5e13, "more than 10 times the peak cannot be"),  # "2494396937494182% of the peak"
    ],
)
def test_more_than_the_peak_is_a_contradiction_in_one_line(flops: float, said: str) -> None:
    assert f"the figures contradict each other: {said}: FLOPs or peak are wrong" == _contradiction(flops)
