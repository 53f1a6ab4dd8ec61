"""Imports as recordings: what the source holds and nothing else, and one verdict with the import itself."""

from __future__ import annotations

import gzip
import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from shared_data import SHARED, needs_data
from test_import_kineto import event, job
from test_import_ops import row, written
from thinned import thinned

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.app.whole_recording import whole_view
from tuiadvisor.cli import main
from tuiadvisor.cli.import_recording import write_imported
from tuiadvisor.events import STEP_COLUMNS, UNKNOWN
from tuiadvisor.importers.imported import ImportedRank, ImportedRun
from tuiadvisor.importers.kinetoreport import kineto_document
from tuiadvisor.importers.stepmarks import numbered
from tuiadvisor.metrics.traces.collective_arrival import arrivals
from tuiadvisor.metrics.traces.collective_clock import Calls
from tuiadvisor.report.document import document
from tuiadvisor.stream.frames import split
from tuiadvisor.stream.index import FILE_HEADER_BYTES
from tuiadvisor.stream.recordingindex import RecordingIndex
from tuiadvisor.text import format as text_of
from tuiadvisor.text.format import TO
from tuiadvisor.text.wording import steps_seen

if TYPE_CHECKING:
    from pathlib import Path

    from tuiadvisor.views.run_view import RunView

IN_TIME = [0.0, 40.0, -40.0, 7.0]  # how far the ranks' clocks are apart, ms


def marked(folder: Path, late: int | None, absent: tuple[int, ...] = (), num_steps: int = 40) -> Path:
    """The traces of `job` with step marks and what the thread does: forward, backward, optimizer."""
    folder.mkdir(exist_ok=True)
    job(folder, late, IN_TIME, absent)
    for path in sorted(folder.glob("*.gz")):
        content = json.loads(gzip.decompress(path.read_bytes()))
        rank = content["distributedInfo"]["rank"]
        for step in range(num_steps):
            at = 1e9 + 10_000 * step + 1000 * IN_TIME[rank]
            content["traceEvents"] += [
                event(f"ProfilerStep#{100 + step}", at, 10_000, "user_annotation"),
                event(
                    "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, 5, "user_annotation"
                ),
                event("aten::linear", at + 10, 15, "cpu_op"),
                event("autograd::engine::evaluate_function: MmBackward0", at + 30, 8_200, "cpu_op"),
                event("Optimizer.step#SGD.step", at + 8_400, 200, "user_annotation"),
            ]
        path.write_bytes(gzip.compress(json.dumps(content).encode()))
    return folder


def imported(
    source: Path, capsys: pytest.CaptureFixture[str], kind: str = "kineto"
) -> tuple[dict[str, Any], RunView]:
    """(the import's document, the view of the recording that it wrote)."""
    path = source.parent / f"{source.name}.tuirec"
    assert 0 == main(["import", kind, str(source), "--json", "-o", str(path)])
    return json.loads(capsys.readouterr().out), whole_view(str(path))


