"""The native core tells what the reference tells: same rows of the same notes, same steps of a program."""

from __future__ import annotations

import contextlib
import copy
import gc
import inspect
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import native_core
import pytest
from interpreters import PYTHONS
from native_notes import noted, told
from patience import PATIENCE_S
from probing import assert_same_step, assert_sums_to_step, probed

from tuiadvisor.agent.payload import PRIVATE_NAME
from tuiadvisor.events import EventKind
from tuiadvisor_probes import books, native, phases, ring, step_clock, step_record

torch = pytest.importorskip("torch")

NUM_STEPS = 24


@pytest.fixture
def core() -> Any:
    """The module, loaded into this process as a probe loads it."""
    if why_not := native_core.why_not():
        pytest.skip(f"no native core: {why_not}")
    return native.load(native_core.content())


# Books: the same notes, row by row and bit by bit.


@pytest.mark.parametrize("seed", range(40))
def test_same_notes_make_the_same_records(core: Any, seed: int, tmp_path: Path) -> None:
    """Both into a ring of their own, which wraps; then the files are the same, and what decides on later steps."""
    notes = list(noted(seed))
    files, decisions = [], []
    for name, kept in (("python", books.Books(1_000)), ("native", core.Books(1_000))):
        path = tmp_path / name
        ring.create_ring_file(str(path), 8, 8, summed=seed % 2 == 1)
        writer, cost = ring.RingWriter(str(path)), step_record.OwnCost()
        cost.unbooked_ns = 12_345
        cost.closing_ns.add(77)
        cost.transition_ns.add(500)
        told(kept, notes)
        if name == "python":
            decisions.append(step_record.write(writer, kept.kept, cost, 99))
        else:
            decisions.append(kept.write(writer, cost, writer.map, writer.step_capacity, writer.num_steps, 99))
        prices = [cost.transition_ns.value, cost.in_detail_ns.value, cost.unbooked_ns, writer.num_steps]
        books_left = [kept.totals, kept.seen, kept.comm_before_ns, kept.phase, kept.num_transitions]
        decisions[-1] += prices + books_left
        writer.close()
        files.append(path.read_bytes())
    assert decisions[0] == decisions[1]
    assert len(decisions[0]) > 9, "a seed without an ended step shows nothing"
    assert files[0] == files[1]


def test_books_refuse_what_is_no_note(core: Any) -> None:
    """An error of ours is an exception, which the guard catches, and never a write beside the books."""
    kept = core.Books(1_000)
    for number, value, error in (
        (15, 2_000, ValueError),
        (-7, 2_000, ValueError),
        (0, "now", TypeError),
        (books.CLOSED, (1, 2), TypeError),
        (books.LATER, ("no function", ()), TypeError),
        (1 << 80, 0, OverflowError),
    ):
        with pytest.raises(error):
            kept.extend((number, value))
    with pytest.raises(IndexError):
        kept.move(1, 0, phases.NUM_PHASES)
    ended = (2_000, 0, 0, 0, 0, (0,) * 11)
    with pytest.raises(RuntimeError, match="nobody wrote"):
        told(kept, [(books.CLOSED, ended)] * 10_000)
    with pytest.raises(ValueError, match="groups"):
        list(map(kept.group, range(10_000)))


def test_a_ring_shorter_than_it_says_is_not_written(core: Any, tmp_path: Path) -> None:
    """The capacity is the writer's word; the mapping's length decides."""
    ring.create_ring_file(str(tmp_path / "ring"), 8, 8)
    writer, kept = ring.RingWriter(str(tmp_path / "ring")), core.Books(1_000)
    kept.extend((books.CLOSED, (2_000, 0, 0, 0, 0, (0,) * 11)))
    for capacity, index in ((1 << 20, 0), (0, 0), (8, -1), (-1, 0)):
        with pytest.raises(ValueError, match="shorter"):
            kept.write(writer, step_record.OwnCost(), writer.map, capacity, index, -1)
    writer.close()


SMALL_FILES = """
import resource, signal, sys
from pathlib import Path
from tuiadvisor_probes import native
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # as a library or a launcher may; Python itself ignores it
content, limit = Path(sys.argv[1]).read_bytes(), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
try:
    print(native.load(content).__name__)
except ImportError as error:
    print(error)
"""


