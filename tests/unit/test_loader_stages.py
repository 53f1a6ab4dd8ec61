"""Which stage of a data loader is behind: named beside slow input and beside a rank late in data, or not at all."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_run import MS, Fault, Job, folded, frames, simulate

from tuiadvisor.advisor.detail.loader_store import LoaderStore
from tuiadvisor.events import BATCHES_HELD_BITS, EVENT_COLUMNS, STEP_COLUMNS, UNKNOWN, EventKind
from tuiadvisor.metrics.lateness.own_loader import held_by_data, waits_for_its_loader
from tuiadvisor.metrics.steps.loader_stage import MIN_BATCHES, batches_of, loader_wait
from tuiadvisor.phases import PHASES
from tuiadvisor.stream.frames import Frame, FrameKind, pack_columns
from tuiadvisor.views.run_view import Finding

NAMES = ("rank", "kind", *EVENT_COLUMNS)
BATCH, PACKED = int(EventKind.LOADER_BATCH), int(EventKind.PACKED_BATCH)
BEGIN = 1 + STEP_COLUMNS.index("begin_ns")
SLOW_INPUT = Job(num_ranks=2, data_s=12 * MS, spike_chance=0.0)
ONE_LATE = Job(num_ranks=4, faults=(Fault("data_wait", (1,), 12 * MS),))
DETAIL = range(60, 180, 6)
EMPTY, PIN, READY, TURN = (0, 0, 0), (0, 3, 0), (2, UNKNOWN, 0), (0, UNKNOWN, 2)
Queues = tuple[int, int, int]  # ready, before the pinning thread, not in turn


def finding(
    job: Job,
    name: str,
    queues: Queues | None,
    *,
    workers: int = 2,
    collate_s: float = 0.0,
    steps: range = DETAIL,
    took_s: float = 11 * MS,
) -> Finding:
    """Of a job whose loaders were seen like this in some steps; queues None: they were not seen."""
    view = folded(
        sequence_of(job, queues, workers=workers, collate_s=collate_s, steps=steps, took_s=took_s)
    ).view()
    (found,) = [one for one in view.findings if one.id == name]
    return found


def sequence_of(
    job: Job,
    queues: Queues | None,
    *,
    workers: int = 2,
    collate_s: float = 0.0,
    making: dict[int, int] | None = None,
    others: Queues = READY,
    steps: range = DETAIL,
    took_s: float = 11 * MS,
) -> list[Frame]:
    """took_s: how long each batch was waited for that was not there; making: by rank, the batches that its workers had
    still to make; others: queues of those that are not late.
    """
    sequence = frames(job)
    rows = []
    for rank, records in simulate(job).rows.items() if queues is not None else ():
        for step in steps:
            begin = records[step][BEGIN]
            ready, unpinned, held = (queues or EMPTY) if making is None or rank == 1 else others
            not_made = 0 if making is None else making[rank] + 1
            detail = held | not_made << BATCHES_HELD_BITS if workers else round(collate_s * 1e9)
            took = round(took_s * 1e9 if rank == 1 or len(job.faults) != 1 else 2e5)
            rows.append((rank, BATCH, step, begin, begin + took, workers, ready, unpinned, detail))
    if rows:
        sequence.append(Frame(FrameKind.EVENTS, "node0/1/1", 900, 10**10, pack_columns(rows, NAMES)))
    return sequence


def test_workers_that_are_behind_are_said() -> None:
    """No batch ready anywhere: the usual levers, more workers first."""
    said = finding(SLOW_INPUT, "input_bound", EMPTY)
    assert (
        "in 100 % of that time no batch was ready anywhere: its worker processes are behind" in said.message
    )
    assert "40 batches seen" in said.message
    assert "more worker processes" in said.actions[0].text


@pytest.mark.parametrize(
    ("queues", "words", "lever"),
    [
        (PIN, "before the thread that pins memory: that thread is behind", "pins memory less to do"),
        (READY, "a batch lay ready: taking it over", "cheaper to take over"),
        (TURN, "one worker is slower than the others", "in_order=False"),
    ],
)
def test_finished_batches_that_wait_want_no_more_workers(queues: Queues, words: str, lever: str) -> None:
    """Another stage is behind: said, with its own lever and without a number of workers."""
    said = finding(SLOW_INPUT, "input_bound", queues)
    assert words in said.message
    assert lever in said.actions[0].text
    assert "would keep up" not in said.message


def test_what_was_not_seen_is_not_said() -> None:
    """Without events, and with queues that nobody could count."""
    for queues in (None, (UNKNOWN, UNKNOWN, UNKNOWN)):
        assert "of that time" not in finding(SLOW_INPUT, "input_bound", queues).message


@pytest.mark.parametrize(
    ("first_s", "words"),
    [
        pytest.param(12 * MS, "20 batches seen up to step 56, with the same wait", id="same wait"),
        pytest.param(4 * MS, "", id="shorter before"),
    ],
)
def test_what_a_burst_saw_before_the_window_counts_while_the_wait_is_the_same(
    first_s: float, words: str
) -> None:
    """The model became faster since, or the loader slower: then nothing is said of it until it is seen again."""
    job = Job(num_ranks=2, num_steps=500, spike_chance=0.0, data_s=12 * MS, other_s=6 * MS)
    changed = (
        Fault("data_wait", None, first_s - 12 * MS, until=250),
        Fault("forward", None, 12 * MS, until=250),
    )
    said = finding(job.with_faults(*changed), "input_bound", EMPTY, steps=range(20, 60, 4), took_s=first_s)
    assert words in said.message
    assert ("no batch was ready anywhere" in said.message) == bool(words)


def test_what_a_burst_saw_before_chosen_steps_does_not_count() -> None:
    """They are judged alone."""
    whole = folded(sequence_of(SLOW_INPUT, EMPTY, steps=range(20, 60, 4)))
    for steps, is_said in (((10, 190), True), ((60, 190), False)):
        (found,) = [one for one in whole.view_of(steps).findings if one.id == "input_bound"]
        assert ("no batch was ready anywhere" in found.message) == is_said


def test_a_late_ranks_own_loader_is_named() -> None:
    """The rank's queues, not those of its peers, whose batches were ready."""
    said = finding(ONE_LATE, "straggler", EMPTY)
    assert said.ranks == (1,)
    assert "in 100 % of it no batch was ready anywhere" in said.message
    alone = finding(ONE_LATE, "straggler", EMPTY, workers=0, collate_s=5.5 * MS)
    assert "makes the batches itself, without workers, 50 % of it in collate" in alone.message


