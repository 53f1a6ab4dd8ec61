"""`tuiadvisor open PATH` and a bare path: recognised by content, said, and shown by the command that reads it."""

from __future__ import annotations

import argparse
import gzip
import json
import os
import pickle
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
import zstandard
from synthetic_run import Job
from thinned import crossed
from unit.test_contents import recording
from unit.test_import_cpu_traces import job as traced_on_cpu
from unit.test_import_kineto import job as traced_job
from unit.test_import_recording import marked

from tuiadvisor.app.advising import GuidedAdvice, session_file
from tuiadvisor.app.bookmarks import save_bookmark
from tuiadvisor.app.opening import OpeningDesk
from tuiadvisor.app.progress import read_frames
from tuiadvisor.app.reporting import report_of_shown
from tuiadvisor.app.whole_recording import whole_view
from tuiadvisor.cli import import_, main, open_
from tuiadvisor.importers.kinetoreport import kineto_document

NCCL_TRACE = Path(__file__).parents[1] / "recordings" / "nccl_trace"
NCCL = """# nThread 1 nGpus 1 minBytes 8 maxBytes 64
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
           8             2     float     sum      -1    20.10    0.00    0.00      0    20.00    0.00    0.00      0
"""
OPS = "step,rank,dp_rank,stage,optype,start_s,dur_s\n0,0,0,0,forward-compute,0.0,0.1\n"
FIO = {"fio version": "fio-3.28", "jobs": []}
DUMP = {
    "version": "2.4",
    "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
    "entries": [],
}


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """(exit code, standard output, first line of standard error)."""
    code = main(list(arguments))
    out = capsys.readouterr()
    return code, out.out, out.err.partition("\n")[0]


@pytest.mark.parametrize("is_bare", [False, True])
def test_a_recording_and_a_folder_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], is_bare: bool
) -> None:
    """Whatever its name: replayed, listed, or diagnosed."""
    path = tmp_path / "last night.tuirec"
    recording(path, Job(num_steps=60))
    first = [] if is_bare else ["open"]
    code, out, err = said(capsys, *first, str(path), "--once")
    assert 0 == code
    assert "train.py · 4 ranks" in out
    assert "a recording of tuiadvisor; as: tuiadvisor replay --once" in err
    code, out, _ = said(capsys, *first, str(path), "--json")
    assert (0, 1) == (code, json.loads(out)["schema"])
    code, out, err = said(capsys, *first, str(tmp_path), "--once")
    assert 0 == code
    assert "tuiadvisor runs" in err
    assert "last night" in out


def test_traces_of_a_folder_and_one_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file beside them that is none does not matter."""
    traced_job(tmp_path, 2, [0, 0, 0, 0])
    (tmp_path / "notes.txt").write_text("rank 2 felt slow\n")
    code, out, err = said(capsys, "open", str(tmp_path), "--json")
    assert 0 == code
    assert "PyTorch Profiler traces" in err
    assert [2] == [row["rank"] for row in json.loads(out)["stragglers"]["ranks"]]
    code, out, _ = said(capsys, str(tmp_path / "rank1.json.gz"), "--json")
    assert 0 == code
    assert [1] == [row["rank"] for row in json.loads(out)["per_rank"]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "packed"),
    crossed(
        [
            ("a.log", NCCL, "nccl-tests"),
            ("a.csv", OPS, "ops"),
            ("a", json.dumps(FIO), "fio"),
            ("a.json", "\n " + json.dumps(FIO, indent=2), "fio"),
            (
                "page.prom",
                "# HELP vllm:num_requests_running Requests\nvllm:num_requests_running 1.0\n",
                "serving",
            ),
            ("rank0.json", json.dumps(DUMP), "flight-recorder"),
            ("nccl_trace_rank_0", pickle.dumps(DUMP, 2), "flight-recorder"),
            ("nccl_trace_rank_0", pickle.dumps(DUMP), "flight-recorder"),
            ("result_0.txt", '+ srun\n0: :::MLLOG {"key": "run_start", "time_ms": 5}\n', "steplog"),
            ("t.json", json.dumps([{"ph": "X", "name": "k", "ts": 1}]), "kineto"),
            ("t.json", json.dumps({"deviceProperties": [{}], "traceEvents": []}), "kineto"),
        ],
        ["", ".gz", ".zst"],
    ),
)
def test_each_kind_is_recognised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], file: tuple[str, str | bytes, str], packed: str
) -> None:
    """By its content, packed or not, alone or in a folder; what the import says of it is the import's."""
    name, content, kind = file
    path = tmp_path / f"{name}{packed}"
    pack = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}[packed]
    path.write_bytes(pack(content if isinstance(content, bytes) else content.encode()))
    for target in (path, tmp_path):
        _, _, err = said(capsys, "open", str(target))
        assert f"as: tuiadvisor import {kind} " in err


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "not recognised"),
        (b"hello\n", "not recognised"),
        (b'{"a": 1}', "not recognised"),
        (b"\x80\x04\x95pickle", "a pickle, and no flight recorder's dump: not opened"),
        (bytes(range(1, 128)) * 30, "not recognised"),
        (b"step,rank\n1,2\n", "not recognised"),
    ],
)
def test_what_is_none_of_them_gets_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, word: str
) -> None:
    """And exit code 2."""
    path = tmp_path / "file"
    path.write_bytes(content)
    code, out, err = said(capsys, "open", str(path))
    assert (2, "") == (code, out)
    assert word in err


