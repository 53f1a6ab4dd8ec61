"""Which optimizer step ends an iteration where several optimizers take turns (a GAN's two, actor and critic).

A turn is what lies between two optimizer steps with forward or backward between them. With one optimizer each turn is
a step of the training. With several that take turns, an iteration of the loop holds more than one turn. Two things tell
where it begins:

Data: once a stretch between two waits for data has held turns of different optimizers, only a wait for data begins a
step. All ranks see the same stretch, so they change at the same one, whenever they were attached.

The loop itself, where no data is seen: the innermost loop of the program that holds the steps of all optimizers
(`code_loops`). An iteration begins where it has been gone around; a loop inside it (a critic's several steps) begins
none. So an actor that steps every second time is told from a critic that steps twice. Ranks of one program have the
same loop and cut at the same places; each marks the step in which it came to know the loop as partial.

The optimizers' own order would not do: it is the same for the two, and ranks learn it at different moments. Created
when a second optimizer steps; a training with one never asks.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from .code_loops import Loops, place

if TYPE_CHECKING:
    from types import CodeType, FrameType

    from .code_loops import Place, Span

MAX_TURNS = 16  # in one iteration; more between two waits for data are steps of their own
MAX_SITES = 16  # optimizers whose places are compared; a loop that makes new ones is known by then

_Who = frozenset[int]  # ids of the optimizers that stepped in a turn


class Turns:
    """Asked at each border that an optimizer step has made possible; says whether it is one."""

    __slots__ = (
        "_before",
        "_loops",
        "_num_in_loop",
        "_root",
        "_since_data",
        "_sites",
        "_span",
        "_waits_for_data",
        "done",
    )

    def __init__(self, done: dict[int, int]) -> None:
        """done: id of each optimizer that finished in this turn -> step; emptied here."""
        self.done = done
        self._loops = Loops()
        self.restart()

    def restart(self) -> None:
        """Nothing is known of how optimizers take turns."""
        self.done.clear()
        self._since_data: list[_Who] | None = (
            None  # turns; None until data was seen, or where it is too long ago
        )
        self._waits_for_data = False
        self._sites: dict[int, Place] = {}  # where each optimizer stepped first
        self._root: CodeType | None = None  # the function with the loop that holds all of them
        self._span: Span = (0, 0)
        self._before: Place = []  # from that function inwards, when the program was last seen in this iteration
        self._num_in_loop = 0  # turns in this iteration

    @property
    def asks_again(self) -> bool:
        """Each later event may begin an iteration, too: the first one may still belong to this one."""
        return self._root is not None and not self._waits_for_data

    def stepped(self, optimizer_id: int, frame: FrameType) -> bool:
        """An optimizer has stepped here; whether the loop became known by it."""
        learned = False
        if optimizer_id not in self._sites and len(self._sites) < MAX_SITES:
            self._sites[optimizer_id] = place(frame)
            learned = len(self._sites) > 1 and self._learn()
        if self._root is not None:
            self._before = place(frame, self._root)
        return learned

    def _learn(self) -> bool:
        shared = self._loops.shared(list(self._sites.values()))
        if shared is None or shared == (self._root, self._span):
            return False
        self._root, self._span = shared
        self._num_in_loop = 0
        return True

    def ends(self, by_data: bool) -> bool:
        """A turn is over; whether the iteration is. by_data: what begins now waits for data."""
        who = frozenset(self.done)
        self.done.clear()
        since = self._since_data
        if since is not None and (who or not self.asks_again):
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
        if by_data or self._waits_for_data or self._root is None:
            ends = by_data or not self._waits_for_data
        else:
            ends = self._has_gone_around(bool(who), sys._getframe(1))
        if ends:
            self._num_in_loop = 0
        return ends

    def _has_gone_around(self, is_turn: bool, frame: FrameType) -> bool:
        """Whether another iteration of the shared loop has begun, or the loop was left."""
        self._num_in_loop += is_turn
        if self._num_in_loop > MAX_TURNS:  # it is the loop over epochs, or what makes new optimizers
            self._root = None
            return True
        before, self._before = self._before, place(frame, self._root)
        if not self._before:
            return True
        if not before:
            return False
        first, last = self._span
        if not first <= self._before[0][1] <= last:
            return True
        around = self._loops.around(before, self._before)
        return around is not None and around[0] == 0 and around[1][0] <= first and last <= around[1][1]
