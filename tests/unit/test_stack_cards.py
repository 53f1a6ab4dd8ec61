"""Stacks sampled on request, from py-spy's document over a frame to the card; strangers' words stay harmless."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest
from snapshot import views
from synthetic_run import Job, folded, frames
from unit.test_cli_lookback import Watch

from tuiadvisor.advisor.assemble.stack_cards import stack_cards
from tuiadvisor.advisor.cluster.stack_looks import MAX_LOOKS, StackLooks
from tuiadvisor.agent.stack_samples import packed, parse_speedscope
from tuiadvisor.agent.stacks import parse_spy
from tuiadvisor.metrics.sampling.code_line import CodeFrame
from tuiadvisor.metrics.sampling.sampled import Sampled, line_of
from tuiadvisor.session.conduct import conduct
from tuiadvisor.session.intent import Intent
from tuiadvisor.session.recorded import Recorded
from tuiadvisor.stream.frames import Frame, FrameError, FrameKind
from tuiadvisor.stream.probe_request import ProbeRequest, StackRequest, parse_probe_request
from tuiadvisor.stream.shapes import check_payload
from tuiadvisor.tui.contract.feed import Stacks
from tuiadvisor.tui.pages.stack_card import rank_card_lines
from tuiadvisor.views.run_view import RunView
from tuiadvisor.views.stack_card import StackCard
from tuiadvisor_rules.questions import load_questions

PLACES = [
    ("wait", "/home/me/job/train.py", 49),
    ("main", "/home/me/job/train.py", 80),
    ("backward", "/venv/lib/python3.11/site-packages/torch/_tensor.py", 5),
    ("timed.<locals>.tuiadvisor_hook", "/x/tuiadvisor_probes/guard.py", 179),
]
LATE, WAITING = [0, 1], [2, 3, 1]


def entry(rank: int, stacks: list[list[int]], **more: Any) -> dict[str, Any]:
    """As an agent sends it."""
    return {
        "rank": rank, "look": 7, "of": 2, "subject": "straggler", "pid": 40 + rank, "worker": 0,
        "num_steps": 50, "steps_ms": 2000, "why": "",
        **packed(PLACES, stacks, "py-spy"),
        **more,
    }  # fmt: skip


def card(*entries: dict[str, Any]) -> StackCard:
    """Of what agents sent, through the checks of a frame."""
    looks = StackLooks()
    checked = check_payload(FrameKind.STATUS, orjson.loads(orjson.dumps({"ranks": [], "stacks": entries})))
    for one in checked["stacks"]:  # type: ignore[attr-defined]
        looks.take(one)
    (found,) = stack_cards(looks.newest_first())
    return found


def looked_at(
    *entries: dict[str, Any],
    missing: int | None = 1,
    later_s: float = 0.0,
    thread: str = "waiting",
    num_steps: int = 200,
) -> RunView:
    """Four ranks that hang, and what agents sent of their stacks. later_s: they have moved since, and hang again."""
    job = Job(num_steps=num_steps)
    last_s = 1.0 + 0.02 * job.num_steps
    told = list(frames(job))
    for seq, (since_s, stacks) in enumerate(((last_s, entries), (last_s + later_s, ())), start=90):
        phase = {rank: "data_wait" if rank == missing else "backward" for rank in range(4)}
        ranks = [
            {"rank": rank, "state": "live", "detail": "", "phase": phase[rank], "step": job.num_steps}
            | {"phase_since_ns": round(since_s * 1e9), "thread": thread if rank == missing else "waiting"}
            for rank in range(4)
        ]
        now_ns = round((since_s + 40) * 1e9)
        payload = {"host": "node0", "mono_ns": now_ns, "wall_ns": 1_700_000_000_000_000_000, "ranks": ranks}
        told.append(Frame(FrameKind.STATUS, "node0/1/1", seq, now_ns, {**payload, "stacks": list(stacks)}))
    return folded(told).view()


def change_of(view: RunView) -> str:
    """The ONE change that the session names."""
    (hang,) = [found for found in view.findings if found.id == "hang"]
    assert "hang" == view.verdict.decision
    return hang.actions[0].text


def test_of_a_hang_whose_stacks_were_seen_the_change_is_the_line_not_to_look_for_it() -> None:
    """After C the ONE change was still "See where the ranks that have not arrived are"."""
    asks = "See where the ranks that have not arrived are, without killing them."
    seen = [entry(1, [LATE] * 9, subject="hang", of=1), entry(0, [WAITING] * 9, subject="hang", of=1)]
    assert change_of(looked_at()) == asks
    said = "Change what keeps rank 1 at train.py:49 in wait: the others wait for it."
    view = looked_at(*seen)
    assert change_of(view) == said
    (hang,) = [found for found in view.findings if found.id == "hang"]
    assert not any("tuiadvisor stacks" in f"{act.text} {act.command}" for act in hang.actions)
    assert not any("tuiadvisor stacks" in each for each in hang.measure_next)
    session = conduct((Recorded("hang", view),), Intent(), {}, load_questions())
    assert said in session.dialogue.change
    assert change_of(looked_at(*seen, later_s=100.0)) == asks, "that was another hang"
    assert change_of(looked_at(entry(0, [WAITING] * 9, subject="hang", of=0))) == asks, (
        "it is not whom they wait for"
    )
    nobody = looked_at(entry(0, [WAITING] * 9, subject="hang", of=0), missing=None)
    assert change_of(nobody) == (
        "Find out why nothing releases rank 0 at train.py:80 in main, which calls backward: no rank is seen to be "
        "missing."
    )


def test_where_a_signal_stopped_a_rank_is_no_line_to_change() -> None:
    """After C the second thing to do was "Change what keeps rank 1 at train.py:19": it was SIGSTOP."""
    seen = [entry(1, [LATE] * 9, subject="hang", of=1)]
    before, after = (
        [found for found in looked_at(*told, thread="stopped").findings if found.id == "hang"]
        for told in ((), seen)
    )
    assert [act.command for act in before[0].actions] == ["kill -CONT 101", "tuiadvisor stacks"]
    assert [act.command for act in after[0].actions] == ["kill -CONT 101"]


def test_the_step_of_a_hang_is_written_as_everywhere() -> None:
    """It was "at step 1483" beside "step 1,482"."""
    assert "at step 1,200" in looked_at(num_steps=1200).verdict.sentence


def test_the_line_that_makes_a_rank_late_is_named_with_its_time() -> None:
    """Share of the samples times the step; the peer's beside it, and how many samples it rests on."""
    found = card(entry(2, [LATE, WAITING] * 75), entry(0, [WAITING] * 150))
    assert found.words == "rank 2 spends 20 ± 3 ms a step at train.py:49 in wait; its peer, rank 0: none"
    first, second = found.lines
    assert (first.place, first.num, first.seconds, first.peer_seconds) == ("train.py:49", 75, 0.02, 0.0)
    assert first.margin_s == pytest.approx(1.96 * 0.04 * (0.25 / 152) ** 0.5, rel=0.01)
    assert (second.place, second.calls, second.differs) == ("train.py:80", "backward", True)
    assert "150 samples of rank 2 by py-spy, nothing stopped; 150 samples of rank 0" in found.basis
    assert "50 steps meanwhile" in found.basis


