"""`make native-check`: the native core under sanitizers and a debugging allocator, and whether it leaks or disturbs.

    python tests/native_check.py [--steps 100000] [--cycles 1000]

Four runs: its tests with AddressSanitizer and UndefinedBehaviorSanitizer; its tests with PYTHONMALLOC=debug; many steps
with references and allocated blocks counted before and after; many attaches and detaches in a training whose weights
must be those of an undisturbed one, bit for bit. Ends with 1 at the first that fails, and says the figures.
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "probes" / "native"))
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(1, str(Path(__file__).parents[1] / "probes"))
import core_build

TESTS: Final = [str(Path(__file__).parent / "unit" / f"test_native_{name}.py") for name in ("core", "ddp")]
SANITIZERS: Final = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g", "-O1")
# Some 300 blocks more are there after 10,000 steps and after 90,000: what Python keeps once. A leak grows by the step.
KEPT_ONCE, TOLERATED_SHARE = 500, 0.01
STEPS_A_CYCLE: Final = 3


def run_tests(what: str, environment: dict[str, str]) -> None:
    """The core's own tests in a process with this environment."""
    print(f"-- {what}", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *TESTS]
    subprocess.run(command, check=True, env={**os.environ, **environment})


def sanitized() -> None:
    """With a core that is compiled with both sanitizers."""
    libraries = []
    for name in ("libasan.so", "libstdc++.so.6"):  # the second, or torch's own exceptions abort in the first
        asked = ["/usr/bin/env", "gcc", f"-print-file-name={name}"]
        done = subprocess.run(asked, capture_output=True, text=True, check=True)
        libraries.append(os.path.realpath(done.stdout.strip()))
    with tempfile.TemporaryDirectory() as folder:
        core = Path(folder) / "core.abi3.so"
        if why_not := core_build.build(core, SANITIZERS):
            sys.exit(why_not)
        # Python itself keeps what it has at its end: leaks are counted by `references` instead.
        options = {"ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1", "UBSAN_OPTIONS": "print_stacktrace=1"}
        run_tests(
            "AddressSanitizer and UndefinedBehaviorSanitizer",
            {
                "LD_PRELOAD": ":".join(libraries),
                "PYTHONMALLOC": "malloc",
                "NATIVE_CORE": str(core),
                **options,
            },
        )


class Training:
    """A small one whose every object of interest can be counted."""

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        torch.manual_seed(0)
        torch.set_num_threads(1)
        if not dist.is_initialized():
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        self.model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        self.batch = {"input_ids": torch.arange(12).reshape(3, 4)}
        torch.utils.data.DataLoader  # noqa: B018 - its module, which a hook waits for
        self.loader_class: Any = torch.utils.data.dataloader._BaseDataLoaderIter
        training = self

        class Batches(self.loader_class):  # type: ignore[name-defined]
            def __init__(self) -> None:
                pass

            def _next_data(self) -> Any:
                return training.batch

        self.batches = Batches()
        self.loader_class.__next__ = lambda iterator: iterator._next_data()

    def steps(self, count: int) -> None:
        """So many steps."""
        for _ in range(count):
            batch = self.loader_class.__next__(self.batches)["input_ids"]
            loss = self.model(batch.float()).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def counted(self) -> dict[str, int]:
        """References to what passes the hooks, and blocks in all."""
        import torch

        gc.collect()
        named = {
            "None": None,
            "True": True,
            "model": self.model,
            "reducer": self.model.reducer,
            "group": self.model.process_group,
            "optimizer": self.optimizer,
            "batch": self.batch,
            "batches": self.batches,
            "int64": torch.int64,
            "Tensor": torch.Tensor,
        }
        counts = {name: sys.getrefcount(one) for name, one in named.items()}
        return {**counts, "blocks": sys.getallocatedblocks()}


def references(num_steps: int) -> None:
    """What is referred to and allocated, after many steps as before them."""
    from probing import probed

    print("-- references", flush=True)
    training = Training()
    with tempfile.TemporaryDirectory() as folder, probed(Path(folder), budget_ppm=0) as observed:
        training.steps(2_000)
        list(observed.steps)
        observed._steps.clear()
        before = training.counted()
        for _ in range(num_steps // 1_000):
            training.steps(1_000)
            observed.reader.take_steps()
        after = training.counted()
    drift = {name: after[name] - before[name] for name in before}
    print(f"{num_steps} steps: {drift}")
    if any(abs(count) > KEPT_ONCE + TOLERATED_SHARE * num_steps for count in drift.values()):
        sys.exit("the native core leaks")


def cycles(num_cycles: int) -> None:
    """Attached and detached again and again; the weights, and what is mapped and open."""
    import torch
    from probing import probed

    print("-- attaches and detaches", flush=True)
    undisturbed = Training()
    undisturbed.steps(num_cycles * STEPS_A_CYCLE)
    training = Training()
    sizes = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(num_cycles):
            with probed(Path(folder)) as observed:
                training.steps(STEPS_A_CYCLE)
                assert observed.steps
            observed.reader.close()
            for place in Path(folder).iterdir():
                shutil.rmtree(place)
            if number in {num_cycles // 2, num_cycles - 1}:
                gc.collect()
                resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
                libraries = Path("/proc/self/maps").read_text().count("memfd:_tuiadvisor")
                sizes.append((resident >> 10, len(list(Path("/proc/self/fd").iterdir())), libraries))
    print(f"{num_cycles} cycles: (KiB resident, descriptors, mapped pieces) half way and at the end {sizes}")
    for one, other in zip(undisturbed.model.parameters(), training.model.parameters(), strict=True):
        if not torch.equal(one, other):
            sys.exit("the weights are not those of an undisturbed training")
    print("weights bit for bit those of an undisturbed training")
    if sizes[0][1:] != sizes[1][1:]:
        sys.exit("descriptors or mappings are left behind")


def main() -> None:
    """All four."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--cycles", type=int, default=1_000)
    parser.add_argument("--only", choices=["sanitized", "debug", "references", "cycles"])
    options = parser.parse_args()
    os.environ["TUIADVISOR_NATIVE"] = "1"
    if not core_build.is_current() and (why_not := core_build.build()):
        sys.exit(why_not)
    if options.only in {None, "sanitized"}:
        sanitized()
    if options.only in {None, "debug"}:
        run_tests("PYTHONMALLOC=debug", {"PYTHONMALLOC": "debug", "PYTHONDEVMODE": "0"})
    if options.only in {None, "references"}:
        references(options.steps)
    if options.only in {None, "cycles"}:
        cycles(options.cycles)


if __name__ == "__main__":
    main()
