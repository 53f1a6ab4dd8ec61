"""Profiler traces: time accounting, tolerance to damage, clocks apart, ranks missing."""

from __future__ import annotations

import argparse
import gzip
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zstandard
from shared_data import SHARED, needs_data
from thinned import crossed, thinned

from tuiadvisor.cli import import_
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers import traceevents
from tuiadvisor.importers.files import rank_in_name
from tuiadvisor.importers.imported import NoStepsError
from tuiadvisor.importers.kineto import read_kineto, read_trace
from tuiadvisor.importers.kinetoreport import kineto_document, kineto_summary
from tuiadvisor.importers.kinetorun import kineto_run
from tuiadvisor.metrics.traces.collective_arrival import Arrivals, arrivals
from tuiadvisor.metrics.traces.collective_clock import Calls
from tuiadvisor.metrics.traces.gpu_timeline import gpu_time, stream_idle

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Event = dict[str, Any]
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"


def event(name: str, begin_us: float | str, dur_us: float, cat: str = "kernel", **args: object) -> Event:
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 0,
        "tid": 7,
        "ts": begin_us,
        "dur": dur_us,
        "args": args,
    }


def trace(path: Path, events: list[Event], rank: int | None = None, world: int | None = None) -> Path:
    """The file as the profiler writes it: indented, with keys before and after the events."""
    content: dict[str, object] = {"schemaVersion": 1}
    if rank is not None:
        content["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": world}
    content |= {"traceEvents": events, "traceName": path.name}
    text = json.dumps(content, indent=1).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def job(
    folder: Path, late: int | None, offsets_ms: list[float], absent: tuple[int, ...] = (), **names: str
) -> Path:
    """Four ranks, 40 steps of 10 ms with two all-reduces each; `late` enters 3 ms after the others."""
    generator = np.random.default_rng(7)
    for rank, offset_ms in enumerate(offsets_ms):
        if rank in absent:
            continue
        events = []
        for step in range(40):
            for bucket in range(2):
                end = 10_000 * step + 4_000 * (bucket + 1) + 37 * (step % 5)
                begin = end - 150 - (3_000 if late is not None and rank != late else 0) - 5 * rank
                shifted = 1e9 + begin + offset_ms * 1000
                name = names.get(f"rank{rank}", ALL_REDUCE)
                events.append(event("ampere_sgemm_128x64_nn", shifted - 800, 700.0, stream=7))
                jitter = float(generator.normal(0, 10))
                events.append(event(name, shifted, end - begin + jitter, stream=20))
        trace(folder / f"rank{rank}.json.gz", events, rank, len(offsets_ms))
    return folder


def culprits(folder: Path) -> list[int]:
    return [row["rank"] for row in kineto_document(folder)["stragglers"]["ranks"]]


def test_overlap_worked_out_by_hand(tmp_path: Path) -> None:
    """Compute 0-100 and 150-200, communication 50-160, a copy 200-210, nothing until 230-240."""
    path = trace(
        tmp_path / "rank0.json",
        [
            event("gemm", 0, 100, correlation=1, stream=7),
            event(ALL_REDUCE, 50, 110, correlation=2, stream=20),
            event("gemm", 150, 50, correlation=3, stream=7),
            event("Memcpy HtoD", 200, 10, "gpu_memcpy", correlation=4, stream=7),
            event("gemm", 230, 10, correlation=99, stream=7),
            event("cudaLaunchKernel", 0, 1, "cuda_runtime", correlation=1),
            event("cudaLaunchKernel", 1, 1, "cuda_runtime", correlation=2),
            event("cudaLaunchKernel", 120, 1, "cuda_runtime", correlation=3),
            event("cudaLaunchKernel", 3, 1, "Runtime", correlation=4),
        ],
    )
    read = read_trace(path)
    every, linked = gpu_time(read.events), gpu_time(read.events.only(read.linked))
    assert every is not None
    assert linked is not None
    assert (240_000, 220_000, 20_000) == (every.window_ns, every.busy_ns, every.idle_ns)
    assert (160_000, 110_000, 10_000) == (every.compute_ns, every.comm_ns, every.memory_ns)
    assert (60_000, 50_000) == (every.overlap_ns, every.exposed_ns)
    assert (210_000, 0) == (linked.window_ns, linked.idle_ns)
    (compute_stream, _) = stream_idle(read.events)
    assert (50_000, 20_000, 0) == (
        compute_stream.host_wait_ns,
        compute_stream.kernel_wait_ns,
        compute_stream.other_ns,
    )


def test_overlap_on_the_cpu_worked_out_by_hand(tmp_path: Path) -> None:
    """Operators 0-100, gloo's call 60-160, frames around them count for nothing."""
    events = [
        event("aten::mm", 0, 100, "cpu_op"),
        event("aten::empty", 10, 5, "cpu_op"),
        event("autograd::engine::evaluate_function: MmBackward0", 0, 400, "cpu_op"),
        event("MmBackward0", 0, 390, "cpu_op"),
        event("torch.distributed.ddp.reducer::copy_bucket_to_grad", 300, 10, "cpu_op"),
        event("c10d::allreduce_", 50, 200, "cpu_op"),
        event("DistributedDataParallel.forward", 0, 500, "user_annotation"),
        event("gloo:all_reduce", 60, 100, "user_annotation"),
    ]
    trace(tmp_path / "rank0.json", events, 0, 1)
    (row,) = kineto_document(tmp_path)["per_rank"]
    assert ("cpu", 0.4, 1e-4, 6e-5) == (
        row["device"],
        row["overlap"],
        row["comm_total_s"],
        row["comm_exposed_s"],
    )
    assert 160e-6 == pytest.approx(row["all"]["window_s"])


@pytest.mark.parametrize(
    "sign",
    [
        event("cudaLaunchKernel", 0, 1, "cuda_runtime", correlation=1),
        event("nccl:all_reduce", 0, 1, "user_annotation"),
    ],
)
def test_a_gpu_training_without_its_kernels_is_not_taken_for_one_on_the_cpu(
    tmp_path: Path, sign: Event
) -> None:
    """Its operators only launch work: what the device did is unknown."""
    events = [event("aten::mm", 0, 100, "cpu_op"), event("gloo:all_reduce", 60, 100, "user_annotation")]
    trace(tmp_path / "rank0.json", [*events, sign], 0, 2)
    document = kineto_document(tmp_path)
    assert (None, None) == (document["per_rank"][0]["device"], document["per_rank"][0]["overlap"])
    assert "time on the device" in [item["metric"] for item in document["unknown"]]


def test_nanoseconds_survive_where_a_double_cannot_hold_them(tmp_path: Path) -> None:
    """Microseconds since 1970 with three decimals have 19 digits."""
    path = trace(tmp_path / "rank0.json", [event("gemm", 1, 0.5), event("gemm", 2, 0.25)])
    text = path.read_text().replace('"ts": 1,', '"ts": 1682725898094377.123,')
    path.write_text(text.replace('"ts": 2,', '"ts": 1682725898094378.001,'))
    read = read_trace(path)
    assert [1682725898094377123, 1682725898094378001] == read.events.begin_ns.tolist()
    assert [500, 250] == (read.events.end_ns - read.events.begin_ns).tolist()


def test_the_last_step_counts(tmp_path: Path) -> None:
    """All profiler steps are listed, and events in the last one are in the window."""
    events = [event(f"ProfilerStep#{i}", 100 * i, 100, "user_annotation") for i in range(3)]
    events += [event("gemm", 100 * i, 50) for i in range(3)]
    document = kineto_document(trace(tmp_path / "rank0.json", events))
    assert ["ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"] == [
        step["name"] for step in document["per_rank"][0]["steps"]
    ]
    assert pytest.approx(250e-6) == document["per_rank"][0]["all"]["window_s"]


