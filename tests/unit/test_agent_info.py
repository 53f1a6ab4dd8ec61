"""The info area is written by a stranger's process."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuiadvisor.agent.info import ProbeInfo, parse_info

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


def test_what_a_probe_writes_is_taken_over() -> None:
    """Rank, versions and hooks as told."""
    told = {
        "rank": 2,
        "world_size": 4,
        "backend": "gloo",
        "python": "3.11.7",
        "torch": "2.13.0",
        "device": "cpu",
        "hooks": {"data_wait": "ok", "forward": "no module"},
        "parallel": {"dp": 4},
    }

    info = parse_info(json.dumps(told).encode())

    assert (info.rank, info.world_size, info.backend) == (2, 4, "gloo")
    assert info.hooks == {"data_wait": "ok", "forward": "no module"}
    assert info.parallel == {"dp": 4}


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b'{"rank": "2"}', b'{"rank": -1}', b'{"rank": true}'],
)
def test_what_is_no_info_is_unknown(raw: bytes) -> None:
    """Cut JSON, other shapes and wrong types leave everything unknown."""
    assert ProbeInfo() == parse_info(raw)


def test_rank_outside_its_world_is_unknown() -> None:
    """Rank 7 of 4 is believed in neither half."""
    info = parse_info(b'{"rank": 7, "world_size": 4, "torch": "2.4"}')

    assert (info.rank, info.world_size, info.torch) == (None, None, "2.4")


def test_long_texts_and_many_hooks_are_cut() -> None:
    """A process cannot make a frame of ours huge."""
    told = {"torch": "x" * 5000, "hooks": {str(number): "y" * 5000 for number in range(500)}}

    info = parse_info(json.dumps(told).encode())

    assert len(info.torch or "") == 300
    assert len(info.hooks) == 100
    assert {300} == {len(text) for text in info.hooks.values()}


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(["rank", "world_size", "hooks", "parallel", "torch", "error"]), JSON))
def test_any_json_is_read_without_an_error(told: dict[str, object]) -> None:
    """Whatever the fields hold, the result has the promised types."""
    info = parse_info(json.dumps(told).encode())

    assert info.rank is None or info.rank >= 0
    assert all(isinstance(text, str) for text in info.hooks.values())
    assert all(type(size) is int for size in info.parallel.values())
