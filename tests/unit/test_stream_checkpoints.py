"""States kept along a recording: seeking folds the last stretch only, and shows what folding all of it shows."""

from __future__ import annotations

import gc
import itertools
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from patience import wait_until
from synthetic_run import Fault, Job, encoded, frames

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.advisor.judge.findings import catalog
from tuiadvisor.app.replay_feed import ReplayFeed
from tuiadvisor.app.survey import Survey
from tuiadvisor.stream.checkpoints import MAX_STATES_BACK, Checkpoints
from tuiadvisor.stream.frames import FrameKind, encode, split
from tuiadvisor.stream.index import FILE_HEADER_BYTES
from tuiadvisor.stream.recording import RecordingWriter
from tuiadvisor.stream.replay import ReplaySource
from tuiadvisor.tui.contract.feed import Pause, SeekStep

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

JOB = Job(num_steps=200, faults=(Fault("backward", (2,), 0.015, onset=60),))
RUN = encode(FrameKind.RUN, "hub", 0, 0, {"schema": 1})


@pytest.fixture(scope="module")
def data() -> list[bytes]:
    return [RUN, *map(encoded, frames(JOB, rows_per_frame=5))]


@pytest.fixture
def path(tmp_path: Path, data: list[bytes]) -> Path:
    writer = RecordingWriter(tmp_path / "run.tuirec", data[0])
    for frame in data[1:]:
        writer.append(frame)
    writer.close()
    return tmp_path / "run.tuirec"


@pytest.mark.slow
def test_every_state_goes_on_as_if_it_had_never_been_kept(data: list[bytes]) -> None:
    """Restored anywhere and fed the rest: the view of a fold without a stop; the kept state stays as it was."""
    kept: Checkpoints[Advisor] = Checkpoints(stretch_bytes=1)
    advisor, views = Advisor(), []
    for number, frame in enumerate(data, 1):
        advisor.feed(frame)
        kept.offer(advisor, number, len(frame))
        views.append(advisor.view())
    for target in range(1, len(data) + 1, 12):
        found = kept.offset_before(target)
        assert found is not None
        again = kept.restore(found)
        assert views[found - 1] == again.view()
        for frame in data[found:]:
            again.feed(frame)
        assert views[-1] == again.view()
        assert views[found - 1] == kept.restore(found).view()


def test_rules_are_shared_by_all_states_and_not_kept_in_any(path: Path) -> None:
    """They never change while a recording is looked at: reading them anew is a third of unpickling a state."""
    survey = Survey(path).whole()
    found = survey.checkpoints.offset_before(path.stat().st_size)
    assert found is not None
    first, second = (survey.checkpoints.restore(found) for _ in range(2))
    assert first.rules is second.rules is Advisor().rules
    assert first.roster is not second.roster
    assert first.view() == second.view() == survey.view


def test_a_catalogue_of_ones_own_is_kept_with_the_state(data: list[bytes]) -> None:
    """Who folds by other rules goes on by these."""
    advisor = Advisor(rules=catalog()[:3])
    advisor.feed(data[0])
    kept: Checkpoints[Advisor] = Checkpoints()
    kept.keep(advisor, 1)
    assert [one.id for one in kept.restore(1).rules] == [one.id for one in catalog()[:3]]


@pytest.mark.slow
def test_a_state_from_before_all_ranks_were_known_goes_on_too(data: list[bytes]) -> None:
    """Ranks that come later find the ranks of the kept state as they were; whole and patched states alike."""
    late = replace(JOB, num_ranks=6, ranks_per_host=2, attach=(0, 0, 30, 30, 90, 90))
    run = [RUN, *map(encoded, frames(late, rows_per_frame=5))]
    kept: Checkpoints[Advisor] = Checkpoints()
    advisor, counts = Advisor(), []
    for number, frame in enumerate(run, 1):
        advisor.feed(frame)
        kept.keep(advisor, number)
        counts.append(advisor.store.tracks.num)
    assert {2, 4, 6} <= set(counts)
    assert any(piece.at is not None for one in kept._held for piece in one.pieces)
    for number in (counts.index(2) + 3, counts.index(4) + 3, len(run) - 5):
        again = kept.restore(number)
        assert counts[number - 1] == again.store.tracks.num
        again.feed_many(run[number:])
        assert advisor.view() == again.view()
        num = advisor.store.tracks.num
        assert np.array_equal(advisor.store.tracks._table[:, :num], again.store.tracks._table[:, :num])


