"""One node's agent: finds the ranks, injects, drains the rings, samples the machine, speaks frames.

In: where the hub listens, and which processes are meant.  Out: frames; the ranks run on as if nobody had been there.
A rank that fails, hangs or ends is said to do so and never stops the others.
"""

from __future__ import annotations

import os
import select
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tuiadvisor import priority
from tuiadvisor.agent import procfs, rivals
from tuiadvisor.agent.attach import REAL_INJECTOR, Injector
from tuiadvisor.agent.attach_batch import LEAVE_S, PUSH_OUT_S
from tuiadvisor.agent.control_pipe import ControlPipe
from tuiadvisor.agent.crew import Crew
from tuiadvisor.agent.discovery import NoRanksError, RankFinder, RankProcess
from tuiadvisor.agent.drain import Drain, status_of
from tuiadvisor.agent.gpu import GpuSampler
from tuiadvisor.agent.hello import hello, host_name
from tuiadvisor.agent.host import HostSampler
from tuiadvisor.agent.looks import pause_ns
from tuiadvisor.agent.rank_link import RankLink, named
from tuiadvisor.agent.session import remove_leftovers
from tuiadvisor.agent.stack_samples import StackSamples
from tuiadvisor.agent.stall_dumps import StallDumps
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.events import RankState
from tuiadvisor.log import Logger
from tuiadvisor.stream.frames import FrameKind
from tuiadvisor.stream.link import AgentLink
from tuiadvisor_probes import ring as ring_file

if TYPE_CHECKING:
    from types import FrameType

    from tuiadvisor.stream.keys import PeerKey

logger: Final = Logger(__name__)
NS: Final = 10**9
SEND_NS: Final = NS // 2
HOST_NS: Final = NS
SEARCH_NS: Final = 2 * NS
ALL_ENDED_NS: Final = 5 * NS
RESTART_NS: Final = 60 * NS  # an elastic restart may take this long while its launcher lives


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """Whom to watch, and whom to tell."""

    endpoint: str
    pids: tuple[int, ...] = ()
    parent_pid: int | None = None  # leave when this process is gone
    wait_for_ranks_s: float = 0.0  # how long the training may take to appear
    key: PeerKey | None = None  # for a hub on another machine
    control_fd: int | None = (
        None  # leave when this closes: whoever started us is gone; requests come from there
    )
    slurm_job: str = ""  # nodes may be shared by several jobs


def run_agent(config: AgentConfig, injector: Injector = REAL_INJECTOR) -> int:
    """Watch until all ranks have ended, the parent is gone or a signal comes; 0.

    TuiadvisorError if there is nothing to watch.
    """
    return Agent(config, injector).run()


def search_pause_ns(cost_ns: int, is_waiting: bool) -> int:
    """How long after a look at all processes the next one comes; cost_ns: processor time of the last.

    On a node with thousands of processes a look is dear: it stays below a hundredth of a core. Not while all ranks
    have ended: their successors must be found before we give them up.
    """
    return SEARCH_NS if is_waiting else max(SEARCH_NS, 100 * cost_ns)


