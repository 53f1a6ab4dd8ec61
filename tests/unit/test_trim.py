"""Some steps of a recording: the same diagnosis as of these steps in the whole, losses kept, nothing overwritten."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_run import MS, STEP_NAMES, Fault, Job, elastic, encoded, frames, simulate

from tuiadvisor.advisor.fold import Advisor, diagnose
from tuiadvisor.cli import main
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.events import EVENT_COLUMNS
from tuiadvisor.exporters.rewrite import write_recording
from tuiadvisor.exporters.survey import is_steps
from tuiadvisor.exporters.trim import Trimmed, trim
from tuiadvisor.stream.frames import Frame, FrameKind, decode, encode, pack_columns, unpack_columns
from tuiadvisor.stream.recording import RecordingReader

RUN = encode(FrameKind.RUN, "hub", 0, 0, {"schema": 1})
JOB = Job(num_ranks=4, num_steps=300, ranks_per_host=2, attach=(0, 3, 5, 11)).with_faults(
    Fault("backward", (2,), 8 * MS)
)
EVENT_NAMES = ("rank", "kind", *EVENT_COLUMNS)


def trimmed(parts: list[bytes], first: int, last: int) -> list[bytes]:
    return list(trim(lambda _what: iter(parts), (first, last), Trimmed()))


def job_steps(parts: list[bytes]) -> tuple[int, int | None, int]:
    """First and last job step and the number of rank-steps."""
    advisor, rows = Advisor(), 0
    for data in parts:
        advisor.feed(data)
        frame = decode(data)
        rows += frame.payload["rows"] if frame.kind == FrameKind.STEPS else 0
    span = advisor.store.span()
    assert span is not None
    return span[0] - advisor.store.axis_shift(), advisor.view().last_step, rows


def test_exactly_these_steps_of_every_rank() -> None:
    """Ranks attached at different moments are cut at the same step of the job, whatever they count themselves."""
    parts = [RUN, *map(encoded, frames(JOB))]
    assert (100, 180, 4 * 81) == job_steps(trimmed(parts, 100, 180))


def test_the_diagnosis_is_that_of_the_steps() -> None:
    """Step statistics and findings equal `--steps` on the whole recording (from the second kept step on)."""
    parts = [RUN, *map(encoded, frames(JOB))]
    part, whole = diagnose(trimmed(parts, 100, 250)), diagnose(parts, (101, 250))
    assert whole.step == part.step
    assert (101, 250) == (part.window.first_step, part.window.last_step)
    assert [finding.id for finding in whole.findings] == [finding.id for finding in part.findings]
    assert [(2, "backward")] == [(entry.rank, entry.cause) for entry in part.stragglers]


def test_everything_is_everything() -> None:
    """The whole range gives back every frame, byte for byte."""
    parts = [RUN, *map(encoded, frames(JOB))]
    assert parts == trimmed(parts, 0, 1 << 62)


def test_frames_lost_in_the_range_stay_lost_and_none_are_made_up() -> None:
    """One frame lost inside counts as one; the frames left out here do not count."""
    parts = [RUN, *map(encoded, frames(replace(JOB, ranks_per_host=64, attach=()), rows_per_frame=20))]
    lost = [data for data in parts if decode(data).seq != 9 or decode(data).kind != FrameKind.STEPS]
    assert len(parts) - 1 == len(lost)
    assert 0 == diagnose(trimmed(parts, 100, 250)).losses.frames_lost
    assert 1 == diagnose(trimmed(lost, 100, 250)).losses.frames_lost


def test_events_and_host_samples_follow_their_steps() -> None:
    """Events of left-out steps go, samples outside the range go, those inside stay."""
    steps = frames(replace(JOB, num_ranks=2, attach=(), faults=()), rows_per_frame=50)
    parts = [RUN]
    for frame in steps:
        if frame.kind == FrameKind.STEPS:
            step = unpack_columns(frame.payload, ("step",))["step"].tolist()
            rows = [(0, 1, one, 5, 9, 0, one, 1024, 0) for one in sorted(set(step))]
            events = Frame(
                FrameKind.EVENTS, frame.source, frame.seq * 10, frame.time_ns, pack_columns(rows, EVENT_NAMES)
            )
            sample = Frame(
                FrameKind.HOST,
                frame.source,
                frame.seq * 10 + 1,
                frame.time_ns,
                {"host": "node0", "load_1m": 1},
            )
            parts += [encoded(events), encoded(frame), encoded(sample)]
        else:
            parts.append(encoded(frame))
    kept = [decode(data) for data in trimmed(parts, 60, 140)]
    found = [
        unpack_columns(frame.payload, ("step",))["step"].tolist()
        for frame in kept
        if frame.kind == FrameKind.EVENTS
    ]
    assert list(range(60, 141)) == [one for some in found for one in some]
    assert 1 == sum(frame.kind == FrameKind.HOST for frame in kept)


def test_a_probe_installed_anew_is_cut_by_the_jobs_steps() -> None:
    """Rank 1 counts from 0 again after its probe was installed anew at step 100: the cut follows the job's steps."""
    job = replace(JOB, num_ranks=2, num_steps=200, ranks_per_host=64, attach=(), faults=())
    run = simulate(job)
    anew = [row if row[1] < 100 else (row[0], row[1] - 100, *row[2:]) for row in run.rows[1]]
    parts = [RUN, encoded(frames(job)[0])]
    for seq, start in enumerate(range(0, 200, 20), 1):
        rows = [*run.rows[0][start : start + 20], *anew[start : start + 20]]
        parts.append(encode(FrameKind.STEPS, "node0/1/1", seq, rows[-1][3], pack_columns(rows, STEP_NAMES)))
    for first, last in ((10, 30), (150, 170), (90, 109)):
        begins = [
            begin
            for data in trimmed(parts, first, last)
            if decode(data).kind == FrameKind.STEPS
            for begin in unpack_columns(decode(data).payload, ("begin_ns",))["begin_ns"].tolist()
        ]
        assert sorted(row[2] for rank in (0, 1) for row in run.rows[rank][first : last + 1]) == sorted(begins)


