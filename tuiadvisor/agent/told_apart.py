"""What tells trainings of one script apart: arguments that differ, the working folder, else when they began.

In: what /proc says of one process of each.  Out: a text each, "" where the script's name is enough.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_CHARS: Final = 60  # of the arguments of one: they may hold anything


@dataclass(frozen=True, slots=True)
class Program:
    """One training by the first of its processes."""

    label: str
    arguments: tuple[str, ...]  # without the interpreter
    folder: str  # it works in; "" where that may not be seen
    start_wall_ns: int | None
    pid: int


def told_apart(programs: Sequence[Program], *, with_pid: bool = True) -> list[str]:
    """A text each. Those with a label of their own need none. with_pid: of those that nothing else tells apart."""
    texts = []
    for one in programs:
        alike = [each for each in programs if each.label == one.label]
        text = _text(one, alike) if len(alike) > 1 else ""
        has_twin = len(alike) > 1 and sum(_text(each, alike) == text for each in alike) > 1
        texts.append(f"{text} pid {one.pid}".strip() if has_twin and with_pid else text)
    return texts


def _text(one: Program, alike: Sequence[Program]) -> str:
    mine = _differing(one, alike)
    left = [each for each in alike if _differing(each, alike) == mine] if mine else alike
    began = _started(one) if len({_started(each) for each in left}) > 1 else ""
    return " ".join(part for part in (mine, began) if part)


def _differing(one: Program, alike: Sequence[Program]) -> str:
    """Arguments that not all of them have, and the folder where they work in several."""
    common = set.intersection(*(set(units(each.arguments)) for each in alike))
    said = {*common, one.label}  # the script's bare name stands before this
    text = " ".join(unit for unit in units(one.arguments) if unit not in said)
    shown = "".join(each for each in text if each.isprintable())
    shown = shown if len(shown) <= MAX_CHARS else f"{shown[: MAX_CHARS - 1]}…"
    where = f"in {one.folder}" if one.folder and len({each.folder for each in alike}) > 1 else ""
    return " ".join(part for part in (shown, where) if part)


def _started(one: Program) -> str:
    if one.start_wall_ns is None:
        return ""
    return f"started {time.strftime('%H:%M:%S', time.localtime(one.start_wall_ns * 1e-9))}"


def units(arguments: Sequence[str]) -> list[str]:
    """Options with their values, and whatever stands alone: '--lr 0.1' differs from '--lr 0.2' as a whole."""
    found: list[str] = []
    takes_value = False
    for word in arguments:
        if takes_value and not word.startswith("-"):
            found[-1] += f" {word}"
            takes_value = False
            continue
        found.append(word)
        takes_value = word.startswith("-") and "=" not in word
    return found
