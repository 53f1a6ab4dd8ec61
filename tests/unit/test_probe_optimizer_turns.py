"""Which optimizer step ends an iteration: by data, by the cycle of the optimizers, or every one of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest

from tuiadvisor_probes.optimizer_turns import MAX_TURNS, Turns

SIZES = {"D": 8, "G": 9, "Q": 12, "A": 6, "a": 1}
IDS = {name: number for number, name in enumerate(SIZES)}


def borders(turns: Iterable[str]) -> list[str]:
    """The turns between two borders. A turn is an optimizer's letter, behind a dot if it began with data."""
    done: dict[int, int] = {}
    judge = Turns(done, {IDS[name]: size for name, size in SIZES.items()})
    steps, step, begun = [], "", False
    for turn in turns:
        if begun and judge.ends(by_data=turn.startswith(".")):
            steps.append(step)
            step = ""
        begun = True
        step += turn.removeprefix(".")
        for name in turn.removeprefix("."):
            done[IDS[name]] = 0
    return steps


def repeat(pattern: str, count: int, begin: int = 0) -> list[str]:
    """Turns of many iterations, attached to `begin` turns later."""
    return pattern.split() * count if not begin else (pattern.split() * (count + 1))[begin:]


@pytest.mark.parametrize(
    ("pattern", "steps"),
    [
        (".D G", ["DG"]),  # torch's example of a GAN
        (".G D D", ["GDD"]),
        (".D .D .D .D .DG", ["D", "DG"]),  # no forward between the two: one turn
        (".D .D .D .D .D G", ["D", "DG"]),  # a critic's steps, each with data of its own
        (".A", ["A"]),
        (".DG", ["DG"]),
        (".D .G", ["D", "G"]),  # each has its own batch: two steps
        (".A A A A", ["A"]),  # epochs over one batch, one optimizer: each is a step
        (".Q A Q A Q A", ["QAQAQA"]),
        ("D G", ["GD"]),  # nothing tells where it begins: the smaller one ends it, on every rank
        ("D D D D D G", ["DDDDDG"]),
        ("Q Q A a A a", ["QQAaAa"]),  # a delayed policy
        ("A", ["A"]),
    ],
)
@pytest.mark.parametrize("begin", range(7))
def test_a_step_is_an_iteration_of_the_loop(pattern: str, steps: list[str], begin: int) -> None:
    """Whatever turn the probe came in at; the iterations of the first moments apart."""
    period = pattern.split()
    found = borders(repeat(pattern, 40, begin % len(period)))
    assert set(found[-2 * len(steps) - 8 :]) == set(steps)
    assert max(map(len, found[:3])) <= max(map(len, steps))


@pytest.mark.parametrize("pattern", ["D G", "D D D G", "Q Q A a A a"])
def test_ranks_that_are_attached_at_different_turns_choose_the_same_border(pattern: str) -> None:
    """The last turns of all ranks, which end together, are cut alike."""
    num_turns = len(pattern.split())
    assert len({tuple(borders(repeat(pattern, 20, begin))[-5:]) for begin in range(num_turns)}) == 1


def test_twins_are_not_joined() -> None:
    """Two optimizers that nothing tells apart: ranks might pair them differently."""
    done: dict[int, int] = {}
    judge = Turns(done, {1: 4, 2: 4})
    for number in (1, 2) * 20:
        done[number] = 0
        assert judge.ends(by_data=False)


def test_data_that_comes_to_an_end_gives_the_steps_back() -> None:
    """No step of minutes where a loader was used in the first iterations only."""
    found = borders([*repeat(".D G", 10), *repeat("Q A", 3 * MAX_TURNS)])
    assert max(map(len, found)) <= MAX_TURNS + 3
    assert found[-4:] == ["QA"] * 4


def test_a_seldom_evaluation_with_a_loader_joins_nothing() -> None:
    """Data every 40 turns is not what an iteration begins with."""
    found = borders(itertools.chain.from_iterable([".D", "G", *repeat("D G", 19)] for _ in range(5)))
    assert max(map(len, found)) == 2


def test_a_skipped_update_keeps_the_cycle() -> None:
    """A turn in which a scaler skipped the optimizer has nobody in it."""
    found = borders([*repeat("D G", 10), "D", "", *repeat("D G", 10)])
    assert found[-8:] == ["GD"] * 8
    assert len(found) < 30


def test_a_loop_that_changes_is_learned_anew() -> None:
    """Two phases of a training: pairs first, then four critics' steps for each generator's."""
    found = borders([*repeat("D G", 20), *repeat("D D D D G", 20)])
    assert found[-3:] == ["DDDDG"] * 3