def test_a_healthy_twin_has_no_difference() -> None:
    """Nothing is said of shares that chance explains."""
    found = card(entry(2, [LATE, WAITING] * 75), entry(0, [WAITING, LATE] * 75))
    assert found.words == "no difference between rank 2 and rank 0 beyond sampling noise"


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([entry(2, [], why="it has ended")], "rank 2: its stacks were not seen: it has ended"),
        (
            [entry(2, [LATE] * 99)],
            (
                "rank 2 spends 40 ± 1 ms a step at train.py:49 in wait; rank 2 is compared with nobody: "
                "no peer's stacks were seen"
            ),
        ),
        (
            [entry(2, [LATE] * 9), entry(0, [WAITING] * 99)],
            "too few samples to compare rank 2 with rank 0: 40 of each are needed",
        ),
        (
            [entry(2, [LATE] * 99, num_steps=1), entry(0, [WAITING] * 99, num_steps=1)],
            "rank 2 spends 100 % of its samples at train.py:49 in wait; its peer, rank 0: none of its samples",
        ),
    ],
)
def test_what_was_not_seen_is_said_in_one_line(entries: list[dict[str, Any]], words: str) -> None:
    """Ended, refused, alone, too short: no figure is made up."""
    assert card(*entries).words == words


@pytest.mark.parametrize("subject", ["input", "host", "straggler"])
def test_samples_at_as_many_lines_name_none(subject: str) -> None:
    """Of more than a hundred samples, each at another line, no line has one in a hundred."""
    places = [("step", "/home/me/job/train.py", line) for line in range(150)]
    spread = packed(places, [[at] for at in range(150)], "py-spy")
    assert card(entry(2, [], subject=subject) | spread).words.startswith(
        "rank 2 spends no hundredth of its samples at one line"
    )


