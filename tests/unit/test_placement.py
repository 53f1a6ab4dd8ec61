"""Ranks, their devices and links: what a recording says of where they are, and what follows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from synthetic_run import MS, Fault, Job, encoded, final_view, folded
from test_advisor_deviceclocks import gpu, recorded

from tuiadvisor.efficiency.links import PCIE_LANE, nvlink_ceiling, pcie_ceiling
from tuiadvisor.exporters.anonymize import anonymize
from tuiadvisor.report.document import document
from tuiadvisor.report.markdown import markdown_report
from tuiadvisor.report.page import Dossier, html_report
from tuiadvisor.stream.frames import Frame, FrameKind, decode
from tuiadvisor.tui.pages.details import rank_lines
from tuiadvisor.views.run_view import Finding, RunView

JOB = Job(num_ranks=4, num_steps=300)
NEAR, FAR = [1], [0]
DISTANCES = {"numa_nodes": [0, 1], "numa_distances": [[10, 21], [21, 10]]}


def placed_gpu(index: int, **fields: Any) -> dict[str, Any]:
    """A device on node 1, in the shape of agent.nvml."""
    told = {
        "numa_node": 1,
        "nic": "mlx5_1:1",
        "nic_path": "PIX",
        "peer_paths": [None if one == index else "NODE" for one in range(4)],
        "pcie_max_gen": 5,
        "pcie_max_width": 16,
        "pcie_width": 16,
        "nvlink_links": 18,
        "nvlink_mb_s": 26562,
    }
    return gpu(index, **{**told, **fields})


def run(
    gpus: list[dict[str, Any]],
    nodes: list[list[int] | None],
    job: Job = JOB,
    nics: list[dict[str, Any]] | None = None,
    **rank_fields: Any,
) -> list[Frame]:
    """The job, its ranks allowed these nodes' CPUs."""
    found = []
    for frame in recorded(job, gpus):
        payload: dict[str, Any] = dict(frame.payload)
        if frame.kind == FrameKind.HELLO:
            payload |= DISTANCES
        elif frame.kind == FrameKind.HOST:
            payload["ranks"] = [
                {"rank": rank, "cpus_allowed": "0-7", "cpu_nodes": own, "memory_policy": "default",
                 "memory_nodes": [0, 1], **rank_fields}
                for rank, own in enumerate(nodes)
            ]  # fmt: skip
            payload["nics"] = nics or []
        found.append(replace(frame, payload=payload))
    return found


def viewed(*arguments: Any, **options: Any) -> RunView:
    """Encoded and decoded, so that what the frames' shapes refuse is refused here."""
    return folded([decode(encoded(frame)) for frame in run(*arguments, **options)]).view()


def finding(view: RunView, name: str) -> Finding | None:
    return next((one for one in view.findings if one.id == name), None)


def test_a_rank_that_may_only_run_on_the_other_node_is_far() -> None:
    view = viewed([placed_gpu(rank) for rank in range(4)], [NEAR, NEAR, NEAR, FAR])
    found = finding(view, "far_from_device")
    assert found is not None
    assert (found.severity, found.ranks, found.hosts) == ("info", (3,), ("node0",))
    assert "CPUs on node 0, device on node 1, distance 21" in found.message
    assert "late" not in found.message
    far = document(view)["placement"][3]  # type: ignore[index]
    assert (far["cpus_far"], far["memory_far"], far["distance"], far["device_node"]) == (True, False, 21, 1)
    assert (far["nic"], far["nic_path"], far["peer_paths"], far["why"]) == ("mlx5_1:1", "PIX", ("NODE",), "")
    near = document(view)["placement"][0]  # type: ignore[index]
    assert (near["cpus_far"], near["distance"]) == (False, 10)


def test_a_far_rank_that_is_late_is_said_to_be() -> None:
    late = JOB.with_faults(Fault("backward", (3,), 6 * MS))
    found = finding(
        viewed([placed_gpu(rank) for rank in range(4)], [NEAR, NEAR, NEAR, FAR], late), "far_from_device"
    )
    assert found is not None
    assert "Rank 3 of them arrives late." in found.message