def test_nothing_there_is_one_line() -> None:
    """Steps beyond the end, and a recording without steps."""
    parts = [RUN, *map(encoded, frames(JOB))]
    with pytest.raises(
        TuiadvisorError, match=r"--steps 900:: nothing there; the recording holds steps 0:299"
    ):
        trimmed(parts, 900, 1 << 62)
    with pytest.raises(TuiadvisorError, match="no aligned step"):
        trimmed([RUN], 0, 10)


def test_the_command_never_overwrites_and_leaves_no_half(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Owner-only output; an existing file, a link and a failed write are refused in one line."""
    source, target = tmp_path / "run.tuirec", tmp_path / "part.tuirec"
    write_recording(str(source), iter([RUN, *map(encoded, frames(JOB))]))
    assert 0 == main(["trim", str(source), "--steps", "50:90", "-o", str(target)])
    assert 0o600 == target.stat().st_mode & 0o777
    assert "164 rank-steps" in capfd.readouterr().out
    before = target.read_bytes()
    assert 2 == main(["trim", str(source), "--steps", "50:90", "-o", str(target)])
    assert "exists already" in capfd.readouterr().err
    assert before == target.read_bytes()
    other = tmp_path / "other.tuirec"
    assert 2 == main(["trim", str(source), "--steps", "5000:", "-o", str(other)])
    assert not other.exists()
    with RecordingReader(target) as reader:
        assert FrameKind.RUN == next(reader.frames()).head.kind


def test_an_interrupted_write_leaves_nothing(tmp_path: Path) -> None:
    """Whatever stops the frames, no half of a recording stays behind."""

    def broken() -> object:
        yield RUN
        yield RUN
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_recording(str(tmp_path / "x.tuirec"), broken())  # type: ignore[arg-type]
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("cut", ["all ranks a frame", "one rank a frame", "both in one frame"])
def test_steps_after_an_elastic_restart_are_found_where_the_view_counts_them(cut: str) -> None:
    """All ranks' probes were installed anew after 100 steps: 150 to 160 are ten steps of the second incarnation."""
    parts = [RUN, *map(encoded, elastic(Job(num_steps=100), cut))]
    for first, last in ((40, 60), (95, 110), (150, 160)):
        kept = sum(
            decode(data).payload["rows"] for data in trimmed(parts, first, last) if is_steps(decode(data))
        )
        assert 4 * (last - first + 1) == kept
