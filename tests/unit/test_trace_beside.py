"""A profiler's trace beside a recording: its detail at the recorded steps, a refusal where it is of another job."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from synthetic_run import MS, Fault, Job, encoded, frames
from test_import_kineto import ALL_REDUCE, event

from tuiadvisor.app.timeline import SlicesRead
from tuiadvisor.app.whole_recording import frames_of, whole_view
from tuiadvisor.cli import main
from tuiadvisor.exporters.rewrite import write_recording
from tuiadvisor.importers.hostops import outermost, own_times
from tuiadvisor.metrics.traces.gpu_timeline import GpuEvents
from tuiadvisor.metrics.traces.same_training import RankSteps, counts_apart, steps_within
from tuiadvisor.report.document import document
from tuiadvisor.stream.frames import HUB_SOURCE, Frame, FrameKind, decode, encode, unpack_columns

if TYPE_CHECKING:
    from pathlib import Path

BASE_NS = 1_700_000_000_000_000_000  # what the traces' times lack to be those of the wall clock
JOB = Job(
    num_ranks=2,
    num_steps=60,
    ranks_per_host=1,
    host_clock_s={1: 900.0},
    faults=(Fault("forward", (1,), 20 * MS),),
)


def recorded(
    folder: Path, job: Job = JOB, own_pids: tuple[int, ...] = ()
) -> tuple[Path, dict[int, list[tuple[int, int, int]]]]:
    """(the recording, of each rank the step, its begin and its end on the wall clock)."""
    path = folder / "run.tuirec"
    sequence = [_with_pids(_with_clock(frame), own_pids) for frame in frames(job)]
    first = encode(FrameKind.RUN, HUB_SOURCE, 0, sequence[0].time_ns, {"schema": 1, "label": "train.py"})
    write_recording(str(path), iter([first, *(encoded(frame) for frame in sequence)]))
    shift = {
        f.source: f.payload["wall_ns"] - f.payload["mono_ns"] for f in sequence if f.kind == FrameKind.HELLO
    }
    steps: dict[int, list[tuple[int, int, int]]] = {}
    for frame in sequence:
        if frame.kind == FrameKind.STEPS:
            columns = unpack_columns(frame.payload, ("rank", "step", "begin_ns", "end_ns"))
            for rank, step, begin, end in zip(*(column.tolist() for column in columns.values()), strict=True):
                steps.setdefault(rank, []).append(
                    (step, begin + shift[frame.source], end + shift[frame.source])
                )
    return path, steps


def _with_clock(frame: Frame) -> Frame:
    """The second host was started 900 s earlier."""
    if frame.kind != FrameKind.HELLO or not frame.source.startswith("node1"):
        return frame
    return replace(frame, payload={**frame.payload, "mono_ns": frame.payload["mono_ns"] + 900 * 10**9})


def _with_pids(frame: Frame, own_pids: tuple[int, ...]) -> Frame:
    """The processes of each rank, one after the other, as they see themselves; the host knows them by other numbers."""
    if frame.kind != FrameKind.HELLO or not own_pids:
        return frame
    starts = [{"start_wall_ns": BASE_NS + at, "own_pid": pid} for at, pid in enumerate(own_pids)]
    entries = [{**entry, **start} for entry in frame.payload["ranks"] for start in starts]
    return replace(frame, payload={**frame.payload, "ranks": entries})


def traced(folder: Path, steps: dict[int, list[tuple[int, int, int]]], **more: Any) -> Path:
    """Traces of steps 30 to 33: in each a launch, a kernel of 2 ms that it starts, and an all-reduce of 1 ms."""
    told = {"marks": range(30, 34), "world": 2, "late_ns": 0, "base": BASE_NS, "pid": 0, **more}
    folder.mkdir()
    for rank, held in steps.items():
        events = []
        for number, (begin, end) in enumerate((one[1:] for one in held if one[0] in told["marks"]), 30):
            at = (begin - BASE_NS + told["late_ns"]) / 1000
            if "without_marks" not in more:
                events.append(event(f"ProfilerStep#{number}", at, (end - begin) / 1000, "user_annotation"))
            launch = {"correlation": 10 * number + rank}
            events += [
                event("cudaLaunchKernel", at + 10, 5, "cuda_runtime", **launch),
                event("ampere_sgemm_128x64_nn", at + 50, 2000, stream=7, **launch),
                event(ALL_REDUCE, at + 2500, 1000, stream=20, **launch),
            ]
        events = [{**one, "pid": told["pid"]} for one in events]
        about = {"backend": "nccl", "rank": rank, "world_size": told["world"]}
        content = {"distributedInfo": about, "baseTimeNanoseconds": told["base"], "traceEvents": events}
        if "hosts" in more:  # behind the events, as newer torch writes it
            content["host_name"] = more["hosts"][rank]
        (folder / f"rank{rank}.json").write_text(json.dumps(content))
    return folder


def test_the_detail_stands_at_the_recorded_steps_and_the_verdict_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kernels, timeline and JSON have the traces; everything else is what it was, and the recording is untouched."""
    run, steps = recorded(tmp_path)
    before, out = run.read_bytes(), tmp_path / "out.tuirec"
    folder = traced(tmp_path / "traces", steps)
    assert 0 == main(["import", "kineto", str(folder), "--beside", str(run), "-o", str(out)])
    assert "ranks 0, 1 in steps 30 to 33" in capsys.readouterr().err
    assert before == run.read_bytes()
    alone, view = whole_view(str(run)), whole_view(str(out))
    kept = document(replace(view, traced=None))
    assert document(alone) == {**kept, "num_frames": alone.num_frames, "losses": document(alone)["losses"]}
    assert ["lost of the trace: 1 of 4 collectives does not end together"] == [
        note.partition(" on their ranks")[0] for note in view.losses.notes if note not in alone.losses.notes
    ]
    assert view.traced is not None
    assert ("traces", (0, 1), 30, 33) == (
        view.traced.source, view.traced.ranks, view.traced.first_step, view.traced.last_step,
    )  # fmt: skip
    assert view.device_work is not None
    assert ["ampere_sgemm_128x64_nn", 8] == [
        view.device_work.kernels[0].name,
        view.device_work.kernels[0].kernels,
    ]
    told = document(view)["traced"]
    assert isinstance(told, dict)
    assert 30 == told["first_step"]
    assert document(alone)["traced"] is None
    picture = SlicesRead(frames_of(str(out))).picture(0.0, None, 200)
    assert [(0, 7), (0, 20), (1, 7), (1, 20)] == [(lane.rank, lane.stream) for lane in picture.lanes]
    assert [30, 31, 32, 33] == [step for _, step in picture.steps]


