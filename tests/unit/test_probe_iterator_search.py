"""The search for an iterator that hands out batches, by sys.monitoring as Python has it from 3.12 on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Thread, get_ident
from types import CodeType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from tuiadvisor_probes import data_hook, iterator_hook, phases  # noqa: E402
from tuiadvisor_probes.iterator_hook import FIRST_STEP, NUM_STEPS_SEARCHED, SLOTS_TAKEN, TOOL_NAME, install  # noqa: E402

EVENTS = ("PY_START", "PY_RESUME", "PY_YIELD", "PY_RETURN", "PY_UNWIND")


class Monitoring:
    """sys.monitoring's side: who has which slot, what is watched and who is called."""

    DISABLE = object()
    events = SimpleNamespace(**{name: 1 << at for at, name in enumerate(EVENTS)})

    def __init__(self) -> None:
        self.tools: dict[int, str] = {}
        self.called: dict[tuple[int, int], Callable[..., object]] = {}
        self.everywhere: dict[int, int] = {}
        self.local: dict[CodeType, int] = {}

    def get_tool(self, tool: int) -> str | None:
        return self.tools.get(tool)

    def use_tool_id(self, tool: int, name: str) -> None:
        self.tools[tool] = name

    def free_tool_id(self, tool: int) -> None:
        del self.tools[tool]

    def register_callback(self, tool: int, event: int, function: Callable[..., object] | None) -> None:
        self.called.pop((tool, event), None)
        if function is not None:
            self.called[tool, event] = function

    def set_events(self, tool: int, events: int) -> None:
        self.everywhere[tool] = events

    def set_local_events(self, _: int, code: CodeType, events: int) -> None:
        self.local[code] = events

    def happens(self, name: str, code: CodeType, *value: object) -> object:
        """An event: whoever watches it is called."""
        event = getattr(self.events, name)
        for (tool, of), function in list(self.called.items()):
            if of == event and (self.everywhere.get(tool, 0) | self.local.get(code, 0)) & event:
                return function(code, 0, *value)
        return None


class Probe:
    """A probe whose clock is moved by hand."""

    def __init__(self) -> None:
        self.absences: dict[str, str] = {}
        self.registrations: list[Any] = []
        self.due: list[tuple[Callable[[], bool], Callable[[], None]]] = []
        self.phases: list[int] = []
        self.samples = 0
        self.failures: list[Exception] = []
        self.one = SimpleNamespace(active=True, failed=self.failures.append)
        self.clock: Any = SimpleNamespace(
            step=0, observed=0, phase=phases.OTHER, own=[get_ident()], momentary=0, said=0,
            enter=self.enter, leave=self.leave,
        )  # fmt: skip
        self.registration = self.registrations.append
        self.num_told = 0

    def put_info(self) -> None:
        self.num_told += 1

    def hook(self, _: str) -> Any:
        return self.one

    def absent(self, name: str, why: str) -> None:
        self.absences[name] = why

    def when(self, is_so: Callable[[], bool], _name: object, _why: str, then: Callable[[], None]) -> None:
        self.due.append((is_so, then))

    def enter(self, phase: int) -> bool:
        self.phases.append(self.clock.phase)
        self.clock.phase = phase
        return True

    def leave(self) -> None:
        self.clock.phase = self.phases.pop()

    def step(self, to: int) -> None:
        """The clock is there now."""
        self.clock.step = to
        for one in list(self.due):
            if one[0]():
                self.due.remove(one)
                one[1]()


def batches() -> Iterator[object]:
    yield None


def other() -> None:
    """No iterator."""


class Loader:
    """An iterator that is no generator."""

    def __next__(self) -> object:
        return None


GENERATOR, PLAIN, NEXT = batches.__code__, other.__code__, Loader.__next__.__code__


@pytest.fixture
def monitoring(monkeypatch: pytest.MonkeyPatch) -> Monitoring:
    made = Monitoring()
    monkeypatch.setattr(iterator_hook.sys, "monitoring", made, raising=False)
    monkeypatch.setattr(iterator_hook, "first_tensor", lambda value: value if value == "batch" else None)

    def counted(clock: Any, _: object) -> None:
        clock.counted = getattr(clock, "counted", 0) + 1

    monkeypatch.setattr(iterator_hook, "count_batch", counted)
    return made