def test_two_traces_too_short_to_judge_are_not_said_to_have_no_bottleneck(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It said that no finding limits either, and of two unknown goodputs that neither has changed."""
    for name in ("before", "after"):
        marked(tmp_path / name, None, (1, 2, 3), num_steps=6)
    assert 0 == main(["compare", str(tmp_path / "before"), str(tmp_path / "after"), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert "not comparable" == told["verdict"]
    assert "What limits either run was not decided." == told["bottleneck"]["sentence"]
    assert "neither run could be judged" in told["goodput"]["sentence"]


def test_a_report_of_a_trace_counts_from_the_traces_first_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its steps are 100 to 139; the report's head said 0 to 139."""
    _, view = imported(marked(tmp_path / "traces", 2), capsys)
    assert f"steps 100{TO}139" == steps_seen(view)


def test_of_two_recorded_ranks_it_is_not_said_that_one_was_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two steps each are too few to compare; it was "only one rank was recorded of 3", of a job of four."""
    _, view = imported(marked(tmp_path / "traces", None, (2, 3), num_steps=2), capsys)
    assert 2 == len(view.ranks)
    why = {one.metric: one.why for one in view.unknown}["stragglers"]
    assert why == "of 2 ranks that were recorded only one has steps that could be compared"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("late", "absent"), [(2, ()), (0, ()), (None, ()), (2, (2,)), (2, (1,))],
    ids=["rank 2", "rank 0", "nobody", "rank 2 without a trace", "rank 1 without a trace"],
)  # fmt: skip
def test_the_recording_names_whom_the_import_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], late: int | None, absent: tuple[int, ...]
) -> None:
    """Clocks apart, and nobody in the place of a rank without a trace."""
    told, view = imported(marked(tmp_path / "traces", late, absent), capsys)
    assert [row["rank"] for row in told["stragglers"]["ranks"]] == [one.rank for one in view.stragglers]
    assert ([late] if late is not None and late not in absent else []) == [
        one.rank for one in view.stragglers
    ]
    assert (absent, 40) == (
        view.losses.ranks_missing,
        view.window.num_steps + sum(view.window.excluded.values()),
    )
    assert told["stragglers"]["because"] in view.verdict.because


def with_a_rank_of_another_job(folder: Path) -> Path:
    """Rank 3 communicates at other times than the others."""
    generator = np.random.default_rng(3)
    path = marked(folder, None) / "rank3.json.gz"
    content = json.loads(gzip.decompress(path.read_bytes()))
    for entry in content["traceEvents"]:
        if "nccl" in entry["name"]:
            entry["ts"] += float(generator.uniform(-3000, 3000))
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    return folder


def test_ranks_that_could_not_be_compared_are_not_said_to_be_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All ranks have a trace, one of them of another job: nothing to keep."""
    told, view = imported(with_a_rank_of_another_job(tmp_path / "traces"), capsys)
    assert [3] == [row["rank"] for row in told["per_rank"] if row["clock_offset_s"] is None]
    assert not told["stragglers"]["late_rank_not_recorded"]
    assert view.verdict.decision is None
    assert "Not decided: rank 3 could not be compared" in view.verdict.sentence


def test_where_all_were_recorded_nobody_is_told_to_record_more(tmp_path: Path) -> None:
    """The late rank is the one whose times are of another job: it is not compared, but it has a trace."""
    folder = with_a_rank_of_another_job(tmp_path / "traces")
    for path in folder.glob("rank[012].json.gz"):
        content = json.loads(gzip.decompress(path.read_bytes()))
        for entry in content["traceEvents"]:
            if "nccl" in entry["name"]:
                entry["ts"] -= 2_000
                entry["dur"] += 2_000
        path.write_bytes(gzip.compress(json.dumps(content).encode()))
    found = kineto_document(folder)["stragglers"]
    assert ([], False) == (found["ranks"], found["late_rank_not_recorded"])
    assert "the late rank is one of those not compared" in found["because"]
    (folder / "rank3.json.gz").unlink()
    found = kineto_document(folder)["stragglers"]
    assert found["late_rank_not_recorded"]
    assert "record all ranks" in found["because"]


def test_too_few_calls_to_align_the_clocks_by_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two of two that end together are no reason against the traces."""
    folder = marked(tmp_path / "traces", 2, num_steps=1)
    for path in folder.glob("*.gz"):
        content = json.loads(gzip.decompress(path.read_bytes()))
        calls = [entry for entry in content["traceEvents"] if "nccl" in entry["name"]]
        content["traceEvents"] = [entry for entry in content["traceEvents"] if entry not in calls[2:]]
        path.write_bytes(gzip.compress(json.dumps(content).encode()))
    told, _ = imported(folder, capsys)
    assert told["stragglers"]["because"] == "2 communication calls to align the clocks by, 3 are needed"


@pytest.mark.parametrize(
    ("early", "says"),
    [
        (
            (5,),
            r"rank 5 arrives early and waits 30\.\d% of the time; the others arrive together: no straggler",
        ),
        ((2, 5), r"ranks 2, 5 arrive early and wait up to 30\.\d% of the time; the others arrive together"),
        ((0, 1, 2, 3, 4), r"ranks 5, 6, 7 arrive last, all of them after all others, and cause 100% of all"),
    ],
)
def test_a_rank_with_less_to_do_makes_no_stragglers_of_the_others(early: tuple[int, ...], says: str) -> None:
    """Eight ranks, a collective every 10 ms; the last to come changes from call to call, by 20 us."""
    generator = np.random.default_rng(5)
    end_ns = (np.arange(1, 41) * 10_000_000).astype(np.int64)
    calls = {
        rank: {
            "allreduce": Calls(
                end_ns - (3_150_000 if rank in early else 150_000) + generator.integers(0, 20_000, 40), end_ns
            )
        }
        for rank in range(8)
    }
    found = arrivals(calls, {}, complete=True)
    assert ((5, 6, 7) if len(early) > 4 else ()) == found.culprits
    assert re.match(says, found.because)


def test_of_few_steps_the_import_says_who_is_late(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Seven steps are too few for a verdict of their own."""
    told, view = imported(marked(tmp_path / "traces", 2, num_steps=7), capsys)
    assert [2] == [row["rank"] for row in told["stragglers"]["ranks"]]
    assert (None, False) == (view.verdict.decision, view.window.enough)
    assert view.verdict.sentence.startswith("Rank 2 arrives last")
    assert "Not enough steps in this trace" in view.verdict.sentence


@pytest.mark.slow
def test_steps_of_which_a_part_was_lost_are_told_and_not_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Marks of some steps, or the device's events in some, are gone: their time was useful, at 100 %."""
    _, whole = imported(marked(tmp_path / "whole", None), capsys)
    for what, told in (
        ("ProfilerStep", "no mark of 4 steps (110, 111, 112, 113) between others"),
        ("kernel", "nothing of the device in 4 steps (110, 111, 112, 113): not judged"),
    ):
        folder = marked(tmp_path / what, None)
        for path in folder.glob("*.gz"):
            content = json.loads(gzip.decompress(path.read_bytes()))
            shift = 1000 * IN_TIME[content["distributedInfo"]["rank"]]
            content["traceEvents"] = [
                one
                for one in content["traceEvents"]
                if what not in {one["cat"], one["name"].partition("#")[0]}
                or not 1e9 + 100_000 <= one["ts"] - shift + 1_000 < 1e9 + 141_000
            ]
            path.write_bytes(gzip.compress(json.dumps(content).encode()))
        _, view = imported(folder, capsys)
        assert any(told in note for note in view.losses.notes), view.losses.notes
        assert whole.wall is not None
        assert view.wall is not None
        assert 0.04 == pytest.approx(view.wall.unknown_s - whole.wall.unknown_s, abs=0.001)
        assert 36 == view.window.num_steps + sum(view.window.excluded.values())


def test_marks_whose_rounded_times_overlap_are_steps_all_the_same() -> None:
    """In whole microseconds one may end after the next begins; one in four was left out without a word."""
    marks = [(f"ProfilerStep#{at}", 1_000 * at, 1_001) for at in range(5, 15)]
    assert [(at, 1_000 * at + (at > 5), 1_000 * at + 1_001) for at in range(5, 15)] == numbered(marks)
    within = [*marks, ("ProfilerStep#99", 14_100, 200)]
    assert numbered(marks) == numbered(within)


def test_a_trace_begins_with_its_own_first_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A report of steps 100 to 139 said steps 0 to 139."""
    _, view = imported(marked(tmp_path / "traces", None), capsys)
    assert text_of.steps(100, 139) == steps_seen(view)


def test_traces_that_share_few_steps_have_no_more_to_look_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each rank's begins three steps after the one before it: "17 more steps are needed", and nobody has them."""
    folder = marked(tmp_path / "traces", None)
    for path in folder.glob("*.gz"):
        content = json.loads(gzip.decompress(path.read_bytes()))
        rank = content["distributedInfo"]["rank"]
        begin = 1e9 + 30_000 * rank + 1_000 * IN_TIME[rank]
        content["traceEvents"] = [
            one for one in content["traceEvents"] if begin <= one["ts"] < begin + 130_000
        ]
        path.write_bytes(gzip.compress(json.dumps(content).encode()))
    _, view = imported(folder, capsys)
    assert None is view.verdict.decision
    assert "Not enough steps looked at" not in view.verdict.sentence
    assert "Not enough steps in this trace: it holds" in view.verdict.sentence


@pytest.mark.slow
def test_many_collectives_are_counted_where_they_are_not_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """80 of each of four ranks, 30 are kept one by one; sums of steps hold all of them."""
    _, whole = imported(marked(tmp_path / "whole", None), capsys)
    monkeypatch.setattr("tuiadvisor.importers.tracesteps.MAX_CALLS", 30)
    _, view = imported(marked(tmp_path / "traces", None), capsys)
    assert any(
        note.startswith("not recorded one by one") and note.endswith(": 200 collectives")
        for note in view.losses.notes
    )
    assert whole.overlap.comm_total_s == view.overlap.comm_total_s


def test_overlap_is_what_the_import_finds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Over steps that hold all of the trace, to the last nanosecond of each rank's sums."""
    told, view = imported(marked(tmp_path / "traces", 2), capsys)
    for mine, its in zip(view.ranks, told["per_rank"], strict=True):
        assert its["comm_exposed_s"] / 40 == pytest.approx(mine.comm_exposed_s, rel=0.02)
    mean_s = sum(row["comm_total_s"] for row in told["per_rank"]) / 4 / 40
    assert mean_s == pytest.approx(view.overlap.comm_total_s, rel=0.02)
    assert 0.0 == view.overlap.overlap == told["per_rank"][0]["overlap"]


def at_step(path: Path, step: int) -> RunView:
    """What a replay that was sent to this step shows."""
    with RecordingIndex(path) as index:
        end = index.offset_of_step(step)
    advisor = Advisor()
    advisor.feed_many(split(path.read_bytes()[FILE_HEADER_BYTES:end]))
    return advisor.view_at(step)


@pytest.mark.parametrize("hosts", [(), ("a", "a", "b", "b")], ids=["one host", "two hosts"])
def test_a_replay_at_a_step_shows_what_was_seen_of_all_ranks_until_then(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], hosts: tuple[str, ...]
) -> None:
    """At the last step as at the end: phases by the devices, overlap, who is late; no host stands before another."""
    folder = marked(tmp_path / "traces", 2)
    for rank, host in enumerate(hosts):
        path = next(path for path in folder.glob("*.gz") if f"{rank}" in path.name)
        content = json.loads(gzip.decompress(path.read_bytes()))
        path.write_bytes(gzip.compress(json.dumps({**content, "host_name": host}).encode()))
    _, whole = imported(folder, capsys)
    assert (len(set(hosts)) or 1) == len({rank.host for rank in whole.ranks})
    shown = at_step(tmp_path / "traces.tuirec", 139)
    for view in (whole, shown):
        assert ([2], [0, 1, 2, 3]) == (
            [one.rank for one in view.stragglers],
            [rank.rank for rank in view.ranks],
        )
    assert (whole.overlap, whole.step, whole.ranks) == (shown.overlap, shown.step, shown.ranks)
    earlier = at_step(tmp_path / "traces.tuirec", 130)
    assert {130} == {rank.last_step for rank in earlier.ranks}
    assert earlier.overlap.comm_total_s == pytest.approx(whole.overlap.comm_total_s, rel=0.05)


