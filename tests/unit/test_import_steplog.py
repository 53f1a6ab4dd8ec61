"""Step logs: torchtitan's of each rank, what Megatron-LM and NeMo print, tables; as documents and recordings."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from shared_data import SHARED, needs_data
from test_import_recording import imported

from tuiadvisor.cli import main
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.events import STEP_COLUMNS
from tuiadvisor.importers.imported import NoStepsError
from tuiadvisor.importers.step_logs import read_step_log
from tuiadvisor.importers.steplog import steplog_document, steplog_run, steplog_summary
from tuiadvisor.metrics.traces.slow_steps import Course, course

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MS = 1000  # microseconds


def record(name: str, at_us: int, rank: int, step: int | None = None, **more: Any) -> str:
    """A line of the log."""
    fields = {
        "rank": rank,
        "global_rank": rank,
        "host_name": f"node{rank // 2}",
        "source": "trainer",
        "time_us": at_us,
    }
    return json.dumps(
        {**fields, "log_type": "event", "log_type_name": name, **({"step": step} if step else {}), **more}
    )


def titan(folder: Path, num_steps: int = 30, spans: tuple[tuple[str, int, int], ...] = ()) -> Path:
    """Four ranks; a step of 100 ms: 20 ms data, 60 forward and backward, 5 optimizer; step 20 saves for 400 more."""
    folder.mkdir()
    parts = spans or (("fetching_batch", 0, 20), ("fwd_bwd", 20, 80), ("optim", 81, 86))
    for rank in range(4):
        at, lines = 1_700_000_000_000_000 + rank, [record("training_start", 1_700_000_000_000_000, rank)]
        for step in range(1, num_steps + 1):
            length = 100 * MS + (400 * MS if step == 20 else 0)
            lines.append(record("step_start", at, rank, step))
            for name, begin, end in parts:
                lines += [record(f"{name}_start", at + begin * MS, rank, step)]
                lines += [record(f"{name}_end", at + end * MS, rank, step, value=(end - begin))]
            if step == 20:
                lines += [record("checkpoint_save_start", at + 90 * MS, rank, step)]
                lines += [record("checkpoint_save_end", at + 490 * MS, rank, step)]
            lines.append(record("step_end", at + length, rank, step))
            at += length + 50
        path = folder / f"trainer.global_rank_{rank}.20261123-120000-ABCDEF.jsonl"
        path.write_text("\n".join(lines) + "\n")
    return folder


def test_torchtitans_phases_are_those_of_the_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Data, optimizer and checkpoint as logged; forward and backward in one span are neither."""
    told, view = imported(titan(tmp_path / "structured_logs"), capsys, "steplog")
    assert ([0, 1, 2, 3], 30) == (told["run"]["ranks"], told["window"]["steps"])
    assert [20] == [one["step"] for one in told["step"]["slow"]]
    assert 0.1 == pytest.approx(told["step"]["median_s"])
    seconds = view.step.seconds
    assert (0.02, 0.005) == pytest.approx((seconds["data_wait"], seconds["optimizer"]), rel=0.01)
    assert (None, None, None) == (seconds["forward"], seconds["backward"], seconds["comm_exposed"])
    assert ("node0", "node1") == view.run.hosts
    assert view.verdict.decision is None
    # 400 ms of saving make 3.4 s of 30 steps of 100 ms.
    assert (
        "of the host's time in its steps data wait 18 %, checkpoint 12 %, optimizer 4 %; "
        "the loader is the first suspect: as far as the devices do not work meanwhile, without it steps are up to "
        "1.21x as fast"
    ) in view.verdict.sentence
    assert (
        "traces of 20 steps of all ranks (torch.profiler) or tuiadvisor record would tell"
        in view.verdict.sentence
    )
    assert "Not decided: the log's spans are the host's" in view.verdict.sentence
    assert "what they waited for" not in view.verdict.sentence
    assert view.goodput is None is view.run.device
    assert "forward and backward are one span in the log: their time is in other" in view.losses.notes
    assert {"checkpoint": 2} == view.window.excluded  # the step that saves, and the one measured from its end


