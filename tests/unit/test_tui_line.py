"""Rows of text: exact widths, safe content, ASCII cell for cell."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tuiadvisor.text import line as line_module
from tuiadvisor.text.line import (
    Cell,
    Line,
    beside,
    clean,
    crop,
    fit,
    fit_middle,
    indent,
    length,
    line,
    pad,
    row,
    rule,
    select,
    spread,
    to_ascii,
    wrap,
)
from tuiadvisor.tui.draw import bars
from tuiadvisor.tui.pages import rank_row, sections

HOSTILE = st.text(alphabet=st.characters(codec="utf-8"), max_size=60)


@given(text=HOSTILE, width=st.integers(0, 40))
def test_a_name_keeps_both_ends(text: str, width: int) -> None:
    """Of its width whatever is in it; of letters as wide as one cell the first and the last are there."""
    shown = fit_middle(text, width)
    assert width == cell_len(shown)
    name = "ddp-optimizer_4ranks_scale_3_ms_45_022"
    assert name.startswith(fit_middle(name, 18)[:9])
    assert name.endswith(fit_middle(name, 18)[-8:])


@given(text=HOSTILE)
def test_cleaned_text_cannot_steer_the_terminal(text: str) -> None:
    """No control character, nothing of zero width, nothing that turns the direction round."""
    cleaned = clean(text)
    assert all(character.isprintable() and cell_len(character) > 0 for character in cleaned)


def test_an_escape_sequence_in_a_host_name_is_taken_apart() -> None:
    """What is left of it is plain text."""
    assert "node1[2J]0;title" == clean("node1\x1b[2J\x1b]0;title\x07\u202e")


@given(text=HOSTILE, width=st.integers(0, 40))
def test_fit_is_exact(text: str, width: int) -> None:
    """A field has its width, whatever is in it, wide characters included."""
    assert width == cell_len(fit(text, width))


@given(text=HOSTILE)
def test_ascii_keeps_the_width(text: str) -> None:
    """The fallback never moves a column."""
    cleaned = clean(text)
    plain = to_ascii(cleaned)
    assert plain.isascii()
    assert cell_len(cleaned) == len(plain)


@pytest.mark.parametrize(
    "glyphs",
    [
        bars.LEVELS + bars.COLUMNS,
        "".join(glyph for glyph, _ in rank_row.STATES.values()),
        "".join((*sections.DECISIONS.values(), *sections.SEVERITIES.values())),
        "●■║▶◌✖━▏▲─│╭╮╰╯█░…",  # header, replay bar, card, progress
    ],
)
def test_every_glyph_of_ours_has_an_ascii_one(glyphs: str) -> None:
    """None of them ends as a question mark, but the one of a state that is not known."""
    assert glyphs.count("?") == to_ascii(glyphs).count("?")


def test_every_sign_that_the_screens_draw_has_an_ascii_one() -> None:
    """What is lost stood as "?" beside what is not known, and the brackets of the ribbon were of question marks."""
    folders = (Path(line_module.__file__).parent, Path(line_module.__file__).parents[1] / "tui")
    drawn = {each for folder in folders for file in folder.rglob("*.py") for each in file.read_text("utf-8")}
    signs = sorted(each for each in drawn if not each.isascii() and unicodedata.category(each)[0] in "SP")
    assert len(signs) > 30
    assert [] == [each for each in signs if "?" in to_ascii(each)]


def test_ascii_levels_stay_apart() -> None:
    """Colour is never needed to tell in time from very late."""
    assert "._-=+*%#" == to_ascii(bars.LEVELS)


@given(words=st.lists(st.text(alphabet="abc 漢", max_size=12), max_size=12), width=st.integers(4, 30))
def test_wrap_loses_no_word_and_no_row_is_too_wide(words: list[str], width: int) -> None:
    """Every character comes out again, in rows that fit."""
    text = " ".join(words)
    rows = wrap(text, width)
    assert all(cell_len(each) <= width for each in rows)
    assert "".join(text.split()) == "".join("".join(rows).split())


def test_a_number_stays_with_its_unit() -> None:
    """The blank between them does not break a row."""
    assert ["it takes", "16.9 ms, or", "41 % more"] == wrap("it takes 16.9 ms, or 41 % more", 12)


def test_crop_marks_what_it_cut() -> None:
    """An ellipsis stands for the rest, also where a span ends exactly at the edge."""
    assert "abc…" == crop(line("abcd", ("efg", "dim")), 4).text
    assert "abcd" == crop(line("abcd"), 4).text


def test_what_is_selected_of_two_blocks_is_its_own_half() -> None:
    """The other half looked chosen as well: the answer "yes" and the cause beside it, a limit and a size."""
    (left,) = beside([line("yes", target=("answer", "yes"))], 6, [line("a busy host")])
    (right,) = beside([line("a busy host")], 12, [line("yes", target=("answer", "yes"))])
    chosen = [
        "".join(text for text, role in one.spans if role[0] == "@")
        for one in (select(left, 20), select(right, 20))
    ]
    assert ["yes   ", "yes  "] == chosen
    (both,) = beside([line("yes", target=("answer", "yes"))], 6, [line("no", target=("answer", "no"))])
    shifted = select(indent(both, 2), 20)
    assert "yes   " == "".join(text for text, role in shifted.spans if role[0] == "@")


def test_pad_and_select_fill_the_row() -> None:
    """A selected row is highlighted over its whole width."""
    chosen = select(line("ab", ("c", "dim"), target=("rank", "1")), 6)
    assert 6 == length(chosen)
    assert {"@text", "@dim"} == {role for _, role in chosen.spans}
    assert ("rank", "1") == chosen.target


def test_spread_keeps_the_left_where_both_do_not_fit() -> None:
    """The right part goes first."""
    assert "left    right" == spread(line("left"), line("right"), 13).text
    assert "left" == spread(line("left"), line("right"), 8).text


def test_row_aligns_fields() -> None:
    """One blank between fields, numbers flush right."""
    assert "ab   |   7" == row([Cell("ab", 4), Cell("|", 1), Cell("7", 3, "text", "right")]).text


def test_rule_fills_the_width() -> None:
    """A head is as wide as asked, and gives up its note before its title."""
    assert 30 == length(rule("ranks", 30, "4 live"))
    assert "── ranks " == rule("ranks", 10, "4 of 4 live").text[:9]


def test_beside_keeps_the_target_of_either_side() -> None:
    """A click finds what is drawn there."""
    left, right = [line("a")], [line("x", target=("finding", "f")), line("y")]
    joined = beside(left, 5, right)
    assert ["a       x", "        y"] == [each.text for each in joined]
    assert [("finding", "f"), None] == [each.target for each in joined]


@given(width=st.integers(1, 50), text=HOSTILE)
def test_pad_is_exact(width: int, text: str) -> None:
    """Whatever is in a row, padding gives its width."""
    assert width == length(pad(Line(((clean(text), "text"),)), width))