def test_steps_of_several_hosts_are_written_side_by_side(tmp_path: Path) -> None:
    """However many frames they fill: the log of a host is not behind all of another's."""
    ranks = tuple(
        ImportedRank(rank, tuple(map(_step, range(900))), (), None, host=f"node{rank}") for rank in range(3)
    )
    path = tmp_path / "log.tuirec"
    write_imported(str(path), ImportedRun("steplog", "log", "a log", ranks, 3, None, "", ""))
    assert [500, 500, 500] == [rank.last_step for rank in at_step(path, 500).ranks]


def _step(number: int) -> tuple[int, ...]:
    """Of a second."""
    begin_ns = 10**9 * number
    known = {"step": number, "begin_ns": begin_ns, "end_ns": begin_ns + 10**9, "group_seq": number + 1}
    return tuple(known.get(name, UNKNOWN) for name in STEP_COLUMNS)


def test_what_a_trace_does_not_show_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Phases, hosts, processes, software: none is made up; where it is from stands in the document and the notes."""
    _, view = imported(marked(tmp_path / "traces", None), capsys)
    seconds = view.step.seconds
    shown = {"data_wait", "forward", "backward", "comm_exposed", "optimizer", "other"}
    assert {name for name, value in seconds.items() if value is not None} == shown
    assert view.run.torch is None is view.run.started_wall_s
    assert (None, None, None) == (view.ranks[0].pid, view.probe_cost, view.hosts[0].cpu)
    found = document(view)["imported"]
    assert isinstance(found, dict)
    assert ("kineto", False, "traces") == (found["kind"], found["live"], found["source"])
    assert "device" == view.clock
    assert "not live: imported from PyTorch Profiler traces, by the devices' clocks" in view.losses.notes
    assert view.run.label == "traces (imported)"


@pytest.mark.parametrize(
    ("kind", "says"),
    [("nccl-tests", "has no steps"), ("fio", "has no steps"), ("memory", "no steps")],
)
def test_a_source_without_steps_says_why_it_is_no_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, says: str
) -> None:
    """One line, exit code 2, and no file."""
    assert 2 == main(["import", kind, str(tmp_path), "-o", str(tmp_path / "out.tuirec")])
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
    assert not (tmp_path / "out.tuirec").exists()


def test_traces_without_marks_are_no_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As whole as they may be; and an existing file stays what it is."""
    job(tmp_path, None, IN_TIME)
    assert 2 == main(["import", "kineto", str(tmp_path), "-o", str(tmp_path / "out.tuirec")])
    assert "no trace has ProfilerStep marks" in capsys.readouterr().err
    (tmp_path / "out.tuirec").write_text("mine")
    assert 2 == main(["import", "kineto", str(tmp_path), "-o", str(tmp_path / "out.tuirec")])
    assert "mine" == (tmp_path / "out.tuirec").read_text()