@pytest.mark.parametrize(
    "name",
    [
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
        "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "rcclGenericKernel<1, false>",
        "void mscclpp::allreduce<4>",
        "deep_ep::internode::dispatch<true>",
        "nvshmemi_transfer_rma",
    ],
)
def test_communication_of_known_libraries_is_recognised(tmp_path: Path, name: str) -> None:
    """Old and new kernel names alike, none of them called a guess."""
    document = kineto_document(
        trace(tmp_path / "rank0.json", [event("gemm", 0, 10), event(name, 5, 10)], 0, 2)
    )
    (row,) = document["per_rank"]
    assert 0.5 == row["overlap"]
    assert {} == row["guessed_communication"]


def test_the_profilers_own_word_outranks_a_kernels_name(tmp_path: Path) -> None:
    """A renamed kernel with the argument "Collective name" is communication."""
    renamed = event("k_4711", 5, 10, **{"Collective name": "allreduce", "Process Group Name": "0"})
    document = kineto_document(trace(tmp_path / "rank0.json", [event("gemm", 0, 10), renamed], 0, 2))
    assert 0.5 == document["per_rank"][0]["overlap"]


def test_communication_of_no_known_library_is_counted_and_said(tmp_path: Path) -> None:
    """A kernel that looks like a collective counts as one, and the reader is told that this is a guess."""
    unknown = event("vendor_all_reduce_kernel(float*)", 5, 10)
    document = kineto_document(trace(tmp_path / "rank0.json", [event("gemm", 0, 10), unknown], 0, 2))
    assert {"vendor_all_reduce_kernel": 1} == document["per_rank"][0]["guessed_communication"]
    assert "vendor_all_reduce_kernel" in kineto_summary(document)


def test_communication_not_recognised_is_unknown_and_not_zero(tmp_path: Path) -> None:
    """Two ranks in the job and only names nobody knows: overlap and exposed time are unknown."""
    events = [event("gemm", 0, 10), event("kernel_4711", 5, 10)]
    (row,) = (document := kineto_document(trace(tmp_path / "rank0.json", events, 0, 2)))["per_rank"]
    assert row["overlap"] is None
    assert row["comm_exposed_s"] is None
    assert row["all"]["comm_s"] is None
    assert any("no communication kernel recognised" in item["why"] for item in document["unknown"])


def test_one_broken_file_does_not_fail_the_folder(tmp_path: Path) -> None:
    """Truncated gzip, half a JSON and a file of something else are named; the good ones are read."""
    events = [event("gemm", 10 * i, 5) for i in range(200)]
    trace(tmp_path / "rank0.json.gz", events, 0, 4)
    cut = trace(tmp_path / "rank1.json.gz", events, 1, 4)
    cut.write_bytes(cut.read_bytes()[:-40])
    half = trace(tmp_path / "rank2.json", events, 2, 4)
    half.write_bytes(half.read_bytes()[:5000])
    (tmp_path / "notes.json").write_text('{"hello": 1}')
    document = kineto_document(tmp_path)
    assert [0] == [row["rank"] for row in document["per_rank"]]
    assert [1, 2, 3] == document["run"]["missing_ranks"]
    assert ["notes.json", "rank1.json.gz", "rank2.json"] == sorted(
        loss.partition(":")[0].partition(" ")[0] for loss in document["losses"]
    )


def test_a_folder_with_nothing_readable_is_one_line(tmp_path: Path) -> None:
    """The first reason is given."""
    (tmp_path / "rank0.json").write_text("[[[[")
    with pytest.raises(TuiadvisorError, match="no readable trace") as caught:
        read_kineto(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("chunk_bytes", [512, 1000, 4096])
def test_a_trace_read_in_pieces_is_the_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int
) -> None:
    """Wherever the pieces end, also inside names that look like the text between two events."""
    events = [event('}, {"ph": "X"' if i % 7 == 0 else "gemm", 10 * i, 5, stream=i % 3) for i in range(300)]
    path = trace(tmp_path / "rank0.json", events, 3, 8)
    whole = read_trace(path)
    monkeypatch.setattr(traceevents, "CHUNK_BYTES", chunk_bytes)
    pieces = read_trace(path)
    assert 300 == pieces.num_events
    assert (3, 8) == (pieces.rank, pieces.world_size)
    assert whole.events.begin_ns.tolist() == pieces.events.begin_ns.tolist()


def test_a_bare_list_of_events_is_a_trace_too(tmp_path: Path) -> None:
    """Chrome's other format; the rank then comes from the file's name."""
    path = tmp_path / "worker_rank-5.json"
    path.write_text(json.dumps([event("gemm", 0, 5)]))
    assert 5 == read_trace(path).rank


@pytest.mark.parametrize(
    "damage",
    [
        {"ts": "soon"},
        {"ts": None},
        {"ts": 1e300},
        {"ts": 1e308},
        {"dur": float("inf")},
        {"ts": "12.²"},
        {"dur": -5},
        {"dur": [1]},
        {"ts": True},
    ],
)
def test_events_without_a_usable_time_are_dropped_and_counted(tmp_path: Path, damage: Event) -> None:
    """They reach no number, and the report says how many there were."""
    events = [event("gemm", 0, 10), event("gemm", 20, 10) | damage]
    document = kineto_document(trace(tmp_path / "rank0.json", events))
    assert pytest.approx(10e-6) == document["per_rank"][0]["all"]["window_s"]
    assert ["rank0.json: 1 device event without a usable time, dropped"] == document["losses"]


def test_of_a_name_as_long_as_a_file_only_its_beginning_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Patterns run over each name, and what they found is kept with it."""
    lengths = []

    def kind(name: str, _category: str, _arguments: dict[str, Any]) -> int:
        lengths.append(len(name))
        return 0

    monkeypatch.setattr("tuiadvisor.importers.trace_columns.kind_of", kind)
    trace(tmp_path / "rank0.json", [event("k" * 100_000, 5, 1), event("gemm", 9, 1)], 0, 1)
    assert 2 == kineto_document(tmp_path)["per_rank"][0]["gpu_events"]
    assert [4096, 4] == lengths


def test_odd_events_are_harmless(tmp_path: Path) -> None:
    """Wrong types everywhere: nothing is believed, nothing fails."""
    odd: list[Any] = [
        None,
        3,
        [],
        {"ph": "X"},
        {"ph": "X", "cat": 7},
        {"ph": "X", "cat": "kernel", "name": None, "ts": 0, "dur": 1, "args": "text"},
        {
            "ph": "X",
            "cat": "kernel",
            "name": "k",
            "ts": 5,
            "dur": 1,
            "args": {"stream": {}, "correlation": [1]},
        },
        {"ph": "X", "cat": "cuda_runtime", "name": "k", "ts": 5, "args": {"correlation": {}}},
    ]
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"distributedInfo": {"rank": "x", "world_size": -4}, "traceEvents": odd}))
    document = kineto_document(path)
    assert 2 == document["per_rank"][0]["gpu_events"]
    assert document["run"]["world_size"] is None


@pytest.mark.parametrize("offsets_ms", [[0, 0, 0, 0], [0, 40, -40, 17], [3.6e6, -40, 40, 0]])
@pytest.mark.parametrize("late", [0, 2, 3])
def test_the_last_to_arrive_is_named_whatever_the_clocks(
    tmp_path: Path, late: int, offsets_ms: list[float]
) -> None:
    """Clocks 40 ms or an hour apart: ends of collectives are common, and the culprit stays the culprit."""
    document = kineto_document(job(tmp_path, late, offsets_ms))
    assert [late] == [row["rank"] for row in document["stragglers"]["ranks"]]
    for row, offset_ms in zip(document["per_rank"], offsets_ms, strict=True):
        assert pytest.approx((offset_ms - offsets_ms[0]) / 1e3, abs=1e-4) == row["clock_offset_s"]
    victim = document["per_rank"][1]
    assert pytest.approx(80 * 3e-3, rel=0.05) == victim["wait_s"]


def test_ranks_that_arrive_together_have_no_culprit(tmp_path: Path) -> None:
    """Clocks apart are no straggler."""
    assert [] == culprits(job(tmp_path, None, [0, 40, -40, 17]))


@pytest.mark.parametrize("absent", [(2,), (0, 2), (2, 3)])
def test_a_late_rank_that_was_not_recorded_is_not_replaced_by_another(
    tmp_path: Path, absent: tuple[int, ...]
) -> None:
    """Rank 2 is late and has no file: the others only wait, and nobody is named."""
    document = kineto_document(job(tmp_path, 2, [0, 40, 0, -40], absent))
    assert [] == document["stragglers"]["ranks"]
    assert document["stragglers"]["late_rank_not_recorded"] is True
    assert list(absent) == document["run"]["missing_ranks"]


def test_a_late_rank_is_named_although_an_innocent_one_is_missing(tmp_path: Path) -> None:
    """Rank 2 waits for nobody, so it is late whatever rank 1 did."""
    assert [2] == culprits(job(tmp_path, 2, [0, 40, -40, 0], (1,)))


def late_together(folder: Path, absent: int) -> Path:
    """Ranks 1 and 2 come 7 ms after rank 0, 5 us apart; rank 3 half a millisecond after them, transfers take 10 us."""
    for rank in range(4):
        if rank == absent:
            continue
        events = []
        for at in range(40):
            end = 1e9 + 9_000 * at + 7_510
            begin = end - 510 + (-7_000, -5, 0, 500)[rank]
            events.append(event(ALL_REDUCE, begin, end - begin, stream=20))
        trace(folder / f"rank{rank}.json.gz", events, rank, 4)
    return folder


@pytest.mark.parametrize(("absent", "named"), [(3, []), (0, [3]), (1, [3])])
def test_of_ranks_late_together_none_stands_in_for_one_without_a_trace(
    tmp_path: Path, absent: int, named: list[int]
) -> None:
    """As in a real job of eight: the last recorded rank came 5 us after another one, and waited 500 itself."""
    stragglers = kineto_document(late_together(tmp_path, absent))["stragglers"]
    assert (named, not named) == (
        [row["rank"] for row in stragglers["ranks"]],
        stragglers["late_rank_not_recorded"],
    )
    assert named or "(no trace of rank 3)" in stragglers["because"]


def merged(folder: Path, events: list[list[Event]]) -> Path:
    """Several ranks' events in one file of the name and the head of rank 0."""
    return trace(folder / "rank0.json", [one for of_rank in events for one in of_rank], 0, len(events))


