"""As much of torch's Python as the probe hooks into, for interpreters that no torch was built for.

`python tests/imitation_torch.py FOLDER` trains until FOLDER/stop exists, and says at the end whether every hooked
attribute is the object that it was. The names and the walk through the optimizer's hooks are torch's own.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import OrderedDict
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any


class Tensor:
    """A batch of rows."""

    shape = (32, 8)
    dtype = None
    device = SimpleNamespace(type="cpu", index=None)
    requires_grad = False


class Module:
    """Calls its forward."""

    training = True

    def __init__(self) -> None:
        self.weight = Tensor()

    def parameters(self) -> list[Tensor]:
        """One."""
        return [self.weight]

    def modules(self) -> list[Module]:
        """Itself."""
        return [self]

    def forward(self, batch: Any) -> Any:
        """Takes a millisecond."""
        time.sleep(0.001)
        return batch

    def __call__(self, *args: Any) -> Any:
        """As nn.Module's."""
        return self.forward(*args)


class Handle:
    """Of a registered hook."""

    def __init__(self, hooks: Any) -> None:
        self.hooks, self.id = hooks, len(hooks) + 1

    def remove(self) -> None:
        """Out of the dict."""
        self.hooks.pop(self.id, None)


pre_hooks: OrderedDict[int, Any] = OrderedDict()
post_hooks: OrderedDict[int, Any] = OrderedDict()


def registering(hooks: OrderedDict[int, Any]) -> Any:
    """A register_... function for this dict."""

    def register(hook: Any) -> Handle:
        handle = Handle(hooks)
        hooks[handle.id] = hook
        return handle

    return register


class Optimizer:
    """Its steps pass through the global hooks."""

    def __init__(self, parameters: list[Tensor]) -> None:
        self.param_groups = [{"params": parameters}]

    @staticmethod
    def profile_hook_step(func: Any) -> Any:
        """As torch's."""

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            for hook in list(pre_hooks.values()):
                hook(args[0], args, kwargs)
            result = func(*args, **kwargs)
            for hook in list(post_hooks.values()):
                hook(args[0], args, kwargs)
            return result

        return wrapper

    def step(self) -> None:
        """Takes a millisecond."""
        time.sleep(0.001)


Optimizer.step = Optimizer.profile_hook_step(Optimizer.step)  # type: ignore[method-assign]


class _BaseDataLoaderIter:
    def __iter__(self) -> _BaseDataLoaderIter:
        return self

    def __next__(self) -> Any:
        return Tensor()


class DataLoader:
    """Gives batches for ever."""

    def __iter__(self) -> _BaseDataLoaderIter:
        return _BaseDataLoaderIter()


def backward(tensor: Any) -> None:
    """Takes a millisecond."""
    time.sleep(0.001)


def put_in() -> None:
    """Under torch's names."""
    contents: dict[str, dict[str, Any]] = {
        "torch": {"__version__": "imitation", "Tensor": Tensor, "int64": 1, "int32": 2},
        "torch.cuda": {"is_initialized": lambda: False},
        "torch.nn": {"Module": Module},
        "torch.autograd": {"backward": backward},
        "torch.optim": {"Optimizer": Optimizer},
        "torch.optim.optimizer": {
            "Optimizer": Optimizer,
            "_global_optimizer_pre_hooks": pre_hooks,
            "_global_optimizer_post_hooks": post_hooks,
            "register_optimizer_step_pre_hook": registering(pre_hooks),
            "register_optimizer_step_post_hook": registering(post_hooks),
        },
        "torch.utils": {},
        "torch.utils.data": {},
        "torch.utils.data.dataloader": {"_BaseDataLoaderIter": _BaseDataLoaderIter, "DataLoader": DataLoader},
    }
    for name, names in contents.items():
        module = sys.modules[name] = ModuleType(name)
        vars(module).update(names)
        above, _, last = name.rpartition(".")
        if above:
            setattr(sys.modules[above], last, module)
    sys.modules["torch"].is_grad_enabled = lambda: True  # type: ignore[attr-defined]


def hooked() -> list[Any]:
    """What the probe changes."""
    autograd: Any = sys.modules["torch.autograd"]
    names = (
        vars(_BaseDataLoaderIter)["__next__"],
        vars(Module)["__call__"],
        vars(Optimizer)["step"],
        autograd.backward,
    )
    return [*map(id, names), len(pre_hooks), len(post_hooks)]


def main(folder: Path) -> None:
    """Train beside an idle thread."""
    put_in()
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    model, before = Module(), hooked()
    optimizer = Optimizer(model.parameters())
    autograd: Any = sys.modules["torch.autograd"]
    print("ready", flush=True)
    for batch in DataLoader():
        autograd.backward(model(batch))
        optimizer.step()
        if (folder / "stop").exists():
            break
    left = [name for name in sys.modules if "tuiadvisor" in name]
    print("as before" if hooked() == before else "changed", left, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
