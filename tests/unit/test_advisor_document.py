"""`diagnose --json`, schema 1: the keys scripts rely on."""

from __future__ import annotations

import orjson
import pytest
from synthetic_run import MS, Fault, Job, final_view

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.phases import PHASES
from tuiadvisor.report.document import document

KEYS = {
    "run": {"world_size", "hosts", "torch", "backend", "parallel"},
    "window": {"first_step", "last_step", "steps", "excluded"},
    "step": {"median_s", "p95_s", "throughput_steps_s", "shares"},
    "overlap": {"comm_total_s", "comm_exposed_s", "overlap"},
    "stragglers": {"slowdown", "ranks"},
    "what_if": {"S", "S_t", "S_w", "M_W", "M_S"},
    "goodput": {
        *("value", "losses", "end_to_end", "steady", "waterfall", "span_s", "unknown_s", "from_start"),
        *("startup_s", "restarts", "steps_done_again"),
    },
    "verdict": {"decision", "finding", "pattern", "speedup", "next_constraint", "because", "verify"},
    "losses": {"events_dropped", "frames_lost", "hooks_disabled"},
}
FINDING = {
    "id", "pattern", "lens", "layer", "severity", "ranks", "hosts", "phase", "since_step", "evidence",
    "loss_s_per_step", "measure_next", "actions",
}  # fmt: skip
RANK = {
    "rank",
    "host",
    "step_s",
    "shares",
    "idle",
    "compute",
    "overlap",
    "comm_exposed_s",
    "wait_s",
    "caused_wait_s",
    "behind_s",
}


@pytest.fixture(name="faulty", scope="module")
def _faulty() -> dict[str, object]:
    """The document of a run with a late rank, as a script reads it."""
    view = final_view(Job(faults=(Fault("data", (2,), 6 * MS, onset=60),)))
    document_: dict[str, object] = orjson.loads(orjson.dumps(document(view)))
    return document_


def test_every_key_of_the_schema_is_there(faulty: dict[str, dict[str, object]]) -> None:
    """Keys may be added; none of these may go."""
    assert 1 == faulty["schema"]
    for name, keys in KEYS.items():
        assert keys <= set(faulty[name]), name
    assert set(PHASES) == set(faulty["step"]["shares"])  # type: ignore[call-overload]
    assert {"expected", "low", "high"} == set(faulty["verdict"]["speedup"])  # type: ignore[call-overload]
    for finding in faulty["findings"]:
        assert FINDING <= set(finding)
    for row in faulty["per_rank"]:
        assert RANK <= set(row)
    assert {"metric": "h2d", "why": "no device"} in faulty["unknown"]


def test_its_values_are_those_of_the_run(faulty: dict[str, dict[str, object]]) -> None:
    """The late rank, its cause, its onset and the what-if of its absence."""
    (late,) = faulty["stragglers"]["ranks"]  # type: ignore[misc]
    assert {"rank": 2, "cause": "data_wait", "persistent": True}.items() <= late.items()
    assert 60 == pytest.approx(late["since_step"], abs=3)
    assert "straggler" == faulty["verdict"]["finding"]
    speedup = faulty["verdict"]["speedup"]
    assert speedup["low"] <= speedup["expected"] <= speedup["high"]  # type: ignore[index]
    assert 1.2 < faulty["what_if"]["S_w"][2]["S"]  # type: ignore[index]
    assert 4 == faulty["run"]["world_size"]


def test_an_empty_run_is_a_document_too() -> None:
    """No step seen: every number is null, nothing is claimed."""
    empty = orjson.loads(orjson.dumps(document(Advisor().view())))
    assert empty["verdict"]["decision"] is None
    assert empty["step"]["median_s"] is None
    assert empty["what_if"] is None
    assert empty["findings"] == []
    assert empty["unknown"] == [{"metric": "step", "why": "no step was seen yet"}]
