"""`tuiadvisor stacks` on ranks that hang: asked inside, and by py-spy where one holds its interpreter in C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S, complaints, wait_until

from tuiadvisor.advisor.assemble.stack_cards import stack_cards
from tuiadvisor.advisor.cluster.stack_looks import StackLooks
from tuiadvisor.agent.discovery import find_ranks
from tuiadvisor.agent.stack_samples import sample_processes
from tuiadvisor.agent.stacks import find_spy
from tuiadvisor.stream.probe_request import StackRequest
from tuiadvisor.views.stack_card import StackCard

torch = pytest.importorskip("torch")
HAS_RECORDER = hasattr(torch._C._distributed_c10d, "_dump_fr_trace_json")  # of Gloo, from torch 2.13 on

# Rank 1 does not come to the third collective; told to by a signal, it holds the interpreter in C as well.
HANGING = """
import ctypes, os, signal, sys, time
import torch.distributed as dist, torch
rank, folder = int(os.environ["RANK"]), sys.argv[1]
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
group = dist.new_group([0, 1])

def hold(*_):
    open(f"{folder}/held", "w").close()
    ctypes.PyDLL(None).sleep(600)

signal.signal(signal.SIGUSR1, hold)

def oversleep():
    open(f"{folder}/asleep", "w").close()
    while True:
        time.sleep(0.1)

for step in range(9):
    if rank == 1 and step == 2:
        oversleep()
    dist.all_reduce(torch.ones(2), group=group)
"""


def stacks(ranks: list[subprocess.Popen[bytes]], *arguments: str) -> dict[str, Any]:
    """The command's document."""
    pids = [str(rank.pid) for rank in ranks]
    done = subprocess.run(
        [sys.executable, "-m", "tuiadvisor", "stacks", *arguments, "--json", "--pid", *pids],
        capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    assert (0, "") == (done.returncode, complaints(done.stderr))
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def where_they_stand(ranks: list[subprocess.Popen[bytes]]) -> StackCard:
    """The card of the hang, rank 1 in question."""
    processes = dict(enumerate(find_ranks([rank.pid for rank in ranks])))
    looks = StackLooks()
    for entry in sample_processes(processes, StackRequest(1, "hang", (1, 0), 1000)):
        looks.take(entry)
    (card,) = stack_cards(looks.newest_first())
    return card


def once_stuck(ranks: list[subprocess.Popen[bytes]]) -> dict[str, Any]:
    """As soon as a hang is seen; the other rank may still be on its way into the collective."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        document = stacks(ranks)
        if document["stuck"]:
            return document
    pytest.fail("no hang is seen")


def once_recorded(ranks: list[subprocess.Popen[bytes]]) -> dict[str, Any]:
    """What the flight recorders say once the calls are old enough to be a hang's."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        recorded: dict[str, Any] = stacks(ranks)["flight_recorders"]
        if recorded["collectives"]:
            return recorded
    pytest.fail("no flight recorder tells of it")


def test_a_hang_is_tied_to_its_collective(tmp_path: Path) -> None:
    """Who waits in which collective, who has not entered it, where its Python is; both ranks run on."""
    script = tmp_path / "train.py"
    script.write_text(HANGING)
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), str(tmp_path)],
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"},
            stderr=subprocess.DEVNULL,
        )
        for rank in range(2)
    ]
    try:
        wait_until((tmp_path / "asleep").exists, "rank 1 stays away from the third collective")
        document = once_stuck(ranks)
        (call,) = document["stuck"]
        assert ([0], [1], [], "all_reduce", 3) == (
            call["waiting"], call["missing"], call["unknown"], call["call"], call["seq"],
        )  # fmt: skip
        assert call["is_certain"]
        waiting, missing = document["ranks"]
        assert ("all_reduce", call["group"]) == (waiting["call"], waiting["call_group"])
        assert any(frame.startswith("oversleep (") for frame in missing["stack"])
        assert missing["call"] is None
        if HAS_RECORDER:
            recorded = once_recorded(ranks)
            assert [1] == recorded["missing"]
            assert recorded["words"].startswith("rank 1 has not entered all_reduce (collective 3 of group ")
        stands = where_they_stand(ranks)
        slept_at = HANGING.splitlines().index("        time.sleep(0.1)") + 1
        assert stands.words == f"rank 1 stands at train.py:{slept_at} in oversleep"
        waits_at = HANGING.splitlines().index("    dist.all_reduce(torch.ones(2), group=group)") + 1
        assert [(1, f"train.py:{slept_at}"), (0, f"train.py:{waits_at}")] == [
            (one.rank, one.place) for one in stands.stands
        ]
        os.kill(ranks[1].pid, signal.SIGUSR1)
        wait_until((tmp_path / "held").exists, "rank 1 ran its handler")
        document = stacks(ranks)
        assert [[1]] == [call["unknown"] for call in document["stuck"]]
        blocked = document["ranks"][1]
        assert "does not answer" in blocked["why"]
        if find_spy() is not None:
            assert any(frame.startswith("oversleep (") for frame in blocked["native"])
        else:
            assert "py-spy is not installed" in document["unknown"][0]["why"]
        assert [None, None] == [rank.poll() for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
