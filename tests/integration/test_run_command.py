"""`tuiadvisor run -- COMMAND`: whatever starts the training, it is watched, and never ended or orphaned by us."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from patience import PATIENCE_S
from training import SCRIPT

from tuiadvisor.cli import run_
from tuiadvisor.errors import TuiadvisorError

pytest.importorskip("torch")

ONE_PROCESS = """
import sys, time, torch
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    optimizer.zero_grad()
    model(torch.randn(8, 64)).square().mean().backward()
    optimizer.step()
    time.sleep(0.01)
print("trained", flush=True)
sys.exit(int(sys.argv[2]))
"""


def run(folder: Path, *command: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tuiadvisor", "run", "--no-ui", *options, "--", *command],
        cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip


@pytest.fixture
def script(tmp_path: Path) -> str:
    """A training of one process without any launcher: SECONDS EXIT_CODE."""
    path = tmp_path / "one.py"
    path.write_text(ONE_PROCESS)
    return str(path)


def test_a_training_below_a_shell_is_watched_and_its_exit_code_is_told(script: str, tmp_path: Path) -> None:
    """The shell is no Python, and stands for the one process with torch below it, which is not there at once."""
    done = run(
        tmp_path,
        "sh",
        "-c",
        f"sleep 1; {sys.executable} {script} 6 3; exit $?",
        options=("--record", "r.tuirec"),
    )
    assert 3 == done.returncode, done.stderr
    assert "trained" in done.stdout
    assert "── findings" in done.stdout
    assert (tmp_path / "r.tuirec").stat().st_size > 10_000


@pytest.mark.extended
def test_ranks_below_a_shell_are_watched(tmp_path: Path) -> None:
    torchrun = f"{sys.executable} -m torch.distributed.run --standalone --nproc-per-node 2"
    done = run(tmp_path, "sh", "-c", f"sleep 1; {torchrun} {SCRIPT} --steps 200 --step-ms 20; true")
    assert 0 == done.returncode, done.stderr
    assert "── findings" in done.stdout


@pytest.mark.parametrize(
    "fault", [TuiadvisorError("the hub did not start"), ZeroDivisionError("a bug")], ids=repr
)
def test_what_cannot_be_watched_trains_to_its_end(
    fault: Exception, script: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A batch script that went on here would end the job, and the training with it."""

    def failing(*_: object, **__: object) -> None:
        raise fault

    monkeypatch.setattr(run_, "_watch", failing)
    parser = argparse.ArgumentParser()
    run_.add_options(parser)
    assert 5 == run_.run(parser.parse_args(["--no-ui", "--", sys.executable, script, "3", "5"]))
    told = capfd.readouterr()
    assert "trained" in told.out
    assert "not watched any more" in told.err
    assert str(fault) in told.err


@pytest.mark.parametrize(
    ("script_of_shell", "code", "says"), [("exit 4", 4, "ended with exit code 4"), ("kill -9 $$", 137, "137")]
)
def test_a_command_without_ranks_ends_as_it_ended(
    script_of_shell: str, code: int, says: str, tmp_path: Path
) -> None:
    done = run(tmp_path, "sh", "-c", script_of_shell)
    assert code == done.returncode
    assert says in done.stderr


def test_a_place_that_takes_no_recording_is_said_before_anything_starts(tmp_path: Path) -> None:
    done = run(tmp_path, "sh", "-c", "echo started", options=("-o", "none/r.tuirec"))
    assert 2 == done.returncode
    assert "cannot create the recording" in done.stderr
    assert "started" not in done.stdout


def test_a_polite_kill_is_passed_on_to_the_training(script: str, tmp_path: Path) -> None:
    """As a scheduler ends a job: nothing of it is left, and the exit code is that of a kill."""
    ours = subprocess.Popen(
        [sys.executable, "-m", "tuiadvisor", "run", "--no-ui", "--", sys.executable, script, "600", "0"],
        cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    children: list[psutil.Process] = []
    try:
        deadline = time.monotonic() + PATIENCE_S
        # The training, and what watches it: only then is it attached or about to be.
        while len(children) < 3 and time.monotonic() < deadline:
            children = psutil.Process(ours.pid).children(recursive=True)
            time.sleep(0.05)
        ours.send_signal(signal.SIGTERM)
        assert 143 == ours.wait(PATIENCE_S)
        _, alive = psutil.wait_procs(children, timeout=PATIENCE_S)
        assert [] == alive
    finally:
        ours.kill()
        ours.wait()
        for process in children:
            if process.is_running():
                process.kill()
