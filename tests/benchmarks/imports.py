"""What is imported before the first frame, and what of the processor that takes.

Run: python tests/benchmarks/imports.py [--starts 7] [--command replay] [--most 25] [--instructions]

The fastest of some starts, each in a process of its own, bytecode kept (PYTHONDONTWRITEBYTECODE unset, one start before
the first that counts). Of each module its own processor time, without that of what it imports. --instructions: also
how many instructions one start executes, by valgrind's callgrind: a figure that other jobs on the machine do not move.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import orjson

# In the child: the import system's own function that loads a module, timed.
CHILD = """
import importlib, json, sys, time
from importlib import _bootstrap
load, inner, own_ns = _bootstrap._load_unlocked, [], {}
def timed(spec):
    begin_ns = time.process_time_ns()
    inner.append(0)
    try:
        return load(spec)
    finally:
        spent_ns = time.process_time_ns() - begin_ns
        own_ns[spec.name] = spent_ns - inner.pop()
        if inner:
            inner[-1] += spent_ns
_bootstrap._load_unlocked = timed
begin_ns = time.process_time_ns()
for name in sys.argv[2:]:
    importlib.import_module(name)
with open(sys.argv[1], "w") as out:
    json.dump({"whole": time.process_time_ns() - begin_ns, "own": own_ns}, out)
"""


def child(result: Path, command: str) -> list[str]:
    """What loads all that a command loads before its first frame."""
    modules = (f"tuiadvisor.cli.{command}", "tuiadvisor.tui.control.app")
    return [sys.executable, "-c", CHILD, str(result), *modules]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--starts", type=int, default=7)
    parser.add_argument("--command", default="replay", help="a module of tuiadvisor.cli")
    parser.add_argument("--most", type=int, default=25, help="modules to name")
    parser.add_argument("--instructions", action="store_true")
    options = parser.parse_args()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder:
        result, seen = Path(folder, "seen.json"), []
        for _ in range(options.starts + 1):
            subprocess.run(child(result, options.command), check=True, env=environment)
            seen.append(orjson.loads(result.read_bytes()))
        seen = seen[1:]
        if options.instructions:
            tool = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/calls"]
            said = subprocess.run(
                [*tool, *child(result, options.command)],
                check=True,
                env=environment,
                capture_output=True,
                text=True,
            )
            found = re.search(r"Collected : (\d+)", said.stderr)
            print(f"{int(found[1]):,} instructions" if found else "callgrind did not count")
    whole_ms = sorted(one["whole"] / 1e6 for one in seen)
    print(f"{whole_ms[0]:.0f} to {whole_ms[-1]:.0f} ms of the processor, {len(seen[0]['own'])} modules")
    own_ms = {name: min(one["own"].get(name, 0) for one in seen) / 1e6 for name in seen[0]["own"]}
    of_package: dict[str, float] = defaultdict(float)
    for name, spent_ms in own_ms.items():
        of_package[name.partition(".")[0]] += spent_ms
    for kind, all_ms in (("packages", of_package), ("modules", own_ms)):
        largest = sorted(all_ms.items(), key=lambda each: -each[1])[: options.most]
        print(f"{kind}: " + ", ".join(f"{name} {spent_ms:.1f}" for name, spent_ms in largest))


if __name__ == "__main__":
    main()
