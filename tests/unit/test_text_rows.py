"""Rows of text that screens and reports share: what is not known is called so, and cards are told everywhere alike."""

from __future__ import annotations

from dataclasses import replace
from html import unescape
from typing import Any

import pytest
from synthetic_run import Job, folded, frames
from test_stack_cards import LATE, WAITING, card, entry

from tuiadvisor.metrics.serving.histogram import Bounded
from tuiadvisor.report import sections
from tuiadvisor.report.markdown import markdown_report
from tuiadvisor.report.page import Dossier
from tuiadvisor.text import placement, plot, serving, stack_card
from tuiadvisor.text.efficiency import efficiency_facts, stack_facts
from tuiadvisor.text.format import TIMES
from tuiadvisor.text.plot import Plot
from tuiadvisor.views.devices import Link
from tuiadvisor.views.efficiency import Efficiency, Stack
from tuiadvisor.views.placement import DeviceFacts, RankPlacement
from tuiadvisor.views.serving import SloGoodput
from tuiadvisor.views.stack_card import StackCard


def places(**facts: Any) -> tuple[str, ...]:
    """The row of one rank, without its number."""
    (row,) = placement.placement_rows([RankPlacement(3, "h", device=DeviceFacts(), **facts)])
    assert "3" == row[0]
    return row[1:]


@pytest.mark.parametrize(
    ("facts", "at", "words"),
    [
        ({}, 0, "unknown"),
        ({"cpus": "0-7"}, 0, "CPUs 0-7 (unknown)"),
        ({"cpu_nodes": (1,)}, 0, "CPUs unknown (node 1)"),
        ({"cpus": "0-7,32-39", "cpu_nodes": (0, 1)}, 0, "CPUs 0-7,32-39 (nodes 0, 1)"),
        ({}, 1, "unknown"),
        ({"memory_nodes": (0,), "memory_policy": "bind"}, 1, "node 0 (bind)"),
        ({}, 2, "unknown, unknown"),
        ({"device_node": 1}, 2, "unknown, node 1"),
        ({}, 3, "unknown"),
        ({"cpus_far": True, "distance": 21}, 3, "far (21, local is 10)"),
        ({"cpus_far": False}, 3, "near"),
        ({}, 4, "unknown"),
        ({"nic": "mlx5_0:1"}, 4, "unknown"),
        ({"nic": "mlx5_0:1", "nic_path": "PIX"}, 4, "mlx5_0:1: PIX, by one PCIe switch"),
    ],
)
def test_a_place_says_what_is_known_of_it(facts: dict[str, Any], at: int, words: str) -> None:
    """And nothing of what is not: a device without a node is no near one."""
    assert words == places(**facts)[at]


def test_links_without_a_count_are_no_rows() -> None:
    """Those with one say against what; each ceiling's source is named once."""
    link = Link("pcie", "h", 2, 3e9, ceiling_bytes_s=64e9, ceiling_source="PCIe 5.0 x16", share=0.04)
    links = [link, replace(link, rank=None, bytes_s=1e9, ceiling_bytes_s=None), replace(link, bytes_s=None)]
    rows = placement.link_rows(links)
    assert [("pcie", "rank 2"), ("pcie", "h")] == [row[:2] for row in rows]
    assert ["64.0 GB/s", "unknown"] == [row[3] for row in rows]
    assert ["pcie: PCIe 5.0 x16"] == placement.ceiling_sources(links)


LOOKS: tuple[tuple[StackCard, tuple[tuple[str, ...], ...]], ...] = (
    (
        card(entry(2, [LATE, WAITING] * 75), entry(0, [WAITING] * 150)),
        (("line", "in", "calls", "rank 2", "rank 0", ""),),
    ),
    (card(entry(2, [LATE] * 60)), (("line", "in", "calls", "rank 2"),)),
    (
        card(entry(2, [LATE] * 60, subject="input"), entry(2, [WAITING] * 60, worker=1, subject="input")),
        (
            ("line", "in", "calls", "rank 2"),
            ("line", "in", "calls", "1 worker of its data loader, 60 samples"),
        ),
    ),
    (
        card(entry(2, [LATE] * 3, subject="hang"), entry(0, [], subject="hang", why="it has ended")),
        (("rank", "line", "in", "calls"),),
    ),
    (card(entry(2, [], why="it has ended")), ()),
)


