"""The programme for half an hour on a GPU: without one every part is a skip, and its table is there all the same."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "gpu"


@pytest.mark.slow
def test_without_a_device_every_part_is_a_skip(tmp_path: Path) -> None:
    if pytest.importorskip("torch").cuda.is_available():
        pytest.skip("a CUDA device is here: make gpu")
    path = tmp_path / "table.md"
    done = subprocess.run(
        [sys.executable, str(FOLDER / "programme.py"), "-o", str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [line for line in path.read_text().splitlines() if line.startswith("| ")][1:]
    assert all("skipped: no CUDA device" in row for row in rows)
    assert [row.split(" | ")[0].strip("| ") for row in rows] == list(named("programme.py", "NAMES"))
    assert path.read_text().strip() == done.stdout.strip()


def test_every_part_is_in_the_programme() -> None:
    text = (FOLDER / "parts.py").read_text()
    written = {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
    assert set(named("programme.py", "NAMES")) - {"tests", "situations"} <= written


def named(file: str, name: str) -> tuple[str, ...]:
    """A constant of a script that is not imported here: it would look for the device."""
    for node in ast.parse((FOLDER / file).read_text()).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
            return tuple(ast.literal_eval(node.value))  # type: ignore[arg-type]
    raise AssertionError(name)
