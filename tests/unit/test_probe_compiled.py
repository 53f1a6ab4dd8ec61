"""The probe beside torch.compile: what it may not disturb is recognised, and its own frames are kept out.

Of torch there is what these questions are put to, by its names in the versions that differ.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any

import pytest

from tuiadvisor_probes import compiled

PACKAGE = "_an_imitated_probe"
IS_FUNCTION = 0x2  # of a code object's flags: it has fast locals, as a class's body has not
SOURCE = """
from posixpath import join

class Hook:
    limit = 1

    def called(self):
        return lambda: self

def outer():
    def inner():
        return 1
    return inner
"""


def functions_in(code: CodeType, *, is_module: bool = True) -> Iterator[tuple[str, int]]:
    """Name and first line of every function of a module, but for what runs while it is loaded."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            is_function = bool(constant.co_flags & IS_FUNCTION)
            is_loading = is_module and constant.co_name == "<genexpr>"
            # From 3.14 on one a class and module, for whoever asks for annotations.
            if is_function and not is_loading and constant.co_name != "__annotate__":
                yield constant.co_name, constant.co_firstlineno
            yield from functions_in(constant, is_module=False)


MODULES = sorted(path.stem for path in Path(compiled.__file__).parent.glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("name", MODULES)
def test_no_function_of_the_probe_is_left_to_dynamo(name: str) -> None:
    """What a property does was: a collection of garbage below a compiled call had `StepClock.active` compiled."""
    module = importlib.import_module(f"tuiadvisor_probes.{name}")
    assert module.__file__ is not None
    whole = compile(Path(module.__file__).read_text(), module.__file__, "exec")
    hidden = {(code.co_name, code.co_firstlineno) for code in compiled._codes_of(module)}
    left = set(functions_in(whole)) - hidden
    assert set() == left, "no comprehension or lambda at module level of the probe: map, or a def"


def put(monkeypatch: pytest.MonkeyPatch, name: str, **attributes: Any) -> None:
    module = ModuleType(name)
    vars(module).update(attributes)
    monkeypatch.setitem(sys.modules, name, module)


def put_eval_frame(monkeypatch: pytest.MonkeyPatch, **attributes: Any) -> None:
    """torch._C._dynamo.eval_frame, the part in C."""
    frames = SimpleNamespace(**attributes)
    put(monkeypatch, "torch", _C=SimpleNamespace(_dynamo=SimpleNamespace(eval_frame=frames)))


@pytest.fixture(autouse=True)
def _without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name == "torch" or name.startswith("torch."):
            monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize(
    ("attributes", "is_so"),
    [
        ({}, False),  # in the midst of its import
        ({"counters": {}}, False),
        ({"counters": {"frames": {}}}, False),
        ({"counters": {"frames": {"total": 1}}}, True),
    ],
)
def test_dynamo_is_in_use_once_it_has_looked_at_a_frame(
    monkeypatch: pytest.MonkeyPatch, attributes: dict[str, Any], is_so: bool
) -> None:
    assert not compiled.is_in_use()  # no dynamo at all
    put(monkeypatch, "torch._dynamo.utils", **attributes)
    assert is_so == compiled.is_in_use()


@pytest.mark.parametrize(
    ("stance", "is_so"),
    [
        ("default", False),
        ("eager_then_compile", False),
        ("fail_on_recompile", True),
        ("force_eager", True),
        ("a stance of a torch to come", True),
    ],
)
def test_a_stance_in_which_nothing_is_compiled_anew_is_respected(
    monkeypatch: pytest.MonkeyPatch, stance: str, is_so: bool
) -> None:
    """An unknown one, too: what is lost is a signal, what would be lost otherwise is the training."""
    assert not compiled.must_not_recompile()
    put(monkeypatch, "torch._dynamo.eval_frame", _stance=SimpleNamespace(stance=stance))
    assert is_so == compiled.must_not_recompile()


@pytest.mark.parametrize("is_so", [True, False])
def test_a_training_that_calls_recompiling_an_error_is_respected(
    monkeypatch: pytest.MonkeyPatch, is_so: bool
) -> None:
    put(monkeypatch, "torch._dynamo.config", error_on_recompile=is_so)
    assert is_so == compiled.must_not_recompile()


@contextmanager
def a_thread_in(function: Any) -> Iterator[None]:
    """Function(is_in, may_go) runs in a thread of its own meanwhile."""
    is_in, may_go = threading.Event(), threading.Event()
    thread = threading.Thread(target=function, args=(is_in, may_go))
    thread.start()
    assert is_in.wait(60)
    try:
        yield
    finally:
        may_go.set()
        thread.join(60)


def test_a_stance_that_holds_elsewhere_in_the_loop_is_expected_from_its_name() -> None:
    """The look comes while another part of the loop runs, in a function further in, in any thread."""

    def plain(is_in: threading.Event, may_go: threading.Event) -> None:
        is_in.set()
        may_go.wait(60)

    def stanced(is_in: threading.Event, may_go: threading.Event) -> None:
        plain(is_in, may_go)
        if not may_go.is_set():
            sys.modules["torch"].compiler.set_stance("fail_on_recompile")

    with a_thread_in(plain):
        assert not compiled.must_not_recompile()
    with a_thread_in(stanced):
        assert compiled.must_not_recompile()


def test_what_is_compiled_is_asked_of_dynamo_where_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else everything may be, as soon as dynamo is in use at all."""
    mine, other = (compile(source, "model.py", "exec") for source in ("one", "other"))
    put(monkeypatch, "torch._dynamo.utils", counters={"frames": {"total": 1}})
    assert compiled.has_compiled(mine)

    entries = {mine: ["an entry"]}
    put_eval_frame(monkeypatch, _debug_get_cache_entry_list=lambda code: entries.get(code, []))
    assert compiled.has_compiled(mine)
    assert not compiled.has_compiled(other)
    assert compiled.has_compiled(None)  # a callable without code of its own


class Marked:
    """Code that was marked, by name."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, code: CodeType) -> None:
        self.names.append(code.co_name)


def put_package(monkeypatch: pytest.MonkeyPatch) -> None:
    for stem in ("guard", "ring"):
        module = ModuleType(f"{PACKAGE}.{stem}")
        exec(SOURCE, vars(module))  # noqa: S102  # a module without a file
        monkeypatch.setitem(sys.modules, module.__name__, module)


def test_every_function_of_the_probe_is_marked_and_none_of_anybody_elses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Methods and what is defined within a function, too; a module's imports are not its own."""
    marked, breaths = Marked(), []
    put_package(monkeypatch)
    put_eval_frame(monkeypatch, skip_code=marked)
    assert compiled.hide_from_tracing(PACKAGE, breathe=lambda: breaths.append(len(marked.names)))
    assert [4, 8] == breaths
    assert 2 * ["called", "<lambda>", "outer", "inner"] == marked.names


def test_what_stands_around_the_model_can_be_marked_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark costs memory that torch never gives back."""
    marked = Marked()
    put_package(monkeypatch)
    put_eval_frame(monkeypatch, skip_code=marked)
    assert compiled.hide_from_tracing(PACKAGE, stems=("guard",))
    assert ["called", "<lambda>", "outer", "inner"] == marked.names


def test_a_newer_torch_is_told_to_skip_these_frames_and_to_look_at_what_they_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From 2.7 on a mark says both; skipping what is called as well would leave the model uncompiled."""
    told: list[tuple[str, object]] = []
    put_package(monkeypatch)
    put_eval_frame(
        monkeypatch,
        set_code_exec_strategy=lambda code, strategy: told.append((code.co_name, strategy)),
        _FrameAction=SimpleNamespace(SKIP="skip", DEFAULT="as ever"),
        _FrameExecStrategy=lambda own, called: (own, called),
    )
    assert compiled.hide_from_tracing(PACKAGE, stems=("ring",))
    assert ("outer", ("skip", "as ever")) in told
    assert {("skip", "as ever")} == {strategy for _, strategy in told}


def test_a_torch_without_marks_is_said_to_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is hidden then, and whoever asked can say so."""
    put_package(monkeypatch)
    assert not compiled.hide_from_tracing(PACKAGE)
    put_eval_frame(monkeypatch)
    assert not compiled.hide_from_tracing(PACKAGE)
