"""A rank whose device holds its clock back is late because of its device, and of nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_run import HOOKED, MS, Fault, Job, encoded, folded, frames, on_devices

from tuiadvisor.advisor.cluster.device_clocks import DeviceClocks, device_line
from tuiadvisor.exporters.anonymize import anonymize
from tuiadvisor.stream.frames import Frame, FrameKind, decode
from tuiadvisor.views.run_view import RunView

SLOW = Fault("backward", (2,), 3 * MS)
HOT = ["thermal (hardware)", "hardware slowdown"]


def gpu(index: int, **fields: Any) -> dict[str, Any]:
    """A device in the shape of agent.nvml."""
    return {
        "index": index,
        "name": "NVIDIA H200",
        "uuid": f"GPU-5f6a-{index}",
        "is_lost": False,
        "xids": [],
        "utilization": 0.97,
        "sm_clock_mhz": 1755,
        "max_sm_clock_mhz": 1980,
        "memory_used_bytes": 60 << 30,
        "memory_total_bytes": 141 << 30,
        "power_w": 612.4,
        "power_limit_w": 700.0,
        "temperature_c": 61,
        "throttle_reasons": [],
        "pids": [100 + index],
        "parts": None,
        **fields,
    }


def run(
    job: Job, gpus: list[dict[str, Any]], *, uuids: bool = True, samples: int = 8, pid_shift: int = 0
) -> RunView:
    """The job on a device a rank, with so many samples of the devices."""
    return folded(recorded(job, gpus, uuids=uuids, samples=samples, pid_shift=pid_shift)).view()


def recorded(
    job: Job, gpus: list[dict[str, Any]], *, uuids: bool = True, samples: int = 8, pid_shift: int = 0
) -> list[Frame]:
    """The frames of that run."""
    found = []
    for frame in on_devices(frames(job)):
        shown = frame
        if frame.kind == FrameKind.HELLO:
            entries: Any = frame.payload["ranks"]
            ranks = [
                {
                    **entry,
                    "device": "cuda",
                    "pid": entry["pid"] + pid_shift,
                    "device_uuid": f"5f6a-{entry['rank']}" if uuids else None,
                }
                for entry in entries
            ]
            shown = replace(frame, payload={**frame.payload, "ranks": ranks})
        found.append(shown)
    seq = 1 + max(frame.seq for frame in found)
    for number in range(samples):
        at_ns = (2 + number) * 10**9
        payload: dict[str, object] = {
            "host": "node0",
            "mono_ns": at_ns,
            "wall_ns": at_ns,
            "gpus": gpus,
            "ranks": [],
        }
        found.append(Frame(FrameKind.HOST, "node0/1/1", seq + number, at_ns, payload))
    return found


def cause_of(view: RunView) -> dict[int, str]:
    """Cause of each named rank."""
    return {straggler.rank: straggler.cause for straggler in view.stragglers}


def one_slow_clock(**fields: Any) -> list[dict[str, Any]]:
    """Four devices, the third of them held back."""
    return [gpu(index, **(fields if index == 2 else {})) for index in range(4)]


@pytest.fixture(name="job")
def fixture_job() -> Job:
    """Four ranks, one of them 3 ms late in backward."""
    return Job(num_ranks=4, num_steps=120).with_faults(SLOW)


def test_rank_on_a_throttled_device_is_late_because_of_its_device(job: Job) -> None:
    """1300 MHz against 1755 explains 3 ms of 16: the phase alone would send people to the program."""
    view = run(job, one_slow_clock(sm_clock_mhz=1300, throttle_reasons=HOT))
    finding = next(found for found in view.findings if found.ranks == (2,))

    assert cause_of(view) == {2: "device"}
    assert "runs at 1300 MHz against 1755 (hardware slowdown, thermal (hardware))" in finding.message
    assert (finding.evidence["sm_clock_mhz"], finding.layer) == (1300, "gpu-compute")


def test_a_phase_that_no_peer_knows_is_not_asked_for_its_median(job: Job) -> None:
    """Numpy warned of an empty one, which is an error here, for an optimizer that no hook sees."""
    seen = tuple(name for name in HOOKED if name != "optimizer")
    view = run(replace(job, observed=seen), one_slow_clock(sm_clock_mhz=1300, throttle_reasons=HOT))
    assert view.step.seconds["optimizer"] is None
    assert cause_of(view) == {2: "device"}


def test_device_is_found_by_the_ranks_process_too(job: Job) -> None:
    """A probe that could not ask for the device's name: NVML's process list holds the rank."""
    view = run(job, one_slow_clock(sm_clock_mhz=1300, throttle_reasons=HOT), uuids=False)

    assert cause_of(view) == {2: "device"}


def test_process_ids_of_another_container_tell_nothing(job: Job) -> None:
    """No rank is in any list: the phase is all that is known."""
    gpus = one_slow_clock(sm_clock_mhz=1300, throttle_reasons=HOT)

    assert cause_of(run(job, gpus, uuids=False, pid_shift=5000)) == {2: "backward"}


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, "the clock is as high as its peers'"),
        ({"sm_clock_mhz": 1700, "throttle_reasons": ["power cap"]}, "3 % less clock is not 18 % more time"),
        ({"sm_clock_mhz": 1300, "throttle_reasons": []}, "nothing holds it back"),
        ({"sm_clock_mhz": 1300, "throttle_reasons": ["idle"]}, "it is idle"),
        ({"sm_clock_mhz": 1300, "throttle_reasons": None}, "it does not say why"),
        ({"sm_clock_mhz": None, "throttle_reasons": HOT}, "its clock is not known"),
    ],
)
def test_phase_stays_the_cause_where_the_clock_is_not(job: Job, fields: dict[str, Any], why: str) -> None:
    """Each of these leaves the delay where it was measured."""
    assert cause_of(run(job, one_slow_clock(**fields))) == {2: "backward"}, why


def test_late_input_is_not_blamed_on_a_slow_clock() -> None:
    """A rank that waits for data has an idle device, and a lower clock with it."""
    job = Job(num_ranks=4, num_steps=120).with_faults(Fault("data", (2,), 3 * MS))

    assert cause_of(run(job, one_slow_clock(sm_clock_mhz=1300, throttle_reasons=HOT))) == {2: "data_wait"}


def test_two_samples_are_too_few(job: Job) -> None:
    """A clock read twice is chance."""
    gpus = one_slow_clock(sm_clock_mhz=1300, throttle_reasons=HOT)

    assert cause_of(run(job, gpus, samples=2)) == {2: "backward"}


def test_rank_on_a_part_of_a_device_runs_at_the_devices_clock(job: Job) -> None:
    """MIG: the rank names its part, clock and reasons are those of the whole."""
    gpus = [
        gpu(index, uuid=f"GPU-whole-{index}", parts=[{"uuid": f"MIG-5f6a-{index}", "pids": [100 + index]}])
        for index in range(4)
    ]
    gpus[2].update(sm_clock_mhz=1300, throttle_reasons=HOT)

    assert cause_of(run(job, gpus)) == {2: "device"}


@pytest.mark.slow
def test_anonymized_recording_keeps_the_cause(job: Job) -> None:
    """Serial numbers are replaced, the rank stays on its device."""
    parts = [
        encoded(frame) for frame in recorded(job, one_slow_clock(sm_clock_mhz=1300, throttle_reasons=HOT))
    ]
    after = list(anonymize(lambda _what: iter(parts)))

    assert b"5f6a" not in b"".join(after)
    assert cause_of(folded([decode(part) for part in after]).view()) == {2: "device"}


def test_line_of_a_device_says_what_matters_first() -> None:
    """Busy, clock, power, temperature, memory, reasons, errors; what is not known is left off."""
    assert device_line(gpu(0, throttle_reasons=["power cap"], xids=[79], ecc_uncorrected=2)) == (
        "0 NVIDIA H200 · 97% busy · 1755 of 1980 MHz · 612 of 700 W · 61 C · 60 of 141 GiB · power cap · "
        "2 uncorrected ECC errors · XID 79"
    )
    assert device_line({"index": 1, "name": "Tesla", "is_lost": True}) == "1 Tesla · LOST: fell off the bus"


KEYS = ("uuid", "pids", "parts", "throttle_reasons", "sm_clock_mhz", "xids", "name")
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner),
    max_leaves=12,
)


@pytest.mark.slow
@given(st.lists(_JSON, max_size=4), st.integers(0, 1 << 62))
def test_devices_of_a_stranger_never_raise(gpus: list[Any], now_ns: int) -> None:
    """Any JSON in the place of a device."""
    clocks = DeviceClocks()
    clocks.take("node0", {"mono_ns": now_ns, "gpus": gpus})
    lines = [device_line(entry) for entry in gpus if isinstance(entry, dict)]

    assert all(len(line) <= 200 for line in lines)
    assert clocks.clocks([("node0", 1, "x"), ("node0", None, None)], 10.0) == [None, None]