def test_a_look_whose_rank_has_not_answered_yet_says_so() -> None:
    """A peer's stacks may come first, of whatever was asked."""
    assert card(entry(0, [WAITING] * 60)).words == "rank 2: no stacks have come yet"
    hanging = card(entry(0, [WAITING] * 3, subject="hang"))
    assert hanging.words == "rank 2: no stack has come yet"
    assert [(one.rank, one.place) for one in hanging.stands] == [(0, "train.py:80")]


@pytest.mark.parametrize(
    ("num_steps", "own", "peer"),
    [
        (3, "83.3 ± 13.2 s a step", "none"),
        (60_000, "4.2 ± 0.7 ms a step", "none"),
    ],
)
def test_times_have_the_unit_that_suits_them(num_steps: int, own: str, peer: str) -> None:
    """Seconds of long steps, tenths of a millisecond of short ones; of no sample no time."""
    more = {"num_steps": num_steps, "steps_ms": 500_000}
    found = card(entry(2, [LATE, WAITING] * 75, **more), entry(0, [WAITING] * 150, **more))
    assert found.words == f"rank 2 spends {own} at train.py:49 in wait; its peer, rank 0: {peer}"


def test_the_loaders_workers_stand_beside_the_rank() -> None:
    """All of them together; one that was not seen is counted with its reason."""
    workers = [entry(2, [LATE] * 30, worker=1, pid=50 + number) for number in range(2)]
    found = card(entry(2, [LATE] * 60), *workers, entry(2, [], worker=1, why="permission denied"))
    assert (found.num_workers, found.num_worker_samples) == (2, 60)
    assert [("train.py:49", 1.0)] == [(line.place, line.share) for line in found.workers]
    assert "1 of its loader's workers: permission denied" in found.notes


TORCH = "/venv/lib/python3.11/site-packages/torch/utils/data/_utils/"
WORKER_PLACES = [
    ("_worker_loop", TORCH + "worker.py", 349),
    ("fetch", TORCH + "fetch.py", 52),
    ("fetch", TORCH + "fetch.py", 55),
    ("<listcomp>", TORCH + "fetch.py", 52),
    ("__getitem__", "/home/me/job/data.py", 12),
    ("pad_batch", "/home/me/job/data.py", 30),
    ("get", "/usr/lib/python3.11/multiprocessing/queues.py", 113),
    ("poll", "/usr/lib/python3.11/multiprocessing/connection.py", 257),
    ("put", "/usr/lib/python3.11/multiprocessing/queues.py", 88),
    ("_ForkingPickler.dumps", "/usr/lib/python3.11/multiprocessing/reduction.py", 51),
]
READS, COLLATES, WAITS, PUTS = [4, 3, 1, 0], [5, 2, 0], [7, 6, 0], [9, 8, 0]


