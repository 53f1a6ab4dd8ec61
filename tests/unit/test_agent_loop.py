"""The agent's loop: whom it watches, what it obeys, when it ends and that every rank is left in order."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from fake_time import FakeTime

from tuiadvisor.agent import agent as agents
from tuiadvisor.agent.agent import ALL_ENDED_NS, NS, PUSH_OUT_S, RESTART_NS, Agent, AgentConfig
from tuiadvisor.agent.discovery import NoRanksError
from tuiadvisor.agent.looks import BY_LOT, PAUSE_NS
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.events import RankState
from tuiadvisor.stream.frames import FrameKind
from tuiadvisor.stream.probe_request import ProbeRequest, StackRequest
from tuiadvisor_probes import ring as ring_file

MOST_BETWEEN_LOOKS_S = PAUSE_NS * (1 + BY_LOT / 2) / NS
NO_PID = 1 << 22  # beyond what the kernel hands out: no process is meant by accident


class Link:
    """A rank, which does what it is told at once."""

    made: list[Link] = []  # noqa: RUF012 - emptied for each test

    def __init__(self, process: Any, _injector: object) -> None:
        self.process, self.rank = process, process.rank
        self.state, self.detail = RankState.LIVE, ""
        self.info, self.injection, self.git_commit = SimpleNamespace(python="3.11"), None, None
        self.budget_ppm: int | None = None
        self.contested, self.assumed_rank = "", None
        self.is_busy = self.is_leaving = self.is_over = False
        self.reader: Any = SimpleNamespace(get_u64=lambda _: 0)
        self.did: list[str] = []
        self.fails: Exception | None = None
        self.leaves_after = 0  # looks
        Link.made.append(self)

    def __getattr__(self, name: str) -> Any:
        """Everything else is noted."""
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *rest: self.did.append(" ".join(map(str, (name, *rest))))

    def want_budget(self, budget_ppm: int) -> None:
        self.budget_ppm = budget_ppm

    def look_for_end(self) -> bool:
        return self.state is RankState.EXITED

    def hold_back(self) -> bool:
        return False

    def advance(self, _now_ns: int, _executor: object) -> None:
        if self.fails is not None:
            raise self.fails
        if self.is_leaving:
            self.leaves_after -= 1
            if self.leaves_after < 0:
                self.state = RankState.DETACHED

    def read_info(self) -> bool:
        return False

    def ask_to_leave(self) -> None:
        self.is_leaving = True

    def end(self) -> None:
        self.is_over = True


class Clock(FakeTime):
    """That passes where descriptors are waited for, too."""

    def poll(self) -> Any:
        """select.poll()."""
        return SimpleNamespace(
            poll=lambda ms: (self.sleep(ms / 1000), [])[1],
            register=lambda *_: None,
            unregister=lambda _: None,
        )


class World:
    """What stands around an agent."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.frames: list[tuple[FrameKind, dict[str, Any]]] = []
        self.there: list[Any] = [self.process(0)]
        self.later: list[Any] = []
        self.launcher = False
        self.requests: list[ProbeRequest] = []
        self.pipe = SimpleNamespace(is_loose=False, take=self.taken)
        self.asked: list[StackRequest] = []
        self.gpus: list[str] = []
        self.drain = SimpleNamespace(take=lambda _: None, has_first_steps=False, frames=self.drained)
        self.drained_ns: list[int] = []

    def drained(self) -> list[tuple[FrameKind, dict[str, Any]]]:
        self.drained_ns.append(self.clock.now_ns)
        self.drain.has_first_steps = False
        return [(FrameKind.STEPS, {"columns": {}})]

    def process(self, rank: int | None, pid: int = NO_PID) -> Any:
        return SimpleNamespace(rank=rank, pid=pid, label="train.py")

    def taken(self) -> list[ProbeRequest]:
        found, self.requests = self.requests, []
        return found

    def first(self) -> list[Any]:
        if not self.there:
            raise NoRanksError("no rank on this machine")
        return self.there

    def again(self) -> list[Any]:
        found, self.later = self.later, []
        return found

    def agent(self, **config: Any) -> Agent:
        return Agent(AgentConfig("ipc:///nowhere", **config), SimpleNamespace())  # type: ignore[arg-type]

    def of(self, kind: FrameKind) -> list[dict[str, Any]]:
        return [payload for one, payload in self.frames if one is kind]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World()
    Link.made = []
    finder = SimpleNamespace(
        first=made.first, again=made.again, left_out=(), launcher_lives=lambda: made.launcher
    )
    hub = SimpleNamespace(
        send=lambda kind, payload: made.frames.append((kind, payload)),
        close=lambda: made.gpus.append("closed"),
    )
    gpus = SimpleNamespace(
        start=lambda: made.gpus.append("start"), stop=lambda: made.gpus.append("stop"),
        latest=list, names=tuple, driver=None, why_none="",
    )  # fmt: skip
    host = SimpleNamespace(look=lambda _: None, sample=lambda *_: {"cpus": 8}, topology=None)
    stacks = SimpleNamespace(ask=lambda request, *_: made.asked.append(request), take=list)
    for name, value in {
        "AgentLink": lambda *_, **__: hub,
        "RankFinder": lambda *_, **__: finder,
        "GpuSampler": lambda: gpus,
        "HostSampler": lambda _: host,
        "Crew": lambda: SimpleNamespace(finish=lambda: made.gpus.append("finished")),
        "Drain": lambda: made.drain,
        "StackSamples": lambda: stacks,
        "StallDumps": lambda: SimpleNamespace(look=lambda *_: None, take=list),
        "ControlPipe": lambda _: made.pipe,
        "RankLink": Link,
        "named": lambda link: f"rank {link.rank}",
        "status_of": lambda link: {"rank": link.rank, "state": link.state.name},
        "hello": lambda _host, links, *_, **__: {"ranks": [link.rank for link in links]},
        "remove_leftovers": lambda: None,
        "rivals": SimpleNamespace(settle=lambda _: None, may_turn_away=lambda *_: True),
        "time": made.clock,
        "select": SimpleNamespace(poll=made.clock.poll, POLLIN=1),
    }.items():
        monkeypatch.setattr(agents, name, value)
    monkeypatch.setattr(agents.signal, "signal", lambda *_: None)
    return made