@pytest.mark.slow
def test_every_command_takes_the_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As any other: the screens' text, diagnosis, advice, comparison, report, exports, copies."""
    source = marked(tmp_path / "traces", 2)
    path, other = str(tmp_path / "a.tuirec"), str(tmp_path / "b.tuirec")
    assert 0 == main(["import", "kineto", str(source), "-o", path])
    assert 0 == main(["import", "kineto", str(marked(tmp_path / "even", None)), "-o", other])
    for words in (
        ["replay", "--once", path],
        ["diagnose", path],
        ["info", path],
        ["advise", path],
        ["compare", path, other],
        ["report", path, "-o", str(tmp_path / "a.html")],
        ["export", path, "--format", "chrome-trace", "-o", str(tmp_path / "a.json")],
        ["trim", path, "--steps", "110:120", "-o", str(tmp_path / "t.tuirec")],
        ["anonymize", path, "-o", str(tmp_path / "n.tuirec")],
    ):
        capsys.readouterr()
        assert 0 == main(words), (words, capsys.readouterr().err)
    nameless = whole_view(str(tmp_path / "n.tuirec"))
    assert nameless.imported is not None
    assert [2] == [one.rank for one in nameless.stragglers]
    assert "traces" not in (nameless.imported.source, nameless.run.label)


