"""What the screens cost on a real pseudo-terminal: bytes a second, first frame, key latency, CPU, memory.

Run: python tests/benchmarks/screens.py [--seconds 20], or one kind of row alone: --first-frames 10, --busy, --only 2M.
The feed changes every figure and appends new steps to each rank's lateness twice a second; the reader answers cursor
requests like a terminal.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import statistics
import struct
import sys
import tempfile
import termios
import time
from dataclasses import replace
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1]))

from snapshot import views

from tuiadvisor.phases import EVERY_STEP
from tuiadvisor.tui.contract.feed import FeedState
from tuiadvisor.views.run_view import RunView
from tuiadvisor.views.step_map import StepMap

ASK = b"\x1b[6n"


class MovingFeed:
    """A feed whose every look shows a run that went on: noise on the figures, new steps in the heat map."""

    def __init__(self, num_ranks: int, steps_per_frame: int, made_file: Path | None = None) -> None:
        """made_file: where to tell the CPU seconds that making the views took."""
        self.made_file = made_file
        self.view = views.grouped(views.many(num_ranks))
        self.maps = {phase: [b"" for _ in self.view.ranks] for phase in EVERY_STEP}
        self.made_cpu_s = 0.0  # what this feed itself takes: not the screens'
        self.steps_per_frame = steps_per_frame
        self.noise = Random(1)  # noqa: S311  # the same noise on every run
        self.version = 0
        self.started_s = time.monotonic()

    def latest(self) -> FeedState:
        """Return a new state twice a second, the same one in between."""
        due = int((time.monotonic() - self.started_s) * 2)
        if due > self.version:
            self.version = due
            begin_s = time.thread_time()
            self.view = self._moved()
            self.made_cpu_s += time.thread_time() - begin_s
            if self.made_file is not None:
                self.made_file.write_text(str(self.made_cpu_s))
        return views.live(self.view, version=self.version)

    def _moved(self) -> RunView:
        view, noise, steps = self.view, self.noise, self.steps_per_frame
        ranks = tuple(
            replace(
                rank,
                now=f"exposed comm {noise.randrange(1, 9)} ms",
                step_s=0.0286 + noise.random() * 1e-4,
                wait_s=(rank.wait_s or 0.0) + noise.uniform(-1e-4, 1e-4),
                lateness_levels=rank.lateness_levels[steps:]
                + bytes(noise.choices((5, 6, 7) if rank.is_culprit else (0, 0, 0, 0, 1, 1, 2), k=steps)),
            )
            for rank in view.ranks
        )
        trend = replace(view.trend, step_s=(*view.trend.step_s[1:], 0.0286 + noise.random() * 2e-3))
        moved = replace(
            view,
            ranks=ranks,
            trend=trend,
            step=replace(view.step, median_s=0.0286 + noise.random() * 1e-4),
            last_step=(view.last_step or 0) + steps,
            heat_first_step=(view.heat_first_step or 0) + steps,
            step_maps=tuple(self._map(phase, len(ranks[0].lateness_levels)) for phase in self.maps),
            num_frames=view.num_frames + 2,
            event_time_s=(view.event_time_s or 0.0) + 0.5,
        )
        return views.grouped(moved)

    def _map(self, phase: str, num_levels: int) -> StepMap:
        """What each rank spent on a phase: about half of a cell, as on real jobs."""
        held = self.maps[phase]
        num_new = self.steps_per_frame if held[0] else num_levels
        for row, levels in enumerate(held):
            held[row] = (levels + bytes(self.noise.choices((2, 3, 3, 4, 4, 5, 7), k=num_new)))[-num_levels:]
        rows = {rank.rank: row for row, rank in enumerate(self.view.ranks)}
        return StepMap(phase, self.view.clock, 0.02, num_levels, rows, b"".join(held))

    def command(self, name: str, value: object = None) -> None:
        """Nothing to do."""


def child(num_ranks: int, steps_per_frame: int, made_file: str = "") -> None:
    """Run the screens in this process."""
    from tuiadvisor.tui.control.app import run_app

    run_app(MovingFeed(num_ranks, steps_per_frame, Path(made_file) if made_file else None))  # type: ignore[arg-type]


def busy_child(path: str, speed: float) -> None:
    """The screens over a live feed that folds a recording at this speed, as it comes."""
    from tuiadvisor.app.live_feed import LiveFeed
    from tuiadvisor.app.memory_trim import give_back_large_blocks
    from tuiadvisor.stream.replay import ReplaySource
    from tuiadvisor.tui.control.app import run_app

    feed = LiveFeed(ReplaySource(path, speed), lambda: None)
    give_back_large_blocks()  # as `watch` does
    feed.start()
    run_app(feed)
    feed.stop()


def busy(num_ranks: int, rate: int, seconds: float) -> str:
    """Key latency and CPU while so many rank-steps a second are folded in the same process."""
    from generated import STEP_S, straggling, write_recording

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "busy.tuirec"
        write_recording(path, straggling(num_ranks, int(rate * (seconds + 15))))
        speed = rate / (num_ranks / STEP_S)
        terminal = Terminal(["--busy-child", str(path), str(speed)], 80, 24)
        terminal.read(30.0, rb"step \d")
        terminal.read(3.0)
        cpu_s, begin_s = terminal.cpu_s(), time.monotonic()
        latencies = []
        while time.monotonic() - begin_s < seconds:
            latencies.append(key_latency_s(terminal))
        cpu = (terminal.cpu_s() - cpu_s) / (time.monotonic() - begin_s)
        ordered = sorted(latencies)
        p99_s = ordered[int(0.99 * (len(ordered) - 1))]
        row = (
            f"{rate:,} rank-steps/s of {num_ranks} ranks folded beside: {len(ordered)} keys, "
            f"median {statistics.median(ordered) * 1e3:.0f} ms, p99 {p99_s * 1e3:.0f} ms, "
            f"worst {ordered[-1] * 1e3:.0f} ms; cpu with the fold {cpu:.0%}, rss {terminal.rss_mb():.0f} MB"
        )
        terminal.close()
    return row


class Terminal:
    """The other end of a pseudo-terminal: counts what comes, answers where the cursor is."""

    def __init__(
        self, arguments: list[str], columns: int, rows: int, program: list[str] | None = None
    ) -> None:
        """program: what to run on it instead of the screens, with its arguments."""
        size = struct.pack("HHHH", rows, columns, 0, 0)
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, size)
            environment = {**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8"}
            for name in ("NO_COLOR", "LINES", "COLUMNS"):
                environment.pop(name, None)
            command = program or [sys.executable, __file__, *arguments]
            # Not what os.environ does not know: readline, once imported, puts LINES and COLUMNS beside it in C.
            os.execve(command[0], command, environment)  # noqa: S606  # no shell wanted
        self.num_bytes = 0
        self.num_frames = 0

    def read(self, for_s: float, until: bytes = b"") -> bytes:
        """Read for this long, or until something was seen."""
        seen = b""
        end_s = time.monotonic() + for_s
        while (left := end_s - time.monotonic()) > 0:
            if not select.select([self.fd], [], [], left)[0]:
                break
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                break
            self.num_bytes += len(data)
            self.num_frames += data.count(ASK)
            if ASK in data:
                os.write(self.fd, b"\x1b[24;80R")
            seen += data
            if until and re.search(until, seen):
                break
        return seen

    def cpu_s(self) -> float:
        """CPU time of the child so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mb(self) -> float:
        """Resident memory of the child now."""
        text = Path(f"/proc/{self.pid}/status").read_text()
        match = re.search(r"VmRSS:\s+(\d+)", text)
        return int(match[1]) / 1024 if match else float("nan")

    def close(self) -> None:
        """End the child."""
        with contextlib.suppress(OSError):
            os.write(self.fd, b"q")
        self.read(2.0)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


