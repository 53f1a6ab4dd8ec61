"""Counters of devices and links: NVML's GPM in its true types, and what a recording says of each rank's device."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import pynvml
import pytest
from synthetic_run import Fault, Job, folded
from test_advisor_deviceclocks import recorded

from tuiadvisor.advisor.cluster.device_clocks import DeviceClocks
from tuiadvisor.advisor.cluster.device_counters import DeviceCounters
from tuiadvisor.agent.gpm import METRICS, UNKNOWN, GpmReader
from tuiadvisor.report.document import document

JOB = Job(num_ranks=2, num_steps=300)
HELD = ["power cap"]


class FakeGpm(ModuleType):
    """GPM as nvidia-ml-py gives it: samples are filled, metrics are asked of two of them."""

    def __init__(self, *, supported: bool = True) -> None:
        super().__init__("pynvml")
        for name in dir(pynvml):
            if name.startswith(("NVML_", "NVMLError", "c_nvmlGpm")):
                setattr(self, name, getattr(pynvml, name))
        self.supported, self.values, self.failing = supported, {2: 63.0, 5: 41.5, 10: 22.0}, False
        self.taken: list[Any] = []

    def nvmlGpmQueryDeviceSupport(self, _handle: int) -> Any:  # noqa: N802  # NVML's own names, here and below
        return SimpleNamespace(isSupportedDevice=int(self.supported))

    def nvmlGpmSampleAlloc(self) -> Any:  # noqa: N802
        return pynvml.c_nvmlGpmSample_t(pynvml.struct_c_nvmlGpmSample_t())

    def nvmlGpmSampleGet(self, _handle: int, sample: Any) -> Any:  # noqa: N802
        if self.failing:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)
        self.taken.append(sample)
        return sample

    def nvmlGpmMetricsGet(self, asked: Any) -> Any:  # noqa: N802
        assert asked.version == pynvml.NVML_GPM_METRICS_GET_VERSION
        for metric in list(asked.metrics)[: asked.numMetrics]:
            metric.nvmlReturn = (
                pynvml.NVML_SUCCESS if metric.metricId in self.values else pynvml.NVML_ERROR_NOT_SUPPORTED
            )
            metric.value = self.values.get(metric.metricId, 0.0)
        return asked


def test_the_metrics_are_those_that_nvml_names() -> None:
    assert [2, 5, 10] == [getattr(pynvml, name) for name in METRICS.values()]


def test_shares_are_of_the_time_between_two_samples() -> None:
    """The first is of no time; a failure in between begins anew."""
    nvml = FakeGpm()
    reader = GpmReader(nvml)
    assert UNKNOWN == reader.read(0, 0)
    assert {"sm_active": 0.63, "tensor_active": 0.415, "dram_active": 0.22} == reader.read(0, 0)
    nvml.failing = True
    assert UNKNOWN == reader.read(0, 0)
    nvml.failing = False
    assert UNKNOWN == reader.read(0, 0)
    assert reader.read(0, 0)["sm_active"] == 0.63


@pytest.mark.parametrize("value", [float("nan"), -1.0, 101.0])
def test_a_share_that_cannot_be_is_unknown(value: float) -> None:
    nvml = FakeGpm()
    nvml.values[2] = value
    reader = GpmReader(nvml)
    reader.read(0, 0)
    found = reader.read(0, 0)
    assert (found["sm_active"], found["tensor_active"]) == (None, 0.415)


def test_a_metric_that_is_not_supported_is_unknown() -> None:
    nvml = FakeGpm()
    del nvml.values[5]
    reader = GpmReader(nvml)
    reader.read(0, 0)
    assert {"sm_active": 0.63, "tensor_active": None, "dram_active": 0.22} == reader.read(0, 0)


@pytest.mark.parametrize("nvml", [FakeGpm(supported=False), ModuleType("old")], ids=["device", "library"])
def test_without_these_counters_nothing_is_said(nvml: Any) -> None:
    """An older device, an older library: unknown, and no sample is taken."""
    nvml.NVMLError = pynvml.NVMLError
    reader = GpmReader(nvml)
    assert [UNKNOWN] * 3 == [reader.read(0, 0) for _ in range(3)]
    assert [] == getattr(nvml, "taken", [])


def gpu(rank: int, **more: object) -> dict[str, Any]:
    return {
        "uuid": f"GPU-5f6a-{rank}",
        "pids": [100 + rank],
        "sm_clock_mhz": 1500,
        "throttle_reasons": HELD if rank else ["idle"],
        "utilization": 0.99,
        **more,
    }


def told(gpus: list[dict[str, Any]], job: Job = JOB) -> Any:
    return document(folded(recorded(job, gpus)).view())


def test_each_rank_has_its_devices_counters() -> None:
    """Rank 1's was held back in all of seven seconds, rank 0's was idle now and then; eight samples, one a second."""
    units = {"sm_active": 0.5, "tensor_active": 0.25, "dram_active": 0.125}
    traffic = {"pcie_sent_bytes_s": 1e9, "pcie_received_bytes_s": 2e9, "nvlink_sent_bytes_s": 3e9}
    found = told([gpu(0, **units, **traffic), gpu(1)])
    first, second = found["devices"]["per_rank"]
    assert units.items() <= first.items()
    assert (1500, 0.0, "") == (first["clock_mhz"], first["throttle_s"], first["why"])
    assert second["sm_active"] is None
    assert second["utilization"] == pytest.approx(0.99)
    assert second["throttle_s"] == pytest.approx(second["watched_s"])
    assert second["throttle_s"] > 1
    assert "GPM" in second["why"]
    links = {(link["kind"], link["rank"]): link for link in found["links"]}
    assert 3e9 == links["pcie", 0]["bytes_s"]
    assert links["nvlink", 0]["bytes_s"] is None  # one way of it was not told
    assert links["pcie", 1]["why"]


@pytest.mark.parametrize(
    "odd",
    [
        {"sm_active": 7.0, "sm_clock_mhz": -5, "throttle_reasons": "no"},
        {"sm_active": "x", "sm_clock_mhz": None, "throttle_reasons": None, "pcie_sent_bytes_s": 1e300},
    ],
)
def test_numbers_that_cannot_be_are_unknown(odd: dict[str, object]) -> None:
    row = told([gpu(0, **odd), gpu(1)])["devices"]["per_rank"][0]
    assert (None, None, None) == (row["sm_active"], row["clock_mhz"], row["throttle_s"])
    assert row["why"]


def test_without_a_device_each_rank_says_so() -> None:
    found = told([])
    assert [0, 1] == [row["rank"] for row in found["devices"]["per_rank"]]
    assert all(row["sm_active"] is None and "no device" in row["why"] for row in found["devices"]["per_rank"])
    assert not [link for link in found["links"] if link["rank"] is not None]


@pytest.mark.parametrize(
    ("utilization", "waits_s", "sm_active", "is_found"),
    [
        (0.99, 0.02, None, True),  # most of the step is a collective
        (0.99, 0.0, 0.3, True),  # kernels that use few units
        (0.99, 0.0, 0.9, False),
        (0.5, 0.02, None, False),  # nobody takes such a device for busy
        (None, 0.02, None, False),
    ],
)
def test_high_utilization_with_little_useful_work_is_a_finding(
    utilization: float | None, waits_s: float, sm_active: float | None, is_found: bool
) -> None:
    job = JOB.with_faults(Fault("comm", None, waits_s))
    more = {"utilization": utilization, "sm_active": sm_active}
    found = told([gpu(0, **more), gpu(1, **more)], job)["findings"]
    mine = [one for one in found if one["id"] == "busy_not_useful"]
    assert bool(mine) == is_found
    for one in mine:
        assert one["severity"] == "info"
        assert ("multiprocessors work 30 %" in one["message"]) == (sm_active is not None)


def counted(rank: int, at: int, **more: object) -> dict[str, Any]:
    """Rank 1's device was held back for 0.2 s of each second, and never in the moment of a sample."""
    errors = {"pcie_replays": 100 + 2 * at, "nvlink_replays": at, "nvlink_crc_errors": 7}
    rows = {"remapped_rows_corrected": 2, "remapped_rows_uncorrected": 1, "row_remap_pending": 1}
    held = {"held_power_s": 50 + 0.2 * at * rank, "held_heat_s": 3.0, "held_power_brake_s": None}
    return gpu(0, **held, **errors, **rows, **more) | {"uuid": f"GPU-5f6a-{rank}", "pids": [100 + rank]}


