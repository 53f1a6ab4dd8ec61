"""A rank belongs to the source that introduced it: what others who hold the same key say of it is not believed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from synthetic_run import STEP_NAMES, Job, encoded, folded, frames, hello, restarted, simulate

from tuiadvisor.advisor.cluster.owners import Owners, foreign
from tuiadvisor.advisor.compare.comparing import measure
from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.events import EVENT_COLUMNS, EventKind
from tuiadvisor.exporters.parquet import export_parquet
from tuiadvisor.stream.attendance import AGENT_RETURNED, AGENT_SILENT
from tuiadvisor.stream.frames import HUB_SOURCE, Frame, FrameKind, pack_columns, unpack_columns
from tuiadvisor.views.run_view import RunView

JOB = Job(num_steps=120)
OWNER, OTHER = "node0/1/1", "node0/666/1"
EVENT_NAMES = ("rank", "kind", *EVENT_COLUMNS)
IGNORED = "another source also sends"


def steps(source: str, ranks: tuple[int, ...], seq: int, slower: int = 1, again: bool = False) -> Frame:
    """Steps of these ranks; slower: each takes so many times as long; again: of the job's next incarnation."""
    run = restarted(JOB, JOB.num_steps) if again else simulate(JOB)
    rows = []
    for row in (row for rank in ranks for row in run.rows[rank]):
        begin, end = row[2], row[3]
        rows.append((*row[:2], begin, begin + slower * (end - begin), *row[4:]))
    return Frame(FrameKind.STEPS, source, seq, max(row[3] for row in rows), pack_columns(rows, STEP_NAMES))


def introduction(source: str, *ranks: int, state: str = "live", pid: int = 7000, seq: int = 0) -> Frame:
    """A HELLO that names these ranks alone."""
    frame = hello(JOB, "node0", seq)
    entries = [
        {**entry, "pid": pid + entry["rank"], "state": state}
        for entry in frame.payload["ranks"]
        if entry["rank"] in ranks
    ]
    return replace(frame, source=source, payload={**frame.payload, "ranks": entries})


def status(source: str, seq: int, **states: str) -> Frame:
    """A STATUS of ranks r0, r1 and so on."""
    entries = [{"rank": int(name[1:]), "state": state} for name, state in states.items()]
    payload = {"host": "node0", "mono_ns": 10**9, "wall_ns": 10**18, "ranks": entries}
    return Frame(FrameKind.STATUS, source, seq, 10**9, payload)


def gap(what: str, source: str) -> Frame:
    """What the hub says of an agent."""
    payload = {"what": what, "source": source, "num_frames": None, "why": "not heard for 3.1 s"}
    return Frame(FrameKind.GAP, HUB_SOURCE, 0, 1, payload)


def last_steps(advisor: Advisor) -> dict[int, int]:
    """The newest step of each rank."""
    tracks = advisor.store.tracks
    return dict(zip(tracks.rank.tolist(), tracks.last_step.tolist(), strict=True))


def ignored(view: RunView) -> list[str]:
    """The sentences of the view about other sources."""
    return [note for note in view.losses.notes if note.startswith(IGNORED)]


def without_it(view: RunView) -> RunView:
    """All but the sentence, and what counts every frame."""
    notes = tuple(note for note in view.losses.notes if not note.startswith(IGNORED))
    return replace(view, num_frames=0, event_time_s=None, losses=replace(view.losses, notes=notes))


FORGED = [
    introduction(OTHER, 3),
    steps(OTHER, (3,), 1, slower=3),
    status(OTHER, 2, r3="killed"),
    status(OTHER, 3, r3="live"),
    Frame(FrameKind.HOST, OTHER, 4, 10**9, {"mono_ns": 10**9, "ranks": [{"rank": 3, "run_delay_s": 9.0}]}),
]


@pytest.mark.parametrize("in_one_go", [True, False])
@pytest.mark.parametrize("every", [2, 3])
def test_steps_of_a_rank_from_another_source_are_not_believed(in_one_go: bool, every: int) -> None:
    """With the forged frames between its own, the run looks as without them, but for one sentence."""
    honest = frames(JOB, rows_per_frame=10)
    mixed: list[Frame] = []
    seq = 0
    for number, frame in enumerate(honest):
        mixed.append(frame)
        if number >= 1 and number % every == 0:
            mixed += [replace(one, seq=seq + one.seq) for one in FORGED]
            seq += len(FORGED)
    advisor = Advisor()
    if in_one_go:
        advisor.feed_many(map(encoded, mixed))
    else:
        for frame in mixed:
            advisor.feed(encoded(frame))
    view = advisor.view()
    assert ignored(view) == ["another source also sends rank 3: ignored"]
    assert without_it(view) == without_it(folded(honest).view())


