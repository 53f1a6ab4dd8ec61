"""Sentences that the first recordings of a real GPU showed to be wrong, unreadable or beside the point."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from snapshot import views
from synthetic_run import MS, Fault, Job, folded, frames

from tuiadvisor.advisor.assemble.picture import _why_phase
from tuiadvisor.advisor.judge.findings import Judged
from tuiadvisor.advisor.judge.goodput import goodput
from tuiadvisor.metrics.diagnosing import diagnose_table
from tuiadvisor.session.conclusions import limit_name
from tuiadvisor.session.sizes import Size
from tuiadvisor.text import evidence
from tuiadvisor.text.efficiency import efficiency_facts, stack_facts
from tuiadvisor.text.goodput import notes
from tuiadvisor.text.line import wrap
from tuiadvisor.tui.pages import sections
from tuiadvisor.tui.pages.once import plain_summary
from tuiadvisor.tui.pages.overview import Overview
from tuiadvisor.views.efficiency import Efficiency, Stack
from tuiadvisor.views.goodput import WallPart
from tuiadvisor.views.pipeline import PipelineView
from tuiadvisor.views.run_view import DeviceView, ProbeWork
from tuiadvisor_rules.evaluate import judge
from tuiadvisor_rules.loader import load_catalog

RULES = {rule.id: rule for rule in load_catalog()}
ASKS_DEVICES = (
    "clocks of its host's devices: nvidia-smi "
    "--query-gpu=index,clocks.sm,temperature.gpu,clocks_throttle_reasons.active,power.draw --format=csv"
)


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("comm_exposed", "largest loss of a step: exposed comm"),
        ("backward", "largest part of a step: backward"),
    ],
)
def test_a_run_to_keep_calls_a_loss_no_part_of_a_step(limit: str, said: str) -> None:
    """Exposed communication was 7 % of a step and "the largest part" of it, beside backward with 58 %."""
    view = views.healthy()
    view = replace(view, verdict=replace(view.verdict, next_constraint=limit))
    assert said in " ".join(row.text for row in sections.verdict(view, 80, 6))


@pytest.mark.parametrize(
    ("behind", "said"),
    [(0.74, "is behind its thread by 74 % of a step"), (4.19, "is 4.19 steps behind its thread")],
)
def test_a_device_far_behind_its_thread_is_so_by_steps(behind: float, said: str) -> None:
    """It was "behind its thread by 419 % of the step"."""
    device = DeviceView(0.03, {}, behind, keeps_pace=False, num_steps=20)
    assert said == sections.pace(device)


def test_a_long_word_is_cut_behind_a_sign() -> None:
    """nvidia-smi's list of columns was cut within a name: nobody could type it from the screen."""
    rows = wrap(ASKS_DEVICES, 60)
    assert ASKS_DEVICES.replace(" ", "") == "".join(rows).replace(" ", "")
    assert any(row.endswith("temperature.gpu,") for row in rows)
    assert ["a" * 10, "a" * 5] == wrap("a" * 15, 10)


def test_goodput_of_steady_steps_that_is_the_runs_own_needs_no_reason() -> None:
    """95 % beside 95 %, and "they lose more than the rest of the run did"; or pauses of a run that had none."""
    wall = views.from_start().wall
    assert wall is not None
    parts = (WallPart("useful", 9.0, 0.9), WallPart("warmup", 0.5, 0.05), WallPart("unnamed", 0.5, 0.05))
    wall = replace(wall, waterfall=parts, unknown_s=0.0, from_start=True, num_restarts=0)
    (alike,) = notes(replace(wall, end_to_end=0.9503, steady=0.9498))
    (other,) = notes(replace(wall, end_to_end=0.93, steady=0.95))
    assert alike.endswith("95 % is useful")
    assert other.endswith("95 % is useful: beside them warm-up; slower, not explained")


def test_what_the_probe_takes_is_not_cut() -> None:
    """The first lines of `diagnose` ended in "(Python ho" and an ellipsis."""
    work = ProbeWork(0.03, 0.0025, 0.0, 0, is_over=True, always_on=0.03, core="python")
    text = plain_summary(replace(views.healthy(), probe=work), plain_ascii=False)
    assert "(Python hooks); detail 0 % of steps" in " ".join(text.split())


def test_settings_are_called_by_their_names() -> None:
    """Batches that the data set itself pins were "not pinned"; the last of sixteen alike layers was a "head"."""
    said = dict(
        stack_facts(Stack({"workers": 0, "pin_memory": 0, "head": 262144, "mm": 4194304, "class": "MLP"}))
    )
    assert "no workers · pin_memory off" == said["loader"]
    assert "parts" not in said
    assert "head 50.0 M" in dict(stack_facts(Stack({"head": 50_000_000, "layers": 12})))["parts"]


def test_the_ridge_says_of_which_roofs() -> None:
    """Memory-bound below "14.0 FLOP a byte": it said neither in which precision nor for which memory."""
    found = Efficiency(peak_flops=67e12, dtype="float32", peak_bytes_s=4.8e12, ridge_flop_byte=67 / 4.8)
    view = replace(views.healthy(), efficiency=found)
    assert (
        "14.0 FLOP a byte: 67.0 TFLOP/s fp32 over 4.80 TB/s"
        == dict(efficiency_facts(view))["memory-bound below"]
    )


