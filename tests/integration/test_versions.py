"""Interpreters with other torches, where TUIADVISOR_TORCH_PYTHONS names some: what `tests/versions.py` says of each."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).parents[1] / "versions.py"
NAMED = [named for named in os.environ.get("TUIADVISOR_TORCH_PYTHONS", "").split(os.pathsep) if named]
NONE = pytest.mark.skip(
    reason="no other torches (TUIADVISOR_TORCH_PYTHONS=PYTHON:PYTHON, interpreters that have torch)"
)


def assert_all_right(python: str, *arguments: str) -> None:
    command = [sys.executable, str(PROGRAM), python, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stdout + done.stderr


@pytest.mark.extended
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("python", NAMED or [pytest.param("", marks=NONE)])
def test_late_ranks_are_named_on_other_torches(python: str) -> None:
    """Every kind of training, with both cores."""
    assert_all_right(python)


@pytest.mark.extended
@pytest.mark.parametrize("kind", ["ddp", "compiled", "fsdp1", "fsdp2", "pipeline"])
def test_the_program_itself_is_right_about_this_torch(kind: str) -> None:
    assert_all_right(sys.executable, "--only", kind, "--cores", "native")
