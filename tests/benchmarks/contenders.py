"""Who takes part in the side-by-side bench, how each is installed and started, and how all of it ends.

In: number of ranks, a folder of the bench's own.  Out: Contender, its ranks waiting for orders on a socket. Nothing is
installed outside the folder, and every process started here is ended by its pid.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import psutil

from tuiadvisor.agent.session import mapped_rings
from tuiadvisor.inject.armed import arm_environment

RANK_SCRIPT = Path(__file__).with_name("rank_loop.py")
START_PATIENCE_S = 240.0
INSTALL_PATIENCE_S = 300.0


@dataclass(frozen=True)
class Kind:
    """One way to run the training. `switched`: on and off in the same process; else against the bare process."""

    name: str
    what: str
    wrap: str = ""  # what rank_loop puts around steps or blocks
    switched: bool = False
    package: str = ""  # from PyPI, into a folder of the bench
    environment: dict[str, str] = field(default_factory=dict)


KINDS = (
    Kind("bare", "nothing attached"),
    Kind("bare again", "a second bare training: what two processes differ by without any tool"),
    Kind("ours", "tuiadvisor record: probe, agent and hub"),
    Kind("ours, probe", "the probe alone, in and out of the same process", wrap="attach", switched=True),
    Kind("ours, armed", "started by tuiadvisor arm, nobody watches: dormant", wrap="armed"),
    Kind("TraceML", "traceml run, with its trace_step in the code", "traceml", package="traceml-ai"),
    Kind(
        "probing",
        "with its torch hooks",
        package="probing",
        environment={"PROBING": "1", "PROBING_TORCH_PROFILING": "on"},
    ),
    Kind(
        "py-spy", "py-spy record of each rank, 100 samples a second, beside a bare training", package="py-spy"
    ),
    Kind("torch.profiler", "CPU activity of whole blocks", wrap="profiler", switched=True),
)


class Contender:
    """A running training of one kind, one connection a rank."""

    def __init__(self, kind: Kind, folder: Path, num_ranks: int) -> None:
        self.kind = kind
        self.num_ranks = num_ranks
        self.folder = folder / (kind.name.replace(" ", "-").replace(",", "") + f"-{num_ranks}")
        self.folder.mkdir()
        self.roots: list[subprocess.Popen[bytes]] = []
        self.streams: dict[int, IO[str]] = {}
        self.pids: dict[int, int] = {}
        self.resident_at_start: dict[int, int] = {}
        self._family: list[psutil.Process] = []

    def start(self, address: str, python: str) -> None:
        """Start the processes; they call when they are ready."""
        environment = {
            **os.environ,
            **self.kind.environment,
            "BENCH_SOCKET": address,
            "BENCH_NAME": self.kind.name,
            "BENCH_WRAP": self.kind.wrap,
            "OMP_NUM_THREADS": "1",
            "PYTHONWARNINGS": "ignore",
        }
        if self.kind.wrap == "armed":
            environment = arm_environment(environment)
        if self.kind.wrap == "traceml":
            command = [
                str(Path(python).with_name("traceml")),
                "run",
                "--mode",
                "summary",
                "--run-name",
                "bench",
            ]
            command += ["--logs-dir", str(self.folder), "--aggregator-port", str(free_port())]
            command += ["--master-port", str(free_port()), "--nproc-per-node", str(self.num_ranks)]
            self._run([*command, str(RANK_SCRIPT)], environment)
            return
        group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        for rank in range(self.num_ranks):
            place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(self.num_ranks)}
            self._run([python, str(RANK_SCRIPT)], {**environment, **group, **place})

    def _run(self, command: list[str], environment: dict[str, str]) -> None:
        with (self.folder / "output").open("ab") as output:
            self.roots.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=environment,
                    cwd=self.folder,
                    start_new_session=True,
                )
            )

    @property
    def is_whole(self) -> bool:
        """Whether all ranks have called."""
        return len(self.streams) == self.num_ranks

    def why_not(self) -> str:
        """The last line it left behind."""
        lines = (self.folder / "output").read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1][:160] if lines else "it said nothing"

    def watch(self) -> None:
        """Attach ours, as a user does, and wait until the probes are in every rank."""
        targets = [word for pid in self.pids.values() for word in ("--pid", str(pid))]
        recording = str(self.folder / "run.tuirec")
        self._run([sys.executable, "-m", "tuiadvisor", "record", "-o", recording, *targets], dict(os.environ))
        deadline_s = time.monotonic() + 60
        while not all(mapped_rings(pid) for pid in self.pids.values()):
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"the probes did not come: {self.why_not()}")
            time.sleep(0.1)

    def sample(self, python: str) -> None:
        """py-spy at each rank, until the end."""
        for rank, pid in self.pids.items():
            options = [
                "--rate",
                "100",
                "--duration",
                "36000",
                "--format",
                "raw",
                "--output",
                f"samples.{rank}",
            ]
            self._run(
                [str(Path(python).with_name("py-spy")), "record", *options, "--pid", str(pid)],
                dict(os.environ),
            )

    def is_sampled(self) -> bool:
        """Whether py-spy still looks at each rank."""
        return all(root.poll() is None for root in self.roots)

    def is_watched(self) -> bool:
        """Whether the probes are still there."""
        return all(mapped_rings(pid) for pid in self.pids.values())

    def order(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        """One block on all ranks; their answers by rank."""
        line = json.dumps(message) + "\n"
        for stream in self.streams.values():
            stream.write(line)
            stream.flush()
        answers = [self.streams[rank].readline() for rank in sorted(self.streams)]
        if not all(answers):
            raise RuntimeError(f"{self.kind.name}: a rank ended: {self.why_not()}")
        return [json.loads(answer) for answer in answers]

    def stand_still(self) -> None:
        """Stop every process and thread of it: what waits must not disturb what is measured."""
        self._family = [process for root in self.roots for process in _family(root.pid)]
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Undo stand_still."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        for process in self._family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def end(self) -> None:
        """End it, whatever state it is in."""
        self.go_on()
        for stream in self.streams.values():
            with contextlib.suppress(OSError):
                stream.close()
        family = [process for root in self.roots for process in _family(root.pid)]
        for number, patience_s in ((signal.SIGTERM, 8.0), (signal.SIGKILL, 5.0)):
            for process in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(number)
            family = psutil.wait_procs(family, timeout=patience_s)[1]
        for root in self.roots:
            root.wait()


def _family(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        return [*root.children(recursive=True), root]
    return []


def gather(contenders: list[Contender], listener: socket.socket) -> None:
    """Take the ranks' calls until every contender that lives is whole."""
    by_name = {contender.kind.name: contender for contender in contenders}
    listener.settimeout(1.0)
    deadline_s = time.monotonic() + START_PATIENCE_S
    while time.monotonic() < deadline_s:
        awaited = [one for one in contenders if not one.is_whole]
        if not any(root.poll() is None for one in awaited for root in one.roots):
            return
        with contextlib.suppress(TimeoutError):
            connection, _ = listener.accept()
            connection.settimeout(None)
            stream = connection.makefile("rw", encoding="utf-8")
            hello = json.loads(stream.readline())
            contender = by_name[hello["name"]]
            contender.streams[hello["rank"]] = stream
            contender.pids[hello["rank"]] = hello["pid"]
            contender.resident_at_start[hello["rank"]] = hello["resident"]


