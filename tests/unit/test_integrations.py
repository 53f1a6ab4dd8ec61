"""Inside a training: the summary has what is known, trackers get it, and no failure reaches the training."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from synthetic_run import MS, Fault, Job
from test_contents import recording

import tuiadvisor
from tuiadvisor.integrations import recorder
from tuiadvisor.integrations.recorder import Recorder
from tuiadvisor.integrations.trackers import numbers, send, summary

LATE = Job(faults=(Fault("backward", (2,), 8 * MS),))


@pytest.fixture
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


def test_the_summary_has_what_is_known_and_nothing_else(tmp_path: Path) -> None:
    run = tuiadvisor.open(recording(tmp_path / "run.tuirec", LATE))
    figures = run.summary()
    assert figures == summary(json.loads(json.dumps(run.diagnose())))
    assert figures["tuiadvisor/step_median_s"] == run.view.step.median_s
    assert (figures["tuiadvisor/decision"], figures["tuiadvisor/findings"]) == ("tune", "straggler")
    assert "tuiadvisor/mfu" not in figures
    assert set(numbers(figures)) < set(figures)
    assert summary({}) == {"tuiadvisor/findings": ""}


class Taker:
    """A tracker that keeps what it is told."""

    def __init__(self) -> None:
        self.told: dict[str, Any] = {}
        self.run = types.SimpleNamespace(summary=self.told)

    def active_run(self) -> object:
        return self

    def log_metrics(self, figures: dict[str, float]) -> None:
        assert all(isinstance(value, float | int) for value in figures.values())
        self.told.update(figures)

    set_tags = log_text = lambda self, figures: self.told.update(figures)

    def add_scalar(self, name: str, value: float) -> None:
        self.told[name] = value

    add_text = add_scalar


def test_trackers_at_work_get_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = {"tuiadvisor/goodput": 0.5, "tuiadvisor/verdict": "Tune: ..."}
    wandb, mlflow, writer = Taker(), Taker(), Taker()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    assert send(figures, writer) == ["wandb", "mlflow", "tensorboard"]
    assert wandb.told == mlflow.told == writer.told == figures


def test_a_tracker_that_is_idle_or_broken_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    idle, broken = Taker(), types.SimpleNamespace(active_run=lambda: 1 / 0)
    idle.run = None  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "wandb", idle)
    monkeypatch.setitem(sys.modules, "mlflow", broken)
    assert send({"tuiadvisor/goodput": 0.5}) == []
    assert "mlflow took no summary" in caplog.text


class Started:
    """In place of our commands: what they were, a process that stands for the recording."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, code: int = 0) -> None:
        self.lines: list[list[str]] = []
        self.code = code
        self.process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        monkeypatch.setattr(recorder, "_ours", self)

    def __call__(self, words: list[str], _patience_s: float) -> subprocess.CompletedProcess[str]:
        self.lines.append(words)
        said = f"recording in x as process {self.process.pid}; its output" if words[0] == "record" else "{}"
        return subprocess.CompletedProcess(words, self.code, said, "tuiadvisor record: not possible here\n")

    def end(self) -> int:
        self.process.kill()
        return self.process.wait()


@pytest.mark.usefixtures("one_process")
def test_rank_zero_records_all_ranks_of_its_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started = Started(monkeypatch)
    try:
        one = Recorder(tmp_path / "run.tuirec")
        assert one.start()
        assert not one.start()
        assert one.finish() == {}
        assert started.process.wait(60) == -signal.SIGTERM
        assert one.finish() is None
    finally:
        started.end()
    assert [words[0] for words in started.lines] == ["record", "diagnose"]
    assert started.lines[0][-2:] == ["--pid", str(os.getpid())]
    again = Started(monkeypatch)
    try:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
        monkeypatch.setenv("WORLD_SIZE", "4")
        monkeypatch.setenv("RANK", "1")
        assert not Recorder(tmp_path / "run.tuirec").start()
        monkeypatch.setenv("RANK", "0")
        assert Recorder(tmp_path / "run.tuirec").start()
    finally:
        again.end()
    assert [words[-1] for words in again.lines] == [str(os.getppid())]  # torchrun's, for all of its ranks


@pytest.mark.usefixtures("one_process")
def test_what_cannot_be_recorded_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    started = Started(monkeypatch, code=2)
    try:
        assert not Recorder(tmp_path / "run.tuirec").start()
        assert "not possible here" in caplog.text
        monkeypatch.setenv("WORLD_SIZE", "16")
        monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
        assert not Recorder(tmp_path / "run.tuirec").start()
        assert "several machines" in caplog.text
    finally:
        started.end()


def test_a_training_that_imports_it_loads_none_of_our_machinery() -> None:
    code = "import sys, tuiadvisor.integrations.recorder, tuiadvisor.integrations.trackers as t\n"
    code += "print(sorted({'numpy', 'zmq', 'textual', 'tuiadvisor.api'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
