"""What the screens send back is a value."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tuiadvisor.tui.contract.desk import Compare
from tuiadvisor.tui.contract.feed import ChooseSteps, Pause, Resume, Step, Zoom
from tuiadvisor.tui.contract.message import Message


def test_it_is_equal_to_another_of_its_class_with_the_same_fields() -> None:
    """Not to another class's, however alike; it can be kept in a set, printed and sent elsewhere."""
    assert Zoom(1) == Zoom(by=1)
    assert Zoom(1) != Zoom(-1)
    assert [Step(1), Resume()] != [Zoom(1), Pause()]
    assert {Pause(), Pause(), Zoom(1)} == {Zoom(1), Pause()}
    assert "ChooseSteps(first_step=1, last_step=2)" == repr(ChooseSteps(1, 2))
    assert ChooseSteps(1, 2) == copy.copy(ChooseSteps(1, 2))
    match ChooseSteps(3, 4):
        case ChooseSteps(first, last):
            assert (3, 4) == (first, last)


@pytest.mark.parametrize(("values", "named"), [((), {}), ((1, 2), {}), ((1,), {"by": 2}), ((1,), {"of": 2})])
def test_fields_that_do_not_fit_are_refused(values: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Missing, too many, given twice, or none of its own."""
    with pytest.raises(TypeError, match="Zoom has the fields"):
        Zoom(*values, **named)


def test_it_is_not_changed() -> None:
    """Two threads look at it; a default need not be given."""

    class Named(Message):
        name: str = "none"

    assert ("none", "one") == (Named().name, Named("one").name)
    with pytest.raises(AttributeError):
        Named().name = "other"  # type: ignore[misc]
    assert Compare.__match_args__
