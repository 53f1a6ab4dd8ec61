"""Device times from CUDA events: a stand-in for torch.cuda whose device works behind the thread, as a stream does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from threading import get_ident
from types import SimpleNamespace

import pytest

from tuiadvisor.events import EVENT_COLUMNS, STEP_COLUMNS, EventKind
from tuiadvisor.phases import PHASES
from tuiadvisor_probes import accelerator, device_times, phases, ring, step_clock
from tuiadvisor_probes.accelerator import Accelerator
from tuiadvisor_probes.device_times import DeviceTimes
from tuiadvisor_probes.guard import Hook

MS = 1_000_000
INDEX = 1  # of the device that the parameters are on
DATA, FORWARD, BACKWARD, OPTIMIZER = (
    phases.DATA_WAIT,
    phases.FORWARD,
    phases.BACKWARD,
    phases.OPTIMIZER,
)


class Device:
    """One clock for the thread, and a stream that takes its work in order."""

    def __init__(self) -> None:
        self.now = 10 * MS
        self.free_at = 0  # when the stream has done what was launched so far
        self.is_capturing = False
        self.is_broken = False
        self.is_stuck = False
        self.num_events = 0
        self.num_calls_in_capture = 0
        self.streams = {f"stream of {INDEX}"}
        self.latest_stream = ""

    def launch(self, duration_ns: int) -> None:
        """Queue work; the thread goes on."""
        self.free_at = max(self.free_at, self.now) + duration_ns

    def event(self) -> Event:
        """As torch.cuda.Event(enable_timing=True)."""
        self.num_events += 1
        return Event(self)

    def module(self) -> SimpleNamespace:
        """As torch.cuda."""

        def event_class(*, enable_timing: bool) -> Event:
            assert enable_timing
            return self.event()

        event_class.elapsed_time = Event.elapsed_time  # type: ignore[attr-defined]
        return SimpleNamespace(
            __name__="torch.cuda",
            Event=event_class,
            current_stream=lambda index: f"stream of {index}",
            is_current_stream_capturing=lambda: self.is_capturing,
            get_device_properties=lambda index: SimpleNamespace(uuid=f"uuid of {index}"),
        )


class Event:
    """record, query, elapsed_time; no synchronize: whoever waits fails the test."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.passed_at: int | None = None

    def record(self, stream: str) -> None:
        assert stream in self.device.streams, "on the device of the parameters, whatever the current one is"
        self.device.latest_stream = stream
        self._use()
        self.passed_at = max(self.device.now, self.device.free_at)

    def query(self) -> bool:
        self._use()
        assert self.passed_at is not None
        return not self.device.is_stuck and self.device.now >= self.passed_at

    def elapsed_time(self, end: Event) -> float:
        self._use()
        assert self.passed_at is not None
        assert end.passed_at is not None
        assert end.query(), "asked before the device was there"
        return (end.passed_at - self.passed_at) / MS

    def _use(self) -> None:
        self.device.num_calls_in_capture += self.device.is_capturing
        if self.device.is_broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")


class Training:
    """A clock on a ring with device times, and the loop that drives it."""

    def __init__(self, path: Path, device: Device) -> None:
        ring.create_ring_file(str(path), 64, 256)
        self.writer, self.reader = ring.RingWriter(str(path)), ring.RingReader(str(path))
        self.device = device
        self.disabled: list[Hook] = []
        self.clock = step_clock.StepClock(self.writer, get_ident(), lambda: None)
        self.times = DeviceTimes(
            Hook("device_times", 0, self.disabled.append),
            self.writer.put_event,
            Accelerator(device.module(), INDEX, captures := []),
        )
        self.captures: list[None] = captures
        self.clock.device = self.times
        self.clock.alert(step_clock.DEVICE, True)

    def phase(self, phase: int, host_ns: int, device_ns: int) -> None:
        """The thread launches work for a while."""
        self.clock.enter(phase)
        self.device.launch(device_ns)
        self.device.now += host_ns
        self.clock.leave()

    def step(self, host_ns: int = MS, device_ns: int = MS) -> None:
        """Data, forward, loss, backward, optimizer; each as long on the thread, and on the device."""
        self.phase(DATA, host_ns, 0)
        for phase in (FORWARD, BACKWARD, OPTIMIZER):
            self.device.now += host_ns // 10
            self.phase(phase, host_ns, device_ns)
        self.clock.stepped = True

    def steps(self) -> list[dict[str, int]]:
        """Records of steps written since the last call."""
        return [dict(zip(STEP_COLUMNS, row, strict=True)) for row in self.reader.take_steps()]

    def rows(self) -> list[dict[str, int]]:
        """Device phases written since the last call."""
        names = ("kind", *EVENT_COLUMNS)
        rows = [dict(zip(names, row, strict=True)) for row in self.reader.take_events()]
        return [row for row in rows if row["kind"] == EventKind.DEVICE_PHASE]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    """A device with the clock of the probe."""
    device = Device()
    for module in (device_times, step_clock):
        monkeypatch.setattr(module, "monotonic_ns", lambda: device.now)
    return device