def test_a_spans_time_is_without_that_of_spans_inside(tmp_path: Path) -> None:
    """fwd_bwd with a forward and a backward in it, fetching inside the forward: each has its own time."""
    folder = tmp_path / "logs"
    folder.mkdir()
    lines = [
        record(name, at, 0, 7)
        for at, name in (
            *((1000, "step_start"), (1100, "fwd_bwd_start"), (1200, "model_forward_start")),
            *((1300, "fetching_batch_start"), (1400, "fetching_batch_end"), (1700, "model_forward_end")),
            *(
                (1800, "model_backward_start"),
                (2500, "model_backward_end"),
                (2600, "fwd_bwd_end"),
                (3000, "step_end"),
            ),
        )
    ]
    (folder / "a.jsonl").write_text("\n".join(["no json", "[]", *lines, record("optim_end", 9, 0)]))
    _, run = steplog_run(folder)
    ((row,),) = [rank.steps for rank in run.ranks]
    names = ("step", "data_wait_ns", "forward_ns", "backward_ns", "optimizer_ns", "other_ns")
    values = dict(zip(STEP_COLUMNS, row, strict=True))
    assert [7, 100_000, 400_000, 700_000, -1, 800_000] == [values[name] for name in names]
    assert "left out, 1 line that is no JSON" in run.notes


MEGATRON = (
    "[default0]: [2026-05-01 12:00:{:02}.123456] iteration {:8d}/     500 | consumed samples: {:12d} | elapsed time "
    "per iteration (ms): {:.1f} | throughput per GPU (TFLOP/s/GPU): 400.1 | learning rate: 1.0E-04 | global batch "
    "size:   256 | lm loss: 2.1E+00 | loss scale: 1.0 |"
)
NEMO = (
    "Training epoch 0, iteration {0}/499 | lr: 1e-05 | global_batch_size: 256 | global_step: {0} | "
    "reduced_train_loss: 11.03 | train_step_timing in s: {1:.3f}"
)


@pytest.mark.parametrize("tool", ["Megatron-LM", "NeMo"])
def test_what_trainers_print_is_a_series_of_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tool: str
) -> None:
    """Behind a launcher's prefix, between other lines; the work of a step gives the throughput."""
    took = [2.0 if step == 17 else 0.5 for step in range(1, 31)]
    lines = [
        MEGATRON.format(step, step, 256 * step, 1000 * one)
        if tool == "Megatron-LM"
        else NEMO.format(step, one)
        for step, one in enumerate(took, 1)
    ]
    path = tmp_path / "train.log"
    path.write_text("> building\n" + "\nsaving checkpoint at iteration 10\n".join(lines))
    told, view = imported(path, capsys, "steplog")
    assert f"step times that {tool} printed" == told["source"]["words"]
    assert (0.5, 30) == (told["step"]["median_s"], told["window"]["steps"])
    assert [{"step": 17, "seconds": 2.0}] == told["step"]["slow"]
    assert 0.5 == pytest.approx(view.step.median_s)
    assert view.step.throughput_samples_s == pytest.approx(256 / view.step.mean_with_pauses_s, rel=0.01)
    assert "the log is of the whole job, of no rank: it stands as rank 0" in view.losses.notes


def test_lines_some_steps_apart_are_means_and_say_so(tmp_path: Path) -> None:
    """--log-interval 10; a resumed job's iterations count once."""
    path = tmp_path / "train.log"
    path.write_text("\n".join(MEGATRON.format(0, step, 0, 500) for step in (1, 10, 20, 30, 20, 30, 40)))
    document = steplog_document(path)
    assert (5, 1, 40) == tuple(document["window"].values())
    assert any("mean of the steps since" in loss for loss in document["losses"])
    assert document["step"]["median_s"] is None


def test_ranks_merged_into_one_log_are_told_apart(tmp_path: Path) -> None:
    """All were rank 0, whose steps were closed by the ends of the others'."""
    folder = titan(tmp_path / "logs")
    apart, _ = steplog_run(folder)
    logs = [path.read_text().splitlines() for path in sorted(folder.iterdir())]
    merged = tmp_path / "all.jsonl"
    merged.write_text("\n".join(line for lines in zip(*logs, strict=True) for line in lines))
    together, run = steplog_run(merged)
    assert [0, 1, 2, 3] == [rank.rank for rank in run.ranks]
    assert ["node0", "node0", "node1", "node1"] == [rank.host for rank in run.ranks]
    assert [apart[key] for key in ("run", "window", "step")] == [
        together[key] for key in ("run", "window", "step")
    ]


