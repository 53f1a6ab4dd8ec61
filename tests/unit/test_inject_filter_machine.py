"""The filter machine against answers worked out by hand: loads, jumps, arithmetic, both registers, memory."""

from __future__ import annotations

import struct

import pytest

from tuiadvisor.inject.seccomp import BY_THREAD, BY_TRACING, INSIDE, harm, run

ALLOW, KILL, TRAP, ERRNO, TRACE, LOG = 0x7FFF0000, 0x80000000, 0x30000, 0x50001, 0x7FF00000, 0x7FFC0000
ALL = (*BY_TRACING, *BY_THREAD, *INSIDE)


def program(*instructions: tuple[int, int, int, int]) -> bytes:
    return b"".join(struct.pack("<HBBI", *one) for one in instructions)


def answer(*instructions: tuple[int, int, int, int], arguments: tuple[int, ...] = ()) -> int:
    """What a program that ends by returning A says of call 7."""
    return run(program(*instructions, (0x16, 0, 0, 0)), 7, arguments)


@pytest.mark.parametrize(
    ("instructions", "expected"),
    [
        ([(0x20, 0, 0, 0)], 7),  # the number
        ([(0x20, 0, 0, 4)], 0xC000003E),  # the architecture
        ([(0x20, 0, 0, 16 + 8)], 0x5678),  # the second argument's low word
        ([(0x20, 0, 0, 16 + 12)], 0x1234),  # and its high word
        ([(0x80, 0, 0, 0)], 64),  # the size of what is judged
        ([(0x00, 0, 0, 9), (0x04, 0, 0, 5)], 14),
        ([(0x00, 0, 0, 1), (0x14, 0, 0, 2)], 0xFFFFFFFF),
        ([(0x00, 0, 0, 6), (0x07, 0, 0, 0), (0x24, 0, 0, 7), (0x0C, 0, 0, 0)], 48),
        ([(0x00, 0, 0, 7), (0x34, 0, 0, 2)], 3),
        ([(0x00, 0, 0, 6), (0x54, 0, 0, 3)], 2),
        ([(0x00, 0, 0, 6), (0x44, 0, 0, 1)], 7),
        ([(0x00, 0, 0, 1), (0x64, 0, 0, 4), (0x74, 0, 0, 1)], 8),
        ([(0x00, 0, 0, 1), (0x84, 0, 0, 0)], 0xFFFFFFFF),
        ([(0x00, 0, 0, 5), (0x02, 0, 0, 3), (0x00, 0, 0, 0), (0x60, 0, 0, 3)], 5),
        ([(0x01, 0, 0, 5), (0x03, 0, 0, 2), (0x60, 0, 0, 2)], 5),
        ([(0x01, 0, 0, 8), (0x87, 0, 0, 0)], 8),
        ([(0x05, 0, 0, 1), (0x06, 0, 0, 1), (0x00, 0, 0, 2)], 2),
        ([(0x00, 0, 0, 5), (0x25, 0, 1, 4), (0x06, 0, 0, 1)], 1),
        ([(0x00, 0, 0, 5), (0x25, 0, 1, 5), (0x06, 0, 0, 1)], 5),
        ([(0x00, 0, 0, 5), (0x35, 0, 1, 5), (0x06, 0, 0, 1)], 1),
        ([(0x00, 0, 0, 5), (0x01, 0, 0, 5), (0x1D, 0, 1, 0), (0x06, 0, 0, 1)], 1),
        ([(0x00, 0, 0, 5), (0x45, 0, 1, 2), (0x06, 0, 0, 1)], 5),
    ],
)
def test_each_operation(instructions: list[tuple[int, int, int, int]], expected: int) -> None:
    assert expected == answer(*instructions, arguments=(0, 0x1234_0000_5678))


@pytest.mark.parametrize(
    ("action", "harms"), [(KILL, True), (0, True), (TRAP, True), (TRACE, True), (ERRNO, False)]
)
def test_what_harms(action: int, harms: bool) -> None:
    """For one of our calls only, by its number; the first filter allows all."""
    allowing = program((6, 0, 0, ALLOW))
    for name, number, _ in ALL:
        judging = program((0x20, 0, 0, 0), (0x15, 0, 1, number), (6, 0, 0, action), (6, 0, 0, LOG))
        said = harm([allowing, judging], [call for call in ALL if call[0] == name])
        assert (said is not None) == harms
        assert said is None or name in said


def test_a_call_that_we_do_not_make_may_kill() -> None:
    """ptrace, for one."""
    judging = program((0x20, 0, 0, 0), (0x15, 0, 1, 101), (6, 0, 0, KILL), (6, 0, 0, ALLOW))
    assert harm([judging], ALL) is None