@pytest.fixture
def training(tmp_path: Path, device: Device) -> Iterator[Training]:
    """A training on that device."""
    training = Training(tmp_path / "ring", device)
    yield training
    training.writer.close()
    training.reader.close()


def spent(rows: list[dict[str, int]], step: int) -> dict[str, int]:
    """Device nanoseconds of a step by phase."""
    result: dict[str, int] = {}
    for row in rows:
        if row["step"] == step:
            name = PHASES[row["group"]]
            result[name] = result.get(name, 0) + row["end_ns"] - row["begin_ns"]
    return result


def test_device_that_falls_behind_shows_its_own_times(training: Training) -> None:
    """Launches of 1 ms that take the device 10 ms each: its forward is 10 ms, and at the end it is 26.8 ms behind."""
    for _ in range(2):
        training.step(device_ns=10 * MS)
        training.device.now = training.device.free_at  # loss.item()
    training.clock.flush()
    rows = training.rows()

    assert {"forward": 10 * MS, "backward": 10 * MS, "optimizer": 10 * MS} == {
        name: spent(rows, 1)[name] for name in ("forward", "backward", "optimizer")
    }
    behind = {PHASES[row["group"]]: row["detail"] for row in rows if row["step"] == 1}
    assert behind["optimizer"] == pytest.approx(30 * MS - 3 * MS - 0.2 * MS, abs=MS // 5)


def test_device_that_waits_for_launches_is_never_behind(training: Training) -> None:
    """2 ms on the thread for 0.1 ms on the device: its phases last as long as the thread's, and it keeps up."""
    for _ in range(3):
        training.step(host_ns=2 * MS, device_ns=MS // 10)
    training.clock.flush()
    rows = [row for row in training.rows() if row["step"] == 1]

    assert spent(rows, 1)["forward"] == pytest.approx(2 * MS)
    assert max(row["detail"] + row["seq"] for row in rows) < MS // 4


def test_bracket_holds_the_true_clock(training: Training) -> None:
    """The forward began on the device when the thread launched it: within the bracket that goes with the record."""
    training.step()
    training.device.now += 5 * MS
    training.phase(DATA, MS, 0)
    training.device.now += MS // 10
    launched_ns = training.device.now
    training.phase(FORWARD, MS, 20 * MS)
    training.phase(BACKWARD, MS, 20 * MS)
    training.phase(OPTIMIZER, MS, 20 * MS)
    training.clock.stepped = True
    training.device.now = training.device.free_at
    training.clock.flush()
    (row,) = [row for row in training.rows() if row["group"] == FORWARD]

    assert row["begin_ns"] <= launched_ns <= row["begin_ns"] + row["seq"]


def test_nothing_is_written_before_the_device_was_there(training: Training) -> None:
    """A stream far behind leaves steps unresolved; at the limit none is begun, none forgotten, none waited for."""
    training.device.is_stuck = True
    for _ in range(2 * device_times.MAX_PENDING):
        training.step()
    assert training.rows() == []
    assert training.times.num_dropped == 0
    assert len(training.times.pending) == device_times.MAX_PENDING
    first = training.times.pending[0][0]

    training.device.is_stuck = False
    for _ in range(8):
        training.step()
    assert training.rows()[0]["step"] == first


def test_events_come_from_a_pool(training: Training) -> None:
    """A thousand steps need no more events than a few."""
    for _ in range(20):
        training.step()
    early = training.device.num_events
    for _ in range(1000):
        training.step()
        training.rows()

    assert training.device.num_events == early


def test_graph_capture_leaves_the_stream_alone(training: Training) -> None:
    """No record, query or elapsed_time while a graph is captured; the step is dropped and later ones are measured."""
    training.step()
    training.step()
    training.rows()
    training.device.is_capturing = True
    training.step()
    training.step()
    training.device.is_capturing = False
    assert training.device.num_calls_in_capture == 0
    captured = training.clock.step
    training.captures.append(None)  # by another thread, or on another stream
    training.step()
    training.captures.clear()
    assert training.device.num_calls_in_capture == 0
    for _ in range(4):
        training.step()
    steps = {row["step"] for row in training.rows()}

    assert steps
    assert captured - 1 not in steps


def test_broken_device_switches_the_signal_off_and_nothing_else(training: Training) -> None:
    """A CUDA error in our half is counted once; steps go on being recorded."""
    training.step()
    training.device.is_broken = True
    for _ in range(3):
        training.step()
    training.clock.flush()

    assert [hook.name for hook in training.disabled] == ["device_times"]
    assert len(training.reader.take_steps()) == 4


def test_too_many_borders_drop_the_step(training: Training) -> None:
    """Gradient accumulation beyond the limit is unknown, not half measured."""
    training.step()
    for _ in range(2):
        for _ in range(device_times.MAX_BORDERS):
            training.phase(FORWARD, 1000, 1000)
            training.phase(BACKWARD, 1000, 1000)
        training.phase(OPTIMIZER, 1000, 1000)
        training.clock.stepped = True
    training.clock.flush()

    assert training.rows() == []
    assert training.times.num_dropped >= 1


def rollouts(training: Training, num_forwards: int) -> None:
    """Three steps with so many forwards without gradients each, a batch among them now and then."""
    for _ in range(3):
        for number in range(num_forwards):
            if number % 100 == 50:
                training.phase(DATA, 1000, 0)
            training.phase(phases.EVAL, 1000, 500)
            training.device.now += 1000
        training.step()
        training.device.now = training.device.free_at
    training.step()


def test_a_rollout_is_one_evaluation_of_its_device_and_drops_no_step(training: Training) -> None:
    """Hundreds of forwards without gradients: two borders, and all between them is theirs."""
    num_forwards = device_times.MAX_RESUMED
    rollouts(training, num_forwards)
    rows = training.rows()
    names = [PHASES[row["group"]] for row in rows if row["step"] == 1]
    assert ["eval", "other"] == names[: names.index("data_wait")]
    found = spent(rows, 1)
    assert 1000 * (2 * num_forwards + num_forwards // 100) == pytest.approx(found["eval"], rel=0.02)
    assert (1, 1) == tuple(round(found[name] / MS) for name in ("forward", "backward"))
    assert training.times.num_dropped == 0
    assert training.device.num_events < 50


def test_a_longer_rollout_drops_the_step_and_keeps_nothing_of_it(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its forwards has an event: beyond the limit they cost more than is told by them."""
    recorded: list[int] = []
    record = Event.record
    monkeypatch.setattr(Event, "record", lambda *given: (recorded.append(1), record(*given))[1])
    rollouts(training, 20 * device_times.MAX_RESUMED)
    assert {0, 3} >= {row["step"] for row in training.rows()}
    assert training.times.num_dropped >= 2
    assert len(recorded) < 3 * (device_times.MAX_RESUMED + 50)
    assert training.device.num_events < 50


def test_a_border_has_one_answer_however_often_it_is_the_last(training: Training) -> None:
    """A device that is behind and one that is not."""
    training.step()
    training.phase(phases.EVAL, 1000, 500 * MS)
    for _ in range(50):
        training.phase(phases.EVAL, 1000, 500)
    assert len(training.times.seen) + len(training.times.unseen) <= 4
    training.device.now = training.device.free_at
    for _ in range(50):
        training.phase(phases.EVAL, 1000, 500)
    assert len(training.times.seen) + len(training.times.unseen) <= 6


def test_a_model_within_a_loader_takes_nothing_of_its_wait(training: Training) -> None:
    """What a dataset does with a model is the batch's, also right behind an evaluation."""
    for _ in range(3):
        training.phase(phases.EVAL, MS, MS)
        training.clock.enter(DATA)
        training.device.now += 4 * MS
        training.phase(phases.EVAL, MS, MS)
        training.device.now += 5 * MS
        training.clock.leave()
        training.step()
        training.device.now = max(training.device.now, training.device.free_at)
    training.step()
    found = spent(training.rows(), 1)
    assert (1, 11) == tuple(round(found[name] / MS) for name in ("eval", "data_wait"))


def test_dear_steps_are_not_all_measured_at_first(training: Training) -> None:
    """The first ones are measured whatever they cost, but for this: all together so much and no more."""
    training.times.spent_ns = device_times.FIRST_COST_NS + 1
    training.step()
    training.times.costs.add(MS)
    training.step()
    assert training.times.bits > 0


def test_micro_steps_and_nested_phases_are_added_where_they_belong(training: Training) -> None:
    """Two micro-steps sum; a copy and a wait inside a phase stay in it."""
    for _ in range(3):
        training.phase(DATA, MS, 0)
        for _ in range(2):
            training.clock.enter(FORWARD)
            training.phase(phases.H2D, MS // 10, 0)
            training.device.launch(3 * MS)
            training.device.now += MS
            training.clock.leave()
            training.clock.enter(BACKWARD)
            training.device.launch(5 * MS)
            training.phase(phases.COMM_EXPOSED, MS, 0)
            training.clock.leave()
        training.phase(OPTIMIZER, MS, MS)
        training.clock.stepped = True
        training.device.now = training.device.free_at
    training.step()
    found = spent(training.rows(), 1)

    assert {"forward": 6, "backward": 10} == {
        name: round(found[name] / MS) for name in ("forward", "backward")
    }
    assert found["h2d"] == 0, "nothing but launches between the data and forward"


def test_cost_decides_how_often_a_step_is_measured(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events that cost 1 % of the step are recorded in one step of ten or fewer: 0.1 % of the time."""
    real = training.device.event

    def dear() -> Event:
        event = real()
        record = event.record

        def slow_record(stream: str) -> None:
            training.device.now += 6_000
            record(stream)

        event.record = slow_record  # type: ignore[method-assign]
        return event

    monkeypatch.setattr(training.device, "event", dear)
    for _ in range(400):
        training.step()
        if training.clock.step == 200:
            training.rows()
    measured = sorted({row["step"] for row in training.rows()})

    assert 3 <= len(measured) <= 25
    assert all(device_times.is_drawn(step, 2) for step in measured), "one in four at least, by lot"


def test_waiting_for_the_launch_queue_is_no_cost_of_ours(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full queue holds up whoever launches next, an event or a kernel: a step is neither dear nor measured less."""
    real = training.device.event

    def held_up() -> Event:
        event = real()
        record = event.record

        def slow_record(stream: str) -> None:
            training.device.now += 8 * MS
            record(stream)

        event.record = slow_record  # type: ignore[method-assign]
        return event

    monkeypatch.setattr(training.device, "event", held_up)
    monkeypatch.setattr(device_times, "FIRST_STEPS", 0)
    training.clock.measuring = True
    for _ in range(60):
        training.clock.measuring = True
        training.step(host_ns=20 * MS + 1)
    cost = [row["probe_cost_ns"] for row in training.steps()]

    assert len(cost) > 40
    assert max(cost[5:]) < MS
    assert training.times.bits <= 4


class FakeProbe:
    """What look_for_device needs of a probe."""

    def __init__(self, training: Training) -> None:
        self.clock, self.ring = training.clock, training.writer
        self.clock.device = None
        self.device_kind: str | None = None
        self.device_uuid: str | None = None
        self.captures: list[None] = []
        self.has_wrapper = False
        self.shards = None
        self.absences: dict[str, str] = {}
        self.num_infos = 0

    def hook(self, name: str) -> Hook:
        return Hook(name, 0, lambda _: None)

    def absent(self, name: str, why: str) -> None:
        self.absences[name] = why

    def put_info(self) -> None:
        self.num_infos += 1


class Parameter(SimpleNamespace):
    """As torch's, may be referred to weakly."""


def optimizer(kind: str) -> SimpleNamespace:
    """An optimizer with one parameter."""
    parameter = Parameter(device=SimpleNamespace(type=kind, index=INDEX))
    return SimpleNamespace(param_groups=[{"params": []}, {"params": [parameter]}])


@pytest.fixture
def fake_torch(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch with that device, and a processor whose events tell no times."""
    modules = {"cuda": training.device.module(), "cpu": SimpleNamespace(Event=object)}
    modules["hpu"] = SimpleNamespace(Event=object)

    def get_device_module(device: SimpleNamespace) -> SimpleNamespace:
        if device.type not in modules:
            raise RuntimeError(f"The device module {device.type} is not available")
        return modules[device.type]

    torch = SimpleNamespace(get_device_module=get_device_module)
    monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]


@pytest.mark.usefixtures("fake_torch")
def test_training_on_the_processor_is_left_alone(training: Training) -> None:
    """Parameters in host memory: no events, and the reason is told."""
    probe = FakeProbe(training)
    device_times.look_for_device(probe, optimizer("cpu"), probe.hook("device_times"))  # type: ignore[arg-type]

    assert probe.clock.device is None
    assert probe.absences == {"device_times": accelerator.NOT_ON_DEVICE}


@pytest.mark.usefixtures("fake_torch")
def test_training_on_a_device_is_timed_and_names_its_device(training: Training) -> None:
    """From the first optimizer step on; the device's identity goes to the agent, for NVML's counters of it."""
    probe = FakeProbe(training)
    device_times.look_for_device(probe, optimizer("cuda"), probe.hook("device_times"))  # type: ignore[arg-type]
    for _ in range(3):
        training.step()
    training.clock.flush()

    assert (probe.device_kind, probe.device_uuid) == ("cuda", f"uuid of {INDEX}")
    assert {PHASES[row["group"]] for row in training.rows()} >= {"forward", "backward", "optimizer"}


@pytest.mark.usefixtures("fake_torch")
@pytest.mark.parametrize("kind", ["hpu", "unheard_of"])
def test_a_device_whose_events_tell_no_times_is_no_processor(training: Training, kind: str) -> None:
    """Its ranks' threads launch and run ahead as on any device: what only it knows stays unknown, with the reason."""
    probe = FakeProbe(training)
    device_times.look_for_device(probe, optimizer(kind), probe.hook("device_times"))  # type: ignore[arg-type]

    assert probe.clock.device is None
    assert (probe.device_kind, probe.device_uuid) == (kind, None)
    assert kind in probe.absences["device_times"]


@pytest.mark.usefixtures("fake_torch")
def test_a_module_that_is_moved_is_timed_on_its_new_device(training: Training) -> None:
    """Events on the old one would pass at once, and an idle device's spans are the thread's own."""
    probe, trained = FakeProbe(training), optimizer("cuda")
    device_times.look_for_device(probe, trained, probe.hook("device_times"))  # type: ignore[arg-type]
    (parameter,) = trained.param_groups[1]["params"]
    for _ in range(3):
        training.step()
    training.device.streams.add("stream of 0")
    parameter.device = SimpleNamespace(type="cuda", index=0)
    moved_at = training.clock.step
    for _ in range(5):
        training.step()
    training.clock.flush()
    measured = {row["step"] for row in training.rows()}

    assert min(measured) < moved_at < max(measured)
    assert moved_at not in measured  # begun on the old one
    assert (probe.device_uuid, training.device.latest_stream) == ("uuid of 0", "stream of 0")
    assert probe.clock.device.is_failed is False


@pytest.mark.usefixtures("fake_torch")
def test_while_a_module_is_offloaded_no_step_is_measured(training: Training) -> None:
    """In the host's memory between two rounds, then back."""
    probe, trained = FakeProbe(training), optimizer("cuda")
    device_times.look_for_device(probe, trained, probe.hook("device_times"))  # type: ignore[arg-type]
    (parameter,) = trained.param_groups[1]["params"]
    home = parameter.device
    measured = []
    for place in (home, SimpleNamespace(type="cpu", index=None), home):
        parameter.device = place
        training.step()  # one that was begun before is finished
        num_before = probe.clock.device.num_measured
        for _ in range(4):
            training.step()
        measured.append(probe.clock.device.num_measured - num_before)

    assert measured[0] >= 3
    assert measured[1] <= 1
    assert measured[2] >= 3


def test_spans_follow_one_another_to_the_next_step(training: Training) -> None:
    """No gap between them: what a device does in a step sums to the time from its begin to the next one's."""
    for _ in range(6):
        training.step(device_ns=3 * MS)
    training.device.now = training.device.free_at
    for _ in range(2):
        training.step()
    rows = training.rows()
    by_step = {step: [row for row in rows if row["step"] == step] for step in {row["step"] for row in rows}}

    assert len(by_step) >= 3
    for spans in by_step.values():
        assert [row["end_ns"] for row in spans[:-1]] == [row["begin_ns"] for row in spans[1:]]
        assert sum(spent(rows, spans[0]["step"]).values()) == spans[-1]["end_ns"] - spans[0]["begin_ns"]


def test_a_step_that_begins_with_a_wait_for_a_neighbour_begins_there(training: Training) -> None:
    """A stage's first act is to wait for an activation: on the device too, and that is in no other step."""
    for _ in range(6):
        training.phase(phases.PIPELINE_IDLE, MS, 4 * MS)  # its stream waits
        training.step(device_ns=3 * MS)
    for _ in range(6):  # what was measured is written
        training.device.now = training.device.free_at
        training.step()
    rows = [row for row in training.rows() if row["step"] < 6]
    by_step = {step: [row for row in rows if row["step"] == step] for step in {row["step"] for row in rows}}
    whole = [step for step in sorted(by_step) if step + 1 in by_step]

    assert len(whole) >= 2
    for step in whole:
        found = spent(rows, step)
        assert 4 * MS <= found["other"] < 5 * MS
        assert 13 * MS == sum(found.values())  # as long as the device takes from one step to the next


def test_what_a_stage_waits_for_its_neighbour_before_forward_is_no_copy(training: Training) -> None:
    """Of a stage that loads a batch as the first one does: the copy is what the device does until the message."""
    for _ in range(8):
        training.phase(DATA, MS, 0)
        training.device.launch(2 * MS)  # the copy
        training.phase(phases.PIPELINE_IDLE, MS // 10, 40 * MS)  # its stream waits
        for phase in (FORWARD, BACKWARD, OPTIMIZER):
            training.phase(phase, MS // 10, 3 * MS)
        training.clock.stepped = True
        training.device.now = training.device.free_at  # a look at the loss
    training.clock.flush()
    rows = training.rows()
    (found,) = {tuple(sorted(spent(rows, step).items())) for step in range(2, 7)}

    assert {"h2d": 2 * MS, "forward": 3 * MS}.items() <= dict(found).items()
    assert 40 * MS <= dict(found)["other"] < 41 * MS


def test_ranks_with_other_costs_measure_steps_of_one_grid(training: Training) -> None:
    """Whoever has to save more measures a subset of what the others measure."""
    grids = []
    for cost_ns in (0, 60_000, 200_000):
        times = DeviceTimes(
            Hook("device_times", 0, lambda _: None), training.writer.put_event, training.times.device
        )
        times.num_measured = device_times.FIRST_STEPS
        measured = set()
        for step in range(400):
            times.costs.value = cost_ns
            times.close_step(step, 10 * MS, 1000 + 3 * step)
            if times.is_measuring:
                measured.add(step + 1)
            times.borders = None
        grids.append(measured)

    assert len(grids[0]) > 390
    assert grids[2] < grids[1] < grids[0]
    assert 5 < len(grids[2]) < 40


@pytest.mark.parametrize("advance", [1, 2, 7, 28])
@pytest.mark.parametrize("period", [2, 4, 10, 16, 50])
def test_lots_fall_on_every_place_of_a_period(advance: int, period: int) -> None:
    """A look at the loss in every tenth step is in a tenth of the measured ones, however many collectives a step."""
    for bits in (1, 3, 4):
        drawn = [step for step in range(16_000) if device_times.is_drawn(1000 + advance * step, bits)]
        assert len(drawn) == pytest.approx(16_000 >> bits, rel=0.05)
        looks = sum(step % period == 0 for step in drawn)
        assert looks / len(drawn) == pytest.approx(1 / period, rel=0.2)


def test_group_without_collectives_does_not_stop_the_measuring(training: Training) -> None:
    """A process group that one process made and never uses: its sequence stands still, so steps are counted."""
    measured = 0
    for step in range(50):
        training.times.close_step(step, 10 * MS, 7)
        measured += training.times.is_measuring
        training.times.borders = None

    assert measured > 40