def mllog(key: str, at_ms: int, value: Any = None, **metadata: Any) -> str:
    """A line as mlperf_logging writes it, behind a launcher's prefix."""
    fields = {"namespace": "", "time_ms": at_ms, "event_type": "POINT_IN_TIME", "key": key, "value": value}
    return "0: :::MLLOG " + json.dumps({**fields, "metadata": {"file": "train.py", "lineno": 9, **metadata}})


def mlperf(folder: Path, *, tracked: bool, every: int = 1) -> Path:
    """40 steps of 2 s of 16 samples, the 17th of 6 s, an evaluation of 30 s after the 20th."""
    lines = [
        "+ srun train",
        mllog("submission_benchmark", 1, "llama31_405b"),
        mllog("global_batch_size", 1, 16),
    ]
    lines += [mllog("init_start", 1_000), mllog("init_stop", 61_000), mllog("run_start", 61_000)]
    lines.append(mllog("block_start", 61_000, samples_count=0))
    at = 61_000
    for step in range(1, 41):
        took = 6_000 if step == 17 else 2_000
        at += took
        if step % every == 0:
            stats = {"train_step_time": took / 1000, "throughput": 16} if tracked else {"throughput": 8.0}
            lines.append(mllog("tracked_stats", at, stats, samples_count=16 * step))
            lines.append(mllog("train_loss", at, 2.5, samples_count=16 * step, lr=1e-4))
        if step == 20:
            lines += [
                mllog("eval_start", at, samples_count=320),
                mllog("eval_stop", at + 30_000, samples_count=320),
            ]
            at += 30_000
            lines.append(mllog("block_start", at, samples_count=320))
    lines += ["0: :::MLLOG {broken", mllog("run_stop", at, status="success")]
    path = folder / "result_0.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("tracked", [True, False])
def test_a_result_log_of_mlperf_tells_its_steps_and_the_runs_other_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, tracked: bool
) -> None:
    """By lengths that it tracks, else by points between which no evaluation lies: that is of no step."""
    path = mlperf(tmp_path, tracked=tracked)
    told, view = imported(path, capsys, "steplog")
    assert "a result log of MLPerf" == told["source"]["words"]
    assert (2.0, 6.0, 40, 1) == (
        told["step"]["median_s"],
        told["step"]["max_s"],
        told["window"]["steps"],
        told["window"]["first_step"],
    )
    assert [17] == [one["step"] for one in told["step"]["slow"]]
    assert {
        "benchmark": "llama31_405b",
        "status": "success",
        "global_batch_size": 16,
        "evaluations": 1,
        "init_s": 60.0,
        "run_s": 114.0,
        "eval_s": 30.0,
    } == told["mlperf"]
    assert 2.0 == pytest.approx(view.step.median_s)
    assert view.step.throughput_samples_s == pytest.approx(16 / view.step.mean_with_pauses_s, rel=0.01)
    assert view.verdict.decision is None
    assert "left out, 1 line that is no JSON" in told["losses"]
    assert tracked is ("lengths are the time between two points of the log" not in told["losses"])
    # Between points that follow each other nothing lies: it was said of both kinds.
    assert tracked is any("what lies between two logged steps" in loss for loss in told["losses"])


def test_points_some_steps_apart_are_means(tmp_path: Path) -> None:
    """Of five steps of which one took 6 s the mean is 2.8."""
    document = steplog_document(mlperf(tmp_path, tracked=False, every=5))
    assert (8, 5) == (document["window"]["steps"], document["window"]["first_step"])
    assert any("mean of the steps since" in loss for loss in document["losses"])
    run = steplog_run(tmp_path / "result_0.txt")[1]
    at = STEP_COLUMNS.index("begin_ns"), STEP_COLUMNS.index("end_ns")
    assert [2.0, 2.0, 2.0, 2.8] == [(row[at[1]] - row[at[0]]) / 1e9 for row in run.ranks[0].steps[:4]]


