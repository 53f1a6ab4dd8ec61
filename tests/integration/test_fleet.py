"""Two jobs in one folder on the very commands: each its hub, its keys and its row; no key opens the other one."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import time
import urllib.request
from typing import TYPE_CHECKING

import psutil
import pytest
from patience import PATIENCE_S, complaints
from ports import free_ports
from training import running

from tuiadvisor.stream.keys import Invitation, read_invitation, write_invitation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytest.importorskip("torch")
pytestmark = pytest.mark.slow
COMMAND = (sys.executable, "-m", "tuiadvisor")


def wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not path.exists():
        assert time.monotonic() < deadline_s, path
        assert process.poll() is None
        time.sleep(0.1)


@contextlib.contextmanager
def fleet(
    folder: Path, *jobs: str, viewers: tuple[str, ...] = (), outlets: tuple[str, ...] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """Its hubs are up; ended afterwards whatever happens."""
    words = [word for job in jobs for word in ("--job", job)] + [f"--viewer={name}" for name in viewers]
    words += outlets
    process = subprocess.Popen(
        [*COMMAND, "fleet", str(folder), *words, "--hub-address", "127.0.0.1"], stdout=subprocess.DEVNULL
    )
    try:
        for job in jobs:
            wait_for(folder / job / "viewer", process)
            wait_for(folder / job / "invitation", process)
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def said(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def fleet_jobs(port: int) -> set[str]:
    """Of the figures of a page."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as answer:
        return set(re.findall(r'fleet_job="(\w+)"', answer.read().decode()))


def test_two_jobs_are_two_rows_and_no_key_opens_the_other_one(tmp_path: Path) -> None:
    folder = tmp_path / "fleet"
    port = free_ports(2)
    outlets = (f"--metrics={port}", "--label=team=vision")
    with (
        running(2, "--step-ms", "60", "--seconds", "3000") as (first, _),
        running(3, "--step-ms", "60", "--seconds", "3000") as (second, _),
        fleet(folder, "alpha", "beta", viewers=("alpha:anna", "alpha:ben"), outlets=outlets) as process,
    ):
        agents = [
            subprocess.Popen(
                [
                    *(sys.executable, "-m", "tuiadvisor.agent", "--pid", str(training.pid)),
                    *("--invitation", str(folder / job / "invitation")),
                ]
            )
            for job, training in (("alpha", first), ("beta", second))
        ]
        try:
            for job, file, num_ranks in (("alpha", "viewer-anna", 2), ("beta", "viewer", 3)):
                done = said("watch", "--once", "--for", "200s", "--key", str(folder / job / file))
                assert (0, "") == (done.returncode, complaints(done.stderr))
                assert f"{num_ranks} ranks" in done.stdout
            assert [{"alpha"}, {"beta"}] == [fleet_jobs(port), fleet_jobs(port + 1)]
            # A viewer of alpha who knows where beta's hub is.
            stolen = tmp_path / "stolen"
            keys = [folder / "alpha" / name for name in ("viewer", "viewer-anna", "viewer-ben")]
            assert 3 == len({read_invitation(path).key for path in keys})
            alpha, beta = (read_invitation(path) for path in (keys[1], folder / "beta" / "viewer"))
            write_invitation(stolen, Invitation(beta.url, alpha.key))
            refused = said("watch", "--once", "--for", "2s", "--key", str(stolen))
            assert (1, "") == (refused.returncode, refused.stdout)
            assert "not to this key" in refused.stderr
            listed = said("fleet", str(folder), "--once")
            assert (0, "") == (listed.returncode, complaints(listed.stderr))
            assert listed.stdout.count("live: ") == 2
        finally:
            for agent in agents:
                agent.terminate()
            for agent in agents:
                agent.wait(PATIENCE_S)
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
        listed = said("fleet", str(folder), "--once")
        assert "2 jobs" in listed.stdout
        assert "live: " not in listed.stdout  # the keys went with their hubs
        assert not list(folder.glob("*/viewer*"))
        assert "alpha/" in listed.stdout
        assert "beta/" in listed.stdout
        assert first.poll() is None
        assert second.poll() is None


def test_a_hub_that_is_killed_begins_anew_and_none_outlives_the_fleet(tmp_path: Path) -> None:
    folder = tmp_path / "fleet"
    with fleet(folder, "alpha") as process:
        (hub,) = psutil.Process(process.pid).children()
        before = read_invitation(folder / "alpha" / "invitation")
        family = hub.children(recursive=True)
        hub.kill()
        deadline_s = time.monotonic() + PATIENCE_S
        while len(list((folder / "alpha").glob("*.tuirec"))) < 2 or _key(folder) in (None, before):
            assert time.monotonic() < deadline_s
            time.sleep(0.1)
        assert before.key != read_invitation(folder / "alpha" / "invitation").key
        family += psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert psutil.wait_procs(family, timeout=PATIENCE_S)[1] == []


def _key(folder: Path) -> Invitation | None:
    with contextlib.suppress(Exception):
        return read_invitation(folder / "alpha" / "invitation")
    return None
