"""The line that ends `make test`: what was left out by any of its runs, how often, and how to have it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import skips

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("Skipped: no Slurm (apt-get install munge)", "no Slurm (apt-get install munge)"),
        (
            "Skipped: could not import 'torchdata.stateful_dataloader': No module named 'torchdata'",
            "no torchdata (pip install torchdata)",
        ),
        ("two\nlines", "two lines"),
    ],
)
def test_a_reason_says_what_is_missing_and_how_to_have_it(reason: str, said: str) -> None:
    assert said == skips.plain(reason)


def test_reasons_are_counted_the_most_frequent_first() -> None:
    assert "skipped: 3 — 2 no b (be root), 1 no a" == skips.line(["no a", "no b (be root)", "no b (be root)"])
    assert "skipped: none" == skips.line([])


@pytest.mark.slow
def test_skips_of_several_runs_come_together(tmp_path: Path) -> None:
    """Of tests and of whole modules, from one process and from several."""
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    for name in ("skips.py", "thinned.py"):
        (tmp_path / name).write_text((TESTS / name).read_text())
    (tmp_path / "test_module.py").write_text("import pytest\npytest.importorskip('not_there')\n")
    (tmp_path / "test_one.py").write_text(
        "import pytest\ndef test():\n    pytest.skip('no luck (be lucky)')\n"
    )
    noted = tmp_path / "noted"
    for processes in ("0", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--numprocesses", processes],
            cwd=tmp_path,
            env={**os.environ, "SKIPS_FILE": str(noted)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert "2 skipped" in done.stdout, done.stdout + done.stderr
    told = subprocess.run(
        [sys.executable, TESTS / "skips.py", noted], capture_output=True, text=True, check=True
    )
    assert "skipped: 4 — 2 no not_there (pip install not_there), 2 no luck (be lucky)\n" == told.stdout
