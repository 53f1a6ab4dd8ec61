"""What the whole command says of trainings with known faults on one real device: `situations.py -o FOLDER`.

Ranks share the device by CUDA's multi-process service where it can be started (no setting of the device changes), each
with its share of the multiprocessors; otherwise they take turns. Several trainings start ahead and wait for their turn
without work, so a situation takes little more than its recording. FOLDER gets the recordings, the profiler's traces of
the same trainings, what was said, and table.md; the next situations go on where one fails.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from training import end

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
SCRIPT: Final = HERE / "situation_training.py"
AHEAD: Final = 4  # trainings that start while another is recorded
READY_S: Final = 75.0  # imports, contexts, compilers
SHARE: Final = ("--share", "45")
SLOW: Final = ("--slow-rank", "1")
LOOK: Final = ("--look-every", "1")
NOTHING: Final[Mapping[str, str]] = {}


@dataclass(frozen=True)
class Situation:
    """A training and what a diagnosis must come to."""

    name: str
    wanted: str
    arguments: tuple[str, ...] = ()
    num_ranks: int = 2


def table(*, has_shares: bool) -> tuple[Situation, ...]:
    """Most worth first. has_shares: a rank can be given less of the device; else a slow one has more to compute."""
    slow_device = (*SLOW, "--slow-share", "30") if has_shares else (*SLOW, "--products", "2")
    return (
        Situation("healthy, synced", "keep; nobody", LOOK),
        Situation("healthy, ahead", "keep; nobody"),
        Situation("Python hooks", "keep; nobody"),
        Situation("device, ahead", "rank 1, device", slow_device),
        Situation("device, synced", "rank 1, device", (*slow_device, *LOOK)),
        Situation("data, ahead", "rank 1, data", (*SLOW, "--data-ms", "40")),
        Situation("data, synced", "rank 1, data", (*SLOW, "--data-ms", "15", *LOOK)),
        Situation("data of all, ahead", "data, all ranks", ("--slow-rank", "-2", "--data-ms", "50")),
        Situation("copy, synced", "rank 1, copy to device", (*SLOW, "--copies", "4", *LOOK)),
        Situation("copy, ahead", "rank 1, copy to device", (*SLOW, "--copies", "12")),
        Situation("host hidden", "nothing above a remark", (*SLOW, "--host-ms", "0.5")),
        Situation("host-bound", "rank 1, host", (*SLOW, "--host-ms", "3")),
        Situation("hang", "hang: rank 1 has not entered, or rank unknown", ("--kind", "hang")),
        Situation("look every 10", "keep; no pause", ("--look-every", "10")),
        Situation("compiled, look every 10", "keep; no pause", ("--kind", "compiled", "--look-every", "10")),
        Situation("graphs, alone, look every 10", "no pause", ("--kind", "graphs", "--look-every", "10"), 1),
        Situation("exchange", "communication; no rank", ("--layers", "48", "--batch", "2048")),
        Situation("FSDP2", "nobody", ("--kind", "fsdp2")),
        Situation("FSDP2, device", "rank 1 or unknown", ("--kind", "fsdp2", *slow_device)),
        Situation("pipeline", "nobody", ("--kind", "pipeline", *LOOK)),
        Situation("pipeline, stage", "rank 1 or unknown", ("--kind", "pipeline", *slow_device)),
        Situation("alone", "no verdict on ranks", (), 1),
    )


def start_mps(folder: Path) -> bool:
    """The multi-process service of this run alone; False: not offered here."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        return False
    for name in ("PIPE", "LOG"):
        (folder / f"mps-{name.lower()}").mkdir(parents=True, exist_ok=True)
        os.environ[f"CUDA_MPS_{name}_DIRECTORY"] = str(folder / f"mps-{name.lower()}")
    started = subprocess.run([control, "-d"], capture_output=True, text=True, timeout=20, check=False)
    print("mps:", started.returncode, (started.stdout + started.stderr).strip()[:200], flush=True)
    if started.returncode:
        return False
    code = "import torch; print(torch.ones(3, device='cuda').sum().item())"
    tried = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=90, check=False
    )
    print("mps client:", tried.stdout.strip() or tried.stderr.strip()[-200:], flush=True)
    if tried.returncode:
        stop_mps()
        del os.environ["CUDA_MPS_PIPE_DIRECTORY"]
    return not tried.returncode


