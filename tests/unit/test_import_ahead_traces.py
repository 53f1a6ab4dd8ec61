"""Traces in the shape that a real device gives: two ranks, hosts ahead, few steps, copies, buckets behind backward."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from test_import_kineto import ALL_REDUCE, Event, event, trace
from test_import_recording import imported
from thinned import crossed

from tuiadvisor.advisor.detail.collectives import MAX_CALLS
from tuiadvisor.advisor.judge.verdict import LINES_SHOWN, after_the_end
from tuiadvisor.app.whole_recording import whole_view
from tuiadvisor.cli import main
from tuiadvisor.importers.kernelnames import moved_bytes
from tuiadvisor.importers.kinetoreport import kineto_document
from tuiadvisor.tui.contract.feed import FeedState
from tuiadvisor.tui.pages.device_work import DeviceWorkPage
from tuiadvisor.views.run_view import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BUCKETS = 4
MOVING_US = 1_400.0  # of a bucket
LAUNCHING_US = 9_000.0  # of a step's kernels, on a thread that never waits
BASE_US = 1e9


@dataclass(frozen=True)
class Work:
    """Of a rank, microseconds a step."""

    copy: float = 600.0
    forward: float = 9_000.0
    backward: float = 17_000.0
    data: float = 10.0


def traced(
    folder: Path,
    works: tuple[Work, ...],
    num_steps: int = 12,
    *,
    synced: bool = False,
    cold: float = 1.0,
    turns: float = 1.0,
    paused: float = 0.0,
    times: Callable[[int, int], float] = lambda _step, _rank: 1.0,
) -> Path:
    """The traces of a rank for each of the works.

    synced: each thread looks at the loss at the end of a step; else it runs ahead of its device. cold: how many times
    as long the first two steps compute. turns: how many times as long one rank computes, another in each step. paused:
    microseconds that rank 1 computes longer in step 9 alone. times: how many times as long a rank computes in a step.
    """
    folder.mkdir(exist_ok=True)
    everyone = range(len(works))
    events: list[list[Event]] = [[] for _ in everyone]
    free, thread = [BASE_US for _ in everyone], [BASE_US - 50 for _ in everyone]
    for step in range(num_steps):
        number = 100 * step
        begun = [at + work.data for at, work in zip(thread, works, strict=True)]
        ready: list[list[float]] = []
        for rank, usual in enumerate(works):
            by = (cold if step < 2 else 1.0) * (turns if step * 7 // 3 % len(works) == rank else 1.0)
            by *= times(step, rank)
            more = paused if (rank, step) == (1, 9) else 0.0
            work = replace(usual, forward=by * usual.forward + more, backward=by * usual.backward)
            if synced:
                begun[rank] = thread[rank] = max(thread[rank], free[rank])
                begun[rank] += work.data
            mine, at = events[rank], max(free[rank], begun[rank] + 60)
            mine += _thread(begun[rank], number)
            mine.append(_on_device("Memcpy HtoD (Pinned -> Device)", at, work.copy, number + 1, "gpu_memcpy"))
            at += work.copy
            mine.append(_on_device("sgemm_forward", at, work.forward, number + 2))
            at += work.forward
            chunks = []
            for bucket in range(BUCKETS):
                chunk = work.backward / BUCKETS
                mine.append(_on_device("sgemm_backward", at, chunk, number + 10 + bucket))
                at += chunk
                chunks.append(at)
            ready.append(chunks)
        end = [0.0 for _ in everyone]
        for bucket in range(BUCKETS):
            begin = [max(ready[rank][bucket] + 5, end[rank]) for rank in everyone]
            done = max(begin) + MOVING_US
            for rank in everyone:
                kernel = _on_device(ALL_REDUCE, begin[rank], done - begin[rank], number + 20 + bucket)
                kernel["args"] |= {"stream": 16, "In msg nelems": 1_050_624, "dtype": "Float"}
                events[rank].append(kernel)
                end[rank] = done + 5
        for rank, work in enumerate(works):
            events[rank].append(_on_device("multi_tensor_apply", end[rank], 25, number + 30))
            free[rank] = end[rank] + 30
            marked = begun[rank] - work.data
            thread[rank] = free[rank] + 40 if synced else begun[rank] + LAUNCHING_US
            mark = event(f"ProfilerStep#{step}", marked, thread[rank] - marked - 1, "user_annotation")
            load = event("enumerate(DataLoader)#_Next", marked, work.data, "user_annotation")
            events[rank].extend((mark, load))
    for rank in everyone:
        trace(folder / f"trace-{rank}.json", events[rank], rank, len(works))
    return folder


def _on_device(name: str, begin: float, took: float, number: int, kind: str = "kernel") -> Event:
    return event(name, begin, took, kind, correlation=number, stream=7)


def _thread(begin: float, number: int) -> list[Event]:
    """What it launches in a step, one after the other and without a wait."""
    launches = [(number + 1, 20.0, "cudaMemcpyAsync"), (number + 2, 100.0, "cudaLaunchKernel")]
    launches += [
        (number + 10 + bucket, 2_000.0 + 500 * bucket, "cudaLaunchKernel") for bucket in range(BUCKETS)
    ]
    launches += [
        (number + 20 + bucket, 2_200.0 + 500 * bucket, "cudaLaunchKernel") for bucket in range(BUCKETS)
    ]
    launches.append((number + 30, 8_000.0, "cudaLaunchKernel"))
    return [
        event("aten::to", begin + 10, 40, "cpu_op"),
        event("aten::copy_", begin + 12, 36, "cpu_op"),
        event("aten::linear", begin + 90, 1_500, "cpu_op"),
        event("aten::to", begin + 1_700, 30, "cpu_op"),  # of a type to another: no copy to the device
        event("autograd::engine::evaluate_function: MmBackward0", begin + 1_900, 4_000, "cpu_op"),
        event("Optimizer.step#SGD.step", begin + 7_950, 100, "user_annotation"),
        *(event(name, begin + at, 5, "cuda_runtime", correlation=one) for one, at, name in launches),
    ]


@pytest.mark.parametrize("synced", [False, True], ids=["ahead", "synced"])
def test_steps_a_second_are_the_devices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, synced: bool
) -> None:
    """The thread launches a step in 9 ms and begins with nothing queued; the device takes 28."""
    _, view = imported(traced(tmp_path / "traces", (Work(), Work()), synced=synced), capsys)
    assert "device" == view.clock
    assert view.step.mean_s is not None
    assert 1 / view.step.mean_s == pytest.approx(view.step.throughput_steps_s, rel=0.02)


@pytest.mark.parametrize("synced", [False, True], ids=["ahead", "synced"])
def test_a_copy_to_the_device_is_no_forward(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, synced: bool
) -> None:
    """12 ms of copies on rank 1 lay in its forward, which is as long as its peer's; a change of type is no copy."""
    _, view = imported(traced(tmp_path / "traces", (Work(), Work(copy=12_000)), synced=synced), capsys)
    copy_s, forward_s = ([row.seconds[name] for row in view.ranks] for name in ("h2d", "forward"))
    assert [0.0006, 0.012] == pytest.approx(copy_s, abs=0.0002)
    assert [0.009, 0.009] == pytest.approx(forward_s, abs=0.0003)