@pytest.mark.parametrize(
    ("command", "what"),
    crossed(["open", "diagnose", "import flight-recorder"], ["folder", "archive", "file"]),
)
def test_what_nccl_left_after_a_hang_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, what: str
) -> None:
    """By a bare path, too; one rank's alone names nobody."""
    path = NCCL_TRACE
    if what == "archive":
        path = Path(shutil.make_archive(str(tmp_path / "hang"), "zip", NCCL_TRACE))
    elif what == "file":
        path = NCCL_TRACE / "nccl_trace_rank_0"
    says = (
        "of rank 1 there is no usable dump"
        if what == "file"
        else "for rank 1, which has not entered all_reduce"
    )
    for words in (command.split(), [] if command == "open" else ["open"]):
        code, out, _ = said(capsys, *words, str(path))
        assert 0 == code
        assert says in " ".join(out.split())


@pytest.mark.parametrize("command", ["open", "diagnose", "import flight-recorder"])
def test_a_dump_that_is_no_plain_data_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """It begins like a flight recorder's, and names what to import."""
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(pickle.dumps({**DUMP, "entries": [tmp_path]}))
    for target in (path, tmp_path):
        assert 2 == main([*command.split(), str(target)])
        last = capsys.readouterr().err.splitlines()[-1]
        assert "nccl_trace_rank_0: a pickle of more than plain data (STACK_GLOBAL at byte" in last


def test_nothing_there_and_nothing_that_can_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong path, an empty folder, a pipe, two tables that are listed."""
    assert 2 == said(capsys, "open", str(tmp_path / "nowhere"))[0]
    assert "nothing recognised" in said(capsys, "open", str(tmp_path))[2]
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in said(capsys, str(tmp_path / "pipe"))[2]
    # A file whose first bytes cannot be read: nothing of this process is mapped at 0.
    code, _, err = said(capsys, "/proc/self/mem")
    assert (2, True) == (code, "cannot read /proc/self/mem" in err)
    (tmp_path / "a.csv").write_text(OPS)
    shutil.copy(tmp_path / "a.csv", tmp_path / "b.csv")
    code, out, _ = said(capsys, str(tmp_path))
    assert 0 == code
    assert all(f"tuiadvisor open {tmp_path}/{name}.csv" in out for name in "ab")


def test_a_command_is_never_taken_for_a_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of its name in the current folder changes nothing."""
    monkeypatch.chdir(tmp_path)
    recording(tmp_path / "info", Job(num_steps=60))
    with pytest.raises(SystemExit) as left:
        main(["info"])
    assert 2 == left.value.code
    assert "required: RUN" in capsys.readouterr().err


def unmarked(folder: Path) -> Path:
    """Traces of four ranks without step marks."""
    folder.mkdir()
    return traced_job(folder, 2, [0.0, 0.0, 0.0, 0.0])


