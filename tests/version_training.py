"""One small training of each kind that a probe looks into, on any torch from 2.1 on, for `versions.py`.

`torchrun --nproc-per-node 2 tests/version_training.py KIND FOLDER`: rank 1 is late by LATE_MS in each step, if given.
Trains until FOLDER/stop exists or STEPS are made, then each rank writes the sum of its weights' bytes and the number of
steps to FOLDER/rank-N.json. `--fork` makes two ranks of one process, which imports torch once. Needs nothing but torch,
and Python 3.10. Where this torch has no such training the exit code is 77 and FOLDER/cannot says why.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import inspect
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

WIDTH, ROWS, NUM_MICRO_BATCHES = 16, 4, 4
NUM_WARM = 8  # steps, after which a rank says that it has imported what torch imports late
LOOK_EVERY = 5  # steps between two looks at the stop file
CANNOT = 77  # exit code: this torch has no such thing, or not here


class Late(torch.autograd.Function):
    """Identity whose backward takes a while."""

    @staticmethod
    def forward(ctx: Any, value: Any, seconds: float) -> Any:
        """Keep the time for later."""
        ctx.seconds = seconds
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """Wait, then pass the gradient on."""
        time.sleep(ctx.seconds)
        return gradient, None


class Layer(nn.Module):
    """A linear layer that takes a known time forward and backward."""

    def __init__(self, forward_s: float, backward_s: float) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.forward_s, self.backward_s = forward_s, backward_s

    def forward(self, value: Any) -> Any:
        """Rows x WIDTH."""
        time.sleep(self.forward_s)
        # No view: torch 2.6 detaches a stage's output in place.
        return 1.0 * Late.apply(torch.relu(self.linear(value)), self.backward_s)


class Rows(Dataset):
    """Made up from their index; a batch may take long."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Any:
        return torch.full((WIDTH,), float(index % 7))

    def __getitems__(self, indices: list[int]) -> list[Any]:
        """A whole batch."""
        time.sleep(self.seconds)
        return [self[index] for index in indices]


def plain(model: Any, optimizer: Any, batches: Any) -> None:
    """One step."""
    optimizer.zero_grad()
    model(next(batches)).square().mean().backward()
    optimizer.step()


def layers(base_s: float, late_s: float) -> Any:
    """Two, of which the first may be late in forward."""
    return nn.Sequential(Layer(base_s + late_s, base_s), Layer(base_s, base_s))


def fully_shard_of_torch() -> Any:
    """FSDP2, which lay elsewhere before torch 2.6."""
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        from torch.distributed._composable.fsdp import fully_shard
    return fully_shard


def make_model(kind: str, base_s: float, late_s: float) -> Any:
    """Late in backward where compiled, in the loader as `loader`, else in forward."""
    if kind == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel

        cpu = torch.device("cpu")
        inner = layers(base_s, late_s)
        wrapped = nn.Sequential(*[FullyShardedDataParallel(layer, device_id=cpu) for layer in inner])
        return FullyShardedDataParallel(wrapped, device_id=cpu)
    if kind == "fsdp2":
        from torch.distributed.device_mesh import init_device_mesh

        fully_shard = fully_shard_of_torch()
        model, mesh = layers(base_s, late_s), init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model
    if kind == "compiled":
        inner = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        compiled = torch.compile(inner, backend="aot_eager")
        return DistributedDataParallel(nn.Sequential(compiled, Layer(base_s, base_s + late_s)))
    return DistributedDataParallel(layers(base_s, 0.0 if kind == "loader" else late_s))