@pytest.mark.parametrize("num", [2, 3], ids=["just as fast", "with a batch ahead"])
def test_of_equally_slow_loaders_none_is_named(num: int) -> None:
    """All workers are at work everywhere: whoever waits, the loaders of all are what takes the step."""
    said = folded(sequence_of(ONE_LATE, EMPTY, making={0: num, 1: 4, 2: num, 3: num})).view().findings
    assert "straggler" not in {one.id for one in said}
    (slow,) = [one for one in said if one.id == "input_bound"]
    assert slow.ranks == (0, 1, 2, 3)
    assert slow.loss_s_per_step == pytest.approx(
        ONE_LATE.faults[0].amount_s, rel=0.1
    )  # what the one rank waits


def test_of_loaders_of_which_one_worker_each_is_slow_none_is_named() -> None:
    """The others of its workers are idle, and still no batch is there when it is asked for."""
    said = folded(sequence_of(ONE_LATE, TURN, making=dict.fromkeys(range(4), 1), others=TURN)).view().findings
    assert "straggler" not in {one.id for one in said}


@pytest.mark.parametrize(
    ("making", "steps"),
    [
        ({0: 1, 1: 4, 2: 1, 3: 0}, DETAIL),  # theirs have time to spare
        ({0: 4, 1: 4, 2: 1, 3: 1}, DETAIL),  # most of theirs
        (None, DETAIL),  # nobody counted
        ({0: 4, 1: 4, 2: 4, 3: 4}, range(60, 60 + MIN_BATCHES - 1)),  # chance
    ],
)
def test_a_loader_slower_than_most_is_named(making: dict[int, int] | None, steps: range) -> None:
    """Also where its peers were not seen."""
    said = folded(sequence_of(ONE_LATE, EMPTY, making=making, steps=steps)).view().findings
    assert [one.ranks for one in said if one.id == "straggler"] == [(1,)]


@pytest.mark.parametrize(("workers", "words"), [(2, "would take at best"), (0, "would take ")])
def test_what_a_slower_loader_costs_is_a_bound_where_others_make_batches_ahead(
    workers: int, words: str
) -> None:
    """They wait for the late rank with batches in reserve: how soon they would have the next one nobody saw."""
    found = folded(sequence_of(ONE_LATE, EMPTY, workers=workers)).view().verdict
    assert words in found.sentence
    assert found.at_best == ("at best" in found.sentence) == bool(workers)