@pytest.mark.parametrize(
    "lines",
    [
        [mllog("run_start", 5)],
        [":::MLLOG {"],
        [
            mllog("tracked_stats", 10, {"train_step_time": value}, samples_count=3)
            for value in (True, -1, 1e9, "2")
        ],
        [mllog("train_loss", 1000 * n, 1.0, samples_count=16 * n) for n in range(9)],  # no batch size
        [
            mllog("global_batch_size", 1, 7),
            *(mllog("train_loss", n, 1.0, samples_count=16 * n) for n in range(5)),
        ],
    ],
)
def test_a_log_of_mlperf_without_lengths_says_what_would_tell_them(tmp_path: Path, lines: list[str]) -> None:
    """In one line."""
    path = tmp_path / "result.txt"
    path.write_text("\n".join(lines))
    with pytest.raises(TuiadvisorError, match=r"no step's length in it.*global_batch_size"):
        steplog_document(path)


def test_a_table_of_lightning_has_rows_without_a_time(tmp_path: Path) -> None:
    """Rows of the validation; the numbers of steps are the log's."""
    path = tmp_path / "metrics.csv"
    rows = [f"0,{step},{0.5},1.0," if step % 3 else f"0,{step},,,0.9" for step in range(1, 31)]
    path.write_text("epoch,step,train_step_timing in s,train_loss,val_loss\n" + "\n".join(rows))
    document = steplog_document(path)
    assert (20, 1, 29) == tuple(document["window"].values())
    assert 0.5 == document["step"]["median_s"]


@pytest.mark.parametrize("separator", ["/", "|"])
def test_lightnings_throughput_monitor_tells_the_mean_step_between_its_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], separator: str
) -> None:
    """Every tenth step with the time since the beginning; it was "nothing recognised"."""
    folder = tmp_path / "lightning_logs" / "version_0"
    folder.mkdir(parents=True)
    rows = [f"0,{step},{step},{0.25 * step + (3 if step > 150 else 0)}," for step in range(9, 300, 10)]
    rows.insert(4, "0,44,,,0.9")  # of a validation
    head = "epoch,step,train/batches,train/time,val_loss".replace("/", separator)
    (folder / "metrics.csv").write_text("\n".join([head, *rows]))
    assert 0 == main(["open", str(tmp_path), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert "steplog" == told["source"]["kind"]
    assert (29, 19, 299) == tuple(told["window"][key] for key in ("steps", "first_step", "last_step"))
    assert (0.25, 0.55) == (told["step"]["median_s"], pytest.approx(told["step"]["max_s"]))
    assert "lengths are the time between two points of the log" in told["losses"]
    assert any("mean of the steps since" in loss for loss in told["losses"])


def test_a_time_that_begins_anew_is_no_step(tmp_path: Path) -> None:
    """Two fits in one table: between them nothing is known."""
    path = tmp_path / "metrics.csv"
    rows = [f"{step},{0.25 * step}" for step in range(20)] + [f"{step},{0.5 * step}" for step in range(20)]
    path.write_text("step,train/time\n" + "\n".join(rows))
    steps = read_step_log(path)
    assert [0.25] * 19 + [0.5] * 19 == steps.step_s.tolist()


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.log", "nothing here", "no column of step times"),
        ("a.jsonl", "{}\n[1]\nx", "no step in it"),
        ("a.jsonl", record("step_start", 1, 0, 1), "no step in it"),
        ("a.csv", "step_time_s\n0\n", "no step that took any time"),
    ],
)
def test_a_log_without_steps_is_one_line(tmp_path: Path, name: str, text: str, says: str) -> None:
    """Exit code 2 of the command."""
    (tmp_path / name).write_text(text)
    with pytest.raises(TuiadvisorError, match=says):
        steplog_document(tmp_path / name)
    assert 2 == main(["import", "steplog", str(tmp_path / name)])


@pytest.mark.parametrize("command", [["open"], ["diagnose"], ["import", "steplog"]])
def test_a_table_without_step_times_says_which_columns_are_read_and_which_are_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    """A training's own CSV: of time nobody knows whether it is a clock or a duration."""
    path = tmp_path / "metrics.csv"
    long = "DeviceStatsMonitor.on_train_batch_start/cpu_percent"
    path.write_text(f"epoch,step,train_loss,time,{long}\n0,1,2.5,0.1,5\n0,2,2.4,0.2,5\n")
    assert 2 == main([*command, str(path)])
    (line,) = capsys.readouterr().err.splitlines()
    assert f"found epoch, step, train_loss, time, {long[:40]}…; read is step_time_s or" in line