@pytest.fixture
def probe(monitoring: Monitoring) -> Probe:
    made = Probe()
    install(made)  # type: ignore[arg-type]
    made.step(FIRST_STEP)
    assert [4] == list(monitoring.tools)
    return made


def found(probe: Probe, monitoring: Monitoring, *codes: CodeType) -> None:
    """These have handed out a batch while the training waited."""
    for code in codes:
        monitoring.happens("PY_YIELD" if code is GENERATOR else "PY_RETURN", code, "batch")
    probe.step(FIRST_STEP + NUM_STEPS_SEARCHED)


def test_a_generator_that_hands_out_batches_is_timed(probe: Probe, monitoring: Monitoring) -> None:
    """From its resumption to its yield it is a wait for data, and its batch is counted."""
    found(probe, monitoring, GENERATOR)
    assert 1 << phases.DATA_WAIT == probe.clock.momentary
    assert 1 == probe.num_told
    assert PLAIN not in monitoring.local
    monitoring.happens("PY_RESUME", GENERATOR)
    assert phases.DATA_WAIT == probe.clock.phase
    monitoring.happens("PY_YIELD", GENERATOR, "batch")
    assert (phases.OTHER, 1, 1 << phases.DATA_WAIT) == (
        probe.clock.phase,
        probe.clock.counted,
        probe.clock.said,
    )
    monitoring.happens("PY_RESUME", GENERATOR)
    monitoring.happens("PY_UNWIND", GENERATOR, StopIteration())
    assert (phases.OTHER, 1) == (probe.clock.phase, probe.clock.counted)


def test_of_iterators_in_each_other_the_outer_ones_batch_counts(probe: Probe, monitoring: Monitoring) -> None:
    """What the inner hands out is no batch of the training's yet."""
    found(probe, monitoring, GENERATOR, NEXT)
    monitoring.happens("PY_START", NEXT)
    monitoring.happens("PY_RESUME", GENERATOR)
    monitoring.happens("PY_YIELD", GENERATOR, "batch")
    assert (phases.DATA_WAIT, False) == (probe.clock.phase, hasattr(probe.clock, "counted"))
    monitoring.happens("PY_RETURN", NEXT, "batch")
    assert (phases.OTHER, 1) == (probe.clock.phase, probe.clock.counted)


def test_an_end_that_was_missed_is_made_good(probe: Probe, monitoring: Monitoring) -> None:
    """A generator that was closed elsewhere begins anew; within forward nothing is a wait for data."""
    found(probe, monitoring, GENERATOR)
    monitoring.happens("PY_START", GENERATOR)
    monitoring.happens("PY_START", GENERATOR)
    assert [phases.OTHER] == probe.phases
    monitoring.happens("PY_YIELD", GENERATOR, "batch")
    probe.clock.phase = phases.FORWARD
    monitoring.happens("PY_RESUME", GENERATOR)
    assert phases.FORWARD == probe.clock.phase


def test_other_threads_and_a_disabled_hook_change_nothing(probe: Probe, monitoring: Monitoring) -> None:
    """A loader's own thread hands out batches to itself."""
    thread = Thread(target=lambda: monitoring.happens("PY_YIELD", GENERATOR, "batch"))
    thread.start()
    thread.join()
    found(probe, monitoring, NEXT)
    assert [NEXT] == list(monitoring.local)
    probe.one.active = False
    monitoring.happens("PY_START", NEXT)
    assert phases.OTHER == probe.clock.phase


def test_a_failure_of_ours_never_reaches_the_iterator(probe: Probe, monitoring: Monitoring) -> None:
    """The hook is told of it."""
    found(probe, monitoring, NEXT)
    monitoring.happens("PY_START", NEXT)

    def fails() -> None:
        raise RuntimeError("ours")

    probe.clock.leave = fails
    assert monitoring.happens("PY_RETURN", NEXT, "batch") is None
    monitoring.happens("PY_START", NEXT)
    probe.clock.enter = lambda _: fails()
    monitoring.happens("PY_START", NEXT)
    assert ["ours", "ours"] == [str(error) for error in probe.failures]