def test_tf32_and_half_precision_are_told_as_alternatives() -> None:
    """82 % and 76 % of one step, as if both could be had."""
    values = {"dtype_words": "fp32", "full_precision": 1, "half_saves_share": 0.82, "step_s": 0.03}
    values |= {"tf32_is_off": 1, "tf32_saves_share": 0.76, "compute_share": 0.88}
    half, tf32 = judge(RULES["full_precision"], values), judge(RULES["tf32_off"], values)
    assert (
        "TF32 instead would bring up to 76 % with one line of code; the two gains do not add up"
        in half.message
    )
    assert "bf16 instead would bring up to 82 %; the two gains do not add up" in tf32.message
    alone = judge(
        RULES["full_precision"], values | {"dtype_words": "TF32", "tf32_is_off": 0, "tf32_saves_share": None}
    )
    assert "instead" not in alone.message


def test_a_run_to_keep_says_how_much_its_precision_leaves() -> None:
    """Beside "nothing found is worth acting on" stood "a step could be up to 82 % shorter"."""
    values = {"dtype_words": "fp32", "full_precision": 1, "half_saves_share": 0.82, "tf32_is_off": 0}
    assert "up to 82 %" in judge(RULES["full_precision"], values).headline
    assert "No loss worth acting on" == RULES["healthy"].title


def test_little_use_of_busy_devices_refers_to_nothing_that_may_not_be_there() -> None:
    """It said that "the other findings" tell where the rest goes, and was the only one."""
    for case in RULES["busy_not_useful"].cases:
        assert "findings" not in judge(RULES["busy_not_useful"], case.metrics).message
    assert all("findings" not in action.text for action in RULES["busy_not_useful"].actions)


def test_the_guided_session_calls_phases_as_screens_do() -> None:
    """It listed "h2d 1.02 ms" beside backward and forward."""
    assert "copy to device" == limit_name("h2d")


def test_the_guided_session_writes_numbers_and_devices_as_people_do() -> None:
    """It said "1.11e+06 samples/s", and "1 devices"."""
    size = Size("run", 1, 0.03, 1.11e6, 1.8e-6, None, None, None, None, "")
    assert "1 device, step 30 ms, 1,110,000 samples/s" in size.words()


@pytest.mark.parametrize("name", ["full_precision", "tf32_is_off", "shares_differ"])
def test_a_flag_of_a_finding_is_no_number(name: str) -> None:
    """Reports said "TF32 is off: 1"."""
    assert "yes" == evidence.value_of(name, 1)


@pytest.mark.parametrize("height", [16, 17, 18])
def test_what_a_cure_would_gain_is_seen_on_the_smallest_screen(height: int) -> None:
    """The sentence ended in "would take" and an ellipsis, above two rows of what to do first."""
    view = views.straggler()
    sentence = (
        "Tune: rank 1 late by 10.9 ms in 100 % of the steps, in all compute phases alike, so on its device; without "
        "that the mean step would take 29.5 ms instead of 40.3 ms (1.36x)."
    )
    quiet = views.healthy().losses
    view = replace(view, verdict=replace(view.verdict, sentence=sentence), ranks=view.ranks[:2], losses=quiet)
    text = "\n".join(row.text for row in Overview().lines(views.live(view), 80, height))
    assert "(1.36x)" in text
    assert "first: " in text


def test_goodput_is_unknown_while_it_is_undecided_whom_the_others_wait_for() -> None:
    """A rank 15 ms late in steps of 44 ms was "not decided", and 96 % of the same steps useful."""
    late = Job(num_ranks=2, num_steps=200).with_faults(Fault("backward", (1,), 15 * MS))
    found = folded(frames(late)).store.table()
    assert found is not None
    alive = np.ones(2, dtype=bool)
    diagnosis = diagnose_table(found[0], alive, from_beginning=found[1], all_ranks_seen=True)
    (straggler,) = diagnosis.stragglers
    is_open = replace(diagnosis, stragglers=(), open_late=(straggler,))
    assert goodput(is_open, []).value is None
    none_late = replace(is_open, open_late=())
    assert goodput(none_late, []).value is not None


def test_goodput_is_unknown_where_nobody_saw_what_ranks_wait_for_each_other() -> None:
    """Two stages of a pipeline, timed by their devices alone: "100 % of the steady steps" useful, and 41 % other."""
    found = folded(frames(Job(num_ranks=2, num_steps=200))).store.table()
    assert found is not None
    diagnosis = diagnose_table(found[0], np.ones(2, dtype=bool), from_beginning=found[1], all_ranks_seen=True)
    assert goodput(diagnosis, []).value is not None
    unseen = {**diagnosis.job_seconds, "comm_exposed": None}
    assert goodput(replace(diagnosis, job_seconds=unseen), []).value is None


def test_a_pipeline_is_not_said_to_be_none() -> None:
    """It said "no pipeline stages" below "the ranks hold stages of a pipeline (Schedule1F1B)"."""
    pipeline = PipelineView(schedule="Schedule1F1B", why_unknown="chunks were timed by the host's clock")
    assert "no pipeline stages" == _why_phase("pipeline_idle", "cuda", None)
    assert "no pipeline stages" != _why_phase("pipeline_idle", "cuda", pipeline)


def test_a_slow_stage_named_by_devices_alone_leaves_goodput_unknown() -> None:
    """Without it a step would be 1.28x as fast, and 95 % of its time was useful."""
    found = folded(frames(Job(num_ranks=2, num_steps=200))).store.table()
    assert found is not None
    diagnosis = diagnose_table(found[0], np.ones(2, dtype=bool), from_beginning=found[1], all_ranks_seen=True)
    unseen = replace(diagnosis, job_seconds={**diagnosis.job_seconds, "comm_exposed": None})
    slow = views.straggler().findings[0]
    stage = Judged(replace(slow, id="heavy_stage"), RULES["heavy_stage"], None, "")
    loader = Judged(replace(slow, id="input_bound"), RULES["input_bound"], None, "")
    assert goodput(unseen, [stage]).value is None
    assert goodput(unseen, [loader]).value is not None
