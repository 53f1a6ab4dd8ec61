"""Files of other tools as they are found: restarted, merged, cut, with rows that nobody meant; what is said of them."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from test_import_ceilings import fio_text, job
from test_import_chakra import execution_trace, kineto
from test_import_communication_logs import inspected, table
from test_import_nsys import BASE, US, export, pid_of
from test_import_steplog import mllog, mlperf, record, titan

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.events import STEP_COLUMNS
from tuiadvisor.importers import fio, inspector, nsys, profiled, titanlog
from tuiadvisor.importers import mllog as mllogs
from tuiadvisor.importers.chakra import chakra_document, chakra_summary
from tuiadvisor.importers.deepspeed import deepspeed_document, deepspeed_summary
from tuiadvisor.importers.fio import fio_document
from tuiadvisor.importers.memory_timeline import memory_document, memory_summary
from tuiadvisor.importers.metricsreport import metrics_document, metrics_summary
from tuiadvisor.importers.nsys import processes
from tuiadvisor.importers.steplog import steplog_document, steplog_run, steplog_summary
from tuiadvisor.importers.titanlog import read_titan

if TYPE_CHECKING:
    from pathlib import Path

BEGUN_US = 1_700_000_000_000_000


def steps_of(path: Path) -> list[tuple[int, float]]:
    """(number, seconds) of the first rank's."""
    rows = steplog_run(path)[1].ranks[0].steps
    at = [STEP_COLUMNS.index(name) for name in ("step", "begin_ns", "end_ns")]
    return [(row[at[0]], (row[at[2]] - row[at[1]]) / 1e9) for row in rows]


def test_steps_done_again_after_a_restart_are_those_of_the_last_time(tmp_path: Path) -> None:
    """A file goes on where its job was started again: from a checkpoint, so numbers fall back."""
    lines = []
    for at, (number, length_ms) in enumerate([(1, 100), (2, 100), (3, 100), (2, 300), (3, 300), (4, 300)]):
        begin = BEGUN_US + 1_000_000 * at
        lines += [
            record("step_start", begin, 0, number),
            record("step_end", begin + 1000 * length_ms, 0, number),
        ]
    path = tmp_path / "rank0.jsonl"
    path.write_text("\n".join(lines))
    assert [(1, 0.1), (2, 0.3), (3, 0.3), (4, 0.3)] == steps_of(path)


def test_a_step_that_begins_within_another_is_left_out(tmp_path: Path) -> None:
    """Of two loops in one log the first one's steps are those of the recording."""
    lines = [
        record("step_start", BEGUN_US, 0, 1),
        record("step_start", BEGUN_US + 50_000, 0, 2, task_name="evaluation"),
        record("step_end", BEGUN_US + 90_000, 0, 2, task_name="evaluation"),
        record("step_end", BEGUN_US + 100_000, 0, 1),
    ]
    path = tmp_path / "rank0.jsonl"
    path.write_text("\n".join(lines))
    assert [(1, 0.1)] == steps_of(path)


def test_a_span_that_never_ended_takes_no_time(tmp_path: Path) -> None:
    """What it held belongs to what it was in; an end without a beginning ends nothing."""
    spans = [
        ("forward_end", 0),
        ("step_start", 0),
        ("outer_start", 5),
        ("optim_start", 10),
        ("optim_end", 30),
        ("step_end", 100),
    ]
    path = tmp_path / "rank0.jsonl"
    path.write_text("\n".join(record(name, BEGUN_US + 1000 * at, 0, 1) for name, at in spans))
    (rank,) = read_titan(path)
    assert {"optimizer": 20_000_000} == rank.steps[0].phases
    assert {"optim"} == rank.seen


