"""Who takes part: agents, hosts and ranks, what state they are in, and what was lost of them.

In: HELLO, STATUS, HOST, RUN, BYE and GAP frames and every frame's sequence number.  Out: facts for the view.
Time is the frames' own: the reader's clock is never asked.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from tuiadvisor.advisor.cluster.crowding import RunQueues, typical_wait
from tuiadvisor.advisor.cluster.device_clocks import DeviceClocks, device_line
from tuiadvisor.advisor.cluster.device_counters import DeviceCounters
from tuiadvisor.advisor.cluster.device_work import device_work
from tuiadvisor.advisor.cluster.host_use import HostUse
from tuiadvisor.advisor.cluster.memory import MemoryUse
from tuiadvisor.advisor.cluster.off_core import Outside
from tuiadvisor.advisor.cluster.owners import Owners, foreign
from tuiadvisor.advisor.cluster.payload_fields import Payload, integer, number, objects, text
from tuiadvisor.advisor.cluster.placement import Placements
from tuiadvisor.advisor.cluster.rank_facts import RankFacts
from tuiadvisor.advisor.cluster.run_delay import CoreWait
from tuiadvisor.advisor.cluster.stack_looks import StackLooks
from tuiadvisor.advisor.cluster.stops import Stops
from tuiadvisor.causes.facts import Crowd
from tuiadvisor.events import MAX_FLOPS, MAX_WORK_PER_STEP, NOTHING_GIVEN, GivenWork
from tuiadvisor.metrics.lateness.off_core import least_throttled
from tuiadvisor.stream.frames import HUB_SOURCE, FrameKind
from tuiadvisor.views.run_view import HostRow, Imported, Traced

if TYPE_CHECKING:
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.metrics.steps.arrays import Ints
    from tuiadvisor.stream.frames import Frame

SILENT_AFTER_NS: Final = 5_000_000_000
MAX_SOURCES: Final = 1 << 14
OTHER_HOSTS: Final = "further hosts"  # one agent could name a million
MAX_RANKS: Final = 1 << 17
MAX_NOTES: Final = 12
MAX_ASKED: Final = 256  # ranks whose waiting for cores is looked at
# Chosen: others' work comes and goes within seconds, and what is said of the hosts should not go with it.
LEAST_CROWD_S: Final = 15.0
GONE: Final = frozenset({"exited", "killed", "detached", "refused"})
STEPLESS: Final = "no step is measured"
NO_STEP: Final = "attached, but no training step was seen"
NOT_READY: Final = frozenset({"has not imported torch yet", "torch is still being imported"})
STARTED_TOGETHER_NS: Final = 5_000_000_000  # a launcher's ranks; a restarted one comes later
_WITH_CLOCK: Final = frozenset({FrameKind.HELLO, FrameKind.STATUS, FrameKind.HOST})


@dataclass(slots=True)
class Agent:
    """One source of frames."""

    source: str
    host: str
    number: int = 0  # no other source of this fold has it
    next_seq: int | None = None
    first_ns: int = 0
    last_ns: int = 0
    wall_shift_ns: int | None = None  # add to its clock to read the wall clock
    bye: str | None = None
    silent: str | None = None  # what the hub says while it is not heard
    owned: set[int] = field(default_factory=set)  # ranks it speaks for


class Roster:
    """Mutable: feed it frames."""

    def __init__(self) -> None:
        self.agents: dict[str, Agent] = {}
        self._host_names: set[str] = set()
        self._left: dict[str, None] = {}  # those of them that said BYE, the first first
        self.ranks: dict[int, RankFacts] = {}
        self.owners = Owners()
        self._num_sources = 0  # ever seen
        self._waiting: dict[int, RankFacts] = {}  # what another source than the owner says of its process
        self.hosts: dict[str, HostRow] = {}
        self.core_wait = CoreWait()
        self.outside = Outside(self.core_wait)
        self.run_queues = RunQueues()
        self.memory = MemoryUse()
        self.device_clocks = DeviceClocks()
        self.device_counters = DeviceCounters()
        self.placements = Placements()
        self.stops = Stops()
        self.stack_looks = StackLooks()
        self.host_use = HostUse()
        self._wall_shift_ns: dict[str, int] = {}  # by host
        # By host: starts of processes met before they had torch, in order.
        self._seen_young: dict[str, list[int]] = {}
        self._num_young = 0
        self.run: dict[str, str] = {}
        self.driver: str | None = None
        self.given = NOTHING_GIVEN
        self.imported: Imported | None = None
        self.traced: Traced | None = None
        self.created_wall_ns: int | None = None
        self.num_frames_lost = 0
        self.num_frames_bad = 0
        self.num_not_recorded = 0
        self.hub_bye: str | None = None
        self.notes: list[str] = []
        self.unplaced: dict[str, tuple[str, ...]] = {}  # why processes without a rank number are not watched

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
        return (text(frame.payload, "host") or agent.host) not in self._wall_shift_ns

    def process_starts(self, rank: int, host: str) -> list[tuple[int, bool]]:
        """(start on the host's clock, whether it was met before its first step) of those that were this rank."""
        facts, shift = self.ranks.get(rank), self._wall_shift_ns.get(host)
        if facts is None or shift is None:
            return []
        starts = sorted(facts.starts_wall_ns)
        return [(start - shift, self._was_met_young(host, start)) for start in starts]

    def _was_met_young(self, host: str, start: int) -> bool:
        """Whether it, or one that was started with it, had not imported torch when it was met.

        Ranks that were started together make their first step together. On a busy machine the one that is looked at
        first may have torch before anybody comes back to it.
        """
        starts = self._seen_young.get(host, [])
        at = bisect_left(starts, start)
        return any(abs(start - other) <= STARTED_TOGETHER_NS for other in starts[max(at - 1, 0) : at + 1])

    def steps_before(self, rank: int, host: str) -> dict[int, int]:
        """Start of a process that was this rank, on the host's clock: the training's steps before the probe's first."""
        facts, shift = self.ranks.get(rank), self._wall_shift_ns.get(host)
        return (
            {}
            if facts is None or shift is None
            else {at - shift: num for at, num in facts.steps_before.items()}
        )

    def was_met_late(self) -> bool:
        """Whether some rank's process had torch before its agent came: what it did until then nobody saw."""
        return any(
            not self._was_met_young(fact.host, fact.start_wall_ns)
            for fact in self.ranks.values()
            if fact.start_wall_ns is not None
        )

    def last_heard_ns(self, rank: int) -> int | None:
        """When its agent was last heard, on its host's clock."""
        facts = self.ranks.get(rank)
        agent = self.agents.get(facts.source) if facts is not None else None
        return agent.last_ns if agent is not None else None

    def wall_shift_ns(self, host: str) -> int | None:
        """Nanoseconds to add to a host's clock to read its wall clock; None when not known."""
        return self._wall_shift_ns.get(host)

    def clock_shift(self, host: str, other: str) -> int | None:
        """Nanoseconds to add to host's clock to read other's, by their wall clocks; None when not known."""
        shift, others = self._wall_shift_ns.get(host), self._wall_shift_ns.get(other)
        return None if shift is None or others is None else shift - others

    # -- kinds of frames -------------------------------------------------------------------------------------

    def _sequence(self, agent: Agent, frame: Frame) -> None:
        if agent.next_seq is not None and frame.seq > agent.next_seq:
            self.num_frames_lost += frame.seq - agent.next_seq
        agent.next_seq = frame.seq + 1 if agent.next_seq is None else max(agent.next_seq, frame.seq + 1)
        agent.first_ns = agent.first_ns or frame.time_ns
        agent.last_ns = max(agent.last_ns, frame.time_ns)
        agent.silent = None

    def _hub(self, frame: Frame) -> None:
        if frame.kind == FrameKind.RUN:
            self._run(frame.payload)
        elif frame.kind == FrameKind.GAP:
            self._gap(frame.payload)
        elif frame.kind == FrameKind.BYE:
            self.hub_bye = text(frame.payload, "reason") or "hub stopped"

    def _run(self, payload: Payload) -> None:
        self.created_wall_ns = integer(payload, "created_wall_ns")
        self.given = GivenWork(
            _work(payload, "samples_per_step"),
            _work(payload, "tokens_per_step"),
            _work(payload, "flops_per_step", MAX_FLOPS),
            _work(payload, "peak_flops", MAX_FLOPS),
        )
        self._imported(payload)
        self._traced(payload)
        for name in ("tuiadvisor", "label", "command", "hub_host"):
            value = text(payload, name)
            if value:
                self.run[name] = value

    def _imported(self, payload: Payload) -> None:
        """What the run was made of, where no probe recorded it."""
        told = payload.get("imported")
        if not isinstance(told, dict):
            return
        self.imported = _imported(told)
        self.note(f"not live: imported from {self.imported.words or 'another tool'}")
        self._note_all(told)

    def _traced(self, payload: Payload) -> None:
        """What a trace beside the recording adds."""
        told = payload.get("traced")
        if not isinstance(told, dict):
            return
        steps = _integers(told.get("steps"))
        of = _imported(told)
        first, last = steps if len(steps) == 2 else (None, None)
        ranks = _integers(told.get("ranks"))
        self.traced = Traced(
            of.kind, of.source, of.words, of.because, of.late_ranks, of.device, ranks, first, last
        )
        self._note_all(told)

    def _note_all(self, told: Payload) -> None:
        """What an import or a trace says was lost."""
        notes = told.get("notes")
        for sentence in notes[: MAX_NOTES - 1] if isinstance(notes, list) else ():
            self.note(str(sentence))

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
        if wall is not None and mono is not None and agent.wall_shift_ns is None:
            agent.wall_shift_ns = wall - mono
        host = text(payload, "host")
        if host:
            agent.host = self._bounded(host)
        if agent.wall_shift_ns is not None:
            self._wall_shift_ns.setdefault(agent.host, agent.wall_shift_ns)

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
        self.driver = text(payload, "driver") or self.driver
        self.placements.greet(agent.host, payload)
        agent.owned = set()  # it replaces the former one: what it no longer names is let go
        for entry in objects(payload, "ranks"):
            self._note_young(agent.host, entry)
            facts = self._facts(agent, entry)
            if facts is None:
                self._remember(agent, entry)
                continue
            agent.owned.add(facts.rank)
            facts.greet(entry)
        self._host_row(agent, payload)

    def _note_young(self, host: str, entry: Payload) -> None:
        """A process that had not imported torch had done no step: its first record is of its first one."""
        start = integer(entry, "start_wall_ns")
        if start is None or text(entry, "detail") not in NOT_READY or self._num_young >= MAX_RANKS:
            return
        starts = self._seen_young.setdefault(host, [])
        at = bisect_left(starts, start)
        if starts[at : at + 1] != [start]:
            starts.insert(at, start)
            self._num_young += 1

    def _status(self, agent: Agent, payload: Payload) -> None:
        self._clocks(agent, payload)
        now_ns = integer(payload, "mono_ns")
        self.unplaced[agent.source] = _unplaced(payload, self.unplaced.get(agent.source, ()))
        for entry in objects(payload, "ranks"):
            facts = self._facts(agent, entry)
            if facts is not None:
                agent.owned.add(facts.rank)
                facts.update(entry, now_ns)
        self.stops.take(agent.host, self._own(agent, payload))
        for entry in objects(payload, "stacks"):
            rank = integer(entry, "rank")
            if rank in self.ranks and not self._is_anothers(agent, rank):
                self.stack_looks.take(entry)

    def _host(self, agent: Agent, payload: Payload) -> None:
        self._clocks(agent, payload)
        payload = self._own(agent, payload)
        self.core_wait.take(payload)
        self.outside.take(payload)
        self.host_use.take(agent.host, payload)
        self.run_queues.take(agent.host, payload)
        self.memory.take(agent.host, payload)
        self.device_clocks.take(agent.host, payload)
        self.device_counters.take(agent.host, payload)
        self.placements.take(agent.host, payload)
        self.stops.take(agent.host, payload)
        self._host_row(agent, payload)

    def _host_row(self, agent: Agent, payload: Payload) -> None:
        former = self.hosts.get(agent.host)
        lines = [device_line(entry) for entry in objects(payload, "gpus")]
        num_cpus = integer(payload, "num_cpus")
        cpu_mean, iowait_mean, busy_mean, memory_most = self.host_use.means(agent.host)
        disk_busy, reads_s, writes_s = self.host_use.disks(agent.host)
        self.hosts[agent.host] = HostRow(
            host=agent.host,
            cpu=_latest(number(payload, "cpu"), former.cpu if former else None),
            memory=_latest(number(payload, "memory"), former.memory if former else None),
            load_1m=_latest(number(payload, "load_1m"), former.load_1m if former else None),
            num_cpus=num_cpus if num_cpus is not None else (former.num_cpus if former else None),
            cpu_model=text(payload, "cpu_model") or (former.cpu_model if former else None),
            disk_read_bytes_s=_latest(
                number(payload, "disk_read_bytes_s"), former.disk_read_bytes_s if former else None
            ),
            net_bytes_s=_latest(number(payload, "net_bytes_s"), former.net_bytes_s if former else None),
            gpus=tuple(lines) or (former.gpus if former else ()),
            cpu_mean=cpu_mean,
            iowait_mean=iowait_mean,
            device_busy_mean=busy_mean,
            device_memory_most=memory_most,
            network_cards=_texts(payload, "network_cards") or (former.network_cards if former else ()),
            storage=_texts(payload, "storage") or (former.storage if former else ()),
            disk_busy_mean=disk_busy,
            disk_reads_s_mean=reads_s,
            disk_writes_s_mean=writes_s,
        )

    # -- what follows ----------------------------------------------------------------------------------------

    def world_size(self) -> int | None:
        """The largest world size any rank reports."""
        return max((f.world_size for f in self.ranks.values() if f.world_size), default=None)

    def hosts_of_ranks(self) -> set[str]:
        """Hosts that ranks were seen on."""
        return {facts.host for facts in self.ranks.values()}

    def cores_per_rank(self) -> float | None:
        """Cores for each rank on the most crowded host; None while a host does not say."""
        num_ranks: dict[str, int] = {}
        for fact in self.ranks.values():
            num_ranks[fact.host] = num_ranks.get(fact.host, 0) + 1
        shares = []
        for host, num in num_ranks.items():
            row = self.hosts.get(host)
            if row is None or row.num_cpus is None:
                return None
            shares.append(row.num_cpus / num)
        return min(shares, default=None)

    def crowd(self, diagnosis: Diagnosis) -> Crowd:
        """How crowded the hosts of these ranks were over the window, or the last seconds where that is shorter.

        A window begins anew wherever the job changes its pace, which others' work makes it do: not to be asked then
        would be to blame loader or network for what the hosts do.
        """
        last_s = max(float(diagnosis.steady_barrier.cycle_K.sum()), LEAST_CROWD_S)
        table = diagnosis.table
        stride = max(1, table.num_ranks // MAX_ASKED)  # a median needs no more
        seen = self.outside.seen(table.ranks[::stride], last_s)
        return Crowd(
            self.run_queues.ready_per_core(set(table.hosts[::stride]), last_s),
            typical_wait([one.wait for one in seen]),
            # The limit of one rank is its own matter: what is said of all holds for those that feel it least.
            least_throttled(seen),
            min((one.limit_cores for one in seen if one.limit_cores is not None), default=None),
        )

    def newest_ns(self) -> dict[str, int]:
        """Latest frame time of each agent on a common clock: the wall where known, else the host's own."""
        return {a.source: a.last_ns + (a.wall_shift_ns or 0) for a in self.agents.values()}

    def silent_agents(self) -> dict[str, float | None]:
        """Sources not heard although others are, with the seconds where they can be known."""
        result: dict[str, float | None] = {}
        newest, newest_of_host, newest_by_wall = self.newest_ns(), dict[str, int](), 0
        for agent in self.agents.values():
            its = newest[agent.source]
            newest_of_host[agent.host] = max(its, newest_of_host.get(agent.host, its))
            if agent.wall_shift_ns is not None:
                newest_by_wall = max(newest_by_wall, its)
        for agent in self.agents.values():
            if agent.bye is not None:
                continue
            if agent.silent is not None:
                result[agent.source] = None
                continue
            by_host = newest_of_host[agent.host]
            latest = by_host if agent.wall_shift_ns is None else max(by_host, newest_by_wall)
            behind = latest - newest[agent.source]
            if behind > SILENT_AFTER_NS:
                result[agent.source] = behind / 1e9
        return result

    def event_time_s(self) -> float | None:
        """Seconds between the first and the latest frame of any agent."""
        seen = [a for a in self.agents.values() if a.last_ns]
        if not seen:
            return None
        if all(a.wall_shift_ns is not None for a in seen):
            first = min(a.first_ns + (a.wall_shift_ns or 0) for a in seen)
            return max((max(a.last_ns + (a.wall_shift_ns or 0) for a in seen) - first) / 1e9, 0.0)
        return max((a.last_ns - a.first_ns) / 1e9 for a in seen)


def _work(payload: Payload, name: str, most: int = MAX_WORK_PER_STEP) -> int | None:
    value = integer(payload, name)
    return value if value is not None and 0 < value <= most else None


def _unplaced(payload: Payload, former: tuple[str, ...]) -> tuple[str, ...]:
    """Why processes of a STATUS frame that have no rank number are not watched, each reason once.

    former: what was said before; it stays where a probe was taken out again without a step.
    """
    reasons: list[str] = []
    for entry in objects(payload, "ranks"):
        state = text(entry, "state")
        if integer(entry, "rank") is not None:
            continue
        if state == "live":  # of a training of one process the first step tells that it is one
            why = text(entry, "no_step")
            reasons.append(f"not watched yet: {NO_STEP}" + (f": {why}" if why else ""))
        elif state == "detached":
            reasons += [one for one in former if NO_STEP in one]
        elif (why := text(entry, "detail")) and (
            state in {"waiting_to_attach", "refused"} or why in NOT_READY
        ):
            reasons.append(f"not watched: {why}" if state == "refused" else f"not watched yet: {why}")
    return tuple(dict.fromkeys(reasons))


def _latest(value: float | None, former: float | None) -> float | None:
    return former if value is None else value


def _texts(payload: Payload, name: str) -> tuple[str, ...]:
    value = payload.get(name)
    return tuple(one for one in value if isinstance(one, str)) if isinstance(value, list) else ()


def _imported(told: Payload) -> Imported:
    """What traces tell of themselves."""
    late = told.get("late_ranks")
    return Imported(
        kind=text(told, "kind") or "unknown",
        source=text(told, "source") or "",
        words=text(told, "words") or "",
        because=text(told, "because") or "",
        late_ranks=_integers(late) if isinstance(late, list) else None,
        device=device_work(told.get("device")),
    )


def _integers(value: object) -> tuple[int, ...]:
    """Those of a list that are numbers from 0 on, so many as there may be ranks."""
    items = value[:MAX_RANKS] if isinstance(value, list) else []
    return tuple(item for item in items if type(item) is int and 0 <= item < 1 << 62)