def test_times_of_slices_are_those_of_the_recorded_step(tmp_path: Path) -> None:
    """Each kernel begins 50 us after its step did, by the host's clock, as in the trace."""
    run, steps = recorded(tmp_path)
    out = tmp_path / "out.tuirec"
    main(["import", "kineto", str(traced(tmp_path / "traces", steps)), "--beside", str(run), "-o", str(out)])
    begins, found = {}, {}
    for data in frames_of(str(out)):
        frame = decode(data)
        if frame.kind == FrameKind.STEPS:
            columns = unpack_columns(frame.payload, ("rank", "step", "begin_ns"))
            for rank, step, begin in zip(*(column.tolist() for column in columns.values()), strict=True):
                begins[rank, step] = begin
        elif frame.kind == FrameKind.EVENTS and frame.source != "hub":
            columns = unpack_columns(frame.payload, ("rank", "step", "group", "begin_ns"))
            for rank, step, stream, begin in zip(
                *(column.tolist() for column in columns.values()), strict=True
            ):
                if stream == 7:
                    found[rank, step] = begin
    assert {(rank, step) for rank in (0, 1) for step in range(30, 34)} == set(found)
    assert all(abs(found[at] - begins[at] - 50_000) < 1_000 for at in found)


def test_a_trace_without_marks_takes_the_recorded_steps(tmp_path: Path) -> None:
    """`profile()` around some steps, without step(): the recording knows where they begin."""
    run, steps = recorded(tmp_path)
    folder, out = traced(tmp_path / "traces", steps, without_marks=True), tmp_path / "out.tuirec"
    assert 0 == main(["import", "kineto", str(folder), "--beside", str(run), "-o", str(out)])
    found = whole_view(str(out)).traced
    assert found is not None
    assert (30, 33) == (found.first_step, found.last_step)
    assert any("was not compared step by step" in note for note in whole_view(str(out)).losses.notes)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"world": 8}, "not of one job: the traces are of 8 ranks, the recording of 2"),
        ({"late_ns": 3_600 * 10**9}, "not of one job, or not of its recorded part: rank 0 was traced"),
        ({"base": 0}, "no trace says the wall clock"),
        ({"marks": range(30, 33, 2)}, ""),  # a step that the profiler was not told of: within what ends cost
    ],
)
def test_a_trace_of_another_job_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: dict[str, Any], says: str
) -> None:
    """World size, wall clock: exit code 2, and no file."""
    run, steps = recorded(tmp_path)
    folder, out = traced(tmp_path / "traces", steps, **more), tmp_path / "out.tuirec"
    code = main(["import", "kineto", str(folder), "--beside", str(run), "-o", str(out)])
    error = capsys.readouterr().err
    assert (2 if says else 0, not says) == (code, out.exists())
    assert not says or (says in error and len(error.splitlines()) == 1)


