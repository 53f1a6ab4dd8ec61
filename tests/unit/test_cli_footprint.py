"""What a start of the command line loads, and what the screens' process keeps."""

from __future__ import annotations

import subprocess
import sys

from tuiadvisor.cli.footprint import give_back_large_blocks


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


def test_giving_memory_back_is_harmless() -> None:
    """Twice, and on any C library."""
    give_back_large_blocks()
    give_back_large_blocks()
