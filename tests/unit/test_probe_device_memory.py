"""The allocator's books: peak and retries, asked seldom, from a dictionary of the shape that torch gives."""

from __future__ import annotations

from typing import Any

import pytest

from tuiadvisor.events import UNKNOWN, EventKind
from tuiadvisor_probes import device_memory
from tuiadvisor_probes.device_memory import PERIOD_NS, DeviceMemory
from tuiadvisor_probes.guard import Hook

MIB = 1 << 20


def books(peak: int, num_retries: int) -> dict[str, Any]:
    """As `torch._C._cuda_memoryStats` of torch 2.4 to 2.13 answers, counters of two pools left out."""

    def pools(current: int, peak: int) -> dict[str, dict[str, int]]:
        counts = {"current": current, "peak": peak, "allocated": 9 * peak, "freed": 9 * peak - current}
        return {"all": counts, "small_pool": dict(counts), "large_pool": dict(counts)}

    return {
        "num_alloc_retries": num_retries,
        "num_ooms": 0,
        "max_split_size": -1,
        "allocation": pools(12, 40),
        "allocated_bytes": pools(peak // 2, peak),
        "reserved_bytes": pools(2 * peak, 2 * peak),
    }


class Allocator:
    """Books that change, and the events that came of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.books: Any = books(100 * MIB, 3)
        self.num_asked = 0
        self.cost_ns = 0
        self.now = 0
        self.events: list[tuple[int, tuple[int, ...]]] = []
        self.hook = Hook("device_memory", 0, lambda _: None)
        self.memory = DeviceMemory(self.hook, lambda *event: self.events.append(event), self.ask)
        monkeypatch.setattr(device_memory, "monotonic_ns", lambda: self.now + self.cost_ns)

    def ask(self) -> Any:
        """Torch's function."""
        self.num_asked += 1
        return self.books

    def after(self, seconds: float, step: int) -> int:
        """The answer after a step that ends then."""
        self.now = int(seconds * 1e9)
        return self.memory.peak_bytes(step, self.now)


@pytest.fixture
def allocator(monkeypatch: pytest.MonkeyPatch) -> Allocator:
    """One device."""
    return Allocator(monkeypatch)


def test_peak_is_asked_once_a_second(allocator: Allocator) -> None:
    """100 steps of 20 ms: two or three questions; between them unknown, not the old figure."""
    peaks = [allocator.after(10 + 0.02 * step, step) for step in range(100)]
    assert allocator.num_asked == 2
    assert {UNKNOWN, 100 * MIB} == set(peaks)


def test_new_retries_are_an_event_and_old_ones_are_not(allocator: Allocator) -> None:
    """Three before the probe came; two more between two questions: one event that says so and when."""
    allocator.after(10, 500)
    assert [] == allocator.events
    allocator.books = books(120 * MIB, 5)
    assert 120 * MIB == allocator.after(11.5, 575)
    ((kind, slots),) = allocator.events
    assert EventKind.ALLOC_RETRY == kind
    assert (575, 10 * 10**9, int(11.5e9), UNKNOWN, UNKNOWN, UNKNOWN, 2) == slots
    allocator.after(13, 600)
    assert 1 == len(allocator.events)


def test_dear_books_are_asked_less_often(allocator: Allocator) -> None:
    """A question of 2 ms comes every four seconds: at most 0.05 % of the time."""
    allocator.cost_ns = 2_000_000
    peaks = [allocator.after(second, second) for second in range(10, 22)]
    assert 3 == sum(peak != UNKNOWN for peak in peaks)
    assert PERIOD_NS == 10**9


@pytest.mark.parametrize("strange", [{}, None, books(100, 3) | {"num_alloc_retries": "none"}])
def test_books_of_another_shape_switch_it_off(allocator: Allocator, strange: Any) -> None:
    """Unknown from then on, never asked again, nothing raised."""
    allocator.books = strange
    assert [UNKNOWN] * 3 == [allocator.after(second, second) for second in (10, 12, 14)]
    assert not allocator.hook.active
    assert 1 == allocator.num_asked