def grown() -> DeviceCounters:
    found = DeviceCounters()
    for at in range(11):
        gpus = [counted(rank, at) for rank in range(2)]
        nics = [{"name": "mlx5_0:1", "kind": "infiniband", "new_errors": at or None}]
        found.take("node0", {"mono_ns": (100 + at) * 10**9, "gpus": gpus, "nics": nics})
    return found


def test_the_devices_own_count_of_time_held_back_misses_nothing_between_samples() -> None:
    """Ten seconds watched: two of them held back, in no sample; errors are those of that time, rows of its life."""
    first, second = grown().of_ranks([(0, "node0", "5f6a-0"), (1, "node0", "5f6a-1")])

    assert (0.0, 10.0) == (first.throttle_s, first.watched_s)
    assert second.throttle_s == pytest.approx(2.0)
    assert (20, 10, 3, True) == (
        second.pcie_replays,
        second.nvlink_errors,
        second.remapped_rows,
        second.row_remap_pending,
    )


def test_errors_of_a_card_are_those_while_it_was_watched() -> None:
    (card,) = [link for link in grown().links([]) if link.kind == "infiniband"]

    assert card.errors == sum(range(1, 11))


def test_a_reason_that_was_over_before_the_sample_is_a_reason() -> None:
    """The second witness of a slow device: 1 s a sample, held back for 0.2 of each."""
    clocks = DeviceClocks()
    for at in range(11):
        clocks.take(
            "node0", {"mono_ns": (100 + at) * 10**9, "gpus": [counted(rank, at) for rank in range(2)]}
        )
    well, held = clocks.clocks([("node0", 100, "5f6a-0"), ("node0", 101, "5f6a-1")], 10.0)

    assert well is not None
    assert held is not None
    assert (0.0, ()) == (well.held_back_share, well.reasons)
    assert (("power cap",), True) == (held.reasons, held.held_back_share > 0.9)


