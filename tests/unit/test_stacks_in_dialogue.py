"""What sampled stacks show is an answer: it moves the dialogue's causes, and stands there as answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from snapshot import desks, views
from synthetic_run import MS, Fault, Job
from test_tui_navigator import Keyboard
from unit.test_named_lines import looked_at
from unit.test_stack_cards import card

from tuiadvisor.agent.stack_samples import packed
from tuiadvisor.metrics.cover import MIN_COVER
from tuiadvisor.session.conduct import Session, conduct
from tuiadvisor.session.guided import guided
from tuiadvisor.session.intent import Intent
from tuiadvisor.session.recorded import Recorded
from tuiadvisor.session.spoken import moment_lines
from tuiadvisor_rules.questions import load_questions

if TYPE_CHECKING:
    from tuiadvisor.views.run_view import RunView

TORCH = "/venv/lib/python3.11/site-packages/torch"
PLACES = [
    ("main", "/home/me/job/train.py", 80),
    ("__getitem__", "/home/me/job/data.py", 9),
    ("fetch", f"{TORCH}/utils/data/_utils/fetch.py", 52),
    ("_next_data", f"{TORCH}/utils/data/dataloader.py", 700),
    ("all_reduce", f"{TORCH}/distributed/distributed_c10d.py", 2800),
    ("forward", "/home/me/job/duties.py", 12),
    ("linear", f"{TORCH}/nn/modules/linear.py", 125),
    ("_engine_run_backward", f"{TORCH}/autograd/graph.py", 840),
    ("_worker_loop", f"{TORCH}/utils/data/_utils/worker.py", 340),
    ("collate", "/home/me/job/data.py", 40),
    ("get", "/usr/lib/python3.11/multiprocessing/queues.py", 113),
    ("sync", "/home/me/job/train.py", 99),
    ("main", "/home/me/job/train.py", 70),
]
IN_DATASET, WAITS_FOR_BATCH = [1, 2, 3, 12], [3, 12]
IN_COLLECTIVE, OWN, BACKWARD = [4, 11, 0], [5, 0], [7, 0]
OF_DATASET, OF_COLLATE, IDLE = [1, 2, 8], [9, 2, 8], [10, 8]
COSTLY = "samples that cost much processor time"
LATE = Job(num_steps=300, faults=(Fault("backward", (2,), 20 * MS),))
LATE_IN_DATA = Job(num_steps=300, faults=(Fault("data", (2,), 20 * MS),))


def entry(rank: int, stacks: list[list[int]], **more: Any) -> dict[str, Any]:
    """As an agent sends it; of: rank 2."""
    return {
        "rank": rank, "look": 7, "of": 2, "subject": "straggler", "pid": 40 + rank, "worker": 0,
        "num_steps": 50, "steps_ms": 2000, "why": "",
        **packed(PLACES, stacks, "py-spy"),
        **more,
    }  # fmt: skip


def beside(stack: list[int], *workers: list[int]) -> list[dict[str, Any]]:
    """Half of rank 2's samples there, where its peer has none; then those of a worker of its loader."""
    looks = [entry(2, [stack, BACKWARD] * 75), entry(0, [BACKWARD] * 150)]
    return [*looks, *([entry(2, [*workers] * 75, worker=1)] if workers else [])]


def session_of(view: RunView, answers: dict[str, str | float] | None = None) -> Session:
    return conduct([Recorded("run", view)], Intent(), answers or {}, load_questions())


def weights_of(session: Session) -> dict[str, tuple[float | None, float]]:
    return {one.words: (one.before, one.now) for one in session.dialogue.causes}


@pytest.mark.parametrize(
    ("entries", "kind"),
    [
        (beside(IN_DATASET), "loader"),
        (beside(WAITS_FOR_BATCH), "loader"),
        (beside(WAITS_FOR_BATCH, OF_DATASET), "dataset"),
        (beside(WAITS_FOR_BATCH, OF_COLLATE), "collate"),
        (beside(WAITS_FOR_BATCH, IDLE, IDLE, OF_DATASET), "idle workers"),
        (beside(IN_COLLECTIVE), "collective"),
        (beside(OWN), "own code"),
        ([entry(2, [OWN, BACKWARD] * 75), entry(0, [OWN, BACKWARD, BACKWARD, BACKWARD, BACKWARD] * 30)], ""),
        ([entry(2, [BACKWARD, OWN] * 75), entry(0, [BACKWARD, OWN] * 75)], ""),
        ([entry(2, [BACKWARD] * 150), entry(0, [OWN, BACKWARD] * 75)], ""),
        ([entry(2, [OWN] * 150)], ""),
        ([entry(2, [WAITS_FOR_BATCH] * 150, subject="input")], "loader"),
        ([entry(2, [OWN] * 150, subject="input")], ""),
    ],
)
def test_the_kind_of_what_a_rank_does_beyond_its_peer(entries: list[dict[str, Any]], kind: str) -> None:
    """Work that both do, backward (C++ computes or waits there), and a rank without a peer tell nothing."""
    assert kind == card(*entries).kind


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "entries", "up", "down"),
    [
        (LATE_IN_DATA, beside(IN_DATASET), "slow storage or mount", "a host busy with other work"),
        (LATE_IN_DATA, beside(WAITS_FOR_BATCH, OF_DATASET), "too few loader workers", "a host busy with other work"),
        (LATE_IN_DATA, beside(WAITS_FOR_BATCH, OF_COLLATE), COSTLY, "slow storage or mount"),
        (LATE_IN_DATA, beside(WAITS_FOR_BATCH, IDLE), "uneven batches", "too few loader workers"),
        (LATE, beside(OWN), "a larger part of data, model or duties", "a host busy with other work"),
        (
            LATE,
            beside(IN_COLLECTIVE),
            "lateness that was over while its stacks were looked at",
            "a host busy with other work",
        ),
    ],
)  # fmt: skip
def test_a_look_moves_causes_up_and_down(job: Job, entries: list[dict[str, Any]], up: str, down: str) -> None:
    """It named the line in the ONE change, and left the list of causes as it was."""
    unseen = weights_of(session_of(looked_at(job)))
    seen = weights_of(session_of(looked_at(job, *entries)))
    # Beside a line that explains the rank's lateness all of them have little: what counts is how they stand together.
    assert seen[up][1] / seen[down][1] > unseen.get(up, (None, 0.0))[1] / unseen[down][1]
    assert seen[down][1] < unseen[down][1]
    assert unseen[down][1] == seen[down][0], "before the look it was what it is without one"


