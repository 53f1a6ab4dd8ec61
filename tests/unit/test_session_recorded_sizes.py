"""Recordings as sizes: the batch decides the regime, and what was not observed is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic_run import MS, Fault, Job, final_view

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.scaling.analysis import analyse
from tuiadvisor.scaling.cost import Aim
from tuiadvisor.scaling.series import Target
from tuiadvisor.session.machine import Machine, Network
from tuiadvisor.session.recorded import Recorded
from tuiadvisor.session.recordedsizes import parts_of, table_of
from tuiadvisor.views.run_view import HostRow, RunView

MODEL = 100_000_000


def view_of(job: Job, **run: object) -> RunView:
    """The view of a simulated job, its run as given."""
    view = final_view(job)
    facts = {"device": "cuda", "backend": "nccl", "world_size": job.num_ranks} | run
    return replace(view, run=replace(view.run, **facts))  # type: ignore[arg-type]


def recorded(
    num_ranks: int, samples: int = 32, gradient_bytes: int | None = MODEL, **run: object
) -> Recorded:
    """A healthy job; samples: of each rank's step."""
    view = view_of(Job(num_ranks=num_ranks, samples=samples), **run)
    return Recorded(f"{num_ranks}.tuirec", view, gradient_bytes)


def test_the_same_batch_a_device_is_weak_scaling() -> None:
    """The observed samples a step decide, nothing is asked."""
    table = table_of([recorded(2), recorded(4), recorded(8)])
    (report,) = analyse(table, [Target(16)], Aim())
    assert "weak" == report.main.series.regime
    assert 32 == pytest.approx(report.main.series.batch_per_device)
    assert [2, 4, 8] == [one.row.devices for one in report.rows]
    prediction = report.predictions[0].time
    assert prediction.low < report.rows[-1].time * 1.1 < prediction.high * 1.1


def test_the_same_total_batch_is_strong_scaling() -> None:
    """64 samples on two ranks and on four."""
    (report,) = analyse(table_of([recorded(2, samples=32), recorded(4, samples=16)]), [], Aim())
    assert "strong" == report.main.series.regime


def test_a_changed_batch_or_layout_is_refused() -> None:
    """Two of one setting may speak, a third of another may not be reached by them."""
    mixed = [recorded(2, samples=32), recorded(4, samples=32), recorded(8, samples=7)]
    (report,) = analyse(table_of(mixed), [Target(16)], Aim())
    assert () == report.predictions
    assert "no law carries across that change" in report.refused[0].why
    layouts = [recorded(2), recorded(4), recorded(8, parallel={"pp": 4})]
    (report,) = analyse(table_of(layouts), [Target(16)], Aim())
    assert "layout pp4" in report.refused[0].why


@pytest.mark.slow
def test_another_model_is_no_other_size() -> None:
    """Gradients of another size are other work; two of one model still compare."""
    with pytest.raises(TuiadvisorError, match="no two recordings are of the same work"):
        table_of([recorded(2), recorded(4, gradient_bytes=2 * MODEL)])
    with pytest.raises(TuiadvisorError, match="no two recordings are of the same work"):
        table_of([recorded(2), recorded(4, device="cpu")])
    table = table_of([recorded(2), recorded(4), recorded(8, gradient_bytes=2 * MODEL)])
    reports = analyse(table, [], Aim())
    assert [(2, 4), (8,)] == [report.main.series.sizes for report in reports]


def test_an_unknown_batch_is_left_out_with_the_remedy() -> None:
    """Whether the work grew with the devices is not guessed."""
    table = table_of([recorded(2), recorded(4), recorded(8, samples=0)])
    assert [2, 4] == [row.devices for row in table.rows]
    assert "samples a step were not observed" in table.notes[0]
    with pytest.raises(TuiadvisorError, match="write a table with devices, step_s and global_batch"):
        table_of([recorded(2, samples=0)])