@pytest.mark.parametrize("with_steps", [True, False])
def test_a_trace_on_a_terminal_opens_its_screens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, with_steps: bool
) -> None:
    """At once, and through a recording that is gone afterwards; without steps its summary, and why."""
    folder = marked(tmp_path / "traces", 2) if with_steps else unmarked(tmp_path / "traces")
    shown = []

    def begin(options: argparse.Namespace, _sizing: object, _stack: object) -> tuple[None, Any]:
        shown.append((Path(options.file), whole_view(options.file)))
        return None, argparse.Namespace(failure=None)

    def show_opened(make: Any, mode: str, phase: str, path: str) -> None:
        assert ("replay", "reading", str(folder)) == (mode, phase, path)
        make(OpeningDesk(make, "replay", phase, path))

    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("tuiadvisor.cli.replay.show_opened", show_opened)
    monkeypatch.setattr("tuiadvisor.cli.replaying.begin", begin)
    options = argparse.Namespace(path=str(folder), trace=None, json=False, once=False)
    assert 0 == open_.run(options)
    out = capsys.readouterr()
    assert "PyTorch Profiler traces; reading it" in out.err
    if not with_steps:
        assert [] == shown
        assert "no trace has ProfilerStep marks" in out.err
        assert "rank  window s" in out.out
        return
    ((path, view),) = shown
    assert [2] == [one.rank for one in view.stragglers]
    assert ("traces.tuirec", False) == (path.name, path.parent.exists())


@pytest.mark.slow
def test_the_document_of_a_trace_has_the_verdict_of_diagnose(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With open --json, and with import --json where that is asked for; its figures are the import's."""
    folder = str(marked(tmp_path / "traces", 2))

    def document(*words: str) -> dict[str, Any]:
        assert 0 == main([*words, folder])
        told: dict[str, Any] = json.loads(capsys.readouterr().out)
        return told

    whole, plain = document("diagnose", "--json"), document("import", "kineto", "--json")
    assert "tune" == whole["verdict"]["decision"]
    assert not {"verdict", "findings"} & set(plain)
    for told in (document("open", "--json"), document("import", "kineto", "--json", "--verdict")):
        assert plain.items() <= told.items()
        assert {name: whole[name] for name in ("verdict", "findings", "clock")}.items() <= told.items()
    assert 2 == main(["import", "kineto", "--verdict", folder])
    assert "--verdict is a part of --json" in capsys.readouterr().err


def test_the_document_of_what_has_no_steps_says_why_it_has_no_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Traces without marks, a memory timeline; a hang is one without steps."""
    timeline = tmp_path / "memory.json"
    timeline.write_text(json.dumps([[1, 2], [[0] * 9, [0, 1, *[0] * 7]]]))
    for path, why in (
        (unmarked(tmp_path / "traces"), "no trace has ProfilerStep marks"),
        (timeline, "a memory timeline holds no steps"),
    ):
        assert 0 == main(["open", "--json", str(path)])
        told = json.loads(capsys.readouterr().out)
        assert told["verdict"] is told["findings"] is None
        assert [True] == [one["why"].startswith(why) for one in told["unknown"] if one["metric"] == "verdict"]
    assert 0 == main(["open", "--json", str(NCCL_TRACE)])
    told = json.loads(capsys.readouterr().out)
    assert "hang" == told["verdict"]["decision"]
    assert "Stalled: rank 0 waits for rank 1, which has not entered all_reduce" in told["verdict"]["sentence"]
    assert ["hang"] == [one["id"] for one in told["findings"]]


@pytest.mark.slow
@pytest.mark.parametrize(("command", "is_packed"), crossed(["open", "advise"], [False, True]))
def test_what_is_kept_of_a_trace_lies_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, command: str, is_packed: bool
) -> None:
    """Answers, marks and the report of key R, named after the trace: not in the folder that goes with the program."""
    folder = marked(tmp_path / "traces", 2)
    named = str(folder)
    if is_packed:
        with zipfile.ZipFile(tmp_path / "traces.zip", "w") as file:
            for path in folder.iterdir():
                file.write(path, path.name)
        named = str(tmp_path / "traces.zip")

    def keep(path: str) -> None:
        view = whole_view(path)
        save_bookmark(path, 120, "here")
        report = report_of_shown(path, view, None, None, None)
        assert str(tmp_path / "traces-step139.html") == str(report)
        assert str(Path(path).parent) not in report.read_text()
        file = session_file(path)
        assert file == tmp_path / "traces.session.json"
        advice = GuidedAdvice(path, file, (), None)
        advice.read(read_frames)
        assert named in dict(advice.conduct().loop)["baseline"]

    def begin(options: argparse.Namespace, _sizing: object, _stack: object) -> tuple[None, Any]:
        keep(options.file)
        return None, argparse.Namespace(failure=None)

    def shown(options: argparse.Namespace) -> int:
        keep(options.run)
        return 0

    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr(
        "tuiadvisor.cli.replay.show_opened", lambda make, *_: make(OpeningDesk(make, "replay", "", ""))
    )
    monkeypatch.setattr("tuiadvisor.cli.replaying.begin", begin)
    monkeypatch.setattr("tuiadvisor.cli.advise.show", shown)
    assert 0 == main([command, *(["--tui"] if command == "advise" else []), named])
    assert '"note": "here"' in (tmp_path / "traces.bookmarks.json").read_text()


def test_a_link_in_a_circle_hides_nothing_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was an error of the whole folder."""
    folder = marked(tmp_path / "traces", 2)
    (folder / "a.json").symlink_to("a.json")
    code, out, err = said(capsys, "open", "--json", str(folder))
    assert (0, 4) == (code, json.loads(out)["source"]["files"])
    assert "PyTorch Profiler traces" in err


@pytest.mark.parametrize("prefix", ["[0] ", "[1,0]<stdout>:", "[pod/job-0/main] "])
def test_a_launchers_prefix_does_not_make_a_text_a_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], prefix: str
) -> None:
    """It begins as JSON would."""
    (tmp_path / "nccl.log").write_text("".join(prefix + line + "\n" for line in NCCL.splitlines()))
    _, _, err = said(capsys, "open", str(tmp_path / "nccl.log"))
    assert "the output of nccl-tests" in err


