"""The frame codec: what goes in comes out, and nothing but FrameError comes out of a stranger's bytes."""

from __future__ import annotations

import base64
import zlib

import numpy as np
import orjson
import pytest
import zstandard
from fuzzing import num_inputs
from hypothesis import given, settings
from hypothesis import strategies as st

from tuiadvisor.events import EVENT_COLUMNS, STEP_COLUMNS, STEP_NAMES, UNKNOWN
from tuiadvisor.stream.dictionary import DICTIONARY_1
from tuiadvisor.stream.frames import (
    HEADER,
    HEADER_BYTES,
    MAX_ROWS,
    Frame,
    FrameError,
    FrameKind,
    decode,
    encode,
    pack_columns,
    peek,
    split,
    unpack_columns,
)

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)

FRAME_OF_VERSION_1 = (
    "54554946cc9763c10103030b690000000300000000000000fbffffffffffffff6e6f6465312f34322f393928b52ffd600100a5020024023841"
    "453d4177412d31383976636648787744487838633d31343d5d2c5b5d5d7d7d7d1100272511c4e50f0c3c06386c5ea913e70d245b1c803f1798"
    "ca00c4050126966d0802c24531941a21da01bec3030183"
)


def seal(body: bytes, kind: int = FrameKind.STEPS, flags: int = 0, source: bytes = b"h/1/2") -> bytes:
    """A frame with a right checksum around any body: what an attacker can send who knows the format."""
    fields = (1, kind, flags, len(source), len(source) + len(body), 7, 9)
    crc = zlib.crc32(HEADER.pack(b"TUIF", 0, *fields)[8:] + source + body)
    return HEADER.pack(b"TUIF", crc, *fields) + source + body


def step_row(rank: int, step: int, begin_ns: int) -> tuple[int, ...]:
    values = dict.fromkeys(STEP_COLUMNS, UNKNOWN) | {
        "step": step,
        "begin_ns": begin_ns,
        "end_ns": begin_ns + 21_000_000 + step * 977 % 5_000,
        "forward_ns": 6_000_000 + step * 7_919 % 100_000,
        "arrive_ns": begin_ns + 15_000_000 + rank * 31,
        "release_ns": begin_ns + 18_000_000 + step * 13 % 700,
        "flags": 64 if step % 20 == 0 else 0,
    }
    return (rank, *values.values())


def test_a_frame_comes_back_as_it_was_sent() -> None:
    """Kind, source, sequence, time and payload survive, compressed or not."""
    for reason in ("done", "done " * 400):
        data = encode(FrameKind.BYE, "node1/42/99", 5, -3, {"reason": reason})
        assert decode(data) == Frame(FrameKind.BYE, "node1/42/99", 5, -3, {"reason": reason})
        assert peek(data).seq == 5
    assert len(data) < 200


