"""Borders around the waits of FSDP2: a class like torch's parameter group, on the stand-in device of device times."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_probe_device_times import INDEX, MS, Device, Training

from tuiadvisor.phases import PHASES
from tuiadvisor_probes import device_times, phases, sharded_waits, step_clock
from tuiadvisor_probes.guard import Hook

WORLD = 4
MODULE = "torch.distributed.fsdp._fully_shard._fsdp_param_group"


class Stream(str):
    """Of the device; others' events are waited for on it."""

    __slots__ = ("device",)
    device: Device

    def wait_event(self, event: Passed) -> None:
        """What is launched from here on begins after it."""
        self.device.free_at = max(self.device.free_at, event.at_ns)


class Passed:
    """An event of another stream."""

    def __init__(self, at_ns: int) -> None:
        self.at_ns = at_ns


class Ranks:
    """A process group: how many ranks, how many collectives so far."""

    def __init__(self, size: int, kind: str = "cuda") -> None:
        self.num, self.seq = size, 0
        self._device_types = (SimpleNamespace(type=kind),)

    def size(self) -> int:
        """Of ranks."""
        return self.num

    def _get_sequence_number_for_group(self) -> int:
        return self.seq


class FSDPMeshInfo:
    """Shards and no replicas."""

    def __init__(self, ranks: Ranks) -> None:
        self.shard_process_group = ranks


class Context:
    """What all parameter groups share."""

    def __init__(self, is_old: bool) -> None:
        if is_old:
            self.reduce_scatter_state: Any = None
        else:
            self.reduce_scatter_states: list[Any] = []
            self._last_post_reduce_events: dict[str, Passed] = {}


class World:
    """A training of layers whose parameters are gathered and gradients reduced at told times."""

    def __init__(self, folder: Path, *, is_old: bool = False) -> None:
        self.device = device = Device()
        stream = Stream(f"stream of {INDEX}")
        stream.device = device
        self.stream = stream
        module = device.module()
        module.current_stream = lambda _index: stream
        device.module = lambda: module  # type: ignore[method-assign]
        self.training = Training(folder / "ring", device)
        self.training.times.device.device_type = "cuda"
        self.ranks = Ranks(WORLD)
        self.pg_map = {self.ranks: None}
        self.context = Context(is_old)
        self.group_class = parameter_group_class(stream, is_old=is_old)
        self.probe = Probe(self.training)
        module = SimpleNamespace(__name__=MODULE, FSDPParamGroup=self.group_class)
        sharded_waits._follow(self.probe, module)  # type: ignore[arg-type]
        self.groups = [self.group() for _ in range(3)]
        self.wait_ms, self.num_calls = 5, 1  # of each wait; collectives a call

    def group(self) -> Any:
        """One layer's."""
        made = self.group_class()
        made.mesh_info, made.post_forward_mesh_info = FSDPMeshInfo(self.ranks), None
        made.modules, made.reduce_grads, made.comm_ctx = (object(),), True, self.context
        made._all_gather_result = made._post_reduce_event = None
        made._training_state = SimpleNamespace(name="PRE_BACKWARD")
        made.called, made.has_gradients = self.event, True
        return made

    def event(self) -> Passed:
        """Passed so long after all that the stream has to do."""
        self.ranks.seq += self.num_calls
        return Passed(max(self.device.now, self.device.free_at) + self.wait_ms * MS)

    def step(self) -> None:
        """Forward, backward and optimizer; 3 + 3 + 2 waits, and one at the end."""
        training = self.training
        training.phase(phases.DATA_WAIT, MS, 0)
        with self.within(phases.FORWARD):
            for group in self.groups:
                self.gather(group)
        with self.within(phases.BACKWARD):
            for number, group in enumerate(reversed(self.groups)):
                self.gather(group)
                self.reduce(group, is_first=not number)
            self.before_the_end()
            for group in self.groups:
                group.finalize_backward()
        training.phase(phases.OPTIMIZER, MS, MS)
        training.clock.stepped = True
        self.device.now = max(self.device.now, self.device.free_at)  # a look at the loss

    def before_the_end(self) -> None:
        """Nothing."""

    def gather(self, group: Any) -> None:
        """A layer's parameters, and its compute."""
        group.unshard()
        group.wait_for_unshard()
        self.device.launch(10 * MS)

    def reduce(self, group: Any, *, is_first: bool) -> None:
        """A layer's gradients; that of the layer before is waited for."""
        if not is_first:
            state = SimpleNamespace(event=Passed(self.device.free_at + self.wait_ms * MS))
            if hasattr(self.context, "reduce_scatter_states"):
                self.context.reduce_scatter_states = [state]
            else:
                self.context.reduce_scatter_state = state
        group.post_backward()
        if not group.has_gradients:
            return
        event = self.event()
        if hasattr(self.context, "reduce_scatter_states"):
            self.context._last_post_reduce_events = {"stream": event}
        else:
            group._post_reduce_event = event

    def within(self, phase: int) -> Within:
        """The thread is in it."""
        return Within(self.training, phase)

    def comm_ms(self) -> list[float]:
        """Exposed communication of each measured step that has been written."""
        steps: dict[int, float] = {}
        for row in self.training.rows():
            steps.setdefault(row["step"], 0.0)
            if PHASES[row["group"]] == "comm_exposed":
                steps[row["step"]] += (row["end_ns"] - row["begin_ns"]) / MS
        return [steps[step] for step in sorted(steps)]


