"""Figures that stand beside each other on a screen and are not of the same thing say so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from snapshot import views
from synthetic_run import Fault, Job, final_view

from tuiadvisor.app.whole_recording import whole_view
from tuiadvisor.text.line import Line, length
from tuiadvisor.tui.pages import sections
from tuiadvisor.tui.pages.overview import Overview
from tuiadvisor.tui.pages.pipeline import pipeline_lines
from tuiadvisor.views.run_view import Unknown
from tuiadvisor_rules.condition import RuleError
from tuiadvisor_rules.evaluate import show
from tuiadvisor_rules.loader import catalog_dir, load_catalog

STAGES = Path(__file__).parents[1] / "recordings" / "h200" / "pipeline-stage.tuirec"


def text_of(rows: list[Line]) -> str:
    return "\n".join(row.text for row in rows)


def test_a_throughput_with_pauses_is_not_the_inverse_of_the_mean_beside_it() -> None:
    """37.7 ms and 7.21 steps/s stood side by side without a word after a stall of 48 s."""
    paused = final_view(Job(num_ranks=4, num_steps=200, faults=(Fault("checkpoint", None, 0.5, every=50),)))
    even = final_view(Job(num_ranks=4, num_steps=200))
    assert "steps/s with pauses" in text_of(sections.step_figures(paused, 120))
    assert "with pauses" not in text_of(sections.step_figures(even, 120))


@pytest.mark.parametrize("width", [40, 60, 78, 80, 100])
def test_no_figure_of_the_step_is_cut(width: int) -> None:
    """At 80 columns it read "610 samples/s   19,527 ..."."""
    view = views.straggler()
    step = replace(
        view.step, rates_of="with pauses", throughput_tokens_s=19_527.0, throughput_samples_s=610.0
    )
    view = replace(view, step=step)
    rows = sections.step_figures(view, width)
    assert all(length(row) <= width for row in rows)
    assert "19,527 tokens/s" in text_of(rows)
    assert "610 samples/s" in text_of(rows)
    assert "…" not in text_of(rows)


@pytest.mark.parametrize("height", range(16, 36))
def test_a_row_too_few_for_the_figures_shows_whole_ones(height: int) -> None:
    view = views.straggler()
    step = replace(
        view.step, rates_of="with pauses", throughput_tokens_s=19_527.0, throughput_samples_s=610.0
    )
    rows = Overview().lines(views.live(replace(view, step=step)), 80, height)
    figures = next(place for place, row in enumerate(rows) if "p95" in row.text)
    assert "…" not in rows[figures].text
    assert height == len(rows)


def test_what_evening_out_brings_is_not_told_as_what_the_job_is_slowed_by() -> None:
    """1.40x of the verdict, one rank at the pace of the other, and 1.17x of the line below it are two changes."""
    told = text_of(sections.step_figures(whole_view(str(STAGES.with_name("device-ahead.tuirec"))), 160))
    assert "evened out 1.17\u00d7 faster" in told
    assert "slowed" not in told


def test_a_pipeline_on_devices_says_whose_clock_its_times_are_by() -> None:
    """Its first chunk to its last, the mean step and each rank's step are three times of one run."""
    view = whole_view(str(STAGES))
    assert view.pipeline is not None
    drawn = text_of(pipeline_lines(view.pipeline, 160, sections.clock(view)))
    assert "by the devices' clocks" in drawn
    assert "first chunk to last 35.2 ms" in drawn
    assert "steps/s of all steps" in text_of(sections.step_figures(view, 160))
    on_host = views.pipeline()
    assert on_host.pipeline is not None
    assert "clocks" not in text_of(pipeline_lines(on_host.pipeline, 160, sections.clock(on_host)))


def test_moving_layers_promises_what_moving_layers_brings() -> None:
    """The layers go to the others, which then take longer: verdict, finding and action 1 are of that alike."""
    view = whole_view(str(STAGES))
    (found,) = (one for one in view.findings if one.id == "heavy_stage")
    even_s = found.evidence["even_loss_s"]
    assert isinstance(even_s, float)
    assert even_s == pytest.approx(found.loss_s_per_step)
    assert view.step.mean_s is not None
    assert view.verdict.speedup is not None
    now_s = view.step.mean_s
    assert now_s - even_s == pytest.approx(now_s / view.verdict.speedup.expected, rel=1e-3)
    assert f"with its work spread evenly the mean step would take {1e3 * (now_s - even_s):.3g} ms" in (
        view.verdict.sentence
    )
    assert f"spread evenly, the same work takes {1e3 * even_s:.3g} ms a step less" in found.actions[0].text


def test_a_rule_that_is_shown_without_a_case_leaves_the_figure_open() -> None:
    """No braces, and no name of a metric in a sentence."""
    assert "the same work takes \u2026 a step less" in show("heavy_stage", load_catalog())


def test_an_action_with_an_unknown_metric_is_refused(tmp_path: Path) -> None:
    """As in a message: it would be shown with its braces."""
    rule = (
        (catalog_dir() / "heavy_stage.toml")
        .read_text()
        .replace("{even_loss_s} a step less", "{even_loss} a step less")
    )
    (tmp_path / "heavy_stage.toml").write_text(rule)
    with pytest.raises(RuleError, match="even_loss"):
        load_catalog(tmp_path)


@pytest.mark.parametrize("rows", [1, 2])
def test_why_nobody_is_named_is_never_cut_without_a_sign(rows: int) -> None:
    """On 80x24 the sentence ended in "which do"."""
    why = "the ranks hold stages of a pipeline, which do different work, and " + "so on " * 30
    view = replace(views.straggler(), stragglers=(), unknown=(Unknown("stragglers", why),))
    drawn = sections.culprits(view, 78, rows)
    assert rows == len(drawn)
    assert drawn[-1].text.endswith("…")
