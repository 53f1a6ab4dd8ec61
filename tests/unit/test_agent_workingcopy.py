"""The commit a training was started from, from files alone."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from thinned import crossed

from tuiadvisor.agent.workingcopy import CommitLookup, git_commit
from tuiadvisor.inject import Identity, identify

LOOK = "import sys; from tuiadvisor.agent.workingcopy import git_commit; print(git_commit(7, sys.argv[1]))"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER = "f" * 40


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc with process 7, which works in tmp_path/repo/inner."""
    (tmp_path / "repo/inner").mkdir(parents=True)
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/cwd").symlink_to(tmp_path / "repo/inner")
    (tmp_path / "proc/7/root").symlink_to("/")
    return tmp_path / "proc"


def looked_up(target: Identity) -> str | None:
    lookup = CommitLookup(target)
    for thread in threading.enumerate():
        if thread.name == "git commit":
            thread.join(60)
    return lookup.commit


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"),
    crossed(
        [".git", ".git/HEAD", ".git/packed-refs", ".git/commondir"],
        [stat.S_IFIFO, stat.S_IFCHR, stat.S_IFDIR, stat.S_IFSOCK],
    ),
)
def test_what_is_no_plain_file_is_not_opened(proc: Path, name: str, kind: int) -> None:
    """A FIFO would hold us until somebody writes to it, /dev/zero never ends, a terminal acts on being opened."""
    write(proc.parent / "repo/.git/HEAD", "ref: refs/heads/main\n")
    path = proc.parent / "repo" / name
    if name == ".git":
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    if kind == stat.S_IFDIR:
        path.mkdir()
    else:
        os.mknod(path, kind | 0o600, os.makedev(1, 5))
    looking = subprocess.run(
        [sys.executable, "-c", LOOK, str(proc)], capture_output=True, text=True, timeout=60, check=True
    )
    assert looking.stdout == "None\n"


def test_a_file_without_end_is_read_to_a_limit(proc: Path) -> None:
    """A sparse file of a terabyte costs nobody a terabyte."""
    write(proc.parent / "repo/.git/HEAD", COMMIT + "\n")
    os.truncate(proc.parent / "repo/.git/HEAD", 1 << 40)
    assert git_commit(7, str(proc)) is None


def test_a_pointer_stays_below_the_root_of_the_process(proc: Path) -> None:
    """An absolute gitdir of a container, or links in it, mean its own files and never ours."""
    (proc / "7/root").unlink()
    (proc / "7/root").symlink_to(proc.parent / "repo")
    write(proc.parent / "secret/HEAD", OTHER)
    write(proc.parent / f"repo/{proc.parent}/secret/HEAD", COMMIT)
    write(proc.parent / "repo/inner/.git", f"gitdir: {proc.parent}/secret\n")
    assert COMMIT == git_commit(7, str(proc))
    (proc.parent / "repo/inner/.git").unlink()
    (proc.parent / "repo/inner/.git").symlink_to(proc.parent / "secret")
    assert COMMIT == git_commit(7, str(proc))
    (proc.parent / "repo/inner/.git").unlink()
    (proc.parent / "repo/inner/.git").symlink_to("../../secret")
    assert git_commit(7, str(proc)) is None


def test_what_its_user_may_not_read_is_not_read() -> None:
    """Root looks with the rights of the training's user: a HEAD that leads to a file of root's tells nothing."""
    if os.geteuid() != 0:
        pytest.skip("only root has other users' rights")
    program = "import os; os.setgroups([]); os.setgid(65534); os.setuid(65534); print(flush=True); input()"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        head = Path(folder, ".git/HEAD")
        write(head, COMMIT + "\n")
        head.chmod(0o644)
        with subprocess.Popen(
            [sys.executable, "-c", program], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            assert COMMIT == looked_up(identify(process.pid))
            head.chmod(0o600)
            assert looked_up(identify(process.pid)) is None
            assert COMMIT == git_commit(process.pid)
            process.communicate(b"\n")


def test_the_commit_of_another_process_is_not_named() -> None:
    """The id may be another's by the time the commit is looked up."""
    assert looked_up(identify(os.getpid())) == git_commit(os.getpid())
    assert looked_up(identify(os.getpid())._replace(start_ticks=1)) is None


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
