"""What is no small file in the place of one is refused in a line by all that read one; nothing waits for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tuiadvisor.app import preferences_file
from tuiadvisor.errors import FailureError, TuiadvisorError
from tuiadvisor.session.answers import read_answers, read_saved
from tuiadvisor.session.intent import read_intent
from tuiadvisor.session.machine import read_machine
from tuiadvisor.small_file import read_small

READERS: dict[str, Callable[[Path], object]] = {
    "intent": read_intent,
    "answers": lambda path: read_answers(path, ()),
    "a saved session": read_saved,
    "ceilings": read_machine,
    "preferences": preferences_file.read,
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_a_pipe_a_device_and_a_folder_are_no_files(reader: Callable[[Path], object], tmp_path: Path) -> None:
    """A pipe nobody writes and /dev/zero were read without end where intent and answers lie."""
    pipe, device, folder = tmp_path / "pipe", tmp_path / "device", tmp_path / "folder"
    os.mkfifo(pipe)
    device.symlink_to("/dev/zero")
    folder.mkdir()
    for path in (pipe, device, folder):
        with pytest.raises(TuiadvisorError, match=f"{path.name}: is no file; ") as refused:
            reader(path)
        assert refused.value.exit_code == 2


def test_what_is_too_large_is_not_read(tmp_path: Path) -> None:
    """A file of a terabyte that takes no room: no more than the limit is asked for."""
    path = tmp_path / "huge.toml"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(TuiadvisorError, match="larger than 64 KiB; name another"):
        read_small(path, 64 << 10, "name another")
    with pytest.raises(TuiadvisorError, match="larger than 2 MiB"):
        read_small(path, 2 << 20, "name another")


def test_a_file_of_just_that_size_is_read(tmp_path: Path) -> None:
    path = tmp_path / "full"
    path.write_bytes(b"#" * 1024)
    assert read_small(path, 1024, "") == b"#" * 1024


def test_a_missing_file_is_a_mistake_and_a_broken_disk_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TuiadvisorError, match="none: cannot be read: No such file") as missing:
        read_small(tmp_path / "none", 10, "")
    assert missing.value.exit_code == 2

    def broken(*_words: object) -> None:
        raise OSError(5, "Input/output error")

    (tmp_path / "there").write_bytes(b"1")
    monkeypatch.setattr(Path, "open", broken)
    with pytest.raises(FailureError, match="there: cannot be read: Input/output error"):
        read_small(tmp_path / "there", 10, "")