@pytest.mark.parametrize(
    "before", ["read: (g=0): rw=randread\nfio-3.28\n\n", "<node1> read: (g=0): rw=randread\n"]
)
def test_fios_document_behind_its_text_is_recognised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], before: str
) -> None:
    """--output-format=normal,json, with the empty line before it; servers of --client."""
    jobs = [{"jobname": "read", "groupid": 0, "error": 0, "read": {"bw_bytes": 5e8, "iops": 1e5}}]
    (tmp_path / "fio.txt").write_text(
        before + json.dumps({**FIO, "jobs": jobs}, indent=1) + "\n\nDisk stats:\n"
    )
    code, out, err = said(capsys, "open", str(tmp_path / "fio.txt"))
    assert (0, True) == (code, "fio's JSON output" in err)
    assert "500 MB/s" in out


KINDS = (*import_.KINDS, "serving")


@pytest.mark.parametrize("kind", KINDS)
def test_an_import_is_told_outright_that_it_was_given_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """A chrome trace of ours was a trace without device events, a recording no JSON, for each import in its words."""
    night, trace = tmp_path / "runs" / "night.tuirec", tmp_path / "traces" / "rank0.json"
    for path in (night, trace):
        path.parent.mkdir()
    recording(night, Job(num_steps=60))
    assert 0 == main(["export", str(night), "--format", "chrome-trace", "-o", str(trace)])
    capsys.readouterr()
    for path in (trace, trace.parent):
        code, out, err = said(capsys, "import", kind, str(path))
        assert (2, "") == (code, out)
        assert f"{path}: what tuiadvisor export wrote" in err
    for path in (night, night.parent):
        code, out, err = said(capsys, "import", kind, str(path))
        assert (2, "") == (code, out)
        assert "a recording of tuiadvisor, which needs no import: tuiadvisor open " in err


