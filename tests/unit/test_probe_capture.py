"""A window of the profiler within a rank, border by border, on a torch that only notes what is done to it."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread, get_ident
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar, Self

import pytest

from tuiadvisor_probes import capture
from tuiadvisor_probes.capture import BORDERS_BEFORE, DONE, FLAG_CAPTURE, HOST_PROFILES, LEFT, REFUSED

NUM_STEPS = 3


class Range:
    """torch.autograd.profiler.record_function."""

    open: ClassVar[list[str]] = []
    all: ClassVar[list[str]] = []

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> Self:
        Range.open.append(self.name)
        Range.all.append(self.name)
        return self

    def __exit__(self, *_: object) -> None:
        Range.open.remove(self.name)


class Profile:
    """torch.autograd.profiler.profile."""

    def __init__(self, record_shapes: bool = False) -> None:
        self.shapes = record_shapes
        self.kineto_activities = {"CPU"}

    def _prepare_trace(self) -> None:
        """Nothing to prepare."""

    def _start_trace(self) -> None:
        """Nor to start, but for what is said to happen then."""
        self.started()

    def started(self) -> None:
        """Nothing happens."""


class Torch:
    """What the window asks of torch, and the rank it is in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.did: list[str] = []
        self.metadata: dict[str, Any] = {}
        self.has_cuda = self.is_profiled = False
        self.fails: Exception | None = None
        self.autograd = ModuleType("torch.autograd.profiler")
        self.autograd.__dict__.update(
            profile=self.profile,
            ProfilerActivity=SimpleNamespace(CUDA="CUDA"),
            _supported_activities=lambda: {"CPU", "CUDA"},
            record_function=Range,
            _prepare_profiler=lambda: self.did.append("host prepares"),
            _enable_profiler=lambda: self.did.append("host enables"),
            _disable_profiler=self.disabled,
            _run_on_profiler_stop=lambda: self.did.append("stopped"),
            _is_profiler_enabled=False,
        )
        self.profiles: list[Profile] = []
        inner = SimpleNamespace(
            _profiler_enabled=lambda: self.is_profiled,
            _add_metadata_json=lambda name, text: self.metadata.__setitem__(name, json.loads(text)),
        )
        self.torch = SimpleNamespace(
            cuda=SimpleNamespace(
                is_initialized=lambda: self.has_cuda, synchronize=lambda: self.did.append("sync")
            ),
            _C=SimpleNamespace(_autograd=inner),
            get_num_threads=lambda: 8,
        )
        self.clock = SimpleNamespace(
            on_step=lambda: self.did.append("step"), max_kept=8, step=40, flags=0,
            own=[get_ident()], thread_ident=get_ident(),
        )  # fmt: skip
        self.probe = SimpleNamespace(clock=self.clock, registrations=[], registration=self.register)

    def register(self, handle: object) -> None:
        self.probe.registrations.append(handle)

    def profile(self, record_shapes: bool = False) -> Profile:
        if self.fails is not None:
            raise self.fails
        self.profiles.append(Profile(record_shapes))
        return self.profiles[-1]

    def disabled(self) -> Any:
        self.did.append("disabled")
        return SimpleNamespace(save=lambda path: Path(path).write_text("trace"))

    def borders(self, num: int) -> None:
        """Steps that end."""
        for _ in range(num):
            self.clock.on_step()
            self.clock.step += 1

    def said(self) -> dict[str, Any]:
        """The state of the window."""
        return dict(json.loads((self.folder / "state.json").read_text()))


@pytest.fixture
def torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Torch]:
    made = Torch(tmp_path)
    monkeypatch.setitem(sys.modules, "torch", made.torch)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "torch.autograd.profiler", made.autograd)
    monkeypatch.setitem(sys.modules, "tuiadvisor_probes.install", SimpleNamespace(_probe=made.probe))  # type: ignore[arg-type]
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)
    monkeypatch.setitem(sys.modules, capture.__name__, capture)  # a window that is over takes it out
    monkeypatch.setattr(capture, "_window", None)
    monkeypatch.setattr(capture.compiled, "is_in_use", lambda: False)
    Range.open, Range.all = [], []
    yield made
    assert [] == Range.open


