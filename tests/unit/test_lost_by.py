"""The lost wall time by layer and by lens sums to what the waterfall calls lost; a rule may bring a kind of its own."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from functools import cache

import pytest
from snapshot import views
from synthetic_run import MS, Fault, Job, folded, frames
from test_goodput_waterfall import born
from unit.test_tui_pages import screen

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.report.document import document
from tuiadvisor.tui.pages import sections
from tuiadvisor.tui.pages.goodput import layer_lines
from tuiadvisor.tui.pages.overview import _first_action, _first_finding
from tuiadvisor.views import lost_by
from tuiadvisor.views.goodput import WallPart
from tuiadvisor.views.lost_by import LENSES, NOWHERE, USUAL, by_layer, by_lens, lens_share
from tuiadvisor.views.run_view import RunView
from tuiadvisor_rules.condition import RuleError
from tuiadvisor_rules.loader import LAYERS, Rule, load_catalog, rule_of
from tuiadvisor_rules.loader import LENSES as RULES_LENSES

FAULTS = {
    "healthy": (),
    "slow data": (Fault("data", None, 9 * MS),),
    "late rank": (Fault("forward", (2,), 6 * MS),),
    "checkpoints": (Fault("checkpoint", None, 0.4, every=40),),
    "exchange": (Fault("comm", None, 12 * MS),),
}
OWN = """
id = "{name}"
title = "Moving data"
pattern = "P1"
lens = "L-CODESIGN"
layer = "network"
decision = "tune"
condition = "transfer_s > 0"
{loss}
headline = "data is moved"
message = "Data is moved."
why = "It is."
verify = "It is less."
evidence = ["transfer_s"]
measure_next = []

[[cases]]
name = "some"
expect = "info"
[cases.metrics]
transfer_s = 0.1

[[cases]]
name = "none"
expect = "silent"
[cases.metrics]
transfer_s = 0.0
"""


@cache
def view(name: str) -> RunView:
    """Seen from its start."""
    found: RunView = folded(born(frames(Job(num_steps=250, faults=FAULTS[name])), 20.0, young=True)).view()
    return found


@pytest.mark.parametrize("name", FAULTS)
def test_layers_and_lenses_sum_to_what_is_lost(name: str) -> None:
    wall = view(name).wall
    assert wall is not None
    lost_s = sum(part.seconds for part in wall.waterfall if part.sort == "lost")
    kinds = {part.kind for part in wall.waterfall if part.sort == "lost"}
    for rows in (by_layer(view(name)), by_lens(view(name))):
        assert sum(row.seconds for row in rows) == pytest.approx(lost_s)
        assert {kind for row in rows for kind in row.kinds} == kinds
        assert [row.seconds for row in rows] == sorted((row.seconds for row in rows), reverse=True)
    told = document(view(name))["goodput"]
    assert [row["name"] for row in told["by_layer"]] == [row.name for row in by_layer(view(name))]
    assert sum(row["share"] for row in told["by_lens"]) == pytest.approx(lost_s / wall.span_s)


@pytest.mark.parametrize(
    ("name", "layer", "kind"),
    [
        ("slow data", "application", "data_wait"),
        ("checkpoints", "storage", "checkpoint"),
        ("exchange", "network", "comm_exposed"),
    ],
)
def test_a_fault_is_in_its_layer(name: str, layer: str, kind: str) -> None:
    row = next(row for row in by_layer(view(name)) if kind in row.kinds)
    assert row.name == layer


def test_the_layer_is_the_findings_where_there_is_one() -> None:
    """A late rank's time is of the layer that its phase stands for, not of the usual one."""
    found = next(one for one in view("late rank").findings if one.id == "straggler")
    row = next(row for row in by_layer(view("late rank")) if "straggler" in row.kinds)
    assert row.name == found.layer


def test_usual_places_are_layers_and_lenses_of_the_rules() -> None:
    assert {layer for layer, _ in USUAL.values()} <= set(LAYERS)
    assert {lens for _, lens in USUAL.values()} <= set(RULES_LENSES)
    assert set(LENSES) == set(RULES_LENSES)


def test_all_four_lenses_stand_in_one_row_on_the_first_screen() -> None:
    (row,) = sections.lenses(view("slow data"), 78)
    for name in ("lost to waiting", "to overheads", "MFU", "goodput"):
        assert f"{name} " in row.text
    assert "amortize" not in row.text
    assert "MFU unknown" in row.text
    assert len(row.text) <= 78
    assert "to overheads" in "\n".join(screen(views.live(view("slow data")), 80, 24))
    assert any("lost time by layer" in row.text for row in layer_lines(view("slow data"), 78))


def test_the_lenses_are_shares_of_the_time_that_goodput_is_of() -> None:
    """84 % useful and 0.9 % lost stood in one row: the lost part was of hours before the watcher came, too."""
    seen = view("slow data")
    assert seen.wall is not None
    known_s = seen.wall.span_s - seen.wall.unknown_s
    before = WallPart("before_watcher", 99 * known_s, 0.99)
    parts = [part for part in seen.wall.waterfall if part.sort != "unknown"]
    wall = replace(
        seen.wall, span_s=100 * known_s, unknown_s=99 * known_s,
        waterfall=(*(replace(part, share=part.seconds / (100 * known_s)) for part in parts), before),
    )  # fmt: skip
    seen = replace(seen, wall=wall)
    lost = sum(lens_share(seen, lens) or 0.0 for lens in LENSES)
    useful_s = sum(part.seconds for part in parts if part.sort == "useful")
    assert 1.0 == pytest.approx(lost + useful_s / known_s, abs=0.001)  # some of it has no lens


