"""FLOPs of operators in a trace with shapes: against torch's own counter, on a device, nested, damaged."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import pytest
from test_import_kineto import event, trace
from test_import_recording import imported

from tuiadvisor.cli import main, measuring
from tuiadvisor.cli.measuring import measure_peak, measured_lines
from tuiadvisor.cli.roof import summary_with_roof
from tuiadvisor.efficiency.assess import with_counted
from tuiadvisor.efficiency.roofline import OpWork, roofline, sentences
from tuiadvisor.errors import FailureError
from tuiadvisor.events import MeasuredPeak
from tuiadvisor.importers.kinetoreport import kineto_document, kineto_summary
from tuiadvisor.importers.opflops import OpShapes
from tuiadvisor.importers.tracework import roofline_of
from tuiadvisor.text.efficiency import efficiency_facts
from tuiadvisor.views.efficiency import Arithmetic, Efficiency

torch = pytest.importorskip("torch")


def operator(name: str, dims: list[list[int]], number: int, concrete: tuple[str, ...] = ()) -> dict[str, Any]:
    arguments = {"External id": number, "Input Dims": dims, "Input type": ["c10::BFloat16"] * len(dims)}
    return {"name": name, "tid": 1, "args": {**arguments, "Concrete Inputs": list(concrete)}}


def kernel(number: int) -> dict[str, Any]:
    return {"name": "gemm", "cat": "kernel", "args": {"External id": number}}


def test_counts_of_each_kind() -> None:
    """Products, attention and convolutions by hand."""
    query = [[2, 4, 16, 8]] * 3
    gradient = [[2, 4, 16, 8]] * 4
    stride = ("", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1")
    cases = [
        (operator("aten::mm", [[3, 5], [5, 7]], 1), 2 * 3 * 5 * 7),
        (operator("aten::addmm", [[7], [3, 5], [5, 7]], 2), 2 * 3 * 5 * 7),
        (operator("aten::bmm", [[4, 3, 5], [4, 5, 7]], 3), 4 * 2 * 3 * 5 * 7),
        (operator("aten::_scaled_dot_product_flash_attention", query, 4), 2 * 2 * 2 * 4 * 16 * 16 * 8),
        (
            operator("aten::_scaled_dot_product_flash_attention_backward", gradient, 5),
            5 * 2 * 2 * 4 * 16 * 16 * 8,
        ),
        (
            operator("aten::convolution", [[2, 3, 8, 8], [6, 3, 3, 3], [6]], 6, stride),
            2 * 2 * 4 * 4 * 6 * 3 * 9,
        ),
        (operator("aten::relu", [[5, 5]], 7), 0),
        (operator("aten::mm", [[3]], 8), 0),
    ]
    for one, flops in cases:
        shapes = OpShapes()
        shapes.operator(one, 0, 1000)
        (work,) = shapes.works()
        assert work.flops == flops, one["name"]
        assert work.dtype == "bfloat16"


def test_kernels_belong_to_the_operator_that_is_counted() -> None:
    """What attention calls inside launches its kernels; an operator beside it keeps its own."""
    shapes = OpShapes()
    shapes.operator(operator("aten::_scaled_dot_product_flash_attention", [[1, 2, 4, 8]] * 3, 1), 0, 100)
    shapes.operator(operator("aten::_flash_attention_forward", [[1, 4, 2, 8]] * 3, 2), 10, 50)
    shapes.operator(operator("aten::relu", [[4]], 3), 200, 10)
    for number, spent in ((2, 3000), (3, 500), (99, 7)):
        shapes.kernel(kernel(number), spent)
    found = {work.name: work.seconds for work in shapes.works()}
    assert found == {"_scaled_dot_product_flash_attention": 3e-6, "relu": 5e-7}


def test_time_inside_is_counted_once() -> None:
    shapes = OpShapes()
    shapes.operator(operator("aten::linear", [[3, 5], [7, 5]], 1), 0, 100)
    shapes.operator(operator("aten::addmm", [[7], [3, 5], [5, 7]], 2), 10, 80)
    shapes.operator(operator("aten::copy_", [[3, 7]], 3), 20, 30)
    found = {work.name: work.seconds for work in shapes.works()}
    assert found == {"linear": pytest.approx(20e-9), "addmm": pytest.approx(80e-9)}


def test_a_true_trace_against_torchs_counter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Linear and convolution, forward and backward: what FlopCounterMode says, step by step."""
    from torch.utils.flop_counter import FlopCounterMode

    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, stride=2), torch.nn.Flatten(), torch.nn.Linear(8 * 49, 16)
    )
    image = torch.randn(4, 3, 16, 16)

    def step() -> None:
        model(image).sum().backward()

    step()
    with FlopCounterMode(display=False) as counter:
        step()
    with torch.profiler.profile(record_shapes=True) as profiler:
        for number in range(3):
            with torch.profiler.record_function(f"ProfilerStep#{number}"):
                step()
    profiler.export_chrome_trace(str(tmp_path / "rank0.json"))
    measured = (MeasuredPeak("float32", 1, 1e12, 1e10),)
    document = kineto_document(tmp_path, measured)
    found = document["efficiency"]
    assert found["flops_per_step"] == pytest.approx(counter.get_total_flops(), rel=0.01)
    assert found["steps"] == 3
    assert found["mfu"] is None
    assert 0 < found["hfu"] < 1
    assert found["bound"] in {"memory", "compute"}
    assert roofline_of(json.loads(json.dumps(found))).ridge == 100
    text = summary_with_roof(document)
    assert "roofline: CPU, fp32" in text
    assert "--flops-per-step" in text
    # As a recording: no model, and the FLOPs of the trace as a row.
    _, view = imported(tmp_path / "rank0.json", capsys)
    assert view.efficiency is not None
    assert found["flops_per_step"] == view.efficiency.flops_per_step
    assert view.efficiency.mfu is None
    assert "--flops-per-step" in (view.efficiency.why or "")
    row = dict(efficiency_facts(view))["FLOPs a step, all devices"]
    assert row.endswith("FLOP (counted by the shapes of operators in the trace)")