def begun(torch: Torch, give_up_ns: int = 1 << 62, **more: Any) -> None:
    """A wish of its own each time."""
    (Path(torch.folder) / capture.ASKED_NAME).unlink(missing_ok=True)
    capture.begin(str(torch.folder), NUM_STEPS, (0, give_up_ns), **more)


def is_out(torch: Torch) -> bool:
    """Whether nothing of the window is left in the rank."""
    return (
        not torch.probe.registrations
        and capture._window is None
        and torch.clock.on_step.__name__ == "<lambda>"
    )


def test_so_many_whole_steps_are_recorded_between_borders(torch: Torch) -> None:
    """After one without the profiler to compare with; each has its name in the trace, and the ring's mark."""
    begun(torch, with_shapes=True)
    assert "waiting" == torch.said()["state"]
    torch.borders(BORDERS_BEFORE)
    assert ("recording", True, [], 1) == (
        torch.said()["state"],
        torch.profiles[0].shapes,
        torch.did[2:],
        torch.clock.max_kept,
    )
    torch.borders(NUM_STEPS)
    said = torch.said()
    assert (DONE, "", 41, NUM_STEPS, 1) == (
        said["state"],
        said["why"],
        said["first_step"],
        len(said["step_ns_inside"]),
        len(said["step_ns_before"]),
    )
    assert {"start", "stop", "write"} == set(said["cost_ns"])
    assert [f"ProfilerStep#{number}" for number in (41, 42, 43)] == Range.all
    assert "trace" == (torch.folder / "trace.json").read_text()
    assert ["step"] * 4 + ["disabled", "stopped", "step"] == torch.did
    assert {"tuiadvisor": {"threads": 8}} == torch.metadata
    assert torch.clock.flags & FLAG_CAPTURE
    assert is_out(torch)
    torch.did.clear()
    torch.autograd._prepare_profiler()
    assert ["host prepares"] == torch.did


@pytest.mark.parametrize(("most_mib", "num_steps"), [(64, 1), (100, 2), (128, 3), (0, 3)])
def test_a_window_ends_before_its_trace_takes_too_much(
    torch: Torch, monkeypatch: pytest.MonkeyPatch, most_mib: int, num_steps: int
) -> None:
    """Grown by 5 MiB a step, eight times as much with what stopping takes: with the steps it has, and says so."""
    sizes = iter(range(100 << 20, 1 << 40, 5 << 20))
    monkeypatch.setattr(capture, "resident_bytes", lambda: next(sizes))
    begun(torch, most=(most_mib << 20, "half"))
    torch.borders(BORDERS_BEFORE + NUM_STEPS)
    said = torch.said()
    assert (DONE, num_steps) == (said["state"], len(said["step_ns_inside"]))
    why = f"it ended after {num_steps} of {NUM_STEPS} steps: more would take more memory than {most_mib} MiB (half)"
    assert said["why"] == (why if num_steps < NUM_STEPS else "")
    assert "trace" == (torch.folder / "trace.json").read_text()
    assert is_out(torch)


@pytest.mark.parametrize("is_own", [True, False])
def test_a_window_ends_with_that_of_the_rank_with_the_least_room(
    torch: Torch, monkeypatch: pytest.MonkeyPatch, is_own: bool
) -> None:
    """It says how many steps would fit, and ends at as many as whoever asked says then; whose room it was is said."""
    sizes = iter(range(100 << 20, 1 << 40, 1 << 20))
    monkeypatch.setattr(capture, "resident_bytes", lambda: next(sizes))
    begun(torch, most=((56 if is_own else 80) << 20, "half"))
    assert capture._window is not None
    capture._window.num_steps = 9
    torch.borders(BORDERS_BEFORE + capture.TELLS_AFTER - 1)
    assert "fits" not in torch.said()
    torch.borders(1)
    assert ("recording", 7 if is_own else 10) == (torch.said()["state"], torch.said()["fits"])
    monkeypatch.setattr(capture, "resident_bytes", lambda: 104 << 20)  # nothing more is taken from here on
    (torch.folder / capture.STEPS_NAME).write_text("nonsense")
    torch.borders(1)
    (torch.folder / capture.STEPS_NAME).write_text("7")
    torch.borders(1)
    assert "recording" == torch.said()["state"]
    torch.borders(1)
    said = torch.said()
    assert (DONE, 7) == (said["state"], len(said["step_ns_inside"]))
    whose = ", with all ranks: one of them has no room for the trace of more"
    own = ": more would take more memory than 56 MiB (half)"
    assert f"it ended after 7 of 9 steps{own if is_own else whose}" == said["why"]
    assert is_out(torch)