@pytest.mark.slow
def test_the_memory_of_a_state_that_nobody_needs_is_used_again(data: list[bytes]) -> None:
    """Restored into what the last one left, every state is what it was; views of the last one stay as they were."""
    kept: Checkpoints[Advisor] = Checkpoints()
    advisor, views = Advisor(), []
    for number, frame in enumerate(data, 1):
        advisor.feed(frame)
        kept.keep(advisor, number)
        views.append(advisor.view())
    spare, shown, before = kept.restore(len(data)), views[-1], views[-1]
    places = set()
    numbers = [len(data) - 9, 9, 4, len(data) - 2, len(data) // 2, 9]
    for number in numbers:
        again = kept.restore(number, spare=spare)
        places.add(again.store.recent.column("end_ns").__array_interface__["data"][0])
        assert (views[number - 1], before) == (again.view(), shown)
        again.feed_many(data[number : number + 2])
        spare, shown, before = again, again.view(), views[min(number + 2, len(data)) - 1]
    assert len(places) < len(numbers)
    two = kept.restore(4), kept.restore(9)
    assert (views[3], views[8]) == (two[0].view(), two[1].view())


@pytest.mark.parametrize("num_bytes", [0, 5, 8, 4099, 4096 + 64 + 7, 40_000])
def test_arrays_of_any_length_come_back_as_they_were(num_bytes: int) -> None:
    """Whole and patched, with numbers whose upper halves matter, and with what is left of the last word."""
    lots = np.random.default_rng(num_bytes)
    array = lots.integers(0, 256, num_bytes, dtype=np.uint8)
    kept: Checkpoints[list[npt.NDArray[np.uint8]]] = Checkpoints()
    arrays = []
    for number in range(1, 6):
        arrays.append(array.copy())
        kept.keep([array], number)
        array[num_bytes // 2 : num_bytes // 2 + 9] += np.uint8(1)
        array[-1:] += np.uint8(1)
    for number, expected in enumerate(arrays, 1):
        (restored,) = kept.restore(number)
        assert np.array_equal(expected, restored)


def test_of_a_table_that_is_written_in_turn_each_block_is_read_once() -> None:
    """However many states lead to one: its cells are not written again and again, and what is older is not read."""
    kept: Checkpoints[list[npt.NDArray[np.int64]]] = Checkpoints()
    ring, steady = np.zeros((8, 512), dtype=np.int64), np.arange(4096)
    for number in range(1, 101):
        ring[:, 16 * number % 512 : 16 * number % 512 + 16] = number << 40
        kept.keep([ring, steady], number)
    newest = kept._held[-1]
    taken = [
        piece for one in kept._held for piece in one.pieces if 0 in piece.arrays and newest.takes(0, one)
    ]
    assert ring.size // 8 == sum(piece.at.size for piece in taken if piece.at is not None)
    assert 512 // 16 == len(taken)
    assert [1] == [one.number for one in kept._held for piece in one.pieces if 1 in piece.arrays]
    restored = kept.restore(100)
    assert np.array_equal(ring, restored[0])
    assert np.array_equal(steady, restored[1])


def test_what_lies_far_back_is_kept_anew() -> None:
    """A restore asks no more than some sixty states, although a half of the array never changes."""
    kept: Checkpoints[list[npt.NDArray[np.int64]]] = Checkpoints()
    array = np.zeros(4096, dtype=np.int64)
    for number in range(1, 201):
        array[number % 2048] += 1
        kept.keep([array], number)
        assert number - kept._held[-1].reaches[0] <= MAX_STATES_BACK
    assert np.array_equal(array, kept.restore(200)[0])


def test_before_the_first_state_there_is_none(data: list[bytes]) -> None:
    """Whoever asks for an earlier place has to begin at the first frame."""
    kept: Checkpoints[Advisor] = Checkpoints()
    assert kept.offset_before(10) is None
    kept.keep(Advisor(), 20)
    assert (None, 20, 20) == (kept.offset_before(19), kept.offset_before(20), kept.offset_before(500))


def test_memory_stays_within_its_bound() -> None:
    """A thousand states into room for fourteen: the stretches grow, what is kept is spread over the whole way."""
    state = [(number * 2654435761) % 10**9 for number in range(100)]  # does not compress
    kept: Checkpoints[list[int]] = Checkpoints(max_held_bytes=6000, stretch_bytes=1)
    for number in range(1, 1001):
        kept.offer(state, number, 1)
        assert kept._num_held_bytes <= 6000
    assert 6 <= len(kept) <= 14
    gaps = [target - (kept.offset_before(target) or 0) for target in range(1, 1001)]
    assert max(gaps) <= 260


@pytest.mark.slow
def test_a_replay_jumps_both_ways_without_folding_from_the_start(path: Path, data: list[bytes]) -> None:
    """After the look at the whole recording: exact views at every place, no start from the first frame, marks."""
    survey = Survey(path)
    survey.checkpoints = Checkpoints(stretch_bytes=2000)
    feed = ReplayFeed(ReplaySource(path), survey)
    feed.start()
    try:
        feed.command(Pause())
        wait_until(lambda: survey.is_done)
        for step in (199, 20, 150, 90, 91, 5, 199):
            feed.command(SeekStep(step))
            wait_until(lambda wanted=step: shown(feed) == wanted)  # type: ignore[misc]
            fold = Advisor()
            for frame in split(path.read_bytes()[FILE_HEADER_BYTES : feed.replay.offset]):
                fold.feed(frame)
            assert fold.view_at(step) == feed.latest().view
        assert 0 == feed.replay.status.num_restarts
        replay = feed.latest().replay
        assert replay is not None
        assert any("rank 2" in label.lower() for _, label in feed.steps), feed.steps
        assert len(feed.steps) == len(replay.marks)
    finally:
        feed.stop()


def shown(feed: ReplayFeed) -> int | None:
    view = feed.latest().view
    return view.last_step if view is not None and feed.latest().phase == "paused" else None


def test_a_replay_shows_its_first_screen_before_it_knows_its_end(path: Path) -> None:
    """The first view needs the first frames only; the last step is known from the index meanwhile."""
    feed = ReplayFeed(ReplaySource(path))
    assert (199, ()) == (feed.last_step, feed.positions)
    feed._survey.advance(0.0)
    feed._cycle()
    view = feed.latest().view
    assert view is not None
    assert (view.last_step or 0) < 199
    feed.stop()


def test_a_survey_ends_where_the_index_ends(path: Path, data: list[bytes]) -> None:
    """Of a recording that still grows, both see the same frames."""
    survey = Survey(path, FILE_HEADER_BYTES + sum(map(len, data[:12]))).whole()
    fold = Advisor()
    for frame in data[:12]:
        fold.feed(frame)
    assert (12, fold.view()) == (survey.num_frames, survey.view)


def test_states_that_are_left_when_memory_is_short_are_what_they_were() -> None:
    """Arrays that change a little from state to state, one that grows: kept whole or as differences, thinned or not."""
    random = np.random.default_rng(3)
    large, grows = random.integers(0, 1 << 60, 4000), random.integers(0, 1 << 60, 700)
    kept: Checkpoints[list[object]] = Checkpoints(max_held_bytes=400_000, stretch_bytes=1)
    were: dict[int, list[object]] = {}
    nums, num_patched = [], 0
    for number in range(1, 200):
        large[random.integers(0, large.size, 40)] += 1
        if number % 50 == 0:
            grows = np.concatenate((grows, random.integers(0, 1 << 60, 100)))
        kept.offer([number, large, grows, np.zeros(3)], number, 400)
        were[number] = [number, large.copy(), grows.copy(), np.zeros(3)]
        assert kept._num_held_bytes <= 400_000
        nums.append(len(kept))
        if number % 20 == 0:
            num_patched += sum(any(piece.at is not None for piece in one.pieces) for one in kept._held)
            for one in kept._held:
                again = kept.restore(one.offset)
                assert all(map(np.array_equal, were[one.offset], again))
    assert num_patched > 50
    assert sum(later < earlier for earlier, later in itertools.pairwise(nums)) >= 2  # it was thinned


def test_a_state_that_is_let_go_is_freed_at_once() -> None:
    """Each seek brings another one of tens of megabytes: nothing may wait until cycles are looked for."""
    advisor = Advisor()
    advisor.feed_many([RUN, *map(encoded, frames(JOB, rows_per_frame=5))])
    store, recent = weakref.ref(advisor.store), weakref.ref(advisor.store.recent)
    gc.disable()
    try:
        del advisor
        assert store() is None
        assert recent() is None
    finally:
        gc.enable()