HEALTHY, SLOW = Work(), Work(forward=13_500, backward=25_500)
COPIES, WAITS = Work(copy=12_000), Work(data=50_000)


@pytest.mark.parametrize("synced", [False, True], ids=["ahead", "synced"])
@pytest.mark.parametrize(
    ("works", "named", "says"),
    [
        ((HEALTHY, SLOW), [1], "in all compute phases alike, so on its device"),
        ((HEALTHY, COPIES), [1], "copying to the device"),
        ((WAITS, WAITS), [], "every rank waits for data"),
    ],
    ids=["device", "copies", "data of all"],
)
def test_what_is_in_every_step_of_a_trace_is_said_though_they_are_few(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    works: tuple[Work, Work],
    named: list[int],
    says: str,
    *,
    synced: bool,
) -> None:
    """Twelve short steps: nobody can wait for more of them, and what costs a tenth of each is no chance."""
    _, view = imported(traced(tmp_path / "traces", works, synced=synced), capsys)
    assert ("tune", named) == (view.verdict.decision, [one.rank for one in view.stragglers])
    assert says in view.verdict.sentence


@pytest.mark.parametrize("synced", [False, True], ids=["ahead", "synced"])
def test_the_wall_time_of_a_trace_is_its_devices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, synced: bool
) -> None:
    """The threads that ran ahead were through in a third of it: 'goodput 100 %' stood beside 'others wait 29 %'."""
    _, view = imported(traced(tmp_path / "traces", (HEALTHY, SLOW), synced=synced), capsys)
    assert view.wall is not None
    assert view.step.mean_s is not None
    assert 12 * view.step.mean_s == pytest.approx(view.wall.span_s, rel=0.02)
    assert view.wall.steady == pytest.approx(view.wall.end_to_end, abs=0.01)
    assert 0.0 == view.wall.unknown_s  # each mark is a whole step
    shares = {part.kind: part.share for part in view.wall.waterfall}
    (late,) = (one for one in view.findings if one.id == "straggler")
    assert late.loss_s_per_step is not None
    assert late.loss_s_per_step / view.step.mean_s == pytest.approx(shares["straggler"], abs=0.01)


