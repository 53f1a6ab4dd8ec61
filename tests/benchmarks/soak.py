"""Hours of recording one real training, with viewers coming and going: does anything grow, slow down or stay behind?

Run: python tests/benchmarks/soak.py [--minutes 120] [--ranks 4] [--step-ms 100].  `record --daemon` watches a DDP
training that mostly sleeps. Twice a minute a row: resident memory, descriptors and threads of recorder, agent, hub and
ranks, the median step of the last minute, the size of the recording. Every few minutes a visitor: `watch --once`, the
screens on a terminal, `diagnose`, `export`, a second `record`. At the end a table, what the visitors said, what is
left over, and whether the weights are bit for bit those of an unwatched twin. Memory and counts are of these processes
alone; only step times feel what else the machine does.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
from screens import Terminal

sys.path.insert(0, str(Path(__file__).parents[1]))

from training import end, launch, wait_for_ranks

from tuiadvisor.stream.scan import read_summary

TIMED = Path(__file__).parents[1] / "timed_training.py"
ROW_S = 30.0
PATIENCE_S = 120.0
WARM_UP_S = 600.0  # caches, arenas and the first windows fill
TUIADVISOR = [sys.executable, "-P", "-m", "tuiadvisor"]


def slope(rows: Sequence[tuple[float, float]]) -> float:
    """Of a straight line through (x, y)."""
    at, values = np.array(rows).T
    return float(np.polyfit(at, values, 1)[0])


@dataclass
class Course:
    """One process over time."""

    name: str
    pid: int
    at_s: list[float] = field(default_factory=list)
    rss_mb: list[float] = field(default_factory=list)
    num_fds: list[int] = field(default_factory=list)
    num_threads: list[int] = field(default_factory=list)
    cpu_s: float = 0.0

    def look(self, now_s: float) -> None:
        """Add what /proc says now; a process that is gone adds nothing, which the table shows."""
        try:
            process = psutil.Process(self.pid)
            with process.oneshot():
                rss, threads, cpu = process.memory_info().rss, process.num_threads(), process.cpu_times()
            fds = process.num_fds()
        except psutil.Error:
            return
        self.at_s.append(now_s)
        self.rss_mb.append(rss / 1e6)
        self.num_fds.append(fds)
        self.num_threads.append(threads)
        self.cpu_s = cpu.user + cpu.system

    def slope_mb_an_hour(self) -> float:
        """Of a straight line through its resident memory, the warm-up left out."""
        begin_s = min(WARM_UP_S, self.at_s[-1] / 4)
        rows = [(at, rss) for at, rss in zip(self.at_s, self.rss_mb, strict=True) if at >= begin_s]
        return slope(rows) * 3600 if len(rows) > 2 else float("nan")

    def row(self) -> str:
        """Of the table at the end."""
        return (
            f"| {self.name} | {self.rss_mb[0]:.1f} | {max(self.rss_mb):.1f} | {self.rss_mb[-1]:.1f} "
            f"| {self.slope_mb_an_hour():+.2f} | {self.num_fds[0]}, {max(self.num_fds)}, {self.num_fds[-1]} "
            f"| {self.num_threads[0]}, {max(self.num_threads)}, {self.num_threads[-1]} "
            f"| {self.cpu_s / self.at_s[-1]:.2%} | {self.at_s[-1] / 60:.0f} |"
        )


class Steps:
    """The step times that rank 0 writes down by itself."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def all_ms(self) -> list[tuple[float, float]]:
        """(end since the first step in s, length in ms) of each step."""
        ends = [int(line) for line in self.path.read_text().split("\n")[:-1]]
        return [((b - ends[0]) / 1e9, (b - a) / 1e6) for a, b in itertools.pairwise(ends)]

    def wait_for_first(self) -> None:
        """Until there are steps to speak of."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not self.path.exists() or len(self.all_ms()) < 2:
            assert time.monotonic() < deadline_s, "no step ended"
            time.sleep(0.2)

    def last_ms(self, seconds: float) -> float:
        """Median of the last so many seconds."""
        steps = self.all_ms()
        return statistics.median(ms for at, ms in steps if at >= steps[-1][0] - seconds)


class Visitors:
    """Who looks at the run and leaves again, one after the other, in a thread of their own."""

    def __init__(self, folder: Path, training_pid: int, url: str) -> None:
        self.folder, self.training_pid, self.url = folder, training_pid, url
        self.said: dict[str, list[str]] = {}
        self.over = threading.Event()

    def come_and_go(self, every_s: float) -> None:
        """Until the end: one visit, a pause, the next."""
        visits = (self.once, self.screens, self.diagnose, self.export, self.second)
        number = 0
        while not self.over.wait(every_s):
            visit = visits[number % len(visits)]
            try:
                said = visit(number)
            except (OSError, subprocess.SubprocessError) as error:
                said = f"{type(error).__name__}: {error}"
            self.said.setdefault(visit.__name__, []).append(said)
            number += 1

    def command(self, *arguments: str) -> str:
        """Exit code and the last line of what it said."""
        done = subprocess.run(
            [*TUIADVISOR, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        lines = (done.stdout + done.stderr).strip().splitlines() or [""]
        return f"exit {done.returncode}: {lines[-1][:150]}"

    def once(self, _number: int) -> str:
        """One summary."""
        return self.command("watch", "--once", "--for", "10s", self.url)

    def screens(self, _number: int) -> str:
        """The screens for half a minute, a key now and then."""
        terminal = Terminal([], 120, 40, [*TUIADVISOR, "watch", self.url])
        seen = terminal.read(5.0)
        for key in b"2345671":
            os.write(terminal.fd, bytes([key]))
            seen += terminal.read(3.0)
        said = "frames drawn" if terminal.num_frames else "nothing drawn"
        said += ", traceback" if b"Traceback" in seen else ""
        terminal.close()
        return said

    def diagnose(self, _number: int) -> str:
        """The verdict from the file that is being written."""
        return self.command("diagnose", str(self.folder / "run.tuirec"))

    def export(self, number: int) -> str:
        """A trace of the last steps."""
        output = self.folder / f"trace{number}.json.gz"
        said = self.command(
            "export", "--format", "chrome-trace", str(self.folder / "run.tuirec"), "-o", str(output)
        )
        output.unlink(missing_ok=True)
        return said.replace(str(self.folder), "").replace(str(number), "N")

    def second(self, number: int) -> str:
        """Somebody else records the same ranks; whoever is told that a probe is there already leaves it alone."""
        output = self.folder / f"second{number}.tuirec"
        said = self.command("record", "--pid", str(self.training_pid), "-o", str(output), "--for", "10s")
        output.unlink(missing_ok=True)
        return said.replace(str(self.folder), "").replace(str(number), "N")


def record(folder: Path, training_pid: int) -> tuple[int, str]:
    """Start `record --daemon`; its process and address."""
    output = folder / "run.tuirec"
    command = [*TUIADVISOR, "record", "-o", str(output), "--daemon", "--pid", str(training_pid)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout
    return int(re.findall(r"as process (\d+)", said)[0]), re.findall(r"tuiadvisor watch (ipc://\S+)", said)[0]


def parts(recorder_pid: int) -> list[Course]:
    """The recorder and what it started, by the module that each runs."""
    courses = [Course("recorder", recorder_pid)]
    for child in psutil.Process(recorder_pid).children(recursive=True):
        modules = [word for word in child.cmdline() if word.startswith("tuiadvisor.")]
        courses.append(Course(modules[0].rpartition(".")[2] if modules else child.name(), child.pid))
    return courses


def observe(courses: list[Course], steps: Steps, recording: Path, minutes: float) -> list[tuple[float, int]]:
    """A row every half minute until the end; (time, size of the recording) of each."""
    begin_s = time.monotonic()
    sizes: list[tuple[float, int]] = []
    print("| min | " + " | ".join(course.name for course in courses) + " | step ms | recording MB |")
    print("|---" * (len(courses) + 3) + "|", flush=True)
    while (now_s := time.monotonic() - begin_s) < minutes * 60:
        for course in courses:
            course.look(now_s)
        sizes.append((now_s, recording.stat().st_size))
        now = [f"{c.rss_mb[-1]:.1f} MB {c.num_fds[-1]} fd {c.num_threads[-1]} th" for c in courses]
        print(
            f"| {now_s / 60:.1f} | {' | '.join(now)} | {steps.last_ms(60):.2f} | {sizes[-1][1] / 1e6:.2f} |",
            flush=True,
        )
        time.sleep(max(0.0, min(ROW_S, minutes * 60 - now_s)))
    return sizes


def tell(courses: list[Course], steps: Steps, sizes: list[tuple[float, int]], visitors: Visitors) -> None:
    """The table at the end."""
    print("\n| process | MB at first | at most | at last | MB an hour | descriptors | threads | CPU | min |")
    print("|---|---|---|---|---|---|---|---|---|")
    for course in courses:
        print(course.row())
    timed = steps.all_ms()
    edge_s = min(600.0, timed[-1][0] / 4)
    first = [ms for at, ms in timed if at <= edge_s]
    last = [ms for at, ms in timed if at >= timed[-1][0] - edge_s]
    rate = (
        f"{slope(sizes) * 3600 / 1e6:.1f} MB an hour"
        if len(sizes) > 2
        else "too short to say its size an hour"
    )
    print(
        f"\nsteps {len(timed)}; median {statistics.median(first):.2f} ms in the first {edge_s / 60:.1f} min, "
        f"{statistics.median(last):.2f} in the last; recording {rate}"
    )
    for name, said in visitors.said.items():
        different = {line: said.count(line) for line in said}
        for line, times in different.items():
            print(f"visitor {name}: {times} x {line}")


def is_equal_to_its_twin(folder: Path, num_ranks: int) -> bool:
    """Whether an unwatched training of as many steps ends with the same weights."""
    import torch

    watched = torch.load(folder / "watched.pt")
    twin = ["--print-every", "0", "--seed", "5", "--step-ms", "0", "--steps", str(watched["steps"])]
    assert launch(num_ranks, [*twin, "--result", str(folder / "twin.pt")], is_whole=True).wait() == 0
    right = torch.load(folder / "twin.pt")
    return bool(watched["steps"] == right["steps"] and torch.equal(watched["weights"], right["weights"]))


def rings() -> set[str]:
    """Folders of rings on this machine."""
    return {str(path) for root in ("/dev/shm", "/tmp") for path in Path(root).glob("tuiadvisor*")}  # noqa: S108


def soak(options: argparse.Namespace, folder: Path) -> None:
    """The whole run."""
    before, stop = rings(), folder / "stop"
    arguments = ["--print-every", "0", "--seed", "5", "--step-ms", str(options.step_ms)]
    arguments += ["--step-times", str(folder / "times"), "--result", str(folder / "watched.pt")]
    training = launch(options.ranks, [*arguments, "--stop-file", str(stop)], TIMED, is_whole=True)
    try:
        ranks = wait_for_ranks(training, options.ranks)
        recorder_pid, url = record(folder, training.pid)
        courses = parts(recorder_pid) + [Course(f"rank {n}", rank.pid) for n, rank in enumerate(ranks)]
        visitors = Visitors(folder, training.pid, url)
        thread = threading.Thread(target=visitors.come_and_go, args=(options.visit_s,))
        thread.start()
        steps = Steps(folder / "times.0")
        try:
            steps.wait_for_first()
            sizes = observe(courses, steps, folder / "run.tuirec", options.minutes)
        finally:
            visitors.over.set()
            thread.join()
        tell(courses, steps, sizes, visitors)
        os.kill(recorder_pid, signal.SIGTERM)
        psutil.wait_procs([psutil.Process(recorder_pid)], timeout=PATIENCE_S)
        stop.touch()
        print(
            f"training ended with {training.wait(PATIENCE_S)}; left over: {sorted(rings() - before) or 'nothing'}"
        )
        print(f"the recording says: {read_summary(folder / 'run.tuirec').notes or 'nothing was lost'}")
        print(
            f"weights equal to an unwatched twin: {is_equal_to_its_twin(folder, options.ranks)}", flush=True
        )
    finally:
        end(training)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--step-ms", type=float, default=100.0)
    parser.add_argument("--visit-s", type=float, default=150.0, help="pause between two visitors")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        soak(options, Path(folder))


if __name__ == "__main__":
    main()
