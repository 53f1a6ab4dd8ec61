"""The guided session on real trainings: a late rank before, none after, and two sizes side by side."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_S, RECORD_FOR
from rank_loops import is_late, recorded_until
from training import running

pytest.importorskip("torch")
pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.extended]
STEP = ["--step-ms", "20"]


def tuiadvisor(*arguments: str, folder: Path) -> str:
    """Run the command line as a user would, in the project's folder."""
    done = subprocess.run(
        [sys.executable, "-m", "tuiadvisor", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        cwd=folder,
        stdin=subprocess.DEVNULL,
    )
    assert 0 == done.returncode, done.stderr
    return done.stdout


def record(folder: Path, name: str, num_ranks: int, *arguments: str) -> None:
    with running(num_ranks, *STEP, *arguments) as (training, _):
        tuiadvisor(
            "record",
            "--pid",
            str(training.pid),
            "--steps",
            "250",
            "--for",
            RECORD_FOR,
            "-o",
            name,
            folder=folder,
        )


@pytest.fixture(name="project", scope="module")
def _project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    with running(2, *STEP, "--fault", "slow-data", "--fault-rank", "1") as (training, _):
        path = folder / "late.rec"
        command = [sys.executable, "-m", "tuiadvisor", "record", "--pid", str(training.pid), "-o", str(path)]
        recorded_until(command, path, lambda document: is_late(document, 1, "data_wait"))
    record(folder, "cured.rec", 2)
    record(folder, "four.rec", 4)
    return folder


def test_the_loop_from_a_late_rank_to_its_cure(project: Path) -> None:
    """Tune rank 1, then a second session that remembers what the first one predicted."""
    tuiadvisor("intent", "--set", "objective=time", "remaining_steps=1e6", folder=project)
    session = ["--session", "session.json", "--json"]
    first = json.loads(tuiadvisor("advise", "late.rec", *session, folder=project))
    assert "tune" == first["decision"]["decision"]
    assert [1] == first["history"][-1]["ranks"]
    assert 0 < first["decision"]["saved_h"]["low"] <= first["decision"]["saved_h"]["high"]
    assert first["decision"]["saved_money"] is None
    second = json.loads(tuiadvisor("advise", "cured.rec", *session, folder=project))
    assert ["late.rec", "cured.rec"] == [entry["run"] for entry in second["history"]]
    assert "predicted" in second["loop"]["last_time"]


def test_two_real_sizes_are_ranked_for_the_same_work(project: Path) -> None:
    """Samples a second and device time a sample of both, from the recordings themselves."""
    found = json.loads(tuiadvisor("advise", "four.rec", "cured.rec", "--json", folder=project))
    evidence = [item["text"] for item in found["stages"][2]["evidence"]]
    assert any("4 devices" in text and "samples/s" in text for text in evidence)
    assert any("2 devices" in text and "samples/s" in text for text in evidence)
    assert "From 2 to 4 devices" in found["why"]["devices"]["answer"]


def test_a_person_at_a_terminal_is_asked_and_may_leave_at_any_time(project: Path) -> None:
    """On a real terminal: the first question, `?`, then q; the decision follows."""
    ours, theirs = pty.openpty()
    talk = subprocess.Popen(
        [sys.executable, "-m", "tuiadvisor", "advise", "late.rec"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=project,
    )
    os.write(ours, b"?\nq\n")
    shown = talk.communicate(timeout=PATIENCE_S)[0].decode()
    os.close(ours)
    os.close(theirs)
    assert 0 == talk.returncode
    assert "Measure it:" in shown
    assert "## Decision: tune" in shown
