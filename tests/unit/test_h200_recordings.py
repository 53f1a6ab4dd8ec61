"""What is said of real trainings on a real GPU, whose faults are known (tests/recordings/h200)."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest
from thinned import ALL_EXAMPLES

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.agent.flight_recorder import cut
from tuiadvisor.app.event_log import EventLog
from tuiadvisor.app.whole_recording import frames_of, whole_view
from tuiadvisor.cli.__main__ import main
from tuiadvisor.importers.plain_pickle import plain
from tuiadvisor.stream.frames import FrameKind, decode
from tuiadvisor.views.event import NO_STEP
from tuiadvisor.views.lost_by import by_layer
from tuiadvisor.views.run_view import RunView

FOLDER: Final = Path(__file__).parents[1] / "recordings" / "h200"
STEP_S: Final = 0.0287  # of the healthy runs


@dataclass(frozen=True)
class Known:
    """Who is to be named, by which words, and what it costs a step: the step beyond a healthy one's."""

    name: str
    words: str = ""
    gain_s: float = 0.0
    ranks: tuple[int, ...] = (1,)


HEALTHY = (
    "healthy-synced",
    "healthy-ahead",
    "native-core",
    "host-hidden",
    "look-every-10",
    "compiled-look-every-10",
)
FAULTS = (
    Known("device-ahead", "so on its device", 0.0114),
    Known("device-synced", "so on its device", 0.0108),
    Known("data-ahead", "waiting for its next batch", 0.0200),
    Known("data-synced", "waiting for its next batch", 0.0150),
    Known("copy-ahead", "copying to the device", 0.0652),
    Known("copy-synced", "copying to the device", 0.0215),
    Known("host-bound", "so on its host", 0.0290),
    Known("data-of-all-ahead", "every rank waits for data", 0.0293, ranks=()),
)


def path_of(name: str) -> str:
    """Of a recording."""
    return str(FOLDER / f"{name}.tuirec")


def named_on_the_way(name: str) -> set[int]:
    """Whom a finding above a remark has named in any picture while the recording went on."""
    advisor, named = Advisor(), set()
    for number, frame in enumerate(frames_of(path_of(name))):
        advisor.feed_many([frame])
        if number % (6 if ALL_EXAMPLES else 18) == 0:
            named |= {
                rank for found in advisor.view().findings if found.severity != "info" for rank in found.ranks
            }
    return named


