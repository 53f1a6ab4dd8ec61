"""PyTorch's execution traces (Chakra): operators, collectives and groups; times by the profiler's trace beside them.

The sample is laid out as torch 2.13 writes it (ExecutionTraceObserver, schema 1.1.1-chakra.0.0.4), and one test lets
torch write both.
"""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest
from fuzzing import chances, damaged

from tuiadvisor.cli import main
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers.chakra import chakra_document, chakra_summary

if TYPE_CHECKING:
    from pathlib import Path


def node(ids: tuple[int, int, int], name: str, shapes: list[Any], values: list[Any]) -> dict[str, Any]:
    """ids: its own, its parent's, of the record function."""
    number, parent, rf_id = ids
    nothing = {"values": [], "shapes": [], "types": [], "strides": []}
    attributes = {"rf_id": rf_id, "fw_parent": 0, "seq_id": -1, "scope": 0, "tid": 1}
    return {
        "id": number,
        "name": name,
        "ctrl_deps": parent,
        "inputs": {**nothing, "values": values, "shapes": shapes},
        "outputs": nothing,
        "attrs": [{"name": key, "type": "uint64", "value": value} for key, value in attributes.items()],
    }


def execution_trace(pid: int = 4711) -> dict[str, Any]:
    """A linear with its addmm, an all-reduce of 19,210 floats, the groups."""
    groups = [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1], "group_size": 2, "group_count": 1}]
    return {
        "schema": "1.1.1-chakra.0.0.4",
        "pid": pid,
        "time": "2026-11-23 22:02:14",
        "start_ts": 67224239,
        "nodes": [
            node((2, 1, 0), "[pytorch|profiler|execution_trace|thread]", [], []),
            node((3, 2, 1), "## process_group:init ##", [[]], [json.dumps(groups)]),
            node((5, 4, 8), "aten::addmm", [[256], [128, 64], [64, 256]], []),
            node((4, 2, 7), "aten::linear", [[128, 64], [256, 64], [256]], []),
            node(
                (9, 2, 136),
                "c10d::allreduce_",
                [[[19210]], []],
                [[[183, 106, 0, 19210, 4, "cuda:0"]], "<Object>"],
            ),
        ],
        "finish_ts": 67224286,
    }


def kineto(pid: int = 4711) -> dict[str, Any]:
    """The same operators with times: linear 100 us, of it addmm 70."""
    called = (("aten::linear", 7, 100.0), ("aten::addmm", 8, 70.0), ("c10d::allreduce_", 136, 20.0))
    common = {"ph": "X", "cat": "cpu_op", "pid": pid, "tid": 1, "ts": 1.0}
    events = [
        {**common, "name": name, "dur": dur, "args": {"Record function id": rf_id}}
        for name, rf_id, dur in called
    ]
    return {"schemaVersion": 1, "traceEvents": events, "traceName": "x"}


def test_alone_it_has_no_times(tmp_path: Path) -> None:
    """Operators, bytes and groups all the same."""
    path = tmp_path / "et.json"
    path.write_text(json.dumps(execution_trace()))
    told = chakra_document(path)
    assert [None] == list({row["own_s"] for row in told["operators"]})
    (call,) = told["collectives"]
    assert {"op": "allreduce", "bytes": 76_840, "calls": 1, "host_s": None} == call
    assert [{"name": "0", "description": "default_pg", "ranks": [0, 1], "size": 2}] == told["process_groups"]
    assert "unknown time" in chakra_summary(told)


@pytest.mark.parametrize("is_folder", [True, False])
def test_times_are_those_of_the_profilers_trace_of_the_same_process(tmp_path: Path, is_folder: bool) -> None:
    """An operator's own, without what it calls; another process's trace gives none."""
    (tmp_path / "et.json").write_text(json.dumps(execution_trace()))
    (tmp_path / "other.json").write_text(json.dumps(kineto(pid=1)))
    target = tmp_path if is_folder else tmp_path / "et.json"
    assert 0 == chakra_document(target)["source"]["timed"]
    (tmp_path / "trace.json").write_text(json.dumps(kineto()))
    told = chakra_document(target)
    assert 1 == told["source"]["timed"]
    own = {row["op"]: row["own_s"] for row in told["operators"]}
    assert {"aten::linear": 30e-6, "aten::addmm": 70e-6, "c10d::allreduce_": 20e-6} == pytest.approx(own)
    shapes = {row["op"]: row["shape"] for row in told["operators"]}
    assert "256·128x64·64x256" == shapes["aten::addmm"]
    assert pytest.approx(20e-6) == told["collectives"][0]["host_s"]


def test_open_knows_it_and_it_is_no_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is one is the profiler's trace."""
    path = tmp_path / "et.json"
    path.write_text(json.dumps(execution_trace()))
    assert 0 == main(["open", str(path)])
    assert "as: tuiadvisor import chakra" in capsys.readouterr().err
    assert 2 == main(["import", "chakra", str(path), "-o", str(tmp_path / "x.tuirec")])
    assert "import kineto -o takes the profiler's trace" in capsys.readouterr().err


