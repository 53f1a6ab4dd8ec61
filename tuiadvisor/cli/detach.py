"""`tuiadvisor detach`: take probes out of running ranks, whoever put them in."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from tuiadvisor.agent.payload import detach_code
from tuiadvisor.agent.session import mapped_rings, remove_leftovers
from tuiadvisor.cli.options.target import ranks_of
from tuiadvisor.cli.options.training import add_target
from tuiadvisor.errors import FailureError
from tuiadvisor.inject import inject
from tuiadvisor.text import format as text_of
from tuiadvisor.text.printed import say

if TYPE_CHECKING:
    import argparse

PATIENCE_S: Final = 5.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_target(parser)


def run(options: argparse.Namespace) -> int:
    """Inject the removal and see that the rings are unmapped."""
    ranks = ranks_of(options)
    probed = [process for process in ranks if mapped_rings(process.pid)]
    for process in probed:
        inject(process.identity, detach_code())
    left = [process.pid for process in probed]
    deadline = time.monotonic() + PATIENCE_S
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left = [pid for pid in left if mapped_rings(pid)]
    remove_leftovers()
    if left:
        raise FailureError(
            f"probes are still mapped in {', '.join(map(str, left))}: these ranks make no progress; they come out "
            "at the next step, or by themselves 30 s after their agent has gone"
        )
    say(
        f"{text_of.count(len(probed), 'probe')} taken out of {text_of.count(len(ranks), 'rank')}"
        if probed
        else f"no probes in {text_of.count(len(ranks), 'rank')}"
    )
    return 0
