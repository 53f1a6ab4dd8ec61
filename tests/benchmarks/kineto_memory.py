"""What `import kineto` takes of memory and time for large traces, generated: the whole command in its own process.

Run: python tests/benchmarks/kineto_memory.py [--events 4400000] [--ranks 4] [--gpu-share 0.5] [--recording]

A trace of 1 GB: --ranks 1; a folder of 64 ranks: --ranks 64 --events 1280000. Not in CI: minutes, and a GB of disk.

Each rank's file holds kernels with their launches on the host, and operators around them, indented as the profiler
writes them. --gpu-share: kernels and launches among all events. Printed: the files' size, wall and processor time, the
largest resident set beyond that of one rank with ten events, which is Python with what it imports. --recording: with
a recording written (-o) as well, its size, and how long its first view and a picture of its timeline take.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GEMM = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x128_32x4_nn_align8>(Params)"
STEPS = 20
# Of the first half of a step, and of its second.
FORWARD = ("aten::linear", "aten::addmm", "aten::layer_norm", "aten::gelu")
BACKWARD = ("autograd::engine::evaluate_function: AddmmBackward0", "AddmmBackward0", "aten::mm", "aten::sum")


def shown(cat: str, name: str, at_us: float, dur_us: float, args: str) -> str:
    """One event, as the profiler lays it out."""
    return (
        f'  {{\n    "ph": "X", "cat": "{cat}", "name": "{name}", "pid": 4711, "tid": 7,\n'
        f'    "ts": {at_us:.3f}, "dur": {dur_us:.3f},\n    "args": {{\n      {args}\n    }}\n  }}'
    )


def write_rank(path: Path, rank: int, num_ranks: int, num_events: int, gpu_share: float) -> None:
    """A launch and its kernel by turns, every twentieth an all-reduce; operators in between."""
    with path.open("w", encoding="ascii") as file:
        about = {"backend": "nccl", "rank": rank, "world_size": num_ranks}
        file.write(
            f'{{\n  "schemaVersion": 1,\n  "distributedInfo": {json.dumps(about)},\n  "traceEvents": [\n'
        )
        number, credit = 0, 0.0
        for step in range(STEPS):
            at_us, length_us = 1.7e15 + 40.0 * step * num_events / STEPS, 40.0 * num_events / STEPS
            comma = ",\n" if step else ""
            file.write(
                comma + shown("user_annotation", f"ProfilerStep#{step}", at_us, length_us, '"Ev Idx": 0')
            )
        comma = ",\n"
        in_step = max(num_events // STEPS, 1)
        for event in range(num_events):
            credit += gpu_share / 2
            at_us = 1.7e15 + 40.0 * event
            if credit >= 1:
                credit, number = credit - 1, number + 1
                name, stream = (ALL_REDUCE, 20) if number % 20 == 0 else (GEMM, 7)
                args = f'"External id": {number}, "device": 0, "stream": {stream}, "correlation": {number}'
                launch = shown(
                    "cuda_runtime", "cudaLaunchKernel", at_us - 30, 5.0, f'"correlation": {number}'
                )
                file.write(comma + launch + ",\n" + shown("kernel", name, at_us, 25.0 + number % 7, args))
                continue
            if credit + gpu_share / 2 >= 1:
                continue
            args = f'"External id": {event}, "Ev Idx": {event}, "Record function id": 0'
            half = (BACKWARD if 2 * (event % in_step) >= in_step else FORWARD)[event % 4]
            file.write(comma + shown("cpu_op", half, at_us, 20.0, args))
        file.write('\n  ],\n  "traceName": "x"\n}\n')


def measured(folder: Path, output: Path | None = None) -> tuple[float, float, float, dict[str, object]]:
    """(wall s, processor s, largest resident set in MB, what was said) of the command on this folder."""
    read_fd, write_fd = os.pipe()
    more = [] if output is None else ["-o", str(output)]
    begin_s = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os.dup2(write_fd, 1)
        os.execv(  # noqa: S606
            sys.executable,
            [sys.executable, "-m", "tuiadvisor", "import", "kineto", str(folder), "--json", *more],
        )
    os.close(write_fd)
    with os.fdopen(read_fd, "rb") as file:
        said = json.loads(file.read())
    _, code, used = os.wait4(pid, 0)
    if code:
        raise SystemExit(f"the import failed with {code}")
    return time.monotonic() - begin_s, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, said


def of_recording(path: Path) -> str:
    """How long the first view and the timeline take, in a process that has read nothing yet."""
    from tuiadvisor.app.timeline import SlicesRead
    from tuiadvisor.app.whole_recording import frames_of, whole_view

    begin_s = time.perf_counter()
    whole_view(str(path))
    view_s = time.perf_counter()
    read = SlicesRead(frames_of(str(path)))
    read_s = time.perf_counter()
    lanes = len(read.picture(0.0, None, 140).lanes)
    end_s = time.perf_counter()
    return (
        f"recording {path.stat().st_size / 1e6:.1f} MB: view {view_s - begin_s:.2f} s, timeline of {lanes} streams "
        f"read in {read_s - view_s:.2f} s, a picture {1e3 * (end_s - read_s):.0f} ms"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=4_400_000)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--gpu-share", type=float, default=0.5)
    parser.add_argument("--recording", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        empty, folder = Path(name) / "empty", Path(name) / "full"
        empty.mkdir()
        folder.mkdir()
        write_rank(empty / "rank0.json", 0, 1, 10, 0.5)
        for rank in range(options.ranks):
            write_rank(
                folder / f"rank{rank}.json",
                rank,
                options.ranks,
                options.events // options.ranks,
                options.gpu_share,
            )
        largest = max(path.stat().st_size for path in folder.iterdir())
        base = measured(empty)[2]
        output = Path(name) / "run.tuirec" if options.recording else None
        wall_s, cpu_s, peak, said = measured(folder, output)
        about = of_recording(output) if output is not None else ""
    rows = said["per_rank"]
    assert isinstance(rows, list)
    num_events, num_gpu = (sum(row[key] for row in rows) for key in ("events", "gpu_events"))
    print(
        f"{num_events:,} events, {num_gpu:,} on the device, {options.ranks} files of {largest / 1e6:.0f} MB at most"
    )
    print(f"wall {wall_s:.1f} s, processor {cpu_s:.1f} s ({num_events / cpu_s:,.0f} events/s)")
    print(f"largest resident set {peak:.0f} MB, {peak - base:.0f} MB beyond an empty trace's")
    print(f"bytes an event: {(peak - base) * (1 << 20) / num_events:.0f}")
    print(about)


if __name__ == "__main__":
    main()
