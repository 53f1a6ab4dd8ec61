"""Is the late rank named on other Pythons and other torches? Trainings run by them, looked at by this one.

`python tests/versions.py PYTHON ... [--only ddp fsdp2] [--cores native python] [--markdown]`: each has torch. Two ranks
of each kind (`version_training.py`), rank 1 late in each step. Recorded, told, detached; then every callable of torch
must be the object that it was, threads and descriptors as many as before, and the weights those of a run without us.
The first kind runs below torchrun itself; it is also attached to by a watcher that is killed, and left by `detach`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import psutil
from patience import INJECT_S, PATIENCE_S, RECORD_FOR, wait_until
from training import LIGHT, end

from tuiadvisor.agent.session import mapped_rings
from tuiadvisor.inject import inject
from tuiadvisor.stream.frames import FrameKind, decode
from tuiadvisor.stream.recording import RecordingReader

SCRIPT = Path(__file__).parent / "version_training.py"
# So late that waiting for a core that others have is small beside it.
LATE_MS, BASE_MS, NUM_STEPS = 150.0, 5.0, 50
SIZE_SHARE = 0.25  # a machine with others on it sleeps longer than it was told to
NUM_COUNTS = 12
CORES = {"native": "1", "python": "0"}
# What stands in torch's modules and classes, by place: a probe that has left has put every object back. Counters and
# caches of torch's own are no callables.
LOOK = """
import sys, gc
found = {}
def look(place, value):
    for name, inner in list(vars(value).items()):
        if callable(inner) or type(inner).__name__ in ("staticmethod", "classmethod", "property"):
            found[place + "." + name] = id(inner)
        if isinstance(inner, type) and str(inner.__module__).split(".")[0] in ("torch", "__main__"):
            key = inner.__module__ + ":" + inner.__qualname__
            if key not in seen:
                seen.add(key)
                look(key, inner)
seen = set()
for name, module in list(sys.modules.items()):
    if module is not None and name.split(".")[0] in ("torch", "__main__"):
        try:
            look(name, module)
        except Exception as error:
            found["!" + name] = repr(error)
import torch.optim.optimizer as o
for name in ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks"):
    found[name] = len(getattr(o, name, ()))
found["callbacks"] = len(gc.callbacks)
import json, os
with open(PATH + ".part", "w") as file:
    json.dump(found, file)
os.rename(PATH + ".part", PATH)
"""


@dataclass
class Case:
    """A kind of training, and what must be told of it."""

    kind: str
    finding: str
    phase: str
    late_ms: float = LATE_MS
    is_sized: bool = True  # else how much of the lateness the step hides is the machine's affair


CASES = [
    Case("ddp", "straggler", "forward"),
    Case("loader", "straggler", "data_wait", is_sized=False),
    Case("compiled", "straggler", "backward"),
    Case("fsdp1", "straggler", "forward"),
    Case("fsdp2", "straggler", "forward"),
    Case("pipeline", "heavy_stage", "forward"),
]


@dataclass
class Outcome:
    """Of one case on one interpreter."""

    said: str = ""
    core: str = ""
    faults: list[str] = field(default_factory=list)

    def word(self) -> str:
        """A cell of the table."""
        return "; ".join(self.faults) if self.faults else self.said


def environment(core: str) -> dict[str, str]:
    """Of ranks and of our commands."""
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "ignore",
        "TUIADVISOR_NATIVE": CORES[core],
    }


def tuiadvisor(core: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of ours to its end."""
    return subprocess.run(
        [sys.executable, "-m", "tuiadvisor", *arguments],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        env=environment(core),
    )  # fmt: skip


def arguments_of(case: Case, folder: Path, late_ms: float, base_ms: float) -> list[str]:
    """Of the training."""
    return [str(SCRIPT), case.kind, str(folder), "--late-ms", str(late_ms), "--base-ms", str(base_ms)]


@contextmanager
def started(
    python: str, arguments: list[str], log: Path, *, is_whole: bool
) -> Iterator[subprocess.Popen[bytes]]:
    """Two ranks below torchrun of this interpreter, or below one that imports no torch; ended whatever happens."""
    launcher = ["-m", "torch.distributed.run"] if is_whole else [str(LIGHT / "torchrun")]
    command = [python, *launcher, "--standalone", "--nproc-per-node=2", *arguments]
    with log.open("wb") as output:
        training = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment("native"),
            start_new_session=True,
        )  # fmt: skip
    try:
        yield training
    finally:
        end(training)


