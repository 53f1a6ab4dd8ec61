"""Frames of a thread that goes on meanwhile are read without harm, and nothing of what they held is held on."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from probing import probed

from tuiadvisor_probes import other_frames, stuck
from tuiadvisor_probes.other_frames import callers, forget_variables, tops, variables

PROBES = Path(other_frames.__file__).resolve().parents[1]
SECONDS = 3.0  # plain walks crash within one on CPython 3.11

# Functions with few and many variables call each other up and down, so that what lay where a frame lay is soon another
# thing; the collector runs at nearly each new object, and its callback lets them go on.
WALKS = """
import gc, sys, threading, time
sys.path.insert(0, sys.argv[1])
from tuiadvisor_probes.other_frames import callers, tops, variables

sources = []
for number in range(12):
    slots = ", ".join(f"v{slot}=None" for slot in range(1 + number * 3))
    sources.append(f"def f{number}(n, {slots}):\\n    return F[(n * 7 + {number}) % 12](n - 1) if n else 0\\n")
space = {}
exec("".join(sources), space)
F = space["F"] = [space[f"f{number}"] for number in range(12)]
over = []

def work():
    turn = 0
    while not over:
        turn += 1
        F[turn % 12](30)

gc.callbacks.append(lambda *_: time.sleep(2e-5))
gc.set_threshold(1, 1000000, 1000000)
sys.setswitchinterval(1e-5)
thread = threading.Thread(target=work, daemon=True)
thread.start()
end, turn = time.monotonic() + float(sys.argv[2]), 0
while time.monotonic() < end:
    stack = callers(tops().get(thread.ident))
    assert all(frame.f_code.co_name for frame in stack)
    if turn % 20 == 0:
        assert all(isinstance(variables(frame), dict) for frame in stack)
    turn += 1
    if turn % 50 == 0:
        time.sleep(1e-4)
over.append(True)
thread.join()
assert gc.isenabled()
print(turn)
"""


@pytest.mark.slow
def test_frames_of_a_thread_that_runs_on_are_read_without_a_crash() -> None:
    """As the probe reads them; CPython 3.11 itself crashes where a collection lets the thread go on in the middle."""
    command = [sys.executable, "-c", WALKS, str(PROBES), str(SECONDS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert 0 == done.returncode, done.stderr[-2000:]
    assert int(done.stdout) > 100


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
    monkeypatch.setattr(other_frames, "COLLECTS_WITHIN", sys.version_info >= (3, 11))
    (gc.enable if is_on else gc.disable)()
    assert threading.get_ident() in tops()
    assert is_on == gc.isenabled()
    assert sys._getframe() is callers(sys._getframe())[0]
    assert is_on == gc.isenabled()
    with pytest.raises(AttributeError):
        variables(None)  # type: ignore[arg-type]
    assert is_on == gc.isenabled()


def test_callers_are_innermost_first_and_none_of_none() -> None:
    """Up to a limit."""

    def inner() -> list[str]:
        return [frame.f_code.co_name for frame in callers(sys._getframe(), 2)]

    assert ["inner", "test_callers_are_innermost_first_and_none_of_none"] == inner()
    assert [] == callers(None)
    assert len(callers(sys._getframe())) > 10


class Batch:
    """Something large."""


def looked_at(*, forgets: bool) -> bool:
    """Whether a batch that the loop has let go of is still there after somebody looked at the loop's variables."""
    batch = Batch()
    first = weakref.ref(batch)
    assert batch is variables(sys._getframe())["batch"]
    if forgets:
        forget_variables(sys._getframe())
    batch = Batch()
    return first() is not None


def test_what_a_function_let_go_of_is_not_held_on() -> None:
    """Up to 3.12 its frame keeps the dict that was asked for, and with it a batch or a loss with its graph."""
    assert (sys.version_info < (3, 13)) == looked_at(forgets=False)
    assert not looked_at(forgets=True)


def test_a_dict_of_variables_that_somebody_holds_stays_whole() -> None:
    """`locals()` of the function itself is the same one."""
    kept = locals()
    batch = Batch()
    variables(sys._getframe())
    forget_variables(sys._getframe())
    assert sys.version_info >= (3, 13) or batch is kept["batch"]


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

    def loop() -> None:
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(60):
            batch = Batch()
            batches.append(weakref.ref(batch))
            model(torch.ones(2, 4)).sum().backward()
            if looks and step == 30:
                thread = threading.Thread(target=stuck.evaluates, args=(sys._getframe(),))
                thread.start()
                thread.join()
            optimizer.step()
        gc.collect()
        assert [] == [number for number, batch_of in enumerate(batches[:-1]) if batch_of() is not None]

    with probed(tmp_path):
        loop()