@pytest.mark.parametrize(
    ("own_pids", "pid", "is_refused"),
    [
        ((4711,), 4712, True),
        ((4711,), "4712", True),
        ((4711, 37), 37, False),  # the rank was restarted
        ((4711,), 4711, False),
        ((4711,), 0, False),  # no process's number
        ((4711,), "rank 0", False),
        ((), 4712, False),  # a recording that does not say
    ],
)
def test_a_trace_of_another_process_is_refused_also_without_marks(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    own_pids: tuple[int, ...],
    pid: int | str,
    is_refused: bool,
) -> None:
    """Another job of as many ranks that ran then: its processes tell it apart, where both know them."""
    run, steps = recorded(tmp_path, own_pids=own_pids)
    folder = traced(tmp_path / "traces", steps, without_marks=True, pid=pid)
    out = tmp_path / "out.tuirec"
    code = main(["import", "kineto", str(folder), "--beside", str(run), "-o", str(out)])
    error = capsys.readouterr().err
    assert (2 if is_refused else 0, not is_refused) == (code, out.exists())
    says = "not of one job: rank 0 is process 4712 by the trace and 4711 by the recording"
    assert not is_refused or (says in error and len(error.splitlines()) == 1)


@pytest.mark.parametrize(
    ("hosts", "is_known", "says"),
    [
        (("node0", "node1"), True, ""),
        (("NODE0.cluster.example", "node1"), True, ""),
        (("node1", "node0"), True, "rank 0 is on node1 by the trace and on node0 by the recording"),
        (("node1", "node0"), False, "rank 0 is on node1 by the trace and on node0 by the recording"),
        (("node0", "node77"), True, "rank 1 is on node77 by the trace and on node1 by the recording"),
        (("node0", "5a96e2c0f1"), False, ""),  # as a container calls itself
        (("", "node1"), True, ""),
        ((7, "a\nb"), True, ""),
    ],
)
def test_a_trace_of_another_host_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], hosts: tuple[Any, ...], is_known: bool, says: str
) -> None:
    """Another rank's trace under this one's number. is_known: the rank and its host know its process by one number."""
    own = (100, 101) if is_known else ()
    run, steps = recorded(tmp_path, own_pids=own)
    folder, out = traced(tmp_path / "traces", steps, hosts=hosts), tmp_path / "out.tuirec"
    code = main(["import", "kineto", str(folder), "--beside", str(run), "-o", str(out)])
    error = capsys.readouterr().err
    assert (2 if says else 0, not says) == (code, out.exists())
    assert not says or (f"not of one job: {says}" in error and len(error.splitlines()) == 1)


