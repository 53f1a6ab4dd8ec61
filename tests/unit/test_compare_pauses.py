"""Rare pauses leave the steady steps alone; what they make of the run is not called no change."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from synthetic_run import Fault, Job
from unit.test_compare import measured, scaled

from tuiadvisor.advisor.compare.comparing import ComparisonOptions, compare
from tuiadvisor.advisor.compare.measured import Measured

JOB = Job(num_ranks=2, num_steps=400)
LIMIT = ComparisonOptions(fail_if_slower=0.05)
RARE = [
    Fault("checkpoint", None, 3.0, every=150),
    Fault("checkpoint", None, 3.0, every=200),
    Fault("checkpoint", None, 10.0, every=150),
    Fault("checkpoint", None, 1.0, every=100),
    Fault("other", (1,), 1.0, chance=0.005),
    Fault("other", (1,), 5.0, chance=0.005),
]


@cache
def plain(seed: int = 1) -> Measured:
    return measured(replace(JOB, seed=seed))


@pytest.mark.slow
@pytest.mark.parametrize("pause", RARE)
@pytest.mark.parametrize("swapped", [False, True])
def test_rare_pauses_are_not_called_no_change(pause: Fault, swapped: bool) -> None:
    """It said NO CHANGE of runs 1.4 to 3.8 times slower, because the steady steps decided alone."""
    pair = plain(), measured(replace(JOB, seed=2).with_faults(pause))
    found = compare(*(pair[::-1] if swapped else pair), LIMIT)
    assert found.verdict == "not decided"
    assert found.sentence.startswith("Not decided: the steady steps did not change")
    assert "pauses included" in found.sentence
    assert found.goodput is not None
    assert found.goodput.answer != "no change"
    assert "did not change beyond noise" not in found.goodput.sentence
    if not swapped:
        assert found.gate is not None
        assert found.gate.exceeded is None
        (said,) = (
            text for text in found.cautions if text.startswith("cannot tell whether it is 5.0 % slower")
        )
        assert said.endswith("; record longer"), "a quiet machine has as many checkpoints"


@pytest.mark.slow
def test_a_gain_of_the_steady_steps_passes_no_check_that_pauses_may_undo() -> None:
    """Steady steps a fifth shorter beside pauses that may make the run eight times as long."""
    after = scaled(0.8, 2, JOB).with_faults(Fault("checkpoint", None, 10.0, every=150))
    found = compare(plain(), measured(after), LIMIT)
    assert found.verdict == "improved"
    assert found.gate is not None
    assert found.gate.exceeded is None
    assert any(text.startswith("this is of the steady steps; pauses included") for text in found.cautions)
    clean = compare(plain(), measured(scaled(0.8, 2, JOB)), LIMIT)
    assert clean.gate is not None
    assert clean.gate.exceeded is False
    assert not any("pauses included" in text for text in clean.cautions)


@pytest.mark.slow
def test_without_pauses_no_change_stands() -> None:
    found = compare(plain(), plain(2), LIMIT)
    assert found.verdict == "no change"
    assert found.gate is not None
    assert found.gate.exceeded is False
    assert found.goodput is not None
    assert found.goodput.answer == "no change"


@pytest.mark.slow
def test_by_throughput_pauses_are_named_too() -> None:
    """Another batch is compared in samples a second: it did not say that these are of all steps."""
    pause = Fault("checkpoint", (0,), 0.06, every=10)
    found = compare(plain(), measured(replace(scaled(2.0, 2, JOB)).with_faults(pause), samples=64))
    assert found.basis == "samples"
    assert found.change is found.every_step
    assert "the job, pauses included, does" in found.sentence


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1.2, 1.6, 2.0])
def test_what_repeats_differ_by_is_no_band_of_equality(factor: float) -> None:
    """It said NO CHANGE of a step twice as long, because repeats that differ by a quarter cannot tell."""
    repeats = measured(scaled(1.25, 3, JOB)), measured(scaled(1.0, 4, JOB))
    asked = replace(LIMIT, repeats=repeats)
    found = compare(plain(), measured(scaled(factor, 7, JOB)), asked)
    assert found.verdict == "not decided"
    assert "more repeats" in found.sentence
    assert found.gate is not None
    assert found.gate.exceeded is None


RECURS = Fault("checkpoint", None, 0.3, every=50)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pauses", "verdict", "gate"),
    [
        ((RECURS, RECURS), "no change", False),
        ((None, RECURS), "regressed", True),
        ((RECURS, None), "improved", False),
        ((RECURS, replace(RECURS, amount_s=0.6)), "regressed", True),
    ],
)
def test_pauses_that_recur_are_counted_not_drawn(
    pauses: tuple[Fault | None, Fault | None], verdict: str, gate: bool
) -> None:
    """Two runs of the same code with the same checkpoints: a draw of single steps told -38 to +58 % of them."""
    job = replace(JOB, num_steps=1_500)
    before, after = (
        measured(replace(job, seed=seed).with_faults(*([pause] if pause else [])))
        for seed, pause in enumerate(pauses, 1)
    )
    found = compare(before, after, LIMIT)
    assert found.verdict == verdict, found.sentence
    assert found.gate is not None
    assert found.gate.exceeded is gate