def gain_s(view: RunView) -> float:
    """What the verdict promises, of a step."""
    assert view.verdict.speedup is not None
    assert view.step.mean_s is not None
    return view.step.mean_s * (1 - 1 / view.verdict.speedup.expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_run_is_kept_and_nobody_ever_named(name: str) -> None:
    """With the host ahead or not, compiled or not, and with a slow host that the device hides."""
    view = whole_view(path_of(name))
    assert "device" == view.clock
    assert "keep" == view.verdict.decision
    assert view.step.mean_s == pytest.approx(STEP_S, rel=0.05)
    assert () == view.past
    assert set() == named_on_the_way(name)


@pytest.mark.slow
@pytest.mark.parametrize("known", FAULTS, ids=lambda known: known.name)
def test_a_fault_is_named_with_its_cause_and_its_cost(known: Known) -> None:
    """Within a sixth of what the step is longer than a healthy one; the other rank is never named."""
    view = whole_view(path_of(known.name))
    assert "device" == view.clock
    assert "tune" == view.verdict.decision
    assert known.words in view.verdict.sentence
    (worst,) = [found for found in view.findings if found.severity == "critical"]
    assert known.ranks == worst.ranks or not known.ranks
    assert gain_s(view) == pytest.approx(known.gain_s, rel=1 / 6)
    assert () == view.past, "what stands at the end is not over"
    assert named_on_the_way(known.name) == {1} or not known.ranks


@pytest.mark.slow
def test_a_slow_stage_of_a_pipeline_is_named_by_what_its_device_takes() -> None:
    """Half of the multiprocessors more for the first stage: the second takes half as long again."""
    view = whole_view(path_of("pipeline-stage"))
    assert "tune" == view.verdict.decision
    assert "stage 1 on rank 1 takes 47 % longer than the others" in view.verdict.sentence
    assert named_on_the_way("pipeline-stage") == {1}
    assert view.pipeline is not None
    slow, fast = view.pipeline.stages[1], view.pipeline.stages[0]
    assert slow.forward_s + slow.backward_s == pytest.approx(
        1.5 * (fast.forward_s + fast.backward_s), rel=0.04
    )


def test_when_collectives_were_launched_names_nobody() -> None:
    """Sends and receives of NCCL: their threads call and run on; what they move was seen, nothing else of them was."""
    rows = whole_view(path_of("pipeline-stage")).collectives
    assert {"send", "recv"} <= {row.op for row in rows}
    assert {(None, None, None, None, None)} == {
        (row.time_s, row.hidden_s, row.skew_s, row.transfer_s, row.last_rank) for row in rows
    }
    assert {4 << 20} == {row.num_bytes for row in rows if row.op in {"send", "recv"}}


def test_who_waits_for_batches_of_its_own_thread_is_told_to_use_workers() -> None:
    """Its loader has none whose transforms could be looked at."""
    (worst,) = [
        found for found in whole_view(path_of("data-synced")).findings if found.severity == "critical"
    ]
    assert worst.actions[0].text.startswith("Give the DataLoader worker processes")
    assert not [action for action in worst.actions if "stacks" in (action.command or "")]


@pytest.mark.slow
def test_who_copies_from_pageable_memory_is_not_cured_by_the_scheduler() -> None:
    """The layer of a rank's lateness is that of what cures it: as of a copy that all ranks make."""
    for name in ("copy-ahead", "copy-synced"):
        view = whole_view(path_of(name))
        (late,) = [found for found in view.findings if found.id == "straggler"]
        assert (late.phase, late.layer) == ("h2d", "runtime")
        assert {row.name for row in by_layer(view) if "straggler" in row.kinds} == {"runtime"}


@pytest.mark.slow
def test_what_watching_takes_is_told_of_all_steps() -> None:
    """The measured ones take 500 us of the thread, the others 80 to 250: together less than 1.1 % of 29 ms."""
    for name in HEALTHY:
        work = whole_view(path_of(name)).probe
        assert work is not None
        assert work.cost is not None
        assert work.cost < 0.011, name
        assert work.is_hidden == (name in {"healthy-ahead", "native-core", "host-hidden"}), name


def stalls_told(asked_after_s: float, entered_earlier_s: float = 0.0) -> list[tuple[float, str | None]]:
    """Of the hang: (seconds that the ranks stood, the alert) at each status, had an agent asked so long after it began.

    What the flight recorders held is in their dumps (tests/recordings/nccl_trace): rank 0 had called four all-reduces
    of a step that rank 1 has not entered. Nobody had asked, for both stood in code without a hook: rank 0 in `.item()`.
    entered_earlier_s: all calls were made so much earlier than they were.
    """
    advisor, told, is_asked = Advisor(), [], False
    for data in frames_of(path_of("hang")):
        frame = decode(data)
        if frame.kind != FrameKind.STATUS:
            advisor.feed_frame(frame)
            continue
        payload: Any = frame.payload
        since = {one["rank"]: one["phase_since_ns"] for one in payload["ranks"] if one.get("phase_since_ns")}
        stood_s = (payload["mono_ns"] - max(since.values(), default=payload["mono_ns"])) / 1e9
        if len(since) == 2 and stood_s >= asked_after_s and not is_asked:
            is_asked = True
            answers = [answer(advisor, rank, since[rank], payload, entered_earlier_s) for rank in (0, 1)]
            frame = replace(frame, payload={**payload, "recorders": answers})
        advisor.feed_frame(frame)
        found = advisor.view().stall
        if len(since) == 2:
            told.append((stood_s, None if found is None else found.words))
    return told


def answer(
    advisor: Advisor, rank: int, since_ns: int, status: dict[str, Any], entered_earlier_s: float
) -> dict[str, Any]:
    """An entry of `recorders`, as an agent cuts it from what the rank's flight recorder holds."""
    held = plain((FOLDER.parent / "nccl_trace" / f"nccl_trace_rank_{rank}").read_bytes())
    calls = [
        {**entry, "time_created_ns": entry["time_created_ns"] - round(entered_earlier_s * 1e9)}
        for entry in held["entries"]
    ]
    group = {
        "name": "0",
        "purpose": "default_pg",
        "backend": "nccl",
        "spans": [[0, 1, 2]],
        "seq": calls[-1]["op_id"],
    }
    return {
        "rank": rank,
        "pid": advisor.roster.ranks[rank].pid,
        "still_since_ns": since_ns,
        "asked_ns": status["mono_ns"],
        "wall_ns": status["wall_ns"],
        "why": "",
        "groups": [group],
        "recorders": [{"name": "nccl", **cut(json.dumps({"entries": calls}).encode())}],
    }


@pytest.mark.slow
def test_a_hang_is_told_as_soon_as_the_recorders_tell_of_it() -> None:
    """Both ranks stand in code without a hook: after five seconds, not after the minute that is left to a report."""
    told = stalls_told(asked_after_s=5.0)
    words = next(words for _, words in told if words is not None)
    who = "rank 0 waits for rank 1, which has not entered all_reduce (collective 1087 of group default_pg)"
    assert who == words
    assert all((seconds >= 5.0) == (found is not None) for seconds, found in told)


@pytest.mark.slow
def test_a_collective_from_long_before_the_stall_makes_no_hang_of_a_report() -> None:
    """A save in the background waits for a rank that still writes: the job made steps with that call under way."""
    assert {None} == {words for _, words in stalls_told(asked_after_s=5.0, entered_earlier_s=20.0)}


@pytest.mark.slow
def test_without_recorders_nobody_is_said_to_wait() -> None:
    """For a minute: the loop may be over, or a report be under way."""
    told = stalls_told(asked_after_s=1e9)
    assert 10 < max(seconds for seconds, _ in told) < 60
    assert {None} == {words for _, words in told}
    view = whole_view(path_of("hang"))
    assert view.wall is not None
    (standing,) = [part.seconds for part in view.wall.waterfall if part.kind == "not_judged"]
    assert standing == pytest.approx(14, abs=1), "what it did since its last step was not seen"
    sentence = view.verdict.sentence
    assert sentence.startswith(
        "No step for 12 s: all ranks are in code without a hook, where a thread also waits"
    )
    assert "; whether the job hangs is not decided. Of the steps until then: Tune" in sentence
    assert (None, None) == (view.verdict.decision, view.verdict.speedup)


def test_a_difference_that_runs_of_one_code_may_have_is_not_called_noise(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """+0.2 to +1.3 %: the steps tell them apart, and yet it is no change of the code's."""
    main(["compare", path_of("healthy-ahead"), path_of("hang")])
    said = " ".join(capsys.readouterr().out.split())
    assert "No change: a step takes 29 ms instead of 28.8 ms" in said
    assert "no more than two runs of the same code may differ by" in said
    assert "within noise" not in said


def test_a_job_whose_ranks_stand_outside_of_every_hook_is_not_kept() -> None:
    """Nothing was wrong with its steps; whether it hangs now, or writes its report, nobody has seen."""
    advisor, newest = Advisor(), None
    for data in frames_of(path_of("healthy-ahead")):
        frame = decode(data)
        advisor.feed_frame(frame)
        live = frame.kind == FrameKind.STATUS and all(
            one["state"] == "live" for one in frame.payload["ranks"]
        )
        newest = frame if live else newest
    before = advisor.view()
    assert newest is not None
    assert before.verdict.decision == "keep"
    assert "healthy" in {each.id for each in before.findings}
    payload: Any = newest.payload
    since_ns = payload["mono_ns"]
    ranks = [{**one, "phase": "other", "phase_since_ns": since_ns} for one in payload["ranks"]]
    payload = {**payload, "mono_ns": since_ns + 13_000_000_000, "ranks": ranks}
    advisor.feed_frame(replace(newest, seq=newest.seq + 1_000, payload=payload))
    view = advisor.view()
    assert view.verdict.sentence.startswith("No step for 13 s: ")
    assert view.verdict.decision is None
    assert "healthy" not in {each.id for each in view.findings}


@pytest.mark.slow
def test_a_hang_that_nobody_has_looked_into_stands_in_the_list_of_events() -> None:
    """The verdict told of it, the list and the ribbon did not."""
    log, advisor = EventLog(), Advisor()
    for data in frames_of(path_of("hang")):
        frame = decode(data)
        advisor.feed_frame(frame)
        if frame.kind == FrameKind.STATUS:
            log.take(advisor.view())
    view = advisor.view()
    assert (True, 89) == (view.no_step is not None and not view.no_step.is_at_work, view.last_step)
    (event,) = [each for each in log.events if each.kind == NO_STEP]
    assert (87, ()) == (event.step, event.ranks), "the newest step that was told of by then"
    assert event.words.startswith("all ranks are in code without a hook")


@pytest.mark.parametrize("name", ["host-bound", "device-ahead", "healthy-synced", "hang"])
def test_the_trend_by_the_devices_clocks_begins_with_the_run(name: str) -> None:
    """No step was measured before the 30th: nothing is drawn there, and the ribbon does not leave it out."""
    advisor = Advisor()
    advisor.feed_many(frames_of(path_of(name)))
    trend, whole = advisor.view().trend, advisor.trend_of_run()
    assert "device" == advisor.view().clock
    assert whole.first_step == trend.first_step
    buckets = [place for place, step_s in enumerate(trend.step_s) if step_s is not None]
    first_s = advisor.view().window.first_step
    assert first_s is not None
    assert (first_s - trend.first_step) // trend.steps_per_bucket >= buckets[0]
    assert buckets[0] > 0 or trend.steps_per_bucket > 30