def test_ranks_that_were_not_recorded_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A recording of one node: its ranks get their traces; none of them, and it is refused."""
    run, steps = recorded(tmp_path)
    elsewhere = {rank + 1: held for rank, held in steps.items()}
    folder, out = traced(tmp_path / "traces", elsewhere, world=None), tmp_path / "out.tuirec"
    assert 0 == main(["import", "kineto", str(folder), "--beside", str(run), "-o", str(out)])
    view = whole_view(str(out))
    assert view.traced is not None
    assert (1,) == view.traced.ranks
    assert "traces of ranks that were not recorded then: 2" in view.losses.notes
    far = traced(tmp_path / "far", {rank + 5: held for rank, held in steps.items()}, world=None)
    assert 2 == main(["import", "kineto", str(far), "--beside", str(run), "-o", str(tmp_path / "far.tuirec")])
    assert "the traces are of ranks 5, 6, recorded are 0, 1" in capsys.readouterr().err


def test_what_is_asked_wrongly_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No -o; two traces; a second trace beside the same recording; a recording that is itself an import."""
    run, steps = recorded(tmp_path)
    folder, out = traced(tmp_path / "traces", steps), tmp_path / "out.tuirec"
    assert 2 == main(["import", "kineto", str(folder), "--beside", str(run)])
    assert "--beside RUN needs -o FILE" in capsys.readouterr().err
    assert 2 == main(["open", str(folder), str(run)])
    assert "what goes together is a recording, then PyTorch Profiler traces" in capsys.readouterr().err
    once, twice = str(tmp_path / "once.tuirec"), str(tmp_path / "twice.tuirec")
    assert 0 == main(["import", "kineto", str(folder), "--beside", str(run), "-o", once])
    capsys.readouterr()
    assert 2 == main(["import", "kineto", str(folder), "--beside", once, "-o", twice])
    assert "a trace lies beside this recording already" in capsys.readouterr().err
    assert not (tmp_path / "twice.tuirec").exists()
    assert 0 == main(["import", "kineto", str(folder), "-o", str(out)])
    assert 2 == main(
        ["import", "kineto", str(folder), "--beside", str(out), "-o", str(tmp_path / "b.tuirec")]
    )
    assert "the recording was itself imported" in capsys.readouterr().err