@pytest.mark.slow
@given(
    some.lists(
        some.one_of(
            some.text(max_size=80),
            some.builds(
                MEGATRON.format, some.just(1), some.integers(0, 10**13), some.just(1), some.floats(0, 1e12)
            ),
            some.builds(
                lambda name, at, step: json.dumps(
                    {"log_type_name": name, "time_us": at, "step": step, "rank": 0}
                ),
                some.sampled_from(
                    ["step_start", "step_end", "optim_start", "optim_end", "eval_end", "x_start"]
                ),
                some.integers(-5, 2**60) | some.none(),
                some.integers(-5, 2**60) | some.none(),
            ),
        ),
        max_size=30,
    ),
    some.sampled_from(["log.txt", "log.jsonl"]),
)
def test_any_log_is_read_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], name: str
) -> None:
    """Pieces of logs in any order."""
    folder = tmp_path_factory.mktemp("any")
    (folder / name).write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
    code = main(["import", "steplog", str(folder / name), "-o", str(folder / "o.tuirec")])
    assert code in {0, 2}
    assert (0 == code) == (folder / "o.tuirec").exists()


@pytest.mark.parametrize("has_batch", [True, False])
@pytest.mark.parametrize("has_count", [True, False])
def test_what_a_result_log_tracks_at_an_evaluation_is_no_step(
    tmp_path: Path, *, has_batch: bool, has_count: bool
) -> None:
    """The mean of the steps before, again, with the samples at their begin, or within the evaluation."""
    lines = [mllog("global_batch_size", 1, 16)] if has_batch else []
    for step in range(1, 41):
        count = {"samples_count": 16 * step} if has_count else {}
        lines.append(mllog("tracked_stats", 2_000 * step, {"train_step_time": 2.0 + step % 2}, **count))
        if step % 10 == 0:
            at, count = 2_000 * step, {"samples_count": 16 * (step - 10)} if has_count else {}
            lines += [
                *([] if has_count else [mllog("eval_start", at + 1)]),
                mllog("tracked_stats", at + 2, {"train_step_time": 2.5}, **count),
                mllog("eval_stop", at + 30, samples_count=16 * step),
            ]
    (tmp_path / "result.txt").write_text("\n".join(lines))
    document = steplog_document(tmp_path / "result.txt")
    assert 40 == document["window"]["steps"]


@needs_data
def test_real_logs_become_recordings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """MLPerf's Llama 405B on 64 nodes: median and slow steps of the log; nothing is decided on lengths alone.

    Of 246 rows 6 are at evaluations: they end a second after the row before, and say that they took 55 seconds.
    """
    source = tmp_path / "log.csv.gz"
    source.symlink_to(SHARED / "step_logs" / "eos-dfw_n64_ngc25.01_nemo__result_0.csv.gz")
    told, view = imported(source, capsys, "steplog")
    assert view.step.median_s == pytest.approx(told["step"]["median_s"], rel=1e-3)
    assert (None, 240) == (view.verdict.decision, told["window"]["steps"])
    assert "left out, rows at evaluations, where the count of samples falls back: 6" in told["losses"]
    assert view.step.throughput_samples_s == pytest.approx(1152 / view.step.mean_with_pauses_s, rel=0.01)


@pytest.mark.parametrize(
    ("seen", "steps"),
    [
        ([16, 32, 48, 0, 64, 80, 48, 96], [16, 32, 48, 64, 80, 96]),  # evaluations of 3 and 2 steps
        ([16, 32, 48, 0], [16, 32, 48]),
        ([16, 32, 48, 32, 48, 64], [16, 32, 48, 32, 48, 64]),  # begun again from a checkpoint
        ([16, 16, 32, 32, 48, 48], [16, 16, 32, 32, 48, 48]),  # two processes
        ([16, 0], [16, 0]),
    ],
)
def test_rows_at_evaluations_are_no_steps(tmp_path: Path, seen: list[int], steps: list[int]) -> None:
    """Steps that a restart does again are; at an evaluation the count goes on from where it was."""
    path = tmp_path / "steps.csv"
    path.write_text("samples_seen,step_time_s\n" + "".join(f"{count},2.0\n" for count in seen))
    document, run = steplog_run(path)
    assert len(steps) == document["window"]["steps"]
    told = [row[STEP_COLUMNS.index("samples")] for row in run.ranks[0].steps]
    grows = steps == sorted(set(steps))
    assert ([-1, *(later - one for one, later in pairwise(steps))] if grows else [-1] * len(steps)) == told


