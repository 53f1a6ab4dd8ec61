"""A real data-parallel training with faults to switch on. It knows nothing of tuiadvisor: torch and stdlib only.

    torchrun --nproc-per-node 4 demo/train.py --fault slow-data --fault-rank 2

Each rank trains a small multilayer perceptron with DistributedDataParallel over gloo. Faults are real waits (a slow
disk, a throttled device) or real work (large gradients), placed where the real ones sit.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

FAULTS = (
    "none",
    "slow-data",
    "slow-forward",
    "slow-backward",
    "slow-host",
    "heavy-comm",
    "checkpoint",
    "slow-start",
)
FEATURES = 256
CLASSES = 10


class Delay:
    """How long a fault holds a step up: nothing before its onset, on other ranks, or on the steps between."""

    def __init__(self, options: argparse.Namespace, fault: str, rank: int) -> None:
        chosen = options.fault_rank is None or rank in options.fault_rank
        self.seconds = options.delay_ms / 1000 if options.fault == fault and chosen else 0.0
        self.onset = options.onset
        self.step = 0

    def wait(self) -> None:
        """Stand still for as long as the fault says."""
        if self.seconds and self.step >= self.onset:
            time.sleep(self.seconds)


class RandomSamples(Dataset):  # type: ignore[type-arg]
    """Features and labels made up from their index."""

    def __init__(self, length: int, batch_size: int, delay: Delay, base_seconds: float) -> None:
        self.length = length
        self.batch_size = batch_size
        self.delay = delay
        self.base_seconds = base_seconds
        self.features = torch.randn(4096, FEATURES, generator=torch.Generator().manual_seed(7))

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.features[index % 4096], index % CLASSES

    def __getitems__(self, indices: list[int]) -> list[tuple[torch.Tensor, int]]:
        """A whole batch at once, so that one slow read delays one batch."""
        if self.base_seconds:
            time.sleep(self.base_seconds)
        self.delay.wait()
        return [self[index] for index in indices]


class DelayedGradient(torch.autograd.Function):
    """Identity whose backward takes a base time, and longer on a device that is slow in backward."""

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx, value: torch.Tensor, base_seconds: float, delay: Delay
    ) -> torch.Tensor:
        """Keep the times for later."""
        ctx.base_seconds = base_seconds  # type: ignore[attr-defined]
        ctx.delay = delay  # type: ignore[attr-defined]
        return value.view_as(value)

    @staticmethod
    def backward(  # type: ignore[override]
        ctx: torch.autograd.function.FunctionCtx, gradient: torch.Tensor
    ) -> tuple[torch.Tensor, None, None]:
        """Wait, then pass the gradient on."""
        if ctx.base_seconds:  # type: ignore[attr-defined]
            time.sleep(ctx.base_seconds)  # type: ignore[attr-defined]
        ctx.delay.wait()  # type: ignore[attr-defined]
        return gradient, None, None


class Model(nn.Module):
    """A perceptron with places for a slow forward and a slow backward."""

    def __init__(
        self, width: int, depth: int, base_seconds: float, slow_forward: Delay, slow_backward: Delay
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Linear(FEATURES, width), nn.ReLU()]
        for _ in range(depth):
            layers += [nn.Linear(width, width), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width, CLASSES)
        self.base_seconds = base_seconds
        self.slow_forward = slow_forward
        self.slow_backward = slow_backward

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Class scores, batch x CLASSES."""
        if self.base_seconds:
            time.sleep(self.base_seconds)
        self.slow_forward.wait()
        hidden = self.body(features)
        hidden = DelayedGradient.apply(hidden, self.base_seconds * 1.5, self.slow_backward)  # type: ignore[no-untyped-call]
        return self.head(hidden)  # type: ignore[no-any-return]


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--fault", choices=FAULTS, default="none")
    parser.add_argument(
        "--fault-rank", type=int, nargs="*", default=None, help="ranks with the fault; default all"
    )
    parser.add_argument(
        "--delay-ms", type=float, default=20.0, help="length of the fault, milliseconds a step"
    )
    parser.add_argument("--onset", type=int, default=0, help="first step with the fault")
    parser.add_argument("--steps", type=int, default=0, help="steps to train; 0: until interrupted")
    parser.add_argument("--seconds", type=float, default=0.0, help="stop after about this long; 0: no limit")
    parser.add_argument("--stop-file", type=Path, help="stop soon after this file appears")
    parser.add_argument("--step-ms", type=float, default=20.0, help="about how long a healthy step takes")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--checkpoint-every", type=int, default=40)
    parser.add_argument("--checkpoint-ms", type=float, default=150.0, help="at least this long a checkpoint")
    parser.add_argument("--slow-steps", type=int, default=30, help="length of the slow start, steps")
    parser.add_argument("--workers", type=int, default=0, help="DataLoader workers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--result", help="file for rank 0's final loss and weights' checksum")
    parser.add_argument("--step-times", help="file prefix: each rank writes its step times in ns, one a line")
    parser.add_argument("--print-every", type=int, default=200)
    return parser.parse_args(arguments)


