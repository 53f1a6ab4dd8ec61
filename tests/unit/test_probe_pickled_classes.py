"""Which classes picklers take with their dict, and that what we put there is pickled as if it was not there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from probing import probed

from tuiadvisor_probes.pickled import StandIn, is_by_value

SOURCE = """
import torch

class Reached(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, values):
        return self.layer(values).tanh()

    class Nested(torch.nn.Module):
        pass

def build():
    class Local(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(8, 8)

        def forward(self, values):
            return self.layer(values).tanh()

    return Local()

Hidden = Shown = Reached
class Hidden(Reached):
    pass
Shown, Hidden = Hidden, None
Made = type("AnotherName", (Reached,), {})
"""
PACKAGE, NAME = "_a_librarys_package", "_a_librarys_package.models"
LOADER = """
import sys
for name in ("tuiadvisor", "tuiadvisor_probes", "_tuiadvisor_probe"):
    sys.modules[name] = None  # whoever imports it fails
import torch
pickler = __import__(sys.argv[1])
torch.save(pickler.loads(sys.stdin.buffer.read())(torch.ones(2, 8)).detach(), sys.argv[2])
"""


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module that can be imported."""
    module: Any = ModuleType(NAME)
    monkeypatch.setitem(sys.modules, PACKAGE, ModuleType(PACKAGE))
    monkeypatch.setitem(sys.modules, NAME, module)
    exec(SOURCE, vars(module))  # noqa: S102 - our own text
    return module


def test_what_is_not_found_by_its_name_is_taken_by_value(library: Any) -> None:
    """As the picklers themselves look: an import of the module, then name by name, and the identical object."""
    assert not is_by_value(library.Reached)
    assert not is_by_value(library.Reached.Nested)
    assert not is_by_value(torch.nn.Linear)
    assert is_by_value(type(library.build()))
    assert is_by_value(library.Shown)  # its name is another's
    assert is_by_value(library.Made)
    library.Reached.__module__ = "_a_module_that_is_not_there"
    assert is_by_value(library.Reached)


@pytest.mark.parametrize("holder", ["cloudpickle.cloudpickle", "ray.cloudpickle.cloudpickle"])
@pytest.mark.parametrize("registered", [NAME, PACKAGE])
def test_what_cloudpickle_was_told_to_take_by_value(
    library: Any, monkeypatch: pytest.MonkeyPatch, holder: str, registered: str
) -> None:
    """A module of the training's, or the package that it lies in."""
    imitated: Any = SimpleNamespace(_PICKLE_BY_VALUE_MODULES=set())
    monkeypatch.setitem(sys.modules, holder, imitated)
    assert not is_by_value(library.Reached)
    imitated._PICKLE_BY_VALUE_MODULES.add(registered)
    assert is_by_value(library.Reached)
    assert not is_by_value(torch.nn.Linear)


def train(model: Any) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.ones(4, 8)).mean().backward()
        optimizer.step()


def test_a_class_made_in_a_function_holds_a_stand_in(library: Any, tmp_path: Path) -> None:
    """Which any pickler is told of by itself; one that is found by its name does without."""
    local, reached = library.build(), library.Reached()
    with probed(tmp_path):
        train(local)
        made = vars(type(local))["__call__"]
        assert type(made).__mro__[1].__name__ == StandIn.__name__  # the attached probe's own
        function, arguments = made.__reduce_ex__(2)
        assert function(*arguments) is torch.nn.Module.__call__
    with probed(tmp_path):
        train(reached)
        assert type(vars(library.Reached)["__call__"]) is FunctionType
    assert "__call__" not in vars(type(local))


@pytest.mark.parametrize("name", ["cloudpickle", "dill"])
@pytest.mark.parametrize("way", ["local", "registered"])
def test_a_model_of_a_librarys_is_saved_while_watched(
    library: Any, tmp_path: Path, name: str, way: str
) -> None:
    """It could not be: "__reduce__ must return a string or tuple"."""
    pickler = pytest.importorskip(name)
    if way == "registered":
        if name == "dill":
            pytest.skip("has no such list")
        pickler.register_pickle_by_value(library)
    model = library.build() if way == "local" else library.Reached()
    try:
        with probed(tmp_path):
            train(model)
            assert "__call__" in vars(type(model))
            saved = pickler.dumps(model)
    finally:
        if way == "registered":
            pickler.unregister_pickle_by_value(library)
    assert b"tuiadvisor" not in saved
    loaded = tmp_path / "loaded"
    command = [sys.executable, "-P", "-c", LOADER, name, str(loaded)]
    subprocess.run(command, input=saved, check=True, timeout=120)
    assert torch.equal(model(torch.ones(2, 8)), torch.load(loaded))


@pytest.mark.parametrize("core", ["native"], indirect=True)
@pytest.mark.usefixtures("core")
def test_a_module_that_is_registered_when_we_are_there_already_is_saved(library: Any, tmp_path: Path) -> None:
    """What stands there then is a function that calls the original one; Python's hooks cannot be saved so."""
    cloudpickle = pytest.importorskip("cloudpickle")
    model = library.Reached()
    with probed(tmp_path):
        train(model)
        cloudpickle.register_pickle_by_value(library)
        try:
            saved = cloudpickle.dumps(model)
        finally:
            cloudpickle.unregister_pickle_by_value(library)
    loaded = tmp_path / "loaded"
    command = [sys.executable, "-P", "-c", LOADER, "cloudpickle", str(loaded)]
    subprocess.run(command, input=saved, check=True, timeout=120)
    assert torch.equal(model(torch.ones(2, 8)), torch.load(loaded))
