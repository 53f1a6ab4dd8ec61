"""A real pipeline-parallel training whose stages can be made unequal. It knows nothing of tuiadvisor: torch and stdlib.

    torchrun --nproc-per-node 4 demo/pipeline.py --heavy-stage 2 --heavy 2.0

Each rank holds one stage of a perceptron and runs torch.distributed.pipelining's schedule over gloo. A stage computes
little and waits long, as a rank waits for its device; a heavy stage waits longer, as one that holds more layers.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, schedules

FEATURES = 64
ROWS_PER_MICRO_BATCH = 4
SCHEDULES = {
    "gpipe": schedules.ScheduleGPipe,
    "1f1b": schedules.Schedule1F1B,
    "interleaved": schedules.ScheduleInterleaved1F1B,
}


class DelayedGradient(torch.autograd.Function):
    """Identity whose backward takes a while."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, seconds: Any) -> torch.Tensor:
        """Keep the time for later; seconds: a function, as it may change from step to step."""
        ctx.seconds = seconds
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        """Wait, then pass the gradient on."""
        time.sleep(ctx.seconds())
        return gradient, None


class Stage(nn.Module):
    """Some layers of the model; backward takes 1.5 times as long as forward."""

    def __init__(self, index: int, options: argparse.Namespace) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, FEATURES)
        self.index = index
        self.options = options
        self.step = 0

    def seconds(self) -> float:
        """How long a micro-batch's forward takes here, this step."""
        options = self.options
        is_heavy = self.index == options.heavy_stage and self.step >= options.onset
        return float(options.forward_ms / 1000 * (options.heavy if is_heavy else 1.0))

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Rows x FEATURES."""
        time.sleep(self.seconds())
        hidden = torch.relu(self.layer(value))
        return DelayedGradient.apply(hidden, lambda: 1.5 * self.seconds())  # type: ignore[no-any-return, no-untyped-call]


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--schedule", choices=SCHEDULES, default="1f1b")
    parser.add_argument("--micro-batches", type=int, default=16)
    parser.add_argument("--forward-ms", type=float, default=4.0, help="of one micro-batch on one stage")
    parser.add_argument("--heavy-stage", type=int, default=-1, help="stage that takes longer; -1: none")
    parser.add_argument("--heavy", type=float, default=2.0, help="how many times as long it takes")
    parser.add_argument("--onset", type=int, default=0, help="first step at which it does")
    parser.add_argument("--steps", type=int, default=0, help="steps to train; 0: until interrupted")
    parser.add_argument("--seconds", type=float, default=0.0, help="stop after about this long; 0: no limit")
    parser.add_argument("--print-every", type=int, default=20)
    return parser.parse_args(arguments)


def build(options: argparse.Namespace) -> tuple[Any, list[Stage]]:
    """This rank's schedule and stages; an interleaved one holds two."""
    rank, world = dist.get_rank(), dist.get_world_size()
    per_rank = 2 if options.schedule == "interleaved" else 1
    modules = [Stage(rank + world * number, options) for number in range(per_rank)]
    stages = [
        PipelineStage(module, module.index, world * per_rank, torch.device("cpu")) for module in modules
    ]
    criterion = nn.MSELoss()
    held = stages if per_rank > 1 else stages[0]
    schedule = SCHEDULES[options.schedule](held, options.micro_batches, loss_fn=criterion)  # type: ignore[arg-type]
    return schedule, modules


def train(options: argparse.Namespace) -> None:
    """Train until the steps, the time or the user's patience end."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    schedule, modules = build(options)
    optimizer = torch.optim.SGD([value for module in modules for value in module.parameters()], lr=0.01)
    is_first = dist.get_rank() == 0
    is_last = dist.get_rank() == dist.get_world_size() - 1
    rows = ROWS_PER_MICRO_BATCH * options.micro_batches
    deadline = time.monotonic() + options.seconds if options.seconds else None
    step = 0
    while not should_stop(options, step, deadline):
        for module in modules:
            module.step = step
        optimizer.zero_grad()
        inputs = (torch.randn(rows, FEATURES),) if is_first else ()
        losses: list[torch.Tensor] = []
        if is_last:
            schedule.step(*inputs, target=torch.zeros(rows, FEATURES), losses=losses)
        else:
            schedule.step(*inputs)
        optimizer.step()
        step += 1
        if is_last and options.print_every and step % options.print_every == 0:
            print(f"step {step} loss {torch.stack(losses).mean().item():.4f}", flush=True)
    dist.destroy_process_group()


def should_stop(options: argparse.Namespace, step: int, deadline: float | None) -> bool:
    """The same answer on all ranks: rank 0's clock decides, every 20 steps."""
    if options.steps and step >= options.steps:
        return True
    if deadline is None or step == 0 or step % 20:
        return False
    over = torch.tensor([int(time.monotonic() > deadline)])
    dist.broadcast(over, 0)
    return bool(over.item())


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    train(parse())
