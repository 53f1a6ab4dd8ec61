"""What waits for what in a step of pipeline and data parallelism, by hand; and tables that contradict themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from test_import_ops import SCATTER_END, STEP_S, Row, analysed, pipeline, row, written

from tuiadvisor.errors import TuiadvisorError

if TYPE_CHECKING:
    from pathlib import Path


def overlapped() -> list[Row]:
    """The pipeline by hand whose gradients leave while it computes: what is left is reduced by itself at the end."""
    rows = pipeline()
    for step in range(3):
        rows += [
            row(dp, stage, step, "separate-grads-all-reduce", SCATTER_END[stage], SCATTER_END[stage], 0)
            for dp in (0, 1)
            for stage in (0, 1)
        ]
    return rows


def test_gradients_that_leave_meanwhile_wait_for_their_backward_and_are_waited_for(tmp_path: Path) -> None:
    """Else the last scatter of stage 0, a second behind its last backward, would cost the step nothing."""
    found = analysed(written(tmp_path / "ops.csv", overlapped()))
    assert STEP_S == pytest.approx(found.simulated_s)
    assert STEP_S == pytest.approx(found.measured_s)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (
            [
                each
                for each in pipeline()
                if not (each["stage"] == 1 and each["optype"] == "backward-compute")
            ],
            "stage 1 has no forward-compute or backward-compute: record both on every stage",
        ),
        (
            [each for each in pipeline() if not (each["stage"] == 1 and each["optype"] == "forward-recv")],
            "stage 0 has 2 forward-send but stage 1 0 receives: record both ends of whole steps",
        ),
        (
            pipeline()
            + [
                row(dp, 1, step, "forward-recv", 0.5 + extra, 0.5 + extra, 2 + extra)
                for step in range(3)
                for dp in (0, 1)
                for extra in (0, 1)
            ],
            "stage 1 has 4 forward-recv for 2 computations: record every transfer of whole steps",
        ),
    ],
    ids=["no backward", "one end", "too many"],
)
def test_a_table_whose_operations_do_not_belong_together_is_one_line(
    tmp_path: Path, rows: list[Row], says: str
) -> None:
    """With what to record."""
    with pytest.raises(TuiadvisorError, match=says):
        analysed(written(tmp_path / "ops.csv", rows))


def test_operations_that_wait_for_each_other_are_one_line(tmp_path: Path) -> None:
    """Stage 0 is said to do its second forward after its first backward, which stage 1 does after that forward."""
    rows = pipeline()
    for each in rows:
        if (each["stage"], each["seq_id"]) == (0, 1) and str(each["optype"]).startswith("forward"):
            each["start_s"] = 12.0
    with pytest.raises(TuiadvisorError, match=r"wait for each other in a circle at .* of stage [01]"):
        analysed(written(tmp_path / "ops.csv", rows))