@pytest.mark.parametrize(
    ("dur", "launches", "num_steps"), [(50.0, False, 6), (50.0, True, 7), (9_000.0, False, 7)],
    ids=["cut off", "with work", "long"],
)  # fmt: skip
def test_a_last_mark_that_the_trace_cut_off_is_no_step(
    tmp_path: Path, dur: float, num_steps: int, *, launches: bool
) -> None:
    """The profiler stopped 49 us after the last prof.step(): of it and one of 9.3 ms the mean was 4.67 ms."""
    folder = traced(tmp_path / "traces", (HEALTHY, HEALTHY), num_steps=6)
    path = folder / "trace-0.json"
    content = json.loads(path.read_text())
    marks = [one for one in content["traceEvents"] if one["name"].startswith("ProfilerStep")]
    begin = max(one["ts"] + one["dur"] for one in marks) + 30
    content["traceEvents"].append(event("ProfilerStep#6", begin, dur, "user_annotation"))
    if launches:
        launch = event("cudaLaunchKernel", begin + 10, 5, "cuda_runtime", correlation=9_999)
        content["traceEvents"] += [launch, _on_device("sgemm", begin + 200_000, 100, 9_999)]
    path.write_text(json.dumps(content))
    told = kineto_document(folder)
    assert [num_steps, 6] == [len(row["steps"]) for row in told["per_rank"]]
    assert (num_steps == 6) == any("ProfilerStep#6 is no step" in loss for loss in told["losses"])


def test_that_all_is_well_few_steps_do_not_tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nor do seven tell that a rank is slow."""
    _, view = imported(traced(tmp_path / "well", (HEALTHY, HEALTHY)), capsys)
    assert (None, 8) == (view.verdict.decision, view.window.num_missing_steps)
    _, view = imported(traced(tmp_path / "slow", (HEALTHY, SLOW), num_steps=7), capsys)
    assert (None, 13) == (view.verdict.decision, view.window.num_missing_steps)


@pytest.mark.parametrize("synced", [False, True], ids=["ahead", "synced"])
def test_waits_behind_compute_and_small_ones_name_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, synced: bool
) -> None:
    """Rank 1 is 0.7 ms of 29 later in each of 48 collectives, of which three in four hide behind backward.

    "Rank 1 arrives last and causes 100% of all waiting" was said of two healthy ranks.
    """
    works = (HEALTHY, Work(copy=1_300))
    told, view = imported(traced(tmp_path / "traces", works, synced=synced), capsys)
    assert [] == told["stragglers"]["ranks"]
    assert "too little to name one" in told["stragglers"]["because"]
    assert view.verdict.sentence.startswith("Ranks wait 2.")
    # Of four waits a step three are behind backward.
    assert 0.0007 * 12 == pytest.approx(told["per_rank"][0]["wait_s"], rel=0.1)
    told, _ = imported(traced(tmp_path / "slow", (HEALTHY, SLOW), synced=synced), capsys)
    assert [1] == [row["rank"] for row in told["stragglers"]["ranks"]]
    assert told["stragglers"]["because"].startswith(
        "rank 1 arrives last and causes 100% of all waiting, 29% "
    )


def stages(folder: Path, *, alltoall: bool = False) -> Path:
    """Two stages of a pipeline: the second computes half as long again, NCCL's kernels do not say what they are.

    A send is over when its data lies in a buffer, 0.7 ms before it has been received.
    """
    folder.mkdir(exist_ok=True)
    for rank, compute in enumerate((800, 1_200)):
        events: list[Event] = []
        for step in range(12):
            begin = BASE_US + 40_000 * step
            events.append(event(f"ProfilerStep#{step}", begin, 39_990, "user_annotation"))
            for batch in range(8):
                at, number = begin + 2_500 * batch, 100 * step + 2 * batch
                name = "c10d::alltoall_base_" if alltoall else "c10d::send" if rank == 0 else "c10d::recv_"
                events += [
                    event("aten::linear", at, 20, "cpu_op"),
                    event("cudaLaunchKernel", at + 5, 5, "cuda_runtime", correlation=number),
                    event(name, at + 25, 20, "cpu_op"),
                    event("cudaLaunchKernel", at + 30, 5, "cuda_runtime", correlation=number + 1),
                    event("autograd::engine::evaluate_function: MmBackward0", at + 50, 20, "cpu_op"),
                    _on_device("sgemm", at + 10, compute, number),
                ]
                kernel = _on_device("ncclDevKernel_SendRecv(ncclArgs)", at + 15 + compute, 0, number + 1)
                kernel["dur"] = (1_200 if alltoall or rank == 0 else 1_900) - compute + 800
                kernel["args"]["stream"] = 16
                events.append(kernel)
        trace(folder / f"trace-{rank}.json", events, rank, 2)
    return folder


def test_what_stages_wait_for_each_other_is_not_told_from_what_moving_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half of their step is sends and receives: it was 'moving data' where it is mostly waiting for a neighbour."""
    told, view = imported(stages(tmp_path / "traces"), capsys)
    assert "stages of a pipeline" in told["stragglers"]["because"]
    assert (None, None) == (view.overlap.transfer_s, view.overlap.skew_s)
    assert view.overlap.comm_exposed_s is not None
    assert {"pp": 2} == view.run.parallel
    assert (None, True) == (view.verdict.decision, bool(view.window.why_undecided))
    assert "nothing tells who is late" in view.verdict.sentence
    assert "when a stage works on which micro-batch" in view.verdict.sentence
    assert "more steps" not in view.verdict.sentence
    assert 0 == main(["advise", str(tmp_path / "traces.tuirec")])
    advised = capsys.readouterr().out
    assert "Evidence for what the reason leaves open" in advised
    assert "devices' clocks were seen" not in advised