@pytest.mark.parametrize("by", ["process", "step", "collective"])
def test_a_file_into_which_ranks_were_merged_is_no_rank(tmp_path: Path, by: str) -> None:
    """Eight processes; of one number (in containers) the step marks are there eight times, or collectives overlap."""
    ranks = []
    for rank in range(8):
        events = [event(ALL_REDUCE, 1e9 + 10_000 * step - 100 * rank, 3_000, stream=20) for step in range(20)]
        if by == "collective":
            events += [event("gemm", 1e9 + 10_000 * step - 900, 700, stream=7) for step in range(20)]
        else:
            name = "ProfilerStep#%d" if by == "step" else "aten::mm"
            category = "user_annotation" if by == "step" else "cpu_op"
            events = [
                event(name.replace("%d", str(step)), 1e9 + 10_000 * step, 9_000, category)
                for step in range(20)
            ]
            events = [one | {"pid": 4711 + rank if by == "process" else 1} for one in events]
        ranks.append(events)
    document = kineto_document(merged(tmp_path, ranks))
    (row,) = document["per_rank"]
    assert (None, 8, None, []) == (row["rank"], row["processes"], row["all"], document["stragglers"]["ranks"])
    assert ["rank0.json holds the events of 8 or more processes: export one file a rank"] == [
        item["why"] for item in document["unknown"] if item["metric"] == "rank"
    ]
    assert "holds the events of 8 or more processes" in kineto_summary(document)
    with pytest.raises(NoStepsError, match="holds the events of 8 or more processes"):
        kineto_run(tmp_path)
    trace(tmp_path / "rank0.json", ranks[3], 0, 8)
    (row,) = kineto_document(tmp_path / "rank0.json")["per_rank"]
    assert (0, 1) == (row["rank"], row["processes"])


def test_a_trace_that_was_merged_with_a_copy_of_itself_is_told_as_that(tmp_path: Path) -> None:
    """Its kernels are there twice with the same times: no second process, and no rank's times."""
    events = [event(ALL_REDUCE, 1e9 + 10_000 * step, 3_000, stream=20) for step in range(20)]
    document = kineto_document(trace(tmp_path / "rank0.json", [*events, *events], 0, 4))
    (why,) = [item["why"] for item in document["unknown"] if item["metric"] == "rank"]
    assert why.startswith("rank0.json holds events of the device again, with the same times")
    assert "processes" not in kineto_summary(document)


def test_a_trace_of_no_known_rank_is_told_how_to_say_it(tmp_path: Path) -> None:
    """Of several one alone has neither its rank in it nor a number in its name."""
    for name, rank in (("rank0", 0), ("other", None)):
        trace(tmp_path / f"{name}.json", [event("gemm", 1e9, 2_000)], rank, 2)
    (why,) = [item["why"] for item in kineto_document(tmp_path)["unknown"] if item["metric"] == "rank"]
    assert "other.json does not say which rank it is of: put the rank into its name, as rank3.json" == why


def test_without_a_world_size_the_ranks_seen_are_the_least_there_are(tmp_path: Path) -> None:
    """Rank 70 alone: 70 ranks have no trace, and it is not one of them."""
    path = tmp_path / "worker_rank70.json"
    path.write_text(json.dumps([event("gemm", 0, 5)]))
    unknown = {item["metric"]: item["why"] for item in kineto_document(path)["unknown"]}
    assert unknown["late rank"].startswith("70 of at least 71 ranks have no trace here: 0, 1")


def grouped_job(folder: Path, late: int) -> Path:
    """Tensor-parallel pairs (0,1) (2,3), data-parallel pairs (0,2) (1,3); `late` computes 3 ms longer a step."""
    pairs = {
        "tp": {0: (0, 1), 1: (0, 1), 2: (2, 3), 3: (2, 3)},
        "dp": {0: (0, 2), 1: (1, 3), 2: (0, 2), 3: (1, 3)},
    }
    calls: dict[int, list[Event]] = {rank: [] for rank in range(4)}
    ready = dict.fromkeys(range(4), 0.0)
    for _ in range(40):
        ready = {rank: time + 4_000 + (3_000 if rank == late else 0) for rank, time in ready.items()}
        for kind in ("tp", "dp"):
            ends = {rank: max(ready[member] for member in pairs[kind][rank]) + 200 for rank in range(4)}
            for rank, end in ends.items():
                group = pairs[kind][rank]
                about = {"Collective name": "allreduce", "Process Group Name": f"{kind}{group[0]}"}
                about["Process Group Ranks"] = str(list(group))
                begin = 1e9 + 17_000 * rank + ready[rank]
                calls[rank].append(event(ALL_REDUCE, begin, end - ready[rank], stream=20, **about))
            ready = ends
    for rank, events in calls.items():
        trace(folder / f"rank{rank}.json.gz", events, rank, 4)
    return folder


@pytest.mark.parametrize("late", range(4))
def test_a_victim_that_hands_lateness_on_is_not_the_culprit(tmp_path: Path, late: int) -> None:
    """Its tensor-parallel peer is late at the data-parallel group only because it had to wait itself.

    Clocks are 17 ms apart from rank to rank, and ranks 0 and 3 share no group.
    """
    document = kineto_document(grouped_job(tmp_path, late))
    assert [late] == [row["rank"] for row in document["stragglers"]["ranks"]]
    assert pytest.approx([0, 0.017, 0.034, 0.051]) == [row["clock_offset_s"] for row in document["per_rank"]]


