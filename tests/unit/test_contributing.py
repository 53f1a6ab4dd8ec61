"""CONTRIBUTING.md's first cause, followed word for word in a copy of the sources."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
BLOCK = re.compile(r"^```(\w+) ?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """What the page speaks of."""
    leave = shutil.ignore_patterns("__pycache__", "*.tuirec", "snapshot", "accuracy", "benchmarks")
    for folder in ("tuiadvisor", "probes", "rules", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=leave)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def ran(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of the page, on the copy."""
    paths = ":".join(str(folder / part) for part in ("", "probes", "rules"))
    environment = {**os.environ, "PYTHONPATH": paths}
    environment.pop("SKIPS_FILE", None)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # each of the commands would compile us anew
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_first_cause_works_as_it_stands(copy: Path) -> None:
    git = shutil.which("git")
    if git is None:
        pytest.skip("no git (package git)")
    blocks = BLOCK.findall(PAGE)
    files = [(name, text) for _, name, text in blocks if name]
    assert [Path(name).suffix for name, _ in files] == [".py", ".py", ".toml"]
    diff = "".join(text for kind, _, text in blocks if kind == "diff")
    assert diff.count("@@\n") == 3
    (test, cause, rule) = files
    (copy / test[0]).write_text(test[1])
    try_it = ("pytest", "-q", "-p", "no:cacheprovider", test[0])
    assert "1 failed, 1 passed" in ran(copy, *try_it).stdout
    (copy / cause[0]).write_text(cause[1])
    patched = subprocess.run(
        [git, "apply", "-"], input=diff, cwd=copy, text=True, check=False, capture_output=True
    )
    assert patched.returncode == 0, patched.stderr
    assert ran(copy, "tuiadvisor.causes.names").returncode == 0
    (copy / rule[0]).write_text(rule[1])
    checked = ran(copy, "tuiadvisor", "rules", "check")
    assert (checked.returncode, checked.stderr) == (0, "")
    done = ran(copy, *try_it)
    assert "2 passed" in done.stdout, done.stdout
    every = "tests/unit/test_cli_first_steps.py", "-k", "every_figure"
    named = ran(copy, "pytest", "-q", "-p", "no:cacheprovider", *every)
    assert "1 passed" in named.stdout, named.stdout
