"""Memory that fills is told with the time that is left; what settles, jumps or saws is not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from synthetic_run import MS, Fault, Job, above_info, folded, frames

from tuiadvisor.advisor.cluster.memory import MAX_SAMPLES, MemoryUse, Series
from tuiadvisor.causes.facts import duration
from tuiadvisor.metrics.series.memory_growth import find_creep
from tuiadvisor.stream.frames import Frame, FrameKind
from tuiadvisor.views.run_view import RunView

GIB = 1 << 30
JOB = Job(num_ranks=2, num_steps=60)


def host_frames(
    memory: Callable[[float], float],
    rss: dict[int, float] | None = None,
    gpu: float = 0.0,
    seconds: int = 420,
) -> list[Frame]:
    """HOST frames once a second; rss: bytes a second by which each rank's process grows; gpu: share a second."""
    result = []
    for second in range(seconds):
        now_ns = (1 + second) * 10**9
        payload: dict[str, object] = {
            "host": "node0",
            "mono_ns": now_ns,
            "wall_ns": 1_700_000_000_000_000_000 + now_ns,
            "memory": memory(second),
            "memory_total_bytes": 100 * GIB,
            "ranks": [{"rank": rank, "rss_bytes": GIB + pace * second} for rank, pace in (rss or {}).items()],
            "gpus": [
                {"index": 3, "uuid": "GPU-3", "memory_used_bytes": int((0.5 + gpu * second) * 80 * GIB),
                 "memory_total_bytes": 80 * GIB}
            ],
        }  # fmt: skip
        result.append(Frame(FrameKind.HOST, "node0/1/1", 100 + second, now_ns, payload))
    return result


def view(found: list[Frame]) -> RunView:
    """Of a healthy job on that host."""
    return folded([*frames(JOB), *found]).view()


def test_memory_that_fills_is_told_with_its_owner_and_the_time_that_is_left() -> None:
    """From 60 % on by 0.05 % a second: 20 % are left after 420 s, for 380 s."""
    shown = view(host_frames(lambda second: 0.6 + 0.0005 * second, {0: 1e3, 1: 53.7e6}))
    assert [("memory_creep", (), None)] == above_info(shown)
    (finding,) = [entry for entry in shown.findings if entry.id == "memory_creep"]
    assert "critical" == finding.severity
    assert (
        "node0 is 81 % full and the process of rank 1 grows by 3 % a minute: at that pace it is full in 6 min"
        in finding.message
    )
    assert 381 == pytest.approx(finding.evidence["memory_left_s"], rel=0.02)
    assert "tune" == shown.verdict.decision


def test_a_device_that_fills_is_named_without_a_rank() -> None:
    """The device's memory, not the host's, is full first."""
    shown = view(host_frames(lambda _: 0.4, {0: 1e3, 1: 1e7}, gpu=1e-4))
    (finding,) = [entry for entry in shown.findings if entry.id == "memory_creep"]
    assert "GPU 3 on node0 is 54 % full" in finding.message
    assert "rank" not in finding.message
    assert "warning" == finding.severity


@pytest.mark.parametrize(
    "memory",
    [
        lambda _: 0.5,
        lambda second: 0.5 - 0.0005 * second,
        lambda second: 0.3 + 0.3 * (second > 200),  # one large allocation
        lambda second: 0.3 + 0.3 * (1 - np.exp(-second / 60)),  # a cache that has filled
        lambda second: 0.5 + 0.1 * (second % 50) / 50,  # collected again and again
        lambda second: 0.5 + 0.004 * np.sin(second),
        lambda _: 7.0,
    ],
)
def test_what_does_not_grow_for_good_is_no_finding(memory: Callable[[float], float]) -> None:
    """Healthy runs settle, jump once, saw."""
    shown = view(host_frames(memory))
    assert "memory_creep" not in {entry.id for entry in shown.findings}
    assert "keep" == shown.verdict.decision


def test_a_rank_that_grows_is_found_beside_others_that_come_and_go() -> None:
    """The host's memory saws with other people's work; the process of the rank does not."""
    shown = view(host_frames(lambda second: 0.5 + 0.1 * (second % 50) / 50, {0: 1e3, 1: 10.7e6}))
    (finding,) = [entry for entry in shown.findings if entry.id == "memory_creep"]
    assert "the process of rank 1 grows by 0.6 % a minute" in finding.message


