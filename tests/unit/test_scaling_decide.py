"""Rescale, stop or keep: by objective, deadline, budget and price, and never up because it got dearer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scaling_tables import MEGASCALE, PTD_P, ZERO_3, csv_of, report_of, write
from thinned import num_examples

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.scaling.analysis import analyse
from tuiadvisor.scaling.columns import TimeUnit
from tuiadvisor.scaling.cost import Aim, Objective
from tuiadvisor.scaling.decide import Candidate, decide
from tuiadvisor.scaling.table import read_table
from tuiadvisor.scaling.text import text as scaling_text

if TYPE_CHECKING:
    from pathlib import Path


def sure(devices: int, time: float) -> Candidate:
    """A measured size of a run of `time` hours at one unit of money per device-hour."""
    cost = devices * time
    return Candidate(devices, time, time, 8 * 100 / cost, cost, cost, time, time, is_predicted=False)


HOURS = TimeUnit("h")
SIZES = [sure(8, 100), sure(16, 52), sure(32, 28), sure(64, 17)]  # cost 800, 832, 896, 1088


@pytest.mark.parametrize(
    ("aim", "expected"),
    [
        (Aim(objective="cost"), 8),
        (Aim(objective="cost", deadline_h=60), 16),
        (Aim(deadline_h=30), 32),
        (Aim(objective="time", budget=900), 32),
        (Aim(objective="time", budget=850), 16),
        (Aim(objective="time"), 64),
        (Aim(objective="efficiency"), 32),
        (Aim(objective="efficiency", efficiency_floor=0.95), 16),
        (Aim(price_of_time=2.0), 16),  # an hour saved costs 0.67, 2.7 and 17.5 from step to step
        (Aim(price_of_time=3.0), 32),
        (Aim(price_of_time=20.0), 64),
    ],
)
def test_answer_by_hand(aim: Aim, expected: int) -> None:
    """Fastest within the budget, cheapest by the deadline, as far as an hour is worth its price."""
    decision = decide(SIZES, aim, HOURS, "not asked")
    assert expected == decision.devices
    assert ("keep" if expected == 64 else "rescale") == decision.decision


def test_the_cheapest_is_said_of_the_cheapest_alone() -> None:
    """Within noise the faster one is chosen, and the cheaper one named."""
    alike = [sure(8, 100), sure(16, 50.5), sure(32, 28)]
    decision = decide(alike, Aim(objective="cost"), HOURS, "")
    assert decision.devices == 16
    assert "the cheapest" not in decision.because
    assert (
        "as cheap as 8 devices within the noise of 2 % (cost 808 against 800, 1.0 % more)" in decision.because
    )
    assert ": the cheapest;" in decide(SIZES, Aim(objective="cost"), HOURS, "").because


def test_nothing_stated_moves_to_no_other_size() -> None:
    larger = replace(sure(128, 9.5), is_predicted=True)
    decision = decide([*SIZES, larger], Aim(efficiency_floor=0.5), HOURS, "")
    assert ("keep", 64) == (decision.decision, decision.devices)
    assert decision.because.startswith(
        "no objective was stated, and without one no number of devices is better"
    )
    assert (
        "rescale" == decide([*SIZES, larger], Aim(objective="time", efficiency_floor=0.5), HOURS, "").decision
    )


def test_a_floor_that_forbids_a_faster_size_is_named() -> None:
    larger = sure(128, 13)
    decision = decide([*SIZES, larger], Aim(objective="time", current=64), HOURS, "")
    assert decision.devices == 64
    assert "below the efficiency floor of 0.8 (efficiency_floor of the preferences)" in decision.because


def test_a_floor_that_nobody_asked_to_decide_by_stops_nothing() -> None:
    """128 devices are 31 % faster at efficiency 0.48: whether that pays is for the objective to say."""
    larger = sure(128, 13)
    decision = decide([*SIZES, larger], Aim(current=64), HOURS, "")
    assert ("keep", 64) == (decision.decision, decision.devices)
    assert decision.because.startswith("no objective was stated")
    assert "31 % faster" in decision.because
    assert decision.because.count("no objective was stated") == 1
    assert "the fastest" not in decision.because  # 128 are faster
    surely = Candidate(128, 13, 14, 0.48, 1664, 1792, 13, 14, is_predicted=True, best_efficiency=0.55)
    assert ("keep", 64) == _what([*SIZES, surely], Aim())
    assert ("stop", 64) == _what([*SIZES, surely], Aim(objective="time"))


def test_a_size_that_is_no_faster_even_at_best_stops_whatever_decides() -> None:
    no_faster = Candidate(128, 18, 19, 0.35, 2304, 2432, 18, 19, is_predicted=True, best_efficiency=0.36)
    assert ("stop", 64) == _what([*SIZES, no_faster], Aim())
    perhaps = replace(no_faster, best_efficiency=0.45)  # 14 h at best: 21 % faster
    assert ("keep", 64) == _what([*SIZES, perhaps], Aim())


@pytest.mark.parametrize("aim", [Aim(deadline_h=10), Aim(budget=100), Aim(deadline_h=60, budget=810)])
def test_impossible_limits_stop(aim: Aim) -> None:
    """What no size can meet is said, with what the nearest would take."""
    decision = decide(SIZES, aim, HOURS, "")
    assert "stop" == decision.decision
    assert "no measured or predicted size" in decision.because


@pytest.mark.parametrize("objective", [None, *get_args(Objective)])
def test_wasted_doubling_stops_under_every_objective(objective: Objective | None, tmp_path: Path) -> None:
    """ZeRO-3: 768 to 1536 devices, 74 to 74 days."""
    decision = report_of(tmp_path, csv_of(ZERO_3), aim=Aim(objective=objective)).decision
    assert "stop" == decision.decision
    assert 1536 > (decision.devices or 0)


def test_good_scaling_rescales(tmp_path: Path) -> None:
    """PTD-P at 1536 devices keeps 0.91: twice as many still pay by POP's 0.8."""
    report = report_of(tmp_path, csv_of(PTD_P), 3072, aim=Aim(objective="time"))
    assert report.predictions[0].efficiency.expected > 0.8
    assert ("rescale", 3072) == (report.decision.decision, report.decision.devices)


