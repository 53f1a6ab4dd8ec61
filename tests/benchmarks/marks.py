"""What reading an attribute costs once somebody has asked its object for `__dict__`, and whether an attach asks.

    python tests/benchmarks/marks.py

CPython 3.11 and 3.12 keep the attributes of a plain object in the object itself. Who asks for the dict gets one that is
made for it, and the quick ways of reading an attribute hold no longer (`tuiadvisor_probes.attributes`). First a loop
that reads attributes, of an object without a dict and with one; then a training beside which the probe came and went:
which of its objects have a dict that they had not before.
"""

from __future__ import annotations

import gc
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[2] / "probes")]

ROUNDS, READS = 200, 1000


class Trainer:
    """As a training script's own object."""

    def __init__(self) -> None:
        self.model, self.optimizer, self.loader, self.device, self.step = range(5)


def reads(trainer: Trainer) -> None:
    """Five attributes, so many times."""
    for _ in range(READS):
        trainer.model  # noqa: B018
        trainer.optimizer  # noqa: B018
        trainer.loader  # noqa: B018
        trainer.device  # noqa: B018
        trainer.step  # noqa: B018


def best_ns(call: Callable[[], None]) -> float:
    """Of one read, the quickest round."""
    rounds = []
    for _ in range(ROUNDS):
        begin = time.perf_counter_ns()
        call()
        rounds.append((time.perf_counter_ns() - begin) / READS / 5)
    return min(rounds)


def has_dict(thing: Any, name: str) -> bool:
    """Whether the object has a dict, by one of its attributes' names; the question leaves none."""
    return any(type(one) is dict and name in one for one in gc.get_referents(thing))


def marked(folder: Path) -> dict[str, tuple[bool, bool]]:
    """Of objects of a training: whether they had a dict before the probe came, and after it left."""
    import torch
    from probing import probed
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    class Loop:
        def __init__(self) -> None:
            self.model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
            self.loader = DataLoader(TensorDataset(torch.randn(512, 4)), batch_size=4)

        def run(self) -> None:
            for (batch,) in self.loader:
                self.optimizer.zero_grad()
                self.model(batch).sum().backward()
                self.optimizer.step()

    loop = Loop()
    loop.run()
    things = {"loop": "model", "optimizer": "param_groups", "loader": "batch_size"}
    objects = {"loop": loop, "optimizer": loop.optimizer, "loader": loop.loader}
    before = {name: has_dict(objects[name], attribute) for name, attribute in things.items()}
    with probed(folder):
        loop.run()
    return {name: (before[name], has_dict(objects[name], things[name])) for name in things}


def main() -> None:
    """Both, as a few lines."""
    plain, asked = Trainer(), Trainer()
    without = best_ns(lambda: reads(plain))
    asked.__dict__  # noqa: B018
    with_one = best_ns(lambda: reads(asked))
    print(
        f"Python {platform.python_version()}: a read {without:.2f} ns, of an object that was asked for its dict "
        f"{with_one:.2f} ns ({with_one / without:.1f} times)"
    )
    with tempfile.TemporaryDirectory() as folder:
        for name, (before, after) in marked(Path(folder)).items():
            print(
                f"{name}: {'a' if before else 'no'} dict before the probe, {'one' if after else 'none'} after it"
            )


if __name__ == "__main__":
    main()