def measure(num_ranks: int, steps_per_frame: int, size: tuple[int, int], keys: str, seconds: float) -> str:
    """Return a row of figures for one screen."""
    with tempfile.TemporaryDirectory() as folder:
        made_file = Path(folder) / "made"
        made_file.write_text("0")
        started_s = time.monotonic()
        terminal = Terminal(["--child", str(num_ranks), str(steps_per_frame), str(made_file)], *size)
        terminal.read(20.0, b"pretrain-7b")
        first_frame_s, first_cpu_s = time.monotonic() - started_s, terminal.cpu_s()
        first_bytes = terminal.num_bytes
        terminal.read(2.0)
        for key in keys:
            os.write(terminal.fd, key.encode())
            terminal.read(0.7)
        terminal.read(2.0)
        before, frames = terminal.num_bytes, terminal.num_frames
        cpu_s = terminal.cpu_s() - float(made_file.read_text())
        terminal.read(seconds)
        steady = (terminal.num_bytes - before) / seconds
        per_s = (terminal.num_frames - frames) / seconds
        cpu = (terminal.cpu_s() - float(made_file.read_text()) - cpu_s) / seconds
        latencies = [key_latency_s(terminal) for _ in range(20)]
        row = (
            f"{num_ranks:>5} ranks {steps_per_frame:>3} steps/frame {size[0]}x{size[1]} keys {keys:4}: "
            f"first frame {first_frame_s * 1e3:4.0f} ms, {first_cpu_s * 1e3:4.0f} ms CPU ({first_bytes:,} B), "
            f"steady {steady:6,.0f} B/s at {per_s:.1f} frames/s, "
            f"cpu {cpu:4.1%}, rss {terminal.rss_mb():.0f} MB, "
            f"key median {statistics.median(latencies) * 1e3:.0f} ms, worst {max(latencies) * 1e3:.0f} ms"
        )
        terminal.close()
    return row


