"""FSDP2 on a device: where its stream waits for a collective is what the probe records, and nothing else is.

Two ranks of torch's own `fully_shard` on the asynchronous device (asynchronous_sharded_training.py), watched and
unwatched (watched_loops.py). Where ranks meet at other places, too, or not all of them, no wait may be recorded.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
import watched_loops
from watched_loops import NUM_STEPS, Result, Step, results_of, run

pytest.importorskip("torch.distributed.fsdp._fully_shard._fsdp_param_group")

LAYERS, TRANSFER_MS = 3, 0.5
SETTINGS = (
    *("--layers", str(LAYERS), "--transfer-ms", str(TRANSFER_MS)),
    *("--forward-ms", "9", "--backward-ms", "18"),
)


# -- in the ranks -----------------------------------------------------------------------------------------------------


class Loops(watched_loops.Loops):
    """Of trainings whose parameters are sharded."""

    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        import asynchronous_sharded_training as sharded_training

        self.sharding, self.rank = sharded_training, rank
        sharded_training.on_the_device()
        self.compiled: dict[bool, list[tuple[Any, Step]]] = {}  # by whether as a whole

    def net(self, *settings: str) -> Any:
        """Of layers, not sharded yet, with its options."""
        from torch import nn

        options = self.sharding.parse([*SETTINGS, *settings])
        return nn.Sequential(*self.sharding.layers(options, self.host, self.rank)), options

    def loop(self, model: Any, forward: Any = None, num_micro_steps: int = 1) -> tuple[Any, Step]:
        """One step of it."""
        from torch.nn.functional import cross_entropy

        optimizer = self.training.Sgd(model.parameters(), self.host, 0.001)
        forward = forward or model

        def step(features: Any, labels: Any) -> None:
            optimizer.zero_grad()
            for number in range(num_micro_steps):
                if num_micro_steps > 1:
                    model.set_requires_gradient_sync(number == num_micro_steps - 1)
                cross_entropy(forward(features), labels).backward()
            optimizer.step()

        return model, step

    def plain(self) -> tuple[Any, Step]:
        model, options = self.net()
        return self.loop(self.sharding.sharded(options, model))

    def kept_whole(self) -> tuple[Any, Step]:
        model, options = self.net("--keep-whole")
        return self.loop(self.sharding.sharded(options, model))

    def prefetched(self) -> tuple[Any, Step]:
        model, options = self.net("--prefetch", "2")
        return self.loop(self.sharding.sharded(options, model))

    def four_micro_steps(self) -> tuple[Any, Step]:
        model, options = self.net()
        return self.loop(self.sharding.sharded(options, model), num_micro_steps=4)

    def parameters_at_the_root(self) -> tuple[Any, Step]:
        """The last layer is none of its own."""
        from torch import nn

        model, options = self.net()
        body = nn.Sequential(*model[:-1])
        root = nn.Sequential(body, model[-1])
        return self.loop(self.sharding.sharded(options, root, tuple(body)))

    def recomputed(self) -> tuple[Any, Step]:
        """In backward, with the parameters that are there for it."""
        from torch.utils.checkpoint import checkpoint

        model, options = self.net()
        model = self.sharding.sharded(options, model)

        def forward(features: Any) -> Any:
            value = model[0](features)
            for layer in model[1:]:
                value = checkpoint(layer, value, use_reentrant=False)
            return value

        return self.loop(model, forward)

    def compiled_layers(self) -> tuple[Any, Step]:
        return self.compiled_before(is_whole=False)

    def compiled_as_a_whole(self) -> tuple[Any, Step]:
        return self.compiled_before(is_whole=True)

    def compiled_before(self, *, is_whole: bool) -> tuple[Any, Step]:
        """A model that was compiled before the probe came; from now on nothing may be compiled anew."""
        import torch

        if is_whole not in self.compiled:
            torch.compiler.set_stance("default")
            self.compiled[is_whole] = [self.compiles(is_whole=is_whole) for _ in range(2)]
        torch.compiler.set_stance("fail_on_recompile")
        torch.manual_seed(7)
        return self.compiled[is_whole].pop()

    def compiles(self, *, is_whole: bool) -> tuple[Any, Step]:
        """As compiled by its first steps."""
        import torch

        class Core(torch.nn.Module):
            """Of a layer: modules of torch's own are not looked at by themselves."""

            def __init__(self, inner: Any) -> None:
                super().__init__()
                self.inner = inner

            def forward(self, value: Any) -> Any:
                return self.inner(value)

        torch.manual_seed(7)
        model, options = self.net()
        for layer in model:
            layer.linear = Core(layer.linear)
        model = self.sharding.sharded(options, model)
        # What launches kernels is no operation of torch's.
        self.training.Launches.apply = torch.compiler.disable(self.training.Launches.apply)
        for module in (model,) if is_whole else [layer.linear for layer in model]:
            module.compile(backend="eager")
        model, step = self.loop(model)
        batches = self.batches()
        for _ in range(4):
            step(*next(batches))
        return model, step

    # Where waits do not tell who came last.

    def replicated(self) -> tuple[Any, Step]:
        model, options = self.net("--replicas", "2")
        return self.loop(self.sharding.sharded(options, model))

    def met_in_forward(self) -> tuple[Any, Step]:
        """As for batch statistics, a contrastive loss, or a barrier by hand."""
        import torch
        import torch.distributed as dist

        model, options = self.net()
        model = self.sharding.sharded(options, model)

        def forward(features: Any) -> Any:
            value = model(features)
            dist.all_reduce(torch.zeros(1))
            return value

        return self.loop(model, forward)

    def met_where_all_is_gathered_ahead(self) -> tuple[Any, Step]:
        """Gathers that were called before the step's first wait are none of those that others could hide behind."""
        import torch
        import torch.distributed as dist

        model, options = self.net()
        model = self.sharding.sharded(options, model)

        def forward(features: Any) -> Any:
            for layer in model:
                layer.unshard(async_op=True)
            value = model(features)
            dist.all_reduce(torch.zeros(1))
            return value

        return self.loop(model, forward)

    def met_where_layers_are_frozen(self) -> tuple[Any, Step]:
        """As with adapters: a layer without gradients is not reduced, though its hook is called."""
        import torch
        import torch.distributed as dist

        model, options = self.net()
        model[1].requires_grad_(requires_grad=False)
        model = self.sharding.sharded(options, model)

        def forward(features: Any) -> Any:
            value = model(features)
            dist.all_reduce(torch.zeros(1))
            return value

        return self.loop(model, forward)

    def gathered_by_hand(self) -> tuple[Any, Step]:
        """Outside of forward that is on the stream that computes: it has waited when the call returns."""
        model, options = self.net()
        model = self.sharding.sharded(options, model)

        def forward(features: Any) -> Any:
            for layer in model:
                layer.unshard()
            return model(features)

        return self.loop(model, forward)

    def beside_a_reference_model(self) -> tuple[Any, Step]:
        """Sharded as well: what the stream waits for its layers is seen like all else."""
        import torch

        reference, model = (self.sharding.sharded(options, net) for net, options in (self.net(), self.net()))

        def forward(features: Any) -> Any:
            with torch.no_grad():
                reference(features)
            return model(features)

        reference.eval()
        return self.loop(model, forward)

    def beside_data_parallel(self) -> tuple[Any, Step]:
        from torch import nn
        from torch.nn.parallel import DistributedDataParallel

        model, options = self.net()
        head = self.training.Layer(self.host, 0.002, 0.004, self.training.NUM_LABELS)
        body = self.sharding.sharded(options, nn.Sequential(*model[:-1]))
        both = nn.Sequential(body, DistributedDataParallel(head))
        return self.loop(both)


