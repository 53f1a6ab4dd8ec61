"""`tuiadvisor mcp --allow-attach`: an assistant attaches to a real training, hears who is late, and has left it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from patience import PATIENCE_S
from training import running

pytest.importorskip("torch")
pytest.importorskip("mcp")
from mcp import Client, StdioServerParameters

pytestmark = [pytest.mark.slow, pytest.mark.extended]


async def test_an_assistant_that_may_attach_names_the_late_rank(tmp_path: Path) -> None:
    fault = ("--fault", "slow-data", "--fault-rank", "1", "--delay-ms", "40")
    with running(2, "--step-ms", "20", "--seconds", "3000", *fault) as (training, _):
        line = ["-P", "-m", "tuiadvisor", "mcp", "--allow-attach"]
        server = StdioServerParameters(command=sys.executable, args=line, cwd=tmp_path)
        async with Client(server, read_timeout_seconds=2 * PATIENCE_S) as client:
            result = await client.call_tool("watch", {"pids": [training.pid], "seconds": PATIENCE_S})
            assert not result.is_error, result.content
            told = result.structured_content
            assert isinstance(told, dict)
            jobs = (await client.call_tool("list_jobs")).structured_content
        assert training.poll() is None
    assert told["verdict"]["decision"] == "tune"
    assert [found["ranks"] for found in told["findings"] if found["id"] == "straggler"] == [[1]]
    assert isinstance(jobs, dict)
    (entry,) = [job for job in jobs["jobs"] if training.pid in job["pids"] or job["num_ranks"] == 2]
    assert entry["is_watched"] is False
