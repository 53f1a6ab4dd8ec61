"""Backwards beyond one loss of one DistributedDataParallel module: what the probe records of them on a device.

Two ranks on the asynchronous device (asynchronous_device.py), the second half as fast again, so that the first waits in
each exchange. Each loop is run twice in the same process, unwatched and watched: the gradients have to be the same bit
for bit, no hook may be disabled, and what a rank's device waits at exchanges has to be booked as exposed communication.
How long that was the device tells itself: where the machine gives a rank its core late, the other waits for longer.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from patience import PATIENCE_S

pytest.importorskip("torch")

NUM_STEPS, WARM_UP = 20, 4
SLOW_RANK, SLOW_BY = 1, 1.5
LAYERS, FORWARD_S, BACKWARD_S, TRANSFER_S = 3, 0.002, 0.004, 0.0005

Result = dict[str, Any]
Step = Callable[[Any, Any], None]


# -- in the ranks -----------------------------------------------------------------------------------------------------


class Loops:
    """The loops by name; each makes its model anew and gives it back with one step of training."""

    def __init__(self, rank: int) -> None:
        import asynchronous_device as device
        import asynchronous_training as training

        self.device, self.training = device, training
        self.compute = device.default_stream()
        self.compute.is_slow_by = SLOW_BY if rank == SLOW_RANK else 1.0
        self.host = training.Host(self.compute, 0.0002)
        self.meeting = training.Meeting()

    def net(self, layers: int = LAYERS) -> Any:
        from torch import nn

        return nn.Sequential(*(self.training.Layer(self.host, FORWARD_S, BACKWARD_S) for _ in range(layers)))

    def parallel(self, module: Any, **options: Any) -> Any:
        from torch.nn.parallel import DistributedDataParallel

        model = DistributedDataParallel(module, bucket_cap_mb=1e-5, **options)
        exchange = self.training.Exchange(model.process_group, self.compute, self.meeting, TRANSFER_S)
        model.register_comm_hook(None, exchange.reduce)
        return model

    def sgd(self, *modules: Any) -> Any:
        parameters = [parameter for module in modules for parameter in module.parameters()]
        return self.training.Sgd(parameters, self.host, 0.001)

    def plain(
        self, losses: Callable[[Any, Any, Any], None], module: Any = None, **options: Any
    ) -> tuple[Any, Step]:
        """losses(model, features, labels) does forward and backward."""
        model = self.parallel(module or self.net(), **options)
        optimizer = self.sgd(model)

        def step(features: Any, labels: Any) -> None:
            optimizer.zero_grad()
            losses(model, features, labels)
            optimizer.step()

        return model, step

    def one_loss(self) -> tuple[Any, Step]:
        return self.plain(lambda model, x, y: entropy(model(x), y).backward())

    def static_graph(self) -> tuple[Any, Step]:
        return self.plain(lambda model, x, y: entropy(model(x), y).backward(), static_graph=True)

    def tensors_by_name(self) -> tuple[Any, Step]:
        from torch import autograd

        return self.plain(lambda model, x, y: autograd.backward(tensors=(entropy(model(x), y),)))

    def python_node(self) -> tuple[Any, Step]:
        import torch

        class Same(torch.autograd.Function):
            forward = staticmethod(lambda _ctx, value: value.view_as(value))
            backward = staticmethod(lambda _ctx, gradient: gradient * 1.0)

        return self.plain(lambda model, x, y: Same.apply(entropy(model(x), y)).backward())

    def scaled(self) -> tuple[Any, Step]:
        """With a step that the scaler skips now and then."""
        import torch

        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        model = self.parallel(self.net())
        optimizer = self.sgd(model)
        steps: list[None] = []

        def step(features: Any, labels: Any) -> None:
            optimizer.zero_grad()
            steps.append(None)
            loss = entropy(model(features), labels) * (float("inf") if len(steps) % 7 == 0 else 1.0)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

        return model, step

    def failing_backward(self) -> tuple[Any, Step]:
        """Every sixth backward raises, and the module is wrapped anew."""
        import torch

        class Fails(torch.autograd.Function):
            forward = staticmethod(lambda _ctx, value: value.view_as(value))

            @staticmethod
            def backward(_ctx: Any, _gradient: Any) -> Any:
                raise ValueError("of the training's own")

        net = self.net()
        models, optimizer = [self.parallel(net)], self.sgd(net)
        steps: list[None] = []

        def step(features: Any, labels: Any) -> None:
            optimizer.zero_grad()
            steps.append(None)
            if len(steps) % 6 == 0:
                with contextlib.suppress(ValueError):
                    entropy(Fails.apply(models[0](features)), labels).backward()
                models[0] = self.parallel(net)
            entropy(models[0](features), labels).backward()
            optimizer.step()

        return net, step

    def another_loss_first(self) -> tuple[Any, Step]:
        """A probe head, trained beside: its backward comes between the model's forward and backward."""
        from torch import nn

        head = nn.Linear(self.training.WIDTH, self.training.NUM_LABELS)

        def losses(model: Any, features: Any, labels: Any) -> None:
            loss = entropy(model(features), labels)
            entropy(head(features), labels).backward()
            loss.backward()

        return self.plain(losses)

    def two_losses_in_one_call(self) -> tuple[Any, Step]:
        from torch import autograd, nn

        head = nn.Linear(self.training.WIDTH, self.training.NUM_LABELS)

        def losses(model: Any, features: Any, labels: Any) -> None:
            auxiliary = entropy(head(features), labels)
            autograd.backward([auxiliary, entropy(model(features), labels)])

        return self.plain(losses)

    def two_heads(self) -> tuple[Any, Step]:
        """One module, each head with a backward of its own: the exchange is over with the second."""
        from torch import nn

        loops = self

        class Heads(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first, self.second = loops.net(1), loops.net(LAYERS - 1)

            def forward(self, value: Any) -> Any:
                return self.first(value), self.second(value)

        def losses(model: Any, features: Any, labels: Any) -> None:
            first, second = model(features)
            entropy(first, labels).backward()
            entropy(second, labels).backward()

        return self.plain(losses, Heads())

    def two_modules(self) -> tuple[Any, Step]:
        """Both forwards, then both backwards: the ranks meet twice."""
        from torch import nn

        first, second = self.parallel(self.net()), self.parallel(self.net())
        optimizer = self.sgd(first, second)

        def step(features: Any, labels: Any) -> None:
            optimizer.zero_grad()
            one, other = entropy(first(features), labels), entropy(second(features), labels)
            one.backward()
            other.backward()
            optimizer.step()

        return nn.ModuleList([first, second]), step

    def eight_micro_steps(self) -> tuple[Any, Step]:
        """Each with a batch of its own; the last one exchanges."""
        model = self.parallel(self.net(1))
        optimizer, batches = self.sgd(model), self.batches()

        def step(_features: Any, _labels: Any) -> None:
            optimizer.zero_grad()
            for number in range(8):
                features, labels = next(batches)
                with model.no_sync() if number < 7 else contextlib.nullcontext():
                    entropy(model(features), labels).backward()
            optimizer.step()

        return model, step

    def batches(self) -> Iterator[Any]:
        from torch.utils.data import DataLoader

        return iter(DataLoader(self.training.Samples(0.0003), batch_size=4))

    def gradients(self, name: str) -> list[Any]:
        """Of all parameters, and these, after training."""
        import torch

        torch.manual_seed(7)
        model, step = getattr(self, name)()
        batches = self.batches()
        for _ in range(NUM_STEPS):
            step(*next(batches))
            self.compute.synchronize()
        grads = [parameter.grad for parameter in model.parameters()]
        return [
            *(grad.clone() for grad in grads if grad is not None),
            *(p.detach() for p in model.parameters()),
        ]


def entropy(scores: Any, labels: Any) -> Any:
    """The loss."""
    from torch.nn.functional import cross_entropy

    return cross_entropy(scores, labels)


def in_ms(spans: Iterable[tuple[int, int]]) -> float:
    """Their sum; spans in ns."""
    return sum(end - begin for begin, end in spans) / 1e6


def waited_in(step: list[tuple[str, int, int]], waits: list[tuple[int, int]]) -> float:
    """How long the device stood still at exchanges between the first and the last moment recorded of a step, in ms."""
    first, last = min(begin for _, begin, _ in step), max(end for _, _, end in step)
    return in_ms((max(begin, first), min(end, last)) for begin, end in waits if end > first and begin < last)


def main() -> None:
    """Every loop, unwatched and watched; rank 0 prints a line of JSON for each, with all ranks' results."""
    import asynchronous_device
    import torch
    import torch.distributed as dist
    from probing import probed

    from tuiadvisor.events import EventKind
    from tuiadvisor.phases import PHASES

    torch.set_num_threads(1)
    asynchronous_device.install()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    loops = Loops(rank)
    for name in sys.argv[1:]:
        unwatched = loops.gradients(name)
        with tempfile.TemporaryDirectory() as folder:
            with probed(Path(folder)) as observed:
                watched = loops.gradients(name)
            steps: dict[int, list[tuple[str, int, int]]] = {}
            for event in observed.events(EventKind.DEVICE_PHASE):
                span = PHASES[event["group"]], event["begin_ns"], event["end_ns"]
                steps.setdefault(event["step"], []).append(span)
        kept = [steps[number] for number in sorted(steps)[WARM_UP:]]
        comm_ms = [
            in_ms((begin, end) for name, begin, end in step if name == "comm_exposed") for step in kept
        ]
        waited_ms = [waited_in(step, loops.compute.waits) for step in kept]
        result: Result = {
            "same": all(torch.equal(one, other) for one, other in zip(unwatched, watched, strict=True)),
            "num_steps": len(kept),
            "comm_ms": statistics.median(comm_ms or [-1.0]),
            "waited_ms": statistics.fmean(waited_ms or [-1.0]),
            "astray_ms": statistics.median(
                [abs(one - other) for one, other in zip(comm_ms, waited_ms, strict=True)]
            ),
        }
        results: list[Any] = [None] * world
        dist.all_gather_object(results, result)
        if rank == 0:
            print(json.dumps({"name": name, "ranks": results}), flush=True)
    loops.compute.synchronize()
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # streams of other modules may still wait for a rank that has ended


# -- what is said -----------------------------------------------------------------------------------------------------

HOLDS = ("one_loss", "static_graph", "tensors_by_name", "python_node", "scaled", "failing_backward")
WAITS_ARE_BACKWARD = ("another_loss_first", "two_losses_in_one_call", "two_heads")
ALL = (*HOLDS, *WAITS_ARE_BACKWARD, "two_modules", "eight_micro_steps")


@lru_cache(maxsize=1)
def results() -> dict[str, list[Result]]:
    """Of all loops by name, one item a rank: they are run once."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launcher, __file__, *ALL],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-4000:]  # also where a hook was disabled
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {line["name"]: line["ranks"] for line in lines}


pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ALL)
def test_gradients_are_those_of_the_unwatched_twin(name: str) -> None:
    """Bit for bit, whatever the backward is; no hook met an error of its own."""
    assert [result["same"] for result in results()[name]] == [True, True]


def is_all_the_wait(name: str) -> bool:
    """Whether exposed communication is what the devices waited at exchanges, on each rank.

    Within half a transfer, which is the least that a device waits, or a tenth of what it waited: how long one rank
    waits for the other hangs on when the machine gives them a core, so that the settings cannot tell it.
    """
    return all(
        result["waited_ms"] > 0 and result["astray_ms"] < max(TRANSFER_S * 1e3 / 2, 0.1 * result["waited_ms"])
        for result in results()[name]
    )


@pytest.mark.parametrize("name", HOLDS)
def test_wait_for_the_slow_rank_is_exposed_communication(name: str) -> None:
    """Of the rank that waits for the slow one, and of the slow one, which waits for the transfer alone."""
    assert is_all_the_wait(name), results()[name]


@pytest.mark.parametrize("name", WAITS_ARE_BACKWARD)
def test_wait_is_not_backward_where_another_loss_comes_first(name: str) -> None:
    """Recorded is a wait of nothing on both ranks: they look equally late, and the job is kept as it is."""
    assert is_all_the_wait(name), results()[name]


def test_both_exchanges_of_two_modules_are_seen() -> None:
    """The device stands still twice a step, and for longer than one of the two transfers where it is never last."""
    assert is_all_the_wait("two_modules"), results()["two_modules"]
    assert min(result["comm_ms"] for result in results()["two_modules"]) > 1.5 * TRANSFER_S * 1e3


def test_eight_micro_steps_are_measured() -> None:
    """Accumulating over eight batches and more is usual where models are large."""
    assert min(result["num_steps"] for result in results()["eight_micro_steps"]) >= NUM_STEPS // 2


if __name__ == "__main__":
    main()