def test_kernels_renamed_on_one_rank_still_match(tmp_path: Path) -> None:
    """Ranks are matched by collective, not by the library's spelling of it."""
    old_name = "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)"
    assert [2] == culprits(job(tmp_path, 2, [0, 40, -40, 0], rank1=old_name))


def test_kernels_nobody_knows_on_the_late_rank_give_no_wrong_name(tmp_path: Path) -> None:
    """Rank 2's collectives are not recognisable: the others are not blamed for waiting."""
    document = kineto_document(job(tmp_path, 2, [0, 40, -40, 0], rank2="kernel_4711"))
    assert [] == document["stragglers"]["ranks"]


def test_calls_dropped_on_one_rank_are_matched_by_their_ends(tmp_path: Path) -> None:
    """Rank 1 lost a tenth of its events: by order everything would shift, by common ends nothing does."""
    folder = job(tmp_path, 2, [0, 40, -40, 0])
    path = folder / "rank1.json.gz"
    content = json.loads(gzip.decompress(path.read_bytes()))
    calls = [e for e in content["traceEvents"] if "nccl" in e["name"]]
    path.unlink()
    trace(path, [e for i, e in enumerate(calls) if i % 10 != 3], 1, 4)
    assert [2] == culprits(folder)


def test_two_files_of_one_rank_are_not_compared(tmp_path: Path) -> None:
    """Both are shown, neither is believed to be the rank."""
    folder = job(tmp_path, 2, [0, 0, 0, 0])
    events = json.loads(gzip.decompress((folder / "rank2.json.gz").read_bytes()))["traceEvents"]
    trace(folder / "again.json.gz", events[: len(events) // 2], 2, 4)
    document = kineto_document(folder)
    assert "rank 2 has 2 files: not compared with other ranks" in document["losses"]
    assert [] == document["stragglers"]["ranks"]


def test_a_broadcast_that_ends_early_at_its_root_blames_nobody(tmp_path: Path) -> None:
    """All enter together; rank 0 sends and is done, each further rank gets it 1.5 ms later."""
    for rank in range(4):
        calls = [
            event("ncclDevKernel_Broadcast_RING_LL(x)", 1e9 + 10_000 * step, 1000 + 1500 * rank, stream=20)
            for step in range(40)
        ]
        trace(tmp_path / f"rank{rank}.json", calls, rank, 4)
    document = kineto_document(tmp_path)
    assert [] == document["stragglers"]["ranks"]
    assert [None] * 4 == [row["clock_offset_s"] for row in document["per_rank"]]


def test_broadcasts_do_not_move_the_clocks_of_all_reduces(tmp_path: Path) -> None:
    """Three broadcasts a step end apart, but rank 2 is late at the all-reduces."""
    folder = job(tmp_path, 2, [0, 40, -40, 0])
    for rank in range(4):
        path = folder / f"rank{rank}.json.gz"
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        sent = [
            event(
                "ncclDevKernel_Broadcast_RING_LL(x)", one["ts"] - 300 + 2 * k, 50 + 20 * k * rank, stream=21
            )
            for one in events
            if "nccl" in one["name"]
            for k in range(3)
        ]
        trace(path, events + sent, rank, 4)
    assert [2] == culprits(folder)


def test_a_local_rank_in_the_file_name_is_not_the_rank(tmp_path: Path) -> None:
    """Two nodes, one file of each that says its local rank only: nobody is named."""
    folder = job(tmp_path, 2, [0, 40, -40, 0], (0, 3))
    for node, rank in enumerate((1, 2)):
        path = folder / f"rank{rank}.json.gz"
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        path.unlink()
        trace(folder / f"node{node}_local_rank{1 - node}.json", events)
    document = kineto_document(folder)
    assert [] == document["stragglers"]["ranks"]
    assert [None, None] == [row["rank"] for row in document["per_rank"]]


@pytest.mark.parametrize(
    ("name", "rank"),
    [("rep_rank3.json", 3), ("report_rank3.sqlite", 3), ("ep_rank3.json", None), ("a_tp-rank3.json", None)],
)
def test_a_rank_behind_a_word_that_ends_like_an_axis_is_the_rank(name: str, rank: int | None) -> None:
    """Of rep_rank3 it was said that it should put the rank into its name."""
    assert rank == rank_in_name(name)


def test_the_command_prints_text_or_one_document(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Control characters of a kernel's name never reach the terminal."""
    parser = argparse.ArgumentParser()
    import_.add_options(parser)
    hostile = event("\x1b[2J_all_reduce_", 5, 10)
    trace(tmp_path / "rank0.json", [event("gemm", 0, 10), hostile], 0, 1)
    assert import_.run(parser.parse_args(["kineto", str(tmp_path), "--json"])) == 0
    assert json.loads(capfd.readouterr().out)["schema"] == 1
    assert import_.run(parser.parse_args(["kineto", str(tmp_path)])) == 0
    assert "\x1b" not in capfd.readouterr().out


CASES = sorted(path.name for path in (SHARED / "kineto").iterdir()) if (SHARED / "kineto").is_dir() else []


@needs_data
@pytest.mark.parametrize(("case", "reading"), crossed(CASES, ["all", "linked"]))
def test_real_traces_give_the_reference_breakdown(case: str, reading: str) -> None:
    """Every part of the window within 0.01 points of the reference (asked: 0.5), in both readings."""
    answers = json.loads((SHARED / "answers" / "kineto" / f"{case}.json").read_text())["oracle"][reading]
    by_file = {row["file"]: row for row in kineto_document(SHARED / "kineto" / case)["per_rank"]}
    ours = {
        "window": "window_s", "busy": "busy_s", "idle": "idle_s", "compute": "compute_s", "comm": "comm_s",
        "mem": "memory_s", "overlap": "overlap_s", "exposed_comm": "exposed_comm_s",
    }  # fmt: skip
    for answer in answers:
        row = by_file[answer["file"]]
        assert (answer["rank"], answer["events"]) == (row["rank"], row["events"])
        marks = [*row["steps"], *row["marks_cut_off"]]
        assert [name for name, _ in answer["steps"]] == [step["name"] for step in marks]
        for theirs, name in ours.items():
            points = 100 * abs(answer[theirs] - row[reading][name] * 1e6) / answer["window"]
            assert points < 0.01, (theirs, answer[theirs], row[reading][name])
        for name in ("overlap_pct", "idle_pct", "compute_pct", "noncompute_pct"):
            assert answer[name] == pytest.approx(row[reading][name], abs=0.01), name


@needs_data
def test_real_idle_time_by_reason_is_the_references() -> None:
    """Host wait, kernel wait and other of every stream of a real trace, to the microsecond."""
    case = "hta_trace_diff_control"
    answers = json.loads((SHARED / "answers" / "kineto" / f"{case}.json").read_text())
    expected = answers["hta_0.5.0_all_steps_ns_pandas2.2.3"]["calls"]["idle_time_breakdown"]["result"]
    (row,) = kineto_document(SHARED / "kineto" / case)["per_rank"]
    found = {idle["stream"]: idle for idle in row["idle_by_stream"]}
    for answer in expected:
        assert answer["idle_time"] == pytest.approx(
            1e6 * found[answer["stream"]][f"{answer['idle_category']}_s"], abs=1
        )


@needs_data
@pytest.mark.parametrize("shift_us", thinned([0, 40_000, -40_000], [0, 40_000]))
def test_two_of_128_real_ranks_give_an_abstention(tmp_path: Path, shift_us: int) -> None:
    """126 ranks are missing and both recorded ones mostly wait: nobody is named, whatever their clocks."""
    for path in (SHARED / "kineto" / "hta_sampled_2of128").iterdir():
        content = json.loads(gzip.decompress(path.read_bytes()))
        if content["distributedInfo"]["rank"] == 1:
            content["traceEvents"] = [
                e | {"ts": e["ts"] + shift_us} if "ts" in e else e for e in content["traceEvents"]
            ]
        (tmp_path / path.name).write_bytes(gzip.compress(json.dumps(content).encode(), 1))
    document = kineto_document(tmp_path)
    assert [] == document["stragglers"]["ranks"]
    assert document["stragglers"]["late_rank_not_recorded"] is True
    assert 126 == len(document["run"]["missing_ranks"])


def jittered(
    num_ranks: int,
    absent: int | None,
    seed: int,
    *,
    sigma_us: float,
    late_us: float,
    transfer_us: float,
    spread: float = 0.05,
    says: tuple[bool, bool | None] = (True, False),
) -> tuple[tuple[int, ...], bool | None]:
    """(who is named, is the late rank said to be unrecorded): 60 steps of 10 ms, rank 1 late, one rank's trace lost.

    spread: of the transfers' times. says: whether the traces say their group's ranks; that all ranks were recorded.
    """
    generator = np.random.default_rng(seed)
    free = np.zeros(num_ranks)
    begins, ends = [], []
    for _ in range(60):
        begin = free + generator.normal(10_000, sigma_us, num_ranks)
        begin[1] += late_us
        end = np.full(num_ranks, begin.max() + transfer_us * np.exp(generator.normal(0, spread)))
        free = end + generator.normal(0, 20, num_ranks)
        begins.append(begin)
        ends.append(end + generator.normal(0, 3, num_ranks))
    calls = {
        rank: {
            "all_reduce": Calls(
                (1e3 * np.array(begins)[:, rank]).astype(np.int64),
                (1e3 * np.array(ends)[:, rank]).astype(np.int64),
            )
        }
        for rank in range(num_ranks)
        if rank != absent
    }
    members = {"all_reduce": tuple(range(num_ranks))} if says[0] else {}
    found = arrivals(calls, members, complete=says[1])
    return found.culprits, found.late_rank_not_recorded


@pytest.mark.parametrize("spread", [0.15, 0.25])
def test_transfers_that_vary_by_chance_are_no_wait_for_a_rank_without_a_trace(spread: float) -> None:
    """They take as long whenever the last rank comes, who is named; what waits for the missing one names nobody."""
    of = {"sigma_us": 800.0, "transfer_us": 2000.0, "spread": spread}
    for seed in range(8):
        assert ((1,), False) == jittered(4, 0, seed, late_us=3500, **of), seed
        assert ((), True) == jittered(4, 1, seed, late_us=9000, **of), seed
        assert ((), False) == jittered(8, 0, seed, late_us=0, **of | {"spread": 0.07}), seed


@pytest.mark.parametrize("spread", [0.05, 0.5])
@pytest.mark.parametrize("late_us", [1_500, 6_000])
def test_where_the_group_says_its_ranks_nobody_else_may_be_late(late_us: float, spread: float) -> None:
    """Traces without the job's size hold all four ranks of their group, and the fourth of three is not asked for."""
    of = {"sigma_us": 100.0, "transfer_us": 3000.0, "late_us": late_us, "spread": spread}
    for complete in (None, False):
        assert ((1,), False) == jittered(4, None, 3, says=(True, complete), **of)


def test_where_nothing_says_how_many_ranks_there_are_none_is_said_to_be_missing() -> None:
    """All have a trace, the transfers are long and hardly vary; unknown is not true."""
    of = {"sigma_us": 10.0, "transfer_us": 5000.0, "late_us": 0.0}
    assert ((), None) == jittered(4, None, 3, says=(False, None), **of)
    assert ((), True) == jittered(4, 0, 3, says=(False, False), **of)


def test_a_collective_told_to_begin_before_the_last_one_ended_makes_no_second_process(tmp_path: Path) -> None:
    """Back to back on one stream, with ends that are told some microseconds late."""
    generator = np.random.default_rng(3)
    for rank in range(2):
        events = [
            event(ALL_REDUCE, 1e9 + 500 * at, 500 + float(generator.uniform(0, 9)), stream=20)
            for at in range(60)
        ]
        trace(tmp_path / f"rank{rank}.json", events, rank, 2)
    assert [(0, 1), (1, 1)] == [
        (row["rank"], row["processes"]) for row in kineto_document(tmp_path)["per_rank"]
    ]


@pytest.mark.parametrize("sigma_us", [20, 200, 1000])
@pytest.mark.parametrize(("late_us", "num_ranks"), crossed([600, 1500, 5000], [3, 4, 8]))
def test_nobody_stands_in_for_a_late_rank_without_a_trace(
    num_ranks: int, late_us: float, sigma_us: float
) -> None:
    """Whatever the ranks' jitter: the last one that was recorded only waits less than the others."""
    for seed in range(8):
        for transfer_us in (10, 150):
            culprit, _ = jittered(
                num_ranks, 1, seed, sigma_us=sigma_us, late_us=late_us, transfer_us=transfer_us
            )
            assert () == culprit, (seed, transfer_us)


@pytest.mark.parametrize(("late_us", "transfer_us"), [(2000, 10), (2000, 150), (5000, 400), (2000, 600)])
@pytest.mark.parametrize("sigma_us", [200, 600])
def test_a_late_rank_is_named_though_others_have_no_trace(
    late_us: float, transfer_us: float, sigma_us: float
) -> None:
    """Its own time is the transfer: short against the delay, or as long whenever it comes."""
    for seed in range(8):
        culprit, is_elsewhere = jittered(
            4, 0, seed, sigma_us=sigma_us, late_us=late_us, transfer_us=transfer_us
        )
        assert ((1,), False) == (culprit, is_elsewhere), seed


def in_hidden_transfers(
    late: int | None, *, hidden: float, absent: int = 0, late_us: float = 6_000
) -> Arrivals:
    """Four ranks, 48 steps of 30 ms, transfers of 5 ms of which a share is behind computation; late in every second."""
    generator = np.random.default_rng(5)
    free = np.zeros(4)
    times = []
    for step in range(48):
        begin = free + 30_000 + np.abs(generator.normal(0, 600, 4))
        if late is not None and step % 2:
            begin[late] += late_us
        end = np.full(4, begin.max() + 5_000 * generator.normal(1, 0.005))
        free = end + np.abs(generator.normal(0, 20, 4))
        times.append((begin, end))
    begin_ns, end_ns = ((1e3 * np.array(values)).astype(np.int64) for values in zip(*times, strict=True))
    calls = {
        rank: {
            "all_reduce": Calls(
                begin_ns[:, rank], end_ns[:, rank], np.full(48, int(hidden * 5e6), dtype=np.int64)
            )
        }
        for rank in range(4)
        if rank != absent
    }
    return arrivals(calls, {"all_reduce": (0, 1, 2, 3)}, complete=False, num_steps=48)


@pytest.mark.parametrize("hidden", [0.7, 0.8])
def test_a_surely_late_rank_is_named_though_all_spend_long_in_transfers(hidden: float) -> None:
    """One trace is missing and transfers take more of the time than the lateness: it was "not recorded"."""
    found = in_hidden_transfers(2, hidden=hidden)
    assert ((2,), False) == (found.culprits, found.late_rank_not_recorded)
    assert "rank 2 is the last of the ranks compared" in found.because


@pytest.mark.parametrize("hidden", [0.5, 0.8])
def test_healthy_ranks_of_which_one_has_no_trace_are_not_accused(hidden: float) -> None:
    """What they transfer behind computation costs nothing, and is no wait for the one without a trace."""
    found = in_hidden_transfers(None, hidden=hidden)
    assert ((), False) == (found.culprits, found.late_rank_not_recorded)
    assert "network" not in found.because
    assert "no straggler" not in found.because


@pytest.mark.parametrize("hidden", [0.0, 0.8])
def test_a_late_rank_without_a_trace_is_said_to_be_late(hidden: float) -> None:
    """Every recorded rank waits long for it."""
    found = in_hidden_transfers(0, hidden=hidden, late_us=12_000)
    assert ((), True) == (found.culprits, found.late_rank_not_recorded)
    assert "the late rank was not recorded, or the network is slow" in found.because


@pytest.mark.parametrize("cut_rank", [1, 2])
@pytest.mark.parametrize("first", [0, 2])
def test_calls_missing_at_one_ranks_start_do_not_shift_its_clock(cut_rank: int, first: int) -> None:
    """One rank's first calls are missing and the others' last: as many calls each, in order a step apart."""
    generator = np.random.default_rng(3)
    begin_us = 10_000 * np.arange(1, 61)[:, None] + generator.normal(0, [[20, 20, 20]], (60, 3))
    begin_us += np.cumsum(generator.normal(0, 100, 60))[:, None]
    begin_us[:, 2] += 700
    end_us = begin_us.max(axis=1, keepdims=True) + 50 + generator.normal(0, 2, (60, 3))
    calls = {}
    for rank in range(3):
        kept = slice(first, 60) if rank == cut_rank else slice(0, 60 - first)
        calls[rank] = {
            "all_reduce": Calls(
                (1e3 * begin_us[kept, rank]).astype(np.int64), (1e3 * end_us[kept, rank]).astype(np.int64)
            )
        }
    found = arrivals(calls, {"all_reduce": (0, 1, 2)}, complete=True)
    assert [0, 0, 0] == pytest.approx([row.clock_offset_ns for row in found.ranks], abs=5_000)
    assert ((2,), 60 - 2 * first) == (found.culprits, found.num_collectives)


def nearly_even(num_steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Begins and ends of three ranks in steps of 28 ms that differ by 0.1 ms, four calls each; rank 2 is 2 ms late."""
    generator = np.random.default_rng(3)
    lengths = np.repeat(28_000 + generator.normal(0, 100, num_steps), 4) / 4
    end_us = np.cumsum(lengths)[:, None] + generator.normal(0, 2, (4 * num_steps, 3))
    return end_us - np.array([2_050, 2_050, 50]), end_us


@pytest.mark.parametrize("lacking", [0, 1])
@pytest.mark.parametrize("what", ["begins later", "lost some"])
def test_of_steps_of_nearly_one_length_the_clocks_are_told_by_what_ends_closest(
    what: str, lacking: int
) -> None:
    """Ends a step apart agree within the tolerance too; those of one collective far closer."""
    begin_us, end_us = nearly_even(24)
    calls = {}
    for rank in range(3):
        kept = np.ones(96, dtype=bool)
        if rank == lacking and what == "begins later":
            kept[:20] = False
        elif rank == lacking:
            kept[[7, 30, 31, 62]] = False
        calls[rank] = {
            "all_reduce": Calls(
                (1e3 * begin_us[kept, rank]).astype(np.int64), (1e3 * end_us[kept, rank]).astype(np.int64)
            )
        }
    found = arrivals(calls, {"all_reduce": (0, 1, 2)}, complete=True, num_steps=24)
    assert [0, 0, 0] == pytest.approx([row.clock_offset_ns for row in found.ranks], abs=5_000)
    assert (2,) == found.culprits


def test_a_lowest_rank_that_reaches_nobody_leaves_the_others_compared() -> None:
    """Rank 0 is of another job: the others were compared with it alone, and so with nobody."""
    begin_us, end_us = nearly_even(24)
    calls = {
        rank: {
            "all_reduce": Calls(
                (1e3 * begin_us[:, rank - 1]).astype(np.int64), (1e3 * end_us[:, rank - 1]).astype(np.int64)
            )
        }
        for rank in (1, 2, 3)
    }
    other_ns = np.cumsum(np.random.default_rng(9).integers(2_000_000, 9_000_000, 60)).astype(np.int64)
    calls[0] = {"all_reduce": Calls(other_ns - 50_000, other_ns)}
    found = arrivals(calls, {"all_reduce": (0, 1, 2, 3)}, complete=True, num_steps=24)
    assert (1, 96) == (found.reference, found.num_collectives)
    assert [None, 0, 0, 0] == [row.clock_offset_ns and round(row.clock_offset_ns, -4) for row in found.ranks]


def test_windows_of_different_steps_of_one_job_are_still_on_no_clock() -> None:
    """A hundred pairs of windows that share no step: whatever ends closest ends so by chance."""
    for seed in range(20):
        for sigma_us in (1, 20, 50, 200, 800):
            generator = np.random.default_rng([seed, sigma_us])
            end_us = np.cumsum(np.repeat(28_000 + generator.normal(0, sigma_us, 24), 4) / 4)
            windows = (end_us[:48], end_us[48:93])
            calls = {
                rank: {"x": Calls((1e3 * end).astype(np.int64) - 500_000, (1e3 * end).astype(np.int64))}
                for rank, end in enumerate(windows)
            }
            found = arrivals(calls, {"x": (0, 1)}, complete=True, num_steps=12)
            assert (0, ()) == (found.num_collectives, found.culprits), (seed, sigma_us)


def test_the_ranks_without_a_trace_are_named_where_the_late_one_is_among_them(tmp_path: Path) -> None:
    """Not only that it was not recorded: which ranks were not."""
    document = kineto_document(job(tmp_path, 2, [0, 40, 0, -40], (2, 3)))
    assert "(no trace of ranks 2, 3)" in document["stragglers"]["because"]


def batches_of(path: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """(all events in file order, the other keys)."""
    file = traceevents.TraceFile(path)
    return [event for batch in file.batches() for event in batch], file.rest


def plain_events(count: int) -> list[dict[str, Any]]:
    """Kernels with a list of objects in their arguments, as some profilers write them."""
    return [
        {"ph": "X", "cat": "kernel", "name": f"k{i}", "pid": 0, "tid": 7, "ts": 10.5 * i, "dur": 9.0,
         "args": {"dims": [{"a": 1}, {"b": 2}], "correlation": i}}
        for i in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("place", "kind"), crossed([0.0, 0.3, 0.93, 1.0], ["metadata", "large", "larger", "text"])
)
def test_a_valid_trace_is_read_whatever_stands_where_it_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, place: float
) -> None:
    """Events that begin with another key, one larger than a piece, texts that look like JSON; all of a tenth."""
    monkeypatch.setattr(traceevents, "CHUNK_BYTES", traceevents.CHUNK_BYTES // 10)
    monkeypatch.setattr(traceevents, "CUT_WINDOW_BYTES", traceevents.CUT_WINDOW_BYTES // 10)
    events = plain_events(3_000)
    middle: list[dict[str, Any]] = {
        "metadata": [{"name": "process_name", "ph": "M", "pid": i, "args": {"name": "gpu"}} for i in range(2_000)],
        "large": [events[0] | {"args": {"list": [{"q": i} for i in range(2_500)]}}],
        "larger": [events[0] | {"args": {"list": [{"q": i} for i in range(25_000)]}}],
        "text": [{"name": '}, {"ph": "X"}, {"ph"' * 900, "ph": "M"} for _ in range(3)],
    }[kind]  # fmt: skip
    at = int(place * len(events))
    events[at:at] = middle
    path = tmp_path / "trace.json"
    tail = {"deviceProperties": [{"id": i} for i in range(1000)], "distributedInfo": {"rank": 3}}
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events, **tail}))
    found, rest = batches_of(path)
    assert found == events
    assert {"schemaVersion": 1, **tail} == rest


def test_traces_of_jobs_of_different_sizes_are_not_compared(tmp_path: Path) -> None:
    """Rank 2 was late in its job; with a trace of another job among the others nobody is named, and it is said."""
    job(tmp_path, 2, [0.0, 0.0, 0.0, 0.0])
    assert [2] == culprits(tmp_path)
    text = gzip.decompress((tmp_path / "rank3.json.gz").read_bytes())
    (tmp_path / "rank3.json.gz").write_bytes(
        gzip.compress(text.replace(b'"world_size": 4', b'"world_size": 8'))
    )
    document = kineto_document(tmp_path)
    assert ([], None) == (document["stragglers"]["ranks"], document["run"]["world_size"])
    assert "unknown late rank: traces of different jobs, of 4, 8 ranks" in kineto_summary(document)


EPOCH_US = 1.7e15  # of a trace that says the wall clock


def moved(path: Path, by_us: float, only: slice = slice(None)) -> None:
    """A rank's trace on the wall clock, some of its events moved."""
    content = json.loads(gzip.decompress(path.read_bytes()))
    for one in content["traceEvents"]:
        one["ts"] += EPOCH_US
    for one in content["traceEvents"][only]:
        one["ts"] += by_us
    path.write_bytes(gzip.compress(json.dumps(content).encode(), 1))


DAY_US = 24 * 3600 * 1e6


@pytest.mark.parametrize(("apart_us", "named"), [(0.9 * DAY_US, []), (DAY_US, []), (3600e6, [2])])
def test_traces_of_two_jobs_at_different_times_are_not_compared(
    tmp_path: Path, apart_us: float, named: list[int]
) -> None:
    """Two ranks' files of yesterday among those of today; clocks an hour apart are no reason."""
    job(tmp_path, 2, [0.0, 0.0, 0.0, 0.0])
    for rank in range(4):
        moved(tmp_path / f"rank{rank}.json.gz", apart_us if rank > 1 else 0)
    document = kineto_document(tmp_path)
    assert named == [row["rank"] for row in document["stragglers"]["ranks"]]
    says = "unknown late rank: traces of different times, "
    assert (not named) == (says in kineto_summary(document))
    assert named or {None} == {row["wait_s"] for row in document["per_rank"]}


@pytest.mark.parametrize("where", [slice(0, 1), slice(-1, None), slice(50, 100)])
def test_a_trace_whose_times_lie_years_apart_is_left_out_in_one_line(tmp_path: Path, where: slice) -> None:
    """Its window would be 73 years and its idle time all of that: no figure, and its rank has no trace."""
    job(tmp_path, 2, [0.0, 0.0, 0.0, 0.0])
    moved(tmp_path / "rank2.json.gz", -73 * 365.25 * DAY_US, where)
    document = kineto_document(tmp_path)
    assert [
        "rank2.json.gz: its events span 73 years, which no trace holds: times in it are wrong"
    ] == document["losses"]
    assert ([], [2]) == (document["stragglers"]["ranks"], document["run"]["missing_ranks"])
    assert [0, 1, 3] == [row["rank"] for row in document["per_rank"]]


def test_a_world_beyond_any_job_is_not_believed(tmp_path: Path) -> None:
    """Sixteen million ranks without a trace took 1.6 GB to list."""
    trace(tmp_path / "rank0.json", [event("gemm", 1e9, 5.0)], 0, (1 << 24) - 1)
    assert {"world_size": None, "missing_ranks": []} == kineto_document(tmp_path)["run"]


def test_a_byte_order_mark_is_read_past(tmp_path: Path) -> None:
    """As some shells put it before what they write."""
    path = trace(tmp_path / "rank0.json", [event("gemm", 1e9, 5.0)] * 3, 0, 1)
    marked = b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n")
    packed = {"rank0.json": bytes, "rank1.json.gz": gzip.compress, "rank2.json.zst": zstandard.compress}
    for name, pack in packed.items():  # packing hid it
        (tmp_path / name).write_bytes(pack(marked))
        assert 3 == read_trace(tmp_path / name).num_events


@pytest.mark.parametrize("duration", [-50.0, float("nan"), None])
def test_a_mark_of_a_step_without_a_usable_time_is_no_step(tmp_path: Path, duration: float | None) -> None:
    """A step of -50 us stood in the document, and half of the FLOPs were of each."""
    marks = [event("ProfilerStep#1", 1e9, 10.0, "user_annotation")]
    marks.append({**marks[0], "name": "ProfilerStep#2", "dur": duration})
    trace(tmp_path / "rank0.json", [*marks, event("gemm", 1e9, 5.0)], 0, 1)
    document = kineto_document(tmp_path)
    assert ["ProfilerStep#1"] == [one["name"] for one in document["per_rank"][0]["steps"]]
    assert ["rank0.json: 1 mark of a step without a usable time, dropped"] == document["losses"]


def halved(events: list[Event]) -> list[Event]:
    """Each event as a begin and an end, as a thread a stream would write them."""
    halves: list[tuple[float, Event]] = []
    for one in events:
        thread = {"pid": one["pid"], "tid": one["args"].get("stream", 1)}
        begin = {**one, **thread, "ph": "B"}
        del begin["dur"]
        halves += [
            (one["ts"], begin),
            (one["ts"] + one["dur"], {"ph": "E", **thread, "ts": one["ts"] + one["dur"]}),
        ]
    return [half for _, half in sorted(halves, key=lambda timed: timed[0])]


def rewritten(source: Path, into: Path, change: Callable[[list[Event]], list[Event]]) -> Path:
    """Every trace of a folder with other events."""
    into.mkdir()
    for path in sorted(source.iterdir()):
        content = json.loads(gzip.decompress(path.read_bytes()))
        content["traceEvents"] = change(content["traceEvents"])
        (into / path.name.removesuffix(".gz")).write_text(json.dumps(content))
    return into


def said_of(folder: Path) -> list[tuple[object, ...]]:
    document = kineto_document(folder)
    late = [row["rank"] for row in document["stragglers"]["ranks"]]
    keys = ("rank", "gpu_events", "compute", "comm_exposed_s", "wait_s", "caused_wait_s")
    return [tuple(late), *(tuple(row[key] for key in keys) for row in document["per_rank"])]


def shuffled(events: list[Event]) -> list[Event]:
    order = np.random.default_rng(3).permutation(len(events))
    return [events[at] for at in order.tolist()]


@pytest.mark.parametrize("order", [list, shuffled])
def test_events_that_begin_and_end_apart_are_those_in_one_piece(
    tmp_path: Path, order: Callable[[list[Event]], list[Event]]
) -> None:
    """Chrome's B and E say what X does, in whatever order they stand."""
    (tmp_path / "whole").mkdir()
    whole = job(tmp_path / "whole", 2, [0, 3, -7, 11])
    apart = rewritten(whole, tmp_path / "apart", lambda events: order(halved(events)))
    expected = said_of(whole)
    assert (2,) == expected[0]
    assert expected == said_of(apart)


def test_an_end_belongs_to_the_innermost_begin_and_what_lacks_one_is_counted(tmp_path: Path) -> None:
    """A copy within a gemm's range, a begin that never ends, an end that never began."""
    gemm = {"ph": "B", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 0}
    copy = {"ph": "B", "cat": "gpu_memcpy", "name": "Memcpy HtoD", "pid": 0, "tid": 7, "ts": 10}
    ends = [{"ph": "E", "pid": 0, "tid": 7, "ts": at} for at in (15, 100)]
    lone = [{**gemm, "tid": 8, "ts": 50}, {"ph": "E", "pid": 0, "tid": 9, "ts": 60}, {**gemm, "ts": "later"}]
    trace(tmp_path / "rank0.json", [gemm, copy, *ends, *lone])
    document = kineto_document(tmp_path)
    (row,) = document["per_rank"]
    assert (2, 100e-6, 5e-6) == (row["gpu_events"], row["all"]["compute_s"], row["all"]["memory_s"])
    assert ["rank0.json: 3 events with a begin or an end alone, left out"] == document["losses"]


@pytest.mark.parametrize("write", ["{:.3f}", "{:.17e}", "{:+.4f}"])
@pytest.mark.parametrize("from_us", [0.0, -2e9])
def test_times_as_text_are_times_whatever_their_sign_and_power(
    tmp_path: Path, write: str, from_us: float
) -> None:
    """Negative ones count from within the trace; what is no number is dropped and counted elsewhere."""
    (tmp_path / "numbers").mkdir()
    numbers = job(tmp_path / "numbers", 1, [0, 3, -7, 11])

    def change(events: list[Event]) -> list[Event]:
        return [
            {**one, "ts": write.format(one["ts"] + from_us), "dur": write.format(one["dur"])}
            for one in events
        ]

    as_text = said_of(rewritten(numbers, tmp_path / "text", change))
    assert (1,) == as_text[0]
    for expected, found in zip(said_of(numbers)[1:], as_text[1:], strict=True):
        assert expected == pytest.approx(found, rel=1e-3)


@pytest.mark.parametrize(
    ("encoding", "pack"),
    crossed(["utf-16", "utf-16-be", "utf-32"], [bytes, gzip.compress, zstandard.compress]),
)
def test_wide_text_is_read_by_its_mark_packed_or_not(
    tmp_path: Path, encoding: str, pack: Callable[[bytes], bytes]
) -> None:
    """PowerShell's > writes UTF-16; the figures are those of UTF-8."""
    (tmp_path / "narrow").mkdir()
    narrow = job(tmp_path / "narrow", 3, [0, 3, -7, 11])
    wide = tmp_path / "wide"
    wide.mkdir()
    mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
    for path in narrow.iterdir():
        text = gzip.decompress(path.read_bytes()).decode()
        (wide / path.name.removesuffix(".gz")).write_bytes(pack(mark + text.encode(encoding)))
    assert said_of(narrow) == said_of(wide)


@pytest.mark.parametrize("ending", [".gzip", ".zstd"])
def test_the_long_names_of_what_is_packed_count_too(tmp_path: Path, ending: str) -> None:
    (tmp_path / "short").mkdir()
    short = job(tmp_path / "short", None, [0, 3])
    (tmp_path / "long").mkdir()
    for path in short.iterdir():
        (tmp_path / "long" / f"{path.stem}{ending}").write_bytes(path.read_bytes())
    assert said_of(short) == said_of(tmp_path / "long")


@pytest.mark.parametrize("ending", ["]", "]\n", "", ",", ",\n"])
@pytest.mark.parametrize("chunk", [64, 2 << 20])
def test_a_bare_list_is_read_in_pieces_and_may_lack_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, ending: str
) -> None:
    """Chrome's array format lets a writer that may be killed leave the bracket out; that it did is said."""
    monkeypatch.setattr(traceevents, "CHUNK_BYTES", chunk)
    events = plain_events(40)
    text = "\n[" + ",\n".join(json.dumps(one) for one in events) + ending
    (tmp_path / "rank0.json").write_text(text)
    source = traceevents.TraceFile(tmp_path / "rank0.json")
    batches = list(source.batches())
    assert events == [one for batch in batches for one in batch]
    assert (chunk == 64) == (len(batches) > 1)
    assert ("]" not in ending) == any("has no end" in loss for loss in kineto_document(tmp_path)["losses"])


@pytest.mark.parametrize("chunk", [64, 2 << 20])
def test_a_bare_list_that_is_cut_within_an_event_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(traceevents, "CHUNK_BYTES", chunk)
    text = json.dumps(plain_events(40))
    (tmp_path / "rank0.json").write_text(text[: len(text) - 20])
    with pytest.raises(TuiadvisorError, match="truncated"):
        kineto_document(tmp_path)


def test_marks_without_numbers_and_marks_told_twice_are_one_process(tmp_path: Path) -> None:
    """Only a number that comes again is another process's; the same mark under two categories is one."""
    (tmp_path / "unmarked").mkdir()
    unmarked = job(tmp_path / "unmarked", 1, [0, 3])

    def marked(names: list[str]) -> list[Event]:
        marks = [event(name, 1e9 + 1e5 * at, 9e4, "user_annotation") for at, name in enumerate(names)]
        return [each for one in marks for each in (one, {**one, "cat": "cpu_op"})]

    for at, names in enumerate((["ProfilerStep*"] * 4, ["ProfilerStep#2", "ProfilerStep#7"])):
        folder = rewritten(
            unmarked, tmp_path / f"marked{at}", lambda events, names=names: events + marked(names)
        )
        rows = kineto_document(folder)["per_rank"]
        assert [(1, len(names))] * 2 == [(row["processes"], len(row["steps"])) for row in rows]


@pytest.mark.parametrize(
    "category", ["cuda_runtime", "hip_runtime", "xpu_runtime", "xpu_driver", "privateuse1_runtime"]
)
def test_launches_of_other_devices_are_launches(tmp_path: Path, category: str) -> None:
    """As libkineto names them: the gap before a kernel that was launched late is the host's."""
    events = [
        event("gemm", 0, 100, correlation=1, stream=7),
        event("gemm", 400, 100, correlation=2, stream=7),
        event("launch", 0, 1, category, correlation=1),
        event("launch", 390, 1, category, correlation=2),
    ]
    trace(tmp_path / "rank0.json", events, 0, 1)
    (row,) = kineto_document(tmp_path)["per_rank"]
    assert (290e-6, 0.0) == pytest.approx((row["time_by_cause"]["host_s"], row["time_by_cause"]["unknown_s"]))


def test_a_kernel_without_a_namespace_keeps_its_name(tmp_path: Path) -> None:
    """Of `void (anonymous namespace)::multimem_all_reduce_kernel<…>(…)` the name is not `void`."""
    name = "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)"
    trace(tmp_path / "rank0.json", [event(name, 0, 10), event("gemm", 20, 10)], 0, 1)
    document = kineto_document(tmp_path)
    assert {"multimem_all_reduce_kernel<c10::BFloat16, 16>": 1} == document["per_rank"][0][
        "guessed_communication"
    ]


def test_a_copy_beside_its_file_is_left_out_and_the_late_rank_named(tmp_path: Path) -> None:
    """Packed otherwise and called otherwise, it is the same trace; another one of the rank is not."""
    job(tmp_path, 2, [0, 3, -7, 11])
    copy = tmp_path / "again-rank2.json.zst"
    copy.write_bytes(zstandard.compress(gzip.decompress((tmp_path / "rank2.json.gz").read_bytes())))
    document = kineto_document(tmp_path)
    assert ([2], [0, 1, 2, 3]) == (
        [row["rank"] for row in document["stragglers"]["ranks"]],
        [row["rank"] for row in document["per_rank"]],
    )
    assert ["rank2.json.gz: holds the same events as again-rank2.json.zst, left out"] == document["losses"]


def repeated(folder: Path, late: int, num: int = 2, lacks: tuple[int, int] | None = None) -> Path:
    """As tensorboard_trace_handler leaves a schedule that repeats: a file a rank and time, by host and process."""
    once = folder / "once"
    once.mkdir(parents=True)
    job(once, late, [0, 3, -7, 11])
    for path in sorted(once.iterdir()):
        content = json.loads(gzip.decompress(path.read_bytes()))
        rank = content["distributedInfo"]["rank"]
        for at in range(num):
            if (rank, at) == lacks:
                continue
            moved_us = 5e6 * at
            content["traceEvents"] = [
                {**one, "ts": one["ts"] + (moved_us and 5e6)} for one in content["traceEvents"]
            ]
            (folder / f"host_{4000 + rank}.{1700 + at}.pt.trace.json").write_text(json.dumps(content))
        path.unlink()
    once.rmdir()
    return folder


def test_of_a_schedule_that_repeats_the_last_files_are_compared(tmp_path: Path) -> None:
    """They were 'fewer than two ranks: nothing to compare'; all are shown, who waited in those compared."""
    document = kineto_document(repeated(tmp_path / "traces", 2))
    assert [2] == [row["rank"] for row in document["stragglers"]["ranks"]]
    assert ["each rank has 2 files, one after the other: the last of each is compared"] == document["losses"]
    told = {row["file"]: row["wait_s"] is not None for row in document["per_rank"]}
    assert 8 == len(told)
    assert told == {name: ".1701." in name for name in told}


def test_files_of_a_schedule_that_are_not_all_there_are_not_compared(tmp_path: Path) -> None:
    """Which of one rank's goes with which of another's nobody says."""
    document = kineto_document(repeated(tmp_path / "traces", 2, lacks=(1, 1)))
    assert [] == document["stragglers"]["ranks"]
    assert any("rank 0 has 2 files: not compared" in loss for loss in document["losses"])