def test_logs_that_name_no_rank_are_told_what_to_keep(tmp_path: Path) -> None:
    """Beside others that do they are left out, and counted."""
    folder = titan(tmp_path / "logs", num_steps=3)
    nameless = folder / "trainer.jsonl"
    told = [json.loads(line) for line in min(folder.iterdir()).read_text().splitlines()]
    lines = [{name: value for name, value in one.items() if "rank" not in name} for one in told]
    nameless.write_text("\n".join(map(json.dumps, lines)))
    document, run = steplog_run(folder)
    assert [0, 1, 2, 3] == [rank.rank for rank in run.ranks]
    assert "left out, of the same or of no rank: 1 file" in document["losses"]
    with pytest.raises(TuiadvisorError, match="do not say of which ranks they are: keep the field rank"):
        steplog_run(nameless)


def test_of_more_ranks_or_steps_than_can_be_the_first_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger's log cannot fill the memory."""
    folder = titan(tmp_path / "logs", num_steps=5)
    merged = tmp_path / "all.jsonl"
    merged.write_text("".join(path.read_text() for path in sorted(folder.iterdir())))
    monkeypatch.setattr(titanlog, "MAX_RANKS", 2)
    monkeypatch.setattr(titanlog, "MAX_STEPS", 3)
    assert [(0, 3), (1, 3)] == [(rank.rank, len(rank.steps)) for rank in read_titan(merged)]


def test_a_result_log_is_summed_up_in_lines(tmp_path: Path) -> None:
    """Its steps, the slow one, and what MLPerf's own lines say of the run."""
    summary = steplog_summary(steplog_document(mlperf(tmp_path, tracked=True)))
    assert "a result log of MLPerf, 40 steps (1 to 40)" in summary
    assert "MLPerf llama31_405b: run 114 s (success), 1 evaluation 30 s, start-up before it 60 s" in summary
    assert "slow: 17 (6 s)" in summary
    path = tmp_path / "result.txt"
    path.write_text("\n".join([mllog("run_start", 5_000), mllog("run_stop", 9_000)]))
    summary = steplog_summary(steplog_document(path))
    assert "MLPerf of a benchmark it does not name: run 4 s" in summary
    assert "no step" in summary


def test_lines_that_mlperf_would_not_write_change_nothing(tmp_path: Path) -> None:
    """No object, no key, no time, a batch with a fraction, a step number beyond what can be."""
    good = mlperf(tmp_path, tracked=True).read_text().splitlines()
    bad = [
        ":::MLLOG {}",
        "0: :::MLLOG " + json.dumps({"key": 7, "time_ms": 5}),
        "0: :::MLLOG " + json.dumps({"key": "run_stop"}),
        mllog("global_batch_size", 2, 16.5),
        mllog("tracked_stats", 70_000, {"train_step_time": 2.0}, step=(1 << 41)),
    ]
    expected = steplog_document(tmp_path / "result_0.txt")
    (tmp_path / "result_0.txt").write_text("\n".join([*good[:4], *bad, *good[4:]]))
    found = steplog_document(tmp_path / "result_0.txt")
    assert [expected[key] for key in ("window", "step", "mlperf", "losses")] == [
        found[key] for key in ("window", "step", "mlperf", "losses")
    ]


def test_counts_written_as_floats_are_counts(tmp_path: Path) -> None:
    """Some logs hold 16.0 samples."""
    text = mlperf(tmp_path, tracked=True).read_text()
    expected = steplog_document(tmp_path / "result_0.txt")
    (tmp_path / "result_0.txt").write_text(text.replace('"value": 16,', '"value": 16.0,'))
    assert expected == steplog_document(tmp_path / "result_0.txt")


def readiness(path: Path, *, times: list[Any] | None = None, **rows: list[Any]) -> dict[str, Any]:
    """The document of a file with these lists, sixty samples each."""
    named = {name.removeprefix("r"): values for name, values in rows.items()}
    path.write_text(json.dumps({"event_time": times or list(range(100, 160)), **named}))
    return metrics_document(path)


def test_a_rank_whose_data_is_late_is_told_with_its_times(tmp_path: Path) -> None:
    """As long as its peers' is ready; where nobody's is late that is said."""
    late = [1.0] * 10 + [0.1] * 40 + [1.0] * 10
    told = readiness(tmp_path / "a.json", r0=[0.9] * 60, r1=late, r2=[0.9] * 60)
    assert [1] == [one["rank"] for one in told["stragglers"]["ranks"]]
    assert "rank 1 waits for its data from 110 to 149: ready in 10 % of samples" in metrics_summary(told)
    told = readiness(tmp_path / "a.json", r0=[0.9] * 60, r1=[0.8] * 60)
    assert metrics_summary(told).endswith("2 ranks, 60 samples\nno rank's data is late against its peers'")


