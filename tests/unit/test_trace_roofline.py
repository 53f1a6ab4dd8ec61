"""FLOPs of operators in a trace with shapes: against torch's own counter, on a device, nested, damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_import_recording import imported

from tuiadvisor.cli.measuring import measure_peak, measured_lines
from tuiadvisor.cli.roof import summary_with_roof
from tuiadvisor.events import MeasuredPeak
from tuiadvisor.importers.kinetoreport import kineto_document
from tuiadvisor.importers.opflops import OpShapes
from tuiadvisor.importers.tracework import roofline_of

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
    for event, flops in cases:
        shapes = OpShapes()
        shapes.operator(event, 0, 1000)
        (work,) = shapes.works()
        assert work.flops == flops, event["name"]
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
    # As a recording: no model, which is no reason to deny that the trace has FLOPs.
    _, view = imported(tmp_path / "rank0.json", capsys)
    assert view.efficiency is not None
    assert "no model was seen" not in (view.efficiency.why or "")
    assert "told by its import" in (view.efficiency.why or "")
    (told,) = [note for note in view.losses.notes if "FLOPs a step by the shapes" in note]
    assert f"--flops-per-step {found['flops_per_step']:.4g}" in told


def test_a_trace_without_shapes_says_how_to_get_them(tmp_path: Path) -> None:
    with torch.profiler.profile() as profiler:
        torch.randn(8, 8) @ torch.randn(8, 8)
    profiler.export_chrome_trace(str(tmp_path / "rank0.json"))
    document = kineto_document(tmp_path)
    assert document["efficiency"]["flops_per_step"] is None
    assert "record_shapes" in document["efficiency"]["why"]
    assert "roofline" not in summary_with_roof(document)


@pytest.mark.slow
def test_a_peak_is_measured_with_as_many_threads() -> None:
    found = measure_peak(1, seconds=0.05)
    assert found["threads"] == 1
    assert found["flops_s"]["float32"] > 1e6
    assert found["bytes_s"] > 1e6
    assert "1 thread:" in measured_lines(found)[0]


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
