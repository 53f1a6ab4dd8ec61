"""A training on a real device whose fault is set by number; it knows nothing of tuiadvisor.

torchrun --nproc-per-node 2 tests/gpu/situation_training.py --kind ddp --slow-rank 1 --data-ms 20 --folder FOLDER

Several ranks share one device: NCCL takes them for ranks of different hosts, and under CUDA's multi-process service
each is given a share of the multiprocessors, so a smaller share makes a slower device. --folder: of files of files by
which whoever runs it says go, profile, dump and reads ready-RANK.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

WIDTH = 512
KINDS = ("ddp", "compiled", "graphs", "fsdp2", "pipeline", "single", "hang")


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kind", choices=KINDS, default="ddp")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--backend", default="nccl")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--look-every", type=int, default=0, help="steps between looks at the loss; 0: none")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--batch", type=int, default=16384)
    parser.add_argument("--share", type=float, default=0.0, help="percent of multiprocessors a rank; 0: all")
    parser.add_argument("--slow-rank", type=int, default=-1, help="-1: none, -2: all")
    parser.add_argument(
        "--slow-share", type=float, default=0.0, help="percent of multiprocessors for that rank"
    )
    parser.add_argument("--products", type=int, default=0, help="more products in forward, for that rank")
    parser.add_argument("--data-ms", type=float, default=0.0, help="... more for a batch")
    parser.add_argument(
        "--copies", type=int, default=0, help="... more copies of a batch from pageable memory"
    )
    parser.add_argument("--host-ms", type=float, default=0.0, help="... more of Python in a layer's forward")
    parser.add_argument("--stop-at", type=float, default=8.0, help="of kind hang: seconds after go")
    return parser.parse_args()


@dataclass(frozen=True)
class Rank:
    """Who this process is."""

    rank: int
    world: int
    is_slow: bool
    device: Any = None
    layer: Any = None


def prepare(options: argparse.Namespace) -> Rank:
    """What must be set before the device is touched."""
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    is_slow = options.slow_rank in (rank, -2)
    share = options.slow_share if is_slow and options.slow_share else options.share
    if share:
        os.environ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(share)
    os.environ |= {"NCCL_HOSTID": f"host{rank}", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}
    os.environ.setdefault("TORCH_NCCL_TRACE_BUFFER_SIZE", "2000")
    return Rank(rank, world, is_slow)


def main() -> None:
    """Train until it is ended."""
    options = parse()
    own = prepare(options)
    rank, is_slow = own.rank, own.is_slow
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.utils.data import DataLoader, Dataset

    device = torch.device(options.device)
    if device.type == "cuda":
        torch.cuda.set_device(0)
        device = torch.device("cuda", 0)
    else:
        torch.set_num_threads(1)
        options.batch = 64
    if own.world > 1:
        dist.init_process_group(options.backend)
    torch.manual_seed(0)

    class Batches(Dataset):
        def __init__(self) -> None:
            pinned = device.type == "cuda"
            self.batches = [torch.randn(options.batch, WIDTH, pin_memory=pinned) for _ in range(2)]

        def __len__(self) -> int:
            return 1 << 20

        def __getitem__(self, index: int) -> torch.Tensor:
            if is_slow and options.data_ms:
                time.sleep(options.data_ms / 1e3)
            return self.batches[index % 2]

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(WIDTH, WIDTH)

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            if is_slow and options.host_ms:
                until_s = time.perf_counter() + options.host_ms / 1e3
                while time.perf_counter() < until_s:
                    pass
            if is_slow and options.products:
                with torch.no_grad():
                    for _ in range(options.products):
                        torch.mm(value, self.linear.weight)
            return torch.relu(self.linear(value))

    signals: Path = options.folder
    signals.mkdir(exist_ok=True)  # its folder is of whoever runs this, and gone with them
    _dump_when_told(signals, rank)
    if options.kind == "pipeline":
        step = _pipeline(options, replace(own, device=device, layer=Layer))
    else:
        loader = DataLoader(Batches(), batch_size=None)
        step = _plain(options, replace(own, device=device, layer=Layer), loader)
    for _ in range(3):
        step(0)
    if device.type == "cuda":
        torch.cuda.synchronize()
    (signals / f"ready-{rank}").touch()
    while not (signals / "go").exists():
        time.sleep(0.02)
        if (signals / "stop").exists() or not signals.exists():
            os._exit(0)
    _train(options, own, step, signals, on_device=device.type == "cuda")


def _train(options: argparse.Namespace, own: Rank, step: Any, signals: Path, *, on_device: bool) -> None:
    """Until it is told to stop; a profile once, when it is told to."""
    begin_s, num, last, profiled = time.monotonic(), 0, 0, 0
    while not last or num < last:
        num += 1
        if options.kind == "hang" and own.rank == 1 and time.monotonic() - begin_s > options.stop_at:
            time.sleep(3600)
        step(num)
        if num == profiled:
            _profile(step, signals / f"trace-{own.rank}.json", on_device=on_device)
        if num % 16 == 0:
            if not signals.exists():  # whoever ran it is gone, with what it wrote
                os._exit(1)
            profiled = profiled or _agreed(signals, "profile", own.rank, num)
            last = last or _agreed(signals, "stop", own.rank, num)
    # Not in the middle of a kernel: under the multi-process service that ends all others, too.
    if on_device:
        import torch

        torch.cuda.synchronize()
    os._exit(0)


def _agreed(signals: Path, wish: str, rank: int, num: int) -> int:
    """The step in which all ranks do what is wished; 0: not yet. Rank 0 chooses one that no host has come to."""
    path = signals / f"{wish}-at"
    if rank == 0 and (signals / wish).exists():
        path.with_suffix(".new").write_text(str(num + 48))
        path.with_suffix(".new").rename(path)
    return int(path.read_text()) if path.exists() else 0


def _profile(step: Any, path: Path, *, on_device: bool) -> None:
    """Some steps as torch's profiler sees them."""
    from torch.profiler import ProfilerActivity, profile

    with profile(
        activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_device else [])]
    ) as profiler:
        for index in range(12):
            with_marker(step, index)
    profiler.export_chrome_trace(str(path))
    path.with_suffix(".done").touch()