def forged_among(honest: list[Frame]) -> list[bytes]:
    """The run's own frames, each followed by steps of rank 3 that somebody else sends."""
    many = simulate(replace(JOB, samples=9999)).rows[3]
    forged = Frame(FrameKind.STEPS, OTHER, 0, 10**9, pack_columns(many, STEP_NAMES))
    pairs = [(frame, replace(forged, seq=seq)) for seq, frame in enumerate(honest)]
    return [encoded(frame) for pair in pairs for frame in pair]


def test_a_comparison_counts_no_steps_of_others() -> None:
    """What one step does is not told by who makes steps up."""
    honest = frames(JOB, rows_per_frame=10)
    before = measure("a.tuirec", map(encoded, honest))
    assert before.unit == measure("a.tuirec", forged_among(honest)).unit
    assert before.unit.samples_per_step == JOB.samples * JOB.num_ranks


def test_tables_hold_no_steps_of_others(tmp_path: Path) -> None:
    """An export has the rows that the fold took, and those alone."""
    parquet = pytest.importorskip("pyarrow.parquet")
    honest = frames(JOB, rows_per_frame=10)
    tables = []
    for name, data in (("honest", [*map(encoded, honest)]), ("forged", forged_among(honest))):
        export_parquet(lambda _, data=data: iter(data), tmp_path / name)  # type: ignore[misc]
        tables.append(parquet.read_table(tmp_path / name / "steps.parquet").to_pylist())
    assert tables[0] == tables[1]
    assert len(tables[0]) == JOB.num_ranks * JOB.num_steps


def test_rows_of_a_frame_that_are_the_senders_own_count() -> None:
    """A frame is not thrown away for one rank in it that is another's."""
    advisor = folded(
        [introduction(OWNER, 0, 1), introduction(OTHER, 2), steps(OTHER, (1, 2), 1), steps(OWNER, (0,), 1)]
    )
    assert set(last_steps(advisor)) == {0, 2}
    assert ignored(advisor.view()) == ["another source also sends rank 1: ignored"]


def test_the_sentence_stays_one_however_many_ranks_are_contested() -> None:
    """It names the first of them and counts the rest."""
    owners = Owners()
    owners.note(range(2000))
    assert owners.sentences() == ["another source also sends ranks 0, 1, 2, 3 and 1996 more: ignored"]


def test_events_of_a_rank_from_another_source_are_not_believed() -> None:
    """Collectives that only the intruder tells of are in no table."""
    rows = [(3, EventKind.ALL_REDUCE, k, 10**9 + k, 10**9 + k + 500, 1, k, 4096, 0) for k in range(50)]
    assert len(rows[0]) == len(EVENT_NAMES)
    events = Frame(FrameKind.EVENTS, OTHER, 1, 10**9, pack_columns(rows, EVENT_NAMES))
    advisor = folded([introduction(OWNER, 3), introduction(OTHER), events])
    assert advisor.collectives.rows(4, 1) == ()
    assert ignored(advisor.view()) == ["another source also sends rank 3: ignored"]
    assert folded([replace(events, source=OWNER)]).collectives.rows(4, 1) != ()


@pytest.mark.slow
@pytest.mark.parametrize(
    "farewell",
    [
        [Frame(FrameKind.BYE, OWNER, 5, 10**9, {"reason": "stopped by SIGTERM"})],
        [gap(AGENT_SILENT, OWNER)],
        [status(OWNER, 5, r3="exited")],
        [status(OWNER, 5, r3="killed")],
        [status(OWNER, 5, r3="detached")],
        [introduction(OWNER, 0, 1, 2, seq=5)],
    ],
    ids=["bye", "silent", "exited", "killed", "detached", "not named any more"],
)
def test_a_rank_let_go_belongs_to_who_introduces_it_next(farewell: list[Frame]) -> None:
    """An agent started anew, or the agent of the node on which an elastic restart put the rank."""
    before = [introduction(OWNER, 0, 1, 2, 3, pid=100), steps(OWNER, (3,), 1)]
    after = [introduction(OTHER, 3, pid=9000), steps(OTHER, (3,), 1, again=True)]
    advisor, in_one_go = folded([*before, *farewell, *after]), Advisor()
    in_one_go.feed_many(map(encoded, [*before, *farewell, *after]))
    assert in_one_go.view() == advisor.view()
    assert (advisor.roster.ranks[3].source, advisor.roster.ranks[3].pid) == (OTHER, 9003)
    assert advisor.store.tracks.num_restarts == 1
    assert ignored(advisor.view()) == []


