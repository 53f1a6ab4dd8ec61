"""Frameworks with their real packages on CPU: attached in mid-run, every phase is seen, and the slow rank is named."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S, RECORD_FOR
from ports import free_port
from rank_loops import diagnosis_once, is_late
from training import end

from tuiadvisor.stream.frames import FrameKind, decode
from tuiadvisor.stream.recording import RecordingReader

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[1] / "frameworks.py"


def start(framework: str, folder: Path, arguments: list[str], **extra: str) -> subprocess.Popen[bytes]:
    """One process of the training, in a session of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "DS_ACCELERATOR": "cpu"}
    environment |= {"ACCELERATE_USE_CPU": "1", "TOKENIZERS_PARALLELISM": "false", **extra}
    with (folder / f"log.{extra.get('RANK', 'launcher')}").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, *arguments, str(SCRIPT), framework, str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )


def wait_for_ready(folder: Path, num_ranks: int, processes: list[subprocess.Popen[bytes]]) -> list[int]:
    """Until so many ranks have trained for a while; their pids."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        pids = [int(path.suffix[1:]) for path in folder.glob("ready.*")]
        if len(pids) >= num_ranks:
            return pids
        for process in processes:
            logs = "".join(path.read_text(errors="replace")[-2000:] for path in folder.glob("log.*"))
            assert process.poll() is None, logs
        time.sleep(0.2)
    raise AssertionError(f"{num_ranks} ranks were not ready within {PATIENCE_S} s")


@contextlib.contextmanager
def two_ranks(framework: str, folder: Path) -> Iterator[list[int]]:
    """Both ranks with the environment that torchrun sets, without waiting for its agent."""
    port = str(free_port())
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    shared |= {"TORCHELASTIC_RUN_ID": "test", "GROUP_RANK": "0"}
    ranks = [
        start(framework, folder, [], RANK=str(rank), LOCAL_RANK=str(rank), **shared) for rank in range(2)
    ]
    try:
        yield wait_for_ready(folder, 2, ranks)
    finally:
        for rank in ranks:
            end(rank)


def command(*arguments: str) -> str:
    """Run tuiadvisor to its end; standard output."""
    done = subprocess.run(
        [sys.executable, "-m", "tuiadvisor", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def diagnosis(pids: list[int], folder: Path, num_steps: int) -> dict[str, Any]:
    """Attach, record, leave, diagnose."""
    recording = str(folder / "run")
    command(
        "record", "--pid", *map(str, pids), "-o", recording, "--steps", str(num_steps), "--for", RECORD_FOR
    )
    result: dict[str, Any] = json.loads(command("diagnose", recording, "--json"))
    return result


def pids_live_in(recording: str) -> set[int]:
    """Processes whose probe was live at some time, by the agents' own introductions."""
    pids = set()
    with RecordingReader(recording) as reader:
        for located in reader.frames():
            frame = decode(located.data)
            if frame.kind == FrameKind.HELLO:
                ranks: Any = frame.payload["ranks"]
                pids |= {rank["pid"] for rank in ranks if rank["state"] == "live"}
    return pids


def assert_rank_1_is_late_in_forward(document: dict[str, Any]) -> None:
    """The finding, its rank and its phase."""
    assert "straggler" == document["verdict"]["finding"], document["verdict"]
    assert [(1, "forward")] == [(late["rank"], late["cause"]) for late in document["stragglers"]["ranks"]]


@pytest.mark.alone
@pytest.mark.parametrize("framework", ["transformers", "accelerate", "lightning", "deepspeed"])
def test_every_phase_is_seen_and_the_slow_rank_named(tmp_path: Path, framework: str) -> None:
    """Data wait, forward, backward, communication and optimizer have numbers; what has none says why."""
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"no {framework} (make frameworks)")
    with two_ranks(framework, tmp_path) as pids:
        document = diagnosis(pids, tmp_path, 80)
    assert_rank_1_is_late_in_forward(document)
    seconds = document["step"]["seconds"]
    for phase in ("data_wait", "forward", "backward", "comm_exposed", "optimizer"):
        assert seconds[phase] is not None, phase
        assert seconds[phase] > 0, phase
    for phase in (name for name, value in seconds.items() if value is None):
        assert any(entry["metric"] == phase and entry["why"] for entry in document["unknown"]), phase
    assert document["step"]["throughput_tokens_s"] > 0
    assert 0 == document["losses"]["hooks_disabled"]
    if framework == "transformers":  # every 60 steps it evaluates and saves
        assert document["window"]["excluded"].keys() & {"checkpoint", "eval"}


@pytest.mark.alone
def test_deepspeeds_pipeline_is_one(tmp_path: Path) -> None:
    """Its stages do different work, so who waits least is not late; the heavy stage is what can be mended."""
    if importlib.util.find_spec("deepspeed") is None:
        pytest.skip("no deepspeed (make frameworks)")
    with two_ranks("deepspeed_pipeline", tmp_path) as pids:
        document = diagnosis(pids, tmp_path, 60)
    assert [] == document["stragglers"]["ranks"]
    pipeline = document["pipeline"]
    assert (2, 4) == (pipeline["num_stages"], pipeline["num_micro_batches"]), pipeline
    assert document["step"]["seconds"]["pipeline_idle"] > 0
    assert 0 == document["losses"]["hooks_disabled"]


