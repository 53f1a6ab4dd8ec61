"""`doctor --measure`: what this machine's processor gives a matrix product, kept beside the other ceilings.

torch runs in a Python of its own: it is not ours to import. In: number of threads.  Out: the document of a ceiling.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, Final

from tuiadvisor.errors import FailureError
from tuiadvisor.ownpython import SAFE_PATH, own_environment

TIMEOUT_S: Final = 120.0
_PROGRAM: Final = """
import json, sys, time
import torch
threads, seconds = int(sys.argv[1]), float(sys.argv[2])
torch.set_num_threads(threads)
found = {}
for dtype in (torch.float32, torch.bfloat16):
    best = 0.0
    for size in (512, 1024, 2048):
        a, b = torch.randn(size, size).to(dtype), torch.randn(size, size).to(dtype)
        a @ b
        end = time.perf_counter() + seconds / 3
        while True:
            begin = time.perf_counter()
            a @ b
            now = time.perf_counter()
            best = max(best, 2 * size**3 / (now - begin))
            if now > end:
                break
        if 8 * (now - begin) > seconds:  # the next one is eight times the work: a precision without a unit for it
            break
    found[str(dtype).rpartition(".")[2]] = best
source = torch.ones(1 << 25)
target = torch.empty_like(source)
copied, end = 0.0, time.perf_counter() + seconds / 3
while True:
    begin = time.perf_counter()
    target.copy_(source)
    now = time.perf_counter()
    copied = max(copied, 2 * source.nbytes / (now - begin))
    if now > end:
        break
print(json.dumps({"flops_s": found, "bytes_s": copied, "torch": torch.__version__, "threads": torch.get_num_threads()}))
"""


def measure_peak(threads: int, seconds: float = 2.0) -> dict[str, Any]:
    """The best of products of several sizes, about so many seconds a precision. FailureError without torch."""
    command = [sys.executable, SAFE_PATH, "-c", _PROGRAM, str(threads), str(seconds)]
    try:
        done = subprocess.run(
            command, env=own_environment(), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise FailureError(
            f"the measurement did not end within {TIMEOUT_S:g} s: measure while nothing else computes here"
        ) from error
    except OSError as error:
        raise FailureError(f"the measurement did not begin: {error}") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise FailureError(f"no matrix product ran: {last}; torch has to be installed where tuiadvisor is")
    return {"schema": 1, "kind": "peak", "device": "cpu", **json.loads(done.stdout)}


def measured_lines(document: dict[str, Any]) -> list[str]:
    """For people."""
    rates = ", ".join(f"{dtype} {rate / 1e9:,.4g} GFLOP/s" for dtype, rate in document["flops_s"].items())
    threads = f"{document['threads']} thread{'s' * (document['threads'] > 1)}"
    return [
        f"peak of this machine's processor, {threads}: {rates}; copy {document['bytes_s'] / 1e9:.3g} GB/s"
    ]
