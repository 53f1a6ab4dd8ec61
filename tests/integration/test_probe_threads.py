"""The training thread is whichever thread trains: real loops in real threads, each step at a moment of its own."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from patience import wait_until
from probing import Observed, assert_sums_to_step, observed_phases, probed

from tuiadvisor_probes.step_clock import FLAG_FIRST

torch = pytest.importorskip("torch")
PHASES_OF_A_STEP = {"data_wait", "forward", "backward", "optimizer"}


class Thread:
    """One thread that does what it is told, one call after the other."""

    def __init__(self, name: str) -> None:
        self.pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self.native_id = self.do(threading.get_native_id)

    def do(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call it there and wait for its end."""
        return self.pool.submit(function, *arguments).result()


class Loop:
    """A model, its optimizer and its data; `step` is one iteration. inside() is called in the midst of backward."""

    def __init__(self) -> None:
        self.inside: Callable[[], object] = lambda: None
        loop = self

        class Pause(torch.autograd.Function):  # type: ignore[misc, name-defined]
            @staticmethod
            def forward(_: Any, value: Any) -> Any:
                return value.view_as(value)

            @staticmethod
            def backward(_: Any, gradient: Any) -> Any:
                loop.inside()
                return gradient

        self.pause = Pause
        self.model = torch.nn.Linear(8, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.batches = iter(torch.utils.data.DataLoader(torch.randn(40_000, 8), batch_size=4))

    def backward(self) -> None:
        """Without a step."""
        self.pause.apply(self.model(next(self.batches))).mean().backward()

    def step(self, times: int = 1) -> None:
        """Whole iterations."""
        for _ in range(times):
            self.optimizer.zero_grad()
            self.backward()
            self.optimizer.step()


@pytest.fixture
def threads() -> Iterator[Callable[[str], Thread]]:
    """Makes threads, and ends them."""
    made: list[Thread] = []

    def make(name: str) -> Thread:
        made.append(Thread(name))
        return made[-1]

    yield make
    for one in made:
        one.pool.shutdown()


def clock() -> Any:
    """The attached probe's."""
    return sys.modules["_tuiadvisor_probe.install"]._probe.clock  # type: ignore[attr-defined]


def written(observed: Observed) -> list[dict[str, int]]:
    """The steps so far, those that are kept in the clock included."""
    clock().write_kept()
    return observed.steps


def test_a_loop_in_a_thread_is_seen_whole(tmp_path: Path, threads: Callable[[str], Thread]) -> None:
    """The main thread waits; from the second step on every phase has its time."""
    loop, worker = Loop(), threads("worker")
    with probed(tmp_path) as observed:
        worker.do(loop.step, 12)
        steps = written(observed)
        assert observed.reader.thread() == worker.native_id
    assert [0] == [step["step"] for step in steps if step["flags"] & FLAG_FIRST]
    assert 11 == len(steps)  # the last one's end was not seen yet
    for step in steps[4:]:
        assert_sums_to_step(step)
        assert observed_phases(step) >= PHASES_OF_A_STEP
        assert all(step[f"{name}_ns"] > 0 for name in PHASES_OF_A_STEP)


def test_a_thread_that_ended_is_followed_by_the_next(
    tmp_path: Path, threads: Callable[[str], Thread]
) -> None:
    """One thread an epoch: each next one is known by its first optimizer step."""
    loop, first, second = Loop(), threads("first"), threads("second")
    with probed(tmp_path) as observed:
        first.do(loop.step, 5)
        first.pool.shutdown()
        second.do(loop.step, 5)
        steps = written(observed)
        assert observed.reader.thread() == second.native_id
    assert [0, 5] == [step["step"] for step in steps if step["flags"] & FLAG_FIRST]
    assert list(range(9)) == [step["step"] for step in steps]
    gap_ns = steps[5]["begin_ns"] - steps[4]["end_ns"]
    assert gap_ns > 0  # what nobody listened to belongs to no step


def test_an_idle_owner_is_left_for_one_that_trains_and_found_again(
    tmp_path: Path, threads: Callable[[str], Thread]
) -> None:
    """The main thread trains, then a worker, then the main thread: no thread ends."""
    loop, worker = Loop(), threads("worker")
    with probed(tmp_path) as observed:
        loop.step(4)
        worker.do(loop.step, 5)
        assert observed.reader.thread() == worker.native_id
        loop.step(5)
        assert observed.reader.thread() == threading.get_native_id()
        steps = written(observed)
    assert [0, 4, 8] == [step["step"] for step in steps if step["flags"] & FLAG_FIRST]
    assert "unmeasured" not in observed.info


def test_the_next_thread_under_the_same_ident(tmp_path: Path) -> None:
    """An ended thread's ident is given to the next: no CPU time is the difference of two threads' clocks."""
    loop = Loop()
    native_ids: list[int] = []

    def epoch(steps: int) -> None:
        native_ids.append(threading.get_native_id())
        begin = time.thread_time()
        while not native_ids[1:] and time.thread_time() < begin + 0.02:
            pass  # the first one has used more of its clock
        loop.step(steps)

    def until_known() -> None:
        epoch(1)
        wait_until(lambda: loop.step() or observed.reader.thread() == native_ids[-1], "the thread is told", 0)

    with probed(tmp_path) as observed:
        for target, arguments in ((epoch, (17,)), (epoch, (20,)), (until_known, ())):
            thread = threading.Thread(target=target, args=arguments)
            thread.start()
            thread.join()
        assert observed.reader.thread() == native_ids[-1]
        found = written(observed)
    assert len(set(native_ids)) == 3
    with_cpu = [step for step in found if step["cpu_ns"] != -1]
    assert with_cpu
    assert all(step["cpu_ns"] >= 0 for step in with_cpu)  # the next one's clock stands before the first one's


@pytest.mark.parametrize("owner", ["main", "thread"])
def test_two_loops_at_the_same_time_are_refused_with_a_sentence(
    tmp_path: Path, threads: Callable[[str], Thread], owner: str
) -> None:
    """Neither is measured, no sum is made; once one has been alone for long enough it is measured again."""
    loops, other = (Loop(), Loop()), threads("other")
    first: Any = (
        threads("first") if owner == "thread" else SimpleNamespace(do=lambda function, *rest: function(*rest))
    )
    with probed(tmp_path) as observed:
        first.do(loops[0].step, 3)
        loops[0].inside = lambda: other.do(loops[1].step)
        first.do(loops[0].step, 3)
        loops[0].inside = lambda: None
        num_steps = len(written(observed))
        said = observed.info["unmeasured"]
        first.do(loops[0].step, 3)
        other.do(loops[1].step, 3)
        assert num_steps == len(written(observed)) <= 5  # of the first, before it was known
        sys.modules["_tuiadvisor_probe.training_thread"].ALONE_AGAIN_NS = 0  # type: ignore[attr-defined]
        other.do(loops[1].step, 4)
        assert "unmeasured" not in observed.info
        assert len(written(observed)) == num_steps + 3
    assert "several threads of this process train at the same time or in turns" in said
    assert "other_0" in said
    assert ("MainThread" if owner == "main" else "first_0") in said


def test_loops_that_take_turns_are_refused_too(tmp_path: Path, threads: Callable[[str], Thread]) -> None:
    """Step by step, never at the same moment: whose steps are measured would be chance."""
    loops, other = (Loop(), Loop()), threads("other")
    with probed(tmp_path) as observed:
        loops[0].step(3)
        for _ in range(4):
            other.do(loops[1].step)
            loops[0].step()
        assert "several threads" in observed.info["unmeasured"]


def test_who_does_not_train_is_not_taken_for_the_training(
    tmp_path: Path, threads: Callable[[str], Thread]
) -> None:
    """Inference, evaluation, a gradient without a step and loading, each in the midst of the main thread's backward."""
    loop, served, stranger = Loop(), Loop(), threads("stranger")
    with torch.no_grad():
        stranger.do(served.model, torch.randn(4, 8))

    def strangers_work() -> None:
        stranger.do(served.model, torch.randn(4, 8))
        stranger.do(served.model.eval(), torch.randn(4, 8))
        stranger.do(served.backward)
        stranger.do(next, served.batches)

    loop.inside = strangers_work
    with probed(tmp_path) as observed:
        loop.step(8)
        assert observed.reader.thread() == threading.get_native_id()
        steps = written(observed)
    assert 7 == len(steps)
    assert [0] == [step["step"] for step in steps if step["flags"] & FLAG_FIRST]
    assert "unmeasured" not in observed.info
    assert all(1 == step["micro_steps"] for step in steps[1:])


def test_an_owner_that_only_serves_or_loads_any_more_is_left(
    tmp_path: Path, threads: Callable[[str], Thread]
) -> None:
    """It has trained before; now another thread does, in the midst of its evaluations and batches."""
    loop, other, worker = Loop(), Loop(), threads("worker")

    class Serves(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, _batch: Any) -> None:
            worker.do(other.step)

    class Loads(torch.utils.data.Dataset):  # type: ignore[misc, name-defined]
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> Any:
            worker.do(other.step)
            return torch.randn(8)

    loop.model.add_module("served", Serves())
    with probed(tmp_path) as observed:
        loop.step(5)
        for _ in torch.utils.data.DataLoader(Loads(), batch_size=1):
            loop.model.served(torch.randn(2, 8))
        assert observed.reader.thread() == worker.native_id
        assert "unmeasured" not in observed.info
        worker.do(other.step, 3)
        steps = written(observed)
    assert len(steps) > 6
    assert [0, 5] == [step["step"] for step in steps if step["flags"] & FLAG_FIRST]


def without_backward(loop: Loop) -> None:
    """An optimizer step by a thread that is none of Python's, as autograd's are, and its end."""
    import _thread

    done = _thread.allocate_lock()
    done.acquire()

    def work() -> None:
        loop.optimizer.step()
        done.release()

    _thread.start_new_thread(work, ())
    done.acquire()


@pytest.mark.parametrize("owner", ["main", "thread"])
def test_optimizers_in_backward_step_in_autograds_threads(
    tmp_path: Path, threads: Callable[[str], Thread], owner: str
) -> None:
    """The step ends there, but the training is whose backward it is."""
    loop, worker = Loop(), threads("worker")
    loop.inside = lambda: without_backward(loop)

    def train() -> None:
        for _ in range(8):
            loop.backward()

    with probed(tmp_path) as observed:
        train() if owner == "main" else worker.do(train)
        steps = written(observed)
        assert observed.reader.thread() == (
            worker.native_id if owner == "thread" else threading.get_native_id()
        )
    assert len(steps) >= 5
    assert "unmeasured" not in observed.info


class Trains(torch.utils.data.Dataset):  # type: ignore[misc, name-defined]
    """A loader worker that trains something of its own in a thread."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        thread = threading.Thread(target=Loop().step, args=(3,))
        thread.start()
        thread.join()
        return torch.randn(8)


def test_a_forked_child_that_trains_writes_nothing(tmp_path: Path) -> None:
    """Loader workers inherit the hooks; what they train is no business of the rank's."""
    with probed(tmp_path) as observed:
        batches = list(torch.utils.data.DataLoader(Trains(), batch_size=1, num_workers=1))
        assert 6 == len(batches)
        assert [] == written(observed)
        loop = Loop()
        loop.step(3)
        assert 2 == len(written(observed))
    assert "unmeasured" not in observed.info


def test_the_last_step_of_an_ended_thread_is_kept(tmp_path: Path, threads: Callable[[str], Thread]) -> None:
    """It ended where it was last seen, however long after that the probe leaves."""
    loop, worker = Loop(), threads("worker")
    with probed(tmp_path) as observed:
        worker.do(loop.step, 5)
        worker.pool.shutdown()
        ended_ns = time.monotonic_ns()
    assert 5 == len(observed.steps)
    assert observed.steps[-1]["end_ns"] <= ended_ns
