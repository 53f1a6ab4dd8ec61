"""What an assistant is told: bounded, without command lines, and of nothing outside of the folders."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from synthetic_run import MS, Fault, Job
from test_contents import recording

from tuiadvisor.agent.discovery import find_ranks
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.mcpserver.paths import Roots
from tuiadvisor.mcpserver.questions import MAX_ROWS, MAX_RUNS, Questions

OPTION = "--fast"  # of the command line that synthetic runs record
SLOW = Job(faults=(Fault("backward", (2,), 8 * MS),))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "runs"
    inside.mkdir()
    return inside


def asking(folder: Path) -> Questions:
    return Questions(Roots([str(folder)]))


def at(path: Path, age_s: float) -> Path:
    """The file, last changed so long before the others."""
    os.utime(path, (1_700_000_000 - age_s,) * 2)
    return path


@pytest.mark.slow
def test_no_answer_holds_a_command_line(folder: Path) -> None:
    """A token given as an option would leave the machine; every section of the document is asked for."""
    recording(folder / "run.tuirec", SLOW)
    recording(folder / "before.tuirec", Job())
    recording(folder / "two.tuirec", Job(num_ranks=2))
    ask = asking(folder)
    told = ask.diagnose("run.tuirec")
    whole = ask.diagnose("run.tuirec", list(told["more_sections"]))
    assert [] == whole["more_sections"]
    answers = (
        told, whole, ask.list_runs(), ask.compare("before.tuirec", "run.tuirec"),
        ask.explain("straggler", "run.tuirec"), ask.scale(["two.tuirec", "before.tuirec"]),
    )  # fmt: skip
    for answer in answers:
        assert OPTION not in json.dumps(answer)
    assert "train.py" == whole["run"]["label"]


def test_sections_are_given_when_they_are_asked_for(folder: Path) -> None:
    """What is not in the answer is named, and a name that is none says which there are."""
    recording(folder / "run.tuirec", SLOW)
    ask = asking(folder)
    told = ask.diagnose("run.tuirec")
    assert "tune" == told["verdict"]["decision"]
    assert "per_rank" not in told
    assert "per_rank" in told["more_sections"]
    more = ask.diagnose("run.tuirec", ["per_rank"])
    assert [0, 1, 2, 3] == [row["rank"] for row in more["per_rank"]]
    assert set(told["more_sections"]) - {"per_rank"} == set(more["more_sections"])
    with pytest.raises(TuiadvisorError, match=r"no section 'ranks'; there are .*per_rank"):
        ask.diagnose("run.tuirec", ["per_rank", "ranks"])


def test_the_newest_recordings_are_read_and_all_are_counted(folder: Path) -> None:
    """A verdict costs reading a whole file: no more are read than were asked for, and never fewer than none."""
    for number in range(3):
        at(recording(folder / f"run{number}.tuirec", Job(num_steps=60)), 100.0 * number)
    ask = asking(folder)
    for newest, read in ((2, ["run0.tuirec", "run1.tuirec"]), (0, []), (-1, []), (10**9, 3)):
        told = ask.list_runs(newest=newest)
        assert 3 == told["num_recordings"]
        paths = [row["path"] for row in told["runs"]]
        assert read == (paths if isinstance(read, list) else len(paths))
    row = ask.list_runs()["runs"][0]
    assert ("read", "train.py", 4, 59) == tuple(
        row[name] for name in ("state", "label", "world_size", "last_step")
    )
    assert "spark" not in row


def test_an_empty_folder_holds_nothing(folder: Path) -> None:
    """Zero recordings are no error; a folder that is none, and one outside, are."""
    ask = asking(folder)
    assert {"num_recordings": 0, "runs": []} == ask.list_runs()
    with pytest.raises(TuiadvisorError, match="No such file or directory"):
        ask.list_runs("nowhere")
    (folder / "file").touch()
    with pytest.raises(TuiadvisorError, match="no such folder"):
        ask.list_runs("file")
    with pytest.raises(TuiadvisorError, match="outside of the folders"):
        ask.list_runs("..")


def test_a_row_says_why_its_recording_cannot_be_read(folder: Path) -> None:
    """One that is broken, a pipe that nobody fills, and a link to elsewhere, which is not even counted."""
    recording(folder / "good.tuirec", Job(num_steps=60))
    (folder / "broken.tuirec").write_bytes(b"no recording at all")
    os.mkfifo(folder / "pipe.tuirec")
    (folder / "link.tuirec").symlink_to(recording(folder.parent / "secret.tuirec", Job(num_steps=60)))
    told = asking(folder).list_runs()
    assert 3 == told["num_recordings"]
    rows = {row["path"]: row for row in told["runs"]}
    assert {"good.tuirec", "broken.tuirec", "pipe.tuirec"} == set(rows)
    assert ("read", "") == (rows["good.tuirec"]["state"], rows["good.tuirec"]["problem"])
    for name, why in (("broken.tuirec", "not a recording"), ("pipe.tuirec", "no regular file")):
        assert "broken" == rows[name]["state"]
        assert why in rows[name]["problem"]
        assert rows[name]["decision"] is None


def test_a_name_that_is_no_text_hides_no_other_recording(folder: Path) -> None:
    """A file named in another encoding made the whole list an error."""
    recording(folder / "good.tuirec", Job(num_steps=60))
    recording(Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.tuirec")), Job(num_steps=60))
    rows = asking(folder).list_runs()["runs"]
    assert {"good.tuirec", "caf\ufffd.tuirec"} == {row["path"] for row in rows}
    assert {"read"} == {row["state"] for row in rows}


def test_a_comparison_is_what_the_user_vouches_for(folder: Path) -> None:
    """Steps of unknown batches may be other work: not comparable, unless the user says that they are."""
    recording(folder / "before.tuirec", Job(samples=0))
    recording(folder / "after.tuirec", Job(samples=0, faults=(Fault("backward", None, 8 * MS),)))
    ask = asking(folder)
    assert "not comparable" == ask.compare("before.tuirec", "after.tuirec")["verdict"]
    assert "regressed" == ask.compare("before.tuirec", "after.tuirec", same_work=True)["verdict"]
    with pytest.raises(TuiadvisorError, match="outside of the folders"):
        ask.compare("before.tuirec", "/etc/hostname")


def test_an_explanation_tells_what_it_says_in_a_run(folder: Path) -> None:
    """Only of that finding; of a run without it nothing; without a run nothing is said of any."""
    recording(folder / "slow.tuirec", SLOW)
    recording(folder / "even.tuirec", Job())
    ask = asking(folder)
    alone = ask.explain("straggler")
    assert {"id", "explanation"} == set(alone)
    assert "Fires when" in alone["explanation"]
    assert [("straggler", [2])] == [
        (found["id"], found["ranks"]) for found in ask.explain("straggler", "slow.tuirec")["in_run"]
    ]
    assert [] == ask.explain("straggler", "even.tuirec")["in_run"]
    with pytest.raises(TuiadvisorError, match="no rule 'stragler'"):
        ask.explain("stragler", "slow.tuirec")


@pytest.mark.parametrize(
    "words",
    [
        {"runs": ["run.tuirec"] * (MAX_RUNS + 1)},
        {"table": "sizes.csv", "predict": [2] * (MAX_RUNS + 1)},
        {"table": "sizes.csv", "predict": [16, 0]},
        {"table": "sizes.csv", "predict": [-4]},
    ],
)
def test_too_many_sizes_and_none_at_all_are_refused(folder: Path, words: dict[str, Any]) -> None:
    """Before any file is looked at."""
    with pytest.raises(TuiadvisorError, match="32 sizes of one device or more"):
        asking(folder).scale(**words)


@pytest.mark.slow
def test_a_table_of_sizes_is_read_below_the_folders_alone(folder: Path) -> None:
    """As many sizes as are allowed are predicted."""
    (folder / "sizes.csv").write_text("devices,step_s\n1,1.0\n2,0.55\n4,0.3\n8,0.2\n")
    (folder.parent / "other.csv").write_text("devices,step_s\n1,1.0\n2,0.55\n")
    ask = asking(folder)
    sizes = list(range(9, 9 + MAX_RUNS))
    assert sizes == [one["devices"] for one in ask.scale(table="sizes.csv", predict=sizes)["predictions"]]
    with pytest.raises(TuiadvisorError, match="outside of the folders"):
        ask.scale(table="../other.csv")
    with pytest.raises(TuiadvisorError, match="one of the two"):
        ask.scale()


def test_long_lists_are_cut_and_the_longest_is_told(folder: Path) -> None:
    """A list within the limit is whole, and nothing is called cut then."""
    recording(folder / "many.tuirec", Job(num_ranks=MAX_ROWS + 1, num_steps=60))
    recording(folder / "few.tuirec", Job(num_ranks=MAX_ROWS, num_steps=60))
    ask = asking(folder)
    many, few = (ask.diagnose(f"{name}.tuirec", ["per_rank"]) for name in ("many", "few"))
    assert MAX_ROWS == len(many["per_rank"])
    assert MAX_ROWS + 1 == many["cut"]["per_rank"]
    assert list(range(MAX_ROWS)) == [row["rank"] for row in few["per_rank"]]
    assert "per_rank" not in few.get("cut", {})


def test_jobs_are_listed_without_what_they_were_started_with(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank of this machine and a job in Slurm; the rank's secret option stays here."""
    squeue = folder / "squeue"
    squeue.write_text("#!/bin/sh\necho '77|RUNNING|8|1:02|pretraining'\n")
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    script = folder / f"secretive{os.getpid()}.py"  # none of a test beside this one
    script.write_text("import sys\nprint(flush=True)\nsys.stdin.read()\n")
    rank = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    meeting = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29999", "TORCHELASTIC_RUN_ID": "of-a-test"}
    with subprocess.Popen(
        [sys.executable, str(script), "--token=s3cret"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **rank, **meeting},
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            process.stdout.readline()
            told = asking(folder).list_jobs()
        finally:
            process.kill()
    (mine,) = [job for job in told["jobs"] if job["label"] == script.name]
    assert ("you", 1) == (mine["owner"], mine["num_ranks"])
    queued = [job for job in told["jobs"] if job["slurm"]]
    assert [("77", "pretraining", "8 nodes, running")] == [
        (job["slurm"], job["label"], job["where"]) for job in queued
    ]
    assert "" == told["slurm_note"]
    assert "s3cret" not in json.dumps(told)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("a\0b", "no path"),
        ("circle", "Too many levels of symbolic links"),
        ("circle/run.tuirec", "Too many levels of symbolic links"),
        ("x" * 5000, "File name too long"),
        ("nowhere/run.tuirec", "No such file"),
    ],
)
def test_what_is_no_path_is_refused_in_a_short_line(folder: Path, name: str, why: str) -> None:
    """For a file as for a folder; a name too long for one was an error of ours."""
    (folder / "circle").symlink_to(folder / "circle")
    ask = asking(folder)
    for question in (ask.diagnose, ask.list_runs):
        with pytest.raises(TuiadvisorError, match=why) as error:
            question(name)
        assert len(str(error.value)) < 300