class Within:
    """A phase of the thread."""

    def __init__(self, training: Training, phase: int) -> None:
        self.training, self.phase = training, phase

    def __enter__(self) -> None:
        self.training.clock.enter(self.phase)
        self.training.device.now += MS // 10

    def __exit__(self, *_error: object) -> None:
        self.training.clock.leave()


class Probe:
    """As far as these hooks ask it."""

    def __init__(self, training: Training) -> None:
        self.clock = training.clock
        self.shards: Any = None
        self.has_wrapper = False
        self.pipeline: dict[str, Any] = {}
        self.absences: dict[str, str] = {}
        self.registrations: list[Any] = []
        self.sequences = SimpleNamespace(of=lambda group: group._get_sequence_number_for_group())
        self.disabled: list[Hook] = []

    def hook(self, name: str) -> Hook:
        return Hook(name, 0, self.disabled.append)

    def absent(self, name: str, why: str) -> None:
        self.absences[name] = why

    def registration(self, handle: Any) -> None:
        self.registrations.append(handle)

    def put_info(self) -> None:
        """Told."""


def parameter_group_class(stream: Stream, *, is_old: bool) -> type:
    """As torch's, in what its stream waits for; is_old: until 2.12."""

    class FSDPParamGroup:
        comm_ctx: Any
        reduce_grads: bool
        has_gradients: bool
        called: Any
        _post_reduce_event: Any
        _all_gather_result: Any

        def unshard(self) -> None:
            if self._all_gather_result is None:
                event = self.called()
                self._all_gather_result = SimpleNamespace(all_gather_event=event, all_gather_work=None)

        def wait_for_unshard(self) -> None:
            stream.wait_event(self._all_gather_result.all_gather_event)
            stream.device.launch(MS)  # the copy
            self._all_gather_result = None

        def post_backward(self) -> None:
            context = self.comm_ctx
            states = [context.reduce_scatter_state] if is_old else context.reduce_scatter_states
            for state in states:
                if state is not None:
                    stream.wait_event(state.event)
            if is_old:
                context.reduce_scatter_state = None
            else:
                context.reduce_scatter_states = []
            if not self.has_gradients:
                return
            self._wait_for_post_backward()
            stream.device.launch(MS)

        def _wait_for_post_backward(self) -> None:
            if self._post_reduce_event is not None:
                stream.wait_event(self._post_reduce_event)
                self._post_reduce_event = None

        def finalize_backward(self) -> None:
            if is_old:
                self._wait_for_post_backward()
                return
            for event in self.comm_ctx._last_post_reduce_events.values():
                stream.wait_event(event)
            self.comm_ctx._last_post_reduce_events = {}

    return FSDPParamGroup


