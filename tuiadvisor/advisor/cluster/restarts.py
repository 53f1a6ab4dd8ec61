"""Which ranks are run by another process than before, and since when.

In: what HELLO frames say of the ranks' processes.  Out: one Began a restart, in order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

# The kernel tells the boot, from which starts are counted, in whole seconds, and not always the same one.
SAME_START_NS: Final = 1_500_000_000
# Chosen: nodes of one rendezvous start their ranks some seconds apart, by clocks of their own.
ONE_RESTART_NS: Final = 60_000_000_000
MAX_RESTARTS: Final = 256  # the oldest go first


@dataclass(slots=True)
class Began:
    """One restart; each rank is in it once."""

    how_ended: str  # the processes before
    start_wall_ns: int  # of the first of the new ones
    after_step: int | None = None  # by `place`
    ranks: set[int] = field(default_factory=set)


class Restarts:
    """Mutable: tell it of each process."""

    def __init__(self) -> None:
        self.began: list[Began] = []
        self.num_begun = 0
        self._starts_ns: dict[int, int] = {}  # by rank, of its process now

    def starts_ns(self, rank: int) -> int | None:
        """When its process now started, on the wall clock."""
        return self._starts_ns.get(rank)

    def would_begin(self, processes: Iterable[tuple[int, int]]) -> bool:
        """Whether one of these (rank, start on the wall clock) is of a restart that was not heard of yet."""
        return any(
            self._is_new(rank, start) and not self._is_of_newest(rank, start) for rank, start in processes
        )

    def take(self, rank: int, start_wall_ns: int, how_ended: str = "") -> None:
        """This process runs the rank now. how_ended: of those before, where a restart begins with it."""
        if self._is_new(rank, start_wall_ns):
            if not self._is_of_newest(rank, start_wall_ns):
                self.began.append(Began(how_ended, start_wall_ns))
                self.num_begun += 1
                del self.began[:-MAX_RESTARTS]
            self.began[-1].ranks.add(rank)
        elif rank in self._starts_ns:
            return  # told again
        self._starts_ns[rank] = start_wall_ns

    def place(self, held_steps: tuple[int, int] | None) -> None:
        """The restart that has just been heard of comes after these job steps (oldest, newest), if any."""
        self.began[-1].after_step = held_steps[1] if held_steps is not None else None

    def _is_new(self, rank: int, start_wall_ns: int) -> bool:
        former = self._starts_ns.get(rank)
        return former is not None and start_wall_ns > former + SAME_START_NS

    def _is_of_newest(self, rank: int, start_wall_ns: int) -> bool:
        if not self.began or rank in self.began[-1].ranks:
            return False
        return abs(start_wall_ns - self.began[-1].start_wall_ns) <= ONE_RESTART_NS