def ended(link: Link) -> None:
    link.state = RankState.EXITED


def test_when_all_ranks_have_ended_so_does_the_agent(world: World) -> None:
    """A while later: a new process may stand for one; everything it held is let go, and the reason is told last."""
    agent = world.agent()
    begun_ns = world.clock.now_ns
    world.clock.after(3.0, lambda: ended(Link.made[0]))
    assert 0 == agent.run()
    assert ALL_ENDED_NS <= world.clock.now_ns - begun_ns - 3 * NS < ALL_ENDED_NS + NS
    assert [{"ranks": [0]}] * 2 == world.of(FrameKind.HELLO)  # and again when it has ended
    assert (FrameKind.BYE, {"reason": "all ranks ended"}) == world.frames[-1]
    assert "EXITED" == world.of(FrameKind.STATUS)[-1]["ranks"][0]["state"]
    assert world.of(FrameKind.HOST)
    assert world.of(FrameKind.STEPS)
    assert ["start", "finished", "stop", "closed"] == world.gpus
    assert "release" in Link.made[0].did


def test_the_first_step_is_sent_at_the_look_that_finds_it(world: World) -> None:
    """Who has just attached waits for it; later ones go out twice a second."""
    agent = world.agent()
    begun_ns = world.clock.now_ns
    world.clock.after(1.2, lambda: setattr(world.drain, "has_first_steps", True))
    world.clock.after(3.0, lambda: ended(Link.made[0]))
    agent.run()
    sent_ns = [at_ns - begun_ns for at_ns in world.drained_ns]
    assert next(at_ns for at_ns in sent_ns if at_ns >= 1.2 * NS) <= (1.2 + MOST_BETWEEN_LOOKS_S) * NS
    assert len(sent_ns) < 20


def test_while_a_launcher_lives_its_ranks_may_come_back(world: World) -> None:
    """An elastic restart takes its time; the new process stands for its rank, the ended one for nothing."""
    agent = world.agent()
    begun_ns = world.clock.now_ns
    world.launcher = True
    world.clock.after(1.0, lambda: ended(Link.made[0]))
    world.clock.after(30.0, lambda: world.later.append(world.process(0, NO_PID + 1)))
    world.clock.after(50.0, lambda: ended(Link.made[1]))
    agent.run()
    assert world.clock.now_ns - begun_ns >= 50 * NS + RESTART_NS
    assert [NO_PID + 1] == [link.process.pid for link in agent.links]


def test_wishes_reach_the_ranks_that_are_meant(world: World) -> None:
    """A budget also those that come later; stacks are asked for."""
    world.there = [world.process(0), world.process(1, NO_PID + 1)]
    agent = world.agent(control_fd=9)
    stacks = StackRequest(7, "straggler", (1, 0), 1000)
    world.clock.after(1.0, lambda: world.requests.append(ProbeRequest(budget_ppm=500)))
    world.clock.after(
        2.0, lambda: world.requests.append(ProbeRequest(burst_ms=3000, ranks=frozenset({1}), stacks=stacks))
    )
    world.clock.after(2.5, lambda: world.requests.append(ProbeRequest(burst_ms=9)))
    world.clock.after(4.0, lambda: world.later.append(world.process(2, NO_PID + 2)))
    world.clock.after(9.0, lambda: setattr(world.pipe, "is_loose", True))
    agent.run()
    assert [500, 500, 500] == [link.budget_ppm for link in Link.made]
    assert [["ask_for_burst 9"], ["ask_for_burst 3000", "ask_for_burst 9"], []] == [
        [one for one in link.did if one.startswith("ask_for_burst")] for link in Link.made
    ]
    assert [stacks] == world.asked
    assert {"reason": "the command that watched has ended"} == world.frames[-1][1]