def test_allowed_on_both_nodes_is_not_far() -> None:
    """Where the last CPU happened to be says nothing."""
    view = viewed([placed_gpu(rank) for rank in range(4)], [[0, 1]] * 4, last_cpu=0)
    assert finding(view, "far_from_device") is None
    assert [False] * 4 == [one.cpus_far for one in view.placements]


def test_memory_bound_elsewhere_is_far() -> None:
    view = viewed([placed_gpu(rank) for rank in range(4)], [NEAR] * 4, memory_policy="bind", memory_nodes=[0])
    found = finding(view, "far_from_device")
    assert found is not None
    assert "memory on node 0 (bind), device on node 1" in found.message


@pytest.mark.parametrize(
    ("fields", "nodes"),
    [({"numa_node": None}, FAR), ({"numa_node": -1}, FAR), ({"numa_node": "1"}, FAR), ({}, None)],
)
def test_where_one_end_is_not_known_nothing_is_far(fields: dict[str, Any], nodes: list[int] | None) -> None:
    view = viewed([placed_gpu(rank, **fields) for rank in range(4)], [nodes] * 4)
    assert finding(view, "far_from_device") is None
    assert [None] * 4 == [one.cpus_far for one in view.placements]
    assert all(one.why for one in view.placements)


def test_a_job_without_devices_says_that() -> None:
    view = final_view(JOB)
    assert all(one.cpus_far is None and "no device" in one.why for one in view.placements)
    assert not {"far_from_device", "unlike_devices", "lanes_missing"} & {one.id for one in view.findings}


def test_unlike_devices_name_the_few() -> None:
    gpus = [
        placed_gpu(rank, name="NVIDIA A100-SXM4-80GB" if rank == 2 else "NVIDIA H200") for rank in range(4)
    ]
    found = finding(viewed(gpus, [NEAR] * 4), "unlike_devices")
    assert found is not None
    assert (found.severity, found.ranks) == ("info", (2,))
    assert "ranks 0, 1 and 3: NVIDIA H200; rank 2: NVIDIA A100-SXM4-80GB" in found.message


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"memory_total_bytes": 80 << 30}, "80 GiB of memory"),
        ({"max_sm_clock_mhz": 1755}, "clocks up to 1755 MHz"),
        ({"power_limit_w": 500.0}, "a power limit of 500 W"),
    ],
)
def test_the_same_name_with_other_limits_is_unlike(fields: dict[str, Any], said: str) -> None:
    gpus = [placed_gpu(rank, **(fields if rank == 1 else {})) for rank in range(4)]
    found = finding(viewed(gpus, [NEAR] * 4), "unlike_devices")
    assert found is not None
    assert f"rank 1: {said}" in found.message


def test_like_devices_and_some_mib_are_no_finding() -> None:
    gpus = [placed_gpu(rank, memory_total_bytes=(141 << 30) + (rank << 20)) for rank in range(4)]
    assert finding(viewed(gpus, [NEAR] * 4), "unlike_devices") is None


def test_missing_lanes_are_said_and_lower_the_ceiling() -> None:
    traffic = {"pcie_sent_bytes_s": 4e9, "pcie_received_bytes_s": 16e9}
    gpus = [placed_gpu(rank, **traffic, **({"pcie_width": 8} if rank == 1 else {})) for rank in range(4)]
    view = viewed(gpus, [NEAR] * 4)
    found = finding(view, "lanes_missing")
    assert found is not None
    assert found.ranks == (1,)
    assert "8 of 16 lanes" in found.message
    links = {(one.kind, one.rank): one for one in view.links}
    whole, half = links["pcie", 0], links["pcie", 1]
    assert whole.ceiling_bytes_s == pytest.approx(
        63.015e9, rel=1e-3
    )  # the data sheets' 64 GB/s less its encoding
    assert half.ceiling_bytes_s == pytest.approx(whole.ceiling_bytes_s / 2)
    assert whole.share == pytest.approx(16e9 / 63.015e9, rel=1e-3)
    assert (whole.sent_bytes_s, whole.received_bytes_s, whole.bytes_s) == (4e9, 16e9, 20e9)
    assert links["nvlink", 0].ceiling_bytes_s == pytest.approx(18 * 26.562e9)
    assert links["nvlink", 0].share is None  # its traffic was not told


