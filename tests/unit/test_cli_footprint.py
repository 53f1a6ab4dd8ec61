"""What a start of the command line loads, and what the screens' process keeps."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest


def loaded(code: str) -> set[str]:
    """Modules in a fresh interpreter after this code."""
    told = f"{code}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", told], capture_output=True, text=True, timeout=120, check=True
    )
    return set(done.stdout.split())


def test_version_and_help_load_nothing_heavy() -> None:
    """They answer at once: no numpy, no Textual, no command's own modules."""
    run = "from tuiadvisor.cli import main\ntry: main(['--version'])\nexcept SystemExit: pass"
    assert set() == loaded(run) & {"numpy", "textual", "zmq", "tuiadvisor.cli.watch"}


def test_screens_start_without_what_only_some_keys_need() -> None:
    """Report, comparison and session are loaded with the first key that asks for them."""
    before = loaded("import tuiadvisor.cli.watch")
    assert set() == before & {
        "textual",
        "tuiadvisor.report.page",
        "tuiadvisor.cli.conductor",
        "scipy",
        "torch",
    }


HOLES = """
from pathlib import Path
def kept_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6
first = b"x" * (4 << 20)
del first  # glibc now keeps blocks of this size for itself
begin = kept_mb()
blocks, pins = [], []
for _ in range(32):
    blocks.append(bytearray(b"x") * (2 << 20))
    pins.append(bytearray(b"x") * 100_000)
del blocks
print(kept_mb() - begin)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps them")
def test_freed_blocks_go_back_to_the_system() -> None:
    """64 MB of blocks with small ones between them: kept without us, given back with us."""
    ours = "from tuiadvisor.cli.footprint import give_back_large_blocks\ngive_back_large_blocks()\n"
    kept_mb = {
        name: float(
            subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        )
        for name, code in (("without", HOLES), ("with", ours + HOLES))
    }
    assert kept_mb["without"] > 50
    assert kept_mb["with"] < 20
