"""Goodput of a job over restarts: steps done again, gaps between recordings, and what cannot be of one job."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from synthetic_run import Job, encoded, folded, frames
from test_goodput_waterfall import WALL_NS, assert_sums, born, seconds, wall

from tuiadvisor.advisor.judge.job import OTHER_COMMANDS, job_view
from tuiadvisor.advisor.judge.waterfall import steps_again
from tuiadvisor.cli import main
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.stream.frames import Frame, FrameKind
from tuiadvisor.stream.recording import RecordingWriter
from tuiadvisor.views.goodput import USEFUL
from tuiadvisor.views.run_view import RunView

STEPS = 200
HOUR_S = 3600.0


def run(at_s: float, before: int | None, *, age_s: float = 5.0, seed: int = 0, **fields: Any) -> list[Frame]:
    """A recorded run of 200 steps that begins so many seconds later; before: steps its optimizer had done."""
    result = []
    for frame in born(frames(Job(num_steps=STEPS, seed=seed)), age_s, young=True):
        payload: dict[str, Any] = dict(frame.payload)
        if frame.kind == FrameKind.HELLO:
            payload["wall_ns"] = WALL_NS + round(at_s * 1e9)
            payload["ranks"] = [
                {
                    **entry,
                    **fields,
                    "start_wall_ns": entry["start_wall_ns"] + round(at_s * 1e9),
                    **({"model": {"steps_before": before, "params": 1000}} if before is not None else {}),
                }
                for entry in payload["ranks"]
            ]
        result.append(replace(frame, payload=payload))
    return result


def view(*arguments: Any, **options: Any) -> RunView:
    return folded(run(*arguments, **options)).view()


def test_other_command_lines_are_said() -> None:
    """A restart may say where it goes on, and so may another job of the script: whoever reads it has to know."""
    first, second = view(0.0, 0), view(HOUR_S, 200, seed=1)
    told = [
        replace(one, run=replace(one.run, command=command))
        for one, command in ((first, "train.py --lr 1"), (second, "train.py --lr 2"))
    ]
    assert (OTHER_COMMANDS,) == job_view([("a", told[0]), ("b", told[1])]).notes
    assert () == job_view([("a", told[0]), ("b", replace(second, run=told[0].run))]).notes


def test_steps_after_the_checkpoint_are_done_again() -> None:
    """The first run came to step 199, the second began at 150: 50 steps were lost, and the hour between."""
    first, second = view(0.0, 0), view(HOUR_S, 150, seed=1)
    job = job_view([("b", second), ("a", first)])
    assert ["a", "b"] == [one.name for one in job.recordings]
    assert [50, 0] == [one.steps_again for one in job.recordings]
    assert job.goodput.steps_done_again == 50
    assert job.notes == ()
    useful_s = seconds(wall(first), USEFUL)
    assert seconds(job.goodput, "done_again") == pytest.approx(useful_s / 4)
    assert seconds(job.goodput, USEFUL) == pytest.approx(0.75 * useful_s + seconds(wall(second), USEFUL))
    gap_s = HOUR_S - wall(first).span_s  # from the first one's last step to the second one's process
    assert seconds(job.goodput, "gap") == pytest.approx(gap_s, abs=0.01)
    assert job.recordings[1].gap_s == pytest.approx(gap_s, abs=0.01)
    assert_sums(job.goodput, HOUR_S + wall(second).span_s)
    assert job.goodput.end_to_end is not None
    assert job.goodput.end_to_end < 0.01


def test_of_three_runs_each_step_is_useful_once() -> None:
    """The third began before the second: all of the second one's steps were done again."""
    runs = [view(0.0, 0), view(HOUR_S, 150, seed=1), view(2 * HOUR_S, 100, seed=2)]
    job = job_view([(str(at), one) for at, one in enumerate(runs)])
    assert [100, 200, 0] == [one.steps_again for one in job.recordings]
    assert steps_again([(0, 9), (10, 19)]) == [0, 0]
    assert steps_again([(0, 9), None]) is None


@pytest.mark.parametrize("before", [None, 0], ids=["no count", "count anew"])
def test_without_a_count_that_goes_on_nothing_is_called_done_again(before: int | None) -> None:
    """An optimizer that was not restored counts from 0 although the training goes on."""
    job = job_view([("a", view(0.0, 0)), ("b", view(HOUR_S, before))])
    assert job.goodput.steps_done_again is None
    assert seconds(job.goodput, "done_again") == 0
    assert seconds(job.goodput, "gap") == 0
    assert seconds(job.goodput, "between") > 0  # unknown: neither useful nor lost
    assert job.notes
    assert_sums(job.goodput, HOUR_S + wall(view(HOUR_S, before)).span_s)


