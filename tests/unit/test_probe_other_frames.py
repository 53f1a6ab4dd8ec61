"""Frames of a thread that goes on meanwhile are read without harm, and nothing of what they held is held on."""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from probing import probed

from tuiadvisor_probes import other_frames, stuck
from tuiadvisor_probes.other_frames import callers, forget_variables, tops, variables

WALKS = Path(__file__).parents[1] / "frame_walks.py"
PROBES = Path(other_frames.__file__).resolve().parents[1]
SECONDS = 3.0  # plain walks crash within one on CPython 3.11


@pytest.mark.slow
def test_frames_of_a_thread_that_runs_on_are_read_without_a_crash() -> None:
    """As the probe reads them; CPython 3.11 itself crashes where a collection lets the thread go on in the middle."""
    command = [sys.executable, str(WALKS), "ours", str(SECONDS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert 0 == done.returncode, done.stderr[-2000:]
    assert int(done.stdout) > 10


# The list of all threads is locked while it is read: who is let go on in the middle, and starts a thread, waits for it.
STARTS = """
import faulthandler, gc, os, sys, threading, time
sys.path.insert(0, sys.argv[1])
from tuiadvisor_probes.other_frames import exceptions, tops

faulthandler.dump_traceback_later(60, exit=True)
gc.callbacks.append(lambda *_: time.sleep(2e-5))
gc.set_threshold(1, 1000000, 1000000)
sys.setswitchinterval(1e-5)

def work():
    while True:
        thread = threading.Thread(target=inner, args=(5,))
        thread.start()
        thread.join()

def inner(n):
    try:
        raise ValueError(n)
    except ValueError:
        return inner(n - 1) if n else 0

for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
end, turn, kept = time.monotonic() + float(sys.argv[2]), 0, []
while time.monotonic() < end or turn < 11:  # however slow the machine
    kept.append((tops(), exceptions()))
    turn += 1
    if turn % 100 == 0:
        kept.clear()
print(turn, flush=True)
os._exit(0)
"""


@pytest.mark.slow
def test_threads_that_start_meanwhile_wait_for_nobody() -> None:
    """On 3.10 and 3.11 a collection in the middle of the look ended in a deadlock."""
    command = [sys.executable, "-c", STARTS, str(PROBES), str(SECONDS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert 0 == done.returncode, done.stderr[-2000:]
    assert int(done.stdout) > 10


@pytest.fixture
def collector() -> Iterator[None]:
    """As it was, afterwards."""
    was = gc.isenabled()
    yield
    (gc.enable if was else gc.disable)()


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize("is_on", [True, False])
def test_the_collector_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch, *, is_on: bool) -> None:
    """On, or off by the training's own wish; also where what is asked for raises."""
    monkeypatch.setattr(other_frames, "COLLECTS_WITHIN", True)
    (gc.enable if is_on else gc.disable)()
    assert threading.get_ident() in tops()
    assert is_on == gc.isenabled()
    assert sys._getframe() is callers(sys._getframe())[0]
    assert is_on == gc.isenabled()
    with pytest.raises(AttributeError):
        variables(None)  # type: ignore[arg-type]
    assert is_on == gc.isenabled()


def test_where_threads_run_at_once_only_our_own_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the interpreter's lock frames of the others change under our eyes."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    assert thread.ident in tops()
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    assert [threading.get_ident()] == list(tops())
    over.set()
    thread.join()


def test_callers_are_innermost_first_and_none_of_none() -> None:
    """Up to a limit."""

    def inner() -> list[str]:
        return [frame.f_code.co_name for frame in callers(sys._getframe(), 2)]

    assert ["inner", "test_callers_are_innermost_first_and_none_of_none"] == inner()
    assert [] == callers(None)
    assert len(callers(sys._getframe())) > 10


class Batch:
    """Something large."""


def looked_at(*, forgets: bool) -> tuple[bool, bool]:
    """Whether a look shows a batch, and whether it is still there when the function has let go of it."""
    batch = Batch()
    first = weakref.ref(batch)
    is_seen = batch is variables(sys._getframe()).get("batch")
    if forgets:
        forget_variables(sys._getframe())
    batch = Batch()
    return is_seen, first() is not None


def test_what_a_function_let_go_of_is_not_held_on() -> None:
    """Up to 3.12 its frame keeps the dict that was asked for, and with it a batch or a loss with its graph."""
    assert (True, sys.version_info < (3, 13)) == looked_at(forgets=False)
    assert (True, False) == looked_at(forgets=True)


def look(frame: Any) -> dict[str, Any]:
    seen = variables(frame)
    forget_variables(frame)
    return seen


def keeps_its_locals() -> tuple[dict[str, Any], dict[str, Any], Any]:
    rate = 0.1
    kept = dict(locals()) if sys.version_info >= (3, 13) else locals()
    rate, model = 0.01, Batch()
    return kept, look(sys._getframe()), (rate, model)


def keeps_its_vars() -> tuple[dict[str, Any], dict[str, Any], Any]:
    rate = 0.1
    kept = dict(vars()) if sys.version_info >= (3, 13) else vars()
    rate, model = 0.01, Batch()
    return kept, look(sys._getframe()), (rate, model)


@pytest.mark.parametrize("function", [keeps_its_locals, keeps_its_vars])
def test_what_a_function_keeps_of_its_own_variables_stays_as_it_was(
    function: Callable[[], tuple[dict[str, Any], dict[str, Any], Any]],
) -> None:
    """A configuration made of `locals()`, which is the dict of a look: it had the model in it when it was saved."""
    kept, seen, _ = function()
    assert {"rate": 0.1} == kept
    assert (sys.version_info >= (3, 13)) == ("model" in seen)


def test_variables_of_something_else_are_looked_at() -> None:
    """`vars(options)` is no dict of the function."""

    def function() -> tuple[dict[str, Any], dict[str, Any]]:
        options = argparse.Namespace(rate=0.1)
        return vars(options), look(sys._getframe())

    settings, seen = function()
    assert {"rate": 0.1} == settings
    assert settings is vars(seen["options"])


def test_a_look_at_all_threads_holds_nothing() -> None:
    """The frame of who asks was in what it held itself: a cycle, and all frames in it until the next collection."""
    inside, over, left = threading.Event(), threading.Event(), threading.Event()
    batches: list[weakref.ref[Any]] = []

    def forward() -> None:
        batch = Batch()
        batches.append(weakref.ref(batch))
        inside.set()
        over.wait()

    def work() -> None:
        forward()
        left.set()

    def look(ident: int) -> list[str]:
        return [frame.f_code.co_name for frame in callers(tops().get(ident))]

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait()
    gc.disable()
    try:
        assert "forward" in look(thread.ident or 0)
        own = tops()[threading.get_ident()]
        assert "test_a_look_at_all_threads_holds_nothing" != own.f_code.co_name
        over.set()
        left.wait()
        thread.join()
        assert batches[0]() is None
    finally:
        gc.enable()


def test_the_names_of_a_module_stay() -> None:
    """Its variables are no copy."""
    space: dict[str, Any] = {"sys": sys, "forget": forget_variables, "look": variables}
    exec("value = 1\nfound = look(sys._getframe())\nforget(sys._getframe())", space)  # noqa: S102
    assert (1, 1) == (space["value"], space["found"]["value"])


@pytest.mark.parametrize("looks", [False, True])
def test_a_loop_lets_go_of_what_it_held_when_others_looked_at_it(tmp_path: Path, *, looks: bool) -> None:
    """The probe looks for the model at the first optimizer step, a question about a stall at every model there is."""
    torch = pytest.importorskip("torch")
    batches: list[weakref.ref[Any]] = []
    found: list[bool] = []

    def loop() -> None:
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(60):
            batch = Batch()
            batches.append(weakref.ref(batch))
            model(torch.ones(2, 4)).sum().backward()
            if looks and step == 30:
                for _ in range(2):
                    thread = threading.Thread(
                        target=lambda frame: found.append(stuck.evaluates(frame)), args=(sys._getframe(),)
                    )
                    thread.start()
                    thread.join()
            optimizer.step()
        gc.collect()
        assert [] == [number for number, batch_of in enumerate(batches[:-1]) if batch_of() is not None]

    with probed(tmp_path):
        loop()
    assert [False, False] * looks == found