def test_predicted_size_must_be_faster_even_at_worst() -> None:
    """Expected 5 % faster, at worst 20 % slower: no reason to go there, and none to say that growing does not pay."""
    candidate = Candidate(128, 16.1, 20.4, 0.85, 2060, 2611, 16.1, 20.4, is_predicted=True)
    assert ("keep", 64) == _what([*SIZES, candidate], Aim(objective="time"))


def test_a_prediction_that_may_reach_the_floor_is_to_be_measured() -> None:
    """Efficiency 0.78 with 0.85 at best is no reason to say stop where 0.8 was asked for; 0.79 at best is."""
    faster = Candidate(128, 9.0, 9.6, 0.78, 1150, 1230, 9.0, 9.6, is_predicted=True, best_efficiency=0.85)
    assert ("keep", 64) == _what([*SIZES, faster], Aim(objective="time"))
    assert ("stop", 64) == _what([*SIZES, replace(faster, best_efficiency=0.79)], Aim(objective="time"))


def test_no_stop_on_an_interval_that_holds_the_floor(tmp_path: Path) -> None:
    """MegaScale at 3,072 devices: 2.4 times as fast, efficiency 0.71 but 0.88 at best, where 0.8 is asked for."""
    report = report_of(tmp_path, csv_of(MEGASCALE), 3072, aim=Aim(objective="time"))
    share = report.predictions[0].efficiency
    assert share.expected < 0.76
    assert share.high > 0.8
    assert "keep" == report.decision.decision
    assert "its interval reaches the floor: measure it" in report.decision.because


def test_deadline_uses_the_slow_end() -> None:
    """A prediction of 11 h that may take 13 does not meet 12 h."""
    candidate = Candidate(128, 11.0, 13.0, 0.57, 1408, 1664, 11.0, 13.0, is_predicted=True)
    assert "stop" == _what([*SIZES, candidate], Aim(deadline_h=12))[0]
    assert ("rescale", 128) == _what([*SIZES, candidate], Aim(deadline_h=13.5))


def test_far_outside_is_predicted_but_not_recommended(tmp_path: Path) -> None:
    """Twelve devices for a job measured from 384 on would be cheap, but nobody measured near it."""
    report = report_of(tmp_path, csv_of(PTD_P), 12, aim=Aim(objective="cost"))
    assert [12] == [one.target.devices for one in report.predictions]
    assert 384 == report.decision.devices


def test_run_length_is_needed_for_limits(tmp_path: Path) -> None:
    """Seconds a step don't say hours a run: one line that names the option."""
    with pytest.raises(TuiadvisorError, match="--remaining-steps"):
        report_of(tmp_path, csv_of(MEGASCALE), aim=Aim(deadline_h=12))


def test_costs_by_hand(tmp_path: Path) -> None:
    """23 days on 1536 devices at 2 an hour; 1000 steps of 8.9 s on 1024 devices; a rate per million samples."""
    total = report_of(tmp_path, csv_of(PTD_P), aim=Aim(price_per_device_hour=2.0))
    assert 1536 * 23 * 24 * 2 == pytest.approx(total.rows[2].cost)
    steps = report_of(tmp_path, csv_of(MEGASCALE), aim=Aim(remaining_steps=1000))
    assert 1024 * 8.9 * 1000 / 3600 == pytest.approx(steps.rows[3].cost)
    rate = report_of(tmp_path, "devices,throughput\n8,100\n16,190\n")
    assert 8 * 1e6 / 100 / 3600 == pytest.approx(rate.rows[0].cost)


