"""A watched training pickles by value what it could pickle before; the bytes load where tuiadvisor is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
SCRIPT = Path(__file__).parents[1] / "pickling_training.py"
LOADER = """
import importlib, os, sys
from pathlib import Path
for name in ("tuiadvisor", "tuiadvisor_probes", "_tuiadvisor_probe"):
    sys.modules[name] = None  # whoever imports it fails
import cloudpickle, dill, torch
value = torch.ones(4, 8)
# A process each: what cloudpickle loaded before it does not make anew.
for when in sys.argv[2:]:
    if not (child := os.fork()):
        break
    assert os.waitpid(child, 0)[1] == 0, when
else:
    sys.exit()
for path in sorted(Path(sys.argv[1], when).glob("*.pkl")):
    owner, name, pickler = path.stem.split("-")
    loads = importlib.import_module(pickler).loads
    thing, expected = loads(path.read_bytes()), torch.load(path.with_suffix(".expected"))
    if name in ("model", "call", "derived"):
        assert torch.equal(expected, thing(value)), path
        cls = type(getattr(thing, "__self__", thing))
    elif name == "class":
        assert list(thing().state_dict()) == expected, path
        cls = thing
    else:
        if name == "optimizer_class":
            thing = thing([torch.nn.Parameter(expected.clone())], lr=0.1)
        optimizer = getattr(thing, "__self__", thing)
        parameter = optimizer.param_groups[0]["params"][0]
        parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        assert torch.allclose(expected - 0.1, parameter), path
        continue
    own = owner == "Caller" and name != "derived"
    assert own == (cls.__call__ is not torch.nn.Module.__call__), path
    print(when, path.stem)
"""


@pytest.mark.parametrize("way", [pytest.param("plain", marks=pytest.mark.extended), "compiled"])
def test_what_is_pickled_by_value_loads_without_us(tmp_path: Path, way: str) -> None:
    """Of cloudpickle and dill: models, classes and optimizers of the script's own; before, while and after."""
    extra = ["compiled"] if way == "compiled" else []
    subprocess.run([sys.executable, str(SCRIPT), str(tmp_path), *extra], check=True, timeout=600)
    names = ("before", "attached", "after")
    for name in names:
        assert [] == [
            path.name for path in (tmp_path / name).glob("*.pkl") if b"tuiadvisor" in path.read_bytes()
        ]
    loader = [sys.executable, "-P", "-c", LOADER, str(tmp_path), *names]
    done = subprocess.run(loader, check=True, timeout=300, stdout=subprocess.PIPE, text=True)
    contents: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        when, stem = line.split()
        contents.setdefault(when, []).append(stem)
    assert 16 == len(contents["before"])
    assert contents["before"] == contents["attached"] == contents["after"]


def test_what_compiles_without_a_break_compiles_without_one_while_we_are_there(tmp_path: Path) -> None:
    """Also a model whose class has a `__call__` of its own."""
    script = SCRIPT.with_name("fullgraph_training.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], check=False, timeout=600, stdout=subprocess.PIPE
    )
    assert 0 == done.returncode
    assert b"Plain\nCaller\nHeir\n" == done.stdout
