"""Python's module `time` for a module under test: it passes where somebody sleeps, or as a test moves it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

NS: Final = 10**9


class FakeTime:
    """All its clocks are one. `after`: what happens on the way."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self.now_ns = round(now_s * NS)
        self._due: list[tuple[int, Callable[[], object]]] = []

    @property
    def now_s(self) -> float:
        """Seconds."""
        return self.now_ns / NS

    def monotonic_ns(self) -> int:
        """As `time.monotonic_ns`."""
        return self.now_ns

    def monotonic(self) -> float:
        """As `time.monotonic`."""
        return self.now_s

    time, time_ns, thread_time_ns = monotonic, monotonic_ns, monotonic_ns

    def strftime(self, _: str) -> str:
        """Some text that is another one each second."""
        return f"at-{self.now_s:.0f}"

    def sleep(self, seconds: float) -> None:
        """So much later; what is due by then has happened."""
        self.now_ns += round(seconds * NS)
        for one in [one for one in self._due if one[0] <= self.now_ns]:
            self._due.remove(one)
            one[1]()

    def after(self, seconds: float, do: Callable[[], object]) -> None:
        """Let something happen then."""
        self._due.append((self.now_ns + round(seconds * NS), do))
