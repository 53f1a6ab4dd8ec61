"""Strangers' programs under tuiadvisor: attached, first sentence, step against their own log, verdict, fault, loss.

    python tests/strangers/watch_them.py FOLDER [--only PATTERN] [--python PYTHON] [--keep FOLDER] [--markdown]

FOLDER holds checkouts of public repositories under their names (nanoGPT, examples, ...); nothing is fetched. PYTHON has
their packages. Each program runs twice from a passing copy: alone, for its log, then watched, first healthy and then
with one fault from outside after the other. What cannot run is a row that says why, and how many cores others used just
before and after stands beside each. Exit code 1 if a row is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "accuracy")]

import psutil
from disturbances import DISTURBANCES, VICTIM
from programs import PROGRAMS, Program
from recorded_steps import recorded_span, step_ms
from training import end

from tuiadvisor.agent.cgroup import counters
from tuiadvisor.agent.discovery import find_ranks
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.metrics.lateness.off_core import MIN_THROTTLED

EXTENSIONS = Path(tempfile.gettempdir()) / f"strangers_extensions_{os.getuid()}"  # compiled once, kept
TUIADVISOR = (sys.executable, "-m", "tuiadvisor")
START_S = 180.0  # until a program trains; DeepSpeed compiles an optimizer the first time
SETTLE_S = 8.0  # after its ranks are there, where no log tells that it trains
ALONE_LINES, ALONE_S = 300, 8.0  # of the log of the run that nobody watches
EDGE_S = 1.5  # of a recording: the attach and the leaving are in no comparison of steps
LEAST_EFFECT = 0.05  # longer steps: a fault that did less need not be found
NO_STEP = "no training step was seen"
UNDECIDED = "undecided"  # too few steps in the time, or a rank that was not compared: said so, named nobody
LONGER = 4  # times: what a verdict may take on a machine that others use too
OTHERS_S = 2.0  # looked at others
STEP_TOLERANCE = 0.1  # our steps against the log's over the same seconds
# Words of a late rank's finding, and the fault in one or two.
KINDS = {
    "by a signal or a debugger": "stopped",
    "without a core": "without a core",
    "the CPU limit": "CPU limit",
}
COLUMNS = ("program", "ranks", "attached", "first sentence, s", "step ours / log, ms", "healthy", "under the fault",
           "log with us = alone", "others' cores", "right")  # fmt: skip


@dataclass
class Line:
    """One line of a program's log that its pattern found."""

    at_s: float
    text: str
    ms: float | None


@dataclass(frozen=True)
class LoggedStep:
    """Mean step that a log tells, and the first and last of the lines that tell it."""

    ms: float
    first_s: float
    last_s: float


