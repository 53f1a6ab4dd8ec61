"""Ranks that share a device, as under CUDA MPS: its peak, its power and its counters are those of all of them."""

from __future__ import annotations

import types
from dataclasses import replace
from typing import Any

import pytest
from synthetic_run import Job, encoded, folded
from test_advisor_deviceclocks import gpu, recorded

from tuiadvisor.advisor.cluster.placement import Placements
from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.events import GivenWork
from tuiadvisor.report.document import document
from tuiadvisor.session.cost_station import device_hours
from tuiadvisor.session.evidence import facts
from tuiadvisor.session.recordedsizes import why_unusable
from tuiadvisor.stream.frames import Frame, FrameKind, decode
from tuiadvisor.text.efficiency import efficiency_facts, stack_facts
from tuiadvisor.tui.pages.details import rank_lines
from tuiadvisor.views.devices import RankDevice, num_devices
from tuiadvisor.views.run_view import RunView
from tuiadvisor_probes import model_facts

JOB = Job(num_ranks=2, num_steps=200)
COUNTERS = {"sm_active": 0.74, "tensor_active": 0.0, "dram_active": 0.2, "pcie_width": 16}


def viewed(devices: list[int], multiprocessors: tuple[int, ...] = (58, 58)) -> RunView:
    """Two ranks on these devices of one host."""
    found = []
    for frame in recorded(JOB, [gpu(0, **COUNTERS), gpu(1, **COUNTERS)]):
        payload: Any = frame.payload
        if frame.kind == FrameKind.HELLO:
            ranks = [
                {
                    **entry,
                    "device_uuid": f"5f6a-{devices[entry['rank']]}",
                    "model": _model(multiprocessors[entry["rank"]]),
                }
                for entry in payload["ranks"]
            ]
            payload = {**payload, "ranks": ranks}
        found.append(replace(frame, payload=payload))
    advisor: Advisor = folded([_sent(frame) for frame in found])
    advisor.roster.header.given = GivenWork(flops_per_step=1e12)
    return advisor.view()


def _model(multiprocessors: int) -> dict[str, object]:
    named = {
        "device_name": "NVIDIA H200",
        "param_dtype": "float32",
        "tf32": 0,
        "mm": 4194304,
        "autocast": "off",
    }
    return {**named, "multiprocessors": multiprocessors, "mps_share": "45"}


def _sent(frame: Frame) -> Frame:
    return decode(encoded(frame))


def test_a_devices_peak_counts_once_however_many_ranks_it_has() -> None:
    """Two ranks of an H200 had half the MFU that its kernels showed: its peak was counted for each."""
    alone, shared = viewed([0, 1]), viewed([0, 0])
    assert alone.efficiency is not None
    assert shared.efficiency is not None
    assert (2, 1) == (alone.efficiency.num_devices, shared.efficiency.num_devices)
    assert alone.efficiency.mfu is not None
    assert 2 * alone.efficiency.mfu == pytest.approx(shared.efficiency.mfu)
    assert "2 ranks compute on one device" in dict(efficiency_facts(shared))["note"]
    assert "one device" not in dict(efficiency_facts(alone)).get("note", "")


def test_the_counters_of_a_shared_device_are_said_to_be_those_of_all_its_ranks() -> None:
    shared = viewed([0, 0])
    assert [2, 2] == [row["num_ranks"] for row in document(shared)["devices"]["per_rank"]]  # type: ignore[index]
    page = " ".join(row.text for row in rank_lines(shared, shared.ranks[0], 100))
    assert "multiprocessors 74 % · tensor cores 0 % · memory bandwidth 20 %" in page
    assert "1,755 MHz · 612 W" in page
    assert "shares its device with 1 other rank" in page
    alone = viewed([0, 1])
    assert "shares its device" not in " ".join(row.text for row in rank_lines(alone, alone.ranks[0], 100))