@pytest.mark.slow
@needs_data
@pytest.mark.parametrize(("name", "named"), [("AR", (0,)), ("ST", (6, 7))])
def test_published_tables_agree_with_their_recordings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, named: tuple[int, ...]
) -> None:
    """AR: one slow worker; ST: the last stage has more work. Fixing it brings what the what-if analysis says."""
    source = tmp_path / f"trace-{name}.csv.gz"
    source.symlink_to(SHARED / "stragglers_per_op" / source.name)
    told, view = imported(source, capsys, "ops")
    assert named == tuple(told["causes"][0]["ranks"])
    heavy = next(finding for finding in view.findings if finding.id == "heavy_stage")
    assert set(heavy.ranks) <= set(named)
    assert view.step.mean_s == pytest.approx(told["step"]["mean_s"], rel=0.02)
    assert [
        one.rank for one in view.stragglers
    ] == []  # stages do different work: the order of arrival blames nobody
    if name == "AR":
        assert view.verdict.finding == "heavy_stage"
        assert view.verdict.speedup is not None
        assert told["what_if"]["S"] == pytest.approx(view.verdict.speedup.expected, rel=0.05)


def flat(slow: int | None) -> list[dict[str, Any]]:
    """Four data-parallel ranks, 30 steps: compute, then a reduce-scatter that all leave together."""
    rows = []
    for step in range(30):
        for dp in range(4):
            took = 1.0 + (0.5 if dp == slow else 0.0) + 0.001 * ((7 * step + 3 * dp) % 5)
            begin = 0.0
            released = 2.8 if slow is not None else 2.3
            for optype, begin, dur in (
                ("forward-compute", 0.0, took / 3),
                ("backward-compute", took / 3, 2 * took / 3),
                ("grads-reduce-scatter", took, released - took),
                ("optimizer", released, 0.1),
            ):
                rows.append(row(dp, 0, step, optype, begin, begin + dur))
    return rows


