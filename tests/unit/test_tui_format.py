"""Numbers on the screen: units, rounding, and the word for what was not observed."""

from __future__ import annotations

import math

import pytest

from tuiadvisor.metrics.series.what_if import CONFIDENCE
from tuiadvisor.text import evidence
from tuiadvisor.text import format as text_of
from tuiadvisor.views.run_view import Speedup, Verdict
from tuiadvisor_rules import message


@pytest.mark.parametrize(
    ("expected", "value"),
    [
        ("unknown", None),
        ("unknown", math.nan),
        ("unknown", math.inf),
        ("0 s", 0.0),
        ("3 µs", 3e-6),
        ("850 µs", 850e-6),
        ("999 µs", 999.4e-6),
        ("1.00 ms", 999.6e-6),
        ("3.05 ms", 0.00305),
        ("21.3 ms", 0.0213),
        ("9.99 ms", 0.00999),
        ("10.0 ms", 0.009999),
        ("999 ms", 0.9994),
        ("1.00 s", 0.9996),
        ("1.69 s", 1.69),
        ("99.4 s", 99.4),
        ("2 min 5 s", 125.0),
        ("3 h 12 min", 3 * 3600 + 12 * 60),
        ("-2.10 ms", -0.0021),
    ],
)
def test_seconds_have_three_digits_and_the_unit_that_fits(expected: str, value: float | None) -> None:
    """Rounding never shows 1000 of a unit, and an unobserved time is not a zero."""
    assert expected == text_of.seconds(value)


@pytest.mark.parametrize(
    ("expected", "value"),
    [
        ("unknown", None),
        ("0 %", 0.0),
        ("<0.1 %", 0.0004),
        ("0.4 %", 0.004),
        ("9.9 %", 0.0994),
        ("10 %", 0.0996),
        ("41 %", 0.41),
        ("100 %", 1.0),
    ],
)
def test_shares_are_percent(expected: str, value: float | None) -> None:
    """A small share is not rounded to nothing."""
    assert expected == text_of.share(value)


@pytest.mark.parametrize(
    ("expected", "value"),
    [
        ("unknown steps/s", None),
        ("47.6 steps/s", 47.6),
        ("1,523 steps/s", 1523.4),
        ("1.20 M steps/s", 1_200_000.0),
    ],
)
def test_rates_carry_their_unit(expected: str, value: float | None) -> None:
    """The unit stands even beside an unknown value."""
    assert expected == text_of.rate(value, "steps/s")


def test_counts_have_thousands_and_number() -> None:
    """One step, two steps."""
    assert "1,024" == text_of.count(1024)
    assert "1 step" == text_of.count(1, "step")
    assert "0 steps" == text_of.count(0, "step")
    assert "unknown" == text_of.count(None)


@pytest.mark.parametrize(
    ("expected", "numbers"),
    [
        ("no rank", ()),
        ("rank 2", (2,)),
        ("ranks 0, 3", (0, 3)),
        ("ranks 4\u201315", tuple(range(4, 16))),
        ("ranks 0, 2, 4, 6, 8, 10 and 2 more", tuple(range(0, 16, 2))),
    ],
)
def test_ranks_are_listed_shortly(expected: str, numbers: tuple[int, ...]) -> None:
    """Runs are joined, long lists are cut with how many are left."""
    assert expected == text_of.ranks(numbers)


@pytest.mark.parametrize(
    ("expected", "name", "value"),
    [
        ("13.9 ms", "data_wait_s", 0.0139),
        ("98 %", "last_arrivals", 0.98),
        ("27 %", "loss_share_low", 0.27),
        ("100 %", "cover", 1.0),
        ("11.8 ms", "loss_s_per_step", 0.0118),
        ("12.3 MB/s", "disk_read_bytes_s", 12.3e6),
        ("25.6 MB", "comm_bytes", 25_600_000),
        ("84", "steps_seen", 84),
        ("399", "onset_since", 399.0),
        ("1.42\u00d7", "speedup", 1.42),
        ("yes", "onset_seen", 1),
        ("40 steps", "period_steps", 40.0),
        ("unknown", "data_workers", None),
        ("yes", "whole_host", True),
        ("in backward", "phase_words", "in backward"),
    ],
)
def test_evidence_is_read_by_its_name(expected: str, name: str, value: float | str | None) -> None:
    """The end of a name says the unit."""
    assert expected == evidence.value_of(name, value)


def test_evidence_names_are_words() -> None:
    """The unit is dropped from the name, since the value carries it."""
    assert "peers data wait" == evidence.name_of("peers_data_wait_s")
    assert "later than its peers by, in backward" == evidence.name_of("excess_backward_s")
    assert "data wait" == evidence.name_of("data_wait")


def test_activity_names_the_phase_in_words() -> None:
    """The id of a phase never reaches the screen."""
    assert "exposed comm 3.1 s" == text_of.activity("comm_exposed 3.1 s")
    assert "" == text_of.activity("")


def test_a_beginning_that_was_not_seen_is_no_beginning() -> None:
    """The first step compared is where it was there already."""
    assert "since step 1,412" == text_of.since(1412, seen=True)
    assert "since step 1,412 or earlier" == text_of.since(1412, seen=False)
    assert "" == text_of.since(None, seen=True)


def test_a_chart_ends_where_its_values_can_be_read() -> None:
    """One step of 22 s among steps of half a second leaves these readable; without it nothing is cut."""
    assert 1.25 == pytest.approx(text_of.readable_top([0.5] * 20 + [None, 22.0]))
    assert 0.6 == text_of.readable_top([0.5, 0.6, None])
    assert 0.0 == text_of.readable_top([None])


@pytest.mark.parametrize(
    ("expected", "name"),
    [
        ("exposed comm", "comm_exposed"),
        ("rotating straggler", "wandering_lateness"),
        ("heavy stage", "heavy_stage"),
    ],
)
def test_what_limits_a_step_has_the_fields_word(expected: str, name: str) -> None:
    """An identifier that is no word of the field has one; others are read off it."""
    assert expected == text_of.phase_name(name)


def test_an_expected_speed_up_says_the_confidence_that_gains_have() -> None:
    """Each end of what is promised is missed once in twenty: between them lies 90 %."""
    verdict = Verdict("tune", "", None, None, Speedup(1.5, 1.2, 1.8), None, "", "")
    assert text_of.speedup(verdict).endswith(f" to 1.80\u00d7, {CONFIDENCE * 100:.0f} %)")


@pytest.mark.parametrize("value", [0.0, 2e-5, 0.00099, 0.001, 0.0994, 0.0996, 0.741, 1.0])
def test_a_share_is_written_alike_in_messages_and_on_screens(value: float) -> None:
    """A unit that worked for a hundredth of a percent did work: 0 % would say that it did not."""
    assert message.share(value) == text_of.share(value)
    assert message.worded("data_wait_share", value) == text_of.share(value)