@pytest.fixture(params=[False, True], ids=["2.13", "2.6"])
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Of both layouts."""
    made = World(tmp_path, is_old=request.param)
    for module in (device_times, step_clock, sharded_waits):
        monkeypatch.setattr(module, "monotonic_ns", lambda: made.device.now)
    c10d = SimpleNamespace(get_world_size=lambda: WORLD, _world=SimpleNamespace(pg_map=made.pg_map))
    monkeypatch.setitem(sys.modules, "torch.distributed.distributed_c10d", c10d)  # type: ignore[arg-type]
    yield made
    assert not made.training.disabled
    made.training.writer.close()
    made.training.reader.close()


def test_what_the_stream_waits_is_exposed_and_the_copy_is_not(world: World) -> None:
    """Three gathers each in forward and backward, two reductions and the last: nine waits of five milliseconds."""
    for _ in range(6):
        world.step()
    comm_ms = world.comm_ms()

    assert len(comm_ms) >= 2
    assert comm_ms == pytest.approx([45.0] * len(comm_ms), abs=1.0)
    assert not world.probe.absences


def test_torch_has_its_own_functions_where_no_step_is_measured(world: World) -> None:
    """And after the probe has left within one that is."""
    own = {name: vars(world.group_class)[name] for name in sharded_waits.NAMES}
    world.step()
    world.step()
    times = world.training.times
    assert times.is_measuring
    assert all(vars(world.group_class)[name] is not own[name] for name in own)
    times.is_at_home = lambda: False
    world.step()
    world.step()

    assert not times.is_measuring
    assert {name: vars(world.group_class)[name] for name in own} == own
    times.is_at_home = None
    world.step()
    world.step()
    assert {name: vars(world.group_class)[name] for name in own} != own
    for handle in world.probe.registrations:
        handle.remove()
    assert {name: vars(world.group_class)[name] for name in own} == own


def shards_of_some(world: World) -> None:
    """Gathered from a part of the ranks."""
    for group in world.groups:
        group.mesh_info = FSDPMeshInfo(Ranks(2))


def other_shards_in_backward(world: World) -> None:
    """reshard_after_forward is a number."""
    for group in world.groups:
        group.post_forward_mesh_info = FSDPMeshInfo(Ranks(2))


def replicas(world: World) -> None:
    """HSDP."""
    hybrid = type("HSDPMeshInfo", (FSDPMeshInfo,), {})
    for group in world.groups:
        group.mesh_info = hybrid(world.ranks)


def group_of_some(world: World) -> None:
    """For tensor, expert or context parallelism."""
    world.pg_map[Ranks(2)] = None


def other_collectives(world: World) -> None:
    """Two for each of FSDP2's."""
    world.num_calls = 2


def another_beside_frozen_layers(world: World) -> None:
    """Whose hooks are called in backward though nothing of theirs is reduced."""
    for group in world.groups[:2]:
        group.has_gradients = False
    another_at_the_end(world)


def another_where_all_is_gathered_ahead(world: World) -> None:
    """So before the first wait."""
    within = world.within

    def gathered(phase: int) -> Within:
        if phase == phases.FORWARD:
            for group in world.groups:
                group.unshard()
        return within(phase)

    world.within = gathered  # type: ignore[method-assign]
    another_at_the_end(world)


def evaluated_within(world: World) -> None:
    """Of the model that is trained: ranks meet there as well, outside of the phases that are timed."""

    def before_the_end() -> None:
        with world.within(phases.EVAL):
            for group in world.groups:
                world.gather(group)

    world.before_the_end = before_the_end  # type: ignore[method-assign]


def asked_for_by_hand(world: World) -> None:
    """`unshard()` outside of forward: gathered on the stream that computes, which has waited when that returns."""
    for group in world.groups:
        group._training_state = SimpleNamespace(name="IDLE")


def another_at_the_end(world: World) -> None:
    """One collective more, as of a loss that ranks share."""

    def before_the_end() -> None:
        world.ranks.seq += 1

    world.before_the_end = before_the_end  # type: ignore[method-assign]


def nobody_counts(world: World) -> None:
    """A backend without sequence numbers."""
    world.num_calls, world.ranks.seq = 0, -1


def data_parallel(world: World) -> None:
    """A module of DDP is beside it."""
    world.probe.has_wrapper = True


def a_part_of_a_layer(world: World) -> None:
    """Several modules in one group, of which some ran: torch waits for its reduction at once."""
    for group in world.groups:
        group.modules, group._training_state = (object(), object()), SimpleNamespace(name="FORWARD")