def install(folder: Path, packages: list[str]) -> tuple[str, dict[str, str]]:
    """(interpreter, why not by package): a venv in the folder that sees this one's torch and adds the packages."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    own = folder / "lib" / version / "site-packages"
    torch = importlib.util.find_spec("torch")
    assert torch is not None
    assert torch.origin is not None
    seen = dict.fromkeys((sysconfig.get_path("purelib"), str(Path(torch.origin).parents[1])))
    (own / "bench-host.pth").write_text("".join(f"{one}\n" for one in seen), encoding="utf-8")
    python = str(folder / "bin" / "python")
    # The torch that is there stays: anything else would be another training.
    constraint = folder / "constraint.txt"
    constraint.write_text(f"torch=={importlib.metadata.version('torch')}\n", encoding="utf-8")
    missing = {}
    for package in packages:
        arguments = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        arguments += ["--constraint", str(constraint), package]
        # Itself even where the host has it, for its command has to be here; of what it needs only what is missing.
        own_alone = ["--ignore-installed", "--no-deps"]
        try:
            for options in (own_alone, []):
                done = subprocess.run(
                    [*arguments, *options],
                    capture_output=True,
                    text=True,
                    timeout=INSTALL_PATIENCE_S,
                    check=False,
                )
                if done.returncode:
                    break
        except subprocess.TimeoutExpired:
            missing[package] = f"pip took longer than {INSTALL_PATIENCE_S:.0f} s"
            continue
        if done.returncode:
            missing[package] = (done.stderr.strip().splitlines() or ["pip failed"])[-1][:160]
    return python, missing


def free_port() -> int:
    """A port nobody has at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
