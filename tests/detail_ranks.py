"""A training that reduces its gradients by hand, watched in bursts of detail: `python tests/detail_ranks.py _ FOLDER`.

After each step each rank writes down which of the patched attributes are the host's own and which are as they were
after the attach, so that the test sees hooks come and go.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

NUM_STEPS, BUDGET_PPM = 130, 50_000
POOR_FROM, POOR_PPM = 100, 0  # from this step of the job on there are no bursts
APART_STEPS = 5  # one rank after the other is attached
WORK_S = 0.004


def main(_: str, folder: Path) -> None:
    """Train, attach in mid-run, train on, detach."""
    import torch
    import torch.distributed as dist
    from probing import probed
    from ranks import by_hand, leave
    from torch._C import _distributed_c10d as c10d

    from tuiadvisor_probes import ring

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    step = by_hand(0, world)
    owners: tuple[Any, ...] = (c10d.ProcessGroup, c10d.Work)
    before = [dict(vars(owner)) for owner in owners]

    def differing(than: list[dict[str, Any]]) -> list[str]:
        return sorted(
            name
            for owner, attributes in zip(owners, than, strict=True)
            for name, value in vars(owner).items()
            if attributes.get(name) is not value
        )

    def one_step() -> None:
        step()
        dist.broadcast(torch.ones(1), 0)
        time.sleep(WORK_S)

    first = 2 + APART_STEPS * rank
    for _step in range(first):
        one_step()
    with probed(folder, budget_ppm=BUDGET_PPM) as observed:
        always = [dict(vars(owner)) for owner in owners]
        patched_always = differing(before)
        seen = []
        for number in range(first, NUM_STEPS):
            if number == POOR_FROM:
                observed.reader.put_u64(ring.OFFSET_BUDGET, 1 + POOR_PPM)
            one_step()
            seen.append({"than_host": differing(before), "than_always": differing(always)})
    result = {
        "steps": observed.steps,
        "events": observed.events(),
        "info": observed.info,
        "first": first,
        "seen": seen,
        "patched_always": patched_always,
        "left": differing(before),
        "errors": observed.errors,
    }
    (folder / f"rank{rank}.json").write_text(json.dumps(result))
    leave()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    from ranks import fork_ranks

    sys.exit(fork_ranks(sys.argv[1], Path(sys.argv[2]), main))