def test_what_was_seen_before_a_rank_was_late_clears_nobody() -> None:
    """All loaders were at their limit; then one became slower still, and the others have had time to spare since."""
    job = Job(
        num_ranks=4, num_steps=400, data_s=6 * MS, faults=(Fault("data_wait", (1,), 20 * MS, onset=200),)
    )
    for steps, names in ((range(20, 100, 4), [(1,)]), (range(240, 320, 4), [])):
        said = folded(sequence_of(job, EMPTY, making=dict.fromkeys(range(4), 4), steps=steps)).view().findings
        assert [one.ranks for one in said if one.id == "straggler"] == names


def test_a_rank_that_took_anothers_place_is_not_named() -> None:
    """Of loaders at their limit now this rank is waited for, now that: the step is as long as it was."""
    faults = (Fault("data_wait", (1,), 12 * MS, until=200), Fault("data_wait", (2,), 12 * MS, onset=200))
    job = Job(num_ranks=4, num_steps=400, faults=faults)
    said = (
        folded(sequence_of(job, EMPTY, making=dict.fromkeys(range(4), 4), steps=range(20, 100, 4)))
        .view()
        .findings
    )
    assert "straggler" not in {one.id for one in said}


RESTLESS = Job(
    num_ranks=2, num_steps=29, forward_s=150 * MS, backward_s=50 * MS, noise=0.5, spike_chance=0.0,
    faults=(Fault("data_wait", (1,), 200 * MS, until=17), Fault("data_wait", (1,), 200 * MS, chance=0.6)),
)  # fmt: skip
ON_A_CROWDED_HOST = range(4, 28)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_queues_vouch_for_a_rank_whose_steps_are_of_any_length(seed: int) -> None:
    """A slow data set of one of two ranks: named at step 20 and lost at 22, for by its steps it may be chance.

    Its queue is empty when it asks, the other's full: with time to spare its loader is faster than the step.
    """
    job = replace(RESTLESS, seed=seed)

    def late(making: dict[int, int] | None, others: Queues = READY) -> list[tuple[int, ...]]:
        sequence = sequence_of(job, EMPTY, making=making, others=others, steps=ON_A_CROWDED_HOST)
        return [one.ranks for one in folded(sequence).view().findings if one.id == "straggler"]

    assert [(1,)] == late({0: 0, 1: 4})
    assert [] == late({0: 2, 1: 4})  # the other's workers are as busy
    assert [] == late({0: 0, 1: 1}, EMPTY)  # nor has it a batch ahead
    assert [] == late(None)  # nobody counted


def test_how_much_of_a_rank_s_lateness_its_loader_vouches_for() -> None:
    """What workers alike may wait for a core is taken off; nothing of whom the others' loaders do not outrun."""
    work = np.tile([[0.1], [0.5]], 40)
    data = np.tile([[0.01], [0.41]], 40)
    cycle = np.full(40, 0.5)

    def share(
        *at_limit: float, work: np.ndarray = work, data: np.ndarray = data, span_s: float = 17.0
    ) -> list[float]:
        found = waits_for_its_loader(work, cycle, span_s, data, lambda: np.array(at_limit))
        return found.round(3).tolist()

    assert [0.0, 0.875] == share(0.0, 1.0)  # 1.7 of 17 seconds may be chance: a tenth, beside 0.8 of the step
    assert [0.0, 0.0] == share(0.0, 1.0, span_s=2.0)
    assert [0.0, 0.0] == share(0.5, 1.0)
    assert [0.0, 0.0] == share(0.0, 0.5)
    assert [0.0, 0.0] == share(np.nan, 1.0)
    assert [0.0, 0.0] == share(0.0, np.nan)
    assert [0.0, 0.0] == share(0.0, 1.0, data=data / 10)  # another phase is what it is late by
    in_turn = work.copy()
    in_turn[:, ::2] = in_turn[::-1, ::2]
    assert [0.0, 0.0] == share(0.0, 1.0, work=in_turn)


def waits_alone(
    data_s: tuple[float, ...],
    *,
    idle_s: tuple[float, ...] | None = None,
    span_s: float = 30.0,
    al: float = np.nan,
) -> list[int]:
    """Rows held by their data, of 40 steps of 0.5 s. idle_s: in a pipeline; al: the others' loaders at their limit."""
    num = len(data_s)
    phases = np.full((len(PHASES), num, 40), np.nan)
    phases[PHASES.index("data_wait")] = np.array(data_s)[:, None]
    phases[PHASES.index("pipeline_idle")] = 0.0 if idle_s is None else np.array(idle_s)[:, None]
    table: Any = SimpleNamespace(
        num_ranks=num,
        step_s_RK=np.full((num, 40), 0.5),
        phase_s_PRK=phases,
        step_of=lambda column: column,
    )
    found = held_by_data(table, np.arange(40), span_s, lambda _first: np.full(num, al))
    return [one.row for one in found]


