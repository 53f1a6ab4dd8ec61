"""Backwards beyond one loss of one DistributedDataParallel module: what the probe records of them on a device.

Two ranks on the asynchronous device (asynchronous_device.py), the second half as fast again, so that the first waits in
each exchange. Each loop is run twice in the same process, unwatched and watched: the gradients have to be the same bit
for bit, no hook may be disabled, and what a rank's device waits at exchanges has to be booked as exposed communication.
How long that was the device tells itself: where the machine gives a rank its core late, the other waits for longer.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
import watched_loops
from watched_loops import NUM_STEPS, Result, Step, results_of, run

pytest.importorskip("torch")

LAYERS, FORWARD_S, BACKWARD_S, TRANSFER_S = 3, 0.002, 0.004, 0.0005


# -- in the ranks -----------------------------------------------------------------------------------------------------


class Loops(watched_loops.Loops):
    """Of data-parallel trainings."""

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        self.meeting = self.training.Meeting()

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


def entropy(scores: Any, labels: Any) -> Any:
    """The loss."""
    from torch.nn.functional import cross_entropy

    return cross_entropy(scores, labels)


# -- what is said -----------------------------------------------------------------------------------------------------

HOLDS = ("one_loss", "static_graph", "tensors_by_name", "python_node", "scaled", "failing_backward")
WAITS_ARE_BACKWARD = ("another_loss_first", "two_losses_in_one_call", "two_heads")
ALL = (*HOLDS, *WAITS_ARE_BACKWARD, "two_modules", "eight_micro_steps")


@lru_cache(maxsize=1)
def results() -> dict[str, list[Result]]:
    """Of all loops by name, one item a rank: they are run once."""
    return results_of(__file__, ALL)


pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ALL)
def test_gradients_are_those_of_the_unwatched_twin(name: str) -> None:
    """Bit for bit, whatever the backward is; no hook met an error of its own."""
    assert [result["same"] for result in results()[name]] == [True, True]


def is_all_the_wait(name: str) -> bool:
    """Of these loops; a transfer is the least that a device waits."""
    return watched_loops.is_all_the_wait(results()[name], TRANSFER_S * 1e3)


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
    run(Loops)
