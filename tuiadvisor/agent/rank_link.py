"""One rank's link: from found, over attached and live, to detached, ended or refused.

In: the process and the ways to inject.  Out: its state with a sentence, and its ring's reader while there is one.
Nothing here waits: an injection runs in a thread of its own, and `advance` looks what has come of it.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tuiadvisor.agent import procfs
from tuiadvisor.agent.attach import IMPORTING, REAL_INJECTOR, Attached, attach, share, undo
from tuiadvisor.agent.info import ProbeInfo, parse_info
from tuiadvisor.agent.ownfolder import present_session
from tuiadvisor.agent.session import LEASE_NS, RingSession
from tuiadvisor.agent.step_under_way import StepUnderWay
from tuiadvisor.agent.stepless import Stepless
from tuiadvisor.agent.timespace import OUR_CLOCK
from tuiadvisor.agent.training_thread import StandingThread, TrainingThread
from tuiadvisor.agent.workingcopy import CommitLookup
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.events import EXITING, EventKind, RankState
from tuiadvisor.inject import Identity, InjectError, Injection
from tuiadvisor.log import Logger
from tuiadvisor.phases import PHASES
from tuiadvisor_probes import ring as ring_file
from tuiadvisor_probes.duty import DEFAULT_BUDGET_PPM, PPM

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

    from tuiadvisor.agent.attach import Injector
    from tuiadvisor.agent.discovery import RankProcess

DATA_WAIT: Final = PHASES.index("data_wait")
logger: Final = Logger(__name__)
NS: Final = 10**9
RETRY_NS: Final = NS
MAX_BROKEN_OFF: Final = 10  # attaches: a handler that raises in each of them will in the next
# A rank that is busy in C, stopped, or looked at by a debugger is not refused: it is waited for.
PASSING_REASONS: Final = frozenset(
    {"busy", "busy_in_c", "timeout", "stopped", "being_debugged", "tracer_killed"}
)
REASON_ASKED, REASON_LEASE, REASON_EXIT = range(3)  # detail of EventKind.DETACHED
WAITING_FOR_INTERPRETER: Final = "waiting for the interpreter"
TAKEN_OUT: Final = (
    "somebody else took the probe out: `tuiadvisor detach`, or a watcher of another version; watch again"
)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _is_other_image(then: tuple[int, int], now: tuple[int, int]) -> bool:
    return any(then) and any(now) and then != now


class RankLink:
    """A rank, its state, and the ring between us."""

    def __init__(self, process: RankProcess, injector: Injector = REAL_INJECTOR) -> None:
        self.process = process
        self.state = RankState.FOUND
        self.detail = ""
        self.reader: ring_file.RingReader | None = None
        self.session: RingSession | None = None
        self.injection: Injection | None = None
        self.info = ProbeInfo()
        self.clock = OUR_CLOCK  # until it is attached to
        self.standing = StandingThread()
        self.stepless = Stepless(process.pid)
        self.under_way = StepUnderWay()
        self.training_thread = TrainingThread()
        self.assumed_rank: int | None = None  # of a training that is not distributed
        self.detach_reason: int | None = None
        self.is_leaving = False
        self.refusal = ""  # why we do not want it after all
        self.contested = ""  # who else claims to be this rank, where it is not taken for it
        self.burst_ns: tuple[int, int] | None = None  # every step in detail: asked for when, until when
        self.budget_ppm: int | None = None  # of the step time, as its ring says; None without one
        self._wanted_budget_ppm: int | None = None
        self._budget_told: ring_file.RingReader | None = None  # the ring that knows it
        self._injector = injector
        self._attempt: Future[Attached] | None = None
        self._removal: Future[Injection] | None = None
        self._commit: CommitLookup | None = None
        self._raw_info = b""
        self._retry_at_ns = 0
        self._num_broken_off = 0  # attaches
        self._began_ns = 0  # of the last attempt
        self._exit_code: int | None = None  # as wait() codes it; None where nobody could see it
        self.last_step: int | None = None  # that its ring told, once it has ended
        self._is_replaced = False  # by exec: the same process runs another program

    @property
    def rank(self) -> int | None:
        """What it is taken for: what it claims to be, unless another is."""
        return None if self.contested else self.claim

    @property
    def claim(self) -> int | None:
        """The rank as the process itself says, else as its environment says."""
        if self.refusal:
            return None
        told = self.info.rank if self.info.rank is not None else self.process.rank
        return self.assumed_rank if told is None else told

    @property
    def thread(self) -> int:
        """The thread that trains, by our count; the main thread while no other is known to."""
        told = self.reader.thread() if self.reader is not None and self._is_readable() else 0
        return self.training_thread.of(self.process.pid, told)

    @property
    def world_size(self) -> int | None:
        """Number of ranks of the training."""
        if self.info.world_size is not None:
            return self.info.world_size
        return 1 if self.assumed_rank is not None else self.process.world_size

    @property
    def git_commit(self) -> str | None:
        """The commit it was started from, once that is known."""
        return self._commit.commit if self._commit is not None else None

    @property
    def waits_for_data(self) -> bool:
        """Whether its training thread does so at this moment."""
        if self.reader is None or self.state != RankState.LIVE:
            return False
        try:
            return self.reader.now()[0] == DATA_WAIT
        except OSError:  # somebody's hands on its ring are told where it is followed
            return False

    @property
    def is_over(self) -> bool:
        """The process has ended."""
        return self.state in {RankState.EXITED, RankState.KILLED}

    @property
    def is_busy(self) -> bool:
        """A thread is at work on the process."""
        return any(job is not None and not job.done() for job in (self._attempt, self._removal))

    def advance(self, now_ns: int, executor: Executor) -> None:
        """Take the next step if it is time: attach, see the probe come up, renew its lease."""
        if self.is_over or self.state == RankState.REFUSED:
            return
        if self._attempt is not None:
            self._collect(self._attempt, now_ns)
        elif self.reader is not None:
            self._follow(self.reader, now_ns)
        elif not self.is_leaving and self.state != RankState.DETACHED and now_ns >= self._retry_at_ns:
            self._try(now_ns, executor)

    def read_info(self) -> bool:
        """Whether the probe told something new about its process."""
        raw = self.reader.info() if self.reader else b""
        if not raw or raw == self._raw_info:
            return False
        self._raw_info = raw
        before, self.info = self.info.core, parse_info(raw)
        if self.info.core and self.info.core != before:
            why = f": {self.info.core_why}" if self.info.core_why else ""
            logger.info("%s: its hooks run on the %s core%s", named(self), self.info.core, why)
        return True

    def look_for_end(self) -> bool:
        """Whether the process, or the program in it, has ended since the last look; its ring can still be read then."""
        found = procfs.stat(self.process.pid)
        is_same = found is not None and found.start_ticks == self.process.start_ticks
        if found is not None and is_same and found.is_alive:
            self._is_replaced = _is_other_image(self.process.image, found.image)
            return self._is_replaced
        if found is not None and is_same:
            # A zombie: its parent has not asked yet, we can. Who may not know reads 0.
            may_know = os.geteuid() in {0, self.process.identity.uid}
            self._exit_code = found.exit_code if found.exit_code or may_know else None
        return True

    def end(self) -> None:
        """The process has ended and its ring was read: say how, and clean up."""
        self.state, self.detail = self._how_it_ended()
        self.release()

    def ask_to_leave(self) -> None:
        """Tell the probe to take itself out at its next event, unless somebody else watches it too."""
        self.is_leaving = True
        if self.session is None or self.reader is None or self.state == RankState.DETACHED:
            return
        if self.session.has_other_watchers():
            self.state, self.detail = RankState.DETACHED, "another watcher keeps the probe"
            self.reader.close()
            self.session.close()
            self.reader = self.session = None
        elif self._is_readable():
            self.reader.put_u64(ring_file.OFFSET_COMMAND, ring_file.COMMAND_DETACH)

    def want_budget(self, budget_ppm: int) -> None:
        """From its next step on the probe may take so much of the step time."""
        self._wanted_budget_ppm, self._budget_told = budget_ppm, None

    def ask_for_burst(self, burst_ms: int) -> bool:
        """Every step in detail from now on for so long; whether the rank has a probe that can."""
        if self.state != RankState.LIVE or self.reader is None or not self._is_readable():
            return False
        now_ns = time.monotonic_ns()
        until_ns = now_ns + burst_ms * 1_000_000
        self.reader.put_u64(ring_file.OFFSET_BURST, self.clock.to_rank(until_ns))
        begun_ns, former_ns = self.burst_ns or (now_ns, now_ns)
        self.burst_ns = (begun_ns if now_ns <= former_ns else now_ns, until_ns)
        return True

    def contest(self, why: str) -> None:
        """Others claim its rank, or (empty) no longer."""
        if self.state == RankState.WAITING_TO_ATTACH and self.detail == self.contested != why:
            self.state, self.detail = RankState.FOUND, ""
        self.contested = why

    def hold_back(self) -> bool:
        """Whether it is not even begun with, because its rank is another's."""
        is_untouched = self.reader is None and self._attempt is None
        if not self.contested or not is_untouched or self.state == RankState.REFUSED:
            return False
        self.state, self.detail = RankState.WAITING_TO_ATTACH, self.contested
        return True

    def turn_away(self, why: str) -> None:
        """Take the probe out again: this process is not what it was taken for."""
        self.refusal = why
        self.ask_to_leave()

    def push_out(self, executor: Executor) -> None:
        """Remove the probe from outside: the rank makes no events at which it could do so itself."""
        if self.state == RankState.LIVE and self._removal is None:
            code = self._injector.detach_code()
            self._removal = executor.submit(self._injector.inject, self.process.identity, code)

    def release(self) -> None:
        """Let go of the ring and delete it."""
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.add_done_callback(undo)  # at once where it is done; it may hang still
        if self.reader is not None:
            self.reader.close()
        if self.session is not None:
            self.session.remove()
        self.reader = self.session = None

    def _try(self, now_ns: int, executor: Executor) -> None:
        self._retry_at_ns = now_ns + RETRY_NS
        if not self._injector.has_torch(self.process.pid):
            self.detail = "has not imported torch yet"
            return
        if self.state != RankState.WAITING_TO_ATTACH:  # else the reason it waits for stays in sight
            self.detail = "attaching"
        self._began_ns = time.monotonic_ns()
        logger.debug("%s: attach begins", named(self))
        self._attempt = executor.submit(
            attach, self.process, replace(self._injector, inject=self._inject_unless_leaving)
        )

    def _inject_unless_leaving(self, target: Identity, code: str) -> Injection:
        if self.is_leaving:  # asked to, while this attach waited for its turn or for the rank's files
            raise InjectError(target.pid, "busy", "it is not watched any more", "watch it again")
        return self._injector.inject(target, code)

    def _collect(self, attempt: Future[Attached], now_ns: int) -> None:
        if not attempt.done():
            return
        self._attempt = None
        try:
            attached = attempt.result()
        except InjectError as error:
            logger.info("%s: no attach after %s: %s: %s", named(self), self._took(), error.reason, error.what)
            self._refuse(error)
        except (TuiadvisorError, OSError, ring_file.RingError) as error:
            logger.info("%s: no attach after %s: %s", named(self), self._took(), error)
            self.state, self.detail = RankState.REFUSED, str(error)
        else:
            logger.info("%s: attached after %s, %s", named(self), self._took(), _way(attached.injection))
            self.session, self.reader, self.injection = attached.session, attached.reader, attached.injection
            self.clock = attached.clock
            self._commit = self._commit or CommitLookup(
                self.process.identity
            )  # now the attach cannot wait for it
            self.state, self.detail = RankState.WAITING_TO_ATTACH, WAITING_FOR_INTERPRETER
            if self.is_leaving:
                self.ask_to_leave()
            else:
                self._follow(self.reader, now_ns)

    def _took(self) -> str:
        return f"{(time.monotonic_ns() - self._began_ns) / NS:.2f} s"

    def _refuse(self, error: InjectError) -> None:
        if error.reason in PASSING_REASONS:
            self.state, self.detail = RankState.WAITING_TO_ATTACH, f"{error.what}; {error.remedy}"
        elif error.reason not in {"gone", "zombie"}:  # an ended process is reported by look_for_end
            self.state, self.detail = RankState.REFUSED, f"{error.what}; {error.remedy}"

    def _follow(self, reader: ring_file.RingReader, now_ns: int) -> None:
        if not self._is_readable():
            self.state, self.detail = RankState.REFUSED, "its ring was deleted or cut short by somebody"
            self.release()
            return
        if not self.is_leaving:
            reader.put_u64(ring_file.OFFSET_LEASE, self.clock.to_rank(now_ns + LEASE_NS))
        if self._wanted_budget_ppm is not None and self._budget_told is not reader:
            # Once a ring: another watcher of it may want another one later.
            reader.put_u64(ring_file.OFFSET_BUDGET, 1 + self._wanted_budget_ppm)
            self._budget_told = reader
        said = reader.get_u64(ring_file.OFFSET_BUDGET)
        self.budget_ppm = said - 1 if 0 < said <= PPM + 1 else DEFAULT_BUDGET_PPM if not said else None
        state = reader.get_u64(ring_file.OFFSET_STATE)
        if state == ring_file.STATE_LIVE:
            self.state, self.detail = RankState.LIVE, self.session.place_note if self.session else ""
            self.stepless.look(reader, self.info, now_ns, self.clock.to_rank(now_ns))
            self.under_way.look(*reader.now())
        elif state == ring_file.STATE_EMPTY and now_ns >= self._retry_at_ns:
            self._retry_at_ns = now_ns + RETRY_NS
            self._share_if_late(now_ns)
        elif state == ring_file.STATE_FAILED:
            self.read_info()
            self.release()
            why = self.info.error or "it does not say why"
            self._num_broken_off += why == ring_file.BROKEN_OFF
            is_broken_off = why == ring_file.BROKEN_OFF and self._num_broken_off < MAX_BROKEN_OFF
            if why == IMPORTING or is_broken_off:
                self.state, self.detail = RankState.FOUND, why
            else:
                self.state, self.detail = RankState.REFUSED, f"the probe could not be installed: {why}"
        elif state == ring_file.STATE_DETACHED:
            self._look_who_took_it_out(reader)
            self.state, self.detail = RankState.DETACHED, self._why_detached()

    def _share_if_late(self, now_ns: int) -> None:
        """Another watcher came in the same moment and its probe was first: ours never wakes up, so share that one."""
        if self.is_leaving or self.session is None:
            return
        try:
            session = present_session(self.process)
        except InjectError:  # it has ended: look_for_end says so
            return
        if session is None or session.directory == self.session.directory:
            if session is not None:
                session.close()
            return
        try:
            shared = share(session, self.clock.to_rank(now_ns + LEASE_NS))
        except (OSError, ring_file.RingError):
            return
        self.release()
        self.session, self.reader, self.injection = shared.session, shared.reader, None

    def come_back(self) -> None:
        """The probe left by itself because we were silent too long: put it in again."""
        if self.state == RankState.DETACHED and self.detach_reason == REASON_LEASE and not self.is_leaving:
            self.release()
            self.state, self.detail, self.detach_reason = RankState.FOUND, "", None

    def _look_who_took_it_out(self, reader: ring_file.RingReader) -> None:
        """The probe's last record says so, and was written before its state: no need to wait until it is drained.

        The rows of a rank without a number are never drained, and what is said meanwhile goes out at once.
        """
        last = reader.last_event()
        if self.detach_reason is None and last is not None and last[0] == EventKind.DETACHED:
            self.detach_reason = last[-1]

    def _why_detached(self) -> str:
        if self.refusal:
            return self.refusal
        if self.detach_reason == REASON_LEASE:
            return "the probe left: no watcher renewed its lease"
        if self.detach_reason == REASON_EXIT:
            return EXITING
        if not self.is_leaving:
            return TAKEN_OUT
        where = self.session.place_note if self.session is not None else ""
        return f"probe taken out; {where}" if where else "probe taken out"

    def _is_readable(self) -> bool:
        return (
            self.session is not None
            and self.reader is not None
            and self.session.is_whole(self.reader.num_bytes)
        )

    def _how_it_ended(self) -> tuple[RankState, str]:
        after = ""
        if self.reader is not None and self._is_readable():
            # The ring tells which step is under way; steps are counted from 0. A process that was killed right behind
            # its last record has not said so any more.
            last = self.reader.last_step()
            self.last_step = step = max(self.reader.now()[2], 0 if last is None else last[0] + 1)
            after = f" after step {step - 1:,}" if step else " before its first step had ended"
        if self._is_replaced:
            return RankState.EXITED, f"replaced itself by exec{after}"
        code = self._exit_code
        if code:
            number = code & 0x7F
            if number:
                return RankState.KILLED, f"killed by {_signal_name(number)}{after}"
            return RankState.EXITED, f"exited with code {code >> 8}{after}"
        return self._how_it_left(after)

    def _how_it_left(self, after: str) -> tuple[RankState, str]:
        """Of a process that no signal is known to have killed, and that told no error."""
        if self.state == RankState.LIVE and self.detach_reason is None:
            if self._exit_code == 0:
                return RankState.EXITED, f"left with exit code 0{after}, without its exit hooks (os._exit)"
            return RankState.KILLED, f"gone without its exit hooks{after}: killed, or os._exit"
        if self.detach_reason == REASON_EXIT:
            return RankState.EXITED, f"exited{after}"
        return RankState.EXITED, f"exited or was killed{after}"


def named(link: RankLink) -> str:
    """The rank as a log names it."""
    return f"rank {'?' if link.rank is None else link.rank} (process {link.process.pid})"


def _way(injection: Injection | None) -> str:
    if injection is None:
        return "by a probe that was there"
    return f"by {injection.way}, which held it for {injection.stopped_ns / 1e6:.1f} ms"