def test_a_finding_whose_price_nobody_knows_costs_its_lens_no_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """0 % is said only of a lens without a finding above a remark."""
    monkeypatch.setattr(lost_by, "by_lens", lambda _view: ())
    late = view("late rank").findings[0]
    without_price = replace(late, lens="L-BALANCE", severity="warning", loss_s_per_step=None)
    for findings, said in (((), "0 %"), ((without_price,), "unknown")):
        (row,) = sections.lenses(replace(view("healthy"), findings=findings), 78)
        assert f"waiting {said}" in row.text


def test_a_command_is_not_broken_where_what_to_do_first_is_said() -> None:
    """It stands behind the words, on a row of its own, or under enter."""
    seen = view("slow data")
    found = _first_finding(seen)
    assert found is not None
    command = "pidstat -u 5 3 --pid 4711"
    found = replace(found, actions=(replace(found.actions[0], command=command),))
    seen = replace(seen, findings=(found,))
    for width in range(60, 240):
        rows = [line.text for line in _first_action(seen, width, 2)]
        assert sum(command in row for row in rows) == int("$ " in " ".join(rows)), rows


def test_without_wall_time_nothing_is_summed() -> None:
    shown = views.too_early()
    assert by_layer(shown) == ()
    assert sections.lenses(shown, 78) == []
    assert layer_lines(shown, 78) == []


def own_rule(loss: str = 'loss = "transfer_s"\nown_loss = true') -> Rule:
    text = OWN.format(name="moving", loss=loss)
    return rule_of(tomllib.loads(text), text, "mine.toml")


def test_a_rule_brings_a_kind_of_loss_of_its_own() -> None:
    """With its seconds a step as a share of the time, its lens and layer; all shares still sum to 1."""
    sequence = born(frames(Job(num_steps=250)), 20.0, young=True)
    advisor = Advisor(rules=(*load_catalog(), own_rule()))
    for frame in sequence:
        advisor.feed_frame(frame)
    found = advisor.view()
    without = view("healthy")
    lost = found.goodput_losses["moving"]
    assert lost > 0
    assert found.goodput == pytest.approx((without.goodput or 0) - lost)
    assert sum(found.goodput_losses.values()) + (found.goodput or 0) == pytest.approx(1)
    assert found.wall is not None
    assert any(part.kind == "moving" for part in found.wall.waterfall)
    assert any("moving" in row.kinds and row.name == "L-CODESIGN" for row in by_lens(found))
    assert not any("moving" in row.kinds and row.name == NOWHERE for row in by_layer(found))


@pytest.mark.parametrize(
    ("loss", "why"),
    [
        ("own_loss = true", "needs scope"),
        ('loss = "transfer_s"\nown_loss = 1', "true or false"),
        ('scope = "stage"\nloss = "transfer_s"\nown_loss = true', "."),
    ],
)
def test_a_wrong_own_loss_is_refused(loss: str, why: str) -> None:
    with pytest.raises(RuleError, match=why):
        own_rule(loss=loss)


def test_what_is_lost_and_not_explained_stands_in_the_row_of_the_lenses() -> None:
    """Lost 7 and 8 %, useful 48 % stood in one row: 37 % was missing. Where there is no room nothing else goes."""
    seen = view("slow data")
    assert seen.wall is not None
    assert (lens_share(seen, NOWHERE) or 0.0) < 0.01
    assert "not explained" not in sections.lenses(seen, 120)[0].text
    slower = WallPart("unnamed", seen.wall.span_s, 0.5)
    halved = (*(replace(part, share=part.share / 2) for part in seen.wall.waterfall), slower)
    seen = replace(seen, wall=replace(seen.wall, span_s=2 * seen.wall.span_s, waterfall=halved))
    assert pytest.approx(0.5, abs=0.01) == lens_share(seen, NOWHERE)
    (row,) = sections.lenses(seen, 120)
    assert "not explained 50 %  MFU" in row.text
    (narrow,) = sections.lenses(seen, 70)
    assert "not explained" not in narrow.text
    assert "goodput" in narrow.text


def test_a_lens_of_time_that_nobody_judged_is_unknown() -> None:
    """No loss was seen, which is not a loss of nothing."""
    seen = view("slow data")
    assert seen.wall is not None
    unjudged = (WallPart("not_judged", seen.wall.span_s, 1.0),)
    wall = replace(seen.wall, waterfall=unjudged, end_to_end=None)
    unknown = replace(seen, wall=wall, goodput=None)
    assert [None, None] == [lens_share(unknown, lens) for lens in ("L-BALANCE", "L-AMORT")]
    assert [] == sections.lenses(unknown, 78)  # nothing but unknowns
    (row,) = sections.lenses(seen, 78)
    assert re.search(r"overheads \d", row.text)


def test_in_the_first_seconds_the_start_is_no_loss_of_all() -> None:
    """Page 1 said "lost to overheads 100 %" beside "goodput unknown": the start was all that was known."""
    seen = view("slow data")
    assert seen.wall is not None
    begun = (WallPart("startup", 3.0, 0.6), WallPart("not_judged", 2.0, 0.4))
    wall = replace(seen.wall, waterfall=begun, end_to_end=None)
    young = replace(seen, wall=wall, goodput=None, findings=())
    assert [None] * 2 == [lens_share(young, lens) for lens in ("L-BALANCE", "L-AMORT")]
    assert [] == sections.lenses(young, 78)
