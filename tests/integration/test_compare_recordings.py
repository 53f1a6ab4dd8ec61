"""`compare` on real trainings: the same code again, a slower forward, another batch; exit codes for CI."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_S, RECORD_FOR
from training import running

pytest.importorskip("torch")
pytestmark = pytest.mark.slow
DELAY_MS = 400  # a step takes 20 without, up to 100 on a starved machine: no load hides it


def tuiadvisor(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user would."""
    return subprocess.run(
        [sys.executable, "-m", "tuiadvisor", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def recorded(path: Path, *arguments: str) -> str:
    """Sixty steps of a real training: three times what a verdict needs."""
    with running(2, "--step-ms", "20", *arguments) as (training, _):
        done = tuiadvisor(
            "record", "--pid", str(training.pid), "-o", str(path), "--steps", "60", "--for", RECORD_FOR
        )
        assert done.returncode == 0, done.stderr
    return str(path)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> str:
    return recorded(tmp_path_factory.mktemp("healthy") / "run.tuirec")


def test_a_slower_forward_regresses_and_the_way_back_improves(healthy: str, tmp_path: Path) -> None:
    """A forward many times as long: regressed with exit 1 and the phase named; the other way round improved."""
    slow = recorded(tmp_path / "slow.tuirec", "--fault", "slow-forward", "--delay-ms", str(DELAY_MS))
    done = tuiadvisor("compare", healthy, slow, "--json", "--fail-if-slower", "5%")
    document = json.loads(done.stdout)
    assert ("regressed", 1) == (document["verdict"], done.returncode), document["sentence"]
    (forward,) = [phase for phase in document["phases"] if phase["phase"] == "forward"]
    assert forward["significant"]
    assert forward["change_s"] > 0.6e-3 * DELAY_MS
    assert forward["change_s"] == max(phase["change_s"] or 0.0 for phase in document["phases"])
    assert "step" == document["basis"]
    back = tuiadvisor("compare", slow, healthy, "--json", "--fail-if-slower", "5%")
    # Where the machine stood still for as long as 5 % of all steps the option's question stays open, and exits with 2.
    assert "improved" == json.loads(back.stdout)["verdict"]
    assert back.returncode in (0, 2)


@pytest.mark.alone
@pytest.mark.extended
def test_the_same_code_again_is_never_a_regression_within_noise(healthy: str, tmp_path: Path) -> None:
    """A run against itself has not changed; against a second run of the same code no limit of 5 % is exceeded."""
    itself = tuiadvisor("compare", healthy, healthy, "--fail-if-slower", "40%")
    assert 0 == itself.returncode, itself.stdout
    assert itself.stdout.startswith("No change:")
    again = recorded(tmp_path / "again.tuirec")
    document = json.loads(tuiadvisor("compare", healthy, again, "--json", "--fail-if-slower", "5%").stdout)
    assert document["fail_if_slower"]["exceeded"] is not True, document["sentence"]


@pytest.mark.alone
@pytest.mark.extended
def test_another_batch_is_compared_by_samples(healthy: str, tmp_path: Path) -> None:
    """Twice the batch in a step of nearly the same length: more samples a second, said in these terms."""
    larger = recorded(tmp_path / "larger.tuirec", "--batch-size", "64")
    document = json.loads(tuiadvisor("compare", healthy, larger, "--json").stdout)
    assert "samples" == document["basis"], document["sentence"]
    assert (
        1.2
        < document["after"]["throughput"]["samples_s"] / document["before"]["throughput"]["samples_s"]
        < 2.4
    )


def test_a_missing_file_is_one_line(healthy: str, tmp_path: Path) -> None:
    """What, where, what next; exit code 2; nothing on stdout."""
    done = tuiadvisor("compare", healthy, str(tmp_path / "none.tuirec"), "--json")
    assert (2, "") == (done.returncode, done.stdout)
    assert 1 == done.stderr.count("\n")
