"""A verdict above info needs a gain whose interval leaves out zero: one rule, what it does not hold for, and a walk."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import test_advisor_memory
from simulated_devices import DeviceJob, view_of
from simulated_devices import Fault as DeviceFault
from synthetic_run import MS, Fault, Job, folded, frames
from test_advisor_stages import JOB as STAGES
from test_advisor_stages import view_of as view_of_stages
from test_causes_outside import LIMIT, QUIET, UNSEEN, seen
from thinned import ALL_EXAMPLES

from tuiadvisor.app.whole_recording import whole_view
from tuiadvisor.causes.above_info import (
    OF_NO_FINDING,
    OF_USERS,
    WITHOUT_GAIN,
    is_worth_acting,
    why_without_gain,
)
from tuiadvisor.causes.cause import no_gain
from tuiadvisor.causes.registry import cause_of
from tuiadvisor.importers.serving.page import read_page
from tuiadvisor.importers.serving.reading import serving_view
from tuiadvisor.metrics.lateness.off_core import HeldRank, OffCore, held_ranks, least_gain
from tuiadvisor.metrics.series.what_if import Gain, of_share
from tuiadvisor.session.against_intent import with_intent
from tuiadvisor.session.intent import Intent
from tuiadvisor.views.run_view import RunView
from tuiadvisor_rules.user import load_rules

sys.path.append(str(Path(__file__).parents[1] / "accuracy"))
import simulate
from worlds import World

RECORDINGS = Path(__file__).parents[1] / "recordings"
ABOVE = {"warning", "critical"}


# --- the rule


def gain_of(low: float, share: float = 0.3) -> Gain:
    return of_share(1.0, share, low)


@pytest.mark.parametrize(
    ("rule", "gain", "is_worth"),
    [
        ("straggler", gain_of(0.1), True),
        ("straggler", gain_of(0.0), False),  # its interval begins at nothing
        ("straggler", replace(gain_of(0.1), speedup_low=1.0), False),
        ("straggler", None, False),
        ("held_rank", None, False),
        ("hang", None, True),
        ("memory_creep", None, True),
        ("memory_creep", gain_of(0.0), False),  # where there is an interval it decides
        ("serving_kv_full", None, True),
        ("a_rule_of_my_own", None, True),
    ],
)
def test_a_finding_stands_above_info_for_a_sure_gain_alone(
    rule: str, gain: Gain | None, is_worth: bool
) -> None:
    assert is_worth_acting(rule, gain) == is_worth


def test_what_stands_there_without_a_gain_says_why() -> None:
    """Each of them is a shipped rule that can stand above info, and is about no step; all others have a gain."""
    graver = {rule.id: rule for rule in load_rules() if rule.levels and cause_of(rule.id) is not None}
    assert set(graver) >= set(WITHOUT_GAIN) - {"serving_long_prompts", "serving_room_left"}
    assert all(len(reason.split()) > 4 for reason in (*WITHOUT_GAIN.values(), OF_USERS))
    for name in graver:
        cause = cause_of(name)
        assert cause is not None
        # Causes of groups give each its own: what they give is walked over below.
        has_gain = cause.gain is not no_gain or cause.scope not in {"job", "standstill", "serving"}
        assert has_gain != bool(why_without_gain(name)), name


# --- what a rank that is kept from running costs


CHANCE = 1.7 / 30  # of thirty seconds


def core(row: int, share: float, others: float, surely: float) -> HeldRank:
    return HeldRank(row, "core", share, others, surely)


@pytest.mark.parametrize(
    ("seen_of_each", "least"),
    [
        ([OffCore(0.1, run=0.1), OffCore(0.8, run=0.1)], 0.64),  # the other sleeps four fifths of its time
        ([OffCore(0.1, run=0.5), OffCore(0.8, run=0.1)], 0.9 - 0.6 - CHANCE),  # it has more to do itself
        ([OffCore(0.1, run=0.9), OffCore(0.8, run=0.1)], 0.0),  # it never sleeps: it computes, or spins
        ([OffCore(0.1, run=None), OffCore(0.8, run=0.1)], 0.0),
        ([OffCore(None, run=0.1), OffCore(0.8, run=0.1)], 0.0),
        # Of three the next one sets the pace then.
        ([OffCore(0.1, run=0.1), OffCore(0.8, run=0.1), OffCore(0.1, run=0.6)], 0.9 - 0.7 - CHANCE),
    ],
)  # fmt: skip
def test_what_the_others_sleep_longer_is_surely_gained(seen_of_each: list[OffCore], least: float) -> None:
    assert least == pytest.approx(least_gain([core(1, 0.8, 0.1, 0.64)], seen_of_each, 30.0))


def test_of_a_stopped_rank_the_stops_count_in_which_it_would_not_have_slept() -> None:
    """Half of its time stopped, and when it goes it sleeps for three fifths: as many stops meet it asleep."""
    held = HeldRank(1, "stopped", 0.5, 0.0, 0.4)
    stopped = OffCore(0.0, stopped=0.5, num_stopped=100, run=0.2)
    assert least_gain([held], [OffCore(0.0, stopped=0.0, run=0.2), stopped], 30.0) == pytest.approx(0.4 * 0.4)
    assert least_gain([held], [OffCore(0.0, stopped=0.0, run=0.9), stopped], 30.0) == 0.0
    assert least_gain([held], [OffCore(stopped=0.0), OffCore(stopped=0.5)], 30.0) == 0.0  # nobody counts


def test_of_two_held_ranks_the_gain_is_of_both() -> None:
    """Each of them alone would leave the other to set the pace."""
    rows = [OffCore(0.1, run=0.1), OffCore(0.8, run=0.1), OffCore(0.1, run=0.1), OffCore(0.7, run=0.1)]
    found = held_ranks(rows, 30.0)
    assert [1, 3] == [one.row for one in found]
    (gained,) = {one.gained for one in found}
    assert gained == pytest.approx(0.7 - CHANCE)  # from 0.9 awake to the 0.2 of the others


def test_a_held_rank_that_nobody_is_seen_to_wait_for_is_a_remark() -> None:
    """The others never sleep: they compute as long as it waits, or spin. It was critical, then "keep"."""
    more = {rank: {"run_s": 0.97} for rank in QUIET if rank != 1}
    view = seen(UNSEEN, {**QUIET, 1: 0.7}, more, {})
    (finding,) = [one for one in view.findings if one.id == "held_rank"]
    assert "info" == finding.severity
    assert "so it may cost nothing" in finding.message
    assert view.verdict.finding is None
    assert view.verdict.decision is None
    assert "rank 1 is ready to run but without a core" in view.verdict.sentence
    assert "whether the others wait for that is not seen" in view.verdict.sentence


# --- the walk


def recorded() -> Iterator[tuple[str, RunView]]:
    for path in sorted((*RECORDINGS.glob("*.tuirec"), *RECORDINGS.glob("h200/*.tuirec"))):
        yield path.stem, whole_view(str(path))


FAULTS = (
    *((kind, Fault(kind, (1,), 6 * MS)) for kind in ("data", "forward", "backward", "optimizer", "other")),
    *((f"{kind} of all", Fault(kind, None, 8 * MS)) for kind in ("data", "comm", "length", "decay")),
    ("comm", Fault("comm", (0, 1, 2, 3), 30 * MS)),
    ("spread", Fault("spread", None, 0.8)),
    ("checkpoints", Fault("checkpoint", None, 0.5, every=40)),
    ("evaluation", Fault("eval", None, 0.5, every=40)),
    ("periodic", Fault("other", (0,), 0.3, every=25)),
    ("rare", Fault("other", (0,), 2.0, chance=0.01)),
    ("garbage", Fault("gc", (1,), 0.1, every=20)),
    ("later", Fault("backward", None, 8 * MS, onset=300)),
)


def jobs() -> Iterator[tuple[str, RunView]]:
    for name, fault in FAULTS:
        yield name, folded(frames(Job(num_steps=400, faults=(fault,)))).view()
    for seed in range(3):
        yield f"healthy {seed}", folded(frames(Job(num_steps=200, seed=seed))).view()


def held() -> Iterator[tuple[str, RunView]]:
    yield "no core", seen(UNSEEN, {**QUIET, 1: 0.7}, {}, {})
    yield "limit", seen(UNSEEN, {**QUIET, 1: 0.7}, {1: LIMIT}, {})
    yield "stopped", seen(UNSEEN, QUIET, {}, {2: 3})
    yield "two", seen(UNSEEN, {**QUIET, 1: 0.7, 3: 0.6}, {}, {})
    yield "crowded", seen(UNSEEN, dict.fromkeys(range(4), 0.7), {}, {})


def worlds() -> Iterator[tuple[str, RunView]]:
    # The last of them is the one of lengths.
    for one in simulate.scenarios(16, 160, 8)[:: -1 if ALL_EXAMPLES else -4]:
        yield one.name, simulate.fold(World(16, 160, faults=one.faults))[0]
    for kind in ("device", "data", "copy", "host", "link"):
        fault = DeviceFault(kind, None if kind == "link" else (1,), factor=3.0, amount_s=20 * MS)
        yield f"{kind} on devices", view_of(DeviceJob(faults=(fault,)))


def others() -> Iterator[tuple[str, RunView]]:
    yield "stages", view_of_stages(replace(STAGES, slow_rank=((1, 1.125),)))
    yield "few micro-batches", view_of_stages(replace(STAGES, num_micro_batches=4))
    memory = test_advisor_memory.host_frames(lambda second: 0.6 + 0.0005 * second, {0: 1e3, 1: 53.7e6})
    yield "memory", test_advisor_memory.view(memory)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("walk", "met"),
    [
        (recorded, {"straggler", "heavy_stage", "input_bound", "communication_bound"}),
        (jobs, {"straggler", "communication_bound", "checkpoint_pause", "input_bound"}),
        (held, {"held_rank", "crowded_host"}),
        (worlds, {"straggler", "uneven_lengths"}),
        (others, {"heavy_stage", "pipeline_bubble", "memory_creep"}),
    ],
)
def test_nothing_stands_above_info_whose_gain_may_be_none(walk: object, met: set[str]) -> None:
    """met: rules that are above info in these runs, so that each walk is over something."""
    found: set[str] = set()
    for name, view in walk():  # type: ignore[operator]
        for one in view.findings:
            if one.severity not in ABOVE:
                continue
            found.add(one.id)
            low = one.evidence.get("speedup_low")
            assert (isinstance(low, float) and low > 1) or why_without_gain(one.id), (name, one.id)
        verdict = view.verdict
        if verdict.decision == "tune":
            assert verdict.speedup is not None or why_without_gain(str(verdict.finding)), (name, verdict)
            assert verdict.speedup is None or 1 < verdict.speedup.low <= verdict.speedup.high, (name, verdict)
            (first, *_) = [one for one in view.findings if one.id == verdict.finding]
            assert first.severity in ABOVE, (name, verdict)
    assert met <= found


def test_a_limit_that_is_surely_missed_promises_nothing() -> None:
    """Its verdict is to tune though no gain is sure: the limit is at stake, and what could keep it is a bound."""
    intent = Intent(objective="time", remaining_steps=100_000.0, deadline_h=0.1)
    view = whole_view(str(RECORDINGS / "h200" / "healthy-ahead.tuirec"))
    found = with_intent(view, intent).against_intent
    assert "a limit that is missed" in OF_NO_FINDING
    assert found is not None
    assert found.decision == "tune"
    assert found.at_best
    assert "at best" in found.sentence
    assert found.speedup is None
    assert found.would_change
    in_time = with_intent(view, replace(intent, deadline_h=100.0)).against_intent
    assert in_time is None or in_time.decision != "tune"


@pytest.mark.slow
def test_what_serving_pages_show_stands_in_the_table() -> None:
    """Their rules are judged elsewhere, on requests."""
    pages = [path for path in (RECORDINGS / "serving").glob("*.prom") if path.stem != "vllm-later"]
    views = [serving_view((read_page(path.read_bytes(), path.name),), {"ttft": 0.001}) for path in pages]
    found = {
        one.id for view in views for model in view.models for one in model.findings if one.severity in ABOVE
    }
    assert found
    assert found <= set(WITHOUT_GAIN)
