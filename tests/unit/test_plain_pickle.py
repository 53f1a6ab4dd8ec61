"""Plain data is read from pickles as it was put in; everything else is refused before anything is made."""

from __future__ import annotations

import ast
import collections
import copyreg
import datetime as dt
import functools
import io
import math
import pickle
import pickletools
import random
import struct
import time
from pathlib import Path
from typing import Any, Self

import pytest
from fuzzing import damaged
from hypothesis import given, settings
from hypothesis import strategies as st
from thinned import num_examples

from tuiadvisor.importers import plain_pickle
from tuiadvisor.importers.plain_pickle import MAX_DEPTH, PlainPickleError, plain

RECORDED = Path(__file__).parents[1] / "recordings" / "nccl_trace"
INTS = st.integers(-(2**400), 2**400)
TEXTS = st.text(max_size=300)
LEAVES = st.none() | st.booleans() | INTS | st.floats(allow_nan=False) | TEXTS | st.binary(max_size=300)
PLAIN = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner) | st.lists(inner, max_size=5).map(tuple) | st.dictionaries(st.text(max_size=9), inner)
    ),
    max_leaves=40,
)


class Trap:
    """An object that says it was made of a call."""

    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call


class Kept:
    """An object with a state."""

    def __init__(self) -> None:
        self.a = 1


class Slotted(Kept):
    """Made with an argument by name."""

    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, int]]:
        return (), {"x": 1}

    def __new__(cls, **_: int) -> Self:
        return super().__new__(cls)


class Elsewhere(pickle.Pickler):
    """Says of sets that they are kept elsewhere."""

    def persistent_id(self, obj: Any) -> str | None:
        return "the id" if isinstance(obj, set) else None


def refusal(data: bytes) -> str:
    """Its one line."""
    with pytest.raises(PlainPickleError) as caught:
        plain(data)
    said = str(caught.value)
    assert said
    assert "\n" not in said
    return said


@pytest.mark.slow
@given(PLAIN, st.integers(2, 5), st.booleans())
def test_what_was_put_in_comes_out(value: Any, protocol: int, is_optimized: bool) -> None:
    """The same values of the same kinds, of each protocol; protocol 2 calls a codec for bytes, which is refused."""
    data = pickle.dumps(value, protocol)
    data = pickletools.optimize(data) if is_optimized else data
    if protocol == 2 and any(opcode.name == "GLOBAL" for opcode, _, _ in pickletools.genops(data)):
        assert "GLOBAL" in refusal(data)
    else:
        assert repr(value) == repr(plain(data))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_what_is_used_often_is_one_object(protocol: int) -> None:
    """Lists, dicts and tuples; more of them and longer text than one byte counts."""
    shared: Any = {
        "name": ["é" * 300, (1, 2), (1, 2, 3), (1,), (), (1, 2, 3, 4), 2**2000, -1, 255, 65536, 1e300]
    }
    many = [{f"key {number}": number, "shared": shared} for number in range(2000)]
    found = plain(pickle.dumps(many, protocol))
    assert many == found
    assert found[0]["shared"] is found[1999]["shared"]
    assert math.isnan(plain(pickle.dumps(math.nan, protocol)))


def test_pytorchs_own_are_read_as_python_reads_them() -> None:
    """Two of NCCL's, cut: frames that several calls share are one dict there."""
    for rank in (0, 1):
        data = (RECORDED / f"nccl_trace_rank_{rank}").read_bytes()
        assert pickle.loads(data) == plain(data)  # noqa: S301 - a file of this repository


def elsewhere() -> bytes:
    file = io.BytesIO()
    Elsewhere(file, 4).dump({1})
    return file.getvalue()


def extension(code: int) -> bytes:
    copyreg.add_extension("collections", "OrderedDict", code)
    try:
        return pickle.dumps(collections.OrderedDict, 2)
    finally:
        copyreg.remove_extension("collections", "OrderedDict", code)


