"""NVML that is there and shows no device: which refusal it is, and what to do, in one line; all else is unknown."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pynvml
import pytest
from synthetic_run import Job, folded, hello

from tuiadvisor.advisor.cluster.host_rows import host_row
from tuiadvisor.advisor.cluster.host_use import HostUse
from tuiadvisor.agent import no_devices
from tuiadvisor.agent.gpu import GpuSampler, find_reader
from tuiadvisor.agent.hello import hello as introduction
from tuiadvisor.cli import doctor
from tuiadvisor.exporters.anonymize import _hello as anonymous
from tuiadvisor.exporters.pseudonyms import Names
from tuiadvisor.report.document import document
from tuiadvisor.tui.pages import sections
from tuiadvisor.views.devices import NO_DEVICE, WHY_NONE, why_no_device

MACHINE, CONTAINER, BARE = (
    "a driver and its files",
    "a driver without device files",
    "a card without a driver",
)
OF_CPUS = "no card"


class Refusing(ModuleType):
    """nvidia-ml-py with its own exceptions, on a driver that answers like this."""

    def __init__(self, error: int | None, at: str = "nvmlInit") -> None:
        super().__init__("pynvml")
        for name in dir(pynvml):
            if name.startswith(("NVML_", "NVMLError")):
                setattr(self, name, getattr(pynvml, name))
        self.error, self.at = error, at

    def _answers(self, name: str) -> int:
        if self.error is not None and name == self.at:
            raise pynvml.NVMLError(self.error)
        return 0

    def nvmlInit(self) -> None:  # noqa: N802
        self._answers("nvmlInit")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return self._answers("nvmlDeviceGetCount")


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """On such a machine, with such a library."""

    def put(machine: str, nvml: ModuleType) -> None:
        driver, devices = tmp_path / "driver", tmp_path / "devices"
        for path, is_there in ((driver, machine in {MACHINE, CONTAINER}), (devices, machine == MACHINE)):
            if is_there:
                path.touch()
        for number, vendor in enumerate(("0x8086", "0x1af4" if machine == OF_CPUS else "0x10de")):
            card = tmp_path / "cards" / str(number)
            card.mkdir(parents=True)
            (card / "class").write_text("0x030200\n")
            (card / "vendor").write_text(f"{vendor}\n")
        (tmp_path / "cards" / "gone").mkdir()
        monkeypatch.setattr(no_devices, "CARDS", tmp_path / "cards")
        monkeypatch.setattr(no_devices, "DRIVER_FILES", (driver,))
        monkeypatch.setattr(no_devices, "DEVICE_FILES", devices)
        monkeypatch.setitem(sys.modules, "pynvml", nvml)
        monkeypatch.setattr("tuiadvisor.agent.gpu.load_amdsmi", lambda: None)

    return put


REFUSALS = [
    (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, MACHINE, "version mismatch"),
    (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, MACHINE, "old driver"),
    (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, BARE, "not loaded"),
    (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, OF_CPUS, ""),
    (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, CONTAINER, "no device files"),
    (pynvml.NVML_ERROR_NO_PERMISSION, MACHINE, "no permission"),
    (pynvml.NVML_ERROR_NO_PERMISSION, CONTAINER, "no device files"),
    (pynvml.NVML_ERROR_UNKNOWN, MACHINE, "refused"),
    (pynvml.NVML_ERROR_UNKNOWN, CONTAINER, "no device files"),
    (pynvml.NVML_ERROR_GPU_IS_LOST, MACHINE, "lost"),
    (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, CONTAINER, "no library"),
    (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, BARE, ""),
    (pynvml.NVML_ERROR_MEMORY, MACHINE, "failed"),
    (4711, MACHINE, "failed"),  # of an NVML that is newer than its Python library
    (None, MACHINE, "none given"),
]


@pytest.mark.parametrize(("error", "machine", "reason"), REFUSALS)
@pytest.mark.parametrize("at", ["nvmlInit", "nvmlDeviceGetCount"])
def test_each_refusal_has_its_line(on: Any, error: int | None, machine: str, reason: str, at: str) -> None:
    """All read "no device", as on a machine that never had one."""
    on(machine, Refusing(error, at))
    assert find_reader() == (None, reason)
    found = doctor.look_at_gpus()
    assert found.state == "limited"
    assert "\n" not in found.found + found.remedy
    if reason:
        assert f"no device: {WHY_NONE[reason][0]}" == found.found
        assert found.remedy.startswith(WHY_NONE[reason][1])
    else:
        assert found.found == "no device through NVML or AMD SMI"
    assert "unknown on this machine" in found.remedy


def test_the_reason_goes_with_the_agents_introduction_to_the_hosts_row(on: Any) -> None:
    """And stays there, also in a recording without names, until a device is seen; what is no reason says nothing."""
    on(MACHINE, Refusing(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH))
    sampler = GpuSampler()
    sampler.start()
    deadline_s = time.monotonic() + 10
    while not sampler.why_none and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert ([], []) == (sampler.latest(), sampler.names())
    payload = introduction("node0", [], (sampler.names(), sampler.driver, sampler.why_none))
    row = host_row("node0", payload, None, HostUse())
    assert row.no_gpus == why_no_device("version mismatch") != ""
    assert row.gpus == ()
    assert row.no_gpus == host_row("node0", {"gpus": [], "cpu": 0.5}, row, HostUse()).no_gpus
    assert "version mismatch" == anonymous(payload, Names(hosts={"node0": "node0"}))["why_no_gpus"]
    told = {**payload, "why_no_gpus": "/home/somebody"}
    assert anonymous(told, Names(hosts={"node0": "node0"}))["why_no_gpus"] is None
    assert host_row("node0", told, None, HostUse()).no_gpus == ""


def test_the_ranks_rows_of_the_document_say_it() -> None:
    """A script that reads `devices` alone learned "no device that was seen", as of a machine that has none."""
    job = Job(num_ranks=4, ranks_per_host=2)
    refused = hello(job, "node0")
    refused = replace(refused, payload={**refused.payload, "why_no_gpus": "no permission"})
    rows: Any = document(folded([refused, hello(job, "node1")]).view())["devices"]["per_rank"]
    told = why_no_device("no permission")
    assert [told, told, NO_DEVICE, NO_DEVICE] == [row["why"] for row in rows]


@pytest.mark.parametrize("width", [60, 160])
def test_the_hosts_lines_say_it_whole(width: int) -> None:
    """In the place of the devices' lines: what is so and what to do."""
    frame = hello(Job(), "node0")
    row = host_row("node0", {**frame.payload, "why_no_gpus": "no device files"}, None, HostUse())
    shown = sections.hosts(SimpleNamespace(hosts=(row,)), width, 10)  # type: ignore[arg-type]
    text = " ".join(one.text.strip() for one in shown)
    assert why_no_device("no device files") in text


class Parted:
    """A reader of two devices, the second in MIG mode."""

    def driver(self) -> str:
        return "550.54.15"

    def sample(self) -> list[dict[str, Any]]:
        return [{"name": "NVIDIA H100", "parts": None}, {"name": "NVIDIA H100", "parts": [{"index": 0}]}]


def test_parts_of_a_device_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """What MIG leaves unknown is no fault to be looked for."""
    monkeypatch.setattr(doctor, "find_reader", lambda: (Parted(), ""))
    found = doctor.look_at_gpus()
    assert found.found == "2 x NVIDIA H100, driver 550.54.15; 1 of 2 in MIG mode"
    assert "unknown" in found.remedy
