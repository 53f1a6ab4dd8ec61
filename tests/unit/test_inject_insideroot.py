"""Nothing opened below a process's root lies outside of it."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tuiadvisor.inject import insideroot
from tuiadvisor.inject.insideroot import FOLDER, open_below, open_inside

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with a folder, a file in it, and links of every kind; `outside` lies beside it."""
    (tmp_path / "outside").mkdir()
    made = tmp_path / "root"
    (made / "data" / "deep").mkdir(parents=True)
    (made / "data" / "file").write_text("inside")
    links = {
        "absolute": "/data",
        "upwards": "../../outside",
        "host": str(tmp_path / "outside"),
        "loop": "loop",
    }
    for name, target in links.items():
        (made / name).symlink_to(target)
    return made


@contextmanager
def opened(root: Path, path: str, flags: int = FOLDER) -> Iterator[str]:
    """Where it led."""
    root_fd = os.open(root, os.O_PATH | os.O_DIRECTORY)
    try:
        descriptor = open_below(root_fd, path, flags)
    finally:
        os.close(root_fd)
    try:
        yield os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115  of a descriptor
    finally:
        os.close(descriptor)


@pytest.fixture
def no_openat2(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> int:
        raise OSError(errno.ENOSYS, "no such call")

    monkeypatch.setattr(insideroot, "_openat2", missing)


def test_an_absolute_link_means_the_process_s_own_root(root: Path) -> None:
    """As the process itself would find it."""
    with opened(root, "/absolute/deep") as place:
        assert str(root / "data" / "deep") == place


@pytest.mark.parametrize("path", ["/upwards", "/host", "/../outside", "/loop", "/data/../../outside"])
def test_nothing_leads_out(root: Path, path: str) -> None:
    """Neither a link of any kind nor a path with dots."""
    with pytest.raises(OSError, match=r"No such file|Too many levels"), opened(root, path):
        pass


def test_a_link_of_proc_leads_nowhere(root: Path) -> None:
    """`/proc/PID/root` and `/proc/PID/fd/3` jump over every root."""
    with pytest.raises(OSError, match="Too many levels"):
        open_inside(os.getpid(), "/proc/self/root")


@pytest.mark.usefixtures("no_openat2")
def test_without_openat2_plain_paths_open(root: Path) -> None:
    """On an old kernel, or where a filter forbids the call."""
    with opened(root, "/data/deep") as place:
        assert str(root / "data" / "deep") == place
    with opened(root, "/data//./file", os.O_RDONLY) as place:
        assert str(root / "data" / "file") == place
    with opened(root, "/") as place:
        assert str(root) == place


@pytest.mark.usefixtures("no_openat2")
@pytest.mark.parametrize(
    "path", ["/absolute", "/absolute/deep", "/upwards", "/host", "/../outside", "/loop", "/.."]
)
def test_without_openat2_no_link_is_followed(root: Path, path: str) -> None:
    """A link in the way is an error, wherever it leads."""
    with (
        pytest.raises(OSError, match=r"Not a directory|Too many levels|leads upwards") as caught,
        opened(root, path),
    ):
        pass
    assert caught.value.errno in {errno.ENOTDIR, errno.ELOOP, errno.EXDEV}