def at_work(stacks: list[list[int]]) -> tuple[str, ...]:
    """Notes of a card with one worker that was seen like this."""
    worker = entry(2, [], worker=1) | packed(WORKER_PLACES, stacks, "py-spy")
    return card(entry(2, [WAITING] * 60, subject="input"), worker | {"subject": "input"}).notes


def test_the_stages_of_the_loaders_workers_are_told_apart() -> None:
    """The dataset, somebody's own collate function, the queue to the rank, and the queue of work."""
    notes = at_work([READS] * 50 + [COLLATES] * 25 + [WAITS] * 15 + [PUTS] * 10)
    assert (
        "its loader's workers: 50 % in the dataset, 25 % in collate, 15 % waiting for work, 10 % handing over"
        in notes
    )


def test_a_worker_without_work_is_at_no_line_of_the_training() -> None:
    """Forked, it has the line that forked it beneath its loop: "shorten what they do" at `for batch in loader`."""
    forked = [*WORKER_PLACES, ("main", "/home/me/job/train.py", 80)]
    line_of_fork = len(forked) - 1
    for idle in (WAITS, PUTS):
        stacks = [[*idle, line_of_fork]] * 75 + [[*READS, line_of_fork]] * 25
        worker = entry(2, [], worker=1) | packed(forked, stacks, "py-spy")
        found = card(entry(2, [WAITING] * 60, subject="input"), worker | {"subject": "input"})
        assert [("data.py:12", 0.25)] == [(line.place, line.share) for line in found.workers]
        assert found.num_worker_samples == 100
    in_torch = [[3, 2, 0, line_of_fork]] * 50
    worker = entry(2, [], worker=1) | packed(forked, in_torch, "py-spy")
    found = card(entry(2, [WAITING] * 60, subject="input"), worker | {"subject": "input"})
    assert ["fetch.py:52"] == [line.place for line in found.workers]


def test_workers_of_another_loop_have_no_stages() -> None:
    """A dataset in C is the dataset; a stack without torch's loop is nobody's."""
    assert "its loader's workers: 50 % in the dataset" in at_work([[1, 0]] * 10 + [[4]] * 10)
    assert not any(note.startswith("its loader's workers:") for note in at_work([[4], [7, 6]]))


def test_of_slow_input_the_workers_line_comes_first() -> None:
    """What the rank itself does is to wait for them."""
    subject = {"subject": "input"}
    found = card(entry(2, [WAITING] * 60, **subject), entry(2, [LATE] * 60, worker=1, **subject))
    assert found.words == (
        "its loader's workers spend 100 % of their samples at train.py:49 in wait; "
        "rank 2 spends 40 ± 1 ms a step at train.py:80 in main"
    )
    alone = card(entry(2, [WAITING] * 60, **subject))
    assert "no worker process of its data loader was found" in alone.notes[0]


def test_a_rank_that_is_gone_is_not_asked() -> None:
    """One line at once, and no request on its way to nobody."""
    watch, asked = Watch(), []
    watch.feed._request = asked.append
    watch.give(0.9)
    watch.turn()
    watch.turn(Stacks(99, "straggler"))
    assert watch.feed.latest().notice == "rank 99 is not in this run any more"
    assert asked == []


def test_of_a_hang_each_rank_has_the_line_it_stands_at() -> None:
    """The one in question first; of one that could not be asked the reason."""
    hang = {"subject": "hang"}
    found = card(
        entry(0, [WAITING] * 9, **hang),
        entry(1, [], **hang, why="does not answer"),
        entry(2, [LATE] * 9, **hang, native=["nanosleep (libc.so.6)"]),
    )
    assert found.words == "rank 2 stands at train.py:49 in wait"
    assert [(2, "train.py:49"), (0, "train.py:80"), (1, "")] == [
        (one.rank, one.place) for one in found.stands
    ]
    assert found.stands[0].native == ("nanosleep (libc.so.6)",)
    assert found.stands[2].why == "does not answer"


