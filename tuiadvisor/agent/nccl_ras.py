"""What NCCL itself says of a job that stands: how many collectives each rank has launched, and who no longer answers.

NCCL's reliability service (RAS, since 2.24) listens on a port of each node that it trains on and answers for the whole
job; as JSON since 2.28.7, which is the only form that is read here. Nothing is put into a rank and none is stopped.
In: the ranks' processes.  Out: their communicators, twice, half a second apart; or why there are none.

A rank counts a collective when its thread has launched it, so one that has launched fewer than its peers has not
entered what they wait in. Numbers that move between the two answers are of no hang, and name nobody.
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from tuiadvisor.agent import procfs
from tuiadvisor.agent.answer_fields import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

DEFAULT_ADDRESS: Final = ("localhost", 28028)
PROTOCOL: Final = b"CLIENT PROTOCOL 2\n"
COLLECT_S: Final = 3  # NCCL waits so long for its peers
ANSWER_S: Final = 6.0
BETWEEN_S: Final = 0.5
MAX_BYTES: Final = 8 << 20
MAX_COMMUNICATORS: Final = 256
MAX_RANKS: Final = 1 << 14
MAX_LINE: Final = 1024
MAX_SAID: Final = 4  # communicators, and kinds of collectives of each
OFF: Final = "NCCL_RAS_ENABLE=0 in the ranks' environment"
TOO_OLD: Final = "this NCCL's RAS speaks no JSON (before 2.28.7)"
OTHERS: Final = "NCCL's RAS on this machine reports on other processes"


@dataclass(frozen=True, slots=True)
class Communicator:
    """A group of ranks, numbered within it."""

    name: str
    size: int
    pids: dict[int, int]  # of the ranks that answer
    launched: dict[int, dict[str, int]]  # rank -> collectives by kind
    silent: tuple[int, ...]  # ranks that do not answer
    dead: tuple[int, ...]  # those of them that are given up


@dataclass(frozen=True, slots=True)
class Behind:
    """A kind of collective that some ranks of a communicator have launched less often than others."""

    communicator: str
    size: int
    kind: str
    most: int
    num_ahead: int
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RasAnswer:
    """why: nothing is known; empty where something is."""

    behind: tuple[Behind, ...] = ()
    silent: tuple[tuple[str, int, tuple[int, ...]], ...] = ()  # (communicator, its size, ranks)
    moved: bool = False
    why: str = ""

    def words(self) -> list[str]:
        """A sentence each."""
        if self.why:
            return []
        if self.moved:
            return ["NCCL: collectives were launched while it was asked, so nobody hangs"]
        said = [
            f"NCCL: {_ranks(one.ranks)} of communicator {one.communicator} ({one.size} ranks) launched fewer "
            f"{one.kind} than {one.num_ahead} other{'s' * (one.num_ahead != 1)}, which launched {one.most}"
            for one in self.behind
        ]
        said += [
            f"NCCL: no answer from {_ranks(ranks)} of communicator {name} ({size} ranks)"
            for name, size, ranks in self.silent
        ]
        return said or ["NCCL: all ranks have launched the same collectives; nobody is behind by its count"]


def ask_ranks(pids: Sequence[int]) -> RasAnswer | None:
    """Of the job that these processes of this machine belong to; None where none of them has NCCL loaded."""
    with_nccl = [pid for pid in pids if b"libnccl" in (procfs.read(pid, "maps") or b"")]
    if not with_nccl:
        return None
    environment = _environment(with_nccl[0])
    if environment.get("NCCL_RAS_ENABLE") == "0":
        return RasAnswer(why=OFF)
    address = _address(environment.get("NCCL_RAS_ADDR", ""))
    return told(address, with_nccl)


def told(address: tuple[str, int], pids: Iterable[int], between_s: float = BETWEEN_S) -> RasAnswer:
    """What it says twice at that address, if it is of these processes."""
    try:
        first = communicators(status(address))
        wanted = set(pids)
        if not any(wanted & set(one.pids.values()) for one in first):
            return RasAnswer(why=OTHERS)
        time.sleep(between_s)
        return standing(first, communicators(status(address)))
    except (OSError, ValueError) as error:
        return RasAnswer(why=f"NCCL's RAS at {address[0]}:{address[1]}: {error}"[:200])


def status(address: tuple[str, int]) -> bytes:
    """One answer, JSON. OSError where nobody listens or answers in time, ValueError where it is not understood."""
    end_s = time.monotonic() + ANSWER_S
    with socket.create_connection(address, timeout=ANSWER_S) as connection:
        _order(connection, PROTOCOL, b"SERVER PROTOCOL ", end_s)
        _order(connection, b"TIMEOUT %d\n" % COLLECT_S, b"OK", end_s)
        try:
            _order(connection, b"SET FORMAT json\n", b"OK", end_s)
        except ValueError as error:
            raise ValueError(TOO_OLD) from error
        connection.sendall(b"VERBOSE STATUS\n")
        found = bytearray()
        while piece := _receive(connection, 1 << 16, end_s):
            found += piece
            if len(found) > MAX_BYTES:
                raise ValueError(f"more than {MAX_BYTES >> 20} MiB")
    return bytes(found)


def _order(connection: socket.socket, line: bytes, wanted: bytes, end_s: float) -> None:
    connection.sendall(line)
    answer = b""
    while not answer.endswith(b"\n"):
        piece = _receive(connection, MAX_LINE, end_s)
        answer += piece
        if not piece or len(answer) > MAX_LINE:
            break
    if not answer.startswith(wanted):
        raise ValueError(f"it answered {answer[:60].decode('ascii', 'replace').strip()!r}")


def _receive(connection: socket.socket, size: int, end_s: float) -> bytes:
    """Within what is left of the time, however slowly it comes."""
    left_s = end_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("no complete answer in time")
    connection.settimeout(left_s)
    return connection.recv(size)


def communicators(raw: bytes) -> list[Communicator]:
    """The believable ones of an answer; ValueError if it is none."""
    document: Any = orjson.loads(raw)
    listed = document.get("communicators") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise ValueError("no communicators in its answer")  # noqa: TRY004 - of a stranger's text, as orjson's error
    return [_communicator(one) for one in listed[:MAX_COMMUNICATORS] if isinstance(one, dict)]


def _communicator(entry: dict[str, Any]) -> Communicator:
    ranks, missing = _by_rank(entry.get("ranks")), _by_rank(entry.get("missing_ranks"))
    return Communicator(
        name=str(entry.get("hash", "?"))[:40],
        size=count(entry.get("size")) or len(ranks) + len(missing),
        pids={rank: pid for rank, one in ranks.items() if (pid := count(one.get("pid"))) is not None},
        launched={rank: _counts(one.get("collective_counts")) for rank, one in ranks.items()},
        silent=tuple(sorted(missing)),
        dead=tuple(
            sorted(rank for rank, one in missing.items() if _status(one).get("considered_dead") is True)
        ),
    )


def _by_rank(listed: object) -> dict[int, dict[str, Any]]:
    entries = [one for one in listed[:MAX_RANKS] if isinstance(one, dict)] if isinstance(listed, list) else []
    return {rank: one for one in entries if (rank := count(one.get("rank"))) is not None}


def _status(entry: dict[str, Any]) -> dict[str, Any]:
    found = entry.get("status")
    return found if isinstance(found, dict) else {}


def _counts(entry: object) -> dict[str, int]:
    if not isinstance(entry, dict):
        return {}
    return {
        str(kind)[:40]: number
        for kind, value in list(entry.items())[:64]
        if (number := count(value)) is not None
    }


def standing(first: Sequence[Communicator], second: Sequence[Communicator]) -> RasAnswer:
    """Who is behind in both answers alike."""
    before = {one.name: one for one in first}
    behind: list[Behind] = []
    silent = []
    for one in second:
        if one.name in before and before[one.name].launched != one.launched:
            return RasAnswer(moved=True)
        behind += _behind(one)
        if one.silent:
            silent.append((one.name, one.size, one.silent))
    behind.sort(key=lambda found: (-found.size, len(found.ranks)))
    return RasAnswer(tuple(behind[:MAX_SAID]), tuple(silent[:MAX_SAID]))


def _behind(one: Communicator) -> list[Behind]:
    """By kind. Broadcasts and the like are launched by all ranks of a communicator, too: any difference counts."""
    found = []
    for kind in sorted({kind for counts in one.launched.values() for kind in counts}):
        counts = {rank: by_kind[kind] for rank, by_kind in one.launched.items() if kind in by_kind}
        most = max(counts.values())
        ranks = tuple(sorted(rank for rank, number in counts.items() if number < most))
        if ranks:
            num_ahead = Counter(counts.values())[most]
            found.append(Behind(one.name, one.size, kind, most, num_ahead, ranks[:MAX_RANKS]))
    return found


def _environment(pid: int) -> dict[str, str]:
    words = (procfs.read(pid, "environ") or b"").split(b"\0")
    pairs = (word.decode("utf-8", "replace").partition("=") for word in words if word.startswith(b"NCCL_"))
    return {name: value for name, _, value in pairs}


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return (
        (host.strip("[]") or DEFAULT_ADDRESS[0], int(port))
        if port.isdecimal() and int(port) < 1 << 16
        else DEFAULT_ADDRESS
    )


def _ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
    return ("rank " if len(ranks) == 1 else "ranks ") + shown
