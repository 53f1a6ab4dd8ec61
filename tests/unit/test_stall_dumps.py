"""When an agent asks its ranks for their flight recorders, and what it keeps of the answers."""

from __future__ import annotations

import json
from concurrent.futures import Executor, Future
from types import SimpleNamespace
from typing import Any

import pytest

from tuiadvisor.agent import stall_dumps
from tuiadvisor.agent.flight_recorder import MAX_ENTRIES, MAX_PENDING, NEWEST, cut, told
from tuiadvisor.agent.stall_dumps import APART_NS, AT_ONCE, PATIENCE_NS, STILL_NS, StallDumps
from tuiadvisor.events import RankState
from tuiadvisor.metrics.hang import detection, used_to
from tuiadvisor.stream.frames import FrameKind
from tuiadvisor.stream.shapes import check_payload
from tuiadvisor_probes import stuck

S = 10**9
BEGIN = 1000 * S


class AtOnce(Executor):
    """Does what it is given where it is given."""

    def submit(self, function: Any, /, *arguments: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*arguments, **options))
        return future


class Host:
    """Ranks of one agent, looked at twice a second."""

    def __init__(self, num_ranks: int = 2, device: str | None = "cpu") -> None:
        self.num_asked = 0
        self.dumps = StallDumps(self.ask)
        self.links: Any = [
            SimpleNamespace(
                rank=rank,
                process=SimpleNamespace(pid=100 + rank),
                state=RankState.LIVE,
                budget_ppm=5000,
                info=SimpleNamespace(device=device),
                stepless=SimpleNamespace(idle_since_ns=0),
                world_size=num_ranks,
            )
            for rank in range(num_ranks)
        ]
        self.now_ns, self.step, self.moved_ns = BEGIN, 0, [BEGIN] * num_ranks
        self.phases = ["backward"] * num_ranks

    def ask(self, process: Any) -> dict[str, Any]:
        self.num_asked += 1
        return {"why": f"asked {process.pid}"}

    def stand(self, seconds: float) -> list[dict[str, Any]]:
        """Nothing moves for so long; what comes of it."""
        found = []
        for _ in range(round(seconds * 2)):
            self.now_ns += S // 2
            statuses = [
                {"phase": phase, "phase_since_ns": since, "step": self.step}
                for phase, since in zip(self.phases, self.moved_ns, strict=True)
            ]
            self.dumps.look(list(zip(self.links, statuses, strict=True)), self.now_ns, AtOnce())
            found += self.dumps.take()
        return found

    def work(self, num_steps: int, step_s: float) -> list[dict[str, Any]]:
        """Steps of a length; what is asked meanwhile."""
        found = []
        for _ in range(num_steps):
            self.moved_ns, self.step = [self.now_ns + 1] * len(self.links), self.step + 1
            found += self.stand(step_s)
        return found


def test_all_ranks_are_asked_when_all_stand() -> None:
    """Five seconds, as for the finding; while nothing moves again at six times that, and so on: four times an hour."""
    host = Host()
    assert [] == host.work(10, 0.5)
    assert [] == host.stand(STILL_NS / S - 1)
    entries = host.stand(2)
    assert [(0, 100, "asked 100"), (1, 101, "asked 101")] == [
        (one["rank"], one["pid"], one["why"]) for one in entries
    ]
    assert host.moved_ns == [one["still_since_ns"] for one in entries]
    assert [] == host.stand(25)
    assert 2 == len(host.stand(10))
    assert [] == host.stand(120)
    assert 2 * 2 == len(host.stand(3600))


def test_who_moves_is_no_part_of_a_hang() -> None:
    """One rank that goes from phase to phase keeps all from being asked."""
    host = Host()
    host.work(10, 0.5)
    for _ in range(60):
        host.moved_ns[1] = host.now_ns
        assert [] == host.stand(1)


def test_long_steps_and_what_may_take_long_get_their_time() -> None:
    """Three times the longest step; a minute in a checkpoint, before the first steps, in other code alone."""
    host = Host()
    assert [] == host.work(5, 4)
    assert [] == host.stand(7)
    assert 2 == len(host.stand(6))
    for phases in (["checkpoint", "backward"], ["other", "other"]):
        host = Host()
        host.work(10, 0.5)
        host.phases = phases
        assert [] == host.stand(PATIENCE_NS / S - 1)
        assert 2 == len(host.stand(2))
    host = Host()
    assert [] == host.stand(PATIENCE_NS / S - 1)
    assert 2 == len(host.stand(2))


