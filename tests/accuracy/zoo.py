"""Trainings written the many ways people write them, with faults the demo does not know. torch and stdlib only.

    torchrun --nproc-per-node 4 tests/accuracy/zoo.py SCENARIO [--bad 2] [--ms 15] [--onset 0]

SCENARIO is STYLE:FAULT. Styles differ in how gradients meet; faults in where time goes. Times below are milliseconds
of a step of about 20; waiting stands for a device at work, `spin` for a busy CPU.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, get_worker_info

STYLES = ("ddp", "manual", "flat", "batchnorm", "accumulate", "barrier", "lossreduce", "trainer", "generator",
          "workers", "alternate")  # fmt: skip
FAULTS = ("none", "data", "forward", "backward", "optimizer", "logging", "spin", "evaluation", "wandering",
          "balanced", "two", "intermittent", "decay", "saveall", "savemine", "everyone-forward", "moving", "recovering",
          "uneven", "lengths", "collect", "turns", "hang", "hang-backward", "errands", "validation",
          "keepmine")  # fmt: skip
# Steps and phases of the errands, irregular and few; the n-th is the n-th of the bad ranks' (in turns).
ERRANDS = {57: "data", 131: "backward", 219: "logging", 331: "forward"}


def wait(milliseconds: float) -> None:
    """The device, the disk, the network at work."""
    if milliseconds > 0:
        time.sleep(milliseconds / 1000)


def spin(milliseconds: float) -> None:
    """The CPU at work: so much of its own time, however long others keep it from the core."""
    end = time.thread_time() + milliseconds / 1000
    while time.thread_time() < end:
        pass


class Slow:
    """How many milliseconds each phase takes beyond its base, this step, on this rank."""

    def __init__(self, options: argparse.Namespace, rank: int) -> None:
        self.fault, self.bad, self.onset, self.rank = options.fault, options.bad, options.onset, rank
        self.ms: float = options.ms
        self.scale, self.work = options.scale, (spin if options.busy else wait)
        self.step, self.every, self.stretch = 0, options.every, options.stretch
        # What the collector has to look at each time, as a program with many objects has.
        self.heap: list[list[int]] = [[] for _ in range(400_000 if options.fault == "collect" else 0)]

    def collect(self) -> None:
        """Collect garbage, if this rank does that now and then."""
        if self.fault == "collect" and self.rank in self.bad and self.is_hit(6):
            gc.collect()

    def is_hit(self, usual: int = 1) -> bool:
        """Whether the fault hits this step."""
        return self.step >= self.onset and self.step % (self.every or usual) == 0

    def extra_ms(self, phase: str) -> float:
        """Milliseconds."""
        if not self.is_hit():
            return 0.0
        if self.fault == "turns" and phase == "forward":  # one rank for a stretch of steps, then the next
            return self.ms if self.step // self.stretch % dist.get_world_size() == self.rank else 0.0
        mine = self.rank in self.bad
        if mine and (self.fault == phase or (self.fault, phase) == ("savemine", "backward")):
            return self.ms
        if self.fault == "moving" and phase == "backward":
            return self.ms if self.rank == self.bad[self.step >= 150] else 0.0
        if self.fault == "recovering" and phase == "backward" and mine:
            return self.ms if self.step < 150 else 0.0
        if self.fault == "two":
            first, second = [*self.bad, 0][:2]
            return self.ms if (self.rank, phase) in ((first, "data"), (second, "backward")) else 0.0
        if self.fault == "intermittent" and phase == "backward" and mine:
            return self.ms if self.step // 10 % 3 == 0 else 0.0
        if self.fault == "decay" and phase == "data" and mine:
            return min(self.ms, self.step * self.ms / 400)
        if self.fault == "everyone-forward" and phase == "forward":
            return self.ms
        if self.fault == "errands" and ERRANDS.get(self.step) == phase:
            number = sorted(ERRANDS).index(self.step)
            return self.ms if self.rank == self.bad[number % len(self.bad)] else 0.0
        if self.fault in ("wandering", "balanced", "lengths") and phase == "forward":
            return self.length() * self.ms
        return 0.0

    def hang_in(self, fault: str) -> None:
        """Never return, if it is this rank's turn."""
        if self.fault == fault and self.rank in self.bad and self.step == self.onset:
            wait(3_600_000)

    def length(self) -> float:
        """Relative sequence length 0..1: of each rank its own, or of all ranks the same (balanced)."""
        seed = self.step * 1000 + (0 if self.fault == "balanced" else self.rank)
        return random.Random(seed).random()