def test_a_rank_that_was_not_recorded_hides_the_batch() -> None:
    """The samples of seven ranks are not those of eight."""
    part = Recorded("part.tuirec", view_of(Job(num_ranks=8, missing=(3,), world_size=8), world_size=8), MODEL)
    table = table_of([recorded(2), recorded(4), part])
    assert [2, 4] == [row.devices for row in table.rows]
    assert table.notes[0].startswith("part.tuirec is left out: ")
    assert "1 rank was not compared" in table.notes[0]


def test_a_fault_that_is_no_matter_of_size_is_named() -> None:
    """A straggler at one size looks like bad scaling."""
    view = view_of(Job(num_ranks=8).with_faults(Fault("backward", (3,), 8 * MS)))
    table = table_of([recorded(2), recorded(4), Recorded("8.tuirec", view, MODEL)])
    assert any(note.startswith("8.tuirec") and "straggler" in note for note in table.notes)


@pytest.mark.slow
def test_nothing_is_decided_on_a_curve_through_a_large_fault() -> None:
    """The screen beside it says that the straggler is to be mended: that is no reason to stop growing."""
    view = view_of(Job(num_ranks=8).with_faults(Fault("backward", (3,), 40 * MS)))
    table = table_of([recorded(2), recorded(4), Recorded("8.tuirec", view, MODEL)])
    decision = analyse(table, [Target(16)], Aim())[0].decision
    assert "keep" == decision.decision
    assert "8.tuirec" in decision.because
    assert "fix it first" in decision.because
    assert None is table_of([recorded(2), recorded(4), recorded(8)]).doubt


def test_the_parts_of_one_run_sum_to_its_step() -> None:
    """Nothing is lost between compute, exchange, waiting, input and the rest."""
    run = recorded(4)
    hosts = (HostRow("node0", None, None, None, None, None, None, ("a", "b", "c", "d", "e", "f", "g", "h")),)
    parts = parts_of(replace(run, view=replace(run.view, hosts=hosts)))
    total = parts.compute_s + parts.transfer_s + parts.skew_s + parts.data_wait_s + parts.fixed_s
    assert parts.step_s == pytest.approx(total)
    assert (4, 1, 4, 8) == (parts.devices, parts.num_hosts, parts.devices_a_host, parts.room_a_host)
    assert 15 * MS == pytest.approx(parts.compute_s, rel=0.1)
    assert parts.hidden_s is None
    assert 128 == parts.global_batch


@pytest.mark.parametrize(
    ("run", "says"),
    [
        ({"parallel": {"pp": 4}}, "its layout is pp4"),
        ({"device": "cpu"}, "share the processors of one host"),
        ({"world_size": None}, "how many ranks the job has was not observed"),
    ],
)
def test_one_run_that_says_nothing_about_sizes_is_refused(run: dict[str, object], says: str) -> None:
    """A pipeline, ranks on shared cores, a size nobody saw."""
    with pytest.raises(TuiadvisorError, match=says):
        parts_of(recorded(4, **run))  # type: ignore[arg-type]


def test_one_run_without_order_of_arrival_is_refused() -> None:
    """Exchange and waiting cannot be told apart."""
    view = view_of(Job(barrier_seen=False, observed=("forward", "backward", "optimizer", "other")))
    with pytest.raises(TuiadvisorError, match=r"who waits for whom was not observed|steady steps"):
        parts_of(Recorded("a.tuirec", view, MODEL))


def test_the_latency_of_the_exchange_comes_from_the_machines_ceiling() -> None:
    """Messages of a step times the benchmark's smallest one, carried over by the ring; unknown without either."""
    run = recorded(4, backend="nccl", hosts=("node0",))
    machine = Machine((Network(8, 1, ((8.0, 70e-6), (1e9, 0.1))),))
    assert 10 * 70e-6 * 3 / 7 == pytest.approx(parts_of(replace(run, num_collectives=10), machine).latency_s)
    assert parts_of(run, machine).latency_s is None
    assert parts_of(replace(run, num_collectives=10)).latency_s is None
    large = Machine((Network(8, 1, ((1e6, 1e-3),)),))
    assert parts_of(replace(run, num_collectives=10), large).latency_s is None
