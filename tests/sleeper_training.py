"""A data-parallel training in which rank 1 waits in a function of its own, until a signal ends that.

Arguments: seconds of everybody's work in a step, and of rank 1's lateness.
"""

import os
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def wait(late_s: float) -> None:
    """Where the late rank is late."""
    time.sleep(late_s)


def work(seconds: float) -> None:
    """What every rank does in a step."""
    time.sleep(seconds)


def main() -> None:
    """Train until it is killed."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=5))
    late_s = [float(sys.argv[2]) if int(os.environ["RANK"]) == 1 else 0.0]
    signal.signal(signal.SIGUSR1, lambda *_: late_s.clear())
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while True:
        loss = model(torch.ones(8, 64)).sum()
        work(float(sys.argv[1]))
        if any(late_s):
            wait(late_s[0])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
