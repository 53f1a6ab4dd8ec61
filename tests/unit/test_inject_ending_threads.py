"""Threads of a target end while they are looked at: that is no end of the process, and no thread to borrow."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tuiadvisor.inject import idle_thread


@pytest.mark.parametrize("file", ["syscall", "schedstat"])
def test_a_thread_that_ends_between_two_looks_is_no_candidate(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An opened file of a thread that has ended reads as "no such process" (ESRCH)."""
    read_text = Path.read_text

    def ended(path: Path, *args: str, **named: str) -> str:
        if path.name == file:
            raise ProcessLookupError
        return read_text(path, *args, **named)

    monkeypatch.setattr(Path, "read_text", ended)
    assert idle_thread.candidates(os.getpid(), ()) == []