def look(pid: int, folder: Path) -> tuple[dict[str, object], tuple[int, int]]:
    """What stands in a rank's torch, and its (threads, descriptors)."""
    path = folder / f"look-{pid}-{time.monotonic_ns()}"
    inject(pid, LOOK.replace("PATH", repr(str(path))), timeout_s=INJECT_S)
    wait_until(path.exists, "the rank's torch was looked at")
    process, counts = psutil.Process(pid), []
    for _ in range(
        NUM_COUNTS
    ):  # the thread that looked ends; a loader's batch comes with a descriptor of its own
        time.sleep(0.05)
        counts.append((process.num_threads(), process.num_fds()))
    found: dict[str, object] = json.loads(path.read_text())
    return found, min(counts)


def differences(before: dict[str, object], after: dict[str, object]) -> list[str]:
    """Places whose object is another one now. What torch imported meanwhile is new, no difference."""
    return [place for place, what in before.items() if after.get(place, what) != what]


def broken(recording: Path) -> list[str]:
    """What the ranks said of their own hooks."""
    found: dict[str, None] = {}
    with RecordingReader(recording) as reader:
        for frame in (decode(located.data) for located in reader.frames()):
            if frame.kind not in {FrameKind.HELLO, FrameKind.STATUS}:
                continue
            for rank in cast("list[dict[str, Any]]", frame.payload["ranks"]):
                if rank.get("errors") or rank.get("hooks_disabled"):
                    found[f"{rank['errors']} errors, {rank['hooks_disabled']} hooks switched off"] = None
    return list(found)


def told(case: Case, core: str, pid: int, folder: Path, outcome: Outcome) -> None:
    """Record, diagnose, compare with what is true."""
    recording = folder / "run.tuirec"
    recording.unlink(missing_ok=True)
    steps = ["--steps", str(NUM_STEPS), "--for", RECORD_FOR]
    done = tuiadvisor(core, "record", "--pid", str(pid), "-o", str(recording), *steps)
    if done.returncode:
        outcome.faults.append(f"record: {done.stderr.strip()[-300:]}")
        return
    said = tuiadvisor(core, "diagnose", str(recording), "--json")
    if said.returncode:
        outcome.faults.append(f"diagnose: {said.stderr.strip()[-300:]}")
        return
    document: dict[str, Any] = json.loads(said.stdout)
    outcome.core = str(document["probe"]["core"])
    outcome.faults += broken(recording)
    verdict = document["verdict"]
    first = next((one for one in document["findings"] if one["id"] == verdict["finding"]), None)
    if first is None or (first["id"], first["ranks"], first["phase"]) != (case.finding, [1], case.phase):
        outcome.faults.append(f"said: {verdict['sentence']}")
        return
    loss_ms = first["loss_s_per_step"] * 1e3
    outcome.said = f"{case.phase} {loss_ms:.0f} ms"
    if case.is_sized and abs(loss_ms - case.late_ms) > SIZE_SHARE * case.late_ms:
        outcome.faults.append(f"size: {loss_ms:.1f} ms, expected {case.late_ms:.0f}")


def left_by_a_killed_watcher(core: str, pids: list[int], folder: Path, outcome: Outcome) -> None:
    """A watcher is killed while its probes are in; `stacks` still looks and `detach` takes the probes out."""
    recording = folder / "killed.tuirec"
    recording.unlink(missing_ok=True)
    command = [sys.executable, "-m", "tuiadvisor", "record", "-o", str(recording), "--pid", *map(str, pids)]
    watcher = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(core),
    )
    try:
        wait_until(lambda: all(mapped_rings(pid) for pid in pids), "the probes are in")
        time.sleep(1.0)  # of steps
    finally:
        for process in [*psutil.Process(watcher.pid).children(recursive=True), psutil.Process(watcher.pid)]:
            process.send_signal(signal.SIGKILL)
        watcher.wait()
    for words in (["stacks", "--json"], ["detach"]):
        done = tuiadvisor(core, *words, "--pid", *map(str, pids))
        if done.returncode:
            outcome.faults.append(f"{words[0]}: {(done.stderr or done.stdout).strip()[-300:]}")