SHAPED = {"External id": 1, "Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"]}
FLOPS = 2.0 * 64**3  # of a step


def shaped(
    path: Path, rank: int | None, world: int | None = None, at_us: float = 1e9, num_steps: int = 2
) -> None:
    """A rank's steps of 10 ms on a device, each with one product of matrices."""
    events = []
    for step in range(num_steps):
        at = at_us + 10_000 * step
        events += [
            event(f"ProfilerStep#{step}", at, 10_000, "user_annotation"),
            event("aten::mm", at + 10, 100, "cpu_op", **SHAPED | {"External id": step + 1}),
            event("ampere_sgemm_128x64_nn", at + 50, 8_000, stream=7, **{"External id": step + 1}),
        ]
    trace(path, events, rank, world)


def test_flops_of_a_job_are_those_of_its_ranks(tmp_path: Path) -> None:
    """Ranks without a trace compute as the others do: the world, or the highest rank, says how many there are."""
    for rank in (0, 3):
        shaped(tmp_path / f"rank{rank}.json", rank)
    assert 4 * FLOPS == kineto_document(tmp_path)["efficiency"]["flops_per_step"]
    shaped(tmp_path / "rank0.json", 0, 8)
    shaped(tmp_path / "rank3.json", 3, 8)
    assert 8 * FLOPS == kineto_document(tmp_path)["efficiency"]["flops_per_step"]


NOT_SUMMED = {
    "no ranks": (None, None, "they may be of several jobs"),
    "one rank twice": (0, 0, "they may be of several jobs"),
    "one unknown": (0, None, "they may be of several jobs"),
}


@pytest.mark.parametrize("case", NOT_SUMMED)
def test_flops_of_unrelated_traces_are_not_summed(tmp_path: Path, case: str) -> None:
    """Two models traced into one folder had their FLOPs added, as those of all ranks."""
    first, second, why = NOT_SUMMED[case]
    shaped(tmp_path / "bert.json", first)
    shaped(tmp_path / "qwen.json", second, at_us=1e9 + 7)  # what is alike to the nanosecond is one trace
    document = kineto_document(tmp_path)
    assert document["efficiency"]["flops_per_step"] is None
    (note,) = document["efficiency"]["notes"]
    assert why in note
    assert "FLOPs of bert.json alone" in kineto_summary(document)


@pytest.mark.parametrize(("world", "at_us"), [(8, 1.7e15), (4, 1.7e15 + 1e11)])
def test_traces_of_two_jobs_are_no_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], world: int, at_us: float
) -> None:
    """Their steps would be aligned as those of ranks, and their FLOPs added; of another size, or a day apart."""
    shaped(tmp_path / "rank0.json", 0, 4, 1.7e15)
    shaped(tmp_path / "rank1.json", 1, world, at_us)
    document = kineto_document(tmp_path)
    assert document["efficiency"]["flops_per_step"] is None
    assert "traces of different" in document["efficiency"]["notes"][0]
    assert 2 == main(["import", "kineto", str(tmp_path), "-o", str(tmp_path / "run.tuirec")])
    assert "traces of different" in capsys.readouterr().err


