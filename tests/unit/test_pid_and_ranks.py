"""--pid takes all numbers behind it: a rank that was named there is told where it is named."""

from __future__ import annotations

import argparse

import pytest

from tuiadvisor.cli.options.target import ranks_of
from tuiadvisor.errors import TuiadvisorError


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"pid": [4194303, 1], "ranks": None}, True),  # stacks --pid 4194303 1 --lines
        ({"pid": [4194303], "ranks": None}, False),
        ({"pid": [4194303, 4194302], "ranks": frozenset({1})}, False),
        ({"pid": [4194303, 4194302]}, False),  # a command without ranks
    ],
)
def test_a_rank_behind_pid_is_told_where_ranks_are_named(given: dict[str, object], says: bool) -> None:
    with pytest.raises(TuiadvisorError) as raised:
        ranks_of(argparse.Namespace(**given))
    assert says == str(raised.value).endswith("(a rank is named before --pid: RANKS --pid PID)")