def with_us(python: str, case: Case, core: str, folder: Path, outcome: Outcome) -> bool:
    """Watched, left, ended; True if the ranks came to their own end."""
    arguments = arguments_of(case, folder, case.late_ms, BASE_MS)
    with started(python, arguments, folder / "log", is_whole=case.kind == "ddp") as training:
        wait_until(lambda: training.poll() is not None or all(ready(folder)), "the ranks train")
        if (folder / "cannot").exists():
            outcome.said = f"torch has none: {(folder / 'cannot').read_text()[:100]}"
            return False
        if training.poll() is not None:
            outcome.faults.append(f"the training ended with {training.returncode}: {complaint(folder)}")
            return False
        pids = [int(said) for said in ready(folder)]
        restless = differences(look(pids[0], folder)[0], look(pids[0], folder)[0])
        before = [look(pid, folder) for pid in pids]
        told(case, core, training.pid, folder, outcome)
        if case.kind == "ddp":
            left_by_a_killed_watcher(core, pids, folder, outcome)
        after = [look(pid, folder) for pid in pids]
        for (stood, counts), (stands, counts_after) in zip(before, after, strict=True):
            if changed := [place for place in differences(stood, stands) if place not in restless]:
                outcome.faults.append(f"left behind: {', '.join(changed[:5])} ({len(changed)})")
            if counts != counts_after:
                outcome.faults.append(f"threads, descriptors: {counts} before, {counts_after} after")
        (folder / "stop").touch()
        status = training.wait(PATIENCE_S)
    if status:
        outcome.faults.append(f"the training ended with {status}: {complaint(folder)}")
    return not status


def ready(folder: Path) -> list[str]:
    """Of each rank its process id, once it has made steps, and with them torch's late imports; else empty."""
    places = [folder / f"ready-{rank}" for rank in range(2)]
    return [place.read_text() if place.exists() else "" for place in places]


def complaint(folder: Path) -> str:
    """The line of the training's output that says what went wrong, as far as one does."""
    said = (folder / "log").read_text().strip().splitlines()
    return ([line for line in said if "Error" in line] or said or [""])[-1][-200:]


def weights(folder: Path) -> list[dict[str, Any]]:
    """Of each rank: sum of its weights, number of steps."""
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(2)]


def tried(python: str, case: Case, core: str) -> Outcome:
    """One cell."""
    outcome = Outcome()
    with tempfile.TemporaryDirectory() as name:
        folder, reference = Path(name) / "with", Path(name) / "without"
        folder.mkdir()
        reference.mkdir()
        try:
            if not with_us(python, case, core, folder, outcome):
                return outcome
        except AssertionError as error:
            outcome.faults.append(f"{error}: {complaint(folder)}")
            return outcome
        mine = weights(folder)
        alone = [python, *arguments_of(case, reference, 0.0, 0.0), "--fork", "--steps", str(mine[0]["steps"])]
        done = subprocess.run(
            alone, capture_output=True, timeout=PATIENCE_S, env=environment("native"), text=True, check=False
        )
        if done.returncode:
            outcome.faults.append(f"without us: {done.stderr[-300:]}")
            return outcome
        if mine != weights(reference):
            outcome.faults.append("weights are not those of a run without us")
    return outcome


def versions_of(python: str) -> tuple[str, str]:
    """(Python, torch)."""
    ask = "import sys, torch; print(sys.version.split()[0] + ('t' if 't' in sys.abiflags else ''), torch.__version__)"
    said = subprocess.run(
        [python, "-W", "ignore", "-c", ask], capture_output=True, text=True, check=True
    ).stdout
    version, torch_version = said.split()
    return version, torch_version


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pythons", nargs="+", metavar="PYTHON", help="an interpreter that has torch")
    parser.add_argument("--only", nargs="+", choices=[case.kind for case in CASES], default=None)
    parser.add_argument("--cores", nargs="+", choices=list(CORES), default=list(CORES))
    parser.add_argument("--markdown", action="store_true", help="also as rows of a table")
    options = parser.parse_args()
    cases = [case for case in CASES if options.only is None or case.kind in options.only]
    # What was started ends with us.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    rows, num_faults = [], 0
    for python in options.pythons:
        version, torch_version = versions_of(python)
        for core in options.cores:
            cells = []
            for case in cases:
                outcome = tried(python, case, core)
                num_faults += bool(outcome.faults)
                mark = "WRONG" if outcome.faults else "ok   "
                print(f"{mark} {version} {torch_version} {core}: {case.kind}: {outcome.word()}", flush=True)
                cells.append(outcome)
            used = {one.core for one in cells if one.core}
            words = [f"**{one.word()}**" if one.faults else one.said for one in cells]
            rows.append(f"| {version} | {torch_version} | {', '.join(sorted(used))} | {' | '.join(words)} |")
    if options.markdown:
        print(f"| Python | torch | hooks | {' | '.join(case.kind for case in cases)} |")
        print("|" + "---|" * (3 + len(cases)))
        print("\n".join(rows))
    sys.exit(1 if num_faults else 0)


if __name__ == "__main__":
    main()