def test_counters_that_go_back_were_reset_and_unknown_ones_stay_so() -> None:
    found = DeviceCounters()
    for at, replays in enumerate((9, 12, 1, 2)):
        entry = gpu(0, pcie_replays=replays, nvlink_replays=None)
        found.take("node0", {"mono_ns": (100 + at) * 10**9, "gpus": [entry]})
    (row,) = found.of_ranks([(0, "node0", "5f6a-0")])

    assert (4, None, None, None) == (
        row.pcie_replays,
        row.nvlink_errors,
        row.remapped_rows,
        row.row_remap_pending,
    )


def test_a_mig_part_has_the_clock_of_its_device_and_no_utilization() -> None:
    """Its rank computes on a device that was seen; whose units worked is not told."""
    found = DeviceCounters()
    parts = [{"uuid": "MIG-aa-1", "pids": [100]}, {"uuid": "", "pids": []}]
    for at in range(4):
        entry = counted(0, at, sm_active=0.9, parts=parts)
        found.take("node0", {"mono_ns": (100 + at) * 10**9, "gpus": [entry]})
    (row,) = found.of_ranks([(0, "node0", "aa-1")])

    assert (1500, 0.0, 6) == (row.clock_mhz, row.throttle_s, row.pcie_replays)
    assert (None, None) == (row.utilization, row.sm_active)
    assert "MIG" in row.why