def save_checkpoint(model: nn.Module, rank: int, at_least_seconds: float) -> None:
    """Rank 0 writes while the others go on into the next step and wait there."""
    if rank != 0:
        return
    begin = time.monotonic()
    with tempfile.TemporaryFile() as file:
        while True:
            file.seek(0)
            torch.save(model.state_dict(), file)
            if time.monotonic() - begin >= at_least_seconds:
                break


def after_step(options: argparse.Namespace, model: nn.Module, rank: int, step: int) -> None:
    """The faults that lie between two steps."""
    if options.fault == "slow-start" and step <= options.slow_steps:
        time.sleep(options.delay_ms / 1000 * 5)
    if options.fault == "checkpoint" and step % options.checkpoint_every == 0:
        save_checkpoint(model, rank, options.checkpoint_ms / 1000)


def train(options: argparse.Namespace) -> None:
    """Train until the steps, the time or the user's patience end."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(options.seed)
    delays = {fault: Delay(options, fault, rank) for fault in FAULTS}
    heavy = options.fault == "heavy-comm"
    base_seconds = options.step_ms / 1000 * 0.3
    model = Model(
        width=1536 if heavy else 128,
        depth=2,
        base_seconds=base_seconds,
        slow_forward=delays["slow-forward"],
        slow_backward=delays["slow-backward"],
    )
    parallel = DistributedDataParallel(model, bucket_cap_mb=4)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    dataset = RandomSamples(1 << 20, options.batch_size, delays["slow-data"], options.step_ms / 1000 * 0.01)
    sampler: DistributedSampler[object] = DistributedSampler(dataset, shuffle=False)
    loader = DataLoader(dataset, options.batch_size, sampler=sampler, num_workers=options.workers)
    deadline = time.monotonic() + options.seconds if options.seconds else None
    step_ns: list[int] = []
    step = 0
    running = True
    while running:
        for features, labels in loader:
            begin_ns = time.monotonic_ns()
            for delay in delays.values():
                delay.step = step + 1
            optimizer.zero_grad()
            loss = criterion(parallel(features), labels)
            loss.backward()
            optimizer.step()
            delays["slow-host"].wait()
            step += 1
            after_step(options, model, rank, step)
            step_ns.append(begin_ns)
            if rank == 0 and options.print_every and step % options.print_every == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
            if should_stop(options, step, deadline):
                running = False
                break
    write_results(options, rank, model, step_ns)
    dist.destroy_process_group()


def write_results(options: argparse.Namespace, rank: int, model: nn.Module, step_ns: list[int]) -> None:
    """What tests compare: each rank's step times, rank 0's final weights."""
    if options.step_times:
        Path(f"{options.step_times}.{rank}").write_text("".join(f"{value}\n" for value in step_ns))
    if options.result and rank == 0:
        weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
        torch.save({"weights": weights, "steps": len(step_ns)}, options.result)


def should_stop(options: argparse.Namespace, step: int, deadline: float | None) -> bool:
    """The same answer on all ranks: rank 0's clock and file decide, every 20 steps."""
    if options.steps and step >= options.steps:
        return True
    if (deadline is None and options.stop_file is None) or step % 20:
        return False
    is_late = deadline is not None and time.monotonic() > deadline
    is_told = options.stop_file is not None and options.stop_file.exists()
    over = torch.tensor([int(is_late or is_told)])
    dist.broadcast(over, 0)
    return bool(over.item())


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    train(parse())