def stop_mps() -> None:
    """As it was started."""
    control = shutil.which("nvidia-cuda-mps-control") or "nvidia-cuda-mps-control"
    subprocess.run([control], input="quit\n", text=True, capture_output=True, timeout=30, check=False)


class Started:
    """One training that waits for its turn, or runs."""

    def __init__(self, situation: Situation, folder: Path, common: list[str]) -> None:
        self.situation = situation
        self.folder = folder
        self.signals = folder / "signals"
        self.signals.mkdir(parents=True)
        self.log = (folder / "training.log").open("w")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--standalone",
             f"--nproc-per-node={situation.num_ranks}", str(SCRIPT), *common, *situation.arguments,
             "--folder", str(self.signals)],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
            env=_environment(situation), start_new_session=True,
        )  # fmt: skip

    def is_ready(self) -> bool:
        """All ranks warmed up."""
        return all((self.signals / f"ready-{rank}").exists() for rank in range(self.situation.num_ranks))

    def wait_until_ready(self) -> str | None:
        """None, or why it is not."""
        end_s = time.monotonic() + READY_S
        while not self.is_ready():
            if self.process.poll() is not None:
                return f"ended with {self.process.returncode}: {self._last()}"
            if time.monotonic() > end_s:
                return f"not ready: {self._last()}"
            time.sleep(0.05)
        return None

    def _last(self) -> str:
        lines = (self.folder / "training.log").read_text(errors="replace").splitlines()
        wrong = [line for line in lines if "Error" in line]
        return (wrong or lines or ["nothing printed"])[-1][-220:]

    def close(self) -> None:
        """Surely ended, and first asked: a rank killed within a kernel ends all that share the device."""
        (self.signals / "stop").touch()
        if self.situation.name != "hang":
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=15)
        end(self.process)
        self.log.close()


def _environment(situation: Situation) -> dict[str, str]:
    """A rank that hangs has to be killed: it shares the device without the service."""
    common = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    environment = {**os.environ, **common}
    if situation.name == "hang":
        environment.pop("CUDA_MPS_PIPE_DIRECTORY", None)
    return environment


def tuiadvisor(
    *arguments: str, limit_s: float = 90, more: Mapping[str, str] = NOTHING
) -> subprocess.CompletedProcess[str]:
    """As a user would. more: variables."""
    return subprocess.run(
        [sys.executable, "-m", "tuiadvisor", *arguments],
        capture_output=True, text=True, timeout=limit_s, check=False, cwd=ROOT, env={**os.environ, **more},
    )  # fmt: skip