def test_a_card_is_held_against_its_rate() -> None:
    nic = {"name": "mlx5_0:1", "kind": "infiniband", "rate_bits_s": 400_000_000_000, "sent_bytes_s": 25e9}
    view = viewed([placed_gpu(0)], [NEAR], nics=[{**nic, "received_bytes_s": 10e9}])
    (card,) = [one for one in view.links if one.kind == "infiniband"]
    assert (card.name, card.rank, card.share, card.ceiling_bytes_s) == ("mlx5_0:1", None, 0.5, 50e9)
    assert "/sys/class/infiniband" in card.ceiling_source
    (odd,) = [
        one
        for one in viewed([placed_gpu(0)], [NEAR], nics=[{**nic, "received_bytes_s": 80e9}]).links
        if one.kind == "infiniband"
    ]
    assert odd.share is None  # more than the wire carries: one of the two is wrong


@pytest.mark.parametrize(
    "odd",
    [
        {"pcie_max_gen": 99}, {"pcie_width": 0}, {"pcie_max_gen": "5"}, {"nvlink_links": -1},
        {"nic_path": "../..", "peer_paths": {"a": 1}},
    ],
)  # fmt: skip
def test_nonsense_is_unknown(odd: dict[str, Any]) -> None:
    view = viewed([placed_gpu(0, **odd)], [NEAR])
    row = view.placements[0]
    assert row.nic_path in {None, "PIX"}
    assert all(link.ceiling_bytes_s is None or link.ceiling_bytes_s > 0 for link in view.links)


@pytest.mark.parametrize(
    "broken", [{"numa_distances": [[10]]}, {"numa_nodes": [0, 0]}, {"numa_distances": "x"}]
)
def test_a_table_of_distances_that_is_none_leaves_them_unknown(broken: dict[str, Any]) -> None:
    sequence = [
        replace(one, payload={**one.payload, **broken}) if one.kind == FrameKind.HELLO else one
        for one in run([placed_gpu(0)], [FAR])
    ]
    row = folded(sequence).view().placements[0]
    assert row.distance is None
    assert row.cpus_far is True


def test_ceilings_are_those_of_the_standard() -> None:
    """GB/s each way with 16 lanes, as PCI-SIG's overview rounds them."""
    rounded = {gen: round(16 * lane / 1e9, 1) for gen, lane in PCIE_LANE.items()}
    assert rounded == {1: 4.0, 2: 8.0, 3: 15.8, 4: 31.5, 5: 63.0, 6: 121.0}
    assert pcie_ceiling(5, None) is None
    assert nvlink_ceiling(18, None) is None


def test_placement_is_on_the_ranks_page_and_in_reports() -> None:
    view = viewed(
        [placed_gpu(rank, pcie_sent_bytes_s=1e9, pcie_received_bytes_s=2e9) for rank in range(4)], [FAR] * 4
    )
    page = "\n".join("".join(span[0] for span in row.spans) for row in rank_lines(view, view.ranks[0], 120))
    assert "where it is" in page
    assert "far (21, local is 10)" in page
    for text in (
        html_report([Dossier("a", view)], None, "x"),
        markdown_report([Dossier("a", view)], None, "x"),
    ):
        assert "mlx5_1:1: PIX, by one PCIe switch" in text
        assert "PCI Express specification" in text


@pytest.mark.slow
def test_an_anonymous_copy_keeps_distances_and_no_card_names() -> None:
    nics = [
        {
            "name": "acme0",
            "kind": "ethernet",
            "rate_bits_s": 10**10,
            "sent_bytes_s": 1.0,
            "received_bytes_s": 1.0,
        }
    ]
    sequence = run([placed_gpu(rank, nic="acme0") for rank in range(4)], [FAR] * 4, nics=nics)
    sequence = [
        replace(one, payload={**one.payload, "cpu_model": "Acme 9"}) if one.kind == FrameKind.HELLO else one
        for one in sequence
    ]
    parts = [encoded(frame) for frame in sequence]
    copied = [decode(one) for one in anonymize(lambda _what: iter(parts))]
    assert not any("acme" in repr(one.payload).lower() for one in copied)
    view = folded(copied).view()
    assert [(True, 21, "PIX")] * 4 == [(one.cpus_far, one.distance, one.nic_path) for one in view.placements]
    assert [10**10 / 8] == [one.ceiling_bytes_s for one in view.links if one.kind == "ethernet"]
