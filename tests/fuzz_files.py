"""Targets of tests/fuzz.py that people, other tools and other machines write: tables, settings, keys, requests.

In: a folder to write into.  Out: Targets.
"""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
from typing import TYPE_CHECKING, Any

import orjson
import scaling_tables as scaling
import test_import_chakra as chakra
import test_import_communication_logs as logs
import test_import_flight_recorder as dumps
import test_import_nsys as nsys
import test_import_rocprof as rocprof
import test_import_steplog as steplogs
import zstandard
from fuzz_target import CSV_ODD, Target, from_file, hurt_json, with_odd
from fuzzing import TOML_ODD, damaged

from tuiadvisor.app.bookmarks import bookmarks
from tuiadvisor.app.preferences_file import read as read_preferences
from tuiadvisor.importers.chakra import chakra_document, chakra_summary
from tuiadvisor.importers.flight_recorder import read_dump
from tuiadvisor.importers.hangreport import hang_document, hang_summary
from tuiadvisor.importers.kineto import read_trace
from tuiadvisor.importers.kinetoreport import kineto_document, kineto_summary
from tuiadvisor.importers.memory_timeline import memory_document, memory_summary
from tuiadvisor.importers.nsysreport import nsys_document, nsys_summary
from tuiadvisor.importers.rocprofreport import rocprof_document, rocprof_summary
from tuiadvisor.importers.steplog import steplog_document, steplog_summary
from tuiadvisor.preferences import Preferences, toml
from tuiadvisor.scaling.table import read_table
from tuiadvisor.session.intent import Intent, read_intent, write_intent
from tuiadvisor.session.machine import read_machine
from tuiadvisor.stream.keys import Invitation, make_session_keys, parse_invitation, read_hub_keys
from tuiadvisor.stream.probe_request import ProbeRequest, parse_probe_request
from tuiadvisor.stream.shapes import FrameError
from tuiadvisor.stream.wire import Reply, Request, check_endpoint, unpack_reply, unpack_request

if TYPE_CHECKING:
    import random
    from pathlib import Path

# Opcodes that make, share and call things, a long length, an early end.
PICKLE_ODD: tuple[bytes, ...] = (
    b"(",
    b"]",
    b"}",
    b"t",
    b"e",
    b"u",
    b"h\0",
    b"j\0\0\0\0",
    b"q\0",
    b"\x94",
    b"\x86" * 90,
    b".",
    b"R",
    b"cos\n",
)
PICKLE_ODD += (
    b"X\xff\xff\xff\xff",
    b"\x8a\xff",
    b"\x8b\xff\xff\xff\x7f",
    b"h\0h\0\x86\x94",
    b"G" + b"\xff" * 8,
    b"\x95",
)
LINE_BREAKS = (b"\r", b"\x0b", b"\xe2\x80\xa8", b"\x1b[2J", b"\xc2\x85", b"\n\n", b'"""', b"'", b"=", b"[")
SETTINGS_ODD = (*TOML_ODD, *LINE_BREAKS, b"9" * 5000, b"[" * 3000, b"0x" + b"f" * 3000, b"nan", b"inf", b"-1")
TABLE_ODD = (*CSV_ODD, *LINE_BREAKS, b"1e-300", b"1_000", b"devices", b"tp8 dp4", b"\t", b";", b"#")
ADDRESSES = (
    b"tcp://127.0.0.1:5555",
    b"ipc:///run/user/0/tuiadvisor/hub",
    b"tcp://[::1]:1",
    b"tcp://node-1.example:9",
)
ADDRESS_ODD = (
    b"*",
    b":",
    b"//",
    b"\n",
    b"\0",
    b"\xff",
    b"@",
    b"[",
    b"]",
    b"x" * 300,
    b"ipc://",
    b"tcp://",
    b"99999",
)


