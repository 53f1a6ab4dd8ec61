"""Hubs of several jobs in one folder, and how long what they recorded is kept.

In: a folder, names of jobs.  Out: one `tuiadvisor record` a job, with keys of its own: FOLDER/JOB/invitation for its
agents, FOLDER/JOB/viewer for those who may look at it (FOLDER/JOB/viewer-NAME for one of them alone),
FOLDER/JOB/*.tuirec. A hub serves one job, so no key opens two, and one job's flood, crash or full quota is none of the
others'. One process holds a folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuiadvisor import expendable
from tuiadvisor.app.recordings import SUFFIX
from tuiadvisor.errors import TuiadvisorError, one_line
from tuiadvisor.log import Logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

logger: Final = Logger(__name__)

INVITATION: Final = "invitation"
VIEWER: Final = "viewer"
LOG: Final = "hub.log"
LOCK: Final = ".fleet"
PR_SET_PDEATHSIG: Final = 1
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
MAX_JOBS: Final = 64  # each is a process of some 100 MB
END_PATIENCE_S: Final = 20.0
LOOK_S: Final = 0.5
PRUNE_S: Final = 60.0
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
SETTLED_S: Final = 30.0  # a hub that held for so long begins anew at once


@dataclass(frozen=True, slots=True)
class Limits:
    """How long recordings are kept, and how many bytes all of them may have together; None: no limit."""

    age_s: float | None = None
    num_bytes: int | None = None


def check_job(name: str) -> str:
    """The name, if it can be that of a folder below the fleet's. TuiadvisorError otherwise."""
    if NAME.fullmatch(name) is None:
        raise TuiadvisorError(
            f"{one_line(name)!r} is not a name of a job; write letters, digits, - _ and . (at most 64)"
        )
    return name


def viewer_file(name: str) -> str:
    """The file of one viewer's own key."""
    return f"{VIEWER}-{name}"


