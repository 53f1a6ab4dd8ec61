"""A group's sequence number where its default backend does not count, or has none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from probing import probed

from tuiadvisor.agent.payload import PRIVATE_NAME
from tuiadvisor_probes.group_sequence import ITSELF, MAX_ASKED, UNKNOWN, Sequences, sequence_number

torch = pytest.importorskip("torch")
NUM_STEPS = 12


class Group:
    """A process group; counts: by type of device, ITSELF its default backend, what that backend says."""

    def __init__(self, **counts: int) -> None:
        self.counts = counts
        self.asked: list[str] = []
        self._device_types = [torch.device(kind) for kind in counts if kind != "own"]

    def _get_sequence_number_for_group(self) -> int:
        self.asked.append(ITSELF)
        if "own" not in self.counts:
            raise RuntimeError("ProcessGroup undefined does not yet support sequence numbers.")
        return self.counts["own"]

    def _get_backend(self, device: Any) -> Any:
        self.asked.append(device.type)
        count = self.counts[device.type]
        return Group(own=count) if count >= 0 else Group()


def test_a_group_that_counts_is_asked_itself() -> None:
    """As one of NCCL or Gloo alone."""
    group, sequences = Group(own=7, cpu=3), Sequences()
    assert [7, 7] == [sequences.of(group), sequences.of(group)]
    assert {ITSELF} == set(group.asked)


@pytest.mark.parametrize(
    ("counts", "way", "number"),
    [
        ({"cpu": 5}, "cpu", 5),
        ({"cpu": 5, "xpu": 9}, "xpu", 9),
        ({"cpu": 5, "xpu": -1}, "cpu", 5),  # a backend that counts nothing
        ({"cpu": -1}, None, UNKNOWN),
        ({}, None, UNKNOWN),
    ],
)
def test_another_is_told_by_the_backend_that_counts(
    counts: dict[str, int], way: str | None, number: int
) -> None:
    """The device's before the CPU's; and where nobody does it is unknown, and not asked again in every step."""
    group, sequences = Group(**counts), Sequences()
    assert way == sequences.way_of(group)
    assert number == sequences.of(group) == sequence_number(group)
    num_asked = len(group.asked)
    sequences.of(group)
    assert ITSELF not in group.asked[num_asked:]
    if way is None:
        assert num_asked == len(group.asked)


def test_a_group_that_was_shut_down_is_unknown() -> None:
    """Its number fails from then on; what is asked next begins anew. Many groups are no leak."""
    group, sequences = Group(own=7), Sequences()
    assert 7 == sequences.of(group)
    del group.counts["own"]
    assert UNKNOWN == sequences.of(group) == sequences.of(group)
    kept = [Group(own=1) for _ in range(3 * MAX_ASKED)]
    assert {1} == {sequences.of(one) for one in kept}
    assert len(sequences.ways) <= MAX_ASKED


@pytest.fixture
def group_by_device(tmp_path: Path) -> Iterator[Any]:
    """A group of this process by a map of devices, as FSDP2's programs make it: it has no default backend."""
    import torch.distributed as dist

    dist.init_process_group(
        "cpu:gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1
    )
    yield dist
    dist.destroy_process_group()


def in_a_wrapper(model: Any) -> Any:
    """DDP, whose group aligns the ranks."""
    return torch.nn.parallel.DistributedDataParallel(model)


@pytest.mark.parametrize("core", ["python", "native"], indirect=True)
@pytest.mark.usefixtures("core")
@pytest.mark.parametrize("wrap", [in_a_wrapper, lambda model: model], ids=["ddp", "own exchange"])
def test_steps_are_measured_in_such_a_group(
    group_by_device: Any, tmp_path: Path, wrap: Callable[[Any], Any]
) -> None:
    """The hooks that end a step failed at this and were switched off: no step of the training was measured."""
    model = wrap(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with probed(tmp_path) as observed:
        for _ in range(NUM_STEPS):
            model(torch.ones(2, 4)).sum().backward()
            group_by_device.all_reduce(torch.ones(1))
            optimizer.step()
            optimizer.zero_grad()
    numbers = [row["group_seq"] for row in observed.steps]
    assert len(numbers) >= NUM_STEPS - 2
    assert numbers == sorted(set(numbers))
    assert numbers[0] >= 0
    assert not [name for name in sys.modules if name.startswith("_tuiadvisor_probe")]


def test_a_last_step_that_fails_keeps_nothing_in(
    group_by_device: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What raised while the last step was written stayed: hooks and patches were never taken out."""
    monkeypatch.setenv("TUIADVISOR_NATIVE", "0")
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    hooks = sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks
    backward = torch.autograd._engine_run_backward

    def fails() -> int:
        raise RuntimeError("shut down")

    with probed(tmp_path):
        for _ in range(NUM_STEPS):
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
        assert hooks
        sys.modules[f"{PRIVATE_NAME}.install"]._probe.clock.group_seq = fails
    assert not hooks
    assert torch.autograd._engine_run_backward is backward