def test_the_same_kernels_of_an_all_to_all_are_waited_for_by_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By what the threads called: who comes last to those is late."""
    told, view = imported(stages(tmp_path / "traces", alltoall=True), capsys)
    assert [1] == [row["rank"] for row in told["stragglers"]["ranks"]]
    assert {} == view.run.parallel


def changed(path: Path, by_us: float = 0.0, **keys: object) -> None:
    """The trace with more keys, its events later by so much."""
    content = json.loads(path.read_text())
    for one in content["traceEvents"]:
        one["ts"] += by_us
    path.write_text(json.dumps({**content, **keys}))


def test_traces_of_different_moments_are_said_to_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Profiled from another step on, rank 1's ended before rank 0's began: 'only 15 of 48 calls end together'."""
    folder = traced(tmp_path / "traces", (HEALTHY, HEALTHY))
    other = traced(tmp_path / "other", (SLOW, SLOW))
    (other / "trace-1.json").rename(folder / "trace-1.json")
    base = {"baseTimeNanoseconds": 1_790_857_026_000_000_000}
    changed(folder / "trace-0.json", **base)
    changed(folder / "trace-1.json", -2_000_000, **base)
    because = kineto_document(folder)["stragglers"]["because"]
    assert "rank 1's trace ends 1.5" in because
    assert "different steps" in because
    _, view = imported(folder, capsys)
    assert "would decide" not in view.verdict.sentence
    changed(folder / "trace-1.json", 1_900_000)
    assert "different steps" not in kineto_document(folder)["stragglers"]["because"]


def test_what_a_trace_says_of_its_software_and_device_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Backend, CUDA, NCCL, and that one rank has fewer multiprocessors; how many hosts there are it does not say."""
    folder = traced(tmp_path / "traces", (HEALTHY, SLOW))
    for rank, number in enumerate((58, 38)):
        about = {"backend": "nccl", "rank": rank, "world_size": 2, "nccl_version": "2.28.9"}
        devices = [{"id": 0, "name": "NVIDIA H200", "numSms": number}]
        changed(
            folder / f"trace-{rank}.json",
            distributedInfo=about,
            deviceProperties=devices,
            cuda_runtime_version=13_000,
        )
    told, view = imported(folder, capsys)
    assert ("nccl", ()) == (view.run.backend, view.run.hosts)
    assert {"cuda": "13.0", "nccl": "2.28.9"}.items() <= view.run.software.items()
    (differ,) = told["notes"]
    assert "58 multiprocessors on rank 0" in differ
    assert "38 multiprocessors on rank 1" in differ
    assert differ not in view.losses.notes
    assert "unlike_shares" in {one.id for one in view.findings}
    for rank in range(2):
        changed(folder / f"trace-{rank}.json", host_name=f"node{rank}", deviceProperties=[])
    told, view = imported(folder.rename(tmp_path / "named"), capsys)
    assert (("node0", "node1"), []) == (view.run.hosts, told["notes"])


@pytest.mark.parametrize(
    ("devices", "rule", "words"),
    [
        (
            (("NVIDIA H200", 132), ("NVIDIA H100 PCIe", 114)),
            "unlike_devices",
            "rank 0: NVIDIA H200; rank 1: NVIDIA H100 PCIe",
        ),
        (
            (("NVIDIA H200", 58), ("NVIDIA H200", 38)),
            "unlike_shares",
            "rank 0: 58 multiprocessors; rank 1: 38 multi",
        ),
        ((("NVIDIA H200", 132), ("NVIDIA H200", 132)), "", ""),
    ],
    ids=["two kinds", "two shares", "alike"],
)
def test_unlike_devices_of_a_trace_are_a_finding_and_nothing_that_was_lost(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    devices: tuple[tuple[str, int], ...],
    rule: str,
    words: str,
) -> None:
    """Also in a copy that names nobody; of devices that are alike there is none."""
    folder = traced(tmp_path / "traces", (HEALTHY, SLOW))
    for rank, (name, number) in enumerate(devices):
        changed(folder / f"trace-{rank}.json", deviceProperties=[{"id": 0, "name": name, "numSms": number}])
    _, view = imported(folder, capsys)
    copy = tmp_path / "copy.tuirec"
    assert 0 == main(["anonymize", str(tmp_path / "traces.tuirec"), "-o", str(copy)])
    for each in (view, whole_view(str(copy))):
        found = [one for one in each.findings if one.id in {"unlike_devices", "unlike_shares"}]
        assert ([rule] if rule else []) == [one.id for one in found]
        assert all(words in one.message for one in found)
        assert not any("differ" in note for note in each.losses.notes)


def test_a_late_rank_that_traces_of_different_moments_cannot_confirm_is_no_reason_to_keep(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """24 steps in which one waits 12 ms: it was 'keep: nothing found is worth acting on'."""
    folder = traced(tmp_path / "traces", (HEALTHY, SLOW), num_steps=24)
    other = traced(tmp_path / "other", (HEALTHY, Work(forward=13_000, backward=27_000)), num_steps=24)
    (other / "trace-1.json").rename(folder / "trace-1.json")
    changed(folder / "trace-1.json", -2_000_000)
    told, view = imported(folder, capsys)
    assert [] == told["stragglers"]["ranks"]
    assert (None, True) == (view.verdict.decision, bool(view.window.why_undecided))
    assert "of which nothing tells what is waiting for another rank" in view.verdict.sentence
    assert [(None, None)] * 2 == [(row.wait_s, row.caused_wait_s) for row in view.ranks]
    assert (None, None, None) == (view.overlap.skew_s, view.overlap.transfer_s, view.what_if)
    assert told["stragglers"]["because"] == next(
        one.why for one in view.unknown if one.metric == "stragglers"
    )


@pytest.mark.parametrize("synced", [False, True], ids=["ahead", "synced"])
def test_a_call_counts_in_the_step_that_launched_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, synced: bool
) -> None:
    """Four a step on every rank were 2.5: what the device did behind the last mark was in no step."""
    _, view = imported(traced(tmp_path / "traces", (HEALTHY, SLOW), synced=synced), capsys)
    (row,) = view.collectives
    assert (4.0, 2, MAX_CALLS) == (row.per_step, row.num_ranks, row.num_seen)
    assert 4 * 1_050_624 == row.num_bytes
    assert row.transfer_s == pytest.approx(MOVING_US / 1e6, rel=0.05)
    assert 1 == row.last_rank


def test_a_call_that_was_launched_before_the_first_step_is_in_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The device of rank 0 begins with a call whose launch the profiler did not see: the others keep their numbers."""
    folder = traced(tmp_path / "traces", (HEALTHY, SLOW))
    path = folder / "trace-0.json"
    content = json.loads(path.read_text())
    content["traceEvents"].append(_on_device(ALL_REDUCE, BASE_US + 100, 50, 999_999))
    path.write_text(json.dumps(content))
    _, view = imported(folder, capsys)
    assert {4.0} == {row.per_step for row in view.collectives}


