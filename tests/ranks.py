"""Several ranks on gloo, each attaching the probe to itself in mid-run: a scenario's name in, what the rings say out.

As a script it forks the ranks: `python tests/ranks.py SCENARIO FOLDER` with WORLD_SIZE. A scenario is a function
`build(rank, world) -> step`, where step() is one iteration that returns its own stopwatch (phase -> ns) or None.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from patience import PATIENCE_S

NUM_STEPS_BEFORE, NUM_STEPS = 3, 14
LATE_S = 0.2  # of the late rank: many times what a rank waits for a core that it shares with a dozen others
Step = Callable[[], "dict[str, Any] | None"]


def run(
    scenario: str, num_ranks: int, folder: Path, python: str = sys.executable, script: str = __file__
) -> list[dict[str, Any]]:
    """Run all ranks of a scenario; their steps, events, info and own stopwatches, by rank."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "WORLD_SIZE": str(num_ranks),
        "DS_ACCELERATOR": "cpu",
    }
    parent = subprocess.Popen(
        [python, "-W", "ignore", script, scenario, str(folder)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        text = parent.communicate(timeout=PATIENCE_S)[0]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()
    assert parent.returncode == 0, text[-4000:]
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(num_ranks)]


def fork_ranks(scenario: str, folder: Path, main: Callable[[str, Path], None]) -> int:
    """Import torch once, then one process a rank: four imports at once take half a minute on two busy cores."""
    import torch
    import torch._dynamo  # as much again, by every rank's first DistributedDataParallel or optimizer
    import torch.distributed.pipelining

    assert torch.distributed.is_available()
    children = []
    for rank in range(int(os.environ["WORLD_SIZE"])):
        child = os.fork()
        if child == 0:
            os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(rank)
            status = 1
            try:
                main(scenario, folder)
                status = 0
            except Exception:  # noqa: BLE001 - the child must not go on as its parent
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        children.append(child)
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0 for child in children)


def leave() -> NoReturn:
    """End this rank with its model alive, once all ranks have come so far.

    Freed, it may never end: torch's Reducer, freed with the GIL, joins gloo's thread, which waits for the GIL where it
    frees the last gradient's all-reduce late (torch 2.13 alone: 4 of 1,200 such ends between two full cores).
    """
    import torch.distributed as dist

    dist.barrier()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def rank_main(scenario: str, folder: Path) -> NoReturn:
    """One rank."""
    import torch
    import torch.distributed as dist
    from probing import probed

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    step: Step = SCENARIOS[scenario](rank, world)
    is_truth = scenario in ("gpipe", "1f1b")
    for _ in range(1 if is_truth else NUM_STEPS_BEFORE):
        step()
    with probed(folder, detail_s=PATIENCE_S) as observed:
        own = [step() for _ in range(NUM_TRUTH_STEPS if is_truth else NUM_STEPS)]
    result = {
        "steps": observed.steps,
        "events": observed.events(),
        "info": observed.info,
        "own": own,
        "errors": observed.errors,
    }
    (folder / f"rank{rank}.json").write_text(json.dumps(result))
    leave()


