"""Ranks of a script of our own without a launcher: started, watched by the real commands, ended by pid.

A script is called with a KIND and a FOLDER, and touches FOLDER/ready.RANK once it trains.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from patience import PATIENCE_S, RECORD_FOR, wait_until
from ports import free_port
from training import end

from tuiadvisor.cli import main


@contextlib.contextmanager
def training(script: str, kind: str, folder: Path, num_ranks: int = 2) -> Iterator[list[int]]:
    """So many ranks of `tests/script KIND FOLDER` under way; their pids."""
    port = str(free_port())
    shared = {**os.environ, "OMP_NUM_THREADS": "1"}
    if num_ranks > 1:
        shared |= {"WORLD_SIZE": str(num_ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ranks = []
    for rank in range(num_ranks):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank)} if num_ranks > 1 else {}
        with (folder / f"log.{rank}").open("wb") as log:
            ranks.append(
                subprocess.Popen(
                    [sys.executable, str(Path(__file__).parent / script), kind, str(folder)],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=shared | own, start_new_session=True,
                )
            )  # fmt: skip

    def is_ready() -> bool:
        for one in ranks:
            assert one.poll() is None, "".join(path.read_text()[-2000:] for path in folder.glob("log.*"))
        return len(list(folder.glob("ready.*"))) >= num_ranks

    try:
        wait_until(is_ready, f"{num_ranks} ranks train")
        yield [one.pid for one in ranks]
    finally:
        for one in ranks:
            end(one)


def tuiadvisor(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "tuiadvisor", *arguments],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip


Document = dict[str, Any]


def diagnosis(pids: list[int], folder: Path, num_steps: int) -> Document:
    """Attach, record, leave, diagnose."""
    recording = str(folder / "run")
    steps = ["--steps", str(num_steps), "--for", RECORD_FOR]
    done = tuiadvisor("record", "--pid", *map(str, pids), "-o", recording, *steps)
    assert done.returncode == 0, done.stderr
    document = _diagnosed(recording)
    assert document is not None
    return document


def diagnosis_once(pids: list[int], folder: Path, is_told: Callable[[Document], bool]) -> Document:
    """As `recorded_until`, of these ranks, into folder/run."""
    recording = folder / "run"
    command = [sys.executable, "-m", "tuiadvisor", "record", "-o", str(recording), "--pid", *map(str, pids)]
    return recorded_until(command, recording, is_told)[0]


def recorded_until(
    command: list[str], recording: Path, is_told: Callable[[Document], bool], **popen: Any
) -> tuple[Document, str]:
    """Record until a diagnosis of what lies in the file by then tells what is meant; that diagnosis, and stderr.

    How many steps that takes is the machine's: beside other tests a core is waited for, and then nobody is named yet.
    command: of the recording, without an end of its own.  is_told: also asserts what no diagnosis on the way may say.
    """
    last: Document = {}
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        **popen,
    ) as recorder:

        def has_told() -> bool:
            assert recorder.poll() is None, recorder.communicate()[1]
            if not recording.exists() or not tells(_diagnosed_here(str(recording))):
                return False
            return tells(_diagnosed(str(recording)))  # what counts is what the command says

        def tells(document: Document | None) -> bool:
            last.update(document or {})
            return document is not None and is_told(document)

        try:
            wait_until(has_told, "what is meant is told", every_s=1.0, seen=lambda: last.get("verdict"))
            recorder.send_signal(signal.SIGINT)
            complaint = recorder.communicate(timeout=PATIENCE_S)[1]
        finally:
            recorder.kill()
    assert recorder.returncode == 0, complaint
    return last, complaint


def is_late(document: Document, rank: int, cause: str) -> bool:
    """Whether the verdict is that this rank is late by this; nobody else may be, but for want of a core."""
    late = {one["rank"]: one["cause"] for one in document["stragglers"]["ranks"]}
    assert {"host"} >= {late[other] for other in late.keys() - {rank}}, document["stragglers"]
    return late == {rank: cause} and document["verdict"]["finding"] == "straggler"


def _diagnosed(recording: str) -> Document | None:
    """None before the first step is in it, which exit code 1 says, and before there is anything, which 2 says."""
    done = tuiadvisor("diagnose", recording, "--json")
    return _document(done.returncode, done.stdout, done.stderr)


def _diagnosed_here(recording: str) -> Document | None:
    """The same in this process: a command's second of imports each time is taken from those that are recorded."""
    written = io.BytesIO()
    said, complaint = io.TextIOWrapper(written, encoding="utf-8", write_through=True), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complaint):
        status = main(["diagnose", recording, "--json"])
    return _document(status, written.getvalue().decode(), complaint.getvalue())


def _document(status: int, said: str, complaint: str) -> Document | None:
    if status in {1, 2}:
        return None
    assert status == 0, complaint
    document: Document = json.loads(said)
    return document