@pytest.mark.parametrize(
    ("arguments", "num_bytes"),
    [
        ({"In msg nelems": 8, "Out msg nelems": 16, "dtype": "BFloat16"}, 32),
        ({"In msg nelems": 8, "dtype": "Double"}, 64),
        ({"In msg nelems": 8, "dtype": "Unheard"}, -1),
        ({"In msg nelems": "8", "dtype": "Float"}, -1),
        ({"In msg nelems": 1 << 62, "dtype": "Float"}, -1),
        ({"dtype": "Float"}, -1),
        ({}, -1),
    ],
)
def test_bytes_of_a_call_are_known_where_the_trace_says_both_number_and_type(
    arguments: dict[str, object], num_bytes: int
) -> None:
    """The larger of input and output, as a probe counts them."""
    assert num_bytes == moved_bytes(arguments)


def test_every_rank_waits_no_longer_than_the_one_that_waits_least(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was said of 54 % of the step where one rank waits 54 % and the other 48 %."""
    _, view = imported(traced(tmp_path / "traces", (WAITS, Work(data=48_000))), capsys)
    (found,) = (one for one in view.findings if one.id == "input_bound")
    assert view.step.mean_s is not None
    waits = [row.seconds["data_wait"] or 0.0 for row in view.ranks]
    assert min(waits) < 0.98 * max(waits)
    assert min(waits) / view.step.mean_s == pytest.approx(found.evidence["data_wait_share"], rel=0.01)


def test_a_late_rank_gone_leaves_what_each_computes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two cold steps of twelve: the upper end was a step of 7.6 ms, where the rank that computes least needs 30.6."""
    folder = traced(tmp_path / "traces", (HEALTHY, Work(copy=64_000)), cold=2.3)
    _, view = imported(folder, capsys)
    assert view.verdict.speedup is not None
    assert view.step.mean_s is not None
    compute = [(row.seconds["forward"] or 0.0) + (row.seconds["backward"] or 0.0) for row in view.ranks]
    assert view.step.mean_s / view.verdict.speedup.high >= 0.99 * min(compute)


def slower(by: float) -> Work:
    """All of a healthy rank's compute takes so many times as long."""
    return replace(HEALTHY, forward=by * HEALTHY.forward, backward=by * HEALTHY.backward)


@pytest.mark.parametrize("num_steps", [12, 24])
def test_ranks_late_together_are_named_and_their_run_is_not_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], num_steps: int
) -> None:
    """Four of eight a tenth slower: one of them was 'the last', and 9 % of the time waiting was 'keep'."""
    works = tuple(slower(1.1) if rank in {1, 4, 6, 7} else HEALTHY for rank in range(8))
    told, view = imported(traced(tmp_path / "traces", works, num_steps), capsys)
    assert [1, 4, 6, 7] == [row["rank"] for row in told["stragglers"]["ranks"]]
    assert "ranks 1, 4, 6, 7 arrive last, all of them after all others" in told["stragglers"]["because"]
    assert "tune" == view.verdict.decision
    assert "ranks 1, 4, 6 and 7 late by 2.6 ms" in view.verdict.sentence


