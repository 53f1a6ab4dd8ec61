"""One decoder under hostile inputs: its good ones, how one is hurt, and what reads it; and values nobody expects.

In: bytes.  Out: Target, and bytes with JSON values replaced, left out or doubled. For tests/fuzz.py.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
from fuzzing import damaged

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor_probes import ring
from tuiadvisor_rules.condition import RuleError

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence
    from pathlib import Path

REFUSALS = (TuiadvisorError, RuleError, ring.RingError)
VALUES: Sequence[Any] = (
    *(None, True, -1, 0, 1, 1 << 31, 1 << 53, (1 << 63) - 1, 1 << 63, 1 << 70, -(1 << 63), 0.5, 1e308, -0.0),
    *(
        float("nan"),
        float("inf"),
        "",
        "0",
        "-1",
        "nan",
        "1e999",
        "x" * 5000,
        "\x00\x1b[2J\n",
        "\ud800",
        "AAAA",
    ),
    *(
        [],
        {},
        [[]],
        [0] * 3,
        [None],
        {"": 1},
        [[[[[[]]]]]],
        {"w": 1, "lo": 0, "p": "AAAA"},
        {"d": 1, "after": "end_ns"},
    ),
)
CSV_ODD = (b",", b"\n", b'"', b"nan", b"inf", b"-1", b"1e308", b"9" * 30, b"\xff", b"\0", b",,,,", b"")


@dataclass(frozen=True)
class Target:
    """One decoder: good inputs, how one becomes hostile, and what reads it."""

    name: str
    good: Sequence[bytes]
    hurt: Callable[[bytes, random.Random], bytes]
    read: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...] = REFUSALS


def from_file(path: Path, read: Callable[[Path], object]) -> Callable[[bytes], object]:
    """Through a file of that name."""

    def through(data: bytes) -> object:
        path.write_bytes(data)
        return read(path)

    return through


def with_odd(odd: Sequence[bytes]) -> Callable[[bytes, random.Random], bytes]:
    """Damage with such parts in it."""
    return lambda good, chance: damaged(good, chance, odd)


def hurt_json(good: bytes, chance: random.Random) -> bytes:
    """JSON still: one to three of its values replaced, left out or doubled. Else bytes of it."""
    if chance.random() < 0.4:
        return damaged(good, chance)
    content = orjson.loads(good)
    for _ in range(chance.choice((1, 1, 2, 3))):
        at: Any = content
        while True:
            places = list(at) if isinstance(at, dict) else list(range(len(at)))
            if not places:
                break
            place = chance.choice(places)
            if not isinstance(at[place], dict | list) or not at[place] or chance.random() < 0.2:
                way = chance.randrange(6)
                if way == 0:
                    del at[place]
                elif way == 1 and isinstance(at, list):
                    at.append(copy.deepcopy(at[place]))
                else:
                    at[place] = copy.deepcopy(chance.choice(VALUES))
                break
            at = at[place]
    return json.dumps(content).encode()
