"""What the probe takes of a rank's memory: a real torchrun, before the attach, while attached, and after it.

    python tests/benchmarks/memory.py [--ranks 2] [--for 20] [--times 3]

Per rank and attach, MiB beyond the moment before it: resident memory (what is mapped in, the ring's pages included) and
unique memory (private pages only). The same wait without an attach comes first: what the training grows by itself.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from attach_pause import attach_all, detach_all, wait_for_steps
from training import running

from tuiadvisor.agent.room import ATTACH_BYTES, MIB

AIM_MIB = ATTACH_BYTES / MIB  # a rank whose memory would not bear it is refused
STILL_MIB = 0.1
KIB_A_MIB = 1024


def memory_mib(pid: int) -> tuple[float, float]:
    """(resident, unique) of a process."""
    fields = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]:
        name, value, *_ = line.split()
        fields[name.rstrip(":")] = int(value)
    private = fields["Private_Clean"] + fields["Private_Dirty"]
    return fields["Rss"] / KIB_A_MIB, private / KIB_A_MIB


def grown(pids: list[int], before: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """What each process holds beyond what it held then."""
    now = [memory_mib(pid) for pid in pids]
    return [(new[0] - old[0], new[1] - old[1]) for new, old in zip(now, before, strict=True)]


def settle(pids: list[int]) -> None:
    """Until the training has all that it needs: no growth in five seconds."""
    growth = 1.0
    while growth > STILL_MIB:
        before = [memory_mib(pid) for pid in pids]
        time.sleep(5.0)
        growth = max(resident for resident, _ in grown(pids, before))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--step-ms", type=float, default=10.0)
    parser.add_argument("--for", type=float, default=20.0, dest="seconds")
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    found: dict[str, list[tuple[float, float]]] = {"alone": [], "attached": [], "after it": []}
    with (
        running(options.ranks, "--step-ms", str(options.step_ms), is_whole=True) as (_, ranks),
        tempfile.TemporaryDirectory(dir="/dev/shm", prefix="bench-") as name,
    ):
        pids, folder = [rank.pid for rank in ranks], Path(name)
        settle(pids)
        for _ in range(options.times):
            before = [memory_mib(pid) for pid in pids]
            time.sleep(options.seconds)
            found["alone"] += grown(pids, before)
            before = [memory_mib(pid) for pid in pids]
            attach_all(pids, folder)
            wait_for_steps(pids, folder)
            time.sleep(options.seconds)
            found["attached"] += grown(pids, before)
            detach_all(pids, folder)
            time.sleep(1.0)
            found["after it"] += grown(pids, before)
    print(f"{'MiB a rank':12} {'resident':>9} {'worst':>7} {'unique':>9} {'worst':>7}")
    for what, rows in found.items():
        resident, unique = [row[0] for row in rows], [row[1] for row in rows]
        print(
            f"{what:12} {statistics.median(resident):9.2f} {max(resident):7.2f} "
            f"{statistics.median(unique):9.2f} {max(unique):7.2f}"
        )
    print(f"aim while attached: below {AIM_MIB:.0f}")


if __name__ == "__main__":
    main()