def test_a_shared_device_is_paid_for_once() -> None:
    """A run on one device was to take the hours and the energy of two."""
    alone, shared = facts("run", viewed([0, 1])), facts("run", viewed([0, 0]))
    assert (612.4, 612.4) == pytest.approx((alone.device_power_w, shared.device_power_w))
    assert ((2, 2), (1, 2)) == ((alone.num_devices, alone.num_ranks), (shared.num_devices, shared.num_ranks))
    assert device_hours(alone, 1000) == pytest.approx(2 * (device_hours(shared, 1000) or 0))


def test_ranks_that_share_a_device_are_no_size_of_a_job() -> None:
    """It said of a host with one device that two were recorded."""
    shared, alone = viewed([0, 0]), viewed([0, 1])
    assert "2 ranks share 1 device: " in why_unusable(shared, facts("run", shared), needs_batch=False)
    assert not why_unusable(alone, facts("run", alone), needs_batch=False)


def test_how_many_devices_is_unknown_where_one_of_a_rank_is() -> None:
    assert 3 == num_devices([RankDevice(rank, num_ranks=1 + (rank < 2)) for rank in range(4)])
    assert num_devices([RankDevice(0, num_ranks=1), RankDevice(1)]) is None
    assert num_devices([]) is None


def test_a_rank_that_is_given_less_of_a_device_is_named() -> None:
    """A straggler "on its device", and nothing said that MPS gave it 38 multiprocessors and the other one 58."""
    found = {one.id: one for one in viewed([0, 0], (58, 38)).findings}
    assert "Fewer multiprocessors for rank 1" == found["unlike_shares"].title
    assert (1,) == found["unlike_shares"].ranks
    assert "rank 0: 58 multiprocessors; rank 1: 38 multiprocessors" in found["unlike_shares"].message
    assert "unlike_shares" not in {one.id for one in viewed([0, 0]).findings}


def test_what_a_rank_is_given_of_its_device_stands_beside_its_name() -> None:
    said = dict(stack_facts(viewed([0, 0]).stack))["device"]
    assert "NVIDIA H200 · 58 multiprocessors · CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=45" == said


@pytest.mark.parametrize(("kind", "seen"), [("cuda", True), ("cpu", False)])
def test_the_probe_tells_what_of_its_device_a_rank_may_use(
    monkeypatch: pytest.MonkeyPatch, kind: str, seen: bool
) -> None:
    """As torch was told when the device was opened; of a rank on the CPU nothing."""
    device = types.SimpleNamespace(name="NVIDIA H200", multi_processor_count=58)
    cuda = types.SimpleNamespace(
        is_initialized=lambda: True, current_device=lambda: 0, get_device_properties=lambda _: device
    )
    monkeypatch.setitem(model_facts.sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "45")
    told = model_facts.settings(types.SimpleNamespace(device_kind=kind))  # type: ignore[arg-type]
    found = {name: told.get(name) for name in ("device_name", "multiprocessors", "mps_share")}
    wanted = {"device_name": "NVIDIA H200", "multiprocessors": 58, "mps_share": "45"}
    assert found == (wanted if seen else dict.fromkeys(wanted))


def test_ranks_that_share_a_device_are_said_to_and_what_is_not_known_of_it() -> None:
    """Two devices slow alike in all they compute were "keep: no loss found", though both ranks were on one."""
    shared, alone = viewed([0, 0]), viewed([0, 1])
    (found,) = [one for one in shared.findings if one.id == "shared_device"]
    assert ("info", (0, 1)) == (found.severity, found.ranks)
    assert "2 ranks on one device" in found.message
    assert "shared_device" not in {one.id for one in alone.findings}


def test_containers_on_one_host_share_a_device_whatever_their_names() -> None:
    """One device is sliced by time for pods whose host names differ; a short name is a host's own."""
    told = Placements()
    whole, short = "5f6a0c1e-0d3b-4a57-9b5e-3c2f00000001", "0"
    ranks = [
        (0, "pod-a", whole),
        (1, "pod-b", whole),
        (2, "pod-a", short),
        (3, "pod-b", short),
        (4, "pod-b", ""),
    ]
    assert [2, 2, 1, 1, None] == [one.num_on_device for one in told.of_ranks(ranks)]