def test_every_flipped_bit_is_noticed() -> None:
    """No single flipped bit anywhere in a frame passes for a good frame."""
    data = encode(FrameKind.GAP, "hub", 0, 1, {"what": "silent", "source": "a", "num_frames": None})
    for position in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[position // 8] ^= 1 << position % 8
        with pytest.raises(FrameError):
            peek(bytes(damaged))


def test_every_cut_is_noticed() -> None:
    """A frame cut anywhere is an error for decode and simply not there for split."""
    data = encode(FrameKind.BYE, "a/1/1", 0, 1, {"reason": "x"})
    for length in range(len(data)):
        with pytest.raises(FrameError):
            decode(data[:length])
        assert [data] == list(split(data + data[:length]))


def test_split_refuses_what_is_no_frame() -> None:
    """Foreign bytes after a good frame are an error, not a silent end."""
    data = encode(FrameKind.BYE, "a/1/1", 0, 1, {})
    frames = split(data + b"x" * HEADER_BYTES)
    assert data == next(frames)
    with pytest.raises(FrameError, match="do not begin a frame"):
        next(frames)


@given(st.binary(max_size=300))
def test_random_bytes_raise_frame_error_only(data: bytes) -> None:
    """Whatever arrives, decode answers FrameError."""
    with pytest.raises(FrameError):
        decode(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 63) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["rows", "columns", "rank", "ranks", "w", "lo", "p", "d", "at", "after", "gpus", "a"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=15,
)


@pytest.mark.slow
@settings(max_examples=num_inputs(300))
@given(st.integers(0, 9), st.integers(0, 1), st.binary(max_size=60) | JSON)
def test_a_right_checksum_buys_nothing(kind: int, flags: int, body: object) -> None:
    """Hostile payloads behind a valid header and CRC: a Frame of checked types, or FrameError."""
    data = body if isinstance(body, bytes) else zstandard.compress(_json(body)) if flags else _json(body)
    try:
        frame = decode(seal(data, kind, flags))
        unpack_columns(frame.payload, STEP_NAMES)
    except FrameError:
        return
    assert isinstance(frame.payload, dict)


def _json(value: object) -> bytes:
    try:
        return orjson.dumps(value)
    except (TypeError, orjson.JSONEncodeError):
        return repr(value).encode()


COLUMN = st.one_of(
    INT64,
    st.lists(st.integers(0, 9), min_size=3, max_size=3),
    st.fixed_dictionaries(
        {"w": st.integers(0, 2), "lo": INT64, "p": st.sampled_from(["AAAA", "AQID", "AAAAAAAA", "A", ""])},
        optional={
            "d": INT64,
            "at": st.lists(st.lists(st.sampled_from("abc"), max_size=2), max_size=3),
            "after": st.sampled_from("abc"),
        },
    ),
)


@pytest.mark.slow
@settings(max_examples=num_inputs(500))
@given(st.dictionaries(st.sampled_from("abc"), COLUMN, max_size=3))
def test_hostile_columns_raise_frame_error_only(columns: dict[str, object]) -> None:
    """References in circles, to nowhere, wrong widths: FrameError or three values a column, never a hang."""
    try:
        values = unpack_columns({"rows": 3, "columns": columns}, "abc")
    except FrameError:
        return
    assert {"a": 3, "b": 3, "c": 3} == {name: len(column) for name, column in values.items()}


def test_columns_in_a_circle_are_refused() -> None:
    """Two columns that refer to each other are named, not followed."""
    plane = {"w": 1, "lo": 0, "p": "AQID"}
    columns = {"a": {**plane, "at": [["b"], []]}, "b": {**plane, "at": [["a"], []]}}
    with pytest.raises(FrameError, match="defined by itself"):
        unpack_columns({"rows": 3, "columns": columns}, "ab")


def test_columns_that_lead_far_away_are_refused() -> None:
    """A chain of references as long as a frame may have is one line, no exhausted stack."""
    plane = {"w": 1, "lo": 0, "p": "AQID"}
    chain: dict[str, object] = {f"c{i}": {**plane, "at": [[f"c{i + 1}"], []]} for i in range(255)}
    with pytest.raises(FrameError, match="references away"):
        unpack_columns({"rows": 3, "columns": {**chain, "c255": plane}}, ("c0",))


def test_columns_that_unfold_to_too_much_are_refused() -> None:
    """Each column is within its bounds, and two hundred of them are not taken for the sake of one."""
    constants: dict[str, object] = {f"c{i}": i for i in range(200)}
    wide = {"w": 1, "lo": 0, "p": base64.b64encode(bytes(MAX_ROWS)).decode()}
    groups = {f"g{i}": {**wide, "at": [[f"c{16 * i + j}" for j in range(16)], []]} for i in range(12)}
    top = {**wide, "at": [list(groups), []]}
    with pytest.raises(FrameError, match="values"):
        unpack_columns({"rows": MAX_ROWS, "columns": {**constants, **groups, "rank": top}}, ("rank",))


def test_a_strangers_column_name_is_not_repeated() -> None:
    """It may hold an escape sequence, and an error is shown on a terminal."""
    odd = "\x1b[2J"
    columns = {"rank": {"w": 1, "lo": 0, "p": "AQID", "at": [[odd], []]}, odd: "no column"}
    with pytest.raises(FrameError) as refusal:
        unpack_columns({"rows": 3, "columns": columns}, ("rank",))
    assert str(refusal.value).isprintable()


def test_a_bomb_is_refused_before_it_unfolds() -> None:
    """A small frame that unfolds to more than the bound, or to millions of objects, is refused."""
    zeros = zstandard.compress(b" " * (65 << 20))
    with pytest.raises(FrameError, match="exceeds"):
        decode(seal(zeros, flags=1))
    many = zstandard.compress(b'{"rows":0,"columns":{},"x":[' + b"{}," * 2_100_000 + b"{}]}")
    with pytest.raises(FrameError, match="values exceeds"):
        decode(seal(many, flags=1))


def test_row_counts_beyond_the_bound_are_refused() -> None:
    """A row count alone cannot make the reader reserve memory."""
    with pytest.raises(FrameError, match="row count"):
        unpack_columns({"rows": MAX_ROWS + 1, "columns": {"rank": 0}}, ("rank",))
    with pytest.raises(FrameError, match="row count"):
        unpack_columns({"rows": True, "columns": {"rank": 0}}, ("rank",))


@pytest.mark.slow
@given(st.lists(st.tuples(*[INT64] * 5), max_size=30))
def test_any_integers_survive_packing(rows: list[tuple[int, ...]]) -> None:
    """All of int64 comes back, through the JSON text, for columns that refer to each other."""
    names = ("begin_ns", "end_ns", "arrive_ns", "release_ns", "rank")
    payload = orjson.loads(orjson.dumps(pack_columns(rows, names)))
    columns = unpack_columns(payload, names)
    assert rows == list(zip(*(columns[name].tolist() for name in names), strict=True))


def test_step_rows_survive_a_frame() -> None:
    """Real-shaped rows of several ranks come back, UNKNOWN included, as int64."""
    rows = [
        step_row(rank, step, 10**15 + step * 21_002_000 + rank) for rank in range(4) for step in range(50)
    ]
    data = encode(FrameKind.STEPS, "h/1/2", 0, 1, pack_columns(rows, STEP_NAMES))
    columns = unpack_columns(decode(data).payload, STEP_NAMES)
    assert np.array_equal(np.array(rows), np.column_stack([columns[name] for name in STEP_NAMES]))
    assert {np.dtype(np.int64)} == {column.dtype for column in columns.values()}


def test_columns_may_come_and_go_between_versions() -> None:
    """A column the writer did not know reads as UNKNOWN; one the reader does not know is ignored."""
    payload = pack_columns([(1, 2, 3), (4, 5, 6)], ("rank", "kind", "novel"))
    columns = unpack_columns(payload, ("rank", "kind", *EVENT_COLUMNS))
    assert [1, 4] == columns["rank"].tolist()
    assert [UNKNOWN, UNKNOWN] == columns["seq"].tolist()
    assert "novel" not in columns


def test_wrong_types_are_named() -> None:
    """A known field of the wrong type is refused with its place; null and unknown keys pass."""
    with pytest.raises(FrameError, match=r"HELLO\.ranks\.world_size"):
        decode(encode(FrameKind.HELLO, "h/1/2", 0, 1, {"ranks": [{"rank": 0, "world_size": "4"}]}))
    ranks: list[object] = [{"rank": 0, "world_size": None, "novel": [{}]}]
    frame = decode(encode(FrameKind.HELLO, "h/1/2", 0, 1, {"ranks": ranks, "novel": 1}))
    assert ranks == frame.payload["ranks"]


def test_the_sender_hears_of_its_own_mistakes() -> None:
    """Encoding what no reader would take is a ValueError at the sender."""
    with pytest.raises(ValueError, match="printable"):
        encode(FrameKind.BYE, "a\x1b[2J", 0, 1, {})
    with pytest.raises(ValueError, match="printable"):
        encode(FrameKind.BYE, "a" * 201, 0, 1, {})
    with pytest.raises(ValueError, match="do not match"):
        pack_columns([(1, 2)], ("rank",))
    with pytest.raises(ValueError, match="several frames"):
        pack_columns([(0,)] * (MAX_ROWS + 1), ("rank",))


def test_a_rank_step_stays_small() -> None:
    """At most 30 bytes a rank-step for 16 noisy columns in a frame of 200 rows."""
    noise = np.random.default_rng(0)
    rows = []
    for rank in range(4):
        begin = 10**15
        for step in range(50):
            parts = [int(noise.normal(mean, mean / 20)) for mean in (2e6, 6e6, 8e6, 3e6, 1e6, 1e5)]
            arrive = begin + sum(parts[:3]) + int(noise.integers(40_000))
            values = dict.fromkeys(STEP_COLUMNS, UNKNOWN) | {
                "step": step,
                "begin_ns": begin,
                "end_ns": begin + sum(parts),
                "data_wait_ns": parts[0],
                "forward_ns": parts[1],
                "backward_ns": parts[2],
                "comm_exposed_ns": parts[3],
                "optimizer_ns": parts[4],
                "other_ns": parts[5],
                "arrive_ns": arrive,
                "release_ns": arrive + parts[3],
                "group_seq": 3 * step,
                "num_collectives": 3,
                "comm_bytes": 1 << 25,
                "observed": 511,
            }
            rows.append((rank, *values.values()))
            begin += sum(parts) + int(noise.integers(100, 400))
    data = encode(FrameKind.STEPS, "node17/12345/987654321", 0, 1, pack_columns(rows, STEP_NAMES))
    assert len(data) <= 30 * len(rows)


def test_version_1_stays_readable() -> None:
    """A frame written by the first release decodes to what it said then; its dictionary has not changed by a byte."""
    assert 502346601 == zlib.crc32(DICTIONARY_1.as_bytes())
    frame = decode(bytes.fromhex(FRAME_OF_VERSION_1))
    assert (FrameKind.STEPS, "node1/42/99", 3, -5) == (frame.kind, frame.source, frame.seq, frame.time_ns)
    names = ("rank", "step", "begin_ns", "end_ns")
    columns = unpack_columns(frame.payload, names)
    expected = [
        (rank, step, 100 + step * 50 + rank, 140 + step * 50 + rank) for rank in (0, 1) for step in range(4)
    ]
    assert expected == list(zip(*(columns[name].tolist() for name in names), strict=True))
