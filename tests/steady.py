"""The suite again and again under hard conditions, to show that it judges the program and not the machine.

    python tests/steady.py [--runs 10] [--groups unit beside alone] [CONDITION ...]

Each run is what `make test` runs, in this checkout. One line a run: condition, number, passed, failed, skipped,
minutes, and the names of what failed; the whole output lies in the folder that is named first. Runs from several
checkouts may go on beside each other. Exit code 1 if anything failed.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider")
GROUPS = {
    "unit": ("--numprocesses", "2", "tests/unit", "tests/snapshot", "-m", "not extended"),
    "beside": (
        *("--numprocesses", "3", "--dist", "loadfile", "tests/integration"),
        *("-m", "not alone and not extended"),
    ),
    "alone": ("tests/integration", "tests/gpu", "-m", "alone and not extended"),
}
# Where the processor's share can be limited: the file that says how much, and what is written for so many us of them.
PERIOD_US = 20_000  # short, so that everything is slower rather than standing still now and then
CGROUPS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))
GIVE_UP_S = 120.0
NOTHING_CHOSEN = 5  # pytest's code where --only leaves nothing of a group
COUNT = re.compile(r"(\d+) (passed|failed|skipped|error)")
CLOSING = re.compile(r"^=+ (.*) in [\d.]+s.*=+$", re.MULTILINE)
FALLEN = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Condition:
    """What makes it hard."""

    num_cores: int | None = None  # None: all there are
    num_neighbours: int = 0  # processes that only compute, on each core
    share: float = 1.0  # of the cores' time


CONDITIONS = {
    "calm": Condition(),
    "one-core": Condition(num_cores=1),
    "neighbour": Condition(num_cores=1, num_neighbours=1),
    "half": Condition(share=0.5),
    "half-core": Condition(num_cores=1, share=0.5),
}


@contextmanager
def neighbours(cores: list[int], number: int) -> Iterator[None]:
    """Processes that never rest, on each of the cores."""
    started = []
    try:
        for core in cores * number:
            command = ["taskset", "-c", str(core), sys.executable, "-c", "while True: pass"]
            started.append(subprocess.Popen(command))
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


@contextmanager
def limited(cores: list[int], share: float) -> Iterator[Path | None]:
    """A group whose processes together get this share of the cores; None where nothing is limited."""
    if share == 1.0:
        yield None
        return
    group = _made()
    quota_us = int(PERIOD_US * share * len(cores))
    if (group / "cpu.max").exists():
        (group / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
    else:
        (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(quota_us))
    try:
        yield group
    finally:
        _emptied(group)


def _made() -> Path:
    for parent in CGROUPS:
        group = parent / f"steady-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        if any((group / name).exists() for name in ("cpu.max", "cpu.cfs_quota_us")):
            return group
        group.rmdir()
    sys.exit(
        "no control group for the processor can be made here: be root, or leave the conditions half and half-core out"
    )


def _emptied(group: Path) -> None:
    """Gone once nothing runs in it any more; what a test left behind is ended, and said."""
    for _ in range(100):
        left = (group / "cgroup.procs").read_text().split()
        for pid in left:
            print(f"left behind and ended: {pid} {_command(pid)}", flush=True)
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        if not left:
            group.rmdir()
            return
        time.sleep(0.1)


def _command(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def run(
    condition: Condition, groups: list[str], more: list[str], log: Path
) -> tuple[Counter[str], list[str]]:
    """One suite: how many passed, failed and were skipped, and the names of those that fell."""
    cores = sorted(os.sched_getaffinity(0))[: condition.num_cores]
    counts: Counter[str] = Counter()
    log.write_bytes(b"")  # a kept folder may hold the same run of another day
    with ExitStack() as held:
        held.enter_context(neighbours(cores, condition.num_neighbours))
        group = held.enter_context(limited(cores, condition.share))

        def enter() -> None:
            os.sched_setaffinity(0, cores)
            if group is not None:
                (group / "cgroup.procs").write_text(str(os.getpid()))

        for name in groups:
            with log.open("ab") as out:
                command = [*PYTEST, *GROUPS[name], *more]
                suite = subprocess.Popen(
                    command,
                    cwd=ROOT,
                    preexec_fn=enter,  # noqa: PLW1509 - we have no other thread
                    stdout=out,
                    stderr=out,
                    stdin=subprocess.DEVNULL,
                )
                try:
                    returncode = suite.wait()
                except BaseException:
                    suite.send_signal(signal.SIGINT)  # its tests end what they have started
                    suite.wait(GIVE_UP_S)
                    raise
            if returncode not in (0, 1, NOTHING_CHOSEN):
                counts[f"{name} ended with {returncode}"] += 1
    text = log.read_text(errors="replace")
    for closing in CLOSING.findall(text):
        counts.update({what: int(number) for number, what in COUNT.findall(closing)})
    return counts, FALLEN.findall(text)


def main() -> int:
    """Print one line a run."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background starts us with it ignored
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("conditions", nargs="*", metavar="CONDITION", help=", ".join(CONDITIONS))
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--keep", type=Path, help="a folder for the whole outputs")
    parser.add_argument("--only", metavar="EXPRESSION", help="tests whose names match, as pytest's -k")
    asked = parser.parse_args()
    chosen = asked.conditions or ["one-core", "neighbour", "half"]
    if unknown := [name for name in chosen if name not in CONDITIONS]:
        parser.error(f"no condition {', '.join(unknown)}; there are {', '.join(CONDITIONS)}")
    folder = asked.keep or Path(tempfile.mkdtemp(prefix="steady-"))
    folder.mkdir(exist_ok=True)
    print(f"whole outputs in {folder}")
    print("condition    run   passed  failed  skipped  minutes  fell", flush=True)
    fell: Counter[str] = Counter()
    for number in range(1, asked.runs + 1):
        for name in chosen:
            began_s = time.monotonic()
            counts, names = run(
                CONDITIONS[name],
                asked.groups,
                ["-k", asked.only] if asked.only else [],
                folder / f"{name}-{number}.log",
            )
            minutes = (time.monotonic() - began_s) / 60
            strange = [what for what in counts if "ended" in what]
            fell.update([*names, *strange])
            print(
                f"{name:12} {number:3}  {counts['passed']:7} {counts['failed'] + counts['error']:7} "
                f"{counts['skipped']:8} {minutes:8.1f}  {', '.join([*names, *strange]) or '-'}",
                flush=True,
            )
    for what, times in fell.most_common():
        print(f"{times} of {asked.runs * len(chosen)}: {what}")
    return 1 if fell else 0


if __name__ == "__main__":
    sys.exit(main())