def test_a_parent_that_is_another_process_by_now_is_gone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number alone says nothing."""
    parent = SimpleNamespace(is_alive=True, start_ticks=5)
    monkeypatch.setattr(agents.procfs, "stat", lambda _: parent)
    agent = world.agent(parent_pid=os.getppid())
    world.clock.after(2.0, lambda: setattr(parent, "start_ticks", 6))
    agent.run()
    assert {"reason": "the command that watched has ended"} == world.frames[-1][1]


def test_one_rank_that_the_agent_fails_on_does_not_blind_it_to_the_others(world: World) -> None:
    """It is said of that one."""
    world.there = [world.process(0), world.process(1, NO_PID + 1)]
    agent = world.agent(control_fd=9)
    world.clock.after(1.0, lambda: setattr(Link.made[0], "fails", KeyError("bug")))
    world.clock.after(3.0, lambda: setattr(world.pipe, "is_loose", True))
    agent.run()
    assert (RankState.REFUSED, "the agent failed on it: KeyError('bug')") == (
        Link.made[0].state,
        Link.made[0].detail,
    )
    assert RankState.DETACHED is Link.made[1].state


def test_ranks_that_do_not_come_are_waited_for_as_long_as_was_asked(world: World) -> None:
    """Then that is the error; whoever started us may lose patience before."""
    world.there = []
    begun_ns = world.clock.now_ns
    with pytest.raises(TuiadvisorError, match="no rank on this machine"):
        world.agent(wait_for_ranks_s=5.0).run()
    assert 5 * NS <= world.clock.now_ns - begun_ns < 6 * NS
    assert {"reason": "no rank on this machine"} == world.frames[-1][1]
    agent = world.agent(wait_for_ranks_s=500.0, control_fd=9)
    world.clock.after(2.0, lambda: setattr(world.pipe, "is_loose", True))
    assert 0 == agent.run()
    assert world.clock.now_ns - begun_ns < 20 * NS


def test_ranks_that_come_in_time_are_watched(world: World) -> None:
    """Also where they were not there when the agent was."""
    there, world.there = world.there, []
    agent = world.agent(wait_for_ranks_s=60.0, control_fd=9)
    world.clock.after(2.0, lambda: world.there.extend(there))
    world.clock.after(5.0, lambda: setattr(world.pipe, "is_loose", True))
    agent.run()
    assert [{"ranks": [0]}] * 2 == world.of(FrameKind.HELLO)  # and again when it has ended


def test_a_training_of_one_process_is_rank_0_once_it_makes_steps(world: World) -> None:
    """Without a process group nobody has given it a number; beside others it would be anybody's."""
    world.there = [world.process(None)]
    agent = world.agent()
    agent._add(world.there)
    (link,) = agent.links
    agent._assume_rank(link)  # type: ignore[arg-type]
    assert link.assumed_rank is None
    link.reader.get_u64 = lambda offset: int(offset == ring_file.OFFSET_STEP_HEAD)  # type: ignore[union-attr,method-assign]
    agent._assume_rank(link)  # type: ignore[arg-type]
    assert 0 == link.assumed_rank
    agent._add([world.process(None, NO_PID + 1)])
    other = agent.links[1]
    other.reader = link.reader
    agent._assume_rank(other)  # type: ignore[arg-type]
    assert other.assumed_rank is None


def test_a_rank_that_two_processes_claim_is_turned_away(world: World) -> None:
    """With the reason."""
    agent = world.agent(control_fd=9)
    world.clock.after(1.0, lambda: setattr(Link.made[0], "contested", "another process is rank 0"))
    world.clock.after(2.0, lambda: setattr(world.pipe, "is_loose", True))
    agent.run()
    assert "turn_away not watched: another process is rank 0" in Link.made[0].did


@pytest.mark.parametrize(("looks", "is_pushed"), [(0, False), (10**6, True)])
def test_a_rank_that_makes_no_step_is_left_from_outside(world: World, looks: int, *, is_pushed: bool) -> None:
    """One that does takes the probe out by itself; nobody is waited for beyond a limit."""
    agent = world.agent()
    world.clock.after(
        1.0, lambda: (setattr(Link.made[0], "leaves_after", looks), agent._on_signal(signal.SIGTERM, None))
    )
    begun_ns = world.clock.now_ns
    agent.run()
    link = Link.made[0]
    assert is_pushed is (link.state is RankState.LIVE)
    assert world.clock.now_ns - begun_ns < (3 + 2 * PUSH_OUT_S) * NS
    assert {"reason": "stopped by SIGTERM"} == world.frames[-1][1]
    assert any(one.startswith("push_out") for one in link.did)