def test_a_recording_of_a_trace_shows_its_flops(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Screen F said that no model was seen, and had no row of what the trace tells; what it reaches is HFU."""
    shaped(tmp_path / "rank0.json", 0, 4, num_steps=40)
    document, view = imported(tmp_path / "rank0.json", capsys)
    assert 4 * FLOPS == document["efficiency"]["flops_per_step"]
    found = view.efficiency
    assert found is not None
    assert (4 * FLOPS, 4) == (found.flops_per_step, found.num_devices)
    assert FLOPS / 0.01 == pytest.approx(found.flops_s_per_device, rel=0.01)
    assert "that is HFU" in (found.why or "")


def test_counted_flops_stand_behind_those_of_the_model_and_never_above_the_peak() -> None:
    counted = Arithmetic(1e12, 1e12, "data sheet", "bfloat16", 10.0, "memory")
    found = with_counted(Efficiency(why="no model"), counted, 2.0, 4)
    assert (0.125, None, "memory") == (found.hfu, found.mfu, found.bound)
    assert with_counted(Efficiency(flops_per_step=5.0), counted, 2.0, 4) == Efficiency(flops_per_step=5.0)
    beyond = with_counted(Efficiency(), counted, 0.1, 4)
    assert (None, 1e12) == (beyond.hfu, beyond.flops_per_step)
    assert "250 % of the peak cannot be" in (beyond.why or "")
    assert 1e12 == with_counted(Efficiency(), counted, None, None).flops_per_step


def test_a_trace_without_shapes_says_how_to_get_them(tmp_path: Path) -> None:
    with torch.profiler.profile() as profiler:
        torch.randn(8, 8) @ torch.randn(8, 8)
    profiler.export_chrome_trace(str(tmp_path / "rank0.json"))
    document = kineto_document(tmp_path)
    assert document["efficiency"]["flops_per_step"] is None
    assert "record_shapes" in document["efficiency"]["why"]
    assert "roofline" not in summary_with_roof(document)


@pytest.fixture(scope="module")
def measured() -> tuple[dict[str, Any], float]:
    """What a process of one thread measures, and the processor time that it takes, in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = measure_peak(1, seconds=0.05)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


@pytest.mark.slow
def test_a_peak_is_measured_with_as_many_threads(measured: tuple[dict[str, Any], float]) -> None:
    found = measured[0]
    assert found["threads"] == 1
    assert found["flops_s"]["float32"] > 1e6
    assert found["bytes_s"] > 1e6
    assert "1 thread:" in measured_lines(found)[0]


def test_a_measurement_imports_nothing_from_where_we_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A torch of somebody else's in the current folder would run with our rights."""
    (tmp_path / "torch.py").write_text("raise SystemExit('a trap: torch')\n")
    (tmp_path / "json.py").write_text("raise SystemExit('a trap: json')\n")
    monkeypatch.chdir(tmp_path)
    assert measure_peak(1, seconds=0.05)["threads"] == 1


def test_a_measurement_that_does_not_end_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine, not the program that measures."""
    monkeypatch.setattr(measuring, "TIMEOUT_S", 0.001)
    with pytest.raises(FailureError) as raised:
        measure_peak(1, seconds=0.05)
    said = str(raised.value)
    assert "within 0.001 s" in said
    assert "nothing else" in said
    assert "import" not in said
    assert "\n" not in said


@pytest.mark.slow
def test_a_precision_that_this_processor_only_emulates_takes_no_longer_than_asked(
    measured: tuple[dict[str, Any], float],
) -> None:
    """Larger products only while the last one fitted: one in bfloat16 may take minutes without a unit for it.

    Processor time of the process that measures: how long it waited for a core is the machine's.
    """
    assert 0 < measured[1] < measuring.TIMEOUT_S / 4


def test_a_call_is_remembered_with_all_that_tells_it_from_others() -> None:
    """Same name and shapes: another type, or another stride of a convolution, is another work."""
    image, weight = [8, 3, 32, 32], [16, 3, 3, 3]

    def convolution(dtype: str, stride: str) -> tuple[object, ...]:
        shapes = OpShapes()
        # The other one first, so that it would be the one remembered.
        for at, (kind, step) in enumerate((("float", "[1, 1]"), (dtype, stride))):
            concrete = ["", "", "", step, "[0, 0]", "[1, 1]", "False", "[0, 0]", "1"]
            arguments = {"Input Dims": [image, weight, []], "Input type": [kind], "Concrete Inputs": concrete}
            event = {"name": "aten::convolution", "tid": 1, "args": arguments}
            shapes.operator(event, 1000 * at, 100)
        return tuple((one.dtype, one.flops) for one in shapes.works())

    (_, once), (dtype, again) = convolution("c10::BFloat16", "[1, 1]")
    assert (once, "bfloat16") == (again, dtype)
    ((_, both),) = convolution("float", "[2, 2]")
    assert both < 2 * once


def test_a_shape_nested_beyond_any_is_no_shape() -> None:
    """Its text cannot be made, so it is not remembered."""
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    shapes = OpShapes()
    shapes.operator({"name": "aten::mm", "tid": 1, "args": {"Input Dims": [nested]}}, 0, 100)
    ((flops,),) = [[one.flops] for one in shapes.works()]
    assert 0 == flops
    while nested:  # let go from outside in: freeing it at once would go as deep
        nested = nested[0]  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("name", "is_lever"),
    [("aten::addmm", True), ("aten::bmm", False), ("aten::_flash_attention_forward", False)],
)
def test_a_larger_batch_is_no_lever_of_what_belongs_to_each_sample(name: str, is_lever: bool) -> None:
    """Twice the samples are twice the operands of a batched product, and of attention."""
    bound = OpWork(name, "8x16x16", "bfloat16", 10, 1e-3, 1e6, 1e6)
    (_, lever) = sentences(roofline([bound], "NVIDIA H100 80GB HBM3", on_cpu=False))

    assert "memory-bound" in lever
    assert ("the lever is larger batches" in lever) == is_lever