class Layer:
    """Makes layers that take a known time in forward and in backward; torch is imported in the rank only."""

    def __new__(
        cls, forward_s: float, backward_s: float, width: int = 16, chunks: list[tuple[int, int]] | None = None
    ) -> Any:
        """chunks: where the layer's own stopwatch writes (begin, end) of each forward and backward, ns."""
        import torch
        from torch import nn

        def wait(seconds: float) -> None:
            begin_ns = time.monotonic_ns()
            time.sleep(seconds)
            if chunks is not None:
                chunks.append((begin_ns, time.monotonic_ns()))

        class Slow(torch.autograd.Function):
            @staticmethod
            def forward(_: Any, value: Any) -> Any:
                return value.view_as(value)

            @staticmethod
            def backward(_: Any, gradient: Any) -> Any:
                wait(backward_s)
                return gradient

        class SlowLayer(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.linear = nn.Linear(width, width)

            def forward(self, value: Any) -> Any:
                wait(forward_s)
                return Slow.apply(self.linear(value))

        return SlowLayer()


NUM_CHUNKS = 8
FORWARD_S, BACKWARD_S, LOSS_S = 0.016, 0.032, 0.02
TRUTH_S = (0.03, 0.045)  # chunks so long that waking up and sending, under 1 ms each, hardly count
NUM_TRUTH_STEPS = 5


def pipeline(
    name: str, forward_s: float = FORWARD_S, backward_s: float = BACKWARD_S, loss_s: float = 0.0
) -> Callable[[int, int], Step]:
    """A pipeline of stages that take equally long; every fifth iteration is an evaluation where the loss takes time."""

    def build(rank: int, world: int) -> Step:
        import torch
        from torch import nn
        from torch.distributed.pipelining import PipelineStage, schedules

        single = name in ("ScheduleGPipe", "Schedule1F1B")
        per_rank = 1 if single else 2
        num_stages = world * per_rank
        indices = [rank + world * number for number in range(per_rank)]
        if name in ("ScheduleZBVZeroBubble", "ScheduleDualPipeV"):
            indices = [rank, num_stages - 1 - rank]
        chunks: list[tuple[int, int]] = []
        in_stages: list[tuple[int, int]] = []
        modules: list[Any] = [
            Layer(forward_s / per_rank, backward_s / per_rank, chunks=chunks) for _ in indices
        ]

        class Stage(PipelineStage):
            """Its own stopwatch around each chunk: the layers' work, and what torch does for it."""

            def forward_one_chunk(self, *args: Any, **kwargs: Any) -> Any:
                begin_ns = time.monotonic_ns()
                result = super().forward_one_chunk(*args, **kwargs)
                in_stages.append((begin_ns, time.monotonic_ns()))
                return result

            def backward_one_chunk(self, *args: Any, **kwargs: Any) -> Any:
                begin_ns = time.monotonic_ns()
                result = super().backward_one_chunk(*args, **kwargs)
                in_stages.append((begin_ns, time.monotonic_ns()))
                return result

        if (
            "Zero" in name or "Dual" in name
        ):  # splits a backward at the graph's nodes, and knows torch's own nodes only
            wide = 512
            modules = [nn.Sequential(nn.Linear(16, wide), nn.ReLU(), nn.Linear(wide, 16)) for _ in indices]
        stages = [
            Stage(module, index, num_stages, torch.device("cpu"))
            for module, index in zip(modules, indices, strict=True)
        ]

        def loss(output: Any, target: Any) -> Any:
            time.sleep(loss_s)
            return (output - target).square().mean()

        schedule_class = getattr(schedules, name)
        schedule = schedule_class(stages[0] if single else stages, NUM_CHUNKS, loss_fn=loss)
        parameters = [parameter for module in modules for parameter in module.parameters()]
        optimizer = torch.optim.SGD(parameters, lr=0.01)
        value, target = torch.randn(NUM_CHUNKS * 2, 16), torch.randn(NUM_CHUNKS * 2, 16)
        holds_last = num_stages - 1 in indices

        num_iterations = 0

        def step() -> dict[str, Any]:
            nonlocal num_iterations
            num_iterations += 1
            chunks.clear()
            in_stages.clear()
            optimizer.zero_grad()
            arguments = (value,) if 0 in indices else ()
            if loss_s and num_iterations % 5 == 0:
                schedule.eval(*arguments, target=target, losses=[])
                return {}
            if holds_last:
                schedule.step(*arguments, target=target, losses=[])
            else:
                schedule.step(*arguments)
            optimizer.step()
            return {"layers": list(chunks), "stages": list(in_stages)}

        return step

    return build


def fsdp2(rank: int, world: int) -> Step:
    """fully_shard on each layer and the root; rank 1 is slow in forward."""
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    late_s = LATE_S if rank == 1 else 0.0
    model = nn.Sequential(Layer(0.002 + late_s, 0.004), Layer(0.002, 0.004))
    mesh = init_device_mesh("cpu", (world,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return plain_step(model)


def fsdp1(rank: int, world: int) -> Step:
    """FullyShardedDataParallel around each layer and the root; rank 1 is slow in backward."""
    import torch
    from torch import nn
    from torch.distributed.fsdp import FullyShardedDataParallel

    late_s = LATE_S if rank == 1 else 0.0
    layers = [Layer(0.002, 0.004 + late_s), Layer(0.002, 0.004)]
    device = torch.device("cpu")
    model = nn.Sequential(*[FullyShardedDataParallel(layer, device_id=device) for layer in layers])
    return plain_step(FullyShardedDataParallel(model, device_id=device))


def ddp_buffers(rank: int, world: int) -> Step:
    """Data parallel with batch statistics; rank 0, whose buffers all wait for, loads slowly."""
    from torch import nn

    model = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), Layer(0.002, 0.004))
    return plain_step(nn.parallel.DistributedDataParallel(model), LATE_S if rank == 0 else 0.001)


def ddp_wrapper_evaluates(rank: int, world: int) -> Step:
    """As Lightning leaves it after its sanity check: the wrapper in eval mode, the module in it trains."""
    from torch import nn

    model = nn.parallel.DistributedDataParallel(Layer(LATE_S if rank == 1 else 0.002, 0.002))
    model.eval()
    model.module.train()
    return plain_step(model)


def ddp_frozen(rank: int, world: int) -> Step:
    """All in eval mode, so that statistics stay; gradients are exchanged all the same. Rank 1 is slow in backward."""
    from torch import nn

    return plain_step(
        nn.parallel.DistributedDataParallel(Layer(0.002, LATE_S if rank == 1 else 0.002)).eval()
    )


def ddp_accumulation(rank: int, world: int) -> Step:
    """Four micro-batches, three of them without synchronization; rank 1 is slow in all."""
    import contextlib

    import torch
    from torch import nn

    model = nn.parallel.DistributedDataParallel(Layer(LATE_S / 4 if rank == 1 else 0.001, 0.002))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    value = torch.randn(4, 16)

    def step() -> None:
        optimizer.zero_grad()
        for number in range(4):
            with model.no_sync() if number < 3 else contextlib.nullcontext():
                model(value).square().mean().backward()
        optimizer.step()

    return step


def by_hand(rank: int, world: int) -> Step:
    """Gradients reduced by the caller, one all-reduce a parameter and a norm over all; rank 1 is slow in forward."""
    import torch
    import torch.distributed as dist

    model = Layer(LATE_S if rank == 1 else 0.002, 0.002)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    value = torch.randn(4, 16)

    def step() -> None:
        optimizer.zero_grad()
        model(value).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        dist.all_reduce(torch.ones(1))
        optimizer.step()

    return step


def ddp_gathers(rank: int, world: int) -> Step:
    """A contrastive loss over what all ranks have computed, gathered by a functional collective; rank 1 is slow."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed import _functional_collectives as functional

    model = nn.parallel.DistributedDataParallel(Layer(LATE_S if rank == 1 else 0.002, 0.002))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    value, group = torch.randn(4, 16), dist.group.WORLD

    def step() -> None:
        optimizer.zero_grad()
        mine = model(value)
        everyone = functional.all_gather_tensor_autograd(mine, 0, group)
        (mine @ everyone.T).square().mean().backward()
        optimizer.step()

    return step


def ddp_behind_prompt(rank: int, world: int) -> Step:
    """What DDP is given has a gradient, too, that all ranks sum: in backward, behind the exchange of DDP's own.

    Rank 1 comes late to that sum.
    """
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed import _functional_collectives as functional

    late_s = LATE_S if rank == 1 else 0.0

    class Shared(torch.autograd.Function):
        @staticmethod
        def forward(_: Any, value: Any) -> Any:
            return value.view_as(value)

        @staticmethod
        def backward(_: Any, gradient: Any) -> Any:
            time.sleep(late_s)
            return functional.all_reduce(gradient, "sum", dist.group.WORLD) * 1

    model = nn.parallel.DistributedDataParallel(Layer(0.002, 0.002))
    prompt = nn.Parameter(torch.randn(4, 16))
    optimizer = torch.optim.SGD([prompt, *model.parameters()], lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        model(Shared.apply(prompt)).square().mean().backward()
        optimizer.step()

    return step


def tensor_parallel(rank: int, world: int) -> Step:
    """Two layers of which each rank holds a half; rank 1 is slow between them."""
    import torch
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    class Slow(nn.Module):
        def forward(self, value: Any) -> Any:
            time.sleep(LATE_S if rank == 1 else 0.002)
            return torch.relu(value)

    model = nn.Sequential(nn.Linear(16, 16), Slow(), nn.Linear(16, 16))
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("tp",))
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return plain_step(model)


def plain_step(model: Any, data_s: float = 0.0) -> Step:
    """Forward, backward, optimizer, with the loop's own stopwatch."""
    import torch

    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    value = torch.randn(4, 16)

    def step() -> dict[str, int]:
        time.sleep(data_s)
        clock = [time.monotonic_ns()]
        loss = model(value).square().mean()
        clock.append(time.monotonic_ns())
        loss.backward()
        clock.append(time.monotonic_ns())
        optimizer.step()
        clock.append(time.monotonic_ns())
        optimizer.zero_grad()
        names = ("forward", "backward", "optimizer")
        return {name: after - before for name, before, after in zip(names, clock, clock[1:], strict=False)}

    return step


SCENARIOS: dict[str, Callable[[int, int], Step]] = {
    "gpipe": pipeline("ScheduleGPipe", *TRUTH_S),
    "1f1b": pipeline("Schedule1F1B", *TRUTH_S),
    "loss": pipeline("ScheduleGPipe", 0.002, 0.002, LOSS_S),
    "interleaved": pipeline("ScheduleInterleaved1F1B"),
    "looped_bfs": pipeline("ScheduleLoopedBFS"),
    "dual_pipe_v": pipeline("ScheduleDualPipeV"),
    "zero_bubble": pipeline("ScheduleInterleavedZeroBubble"),
    "zero_bubble_v": pipeline("ScheduleZBVZeroBubble"),
    "fsdp1": fsdp1,
    "fsdp2": fsdp2,
    "ddp_buffers": ddp_buffers,
    "ddp_accumulation": ddp_accumulation,
    "ddp_wrapper_evaluates": ddp_wrapper_evaluates,
    "ddp_frozen": ddp_frozen,
    "by_hand": by_hand,
    "ddp_gathers": ddp_gathers,
    "ddp_behind_prompt": ddp_behind_prompt,
    "tensor_parallel": tensor_parallel,
}

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    sys.exit(fork_ranks(sys.argv[1], Path(sys.argv[2]), rank_main))