def test_code_that_is_no_iterator_is_not_asked_again(probe: Probe, monitoring: Monitoring) -> None:
    """That makes the search cheap; one that may be timed later must never be switched off."""
    assert monitoring.DISABLE is monitoring.happens("PY_RETURN", PLAIN, "batch")
    assert monitoring.happens("PY_YIELD", GENERATOR, "words") is None
    probe.clock.phase = phases.FORWARD
    assert monitoring.happens("PY_RETURN", NEXT, "batch") is None
    probe.step(FIRST_STEP + NUM_STEPS_SEARCHED)
    assert {} == monitoring.local
    assert "no DataLoader in use and no Python iterator hands out tensors" == probe.absences["data_wait"]
    assert ({}, {}) == (monitoring.tools, monitoring.called)


@pytest.mark.parametrize("name", ["parameters", "buffers"])
def test_a_loop_over_a_models_tensors_is_no_wait_for_data(
    probe: Probe, monitoring: Monitoring, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As pipelining makes one a step: each of 16 parameters was a batch, and cost two of the device's events."""
    monkeypatch.setattr(iterator_hook, "first_tensor", data_hook.first_tensor)
    own = getattr(nn.Module, name).__code__
    for tensor in getattr(nn.BatchNorm1d(3), name)():
        if tensor.dim():
            monitoring.happens("PY_YIELD", own, tensor)
    monitoring.happens("PY_YIELD", GENERATOR, nn.Parameter(torch.ones(3)))  # of somebody's own loop over them
    probe.step(FIRST_STEP + NUM_STEPS_SEARCHED)
    assert {} == monitoring.local


def test_micro_batches_of_a_pipeline_are_no_wait_for_data(
    probe: Probe, monitoring: Monitoring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch is split by torch's own code, which waits for nothing; torch's loaders are looked at."""
    monkeypatch.setattr(iterator_hook, "first_tensor", data_hook.first_tensor)
    home = str(torch.__file__).removesuffix("__init__.py")
    split = GENERATOR.replace(co_filename=f"{home}distributed/pipelining/microbatch.py")
    loader = GENERATOR.replace(co_filename=f"{home}utils/data/datapipes/iter/grouping.py")
    for code in (split, loader):
        monitoring.happens("PY_YIELD", code, torch.ones(3))
    probe.step(FIRST_STEP + NUM_STEPS_SEARCHED)
    assert [loader] == list(monitoring.local)


def test_a_tensor_that_is_no_models_own_is_a_batch(
    probe: Probe, monitoring: Monitoring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever hands it out."""
    monkeypatch.setattr(iterator_hook, "first_tensor", data_hook.first_tensor)
    monitoring.happens("PY_YIELD", GENERATOR, [torch.ones(3)])
    probe.step(FIRST_STEP + NUM_STEPS_SEARCHED)
    assert [GENERATOR] == list(monitoring.local)


def test_a_loader_that_comes_meanwhile_ends_the_search(probe: Probe, monitoring: Monitoring) -> None:
    """Its hook sees more."""
    monitoring.happens("PY_RETURN", NEXT, "batch")
    probe.clock.observed = 1 << phases.DATA_WAIT
    probe.step(FIRST_STEP + NUM_STEPS_SEARCHED)
    assert ({}, {}) == (monitoring.tools, probe.absences)


def test_a_probe_that_leaves_gives_its_slot_back(probe: Probe, monitoring: Monitoring) -> None:
    """Twice does nothing."""
    found(probe, monitoring, GENERATOR)
    (search,) = probe.registrations
    for _ in range(2):
        search.remove()
    assert ({}, {}, {GENERATOR: 0}) == (monitoring.tools, monitoring.called, monitoring.local)


def test_a_free_slot_is_taken_and_none_where_none_is(monitoring: Monitoring) -> None:
    """Debuggers, coverage, profilers and optimizers have theirs: one that starts amid the search must find it."""
    for taken, slot in (((), 4), ((4,), 3), ((4, 3), None)):
        monitoring.tools = dict.fromkeys(taken, "theirs")
        probe = Probe()
        install(probe)  # type: ignore[arg-type]
        probe.step(FIRST_STEP)
        assert [slot] * (slot is not None) == [
            at for at, name in monitoring.tools.items() if name == TOOL_NAME
        ]
        assert (slot is None) is (probe.absences.get("data_wait") == SLOTS_TAKEN)


def test_before_python_3_12_that_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to search with."""
    monkeypatch.delattr(iterator_hook.sys, "monitoring", raising=False)
    probe = Probe()
    install(probe)  # type: ignore[arg-type]
    probe.step(FIRST_STEP)
    assert "from Python 3.12 on" in probe.absences["data_wait"]
