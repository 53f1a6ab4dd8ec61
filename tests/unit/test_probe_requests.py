"""What a session wants of its agents: one line each, checked, in order, and only from whoever started them."""

from __future__ import annotations

import os
import sys
import time
from argparse import ArgumentTypeError
from collections.abc import Iterator

import pytest
from patience import PATIENCE_S

from tuiadvisor.agent.control_pipe import MAX_LINE_BYTES, ControlPipe
from tuiadvisor.cli.options.work import share_ppm
from tuiadvisor.launch.agents import Agents, Launched
from tuiadvisor.stream.keys import Invitation
from tuiadvisor.stream.probe_request import ProbeRequest, parse_probe_request

BURST = ProbeRequest(burst_ms=3000, ranks=frozenset({2, 7}))


@pytest.fixture(name="pipe")
def _pipe() -> Iterator[tuple[ControlPipe, int]]:
    """A leash and the end that its holder writes to."""
    read_fd, write_fd = os.pipe()
    yield ControlPipe(read_fd), write_fd
    os.close(read_fd)


@pytest.mark.parametrize(
    "asked", [BURST, ProbeRequest(budget_ppm=0), ProbeRequest(burst_ms=1, ranks=None), ProbeRequest()]
)
def test_a_request_arrives_as_it_was_said(asked: ProbeRequest, pipe: tuple[ControlPipe, int]) -> None:
    """Budget, length and ranks, also none of them."""
    leash, write_fd = pipe
    os.write(write_fd, asked.line())
    assert [asked] == leash.take()
    os.close(write_fd)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"7",
        b'{"burst_ms": -1}',
        b'{"burst_ms": 1e9}',
        b'{"burst_ms": true}',
        b'{"burst_ms": 99999999999}',
        b'{"budget_ppm": 1000001}',
        b'{"budget_ppm": "much"}',
        b'{"burst_ms": 5, "ranks": 3}',
        b'{"burst_ms": 5, "ranks": [-1]}',
        b'{"burst_ms": 5, "ranks": ["all"]}',
    ],
)
def test_what_is_no_wish_is_left_out(line: bytes) -> None:
    """Neither half of it is done."""
    assert parse_probe_request(line) is None


def test_halves_of_lines_and_torrents(pipe: tuple[ControlPipe, int]) -> None:
    """A line is taken when it is whole; one without an end is dropped, and what follows it is read again."""
    leash, write_fd = pipe
    line = BURST.line()
    os.write(write_fd, line[:7])
    assert [] == leash.take()
    os.write(write_fd, line[7:] + b"no request\n")
    assert [BURST] == leash.take()
    for _ in range(MAX_LINE_BYTES // 32_768 + 2):
        os.write(write_fd, b"x" * 32_768)
        assert [] == leash.take()
    os.write(write_fd, b"\n" + line)
    assert [BURST] == leash.take()
    assert not leash.is_loose
    os.close(write_fd)


def test_the_end_of_the_leash_is_noticed_after_the_last_request(pipe: tuple[ControlPipe, int]) -> None:
    """Whoever lets go may have said something before."""
    leash, write_fd = pipe
    os.write(write_fd, BURST.line())
    os.close(write_fd)
    assert [BURST] == leash.take()
    assert leash.is_loose


def test_wishes_follow_the_invitation() -> None:
    """Said before ssh has opened its tunnel they wait: the first line that an agent reads is its invitation."""
    said: list[str] = []
    echo = "import sys\nfor line in sys.stdin: print(line, end='', file=sys.stderr, flush=True)"
    agent = Launched("", [sys.executable, "-c", echo], lambda _, line: said.append(line))
    agents = Agents([agent])
    try:
        agents.request(ProbeRequest(budget_ppm=5))
        agent.invite(Invitation("ipc:///nowhere"))
        agents.request(BURST)
        deadline = time.monotonic() + PATIENCE_S
        while len(said) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        agents.close()
    assert "ipc:///nowhere" in said[0]
    assert [ProbeRequest(budget_ppm=5), BURST] == [parse_probe_request(line.encode()) for line in said[1:]]


@pytest.mark.parametrize(
    ("text", "ppm"), [("0.25%", 2500), ("1%", 10_000), ("0.0025", 2500), ("0%", 0), ("50%", 500_000)]
)
def test_a_budget_is_a_share_of_the_step_time(text: str, ppm: int) -> None:
    """In per cent or as a fraction."""
    assert ppm == share_ppm(text)


@pytest.mark.parametrize("text", ["", "%", "cheap", "-1%", "51%", "nan", "inf%", "2"])
def test_what_is_no_share_is_refused(text: str) -> None:
    """2 means neither 2 % nor twice the step: it has to be said."""
    with pytest.raises(ArgumentTypeError, match="share of the step time"):
        share_ppm(text)