def test_a_time_that_is_not_known_is_not_said_to_be_zero(tmp_path: Path) -> None:
    """The clock may have gaps where values have none."""
    late = [0.1] * 60
    told = readiness(tmp_path / "a.json", times=[""] * 30 + [7] * 30, r0=[0.9] * 60, r1=late, r2=[0.9] * 60)
    assert "rank 1 waits for its data from an unknown time to 7: ready" in metrics_summary(told)
    told["episodes"][0]["begin_time"] = 1_754_964_240.0
    assert "from 2025-08-12 02:04:00 UTC to 7:" in metrics_summary(told)


def test_many_episodes_are_counted(tmp_path: Path) -> None:
    """The first few are shown, of the others how many."""
    away = ([0.1] * 20 + [1.0] * 5) * 10
    times = list(range(250))
    told = readiness(tmp_path / "a.json", times=times, r0=[0.9] * 250, r1=away, r2=[0.9] * 250)
    lines = metrics_summary(told).splitlines()
    assert (8, "and 2 more") == (sum("waits for its data" in line for line in lines), lines[-1])


@pytest.mark.parametrize(
    ("values", "why", "last"),
    [
        ([3.0, "", 5.0], "the values are no shares from 0 to 1", "means by rank 0: 4, 1: 4"),
        (["", "", ""], "no value was observed", ""),
    ],
)
def test_a_metric_that_is_no_share_has_means_alone(
    tmp_path: Path, values: list[Any], why: str, last: str
) -> None:
    """And one without any value has nothing: that is another reason."""
    told = readiness(tmp_path / "a.json", times=[1, 2, 3], r0=values, r1=values)
    assert [why] == [item["why"] for item in told["unknown"]]
    lines = metrics_summary(told).splitlines()
    assert last in lines[1:] if last else not any(line.startswith("means") for line in lines)


def test_memory_that_does_not_grow_is_not_said_to(tmp_path: Path) -> None:
    """Nor what was too short to tell."""
    path = tmp_path / "m.json"
    for num, growth in ((40, 0), (4, None)):
        path.write_text(json.dumps([list(range(num)), [[0, 7 << 20, *[0] * 7]] * num]))
        told = memory_document(path)
        assert (growth, "its minimum rose" in memory_summary(told)) == (told["growth_bytes"], False)


def test_a_long_table_of_deepspeed_is_cut_with_a_count(tmp_path: Path) -> None:
    """The most expensive rows come first."""
    head, *_ = table().splitlines()
    rows = ["all_reduce"]
    rows += [
        f"{'':20}{size}.0 KB{'':10}10{'':10}{100.0 - size}{'':10}5.0{'':10}1.0{'':10}1.0"
        for size in range(1, 16)
    ]
    path = tmp_path / "a.log"
    path.write_text("\n".join([head, *rows]))
    document = deepspeed_document(path)
    assert (15, 1024) == (len(document["collectives"]), document["collectives"][0]["bytes"])
    assert "and 3 more" in deepspeed_summary(document)


@pytest.mark.parametrize("time", ["nan", "inf", "-602.29"])
def test_a_row_of_deepspeed_without_numbers_is_said_to_be_missing(tmp_path: Path, time: str) -> None:
    """The sum of the others is not all communication."""
    head, *_ = table().splitlines()
    row = f"{'':20}%d.0 KB{'':10}10{'':10}%s{'':10}5.0{'':10}1.0{'':10}1.0"
    path = tmp_path / "a.log"
    path.write_text("\n".join([head, "all_reduce", row % (1, "100.0"), row % (2, time), "", "done"]))
    document = deepspeed_document(path)
    assert (0.1, 1) == (document["total_s"], len(document["collectives"]))
    assert "lost: 1 row with a time that is no number: not in the sums" in deepspeed_summary(document)
    path.write_text("\n".join([head, "all_reduce", row % (1, "100.0")]))
    assert [] == deepspeed_document(path)["losses"]


