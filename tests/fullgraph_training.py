"""A training whose classes stand in its own script, compiled whole while the probe is there.

fullgraph_training.py FOLDER: what torch.compile can take without a graph break before the attach, it can during it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from probing import probed

VALUE = torch.ones(4, 8)


class Plain(torch.nn.Module):
    """Inherits `__call__`."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, value: Any) -> Any:
        return self.layer(value).sum()


class Caller(Plain):
    """Has one of its own."""

    def __call__(self, value: Any) -> Any:
        return super().__call__(value) * 2


class Heir(Caller):
    """Inherits that one."""


def main(folder: Path) -> None:
    for kind in (Plain, Caller, Heir):
        model = kind()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for compiled in (lambda value, model=model: model(value), model):
            with probed(folder):
                for _ in range(4):
                    model(VALUE).backward()
                    optimizer.step()
                    optimizer.zero_grad()
                torch._dynamo.reset()
                found = torch.compile(compiled, fullgraph=True, backend="eager")(VALUE)
                assert torch.equal(found, model(VALUE))
        print(kind.__name__)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
