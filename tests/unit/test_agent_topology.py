"""Where devices, cards, processors and memory lie: sysfs and /proc in their true shape."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from mock_sysfs import SLOTS, two_sockets, write
from test_agent_gpu import FakeNvml

from tuiadvisor.agent.affinity import Affinities, affinity
from tuiadvisor.agent.nvml import NvmlReader
from tuiadvisor.agent.topology import Topology, path_between

GPU_0, GPU_1, GPU_2 = "0000:1b:00.0", "0000:43:00.0", "0000:9d:00.0"
BIND = 2  # linux/mempolicy.h
SET_MEMPOLICY = 238  # x86-64


@pytest.fixture(name="machine")
def of_two_sockets(tmp_path: Path) -> Topology:
    return Topology(two_sockets(tmp_path))


def test_nodes_and_distances_are_the_kernels(machine: Topology) -> None:
    assert {0: [10, 21], 1: [21, 10]} == machine.distances
    assert [0] == machine.nodes_of("0-3,8")
    assert [0, 1] == machine.nodes_of("3-4")
    assert machine.nodes_of("99") is None  # of a node that this container does not show
    assert machine.nodes_of("") is None


@pytest.mark.parametrize(
    ("one", "other", "path"),
    [
        (GPU_0, "0000:18:00.0", "PIX"),
        (GPU_2, "0000:a0:00.0", "PHB"),
        (GPU_0, GPU_1, "NODE"),
        (GPU_0, GPU_2, "SYS"),
        (GPU_0, "0000:02:00.0", None),  # its root has no node: near or far is not known
        (GPU_0, GPU_0, "SAME"),
    ],
)
def test_paths_are_as_nvidia_smi_names_them(
    machine: Topology, one: str, other: str, path: str | None
) -> None:
    places = machine.place(one), machine.place(other)
    assert places[0] is not None
    assert places[1] is not None
    assert path_between(*places) == path
    assert path_between(*reversed(places)) == path


def test_two_switches_in_a_row_are_pxb(tmp_path: Path) -> None:
    for address, way in (
        ("0000:05:00.0", "0000:03:00.0/0000:04:00.0/0000:05:00.0"),
        ("0000:06:00.0", "0000:06:00.0"),
    ):
        folder = tmp_path / "devices/pci0000:00/0000:00:01.0/0000:01:00.0" / way
        write(folder / "numa_node", "0")
        (tmp_path / "bus/pci/devices").mkdir(parents=True, exist_ok=True)
        (tmp_path / "bus/pci/devices" / address).symlink_to(folder)
    machine = Topology(tmp_path)
    near, far = machine.place("0000:06:00.0"), machine.place("00000000:05:00.0")  # as NVML writes it
    assert near is not None
    assert far is not None
    assert path_between(near, far) == "PXB"


@pytest.mark.parametrize("address", [None, "", "0000:77:00.0", "../../etc", "0000:1b:00.0/..", "x" * 4000])
def test_what_is_no_device_has_no_place(machine: Topology, address: str | None) -> None:
    assert machine.place(address) is None


def test_the_nearest_card_is_an_rdma_card(machine: Topology) -> None:
    assert machine.nearest_card(machine.place(GPU_0)) == ("mlx5_0:1", "PIX")
    assert machine.nearest_card(machine.place(GPU_2)) == ("mlx5_1:1", "PHB")
    assert machine.nearest_card(None) is None


def test_cards_have_rates_and_bytes_a_second(tmp_path: Path) -> None:
    """InfiniBand counts words of four bytes; a counter that went back is no rate; a port that is down is no card."""
    root, now = two_sockets(tmp_path), [100.0]
    machine = Topology(root, lambda: now[0])
    first = {card["name"]: card for card in machine.traffic()}
    assert {"mlx5_0:1", "mlx5_1:1", "eno1"} == set(first)
    assert first["mlx5_0:1"]["sent_bytes_s"] is None
    assert [400e9, 200e9, 25e9] == [first[name]["rate_bits_s"] for name in ("mlx5_0:1", "mlx5_1:1", "eno1")]
    assert [0, 1, None] == [first[name]["numa_node"] for name in ("mlx5_0:1", "mlx5_1:1", "eno1")]
    port = root / "class/infiniband/mlx5_0/ports/1"
    write(port / "counters/port_xmit_data", "3000")
    write(port / "counters/port_rcv_data", "10")
    now[0] += 2.0
    later = {card["name"]: card for card in machine.traffic()}["mlx5_0:1"]
    assert (later["sent_bytes_s"], later["received_bytes_s"]) == (4000.0, None)
    write(port / "state", "1: DOWN")
    now[0] += 100.0
    assert "mlx5_0:1" not in {card["name"] for card in machine.traffic()}


def test_amazons_cards_count_bytes_elsewhere_and_errors_are_those_since_the_last_look(tmp_path: Path) -> None:
    """EFA has no port_xmit_data; what a card does not count is unknown, and so is the first look."""
    root, now = two_sockets(tmp_path), [100.0]
    efa, mlx = (root / f"class/infiniband/{name}/ports/1" for name in ("mlx5_1", "mlx5_0"))
    for name in ("port_xmit_data", "port_rcv_data"):
        (efa / "counters" / name).unlink()
    for name, text in (("tx_bytes", "1000"), ("rx_bytes", "5000"), ("retrans_pkts", "3")):
        write(efa / "hw_counters" / name, text)
    write(mlx / "counters/symbol_error", "0")
    write(mlx / "hw_counters/out_of_sequence", "40")
    machine = Topology(root, lambda: now[0])
    first = {card["name"]: card for card in machine.traffic()}
    write(efa / "hw_counters/tx_bytes", "3000")
    write(efa / "hw_counters/retrans_pkts", "8")
    write(mlx / "hw_counters/out_of_sequence", "42")
    now[0] += 2.0
    later = {card["name"]: card for card in machine.traffic()}

    assert [None, None] == [first[name]["new_errors"] for name in ("mlx5_1:1", "mlx5_0:1")]
    assert (1000.0, 5) == (later["mlx5_1:1"]["sent_bytes_s"], later["mlx5_1:1"]["new_errors"])
    assert (2, None) == (later["mlx5_0:1"]["new_errors"], later["eno1"]["new_errors"])


def test_a_machine_that_shows_nothing_has_nothing(tmp_path: Path) -> None:
    bare = Topology(tmp_path)
    assert ({}, {}, []) == (bare.node_of_core, bare.distances, bare.traffic())
    assert bare.nodes_of("0-3") is None


class PlacedNvml(FakeNvml):
    """The first device hangs at GPU 2's slot; links and topology as the library tells them."""

    def __init__(self, address: str = GPU_2) -> None:
        super().__init__()
        self.address, self.near = address, 0b10
        self.field_values[pynvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON, 0] = ("uiVal", 26562)

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:  # noqa: N802  # NVML's own names, here and below
        self._only_first(handle)
        return SimpleNamespace(busId=f"0000{self.address.upper()}")

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle: int) -> int:  # noqa: N802
        self._only_first(handle)
        return 5

    def nvmlDeviceGetMaxPcieLinkWidth(self, handle: int) -> int:  # noqa: N802
        self._only_first(handle)
        return 16

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle: int) -> int:  # noqa: N802
        self._only_first(handle)
        return 8

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:  # noqa: N802
        self._only_first(handle)
        if link >= 18:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return int(link != 17)  # one is down

    def nvmlDeviceGetTopologyCommonAncestor(self, one: int, other: int) -> int:  # noqa: N802
        assert {one, other} == {0, 1}
        return pynvml.NVML_TOPOLOGY_SYSTEM

    def nvmlDeviceGetMemoryAffinity(self, handle: int, size: int, scope: int) -> Any:  # noqa: N802
        self._only_first(handle)
        assert scope == pynvml.NVML_AFFINITY_SCOPE_NODE
        return (ctypes.c_ulonglong * size)(self.near)


