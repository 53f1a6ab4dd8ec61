"""Which loop of the program has begun anew between two moments: read off the places in its code where it stood.

A place is where each function under way stands, by code and offset of its instruction, from an outer function to an
inner one. It tells nothing of one rank alone: ranks that run the same program pass the same places, whenever they were
attached. Loops are backward jumps of the bytecode; blocks that only an exception leads to jump back too, into what
follows a `with`, and so only what plain control flow reaches counts.
"""

from __future__ import annotations

import dis
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection
    from types import CodeType, FrameType
    from typing import TypeAlias

    Place: TypeAlias = list[tuple[CodeType, int]]
    Span: TypeAlias = tuple[int, int]  # first and last offset of a loop
    Around: TypeAlias = tuple[int, Span]  # how deep in a place the loop is, 0 for its outermost function

MAX_DEPTH = 250  # functions under way, a quarter of Python's own bound
MAX_CODE = 1 << 16  # bytes of a function whose loops are looked for: 20 ms
MAX_KNOWN = 64  # functions whose loops are kept
NEVER_FALLS_THROUGH = frozenset(
    (
        "RETURN_VALUE",
        "RETURN_CONST",
        "RAISE_VARARGS",
        "RERAISE",
        "JUMP_FORWARD",
        "JUMP_ABSOLUTE",
        "JUMP_BACKWARD",
        "JUMP_BACKWARD_NO_INTERRUPT",
    )
)
UNIT = 2 if sys.version_info >= (3, 10) else 1  # bytes that a jump's argument counts
CACHE = 0 if sys.version_info >= (3, 11) else None  # belongs to the instruction before it


def place(frame: FrameType | None, root: CodeType | None = None) -> Place:
    """Where the functions from `root` (None: the outermost) inwards to this frame stand; [] where root is not there."""
    path: Place = []
    while frame is not None and len(path) < MAX_DEPTH:
        code = frame.f_code
        path.append((code, frame.f_lasti))
        if code is root:
            break
        frame = frame.f_back
    else:
        if root is not None or frame is not None:
            return []
    path.reverse()
    return path


class Loops:
    """Of the functions that were asked for."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[CodeType, list[Span]] = {}

    def around(self, before: Place, now: Place) -> Around | None:
        """The innermost loop that was gone around from one place to the other; None where it went on or cannot be told.

        Both places begin with the same function.
        """
        level = -1
        for (code, offset), (code_now, offset_now) in zip(before, now):  # noqa: B905 - Python 3.8 has no strict
            if code is not code_now:
                break  # called one after the other from the same instruction
            level += 1
            if offset == offset_now:
                continue
            if offset_now > offset:
                return None
            span = self.innermost(code, (offset, offset_now))
            if span:
                return level, span
            level -= 1  # called once more, from the same instruction
            break
        for outer in range(level, -1, -1):
            span = self.innermost(now[outer][0], (now[outer][1],))
            if span:
                return outer, span
        return None

    def shared(self, places: list[Place]) -> tuple[CodeType, Span] | None:
        """The innermost loop that holds all these places, each from the program's outermost function inwards."""
        level = 0
        for each in zip(*places):  # noqa: B905 - likewise
            if any(code is not each[0][0] for code, _ in each):
                break
            level += 1
            if any(offset != each[0][1] for _, offset in each):
                break
        for outer in range(level - 1, -1, -1):
            code = places[0][outer][0]
            span = self.innermost(code, [one[outer][1] for one in places])
            if span:
                return code, span
        return None

    def innermost(self, code: CodeType, offsets: Collection[int]) -> Span | None:
        """The smallest loop of a function that holds these instructions."""
        spans = self._known.get(code)
        if spans is None:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            spans = self._known[code] = loops_of(code)
        low, high = min(offsets), max(offsets)
        holding = [span for span in spans if span[0] <= low and high <= span[1]]
        return min(holding, key=lambda span: span[1] - span[0], default=None)


def loops_of(code: CodeType) -> list[Span]:
    """The loops of a function, inner ones within outer ones; [] of one that is too long to be looked through."""
    if len(code.co_code) > MAX_CODE:
        return []
    following, jumps = _flow(code.co_code)
    reached: set[int] = set()
    left = [0]
    while left:
        offset = left.pop()
        if offset not in reached and offset in following:
            reached.add(offset)
            left += [*following[offset], *jumps.get(offset, ())]
    spans = [(target, offset) for offset in reached for target in jumps.get(offset, ()) if target <= offset]
    return _whole(spans)


def _flow(code: bytes) -> tuple[dict[int, tuple[int, ...]], dict[int, tuple[int, ...]]]:
    """Of each instruction, by offset: the one it falls through to, and the one it jumps to."""
    following: dict[int, tuple[int, ...]] = {}
    jumps: dict[int, tuple[int, ...]] = {}
    extended, offset = 0, 0
    relative, absolute = frozenset(dis.hasjrel), frozenset(dis.hasjabs)
    while offset < len(code):
        number, argument = code[offset], code[offset + 1] | extended
        extended = argument << 8 if number == dis.EXTENDED_ARG else 0
        begin, offset = offset, offset + 2
        while offset < len(code) and code[offset] == CACHE:
            offset += 2
        name = dis.opname[number]
        following[begin] = () if name in NEVER_FALLS_THROUGH else (offset,)
        if name.startswith("SETUP_"):  # no jump: where an exception would lead
            continue
        if number in relative:
            jumps[begin] = (offset + (-UNIT if "BACKWARD" in name else UNIT) * argument,)
        elif number in absolute:
            jumps[begin] = (UNIT * argument,)
    return following, jumps


def _whole(spans: list[Span]) -> list[Span]:
    """A loop that jumps back from several instructions, or to its test and behind it, is one."""
    whole: list[Span] = []
    for low, high in sorted(spans):
        while whole and (whole[-1][0] == low or whole[-1][0] < low <= whole[-1][1] < high):
            before = whole.pop()
            low, high = before[0], max(high, before[1])  # noqa: PLW2901 - it grows
        whole.append((low, high))
    return whole
