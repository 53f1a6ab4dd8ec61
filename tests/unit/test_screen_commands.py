"""Whatever a screen may send is taken by whoever it is sent to: none is lost, none ends a thread."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

from tuiadvisor.app import desk as desks
from tuiadvisor.app import feed as feeds
from tuiadvisor.app.desk import Desk
from tuiadvisor.app.live_feed import LiveFeed
from tuiadvisor.app.replay_feed import ReplayFeed
from tuiadvisor.preferences import Preferences
from tuiadvisor.tui.contract.desk import DeskCommand
from tuiadvisor.tui.contract.feed import FeedCommand

EXAMPLES = {
    "bool": True,
    "int": 1,
    "float": 2.0,
    "float | None": 2.0,
    "str": "/none.tuirec",
    "tuple[int, ...]": (0,),
    "tuple[str, ...]": ("/none.tuirec",),
    "Preferences": Preferences(),
}


def example(kind: type) -> object:
    return kind(*(EXAMPLES[str(field.type)] for field in fields(kind)))


class Taker:
    """Stands where a desk or feed would be: every method it is asked for is noted."""

    def __init__(self) -> None:
        self.did: list[str] = []

    def __getattr__(self, name: str) -> Taker:
        self.did.append(name)
        return self

    def __call__(self, *_values: object, **_named: object) -> Taker:
        return self

    def __add__(self, _other: object) -> int:
        return 0


@pytest.mark.parametrize("kind", [*get_args(DeskCommand), desks.ReadSizes], ids=lambda kind: kind.__name__)
def test_the_desk_does_something_with_each(kind: type) -> None:
    """One method each, with the values of the command."""
    taker = Taker()
    Desk._obey(taker, example(kind))  # type: ignore[arg-type]
    assert taker.did


@pytest.mark.parametrize("feed", [LiveFeed, ReplayFeed])
@pytest.mark.parametrize("kind", [*get_args(FeedCommand), feeds.AddMark], ids=lambda kind: kind.__name__)
def test_each_feed_takes_each(kind: type, feed: type[LiveFeed | ReplayFeed]) -> None:
    """Those of the other kind of feed are left alone; what is no command at all is an error."""
    taker = Taker()
    taker.steps = []  # type: ignore[attr-defined]
    feed._obey(taker, example(kind))  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match="unreachable"):
        feed._move(taker, "pause", 0) if feed is ReplayFeed else feed._obey(taker, "pause")  # type: ignore[union-attr,arg-type]


def test_a_command_that_fails_is_named_in_words(tmp_path: Path) -> None:
    """As the screen says it."""
    assert "open run" == desks._words(desks.OpenRun(str(tmp_path)))
    assert "report" == desks._words(desks.Report())