def chakra(path: Path, *nodes: Any, **more: Any) -> dict[str, Any]:
    """The document of the sample with other nodes."""
    trace = execution_trace()
    path.write_text(json.dumps({**trace, "nodes": [*trace["nodes"], *nodes], **more}))
    return chakra_document(path)


@pytest.mark.parametrize(
    "tensor",
    [
        [183, 106, 0, 19210],
        [183, 106, 0, 19210, "4", "cuda:0"],
        [183, 106, 0, -1, 4, "cuda:0"],
        [183, 106, 0, 19210, 65, "cuda:0"],
        [183, 106, 0, 1 << 50, 4, "cuda:0"],
        "tensor",
    ],
)
def test_a_collective_whose_tensors_cannot_be_has_unknown_bytes(tmp_path: Path, tensor: Any) -> None:
    """It is counted all the same."""
    trace = execution_trace()
    trace["nodes"][-1]["inputs"]["values"] = [[tensor], "<Object>"]
    (tmp_path / "et.json").write_text(json.dumps(trace))
    told = chakra_document(tmp_path / "et.json")
    assert [("allreduce", None, 1)] == [
        (one["op"], one["bytes"], one["calls"]) for one in told["collectives"]
    ]
    assert "collective allreduce, unknown bytes: 1 call" in chakra_summary(told)


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ({}, "no list of at most"),
        ([], "no node in it"),
        ([{"id": "2", "name": "x"}, {"id": 2}, 7], "no node in it"),
    ],
)
def test_an_execution_trace_without_nodes_is_one_line(tmp_path: Path, nodes: Any, says: str) -> None:
    """Saying how to write it."""
    with pytest.raises(TuiadvisorError, match=f"{says}.*ExecutionTraceObserver"):
        chakra(tmp_path / "et.json", nodes=nodes)


def test_calls_of_the_profiler_that_cannot_be_are_no_times(tmp_path: Path) -> None:
    """No length, a length of weeks, another process's: the operator stays without a time."""
    trace = kineto()
    first, second, third = trace["traceEvents"]
    trace["traceEvents"] = [{**first, "dur": "long"}, {**second, "dur": 1e13}, {**third, "pid": 4}]
    (tmp_path / "kineto.json").write_text(json.dumps(trace))
    (tmp_path / "et.json").write_text(json.dumps(execution_trace()))
    told = chakra_document(tmp_path)
    assert {None} == {row["own_s"] for row in told["operators"]}
    assert [None] == [row["host_s"] for row in told["collectives"]]


def test_a_process_group_is_listed_where_it_is_one(tmp_path: Path) -> None:
    """The node holds text of its own, which may hold anything."""
    trace = execution_trace()
    groups = [7, {"pg_name": "1", "ranks": [0, "1", 2], "group_size": "3"}]
    trace["nodes"][1]["inputs"]["values"] = [json.dumps(groups)]
    (tmp_path / "et.json").write_text(json.dumps(trace))
    assert [{"name": "1", "description": "None", "ranks": [0, 2], "size": None}] == chakra_document(
        tmp_path / "et.json"
    )["process_groups"]


def test_copies_are_work_of_their_kind(tmp_path: Path) -> None:
    """A copy and a fill are told apart from kernels, also without any kernel."""
    path = export(tmp_path / "a.sqlite", num_steps=2)
    with closing(sqlite3.connect(path)) as database, database:
        columns = "(start INT, end INT, globalPid INT, deviceId INT, streamId INT, correlationId INT)"
        for name, at in (("MEMCPY", 1), ("MEMSET", 2)):
            database.execute(f"DROP TABLE IF EXISTS CUPTI_ACTIVITY_KIND_{name}")
            database.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_{name} {columns}")
            row = (BASE + at * US, BASE + (at + 1) * US, pid_of(0), 0, 7, 9)
            database.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_{name} VALUES (?, ?, ?, ?, ?, ?)", row)  # noqa: S608
    (process,) = processes(path)
    events = [event for batch in process.batches() for event in batch]
    assert [("gpu_memcpy", "Memcpy"), ("gpu_memset", "Memset")] == [
        (event["cat"], event["name"]) for event in events if event["cat"].startswith("gpu_")
    ]