def test_a_wait_that_is_nobodys_is_no_reason_to_keep(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever comes last changes from step to step: a tenth of the time is waiting all the same."""
    folder = tmp_path / "traces"
    traced(folder, (HEALTHY,) * 4, 24, turns=1.13)
    told, view = imported(folder, capsys)
    assert [] == told["stragglers"]["ranks"]
    assert "stragglers vary" in told["stragglers"]["because"]
    assert "keep" != view.verdict.decision
    assert "stragglers vary" in view.verdict.because
    assert 1 == view.verdict.sentence.lower().count("stragglers vary")
    would = "a capture of four times as many would leave chance half the room"
    assert view.verdict.sentence.endswith(f"Not decided: the steps do not tell why ({would}).")


@pytest.mark.parametrize(
    ("num_ranks", "halves", "says"),
    [
        (4, ({1}, {3}), "rank 1 arrives last in the first half of the trace, rank 3 in the second"),
        (
            8,
            ({1, 2}, {5, 6}),
            "ranks 1, 2 arrive last in the first half of the trace, ranks 5, 6 in the second",
        ),
    ],
)
def test_ranks_that_are_late_in_one_half_each_are_said_with_their_half(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    num_ranks: int,
    halves: tuple[set[int], set[int]],
    says: str,
) -> None:
    """All that was said of them: several ranks arrive last, no single culprit."""
    folder = traced(
        tmp_path / "traces",
        (HEALTHY,) * num_ranks,
        24,
        times=lambda step, rank: 1.12 if rank in halves[step >= 12] else 1.0,
    )
    told, view = imported(folder, capsys)
    assert [] == told["stragglers"]["ranks"]
    assert f"stragglers vary: {says}; " in told["stragglers"]["because"]
    assert "keep" != view.verdict.decision
    assert f"Stragglers vary: {says}; " in view.verdict.sentence
    assert "chance" not in view.verdict.sentence


def test_an_open_verdict_names_the_ranks_that_nothing_is_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who of the eight is not there, and what would tell, was not said."""
    folder = traced(
        tmp_path / "traces",
        (HEALTHY,) * 8,
        24,
        times=lambda step, rank: 1 + 0.005 * ((step * 7 + 3 * rank) % 5),
    )
    for rank in (3, 6):
        next(path for path in folder.iterdir() if f"{rank}" in path.name).unlink()
    _, view = imported(folder, capsys)
    assert None is view.verdict.decision
    assert "one of 2 ranks whose device was not seen" in view.verdict.sentence
    assert view.verdict.sentence.endswith(
        " Nothing here is of ranks 3 and 6; a capture of all ranks would tell."
    )


def test_one_rank_with_less_to_do_is_early_though_the_others_differ_a_little(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its own wait was said of the time of all: "several ranks arrive last; 12 % of the time is waiting for them"."""
    works = (HEALTHY, HEALTHY, HEALTHY, Work(forward=8_000, backward=15_000))
    told, view = imported(traced(tmp_path / "traces", works, 24, turns=1.03), capsys)
    assert re.match(
        r"rank 3 arrives early and waits 1\d\.\d% of the time; the others arrive",
        told["stragglers"]["because"],
    )
    assert "keep" == view.verdict.decision


def test_a_rank_that_is_late_behind_a_later_one_does_not_hide_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The steps name both and the calls only the last: nothing was decided where a fifth of the time was lost."""
    later, late = Work(forward=11_700, backward=22_100), Work(forward=9_900, backward=18_700)
    told, view = imported(traced(tmp_path / "traces", (HEALTHY, later, HEALTHY, late), 24), capsys)
    assert [1] == [row["rank"] for row in told["stragglers"]["ranks"]]
    assert "ranks 1 and 3 late by" in view.verdict.sentence
    assert ("tune", [1, 3]) == (view.verdict.decision, sorted(one.rank for one in view.stragglers))


def test_a_pause_in_one_step_makes_nobody_the_last_nor_ranks_take_turns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It cost a tenth of the time: "arrives last" stood beside "now one rank arrives last, now another"."""
    told, view = imported(traced(tmp_path / "traces", (HEALTHY,) * 4, 24, paused=85_000), capsys)
    because = told["stragglers"]["because"]
    assert "arrives last" not in because
    assert re.match(r"rank 1 causes 1?\d\d% of all waiting, 1\d% of the time, most of it in 1 of 96", because)
    assert "taking_turns" not in [one.id for one in view.findings]
    assert "keep" != view.verdict.decision


@pytest.mark.parametrize(("by", "share"), [(1.03, "2.8%"), (1.05, "4.5%")])
def test_a_small_delay_of_one_rank_in_nearly_every_step_is_told_with_its_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], by: float, share: str
) -> None:
    """Beside six that come together it is no noise; the run may stay as it is, as one that is watched live may."""
    works = tuple(slower(by if rank == 5 else 1 + 0.001 * rank) for rank in range(8))
    told, view = imported(traced(tmp_path / "traces", works, 24), capsys)
    assert [5] == [row["rank"] for row in told["stragglers"]["ranks"]]
    assert [(5,)] == [one.ranks for one in view.findings if one.id == "straggler"]
    assert "keep" == view.verdict.decision
    assert f"rank 5 arrives last and causes 100% of all waiting, {share} of the time" in view.verdict.because


LATE: dict[str, Callable[[int], float]] = {
    "in the second half": lambda step: 1.15 if step >= 12 else 1.0,
    "in every fourth step": lambda step: 1.3 if step % 4 == 0 else 1.0,
    "in every other step": lambda step: 1.2 if step % 2 else 1.0,
}


@pytest.mark.parametrize(("num_ranks", "when"), crossed([2, 4], LATE))
def test_a_rank_that_is_named_and_costs_something_beyond_doubt_is_the_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], when: str, num_ranks: int
) -> None:
    """It was "rank 1 causes 98% of all waiting. Not decided: the steps do not tell why"."""
    generator = np.random.default_rng(4)
    noise = generator.normal(1, 0.01, (24, num_ranks))
    folder = traced(
        tmp_path / "traces",
        (HEALTHY,) * num_ranks,
        24,
        times=lambda step, rank: noise[step, rank] * (LATE[when](step) if rank == 1 else 1.0),
    )
    told, view = imported(folder, capsys)
    assert [1] == [row["rank"] for row in told["stragglers"]["ranks"]]
    assert ("tune", "straggler") == (view.verdict.decision, view.verdict.finding)
    assert view.verdict.sentence.startswith("Tune: rank 1 late by")
    assert view.verdict.speedup is not None
    assert 1 < view.verdict.speedup.low < view.verdict.speedup.expected


@pytest.mark.parametrize(("num_ranks", "size"), crossed([2, 3, 4, 8], [0.01, 0.05, 0.12]))
@pytest.mark.parametrize("kind", ["every step", "some steps"])
def test_of_healthy_ranks_with_noise_nobody_is_named_and_nothing_is_to_be_tuned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, size: float, num_ranks: int
) -> None:
    """Of two ranks alike one caused three fifths of all waiting by chance, and was named."""
    generator = np.random.default_rng(round(1000 * size) + num_ranks)
    noise = generator.normal(1, size, (24, num_ranks))
    if kind == "some steps":
        noise = generator.normal(1, 0.01, noise.shape)
        noise += (generator.random(noise.shape) < 0.12) * generator.exponential(4 * size, noise.shape)
    folder = traced(
        tmp_path / "traces",
        (HEALTHY,) * num_ranks,
        24,
        times=lambda step, rank: max(float(noise[step, rank]), 0.5),
    )
    told, view = imported(folder, capsys)
    assert [] == told["stragglers"]["ranks"]
    assert "tune" != view.verdict.decision


def test_a_small_delay_within_what_the_others_differ_by_names_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of eight ranks in a row from 1 to 1.04 times as long one is the last, by as much as each is behind the next."""
    works = tuple(slower(1 + 0.006 * rank) for rank in range(8))
    told, _ = imported(traced(tmp_path / "traces", works, 24), capsys)
    assert [] == told["stragglers"]["ranks"]
    assert "too little to name one" in told["stragglers"]["because"]


@pytest.mark.parametrize(("works", "first"), [((HEALTHY, HEALTHY, SLOW), 2), ((HEALTHY,) * 3, 0)])
def test_kernels_are_shown_of_the_late_rank_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], works: tuple[Work, ...], first: int
) -> None:
    """It was rank 0, whose device mostly waits for the one that is late."""
    _, view = imported(traced(tmp_path / "traces", works), capsys)
    lines = [
        row.text for row in DeviceWorkPage().lines(FeedState(view, "replay", "", "", None, None, 1), 110, 60)
    ]
    (shown,) = (text for text in lines if "of its device went" in text)
    assert f"rank {first}: where" in shown


