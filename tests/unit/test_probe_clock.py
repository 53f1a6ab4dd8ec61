"""The step clock: phases are self times, they sum to the step, and a step ends where the next iteration begins."""

from __future__ import annotations

import gc
import signal
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tuiadvisor.events import STEP_COLUMNS, StepFlag
from tuiadvisor_probes import books, guard, phases, ring, step_clock
from tuiadvisor_probes.guard import Hook, is_the_hosts, timed
from tuiadvisor_probes.patch import Patch


class Clock:
    """A clock that only moves when told."""

    def __init__(self) -> None:
        self.now = 1_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def time_ns(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Injected time."""
    clock = Clock()
    for module in (step_clock, guard):
        monkeypatch.setattr(module, "monotonic_ns", clock)
    return clock


@pytest.fixture
def recorded(tmp_path: Path, time_ns: Clock) -> Iterator[tuple[step_clock.StepClock, ring.RingReader]]:
    """A clock on a ring, and the ring's reader."""
    path = str(tmp_path / "ring")
    ring.create_ring_file(path, 16, 16)
    writer, reader = ring.RingWriter(path), ring.RingReader(path)
    from threading import get_ident

    yield step_clock.StepClock(writer, get_ident(), lambda: None), reader
    writer.close()
    reader.close()


def rows(reader: ring.RingReader) -> list[dict[str, int]]:
    """Steps by column name."""
    return [dict(zip(STEP_COLUMNS, row, strict=True)) for row in reader.take_steps()]


def spend(clock: step_clock.StepClock, time_ns: Clock, phase: int, duration: int) -> None:
    """Be in a phase for a while."""
    clock.enter(phase)
    time_ns.now += duration
    clock.leave()


def test_parts_sum_to_the_step(
    recorded: tuple[step_clock.StepClock, ring.RingReader], time_ns: Clock
) -> None:
    """Data 10, forward 20, backward 30, optimizer 5, 7 in between: 72 in all, nothing lost or doubled."""
    clock, reader = recorded
    for _ in range(2):
        spend(clock, time_ns, phases.DATA_WAIT, 10)
        time_ns.now += 7
        spend(clock, time_ns, phases.FORWARD, 20)
        spend(clock, time_ns, phases.BACKWARD, 30)
        spend(clock, time_ns, phases.OPTIMIZER, 5)
        clock.stepped = True
    spend(clock, time_ns, phases.DATA_WAIT, 10)
    first, second = rows(reader)
    assert StepFlag(first["flags"]) & StepFlag.FIRST
    assert not StepFlag(second["flags"]) & StepFlag.FIRST
    parts = {
        name: second[f"{name}_ns"] for name in ("data_wait", "forward", "backward", "optimizer", "other")
    }
    assert parts == {"data_wait": 10, "forward": 20, "backward": 30, "optimizer": 5, "other": 7}
    assert second["end_ns"] - second["begin_ns"] == 72


def test_nested_phase_counts_once(
    recorded: tuple[step_clock.StepClock, ring.RingReader], time_ns: Clock
) -> None:
    """A collective inside forward is communication, not forward; a backward inside the optimizer's closure backward."""
    clock, reader = recorded
    clock.enter(phases.OPTIMIZER)
    clock.enter(phases.FORWARD)
    time_ns.now += 4
    spend(clock, time_ns, phases.COMM_EXPOSED, 100)
    time_ns.now += 6
    clock.leave()
    spend(clock, time_ns, phases.BACKWARD, 50)
    time_ns.now += 1
    clock.leave()
    clock.stepped = True
    clock.flush()
    (row,) = rows(reader)
    measured = [row["forward_ns"], row["comm_exposed_ns"], row["backward_ns"], row["optimizer_ns"]]
    assert measured == [10, 100, 50, 1]


def test_several_optimizers_make_one_step(
    recorded: tuple[step_clock.StepClock, ring.RingReader], time_ns: Clock
) -> None:
    """The step is closed by the next data, forward or backward event, not by each optimizer."""
    clock, reader = recorded
    for _ in range(2):
        spend(clock, time_ns, phases.OPTIMIZER, 5)
        clock.stepped = True
    assert rows(reader) == []
    spend(clock, time_ns, phases.FORWARD, 1)
    assert [row["optimizer_ns"] for row in rows(reader)] == [10]


def test_unobserved_is_not_zero(recorded: tuple[step_clock.StepClock, ring.RingReader]) -> None:
    """Without a barrier, a batch or a group the fields say unknown and the step says no sync was seen."""
    clock, reader = recorded
    clock.stepped = True
    clock.flush()
    (row,) = rows(reader)
    unknown = (
        "arrive_ns",
        "release_ns",
        "group_seq",
        "num_collectives",
        "samples",
        "tokens",
        "comm_total_ns",
    )
    assert {name: row[name] for name in unknown} == dict.fromkeys(unknown, step_clock.UNKNOWN)
    assert StepFlag(row["flags"]) & StepFlag.NO_SYNC


def test_hook_error_never_reaches_the_host(recorded: tuple[step_clock.StepClock, ring.RingReader]) -> None:
    """A hook of ours that raises is switched off and counted; the host's call returns what it would."""
    clock, _ = recorded
    disabled: list[str] = []
    hook = Hook("broken", 3, lambda failed: disabled.append(failed.name))

    def broken(*_: object) -> None:
        raise RuntimeError("ours")

    call = timed(lambda value: value + 1, hook, clock, phases.FORWARD, broken)
    assert call(1) == 2
    assert call(2) == 3
    assert disabled == ["broken"]
    assert not hook.active
    assert hook.num_errors == 1


def test_host_error_passes_and_time_is_booked(
    recorded: tuple[step_clock.StepClock, ring.RingReader], time_ns: Clock
) -> None:
    """An exception of the host (StopIteration of a loader, say) passes unchanged and leaves the stack balanced."""
    clock, _ = recorded
    hook = Hook("data", 0, lambda _: None)

    def exhausted() -> None:
        time_ns.now += 9
        raise StopIteration

    with pytest.raises(StopIteration):
        timed(exhausted, hook, clock, phases.DATA_WAIT)()
    assert clock.phase == phases.OTHER
    assert clock.totals[phases.DATA_WAIT] == 9
    assert hook.active


def test_other_threads_pass_untouched(recorded: tuple[step_clock.StepClock, ring.RingReader]) -> None:
    """Only the training thread's time is measured: a prefetch thread in the same function is not."""
    import threading

    clock, _ = recorded
    call = timed(lambda: 5, Hook("data", 0, lambda _: None), clock, phases.DATA_WAIT)
    results: list[int] = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    thread.join()
    assert results == [5]
    assert clock.log == []


def test_forked_child_goes_inert(recorded: tuple[step_clock.StepClock, ring.RingReader]) -> None:
    """A loader worker inherits the hooks and must not write into its parent's ring."""
    clock, reader = recorded
    clock.pid += 1
    clock.stepped = True
    clock.enter(phases.FORWARD)
    assert not clock.active
    assert rows(reader) == []


def end_step(clock: step_clock.StepClock, time_ns: Clock, duration: int = 10) -> None:
    """A step of one forward; the next one begins at once."""
    spend(clock, time_ns, phases.FORWARD, duration)
    clock.stepped = True
    spend(clock, time_ns, phases.DATA_WAIT, 0)


def keep(clock: step_clock.StepClock, max_kept: int = 4) -> None:
    """From now on ended steps are written together; the first one was flagged, and is out of the way."""
    clock.flags = 0
    clock.max_kept = max_kept
    clock.settle_at_ns = clock.settle_at_seq = step_clock.FAR


def test_kept_steps_are_written_together_and_whole(
    recorded: tuple[step_clock.StepClock, ring.RingReader], time_ns: Clock
) -> None:
    """Nothing before the fourth step has ended; then all four, each with its own times."""
    clock, reader = recorded
    keep(clock)
    for duration in (10, 20, 30):
        end_step(clock, time_ns, duration)
        assert rows(reader) == []
    assert clock.step == 3
    end_step(clock, time_ns, 40)
    written = rows(reader)
    assert [(0, 10), (1, 20), (2, 30), (3, 40)] == [(row["step"], row["forward_ns"]) for row in written]
    assert all(row["end_ns"] - row["begin_ns"] == row["forward_ns"] for row in written)


def test_kept_steps_wait_no_longer_than_a_moment(
    recorded: tuple[step_clock.StepClock, ring.RingReader], time_ns: Clock
) -> None:
    """A step that ends 0.2 s after the last writing takes the others with it."""
    clock, reader = recorded
    keep(clock, 1)
    end_step(clock, time_ns)
    clock.max_kept = 100
    end_step(clock, time_ns)
    end_step(clock, time_ns, step_clock.MAX_KEPT_NS)
    assert [0, 1, 2] == [row["step"] for row in rows(reader)]


def test_what_is_out_of_the_ordinary_is_written_at_once(
    recorded: tuple[step_clock.StepClock, ring.RingReader], time_ns: Clock
) -> None:
    """A flagged step, and one at which all ranks begin a burst."""
    clock, reader = recorded
    keep(clock, 100)
    end_step(clock, time_ns)
    clock.flags |= step_clock.FLAG_CHECKPOINT
    end_step(clock, time_ns)
    assert [0, 1] == [row["step"] for row in rows(reader)]
    clock.settle_at_seq = 7
    for seq in (6, 7):
        clock.group_seq = lambda seq=seq: seq  # type: ignore[misc]
        end_step(clock, time_ns)
    assert [(2, 6), (3, 7)] == [(row["step"], row["group_seq"]) for row in rows(reader)]


def test_a_probe_that_leaves_writes_what_it_kept(
    recorded: tuple[step_clock.StepClock, ring.RingReader], time_ns: Clock
) -> None:
    """Kept steps and the finished one that no later event has closed; a forked child writes none."""
    clock, reader = recorded
    keep(clock, 100)
    end_step(clock, time_ns)
    spend(clock, time_ns, phases.FORWARD, 5)
    clock.stepped = True
    clock.pid += 1
    clock.flush()
    assert rows(reader) == []
    clock.pid -= 1
    clock.flush()
    assert [0, 1] == [row["step"] for row in rows(reader)]


def test_notes_do_not_pile_up_where_no_step_ends(
    recorded: tuple[step_clock.StepClock, ring.RingReader], time_ns: Clock
) -> None:
    """An optimizer that is not torch's ends no step: what was noted is booked all the same, and nothing is lost."""
    clock, _ = recorded

    def compute() -> None:
        time_ns.now += 3

    forward = timed(compute, Hook("forward", 0, lambda _: None), clock, phases.FORWARD)
    longest = 0
    for _ in range(10_000):
        forward()
        longest = max(longest, len(clock.log))
    assert longest <= books.MAX_NOTES + 2
    assert clock.totals[phases.FORWARD] == 30_000


def test_half_a_note_waits_for_its_other_half(
    recorded: tuple[step_clock.StepClock, ring.RingReader], time_ns: Clock
) -> None:
    """Another thread books (the probe leaves) while the training thread is between the two items of a note."""
    clock, _ = recorded
    clock.enter(phases.FORWARD)
    time_ns.now += 10
    clock.log.append(phases.OTHER)
    clock.catch_up()
    assert clock.log == [phases.OTHER]
    assert clock.totals[phases.FORWARD] == 0
    clock.log.append(time_ns.now)
    assert clock.totals[phases.FORWARD] == 10


class Owner:
    """Something to patch."""

    def method(self) -> str:
        """Say who is there."""
        return "original"


class Heir(Owner):
    """Inherits what is patched."""


def test_patch_restores_the_identical_object() -> None:
    """Own and inherited attributes come back as they were, not as copies."""
    original = vars(Owner)["method"]
    patches = [Patch(Owner, "method", lambda old: lambda self: "patched " + old(self))]
    patches.append(Patch(Heir, "method", lambda old: lambda self: "twice " + old(self)))
    assert Heir().method() == "twice patched original"
    assert all(patch.remove() for patch in reversed(patches))
    assert vars(Owner)["method"] is original
    assert "method" not in vars(Heir)


def test_patch_on_top_of_ours_is_left_alone() -> None:
    """Somebody patched over us: removing ours would remove theirs, so it stays and reports it."""
    original = vars(Owner)["method"]
    patch = Patch(Owner, "method", lambda old: old)
    theirs = lambda _: "theirs"  # noqa: E731
    patch.replacement = lambda _: "ours"
    Owner.method = theirs  # type: ignore[method-assign]
    try:
        assert not patch.remove()
        assert vars(Owner)["method"] is theirs
    finally:
        Owner.method = original  # type: ignore[method-assign]


class TimeLimitError(Exception):
    """What a script's own handler of SIGALRM raises."""


class InterruptedNotes(list[int]):
    """Notes of a clock; a signal arrives right after one of them."""

    left = 0

    def append(self, note: int) -> None:
        super().append(note)
        self.left -= 1
        if self.left == 0:
            signal.raise_signal(signal.SIGUSR1)


@pytest.mark.parametrize("is_put_back", [False, True])
@pytest.mark.parametrize("kind", [TimeLimitError, KeyboardInterrupt])
@pytest.mark.parametrize("note", [1, 2, 3, 4])
def test_what_a_signal_handler_raises_inside_a_hook_is_the_hosts(
    recorded: tuple[step_clock.StepClock, ring.RingReader],
    time_ns: Clock,
    note: int,
    kind: type[BaseException],
    is_put_back: bool,
) -> None:
    """A time limit or ^C that falls into our lines ends what it limits; the hook stays on, and no phase stays open."""

    def limit(number: int, *_: object) -> None:
        if is_put_back:
            signal.signal(number, signal.SIG_DFL)
        raise kind

    clock, reader = recorded
    clock.log = notes = InterruptedNotes()
    hook = Hook("forward", 0, lambda _: None)
    forward = timed(lambda: None, hook, clock, phases.FORWARD, observes=1 << phases.FORWARD)
    former = signal.signal(signal.SIGUSR1, limit)
    try:
        notes.left = note
        with pytest.raises(kind) as raised:
            forward()
    finally:
        signal.signal(signal.SIGUSR1, former)
    assert raised.value.__context__ is None
    assert (True, phases.OTHER) == (hook.active, clock.phase)
    time_ns.now += 5
    forward()
    clock.stepped = True
    clock.flush()
    (row,) = rows(reader)
    assert 5 == row["other_ns"] == row["end_ns"] - row["begin_ns"]


def test_to_ask_whose_an_exception_is_keeps_nothing_of_the_hosts() -> None:
    """The frame of ours that has caught it would: with it the exception, and with that all frames above."""

    class Model:
        pass

    inside: dict[str, Any] = {"__name__": step_clock.__name__, "is_the_hosts": is_the_hosts}
    exec(  # noqa: S102
        "def look():\n    try:\n        {}['none']\n    except Exception as error:\n        return is_the_hosts(error)",
        inside,
    )

    def train() -> weakref.ref[Model]:
        model = Model()
        assert not inside["look"]()
        return weakref.ref(model)

    gc.disable()
    try:
        assert train()() is None
    finally:
        gc.enable()


def nested(levels: int, call: Callable[[Any], str]) -> str:
    """What a call answers so many calls below us."""
    if levels:
        return nested(levels - 1, call)
    try:
        return call(None)
    except RecursionError:
        return "too deep"


def phase_by(levels: int) -> int:
    """As what asks for a forward's phase, some calls down."""
    return phase_by(levels - 1) if levels else phases.FORWARD


def test_a_program_at_its_limit_of_nested_calls_gets_its_own_error_alone(
    recorded: tuple[step_clock.StepClock, ring.RingReader], time_ns: Clock
) -> None:
    """Our own frame and the one that lets it pass are lost at most."""
    clock, _ = recorded
    hook = Hook("forward", 0, lambda _: None)
    wrapped = timed(lambda _: "done", hook, clock, lambda _: phase_by(8))
    limit = next(levels for levels in range(10_000) if nested(levels, lambda _: "done") == "too deep")
    answers = [nested(limit - distance, wrapped) for distance in range(1, 30)]
    assert answers.count("too deep") <= 3
    assert sorted(answers, reverse=True) == answers  # and the nearer ones alone
    assert hook.active
    assert 0 == hook.num_errors
    assert phases.OTHER == clock.phase
    clock.catch_up()
    before = clock.books.num_transitions
    assert "done" == nested(0, wrapped)
    clock.catch_up()
    assert before + 2 == clock.books.num_transitions


def test_what_stopped_in_the_middle_of_the_books_is_an_error_that_is_counted_and_not_raised(
    recorded: tuple[step_clock.StepClock, ring.RingReader],
) -> None:
    """A half of something may be done there."""
    hook = Hook("forward", 0, lambda _: None)
    inside: dict[str, Any] = {"__name__": step_clock.__name__}
    exec("def stop():\n    raise RecursionError('at the limit')", inside)  # noqa: S102
    with pytest.raises(RecursionError) as raised:
        inside["stop"]()
    assert hook.failed(raised.value)
    assert (False, 1) == (hook.active, hook.num_errors)
