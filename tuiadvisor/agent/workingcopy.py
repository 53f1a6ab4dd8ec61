"""Which git commit a training was started from, read from the files of the repository around its working folder.

In: a process id.  Out: the commit that HEAD names, in hexadecimal; None where there is no repository or it cannot be
read. No git is run: a repository can be set up to run commands. Nothing is said of changes that are not committed.
"""

# Links are followed by the kernel as the process sees them, so no path is resolved or compared here.
# ruff: noqa: PTH123

from __future__ import annotations

import re
from typing import Final

MAX_LEVELS: Final = 16
MAX_BYTES: Final = 4 << 20  # of packed-refs in a repository with tens of thousands of branches
_COMMIT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REF: Final = re.compile(r"ref: (refs/[\w./+@-]{1,400})")


def git_commit(pid: int, proc: str = "/proc") -> str | None:
    """The commit of the working folder of this process."""
    folder = f"{proc}/{pid}/cwd"
    for _ in range(MAX_LEVELS):
        if (head := _read(f"{folder}/.git/HEAD")) is not None:
            return _commit(f"{folder}/.git", head)
        if (
            link := _read(f"{folder}/.git")
        ) is not None:  # a worktree or a submodule: one line that says where
            place = link.removeprefix("gitdir: ").strip()
            place = place if place.startswith("/") else f"{folder}/{place}"
            head = _read(f"{place}/HEAD")
            return None if head is None else _commit(place, head)
        folder += "/.."
    return None


def _commit(git: str, head: str) -> str | None:
    """What HEAD names: a commit, or a branch whose commit is in a file of its own or among the packed ones."""
    if _COMMIT.fullmatch(head.strip()):
        return head.strip()
    found = _REF.fullmatch(head.strip())
    if found is None or ".." in found[1]:
        return None
    common = (_read(f"{git}/commondir") or "").strip()
    folders = [git, *([common if common.startswith("/") else f"{git}/{common}"] if common else [])]
    for folder in folders:
        text = (_read(f"{folder}/{found[1]}") or "").strip()
        if _COMMIT.fullmatch(text):
            return text
        packed = re.search(
            rf"^({_COMMIT.pattern}) {re.escape(found[1])}$",
            _read(f"{folder}/packed-refs") or "",
            re.MULTILINE,
        )
        if packed:
            return packed[1]
    return None


def _read(path: str) -> str | None:
    """The beginning of a file as text; None where there is none."""
    try:
        with open(path, "rb") as file:
            return file.read(MAX_BYTES).decode(errors="replace")
    except OSError:
        return None
