"""One real training in odd surroundings, attached, recorded and left: who is harmed, and what is said?

Run: python tests/benchmarks/surroundings.py [--only "LD_*"].  Each row is a training of two ranks under torchrun that
is started in its surroundings, watched by `record` and left again: whether it ended with 0, whether its weights are
bit for bit those of an unwatched twin in none of them, what `record` said, and what is left of us in its ranks and
of its rings. A row whose surroundings cannot be had here says so.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1]))

from kills import footprint
from patience import PATIENCE_S, RECORD_FOR
from soak import TUIADVISOR, is_equal_to_its_twin
from training import SCRIPT, end, launch, wait_for_ranks

import tuiadvisor
from tuiadvisor.agent.discovery import RankProcess
from tuiadvisor.agent.session import mapped_rings

NUM_RANKS: Final = 2
LOOK_S: Final = 0.05
LIBRARIES: Final = ("/usr/lib", "/usr/local/lib", "/lib")
Beside = Callable[[list[RankProcess]], "contextlib.AbstractContextManager[object]"]


class NotHereError(Exception):
    """What these surroundings are made of cannot be had on this machine."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Around the whole training (a prefix of its command), or beside its ranks while they are attached to."""

    name: str
    prefix: Callable[[], tuple[str, ...]] = tuple
    beside: Beside | None = None


def _environment(*settings: str) -> Callable[[], tuple[str, ...]]:
    return lambda: ("env", *settings)


def _command(program: str, *arguments: str) -> Callable[[], tuple[str, ...]]:
    def prefix() -> tuple[str, ...]:
        if shutil.which(program) is None:
            raise NotHereError(f"no {program}")
        return (program, *arguments)

    return prefix


def _preload(library: str) -> Callable[[], tuple[str, ...]]:
    """An allocator in place of libc's."""

    def prefix() -> tuple[str, ...]:
        found = (path for folder in LIBRARIES for path in sorted(Path(folder).glob(f"**/{library}.so*")))
        path = next(found, None)
        if path is None:
            raise NotHereError(f"no {library}")
        return ("env", f"LD_PRELOAD={path}")

    return prefix


def _shell(script: str) -> Callable[[], tuple[str, ...]]:
    """A shell that sets something and becomes the training."""
    return lambda: ("sh", "-c", f'{script}; exec "$@"', "sh")