@pytest.mark.parametrize(
    "change",
    [
        shards_of_some,
        other_shards_in_backward,
        replicas,
        group_of_some,
        other_collectives,
        evaluated_within,
        asked_for_by_hand,
        another_at_the_end,
        another_beside_frozen_layers,
        another_where_all_is_gathered_ahead,
        nobody_counts,
        data_parallel,
        a_part_of_a_layer,
    ],
)
def test_no_wait_is_told_where_others_are_not_seen(world: World, change: Callable[[World], None]) -> None:
    """Steps are timed as before, without exposed communication; after some of them nothing is tried any more."""
    change(world)
    for _ in range(2 + sharded_waits.MAX_UNTOLD + 2):
        world.step()
    comm_ms = world.comm_ms()

    assert len(comm_ms) >= sharded_waits.MAX_UNTOLD
    assert set(comm_ms) == {0.0}
    assert world.probe.absences["sharded_waits"]
    assert not world.probe.shards.is_in


@pytest.mark.parametrize(
    ("name", "of_dynamo"),
    [
        ("config", SimpleNamespace(compiled_autograd=True)),
        ("config", SimpleNamespace(compiled_autograd=False, skip_fsdp_hooks=False)),
        ("utils", SimpleNamespace(counters={"compiled_autograd": {"captures": 1}})),
    ],
)
def test_what_dynamo_looks_through_stays_as_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str, of_dynamo: SimpleNamespace
) -> None:
    """Another function in the place of torch's would be compiled anew, or end the training."""
    own = {name: vars(world.group_class)[name] for name in sharded_waits.NAMES}
    monkeypatch.setitem(sys.modules, f"torch._dynamo.{name}", of_dynamo)  # type: ignore[arg-type]
    for _ in range(4):
        world.step()
        assert {name: vars(world.group_class)[name] for name in own} == own

    assert world.probe.absences == {"sharded_waits": sharded_waits.TRACED}
    assert set(world.comm_ms()) == {0.0}


def test_groups_of_some_ranks_that_are_no_devices_do_not_matter(world: World) -> None:
    """As Gloo's for a checkpoint's plan, or of each rank for itself."""
    world.pg_map |= {Ranks(2, "cpu"): None, Ranks(1): None}
    for _ in range(6):
        world.step()

    assert world.comm_ms()[-1] == pytest.approx(45.0, abs=1.0)


def test_a_step_in_which_a_hook_fails_tells_no_wait(world: World) -> None:
    """A half of its waits would be less than all ranks': it would be late."""
    for _ in range(3):
        world.step()
    for group in world.groups:
        del group.reduce_grads  # torch of another layout
    world.group_class.reduce_grads = property(lambda _self: 1 / 0)  # type: ignore[attr-defined]
    world.step()
    world.step()
    comm_ms = world.comm_ms()

    assert [hook.name for hook in world.probe.disabled] == ["sharded_waits"]
    assert comm_ms[-1] == 0.0
    assert max(comm_ms) > 0


def test_a_torch_that_waits_at_another_place_is_not_believed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All names are there, but what is reduced last is waited for where no hook is: that would look like compute."""

    def finalize_backward(group: Any) -> None:
        group._post_reduce_event, world.context._last_post_reduce_events = None, {}

    def wait_elsewhere() -> None:
        events = [*getattr(world.context, "_last_post_reduce_events", {}).values()]
        for group in world.groups:
            events.append(group._post_reduce_event)
            group._post_reduce_event = None
        for event in filter(None, events):
            world.stream.wait_event(event)
        world.context._last_post_reduce_events = {}

    monkeypatch.setattr(world.group_class, "finalize_backward", finalize_backward)
    monkeypatch.setattr(world, "before_the_end", wait_elsewhere)
    for _ in range(sharded_waits.MAX_UNTOLD + 3):
        world.step()

    assert set(world.comm_ms()) == {0.0}
    assert world.probe.absences == {"sharded_waits": sharded_waits.OTHERWISE}


def test_too_many_waits_are_given_up_and_steps_are_timed_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Device times of a step without its waits are better than none."""
    monkeypatch.setattr(sharded_waits, "MAX_BORDERS", 10)
    for _ in range(8):
        world.step()
    comm_ms = world.comm_ms()

    assert len(comm_ms) >= 3
    assert set(comm_ms) == {0.0}
    assert world.probe.absences == {"sharded_waits": sharded_waits.TOO_MANY}