@pytest.mark.parametrize(
    "fails", [OSError("no such library"), AttributeError("malloc_trim"), TypeError("None")]
)
def test_a_c_library_that_gives_nothing_back_costs_no_trace(
    torch: Torch, monkeypatch: pytest.MonkeyPatch, fails: Exception
) -> None:
    """As musl's, or where nothing can be looked up."""

    def refuse(_name: object) -> None:
        raise fails

    monkeypatch.setitem(sys.modules, "ctypes", SimpleNamespace(CDLL=refuse))  # type: ignore[arg-type]
    begun(torch)
    torch.borders(BORDERS_BEFORE + NUM_STEPS)
    assert (DONE, "") == (torch.said()["state"], torch.said()["why"])
    assert is_out(torch)


@pytest.mark.parametrize(("has_cuda", "most_mib", "needs"), [(False, 15, 16), (True, 143, 144)])
def test_no_window_where_it_may_take_nothing(torch: Torch, has_cuda: bool, most_mib: int, needs: int) -> None:
    """The profiler is never switched on."""
    torch.has_cuda = has_cuda
    begun(torch, most=(most_mib << 20, "half"))
    torch.borders(BORDERS_BEFORE + NUM_STEPS)
    assert REFUSED == torch.said()["state"]
    why = f"a trace takes {needs} MiB of memory to begin with, more than {most_mib} MiB (half)"
    assert why == torch.said()["why"]
    assert [] == torch.profiles
    assert is_out(torch)


