"""Trainings whose loop runs in another thread than the main one: attached to, measured, diagnosed, looked into."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from patience import wait_until
from rank_loops import diagnosis, diagnosis_once, is_late, training, tuiadvisor

pytest.importorskip("torch")

SCRIPT = "thread_training.py"


@pytest.mark.parametrize("kind", [pytest.param("thread", marks=pytest.mark.extended), "epochs"])
def test_the_late_rank_is_named(tmp_path: Path, kind: str) -> None:
    """Two ranks of DDP whose main threads wait in a join; with a fresh thread every 12 steps the window is as good."""
    with training(SCRIPT, kind, tmp_path) as pids:
        document = diagnosis_once(pids, tmp_path, lambda told: is_late(told, 1, "forward"))
    seconds = document["step"]["seconds"]
    assert all(seconds[name] > 0 for name in ("data_wait", "forward", "backward", "optimizer"))
    assert 0 == document["losses"]["hooks_disabled"]


def test_stacks_are_those_of_the_thread_that_trains(tmp_path: Path) -> None:
    """A hang without any probe, and with one: who waits in the collective, and where the other one's loop is."""
    with training(SCRIPT, "hang", tmp_path) as pids:
        wait_until((tmp_path / "hangs").exists, "rank 1 stays away")
        done = tuiadvisor("stacks", "--json", "--pid", *map(str, pids))
    assert done.returncode == 0, done.stderr
    waiting, missing = json.loads(done.stdout)["ranks"]
    assert ["loop", "loop"] == [waiting["thread"], missing["thread"]]
    assert "backward" == waiting["call"]
    assert missing["stack"][0].startswith("oversleep (")
    assert any(frame.startswith("run (") for frame in waiting["stack"])


STEPLESS_KINDS = {
    "two": "several threads of this process train at the same time or in turns (loop and loop 2)",
    "backward": "backward runs in its thread loop, but no optimizer of torch.optim steps",
    "idle": "none of its threads is doing anything",
}


def stepless(reason: str, recording: str, *words: str) -> subprocess.CompletedProcess[str]:
    """The command, with more patience until it gives the reason: a busy machine takes long to put the probes in."""
    for patience in ("7s", "30s", "120s"):
        Path(recording).unlink(missing_ok=True)  # nothing is overwritten
        done = tuiadvisor(*words, "--for", patience)
        if reason in done.stderr:
            break
    return done


@pytest.mark.parametrize(
    "kind", ["two", *(pytest.param(kind, marks=pytest.mark.extended) for kind in ("backward", "idle"))]
)
def test_no_step_is_a_failure_with_its_reason(tmp_path: Path, kind: str) -> None:
    """Exit code 1 and what was found out: of `watch --once`, of `record`, and later of `diagnose` on its file."""
    recording, reason = str(tmp_path / "run"), STEPLESS_KINDS[kind]
    with training(SCRIPT, kind, tmp_path, num_ranks=1) as (pid,):
        commands = [stepless(reason, recording, "record", "--pid", str(pid), "-o", recording)]
        if kind == "idle":
            commands.append(stepless(reason, str(tmp_path / "none"), "watch", "--once", "--pid", str(pid)))
    diagnose = tuiadvisor("diagnose", recording)
    as_json = tuiadvisor("diagnose", recording, "--json")
    for done in (*commands, diagnose, as_json):
        assert done.returncode == 1, done.stdout + done.stderr
        assert reason in done.stderr
    assert "Traceback" not in diagnose.stdout + diagnose.stderr
    notes = json.loads(as_json.stdout)["losses"]["notes"]
    assert any(reason in note for note in notes)


def test_ranks_without_a_step_are_a_failure_too(tmp_path: Path) -> None:
    """Two ranks with numbers of their own, and one reason for both."""
    recording = str(tmp_path / "run")
    reason = "rank 0 and 1 more: no step is measured: backward runs in its thread loop"
    with training(SCRIPT, "backward", tmp_path) as pids:
        record = stepless(reason, recording, "record", "--pid", *map(str, pids), "-o", recording)
    assert record.returncode == 1
    assert reason in record.stderr
    diagnose = tuiadvisor("diagnose", recording)
    assert diagnose.returncode == 1
    assert "no step is measured: backward runs in its thread loop" in diagnose.stderr


def test_a_training_of_one_process_and_one_thread(tmp_path: Path) -> None:
    """Rank 0 of 1, by the steps of its thread."""
    with training(SCRIPT, "thread", tmp_path, num_ranks=1) as (pid,):
        document = diagnosis([pid], tmp_path, 60)
    assert 1 == document["run"]["world_size"]
    assert document["verdict"]["decision"] is not None
