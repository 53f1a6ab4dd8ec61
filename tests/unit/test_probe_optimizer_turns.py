"""Which optimizer step ends an iteration: the last one before data, or every one of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest

from tuiadvisor_probes.optimizer_turns import MAX_TURNS, Turns

IDS = {name: number for number, name in enumerate("DGQAa")}


def borders(turns: Iterable[str]) -> list[str]:
    """The turns between two borders. A turn is an optimizer's letter, behind a dot if it began with data."""
    done: dict[int, int] = {}
    judge = Turns(done)
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
        ("D G", ["D", "G"]),  # nothing tells where it begins
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


@pytest.mark.parametrize("pattern", [".D G", ".D D D G", ".D .D G"])
def test_ranks_that_are_attached_at_different_turns_change_at_the_same_one(pattern: str) -> None:
    """From the first wait for data that both saw, their steps are the same."""
    period = len(pattern.split())
    first = borders(repeat(pattern, 20))
    for begin in range(1, 2 * period):
        later = borders(repeat(pattern, 20 + begin // period, begin))
        assert first[-8:] == later[-8:]


def test_data_that_comes_to_an_end_gives_the_steps_back() -> None:
    """No step of minutes where a loader was used in the first iterations only."""
    found = borders([*repeat(".D G", 10), *repeat("Q A", 3 * MAX_TURNS)])
    assert max(map(len, found)) <= MAX_TURNS + 1
    assert found[-4:] == ["Q", "A", "Q", "A"] or found[-4:] == ["A", "Q", "A", "Q"]


def test_a_seldom_evaluation_with_a_loader_joins_nothing() -> None:
    """Data every 40 turns is not what an iteration begins with."""
    found = borders(itertools.chain.from_iterable([".D", "G", *repeat("D G", 19)] for _ in range(5)))
    assert max(map(len, found)) == 1


def test_a_skipped_update_changes_nothing() -> None:
    """A turn in which a scaler skipped the optimizer has nobody in it."""
    found = borders([*repeat(".D G", 10), ".D", "", *repeat(".D G", 10)])
    assert found[-8:] == ["DG"] * 8


def test_one_optimizer_whose_updates_are_skipped_takes_no_turns_with_itself() -> None:
    """Several updates a batch, some skipped by a loss scaler: each stays a step."""
    found = borders(itertools.chain.from_iterable([".A", "", "A", "A"] for _ in range(10)))
    assert max(map(len, found)) == 1
