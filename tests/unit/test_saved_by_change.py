"""What a change saved, in words: of what remains where that is stated, never more than the interval holds."""

from __future__ import annotations

import argparse
from dataclasses import replace

from snapshot import desks

from tuiadvisor.cli import intent
from tuiadvisor.session.intent import Intent
from tuiadvisor.session.saved import saved_words


def test_what_remains_is_priced_within_the_interval() -> None:
    """28.6 ms a step, 39 to 43 % less of them, on 4 ranks."""
    stated = Intent(remaining_steps=1e6, price_per_device_hour=2.0, currency="EUR")
    assert (
        "Saves 3.1 to 3.42 hours over the 1,000,000 steps that remain (12.4 to 13.7 device-hours, 24.8 to 27.3 EUR)."
        == saved_words(desks.comparison(), stated)
    )


def test_what_is_not_stated_is_named_and_not_assumed() -> None:
    """Of a thousand steps, without money."""
    words = saved_words(desks.comparison(), Intent())
    assert words.startswith(
        "Saves 11.2 to 12.3 seconds over every 1,000 steps (44.6 to 49.2 device-seconds). "
    )
    assert words.endswith("tuiadvisor intent --set remaining_steps=… price_per_device_hour=…")


def test_the_command_that_states_it_is_one() -> None:
    """It lacked --set and was refused."""
    command = saved_words(desks.comparison(), Intent()).partition("tuiadvisor intent ")[2].replace("…", "2")
    parser = argparse.ArgumentParser(exit_on_error=False)
    intent.add_options(parser)
    stated = parser.parse_args(command.split())
    assert ["remaining_steps=2", "price_per_device_hour=2"] == stated.settings


def test_a_change_that_is_none_saves_nothing() -> None:
    """Within noise, or of two runs that cannot be compared, no figure is given; a regression costs."""
    found = desks.comparison()
    assert "" == saved_words(replace(found, verdict="no change"), Intent())
    assert "" == saved_words(replace(found, verdict="not comparable", basis=None), Intent())
    change = replace(found.change, ratio=1.2, low=1.1, high=1.3)
    slower = replace(found, verdict="regressed", change=change)
    assert saved_words(slower, Intent()).startswith("Costs 2.86 to 8.58 seconds more over every 1,000 steps")