@dataclass
class Run:
    """A program that runs, and what it has printed."""

    program: Program
    process: subprocess.Popen[str]
    started_s: float
    lines: list[Line] = field(default_factory=list)
    tail: list[str] = field(default_factory=list)

    def read(self) -> None:
        """Until its output ends; carriage returns of progress bars end lines too."""
        assert self.process.stdout is not None
        pattern = re.compile(self.program.log) if self.program.log else None
        for text in self.process.stdout:
            self.tail = [*self.tail[-100:], text.rstrip()]
            found = pattern.search(text) if pattern else None
            if found:
                groups = found.groupdict()
                ms = float(groups["ms"]) if groups.get("ms") else None
                ms = 1e3 * float(groups["s"]) if groups.get("s") else ms
                self.lines.append(Line(time.monotonic(), groups.get("loss") or "", ms))

    def alive(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def last_words(self) -> str:
        """The first error it ended with (its launcher's follow), or its last line."""
        errors = [line for line in self.tail if re.search(r"\b\w*(Error|Exception): ", line)]
        return (errors[:1] or self.tail[-1:] or ["nothing"])[0].strip()[-300:]

    def step_ms(self, since_s: float, until_s: float) -> LoggedStep | None:
        """Mean step between these moments by the program's own figures, or by when its lines came."""
        some = [line for line in self.lines if since_s <= line.at_s <= until_s]
        if len(some) < 3:
            return None
        first_s, last_s = some[0].at_s, some[-1].at_s
        own = [line.ms for line in some[1:] if line.ms is not None]
        by_lines = 1e3 * (last_s - first_s) / ((len(some) - 1) * self.program.every)
        return LoggedStep(sum(own) / len(own) if own else by_lines, first_s, last_s)


class AbsentError(Exception):
    """A checkout or a package that is not there."""


class BrokenError(Exception):
    """Why a program did not run."""


def others_cores() -> float:
    """Busy cores of this machine while nothing of ours runs: a row that was taken beside much is repeated."""
    return float(psutil.cpu_percent(OTHERS_S)) / 100 * (psutil.cpu_count() or 1)


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment_of(program: Program) -> dict[str, str]:
    """Ours, without GPUs and downloads, with the shims."""
    extra = dict(program.environment)
    paths = [str(HERE / "shims"), *extra.get("PYTHONPATH", "").split()]
    return {
        **os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "ignore",
        # Of our own: who is ended while it compiles leaves a lock there that the next one would wait for.
        "TORCH_EXTENSIONS_DIR": str(EXTENSIONS), "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "",
        "STRANGER_SHIMS": ",".join(program.shims), **extra, "PYTHONPATH": os.pathsep.join(paths),
    }  # fmt: skip


def copied(program: Program, strangers: Path, folder: Path) -> None:
    """A copy of the program's folder, made small."""
    ignored = shutil.ignore_patterns(".git", "*.ipynb", "*.gif", "*.png", "docs", "benchmark")
    shutil.copytree(strangers / program.repository / program.folder, folder, ignore=ignored)
    for name, pattern, replacement in program.edits:
        changed, count = re.subn(pattern, replacement, (folder / name).read_text())
        if not count:
            raise BrokenError(f"{name} is another version: nothing matches {pattern}")
        (folder / name).write_text(changed)
    if program.prepare is not None:
        program.prepare(folder)


@contextlib.contextmanager
def running(program: Program, strangers: Path, python: str) -> Iterator[Run]:
    """The program from a passing copy of its folder; ended afterwards whatever happens."""
    with tempfile.TemporaryDirectory(prefix="stranger_", ignore_cleanup_errors=True) as passing:
        folder = Path(passing) / "program"
        copied(program, strangers, folder)
        launcher: list[str] = []
        if program.launcher == "torchrun":
            launcher = [
                "-m",
                "torch.distributed.run",
                "--standalone",
                f"--nproc-per-node={program.num_ranks}",
            ]
        elif program.launcher == "fabric":
            launcher = ["-m", "lightning.fabric.cli", "--accelerator=cpu", "--strategy=ddp",
                        f"--devices={program.num_ranks}", f"--main-port={free_port()}"]  # fmt: skip
        command = [part.replace("{port}", str(free_port())) for part in program.command]
        process = subprocess.Popen(
            [python, *launcher, *command], cwd=folder, env=environment_of(program), stdin=subprocess.DEVNULL,
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace", start_new_session=True,
        )  # fmt: skip
        run = Run(program, process, time.monotonic())
        reader = threading.Thread(target=run.read, daemon=True)
        reader.start()
        try:
            yield run
        finally:
            end(process)
            reader.join(10)
            for lock in EXTENSIONS.glob("*/lock"):
                lock.unlink(missing_ok=True)


def wait_until_training(run: Run) -> dict[int, int]:
    """Process of each rank, once all are there and the log says that they train."""
    program = run.program
    first_seen: float | None = None
    while time.monotonic() < run.started_s + START_S:
        if not run.alive():
            raise BrokenError(f"it ended by itself: {run.last_words()}")
        with contextlib.suppress(TuiadvisorError, psutil.Error):
            ranks = find_ranks([run.process.pid])
            if len(ranks) == program.num_ranks:
                first_seen = first_seen or time.monotonic()
                if len(run.lines) >= 2 if program.log else time.monotonic() > first_seen + SETTLE_S:
                    known = {rank.rank: rank.pid for rank in ranks if rank.rank is not None}
                    # Started by spawn they have no number outside: in the order of their processes.
                    return (
                        known
                        if len(known) == len(ranks)
                        else dict(enumerate(sorted(one.pid for one in ranks)))
                    )
        time.sleep(0.1)
    raise BrokenError(f"it did not train within {START_S:.0f} s: {run.last_words()}")


def tuiadvisor(*arguments: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run one command to its end."""
    return subprocess.run(
        [*TUIADVISOR, *arguments], capture_output=True, text=True, timeout=timeout_s, check=False
    )


def first_sentence(run: Run) -> tuple[float, str]:
    """How long until `watch --once` said something, and the first line of it."""
    began = time.monotonic()
    done = tuiadvisor("watch", "--once", "--pid", str(run.process.pid), timeout_s=120)
    text = (done.stdout or done.stderr).strip()
    return time.monotonic() - began, text.splitlines()[0] if text else ""


def recorded(run: Run, path: Path) -> tuple[Any, float, float]:
    """As `recorded_for` the program's seconds, and once longer where that many steps decided nothing."""
    for seconds in (run.program.seconds, LONGER * run.program.seconds):
        document, began, ended = recorded_for(run, seconds, path)
        if isinstance(document, str) or document["verdict"]["decision"] is not None:
            break
    return document, began, ended


def recorded_for(run: Run, seconds: int, path: Path) -> tuple[Any, float, float]:
    """(document, or what was said instead; when the recording began and ended)."""
    path.unlink(missing_ok=True)
    began = time.monotonic()
    target = ("--pid", str(run.process.pid), "-o", str(path), "--for", f"{seconds}s")
    done = tuiadvisor("record", *target, timeout_s=seconds + 90)
    ended = time.monotonic()
    if not done.returncode:
        done = tuiadvisor("diagnose", str(path), "--json", timeout_s=90)
        if not done.returncode:
            return json.loads(done.stdout), began, ended
    return ((done.stderr or done.stdout).strip().splitlines() or ["nothing"])[-1], began, ended


def above_info(document: Any) -> list[Any]:
    """Findings that ask for something."""
    return [finding for finding in document["findings"] if finding["severity"] != "info"]


def kind(finding: Any) -> str:
    """The phase it names; of a late rank what kept it off its core, where that was seen."""
    return next(
        (name for words, name in KINDS.items() if words in finding["message"]), finding["phase"] or ""
    )


def told(document: Any, named: tuple[str, ...] = ()) -> str:
    """A document in a few words."""
    if isinstance(document, str):
        return f"“{document[:160]}”"
    if document["verdict"]["decision"] is None:
        return str(document["verdict"]["sentence"]).rstrip(".")
    shown = above_info(document) or [one for one in document["findings"] if one["id"] in named]
    said = "; ".join(
        f"{one['severity']} {one['id']} {one['ranks'] or ''} {kind(one)} {_loss(one['loss_s_per_step'])}".rstrip()
        for one in shown
    )
    return re.sub(" +", " ", f"{document['verdict']['decision']}: {said or 'nothing above info'}")


def same_log(alone: list[Line], watched: list[Line], attached_s: float) -> str:
    """How many lines of both runs are equal, and how many of them came after the attach."""
    count = min(len(alone), len(watched))
    after = sum(line.at_s > attached_s for line in watched[:count])
    pairs = zip(alone, watched, strict=False)
    different = [number for number, (one, other) in enumerate(pairs) if one.text != other.text]
    if different:
        return f"NO, from line {different[0] + 1} of {count} ({count - after} before the attach)"
    return f"{count} lines, {after} after the attach" if after else "not compared: too few lines"


def alone_lines(program: Program, strangers: Path, python: str) -> list[Line]:
    """What it prints while nobody watches."""
    with running(program, strangers, python) as run:
        wait_until_training(run)
        began = time.monotonic()
        while run.alive() and len(run.lines) < ALONE_LINES and time.monotonic() < began + ALONE_S:
            time.sleep(0.1)
        return run.lines


def watched_row(program: Program, strangers: Path, python: str, keep: Path) -> dict[str, str]:
    """Run one program alone, then watched; its row."""
    if not (strangers / program.repository / program.folder).is_dir():
        raise AbsentError(f"no checkout {program.repository}/{program.folder}")
    missing = [name for name in program.needs if not _has(python, name)]
    if missing:
        raise AbsentError(f"no package {', '.join(missing)}")
    is_compared = bool(program.log) and program.is_deterministic
    alone = alone_lines(program, strangers, python) if is_compared else []
    name = re.sub(r"\W+", "_", program.name)
    wrong: list[str] = []
    faulty: dict[str, Any] = {}
    fault_ms: dict[str, float | None] = {}
    held_back: dict[str, float | None] = {}  # by a CPU limit: share of the kernel's periods
    with running(program, strangers, python) as run:
        pids = wait_until_training(run)
        attached_s = time.monotonic()
        first_s, sentence = first_sentence(run)
        healthy, began, ended = recorded(run, keep / f"{name}_healthy.tuirec")
        span = recorded_span(keep / f"{name}_healthy.tuirec", began + EDGE_S, ended - EDGE_S)
        logged, ours = run.step_ms(*span), None
        theirs = logged.ms if logged is not None else None
        compared = (logged.first_s, logged.last_s) if logged is not None else span
        if not isinstance(healthy, str):
            ours = step_ms(keep / f"{name}_healthy.tuirec", *compared)
        victim = pids.get(VICTIM, next(iter(pids.values())))
        for fault in program.disturbances:
            with DISTURBANCES[fault]({**pids, VICTIM: victim}):
                path = keep / f"{name}_{fault}.tuirec"
                before = counters(victim)
                faulty[fault], fault_began, fault_ended = recorded(run, path)
                held_back[fault] = throttled_share(before, counters(victim)) if fault == "limit" else None
            fault_ms[fault] = step_ms(path, fault_began + EDGE_S, fault_ended - EDGE_S)
        if not run.alive():
            wrong.append(f"it ended: {run.last_words()}")
    row = {
        "program": program.name, "ranks": str(program.num_ranks), "first sentence, s": f"{first_s:.1f}",
        "sentence": sentence, "attached": "no",
        "step ours / log, ms": f"— / {_ms(theirs)}", "healthy": told(healthy),
        "under the fault": ". ".join(
            f"{fault} ({_ms(fault_ms[fault])} ms{_held(held_back[fault])}): {told(one, program.expected)}"
            for fault, one in faulty.items()
        ),
        "log with us = alone": "no log",
    }  # fmt: skip
    if program.log:
        same = same_log(alone, run.lines, attached_s) if is_compared else "not deterministic"
        row["log with us = alone"] = same
        wrong += ["log differs"] if same.startswith("NO") else []
    if program.refused:
        wrong += [] if isinstance(healthy, str) and program.refused in healthy else ["not refused"]
    else:
        row["step ours / log, ms"] = f"{_ms(ours)} / {_ms(theirs)}"
        if ours is not None and theirs is not None and abs(ours / theirs - 1) > STEP_TOLERANCE:
            wrong.append(f"step {ours / theirs - 1:+.0%}")
        wrong += judged_healthy(program, healthy, row)
        for fault, document in faulty.items():
            ms = fault_ms[fault]
            is_felt = ours is None or ms is None or ms / ours - 1 > LEAST_EFFECT
            share = held_back[fault]
            is_felt = is_felt and (share is None or share >= MIN_THROTTLED)
            wrong += [f"{fault}: {one}" for one in judged_faulty(program, document, is_felt=is_felt)]
    is_open = all(one.endswith(UNDECIDED) for one in wrong)
    row["right"] = (
        "; ".join(wrong) if is_open and wrong else "yes" if not wrong else "NO: " + "; ".join(wrong)
    )
    return row


def judged_healthy(program: Program, healthy: Any, row: dict[str, str]) -> list[str]:
    """What is wrong with what was said of the program itself; completes the row."""
    if isinstance(healthy, str):
        return ["no verdict on the healthy program"]
    seen = [one["rank"] for one in healthy["per_rank"]]
    row["attached"] = f"{len(seen)} of {program.num_ranks}"
    wrong = [] if len(seen) == program.num_ranks else ["ranks are missing"]
    if healthy["step"]["mean_s"] is None:
        wrong.append("no step time")
    # Who else wants the machine's cores is no property of the program.
    alarms = [one for one in above_info(healthy) if one["id"] not in {*program.tolerated, "crowded_host"}]
    return wrong + [f"{one['severity']} {one['id']} on the healthy program" for one in alarms]


def judged_faulty(program: Program, faulty: Any, *, is_felt: bool) -> list[str]:
    """What is wrong with what was said under a fault."""
    if isinstance(
        faulty, str
    ):  # its steps were seen before: this was an evaluation, or a step longer than the look
        return [UNDECIDED if NO_STEP in faulty else "no verdict"]
    if faulty["verdict"]["decision"] is None:
        return [UNDECIDED]
    said = above_info(faulty)
    # Where nobody's arrival is seen, what keeps a rank from running is.
    wanted = {*program.expected, *({"held_rank"} if "straggler" in program.expected else ())}
    found = [one for one in said if one["id"] in wanted]
    if not found:
        is_said = bool(program.abstains) and program.abstains in faulty["verdict"]["sentence"]
        return ["not found"] if is_felt and not is_said else []
    # A CPU limit is told of the job: which ranks it holds is the straggler's to say.
    guilty = ((VICTIM,) if program.num_ranks > 1 else ()) if program.names is None else program.names
    named = {rank for one in found for rank in one["ranks"]}
    if named != set(guilty):
        return [f"ranks {sorted(named)} named, not {list(guilty)}"]
    return [] if said[0] is found[0] else [f"said after {said[0]['id']}"]


def throttled_share(before: dict[str, float], after: dict[str, float]) -> float | None:
    """Of the periods of a CPU limit meanwhile, those in which the kernel held the process back; None without any.

    Beside others that leave it less than its limit a process never reaches it: then there is no fault to be found.
    """
    periods, throttled = (
        after.get(name, 0.0) - before.get(name, 0.0) for name in ("cpu_periods", "throttled_periods")
    )
    return throttled / periods if before and after and periods > 0 else None


def _held(share: float | None) -> str:
    return "" if share is None else f", held back in {100 * share:.0f} % of the periods"


def _ms(value: float | None) -> str:
    return "—" if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"


def _loss(value_s: float | None) -> str:
    return "" if not value_s else f"{1e3 * value_s:.1f} ms"


def _has(python: str, package: str) -> bool:
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({package!r}) is None)"
    return subprocess.run([python, "-c", code], check=False).returncode == 0


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("strangers", type=Path, help="folder of checkouts")
    parser.add_argument("--only", default="*", help="names of programs, or PATTERN|PATTERN")
    parser.add_argument("--python", default=sys.executable, help="interpreter with the programs' packages")
    parser.add_argument("--keep", type=Path, help="folder for the recordings")
    parser.add_argument("--markdown", action="store_true", help="the rows as a table's")
    options = parser.parse_args()
    patterns = options.only.split("|")
    chosen = [one for one in PROGRAMS if any(fnmatch.fnmatch(one.name, pattern) for pattern in patterns)]
    if not chosen:
        sys.exit(
            f"--only {options.only}: no such program, there are {', '.join(one.name for one in PROGRAMS)}"
        )
    rows: list[dict[str, str]] = []
    others: dict[str, list[str]] = {"skipped": [], "did not run": []}
    with tempfile.TemporaryDirectory() as passing:
        keep = options.keep or Path(passing)
        keep.mkdir(parents=True, exist_ok=True)
        if options.markdown:
            print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|", flush=True)
        for program in chosen:
            before = others_cores()
            try:
                row = watched_row(program, options.strangers, options.python, keep)
            except (AbsentError, BrokenError, OSError, subprocess.TimeoutExpired) as why:
                kind = "skipped" if isinstance(why, AbsentError) else "did not run"
                others[kind].append(f"{program.name}: {why}")
                print(f"{kind} {others[kind][-1]}", flush=True)
                continue
            row["others' cores"] = f"{before:.1f}, {others_cores():.1f}"
            rows.append(row)
            if options.markdown:
                print("| " + " | ".join(row[column] for column in COLUMNS) + " |", flush=True)
            else:
                details = [f"    {name}: {row[name]}" for name in (*COLUMNS[1:], "sentence")]
                print("\n".join([row["program"], *details]), flush=True)
    right = sum(row["right"] == "yes" for row in rows)
    wrong = sum(row["right"].startswith("NO") for row in rows)
    left = ", ".join(f"{len(some)} {kind}" for kind, some in others.items())
    print(
        "\n    ".join(
            [
                f"{right} of {len(rows)} programs right, {wrong} wrong; {left}",
                *others["skipped"],
                *others["did not run"],
            ]
        )
    )
    return int(bool(wrong) or bool(others["did not run"]))


if __name__ == "__main__":
    sys.exit(main())
