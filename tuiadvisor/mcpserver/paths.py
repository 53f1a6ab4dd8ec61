"""Which files an assistant may have read: regular ones below the folders that the user named, and no others.

What an assistant asks for may be what a stranger's text told it to ask for.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

from tuiadvisor.errors import TuiadvisorError

MAX_NAMED: Final = 200  # characters of what was asked for


class Roots:
    """Folders; relative paths count from the first one."""

    def __init__(self, folders: list[str]) -> None:
        """TuiadvisorError where one of them is none."""
        self._folders = [Path(folder).resolve() for folder in folders]
        for given, folder in zip(folders, self._folders, strict=True):
            if not folder.is_dir():
                raise TuiadvisorError(f"--root {given}: no such folder")

    def file(self, text: str) -> str:
        """The path of a regular file. TuiadvisorError for anything else, the same whatever lies outside."""
        path = self._inside(text)
        try:
            is_file = stat.S_ISREG(path.stat().st_mode)
        except OSError as error:
            raise TuiadvisorError(f"{text[:MAX_NAMED]}: {error.strerror}") from None
        if not is_file:
            raise TuiadvisorError(
                f"{text}: no regular file; name a recording (list_runs tells which there are)"
            )
        return str(path)

    def folder(self, text: str) -> Path:
        """A folder. TuiadvisorError for anything else."""
        path = self._inside(text)
        try:
            is_folder = stat.S_ISDIR(path.stat().st_mode)
        except OSError as error:  # also one that nobody may look into, or a name longer than any
            raise TuiadvisorError(f"{text[:MAX_NAMED]}: {error.strerror}") from None
        if not is_folder:
            raise TuiadvisorError(f"{text}: no such folder")
        return path

    def holds(self, path: str) -> bool:
        """Whether it is below one of them, links followed."""
        return any(Path(path).resolve().is_relative_to(folder) for folder in self._folders)

    def shown(self, path: str) -> str:
        """As `file` takes it."""
        first = self._folders[0]
        resolved = Path(path).resolve()
        return str(resolved.relative_to(first)) if resolved.is_relative_to(first) else str(resolved)

    def _inside(self, text: str) -> Path:
        try:
            path = (self._folders[0] / text).resolve()
        except RuntimeError:  # before Python 3.13: a circle of links; later ones leave it to whoever opens it
            raise TuiadvisorError(f"{text[:MAX_NAMED]}: {os.strerror(errno.ELOOP)}") from None
        except (OSError, ValueError):  # a zero byte
            raise TuiadvisorError(f"{text[:MAX_NAMED]}: no path") from None
        if not any(path.is_relative_to(folder) for folder in self._folders):
            raise TuiadvisorError(
                f"{text}: outside of the folders that may be read; tuiadvisor mcp --root DIR names others"
            )
        return path
