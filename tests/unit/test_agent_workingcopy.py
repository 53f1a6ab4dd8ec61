"""The commit a training was started from, from files alone."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tuiadvisor.agent.workingcopy import git_commit

if TYPE_CHECKING:
    from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = "f" * 40


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc with process 7, which works in tmp_path/repo/inner."""
    (tmp_path / "repo/inner").mkdir(parents=True)
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/cwd").symlink_to(tmp_path / "repo/inner")
    return tmp_path / "proc"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_branch_that_head_names(proc: Path) -> None:
    """From a file of its own, else from the packed ones; a detached HEAD is the commit itself."""
    git = proc.parent / "repo/.git"
    write(git / "HEAD", "ref: refs/heads/main\n")
    assert git_commit(7, str(proc)) is None
    write(
        git / "packed-refs", f"# pack-refs with: peeled\n{OTHER} refs/heads/other\n{COMMIT} refs/heads/main\n"
    )
    assert COMMIT == git_commit(7, str(proc))
    write(git / "refs/heads/main", OTHER + "\n")
    assert OTHER == git_commit(7, str(proc))
    write(git / "HEAD", COMMIT + "\n")
    assert COMMIT == git_commit(7, str(proc))


@pytest.mark.parametrize(
    "head",
    [
        "",
        "ref: ../../secret\n",
        "ref: refs/../../secret\n",
        "ref: refs/heads/a b\n",
        "x" * 99,
        "ref: /etc/passwd",
    ],
)
def test_what_is_no_commit_is_unknown(proc: Path, head: str) -> None:
    """A HEAD that leads elsewhere is not followed."""
    write(proc.parent / "repo/.git/HEAD", head)
    write(proc.parent / "secret", COMMIT)
    assert git_commit(7, str(proc)) is None


def test_no_repository_and_no_process(proc: Path) -> None:
    """Unknown, no error."""
    assert git_commit(8, str(proc)) is None


def test_a_worktree_as_git_makes_it(proc: Path) -> None:
    """Its .git is a file, its branch lies in the repository it belongs to."""
    if shutil.which("git") is None:
        pytest.skip("no git (apt-get install git)")
    first, second = proc.parent / "first", proc.parent / "second"

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(first), "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    first.mkdir()
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "a")
    git("worktree", "add", "-q", "-b", "side", str(second))
    (proc / "7/cwd").unlink()
    (proc / "7/cwd").symlink_to(second)
    assert git("rev-parse", "HEAD") == git_commit(7, str(proc))