def file_targets(folder: Path) -> list[Target]:
    """Each with the name of what it is, not of the function that reads it."""
    keys = make_session_keys()
    invitations = [Invitation("tcp://10.0.0.1:5555", keys.agent), Invitation("ipc:///tmp/hub")]
    requests = [ProbeRequest(50, 3000, frozenset({0, 3})).line(), ProbeRequest().line()]
    ceilings = [
        {"kind": "nccl-tests", "num_ranks": 4, "num_hosts": 1, "rows": [{"bytes": 8, "time_s": 1e-5}]}
    ]
    ceilings.append({"kind": "fio", "read_bytes_s": 1e9, "write_bytes_s": None, "is_direct": True})
    machine = json.dumps({"schema": 1, "ceilings": ceilings}).encode()
    marks = json.dumps([{"step": 7, "note": "slow"}, {"step": 9, "note": ""}]).encode()
    tables = [scaling.csv_of(published).encode() for published in (*scaling.CHECKED, *scaling.FURTHER)]
    trace = gzip.compress(
        orjson.dumps(
            {"traceEvents": [{"ph": "X", "cat": "kernel", "name": "gemm", "ts": 5.5, "dur": 1}] * 20}
        ),
        1,
    )
    return [
        Target("requests", _messages(), damaged, read_messages, (FrameError,)),
        Target(
            "addresses",
            ADDRESSES,
            with_odd(ADDRESS_ODD),
            lambda data: check_endpoint(_text(data), has_key=True),
        ),
        Target(
            "invitations",
            [orjson.dumps(one.document()) for one in invitations],
            hurt_json,
            lambda data: parse_invitation(data, "FILE"),
        ),
        Target(
            "hub keys",
            [orjson.dumps(keys.hub.document())],
            hurt_json,
            lambda data: read_hub_keys(io.BytesIO(data)),
        ),
        Target("requests", requests, hurt_json, read_request),
        Target(
            "scaling tables",
            tables,
            with_odd(TABLE_ODD),
            from_file(folder / "t.csv", lambda p: read_table(str(p))),
        ),
        Target(
            "intent",
            [_intent(folder)],
            with_odd(SETTINGS_ODD),
            from_file(folder / "intent.toml", read_intent),
        ),
        Target(
            "preferences",
            [toml(Preferences()).encode()],
            with_odd(SETTINGS_ODD),
            from_file(folder / "preferences.toml", read_preferences),
        ),
        Target("ceilings", [machine], hurt_json, from_file(folder / "machine.json", read_machine)),
        Target(
            "bookmarks",
            [marks],
            hurt_json,
            from_file(folder / "run.bookmarks.json", lambda _: bookmarks(str(folder / "run.tuirec"))),
        ),
        Target(
            "kineto, zstd",
            [zstandard.compress(gzip.decompress(trace))],
            damaged,
            from_file(folder / "rank3.json.zst", read_trace),
        ),
        Target(
            "nsys",
            [nsys.export(folder / "good.sqlite", num_steps=3).read_bytes()],
            damaged,
            from_file(folder / "hurt.sqlite", lambda path: nsys_summary(nsys_document(path))),
        ),
        Target(
            "rocprof",
            [(rocprof.traces(folder / "rocprof", 1, 3) / "rank0_kernel_trace.csv").read_bytes()],
            damaged,
            from_file(
                folder / "hurt_kernel_trace.csv",
                lambda path: rocprof_summary(rocprof_document(path)),
            ),
        ),
        Target(
            "rocpd",
            [rocprof.database(folder / "good.db", num_steps=3).read_bytes()],
            damaged,
            from_file(folder / "hurt.db", lambda path: rocprof_summary(rocprof_document(path))),
        ),
        *(
            Target(
                kind,
                [content.encode()],
                with_odd(TABLE_ODD)
                if kind == "deepspeed"
                else damaged
                if kind == "nccl-inspector"
                else hurt_json,
                from_file(folder / name, read),
            )
            for kind, (read, name, content) in logs.READERS.items()
        ),
        Target(
            "nccl-inspector, values",
            [logs.call(0, 1, 100).encode()],
            hurt_json,
            from_file(folder / "one.json", logs.READERS["nccl-inspector"][0]),
        ),
        Target(
            "chakra",
            [json.dumps(chakra.execution_trace()).encode()],
            hurt_json,
            from_file(
                _own(folder / "chakra") / "et.json", lambda path: chakra_summary(chakra_document(path))
            ),
        ),
        Target(
            "chakra, linked",
            [chakra.linked(*chakra.ROWS)],
            damaged,
            from_file(_own(folder / "linked") / "0.et", lambda path: chakra_summary(chakra_document(path))),
        ),
        Target(
            "memory, raw",
            [b"[[-1,1,1000,0],[2000000000,2,500,4],[2500000000,3,-500,4],[2500000000,3,500,5]]"],
            hurt_json,
            from_file(folder / "memory.raw.json", lambda path: memory_summary(memory_document(path))),
        ),
        Target(
            "kineto, begins and ends",
            [json.dumps({"traceEvents": halves}).encode() for halves in _halves()],
            hurt_json,
            from_file(folder / "rank4.json", lambda path: kineto_summary(kineto_document(path))),
        ),
        Target(
            "kineto, wide",
            [gzip.decompress(trace).decode().encode("utf-16")],
            damaged,
            from_file(folder / "rank5.json", read_trace),
        ),
        Target(
            "mllog",
            [steplogs.mlperf(folder, tracked=tracked).read_bytes() for tracked in (True, False)],
            damaged,
            from_file(folder / "result.txt", lambda path: steplog_summary(steplog_document(path))),
        ),
        Target("kineto, gzip", [trace], damaged, from_file(folder / "rank3.json.gz", read_trace)),
        hang_target(folder / "hang"),
        *pickled_targets(folder / "pickled"),
    ]


