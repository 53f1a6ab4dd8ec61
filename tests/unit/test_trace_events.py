"""A trace of many chunks: every event once, and what is no whole trace is one line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers import traceevents
from tuiadvisor.importers.traceevents import CHUNK_BYTES, TraceFile

NAME = "x" * 400
EVENTS: list[dict[str, Any]] = [
    {"ph": "X", "name": f"{NAME}{at}", "ts": at, "dur": 1} for at in range(4 * CHUNK_BYTES // 440)
]
TAIL = {"displayTimeUnit": "ms", "distributedInfo": {"rank": 3}}


def written(path: Path, text: str) -> TraceFile:
    path.write_text(text)
    return TraceFile(path)


def taken(file: TraceFile) -> list[dict[str, Any]]:
    return [event for batch in file.batches() for event in batch]


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_trace_of_several_chunks_is_read_piece_by_piece(tmp_path: Path, *, is_packed: bool) -> None:
    """Every event once and in order, keys from before and behind them; how far it is never goes back."""
    text = json.dumps({"schemaVersion": 1, "traceEvents": EVENTS, **TAIL}).encode()
    path = tmp_path / "rank3.json"
    path.write_bytes(gzip.compress(text, 1) if is_packed else text)
    file, found, places = TraceFile(path), [], [0]
    for batch in file.batches():
        found.append(batch)
        places.append(file.position())
    assert len(found) > 2
    assert EVENTS == [event for batch in found for event in batch]
    assert {"schemaVersion": 1, **TAIL} == file.rest
    assert len(text) == file.num_bytes
    assert sorted(places) == places
    assert path.stat().st_size == places[-1]


def test_a_trace_that_ends_in_the_middle_is_refused_not_read_again(tmp_path: Path) -> None:
    """What was read would count twice if it were read whole after all."""
    text = json.dumps({"traceEvents": EVENTS})
    file, found = written(tmp_path / "rank0.json", text[: len(text) * 3 // 4]), []
    with pytest.raises(TuiadvisorError, match="damaged or truncated JSON; copy the trace again") as error:
        found.extend(file.batches())
    assert EVENTS[: len(found[0])] == found[0]
    assert "\n" not in str(error.value)


def test_a_file_that_unpacks_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what it unpacks to, not by what lies there."""
    monkeypatch.setattr(traceevents, "MAX_FILE_BYTES", 2 * CHUNK_BYTES)
    path = tmp_path / "rank0.json"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": EVENTS}).encode(), 1))
    assert path.stat().st_size < CHUNK_BYTES
    with pytest.raises(TuiadvisorError, match="unpacked: trace fewer steps"):
        taken(TraceFile(path))


def test_one_event_larger_than_any_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives no place to cut: nothing has been taken, so nothing counts twice."""
    monkeypatch.setattr(traceevents, "MAX_HEADER_BYTES", CHUNK_BYTES)
    large = [{"ph": "X", "name": "large", "args": {"text": "y" * 4 * CHUNK_BYTES}}, EVENTS[0]]
    file = written(tmp_path / "rank0.json", json.dumps({"traceEvents": large, **TAIL}))
    assert large == taken(file)
    assert TAIL == file.rest


def test_an_event_of_several_chunks_lies_between_others(tmp_path: Path) -> None:
    """It is waited for; what comes before and behind it is read as ever."""
    large = {"ph": "X", "name": "large", "args": {"text": "y" * 5 * CHUNK_BYTES}}
    every = [*EVENTS[:9000], large, *EVENTS[9000:]]
    file = written(tmp_path / "rank0.json", json.dumps({"traceEvents": every, **TAIL}))
    found = list(file.batches())
    assert len(found) > 2
    assert every == [event for batch in found for event in batch]
    assert TAIL == file.rest


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"traceEvents": []}', []),
        ("[]", []),
        ('[{"ph": "M", "name": "process_name"}]', [{"ph": "M", "name": "process_name"}]),
        ('{"traceEvents": [{"name": "a\tb"}]}', [{"name": "a\tb"}]),
    ],
)
def test_a_small_trace_is_read_in_either_form(tmp_path: Path, text: str, found: list[object]) -> None:
    """An array alone, no event at all, and a control character within a name."""
    assert found == taken(written(tmp_path / "rank0.json", text))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "truncated or not JSON"),
        ("no trace", "truncated or not JSON"),
        ('"traceEvents": [{"a": 1}]', "truncated or not JSON"),
        ('[{"traceEvents": [{"a": 1}', "truncated or not JSON"),
        ('{"traceEvents": 7}', "has no traceEvents"),
        ('{"events": []}', "has no traceEvents"),
        ('{"traceEvents": [{"a": 1}], "traceEvents": 7}', "has no traceEvents"),
        ('{"traceEvents": [{"a": nothing}]}', "truncated or not JSON"),
        ("7", "has no traceEvents"),
        ("[" * 100_000, "truncated or not JSON"),
    ],
)
def test_what_is_no_trace_is_one_line(tmp_path: Path, text: str, why: str) -> None:
    """Whatever it is instead."""
    with pytest.raises(TuiadvisorError, match=why) as error:
        taken(written(tmp_path / "rank0.json", text))
    assert "\n" not in str(error.value)
