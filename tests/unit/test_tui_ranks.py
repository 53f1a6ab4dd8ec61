"""The ranks screen with groups: keys, order, filter, and that nothing that stands out is ever out of sight."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from snapshot import views
from thinned import crossed
from unit.test_tui_navigator import Keyboard

from tuiadvisor.phases import BY_NAME, EVERY_STEP
from tuiadvisor.text.line import length
from tuiadvisor.tui.pages.rank import RankPage
from tuiadvisor.tui.pages.rank_list import SORTS
from tuiadvisor.tui.pages.ranks import Ranks

GROUPED = views.grouped_many()


@pytest.fixture
def keyboard() -> Keyboard:
    board = Keyboard(views.live(GROUPED))
    board.press("2")
    return board


def rows(keyboard: Keyboard, width: int = 80, height: int = 24) -> list[str]:
    """Return the screen's rows."""
    drawn = keyboard.place.rows(width, height)
    assert [] == [row.text for row in drawn if length(row) > width]
    assert height == len(drawn)
    return [row.text for row in drawn]


def test_many_ranks_begin_with_a_row_a_host(keyboard: Keyboard) -> None:
    """A few ranks, or ranks of one host, with a row each."""
    assert "hosts by rank" in keyboard.draw()
    few = Keyboard(views.live(views.grouped(views.many(64))))
    assert "ranks by rank" in few.press("2")


def test_the_group_key_goes_round(keyboard: Keyboard) -> None:
    """Hosts, stages, replicas, ranks."""
    assert "stages by rank" in keyboard.press("a")
    assert "replicas by rank" in keyboard.press("a")
    text = keyboard.press("a")
    assert "ranks by rank" in text
    assert "a row a rank" in text
    assert "hosts by rank" in keyboard.press("a")


def test_without_stages_the_group_key_says_so() -> None:
    """A data-parallel job has hosts only."""
    keyboard = Keyboard(views.live(views.grouped(views.many(64))))
    assert "a row a host; no rank names a pipeline stage" in keyboard.press("2", "a")


@pytest.mark.slow
@pytest.mark.parametrize("sort", range(len(SORTS)))
@pytest.mark.parametrize(
    ("keys", "size"),
    crossed(
        [(), ("a",), ("a", "a"), ("a", "a", "a"), ("e",), ("G",), ("r",), ("M",)],
        [(60, 16), (80, 24), (160, 45)],
    ),
)
def test_what_stands_out_is_always_on_the_screen(
    sort: int, keys: tuple[str, ...], size: tuple[int, int]
) -> None:
    """By a glyph of its own: the late rank of a thousand, whatever the grouping, the sort and the place."""
    keyboard = Keyboard(views.live(GROUPED))
    keyboard.press("2", *["s"] * sort, *keys)
    shown = rows(keyboard, *size)
    assert any(row.lstrip("@ ").startswith("▶  612 ") for row in shown), "\n".join(shown)
    named = [row for row in shown if row.startswith((" ▶", " ◆"))]
    counted = any("more: / outlier" in row for row in shown)
    assert counted or {"77", "300", "612"} <= {row.split()[1] for row in named}


def test_enter_opens_a_group_and_closes_it(keyboard: Keyboard) -> None:
    """A click does the same; e does all of them."""
    keyboard.press("down", "enter")
    assert [0, 1, 2, 3, 4, 5, 6, 7, 77] == keyboard.order[:9]
    assert "-8 gpu000" in keyboard.draw()
    keyboard.press("enter")
    assert [77, 300, 612] == keyboard.order
    keyboard.press("e")
    assert 1024 == len(keyboard.order)
    keyboard.press("e")
    place = next(number for number, row in enumerate(rows(keyboard)) if "gpu001" in row)
    keyboard.place.click(place)
    assert 8 in keyboard.order


def test_a_rank_of_a_group_opens(keyboard: Keyboard) -> None:
    """Its details, and left and right go on in the order of the table."""
    keyboard.press("a", "s", "down", "down", "enter")
    assert "rank" == keyboard.page
    assert 612 == keyboard.place.at(RankPage).rank
    keyboard.press("right")
    assert 300 == keyboard.place.at(RankPage).rank


def test_groups_sort_by_what_their_ranks_cause(keyboard: Keyboard) -> None:
    """The host of the late rank first."""
    shown = [row for row in keyboard.press("s").splitlines() if row.startswith(" ▶")]
    assert shown[0].startswith(" ▶   +8 gpu076")
    assert shown[1].startswith(" ▶  612 gpu076")


@pytest.mark.parametrize(
    ("typed", "first", "num"),
    [
        ("612", 612, 1),
        ("8-15", 8, 8),
        ("gpu003", 24, 8),
        ("stage 2", 2, 256),
        ("replica 1", 4, 4),
        ("outlier", 77, 3),
        ("killed", 77, 1),
    ],
)
def test_the_filter_takes_ranks_hosts_groups_and_what_stands_out(
    keyboard: Keyboard, typed: str, first: int, num: int
) -> None:
    """Groups without a match go; those with a part of their ranks are open."""
    text = keyboard.press("/", *typed, "enter", "e")
    assert first == keyboard.order[0]
    assert f"{num:,} of 1,024" in text
    keyboard.press("escape")
    assert "" == keyboard.place.at(Ranks).filter


def test_a_filter_without_a_match_says_what_it_looked_for(keyboard: Keyboard) -> None:
    """And the ranks that stand out obey it, too."""
    text = keyboard.press("/", *"nobody")
    assert "no rank, host, group or state is “nobody”" in text
    assert "of note" not in text
    assert "612" not in text


def test_the_map_of_phases(keyboard: Keyboard) -> None:
    """A column a phase; figures where there is room."""
    text = keyboard.press("M")
    (header,) = [line.split() for line in text.splitlines() if " fwd " in line]
    assert [BY_NAME[name].tiny for name in EVERY_STEP] == header[-len(EVERY_STEP) :]
    assert "typical ._▂▃▄▅▆█ far longer" in text
    wide = "\n".join(rows(keyboard, 160, 45))
    assert re.search("▆ +13.9 ms", wide)
    assert "unknown" in wide  # copies that nobody saw
    assert "phases" in keyboard.press("M")


def test_the_rows_are_put_in_order_once(keyboard: Keyboard) -> None:
    """Drawing again without news does not sort a thousand ranks again."""
    before = keyboard.place.at(Ranks).arrange(GROUPED)
    keyboard.draw()
    assert before is keyboard.place.at(Ranks).arrange(GROUPED)
    keyboard.press("s")
    assert before is not keyboard.place.at(Ranks).arrange(GROUPED)


def test_a_group_that_vanishes_leaves_the_page_readable(keyboard: Keyboard) -> None:
    """A run that starts anew with other hosts and no stages."""
    keyboard.press("a", "down", "enter")
    keyboard.place.take_state(views.live(views.grouped(views.many(8))))
    assert "ranks by rank" in keyboard.draw()
    keyboard.place.take_state(views.live(replace(GROUPED, ranks=(), groupings=())))
    assert "no rank known yet" in keyboard.draw()
    assert "nothing to group" in keyboard.press("a")
