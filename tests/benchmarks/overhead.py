"""What the always-on probe costs a training step: attached against not attached, alternating in one process run.

    python tests/benchmarks/overhead.py [--ranks 2] [--step-ms 3 20 100] [--blocks 40]

Each rank runs blocks of steps, probe out, probe in, out, in ...; the blocks of a pair lie next to each other in time,
so drift of the machine cancels. Printed per step length: median over pairs of (median step with / median step
without), a 95 % bootstrap interval of that median, and the extra microseconds; then the same of the training thread's
CPU time, which other processes on the machine disturb less than they disturb the wall clock. `--ranks 1` is a plain
loop without process group. Steps are busy with real matrix products, no sleeping. The agent
that drains the rings is not part of it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "probes"))

SETTLED = (
    36  # after an attach the probe looks at every step for parts that load late; from here on at every 64th
)


def bootstrap_median(values: list[float], rounds: int = 2000) -> tuple[float, float, float]:
    """(median, low, high): 95 % interval of the median over pairs."""
    generator = np.random.default_rng(0)
    sample = generator.choice(np.array(values), size=(rounds, len(values)))
    low, high = np.percentile(np.median(sample, axis=1), [2.5, 97.5])
    return statistics.median(values), float(low), float(high)


def rank_main(options: argparse.Namespace) -> None:
    """One rank: alternate blocks, write the ratios of its pairs."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    from tuiadvisor.agent.payload import attach_code, detach_code, write_native
    from tuiadvisor_probes.ring import create_ring_file

    torch.set_num_threads(1)
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    rank = int(os.environ.get("RANK", "0"))
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(192, 192), nn.ReLU())])
    if ranks > 1:
        dist.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches = iter(DataLoader(TensorDataset(torch.randn(64, 192)), batch_size=8, num_workers=0))
    load = torch.randn(160, 160)

    def spin(count: int) -> None:
        for _ in range(count):
            torch.mm(load, load)

    def step(count: int) -> None:
        nonlocal batches
        try:
            (batch,) = next(batches)
        except StopIteration:
            batches = iter(DataLoader(TensorDataset(torch.randn(64, 192)), batch_size=8, num_workers=0))
            (batch,) = next(batches)
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        spin(count)
        loss.backward()
        optimizer.step()

    for _ in range(50):
        step(0)
    begin = time.perf_counter()
    spin(200)
    spin_s = (time.perf_counter() - begin) / 200
    begin = time.perf_counter()
    for _ in range(50):
        step(0)
    bare_s = (time.perf_counter() - begin) / 50
    count = max(0, round((options.one_step_ms / 1000 - bare_s) / spin_s))
    if ranks > 1:
        shared = torch.tensor([count])
        dist.broadcast(shared, 0)
        count = int(shared.item())
    folder = tempfile.mkdtemp(prefix="overhead-", dir="/dev/shm")
    write_native(Path(folder))
    ring = f"{folder}/ring"

    def block(steps: int) -> tuple[float, float]:
        wall, cpu = [], []
        for _ in range(steps):
            begin, cpu_begin = time.perf_counter(), time.thread_time()
            step(count)
            wall.append(time.perf_counter() - begin)
            cpu.append(time.thread_time() - cpu_begin)
        return statistics.median(wall[SETTLED:]), statistics.median(cpu[SETTLED:])

    pairs: list[tuple[tuple[float, float], tuple[float, float]]] = []
    for number in range(options.blocks):
        measured = {}
        for attached in (False, True) if number % 2 == 0 else (True, False):
            if attached:
                create_ring_file(ring)
                exec(attach_code(ring), {})  # noqa: S102 - the very code an injection runs
            measured[attached] = block(options.steps)
            if attached:
                exec(detach_code(), {})  # noqa: S102
                Path(ring).unlink()
        pairs.append((measured[False], measured[True]))
    shutil.rmtree(folder)
    if rank == 0:
        Path(options.result).write_text(json.dumps(pairs))
    if ranks > 1:
        dist.destroy_process_group()


def main() -> None:
    """Run all step lengths and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--step-ms", type=float, nargs="*", default=[3, 20, 100])
    parser.add_argument("--blocks", type=int, default=40)
    parser.add_argument("--one-step-ms", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--result", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.result:
        rank_main(options)
        return
    print(f"{'step':>8}      {'without':>9} {'with':>9} {'extra':>9} {'ratio':>8}  95 % interval   pairs")
    for step_ms in options.step_ms:
        with tempfile.NamedTemporaryFile() as file:
            steps = SETTLED + max(20, min(100, round(300 / step_ms)))
            arguments = [__file__, "--one-step-ms", str(step_ms), "--blocks", str(options.blocks)]
            arguments += ["--steps", str(steps), "--result", file.name]
            launch = [sys.executable]
            if options.ranks > 1:
                launch += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={options.ranks}"]
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
            subprocess.run([*launch, *arguments], check=True, env=environment, stderr=subprocess.DEVNULL)
            pairs = json.loads(Path(file.name).read_text())
        for what, column in (("wall", 0), ("cpu", 1)):
            ratio, low, high = bootstrap_median([on[column] / off[column] for off, on in pairs])
            off = statistics.median(without[column] for without, _ in pairs)
            on = statistics.median(attached[column] for _, attached in pairs)
            extra = statistics.median(attached[column] - without[column] for without, attached in pairs)
            print(
                f"{step_ms:6g}ms {what:4} {off * 1e3:7.2f}ms {on * 1e3:7.2f}ms {extra * 1e6:7.1f}us {ratio:8.4f}  "
                f"{low:.4f}-{high:.4f}   {len(pairs)}",
                flush=True,
            )


if __name__ == "__main__":
    main()
