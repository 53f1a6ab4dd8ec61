"""An ended step becomes a record of the ring, with what the probe itself took of it.

Own cost is told so that it can be believed on a busy machine too: a sample in which the kernel took the core away is no
cost of ours, so prices are medians of the last few samples and the writing is timed by the thread's CPU clock. Nothing
is counted twice or left out: what writing a row of steps took is spread over the steps of the next row.
"""

from __future__ import annotations

from typing import Any

from .duty import Median
from .phases import COMM_EXPOSED, OTHER

UNKNOWN = -1
FLAG_GC, FLAG_DETAIL, FLAG_NO_SYNC = 32, 64, 128
LONG_GC_NS = 1_000_000


class OwnCost:
    """What the probe takes, as measured in the training's own steps."""

    __slots__ = ("closing_ns", "in_detail_ns", "transition_ns", "unbooked_ns")

    def __init__(self) -> None:
        self.transition_ns = Median(0)  # one change of phase
        self.in_detail_ns = Median(0)  # the same in a burst, with the events it writes
        self.closing_ns = Median(0)  # keeping an ended step
        self.unbooked_ns = 0  # the last writing, and what was looked after beside it

    def of_hooks(
        self, flags: int, hooks_ns: int, device_ns: int, num_measured: int, num_transitions: int
    ) -> int:
        """Nanoseconds in the hooks of a step, which were timed in num_measured of its transitions."""
        price = self.in_detail_ns if flags & FLAG_DETAIL else self.transition_ns
        if 2 * num_measured > num_transitions:  # else measuring began or ended within the step
            price.add(max(0, hooks_ns - device_ns) // num_measured)  # device events are not in every step
        return price.value * max(num_transitions, num_measured)


def write(ring: Any, kept: list[tuple[Any, ...]], cost: OwnCost, peak_bytes: int) -> list[Any]:
    """The kept steps (`Books.kept`), in a row; peak_bytes goes into the first.

    Returns what decides on the steps to come, of each: its end, length, own cost, sequence number, observed and number
    of transitions.
    """
    written = []
    share_ns = cost.unbooked_ns // max(1, len(kept))
    cost.unbooked_ns = 0
    for (
        step,
        begin,
        end,
        totals,
        arrive_ns,
        release_ns,
        hidden_ns,
        micro_steps,
        observed,
        num_transitions,
        seq,
        num_collectives,
        comm_bytes,
        samples,
        tokens,
        flags,
        gc_ns,
        cpu_ns,
        device_ns,
        hooks_ns,
        num_measured,
    ) in kept:
        own_ns = cost.of_hooks(flags, hooks_ns, device_ns, num_measured, num_transitions)
        own_ns += cost.closing_ns.value + share_ns + device_ns
        if arrive_ns == UNKNOWN:
            flags |= FLAG_NO_SYNC  # noqa: PLW2901 - a copy would be one more cold name
        if gc_ns > LONG_GC_NS:
            flags |= FLAG_GC  # noqa: PLW2901 - likewise
        ring.put_step(
            (
                step,
                begin,
                end,
                *totals,
                arrive_ns,
                release_ns,
                UNKNOWN if hidden_ns == UNKNOWN else hidden_ns + totals[COMM_EXPOSED],
                seq,
                num_collectives,
                comm_bytes,
                micro_steps,
                samples,
                tokens,
                flags,
                observed | 1 << OTHER,
                own_ns,
                gc_ns,
                peak_bytes,
                cpu_ns,
            )
        )
        peak_bytes = UNKNOWN
        written.append((end, end - begin, own_ns, seq, observed, num_transitions))
    return written