@pytest.mark.parametrize("slow", [2, None])
def test_a_table_without_stages_agrees_with_its_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], slow: int | None
) -> None:
    """A slow worker of four is named by both, and nobody where nobody is slow."""
    told, view = imported(written(tmp_path / "ops.csv", flat(slow)), capsys, "ops")
    expected = [] if slow is None else [2 * slow]
    assert expected == [one["rank"] for one in told["stragglers"]["ranks"]]
    assert expected == [one.rank for one in view.stragglers]
    assert "what lies between two steps is not in the table: they are laid end to end" in view.losses.notes
    assert view.step.seconds["data_wait"] is None
    assert view.run.device is None


CASES = (
    "hta_df_index_resolver",
    "hta_trace_diff_control",
    "hta_sampled_2of128",
    "tb_nw0_worker0_1623143089861",
)


@pytest.mark.slow
@needs_data
@pytest.mark.parametrize("case", thinned(CASES, ["hta_sampled_2of128", "tb_nw0_worker0_1623143089861"]))
def test_public_traces_agree_with_their_recordings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    """Overlap of the marked steps, which hold nearly all of each trace; nobody is named."""
    (tmp_path / case).symlink_to(SHARED / "kineto" / case, target_is_directory=True)
    told, view = imported(tmp_path / case, capsys)
    assert [] == [one.rank for one in view.stragglers] == [row["rank"] for row in told["stragglers"]["ranks"]]
    assert told["run"]["missing_ranks"][:64] == list(view.losses.ranks_missing)
    (mine,) = [row for row in view.ranks if row.rank == (told["per_rank"][0]["rank"] or 0)]
    its = told["per_rank"][0]["overlap"]
    assert its is mine.overlap is None if its is None else its == pytest.approx(mine.overlap, abs=1e-4)
    if case.startswith("tb_nw0"):
        assert "data_wait" == max(view.step.seconds, key=lambda name: view.step.seconds[name] or 0.0) or (
            0.3 < (view.step.shares["data_wait"] or 0.0)
        )
