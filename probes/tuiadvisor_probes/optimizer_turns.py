"""Which optimizer step ends an iteration where several optimizers take turns (a GAN's two, actor and critic).

A turn is what lies between two optimizer steps with forward or backward between them. With one optimizer each turn is
a step of the training. With several that take turns, an iteration of the loop holds more than one turn, and data tells
where it begins: once a stretch between two waits for data has held turns of different optimizers, only a wait for data
begins a step. All ranks see the same stretch, so they change at the same one, whenever they were attached.

Where no data is seen (no loader, Python before 3.12) each turn stays a step. The optimizers' own cycle would tell how
long an iteration is, but ranks learn it at different moments and may cut it at different turns: then an innocent rank
was named. Created when a second optimizer steps; a training with one never asks.
"""

from __future__ import annotations

MAX_TURNS = 16  # in one iteration; more between two waits for data are steps of their own

_Who = frozenset[int]  # ids of the optimizers that stepped in a turn


class Turns:
    """Asked at each border that an optimizer step has made possible; says whether it is one."""

    __slots__ = ("_since_data", "_waits_for_data", "done")

    def __init__(self, done: dict[int, int]) -> None:
        """done: id of each optimizer that finished in this turn -> step; emptied here."""
        self.done = done
        self.restart()

    def restart(self) -> None:
        """Nothing is known of how optimizers take turns."""
        self.done.clear()
        self._since_data: list[_Who] | None = (
            None  # turns; None until data was seen, or where it is too long ago
        )
        self._waits_for_data = False

    def ends(self, by_data: bool) -> bool:
        """A turn is over; whether the iteration is. by_data: what begins now waits for data."""
        who = frozenset(self.done)
        self.done.clear()
        since = self._since_data
        if since is not None:
            since.append(
                who
            )  # empty: a loss scaler skipped the optimizer's step, which tells of no other optimizer
            if by_data:
                self._waits_for_data = self._waits_for_data or len({turn for turn in since if turn}) > 1
            elif len(since) > MAX_TURNS:  # the data has come to an end
                self._since_data, self._waits_for_data = None, False
                return True
        if by_data:
            self._since_data = []
        return by_data or not self._waits_for_data