def test_steps_sent_before_a_rank_changes_hands_are_the_former_owners() -> None:
    """Wherever batches are cut: what came before the change is judged by the owners of then."""
    sequence = [
        introduction(OWNER, 0, 1, 2, 3),
        steps(OWNER, (0, 3), 1),
        steps(OTHER, (3,), 1, slower=3),
        gap(AGENT_SILENT, OWNER),
        introduction(OTHER, 3, seq=2),
        steps(OWNER, (3,), 2, slower=3),
        steps(OTHER, (3,), 3, again=True),
    ]
    advisor, in_one_go = folded(sequence), Advisor()
    in_one_go.feed_many(map(encoded, sequence))
    assert in_one_go.view() == advisor.view()
    assert (advisor.store.tracks.num_restarts, advisor.store.num_bad_rows) == (1, 0)
    assert int(advisor.store.tracks.num_rows[advisor.store.tracks.rank == 3][0]) == JOB.num_steps


def test_who_came_too_early_has_the_rank_when_its_owner_lets_it_go() -> None:
    """It introduces itself once only: what it said of its process then is kept, and not what a third says."""
    third = introduction("node9/1/1", 3, pid=1, state="found")
    second = introduction(OTHER, 3, pid=9000, state="found")
    early = [introduction(OWNER, 3, pid=100), second, third]
    advisor = folded([*early, status(OWNER, 5, r3="exited"), status(OTHER, 6, r3="live")])
    facts = advisor.roster.ranks[3]
    assert (facts.source, facts.pid, facts.state) == (OTHER, 9003, "live")
    assert ignored(advisor.view()) == []


def test_the_end_of_a_former_process_takes_no_rank_over() -> None:
    """The agent it ran under goes on to say that it ended, beside the agent that has the rank now."""
    taken = [introduction(OWNER, 3), status(OWNER, 1, r3="exited"), introduction(OTHER, 3)]
    advisor = folded([*taken, status(OWNER, 2, r3="exited"), status(OTHER, 3, r3="killed")])
    advisor.feed_frame(status(OWNER, 4, r3="exited"))
    facts = advisor.roster.ranks[3]
    assert (facts.source, facts.state) == (OTHER, "killed")


def test_an_owner_that_was_silent_and_returns_has_its_ranks_unless_somebody_took_them() -> None:
    """A stalled network alone takes nothing away."""
    silence = [introduction(OWNER, 3), gap(AGENT_SILENT, OWNER)]
    returned = [gap(AGENT_RETURNED, OWNER), steps(OWNER, (3,), 9)]
    kept = folded([*silence, *returned, introduction(OTHER, 3), steps(OTHER, (3,), 1, again=True)])
    assert (kept.roster.ranks[3].source, kept.store.tracks.num_restarts) == (OWNER, 0)
    taken = folded([*silence, introduction(OTHER, 3), *returned])
    assert (taken.roster.ranks[3].source, last_steps(taken)) == (OTHER, {})


def test_no_clock_of_a_source_makes_another_one_silent() -> None:
    """A frame may claim any time: only the hub says who is not heard."""
    late = replace(introduction(OTHER, 3), time_ns=1 << 60)
    advisor = folded([introduction(OWNER, 3), steps(OWNER, (3,), 1), late, status(OTHER, 1, r3="killed")])
    assert advisor.roster.ranks[3].source == OWNER


def test_steps_without_an_introduction_count() -> None:
    """A recording may lack the frame that named the ranks: nobody else's they are."""
    frame = steps(OTHER, (0, 1), 1)
    assert set(last_steps(folded([frame]))) == {0, 1}
    assert unpack_columns(frame.payload, ("rank",))["rank"].max() == 1


def test_ranks_beyond_the_table_are_nobodys() -> None:
    """Hostile numbers fall to no source, and no table grows for them."""
    owners = Owners()
    before = owners.lend()
    owners.give(0, 5)
    owners.give(100_000, 6)
    table = owners.lend()
    ranks = np.array([0, 100_000, 100_001, 1 << 60, 99])
    assert foreign(table, ranks, 7).tolist() == [True, True, False, False, False]
    assert not foreign(before, ranks, 7).any()
