"""How long each phase of the step under way has taken so far, for steps that last seconds to minutes.

In: the phase that a rank is in, looked up ten times a second.  Out: milliseconds by phase, nothing of a short step.
Between two looks the time is the earlier phase's: what lasts shorter than a look is told by chance, as by samples.
"""

from __future__ import annotations

from typing import Final

from tuiadvisor.phases import PHASES

LONG_NS: Final = 2 * 10**9  # a shorter step is over before it was read
MOST_NS: Final = 1 << 62


class StepUnderWay:
    """Mutable: one rank's."""

    def __init__(self) -> None:
        self._step: int | None = None
        self._phase = -1
        self._since_ns = 0
        self._spent_ns: dict[int, int] = {}

    def look(self, phase: int, since_ns: int, step: int) -> None:
        """The phase it is in, since when, in which step; a word that no probe wrote begins anew."""
        if not (0 <= phase < len(PHASES) and 0 < since_ns < MOST_NS):
            self._step, self._spent_ns = None, {}
            return
        if step != self._step or since_ns < self._since_ns:
            self._step, self._spent_ns = step, {}
        elif since_ns > self._since_ns:
            spent = self._spent_ns
            spent[self._phase] = spent.get(self._phase, 0) + since_ns - self._since_ns
        self._phase, self._since_ns = phase, since_ns

    def so_far_ms(self, now_ns: int) -> dict[str, int]:
        """By phase in the order of PHASES; empty while the step is short, or unknown."""
        if self._step is None or now_ns < self._since_ns:
            return {}
        spent = {**self._spent_ns}
        spent[self._phase] = spent.get(self._phase, 0) + now_ns - self._since_ns
        if sum(spent.values()) < LONG_NS:
            return {}
        return {PHASES[phase]: spent[phase] // 1_000_000 for phase in sorted(spent)}