def test_who_waits_for_data_alone_is_told_where_no_arrival_is_seen() -> None:
    """A pipeline whose last stage waited 206 of 573 ms for its targets: "stage 1 takes 31 % longer" was all."""
    assert [1] == waits_alone((0.01, 0.2))
    assert [1] == waits_alone((0.01, 0.2), al=0.1)
    assert [] == waits_alone((0.2, 0.2))
    assert [] == waits_alone((0.01, 0.05))
    assert [] == waits_alone((0.01, 0.2), al=0.9)  # loaders alike: the one that is waited for
    assert [] == waits_alone((0.01, np.nan))
    assert [] == waits_alone((0.01, 0.2), span_s=4.0)  # chance, on a crowded host
    assert [] == waits_alone((0.2,))
    assert [1] == waits_alone((0.01, 0.2, 0.01), idle_s=(0.3, 0.05, 0.3))
    assert [] == waits_alone((0.01, 0.2, 0.01), idle_s=(0.1, 0.05, 0.1))  # while it would wait anyway


def test_loaders_are_asked_only_where_a_rank_waits_for_data() -> None:
    """A view of hundreds of ranks does not read their queues for nothing."""
    calm = np.full((2, 40), 0.1)
    found = waits_for_its_loader(calm, calm[0], 4.0, calm / 10, lambda: pytest.fail("asked"))
    assert [0.0, 0.0] == found.tolist()


def waits(stages: list[Queues], wait_s: list[float]) -> tuple[str, float] | None:
    """(stage, share) of batches of a loader with workers."""
    ready, unpinned, held = np.array(stages, dtype=np.int64).T
    took = np.round(np.array(wait_s) * 1e9).astype(np.int64)
    found = loader_wait(batches_of(took, np.full_like(ready, 2), ready, unpinned, held))
    return None if found is None else (found.stage, round(found.share, 3))


def test_time_decides_not_the_number_of_batches() -> None:
    """Many batches that came at once say nothing against the few that were waited for."""
    assert waits([READY] * 12 + [EMPTY] * 4, [0.0001] * 12 + [0.05] * 4) == ("workers", 0.994)


def test_no_stage_is_named_where_none_holds_most_of_the_time() -> None:
    """Half and half, and too few batches."""
    assert waits([EMPTY] * 8 + [PIN] * 8, [0.01] * 16) == ("", 0.5)
    assert waits([EMPTY] * (MIN_BATCHES - 1), [0.01] * (MIN_BATCHES - 1)) is None


COLUMN = st.one_of(st.integers(-(1 << 62), 1 << 62), st.sampled_from((UNKNOWN, 0, 1, 2, 1 << 20)))


@pytest.mark.slow
@given(st.lists(st.tuples(*[COLUMN] * 7), min_size=1, max_size=12))
def test_rows_that_cannot_be_true_are_left_out(rows: list[tuple[int, ...]]) -> None:
    """From a stranger's recording: counted, never believed."""
    store = LoaderStore()
    columns = dict(zip(EVENT_COLUMNS, np.array(rows, dtype=np.int64).T, strict=True))
    store.add({"rank": np.ones(len(rows), np.int64), "kind": np.full(len(rows), BATCH), **columns}, "node0")
    assert store.num_bad_rows + store._held.num_rows == len(rows)
    assert not store._packed
    store.add({"rank": np.ones(len(rows), np.int64), "kind": np.full(len(rows), PACKED), **columns}, "node0")
    assert store.num_bad_rows + store._held.num_rows + store._packed.num_rows == 2 * len(rows)
    if store._packed:
        tokens, squared = store._packed.table()[[5, 7]].astype(float)
        assert (squared <= tokens**2).all()
    if store._held.num_rows:
        table = store._held.table()
        assert (table[3] >= table[2]).all()
        assert (table[4] >= 0).all()


def test_squared_lengths_of_a_recording_reach_the_late_ranks_words() -> None:
    """Rank 1 is late in forward, and its batches are the longer ones."""
    job = Job(num_ranks=4, faults=(Fault("forward", (1,), 12 * MS),))
    sequence = frames(job)
    rows = [
        (
            rank,
            PACKED,
            step,
            records[step][BEGIN],
            records[step][BEGIN],
            4,
            4096,
            UNKNOWN,
            5_000_000 * (1 + (rank == 1)),
        )
        for rank, records in simulate(job).rows.items()
        for step in DETAIL
    ]
    sequence.append(Frame(FrameKind.EVENTS, "node0/1/1", 900, 10**10, pack_columns(rows, NAMES)))
    (found,) = [one for one in folded(sequence).view().findings if one.id == "straggler"]
    assert "packed sequences: 2.00 times the squared lengths of the others" in found.message
