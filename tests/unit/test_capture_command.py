"""What surrounds a capture: ranks as typed, what a rank says of its window, and captured steps in the statistics."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_run import MS, Fault, Job, folded, frames, simulate

from tuiadvisor.agent.capture import parse_state
from tuiadvisor.agent.payload import PRIVATE_NAME, extension_code
from tuiadvisor.cli.commands import run
from tuiadvisor.cli.options.rank_set import rank_set, said
from tuiadvisor.events import STEP_COLUMNS, StepFlag


def test_ranks_as_people_type_them() -> None:
    """Numbers, ranges and all; said again in the same short form."""
    assert frozenset({0, 3, 4, 5}) == rank_set("0,3-5")
    assert rank_set("all") is None
    assert ("rank 3", "ranks 0, 3-5") == (said(frozenset({3})), said(frozenset({5, 4, 3, 0})))


@pytest.mark.parametrize("text", ["", "x", "1,", "-1", "3-1", "1-", "0-99999999", "1.5", "²", "all,1"])
def test_what_names_no_rank_is_a_usage_error(text: str) -> None:
    """One line, before anything is touched."""
    with pytest.raises(argparse.ArgumentTypeError):
        rank_set(text)


@pytest.mark.parametrize(
    "raw", [b"", b"nonsense", b"[1]", b'{"state": 3, "cost_ns": [], "step_ns_before": 7}', b'{"why": {}}']
)
def test_a_strange_state_says_nothing(raw: bytes) -> None:
    """The file is written by a stranger's process: nothing of it is believed that has the wrong type."""
    told = parse_state(raw)
    assert ("", "", None, None, ()) == (
        told.state,
        told.why,
        told.first_step,
        told.cost.start_ns,
        told.cost.step_ns_before,
    )


def test_a_state_is_read_and_its_words_cannot_drive_a_terminal() -> None:
    """Numbers as they are, control characters replaced."""
    told = parse_state(
        b'{"state": "refused", "why": "a\\u001b[2Jb", "cost_ns": {"stop": 5}, "first_step": 9}'
    )
    assert ("refused", "a?[2Jb", 5, 9) == (told.state, told.why, told.cost.stop_ns, told.first_step)


def test_only_late_modules_can_be_added() -> None:
    """The code for another module is never made, and what is made is valid Python."""
    compile(extension_code("capture", "begin('/x', 1, (0, 1))", "/x"), "extension", "exec")
    assert PRIVATE_NAME in extension_code("capture", "begin()", "/x")
    with pytest.raises(ValueError, match="install"):
        extension_code("install", "x()", "/x")


def test_a_folder_with_something_in_it_is_not_used(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Traces of two captures in one folder would be analysed as one job."""
    monkeypatch.setattr("tuiadvisor.cli.capture.ranks_of", lambda _: [])
    (tmp_path / "rank0.json").write_text("{}")
    assert 2 == run(["capture", "all", "-o", str(tmp_path)])
    assert "not empty" in capfd.readouterr().err


def test_captured_steps_are_left_out_and_said_so() -> None:
    """A window makes its steps slow on all ranks: no verdict may rest on them."""
    job = Job(num_steps=200, faults=(Fault("forward", (1,), 60 * MS, onset=100, until=104),))
    simulated = simulate(job)
    flags = 1 + STEP_COLUMNS.index("flags")  # the rank stands in front
    rows = [
        (*row[:flags], row[flags] | StepFlag.CAPTURE, *row[flags + 1 :]) if 100 <= row[1] < 104 else row
        for row in simulated.rows[1]
    ]
    view = folded(frames(job, simulated=replace(simulated, rows={**simulated.rows, 1: rows}))).view()
    plain = folded(frames(job)).view()
    assert 4 == view.window.excluded["capture"]
    assert "capture" not in plain.window.excluded
    assert not [finding.id for finding in view.findings if finding.severity != "info"]