def test_hostile_names_are_bounded_letters() -> None:
    """A file may be called anything, and an agent may send anything."""
    evil = "\x1b]0;owned\x07" + "x" * 90_000
    sent = packed([(evil, "/home/" + evil, 3)], [[0]] * 50, "py-spy")
    assert max(len(str(value)) for frame in sent["frames"] for value in frame.values()) <= 120  # type: ignore[attr-defined]
    assert "\x1b" not in orjson.dumps(sent).decode()
    crafted = entry(2, [LATE] * 50)
    crafted["frames"] = [{"name": evil[:60_000], "file": evil[:60_000], "line": 1, "own": 1}] * 2
    crafted["stacks"] = [[0, 99, 1, -1]] * 2
    crafted["samples"] = [0, 1, 2, -1, 1 << 40]
    found = card(crafted)
    assert found.num_samples == 2
    assert all(text.isprintable() and len(text) < 400 for text in (found.words, found.lines[0].place))


@pytest.mark.parametrize("wrong", [{"stacks": [["x"]]}, {"samples": {}}, {"frames": [3]}, {"look": "x"}])
def test_what_is_no_entry_is_no_frame(wrong: dict[str, Any]) -> None:
    """Refused where frames are read, before anything is made of it."""
    with pytest.raises(FrameError):
        check_payload(FrameKind.STATUS, {"ranks": [], "stacks": [{**entry(2, [LATE]), **wrong}]})


def test_only_the_last_looks_are_kept() -> None:
    """However many an agent sends."""
    looks = StackLooks()
    for number in range(50):
        looks.take({**entry(2, [LATE]), "look": number})
    assert [49 - index for index in range(MAX_LOOKS)] == [look.number for look in looks.newest_first()]


def test_py_spys_document_is_read_for_one_thread() -> None:
    """Outermost first there, with a line that names the thread; ours beneath a call are left out."""
    frames = [{"name": name, "file": file, "line": line, "col": None} for name, file, line in PLACES]
    frames.append({"name": "thread (41): MainThread", "file": "", "line": 0, "col": None})
    profiles = [
        {"name": 'Thread 40 "other"', "samples": [[4, 1]]},
        {"name": 'Thread 41 "MainThread"', "samples": [[4, 1, 3, 2], [4, 1, 0], [4, 1, 0]]},
    ]
    raw = orjson.dumps({"shared": {"frames": frames}, "profiles": profiles})
    found = parse_speedscope(raw, 41)
    names = [one["name"] for one in found["frames"]]  # type: ignore[attr-defined]
    assert (["backward", "main", "wait"], [0, 1, 1]) == (names, found["samples"])
    assert [0, 1, 1] == [one["own"] for one in found["frames"]]  # type: ignore[attr-defined]
    assert {} == parse_speedscope(raw, 42)
    assert found == parse_speedscope(raw, 42, is_main=True)  # in a container it has another number
    for damaged in (
        b"",
        b"{",
        b"[]",
        b'{"shared":{"frames":[1]},"profiles":[]}',
        raw.replace(b"[4,1,0]", b"[99]"),
    ):
        assert {} == parse_speedscope(damaged, 41)


def test_frames_of_the_probe_are_never_the_programs() -> None:
    """The hook that a call runs through, and what the hook calls, stood among the lines of the training."""
    places = [
        ("_spend", "/opt/venv/share/tuiadvisor_probes/step_clock.py", 61),
        ("wrapped", "/run/user/0/tuiadvisor-1/tuiadvisor_probes/patch.py", 12),
        ("tuiadvisor_hook", "<string>", 3),
        ("train", "/home/me/train.py", 49),
    ]
    entry = packed(places, [[0, 1, 2, 3]] * 9, "py-spy")
    assert [{"name": "train", "file": "me/train.py", "line": 49, "own": 1}] == entry["frames"]
    assert [[0]] == entry["stacks"]