def test_a_table_with_a_clock_and_samples_tells_both(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Steps of 2 s with 10 s between two of them: the wall time has them, and samples are told."""
    rows, wall = ["step,samples_seen,step_time_s,wall_ms"], 1_745_958_397_759
    for step in range(40):
        wall += 2000 + (10_000 if step == 20 else 0)
        rows.append(f"{step},{64 * (step + 1)},2.0,{wall}")
    path = tmp_path / "steps.csv"
    path.write_text("\n".join([*rows, ""]))
    _, view = imported(path, capsys, "steplog")
    assert view.wall is not None
    assert 90 == pytest.approx(view.wall.span_s, abs=0.1)
    assert view.step.throughput_samples_s is not None
    assert 64 / 2 >= view.step.throughput_samples_s > 64 / 3
    assert any("wall_ms" in note for note in view.losses.notes)
    # A clock that does not fit the steps is none.
    path.write_text("\n".join([rows[0], *(f"{n},{64 * (n + 1)},2.0,{1000 * n}" for n in range(40)), ""]))
    (tmp_path / "steps.csv.tuirec").unlink()
    _, view = imported(path, capsys, "steplog")
    assert view.wall is not None
    assert 80 == pytest.approx(view.wall.span_s, abs=0.1)
    assert not any("wall_ms" in note for note in view.losses.notes)


def test_a_time_beyond_any_number_is_none_and_not_its_first_digit(tmp_path: Path) -> None:
    """A power of three digits; the line before it keeps its second."""
    path = tmp_path / "train.log"
    first, second = (MEGATRON.format(0, step, 256 * step, 1234.5) for step in (1, 2))
    path.write_text(f"{first}\n{second.replace('1234.5', '1e309')}\n")
    told = steplog_document(path)
    assert (1, 1) == (told["window"]["steps"], told["window"]["last_step"])


def test_a_time_with_a_power_is_that_time(tmp_path: Path) -> None:
    """3.215e-02 s, as Python prints short floats, was 3.215 s."""
    path = tmp_path / "nemo.log"
    lines = [NEMO.replace("{1:.3f}", "{1:.3e}").format(step, 0.03 + step / 1e4) for step in range(10)]
    path.write_text("\n".join(lines))
    assert 0.0309 == pytest.approx(steplog_document(path)["step"]["max_s"])


@pytest.mark.parametrize("between", [",", "\t", ";"])
def test_a_table_of_lightning_with_nan_and_other_separators(tmp_path: Path, between: str) -> None:
    """What pandas writes for a row without a time is no step."""
    rows = [
        "step,train_step_timing in s,val_loss",
        *(f"{n},{0.2 + n / 100},nan" for n in range(10)),
        "10,nan,4.1",
    ]
    path = tmp_path / "metrics.csv"
    path.write_text("\n".join(rows).replace(",", between))
    found = steplog_document(path)
    assert (10, 0.29) == (found["window"]["steps"], pytest.approx(found["step"]["max_s"]))


def test_a_run_without_a_last_iteration_is_read(tmp_path: Path) -> None:
    """Megatron-LM prints "/infinity" where a number of steps was not set."""
    path = tmp_path / "train.log"
    lines = [
        MEGATRON.format(step, step, 256 * step, 500.0).replace("     500 |", "infinity |")
        for step in range(9)
    ]
    path.write_text("\n".join(lines))
    assert (9, 0.5) == (
        (found := steplog_document(path))["window"]["steps"],
        found["step"]["median_s"],
    )


def epochs(
    path: Path, *, samples: int = 160, throughput: float | None = None, step_num: bool = False
) -> Path:
    """Three epochs of ten steps of 2 s of 16 samples, an evaluation of 5 s behind each, one within the last."""
    lines = [mllog("submission_benchmark", 1, "resnet"), mllog("global_batch_size", 1, 16)]
    lines += [mllog("train_samples", 1, samples), mllog("run_start", 1_000)]
    at = 1_000
    for epoch in range(3):
        lines.append(mllog("epoch_start", at, epoch_num=epoch))
        for step in range(10):
            at += 2_000
            if step_num and step % 5 == 4:
                lines.append(mllog("train_loss", at, 2.5, epoch_num=epoch, step_num=10 * epoch + step + 1))
            if (epoch, step) == (2, 4):
                lines += [mllog("eval_start", at), mllog("eval_stop", at + 5_000)]
                at += 5_000
        lines.append(mllog("epoch_stop", at, epoch_num=epoch))
        if throughput is not None:
            lines.append(mllog("tracked_stats", at, {"throughput": throughput}, step=epoch))
        if epoch < 2:
            lines += [mllog("eval_start", at), mllog("eval_stop", at + 5_000)]
            at += 5_000
    lines.append(mllog("run_stop", at + 0.25, status="success"))  # type: ignore[arg-type]
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize("throughput", [None, 8.0, 8.3])
def test_an_epoch_is_its_steps(tmp_path: Path, throughput: float | None) -> None:
    """By train_samples / global_batch_size; of one with an evaluation within it nothing is told."""
    told = steplog_document(epochs(tmp_path / "result_0.txt", throughput=throughput))
    assert (2, 10, 20) == tuple(told["window"][key] for key in ("steps", "first_step", "last_step"))
    assert (75.00025, 15.0, 3) == (
        pytest.approx(told["mlperf"]["run_s"], abs=1e-3),
        told["mlperf"]["eval_s"],
        told["mlperf"]["evaluations"],
    )
    run = steplog_run(tmp_path / "result_0.txt")[1]
    at = STEP_COLUMNS.index("begin_ns"), STEP_COLUMNS.index("end_ns")
    assert [2.0, 2.0] == [(row[at[1]] - row[at[0]]) / 1e9 for row in run.ranks[0].steps]
    assert any("train_samples / global_batch_size" in loss for loss in told["losses"])


def test_points_that_tell_their_step_give_the_mean_between_them(tmp_path: Path) -> None:
    """None across an evaluation."""
    told = steplog_document(epochs(tmp_path / "result_0.txt", step_num=True))
    assert (2, 10, 20) == tuple(told["window"][key] for key in ("steps", "first_step", "last_step"))
    run = steplog_run(tmp_path / "result_0.txt")[1]
    at = STEP_COLUMNS.index("begin_ns"), STEP_COLUMNS.index("end_ns")
    assert [2.0, 2.0] == [(row[at[1]] - row[at[0]]) / 1e9 for row in run.ranks[0].steps]


def test_epochs_that_contradict_the_throughput_tell_no_step(tmp_path: Path) -> None:
    """A public log of SSD counts batches as train_samples: its steps of 0.14 s would be of 46 s."""
    path = epochs(tmp_path / "result_0.txt", samples=10, throughput=8.0)
    told = steplog_document(path)
    assert (0, None) == (told["window"]["steps"], told["step"]["median_s"])
    assert 75.0 == pytest.approx(told["mlperf"]["run_s"], abs=1e-2)
    assert ["steps"] == [one["metric"] for one in told["unknown"]]
    assert "no step" in steplog_summary(told)
    with pytest.raises(NoStepsError) as refused:
        steplog_run(path)
    assert told == refused.value.document


def megatron(times: list[str], first: int = 100) -> str:
    """One line an iteration, each with the text of its time."""
    lines = [MEGATRON.format(0, step, 256 * step, 12345.5) for step in range(first, first + len(times))]
    return "".join(f"{line.replace('12345.5', time)}\n" for line, time in zip(lines, times, strict=True))


def test_a_comma_between_digits_is_no_time(tmp_path: Path) -> None:
    """1,500.0 ms were told as 1 ms."""
    path = tmp_path / "train.log"
    path.write_text(megatron(["1500.0", "1,500.0"] * 20))
    found = steplog_document(path)
    assert (20, 1.5) == (found["window"]["steps"], found["step"]["max_s"])
    assert any("20 iterations left out, whose time is no number above 0" in loss for loss in found["losses"])


def test_iterations_without_a_time_make_no_means_of_the_others(tmp_path: Path) -> None:
    """Lines of nan between lines of one iteration each: those that stay are no means."""
    path = tmp_path / "train.log"
    path.write_text(megatron(["1500.0" if at % 5 else "nan" for at in range(40)]))
    found = steplog_document(path)
    assert 32 == found["window"]["steps"]
    assert not any("mean of the steps" in loss for loss in found["losses"])
    assert any("8 iterations left out" in loss for loss in found["losses"])


@pytest.mark.parametrize("time", ["nan", "1e30", "-5.0"])
def test_a_log_whose_times_are_all_unusable_is_told_as_that(tmp_path: Path, time: str) -> None:
    """And not as a table without a column."""
    path = tmp_path / "train.log"
    path.write_text(megatron([time] * 30))
    with pytest.raises(TuiadvisorError, match="Megatron-LM's lines without a time that a step can have"):
        steplog_document(path)


def test_iterations_done_again_are_said(tmp_path: Path) -> None:
    """After a restart, or of two jobs in one log; a progress bar that shows a step twice says nothing new."""
    path = tmp_path / "train.log"
    path.write_text(megatron(["1500.0"] * 40) + megatron(["3000.0"] * 30, first=110))
    found = steplog_document(path)
    assert (40, 3.0) == (found["window"]["steps"], found["step"]["median_s"])
    assert any("30 iterations there again with another time" in loss for loss in found["losses"])
    path.write_text(megatron(["1500.0"] * 40) * 2)
    assert not any("again" in loss for loss in steplog_document(path)["losses"])


def test_rows_whose_step_falls_back_are_said_to_be_numbered_by_row(tmp_path: Path) -> None:
    """Steps 20 to 39 are nowhere in the table."""
    path = tmp_path / "metrics.csv"
    path.write_text("step,step_time\n" + "".join(f"{at % 20},0.5\n" for at in range(40)))
    assert any("numbered by their rows" in loss for loss in steplog_document(path)["losses"])
    path.write_text("step,step_time\n" + "".join(f"{at},0.5\n" for at in range(40)))
    assert not any("numbered by their rows" in loss for loss in steplog_document(path)["losses"])


def megatron_line(step: int, seconds: float) -> str:
    """A line as it prints one."""
    return (
        f" [2026-11-23 12:00:00] iteration {step:8}/ 500 | consumed samples: {step * 64:12} | "
        f"elapsed time per iteration (ms): {1000 * seconds:.1f} | global batch size: 64 |"
    )


@pytest.mark.parametrize(
    ("length", "says"),
    [
        (lambda step: 1.4 if step % 10 == 0 else 1.0, "one in 10 steps is slow, at regular intervals"),
        (lambda step: 1 + 0.005 * step, "steps grow little by little, from 1.0"),
        (lambda step: 1.2 if step > 60 else 1.0, "from step 61 on steps take 1.2 s instead of 1"),
        (lambda step: 9.0 if step == 77 else 1.0, ", step 77; slow steps cost 8.0"),
    ],
    ids=["periodic", "decay", "level", "pause"],
)
def test_what_a_log_of_steps_shows_is_told_though_its_cause_is_open(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], length: Callable[[int], float], says: str
) -> None:
    """Of a periodic slow step, a decay and a new level only the seconds that they cost were told."""
    path = tmp_path / "train.log"
    noise = np.random.default_rng(2).normal(1, 0.002, 121)
    path.write_text(
        "\n".join(megatron_line(step, length(step) * noise[step]) for step in range(1, 121)) + "\n"
    )
    _, view = imported(path, capsys, "steplog")
    assert view.verdict.decision is None
    assert says in view.verdict.sentence
    assert "would tell" in view.verdict.sentence


def test_of_even_steps_nothing_comes_again_or_stays() -> None:
    """Noise alone has no period, no level and no growth."""
    for seed in range(20):
        steps = np.random.default_rng(seed).normal(1, 0.03, 200)
        assert Course(None, None, None) == course(steps, np.arange(200))