@pytest.mark.parametrize(("job", "stack"), [(LATE, OWN), (LATE_IN_DATA, IN_DATASET)])
@pytest.mark.parametrize("said", ["yes", "no"])
def test_a_line_that_explains_the_lateness_outranks_what_answers_suppose(
    job: Job, stack: list[int], said: str
) -> None:
    """A sleep was named, and after a yes the ONE change was to keep the next run off that host."""
    view = looked_at(job, *beside(stack))
    (found,) = [one for one in view.findings if one.id == "straggler"]
    first = found.actions[0].text
    assert first.startswith("Shorten what rank 2 does at ")
    asks = ("shards_equal", "host_shared", "lengths_vary", "host_cpus_full", "storage_at_ceiling")
    assert {*asks} <= {one.id for one in load_questions()}
    for given in ({}, *({name: said} for name in asks), dict.fromkeys(asks, said)):
        dialogue = session_of(view, given).dialogue
        assert (given, first) == (given, dialogue.change)
        leads = dialogue.causes[0]
        assert leads.words.startswith("what rank 2 does at ")
        assert leads.now >= MIN_COVER
        assert dialogue.question is None or dialogue.question.id not in asks


def test_before_the_look_the_line_was_no_cause() -> None:
    """It stands there as new, beside what stood there before."""
    causes = session_of(looked_at(LATE, *beside(OWN))).dialogue.causes
    assert [None] == [one.before for one in causes if one.words.startswith("what rank 2 does at ")]
    assert len([one for one in causes if one.before is not None]) > 1


def test_a_line_that_the_peer_is_at_too_leaves_what_slows_the_rank_down_open() -> None:
    """Work of both that takes one of them longer: its host may be the cause, and answers say so."""
    entries = [entry(2, [OWN, BACKWARD] * 75), entry(0, [OWN, BACKWARD, BACKWARD, BACKWARD, BACKWARD] * 30)]
    view = looked_at(LATE, *entries)
    (found,) = [one for one in view.findings if one.id == "straggler"]
    assert "named_line" not in found.evidence
    weights = weights_of(session_of(view, {"host_shared": "yes"}))
    assert "a host busy with other work" == next(iter(weights))


def test_a_rank_in_its_loader_is_late_there_whatever_phase_it_was_booked_under() -> None:
    """A loop of one's own loads in what is forward or other to the hooks."""
    assert "slow storage or mount" not in weights_of(session_of(looked_at(LATE)))
    assert "slow storage or mount" in weights_of(session_of(looked_at(LATE, *beside(IN_DATASET))))


@pytest.mark.parametrize("entries", [beside(BACKWARD), [entry(2, [OWN] * 150)]])
def test_a_look_that_tells_nothing_moves_nothing(entries: list[dict[str, Any]]) -> None:
    found = session_of(looked_at(LATE, *entries))
    assert weights_of(session_of(looked_at(LATE))) == weights_of(found)
    assert not found.dialogue.looked


def test_a_look_at_a_rank_of_which_nothing_is_found_is_no_evidence() -> None:
    """The healthy rank 1 was looked at."""
    entries = [entry(1, [OWN, BACKWARD] * 75, of=1), entry(0, [BACKWARD] * 150, of=1)]
    assert not session_of(looked_at(LATE, *entries)).dialogue.looked


@pytest.mark.parametrize("width", [80, 160])
def test_it_stands_there_as_answered(width: int) -> None:
    """On the page, in the lines of `advise`, and among what the run has answered itself."""
    session = session_of(looked_at(LATE, *beside(OWN)))
    said = "answered by its stacks: rank 2 spends 20 ± 3 ms a step at duties.py:12 in forward"
    assert said in moment_lines(session.dialogue, is_first=True)[0]
    keyboard = Keyboard(views.live(views.straggler()), desk=desks.desk(session=guided(session, "")))
    keyboard.press("d")
    text = "\n".join(row.text for row in keyboard.place.rows(width, 60))
    assert "answered by its stacks: rank 2 spends" in text
    assert "→" in text.partition("before → now")[2]
    items = [item for stage in session.stages for item in stage.evidence]
    assert any(
        item.name == "sampled stacks" and "own code, rank 2 spends" in str(item.text) for item in items
    )


def test_a_skipped_question_moves_no_cause() -> None:
    """What the stacks had moved stood as moved by each skip that followed."""
    run = [Recorded("run", looked_at(LATE, *beside(OWN)))]
    first = conduct(run, Intent(), {}, load_questions()).dialogue
    assert first.question is not None
    assert any(one.before is not None and one.before != one.now for one in first.causes)
    name = first.question.id
    after = conduct(run, Intent(), {}, load_questions(), last=name, skipped=(name,)).dialogue
    assert [(one.words, one.now) for one in after.causes] == [(one.words, one.now) for one in first.causes]
    assert {one.before for one in after.causes} == {None}
