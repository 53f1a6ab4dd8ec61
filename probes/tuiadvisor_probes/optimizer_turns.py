"""Which optimizer step ends an iteration where several optimizers take turns (a GAN's two, actor and critic).

A turn is what lies between two optimizer steps with forward or backward between them. With one optimizer each turn is
a step of the training. With several that take turns, an iteration of the loop holds more than one turn. What tells
where it begins, in this order:

- **data**: once a stretch between two waits for data has held turns of different optimizers, only data begins a step;
- **the cycle** of the optimizers where no data was seen: the shortest one that the turns have repeated. It ends with
  the optimizer that steps least often, then with that of the fewest parameters: all ranks choose alike, whenever they
  began.

Until either is known, and again when the turns stop following it, each turn is a step. Created when a second optimizer
steps; a training with one never asks.
"""

from __future__ import annotations

MAX_TURNS = 16  # in one iteration; more between two waits for data are steps of their own
KEPT_TURNS = 2 * MAX_TURNS

_Who = frozenset[int]  # ids of the optimizers that stepped in a turn


class Turns:
    """Asked at each border that an optimizer step has made possible; says whether it is one."""

    __slots__ = (
        "_cycle",
        "_is_under_way",
        "_position",
        "_since_data",
        "_waits_for_data",
        "done",
        "recent",
        "sizes",
    )

    def __init__(self, done: dict[int, int], sizes: dict[int, int]) -> None:
        """done: id of each optimizer that finished in this turn -> step; emptied here. sizes: id -> its elements."""
        self.done = done
        self.sizes = sizes
        self.restart()

    def restart(self) -> None:
        """Nothing is known of how optimizers take turns."""
        self.done.clear()
        self.recent: list[_Who] = []  # turns since the last wait for data
        self._since_data: list[_Who] | None = None  # the same, None until one was seen or it is too long ago
        self._waits_for_data = False
        self._cycle: list[_Who] = []
        self._position = 0  # of the next turn in the cycle
        self._is_under_way = False  # the cycle's first whole iteration has begun

    def ends(self, by_data: bool) -> bool:
        """A turn is over; whether the iteration is. by_data: what begins now waits for data."""
        who = frozenset(self.done)
        self.done.clear()
        if self._waits_for_data:
            return self._at_data(who, by_data)
        since = self._since_data
        if since is not None:
            since.append(who)
            if by_data and len(set(since)) > 1:
                self._cycle, self._waits_for_data = [], True
                self._since_data = []
                return True
            if len(since) > MAX_TURNS:
                self._since_data = None
        if by_data:
            self._since_data = []
        if self._cycle:
            return self._in_cycle(who)
        if by_data:
            self.recent.clear()
        else:
            self.recent.append(who)
            del self.recent[:-KEPT_TURNS]
            self._look_for_cycle()
        return True

    def _at_data(self, who: _Who, by_data: bool) -> bool:
        since = self._since_data
        assert since is not None  # noqa: S101 - kept while data is what begins a step
        since.append(who)
        if by_data:
            since.clear()
            return True
        if len(since) <= MAX_TURNS:
            return False
        self.restart()  # the data has come to an end
        return True

    def _in_cycle(self, who: _Who) -> bool:
        if who and who != self._cycle[self._position]:  # nobody: a step that a scaler has skipped
            self._cycle, self._is_under_way = [], False
            self.recent.append(who)
            return True
        self._position = (self._position + 1) % len(self._cycle)
        if self._position:
            return not self._is_under_way
        self._is_under_way = True
        return True

    def _look_for_cycle(self) -> None:
        """The shortest cycle that the last turns went through twice, and that holds everybody who stepped lately."""
        turns = self.recent
        everybody = set(turns)
        if len(everybody) < 2 or frozenset() in everybody:
            return
        for length in range(2, MAX_TURNS + 1):
            last = turns[-length:]
            if len(turns) < 2 * length:
                return
            if set(last) == everybody and turns[-2 * length : -length] == last:
                self._begin(last)
                return

    def _begin(self, last: list[_Who]) -> None:
        """last: one cycle, whose last turn is just over."""
        length = len(last)

        def order(end: int) -> list[tuple[int, int]]:
            """From the last turn backwards: how often its optimizers step, and their parameters."""
            turns = (last[(end - back) % length] for back in range(length))
            return [(last.count(who), sum(self.sizes.get(one, 0) for one in who)) for who in turns]

        ends = sorted(range(length), key=order)
        if order(ends[0]) == order(ends[1]):
            return  # twins: ranks that began at different turns would choose differently
        end = ends[0]
        self._cycle = last[end + 1 :] + last[: end + 1]
        self._position = (length - 1 - end) % length
        self._is_under_way = self._position == 0
        self.recent = []