def test_ranks_of_spawn_have_no_environment(tmp_path: Path) -> None:
    """`torch.multiprocessing.spawn`: found below the script, rank and world size asked inside."""
    script = start("spawn", tmp_path, [])
    try:
        wait_for_ready(tmp_path, 2, [script])
        document = diagnosis_once([script.pid], tmp_path, lambda told: is_late(told, 1, "forward"))
    finally:
        end(script)
    assert 2 == document["run"]["world_size"]


@pytest.mark.alone
def test_lightnings_own_launcher(tmp_path: Path) -> None:
    """The script is rank 0 and starts rank 1: one training, whichever way it is named; it validated before."""
    if importlib.util.find_spec("lightning") is None:
        pytest.skip("no lightning (make frameworks)")
    script = start("lightning_alone", tmp_path, [])
    try:
        wait_for_ready(tmp_path, 2, [script])
        document = diagnosis([script.pid], tmp_path, 80)
    finally:
        end(script)
    assert 2 == document["run"]["world_size"]
    assert [] == document["losses"]["ranks_missing"]
    assert_rank_1_is_late_in_forward(document)


@pytest.mark.alone
def test_ray_trains_in_a_thread_of_its_workers(tmp_path: Path) -> None:
    """Ray Train: the main thread of a worker sits in C++; its ranks are those below the driver."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("no ray (make frameworks)")
    with tempfile.TemporaryDirectory(prefix="ray-") as short:  # the path of a socket is short
        driver = start(
            "ray", tmp_path, [], RAY_FOLDER=short, RAY_AUTH_MODE="disabled", PYTHONPATH=str(SCRIPT.parent)
        )
        try:
            pids = wait_for_ready(tmp_path, 2, [driver])
            document = diagnosis([driver.pid], tmp_path, 60)
            stacks = json.loads(command("stacks", "--json", "--pid", *map(str, pids)))
        finally:
            end(driver)
    assert 2 == document["run"]["world_size"]
    assert_rank_1_is_late_in_forward(document)
    seconds = document["step"]["seconds"]
    assert all(
        seconds[name] > 0 for name in ("data_wait", "forward", "backward", "comm_exposed", "optimizer")
    )
    for rank in stacks["ranks"]:
        assert any(frame.startswith("ray_loop (") for frame in rank["stack"])


@pytest.mark.alone
def test_an_agent_on_each_node_of_a_ray_cluster(tmp_path: Path) -> None:
    """`--ray HOST:PORT`: two nodes with one worker each; each agent has the rank of its own node, and both leave."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("no ray (make frameworks)")
    recording = str(tmp_path / "run")
    with tempfile.TemporaryDirectory(prefix="ray-") as short, pytest.MonkeyPatch.context() as patched:
        patched.setenv("RAY_AUTH_MODE", "disabled")  # of the command that joins the cluster, too
        driver = start("ray_nodes", tmp_path, [], RAY_FOLDER=short, PYTHONPATH=str(SCRIPT.parent))
        try:
            pids = set(wait_for_ready(tmp_path, 2, [driver]))
            address = (tmp_path / "address").read_text()
            command("record", "--ray", address, "-o", recording, "--steps", "60", "--for", RECORD_FOR)
        finally:
            end(driver)
    document = json.loads(command("diagnose", recording, "--json"))
    assert_rank_1_is_late_in_forward(document)
    told: dict[str, set[int]] = {}
    with RecordingReader(recording) as reader:
        for located in reader.frames():
            frame = decode(located.data)
            if frame.kind == FrameKind.HELLO:
                ranks: Any = frame.payload["ranks"]
                told.setdefault(frame.source, set()).update(rank["pid"] for rank in ranks)
    assert sorted(map(sorted, told.values())) == sorted([pid] for pid in pids)


@pytest.mark.alone
@pytest.mark.extended
def test_elastic_restart_is_picked_up(tmp_path: Path) -> None:
    """`torchrun --max-restarts`: rank 1 dies while watched; the ranks of the second round are attached and measured."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=2"]
    launcher = start("elastic", tmp_path, torchrun)
    try:
        first = wait_for_ready(tmp_path, 2, [launcher])
        recording = str(tmp_path / "run")
        command("record", "--pid", str(launcher.pid), "-o", recording, "--for", "60s")
        again = set(wait_for_ready(tmp_path, 4, [launcher])) - set(first)
        document = json.loads(command("diagnose", recording, "--json"))
    finally:
        end(launcher)
    assert len(again) == 2
    assert (tmp_path / "died").exists()
    assert set(first) | again <= pids_live_in(recording)
    assert_rank_1_is_late_in_forward(document)
