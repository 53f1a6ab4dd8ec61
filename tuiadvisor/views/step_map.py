"""One value of every rank in every recent step, as levels: frozen, for the heat map. `step_maps` makes them.

In: nothing.  Out: StepMap. All ranks lie in one string of bytes, so 16,384 of them cost no object each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

UNKNOWN_LEVEL: Final = 255
# Unknown below every level, so that the largest of a group is its highest known one; and back.
_RAISED: Final = bytes((level + 1) % 256 for level in range(256))
_LOWERED: Final = bytes((level - 1) % 256 for level in range(256))


@dataclass(frozen=True, slots=True)
class StepMap:
    """Seconds that ranks spent on something, in equal levels from nothing to `top_s` or more."""

    phase: str  # events.PHASES
    clock: str  # views.run_view.Clock that its times are from
    top_s: float  # what the highest level begins to stand for
    num_steps: int
    rows: Mapping[int, int]  # rank -> row of `cells`
    cells: bytes  # a byte a step, oldest first: level 0..7, 255 not observed

    def of(self, ranks: Iterable[int]) -> bytes:
        """Levels of one rank, or of the highest of several in each step; unknown where none of them is known."""
        found = [self._row(self.rows[rank]) for rank in ranks if rank in self.rows]
        if not found:
            return bytes([UNKNOWN_LEVEL]) * self.num_steps
        if len(found) == 1:
            return found[0]
        return bytes(map(max, *(row.translate(_RAISED) for row in found))).translate(_LOWERED)

    def _row(self, row: int) -> bytes:
        return self.cells[row * self.num_steps : (row + 1) * self.num_steps]