class Hub:
    """One job's `record`, started anew when it ends."""

    def __init__(
        self, folder: Path, address: str, viewers: tuple[str, ...] = (), words: tuple[str, ...] = ()
    ) -> None:
        """viewers: who gets a key of their own, beside the owner's; words: further options of `record`."""
        self.folder = folder
        self._words = words
        self._viewers = viewers
        self.output: Path | None = None  # the recording that is being written
        self._address = address
        self._process: subprocess.Popen[bytes] | None = None
        self._begun_s = 0.0
        self._pause_s = FIRST_PAUSE_S
        self._due_s = 0.0

    def look(self) -> None:
        """Start it where it does not run and the pause after its last end is over."""
        now_s = time.monotonic()
        if self._process is not None:
            code = self._process.poll()
            if code is None:
                return
            held = now_s - self._begun_s > SETTLED_S
            self._pause_s = FIRST_PAUSE_S if held else min(2 * self._pause_s, LONGEST_PAUSE_S)
            self._due_s = now_s + self._pause_s
            logger.warning("the hub of %s ended with %d; see %s", self.folder.name, code, self.folder / LOG)
            self._process, self.output = None, None
        if now_s >= self._due_s:
            try:
                self._start(now_s)
            except OSError as error:  # a full disk, too many processes: it may pass
                self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
                self._due_s = now_s + self._pause_s
                logger.warning("the hub of %s cannot be started: %s", self.folder.name, error)

    def _start(self, now_s: float) -> None:
        for path in (self.folder / INVITATION, self.folder / VIEWER, *self.folder.glob(f"{VIEWER}-*")):
            path.unlink(missing_ok=True)  # of a hub that was killed: they open nothing any more
        self.output = self.folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() % 10**9:09}{SUFFIX}"
        command = [sys.executable, "-P", "-m", "tuiadvisor", "record", "-o", str(self.output)]
        command += ["--invite", str(self.folder / INVITATION), "--share", str(self.folder / VIEWER)]
        command += [f"--share={self.folder / viewer_file(name)}" for name in self._viewers]
        command += ["--hub-address", self._address] if self._address else []
        command += self._words
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        log_fd = os.open(self.folder / LOG, flags, 0o600)
        try:
            # It says of itself that it goes first; what it starts of the user's (--on-finding) is as we were found.
            with expendable.as_found():
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log_fd, stderr=log_fd,
                    start_new_session=True,  # ^C is for us alone: each hub is asked once
                    preexec_fn=_end_with_parent,  # noqa: PLW1509 - no thread runs here
                )  # fmt: skip
        finally:
            os.close(log_fd)
        self._begun_s = now_s

    def stop(self) -> None:
        """Ask it to end: the recording is whole then."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def wait(self) -> None:
        """Until it has ended; by force where it does not."""
        if self._process is None:
            return
        try:
            self._process.wait(END_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _end_with_parent() -> None:
    """In a hub, before it begins: its end is asked for when this process is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def hold(
    folder: Path,
    jobs: Mapping[str, tuple[str, ...]],
    address: str,
    limits: Limits,
    say: Callable[[str], None],
    *,
    words: Mapping[str, tuple[str, ...]],
) -> None:
    """Hubs of these jobs, until KeyboardInterrupt. TuiadvisorError where the folder is held or cannot be used.

    jobs: name -> viewers with a key of their own; words: name -> further options of its `record`.
    """
    if len(jobs) > MAX_JOBS:
        raise TuiadvisorError(f"{len(jobs)} jobs; one folder holds {MAX_JOBS} at most, start another one")
    with held(folder):
        hubs = [
            Hub(own_folder(folder / check_job(job)), address, names, words.get(job, ()))
            for job, names in jobs.items()
        ]
        due_s = 0.0
        try:
            while True:
                for hub in hubs:
                    hub.look()
                if time.monotonic() >= due_s:
                    due_s = time.monotonic() + PRUNE_S
                    for path in prune(
                        folder, limits, {hub.output for hub in hubs if hub.output}, time.time()
                    ):
                        say(f"removed {one_line(str(path))}: beyond what is kept")
                time.sleep(LOOK_S)
        finally:
            for hub in hubs:
                hub.stop()
            for hub in hubs:
                hub.wait()


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """This process alone keeps hubs there; the lock goes with the process, however it ends."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        lock = os.open(own_folder(folder) / LOCK, flags, 0o600)
    except OSError as error:
        raise TuiadvisorError(f"{folder}: cannot be used: {error.strerror}") from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise TuiadvisorError(
                f"{folder}: another tuiadvisor fleet keeps its hubs there already"
            ) from None
        yield
    finally:
        os.close(lock)


def own_folder(path: Path) -> Path:
    """The folder, made if need be; ours, and nobody else may list or change what lies in it."""
    try:
        path.mkdir(mode=0o700, parents=False, exist_ok=True)
        stat = path.stat(follow_symlinks=False)
    except OSError as error:
        raise TuiadvisorError(f"{path}: cannot be used: {error.strerror}") from None
    if stat.st_uid != os.geteuid() or stat.st_mode & 0o077 or path.is_symlink():
        raise TuiadvisorError(
            f"{path}: others may look into it or it is not yours; chmod 700, or choose another"
        )
    return path


def prune(folder: Path, limits: Limits, kept: set[Path], now_s: float) -> list[Path]:
    """Remove recordings beyond the limits, the oldest first; what is being written stays. Returns what went.

    kept: recordings that are being written; their bytes count.
    """
    found = []
    for path in folder.glob(f"*/*{SUFFIX}"):
        with contextlib.suppress(OSError):
            stat = path.stat(follow_symlinks=False)
            if path.is_file() and not path.is_symlink() and not path.parent.is_symlink():
                found.append((stat.st_mtime, stat.st_size, path))
    total, gone = sum(size for _, size, _ in found), []
    for changed_s, size, path in sorted(found):
        is_old = limits.age_s is not None and now_s - changed_s > limits.age_s
        is_too_much = limits.num_bytes is not None and total > limits.num_bytes
        if path in kept or not (is_old or is_too_much):
            continue
        try:
            path.unlink()
        except OSError as error:
            logger.warning("%s: cannot be removed: %s", path, error.strerror)
            continue
        total -= size
        gone.append(path)
    return gone


def open_jobs(folder: Path) -> list[tuple[str, Path]]:
    """(job, file of the viewers' key) of the hubs that this user may look at."""
    found = []
    for path in sorted(folder.glob(f"*/{VIEWER}")):
        with contextlib.suppress(OSError):
            if os.access(path, os.R_OK):
                found.append((path.parent.name, path))
    return found
