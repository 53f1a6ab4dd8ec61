"""The record of the hardware: cards, disks and the container of a rank, and how busy the disks were."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_run import Job, folded, frames
from test_agent_host import BEFORE, LATER

from tuiadvisor.agent import machine_facts, procfs
from tuiadvisor.agent.host import rates, read_counters
from tuiadvisor.agent.topology import Topology
from tuiadvisor.report.document import document
from tuiadvisor.report.facts import environment_facts
from tuiadvisor.session.evidence import facts
from tuiadvisor.session.measured import measured_answers
from tuiadvisor.stream.frames import FrameKind
from tuiadvisor.stream.shapes import FrameError, check_payload
from tuiadvisor.views.run_view import RunView

CONTAINER = "9f" * 32


def disk(
    root: Path, name: str, *, sectors: str = "3750748848", rotating: str = "0", model: str = "Acme X1 "
) -> None:
    """One of /sys/block."""
    folder = root / "block" / name
    (folder / "device").mkdir(parents=True)
    (folder / "queue").mkdir()
    (folder / "size").write_text(sectors + "\n")
    (folder / "queue/rotational").write_text(rotating + "\n")
    (folder / "device/model").write_text(model + "\n")


def test_disks_by_name_model_size_and_kind(tmp_path: Path) -> None:
    """What has no device behind is no disk, and what does not tell is left out."""
    disk(tmp_path, "nvme0n1")
    disk(tmp_path, "sda", sectors="what", rotating="1", model="Bad\x1b[31m")
    disk(tmp_path, "vda", rotating="1", model="")
    disk(tmp_path, "vdb", sectors="621094", model="")
    disk(tmp_path, "vdc", sectors="537109375", model="")
    (tmp_path / "block/loop0").mkdir()
    virtual = ["vda 1.92 TB", "vdb 318 MB", "vdc 275 GB"]
    assert machine_facts.storage(tmp_path) == ["nvme0n1 Acme X1 1.92 TB flash", "sda rotating", *virtual]
    assert machine_facts.storage(tmp_path / "none") == []


def test_cards_with_what_they_carry(tmp_path: Path) -> None:
    card = tmp_path / "class/net/eth0"
    (card / "device").mkdir(parents=True)
    (card / "type").write_text("1\n")
    (card / "speed").write_text("25000\n")
    assert machine_facts.network_cards(Topology(tmp_path)) == ["eth0 ethernet 25 Gbit/s"]
    (card / "speed").write_text("-1\n")
    assert machine_facts.network_cards(Topology(tmp_path)) == ["eth0 ethernet"]


@pytest.mark.parametrize(
    ("variables", "group", "expected"),
    [
        ({}, b"0::/user.slice\n", None),
        ({}, b"0::/system.slice/docker-" + CONTAINER.encode() + b".scope\n", "docker 9f9f9f9f9f9f"),
        ({}, b"0::/kubepods/pod1/cri-containerd-" + CONTAINER.encode() + b".scope\n", "containerd 9f9f9f9f9f9f"),
        ({}, b"0::/machine/libpod-" + CONTAINER.encode() + b".scope\n", "podman 9f9f9f9f9f9f"),
        ({"APPTAINER_CONTAINER": "/images/a.sif"}, b"0::/\n", "apptainer /images/a.sif"),
        ({"NVIDIA_PYTORCH_VERSION": "25.06"}, b"0::/docker/" + CONTAINER.encode(), "nvcr.io/nvidia/pytorch 25.06"),
        ({"APPTAINER_CONTAINER": "a\x1b[31m"}, b"", None),
    ],
)  # fmt: skip
def test_a_container_by_its_image_else_by_its_id(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], group: bytes, expected: str | None
) -> None:
    monkeypatch.setattr(procfs, "environment", lambda _pid, _names: variables)
    monkeypatch.setattr(procfs, "read", lambda _pid, _name: group)
    assert machine_facts.container(7) == expected


def test_a_process_that_may_not_be_read_is_in_no_known_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procfs, "environment", lambda _pid, _names: None)
    monkeypatch.setattr(procfs, "read", lambda _pid, _name: None)
    assert machine_facts.container(7) is None


def test_operations_and_the_busiest_disk_are_differences() -> None:
    """Two seconds: 600 reads, 100 writes; of two disks the one that was busy for 1.8 s."""
    before = replace(BEFORE, disk_reads=100, disk_writes=0, disk_busy_s=(("sda", 5.0), ("sdb", 9.0)))
    later = replace(
        LATER, disk_reads=700, disk_writes=100, disk_busy_s=(("sda", 6.8), ("sdb", 9.1), ("sdc", 4.0))
    )
    found = rates(before, later)
    assert (found["disk_reads_s"], found["disk_writes_s"]) == (300.0, 50.0)
    assert found["disk_busy"] == pytest.approx(0.9)
    assert rates(before, replace(later, disk_busy_s=()))["disk_busy"] is None
    assert rates(before, replace(later, disk_busy_s=(("sda", 1.0),)))["disk_busy"] is None


def test_this_machine_is_read() -> None:
    """Whatever it has: counters that are known on both sides give a rate."""
    one, other = read_counters(), read_counters()
    told = rates(one, other)
    assert (told["disk_reads_s"] is None) == (one.disk_reads is None)
    assert check_payload(FrameKind.HOST, told) == told


def on_host(busy: float = 0.95) -> RunView:
    sequence = []
    for frame in frames(Job(num_steps=80)):
        payload = dict(frame.payload)
        if frame.kind == FrameKind.HELLO:
            payload |= {
                "network_cards": ["mlx5_0:1 infiniband 400 Gbit/s"],
                "storage": ["nvme0n1 1.92 TB flash", 7],
            }
            payload["ranks"] = [{**entry, "container": "apptainer /a.sif"} for entry in payload["ranks"]]
        sequence.append(replace(frame, payload=payload))
    advisor = folded(sequence)
    hello = next(frame for frame in sequence if frame.kind == FrameKind.HELLO)
    for at in range(3):
        host = {
            "host": hello.payload["host"], "disk_busy": busy, "disk_reads_s": 400.0 + at, "disk_writes_s": 1e300,
        }  # fmt: skip
        advisor.feed_frame(replace(hello, kind=FrameKind.HOST, seq=9_000 + at, payload=host))
    found: RunView = advisor.view()
    return found


def test_report_json_and_session_have_them() -> None:
    view = on_host()
    (row,) = view.hosts
    assert row.network_cards == ("mlx5_0:1 infiniband 400 Gbit/s",)
    assert row.storage == ("nvme0n1 1.92 TB flash",)
    assert row.disk_busy_mean == pytest.approx(0.95)
    assert row.disk_reads_s_mean == pytest.approx(401)
    assert row.disk_writes_s_mean is None  # nobody writes so often
    told = dict(environment_facts(view))
    assert told["network cards"] == "mlx5_0:1 infiniband 400 Gbit/s"
    assert told["container"] == "apptainer /a.sif"
    assert document(view)["hosts"][0]["storage"] == ["nvme0n1 1.92 TB flash"]
    assert document(view)["run"]["software"]["container"] == "apptainer /a.sif"


@pytest.mark.parametrize(("busy", "answer"), [(0.95, "yes"), (0.5, None)])
def test_a_disk_that_is_always_busy_answers_and_an_idle_one_proves_nothing(
    busy: float, answer: str | None
) -> None:
    found = measured_answers(facts("a", on_host(busy))).get("storage_at_ceiling")
    assert (found.answer if found else None) == answer


def test_a_hostile_hello_is_refused() -> None:
    with pytest.raises(FrameError):
        check_payload(FrameKind.HELLO, {"storage": "nvme"})