@pytest.mark.parametrize(
    ("num_ranks", "device", "after_s"), [(2, "cuda", 5), (2, "cpu", 60), (2, None, 60), (1, "cuda", 60)]
)
def test_on_devices_ranks_wait_in_other_code_too(num_ranks: int, device: str | None, after_s: int) -> None:
    """A look at the loss meets the collective that the device waits in; one rank alone waits for nobody."""
    host = Host(num_ranks, device)
    host.work(10, 0.5)
    host.phases = ["other"] * num_ranks
    assert [] == host.stand(after_s - 1)
    assert num_ranks == len(host.stand(2))


def test_stalls_close_together_are_asked_about_a_few_times_and_then_seldom() -> None:
    """A SIGSTOP, a read of a FIFO, a barrier, a quarter of a minute apart: of the second no collective was told.

    A job that stands for eight seconds again and again is used to it, and is not asked each time.
    """
    host = Host()
    host.work(10, 0.5)
    asked = [len(host.work(1, 8)) for _ in range(60)]
    assert {0, 2} == set(asked)
    assert [*[2] * AT_ONCE, 0] == asked[: AT_ONCE + 1]
    at_s = [8 * index for index, num in enumerate(asked) if num]
    assert len(at_s) <= AT_ONCE + 8 * 60 * S // APART_NS
    assert all(
        at_s[later] - at_s[later - AT_ONCE] >= AT_ONCE * APART_NS / S for later in range(AT_ONCE, len(at_s))
    )


@pytest.mark.parametrize(("num", "after_s"), [(0, STILL_NS / S), (2, STILL_NS / S), (3, 3 * 4.5)])
def test_what_a_run_does_again_teaches_patience_and_two_long_steps_do_not(num: int, after_s: float) -> None:
    """As for the finding: a pause that came once, too short to be asked about, kept the next hang unasked."""
    host = Host()
    for _ in range(3):
        host.work(10, 0.5)
        host.work(int(num > 0), 4.5)
        num -= 1
    host.work(1, 0.5)
    assert [] == host.stand(after_s - 1)
    assert 2 == len(host.stand(2))


def test_a_job_that_has_done_nothing_since_the_attach_is_asked_what_it_stands_in() -> None:
    """It hung before anybody came: no phase was seen, and nobody asked. Who works at anything is left alone."""
    host = Host()
    host.phases = [None] * 2  # type: ignore[list-item]
    host.links[0].stepless.idle_since_ns = host.now_ns
    assert [] == host.stand(PATIENCE_NS / S + 5)
    host.links[1].stepless.idle_since_ns = host.now_ns
    assert [] == host.stand(STILL_NS / S - 1)
    entries = host.stand(2)
    assert [link.stepless.idle_since_ns for link in host.links] == [one["still_since_ns"] for one in entries]


def test_without_a_budget_nothing_is_asked_of_a_rank() -> None:
    """It is said why."""
    host = Host()
    for link in host.links:
        link.budget_ppm = 0
    host.work(10, 0.5)
    assert {stall_dumps.NO_BUDGET} == {one["why"] for one in host.stand(8)}
    assert 0 == host.num_asked


def test_the_agent_waits_as_long_as_the_finding_does() -> None:
    """Asked earlier, ranks that are only slow would be; later, the finding would name phases first."""
    assert STILL_NS == detection.MIN_STILL_S * S
    assert stall_dumps.LONGER_THAN_USUAL == detection.LONGER_THAN_USUAL
    assert stall_dumps.ACCIDENTS == used_to.ACCIDENTS
    assert stall_dumps.STEPS_PER_ACCIDENT == used_to.STEPS_PER_ACCIDENT


# --- what is kept of an answer


def call(seq: int, group: str = "0", *, done: bool = True, **more: object) -> dict[str, Any]:
    return {
        "record_id": seq,
        "process_group": [group, "default_pg"],
        "collective_seq_id": seq,
        "op_id": seq,
        "profiling_name": "gloo:all_reduce",
        "input_sizes": [[8, 4], [3]],
        "input_dtypes": ["Float", "Float"],
        "state": "scheduled",
        "retired": done,
        "is_p2p": False,
        "time_created_ns": seq * S,
        "time_discovered_completed_ns": 0,
        "thread_name": "python",
        **more,
    }


def raw(*calls: object) -> bytes:
    return json.dumps({"entries": list(calls)}).encode()


def test_a_full_recorder_is_cut_to_what_tells_of_a_hang() -> None:
    """Of 2,000 calls those under way and the newest three of each group, in their order."""
    calls = [call(number, "0" if number % 2 else "1") for number in range(100, 2099)]
    found = cut(raw(*calls, call(2099, done=False)))
    assert (2000, 0) == (found["num_entries"], found["from_first"])
    assert [2094, 2095, 2096, 2097, 2098, 2099] == [one["record_id"] for one in found["entries"]]
    assert ["completed"] * 5 + ["scheduled"] == [one["state"] for one in found["entries"]]
    assert {"process_group", "input_sizes", "profiling_name"} < found["entries"][0].keys()
    assert "thread_name" not in found["entries"][0]