@contextlib.contextmanager
def _tool(*command: str) -> Iterator[None]:
    """Another tool on rank 0, from before the attach until after the detach; PID in its command is the rank's."""
    if shutil.which(command[0]) is None:
        raise NotHereError(f"no {command[0]}")
    process = subprocess.Popen(
        command, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        time.sleep(2.0)  # nothing tells when a stranger's tool has begun
        yield
    finally:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        process.kill()
        process.wait()


@contextlib.contextmanager
def _stopped(ranks: list[RankProcess]) -> Iterator[None]:
    """Rank 0 stands stopped for the attach."""
    os.kill(ranks[0].pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(ranks[0].pid, signal.SIGCONT)


def _py_spy(ranks: list[RankProcess]) -> contextlib.AbstractContextManager[object]:
    program = str(Path(sys.executable).with_name("py-spy"))
    return _tool(
        program, "record", "--rate", "100", "--duration", "600", "-o", os.devnull, "--pid", str(ranks[0].pid)
    )


def _strace(ranks: list[RankProcess]) -> contextlib.AbstractContextManager[object]:
    return _tool("strace", "-f", "-o", os.devnull, "-p", str(ranks[0].pid))


SURROUNDINGS: Final = (
    Surroundings("none"),
    Surroundings("LD_PRELOAD jemalloc", _preload("libjemalloc")),
    Surroundings("LD_PRELOAD tcmalloc", _preload("libtcmalloc_minimal")),
    Surroundings("LD_PRELOAD mimalloc", _preload("libmimalloc")),
    Surroundings("PYTHONMALLOC=debug", _environment("PYTHONMALLOC=debug")),
    Surroundings("MALLOC_PERTURB_", _environment("MALLOC_PERTURB_=165", "GLIBC_TUNABLES=glibc.malloc.tcache_count=0")),
    Surroundings("python -X dev", _environment("PYTHONDEVMODE=1")),
    Surroundings("python -OO", _environment("PYTHONOPTIMIZE=2")),
    Surroundings("PYTHONSAFEPATH, no user site", _environment("PYTHONSAFEPATH=1", "PYTHONNOUSERSITE=1")),
    Surroundings("nothing compiled is kept", _environment("PYTHONDONTWRITEBYTECODE=1", "PYTHONPYCACHEPREFIX=/no")),
    Surroundings("locale C, no UTF-8 mode", _environment("LC_ALL=C", "PYTHONUTF8=0", "PYTHONCOERCECLOCALE=0")),
    Surroundings("TMPDIR of 300 letters", _environment(f"TMPDIR=/tmp/{'x' * 200}/{'y' * 90}")),
    Surroundings("nice 19, batch", _command("chrt", "--batch", "0", "nice", "-n", "19")),
    Surroundings("one core", _command("taskset", "-c", "0")),
    Surroundings("no address space randomization", _command("setarch", "-R")),
    Surroundings("64 descriptors", _shell("ulimit -n 64")),
    Surroundings("no locked memory", _shell("ulimit -l 0")),
    Surroundings("stack without limit", _shell("ulimit -s unlimited")),
    Surroundings("no core files, umask 777", _shell("ulimit -c 0; umask 777")),
    Surroundings("SIGCHLD and SIGHUP ignored", _shell("trap '' HUP CHLD")),
    Surroundings("a folder that is removed", _shell("d=$(mktemp -d); cd $d; rmdir $d")),
    Surroundings(
        "time namespace, two days ahead",
        _command("unshare", "--time", "--fork", "--boottime", "172800", "--monotonic", "172800"),
    ),
    Surroundings("mount and IPC namespace", _command("unshare", "--mount", "--ipc")),
    Surroundings("py-spy beside", beside=_py_spy),
    Surroundings("strace on rank 0", beside=_strace),
    Surroundings("rank 0 stopped", beside=_stopped),
)  # fmt: skip


def record(
    training: subprocess.Popen[bytes], ranks: list[RankProcess], folder: Path
) -> tuple[int, str, set[str]]:
    """Attach, see 20 steps, leave: exit code, last line on standard error, the rings that the ranks mapped."""
    arguments = ["--pid", str(training.pid), "--steps", "20", "--for", RECORD_FOR]
    with (folder / "said").open("w+") as said:
        process = subprocess.Popen(
            [*TUIADVISOR, "record", *arguments, "-o", str(folder / "run.tuirec")],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said,
        )  # fmt: skip
        mapped: set[str] = set()
        deadline_s = time.monotonic() + PATIENCE_S
        while process.poll() is None and time.monotonic() < deadline_s:
            mapped |= {path for rank in ranks for path, _ in mapped_rings(rank.pid)}
            time.sleep(LOOK_S)
        end(process)
        said.seek(0)
        lines = said.read().strip().splitlines()
    return process.returncode, lines[-1] if lines else "", mapped


def steps_in(recording: Path) -> int:
    """Rank-steps of a recording; none where there is no recording."""
    return len(pa.table(tuiadvisor.open(recording).steps())) if recording.exists() else 0


def row(surroundings: Surroundings, folder: Path) -> list[str]:
    """One training; its line of the table."""
    stop = folder / "stop"
    arguments = [
        "--print-every",
        "0",
        "--seed",
        "5",
        "--step-ms",
        "8",
        "--result",
        str(folder / "watched.pt"),
    ]
    prefix = surroundings.prefix()
    training = launch(NUM_RANKS, [*arguments, "--stop-file", str(stop)], SCRIPT, prefix=prefix, is_whole=True)
    try:
        ranks = wait_for_ranks(training, NUM_RANKS)
        held = [footprint(rank) for rank in ranks]
        with surroundings.beside(ranks) if surroundings.beside else contextlib.nullcontext():
            code_of_record, said, mapped = record(training, ranks, folder)
        held_still = {path for rank in ranks for path, _ in mapped_rings(rank.pid)}
        left = sorted(held_still | {path for path in mapped if Path(path).parent.exists()})
        grown = [
            (after[0] - first[0], after[1] - first[1])
            for first, after in zip(held, map(footprint, ranks), strict=True)
        ]
        stop.touch()
        code = training.wait(PATIENCE_S)
    finally:
        end(training)
    equal = "equal" if code == 0 and is_equal_to_its_twin(folder, NUM_RANKS) else "NOT EQUAL"
    clean = "clean" if not left else f"LEFT {left}"
    more = "" if not any(map(any, grown)) else f", threads and descriptors {grown}"
    return [
        f"ended with {code}",
        equal,
        f"{steps_in(folder / 'run.tuirec')}",
        f"exit {code_of_record}: {said[:100]}",
        clean + more,
    ]


def main() -> None:
    """The table, a line as soon as it is known."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="*", help="names, with * and ?")
    options = parser.parse_args()
    print(
        "| surroundings | training | weights | rank-steps recorded | record said | left |\n|---|---|---|---|---|---|"
    )
    for surroundings in SURROUNDINGS:
        if not fnmatch.fnmatchcase(surroundings.name, options.only):
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                cells = row(surroundings, Path(folder))
            except NotHereError as error:
                cells = [f"not tried: {error}", "", "", "", ""]
            except (AssertionError, psutil.Error, subprocess.TimeoutExpired) as error:
                cells = [f"NOT DONE: {str(error)[:120]}", "", "", "", ""]
        print("| " + " | ".join([surroundings.name, *cells]) + " |", flush=True)


if __name__ == "__main__":
    main()
