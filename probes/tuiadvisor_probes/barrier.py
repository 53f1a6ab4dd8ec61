"""When this rank came to the step's last synchronization, and when it left it.

A rank that waited for others earlier in the step (a buffer broadcast, FSDP's all-gathers, a micro-batch's all-reduce)
has been brought into line there, and its arrival at the last barrier no longer shows who was late. So what it waited
since the previous step's release is taken off: arrival = release - everything waited in between. For plain data
parallel training with one barrier a step that is the very moment of arrival.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import phases
from . import step_clock as sc

if TYPE_CHECKING:
    from .step_clock import StepClock


class Barrier:
    """Books arrive_ns and release_ns of the clock's step; the step's last synchronization wins."""

    __slots__ = ("base_ns", "clock", "latest_ns", "step")

    def __init__(self, clock: StepClock) -> None:
        self.clock = clock
        self.step = sc.UNKNOWN
        self.base_ns = sc.UNKNOWN  # communication booked until the previous step's release
        self.latest_ns = sc.UNKNOWN  # ... until the latest release

    def book(self, arrive_ns: int, release_ns: int) -> None:
        """A wait that ended at release_ns is over and has been noted as exposed communication."""
        self.clock.later(self.booked, arrive_ns, release_ns)

    def booked(self, arrive_ns: int, release_ns: int) -> None:
        """The same, called when all before it is booked."""
        books = self.clock.books
        waited_ns = books.comm_before_ns + books.totals[phases.COMM_EXPOSED]
        if books.step != self.step:
            self.step, self.base_ns = books.step, self.latest_ns
        self.latest_ns = waited_ns
        if self.base_ns == sc.UNKNOWN:  # the first one since the probe came: nothing to compare with
            self.base_ns = waited_ns - (release_ns - arrive_ns)
        books.arrive_ns = release_ns - (waited_ns - self.base_ns)
        books.release_ns = release_ns
