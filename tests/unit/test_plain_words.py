"""Questions in plain words stand on the advisor's screen at their pattern, as `advise --why` answers them."""

from __future__ import annotations

from functools import cache

import pytest
from snapshot import desks, views
from unit.test_tui_pages import screen

from tuiadvisor.session.whys import NAMES
from tuiadvisor.tui.pages.guidance import WHY_OF

guided = cache(desks.guided_session)  # of the same answers, and nobody changes it


def shown(pattern: str) -> str:
    """The advisor at this pattern, on a screen that has room for all of it, in one line."""
    keys = ("5", *["right"] * (int(pattern[1:]) - 1))
    rows = screen(views.live(views.straggler()), 110, 90, keys=keys, desk=desks.desk(session=guided()))
    return " ".join(" ".join(rows).split())


def test_each_question_has_a_pattern() -> None:
    assert set(WHY_OF) == set(NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_it_stands_at_its_pattern_and_nowhere_else(name: str) -> None:
    (held,) = [one for one in guided().whys if one.name == name]
    for pattern in ("P1", "P2", "P4"):
        text = shown(pattern)
        assert "in plain words" in text
        assert (held.question in text) == (pattern == WHY_OF[name])
    assert "in plain words" not in shown("P3")