def test_torchs_decorator_is_not_what_a_line_calls() -> None:
    """A rank stood in "_exception_logger.<locals>.wrapper", which told nothing; it is all_reduce."""
    frames = [
        CodeFrame("all_reduce", "distributed/distributed_c10d.py", 9, False),
        CodeFrame("_exception_logger.<locals>.wrapper", "distributed/c10d_logger.py", 83, False),
        CodeFrame("main", "me/train.py", 62, True),
    ]
    sampled = Sampled(0, 1, False, "py-spy", (tuple(frames),), (0,), (), None, None, "")
    assert {line_of(frames): "all_reduce"} == sampled.called()


def test_a_recording_of_an_older_agent_shows_no_frame_of_the_probe_either() -> None:
    """It holds them as the program's own."""
    looks = StackLooks()
    frames = [
        {"name": "_spend", "file": "tuiadvisor_probes/step_clock.py", "line": 61, "own": 1},
        {"name": "train", "file": "me/train.py", "line": 49, "own": 1},
    ]
    looks.take({"look": 1, "rank": 0, "of": 0, "frames": frames, "stacks": [[0, 1]], "samples": [0] * 9})
    (look,) = looks.newest_first()
    assert {"me/train.py"} == {line.file for line in look.threads[0].lines()}


def test_what_py_spy_sees_of_a_standing_rank_leaves_the_probe_out() -> None:
    """Of a hang each frame is listed."""
    frames = [
        {"name": "wait", "filename": "/x/tuiadvisor_probes/collective_hooks.py", "line": 7},
        {"name": "train", "filename": "/home/me/train.py", "short_filename": "train.py", "line": 49},
    ]
    raw = orjson.dumps([{"os_thread_id": 5, "frames": frames}])
    assert ("train (train.py:49)",) == parse_spy(raw, 5)


def test_a_request_for_stacks_arrives_as_it_was_said() -> None:
    """Within its bounds; anything else is no request."""
    asked = ProbeRequest(stacks=StackRequest(7, "straggler", (2, 0), 2000))
    assert asked == parse_probe_request(asked.line())
    for ranks, window_ms, subject in (
        ((), 2000, "hang"),
        (tuple(range(17)), 2000, "hang"),
        ((1,), 10_001, "hang"),
        ((1,), 2000, "x"),
    ):
        assert (
            parse_probe_request(ProbeRequest(stacks=StackRequest(7, subject, ranks, window_ms)).line())
            is None
        )


def test_ten_presses_ask_once() -> None:
    """While the answer is on its way nothing is queued behind it; another press after it asks again."""
    watch, asked = Watch(Job(num_ranks=4)), []
    watch.feed._request = asked.append
    watch.give(0.9)
    watch.turn()
    for _ in range(10):
        watch.turn(Stacks(2, "straggler"))
    (request,) = asked
    assert request.stacks is not None
    assert (request.stacks.ranks[0], len(request.stacks.ranks)) == (2, 2)
    assert "looking where rank 2 and its peer rank 1" in watch.feed.latest().notice
    for rank in request.stacks.ranks:
        watch.feed.advisor.roster.stack_looks.take({**entry(rank, [LATE] * 50), "look": request.stacks.look})
    watch.turn()
    assert "on its page (2, enter)" in watch.feed.latest().notice
    assert watch.feed.latest().notice_card == (2, "straggler")
    watch.turn(Stacks(2, "straggler"))
    assert len(asked) == 2


def test_of_a_hang_that_is_over_it_says_where_ranks_stood() -> None:
    """A rank went on at 12 steps/s, and its page said for the rest of the run that it stands at train.py:94."""
    found = card(entry(2, [LATE] * 9, subject="hang"))
    stalled = replace(views.stalled(), cards=(found,))
    during, after = (
        "\n".join(row.text for row in rank_card_lines(view, 2, 100))
        for view in (stalled, replace(stalled, stall=None))
    )
    assert "rank 2 stands at train.py:49 in wait" in during
    assert "the stall is over" not in during
    assert "rank 2 stood at train.py:49 in wait" in after
    assert "as it stood; the stall is over" in after
    assert [] == rank_card_lines(stalled, 0, 100)