def test_damaged_traces_get_an_answer_or_one_line(tmp_path: Path) -> None:
    """Bytes changed, cut, doubled."""
    path, refusals = tmp_path / "et.json", []
    for chance in chances(150):
        path.write_bytes(damaged(json.dumps(execution_trace()).encode(), chance))
        try:
            chakra_summary(chakra_document(path))
        except TuiadvisorError as error:
            refusals.append(str(error))
    assert refusals
    assert not any("\n" in said for said in refusals)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_what_torch_writes_is_joined_operator_by_operator(tmp_path: Path) -> None:
    """Both files of one window; the product of 128x64 by 64x256 is there with its time."""
    torch: Any = pytest.importorskip("torch")
    model = torch.nn.Linear(64, 256)
    observer = torch.profiler.ExecutionTraceObserver().register_callback(str(tmp_path / "et.json"))
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], execution_trace_observer=observer
    ) as profiler:
        model(torch.randn(128, 64)).sum().backward()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    told = chakra_document(tmp_path)
    assert 1 == told["source"]["timed"]
    (product,) = [row for row in told["operators"] if row["op"] == "aten::addmm"]
    assert "256·128x64·64x256" == product["shape"]
    assert product["own_s"] > 0


def test_traces_from_before_chakra_are_the_same(tmp_path: Path) -> None:
    """Schema 1.0.1, as torch 1.13 wrote it: the parent, inputs and the record function stand by themselves."""
    now = execution_trace()
    before = {"schema": "1.0.1", **{key: now[key] for key in ("pid", "time", "start_ts")}}
    before["nodes"] = [
        {
            **{key: one[key] for key in ("name", "id")},
            "parent": one["ctrl_deps"],
            "rf_id": one["attrs"][0]["value"],
            "tid": 1,
            "op_schema": "",
            "inputs": one["inputs"]["values"],
            "input_shapes": one["inputs"]["shapes"],
            "input_types": [],
            "outputs": [],
            "output_shapes": [],
            "output_types": [],
        }
        for one in now["nodes"]
    ]
    documents = []
    for name, content in (("now", now), ("before", before)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "et.json").write_text(json.dumps(content, indent=2))
        document = chakra_document(tmp_path / name)
        documents.append({key: document[key] for key in ("nodes", "operators", "collectives")})
    assert documents[0] == documents[1]
    assert documents[0]["collectives"]


def test_another_document_with_that_version_is_none(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"schema": "1.0.1", "results": [{"nodes": []}]}')
    with pytest.raises(TuiadvisorError, match="no execution trace in it"):
        chakra_document(tmp_path)


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def field(number: int, value: int | str | bytes) -> bytes:
    """As Protocol Buffers writes it: a number, or bytes with their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def linked(*rows: tuple[str, int, bool, int], comm_size: int = 4096) -> bytes:
    """Chakra's .et (schema/protobuf/et_def.proto): metadata, then nodes of name, type, on the host, microseconds."""
    messages = [field(2, field(1, "schema") + field(29, "1.0.1"))]
    for number, (name, kind, is_on_host, took) in enumerate(rows, 2):
        told = {"is_cpu_op": (27, int(is_on_host)), "rf_id": (9, number), "tid": (9, 1)}
        if kind == 7:
            told["comm_size"] = (9, comm_size)
        attributes = [field(10, field(1, key) + field(*value)) for key, value in told.items()]
        io = field(8, field(1, "[]") + field(2, "[[64]]"))
        duration = field(7, took) if took else b""
        messages.append(
            field(1, number) + field(2, name) + field(3, kind) + field(4, varint(1)) + duration + io
            + b"".join(attributes)
        )  # fmt: skip
    return b"".join(varint(len(message)) + message for message in messages)


ROWS = (
    ("aten::add(0)", 4, True, 30),
    ("vectorized_add(float)", 4, False, 200),
    ("aten::add(1)", 4, True, 12),
    ("aten::add(0)", 4, True, 0),
    ("c10d::allreduce_(0)", 7, True, 85),
    ("ncclDevKernel_AllReduce_Sum_f32(int)", 7, False, 900),
    ("c10d::allreduce_(1)", 7, True, 5),
)


@pytest.mark.parametrize("name", ["chakra.0.et", "rank0.et.gz", "anything"])
def test_a_linked_trace_has_times_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Parts of an operator are one call; a time that is left out is below a microsecond. By hand."""
    path = tmp_path / name
    path.write_bytes(gzip.compress(linked(*ROWS)) if name.endswith(".gz") else linked(*ROWS))
    assert 0 == main(["open", str(path), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (1, 7) == (told["source"]["timed"], told["nodes"])
    assert {"aten::add": (2, 42e-6), "c10d::allreduce_": (1, 90e-6)} == {
        row["op"]: (row["calls"], pytest.approx(row["own_s"])) for row in told["operators"]
    }
    assert [(900e-6, 1), (200e-6, 1)] == [
        (pytest.approx(row["seconds"]), row["calls"]) for row in told["kernels"]
    ]
    (call,) = told["collectives"]
    assert ("allreduce", 4096, 1, pytest.approx(90e-6)) == tuple(
        call[key] for key in ("op", "bytes", "calls", "host_s")
    )
    assert "aten::add" in chakra_summary(told)


@pytest.mark.slow
def test_a_linked_trace_that_is_cut_or_damaged_is_one_line(tmp_path: Path) -> None:
    good = linked(*ROWS * 40)
    path = tmp_path / "a.et"
    path.write_bytes(good[: len(good) - 7])
    with pytest.raises(TuiadvisorError, match="truncated"):
        chakra_document(path)
    refusals = []
    for chance in chances(200):
        path.write_bytes(damaged(good, chance))
        try:
            chakra_summary(chakra_document(path))
        except TuiadvisorError as error:
            refusals.append(str(error))
    assert refusals
    assert not any("\n" in said for said in refusals)


def test_a_trace_alone_needs_no_json_beside_it(tmp_path: Path) -> None:
    """Whatever its name is: it said that the folder has no .json files."""
    path = tmp_path / "et"
    path.write_text(json.dumps(execution_trace()))
    assert 5 == chakra_document(path)["nodes"]
