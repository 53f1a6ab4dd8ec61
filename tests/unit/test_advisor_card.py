"""The advisor's decision at 80 columns: what it is worth is not cut, and the rest of it is a page down."""

from __future__ import annotations

import pytest
from snapshot import desks, views
from unit.test_tui_navigator import Keyboard


def words(drawn: str) -> str:
    return " ".join(drawn.split())


def test_what_the_decision_is_worth_is_told_to_its_end() -> None:
    """At 80x24 it ended in "break-even if ready", and no key led on."""
    held = desks.guided_session()
    keyboard = Keyboard(views.live(views.straggler()), desk=desks.desk(session=held))
    drawn = words(keyboard.press("5"))
    for name, text in held.card:
        assert f"{name} {text}" in drawn


@pytest.mark.parametrize("pattern", [1, 3])
def test_page_down_leads_to_all_of_the_decision(pattern: int) -> None:
    held = desks.guided_session()
    keyboard = Keyboard(views.live(views.straggler()), desk=desks.desk(session=held))
    seen = keyboard.press("5", *["right"] * (pattern - 1))
    for _ in range(12):  # a screenful of the whole page would leave out rows of what scrolls
        seen += keyboard.press("pagedown")
    assert "verify: Record 200 steps" in seen
    assert "would change it:" in seen
    assert "── loop" in seen


def test_a_card_without_room_says_where_the_rest_is() -> None:
    held = desks.guided_session()
    keyboard = Keyboard(views.live(views.straggler()), desk=desks.desk(session=held))
    keyboard.press("5")
    drawn = "\n".join(row.text for row in keyboard.place.rows(80, 16))
    assert "… (PgDn: all of it)" in drawn