class Agent:
    """The loop and what it holds."""

    def __init__(self, config: AgentConfig, injector: Injector) -> None:
        self.links: list[RankLink] = []
        self._config = config
        self._injector = injector
        self._host = host_name()
        source = f"{self._host}/{os.getpid()}/{time.time_ns()}"
        self._hub = AgentLink(config.endpoint, source, key=config.key)
        self._finder = RankFinder(config.pids, slurm_job=config.slurm_job)
        self._drain = Drain()
        self._host_sampler = HostSampler(self._host)
        self._gpus = GpuSampler()
        self._executor = Crew()
        self._stacks = StackSamples()
        self._stall_dumps = StallDumps()
        self._ended = select.poll()
        self._exit_fds: dict[int, int] = {}  # pid -> pidfd
        self._hello_key: object = None
        self._control_pipe = ControlPipe(config.control_fd) if config.control_fd is not None else None
        self._budget_ppm: int | None = None  # as wished
        self._reason = ""
        self._alone_since_ns: int | None = None
        parent = procfs.stat(config.parent_pid) if config.parent_pid else None
        self._parent_ticks = parent.start_ticks if parent else None

    def run(self) -> int:
        """Until there is a reason to end."""
        priority.give_way()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        try:
            remove_leftovers()
            self._gpus.start()
            self._add(self._first_ranks())
            logger.info("watches %d processes, and from now on those that start later", len(self.links))
            self._watch()
            self._leave()
        except TuiadvisorError as error:
            self._reason = str(error)
            logger.info("nothing to watch: %s", error)
            raise
        finally:
            for link in self.links:
                link.is_leaving = True  # an attach that has not yet touched its rank does not begin now
            self._executor.finish()
            for link in self.links:  # after a bug of ours too, the ranks are left in order
                link.ask_to_leave()
                link.release()
            self._gpus.stop()
            logger.info("ends: %s", self._reason or "by a bug")
            self._hub.send(FrameKind.BYE, {"reason": self._reason})
            self._hub.close()
            for descriptor in self._exit_fds.values():
                os.close(descriptor)
            priority.no_longer()
        return 0

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._reason = f"stopped by {signal.Signals(number).name}"

    def _first_ranks(self) -> list[RankProcess]:
        deadline_ns = time.monotonic_ns() + int(self._config.wait_for_ranks_s * NS)
        while True:
            self._obey()
            try:
                return self._finder.first()
            except NoRanksError:
                if self._reason or self._is_orphan():
                    return []
                if time.monotonic_ns() >= deadline_ns:
                    raise
            time.sleep(0.1)

    def _watch(self) -> None:
        now_ns = time.monotonic_ns()
        send_ns, host_ns, searched_ns, cost_ns = now_ns, now_ns, now_ns, 0
        while not self._reason:
            now_ns = time.monotonic_ns()
            self._obey()
            changed = self._advance(now_ns)
            self._host_sampler.look(self.links)
            # The first numbers go out at once; then twice a second.
            if changed or self._drain.has_first_steps or now_ns >= send_ns:
                self._send()
                send_ns = now_ns + SEND_NS
            if now_ns >= host_ns:
                self._hub.send(FrameKind.HOST, self._host_sampler.sample(self.links, self._gpus.latest()))
                host_ns = now_ns + HOST_NS
            if now_ns >= searched_ns + search_pause_ns(cost_ns, self._alone_since_ns is not None):
                searched_ns, began_ns = now_ns, time.thread_time_ns()
                self._add(self._finder.again())
                cost_ns = time.thread_time_ns() - began_ns
            self._look_for_reason(now_ns)
            self._sleep_until(now_ns + pause_ns())

    def _obey(self) -> None:
        """What whoever started us wants."""
        for request in self._control_pipe.take() if self._control_pipe else ():
            if request.budget_ppm is not None:
                self._budget_ppm = request.budget_ppm
                for link in self.links:
                    link.want_budget(request.budget_ppm)
            if request.burst_ms is not None:
                for link in self.links:
                    if request.ranks is None or link.rank in request.ranks:
                        link.ask_for_burst(request.burst_ms)
            if request.stacks is not None:
                self._stacks.ask(request.stacks, self.links, self._executor)

    def _advance(self, now_ns: int) -> bool:
        """Move every link on and read its ring; whether any changed its state."""
        rivals.settle(self.links)
        self._retire()
        before = [link.state for link in self.links]
        told = [(link.state, link.detail) for link in self.links]
        for link in self.links:
            try:
                self._advance_one(link, now_ns)
            except Exception as error:  # one rank's trouble may not blind us to the others
                logger.exception("%s: the agent failed on it", named(link))
                link.state, link.detail = RankState.REFUSED, f"the agent failed on it: {error!r}"
        for link, (state, detail) in zip(self.links, told, strict=True):
            if (state, detail) != (link.state, link.detail):
                logger.info("%s: %s -> %s%s", named(link), state.name, link.state.name, _why(link))
        return before != [link.state for link in self.links]

    def _advance_one(self, link: RankLink, now_ns: int) -> None:
        if link.is_over:
            return
        has_ended = not link.is_busy and link.look_for_end()
        if not link.hold_back():
            link.advance(now_ns, self._executor)
        if link.read_info():
            rivals.settle(self.links)
        self._assume_rank(link)
        if link.contested and link.reader is not None and rivals.may_turn_away(link, self.links):
            link.turn_away(f"not watched: {link.contested}")
        self._drain.take(link)
        if has_ended:
            link.end()
            self._forget_exit(link.process.pid)
        else:
            link.come_back()

    def _assume_rank(self, link: RankLink) -> None:
        """A training of one process has no process group: rank 0 of 1 once it makes steps without one."""
        if link.rank is not None or len(self.links) > 1 or link.reader is None or not link.info.python:
            return
        if link.reader.get_u64(ring_file.OFFSET_STEP_HEAD) > 0:
            link.assumed_rank = 0

    def _add(self, processes: list[RankProcess]) -> None:
        for process in processes:
            logger.info("found rank %s: process %d, %s", process.rank, process.pid, process.label)
            link = RankLink(process, self._injector)
            if self._budget_ppm is not None:
                link.want_budget(self._budget_ppm)
            self.links.append(link)
            with suppress(OSError):
                descriptor = os.pidfd_open(process.pid)
                self._exit_fds[process.pid] = descriptor
                self._ended.register(descriptor, select.POLLIN)

    def _retire(self) -> None:
        """After an elastic restart the new process stands for its rank, and the ended one for nothing."""
        latest: dict[int | None, RankLink] = {link.rank: link for link in self.links if link.rank is not None}
        self.links = [
            link for link in self.links if not (link.is_over and latest.get(link.rank, link) is not link)
        ]

    def _forget_exit(self, pid: int) -> None:
        descriptor = self._exit_fds.pop(pid, None)
        if descriptor is not None:
            self._ended.unregister(descriptor)
            os.close(descriptor)

    def _send(self) -> None:
        key = [
            (
                link.process.pid,
                link.rank,
                link.info,
                link.injection,
                link.state == RankState.LIVE,
                link.budget_ppm,
                link.git_commit,
            )
            for link in self.links
        ]
        gpus = (self._gpus.names(), self._gpus.driver, self._gpus.why_none)
        left_out = self._finder.left_out
        if (key, gpus, left_out) != self._hello_key:
            self._hello_key = (key, gpus, left_out)
            topology = self._host_sampler.topology
            self._hub.send(FrameKind.HELLO, hello(self._host, self.links, gpus, topology, left_out=left_out))
        for kind, payload in self._drain.frames():
            self._hub.send(kind, payload)
        ranks = [status_of(link) for link in self.links]
        status = {
            "host": self._host,
            "mono_ns": time.monotonic_ns(),
            "wall_ns": time.time_ns(),
            "ranks": ranks,
        }
        if not self._reason:
            self._stall_dumps.look(
                list(zip(self.links, ranks, strict=True)), time.monotonic_ns(), self._executor
            )
        beside = {"stacks": self._stacks.take(), "recorders": self._stall_dumps.take()}
        self._hub.send(FrameKind.STATUS, {**status, **{name: said for name, said in beside.items() if said}})

    def _look_for_reason(self, now_ns: int) -> None:
        if self._reason:
            return
        if self._is_orphan():
            self._reason = "the command that watched has ended"
        if not all(link.is_over for link in self.links):
            self._alone_since_ns = None
        elif self._alone_since_ns is None:
            self._alone_since_ns = now_ns
        elif now_ns - self._alone_since_ns >= (RESTART_NS if self._finder.launcher_lives() else ALL_ENDED_NS):
            self._reason = "all ranks ended"

    def _is_orphan(self) -> bool:
        if self._control_pipe is not None and self._control_pipe.is_loose:
            return True
        if self._config.parent_pid is None:
            return False
        parent = procfs.stat(self._config.parent_pid)
        return parent is None or not parent.is_alive or parent.start_ticks != self._parent_ticks

    def _sleep_until(self, until_ns: int) -> None:
        """Sleep; a rank's end wakes us while its parent may not yet have taken its exit code."""
        remaining_ms = max(0, until_ns - time.monotonic_ns()) / 1e6
        for descriptor, _ in self._ended.poll(remaining_ms):
            self._ended.unregister(descriptor)
            pid = next(pid for pid, known in self._exit_fds.items() if known == descriptor)
            os.close(self._exit_fds.pop(pid))

    def _leave(self) -> None:
        """Take all probes out, send what they still wrote, delete what we made."""
        logger.info("leaves: %s", self._reason)
        for link in self.links:
            link.ask_to_leave()
        self._wait_until_out(LEAVE_S)
        for link in self.links:
            if link.state == RankState.LIVE:
                logger.info("%s: made no step in time, its probe is taken out from outside", named(link))
            link.push_out(self._executor)
        self._wait_until_out(PUSH_OUT_S)
        self._send()

    def _wait_until_out(self, limit_s: float) -> None:
        deadline_ns = time.monotonic_ns() + int(limit_s * NS)
        while time.monotonic_ns() < deadline_ns:
            self._advance(time.monotonic_ns())
            if not any(link.state == RankState.LIVE or link.is_busy for link in self.links):
                return
            time.sleep(0.02)


def _why(link: RankLink) -> str:
    return f": {link.detail}" if link.detail else ""