def test_what_else_grows_on_the_host_is_no_change_of_the_training() -> None:
    """Others' work for some minutes was critical, and "keep numbers, not tensors"; what is soon full is still said."""
    shown = view(host_frames(lambda second: 0.6 + 0.0005 * second, {0: 1e3, 1: 1e3}))
    (finding,) = [entry for entry in shown.findings if entry.id == "memory_creep"]
    assert "warning" == finding.severity
    assert (
        "outside the ranks' own processes (other processes, loader workers or files in /dev/shm)"
        in finding.message
    )
    assert "Something else on the host fills its memory" == finding.title
    assert not any("loss.item" in action.text for action in finding.actions)


@pytest.mark.parametrize("rss", [None, {0: 1e3, 1: 1e3}])
def test_what_else_grows_slowly_is_not_told(rss: dict[int, float] | None) -> None:
    """From 50 % on by 0.3 % a minute it would be full in two hours, if others never ended."""
    shown = view(host_frames(lambda second: 0.5 + 0.00005 * second, rss))
    assert "memory_creep" not in {entry.id for entry in shown.findings}


def test_ranks_that_grow_a_little_each_fill_it_together() -> None:
    """Eight of them by 0.1 % a minute each: none grows enough to be named."""
    shown = view(host_frames(lambda second: 0.5 + 0.00014 * second, dict.fromkeys(range(8), 1.9e6)))
    (finding,) = [entry for entry in shown.findings if entry.id == "memory_creep"]
    assert "the ranks' processes together grow by 0.84 % a minute: at that pace" in finding.message
    assert any("loss.item" in action.text for action in finding.actions)


def test_a_leak_of_the_training_goes_before_what_others_do() -> None:
    """A device fills in hours, the host's memory by others' work in minutes: the former is to be mended here."""
    shown = view(host_frames(lambda second: 0.6 + 0.0005 * second, {0: 1e3, 1: 1e3}, gpu=1e-4))
    (finding,) = [entry for entry in shown.findings if entry.id == "memory_creep"]
    assert "GPU 3" in finding.message


def test_a_critical_leak_goes_before_a_slow_rank() -> None:
    """What ends the run is said beside what slows it."""
    job = JOB.with_faults(Fault("forward", (1,), 8 * MS))
    shown = folded([*frames(job), *host_frames(lambda second: 0.6 + 0.0005 * second, {0: 53.7e6})]).view()
    assert {"straggler", "memory_creep"} == {entry[0] for entry in above_info(shown)}


def test_a_long_run_is_held_in_bounded_memory() -> None:
    """Ever coarser, from the first sample to the last; a clock that runs backwards begins anew."""
    series = Series()
    for second in range(100_000):
        series.add(second * 10**9 + 1, 0.1 + second * 8e-6)
    creep = series.creep()
    assert creep is not None
    assert 8e-6 == pytest.approx(creep.per_s, rel=1e-3)
    assert creep.span_s > 70_000
    assert MAX_SAMPLES >= len(series._times) > MAX_SAMPLES // 3
    series.add(5, 0.5)
    assert series.creep() is None


def test_outside_data_is_ignored() -> None:
    """Shares above 1, more used than there is, texts for numbers."""
    use = MemoryUse()
    for second in range(200):
        gpus = [{"index": 0, "uuid": "a", "memory_used_bytes": 9 + second, "memory_total_bytes": 4}, "x"]
        ranks = [{"rank": "one", "rss_bytes": 7}, {"rank": 1, "rss_bytes": None}]
        sample: dict[str, object] = {
            "mono_ns": second * 10**9,
            "memory": 2 + second,
            "memory_total_bytes": "7",
        }
        use.take("h", {**sample, "gpus": gpus, "ranks": ranks})
    assert use.filling() is None


def test_too_little_is_no_trend() -> None:
    """Neither a dozen samples nor half a minute."""
    times = np.arange(15, dtype=np.float64)
    assert find_creep(10 * times, 0.1 + 0.01 * times) is None
    times = np.arange(45, dtype=np.float64)
    assert find_creep(times, 0.1 + 0.01 * times) is None


@pytest.mark.parametrize(
    ("seconds", "words"), [(40, "40 s"), (1000, "17 min"), (20_000, "6 h"), (300_000, "3 days")]
)
def test_durations_are_round(seconds: float, words: str) -> None:
    """Nobody needs the seconds of a day."""
    assert words == duration(seconds)