def test_of_a_database_beyond_its_bounds_one_line_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too many rows, processes or bytes; what is read comes in batches, in order."""
    path = export(tmp_path / "a.sqlite", num_ranks=3, num_steps=2)
    events = [event for batch in processes(path)[0].batches() for event in batch]
    monkeypatch.setattr(profiled, "BATCH", 5)
    batches = list(processes(path)[0].batches())
    assert events == [event for batch in batches for event in batch]
    assert max(map(len, batches)) == 5
    monkeypatch.setattr(nsys, "MAX_PROCESSES", 2)
    with pytest.raises(TuiadvisorError, match="more than 2 processes: export one node's report"):
        processes(path)
    monkeypatch.setattr(nsys, "MAX_ROWS", 10)
    with pytest.raises(TuiadvisorError, match="has more than 10 rows: profile fewer steps"):
        processes(path)
    monkeypatch.setattr(nsys, "MAX_FILE_BYTES", 10)
    with pytest.raises(TuiadvisorError, match="GiB: profile fewer steps"):
        processes(path)


def test_fio_beyond_its_bounds_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file full of beginnings the search ends; lists between documents are none."""
    path = tmp_path / "fio.json"
    monkeypatch.setattr(fio, "MAX_JOBS", 2)
    path.write_text(fio_text(*[job(1e9)] * 3))
    with pytest.raises(TuiadvisorError, match="3 jobs; import a run of at most 2"):
        fio_document(path)
    monkeypatch.setattr(fio, "MAX_FAILED", 3)
    path.write_text("{ no\n" * 6 + fio_text(job(1e9)))
    with pytest.raises(TuiadvisorError, match="not JSON"):
        fio_document(path)


def test_more_calls_of_the_inspector_than_can_be_read_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Saying what to do."""
    monkeypatch.setattr(inspector, "MAX_CALLS", 100)
    with pytest.raises(TuiadvisorError, match="more than 100 calls: log fewer steps"):
        inspector.inspector_document(inspected(tmp_path / "logs"))


def test_mlperf_numbers_steps_up_to_a_bound() -> None:
    """A step beyond it, or of no time, is none; a number that is there already is another process's."""
    lines: list[Any] = []
    for number, seconds in ((1, 2.0), (1, 3.0), (2, 0.0), (mllogs.MAX_STEP, 2.0), (3, 2.0)):
        mllogs._add(lines, number, seconds, None)
    assert [(1, 2.0), (3, 2.0)] == [(line.number, line.seconds) for line in lines]


def test_a_log_whose_times_are_all_zero_says_so(tmp_path: Path) -> None:
    """Not that its times are written in a way nobody can read."""
    path = tmp_path / "train.log"
    line = " iteration {0:8}/     100 | consumed samples: 64 | elapsed time per iteration (ms): {1} | lm loss: 1.0 |\n"
    path.write_text("".join(line.format(number, "0.0") for number in range(1, 5)))
    with pytest.raises(TuiadvisorError, match="every time that Megatron-LM printed is 0"):
        steplog_document(path)
    path.write_text("".join(line.format(number, "nan") for number in range(1, 5)))
    with pytest.raises(TuiadvisorError, match="each as plain digits"):
        steplog_document(path)


def test_small_sizes_of_a_memory_timeline_are_no_zeros(tmp_path: Path) -> None:
    """Of 20 KiB at the peak it was 0.0 MiB."""
    path = tmp_path / "memory.json"
    sizes = [[0] * 9, [0, 512, 20 * 1024, *[0] * 6]]
    path.write_text(json.dumps([[0, 10**6], sizes]))
    said = memory_summary(memory_document(path))
    assert "512 B" in said
    assert "20.0 KiB" in said
    assert "0.0 MiB" not in said