def test_a_recorder_of_any_size_gives_a_bounded_answer() -> None:
    """Ten thousand calls under way in as many groups."""
    found = cut(raw(*(call(number, str(number), done=False) for number in range(10_000))))
    assert MAX_PENDING <= len(found["entries"]) <= MAX_ENTRIES
    # Of most groups no call is kept: that they have none is not known.
    assert 0 == found["from_first"]
    assert 3 == NEWEST


def test_only_calls_of_the_newest_group_of_a_name_are_kept() -> None:
    """Destroyed and made anew in the same process, a group counts from 1 again; its call that was given up goes."""
    before = [call(number, pg_id=0) for number in range(500)] + [call(500, pg_id=0, done=False)]
    again = [call(1, pg_id=2, record_id=501), call(2, pg_id=2, record_id=502, done=False)]
    other = [call(7, "1", pg_id=1, record_id=100)]
    found = cut(raw(*before, *other, *again))
    assert [("1", 7), ("0", 1), ("0", 2)] == [
        (one["process_group"][0], one["collective_seq_id"]) for one in found["entries"]
    ]
    assert (504, 1) == (found["num_entries"], found["from_first"])


def test_a_groups_collective_is_kept_however_many_messages_came_after_it() -> None:
    """NCCL's recorder holds sends, too; an entry without a number tells nothing of how far a group got."""
    sends = [call(0, is_p2p=True, p2p_seq_id=number, record_id=9 + number) for number in range(1, 50)]
    odd = [call(9, collective_seq_id=-3, record_id=100 + number) for number in range(50)]
    found = cut(raw(call(7, record_id=0), call(8, record_id=8), *sends, *odd))
    assert [7, 8] == [one["collective_seq_id"] for one in found["entries"] if not one.get("is_p2p")]
    assert [47, 48, 49] == [one["p2p_seq_id"] for one in found["entries"] if one.get("is_p2p")]
    assert 1 == found["from_first"]


def test_a_recorder_without_a_call_is_not_one_that_is_off() -> None:
    """As torch 2.13 writes them: the groups it knows tell that it listens."""
    on = cut(b'{"pg_config": {"": {"desc": "", "name": "", "ranks": "[0]"}}, "pg_status": {}}')
    assert ("", 1, []) == (on["why"], on["from_first"], on["entries"])
    off = cut(b'{"pg_config": {}, "pg_status": {}, "version": "2.10"}')
    assert "its flight recorder is off, or has seen no call" == off["why"]


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b"\x80\x04K\x01.", b'{"entries": 3}', b"[" * 100_000, b'{"entries": null}'],
)
def test_what_is_no_dump_is_said_to_be_none(content: bytes) -> None:
    """A pickle among them: it is not opened."""
    found = cut(content)
    assert "entries" not in found
    assert found["why"]


def test_odd_answers_fit_the_frame() -> None:
    """Whatever a rank says, the STATUS frame that carries it is one."""
    odd = [None, 3, "x", [], {}, [[1]], 1 << 80, -1, 1.5, True, "\x1b[2J" * 999]
    names = list(call(1))
    calls = [dict.fromkeys(names, value) for value in odd]
    calls += [call(1, **{name: value}) for name in names for value in odd]
    state = {
        "groups": [
            *odd,
            *({"name": one, "purpose": one, "backend": one, "seq": 1, "spans": one} for one in odd),
        ],
        "recorders": {"fr": "", "nccl": 3, "other": ""},
        "why": odd,
        "spent_us": odd,
    }
    entry = told(json.dumps(state).encode(), {"fr": raw(*odd, *calls), "nccl": b"\x80"})
    payload = json.loads(json.dumps({"ranks": [], "recorders": [{"rank": 0, **entry}]}))
    check_payload(FrameKind.STATUS, payload)
    assert ["fr", "nccl"] == [one["name"] for one in entry["recorders"]]
    assert "\x1b" not in json.dumps(entry)


@pytest.mark.parametrize(
    ("ranks", "spans"),
    [
        ([], []),
        ([3], [[3, 1, 1]]),
        ([0, 1, 2, 3], [[0, 1, 4]]),
        ([0, 8, 16], [[0, 8, 3]]),
        ([0, 1, 8, 9], [[0, 1, 2], [8, 1, 2]]),
        (list(range(0, 4096 * 3, 3)), [[0, 3, 4096]]),
    ],
)
def test_members_are_told_in_stretches(ranks: list[int], spans: list[list[int]]) -> None:
    """Data-parallel and tensor-parallel groups of thousands of ranks are a few numbers."""
    assert spans == stuck.spans_of(ranks)
