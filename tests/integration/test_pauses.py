"""Pauses of one rank on real trainings: a process stopped once, and what rank 0 does alone between steps."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S, RECORD_FOR, wait_until
from training import end, launch, wait_for_ranks

from tuiadvisor.app.survey import surveyed
from tuiadvisor.errors import TuiadvisorError

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

ZOO = Path(__file__).parents[1] / "accuracy" / "zoo.py"
STOP_S = 5.0
SEEN_STEPS = 100  # of a recording, before the stop and after it


def last_step(recording: Path) -> int:
    """Of what is written so far; 0 before there is any."""
    try:
        view = surveyed(str(recording)).view
    except TuiadvisorError:
        return 0
    return (view.last_step if view is not None else 0) or 0


def stopped_once(pid: int, recording: Path, recorder: subprocess.Popen[str]) -> None:
    """Stop the rank for a while amid the recording; end the recording once it holds steps from after that."""

    def holds(num_steps: int) -> Callable[[], bool]:
        return lambda: recorder.poll() is not None or last_step(recording) >= num_steps

    wait_until(holds(SEEN_STEPS), "a recording with steps before the stop")
    os.kill(pid, signal.SIGSTOP)
    time.sleep(STOP_S)
    os.kill(pid, signal.SIGCONT)
    wait_until(holds(last_step(recording) + SEEN_STEPS), "steps after the stop")
    recorder.send_signal(signal.SIGINT)


def diagnosed(
    scenario: list[str], folder: Path, num_steps: int | None = None, stopped_rank: int | None = None
) -> Any:
    """Train with two ranks, record so many steps or until a rank was stopped and went on, and give the document."""
    recording = folder / "run.tuirec"
    command = [sys.executable, "-m", "tuiadvisor"]
    training = launch(2, scenario, ZOO)
    try:
        pids = {rank.rank: rank.pid for rank in wait_for_ranks(training, 2)}
        limits = (
            ["--for", RECORD_FOR] if num_steps is None else ["--steps", str(num_steps), "--for", RECORD_FOR]
        )
        target = ["record", "--pid", str(training.pid), "-o", str(recording), *limits]
        with subprocess.Popen([*command, *target], stderr=subprocess.PIPE, text=True) as recorder:
            try:
                if stopped_rank is not None:
                    stopped_once(pids[stopped_rank], recording, recorder)
                _, complaint = recorder.communicate(timeout=PATIENCE_S)
            finally:
                recorder.kill()
        assert recorder.returncode == 0, complaint
    finally:
        end(training)
    told = subprocess.run(
        [*command, "diagnose", str(recording), "--json"], capture_output=True, timeout=PATIENCE_S, check=True
    )
    return json.loads(told.stdout)


def assert_sums(document: Any) -> None:
    """Phases sum to the step, of the job and of each rank; both ranks' steps are as long."""
    step = document["step"]
    # A tenth of what a pause would add: whoever does not run at an end of the window is later there.
    slack_s = 0.1 * STOP_S / (document["run"]["last_step"] + 1)
    assert step["mean_s"] == pytest.approx(sum(value or 0.0 for value in step["seconds"].values()), rel=0.01)
    for row in document["per_rank"]:
        assert row["step_s"] == pytest.approx(
            sum(value or 0.0 for value in row["seconds"].values()), rel=0.01
        )
        assert step["mean_s"] == pytest.approx(row["step_s"], rel=0.02, abs=slack_s)


def test_a_rank_stopped_once_has_paused_and_is_no_straggler(tmp_path: Path) -> None:
    """Rank, length and reason of the pause; it is in no mean."""
    document = diagnosed(["ddp:none"], tmp_path, stopped_rank=1)
    (pause,) = [entry for entry in document["pauses"] if entry["length_s"] > STOP_S / 2]
    assert [1] == pause["ranks"]
    assert STOP_S * 0.9 < pause["length_s"]
    assert "stopped" == pause["cause"]
    # On a crowded machine it may have paused at other steps, too, for far shorter times.
    (finding,) = [
        entry
        for entry in document["findings"]
        if entry["id"] == "irregular_pause" and [entry["since_step"]] == pause["steps"]
    ]
    assert [1] == finding["ranks"]
    assert document["step"]["mean_s"] < pause["length_s"] / 2
    assert_sums(document)


@pytest.mark.alone
@pytest.mark.extended
def test_what_rank_0_does_alone_between_steps_is_its_periodic_pause(tmp_path: Path) -> None:
    """A validation that no hook sees: its rank is named, phases sum, the rate counts it, nothing unseen is a zero."""
    document = diagnosed(["ddp:validation", "--bad", "0", "--ms", "200"], tmp_path, num_steps=330)
    (pause,) = [entry for entry in document["pauses"] if entry["kind"] == "periodic"]
    assert ([0], 50, "other") == (pause["ranks"], round(pause["period_steps"]), pause["phase"])
    assert "periodic_pause_rank_0" in document["goodput"]["losses"]
    assert document["step"]["seconds"]["eval"] is None
    assert document["step"]["mean_s"] < document["step"]["mean_with_pauses_s"]
    assert 32 / document["step"]["mean_with_pauses_s"] == pytest.approx(
        document["step"]["throughput_samples_s"], rel=0.01
    )
    assert_sums(document)
