"""New files and folders for exports: owner-only, never over what is there, gone again when the work fails."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from tuiadvisor.errors import FailureError, TuiadvisorError, exists_already

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write; what was begun is removed if the block fails. A full disk is one line."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o600)
    except FileExistsError:
        raise exists_already(path) from None
    except OSError as error:
        raise TuiadvisorError(f"{path}: cannot be created: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise FailureError(f"{path}: {error.strerror or error}; nothing was kept of it") from error
        raise


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill; removed with everything in it if the block fails."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        raise exists_already(path) from None
    except OSError as error:
        raise TuiadvisorError(f"{path}: cannot be created: {error.strerror}") from None
    try:
        yield path
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)  # ours: made a moment ago, empty
        raise
