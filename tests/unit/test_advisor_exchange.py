"""A gradient exchange bucket by bucket, from recorded events to the verdict's words; and events that cannot be true."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_run import Job, folded, frames, simulate

from tuiadvisor.advisor.detail.bucket_store import BucketStore
from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.events import EVENT_COLUMNS, STEP_COLUMNS, EventKind
from tuiadvisor.report.document import document
from tuiadvisor.report.sections import communication
from tuiadvisor.stream.columns import unpack_columns
from tuiadvisor.stream.frames import Frame, FrameKind, pack_columns
from tuiadvisor.tui.pages.once import plain_summary
from tuiadvisor.views.run_view import RunView

MS = 1e-3
MS_NS = 1_000_000
MIB = 1 << 20
NAMES = ("rank", "kind", *EVENT_COLUMNS)
JOB = Job(num_ranks=2, num_steps=80, backward_s=40 * MS, transfer_s=20 * MS, noise=0.01, spike_chance=0.0)
DETAIL = (20, 21, 22, 23, 50, 51, 52, 53)
BEGIN, ARRIVE, RELEASE = (1 + STEP_COLUMNS.index(name) for name in ("begin_ns", "arrive_ns", "release_ns"))
Row = tuple[int, ...]


def exchange(
    rank: int,
    step: int,
    arrive_ns: int,
    release_ns: int,
    buckets: tuple[int, ...] = (0, 0, 0, 0),
    *,
    piece_bytes: int = 5 * MIB,
) -> list[Row]:
    """Rows of one backward of 40 ms: pieces of so many bytes every 10 ms, the last one at the arrival."""
    rows: list[Row] = []
    for place, bucket in enumerate(buckets):
        ready = arrive_ns - (len(buckets) - 1 - place) * 10 * MS_NS
        rows.append((rank, int(EventKind.BUCKET_PIECE), step, ready, ready, bucket, place, piece_bytes, 1))
    num_bytes = piece_bytes * len(buckets)
    closing = (
        rank,
        int(EventKind.GRADIENT_BUCKETS),
        step,
        arrive_ns - 40 * MS_NS,
        release_ns,
        buckets[-1] + 1,
        len(buckets),
        num_bytes,
        num_bytes // 4,
    )
    return [*rows, closing]


def told(
    job: Job,
    steps: tuple[int, ...] = DETAIL,
    buckets: tuple[int, ...] = (0, 0, 0, 0),
    *,
    piece_bytes: int = 5 * MIB,
) -> list[Row]:
    """The exchanges of all ranks in these steps, at the moments of the simulated run."""
    rows = simulate(job).rows
    return [
        row
        for rank in rows
        for step in steps
        for row in exchange(
            rank, step, rows[rank][step][ARRIVE], rows[rank][step][RELEASE], buckets, piece_bytes=piece_bytes
        )
    ]


def advised(job: Job, events: list[Row], num_cpus: int = 16) -> Advisor:
    """An advisor that has seen the run and these events, each host's from its own agent."""
    sequence = frames(job)
    for frame in sequence:
        if frame.kind == FrameKind.HELLO:
            frame.payload["num_cpus"] = num_cpus
    for host in sorted({job.host(row[0]) for row in events}):
        own = [row for row in events if job.host(row[0]) == host]
        sequence.append(Frame(FrameKind.EVENTS, f"{host}/1/1", 900, 10**10, pack_columns(own, NAMES)))
    return folded(sequence)


def view_of(job: Job, events: list[Row], num_cpus: int = 16) -> RunView:
    """What is shown of it."""
    return advised(job, events, num_cpus).view()


def test_one_bucket_that_could_be_four() -> None:
    """20 MiB in 20 ms after the last arrival; in fours only the last 5 ms stay exposed."""
    view = view_of(JOB, told(JOB))
    seen = view.exchange
    assert seen is not None
    assert (len(DETAIL), 20 * MIB, "smaller_buckets", 5) == (
        seen.num_steps,
        seen.num_bytes,
        seen.lever,
        seen.best_cap_mib,
    )
    assert 20 * MS == pytest.approx(seen.exposed_s, rel=0.03)
    assert 15 * MS == pytest.approx(seen.hideable_s, rel=0.03)
    assert 15 * MS == pytest.approx(seen.saved_s, rel=0.03)
    assert 0.5 == pytest.approx(seen.ratio, rel=0.05)
    assert 5 * MS == pytest.approx(seen.start_cost_s, rel=0.03)  # three more buckets for 15 ms
    assert seen.saved_s <= (view.overlap.transfer_s or 0)
    (finding,) = [one for one in view.findings if one.id == "communication_bound"]
    assert "bucket_cap_mb=5" in finding.message
    assert seen.hideable_s == finding.evidence["bucket_hideable_s"]
    assert document(view)["exchange"]["num_steps"] == len(DETAIL)  # type: ignore[index]


