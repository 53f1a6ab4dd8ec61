"""What a rank writes of its flight recorders when it is asked: bounded, and with the reason where it writes nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tuiadvisor.agent.payload import standalone_code
from tuiadvisor_probes import stuck

C10D = "torch._C._distributed_c10d"
GLOO = {"name": "0", "backend": "gloo", "seq": 3, "spans": [[0, 1, 2]]}


def said(
    folder: Path, monkeypatch: pytest.MonkeyPatch, dump: Any = None, backend: str = "gloo"
) -> dict[str, Any]:
    """The answer of a process whose torch hands this out; without a dump it has no function for it."""
    functions = {} if dump is None else {"_dump_fr_trace_json": dump, "_dump_nccl_trace_json": dump}
    monkeypatch.setitem(sys.modules, C10D, SimpleNamespace(**functions))  # type: ignore[arg-type]
    monkeypatch.setattr(stuck, "groups", lambda **_: [{**GLOO, "backend": backend}])
    monkeypatch.setattr(stuck, "own_rank", lambda: 1)
    stuck.recorded(str(folder))
    found: dict[str, Any] = json.loads((folder / "state.json").read_bytes())
    return found


def test_the_dump_lies_beside_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch wrote it: it is read, and cut, outside."""
    assert {"fr": ""} == said(tmp_path, monkeypatch, lambda: b'{"entries": []}')["recorders"]
    assert b'{"entries": []}' == (tmp_path / "fr.json").read_bytes()
    assert not (tmp_path / "nccl.json").exists()


def test_each_backend_has_its_recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL's is asked where a group is NCCL's: nothing of a device is touched elsewhere."""
    assert {"nccl": ""} == said(tmp_path, monkeypatch, lambda: "{}", "nccl")["recorders"]
    both = said(tmp_path, monkeypatch, lambda: "{}", "cpu:gloo,cuda:nccl")["recorders"]
    assert {"fr": "", "nccl": ""} == both
    assert {} == said(tmp_path, monkeypatch, lambda: "{}", "mpi")["recorders"]


def test_a_torch_without_the_function_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before 2.13 Gloo has no recorder."""
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__version__="2.9.0"))  # type: ignore[arg-type]
    whys = said(tmp_path, monkeypatch)["recorders"]
    assert {"fr": "torch 2.9.0 hands out no flight recorder for Gloo"} == whys
    assert not (tmp_path / "fr.json").exists()


def test_a_recorder_of_a_million_calls_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its text would take the interpreter for seconds."""
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "1000000")
    whys = said(tmp_path, monkeypatch, lambda: pytest.fail("asked"))["recorders"]
    assert whys["fr"].startswith("TORCH_FR_BUFFER_SIZE=1000000: too many entries")


@pytest.mark.parametrize("odd", [None, 3, [], b"x" * ((8 << 20) + 1)])
def test_odd_output_is_no_dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, odd: object) -> None:
    """Neither a type that nobody expects nor a size."""
    assert {"fr": "its flight recorder gave no text, or too much of it"} == said(
        tmp_path, monkeypatch, lambda: odd
    )["recorders"]
    assert not (tmp_path / "fr.json").exists()


def test_an_error_is_told_and_raised_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch we were not written for."""

    def fail() -> bytes:
        raise RuntimeError("no such epoch")

    assert "RuntimeError: no such epoch" == said(tmp_path, monkeypatch, fail)["why"]


def test_a_request_that_was_taken_back_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreter that answers late finds its folder gone, and costs the training nothing then."""
    monkeypatch.setattr(stuck, "groups", lambda **_: pytest.fail("looked"))
    stuck.recorded(str(tmp_path / "gone"))
    assert [] == list(tmp_path.iterdir())
    compile(standalone_code("stuck", "recorded('/x')"), "stuck", "exec")