class Data(Dataset):
    """Vectors; reading a batch takes a moment."""

    def __init__(self, slow: Slow) -> None:
        self.slow = slow

    def __len__(self) -> int:
        return 1 << 18

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.slow.fault == "lengths":  # ids of a vocabulary, so many as the step's length
            return torch.full((64 + int(64 * self.slow.length()),), index % 7)
        return torch.full((64,), float(index % 7))

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        """One read a batch."""
        if get_worker_info() is not None:  # a worker knows no step, but the batches' numbers
            self.slow.step = indices[0] // 16
        wait(0.3 * self.slow.scale + self.slow.extra_ms("data"))
        return [self[index] for index in indices]


class SlowGradient(torch.autograd.Function):
    """Identity with a backward that takes its time."""

    @staticmethod
    def forward(ctx, value, slow):  # type: ignore[no-untyped-def]
        """Pass on."""
        ctx.slow = slow
        return value.view_as(value)

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        """Take time."""
        ctx.slow.work(8 * ctx.slow.scale + ctx.slow.extra_ms("backward"))
        if ctx.slow.fault == "spin" and ctx.slow.rank in ctx.slow.bad:
            spin(ctx.slow.ms)
        ctx.slow.hang_in("hang-backward")
        return gradient, None


class Net(nn.Module):
    """Small, with a wait where a large one would compute."""

    def __init__(self, slow: Slow, norm: bool) -> None:
        super().__init__()
        self.first = nn.Linear(64, 96)
        self.norm = nn.BatchNorm1d(96) if norm else nn.Identity()
        self.last = nn.Linear(96, 8)
        self.slow = slow

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """Batch x 8."""
        self.slow.hang_in("hang")
        self.slow.collect()
        self.slow.work(6 * self.slow.scale + self.slow.extra_ms("forward"))
        hidden = torch.relu(self.norm(self.first(batch[:, :64].float())))
        return self.last(SlowGradient.apply(hidden, self.slow))


class Loop:
    """One style of training."""

    def __init__(self, style: str, slow: Slow) -> None:
        self.style, self.slow = style, slow
        torch.manual_seed(0)
        self.net = Net(slow, style == "batchnorm")
        is_ddp = style not in ("manual", "flat")
        self.model: nn.Module = DistributedDataParallel(self.net) if is_ddp else self.net
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-3)
        self.second = (
            torch.optim.SGD([nn.Parameter(torch.zeros(3))], lr=0.1) if style == "alternate" else None
        )

    def batches(self) -> Iterator[torch.Tensor]:
        """From a loader, or from a generator that no hook can see."""
        data = Data(self.slow)
        if self.style == "generator":
            index = 0
            while True:
                yield torch.stack(data.__getitems__(list(range(index, index + 16))))
                index += 16
        num_workers = 2 if self.style == "workers" else 0
        while True:
            yield from DataLoader(data, batch_size=16, num_workers=num_workers)

    def reduce_gradients(self) -> None:
        """Without DDP: one all-reduce a parameter, or one for all."""
        gradients = [parameter.grad for parameter in self.net.parameters() if parameter.grad is not None]
        if self.style == "manual":
            for gradient in gradients:
                dist.all_reduce(gradient)
        elif self.style == "flat":
            flat = torch.cat([gradient.flatten() for gradient in gradients])
            dist.all_reduce(flat, async_op=True).wait()

    def step(self, batches: Iterator[torch.Tensor]) -> None:
        """One step of work."""
        micro_steps = 4 if self.style == "accumulate" else 1
        if self.slow.fault == "uneven":  # every rank its own number of micro-batches, another one each step
            micro_steps = random.Random(self.slow.step * 1000 + self.slow.rank).randint(1, 4)
        for micro in range(micro_steps):
            batch = next(batches)
            if self.style == "barrier":
                dist.barrier()
            last = micro == micro_steps - 1
            with contextlib.nullcontext() if last or micro_steps == 1 else self.model.no_sync():
                loss = self.model(batch).square().mean()
                loss.backward()
        self.reduce_gradients()
        if self.style == "lossreduce":
            dist.all_reduce(loss.detach())
        if self.slow.extra_ms("optimizer"):
            hook = self.optimizer.register_step_pre_hook(lambda *_: wait(self.slow.extra_ms("optimizer")))
        self.optimizer.step()
        if self.slow.extra_ms("optimizer"):
            hook.remove()
        if self.second is not None:
            self.second.step()
        self.optimizer.zero_grad()
        wait(self.slow.extra_ms("logging"))