def test_a_process_that_may_not_write_files_of_its_size_goes_without(core: Any) -> None:
    """A memory file counts as one: the kernel's signal ended the rank."""
    size = native_core.path().stat().st_size
    for limit, said in (
        (size - 1, f"this process may write files of {size - 1} bytes only"),
        (size, core.__name__),
    ):
        command = [sys.executable, "-c", SMALL_FILES, str(native_core.path()), str(limit)]
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S)
        assert (0, said) == (done.returncode, done.stdout.strip())


# Whole programs: what a step is, what was seen in it and how much it counted does not depend on the core.


class Batches(torch.utils.data.Dataset):  # type: ignore[misc]
    """Batches as they are: the loader passes them on."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    def __len__(self) -> int:
        return 1_000

    def __getitem__(self, _index: int) -> Any:
        return self.make()


def loop(
    make: Callable[[], Any],
    use: Callable[[Any, Any], Any],
    *,
    optimizers: int = 1,
    micro_steps: int = 1,
    evaluates: int = 0,
    raises: bool = False,
) -> Callable[[int], None]:
    """A training: batches by make(), loss by use(model, batch)."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    parts = [torch.optim.SGD(half.parameters(), lr=1e-3) for half in model[:optimizers]]
    if optimizers == 1:
        parts = [torch.optim.SGD(model.parameters(), lr=1e-3)]
    batches = iter(torch.utils.data.DataLoader(Batches(make), batch_size=None))

    def train(num_steps: int) -> None:
        for number in range(num_steps):
            for _ in range(micro_steps):
                use(model, next(batches)).backward()
            for optimizer in parts:
                if raises and number % 3 == 0:
                    with pytest.raises(ZeroDivisionError):
                        optimizer.step(lambda: 1 / 0)
                optimizer.step()
            if evaluates and number % evaluates == 0:
                model.eval()
                with torch.no_grad():
                    model(torch.zeros(2, 4))
                model.train()

    return train


def closure_loop() -> Callable[[int], None]:
    """Model and data inside the optimizer's closure, several times a step."""
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
    batches = iter(torch.utils.data.DataLoader(Batches(lambda: torch.ones(5, 4)), batch_size=None))

    def train(num_steps: int) -> None:
        for _ in range(num_steps):
            batch = next(batches)

            def closure(batch: Any = batch) -> Any:
                optimizer.zero_grad()
                loss = model(batch).square().mean()
                loss.backward()
                return loss

            optimizer.step(closure)

    return train


def rollout_loop(*, raises: bool = False, grad_enabled: bool = False) -> Callable[[int], None]:
    """A policy acts a dozen times, over some batches, before it is trained; some of its forwards may raise."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches = iter(torch.utils.data.DataLoader(Batches(lambda: torch.ones(3, 4)), batch_size=None))

    def train(num_steps: int) -> None:
        for _ in range(num_steps):
            model.train(not grad_enabled)
            with torch.set_grad_enabled(grad_enabled):
                for number in range(12):
                    model(next(batches) if number % 5 == 0 else torch.ones(2, 4))
                    if raises:
                        with pytest.raises(RuntimeError):
                            model(torch.ones(2, 5))
            model.train()
            model(next(batches)).sum().backward()
            optimizer.step()

    return train


class Tree(torch.nn.Module):  # type: ignore[misc]
    """A model that calls itself, without gradients at one of its depths."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, value: Any, depth: int) -> Any:
        """As deep as asked."""
        if depth == 0:
            return value
        if depth == 3:
            with torch.no_grad():
                return self.inner(self(value, 1)) + self(value, 2)
        return self.inner(self(value, depth - 1))


def tree_loop() -> Callable[[int], None]:
    """Its training."""
    model = Tree()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def train(num_steps: int) -> None:
        for _ in range(num_steps):
            model(torch.ones(2, 4), 8).sum().backward()
            optimizer.step()

    return train