# -- what is said -----------------------------------------------------------------------------------------------------

COMPILED = ("compiled_layers", "compiled_as_a_whole")
TOLD = (
    *("plain", "kept_whole", "prefetched", "four_micro_steps", "parameters_at_the_root", "recomputed"),
    "beside_a_reference_model",
    *COMPILED,
)
UNTOLD = {
    "replicated": "sharded among some of the ranks, or replicated",
    "met_in_forward": "for other than FSDP2's parameters",
    "met_where_all_is_gathered_ahead": "outside of training's forward and backward",
    "met_where_layers_are_frozen": "for other than FSDP2's parameters",
    "gathered_by_hand": "outside of training's forward and backward",
    "beside_data_parallel": "a module of DDP",
}
ALL = (*(name for name in TOLD if name not in COMPILED), *UNTOLD, *COMPILED)


@lru_cache(maxsize=1)
def results() -> dict[str, list[Result]]:
    """Of all loops by name, one item a rank: they are run once."""
    return results_of(__file__, ALL)


pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ALL)
def test_gradients_are_those_of_the_unwatched_twin(name: str) -> None:
    """Bit for bit; no hook met an error of its own."""
    assert [result["same"] for result in results()[name]] == [True, True]
    assert min(result["num_steps"] for result in results()[name]) >= NUM_STEPS // 2


@pytest.mark.parametrize("name", TOLD)
def test_exposed_communication_is_what_the_stream_waited(name: str) -> None:
    """As the device itself tells: of the rank that waits for the slow one, and of the slow one, for transfers alone."""
    assert watched_loops.is_all_the_wait(results()[name], TRANSFER_MS), results()[name]
    assert {result["hooks"]["sharded_waits"] for result in results()[name]} == {"ok"}


@pytest.mark.parametrize("name", COMPILED)
def test_nothing_was_compiled_anew(name: str) -> None:
    """While that ends the training: with the probe, measured steps and others, and after it has left."""
    assert all(result["num_compiled"] > 0 for result in results()[name])


@pytest.mark.parametrize(("name", "why"), UNTOLD.items())
def test_nothing_is_recorded_where_other_waits_are_not_seen(name: str, why: str) -> None:
    """Whoever waits for a rank where no hook is looks as busy as that rank: nobody may be named by such waits."""
    assert [result["comm_ms"] for result in results()[name]] == [0.0, 0.0], results()[name]
    assert all(why in result["hooks"]["sharded_waits"] for result in results()[name]), results()[name]


if __name__ == "__main__":
    run(Loops)
