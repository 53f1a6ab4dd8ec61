"""How many hostile inputs a test tries, and how a good input becomes a hostile one.

`make fuzz` sets FUZZ_TIMES, by which every count here is multiplied, and FUZZ_SEED; a plain run tries the same few
inputs each time, a quarter of what `make test-all` and `make fuzz` begin with.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Final

from thinned import num_examples

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TIMES: Final = int(os.environ.get("FUZZ_TIMES", "1"))
SEED: Final = int(os.environ.get("FUZZ_SEED", "5"))
MAX_PART: Final = 40
ODD: Final = (
    b"null",
    b"-1",
    b"1e308",
    b"NaN",
    b"[]",
    b"{}",
    b'""',
    b"9" * 30,
    b"true",
    b"}",
    b"]",
    b"\xff",
    b"\0",
    b"[" * 90,
)
# What a rule file or its conditions should not be hurt by.
TOML_ODD: Final = (
    b"**",
    b"__import__('os')",
    b"(" * 200,
    b" and ",
    b"-" * 300,
    b"9" * 400,
    b"1e999",
    b"= [",
    b"{",
    b"\0",
)


def num_inputs(num: int) -> int:
    """A part of so many in a plain run, all of them with `make test-all`, more in a long one."""
    return num_examples(num) * TIMES


def chances(num: int) -> Iterator[random.Random]:
    """One source of randomness an input, so that input number N alone can be made again: its seed is `SEED N`."""
    for number in range(num_inputs(num)):
        yield random.Random(f"{SEED} {number}")  # noqa: S311 - the same damage every time


def damaged(good: bytes, chance: random.Random, odd: Sequence[bytes] = ODD) -> bytes:
    """One to four bytes changed, parts cut out, doubled or replaced by something odd, or the end cut off."""
    data = bytearray(good)
    for _ in range(chance.choice((1, 1, 1, 4))):
        at = chance.randrange(len(data))
        way = chance.randrange(5)
        if way == 0:
            data[at] = chance.randrange(256)
        elif way == 1:
            del data[at : at + chance.randrange(1, MAX_PART)]
        elif way == 2:
            data[at : at + chance.randrange(8)] = chance.choice(odd)
        elif way == 3:
            data[at:at] = data[max(0, at - chance.randrange(200)) : at]
        else:
            del data[at + 1 :]
        data = data or bytearray(b"{")
    return bytes(data)