def test_an_export_of_ours_among_traces_is_lost_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was a rank without device events, or a second trace of one."""
    recording(tmp_path / "night.tuirec", Job(num_steps=60))
    traced_job(tmp_path, None, [0.0, 0.0])
    assert 0 == main(
        [
            "export",
            str(tmp_path / "night.tuirec"),
            "--format",
            "chrome-trace",
            "-o",
            str(tmp_path / "all.json"),
        ]
    )
    document = kineto_document(tmp_path)
    assert [0, 1] == [row["rank"] for row in document["per_rank"]]
    assert ["all.json: what tuiadvisor export wrote, no trace of a profiler"] == document["losses"]


@pytest.mark.parametrize("output", ["tables", "trace.json", "trace.json.gz"])
def test_what_we_exported_ourselves_is_named_and_not_taken_for_anothers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], output: str
) -> None:
    """Each file, its folder, and in a list; what is to be opened is said."""
    kind = "chrome-trace"
    if output == "tables":
        pytest.importorskip("pyarrow.parquet")
        kind = "parquet"
    recording(tmp_path / "night.tuirec", Job(num_steps=60))
    written = tmp_path / output
    assert 0 == main(["export", str(tmp_path / "night.tuirec"), "--format", kind, "-o", str(written)])
    capsys.readouterr()
    files = sorted(written.glob("*.parquet")) if kind == "parquet" else [written]
    assert (4 if kind == "parquet" else 1) == len(files)
    for path in (*files, written):
        for options in ([], ["--json"], ["--once"]):
            code, out, err = said(capsys, str(path), *options)
            assert (2, "") == (code, out)
            assert f"{path}: what tuiadvisor export wrote" in err
            assert "open the recording that it was made of" in err
    code, out, _ = said(capsys, str(tmp_path))
    assert 0 == code
    assert f"{path}: open the recording that it was made of" in out
    code, out, _ = said(capsys, str(tmp_path), "--json")
    (item,) = [item for item in json.loads(out)["items"] if item["kind"] == "export"]
    assert (len(files), []) == (item["files"], item["command"])


DEEP = (
    ("nccl-tests", NCCL),
    ("steplog", '0: :::MLLOG {"key": "run_start", "time_ms": 5}\n'),
    ("deepspeed", "Comm. Op            Message Size        Count               Total Latency(ms)\n"),
)


@pytest.mark.parametrize(("kind", "printed"), DEEP)
@pytest.mark.parametrize("in_folder", [False, True])
def test_what_a_log_holds_behind_a_long_beginning_is_recognised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, printed: str, in_folder: bool
) -> None:
    """NCCL's own lines and a launcher's fill more than the bytes that are looked at first."""
    path = tmp_path / "slurm-17.out"
    path.write_text("node01:42:42 [0] NCCL INFO Channel 00/32 : 0 1 2 3 4 5 6 7\n" * 30_000 + printed)
    _, _, err = said(capsys, "open", str(tmp_path if in_folder else path))
    assert f"as: tuiadvisor import {kind} " in err


def test_a_long_text_and_a_long_binary_of_nothing_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.txt").write_text("nothing of interest\n" * 100_000)
    (tmp_path / "b.bin").write_bytes(b"\1\0" * 100_000)
    for path in tmp_path.iterdir():
        code, _, err = said(capsys, "open", str(path))
        assert 2 == code
        assert "not recognised" in err


def in_folders(flat: Path, into: Path, name: str) -> Path:
    """Each rank's trace in a folder of its own, all with the same name."""
    for path in sorted(flat.iterdir()):
        below = into / name.format(path.name.partition(".")[0].removeprefix("rank"))
        below.mkdir(parents=True)
        (below / "trace.json.gz").write_bytes(path.read_bytes())
    return into


@pytest.mark.parametrize("name", ["rank{}", "rank_{}", "worker-rank{}-node0"])
def test_folders_of_one_rank_each_are_one_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """They were four things to open, and the late rank was not told; figures are those of one folder."""
    (tmp_path / "flat").mkdir()
    flat = traced_job(tmp_path / "flat", 2, [0, 3, -7, 11])
    expected = kineto_document(flat)
    code, out, _ = said(capsys, "open", str(in_folders(flat, tmp_path / "apart", name)), "--json")
    told = json.loads(out)
    assert (0, [2]) == (code, [row["rank"] for row in told["stragglers"]["ranks"]])
    assert [row["all"] for row in expected["per_rank"]] == [row["all"] for row in told["per_rank"]]
    assert 4 == len({row["file"] for row in told["per_rank"]})


