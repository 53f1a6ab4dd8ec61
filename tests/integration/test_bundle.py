"""The one-file build in a clean environment: a bare Python, an empty home, nothing of ours or of others installed.

BUNDLE names one that is built already (`make bundle`); else one is built for this Python alone.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_S, complaints
from test_inject import _program
from training import running

sys.path.append(str(Path(__file__).parents[1] / "unit"))
from synthetic_run import MS, Fault, Job
from test_contents import recording

pytest.importorskip("shiv")
pytestmark = [pytest.mark.slow, pytest.mark.extended]
ROOT = Path(__file__).parents[2]
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file."""
    if os.environ.get("BUNDLE"):
        return Path(os.environ["BUNDLE"]).resolve()
    built = tmp_path_factory.mktemp("bundle") / "tuiadvisor.pyz"
    command = [sys.executable, str(ROOT / "release" / "bundle.py"), "-o", str(built), "--python", VERSION]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "Could not find a version" in done.stderr or "No matching distribution" in done.stderr:
        pytest.skip("no package registry to build the bundle from")
    assert done.returncode == 0, done.stderr
    return built


def bare(version: str) -> str:
    """A Python of a version as its maker left it."""
    return os.path.realpath(_program(version))


def started(python: str, bundle: Path, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of the bundle, with no environment but a home of its own."""
    home.mkdir(exist_ok=True)
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", "PYTHONNOUSERSITE": "1"}
    command = [python, "-S", str(bundle), *words]  # -S: not even this Python's own packages
    return subprocess.run(
        command, cwd=home, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def test_it_is_one_file_of_less_than_sixty_megabytes(bundle: Path) -> None:
    assert bundle.is_file()
    assert bundle.stat().st_size < 60_000_000


@pytest.mark.parametrize(
    "version", ["3.11", "3.12", "3.13", "3.14"] if os.environ.get("BUNDLE") else [VERSION]
)
def test_every_python_it_is_for_reads_a_recording(version: str, bundle: Path, tmp_path: Path) -> None:
    run = recording(tmp_path / "run.tuirec", Job(faults=(Fault("backward", (2,), 8 * MS),)))
    done = started(bare(version), bundle, tmp_path / "home", "diagnose", str(run), "--json")
    assert (done.returncode, complaints(done.stderr)) == (0, "")
    found = json.loads(done.stdout)["findings"]
    assert [one["ranks"] for one in found if one["id"] == "straggler"] == [[2]]


def test_it_attaches_to_a_training_and_leaves_it(bundle: Path, tmp_path: Path) -> None:
    """Hub, agent and tracer are started out of the file, too."""
    pytest.importorskip("torch")
    fault = ("--fault", "slow-data", "--fault-rank", "1", "--delay-ms", "40")
    with running(2, "--step-ms", "20", "--seconds", "3000", *fault) as (training, _):
        words = ("watch", "--once", "--for", "4m", "--pid", str(training.pid))
        done = started(bare(VERSION), bundle, tmp_path / "home", *words)
        assert training.poll() is None
    assert done.returncode == 0, done.stderr
    assert re.search(r"rank 1\b", done.stdout)
    assert "tune" in done.stdout.lower()


def test_another_python_gets_one_line(bundle: Path, tmp_path: Path) -> None:
    done = started(bare("3.10"), bundle, tmp_path / "home", "--version")
    assert done.returncode == 2
    assert done.stderr.startswith("tuiadvisor: this file is for CPython ")
    assert done.stderr.count("\n") == 1