def test_a_root_must_be_a_folder(folder: Path) -> None:
    """Also the second of two; both may be read, and the first one's names are short."""
    recording(folder / "run.tuirec", Job(num_steps=60))
    other = folder.parent / "other"
    other.mkdir()
    recording(other / "other.tuirec", Job(num_steps=60))
    ask = Questions(Roots([str(folder), str(other)]))
    assert ["run.tuirec"] == [row["path"] for row in ask.list_runs()["runs"]]
    (row,) = ask.list_runs(str(other))["runs"]
    assert str(other / "other.tuirec") == row["path"]
    assert "train.py" == ask.diagnose(row["path"])["run"]["label"]
    with pytest.raises(TuiadvisorError, match=r"--root .*run.tuirec: no such folder"):
        Roots([str(folder), str(folder / "run.tuirec")])


def test_several_trainings_are_told_apart_without_their_command_lines(folder: Path) -> None:
    """Two of one script: what tells them apart may be a secret on one of their command lines."""
    script = folder / f"twofold{os.getpid()}.py"  # none of a test beside this one
    script.write_text("import os, time\nos.write(1, b'up\\n')\ntime.sleep(600)\n")
    secret = "--token=hunter2-"
    below = "import os, subprocess, sys; env = dict(os.environ, WORLD_SIZE='1', RANK='0', MASTER_ADDR='127.0.0.1')\n"
    below += "ours = [subprocess.Popen([sys.executable, sys.argv[1], sys.argv[2] + str(n)],"
    below += " env=dict(env, MASTER_PORT=str(40000 + n))) for n in range(2)]\n"
    below += "[one.wait() for one in ours]\n"
    parent = subprocess.Popen(
        [sys.executable, "-c", below, str(script), secret], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert parent.stdout is not None
        assert [b"up\n", b"up\n"] == [parent.stdout.readline() for _ in range(2)]
        listed = [job for job in asking(folder).list_jobs()["jobs"] if job["label"] == script.name]
        assert len(listed) == 2
        assert "hunter2" not in json.dumps(listed)
        with pytest.raises(TuiadvisorError, match=f"--pid {parent.pid}"):
            list(find_ranks([parent.pid]))
        with pytest.raises(TuiadvisorError, match="list_jobs") as refused:
            asking(folder).watch([parent.pid], seconds=1.0)
        assert "hunter2" not in str(refused.value)
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.communicate()


def test_watching_what_is_no_training_says_so(folder: Path) -> None:
    """Nothing is attached to, and the line is the command's own."""
    idle = subprocess.Popen(["/bin/sleep", "600"])
    try:
        with pytest.raises(TuiadvisorError, match=f"--pid {idle.pid}"):
            asking(folder).watch([idle.pid], seconds=1.0)
    finally:
        idle.kill()
        idle.wait()
