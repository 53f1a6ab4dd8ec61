"""Optimizers that take turns without data: an iteration is one of the loop that holds all their steps."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

import pytest

from tuiadvisor_probes.code_loops import Loops, loops_of, place
from tuiadvisor_probes.optimizer_turns import MAX_TURNS, Turns


class Program:
    """What a loop below calls; cuts it into steps as the probe does, attached before the given optimizer step."""

    def __init__(self, attached_at: int) -> None:
        self.done: dict[int, int] = {}
        self.turns: Turns | None = None
        self.num_steps = -attached_at
        self.has_stepped = False
        self.steps: list[str] = []
        self.made = ""
        self.seen: set[str] = set()

    def forward(self) -> None:
        """Anything that may begin an iteration."""
        if self.has_stepped:
            if self.turns is None or self.turns.ends(by_data=False):
                self.steps.append(self.made)
                self.made, self.has_stepped = "", False
            else:
                self.has_stepped = self.turns.asks_again

    def step(self, name: str) -> None:
        """An optimizer's."""
        self.num_steps += 1
        if self.num_steps <= 0:
            return
        self.seen.add(name)
        self.made += name
        self.has_stepped = True
        if self.turns is None and len(self.seen) > 1:
            self.turns = Turns(self.done)
        self.done[ord(name)] = 0
        if self.turns is not None:
            self.turns.stepped(ord(name), sys._getframe(1))


def delayed_actor(do: Program) -> None:
    """TD3: acts, learns, and each second time steps its actor."""
    for number in range(20):
        with contextlib.suppress(KeyError):
            do.forward()
        do.forward()
        do.step("Q")
        if number % 2:
            do.forward()
            do.step("A")


def critic_first(do: Program) -> None:
    """WGAN without a loader: the critic learns three times for each of the generator's."""
    for _ in range(20):
        for _ in range(3):
            do.forward()
            do.step("D")
        do.forward()
        do.step("G")


def gan(do: Program) -> None:
    """Noise against made up samples, and now and then a picture."""
    number = 0
    while True:
        do.forward()
        do.step("D")
        do.forward()
        do.step("G")
        number += 1
        if number % 3 == 0:
            do.forward()
        if number % 5 == 0:
            continue
        if number > 40:
            break


def in_functions(do: Program) -> None:
    """Each update in a function of its own, the critic's with its own loop."""

    def critic() -> None:
        for _ in range(3):
            do.forward()
            do.step("D")

    def generator() -> None:
        do.forward()
        do.step("G")

    for _ in range(20):
        critic()
        generator()


def one_update_a_call(do: Program) -> None:
    """The delayed actor in an agent's method, and no event before it."""

    def update(number: int) -> None:
        do.forward()
        do.step("Q")
        if number % 2:
            do.forward()
            do.step("A")

    for number in range(20):
        update(number)


def epochs(do: Program) -> None:
    """A function an epoch, an evaluation behind it."""

    def epoch() -> None:
        for _ in range(4):
            with contextlib.suppress(KeyError):
                do.forward()
            do.step("D")
            do.forward()
            do.step("G")

    for _ in range(6):
        epoch()
        do.forward()


def together(do: Program) -> None:
    """Two optimizers in one loop over them: one turn."""
    for _ in range(20):
        do.forward()
        for name in "MA":
            do.step(name)


def outer_optimizer(do: Program) -> None:
    """A third one steps once an epoch of many turns."""
    for _ in range(4):
        for _ in range(MAX_TURNS):
            do.forward()
            do.step("D")
            do.forward()
            do.step("G")
        do.forward()
        do.step("E")


@pytest.mark.parametrize(
    ("program", "steps"),
    [
        (delayed_actor, {"Q", "QA"}),
        (critic_first, {"DDDG"}),
        (gan, {"DG"}),
        (in_functions, {"DDDG"}),
        (one_update_a_call, {"Q", "QA"}),
        (epochs, {"DG"}),
        (together, {"MA"}),
    ],
)
@pytest.mark.parametrize("attached_at", range(7))
def test_a_step_is_an_iteration_of_the_loop(
    program: Callable[[Program], None], steps: set[str], attached_at: int
) -> None:
    """Whatever turn the probe came in at."""
    do = Program(attached_at)
    program(do)
    assert steps == set(do.steps[-6:])
    assert len("".join(do.steps[:3])) <= 3 * max(map(len, steps))


@pytest.mark.parametrize("program", [delayed_actor, critic_first, gan, in_functions, one_update_a_call])
def test_ranks_that_are_attached_at_different_turns_cut_at_the_same_one(
    program: Callable[[Program], None],
) -> None:
    """A rank's phase is the program's, not its own."""
    first = Program(0)
    program(first)
    for attached_at in range(1, 9):
        later = Program(attached_at)
        program(later)
        assert first.steps[-8:] == later.steps[-8:]


def test_an_optimizer_of_the_epochs_makes_no_step_of_an_epoch() -> None:
    """Where the loop that holds all holds too many turns, each turn is a step."""
    do = Program(0)
    outer_optimizer(do)
    assert max(map(len, do.steps)) <= MAX_TURNS + 1
    assert {"D", "G"} <= set(do.steps[-8:])


def loops(function: Callable[..., object]) -> int:
    """How many."""
    return len(loops_of(function.__code__))


def test_what_an_exception_leads_to_is_no_loop() -> None:
    """Its code lies behind the function's and jumps back."""

    def guarded() -> Iterator[int]:
        with contextlib.suppress(KeyError):
            yield 1
        try:
            yield 2
        except ValueError:
            yield 3
        yield 4

    def nested(rows: list[list[int]]) -> int:
        total = 0
        for row in rows:
            with contextlib.suppress(KeyError):
                total += 1
            for value in row:
                if value < 0:
                    continue
                total += value
        while total > 9:
            total //= 2
            if total == 5:
                continue
            total -= 1
        return total

    assert 0 == loops(guarded)
    assert 3 == loops(nested)


def test_a_function_that_is_not_under_way_has_no_place() -> None:
    """Nor any loop from there."""
    assert [] == place(sys._getframe(), loops.__code__)
    assert place(sys._getframe())[-1][0] is sys._getframe().f_code
    assert Loops().shared([place(sys._getframe()), []]) is None