def test_a_device_tells_its_node_its_nearest_card_and_its_links(machine: Topology) -> None:
    first, second = NvmlReader(PlacedNvml(), topology=machine).sample()
    assert {
        "numa_node": 1,
        "nic": "mlx5_1:1",
        "nic_path": "PHB",
        "peer_paths": [None, "SYS"],
        "pcie_max_gen": 5,
        "pcie_max_width": 16,
        "pcie_width": 8,
        "nvlink_links": 17,
        "nvlink_mb_s": 26562,
    }.items() <= first.items()
    assert second["numa_node"] is None
    assert second["nvlink_mb_s"] is None


@pytest.mark.parametrize(("near", "node"), [(0b10, 1), (0b11, None), (0, None)])
def test_where_sysfs_has_no_node_nvmls_counts_if_it_is_one(
    machine: Topology, near: int, node: int | None
) -> None:
    nvml = PlacedNvml("0000:02:00.0")
    nvml.near = near
    assert NvmlReader(nvml, topology=machine).sample()[0]["numa_node"] == node


SLEEPER = "import sys; print('up', flush=True); sys.stdin.read()"


def test_allowed_is_what_the_kernel_allows_a_real_process(machine: Topology) -> None:
    """Bound to one processor and one node's memory; the tree says which node that processor is on."""
    libc = ctypes.CDLL(None, use_errno=True)

    def bind() -> None:
        os.sched_setaffinity(0, {0})
        if libc.syscall(SET_MEMPOLICY, BIND, ctypes.byref(ctypes.c_ulong(1)), 8):
            raise OSError(ctypes.get_errno(), "set_mempolicy")

    with subprocess.Popen(
        [sys.executable, "-c", SLEEPER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=bind,  # noqa: PLW1509
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdout.readline()
            found = affinity(machine, process.pid, process.pid)
        finally:
            process.stdin.close()
    assert found == {"cpus_allowed": "0", "cpu_nodes": [0], "memory_policy": "bind", "memory_nodes": [0]}


def test_a_process_that_is_gone_is_unknown_and_forgotten(machine: Topology) -> None:
    known = Affinities(machine)
    assert known.of(1 << 22, None) == {}
    assert affinity(Topology(), os.getpid(), os.getpid())["cpu_nodes"] == sorted(
        {Topology().node_of_core[core] for core in os.sched_getaffinity(0)}
    )
    known.keep([])
    assert known._read == {}


def test_a_process_that_binds_itself_at_its_start_is_read_again_soon(
    machine: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was read while torch was imported, and for half a minute it had all cores of its host."""
    looks: list[float] = []
    clock_s = [100.0]

    def look(_machine: Topology, _pid: int, _task: int) -> dict[str, object]:
        looks.append(clock_s[0] - 100.0)
        return {}

    monkeypatch.setattr("tuiadvisor.agent.affinity.affinity", look)
    known = Affinities(machine, lambda: clock_s[0])
    for second in range(130):
        clock_s[0] = 100.0 + second
        known.of(7, None)
    assert looks == [0, 1, 2, 4, 8, 16, 32, 62, 92, 122]


def test_slots_of_the_tree_are_all_found(machine: Topology) -> None:
    assert all(machine.place(address) is not None for address in SLOTS)
