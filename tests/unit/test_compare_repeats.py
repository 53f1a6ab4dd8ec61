"""Runs of the same code differ: a change is only called one where it exceeds what they differ by."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from synthetic_run import Job, encoded, frames
from unit.test_contents import recording

from tuiadvisor.advisor.compare.comparing import ComparisonOptions, Measured, compare, measure
from tuiadvisor.advisor.compare.repeats import STUDENT, STUDENT_MANY, spread_of
from tuiadvisor.cli import main
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.report.comparison import comparison_document


def job(factor: float, seed: int, num_steps: int = 120) -> Job:
    """A job whose compute takes so much longer."""
    plain = Job(num_ranks=2)
    return Job(
        num_ranks=2, num_steps=num_steps, seed=seed, forward_s=plain.forward_s * factor,
        backward_s=plain.backward_s * factor,
    )  # fmt: skip


@cache
def measured(factor: float, seed: int, num_steps: int = 120) -> Measured:
    sequence = (encoded(frame) for frame in frames(job(factor, seed, num_steps)))
    return measure(f"{factor}-{seed}.tuirec", sequence)


def held(*repeats: float, after: float = 1.1) -> ComparisonOptions:
    return ComparisonOptions(
        same_work=True, repeats=tuple(measured(factor, 10 + at) for at, factor in enumerate(repeats))
    )


def test_a_change_beyond_noise_is_not_decided_where_repeats_differ_as_much() -> None:
    before, after = measured(1.0, 1), measured(1.1, 2)
    assert compare(before, after, ComparisonOptions(same_work=True)).verdict == "regressed"
    wild = compare(before, after, held(1.08, 0.94))
    assert wild.verdict == "not decided"
    assert any("3 runs of the same code differ by" in text for text in wild.cautions)
    calm = compare(before, after, held(1.0, 1.0))
    assert calm.verdict == "regressed"
    told = comparison_document(wild)["spread"]
    assert told["margin"] > 0.1 > calm.spread.margin  # type: ignore[union-attr]
    assert len(told["step_s"]) == 3
    assert comparison_document(compare(before, after, ComparisonOptions(same_work=True)))["spread"] is None


def test_the_spread_is_of_all_runs_and_narrows_with_their_number() -> None:
    few = spread_of(measured(1.0, 1), held(1.04, 0.96).repeats, same_work=True)
    many = spread_of(measured(1.0, 1), held(1.04, 0.96, 1.04, 0.96, 1.0).repeats, same_work=True)
    assert few.deviation == pytest.approx(0.03, rel=0.7)
    assert many.margin < few.margin
    quantiles = list(STUDENT.values())
    assert quantiles == sorted(quantiles, reverse=True)
    assert quantiles[-1] > STUDENT_MANY > 1.96


def test_two_runs_have_no_spread_and_other_work_is_no_repeat() -> None:
    with pytest.raises(TuiadvisorError, match="1 more recording"):
        spread_of(measured(1.0, 1), held(1.0).repeats, same_work=True)
    larger = measure("3.tuirec", (encoded(frame) for frame in frames(Job(num_ranks=3, num_steps=120))))
    with pytest.raises(TuiadvisorError, match="no repeat of"):
        spread_of(measured(1.0, 1), (measured(1.0, 3), larger), same_work=True)
    short = (measured(1.0, 3), measured(1.0, 4, 12))
    with pytest.raises(TuiadvisorError, match="more steady steps"):
        spread_of(measured(1.0, 1), short, same_work=True)


def test_the_command_takes_repeats(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    names = [str(tmp_path / f"{at}.tuirec") for at in range(4)]
    for at, factor in enumerate((1.0, 1.1, 1.08, 0.94)):
        recording(Path(names[at]), job(factor, at))
    asked = ["compare", *names[:2], "--same-work", "--json"]
    assert main([*asked, "--repeat", names[2], "--repeat", names[3]]) == 0
    told = json.loads(capfdbinary.readouterr().out)
    assert told["verdict"] == "not decided"
    assert [names[0], *names[2:]] == told["spread"]["files"]
    assert main([*asked, "--repeat", names[2]]) == 2
    assert "a spread takes 3" in capfdbinary.readouterr().err.decode()