class TrainsAtTest(torch.nn.Module):  # type: ignore[misc]
    """A model that computes gradients of itself in each of its forwards, also in those without any."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, value: Any, *, is_outer: bool = True) -> Any:
        """Twice where it is the outer one."""
        if is_outer:
            with torch.enable_grad():
                torch.autograd.grad(self(torch.ones(2, 4), is_outer=False).sum(), self.inner.weight)
        return self.inner(value)


def trained_at_test_time() -> Callable[[int], None]:
    """Its training, with a rollout in each step."""
    model = TrainsAtTest()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def train(num_steps: int) -> None:
        for _ in range(num_steps):
            with torch.no_grad():
                for _ in range(5):
                    model(torch.ones(2, 4))
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()

    return train


def plain(model: Any, batch: Any) -> Any:
    """A loss."""
    return model(batch if isinstance(batch, torch.Tensor) else batch[0]).sum()


def of_ids(model: Any, batch: Any) -> Any:
    """A loss of token ids."""
    return model(batch["input_ids"].float()).sum()


PROGRAMS: dict[str, Callable[[], Callable[[int], None]]] = {
    "tensors": lambda: loop(lambda: torch.ones(3, 4), plain),
    "tuples": lambda: loop(lambda: (torch.ones(3, 4), torch.ones(3)), plain),
    "token ids": lambda: loop(
        lambda: {"mask": torch.ones(3, 4), "input_ids": torch.ones(3, 4).long()}, of_ids
    ),
    "nested": lambda: loop(lambda: [[torch.ones(3, 4)]], lambda model, batch: model(batch[0][0]).sum()),
    "no tensor": lambda: loop(lambda: "text", lambda model, _: model(torch.ones(1, 4)).sum()),
    "of no dimension": lambda: loop(
        lambda: torch.tensor(1.0), lambda model, _: model(torch.ones(1, 4)).sum()
    ),
    "micro-steps": lambda: loop(lambda: (torch.ones(3, 4),), plain, micro_steps=3),
    "two optimizers": lambda: loop(lambda: (torch.ones(3, 4),), plain, optimizers=2),
    "evaluation": lambda: loop(lambda: (torch.ones(3, 4),), plain, evaluates=7),
    "steps that raise": lambda: loop(lambda: (torch.ones(3, 4),), plain, raises=True),
    "closures": closure_loop,
    "rollouts": rollout_loop,
    "rollouts that raise": lambda: rollout_loop(raises=True),
    "evaluation with gradients": lambda: rollout_loop(grad_enabled=True),
    "a model within itself": tree_loop,
    "trained at test time": trained_at_test_time,
}


def rows(program: Callable[[int], None], folder: Path) -> tuple[list[dict[str, int]], list[tuple[int, int]]]:
    """Of a training that is watched from its fifth step on, and then no more: its steps, and (step, number of forwards)
    of its evaluations.
    """
    program(5)
    with probed(folder, budget_ppm=0) as observed:
        program(NUM_STEPS)
    program(2)
    return observed.steps, [(event["step"], event["detail"]) for event in observed.events(EventKind.EVAL)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_program_makes_the_same_steps(
    core: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts, flags, what was seen and which phases there were; and in each row the parts are the whole."""
    seen, told = {}, {}
    for which in ("python", "native"):
        monkeypatch.setenv("TUIADVISOR_NATIVE", str(int(which == "native")))
        seen[which], told[which] = rows(PROGRAMS[name](), tmp_path)
        for row in seen[which]:
            assert_sums_to_step(row)
    assert told["python"] == told["native"]
    assert len(seen["python"]) == len(seen["native"]) >= NUM_STEPS - 1
    for reference, row in zip(seen["python"], seen["native"], strict=True):
        assert_same_step(reference, row)