class SlowFile:
    """A disk that takes its time."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file

    def write(self, data: bytes) -> int:
        """As much as it gets, after a moment."""
        wait(15)
        return self.file.write(data)

    def flush(self) -> None:
        """Nothing is held back."""


def around_steps(loop: Loop, slow: Slow, step: int) -> None:
    """What happens between steps now and then."""
    if slow.fault == "evaluation" and step % 50 == 49:
        loop.model.eval()
        with torch.no_grad():
            for _ in range(6):
                loop.model(torch.zeros(16, 64))
        loop.model.train()
    if slow.fault == "saveall" and step % 60 == 59:
        wait(120)
        torch.save(loop.net.first.state_dict(), "/dev/null")
    if slow.fault == "validation" and slow.rank in slow.bad and step % 50 == 49:
        # On the bare model, as one rank alone must: a forward through the wrapper could wait for the others.
        loop.net.eval()
        with torch.no_grad():
            for _ in range(3):
                loop.net(torch.zeros(16, 64))
                wait(slow.ms)
        loop.net.train()
    if slow.fault == "keepmine" and slow.rank in slow.bad and step % 60 == 59:
        with Path("/dev/null").open(
            "wb"
        ) as file:  # a library of its own: no save function of torch's is called
            for parameter in loop.net.parameters():
                wait(slow.ms)
                file.write(parameter.detach().numpy().tobytes())
    if slow.fault == "savemine" and slow.rank in slow.bad and step % 60 == 59:
        with Path("/dev/null").open("wb") as file:
            torch.save(loop.net.state_dict(), SlowFile(file))


class Trainer:
    """The loop inside an object, called through layers."""

    def __init__(self, loop: Loop, slow: Slow) -> None:
        self.loop, self.slow = loop, slow

    def fit(
        self, should_stop: Callable[[int], bool], around: Callable[[], AbstractContextManager[object]]
    ) -> None:
        """Train; around: what is put around each step, whose first batch is there by then."""
        batches = self.loop.batches()
        step = 0
        while not should_stop(step):
            self.slow.step = step
            first = next(batches)
            with around():
                self.loop.step(itertools.chain((first,), batches))
            around_steps(self.loop, self.slow, step)
            step += 1


def main() -> None:
    """Train for a while."""
    parser = argparse.ArgumentParser()
    parser.add_argument("scenario", help="STYLE:FAULT")
    parser.add_argument("--bad", type=int, nargs="*", default=[1])
    parser.add_argument("--ms", type=float, default=15.0)
    parser.add_argument("--onset", type=int, default=0)
    parser.add_argument(
        "--every", type=int, default=0, help="hits each so many steps; default all, collections 6"
    )
    parser.add_argument("--stretch", type=int, default=50, help="turns: steps of one rank")
    parser.add_argument("--scale", type=float, default=1.0, help="of all waits")
    parser.add_argument(
        "--busy", action="store_true", help="compute on the CPU instead of waiting for a device"
    )
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--steps", type=int, default=1 << 40)
    parser.add_argument("--traceml", action="store_true", help="with the code change that TraceML needs")
    options = parser.parse_args()
    style, _, options.fault = options.scenario.partition(":")
    assert style in STYLES, style
    assert options.fault in FAULTS, options.fault
    torch.set_num_threads(1)
    if options.traceml:
        import traceml_ai

        traceml_ai.init(mode="auto")
    dist.init_process_group("gloo")
    slow = Slow(options, dist.get_rank())
    deadline = time.monotonic() + options.seconds

    def should_stop(step: int) -> bool:
        return step >= options.steps or (step % 50 == 0 and time.monotonic() > deadline)

    loop = Loop(style, slow)
    around = (lambda: traceml_ai.trace_step(loop.model)) if options.traceml else contextlib.nullcontext
    Trainer(loop, slow).fit(should_stop, around)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
