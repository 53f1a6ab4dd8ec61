"""The demo's training as MPI starts it: rank and size come from what Open MPI or MPICH set, and only inside."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "demo"))

import train

NAMES = {
    "RANK": ("OMPI_COMM_WORLD_RANK", "PMI_RANK"),
    "WORLD_SIZE": ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"),
}

if __name__ == "__main__":
    for name, theirs in NAMES.items():
        os.environ[name] = next(os.environ[other] for other in theirs if other in os.environ)
    train.train(train.parse())