def other_buckets(cap_mib: int) -> tuple[int, ...]:
    """The bucket of each of the four pieces of 5 MiB if DDP fills them up to this size."""
    a_bucket = -(-cap_mib // 5)
    return tuple(piece // a_bucket for piece in range(4))


def exposed_by_a_link(buckets: tuple[int, ...], transfer_s: float) -> float:
    """Seconds after the last gradient at which a link that takes transfer_s for all has moved the last bucket."""
    free_s = -math.inf
    for bucket in sorted(set(buckets)):
        last = max(piece for piece, where in enumerate(buckets) if where == bucket)
        ready_s = (last - 3) * 10 * MS
        free_s = max(free_s, ready_s) + transfer_s * buckets.count(bucket) / 4
    return free_s


@pytest.mark.slow
@pytest.mark.parametrize("transfer_s", [4 * MS, 20 * MS, 60 * MS, 200 * MS])
def test_what_other_buckets_promise_is_what_the_run_with_them_exposes(transfer_s: float) -> None:
    """On any link, fast or slow: the same training again with the recommended size exposes what was said."""
    one = replace(JOB, transfer_s=transfer_s)
    before = view_of(one, told(one)).exchange
    assert before is not None
    assert before.best_cap_mib is not None
    buckets = other_buckets(before.best_cap_mib)
    again = replace(JOB, transfer_s=exposed_by_a_link(buckets, transfer_s))
    after = view_of(again, told(again, buckets=buckets)).exchange
    assert after is not None
    assert len(set(buckets)) == len(after.buckets) > 1
    assert transfer_s == pytest.approx(after.transfer_s, rel=0.05)
    (said,) = [choice.exposed_s for choice in before.sizes if choice.cap_mib == before.best_cap_mib]
    assert said == pytest.approx(after.exposed_s, rel=0.05)
    assert before.exposed_s - after.exposed_s == pytest.approx(before.saved_s, rel=0.05)
    assert 0 < before.saved_s <= before.hideable_s <= before.exposed_s


@pytest.mark.parametrize(("transfer_s", "share"), [(20 * MS, 0.75), (200 * MS, 0.15), (2.0, 0.015)])
def test_the_less_compute_beside_the_exchange_the_less_can_be_hidden(transfer_s: float, share: float) -> None:
    """Gradients become ready within 30 ms: of 20 ms three quarters can be hidden, of more at most those 30 ms."""
    job = replace(JOB, transfer_s=transfer_s)
    seen = view_of(job, told(job)).exchange
    assert seen is not None
    assert share == pytest.approx(seen.hideable_s / seen.exposed_s, rel=0.05)
    assert seen.ratio == pytest.approx(transfer_s / (40 * MS), rel=0.05)


def test_summary_and_report_say_it_in_words_and_draw_its_lanes() -> None:
    """Each lane and bucket has its name in letters; without buckets there is no such part."""
    view = view_of(JOB, told(JOB))
    assert "bucket_cap_mb=5 would save" in plain_summary(view)
    page = communication(view)
    assert "bucket_cap_mb=5 would save" in page
    for name in ("backward", "buckets", "5 MiB each", "bucket by bucket"):
        assert name in page
    assert "bucket by bucket" not in communication(view_of(JOB, []))


def test_a_mean_beside_a_median_is_called_one() -> None:
    """The only bucket left 471 us into backward and took 5.46 ms, a median: "transfer outlasts it by 5.93", a mean."""
    seen = view_of(JOB, told(JOB)).exchange
    assert seen is not None
    moving, beyond, *_ = seen.words
    assert re.search(r" takes [\d.]+ ms at [\d.]+ GB/s in the median step, ", moving)
    assert re.search(r"outlasts backward by [\d.]+ ms in the mean; ", beyond)


def test_all_lanes_of_the_picture_are_equally_long() -> None:
    """The parts of each sum to the same time, so one scale shows them."""
    seen = view_of(JOB, told(JOB)).exchange
    assert seen is not None
    lengths = [sum(one.seconds for one in segments) for _, segments in seen.lanes]
    assert ["backward", "buckets", "5 MiB each"] == [name for name, _ in seen.lanes]
    assert lengths == pytest.approx([60 * MS] * 3, rel=0.03)
    assert [None, 1, 2, 3, 4] == sorted(
        {one.bucket for one in seen.lanes[2][1]}, key=lambda number: number or 0
    )


def test_where_compute_and_exchange_share_cores_the_gain_may_be_nothing() -> None:
    """Two cores, two ranks that compute on 0.82 of one: the exchange finds 0.18 of a core beside each."""
    job = replace(JOB, data_s=0.0, other_s=0.0, optimizer_s=4 * MS)
    free, shared = (view_of(job, told(job), num_cpus).exchange for num_cpus in (16, 2))
    assert free is not None
    assert shared is not None
    busy_s = (
        50 * MS
    )  # forward 6, backward 40, optimizer 4; the first two on the processor for 0.9 of their time
    left = 1 - 0.9 * 46 * MS / busy_s
    assert (1.0, pytest.approx(left, rel=0.05)) == (free.core_left, shared.core_left)
    assert 0 == shared.saved_low_s < shared.saved_s < shared.saved_high_s
    assert left * free.saved_s == pytest.approx(shared.saved_s, rel=0.05)
    assert free.hideable_s == shared.hideable_s
    assert any("of a core" in text for text in shared.words)


def test_buckets_that_leave_as_they_are_ready_leave_nothing_to_gain() -> None:
    """Four buckets already, only the last one exposed: no size of buckets helps."""
    job = replace(JOB, transfer_s=5 * MS)
    seen = view_of(job, told(job, buckets=(0, 1, 2, 3))).exchange
    assert seen is not None
    assert ("last_gradients", None, 0.0) == (seen.lever, seen.best_cap_mib, seen.saved_s)
    assert 10 * MS == pytest.approx(seen.buckets[0].ready_s, rel=0.05)
    assert 4 == len(seen.buckets)


def test_a_model_smaller_than_the_smallest_buckets_is_not_told_two_things() -> None:
    """What could be hidden at most, and that no size helps: both are true only where the sizes are named."""
    seen = view_of(JOB, told(JOB, piece_bytes=MIB // 8)).exchange
    assert seen is not None
    assert ("last_gradients", None) == (seen.lever, seen.best_cap_mib)
    assert 15 * MS == pytest.approx(seen.hideable_s, rel=0.03)
    words = " ".join(seen.words)
    assert "None of it by buckets of 1 MiB or more" in words
    assert "No size of buckets helps" not in words


def test_an_exchange_that_ends_with_backward_leaves_nothing_to_hide() -> None:
    """Released the moment the last rank arrives: no rate is known, and none is needed."""
    rows = simulate(JOB).rows
    last = {step: max(rows[rank][step][ARRIVE] for rank in rows) for step in DETAIL}
    events = [row for rank in rows for step in DETAIL for row in exchange(rank, step, last[step], last[step])]
    view = view_of(JOB, events)
    seen = view.exchange
    assert seen is not None
    assert (None, "nothing_exposed", 0.0, 0.0) == (
        seen.rate_bytes_s,
        seen.lever,
        seen.hideable_s,
        seen.saved_s,
    )
    assert 20 * MIB == seen.num_bytes
    assert "nothing to hide" in plain_summary(view)


def test_the_last_rank_decides_when_a_bucket_can_start() -> None:
    """A rank 6 ms late moves all buckets; waiting for it is no transfer and cannot be hidden."""
    job = replace(JOB, seed=3)
    rows = simulate(job).rows
    late = [
        row
        for rank in rows
        for step in DETAIL
        for row in exchange(
            rank, step, rows[1][step][ARRIVE] - (0 if rank else 6 * MS_NS), rows[1][step][RELEASE]
        )
    ]
    seen = view_of(job, late).exchange
    assert seen is not None
    exposed_s = sum(rows[1][step][RELEASE] - rows[1][step][ARRIVE] for step in DETAIL) / len(DETAIL) * 1e-9
    assert exposed_s == pytest.approx(seen.exposed_s, rel=1e-6)


def test_hosts_whose_clocks_differ_meet_at_the_release() -> None:
    """Half a second between two hosts' clocks changes nothing."""
    apart = replace(JOB, ranks_per_host=1, host_clock_s={1: 0.5})
    near, far = view_of(JOB, told(JOB)).exchange, view_of(apart, told(apart)).exchange
    assert near is not None
    assert far is not None
    assert near.exposed_s == pytest.approx(far.exposed_s, rel=0.05)
    assert near.hideable_s == pytest.approx(far.hideable_s, rel=0.05)


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ([], "no steady step"),
        (told(JOB, steps=DETAIL[:3]), "only 3 steady steps"),
        ([row for row in told(JOB) if row[0] == 0], "no steady step"),
    ],
)
def test_without_enough_it_is_unknown_with_its_reason(events: list[Row], why: str) -> None:
    """Nothing in detail (an older recording), too few steps, or only one of the ranks."""
    view = view_of(JOB, events)
    assert view.exchange is None
    assert [why] == [one.why[: len(why)] for one in view.unknown if one.metric == "buckets"]


def test_a_device_says_nothing_by_its_hosts_clock() -> None:
    """On a device the host's times are those of launches."""
    sequence = frames(JOB)
    for entry in sequence[0].payload["ranks"]:  # type: ignore[attr-defined]
        entry["device"] = "cuda:0"
    rows = Frame(FrameKind.EVENTS, "node0/1/1", 900, 10**10, pack_columns(told(JOB), NAMES))
    view = folded([*sequence, rows]).view()
    assert view.exchange is None
    assert any(one.metric == "buckets" and "device" in one.why for one in view.unknown)


def test_a_loop_without_a_wrapper_has_no_buckets_to_resize() -> None:
    """Its reason is the missing wrapper, not a bucket of DDP that nobody saw."""
    sequence = frames(JOB)
    for entry in sequence[0].payload["ranks"]:  # type: ignore[attr-defined]
        entry["model"] = {"models": 1, "params": 1000}
    view = folded(sequence).view()
    (why,) = [one.why for one in view.unknown if one.metric == "buckets"]
    assert why.startswith("no wrapper (DDP, FSDP, DeepSpeed) was seen on the model")


def test_an_earlier_moment_shows_what_was_seen_by_then() -> None:
    """Back at step 30 only the first burst has been seen."""
    view = advised(JOB, told(JOB)).view_at(30)
    assert view.exchange is not None
    assert 4 == view.exchange.num_steps


def test_a_piece_that_is_missing_makes_its_exchange_no_exchange() -> None:
    """Lost, doubled or of other bytes than the closing row says: left out, the others stay."""
    events = told(JOB)
    without = events[:1] + events[2:]
    doubled = events[:1] + events
    other = [events[0], (*events[1][:-2], 4 * MIB, 1), *events[2:]]
    for rows in (without, doubled[1:2] + events, other):
        seen = view_of(JOB, rows).exchange
        assert seen is not None
        assert seen.num_steps in (len(DETAIL) - 1, len(DETAIL))
    assert len(DETAIL) - 1 == view_of(JOB, without).exchange.num_steps  # type: ignore[union-attr]
    assert len(DETAIL) - 1 == view_of(JOB, other).exchange.num_steps  # type: ignore[union-attr]


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.integers(-2, 3),
            st.sampled_from((int(EventKind.GRADIENT_BUCKETS), int(EventKind.BUCKET_PIECE))),
            st.integers(-1, 100),
            *[st.integers(-(1 << 62), 1 << 62) | st.integers(-1, 12) for _ in range(6)],
        ),
        max_size=60,
    )
)
def test_no_rows_whatever_end_in_a_traceback(rows: list[Row]) -> None:
    """Hostile rows beside the true ones: dropped, or of no consequence."""
    view = view_of(JOB, told(JOB) + rows)
    assert view.exchange is None or view.exchange.num_steps <= len(DETAIL) + 2


def test_rows_beyond_belief_are_counted() -> None:
    """A negative clock, an hour of backward, no bytes."""
    store = BucketStore()
    good = told(JOB)[:5]
    bad = [(*good[0][:3], -5, *good[0][4:]), (*good[0][:7], 0, 1), (*good[4][:4], 1 << 60, *good[4][5:])]
    store.add(unpack_columns(pack_columns(good + bad, NAMES), NAMES), "node0")
    assert 3 == store.num_bad_rows