def test_open_shows_both_as_text_and_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`open RUN TRACE`; nothing is left behind."""
    run, steps = recorded(tmp_path)
    folder = traced(tmp_path / "traces", steps)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert 0 == main(["open", str(run), str(folder), "--json"])
    assert [0, 1] == json.loads(capsys.readouterr().out)["traced"]["ranks"]
    assert 0 == main([str(run), str(folder), "--once"])
    err = capsys.readouterr().err
    assert f"{run}: with the trace of ranks 0, 1 in steps 30 to 33" in err
    assert names == sorted(path.name for path in tmp_path.iterdir())


STEPS = RankSteps(np.arange(10), 100 * np.arange(10), 100 * np.arange(10) + 100, np.ones(10, dtype=np.int64))


def test_steps_that_a_trace_only_touches_are_not_its_own() -> None:
    """Borders of marks and of steps differ by a little; without marks any part of a step counts."""
    assert [2, 3] == np.flatnonzero(steps_within(STEPS, 195, 410, is_marked=True)).tolist()
    assert [1, 2, 3, 4] == np.flatnonzero(steps_within(STEPS, 195, 410, is_marked=False)).tolist()
    assert [] == np.flatnonzero(steps_within(STEPS, 2000, 2100, is_marked=False)).tolist()


def test_the_last_traced_step_is_one_although_the_trace_is_written_in_it() -> None:
    """Of 30 marks of a real training 29 steps were told: the last step lasted 0.5 s longer than its mark."""
    end_ns = STEPS.end_ns.copy()
    end_ns[5:] += 900
    begin_ns = np.append(0, end_ns[:-1])
    found = steps_within(replace(STEPS, begin_ns=begin_ns, end_ns=end_ns), 203, 598, is_marked=True)
    assert [2, 3, 4, 5] == np.flatnonzero(found).tolist()


def test_another_training_on_the_same_machine_makes_other_steps() -> None:
    """As many marks as steps, or as backward passes; nothing else. A recording that ends within is no other job."""
    assert counts_apart([(100 * at + 3, 100 * at + 103) for at in range(9)], STEPS) is None
    assert counts_apart([(10 * at, 10 * at + 10) for at in range(100)], STEPS) == (100, 10)
    assert counts_apart([(250 * at, 250 * at + 250) for at in range(4)], STEPS) == (4, 10)
    passes = replace(STEPS, micro_steps=np.full(10, 4))
    assert counts_apart([(25 * at, 25 * at + 25) for at in range(40)], passes) is None
    assert counts_apart([(900 + 100 * at, 1000 + 100 * at) for at in range(20)], STEPS) is None


def test_operators_own_time_worked_out_by_hand() -> None:
    """Linear 0-100 calls addmm 10-60, that copy_ 20-30; relu 100-120 after it; gloo 0-200 on its own thread."""
    events = GpuEvents(
        begin_ns=np.array([10, 0, 20, 100, 0]),
        end_ns=np.array([60, 100, 30, 120, 200]),
        kind=np.array([0, 0, 0, 0, 1]),
        stream=np.array([0, 0, 0, 0, 1]),
        launch_ns=np.full(5, -1),
    )
    assert [40, 50, 10, 20, 200] == own_times(events).tolist()
    assert [False, True, False, True, True] == outermost(events).tolist()


def test_a_report_has_the_section(tmp_path: Path) -> None:
    """HTML and Markdown: which steps, and the kernels by name; without a trace neither."""
    run, steps = recorded(tmp_path)
    out = tmp_path / "out.tuirec"
    main(["import", "kineto", str(traced(tmp_path / "traces", steps)), "--beside", str(run), "-o", str(out)])
    for kind in ("html", "md"):
        texts = {}
        for path in (run, out):
            report = tmp_path / f"{path.stem}.{kind}"
            assert 0 == main(["report", str(path), "-o", str(report)])
            texts[path] = report.read_text()
        assert "steps 30 to 33 of ranks 0, 1" in texts[out].replace("&nbsp;", " ")
        assert "ampere_sgemm_128x64_nn" in texts[out].replace("\\", "")
        assert "What a trace shows" not in texts[run]


def test_a_trace_of_a_cpu_shows_its_operators(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Own times by kind, and why none runs: 100 us of a product within 500 us, gloo for 200 beside nothing."""
    events = []
    for step in range(12):
        at = 1e9 + 1000 * step
        events += [
            event(f"ProfilerStep#{step}", at, 1000, "user_annotation"),
            event("aten::linear", at, 100, "cpu_op"),
            event("aten::addmm", at + 10, 80, "cpu_op"),
            event("gloo:all_reduce", at + 300, 200, "user_annotation"),
        ]
    folder, out = tmp_path / "traces", tmp_path / "out.tuirec"
    folder.mkdir()
    content = {"distributedInfo": {"backend": "gloo", "rank": 0, "world_size": 2}, "traceEvents": events}
    (folder / "rank0.json").write_text(json.dumps(content))
    assert 0 == main(["import", "kineto", str(folder), "-o", str(out)])
    assert "rank 0, operators: communication 66.7 %, matrix product 33.3 %" in capsys.readouterr().out
    found = whole_view(str(out)).device_work
    assert found is not None
    assert ["gloo:all_reduce", "aten::addmm", "aten::linear"] == [one.name for one in found.kernels]
    assert [0.0024, 0.00096, 0.00024] == pytest.approx([one.seconds for one in found.kernels])
    assert "operators" == found.unit
    assert found.ranks[0].window_s == pytest.approx(0.0115)
    assert sum(part.seconds for part in found.ranks[0].parts) + 0.0012 == pytest.approx(0.0115)