def test_weak_scaling_costs_the_same_work(tmp_path: Path) -> None:
    """1000 steps at the largest batch are 4000 at a quarter of it: 8 devices x 4000 x 1 s."""
    table = "devices,step_s,global_batch\n8,1.0,64\n16,1.03,128\n32,1.08,256\n"
    report = report_of(tmp_path, table, aim=Aim(remaining_steps=1000))
    assert 8 * 4000 / 3600 == pytest.approx(report.rows[0].cost)
    assert 32 * 1000 * 1.08 / 3600 == pytest.approx(report.rows[2].cost)


def test_answers_beside_the_decision(tmp_path: Path) -> None:
    """Fastest within the budget and cheapest by the deadline are answered whatever the objective."""
    aim = Aim(objective="efficiency", price_per_device_hour=1.0, budget=900_000, deadline_h=50 * 24)
    report = report_of(tmp_path, csv_of(PTD_P), aim=aim)
    assert (1536, 768) == (report.fastest_within_budget, report.cheapest_by_deadline)


def _what(candidates: list[Candidate], aim: Aim) -> tuple[str, int | None]:
    decision = decide(candidates, aim, HOURS, "")
    return decision.decision, decision.devices


@st.composite
def markets(draw: st.DrawFn) -> tuple[list[tuple[int, float, float]], int, Aim]:
    """Sizes with any times, how many of them are measured, and any aim."""
    sizes = sorted(draw(st.lists(st.integers(1, 2000), min_size=2, max_size=6, unique=True)))
    rows = [(size, draw(st.floats(1, 1000)), draw(st.floats(1, 2))) for size in sizes]
    maybe = lambda values: st.one_of(st.none(), values)  # noqa: E731 - three words three times
    aim = Aim(
        objective=draw(st.sampled_from([None, "time", "efficiency", "cost"])),
        deadline_h=draw(maybe(st.floats(1, 1000))),
        budget=draw(maybe(st.floats(10, 1e6))),
        price_of_time=draw(maybe(st.floats(0.1, 1e5))),
    )
    return rows, draw(st.integers(2, len(rows))), aim


@pytest.mark.slow
@settings(max_examples=num_examples(400), deadline=None)
@given(markets(), st.floats(1.0, 50.0))
def test_dearer_devices_never_turn_keep_into_rescale_up(
    market: tuple[list[tuple[int, float, float]], int, Aim], dearer: float
) -> None:
    """Whatever was decided, a higher price per device-hour never sends anybody from staying to more devices."""
    rows, num_measured, aim = market
    before, after = (decide(_priced(rows, num_measured, price), aim, HOURS, "") for price in (1.0, dearer))
    current = rows[num_measured - 1][0]
    if before.decision != "rescale" or (before.devices or 0) <= current:
        assert after.decision != "rescale" or (after.devices or 0) <= current


def _priced(rows: list[tuple[int, float, float]], num_measured: int, price: float) -> list[Candidate]:
    first = rows[0][0] * rows[0][1]
    return [
        Candidate(
            devices,
            time,
            time * (1.0 if index < num_measured else doubt),
            first / (devices * time),
            devices * time * price,
            devices * time * price * (1.0 if index < num_measured else doubt),
            time,
            time * (1.0 if index < num_measured else doubt),
            is_predicted=index >= num_measured,
        )
        for index, (devices, time, doubt) in enumerate(rows)
    ]


@pytest.mark.parametrize(
    ("column", "counted"),
    [
        ("tokens_s", "token"),
        ("samples_per_second", "sample"),
        ("images_s", "image"),
        ("steps_s", "step"),
        ("throughput", "sample"),
    ],
)
def test_a_rate_is_of_what_its_column_counts(column: str, counted: str, tmp_path: Path) -> None:
    """A table of tokens a second was told 's per sample', 2,048 times too short for one."""
    table = read_table(write(tmp_path, f"devices,{column}\n8,80\n16,150\n32,280\n"))
    aim = Aim(objective="cost")
    reports = analyse(table, [], aim)
    head = scaling_text(table, reports, aim).splitlines()[0]
    assert f"time in ms per {counted}, cost in device-hours per million {counted}s" in head
    assert f" ms per {counted}" in reports[0].decision.because


V5P = """devices,total_min,global_batch
512,114.7939,2048
1024,56.9478,2048
1536,39.3355,3072
6144,12.2042,6144
"""  # MLPerf Training v4.0, Google gpt3


