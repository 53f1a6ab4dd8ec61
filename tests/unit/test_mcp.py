"""`tuiadvisor mcp`, asked by the SDK's own client: over the pipes of a real process, and in this one."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from patience import PATIENCE_S
from synthetic_run import MS, Fault, Job
from test_contents import recording

from tuiadvisor.cli.commands import run as command

if TYPE_CHECKING:  # a second of imports, for each who only collects these tests
    from mcp import Client
    from mcp.types import CallToolResult

pytestmark = pytest.mark.skipif(importlib.util.find_spec("mcp") is None, reason="needs mcp")

READING = {"list_jobs", "list_runs", "diagnose", "compare", "explain", "scale"}


@pytest.fixture(autouse=True, scope="module")
def _loaded() -> None:
    """The SDK keeps the stderr that it finds when it is loaded: not one that a test captures."""
    importlib.import_module("mcp.client.stdio")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that may be read, beside something that may not."""
    inside = tmp_path / "runs"
    inside.mkdir()
    recording(inside / "run.tuirec", Job(faults=(Fault("backward", (2,), 8 * MS),)))
    recording(inside / "before.tuirec", Job())
    (inside / "sizes.csv").write_text("devices,step_s\n1,1.0\n2,0.55\n4,0.3\n8,0.2\n")
    recording(tmp_path / "secret.tuirec", Job())
    (inside / "link.tuirec").symlink_to(tmp_path / "secret.tuirec")
    os.mkfifo(inside / "pipe.tuirec")
    return inside


@asynccontextmanager
async def asked(folder: Path, *words: str) -> AsyncIterator[Client]:
    """A client of a server that was started in this folder."""
    from mcp import Client, StdioServerParameters

    line = ["-P", "-m", "tuiadvisor", "mcp", *words]
    server = StdioServerParameters(command=sys.executable, args=line, cwd=folder)
    async with Client(server, read_timeout_seconds=PATIENCE_S) as client:
        yield client


@asynccontextmanager
async def asked_here() -> AsyncIterator[Client]:
    """A client of the same server in this process; it may read below the working directory."""
    from mcp import Client

    from tuiadvisor.mcpserver.paths import Roots
    from tuiadvisor.mcpserver.questions import Questions
    from tuiadvisor.mcpserver.server import server_of

    async with Client(server_of(Questions(Roots(["."])), allows_attach=False)) as client:
        yield client


async def answer(client: Client, name: str, **words: Any) -> dict[str, Any]:
    """Of a tool that succeeds."""
    result = await client.call_tool(name, words)
    assert not result.is_error, said(result)
    assert isinstance(result.structured_content, dict)
    assert json.loads(said(result)) == result.structured_content
    return result.structured_content


def said(result: CallToolResult) -> str:
    (content,) = result.content
    return str(getattr(content, "text", ""))


@pytest.mark.slow
async def test_the_tools_only_read_unless_attaching_is_allowed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    async with asked_here() as client:
        tools = (await client.list_tools()).tools
    assert {tool.name for tool in tools} == READING
    assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools)
    assert all(tool.description for tool in tools)
    async with asked(folder, "--allow-attach") as client:
        allowed = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(allowed) == READING | {"watch"}
    entering = allowed["watch"].annotations
    assert entering
    assert entering.read_only_hint is False


@pytest.mark.slow
async def test_the_answers_are_the_documents_of_the_commands(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.chdir(folder)

    def printed(*words: str) -> dict[str, Any]:
        assert command(list(words)) == 0
        document: dict[str, Any] = json.loads(capsysbinary.readouterr().out)
        return document

    async with asked(folder) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == READING
        told = await answer(client, "diagnose", run="run.tuirec", sections=["per_rank"])
        whole = printed("diagnose", "run.tuirec", "--json")
        for name in ("verdict", "findings", "step", "stragglers", "per_rank"):
            assert told[name] == whole[name]
        assert "command" not in told["run"]
        assert {"hosts", "pauses"} <= set(told["more_sections"])
        compared = await answer(client, "compare", before="before.tuirec", after="run.tuirec")
        assert compared["verdict"] == printed("compare", "before.tuirec", "run.tuirec", "--json")["verdict"]
        scaled = await answer(client, "scale", table="sizes.csv", predict=[16])
        shown = printed("scale", "--table", "sizes.csv", "--predict", "16", "--json")
        assert scaled["predictions"] == shown["predictions"]
        runs = (await answer(client, "list_runs"))["runs"]
        assert {(row["path"], row["decision"]) for row in runs if row["state"] == "read"} == {
            ("run.tuirec", "tune"),
            ("before.tuirec", "keep"),
        }
        explained = await answer(client, "explain", finding="straggler", run="run.tuirec")
        assert "Fires when" in explained["explanation"]
        assert [found["ranks"] for found in explained["in_run"]] == [[2]]
        assert isinstance((await answer(client, "list_jobs"))["jobs"], list)


@pytest.mark.slow
async def test_what_may_not_be_read_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    wrong = {
        "diagnose": [
            ({"run": "../secret.tuirec"}, "outside of the folders"),
            ({"run": "link.tuirec"}, "outside of the folders"),
            ({"run": "/etc/passwd"}, "outside of the folders"),
            ({"run": "/nowhere/at/all"}, "outside of the folders"),
            ({"run": "pipe.tuirec"}, "no regular file"),
            ({"run": "."}, "no regular file"),
            ({"run": "no.tuirec"}, "No such file"),
            ({"run": "sizes.csv"}, "holds no steps"),
            ({"run": "a\0b"}, "no path"),
            ({"run": "run.tuirec", "sections": ["secrets"]}, "no section 'secrets'"),
        ],
        "list_runs": [({"folder": ".."}, "outside of the folders")],
        "explain": [({"finding": "stragler"}, "no rule 'stragler'")],
        "scale": [({}, "one of the two"), ({"table": "sizes.csv", "predict": [0]}, "one device or more")],
        "watch": [({}, "Unknown tool: watch")],
    }
    async with asked_here() as client:
        for name, calls in wrong.items():
            for words, line in calls:
                result = await client.call_tool(name, words)
                assert result.is_error, (name, words)
                assert line in said(result), said(result)
                assert "\n" not in said(result)


@pytest.mark.slow
async def test_a_list_without_end_is_cut_and_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    recording(folder / "many.tuirec", Job(num_ranks=96, num_steps=60))
    async with asked_here() as client:
        told = await answer(client, "diagnose", run="many.tuirec", sections=["per_rank"])
    assert told["cut"]["per_rank"] == 96
    assert len(told["per_rank"]) == 64


def test_a_root_that_is_none_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["mcp", "--root", "/no/such/folder"]) == 2
    assert capsys.readouterr().err == "tuiadvisor mcp: --root /no/such/folder: no such folder\n"


def test_without_the_sdk_it_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    assert command(["mcp"]) == 2
    assert "pip install 'tuiadvisor[mcp]'" in capsys.readouterr().err