def recursive_tuple() -> bytes:
    inner: list[Any] = []
    inner.append((inner,))
    return pickle.dumps(inner[0], 4)


FORBIDDEN: dict[str, Any] = {
    "GLOBAL": lambda: pickle.dumps(len, 2),
    "STACK_GLOBAL": lambda: pickle.dumps(len, 4),
    "REDUCE": lambda: b"\x80\x02)R.",
    "BUILD": lambda: b"\x80\x02}}b.",
    "INST": lambda: b"\x80\x02(ios\nsystem\n.",
    "OBJ": lambda: b"\x80\x02(o.",
    "NEWOBJ": lambda: b"\x80\x02))\x81.",
    "NEWOBJ_EX": lambda: b"\x80\x04))}\x92.",
    "EXT1": lambda: extension(7),
    "EXT2": lambda: extension(777),
    "EXT4": lambda: extension(77777),
    "PERSID": lambda: b"\x80\x02Pthe id\n.",
    "BINPERSID": elsewhere,
    "NEXT_BUFFER": lambda: pickle.dumps(pickle.PickleBuffer(bytearray(9)), 5, buffer_callback=[].append),
    "READONLY_BUFFER": lambda: pickle.dumps(pickle.PickleBuffer(b"x"), 5, buffer_callback=[].append),
    "BYTEARRAY8": lambda: pickle.dumps(bytearray(9), 5),
    "EMPTY_SET": lambda: pickle.dumps({1}, 4),
    "FROZENSET": lambda: pickle.dumps(frozenset({1}), 4),
    "POP": recursive_tuple,
    "POP_MARK": lambda: b"\x80\x02(1.",
    "DUP": lambda: b"\x80\x02N2.",
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_each_opcode_of_more_than_plain_data_is_refused_by_its_name(name: str) -> None:
    """Made by Python's own pickler where it makes them."""
    data = FORBIDDEN[name]()
    assert name in {opcode.name for opcode, _, _ in pickletools.genops(data)}
    assert "something else than plain data" in refusal(data)


def test_no_other_opcode_is_taken() -> None:
    """Of all that there are, behind a list so that none lacks its operands."""
    taken = set()
    for opcode in pickletools.opcodes:
        code = opcode.code.encode("latin-1")
        if code in plain_pickle.FIXED or code in plain_pickle.COUNTED:
            taken.add(opcode.name)
        else:
            assert "something else than plain data" in refusal(b"\x80\x05](" + code + b"\x01" * 40)
    makers = {"NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT"}
    makers |= {"BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"}
    makers |= {"EMPTY_LIST", "APPEND", "APPENDS", "EMPTY_DICT", "SETITEM", "SETITEMS"}
    makers |= {"EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"}
    keepers = {"MARK", "STOP", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET"}
    assert makers | keepers == taken


OBJECTS = {
    "an instance": Kept(),
    "with arguments by name": Slotted(),
    "a date": dt.date(2026, 1, 1),
    "a default": collections.defaultdict(list),
    "a function": len,
    "a partial": functools.partial(print),
    "a class": Kept,
    "a complex number": 1j,
    "a set": {1},
    "within": {"entries": [{"a": Kept()}]},
}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("name", OBJECTS)
def test_objects_are_refused(name: str, protocol: int) -> None:
    """As Python's pickler writes them."""
    assert "something else than plain data" in refusal(pickle.dumps(OBJECTS[name], protocol))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_nothing_that_a_file_says_runs(tmp_path: Path, protocol: int) -> None:
    """However late in it."""
    sprung = tmp_path / "sprung"
    trap = Trap(Path.write_text, (sprung, "x"))
    data = pickle.dumps({"entries": [*range(1000), trap]}, protocol)
    assert "GLOBAL" in refusal(data)
    assert not sprung.exists()
    pickle.loads(data)  # noqa: S301 - our own bytes: the trap works
    assert sprung.exists()


def test_the_reader_knows_no_pickle_and_makes_nothing_by_name() -> None:
    """Its imports, and every name that it calls."""
    tree = ast.parse(Path(plain_pickle.__file__).read_text(encoding="utf-8"))
    imported = {
        name
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert {"struct", "typing", "__future__", "collections.abc"} == imported
    called = {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not called & {"eval", "exec", "compile", "getattr", "setattr", "globals", "__import__", "open"}


def nested(depth: int) -> bytes:
    return b"\x80\x02" + b"]" * depth + b"a" * (depth - 1) + b"."


def doubling(times: int, kind: bytes) -> bytes:
    """A tuple, list or dict of two of the last, so often: it walks as 2 to the power of `times`."""
    data = b"\x80\x04" + (b"K\x01" if kind == b"\x86" else b"]") + b"\x94"
    for number in range(times):
        get = b"j" + struct.pack("<I", number)
        if kind == b"\x86":
            data += get + get + b"\x86\x94"
        elif kind == b"e":
            data += b"](" + get + get + b"e\x94"
        else:
            data += b"}(X\x01\0\0\0a" + get + b"X\x01\0\0\0b" + get + b"u\x94"
    return data + b"."


DAMAGED = {
    b"": "no pickle of protocols 2 to 5",
    b"\x80": "no pickle of protocols 2 to 5",
    b"\x80\x01N.": "no pickle of protocols 2 to 5",
    b"\x80\x06N.": "no pickle of protocols 2 to 5",
    b"\x80\x02": "cut off before its end",
    b"\x80\x02N": "cut off before its end",
    b"\x80\x02.": "does not end in one value",
    b"\x80\x02NN.": "does not end in one value",
    b"\x80\x02N(.": "does not end in one value",
    b"\x80\x02(N.": "does not end in one value",
    b"\x80\x02N.N.": "2 bytes behind its end",
    b"\x80\x02X\xff\0\0\0abc.": "cut off within what begins at byte 2",
    b"\x80\x04\x8d" + b"\xff" * 8 + b"abc.": "cut off within what begins at byte 2",
    b"\x80\x04\x95\x09": "cut off within what begins at byte 2",
    b"\x80\x02G\0\0.": "cut off within what begins at byte 2",
    b"\x80\x02\x8b\0\x01\0\0" + b"\x01" * 256 + b".": "a number of 256 bytes",
    b"\x80\x02\x8b\xff\xff\xff\xff.": "cut off within",
    b"\x80\x02\x86.": "empty stack",
    b"\x80\x02K\x01\x86.": "empty stack",
    b"\x80\x02](\x86e.": "empty stack",
    b"\x80\x02q\0.": "empty stack",
    b"\x80\x02(q\0t.": "empty stack",
    b"\x80\x02\x94.": "empty stack",
    b"\x80\x02t.": "mark that is not there",
    b"\x80\x02]e.": "mark that is not there",
    b"\x80\x02h\0.": "memo 0 before",
    b"\x80\x02j\xff\xff\xff\xff.": "memo 4294967295 before",
    b"\x80\x02Nr\xff\xff\xff\xff.": "memo 4294967295 out of turn",
    b"\x80\x02Nq\0Nq\0\x86.": "memo 0 out of turn",
    b"\x80\x02Na.": "fills a list that is not there",
    b"\x80\x02NNa.": "fills a list that is not there",
    b"\x80\x02}Na.": "fills a list that is not there",
    b"\x80\x02)Na.": "fills a list that is not there",
    b"\x80\x02]NNs.": "fills a dict that is not there",
    b"\x80\x02}(Nu.": "a key without a value",
    b"\x80\x02}]Ns.": "a key that is no text",
    b"\x80\x02})Ns.": "a key that is no text",
    b"\x80\x02}K\x01Ns.": "a key that is no text",
    b"\x80\x02]q\0h\0a.": "a list that holds itself",
    b"\x80\x02]q\0(h\0h\0e.": "a list that holds itself",
    b"\x80\x02}q\0X\x01\0\0\0ah\0s.": "a dict that holds itself",
    b"\x80\x02]q\0h\0\x85a.": "a list that holds itself",
    b"\x80\x02]q\0]h\0a\x86h\0Na.": "changes after it was used",
    nested(MAX_DEPTH + 1): f"nested more than {MAX_DEPTH} deep",
    b"\x80\x02" + b"(" * 200: "cut off before its end",
    b"\x80\x02" + b"(" * 200 + b"t" * 200 + b".": f"nested more than {MAX_DEPTH} deep",
    b"\x80\x02)" + b"\x85" * 5000 + b".": f"nested more than {MAX_DEPTH} deep",
    doubling(40, b"\x86"): "too much in all",
    doubling(40, b"e"): "too much in all",
    doubling(40, b"u"): "too much in all",
    b"\x80\x02X\x00\x00\x10\0" + b"x" * (1 << 20) + b"q\0](" + b"h\0" * 1000 + b"e\x86.": "too much in all",
}


@pytest.mark.parametrize("data", DAMAGED, ids=[f"{n} {why}" for n, why in enumerate(DAMAGED.values())])
def test_what_is_damaged_or_hostile_is_one_line(data: bytes) -> None:
    """Each in bounded time: none of them is walked."""
    begin_s = time.process_time()
    assert DAMAGED[data] in refusal(data)
    assert time.process_time() - begin_s < 2


def test_as_deep_as_is_allowed_is_read() -> None:
    assert MAX_DEPTH == str(plain(nested(MAX_DEPTH))).count("[")


def test_numbers_of_parts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of opcodes, and of what takes most memory."""
    data = pickle.dumps([[], [], [], {}], 2)
    num_opcodes = sum(1 for _ in pickletools.genops(data)) - 1  # beside PROTO
    monkeypatch.setattr(plain_pickle, "MAX_OPCODES", num_opcodes)
    monkeypatch.setattr(plain_pickle, "MAX_CONTAINERS", 5)
    assert [[], [], [], {}] == plain(data)
    monkeypatch.setattr(plain_pickle, "MAX_CONTAINERS", 4)
    assert "more than 4 lists, tuples and dicts" in refusal(data)
    monkeypatch.setattr(plain_pickle, "MAX_OPCODES", num_opcodes - 1)
    assert "opcodes" in refusal(data)


def test_text_of_no_encoding_costs_no_dump() -> None:
    """A file's name in a frame may be of any bytes."""
    assert "a\ufffdb" == plain(b"\x80\x02X\x03\0\0\0a\xffb.")


@pytest.mark.slow
@settings(max_examples=num_examples(400))
@given(st.randoms(use_true_random=False), st.integers(0, 1), st.integers(2, 5))
def test_damaged_bytes_are_read_or_refused(chance: random.Random, rank: int, protocol: int) -> None:
    """Nothing else happens, and what is read is plain."""
    data = (RECORDED / f"nccl_trace_rank_{rank}").read_bytes()
    if chance.random() < 0.5:
        data = pickle.dumps(plain(data), protocol)
    for _ in range(chance.randrange(1, 4)):
        data = damaged(data, chance)
    assert is_plain_or_refused(data)


def is_plain_or_refused(data: bytes) -> bool:
    try:
        return only_plain(plain(data))
    except PlainPickleError as error:
        return str(error).isprintable()


def only_plain(value: Any) -> bool:
    if type(value) is dict:
        return all(type(key) is str and only_plain(inner) for key, inner in value.items())
    if type(value) in (list, tuple):
        return all(map(only_plain, value))
    return value is None or type(value) in (bool, int, float, str, bytes)


@pytest.mark.slow
@settings(max_examples=num_examples(400))
@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(tail: bytes) -> None:
    assert is_plain_or_refused(b"\x80\x04" + tail)
