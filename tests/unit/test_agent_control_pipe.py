"""What an agent takes from whoever started it: whole lines, however they come, and nothing that is none."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tuiadvisor.agent.control_pipe import MAX_LINE_BYTES, ControlPipe
from tuiadvisor.stream.probe_request import ProbeRequest

DETAIL = ProbeRequest(burst_ms=2000, ranks=frozenset({1, 3}))
BUDGET = ProbeRequest(budget_ppm=5000)


class Held:
    """The other end."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        self.pipe = ControlPipe(self.reading)

    def say(self, data: bytes) -> None:
        os.write(self.writing, data)

    def let_go(self) -> None:
        os.close(self.writing)
        self.writing = -1

    def close(self) -> None:
        for descriptor in (self.reading, self.writing):
            if descriptor >= 0:
                os.close(descriptor)


@pytest.fixture
def held() -> Iterator[Held]:
    made = Held()
    yield made
    made.close()


def test_nobody_waits_for_a_request(held: Held) -> None:
    assert [] == held.pipe.take()
    assert not held.pipe.is_loose


def test_requests_are_taken_in_their_order(held: Held) -> None:
    held.say(BUDGET.line() + DETAIL.line())
    assert [BUDGET, DETAIL] == held.pipe.take()
    assert [] == held.pipe.take()


def test_a_line_may_come_in_pieces(held: Held) -> None:
    line = DETAIL.line()
    for at in range(len(line) - 1):
        held.say(line[at : at + 1])
        assert [] == held.pipe.take()
    held.say(line[-1:])
    assert [DETAIL] == held.pipe.take()


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"detail, please",
        b"\xff\xfe",
        b"[1, 2]",
        b'{"budget_ppm": -1}',
        b'{"burst_ms": "long"}',
        b'{"ranks": [0.5]}',
        b'{"stacks": {"look": 1}}',
        b"[" * 100_000,
    ],
)
def test_a_line_that_is_none_is_left_out_and_the_next_one_counts(held: Held, line: bytes) -> None:
    for at in range(0, len(line), 1 << 15):  # a pipe holds 64 KiB
        held.say(line[at : at + (1 << 15)])
        assert [] == held.pipe.take()
    held.say(b"\n" + BUDGET.line())
    assert [BUDGET] == held.pipe.take()


def test_the_other_ends_end_is_noticed_after_its_last_words(held: Held) -> None:
    """What was asked before it let go still counts; half a line does not."""
    held.say(BUDGET.line() + DETAIL.line()[:-5])
    held.let_go()
    assert [BUDGET] == held.pipe.take()
    assert held.pipe.is_loose
    assert [] == held.pipe.take()


def test_a_line_without_end_takes_no_memory(held: Held) -> None:
    """Whatever comes, no more than the longest line and what is read at once is held; then lines count again."""
    for _ in range(4 * MAX_LINE_BYTES // (1 << 15)):
        held.say(b"x" * (1 << 15))
        assert [] == held.pipe.take()
        assert len(held.pipe._begun) <= MAX_LINE_BYTES
    held.say(b"\n" + BUDGET.line())
    assert [BUDGET] == held.pipe.take()


def test_a_descriptor_that_is_no_longer_there_is_the_end(held: Held) -> None:
    os.close(held.reading)
    held.reading = -1
    assert [] == held.pipe.take()
    assert held.pipe.is_loose