@pytest.mark.parametrize("name", ["token ids", "micro-steps", "steps that raise", "two optimizers"])
def test_steps_that_the_core_writes_alone_tell_the_same(
    core: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past the first steps each record is in the ring when its step has ended, and nothing is looked after beside."""
    seen, looked, in_time = {}, [], []
    for which in ("python", "native"):
        monkeypatch.setenv("TUIADVISOR_NATIVE", str(int(which == "native")))
        program = PROGRAMS[name]()
        program(5)
        with probed(tmp_path, budget_ppm=0) as observed:
            program(60)
            probe = sys.modules[PRIVATE_NAME + ".install"]._probe
            look = probe.clock.on_step
            probe.clock.on_step = lambda look=look: (looked.append(1), look())
            looked.clear()
            probe.clock.settle_at_ns = step_clock.FAR  # not in this second
            for _ in range(150):
                program(1)
                ended = probe.ring.get_u64(ring.OFFSET_STEP_HEAD)
                in_time.append(probe.clock.step - ended if probe.clock.is_alone else -1)
            if which == "python" or name == "two optimizers":  # which Python's hooks close
                in_time.clear()
            else:
                assert looked == []
        seen[which] = observed.steps
    assert set(in_time) <= {0}
    assert len(seen["python"]) == len(seen["native"])
    for reference, row in zip(seen["python"], seen["native"], strict=True):
        assert_sums_to_step(row)
        assert_same_step(reference, row)
        assert row["probe_cost_ns"] > 0


@pytest.mark.parametrize("which", ["python", "native"])
def test_all_between_the_forwards_of_a_rollout_is_evaluation(
    core: Any, which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the core sees them by itself; it asks Python for the first of each step alone."""
    monkeypatch.setenv("TUIADVISOR_NATIVE", str(int(which == "native")))
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    asked: list[int] = []
    with probed(tmp_path, budget_ppm=0) as observed:
        span = sys.modules[PRIVATE_NAME + ".eval_span"].EvalSpan
        after = span.after_forward
        monkeypatch.setattr(
            span, "after_forward", lambda self, *times: (asked.append(1), after(self, *times))
        )
        for _ in range(20):
            with torch.no_grad():
                for _ in range(6):
                    model(torch.ones(2, 4))
                    time.sleep(1e-3)
            time.sleep(2e-3)  # after the last one: no evaluation
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
    steps = [step for step in observed.steps if step["step"] > 5]
    assert len(steps) >= 10
    for step in steps:
        assert step["eval_ns"] >= 5e6
        assert step["other_ns"] >= 2e6
        assert_sums_to_step(step)
    told = [event["detail"] for event in observed.events(EventKind.EVAL) if event["step"] > 5]
    assert {6} == set(told)
    assert len(asked) < 60 if which == "native" else len(asked) > 100


class LateError(Exception):
    """What a handler raises."""


@pytest.mark.parametrize("which", ["python", "native"])
def test_a_signal_amid_the_first_forward_of_an_evaluation_leaves_no_number_of_another_step(
    core: Any, which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it comes: a time of evaluation was negative, for it was counted from an earlier step's."""
    monkeypatch.setenv("TUIADVISOR_NATIVE", str(int(which == "native")))
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def raised(*_: object) -> None:
        raise LateError

    before = signal.signal(signal.SIGUSR2, raised)
    try:
        with probed(tmp_path, budget_ppm=0) as observed:
            clock = sys.modules[PRIVATE_NAME + ".step_clock"].StepClock
            for number in range(30):
                for name in ("alert", "later") if number % 5 == 3 else ():
                    plainly = getattr(clock, name)

                    def then(*given: Any, name: str = name, plainly: Any = plainly) -> None:
                        plainly(*given)
                        if name == "later" or given[1:] == (step_clock.EVALUATING, True):
                            setattr(clock, name, plainly)
                            signal.raise_signal(signal.SIGUSR2)

                    setattr(clock, name, then)
                    time.sleep(2e-3)
                    with torch.no_grad():
                        for _ in range(3):
                            with contextlib.suppress(LateError):
                                model(torch.ones(2, 4))
                    setattr(clock, name, plainly)
                model(torch.ones(2, 4)).sum().backward()
                time.sleep(20e-3 if number % 5 == 2 else 0)
                with torch.no_grad():
                    model(torch.ones(2, 4))
                    model(torch.ones(2, 4))
                optimizer.step()
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert len(observed.steps) >= 25
    for step in observed.steps:
        assert_sums_to_step(step)


@pytest.mark.parametrize("which", ["python", "native"])
def test_a_students_own_forward_is_forward_between_two_of_its_teacher(
    core: Any, which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks twice, without gradients; and a training in eval mode has a forward beside its evaluations."""
    monkeypatch.setenv("TUIADVISOR_NATIVE", str(int(which == "native")))

    class Student(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(4, 4)

        def forward(self, value: Any, *, teaches: bool = False) -> Any:
            if not teaches:
                with torch.no_grad():
                    self(value, teaches=True)
                time.sleep(2e-3)
                with torch.no_grad():
                    self(value, teaches=True)
            return self.inner(value)

    student = Student()
    optimizer = torch.optim.SGD(student.parameters(), lr=1e-3)
    frozen = torch.nn.Linear(4, 4).eval()
    frozen_optimizer = torch.optim.SGD(frozen.parameters(), lr=1e-3)
    with probed(tmp_path, budget_ppm=0) as observed:
        for _ in range(20):
            student(torch.ones(2, 4)).sum().backward()
            optimizer.step()
    for step in observed.steps[8:]:
        assert step["forward_ns"] >= 2e6
    with probed(tmp_path, budget_ppm=0) as observed:
        for _ in range(20):
            frozen(torch.ones(2, 4)).sum().backward()
            frozen_optimizer.step()
        for _ in range(10):
            with torch.no_grad():
                frozen(torch.ones(2, 4))
            loss = frozen(torch.ones(2, 4)).sum()
            with torch.no_grad():  # before the backward: its forward had no time left
                frozen(torch.ones(2, 4))
            loss.backward()
            frozen_optimizer.step()
    for step in observed.steps[-8:]:
        assert 0 < step["forward_ns"]
        assert 0 < step["eval_ns"]


def test_a_probe_that_leaves_while_a_price_is_told_writes_no_more(
    core: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by another thread while the core is in Python between a step's end and its record: the ring is unmapped."""
    monkeypatch.setenv("TUIADVISOR_NATIVE", "1")
    program = PROGRAMS["tensors"]()
    with probed(tmp_path, budget_ppm=0) as observed:
        program(64)
        install = sys.modules[PRIVATE_NAME + ".install"]
        cost = sys.modules[PRIVATE_NAME + ".step_record"].OwnCost
        assert install._probe.clock.is_alone
        monkeypatch.setattr(cost, "of_hooks", lambda *_: (install.uninstall(), 1)[1])
        program(64)
        assert install._probe is None
        program(8)
    assert 64 <= len(observed.steps) < 100


def test_turns_that_ask_again_are_the_references(
    core: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two optimizers in turns without a loader: what follows the last of them is the iteration's on both cores."""
    seen = {}
    for which in ("python", "native"):
        monkeypatch.setenv("TUIADVISOR_NATIVE", str(int(which == "native")))
        models = [torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)]
        parts = [torch.optim.SGD(model.parameters(), lr=1e-3) for model in models]
        with probed(tmp_path, budget_ppm=0) as observed:
            for _ in range(60):
                models[0](torch.ones(2, 4)).sum().backward()
                parts[0].step()
                models[1](torch.ones(2, 4)).sum().backward()
                parts[1].step()
                models[0](torch.ones(2, 4)).sum().backward()  # as a metric's gradient
                parts[0].zero_grad()
        seen[which] = [(row["step"], row["micro_steps"]) for row in observed.steps]
    assert seen["python"] == seen["native"]


def test_where_the_next_record_goes_is_the_cores_own_word(
    core: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The header is anybody's who may write the file: a place far outside of the ring in it moves no record."""
    monkeypatch.setenv("TUIADVISOR_NATIVE", "1")
    program = PROGRAMS["tensors"]()
    with probed(tmp_path, budget_ppm=0) as observed:
        program(80)
        clock = sys.modules[PRIVATE_NAME + ".install"]._probe.clock
        assert clock.is_alone
        for place in (-1, -(1 << 62), (1 << 62) + 7, 0):
            clock.words[ring.OFFSET_STEP_HEAD // 8] = place
            program(3)
            assert clock.words[ring.OFFSET_STEP_HEAD // 8] == clock.step
    assert [row["step"] for row in observed.steps] == list(range(len(observed.steps)))


def test_no_frame_stands_around_a_call_of_a_slot(
    core: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Functions in class dicts are Python's, for torch.compile; called by a slot or as an object they are the core."""
    monkeypatch.setenv("TUIADVISOR_NATIVE", "1")
    around: set[str] = set()

    class Seen(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, batch: Any) -> Any:
            frame: Any = sys._getframe()
            while frame := frame.f_back:
                around.add(frame.f_code.co_name)
            return self.layer(batch)

    model = Seen()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    backward, engine = torch.autograd.backward, torch.autograd._engine_run_backward
    with probed(tmp_path, budget_ppm=0) as observed:
        for step in range(12):
            if step == 6:
                around.clear()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
        ours = Seen.__call__
        assert torch.autograd.backward is backward
        hooked = torch.autograd._engine_run_backward
        assert hooked is not engine
        assert hooked is torch.autograd.graph._engine_run_backward
        assert pickle.loads(pickle.dumps(hooked)) is hooked  # noqa: S301 - our own
        assert inspect.signature(hooked) == inspect.signature(engine)
        assert copy.deepcopy(hooked) is hooked
        assert observed.info["hooks"]["forward_root"] == "ok"
    assert "_wrapped_call_impl" in around
    assert "tuiadvisor_hook" not in around
    assert torch.autograd._engine_run_backward is engine
    assert torch.autograd.graph._engine_run_backward is engine
    assert ours(model, torch.ones(2, 4)).shape == (2, 4)  # held beyond the detach: it calls what it stood for
    assert torch.equal(ours(model, batch := torch.ones(2, 4)), model(batch))


@pytest.mark.parametrize("builder", sorted(PYTHONS))
def test_a_core_compiled_with_any_pythons_headers_serves_the_oldest(builder: str, tmp_path: Path) -> None:
    """Later headers take None, True and False for immortal: in a 3.11 the last of them ended the training."""
    if builder.startswith("3.10") or builder.endswith("t"):
        pytest.skip(f"no core is built with Python {builder}")
    made = tmp_path / "core.elf"
    build = [PYTHONS[builder], str(Path(native_core.core_build.__file__)), str(made)]
    done = subprocess.run(build, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if "Python.h" in done.stderr:
        pytest.skip(f"no headers of Python {builder} (its development package)")
    assert done.returncode == 0, done.stderr
    takes_one = [name for name in PYTHONS if name[0].isdigit() and not name.endswith("t") and name != "3.10"]
    oldest = min(takes_one, key=lambda name: int(name.partition(".")[2]))
    script = str(Path(__file__).parents[1] / "native_slots.py")
    used = [PYTHONS[oldest], script, str(made)]
    done = subprocess.run(used, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("version", sorted(PYTHONS))
def test_each_python_takes_the_core_in_the_place_of_a_function(core: Any, version: str) -> None:
    """Where a function keeps what is called for it differs: its own words in 3.11, a call from 3.12 on."""
    if version.startswith("3.10") or version.endswith("t"):
        pytest.skip(f"no core for Python {version}")
    script = str(Path(__file__).parents[1] / "native_slots.py")
    command = [PYTHONS[version], script, str(native_core.path())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ok")


FORKING = """
import os, sys
sys.path[:0] = [{tests!r}, {root!r}, {probes!r}]
from pathlib import Path
import torch
from probing import probed
from tuiadvisor_probes import ring

class Forks(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.is_due = False
    def forward(self, batch):
        if self.is_due and os.fork() == 0:
            self.is_due, os.environ["CHILD"] = False, "1"
        return self.layer(batch)

model = Forks()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
torch.set_num_threads(1)
with probed(Path({folder!r}), budget_ppm=0) as observed:
    for step in range(90):
        model.is_due = step == 80
        loss = model(torch.ones(2, 4)).sum()
        if "CHILD" in os.environ:  # out through the hook that the parent had entered, and on
            with torch.no_grad():
                for _ in range(3):
                    model(torch.ones(2, 4))
            os._exit(0)
        if model.is_due:
            pid, status = os.wait()
            assert status == 0, status
            model.is_due = False
        loss.backward()
        optimizer.step()
print([row["step"] for row in observed.steps] == list(range(len(observed.steps))), len(observed.steps))
"""


def test_a_child_forked_within_a_call_writes_nothing(core: Any, tmp_path: Path) -> None:
    """The page that holds what hooks touch is empty there; the parent's steps are whole."""
    places = {"tests": str(Path(__file__).parents[1]), "root": str(Path(__file__).parents[2])}
    code = FORKING.format(**places, probes=str(Path(__file__).parents[2] / "probes"), folder=str(tmp_path))
    environment = {**os.environ, "TUIADVISOR_NATIVE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == "True"
    assert int(done.stdout.split()[1]) >= 89


def test_exceptions_and_arguments_pass(core: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's call gets what it was given, and what it raises comes out as it is, its traceback through us."""
    monkeypatch.setenv("TUIADVISOR_NATIVE", "1")

    class Odd(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, *args: Any, fail: str = "", **kwargs: Any) -> Any:
            if fail:
                raise KeyError(fail)
            return self.layer(args[0]), args, kwargs

    model = Odd()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    value = torch.ones(2, 4)
    with probed(tmp_path, budget_ppm=0) as observed:
        for _ in range(8):
            loss, args, kwargs = model(value, 1, two=2)
            assert args[0] is value
            assert (args[1], kwargs) == (1, {"two": 2})
            loss.sum().backward()
            optimizer.step()
            with pytest.raises(KeyError, match="why"):
                model(value, fail="why")
            with pytest.raises(TypeError, match="self"):
                type(model).__call__()
            with pytest.raises(RuntimeError, match="grad"):
                torch.autograd.backward(torch.zeros(1))
        assert {"ok"} == {observed.info["hooks"][name] for name in ("backward", "optimizer", "forward_root")}


def test_what_a_class_inherits_is_looked_up_at_each_call(
    core: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by super(): from a second base too, and what others put on the base meanwhile, as torch.fx while it traces."""
    monkeypatch.setenv("TUIADVISOR_NATIVE", "1")
    calls: list[str] = []

    class Told(torch.nn.Module):  # type: ignore[misc]
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            calls.append("told")
            return super().__call__(*args, **kwargs)

    class Linear(torch.nn.Linear):  # type: ignore[misc]
        pass

    class Both(Linear, Told):
        pass

    class Later(Both):
        pass

    for one in (
        Told,
        Linear,
        Both,
        Later,
    ):  # else picklers take them by value, and a `__call__` of theirs is left alone
        one.__qualname__ = one.__name__
        monkeypatch.setattr(sys.modules[__name__], one.__name__, one, raising=False)
    whole = torch.nn.Module.__call__

    def traced(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append("traced")
        return whole(self, *args, **kwargs)

    for kind, first in ((Linear, []), (Both, ["told"])):
        model, other = kind(4, 4), (Later if kind is Both else kind)(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        with probed(tmp_path, budget_ppm=0) as observed:
            for step in range(12):
                calls.clear()
                with monkeypatch.context() as patched:
                    if step % 2:
                        patched.setattr(torch.nn.Module, "__call__", traced)
                    loss = model(torch.ones(2, 4)).sum() + other(torch.ones(2, 4)).sum()
                assert calls == (first + ["traced"] * (step % 2)) * 2
                loss.backward()
                optimizer.step()
        assert observed.info["hooks"]["forward_root"] == "ok"
        assert observed.steps[-1]["forward_ns"] > 0


def test_other_modules_of_a_roots_class_are_no_forwards_of_it(
    core: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module of the root's class that is called outside of it is what the reference takes it for: none of ours."""
    monkeypatch.setenv("TUIADVISOR_NATIVE", "1")
    model, head = torch.nn.Sequential(torch.nn.Linear(4, 4)), torch.nn.Sequential(torch.nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with probed(tmp_path, budget_ppm=0) as observed:
        for step in range(20):
            loss = model(torch.ones(2, 4)).sum() if step % 2 else model[0](torch.ones(2, 4)).sum()
            head(torch.ones(2, 4))
            loss.backward()
            optimizer.step()
    assert [row["forward_ns"] > 0 for row in observed.steps[8:18]] == [
        row["step"] % 2 == 1 for row in observed.steps[8:18]
    ]


def test_both_cores_write_after_the_same_time() -> None:
    """The number stands in C as well, which no import reaches."""
    source = native_core.core_build.SOURCE.with_name("core.c").read_text()
    assert [str(step_clock.MAX_KEPT_NS)] == re.findall(r"\bWRITE_EVERY_NS = (\d+)", source)


def test_rows_are_written_in_time_without_all_that_can_wait(
    core: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every 0.2 s they are in the ring; leases and prices are looked after at once if the agent's words ask for it."""
    looks: dict[str, list[int]] = {}
    for which in ("python", "native"):
        monkeypatch.setenv("TUIADVISOR_NATIVE", str(int(which == "native")))
        with probed(tmp_path, budget_ppm=0) as observed:
            probe = sys.modules[PRIVATE_NAME + ".install"]._probe
            clock, looked = probe.clock, looks.setdefault(which, [])
            look = clock.on_step
            clock.on_step = lambda looked=looked, clock=clock, look=look: (looked.append(clock.step), look())
            program = loop(lambda: torch.ones(3, 4), plain)
            program(40)  # the first are looked after one by one
            looked.clear()
            for _ in range(6):
                clock.write_at_ns, clock.settle_at_ns = 0, step_clock.FAR  # the time has come for the one
                before = probe.ring.get_u64(ring.OFFSET_STEP_HEAD)
                program(2)
                assert probe.ring.get_u64(ring.OFFSET_STEP_HEAD) > before
            clock.words[ring.OFFSET_BURST // 8] = 1  # a wish, if one of long ago
            clock.write_at_ns = 0
            program(2)
            assert {row["probe_cost_ns"] > 0 for row in observed.steps[-8:]} == {True}
    assert len(looks["native"]) == 1
    assert len(looks["python"]) >= 7


def test_a_core_that_cannot_be_loaded_leaves_the_reference(
    core: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damaged, of another machine, empty: the probe comes up with Python's hooks and says why."""
    monkeypatch.setenv("TUIADVISOR_NATIVE", "0")  # what the file says is the test's own
    content = native_core.content()
    name = core.BUILD.encode()  # another one: of this build, the process has a library already
    other = bytearray(content.replace(name, name[::-1]))
    other[18:20] = (183 if content[18] != 183 else 62).to_bytes(2, "little")  # e_machine: aarch64
    program = loop(lambda: torch.ones(3, 4), plain)
    whole = native.packed(content)
    swapped = whole[:-2000] + whole[-1000:] + whole[-2000:-1000]
    damaged = (b"", b"no library", content, whole[: len(whole) // 2], swapped, native.packed(bytes(other)))
    for number, bad in enumerate(damaged):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.setattr(
            "probing.write_native", lambda where, bad=bad: (where / "native.bin").write_bytes(bad)
        )
        with probed(folder) as observed:
            program(3)
        assert observed.info["core"] == "python"
        assert "ImportError" in observed.info["core_why"]
        assert len(observed.steps) >= 2


def test_a_core_built_before_the_probe_moved_on_is_not_used(
    core: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a checkout that was pulled: the probe could not be installed, and nothing said why."""
    assert core.INTERFACE == native.INTERFACE
    monkeypatch.setattr(native, "INTERFACE", native.INTERFACE + 1)
    with pytest.raises(ImportError, match="built for another version"):
        native.load(native_core.content())


def test_other_threads_and_forked_children_are_not_listened_to(
    core: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loader's workers are forked with the hooks in them; a thread that only infers is nobody's step."""
    monkeypatch.setenv("TUIADVISOR_NATIVE", "1")
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    ended = threading.Event()

    def infer() -> None:
        while not ended.wait(0.001):
            with torch.no_grad():
                model(torch.ones(1, 4))

    data = torch.utils.data.TensorDataset(torch.ones(60, 4))
    with probed(tmp_path, budget_ppm=0) as observed:
        stranger = threading.Thread(target=infer)
        stranger.start()
        loader = torch.utils.data.DataLoader(
            data, batch_size=3, num_workers=1, multiprocessing_context="fork"
        )
        for (batch,) in loader:
            model(batch).sum().backward()
            optimizer.step()
        ended.set()
        stranger.join()
    assert 20 - 1 <= len(observed.steps) <= 20
    assert {3} == {row["samples"] for row in observed.steps[1:]}
    assert not any(row["eval_ns"] for row in observed.steps)


SUBINTERPRETER = """
import sys
sys.path.insert(0, {probes!r})
try:
    import _interpreters as interpreters
    sharing = interpreters.create("legacy")
except ImportError:  # before Python 3.13
    import _xxsubinterpreters as interpreters
    sharing = interpreters.create(isolated=False)
source = '''
import sys
sys.path.insert(0, {probes!r})
from tuiadvisor_probes import native
try:
    native.load(open({core!r}, "rb").read())
except ImportError as error:
    print("refused:", error)
'''
for interpreter in (sharing, interpreters.create()):
    interpreters.run_string(interpreter, source)
"""


def test_subinterpreters_are_refused(core: Any) -> None:
    """The core's buffers and its idea of a training thread are the main interpreter's."""
    probes = str(Path(native.__file__).parents[1])
    program = SUBINTERPRETER.format(probes=probes, core=str(native_core.path()))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    ours, other = done.stdout.splitlines()
    assert "refused: the native core is for the main interpreter alone" == ours
    # One with a lock of its own is refused by Python itself, from 3.12 on.
    assert other == ours or ("refused: " in other and "does not support loading in subinterpreters" in other)


@pytest.mark.slow
def test_hooks_and_clock_go_with_the_probe(
    core: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a detach and a collection no object of the core is left, and a second attach maps no second library."""
    monkeypatch.setenv("TUIADVISOR_NATIVE", "1")
    program = loop(lambda: torch.ones(3, 4), plain)
    for _ in range(3):
        with probed(tmp_path):
            program(4)
    gc.collect()
    left = [one for one in gc.get_objects() if type(one).__module__ == "_tuiadvisor_core"]
    assert left == []
    maps = Path("/proc/self/maps").read_text().splitlines()
    libraries = {line.split(maxsplit=5)[4] for line in maps if "memfd:_tuiadvisor" in line}
    assert len(libraries) == 1, libraries
