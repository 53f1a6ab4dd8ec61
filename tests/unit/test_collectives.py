"""Collectives seen one by one: what is moved, how long it takes, who comes last; unknown where it cannot be told."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from snapshot import views
from unit.test_tui_navigator import Keyboard

from tuiadvisor.advisor.detail.collectives import MAX_CALLS, NAMES, Collectives
from tuiadvisor.events import EventKind
from tuiadvisor.views.efficiency import Stack

MS = 1_000_000


def columns(rows: list[tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Columns of rows in the order of NAMES."""
    table = np.array(rows, dtype=np.int64).reshape(len(rows), len(NAMES))
    return {name: table[:, place] for place, name in enumerate(NAMES)}


def burst(
    num_calls: int = 10, kind: int = EventKind.ALL_REDUCE, late: int = 2, ranks: int = 4
) -> list[tuple[int, ...]]:
    """Calls of 8 MB in which one rank enters 3 ms after the others; 2 ms after that all are through."""
    rows = []
    for seq in range(num_calls):
        begin = (100 + 20 * seq) * MS
        for rank in range(ranks):
            entered = begin + (3 * MS if rank == late else 0)
            rows.append(
                (rank, kind, seq // 2, entered, begin + 5 * MS, 0, seq, 8_000_000, MS if rank == 0 else -1)
            )
    return rows


def test_skew_transfer_and_last_arriver() -> None:
    """3 ms from first to last, 2 ms of transfer, 4 GB/s, rank 2 always last, two calls a step."""
    held = Collectives()
    held.take(columns(burst()))
    (row,) = held.rows(4, 1)
    assert ("all_reduce", 8_000_000, 2, 1.0, 4, 10) == (
        row.op, row.num_bytes, row.last_rank, row.last_share, row.num_ranks, row.num_seen,
    )  # fmt: skip
    assert (0.003, 0.002) == (row.skew_s, row.transfer_s)
    assert 4e9 == row.bytes_s
    assert 2.0 == row.per_step
    assert 0.00425 == row.time_s
    assert 0.001 == row.hidden_s


def test_ranks_that_are_told_one_after_the_other_are_compared() -> None:
    """Of 48 calls a rank, the second rank's first ones drove out the last ones of the first: none had two ranks."""
    held = Collectives()
    rows = sorted(burst(48, late=1, ranks=2))
    for rank in range(2):
        held.take(columns([row for row in rows if row[0] == rank]))
    (row,) = held.rows(2, 1)
    assert (2, MAX_CALLS, 1, 1.0) == (row.num_ranks, row.num_seen, row.last_rank, row.last_share)


def test_a_job_that_starts_again_counts_anew() -> None:
    """Its first calls have smaller numbers than those before, and are the latest."""
    held = Collectives()
    held.take(columns(burst(80, late=1, ranks=2)))
    again = [
        (rank, kind, step, begin + 10**10, end + 10**10, *rest)
        for rank, kind, step, begin, end, *rest in burst(40, late=0, ranks=2)
    ]
    held.take(columns(again))
    (row,) = held.rows(2, 1)
    assert (19, 0, 1.0, MAX_CALLS) == (row.last_step, row.last_rank, row.last_share, row.num_seen)


def test_what_cannot_be_compared_is_unknown() -> None:
    """Several hosts have clocks of their own; a rank that was not seen may have been the last one."""
    held = Collectives()
    held.take(columns(burst()))
    for world_size, num_hosts in ((4, 2), (8, 1), (None, 1), (1, 1)):
        (row,) = held.rows(world_size, num_hosts)
        assert [None] * 5 == [row.skew_s, row.transfer_s, row.bytes_s, row.last_rank, row.last_share]
        assert 0.00425 == row.time_s


def test_calls_of_groups_that_only_share_a_number_are_not_mixed() -> None:
    """All-reduces that do not overlap in time cannot be the same call."""
    rows = [
        (
            rank,
            EventKind.ALL_REDUCE,
            0,
            (100 + 50 * (rank // 2)) * MS,
            (105 + 50 * (rank // 2)) * MS,
            1,
            0,
            64,
            -1,
        )
        for rank in range(4)
    ]
    held = Collectives()
    held.take(columns(rows))
    (row,) = held.rows(4, 1)
    assert row.skew_s is None


def test_hostile_rows_and_endless_runs_are_bounded() -> None:
    """Nonsense is left out; memory does not grow with the run, and an unchanged answer is not computed again."""
    held = Collectives()
    held.take(
        columns([(-1, 1, 0, 5, 9, 0, 0, 8, 0), (0, 1, 0, 9, 5, 0, 0, 8, 0), (0, 99, 0, 5, 9, 0, 0, 8, 0)])
    )
    held.take(columns([(0, 1, 0, 5, 9, -1, -1, 8, 0), (0, 12, 0, 5, 9, 0, 0, 8, 0)]))
    assert () == held.rows(4, 1)
    for size in range(200):
        held.take(columns([(0, 1, 0, 5, 9, 0, seq, size, -5) for seq in range(100)]))
    rows = held.rows(1, 1)
    assert 64 == len(rows)
    assert {MAX_CALLS} == {row.num_seen for row in rows}
    assert rows is held.rows(1, 1)


def test_the_screen_shows_lanes_shares_and_calls() -> None:
    """Hidden under backward, exposed behind it; each collective with its last arriver, unknown as unknown."""
    text = Keyboard(views.live(views.detailed())).press("4")
    for part in (
        "▏hidden",
        "▏exposed",
        "31 %  of all communication, behind compute",
        "gradient comm",
        "rank 2, 98 %",
    ):
        assert part in text
    assert "all-reduce         25.6 MB      12  2.10 ms   900 µs   800 µs  rank 2, 94 %\n" in text
    assert "broadcast" in text


def test_what_a_loop_without_a_wrapper_sends_is_called_its_own() -> None:
    """Four all_gather in forward stood under "gradient comm", beside words about DDP's buckets."""
    view = replace(views.detailed(), stack=Stack({"models": 1}))
    assert "loop's own comm" in Keyboard(views.live(view)).press("4")
    unseen = Keyboard(views.live(replace(view, collectives=()))).press("4")
    assert "Which collectives the loop calls was not seen yet" in unseen
    for text in (Keyboard(views.live(view)).press("4"), unseen):
        assert "gradient comm" not in text
        assert "DDP's own all-reduces" not in text
    wrapped = replace(view, stack=Stack({"models": 1, "wrappers": "DDP"}))
    assert "gradient comm" in Keyboard(views.live(wrapped)).press("4")


def test_steps_seen_in_detail_are_not_denied_where_their_communication_was_not_timed() -> None:
    """The title said "no step seen in detail", the sentence below that steps were."""
    view = views.detailed()
    view = replace(view, overlap=replace(view.overlap, sampled_share=None))
    text = Keyboard(views.live(view)).press("4")
    assert "no step seen in detail" not in text
    assert "* seen in no step" in text


def test_what_was_not_seen_names_the_reason_and_the_way() -> None:
    """No zero, no empty table: why, and what would show it."""
    text = Keyboard(views.live(views.unknown_everything())).press("4")
    assert "unknown: no phase seen yet" in text
    assert "no step was watched in detail" in text
    assert "tuiadvisor import kineto" in text