def key_latency_s(terminal: Terminal) -> float:
    """Return the time from a key to the first bytes of its frame: help on, help off."""
    terminal.read(0.11)
    started_s = time.monotonic()
    os.write(terminal.fd, b"?")
    terminal.read(2.0, rb"all other keys|\x1b\[6n")
    taken_s = time.monotonic() - started_s
    terminal.read(0.1)
    os.write(terminal.fd, b"?")
    terminal.read(0.2)
    return taken_s


def first_frames(num: int) -> str:
    """From the start of the process to the first frame of the real commands, on a recording, so many times each."""
    from generated import straggling, write_recording

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.tuirec"
        write_recording(path, straggling(4, 2400))
        for command in (["replay", str(path)], ["runs", folder]):
            program = [sys.executable, "-m", "tuiadvisor", *command]
            taken_s = [first_frame_s(program) for _ in range(num + 1)][1:]  # the first one compiled
            row = f"median {statistics.median(taken_s) * 1e3:.0f} ms, worst {max(taken_s) * 1e3:.0f} ms"
            rows.append(f"first frame of {command[0]} at 80x24, {num} starts: {row}")
    return "\n".join(rows)


def first_frame_s(program: list[str]) -> float:
    """From the start of a program to the end of its first frame."""
    started_s = time.monotonic()
    terminal = Terminal([], 80, 24, program)
    terminal.read(30.0, re.escape(ASK))
    taken_s = time.monotonic() - started_s
    terminal.close()
    return taken_s


def main() -> None:
    """Print a row for each screen and size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--child", nargs="+")
    parser.add_argument("--busy-child", nargs=2)
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 1024])
    parser.add_argument("--first-frames", type=int, metavar="N", help="only these, of N starts")
    parser.add_argument("--busy", action="store_true", help="only keys beside 10,000 rank-steps/s")
    parser.add_argument("--only", default="", help="screens whose keys are these")
    options = parser.parse_args()
    if options.child:
        child(int(options.child[0]), int(options.child[1]), *options.child[2:3])
        return
    if options.busy_child:
        busy_child(options.busy_child[0], float(options.busy_child[1]))
        return
    # As installed, and not compiled anew at each start, whatever the environment of a checkout says.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory(prefix="screens-pyc-") as compiled:
        os.environ["PYTHONPYCACHEPREFIX"] = compiled
        measure_all(options)


def measure_all(options: argparse.Namespace) -> None:
    """Print the rows that are asked for."""
    if options.first_frames:
        print(first_frames(options.first_frames), flush=True)
        return
    if options.busy or not options.only:
        print(busy(64, 10_000, options.seconds), flush=True)
    if options.busy:
        return
    print(first_frames(10), flush=True)
    for num_ranks in options.ranks:
        for size in ((80, 24), (200, 50)):
            # Overview; ranks; chain and communication; of many ranks also a row each, and the map of phases.
            for keys in ("1", "2", "3", "4") if num_ranks < 129 else ("1", "2", "3", "4", "2a", "2M"):
                for steps_per_frame in (2, 17):
                    if options.only in ("", keys):
                        print(measure(num_ranks, steps_per_frame, size, keys, options.seconds), flush=True)


if __name__ == "__main__":
    main()