def _halves() -> list[list[dict[str, Any]]]:
    """Ranges within each other on two threads; in order, and with the ends first."""
    begins = [
        {"ph": "B", "cat": "kernel", "name": "gemm", "pid": 0, "tid": tid, "ts": ts}
        for tid, ts in ((7, 0), (7, 4), (9, 2))
    ]
    ends = [{"ph": "E", "pid": 0, "tid": tid, "ts": ts} for tid, ts in ((7, 6), (7, 11), (9, 12.5))]
    return [begins + ends, ends + begins]


def _own(folder: Path) -> Path:
    """A folder of one target's own: what lies beside its file is read, too."""
    folder.mkdir(exist_ok=True)
    return folder


def hurt_pickle(good: bytes, chance: random.Random) -> bytes:
    """Bytes of it with odd opcodes, or a pickle still whose values are replaced, left out or doubled."""
    if chance.random() < 0.5:
        return damaged(good, chance, PICKLE_ODD)
    try:
        content = orjson.loads(hurt_json(orjson.dumps(pickle.loads(good)), chance))  # noqa: S301 - of this repository
    except orjson.JSONDecodeError:
        return damaged(good, chance)
    return pickle.dumps(content, chance.randrange(2, 6))


def pickled_targets(folder: Path) -> list[Target]:
    """NCCL's dumps, alone, and the late rank's among those of all: no healthy rank is named for it."""
    folder.mkdir()
    good = [path.read_bytes() for path in sorted(dumps.RECORDED.iterdir())]
    hung = dumps.pickled(dumps.stuck(folder), folder / "pickled")
    path = hung / "nccl_trace_rank_3"

    def read(file: Path) -> object:
        document = hang_document(file.parent)
        assert {3} >= set(document["hang"]["missing_ranks"])
        return hang_summary(document)

    return [
        Target("flight-recorder, pickled", good, hurt_pickle, from_file(folder / "rank_1", read_dump)),
        Target("hang, pickled", [path.read_bytes()], hurt_pickle, from_file(path, read)),
    ]


def hang_target(folder: Path) -> Target:
    """The late rank's dump among those of all: no healthy rank is named for it."""
    folder.mkdir()
    path = dumps.stuck(folder) / "rank03.json"

    def read(file: Path) -> object:
        document = hang_document(file.parent)
        assert {3} >= set(document["hang"]["missing_ranks"])
        return hang_summary(document)

    return Target("hang", [path.read_bytes()], hurt_json, from_file(path, read))


def _text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")


def _intent(folder: Path) -> bytes:
    """One that states something of each kind."""
    path = folder / "good-intent.toml"
    write_intent(
        path, Intent(objective="cost", deadline_h=12.0, budget=100.0, workload="a model", currency="EUR")
    )
    return path.read_bytes()


def _messages() -> list[bytes]:
    """A request, and a reply's three parts behind their lengths."""
    reply = Reply(1, 2, 16, 4096, False, b"TUIF" * 10, "a note").pack()
    lengths = struct.pack("<III", *map(len, reply))
    return [
        struct.pack("<III", len(packed := Request(1, 2, 16, 1 << 20).pack()), 0, 0) + packed,
        lengths + b"".join(reply),
    ]


def read_messages(data: bytes) -> object:
    """As the parts that the lengths say; either message."""
    lengths = [length & 4095 for length in struct.unpack("<III", data[:12].ljust(12, b"\0"))]
    body, parts = data[12:], []
    for length in lengths:
        parts.append(body[:length])
        body = body[length:]
    given = [part for part in parts if part]
    if len(given) == 1:
        request = unpack_request(given)
        assert 0 <= request.offset < 1 << 62
        return request
    reply = unpack_reply(parts)
    assert reply.note.isprintable()
    assert reply.end >= reply.offset
    return reply


def read_request(data: bytes) -> object:
    """None, or one within its bounds."""
    request = parse_probe_request(data)
    assert request is None or request.burst_ms is None or 0 < request.burst_ms <= 600_000
    return request
