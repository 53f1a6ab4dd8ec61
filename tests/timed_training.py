"""The demo's training, each rank writing down when a step ended, as it happens: `--step-times PREFIX`, ns."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "demo"))

import train

_plain = train.after_step
_files: list[int] = []


def after_step(options: argparse.Namespace, model: Any, rank: int, step: int) -> None:
    if not _files:
        _files.append(os.open(f"{options.step_times}.{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    os.write(_files[0], b"%d\n" % time.monotonic_ns())
    _plain(options, model, rank, step)


if __name__ == "__main__":
    train.after_step = after_step
    train.train(train.parse())