def with_marker(step: Any, index: int) -> None:
    """A step under the profiler's name for it."""
    from torch.profiler import record_function

    with record_function(f"ProfilerStep#{index}"):
        step(index)


def _dump_when_told(signals: Path, rank: int) -> None:
    """NCCL's flight recorder to a file, from a thread: the one that trains may stand."""

    def wait() -> None:
        import torch

        while not (signals / "dump").exists():
            time.sleep(0.2)
        dump = getattr(torch._C._distributed_c10d, "_dump_nccl_trace", None)
        if dump is not None:
            (signals / f"nccl_trace_rank_{rank}").write_bytes(dump())

    threading.Thread(target=wait, daemon=True).start()


def _plain(options: argparse.Namespace, own: Rank, loader: Any) -> Any:
    """A step of a training whose ranks are replicas, or shards of one."""
    import torch
    from torch import nn

    model: Any = nn.Sequential(*(own.layer() for _ in range(options.layers))).to(own.device)
    if options.kind == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        for one in model:
            fully_shard(one)
        fully_shard(model)
    elif own.world > 1:
        model = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=4)
    if options.kind in {"compiled", "graphs"}:
        model = torch.compile(model, mode="reduce-overhead" if options.kind == "graphs" else "default")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    batches = iter(loader)
    pageable = torch.randn(options.batch, WIDTH)

    def step(num: int) -> None:
        batch = next(batches)
        features = batch.to(own.device, non_blocking=True)
        if own.is_slow:
            for _ in range(options.copies):
                features = pageable.to(own.device)
        optimizer.zero_grad()
        loss = model(features).square().mean()
        loss.backward()
        optimizer.step()
        if (options.look_every and num % options.look_every == 0) or options.kind == "hang":
            loss.item()

    return step


def _pipeline(options: argparse.Namespace, own: Rank) -> Any:
    """A step of a pipeline of as many stages as ranks."""
    import torch
    from torch import nn
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    model = nn.Sequential(*(own.layer() for _ in range(options.layers // own.world))).to(own.device)
    stage = PipelineStage(model, own.rank, own.world, own.device)
    schedule = Schedule1F1B(stage, 8, loss_fn=lambda output, target: (output - target).square().mean())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    batch = torch.randn(options.batch, WIDTH, device=own.device)

    def step(num: int) -> None:
        optimizer.zero_grad()
        if own.rank == 0:
            schedule.step(batch)
        else:
            losses: list[Any] = []
            schedule.step(target=batch, losses=losses)
            if options.look_every and num % options.look_every == 0:
                losses[-1].item()
        optimizer.step()

    return step


if __name__ == "__main__":
    main()