def record(started: Started, seconds: float) -> list[str]:
    """What went wrong; the recording and a profile lie in its folder."""
    folder, wrong = started.folder, []
    (started.signals / "go").touch()
    time.sleep(2)
    for_s = seconds + 6 if started.situation.name == "hang" else seconds
    more = {"TUIADVISOR_NATIVE": "0"} if started.situation.name == "Python hooks" else NOTHING
    pid = str(started.process.pid)
    done = tuiadvisor(
        "record", "-o", str(folder / "run.tuirec"), "--for", f"{for_s}s", "--pid", pid, more=more
    )
    (folder / "record.txt").write_text(done.stdout + done.stderr)
    if done.returncode:
        wrong.append(f"record: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    if started.process.poll() is not None:
        wrong.append(f"the training ended: {started._last()}")
    if started.situation.name == "hang":
        done = tuiadvisor("stacks", "--pid", pid)
        (folder / "stacks.txt").write_text(done.stdout + done.stderr)
        (started.signals / "dump").touch()
        time.sleep(1.5)
    else:
        (started.signals / "profile").touch()
        ranks = range(started.situation.num_ranks)
        end_s = time.monotonic() + 8
        while time.monotonic() < end_s and not all(
            (started.signals / f"trace-{rank}.done").exists() for rank in ranks
        ):
            time.sleep(0.05)
    if started.situation.name == "healthy, synced":
        done = tuiadvisor(
            "capture", "all", "--flops", "--pid", pid, "-o", str(folder / "captured"), limit_s=40
        )
        (folder / "captured.txt").write_text(done.stdout + done.stderr)
    return wrong


def judge(folder: Path) -> str:
    """What a diagnosis says, in a line."""
    done = tuiadvisor("diagnose", str(folder / "run.tuirec"), "--json")
    (folder / "diagnosis.json").write_text(done.stdout or done.stderr)
    text = tuiadvisor("diagnose", str(folder / "run.tuirec"))
    (folder / "diagnosis.txt").write_text(text.stdout + text.stderr)
    if done.returncode:
        return done.stderr.strip()[-200:]
    said: dict[str, Any] = json.loads(done.stdout)
    verdict = said["verdict"]
    findings = "; ".join(
        f"{finding['severity']} {finding.get('rule') or finding.get('id')} {finding.get('ranks')}"
        for finding in said["findings"]
    )
    return f"{verdict['decision']}: {verdict['sentence']} [{said['clock']}] ({findings})"


def judge_safely(folder: Path, wrong: list[str]) -> str:
    """Of one situation."""
    try:
        said = judge(folder)
    except Exception as error:  # noqa: BLE001 - one row, not the end
        said = f"{type(error).__name__}: {error}"
    return "; ".join([*wrong, said])


def run(
    chosen: list[Situation],
    folder: Path,
    common: list[str],
    share: tuple[str, ...],
    options: argparse.Namespace,
) -> Iterator[tuple[Situation, str]]:
    """Each in turn, those to come already starting. share: arguments of all that end by themselves."""
    end_s = time.monotonic() + 60 * options.minutes
    waiting = list(chosen)
    begun: list[Started] = []
    judged: list[tuple[Situation, concurrent.futures.Future[str]]] = []
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        try:
            while waiting or begun:
                while waiting and len(begun) < AHEAD:
                    situation = waiting.pop(0)
                    name = situation.name.replace(", ", "-").replace(" ", "-")
                    own = () if situation.name == "hang" else share
                    begun.append(Started(situation, folder / name, [*common, *own]))
                started = begun.pop(0)
                try:
                    if time.monotonic() > end_s:
                        yield started.situation, "not begun: the time was over"
                        continue
                    why = started.wait_until_ready()
                    if why is not None:
                        yield started.situation, f"did not start: {why}"
                        continue
                    wrong = record(started, options.seconds)
                except Exception as error:  # noqa: BLE001 - one row, not the end
                    wrong = [f"{type(error).__name__}: {error}"[:200]]
                finally:
                    started.close()
                judged.append((started.situation, pool.submit(judge_safely, started.folder, wrong)))
                while judged and judged[0][1].done():
                    done = judged.pop(0)
                    yield done[0], done[1].result()
        finally:
            for started in begun:
                started.close()
        for situation, future in judged:
            yield situation, future.result()


def main() -> None:
    """Print rows as they come."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--backend", default="nccl")
    parser.add_argument("--rehearse", action="store_true", help="on the CPU; figures mean nothing")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    has_shares = not options.rehearse and start_mps(options.output)
    common = ["--device", "cpu", "--backend", "gloo"] if options.rehearse else ["--backend", options.backend]
    chosen = [one for one in table(has_shares=has_shares) if not options.only or one.name in options.only]
    rows = []
    try:
        share = SHARE if has_shares else ()
        for situation, said in run(chosen, options.output, common, share, options):
            rows.append(f"| {situation.name} | {situation.wanted} | {said} |")
            print(json.dumps([situation.name, said, situation.wanted]), flush=True)
            (options.output / "table.md").write_text(
                "| situation | wanted | said |\n|---|---|---|\n" + "\n".join(rows) + "\n", encoding="utf-8"
            )
    finally:
        if has_shares:
            stop_mps()


if __name__ == "__main__":
    main()