@pytest.mark.parametrize(("found", "heads"), LOOKS)
def test_a_card_has_a_table_of_what_was_seen(found: StackCard, heads: tuple[tuple[str, ...], ...]) -> None:
    """In HTML and Markdown the same rows stand under the same sentence."""
    tables = stack_card.tables(found)
    assert list(heads) == [head for head, _ in tables]
    assert all(len(row) == len(head) for head, rows in tables for row in rows)
    view = replace(folded(frames(Job(num_steps=40))).view(), cards=(found,))
    for text in (unescape(sections.lines_of_code(view)), markdown_report([Dossier("run", view)], None, "")):
        assert all(row[0].removeprefix("rank ") in text for _, rows in tables for row in rows)
        assert found.words.partition(":")[0] in text


def test_lines_of_a_rank_and_of_its_peer_stand_side_by_side() -> None:
    """A line at which the peer was never seen took it no time; what differs is said."""
    ((_, rows),) = stack_card.tables(LOOKS[0][0])
    assert ("train.py:49", "20.0 ms", "0", "more") == (rows[0][0], *rows[0][3:])
    assert ("train.py:80", "20.0 ms", "40.0 ms", "less") == (rows[1][0], *rows[1][3:])
    ((_, rows),) = stack_card.tables(LOOKS[3][0])
    assert [("rank 2", "train.py:49"), ("rank 0", "unknown")] == [row[:2] for row in rows]
    assert "it has ended" == rows[1][3]


def test_without_a_look_no_report_speaks_of_lines() -> None:
    """Nobody asked."""
    view = folded(frames(Job(num_steps=40))).view()
    assert "" == sections.lines_of_code(view)
    assert "Lines of code" not in markdown_report([Dossier("run", view)], None, "")


def test_an_efficiency_that_is_judged_says_by_whom() -> None:
    """And what the device's clock leaves of its peak; what is not known has no row."""
    view = folded(frames(Job(num_steps=40))).view()
    known = Efficiency(
        mfu=0.2, hfu=0.25, peak_flops=1e15, dtype="bfloat16", judgement="poor", judgement_source="PaLM 46 %",
        mfu_of_clock=0.4, clock_mhz=915.0, clock_peak_flops=5e14, tokens_per_step=65_536.0,
    )  # fmt: skip
    rows = dict(efficiency_facts(replace(view, efficiency=known)))
    assert "poor: usual are 35 to 55 % (PaLM 46 %)" == rows["for its kind"]
    assert "40 % of 500 TFLOP/s at 915 MHz" == rows["MFU at its clock"]
    assert "65,536" == rows["tokens a step"]
    assert {"MFU": "unknown: not observed"} == dict(efficiency_facts(replace(view, efficiency=Efficiency())))
    assert [] == efficiency_facts(replace(view, efficiency=None))


def test_settings_that_were_seen_are_told_in_one_row_each() -> None:
    """A model's input in the shape of a call; without one no row."""
    rows = dict(
        stack_facts(Stack({"class": "GPT", "params": 10**9, "input": "4x2048", "input_dtype": "int64"}))
    )
    assert f"4{TIMES}2048 int64 a call" == rows["input"]
    assert "GPT, 1.00 G parameters" == rows["model"]
    assert "input" not in dict(stack_facts(Stack({"class": "GPT"})))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.0, "0"), (-3.25, "-3.25"), (999.4, "999"), (999.6, "1,000"), (9_999.4, "9,999"), (12_345.0, "12.3k"),
        (999_499.0, "999k"), (999_501.0, "1M"), (-2.5e6, "-2.5M"), (3.21e9, "3.21G"), (1e13, "1.0e+13"),
    ],
)  # fmt: skip
def test_numbers_of_an_axis_are_short(value: float, words: str) -> None:
    """However large."""
    assert words == plot.short(value)