def test_steps_that_nobody_recorded_leave_the_time_between_unknown() -> None:
    job = job_view([("a", view(0.0, 0)), ("b", view(HOUR_S, 5000))])
    assert job.goodput.steps_done_again == 0
    assert seconds(job.goodput, "between") > 0
    assert seconds(job.goodput, "gap") == 0


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (run(HOUR_S, 150, label="eval.py"), "the script is train.py in one and eval.py in the other"),
        (run(0.5, 150), "of the same time"),
        (run(HOUR_S, 150)[:1], "no step was seen"),
        (run(HOUR_S, 150, model={"params": 7}), "the model's params is 1000 in one and 7 in the other"),
    ],
    ids=["script", "time", "no step", "model"],
)
def test_recordings_of_different_jobs_are_refused(other: list[Frame], why: str) -> None:
    frames_of_other = other
    if why.startswith("the model"):
        frames_of_other = [
            replace(
                one,
                payload={**one.payload, "ranks": [{**entry, "model": {"params": 7}} for entry in entries]},
            )
            if isinstance(entries := one.payload.get("ranks"), list)
            else one
            for one in other
        ]
    with pytest.raises(TuiadvisorError, match=why) as caught:
        job_view([("a", view(0.0, 0)), ("b", folded(frames_of_other).view())])
    assert "\n" not in str(caught.value)


def test_an_elastic_restart_within_a_recording_has_its_steps_done_again() -> None:
    """Two processes of one rank in one recording, each with its own count."""
    first, second = run(0.0, 0), run(0.0, 120, seed=3)
    shift_ns = 40 * 10**9
    head = next(frame for frame in second if frame.kind == FrameKind.HELLO)
    entries: Any = next(frame for frame in reversed(second) if frame.kind == FrameKind.HELLO).payload["ranks"]
    greeting = {
        **head.payload,
        "ranks": [{**one, "start_wall_ns": one["start_wall_ns"] + shift_ns} for one in entries],
    }
    from test_goodput_waterfall import STEP_NAMES, pack_columns

    from tuiadvisor.stream.frames import unpack_columns

    later = [replace(head, payload=greeting, seq=1000)]
    for number, frame in enumerate(one for one in second if one.kind == FrameKind.STEPS):
        columns = unpack_columns(frame.payload, STEP_NAMES)
        for name in ("begin_ns", "end_ns", "arrive_ns", "release_ns"):
            columns[name] = columns[name] + shift_ns
        rows = list(zip(*(columns[name].tolist() for name in STEP_NAMES), strict=True))
        later.append(replace(frame, payload=pack_columns(rows, STEP_NAMES), seq=1001 + number))
    found = wall(folded([*first, *later]).view())
    assert found.num_restarts == 1
    assert found.steps_done_again == 80
    assert seconds(found, "done_again") == pytest.approx(80 / 400 * (seconds(found, USEFUL) / (1 - 80 / 400)))


def recording(path: Path, sequence: list[Frame]) -> str:
    writer = RecordingWriter(path, encoded(sequence[0]))
    for frame in sequence[1:]:
        writer.append(encoded(frame))
    writer.close()
    return str(path)


def test_the_command_line_takes_several(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    one = recording(tmp_path / "a.tuirec", run(0.0, 0))
    two = recording(tmp_path / "b.tuirec", run(HOUR_S, 150, seed=1))
    assert main(["diagnose", two, one, "--json"]) == 0
    told = json.loads(capfdbinary.readouterr().out)
    assert told["job"]["goodput"]["steps_done_again"] == 50
    assert [one, two] == [entry["file"] for entry in told["recordings"]]
    assert main(["diagnose", two, one]) == 0
    text = capfdbinary.readouterr().out.decode()
    assert "2 recordings of one job" in text
    assert "steps done again" in text
    assert max(len(row) for row in text.splitlines() if row.startswith("── ")) <= 120
    assert all(entry["verdict"]["sentence"] in text for entry in told["recordings"])
    for wrong, why in (([one, one], "given twice"), ([one, two, "--steps", "1:9"], "one recording alone")):
        assert main(["diagnose", *wrong]) == 2
        assert why in capfdbinary.readouterr().err.decode()
