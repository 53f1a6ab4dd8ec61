"""NCCL's RAS, asked over a real socket: a server that speaks its protocol, with answers in their true shape."""

from __future__ import annotations

import json
import os
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tuiadvisor.agent import nccl_ras
from tuiadvisor.agent.nccl_ras import OTHERS, TOO_OLD, RasAnswer, communicators, told

KINDS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")


def entry(rank: int, **counts: int) -> dict[str, Any]:
    """A rank that answers, as NCCL 2.29 writes it."""
    status = {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False}
    return {
        "rank": rank,
        "host": "10.0.0.7",
        "pid": 4000 + rank,
        "cuda_dev": rank,
        "nvml_dev": rank,
        "status": {**status, "abort_flag": False},
        "collective_counts": {**dict.fromkeys(KINDS, 0), **counts},
    }


def answer(*ranks: dict[str, Any], missing: tuple[int, ...] = ()) -> dict[str, Any]:
    """Of one communicator."""
    status = {"unresponsive": True, "considered_dead": True}
    gone = [
        {
            key: value
            for key, value in (entry(rank) | {"status": status}).items()
            if key != "collective_counts"
        }
        for rank in missing
    ]
    communicator = {
        "hash": "0x1a2b3c4d5e6f7081",
        "secondary_hash": "0x1:0x2",
        "size": len(ranks) + len(missing),
        "ranks_count": len(ranks),
        "missing_ranks_count": len(missing),
        "ranks": list(ranks),
        "missing_ranks": gone,
    }
    return {
        "nccl_version": "2.29.1",
        "cuda_runtime_version": 13000,
        "cuda_driver_version": 13000,
        "timestamp": "2026-11-24 23:00:00",
        "communicators_count": 1,
        "communicators": [communicator],
        "ras": {"collection_time_sec": 0.01, "timeouts_count": 0},
    }


HUNG = answer(entry(0, AllReduce=12), entry(1, AllReduce=11), entry(2, AllReduce=12), entry(3, AllReduce=12))


@contextmanager
def server(*answers: bytes, has_json: bool = True) -> Iterator[tuple[str, int]]:
    """Listens where NCCL would; one answer a connection, the last one again and again."""
    left = list(answers)

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            replies: dict[bytes, Callable[[], bytes]] = {
                b"CLIENT PROTOCOL 2": lambda: b"SERVER PROTOCOL 2\n",
                b"TIMEOUT 3": lambda: b"OK\n",
                b"SET FORMAT json": lambda: b"OK\n" if has_json else b"ERROR: Unknown command\n",
                b"VERBOSE STATUS": lambda: left.pop(0) if len(left) > 1 else left[0],
            }
            for line in self.rfile:
                self.wfile.write(replies[line.strip()]())
                if line.strip() == b"VERBOSE STATUS":
                    return

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        try:
            host, port = listening.server_address[:2]
            yield str(host), int(port)
        finally:
            listening.shutdown()
            thread.join()


def said(*answers: dict[str, Any], pids: tuple[int, ...] = (4000,), **how: bool) -> RasAnswer:
    with server(*(json.dumps(one, indent=2).encode() for one in answers), **how) as address:
        return told(address, pids, 0.0)


def test_a_rank_that_has_launched_fewer_collectives_is_told_with_its_communicator() -> None:
    """Rank 1 never came to the twelfth all-reduce, whatever phase its thread stands in."""
    found = said(HUNG)

    (one,) = found.behind
    assert ((1,), "AllReduce", 12, 3, 4) == (one.ranks, one.kind, one.most, one.num_ahead, one.size)
    assert ["rank 1 of communicator 0x1a2b3c4d5e6f7081 (4 ranks) launched fewer AllReduce"] == [
        words.removeprefix("NCCL: ").partition(" than")[0] for words in found.words()
    ]


def test_ranks_that_do_not_answer_are_told() -> None:
    found = said(answer(entry(0, AllReduce=5), entry(2, AllReduce=5), missing=(1,)))

    assert (("0x1a2b3c4d5e6f7081", 3, (1,)),) == found.silent
    assert () == found.behind


def test_numbers_that_move_name_nobody() -> None:
    """Between two steps of a healthy job ranks differ by what is under way."""
    later = answer(*(entry(rank, AllReduce=13) for rank in range(4)))
    found = said(HUNG, later)

    assert (True, ()) == (found.moved, found.behind)
    assert all("nobody hangs" in words for words in found.words())


def test_equal_numbers_name_nobody() -> None:
    """All have launched it and none leaves: the network or a device, not a rank that has not come."""
    found = said(answer(*(entry(rank, AllReduce=13) for rank in range(4))))

    assert ((), ()) == (found.behind, found.silent)
    assert [
        "NCCL: all ranks have launched the same collectives; nobody is behind by its count"
    ] == found.words()


def test_another_jobs_ras_says_nothing_of_this_one() -> None:
    """The port is the node's: the first job that trains there has it."""
    assert said(HUNG, pids=(77,)).why == OTHERS
    assert [] == said(HUNG, pids=(77,)).words()


def test_an_older_nccl_is_unknown_with_the_reason() -> None:
    assert TOO_OLD in said(HUNG, has_json=False).why


def test_where_nobody_listens_it_is_unknown_with_the_reason() -> None:
    with server(b"") as address:
        pass

    assert "refused" in told(address, (4000,), 0.0).why


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b'{"communicators": 3}',
        b'{"communicators": [{"ranks": [{"rank": -1}, 7, {"rank": "0"}], "size": "x"}, 5]}',
        b'{"communicators": [{"ranks": [{"rank": 0, "pid": true, "collective_counts": {"A": 1.5, "B": -1}}]}]}',
    ],
)
def test_answers_that_cannot_be_are_unknown(raw: bytes) -> None:
    """No error of ours, and no rank."""
    with server(raw) as address:
        found = told(address, (4000,), 0.0)

    assert found.why
    assert () == found.behind


def test_a_process_without_nccl_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever torch lies in this one: another's CUDA build maps NCCL."""
    monkeypatch.setattr(
        nccl_ras.procfs, "read", lambda _pid, name: {"maps": b"7f00 /usr/lib/libc.so.6"}[name]
    )
    assert nccl_ras.ask_ranks([os.getpid()]) is None


def test_where_ras_is_switched_off_or_elsewhere_is_read_from_the_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = {"maps": b"7f00 /usr/lib/libnccl.so.2", "environ": b"A=1\0NCCL_RAS_ENABLE=0\0"}
    monkeypatch.setattr(nccl_ras.procfs, "read", lambda _pid, name: files[name])
    assert nccl_ras.ask_ranks([1]) == RasAnswer(why=nccl_ras.OFF)

    with server(json.dumps(HUNG).encode()) as (host, port):
        files["environ"] = f"NCCL_RAS_ADDR={host}:{port}".encode()
        found = nccl_ras.ask_ranks([4002])
    assert found is not None
    assert [(1,)] == [one.ranks for one in found.behind]


def test_communicators_are_read_whole() -> None:
    (one,) = communicators(json.dumps(HUNG).encode())

    assert {0: 4000, 1: 4001, 2: 4002, 3: 4003} == one.pids
    assert set(KINDS) == set(one.launched[0])