def test_work_of_a_device_belongs_to_the_window(torch: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels under way are waited for once, at the end; the trace says which rank of which job it is of."""
    job = SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, get_backend=lambda: "nccl",
        get_rank=lambda: 3, get_world_size=lambda: 8,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "torch.distributed", job)  # type: ignore[arg-type]
    torch.has_cuda = True
    begun(torch)
    torch.borders(BORDERS_BEFORE + NUM_STEPS)
    assert {"CPU", "CUDA"} == torch.profiles[0].kineto_activities
    assert 1 == torch.did.count("sync")
    assert {"backend": "nccl", "rank": 3, "world_size": 8} == torch.metadata["distributedInfo"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda one: setattr(one, "is_profiled", True), HOST_PROFILES),
        (lambda one: setattr(one.autograd, "_is_profiler_enabled", True), HOST_PROFILES),
        (
            lambda one: setattr(one, "fails", RuntimeError("kineto")),
            "the profiler failed: RuntimeError: kineto",
        ),
        (
            lambda _: sys.modules.pop("torch.autograd.profiler"),
            "torch.autograd.profiler is not imported in this process",
        ),
    ],
)
def test_a_torch_that_cannot_record_is_told(
    torch: Torch, change: Callable[[Torch], object], why: str
) -> None:
    """And the training goes on as if nobody had asked."""
    change(torch)
    begun(torch)
    torch.borders(BORDERS_BEFORE + 2)
    assert (REFUSED, why) == (torch.said()["state"], torch.said()["why"])
    assert ["step"] * (BORDERS_BEFORE + 2) == torch.did
    assert is_out(torch)


def test_nobody_who_has_gone_is_recorded_for(torch: Torch) -> None:
    """The folder goes with who asked, before the window and within it."""
    begun(torch)
    torch.borders(BORDERS_BEFORE)
    for path in torch.folder.iterdir():
        path.unlink()
    torch.folder.rmdir()
    torch.borders(1)
    assert is_out(torch)
    assert ["disabled", "stopped"] == [one for one in torch.did if one != "step"]


def test_a_window_that_came_too_late_is_none(torch: Torch) -> None:
    """Who asked gave it until a moment."""
    capture.begin(str(torch.folder), NUM_STEPS, (1 << 62, 0))
    torch.borders(3)
    assert "no step border came in time" == torch.said()["why"]
    assert [] == torch.profiles


def test_one_window_at_a_time_and_none_without_a_probe(
    torch: Torch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second who asks is told, and the first one's goes on."""
    begun(torch)
    other = tmp_path / "other"
    other.mkdir()
    capture.begin(str(other), NUM_STEPS, (0, 1 << 62))
    assert "another capture is under way" in json.loads((other / "state.json").read_text())["why"]
    window = capture._window
    assert window is not None
    capture.begin(window.folder, NUM_STEPS, (0, 1 << 62))  # asked again: the first request arrived after all
    assert window is capture._window
    assert "waiting" == torch.said()["state"]
    torch.borders(BORDERS_BEFORE + NUM_STEPS)
    assert DONE == torch.said()["state"]
    capture.begin(window.folder, NUM_STEPS, (0, 1 << 62))  # or has been carried out
    assert DONE == torch.said()["state"]
    assert capture._window is None
    monkeypatch.setitem(sys.modules, "tuiadvisor_probes.install", SimpleNamespace(_probe=None))  # type: ignore[arg-type]
    begun(torch)
    assert "the probe has left this process" == torch.said()["why"]


@pytest.mark.parametrize("name", ["_prepare_profiler", "_enable_profiler"])
def test_the_trainings_own_profiler_has_the_way(torch: Torch, name: str) -> None:
    """Two in one thread are an error, which would be the training's."""
    begun(torch)
    torch.borders(BORDERS_BEFORE)
    getattr(torch.autograd, name)()
    assert "the training started a profiler of its own, ours made way" == torch.said()["why"]
    assert ["disabled", "stopped"] == torch.did[2:4]
    assert torch.did[-1].startswith("host ")
    assert is_out(torch)


def test_a_probe_that_leaves_takes_the_window_with_it(torch: Torch) -> None:
    """Before it began at once; within it the training thread switches off, at the next range that it enters."""
    begun(torch)
    torch.probe.registrations[0].remove()
    assert (LEFT, []) == (torch.said()["why"], torch.profiles)
    begun(torch)
    torch.borders(BORDERS_BEFORE)
    window = torch.probe.registrations[0]
    other = Thread(target=window.remove)
    other.start()
    other.join()
    assert "recording" == torch.said()["state"]
    with Range("enumerate(DataLoader)"):
        assert LEFT == torch.said()["why"]
    assert ["disabled", "stopped"] == torch.did[-2:]
    assert is_out(torch)
    window.remove()  # twice does nothing


class TimeLimitError(Exception):
    """What a signal's handler of the training raises."""


def test_a_handler_that_raises_once_the_profiler_is_on_leaves_none_on(
    torch: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its exception ends what it limits; the profiler goes first."""

    def limit(*_: object) -> None:
        raise TimeLimitError

    former = signal.signal(signal.SIGUSR1, limit)
    try:
        monkeypatch.setattr(Profile, "started", lambda _: signal.raise_signal(signal.SIGUSR1))
        begun(torch)
        with pytest.raises(TimeLimitError):
            torch.borders(4)
    finally:
        signal.signal(signal.SIGUSR1, former)
    assert torch.did[-2:] == ["disabled", "stopped"]
    assert "handler raised" in torch.said()["why"]
    assert is_out(torch)


def test_a_profiler_that_does_not_stop_in_order_is_told(
    torch: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest is taken out all the same."""

    def fails() -> None:
        raise RuntimeError("not enabled")

    begun(torch)
    torch.borders(BORDERS_BEFORE)
    monkeypatch.setattr(torch.autograd, "_disable_profiler", fails)
    torch.probe.registrations[0].remove()
    assert f"{LEFT} (it did not stop in order: not enabled)" == torch.said()["why"]
    assert is_out(torch)
