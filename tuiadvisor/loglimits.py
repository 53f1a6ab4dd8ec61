"""What others may make us log: so many lines and no more, and lines of an agent elsewhere, known by their mark.

Peers may be hostile and disks small: a flood is a number in one line.
"""

from __future__ import annotations

import re
import time
from typing import Final

MARK: Final = "tuiadvisor-log: "  # begins each line that an agent elsewhere logs; no error of ours does
BURST_LINES: Final = 2000.0
LINES_A_SECOND: Final = 20.0
SAY_AGAIN_S: Final = 30.0  # a scanner that tries for days must not fill the disk with reports
LEVELS: Final = {"DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40}
_MARKED: Final = re.compile(rf"{MARK}({'|'.join(LEVELS)}) (.*)")


def heard(line: str) -> tuple[int, str] | None:
    """Level and text of a line that an agent elsewhere logged; None for other words."""
    found = _MARKED.search(line)
    return (LEVELS[found[1]], found[2]) if found else None


class Allowance:
    """How many lines one speaker may still write."""

    def __init__(self, burst: float = BURST_LINES, a_second: float = LINES_A_SECOND) -> None:
        self._burst, self._left, self._a_second = burst, burst, a_second
        self._at_s = time.monotonic()

    def take(self) -> bool:
        """Whether one more may be written."""
        now_s = time.monotonic()
        self._left = min(self._burst, self._left + (now_s - self._at_s) * self._a_second)
        self._at_s = now_s
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


class Count:
    """Things that anybody can cause as often as he likes: the first is said at once, the others seldom, as a number."""

    def __init__(self) -> None:
        self._unsaid = 0
        self._say_s = 0.0

    def add(self, number: int = 1) -> int:
        """How many to speak of now; 0 if not yet."""
        self._unsaid += number
        now_s = time.monotonic()
        if not self._unsaid or now_s < self._say_s:
            return 0
        self._say_s = now_s + SAY_AGAIN_S
        said, self._unsaid = self._unsaid, 0
        return said
