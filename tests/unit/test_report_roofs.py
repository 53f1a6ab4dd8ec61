"""The roofline of a report: every dot where its figures put it, and no figure that nobody knows."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from snapshot import views
from unit.test_report import Checker

from tuiadvisor.efficiency.roofline import OpWork, roofline
from tuiadvisor.events import MeasuredPeak
from tuiadvisor.report import roofs
from tuiadvisor.report.page import Dossier, html_report
from tuiadvisor.views.efficiency import Efficiency, Roofline

# 1e11 FLOP/s and 1e10 bytes/s: the slope meets the ceiling at 10 FLOP a byte.
PEAKS = (MeasuredPeak("float32", 1, 1e11, 1e10),)
MATMUL = OpWork("aten::mm", "[64, 64]", "float32", 4, 2.0, 1e11, 1e9)  # 100 FLOP a byte, half of the peak
VECTOR = OpWork("aten::mv", "[64]", "float32", 1, 0.5, 1e9, 1e9)  # 1 FLOP a byte, a fifth of the slope
ADD = OpWork("aten::add", "[64]", "float32", 9, 1.0, 0.0, 0.0)


def held(*works: OpWork, peaks: tuple[MeasuredPeak, ...] = PEAKS) -> Roofline:
    return roofline(works, None, 1, peaks, on_cpu=True)


def circles(picture: str) -> dict[str, tuple[float, float, float]]:
    """Name of a dot -> x, y, radius."""
    found = re.findall(
        r'<circle [^>]*cx="([\d.]+)" cy="([\d.]+)" r="([\d.]+)"><title>(\S+) [^<]*</title>', picture
    )
    return {name: (float(x), float(y), float(radius)) for x, y, radius, name in found}


def roof(picture: str) -> list[tuple[float, float]]:
    """The corners of the roof: begin of the slope, ridge, end of the ceiling."""
    (points,) = re.findall(r'<polyline class="edge" points="([^"]+)"', picture)
    return [(float(x), float(y)) for x, y in (point.split(",") for point in points.split())]


def test_a_table_that_leaves_out_operations_says_so() -> None:
    """Twelve rows at most; the picture has all."""
    many = [
        replace(MATMUL, shape=f"[{number}, 64]", seconds=1 + number) for number in range(roofs.MAX_ROWS + 3)
    ]
    assert "the 12 longest of 15 operations" in roofs.roofline(held(*many))
    assert "longest of" not in roofs.roofline(held(*many[:12]))


def test_dots_lie_under_the_roof_as_far_as_their_share_of_it() -> None:
    """Half of the peak is log 2 below the ceiling, a fifth of the slope log 5 below it; scales are logarithmic."""
    picture = roofs.roofline(held(MATMUL, VECTOR))
    (start_x, start_y), (ridge_x, ridge_y), (end_x, end_y) = roof(picture)
    assert ridge_y == end_y
    assert start_x < ridge_x < end_x
    assert start_y > ridge_y
    dots = circles(picture)
    # From 1 to 100 FLOP a byte are two decades: the ridge, 10, lies in the middle.
    assert ridge_x == pytest.approx((dots["aten::mv"][0] + dots["aten::mm"][0]) / 2, abs=0.2)
    decade_x = ridge_x - dots["aten::mv"][0]
    decade_y = (start_y - ridge_y) / ((ridge_x - start_x) / decade_x)  # along the slope
    assert decade_y * math.log10(2) == pytest.approx(dots["aten::mm"][1] - ridge_y, abs=0.2)
    slope_y = ridge_y + decade_y  # a decade below the ridge
    assert decade_y * math.log10(5) == pytest.approx(dots["aten::mv"][1] - slope_y, abs=0.2)
    # Area beyond the smallest dot is time: a quarter of it is half of the radius.
    smallest = 3
    assert dots["aten::mm"][2] - smallest == pytest.approx(2 * (dots["aten::mv"][2] - smallest))
    assert "aten::mv [64]: 2.00 GFLOP/s, memory-bound, 20 % of its roof" in picture
    assert "aten::mm [64, 64]: 50.0 GFLOP/s, compute-bound, 50 % of its roof" in picture


def test_nothing_lies_outside_of_the_picture() -> None:
    """However far dots and the whole step are from the roof."""
    far = (
        OpWork("slow", "", "float32", 1, 1e4, 1.0, 10.0),
        OpWork("fast", "", "float32", 1, 1e-6, 1e9, 1.0),
        replace(VECTOR, name="usual"),
    )
    picture = roofs.roofline(held(*far), achieved=7e13)
    dots = circles(picture)
    assert {"slow", "fast", "usual"} == set(dots)
    (line,) = re.findall(r'<line class="mark" [^>]*y1="([\d.]+)"', picture)
    heights = [y for _, y, _ in dots.values()] + [y for _, y in roof(picture)] + [float(line)]
    widths = [x for x, _, _ in dots.values()] + [x for x, _ in roof(picture)]
    assert roofs.TOP <= min(heights)
    assert max(heights) <= roofs.HEIGHT - roofs.BOTTOM
    assert roofs.LEFT <= min(widths)
    assert max(widths) <= roofs.WIDTH - roofs.RIGHT


@pytest.mark.parametrize("achieved", [None, 0.0])
def test_what_the_whole_step_achieves_is_a_line_only_where_it_is_known(achieved: float | None) -> None:
    """Below the ceiling at its share of the peak, and no line at an unknown rate."""
    assert 'class="mark"' not in roofs.roofline(held(MATMUL), achieved)
    picture = roofs.roofline(held(MATMUL), 5e10)
    assert "the whole step: 50.0 GFLOP/s" in picture
    (line,) = re.findall(r'<line class="mark" [^>]*y1="([\d.]+)"', picture)
    assert circles(picture)["aten::mm"][1] == pytest.approx(float(line), abs=0.1)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (held(MATMUL, peaks=()), "has to be measured where it runs"),
        (held(MATMUL, peaks=(MeasuredPeak("float32", 1, 1e11, None),)), "the memory bandwidth is not known"),
        (held(ADD), "the trace has no shapes"),
        (held(), "the trace has no shapes"),
    ],
)
def test_without_a_roof_or_dots_it_says_why(found: Roofline, why: str) -> None:
    """No empty axes."""
    text = roofs.roofline(found, 1e9)
    assert text.startswith('<p class="unknown">unknown: ')
    assert why in text
    assert "<svg" not in text


def test_an_operation_in_a_type_without_a_peak_has_no_roof() -> None:
    """It was "None-bound, unknown of its roof"; in the table it has no bound either."""
    odd = replace(VECTOR, name="odd", dtype="float16")
    found = held(MATMUL, odd)
    picture = roofs.roofline(found)
    assert "odd [64]: 2.00 GFLOP/s, roof unknown</title>" in picture
    assert "None" not in picture
    assert ("unknown", "unknown") == roofs.dot_rows(found)[1][-2:]


def test_an_operation_that_took_no_time_or_moved_nothing_is_only_in_the_table() -> None:
    """It has no place on logarithmic axes."""
    found = held(
        MATMUL, replace(VECTOR, name="at-once", seconds=0.0), replace(VECTOR, name="bytes", num_bytes=0.0)
    )
    assert {"aten::mm"} == set(circles(roofs.roofline(found)))
    assert {"aten::mm", "at-once", "bytes"} == {row[0] for row in roofs.dot_rows(found)}


def test_the_table_names_the_longest_first() -> None:
    """As many rows as people read, calls and time as figures."""
    works = [replace(VECTOR, name=f"op{number}", seconds=number / 10) for number in range(1, 21)]
    rows = roofs.dot_rows(held(*works))
    assert [f"op{number}" for number in range(20, 8, -1)] == [row[0] for row in rows]
    assert (
        "aten::mm",
        "[64, 64]",
        "4",
        "2.00 s",
        "50.0 GFLOP/s",
        "100",
        "compute",
        "50 %",
    ) == roofs.dot_rows(held(MATMUL))[0]
    assert len(roofs.HEADS) == len(rows[0])


def test_names_of_a_stranger_act_nowhere_in_the_report() -> None:
    """Operations and devices are called what the trace says; the report stays whole."""
    hostile = "</title><script>alert(1)</script>"
    works = (replace(MATMUL, name=hostile, shape='" onload="x'),)
    found = replace(held(*works), device=hostile, source=hostile)
    view = views.healthy()
    text = html_report([Dossier("run.tuirec", view, roofline=found)], None, "tuiadvisor")
    checker = Checker()
    checker.feed(text)
    assert [] == checker.open
    assert "script" not in checker.tags
    assert [] == checker.handlers
    assert "Roofline of a traced rank" in text
    assert text.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 3


@pytest.mark.parametrize(
    ("mfu", "shares"), [(0.42, ("MFU 42 %", "left 58 %")), (1.0, ("MFU 100 %", "left 0 %"))]
)
def test_the_share_of_the_peak_is_a_bar(mfu: float, shares: tuple[str, str]) -> None:
    """What is taken and what is left, as wide as they are."""
    bar = roofs.mfu_bar(Efficiency(mfu=mfu))
    assert shares == tuple(re.findall(r"<rect [^>]*><title>([^<]*)</title>", bar))
    widths = [float(width) for width in re.findall(r'<rect [^>]*width="([\d.]+)"', bar)]
    assert mfu == pytest.approx(widths[0] / sum(widths))


@pytest.mark.parametrize("found", [None, Efficiency(), Efficiency(hfu=0.4, why="no model was seen")])
def test_an_unknown_share_has_no_bar(found: Efficiency | None) -> None:
    """An empty bar would say 0 %."""
    assert "" == roofs.mfu_bar(found)
