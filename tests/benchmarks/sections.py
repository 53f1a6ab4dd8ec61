"""What the probe costs a training step, resolved to microseconds, beside what the probe says of itself.

    python tests/benchmarks/sections.py [--ranks 1] [--step-ms 1 5 20 100] [--seconds 40] [--budget 0.25]
        [--cores python native]

Matrix products vary by more than a probe costs, so they are in the loop (they empty the caches as a training does, in
the middle of forward and of backward) and out of the figures: a section is the time of the next batch, of forward, of
backward or of optimizer.step less the products inside it, by two clock reads around those. Blocks of steps without
the probe and with it, on each core, take turns in one process; each round has one of each, in an order that turns.

Three kinds of step are told apart: plain ones, those that also looked after what can wait (and wrote kept records), and
those measured or in detail, which are looked after one by one. Of each kind the 30 % quantile of a block less that of
the block without, then the median over rounds with a 95 % bootstrap interval; "a step" is plain ones' of each round and
the other kinds' median, all by their number in all rounds: what comes by once a second is not in every block. Beside it
what the probe's own clock said of the same blocks (the records' own_ns, mean) and its share of the truth. Sections are
the training thread's wall clock on one rank, its CPU clock on several, where backward waits for the others.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "probes"))

from overhead import SETTLED, bootstrap_median

from tuiadvisor.agent.payload import PRIVATE_NAME

BARE, PYTHON, NATIVE = "bare", "python", "native"
SECTIONS = ("next batch", "forward", "backward", "optimizer")
KINDS = ("plain", "writing", "measured", "detail")
QUANTILE = 30
WIDTH, BATCH, NUM_LAYERS = 192, 8, 2
PRODUCT, NUM_FACTORS = 160, 40  # factors of 4 MB in all: beyond a core's second cache
END_NS, FLAGS, OWN_NS = 2, 22, 24  # columns of a step's record
DETAIL = 64


@dataclass
class Block:
    """One stretch of steps: section times of each, and its kind where the probe was there."""

    sections_ns: list[list[int]] = field(default_factory=list)  # steps x sections
    kinds: list[str] = field(default_factory=list)
    own_ns: list[int] = field(default_factory=list)
    step_ns: float = 0.0


class Loop:
    """A small training whose steps are lengthened by matrix products that are timed apart."""

    def __init__(self, ranks: int) -> None:
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.num_products = (0, 0)  # in forward, in backward
        self.spun_ns = 0
        self.clock: Callable[[], int] = time.thread_time_ns if ranks > 1 else time.perf_counter_ns
        factors = [torch.randn(PRODUCT, PRODUCT) for _ in range(NUM_FACTORS)]
        loop, place = self, [0]

        def spin(count: int) -> None:
            begin = loop.clock()
            for _ in range(count):
                place[0] = (place[0] + 1) % NUM_FACTORS
                torch.mm(factors[place[0]], factors[place[0] - 1])
            loop.spun_ns += loop.clock() - begin

        class Spin(torch.autograd.Function):
            @staticmethod
            def forward(_context: Any, tensor: Any) -> Any:
                spin(loop.num_products[0])
                return tensor.view_as(tensor)

            @staticmethod
            def backward(_context: Any, gradient: Any) -> Any:
                spin(loop.num_products[1])
                return gradient

        class Middle(nn.Module):
            def forward(self, tensor: Any) -> Any:
                return Spin.apply(tensor)

        half = [nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(NUM_LAYERS // 2)]) for _ in range(2)]
        self.model: nn.Module = nn.Sequential(half[0], Middle(), half[1])
        if ranks > 1:
            self.model = nn.parallel.DistributedDataParallel(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.loader = DataLoader(TensorDataset(torch.randn(4096 * BATCH, WIDTH)), batch_size=BATCH)
        self.batches = iter(self.loader)
        self.spin = spin

    def step(self) -> list[int]:
        """One step; nanoseconds of its sections, without the products."""
        clock, model, optimizer = self.clock, self.model, self.optimizer
        self.spun_ns = 0
        begin = clock()
        try:
            (batch,) = next(self.batches)
        except StopIteration:
            self.batches = iter(self.loader)
            begin = clock()
            (batch,) = next(self.batches)
        fetched = clock()
        optimizer.zero_grad()
        begin_forward = clock()
        out = model(batch)
        end_forward = clock()
        in_forward, self.spun_ns = self.spun_ns, 0
        loss = out.square().mean()
        begin_backward = clock()
        loss.backward()
        end_backward = clock()
        in_backward, self.spun_ns = self.spun_ns, 0
        begin_optimizer = clock()
        optimizer.step()
        return [
            fetched - begin,
            end_forward - begin_forward - in_forward,
            end_backward - begin_backward - in_backward,
            clock() - begin_optimizer,
        ]

    def lengthen(self, step_ms: float) -> None:
        """So many products, a third in forward and the rest in backward, as make a step this long."""
        for _ in range(60):
            self.step()
        begin = time.perf_counter()
        for _ in range(60):
            self.step()
        short_s = (time.perf_counter() - begin) / 60
        begin = time.perf_counter()
        self.spin(200)
        count = max(0, round((step_ms / 1e3 - short_s) / ((time.perf_counter() - begin) / 200)))
        self.num_products = (count // 3, count - count // 3)


def measure(loop: Loop, steps: int, reader: Any) -> Block:
    """A block of steps; reader: of the ring, where the probe is there."""
    block, ends_ns, kept, clock = Block(), [], [], clock_of_probe() if reader else None
    began = time.perf_counter_ns()
    for _ in range(steps):
        block.sections_ns.append(loop.step())
        ends_ns.append(time.monotonic_ns())
        kept.append(clock.num_kept if clock else 0)
    block.step_ns = (time.perf_counter_ns() - began) / steps
    # A step's end is paid when the next batch is asked for.
    block.sections_ns = [[after[0], *step[1:]] for step, after in itertools.pairwise(block.sections_ns)]
    if reader:
        classify(block, ends_ns, kept, reader.take_steps())
    return block


def clock_of_probe() -> Any:
    """The step clock of the probe in this process."""
    return sys.modules[PRIVATE_NAME + ".install"]._probe.clock


def classify(block: Block, ends_ns: list[int], kept: list[int], records: list[tuple[int, ...]]) -> None:
    """Kinds of a block's steps, and the own cost that their records state.

    A step is closed at the begin of the next one; `kept` counts those since all was looked after.
    """
    by_turn = {int(np.searchsorted(ends_ns, record[END_NS])): record for record in records}
    looked_after = np.diff(kept, prepend=kept[0]) <= 0
    for turn in range(1, len(kept)):  # in which the step before is closed
        record = by_turn.get(turn)
        block.own_ns.append(record[OWN_NS] if record else -1)
        if record and record[FLAGS] & DETAIL:
            block.kinds.append("detail")
        elif looked_after[turn] and looked_after[turn - 1]:
            block.kinds.append("measured")
        else:
            block.kinds.append("writing" if looked_after[turn] else "plain")


def steps_of_a_block(step_ms: float) -> int:
    """Two seconds of them, so that the burst at its begin weighs little; fewer of short ones, lest machines drift."""
    return max(24, min(1000, round(2000 / step_ms)))


def rank_main(options: argparse.Namespace) -> None:
    """One rank: rounds of blocks as long as it is told, into the result."""
    import torch
    import torch.distributed as dist

    from tuiadvisor.agent.payload import NATIVE_VARIABLE, attach_code, detach_code, write_native
    from tuiadvisor_probes import ring

    ranks, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    if ranks > 1:
        dist.init_process_group("gloo")
    loop = Loop(ranks)
    loop.lengthen(options.one_step_ms)
    products = torch.tensor(loop.num_products)
    if ranks > 1:
        dist.broadcast(products, 0)
    long = (int(products[0]), int(products[1]))
    rounds = []
    steps = steps_of_a_block(options.one_step_ms)
    for number in range(options.rounds):
        blocks = {}
        turns = [BARE, *options.cores]
        for core in turns[number % len(turns) :] + turns[: number % len(turns)]:
            with contextlib.ExitStack() as stack:
                reader = None
                if core != BARE:
                    path = f"{stack.enter_context(tempfile.TemporaryDirectory(dir='/dev/shm'))}/ring"
                    ring.create_ring_file(path)
                    os.environ[NATIVE_VARIABLE] = "1" if core == NATIVE else "0"
                    assert write_native(Path(path).parent) == (core == NATIVE)
                    reader = ring.RingReader(path)
                    reader.put_u64(ring.OFFSET_BUDGET, 1 + round(options.budget * 1e4))
                    exec(attach_code(path), {})  # noqa: S102 - the very code an injection runs
                    stack.callback(exec, detach_code(), {})
                    assert json.loads(reader.info())["core"] == core, reader.info()
                loop.num_products = (0, 1)
                for _ in range(SETTLED):
                    loop.step()
                loop.num_products = long
                for _ in range(8):
                    loop.step()
                if reader is not None:
                    reader.take_steps()
                block = measure(loop, steps, reader)
                blocks[core] = vars(block)
        rounds.append(blocks)
    if rank == 0:
        Path(options.result).write_text(json.dumps(rounds))
    if ranks > 1:
        dist.barrier()
    os._exit(0)


def low(steps: Any) -> Any:
    """The 30 % quantile of each section, ns."""
    return np.percentile(np.array(steps, dtype=float), QUANTILE, axis=0)


@dataclass
class Cost:
    """Of one step length and core: microseconds a step over the rounds."""

    truth_us: list[float]
    own_us: list[float]
    sections_us: dict[str, list[Any]]
    own_of_kind_us: dict[str, list[float]]
    counts: dict[str, int]


def evaluate(rounds: list[dict[str, dict[str, Any]]], core: str) -> Cost:
    """Differences between a core and bare in each round, by kind and over all steps."""
    cost = Cost([], [], {kind: [] for kind in KINDS}, {kind: [] for kind in KINDS}, dict.fromkeys(KINDS, 0))
    for blocks in rounds:
        attached = blocks[core]
        bare, plain_us = low(blocks[BARE]["sections_ns"]), 0.0
        sections = np.array(attached["sections_ns"], dtype=float)
        own, kinds = np.array(attached["own_ns"], dtype=float), np.array(attached["kinds"])
        for kind in KINDS:
            its = kinds == kind
            if not its.any():
                continue
            extra_us = (low(sections[its]) - bare) / 1e3
            cost.sections_us[kind].append(extra_us)
            cost.counts[kind] += int(its.sum())
            cost.own_of_kind_us[kind].append(float(own[its & (own >= 0)].mean()) / 1e3)
            if kind == "plain":
                plain_us = float(extra_us.sum())
        cost.truth_us.append(plain_us)
        cost.own_us.append(float(own[own >= 0].mean()) / 1e3)
    num = sum(cost.counts.values())
    rare_us = sum(
        statistics.median(float(extra.sum()) for extra in cost.sections_us[kind]) * cost.counts[kind] / num
        for kind in KINDS[1:]
        if cost.counts[kind]
    )
    cost.truth_us = [plain_us * cost.counts["plain"] / num + rare_us for plain_us in cost.truth_us]
    return cost


def print_cost(step_ms: float, rounds: list[dict[str, dict[str, Any]]], core: str) -> None:
    """A few lines of one step length and core."""
    cost = evaluate(rounds, core)
    step_us = statistics.median(blocks[BARE]["step_ns"] for blocks in rounds) / 1e3
    value, least, most = bootstrap_median(cost.truth_us)
    own, own_least, own_most = bootstrap_median(cost.own_us)
    print(
        f"{step_ms:6g}ms {core:6} a step {value:6.1f} us ({least:.1f}-{most:.1f}) = {value / step_us:.3%} "
        f"({least / step_us:.3%}-{most / step_us:.3%}) of {step_us / 1e3:.2f} ms; "
        f"own clock {own:.1f} us ({own_least:.1f}-{own_most:.1f}), {own / value:.2f} of it; {len(rounds)} rounds"
    )
    num = sum(cost.counts.values())
    for kind in KINDS:
        if cost.sections_us[kind]:
            sections = np.median(np.array(cost.sections_us[kind]), axis=0)
            parts = ", ".join(f"{name} {us:.1f}" for name, us in zip(SECTIONS, sections, strict=True))
            share = cost.counts[kind] / num
            own = statistics.median(cost.own_of_kind_us[kind])
            print(
                f"          {kind:9}{share:6.1%} of steps {sections.sum():7.1f} us: {parts}; own clock {own:.1f}"
            )
    sys.stdout.flush()


def main() -> None:
    """Run all step lengths and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--step-ms", type=float, nargs="*", default=[1, 5, 20, 100])
    parser.add_argument("--seconds", type=float, default=40, help="of measuring, a step length")
    parser.add_argument(
        "--budget", type=float, default=0.25, help="per cent of step time, as the probe is told"
    )
    parser.add_argument("--cores", nargs="*", default=[PYTHON, NATIVE], choices=[PYTHON, NATIVE])
    parser.add_argument("--one-step-ms", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--result", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.result:
        rank_main(options)
        return
    print(f"{options.ranks} ranks, {len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}")
    for step_ms in options.step_ms:
        steps = steps_of_a_block(step_ms)
        round_s = (1 + len(options.cores)) * ((steps + 8) * step_ms / 1e3 + 0.1)
        with tempfile.NamedTemporaryFile() as file:
            arguments = [__file__, "--one-step-ms", str(step_ms), "--result", file.name]
            arguments += ["--rounds", str(max(6, round(options.seconds / round_s)))]
            arguments += ["--budget", str(options.budget), "--cores", *options.cores]
            launch = [sys.executable]
            if options.ranks > 1:
                launch += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={options.ranks}"]
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
            subprocess.run([*launch, *arguments], check=True, env=environment)
            rounds = json.loads(Path(file.name).read_text())
            for core in options.cores:
                print_cost(step_ms, rounds, core)


if __name__ == "__main__":
    main()
