"""How soon all ranks of a node are attached, and how soon the screens show a step of theirs.

    python tests/benchmarks/many_ranks.py [--ranks 64] [--step-ms 100] [--rounds 3] [--imitation]

So many real processes with torch, each a loop of a small model without a process group (a node of 64 ranks has 64 cores
or more; here most of a step is a sleep), started a few at a time and let go together. They are visited in turns by
`tuiadvisor record`, whose recording tells when the agent saw each rank live, when it sent the first step of each, and
how long their threads stood still, and by `watch` in a terminal until a step stands on its screen. 64 ranks take 13 GB
and two minutes of two cores to start. With --imitation they import as much of torch's names as the probe hooks
(tests/imitation_torch.py, 12 MB a rank), so that 300 fit on a small machine: same attach, less to look through.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import itertools
import os
import pty
import re
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pyte
from first_picture import AnsweringScreen
from patience import wait_until
from training import end

from tuiadvisor.events import STEP_NAMES
from tuiadvisor.stream.frames import FrameKind, decode, unpack_columns
from tuiadvisor.stream.recording import RecordingReader

COLUMNS, ROWS = 110, 34
STARTED_AT_ONCE = 3
PATIENCE_S = 600.0
LOOKED_S = 8.0
# What stands in the first line of the screens, in the order in which it is waited for.
MOMENTS = (
    ("first frame", "tuiadvisor"),
    ("attaching", "ATTACHING"),
    ("live", "LIVE"),
    ("a step", r"\bstep \d"),
)
RANK = """
import os, sys, time
from pathlib import Path
import torch
torch.set_num_threads(1)
folder, step_s = Path(sys.argv[1]), float(sys.argv[2])
rank = os.environ["RANK"]
model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
times = os.open(folder / f"times.{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
def step():
    optimizer.zero_grad()
    model(torch.randn(8, 32)).square().mean().backward()
    optimizer.step()
for _ in range(3): step()
(folder / f"ready.{rank}").touch()
go = str(folder / "go")
while True:
    while not os.path.exists(go): time.sleep(0.5)
    os.write(times, b"%d\\n" % time.monotonic_ns())
    step()
    time.sleep(step_s)
"""
IMITATION = """
import mmap, os, sys, time
from pathlib import Path
import imitation_torch
imitation_torch.put_in()
with open("libtorch_python.so", "rb") as library:  # what a rank is known by
    mapped = mmap.mmap(library.fileno(), 0, access=mmap.ACCESS_READ)
folder, step_s = Path(sys.argv[1]), float(sys.argv[2])
rank = os.environ["RANK"]
model = imitation_torch.Module()
optimizer = imitation_torch.Optimizer(model.parameters())
times = os.open(folder / f"times.{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
(folder / f"ready.{rank}").touch()
go = str(folder / "go")
for batch in imitation_torch.DataLoader():
    while not os.path.exists(go): time.sleep(0.5)
    os.write(times, b"%d\\n" % time.monotonic_ns())
    sys.modules["torch.autograd"].backward(model(batch))
    optimizer.step()
    time.sleep(step_s)
"""


@contextlib.contextmanager
def ranks_at_work(num_ranks: int, step_s: float, program: str, folder: Path) -> Iterator[list[int]]:
    """Their pids."""
    tests = str(Path(__file__).resolve().parents[1])
    shared = {**os.environ, "OMP_NUM_THREADS": "1", "WORLD_SIZE": str(num_ranks), "PYTHONPATH": tests}
    ranks: list[subprocess.Popen[bytes]] = []

    (folder / "libtorch_python.so").write_bytes(b"imitation")

    def num_ready() -> int:
        for one in ranks:
            assert one.poll() is None
        return sum(1 for _ in folder.glob("ready.*"))

    try:
        for rank in range(num_ranks):
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            command = [sys.executable, "-c", program, str(folder), str(step_s)]
            ranks.append(
                subprocess.Popen(
                    command, cwd=folder, env=shared | own, stdin=subprocess.DEVNULL, start_new_session=True
                )  # as torchrun: many kernels share cores among sessions first
            )
            wait_until(lambda: len(ranks) - num_ready() < STARTED_AT_ONCE, "ranks start")
        wait_until(lambda: num_ready() == num_ranks, "all ranks train")
        yield [one.pid for one in ranks]
    finally:
        for one in ranks:
            end(one)


@dataclass
class Attached:
    """What a recording tells, on the monotonic clock of the machine."""

    first_ns: int = 0
    """The agent's first look at its ranks."""
    live_ns: dict[int, int] = field(default_factory=dict)
    stepped_ns: dict[int, int] = field(default_factory=dict)
    """A rank -> when the agent sent the first step that it saw of it."""
    stood_ns: list[int] = field(default_factory=list)
    took_ns: list[int] = field(default_factory=list)


def told_by(path: Path) -> Attached:
    """Read it."""
    attached = Attached()
    with RecordingReader(path) as reader:
        while located := reader.take(64):
            for frame in (decode(one.data) for one in located):
                payload: dict[str, Any] = frame.payload
                if frame.kind == FrameKind.HELLO:
                    ranks = [one for one in payload["ranks"] if one["attach_stopped_ns"]]
                    attached.stood_ns = [one["attach_stopped_ns"] for one in ranks]
                    attached.took_ns = [one["attach_total_ns"] for one in ranks]
                elif frame.kind == FrameKind.STATUS:
                    attached.first_ns = attached.first_ns or payload["mono_ns"]
                    for one in payload["ranks"]:
                        if one["state"] == "live":
                            attached.live_ns.setdefault(one["rank"], payload["mono_ns"])
                elif frame.kind == FrameKind.STEPS:
                    for rank in unpack_columns(payload, STEP_NAMES)["rank"].tolist():
                        attached.stepped_ns.setdefault(rank, frame.time_ns)
    return attached


def by_record(pids: list[int], folder: Path) -> None:
    """Attached by `record`, whose recording tells."""
    output = folder / "run.tuirec"
    output.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tuiadvisor", "record", "-o", str(output), "--for", f"{LOOKED_S:g}s"]
    command += [word for pid in pids for word in ("--pid", str(pid))]
    begin_ns = time.monotonic_ns()
    subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=PATIENCE_S, check=True
    )
    told = told_by(output)

    def after_s(at_ns: int) -> str:
        return f"{(at_ns - begin_ns) / 1e9:.2f}"

    live_ns, stepped_ns = sorted(told.live_ns.values()), sorted(told.stepped_ns.values())
    print(
        f"record: seconds from the command: agent's first look {after_s(told.first_ns)}; attached: first rank "
        f"{after_s(live_ns[0])}, half {after_s(live_ns[len(live_ns) // 2])}, last of {len(live_ns)} "
        f"{after_s(live_ns[-1])}; step sent: first {after_s(stepped_ns[0])}, last of {len(stepped_ns)} "
        f"{after_s(stepped_ns[-1])}; an injection took {statistics.median(told.took_ns) / 1e6:.0f} ms, at most "
        f"{max(told.took_ns) / 1e6:.0f}; a thread stood still {statistics.median(told.stood_ns) / 1e6:.1f} ms, at most "
        f"{max(told.stood_ns) / 1e6:.1f}; longest step beyond its rank's median "
        f"{longest_extra_ms(folder, begin_ns):.0f} ms",
        flush=True,
    )


def longest_extra_ms(folder: Path, begin_ns: int) -> float:
    """Of any rank, from then on."""
    longest = 0.0
    for path in folder.glob("times.*"):
        steps = [
            later - one
            for one, later in itertools.pairwise(map(int, path.read_text().split()))
            if later > begin_ns
        ]
        longest = max(longest, (max(steps) - statistics.median(steps)) / 1e6)
    return longest


def by_watch(pids: list[int], folder: Path) -> None:
    """Attached by `watch`, until its screen shows a step."""
    command = [
        sys.executable,
        "-m",
        "tuiadvisor",
        "watch",
        *(word for pid in pids for word in ("--pid", str(pid))),
    ]
    begin_s = time.monotonic()
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        os.chdir(folder)
        os.execv(sys.executable, command)  # noqa: S606
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    screen = AnsweringScreen(terminal)
    stream = pyte.ByteStream(screen)
    waiting, seen = dict(MOMENTS), []
    try:
        while waiting and time.monotonic() - begin_s < PATIENCE_S:
            if select.select([terminal], [], [], 0.02)[0]:
                stream.feed(os.read(terminal, 1 << 16))
            head = screen.display[0]
            for moment in [one for one, words in waiting.items() if re.search(words, head)]:
                del waiting[moment]
                seen.append(f"{moment} {time.monotonic() - begin_s:.2f}")
        os.write(terminal, b"q")
        with contextlib.suppress(OSError):
            while os.read(terminal, 1 << 16):
                pass
    finally:
        os.waitpid(pid, 0)
        os.close(terminal)
    print("watch: seconds from the command:", ", ".join(seen), flush=True)


def visit(pids: list[int], folder: Path, rounds: int) -> None:
    """By both in turns, while the ranks train."""
    (folder / "go").touch()
    time.sleep(3.0)
    for _ in range(rounds):
        by_record(pids, folder)
        time.sleep(2.0)
        by_watch(pids, folder)
        time.sleep(2.0)
    (folder / "go").unlink()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--step-ms", type=float, default=100.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--imitation", action="store_true", help="ranks without torch itself")
    parser.add_argument("--prefix", default="", help="a command that runs the visits, once the ranks train")
    parser.add_argument("--visit", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.visit is not None:
        pids = [int(word) for word in (options.visit / "pids").read_text().split()]
        visit(pids, options.visit, options.rounds)
        return
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as name,
        ranks_at_work(
            options.ranks, options.step_ms / 1e3, IMITATION if options.imitation else RANK, Path(name)
        ) as pids,
    ):
        Path(name, "pids").write_text(" ".join(map(str, pids)))
        visitor = [sys.executable, __file__, "--visit", name, "--rounds", str(options.rounds)]
        subprocess.run([*options.prefix.split(), *visitor], check=True)


if __name__ == "__main__":
    main()