def make_pipeline(base_s: float, late_s: float, batches: Any) -> Any:
    """A step of 1F1B over two stages of which the second may be late; its module. late_s: of a whole step."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    rank, world = dist.get_rank(), dist.get_world_size()
    module = Layer((base_s + late_s) / NUM_MICRO_BATCHES, base_s / NUM_MICRO_BATCHES)
    # Torch 2.4 and 2.5 do not ask the stage before what it sends.
    asked = inspect.signature(PipelineStage).parameters.get("input_args")
    needs_input = asked is not None and asked.default is inspect.Parameter.empty
    given = {"input_args": (torch.zeros(ROWS, WIDTH),)} if needs_input else {}
    stage = PipelineStage(module, rank, world, torch.device("cpu"), **given)
    schedule = Schedule1F1B(stage, NUM_MICRO_BATCHES, loss_fn=lambda output, _target: output.square().mean())
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        rows = next(batches)
        if rank == 0:
            schedule.step(rows)
        else:
            schedule.step(target=rows, losses=[])
        optimizer.step()

    return step, module


def should_stop(folder: Path, num_steps: int, step: int) -> bool:
    """The same answer on all ranks: rank 0 looks."""
    if num_steps:
        return step >= num_steps
    if step % LOOK_EVERY:
        return False
    told = torch.tensor([int((folder / "stop").exists())])
    dist.broadcast(told, 0)
    return bool(told.item())


def train(options: argparse.Namespace) -> int:
    """Until it is told to stop; the exit code."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    rank = dist.get_rank()
    late_s = options.late_ms / 1e3 if rank == 1 else 0.0
    base_s = options.base_ms / 1e3
    is_loader = options.kind == "loader"
    rows = Rows(late_s if is_loader else 0.0)
    # Nothing made ahead: the loader's lateness would be hidden behind the step.
    ahead = {"num_workers": 1, "prefetch_factor": 1} if is_loader else {}
    batch = ROWS * NUM_MICRO_BATCHES
    batches = iter(DataLoader(rows, batch, **ahead))
    try:
        if options.kind == "pipeline":
            step, model = make_pipeline(base_s, late_s, batches)
        else:
            model = make_model(options.kind, base_s, late_s)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

            def step() -> None:
                plain(model, optimizer, batches)

        step()
    except Exception as error:  # noqa: BLE001 - whatever torch says of what it cannot do without a GPU
        # Of two ranks the first to fail says why; the other may only miss it.
        with contextlib.suppress(FileExistsError), (options.folder / "cannot").open("x") as file:
            file.write(f"{type(error).__name__}: {error}")
        return CANNOT
    num = 1
    while not should_stop(options.folder, options.steps, num):
        step()
        num += 1
        if num == NUM_WARM:
            (options.folder / f"ready-{rank}").write_text(str(os.getpid()))
    summed = hashlib.sha256()
    for parameter in model.parameters():
        local = parameter.detach()
        local = local.to_local() if hasattr(local, "to_local") else local
        summed.update(bytes(local.contiguous().flatten().tolist().__repr__(), "ascii"))
    told = {"steps": num, "weights": summed.hexdigest()}
    (options.folder / f"rank-{rank}.json").write_text(json.dumps(told))
    dist.barrier()
    dist.destroy_process_group()
    return 0


def why_not(kind: str) -> str:
    """Why this torch has no such training; empty if it has."""
    try:
        if kind == "fsdp2":
            fully_shard_of_torch()
        if kind == "pipeline":
            from torch.distributed import pipelining  # noqa: F401
        if kind == "compiled":
            torch.compile(nn.Linear(2, 2), backend="aot_eager")(torch.ones(2, 2))
    except Exception as error:  # noqa: BLE001 - whatever torch says
        return f"{type(error).__name__}: {error}"
    return ""


def forked() -> int:
    """Two children that are the ranks go on; in their parent the exit code of both."""
    # As costly as torch itself, and imported by each rank's first step.
    with contextlib.suppress(Exception):
        importlib.import_module("torch._dynamo")
    os.environ.update(WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    children = []
    for rank in range(2):
        child = os.fork()
        if not child:
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
            return -1
        children.append(child)
    return max(os.waitpid(child, 0)[1] for child in children)


def free_port() -> int:
    """Of loopback."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["ddp", "fsdp1", "fsdp2", "compiled", "pipeline", "loader"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--late-ms", type=float, default=0.0)
    parser.add_argument("--base-ms", type=float, default=5.0)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--fork", action="store_true", help="two ranks of this process, no launcher")
    options = parser.parse_args()
    if options.fork and (status := forked()) >= 0:
        return int(bool(status))
    why = why_not(options.kind)
    if why:
        (options.folder / "cannot").write_text(why)
        return CANNOT
    return train(options)


if __name__ == "__main__":
    sys.exit(main())