def picture(**more: Any) -> list[str]:
    """Of a law from 1 to 64 devices."""
    xs = [1.0, 4.0, 16.0, 64.0]
    drawn = Plot(xs, [10.0, 20.0, 30.0, 40.0], [8.0, 18.0, 28.0, 36.0], [12.0, 22.0, 32.0, 44.0], **more)
    return ["".join(text for text, _ in row.spans) for row in plot.plot(drawn, 60, 10)]


def test_a_chart_marks_what_was_asked_for() -> None:
    """Sizes below it, limits across it where they are near enough to be drawn."""
    rows = picture(
        points=[(4.0, 20.0, "yours"), (16.0, 31.0, "yours")], marks=[(16.0, "here"), (64.0, "end")]
    )
    assert "▲ here" in rows[-1]
    assert "end ▲" in rows[-1]
    assert {"4", "16"} <= set(rows[-2].replace("─", " ").split())
    assert any(plot.LEVEL in row for row in picture(level=42.0))
    assert not any(plot.LEVEL in row for row in picture(level=4200.0))
    assert any(plot.UPRIGHT in row for row in picture(upright=8.0))
    assert not any(plot.UPRIGHT in row for row in picture(upright=640.0))


@pytest.mark.parametrize("height", [5, 6, 13, 14])
def test_a_limit_stands_beside_its_own_label(height: int) -> None:
    """Of 14 rows the line of 0.8 stood a row above the 0.8 of the axis."""
    drawn = Plot([1.0, 64.0], [1.1, 1.5], [1.0, 1.4], [1.2, 1.5], level=0.8)
    rows = ["".join(text for text, _ in row.spans) for row in plot.plot(drawn, 60, height)]
    assert [each for each in rows if plot.LEVEL in each] == [each for each in rows if each.startswith("0.8┤")]


def test_marks_of_one_place_keep_apart() -> None:
    """A word that has no room is left out, then its arrow."""
    row = picture(marks=[(64.0, "the end"), (64.0, "another one"), (1.0, "first")])[-1]
    assert "the end ▲" in row
    assert "another" not in row
    assert "▲ first" in row


def test_nothing_measured_has_a_chart_from_zero_to_one() -> None:
    """A law of zeros is drawn, not divided by."""
    assert 1.0 == plot.top_of(Plot([1.0, 2.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "unknown"),
        (Bounded(None, 10.0, None), "beyond 10.0 s"),
        (Bounded(0.182, 0.1, 0.25), "182 ms (100 ms to 250 ms)"),
    ],
)
def test_a_latency_has_its_ends(value: Bounded | None, words: str) -> None:
    """Beyond the last edge of its buckets only the lower one."""
    assert words == serving.seconds_between(value)


@pytest.mark.parametrize(
    ("share", "rps", "words"),
    [
        (Bounded(0.5, 0.5, 0.5), None, "50 % of 200 requests"),
        (Bounded(0.5, 0.25, 0.75), None, "50 % (25 to 75) of 200 requests"),
        (Bounded(None, 0.25, 0.75), None, "25 to 75 % of 200 requests"),
        (
            Bounded(None, 0.25, None),
            Bounded(None, 3.0, None),
            "3.00 or more requests/s, 25 % of 200 requests",
        ),
        (Bounded(0.9999, 0.9999, 0.9999), Bounded(4.0, 4.0, 4.0), "4.00 requests/s, 99.9 % of 200 requests"),
        (
            Bounded(0.5, 0.25, 0.75),
            Bounded(4.0, 2.0, 6.0),
            "4.00 requests/s (2.00 to 6.00), 50 % (25 to 75) of 200 requests",
        ),
    ],
)
def test_goodput_is_never_rounded_up_to_all(share: Bounded, rps: Bounded | None, words: str) -> None:
    """What lies between two ends is told by them."""
    found = SloGoodput(share.scaled(200), 200, rps)
    assert words == serving.goodput(found)