LIVE = re.compile(r"tuiadvisor (?:stacks|watch|capture)|kill -CONT|\bPID\b|while it runs", re.IGNORECASE)


@pytest.mark.parametrize(
    ("late", "lever"),
    [(SLOW, "Compare its device"), (COPIES, "pin_memory=True")],
    ids=["device", "copies"],
)
def test_a_traces_first_advice_is_the_lever_of_its_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], late: Work, lever: str
) -> None:
    """It was to find the line of code in a job that runs no more; nor does advice ask that job anything now."""
    _, view = imported(traced(tmp_path / "traces", (HEALTHY, late), 24), capsys)
    found = next(one for one in view.findings if one.id == "straggler")
    assert lever in found.actions[0].text
    for words in (["diagnose"], ["advise"], ["replay", "--once"]):
        assert 0 == main([*words, str(tmp_path / "traces.tuirec")])
        said = capsys.readouterr().out.replace("when it runs again: tuiadvisor watch", "")
        assert [] == LIVE.findall(said), words


def test_of_a_trace_that_is_looked_at_in_part_nobody_says_that_it_has_no_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stretch of diagnose, and a replay that stands at a step: its summary was that of the end."""
    imported(traced(tmp_path / "traces", (HEALTHY, SLOW)), capsys)
    recording = str(tmp_path / "traces.tuirec")
    assert 0 == main(["diagnose", recording, "--steps", "0:5", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (0, 5) == (found["window"]["first_step"], found["window"]["last_step"])
    assert "no more" not in found["verdict"]["because"]
    assert "Not enough steps looked at" in found["verdict"]["sentence"]
    assert 0 == main(["replay", "--once", "--at", "4", recording])
    shown = capsys.readouterr().out
    assert "step 4\n" in shown
    assert "TUNE" not in shown
    assert 0 == main(["replay", "--once", "--at", "11", recording])
    assert "TUNE" in capsys.readouterr().out


@pytest.mark.parametrize("num_steps", [6, 14])
def test_a_trace_that_is_too_short_says_what_the_next_one_has_to_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], num_steps: int
) -> None:
    """It said how many more steps would decide, as if some could come."""
    _, view = imported(traced(tmp_path / "traces", (HEALTHY,) * 2, num_steps), capsys)
    held = f"it holds {num_steps} of the 20 steps on the devices' clocks that would decide"
    says = f"{held}; the next capture has to hold 20"
    assert says in view.verdict.sentence
    assert view.window.why_undecided
    for words in (["diagnose"], ["replay", "--once"]):
        assert 0 == main([*words, str(tmp_path / "traces.tuirec")])
        assert [] == re.findall(r"not enough yet|\d+ more step|NOT YET", capsys.readouterr().out)


def test_of_a_job_that_has_ended_the_lines_are_shown_when_it_runs_again() -> None:
    """py-spy was to look at a process that is gone."""
    told = Verdict(None, f"Not decided: unseen ({LINES_SHOWN}).", None, None, None, None, LINES_SHOWN, "")
    over = after_the_end(told)
    assert ("Not decided: unseen (py-spy top --pid PID shows the lines when it runs again).") == over.sentence
    assert over.because.endswith("when it runs again")


def test_a_trace_that_is_compared_is_not_to_be_recorded_longer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is no recording that could go on."""
    imported(traced(tmp_path / "one", (HEALTHY, SLOW)), capsys)
    imported(traced(tmp_path / "two", (HEALTHY, HEALTHY)), capsys)
    paths = [str(tmp_path / f"{name}.tuirec") for name in ("one", "two")]
    assert 0 == main(["compare", *paths, "--same-work"])
    said = " ".join(capsys.readouterr().out.split())
    assert "record longer" not in said
    assert "one has no more: trace or log more of them" in said


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Memcpy HtoD (Pageable -> Device)", True),
        ("MemcpyHtoD (Pageable->Device)", True),
        ("Memcpy DtoH (Device -> Pageable)", False),
        ("Memcpy HtoD (Pinned -> Device)", False),
    ],
)
def test_copies_from_pageable_memory_are_a_finding_with_their_lever(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, *, says: bool
) -> None:
    """12 ms of each step on rank 1; where all is pinned nothing is said, nor of results that are read back."""
    folder = traced(tmp_path / "traces", (HEALTHY, COPIES), 24)
    path = folder / "trace-1.json"
    path.write_text(path.read_text().replace("Memcpy HtoD (Pinned -> Device)", name))
    told, view = imported(folder, capsys)
    found = [one for one in view.findings if one.id == "pageable_copies"]
    assert ([(1,)] if says else []) == [one.ranks for one in found]
    assert all("non_blocking=True" in one.actions[0].text for one in found)
    assert (24 * 0.012 if says else 0.0) == pytest.approx(told["per_rank"][1]["pageable_s"], abs=0.001)
    assert 0.0 == told["per_rank"][0]["pageable_s"]


def test_device_events_that_were_dropped_are_said_and_not_idle_without_a_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three steps' kernels are not in the file of rank 0: the device was 'idle' there."""
    folder = traced(tmp_path / "traces", (HEALTHY, HEALTHY), 24)
    told = kineto_document(folder)
    assert [] == [loss for loss in told["losses"] if "launched kernels" in loss]
    path = folder / "trace-0.json"
    content = json.loads(path.read_text())
    content["traceEvents"] = [
        one
        for one in content["traceEvents"]
        if one["cat"] != "kernel" or not 1_000 <= one["args"]["correlation"] < 1_300
    ]
    path.write_text(json.dumps(content))
    _, view = imported(folder, capsys)
    (said,) = (note for note in view.losses.notes if "launched kernels are not in it" in note)
    assert said.startswith("lost: trace-0.json: 30 of 240 launched kernels")
    assert "idle may have been work" in said
    path.write_text(
        json.dumps({**content, "WARNING": ["Dropped 128 activity records", "Dropped 2 activity records"]})
    )
    assert any(
        "the profiler dropped 130 records of the device" in loss for loss in kineto_document(folder)["losses"]
    )