def test_a_recording_of_folders_of_ranks_has_all_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "flat").mkdir()
    flat = tmp_path / "flat"
    marked(flat, 2)
    folder = in_folders(flat, tmp_path / "apart", "rank{}")
    code, _, err = said(capsys, "import", "kineto", str(folder), "-o", str(tmp_path / "run.tuirec"))
    assert 0 == code
    assert "4 ranks, 40 steps" in err


def test_folders_of_ranks_that_hold_anything_else_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Recordings of ranks are no traces of one job."""
    for rank in range(2):
        (tmp_path / f"rank{rank}").mkdir()
        recording(tmp_path / f"rank{rank}" / "run.tuirec", Job(num_steps=60))
    code, out, _ = said(capsys, "open", str(tmp_path), "--json")
    assert (0, ["recording", "recording"]) == (code, [item["kind"] for item in json.loads(out)["items"]])


def test_the_only_folder_of_a_folder_is_opened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As torchtitan's profile_traces/iteration_10: it was "nothing recognised in this folder"."""
    below = tmp_path / "profile_traces" / "iteration_10"
    below.mkdir(parents=True)
    traced_job(below, 2, [0, 3, -7, 11])
    code, out, _ = said(capsys, "open", str(tmp_path / "profile_traces"), "--json")
    assert (0, [2]) == (code, [row["rank"] for row in json.loads(out)["stragglers"]["ranks"]])


def of_hosts(folder: Path, apart_ns: int = 0) -> Path:
    """Four ranks' traces in two hosts' folders, those of the second so much later."""
    traced_on_cpu(folder / "flat", (0, 0, 0, 9_000))
    for host in (0, 1):
        (folder / "all" / f"node{host}").mkdir(parents=True)
        for rank in (2 * host, 2 * host + 1):
            told = json.loads((folder / "flat" / f"rank{rank}.json").read_text())
            told = {"baseTimeNanoseconds": told.pop("baseTimeNanoseconds") + host * apart_ns, **told}
            (folder / "all" / f"node{host}" / f"trace_{rank}.json").write_text(json.dumps(told))
    return folder / "all"


def test_folders_of_hosts_whose_traces_are_of_one_jobs_ranks_are_one_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They were two things to open, of two ranks each."""
    folder = of_hosts(tmp_path)
    code, out, _ = said(capsys, "open", str(folder), "--json")
    told = json.loads(out)
    assert (0, "kineto", 4) == (code, told["source"]["kind"], told["source"]["files"])
    assert [0, 1, 2, 3] == sorted(row["rank"] for row in told["per_rank"])


@pytest.mark.parametrize("case", ["another time", "a rank twice", "another file"])
def test_folders_of_hosts_that_are_not_of_one_job_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    """Two runs, or a trace that says nothing of its rank."""
    folder = of_hosts(tmp_path, 3_600_000_000_000 if case == "another time" else 0)
    if case == "a rank twice":
        shutil.copy(folder / "node0" / "trace_1.json", folder / "node1")
    if case == "another file":
        (folder / "node1" / "other.json").write_text('{"traceEvents": [{"ph": "X", "ts": 1}]}')
    code, out, _ = said(capsys, "open", str(folder))
    assert 0 == code
    assert out.count("tuiadvisor open") >= 2


def test_traces_deeper_in_folders_of_a_rank_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One job's, as those right in them."""
    flat, deep = tmp_path / "flat", tmp_path / "deep"
    flat.mkdir()
    traced_job(flat, 2, [0, 0, 0, 0])
    for path in sorted(flat.iterdir()):
        below = deep / path.name.partition(".")[0] / "iteration_10"
        below.mkdir(parents=True)
        shutil.copy(path, below / "trace.json.gz")
    code, out, err = said(capsys, "open", str(deep), "--json")
    assert 0 == code
    assert f"as: tuiadvisor import kineto --json --verdict {deep}" in err
    assert kineto_document(flat)["stragglers"] == json.loads(out)["stragglers"]
