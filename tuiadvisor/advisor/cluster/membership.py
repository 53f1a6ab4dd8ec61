"""Who takes part: agents, hosts and ranks, what state they are in, and what was lost of them.

In: HELLO, STATUS, HOST, RUN, BYE and GAP frames and every frame's sequence number.  Out: facts for the view.
Time is the frames' own: the reader's clock is never asked.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.advisor.cluster.agents import Agent, event_time_s, silent
from tuiadvisor.advisor.cluster.bursts import Bursts
from tuiadvisor.advisor.cluster.crowding import RunQueues, crowd
from tuiadvisor.advisor.cluster.device_clocks import DeviceClocks
from tuiadvisor.advisor.cluster.device_counters import DeviceCounters
from tuiadvisor.advisor.cluster.ends import deaths, in_short
from tuiadvisor.advisor.cluster.host_clocks import HostClocks, by_first_clock
from tuiadvisor.advisor.cluster.host_rows import host_row
from tuiadvisor.advisor.cluster.host_use import HostUse
from tuiadvisor.advisor.cluster.leaving import Leaving
from tuiadvisor.advisor.cluster.memory import MemoryUse
from tuiadvisor.advisor.cluster.off_core import Outside
from tuiadvisor.advisor.cluster.owners import Owners, foreign
from tuiadvisor.advisor.cluster.payload_fields import MAX_RANKS, Payload, integer, objects, text
from tuiadvisor.advisor.cluster.placement import Placements
from tuiadvisor.advisor.cluster.rank_facts import RankFacts
from tuiadvisor.advisor.cluster.recorder_answers import RecorderAnswers
from tuiadvisor.advisor.cluster.restarts import Restarts
from tuiadvisor.advisor.cluster.run_delay import CoreWait
from tuiadvisor.advisor.cluster.run_header import RunHeader
from tuiadvisor.advisor.cluster.stack_looks import StackLooks
from tuiadvisor.advisor.cluster.stops import Stops
from tuiadvisor.advisor.cluster.unwatched import is_held_up, left_out, unplaced, why_stepless
from tuiadvisor.stream.frames import HUB_SOURCE, FrameKind
from tuiadvisor.views.placement import num_cpus

if TYPE_CHECKING:
    from tuiadvisor.causes.facts import Crowd
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.metrics.steps.arrays import Ints
    from tuiadvisor.stream.frames import Frame
    from tuiadvisor.views.run_view import HostRow

MAX_SOURCES: Final = 1 << 14
OTHER_HOSTS: Final = "further hosts"  # one agent could name a million
MAX_NOTES: Final = 12
ENDED: Final = frozenset({"exited", "killed"})
GONE: Final = ENDED | {"detached", "refused"}
STEPLESS: Final = "no step is measured"
# A quarter of the samples that are held of a host, one a second: the others stay those of the steps. Steps may be long.
STANDS_S: Final = 16.0
_WITH_CLOCK: Final = frozenset({FrameKind.HELLO, FrameKind.STATUS, FrameKind.HOST})


class Roster:
    """Mutable: feed it frames."""

    def __init__(self) -> None:
        self.agents: dict[str, Agent] = {}
        self._host_names: set[str] = set()
        self._left: dict[str, None] = {}  # those of them that said BYE, the first first
        self.ranks: dict[int, RankFacts] = {}
        self.owners = Owners()
        self._num_sources = 0  # ever seen
        self._num_statuses = 0
        self._newest_ns = 0  # of all agents whose clock is known, on the wall clock
        self._waiting: dict[int, RankFacts] = {}  # what another source than the owner says of its process
        self._is_on_devices: bool | None = None  # None: ask the ranks
        self.hosts: dict[str, HostRow] = {}
        self.core_wait = CoreWait()
        self.outside = Outside(self.core_wait)
        self.run_queues = RunQueues()
        self.memory = MemoryUse()
        self.device_clocks = DeviceClocks()
        self.device_counters = DeviceCounters()
        self.placements = Placements()
        self.stops = Stops()
        self.restarts = Restarts()
        self.leaving = Leaving()
        self.bursts = Bursts()
        self.stack_looks = StackLooks()
        self.recorder_answers = RecorderAnswers()
        self.host_use = HostUse()
        self.clocks = HostClocks()
        self.header = RunHeader()
        self.driver: str | None = None
        self.num_frames_lost = 0
        self.num_frames_bad = 0
        self.num_not_recorded = 0
        self.hub_bye: str | None = None
        self.notes: list[str] = []
        self.unplaced: dict[str, tuple[str, ...]] = {}  # why processes without a rank number are not watched
        self.left_out: dict[str, str] = {}  # by source: ranks of the same job that nobody named to it

    def agent_of(self, source: str) -> Agent | None:
        """The agent that sends under this name; None when there are too many to be true."""
        agent = self.agents.get(source)
        if agent is not None:
            return agent
        if len(self.agents) >= MAX_SOURCES and self._left:  # who said BYE makes room, as at the hub
            first = next(iter(self._left))
            del self._left[first], self.agents[first]
        if len(self.agents) < MAX_SOURCES:
            host = self._bounded(source.split("/", 1)[0] or source)
            agent = self.agents[source] = Agent(source, host, self._num_sources)
            self._num_sources += 1
        return agent

    def _bounded(self, host: str) -> str:
        """The host's name, or one for all that are too many to be true."""
        if host not in self._host_names:
            if len(self._host_names) >= MAX_SOURCES:
                return OTHER_HOSTS
            self._host_names.add(host)
        return host

    def take(self, frame: Frame) -> None:
        """Fold one frame of any kind; STEPS and EVENTS only count here."""
        if frame.source == HUB_SOURCE:
            self._hub(frame)
            return
        agent = self.agent_of(frame.source)
        if agent is None:
            return
        self._sequence(agent, frame)
        payload = frame.payload
        if frame.kind == FrameKind.HELLO:
            self._hello(agent, payload)
        elif frame.kind == FrameKind.STATUS:
            self._status(agent, payload)
        elif frame.kind == FrameKind.HOST:
            self._host(agent, payload)
        elif frame.kind == FrameKind.BYE:
            agent.bye = text(payload, "reason") or "left"
            self._left[agent.source] = None
        elif frame.kind == FrameKind.RUN:
            self._run(payload)
        elif frame.kind == FrameKind.GAP:
            self._gap(payload)

    def own_columns(self, source: str, columns: dict[str, Ints]) -> dict[str, Ints]:
        """Of a frame that was just taken, without the rows of ranks that belong to another source."""
        agent = self.agents.get(source)
        if agent is None:
            return columns
        others = foreign(self.owners.lend(), columns["rank"], agent.number)
        if not others.any():
            return columns
        self.owners.note(np.unique(columns["rank"][others]).tolist())
        return {name: column[~others] for name, column in columns.items()}

    def is_on_devices(self) -> bool:
        """Whether any rank computes on a device. A view asks seven times, and what ranks say of it changes seldom."""
        if self._is_on_devices is None:
            self._is_on_devices = any(
                fact.texts.get("device", "cpu") != "cpu" for fact in self.ranks.values()
            )
        return self._is_on_devices

    def replicas(self) -> dict[int, int]:
        """The lowest rank of the pipeline that each rank says it is in."""
        first = {rank: fact.pipeline.get("first_rank") for rank, fact in self.ranks.items() if fact.pipeline}
        return {rank: number for rank, number in first.items() if number is not None}

    def learns_clock(self, frame: Frame) -> bool:
        """Whether this frame may be the first to say what a host's clock shows."""
        if frame.kind not in _WITH_CLOCK:
            return False
        agent = self.agents.get(frame.source)
        if agent is None or agent.wall_shift_ns is None:
            return True
        return not self.clocks.knows(text(frame.payload, "host") or agent.host)

    def last_heard_ns(self, rank: int) -> int | None:
        """When its agent was last heard, on its host's clock."""
        facts = self.ranks.get(rank)
        agent = self.agents.get(facts.source) if facts is not None else None
        return agent.last_ns if agent is not None else None

    # -- kinds of frames -------------------------------------------------------------------------------------

    def _sequence(self, agent: Agent, frame: Frame) -> None:
        if agent.next_seq is not None and frame.seq > agent.next_seq:
            self.num_frames_lost += frame.seq - agent.next_seq
        agent.next_seq = frame.seq + 1 if agent.next_seq is None else max(agent.next_seq, frame.seq + 1)
        agent.first_ns = agent.first_ns or frame.time_ns
        agent.last_ns = max(agent.last_ns, frame.time_ns)
        if agent.wall_shift_ns is not None:
            self._newest_ns = max(self._newest_ns, agent.newest_ns)
        agent.met_ns = self._newest_ns
        agent.silent = None

    def _hub(self, frame: Frame) -> None:
        if frame.kind == FrameKind.RUN:
            self._run(frame.payload)
        elif frame.kind == FrameKind.GAP:
            self._gap(frame.payload)
        elif frame.kind == FrameKind.BYE:
            self.hub_bye = text(frame.payload, "reason") or "hub stopped"

    def _run(self, payload: Payload) -> None:
        for sentence in self.header.take(payload):
            self.note(sentence)

    def _gap(self, payload: Payload) -> None:
        what, source = text(payload, "what") or "", text(payload, "source")
        num_frames, why = integer(payload, "num_frames") or 0, text(payload, "why") or ""
        agent = self.agents.get(source) if source else None
        who = f"agent on {agent.host}" if agent else (source or "hub")
        if what == "frames missing":
            self.num_frames_lost += num_frames
            if agent is not None:
                agent.next_seq = None  # the hub has counted this gap
        elif what == "bad frames":
            self.num_frames_bad += num_frames
        elif what == "not recorded":
            self.num_not_recorded += num_frames
        elif what == "agent silent" and agent is not None:
            agent.silent = why
            return  # said as long as it lasts, by `silent_agents`
        elif what == "agent returned" and agent is not None:
            agent.silent = None
            # Of one agent the newest alone: over a bad link there are hundreds.
            self.notes = [each for each in self.notes if not each.startswith(f"{who}: {what}")]
        self.note(f"{who}: {what}, {why}" if why else f"{who}: {what}")

    def note(self, sentence: str) -> None:
        """Keep a sentence for the view, the newest few, each once."""
        if sentence in self.notes:
            self.notes.remove(sentence)
        self.notes.append(sentence)
        del self.notes[:-MAX_NOTES]

    def _clocks(self, agent: Agent, payload: Payload) -> None:
        wall, mono = integer(payload, "wall_ns"), integer(payload, "mono_ns")
        host = text(payload, "host")
        if host:
            agent.host = self._bounded(host)
        if wall is not None and mono is not None and agent.wall_shift_ns is None:
            boot = text(payload, "boot_id") or ""
            agent.wall_shift_ns = self.clocks.first_shift_ns(agent.host, boot, wall - mono)
            agent.set_by_ns = wall - mono - agent.wall_shift_ns
        if agent.wall_shift_ns is not None:
            self.clocks.note(agent.host, agent.wall_shift_ns)

    def _facts(self, agent: Agent, entry: Payload) -> RankFacts | None:
        """Of the rank of an entry, if it is this agent's or becomes it with this entry."""
        rank = integer(entry, "rank")
        if rank is None or rank >= MAX_RANKS:
            return None
        facts = self.ranks.get(rank)
        if facts is None:
            facts = self.ranks[rank] = RankFacts(rank, agent.source, agent.host)
            self._give(rank, agent)
        elif facts.source != agent.source:
            # An end is nothing to take a rank over with: that of a former process may be told long after.
            if entry.get("state") in GONE or not self._is_free(facts):
                if entry.get("state") == "live":
                    self.owners.note([rank])
                return None
            facts = self._taken_over(facts, agent)
        facts.source, facts.host = agent.source, agent.host
        return facts

    def _is_free(self, facts: RankFacts) -> bool:
        """Whether another source may speak for it: by what hub and owner say, and by no clock of a source's."""
        if self._has_left(facts.source) or facts.state in GONE:
            return True
        return facts.rank not in self.agents[facts.source].owned

    def _has_left(self, source: str) -> bool:
        agent = self.agents.get(source)
        return agent is None or agent.bye is not None or agent.silent is not None

    def _taken_over(self, facts: RankFacts, agent: Agent) -> RankFacts:
        rank, owner = facts.rank, self.agents.get(facts.source)
        if owner is not None:
            owner.owned.discard(rank)
        waiting = self._waiting.get(rank)
        if waiting is not None and waiting.source == agent.source:
            facts = self.ranks[rank] = self._waiting.pop(rank)
            self._is_on_devices = None
        self._give(rank, agent)
        return facts

    def _give(self, rank: int, agent: Agent) -> None:
        agent.owned.add(rank)
        self.owners.give(rank, agent.number)

    def _remember(self, agent: Agent, entry: Payload) -> None:
        """Keep what a second source says of a rank, for when the first lets it go: it is said once only."""
        rank = integer(entry, "rank")
        known = self.ranks.get(rank) if rank is not None else None
        if rank is None or known is None or known.source == agent.source:
            return
        waiting = self._waiting.get(rank)
        if waiting is None or waiting.source == agent.source or self._has_left(waiting.source):
            waiting = self._waiting[rank] = RankFacts(rank, agent.source, agent.host)
            waiting.greet(entry)

    def _own(self, agent: Agent, payload: Payload) -> Payload:
        """The payload without what it says of ranks of other sources."""
        entries = objects(payload, "ranks")
        own = [entry for entry in entries if not self._is_anothers(agent, integer(entry, "rank"))]
        return payload if len(own) == len(entries) else {**payload, "ranks": own}

    def _is_anothers(self, agent: Agent, rank: int | None) -> bool:
        facts = self.ranks.get(rank) if rank is not None else None
        return facts is not None and facts.source != agent.source

    def _hello(self, agent: Agent, payload: Payload) -> None:
        self._clocks(agent, payload)
        payload = by_first_clock(payload, agent.set_by_ns, self.ranks, agent.host)
        self._is_on_devices = None
        self.driver = text(payload, "driver") or self.driver
        self.placements.greet(agent.host, payload)
        self.left_out[agent.source] = left_out(payload, agent.host)
        agent.owned = set()  # it replaces the former one: what it no longer names is let go
        ended = self._how_ended(payload)
        for entry in objects(payload, "ranks"):
            self.clocks.note_young(agent.host, entry)
            facts = self._facts(agent, entry)
            if facts is None:
                self._remember(agent, entry)
                continue
            agent.owned.add(facts.rank)
            facts.greet(entry)
            self.placements.tell(facts.rank, facts.model)
            if isinstance(device := entry.get("compute_device"), dict):
                self.placements.tell_imported(facts.rank, device)
            if facts.start_wall_ns is not None:
                self.restarts.take(facts.rank, facts.start_wall_ns, ended)
        self._host_row(agent, payload)

    def begins_restart(self, hello: Payload) -> bool:
        """Whether the processes that this HELLO names follow others that were known."""
        told = (
            (integer(entry, "rank"), integer(entry, "start_wall_ns")) for entry in objects(hello, "ranks")
        )
        known = [(rank, start) for rank, start in told if rank is not None and start is not None]
        return self.restarts.would_begin(known)

    def _how_ended(self, hello: Payload) -> str:
        """What is known of the processes that those of this HELLO follow, before they take their place."""
        return in_short(deaths(self.ranks.values())) if self.begins_restart(hello) else ""

    def _status(self, agent: Agent, payload: Payload) -> None:
        self._clocks(agent, payload)
        self._num_statuses += 1
        now_ns = integer(payload, "mono_ns")
        self.unplaced[agent.source] = unplaced(payload, self.unplaced.get(agent.source, ()))
        self.leaving.hear(agent.newest_ns)
        is_ending, is_overdue = self.leaving.has_begun, self.leaving.is_overdue
        for entry in objects(payload, "ranks"):
            facts = self._facts(agent, entry)
            if facts is not None:
                agent.owned.add(facts.rank)
                facts.update(entry, now_ns, is_ending=is_ending, is_overdue=is_overdue)
                self.leaving.take(facts)
                self.bursts.take(entry, facts.rank)
                facts.ended_at = (facts.ended_at or self._num_statuses) if facts.state in ENDED else 0
        self.stops.take(agent.host, self._own(agent, payload))
        for entry in objects(payload, "stacks"):
            rank = integer(entry, "rank")
            if rank is not None and rank in self.ranks and not self._is_anothers(agent, rank):
                self.stack_looks.take(entry, self.ranks[rank].still_since_ns, now_ns)
        for entry in objects(payload, "recorders"):
            rank = integer(entry, "rank")
            if rank in self.ranks and not self._is_anothers(agent, rank):
                self.recorder_answers.take(entry, rank)

    def _host(self, agent: Agent, payload: Payload) -> None:
        self._clocks(agent, payload)
        payload = self._own(agent, payload)
        if not self._stands(agent):
            self.core_wait.take(payload)
            self.outside.take(payload)
            self.run_queues.take(agent.host, payload)
        self.host_use.take(agent.host, payload)
        self.memory.take(agent.host, payload)
        self.device_clocks.take(agent.host, payload)
        self.device_counters.take(agent.host, payload)
        self.placements.take(agent.host, payload)
        self.stops.take(agent.host, payload)
        self._host_row(agent, payload)

    def _stands(self, agent: Agent) -> bool:
        """Whether none of its ranks moves: no step waits for what its host does then.

        The newest samples alone are held, and these would push out those of the steps.
        """
        owned = [self.ranks[rank] for rank in agent.owned if rank in self.ranks]
        return bool(owned) and all(
            facts.state == "live" and (facts.still_s or 0.0) >= STANDS_S for facts in owned
        )

    def _host_row(self, agent: Agent, payload: Payload) -> None:
        host = agent.host
        self.hosts[host] = host_row(host, payload, self.hosts.get(host), self.host_use)

    # -- what follows ----------------------------------------------------------------------------------------

    def looks_at_stand(self) -> frozenset[int]:
        """Numbers of the looks at stacks since which the rank in question has not moved."""
        return frozenset(
            look.number
            for look in self.stack_looks.newest_first()
            if look.stood_since_ns is not None
            and look.of in self.ranks
            and self.ranks[look.of].still_since_ns == look.stood_since_ns
        )

    def world_size(self) -> int | None:
        """The largest world size any rank reports."""
        return max((f.world_size for f in self.ranks.values() if f.world_size), default=None)

    def hosts_of_ranks(self) -> set[str]:
        """Hosts that ranks were seen on."""
        return {facts.host for facts in self.ranks.values()}

    def cores_of_hosts(self) -> dict[str, int] | None:
        """Cores of each host of the ranks; None while one does not say."""
        cores: dict[str, int] = {}
        for host in self.hosts_of_ranks():
            row = self.hosts.get(host)
            if row is None or row.num_cpus is None:
                return None
            cores[host] = row.num_cpus
        return cores

    def cores_per_rank(self) -> float | None:
        """Cores that a rank may use for each that shares them, where they are fewest; None while a host does not say.

        Ranks that are bound to the same CPUs share these and no others, however many the host has.
        """
        cores = self.cores_of_hosts()
        if not cores:
            return None
        on_host = Counter(fact.host for fact in self.ranks.values())
        bound = Counter((fact.host, self.placements.cpus_of(fact.rank) or "") for fact in self.ranks.values())
        shares = [num_cpus(cpus) / num for (_, cpus), num in bound.items() if num_cpus(cpus)]
        return min([*shares, *(cores[host] / num for host, num in on_host.items())])

    def crowd(self, diagnosis: Diagnosis) -> Crowd:
        """How crowded the hosts of these ranks were over the window."""
        return crowd(diagnosis, self.run_queues, self.outside)

    def newest_ns(self) -> dict[str, int]:
        """Latest frame time of each agent on a common clock: the wall where known, else the host's own."""
        return {agent.source: agent.newest_ns for agent in self.agents.values()}

    def silent_agents(self) -> dict[str, float | None]:
        """Sources not heard although others are, with the seconds where they can be known."""
        return silent(self.agents.values())

    def lost_agents(self) -> frozenset[str]:
        """Sources that the hub does not hear any more, by its own clock: what they have sent may only come late."""
        return frozenset(agent.source for agent in self.agents.values() if agent.silent is not None)

    def why_no_step(self) -> str:
        """What was found of ranks none of which makes a step; "" as long as one of them is not explained."""
        if not self.ranks:  # a process that waits outside a training has no number yet
            return why_stepless(tuple(why for reasons in self.unplaced.values() for why in reasons))
        # A rank that cannot be entered is why the others wait, and says what lets it go on.
        held = [fact for fact in self.ranks.values() if is_held_up(fact.state, fact.detail)]
        if held:
            more = f" (and {len(held) - 1} more)" if len(held) > 1 else ""
            return f"Rank {held[0].rank}{more}: {held[0].detail}"
        live = [fact for fact in self.ranks.values() if fact.state == "live"]
        # Behind the reason stands a command for this one rank.
        whys = [fact.no_step.partition(" (")[0] for fact in live]
        if not whys or not all(whys):
            return ""
        if len(set(whys)) > 1 or len(whys) == 1 < len(self.ranks):
            return f"Rank {live[0].rank}: {whys[0]}"
        return f"{'The rank' if len(whys) == 1 else 'Each rank'}: {whys[0]}"

    def event_time_s(self) -> float | None:
        """Seconds between the first and the latest frame of any agent."""
        return event_time_s(self.agents.values())