@pytest.mark.parametrize(
    ("aim", "decision", "said", "beside"),
    [
        (Aim(), "keep", "the fastest of the sizes that can be judged", (1536, 6144)),
        (Aim(objective="time"), "keep", "the fastest of the sizes that can be judged", (1536, 6144)),
        # They were measured to be dearer: nothing is better by cost.
        (Aim(objective="cost"), "keep", "the cheapest, of the sizes that can be judged", ()),
        (Aim(objective="efficiency"), "keep", "of the sizes that can be judged; more devices", (1536, 6144)),
        (Aim(deadline_h=1.0), "keep", "by the deadline of 1 h, of the sizes that can be judged", ()),
        (Aim(budget=1000.0), "keep", "within the budget of 1,000, of the sizes that can be judged", ()),
        (Aim(budget=1100.0), "keep", "within the budget of 1,100, of the sizes that can be judged", (1536,)),
        # It was measured to be done in time, so nobody is told that no size is.
        (Aim(deadline_h=0.5), "keep", "nothing is decided: of the sizes that can be judged no", (6144,)),
        (Aim(deadline_h=0.1), "stop", "the fastest that can be judged, 1,024 devices, needs", ()),
        (Aim(current=512, objective="time"), "rescale", "of the sizes that can be judged", (1536, 6144)),
        (Aim(current=6144), "keep", "nothing is decided: of the 6,144 devices in use it has global batch", ()),
    ],
)  # fmt: skip
def test_what_is_best_is_said_of_the_sizes_that_can_be_judged(
    tmp_path: Path, aim: Aim, decision: str, said: str, beside: tuple[int, ...]
) -> None:
    """MLPerf's Google series: "the fastest of the sizes compared", and rows of 39 and 12 minutes below it."""
    report = report_of(tmp_path, V5P, aim=aim)
    assert decision == report.decision.decision
    because = report.decision.because
    assert said in because
    assert beside == tuple(size for size in (1536, 6144) if f"{size:,} devices, measured" in because)
    assert "of the sizes compared" not in because


def test_without_rows_beside_them_the_sizes_are_compared(tmp_path: Path) -> None:
    table = "\n".join(V5P.splitlines()[:3])
    assert "the fastest of the sizes compared" in report_of(tmp_path, table).decision.because


@pytest.mark.parametrize(
    ("rows", "is_better"),
    [
        ("1,10,64\n2,5.2,64\n8,4,300", True),  # 4 s for nearly five times the samples
        ("1,10,64\n2,5.2,64\n8,30,300", False),  # 6.4 s for as many samples
        ("1,10,64\n2,5.2,64\n8,4,", False),  # of how many samples is not known
    ],
)
def test_a_step_of_another_batch_is_compared_by_its_samples(
    tmp_path: Path, rows: str, is_better: bool
) -> None:
    report = report_of(tmp_path, f"devices,step_s,global_batch\n{rows}\n", aim=Aim(objective="time"))
    assert ("8 devices, measured" in report.decision.because) == is_better
    assert "of the sizes that can be judged" in report.decision.because


def test_growing_is_not_stopped_before_a_size_that_was_measured_to_be_faster(tmp_path: Path) -> None:
    """Two devices are no faster than one, and eight of another layout were: whether to grow is not decided."""
    alone = "devices,step_s,global_batch,layout\n1,10,64,tp1\n2,10.4,64,tp1\n"
    aim = Aim(objective="time", current=1)
    assert report_of(tmp_path, alone, aim=aim).decision.decision == "stop"
    report = report_of(tmp_path, f"{alone}8,2,64,tp8\n", aim=aim)
    assert report.decision.decision == "keep"
    assert "nothing is decided" in report.decision.because
    assert report.decision.because.count("8 devices, measured 2 s") == 1


def test_a_prediction_that_may_be_cheaper_is_named_beside_the_cheapest() -> None:
    """Its row had 433 thousand beside "the cheapest" of 455: at worst it would have cost 482."""
    cheaper = replace(sure(4, 195), cautious_cost=860.0, cautious_time=215.0, is_predicted=True)
    decision = decide([*SIZES, cheaper], Aim(objective="cost"), HOURS, "")
    assert decision.devices == 8
    assert (
        "4 devices may cost less (780 as predicted), but at worst more (860): measure it" in decision.because
    )
    assert "may cost less" not in decide([*SIZES, sure(4, 195)], Aim(objective="cost"), HOURS, "").because


@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_costs_are_written_out(scale: float) -> None:
    """433 thousand stood there as 4.333e+05."""
    sizes = [
        replace(one, cost=one.cost * scale, cautious_cost=one.cautious_cost * scale)
        for one in (*SIZES, replace(sure(4, 195), cautious_cost=860.0, is_predicted=True))
    ]
    told = decide(sizes, Aim(objective="cost", budget=1e6), HOURS, "").because
    assert "e+" not in told
    assert ("780,000 as predicted" if scale > 1 else "780 as predicted") in told
    assert "within the budget of 1,000,000" in told
