"""The agents of one session as processes on this machine: the agent itself, or the ssh or srun that runs it elsewhere.

In: processes that read an invitation from their standard input, whose end is their end.  Out: who ended, with what
words, and all of them gone at the end.
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections import deque
from typing import IO, TYPE_CHECKING, Final, Protocol

import orjson

from tuiadvisor.log import Logger
from tuiadvisor.loglimits import Allowance, Count, heard
from tuiadvisor.ownpython import own_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tuiadvisor.stream.keys import Invitation, PeerKey
    from tuiadvisor.stream.probe_request import ProbeRequest

logger: Final = Logger(__name__)
MAX_LINES: Final = 50  # of what a process said last
MAX_LINE_BYTES: Final = 2000
LOG_BURST: Final = 1000.0  # lines of one of them; less than all of us may write
LOG_LINES_A_SECOND: Final = 10.0
LEAVE_S: Final = 12.0  # probes out of all ranks, then over the network and back
KILL_S: Final = 2.0
_OWN: Final = "tuiadvisor: "  # how our own errors begin; ssh and srun have words before and after them


class Launcher(Protocol):
    """How agents come to the machines that are meant."""

    def agents_endpoint(self, folder: Path) -> str:
        """Where the hub has to listen for them; "*" is a port of its choice."""
        ...

    def num_keys(self) -> int:
        """How many of them can be given a key of their own; 1 where all get the same."""
        ...

    def start(self, url: str, keys: Sequence[PeerKey]) -> Agents:
        """Start them; `url` is where the hub listens. No keys: it is private."""
        ...


class Launched:
    """One process whose words are heard from the start; its standard input is its control pipe."""

    def __init__(
        self,
        label: str,
        command: Sequence[str],
        on_line: Callable[[Launched, str], None],
        descriptors: Sequence[int] = (),
    ) -> None:
        """descriptors: the log's, for a process that writes to it itself."""
        self.label = label
        self.said: deque[str] = deque(maxlen=MAX_LINES)
        self.error = ""  # what we know better than its last words
        self._on_line = on_line
        self._lock = threading.RLock()
        self._invited = False
        self._allowance, self._not_logged = Allowance(LOG_BURST, LOG_LINES_A_SECOND), Count()
        self._requests: list[bytes] = []  # said before it knew where the hub is
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=own_environment(),
            start_new_session=True,  # Ctrl-C in the terminal is ours to handle: first probes out, then off
            pass_fds=descriptors,
        )
        logger.info("started the agent%s as process %d", f" of {label}" if label else "", self.process.pid)
        # A thread each: a full pipe would stop ssh, and a tunnel's port is said there.
        self._listener = threading.Thread(target=self._listen, name=f"launch {label}", daemon=True)
        self._listener.start()

    def invite(self, invitation: Invitation) -> None:
        """Tell it where the hub is and give it its key."""
        with self._lock:
            lines, self._requests = [orjson.dumps(invitation.document()) + b"\n", *self._requests], []
            self._invited = True
            self._with_stdin(lambda stdin: stdin.writelines(lines))

    def request(self, request: ProbeRequest) -> None:
        """Tell it what is wanted; kept until it is invited, whose first line is the invitation."""
        with self._lock:
            if not self._invited:
                self._requests.append(request.line())
                return
        self._with_stdin(lambda stdin: stdin.write(request.line()))

    def release(self) -> None:
        """Close its control pipe: it takes its probes out and ends."""
        self._with_stdin(lambda stdin: stdin.close())

    def fail(self, error: str) -> None:
        """End it for a reason that we can name."""
        self.error = self.error or error
        self.process.terminate()

    def failure(self) -> str | None:
        """Why it ended; None while it runs or after a good end."""
        code = self.process.poll()
        if code in (None, 0):
            return None
        self._listener.join(KILL_S)
        return self.error or _reason(self.said) or f"the agent {how_it_ended(code)}"

    def close(self, deadline_s: float) -> None:
        """Wait for its end, insist after the deadline."""
        self.release()
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                self.process.wait(max(0.0, deadline_s - time.monotonic()))
                break
            except subprocess.TimeoutExpired:
                self.process.send_signal(number)
                deadline_s = time.monotonic() + KILL_S
        logger.info("process %d of the agent ended with code %d", self.process.pid, self.process.wait())
        self._listener.join(KILL_S)
        if self.process.stderr is not None:
            self.process.stderr.close()

    def _with_stdin(self, action: Callable[[IO[bytes]], object]) -> None:
        with self._lock:
            stdin = self.process.stdin
            if stdin is None or stdin.closed:
                return
            try:
                action(stdin)
                if not stdin.closed:
                    stdin.flush()
            except OSError:
                return  # it ended: its exit code and last words tell more

    def _listen(self) -> None:
        assert self.process.stderr is not None  # noqa: S101  # we asked for the pipe
        while raw := self.process.stderr.readline(MAX_LINE_BYTES):
            line = "".join(char for char in raw.decode(errors="replace") if char.isprintable()).strip()
            if logged := heard(line):
                self._log(*logged)
            elif line:
                self.said.append(line)
                self._on_line(self, line)

    def _log(self, level: int, text: str) -> None:
        """What an agent elsewhere wrote into its log; its host may be hostile."""
        if self._allowance.take():
            logger.at(level, "%s: %s", self.label, text)
        elif num := self._not_logged.add():
            logger.warning("%s: %d lines left out: too many at once", self.label, num)


def how_it_ended(code: int | None) -> str:
    """A process of ours that said nothing. Whether the kernel has taken ranks as well was not seen: its log tells."""
    if code is None or code >= 0:
        return "ended" if not code else f"ended with exit code {code}"
    number = -code
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    if number != signal.SIGKILL:
        return f"was killed by {name}"
    return f"was killed by {name}, as the kernel does where memory runs out (dmesg tells, also of ranks)"


def _reason(said: Sequence[str]) -> str:
    """What the agent itself gave as its reason; else the last word of whatever ran it."""
    own = next((line for line in reversed(said) if _OWN in line), None)
    return own.partition(_OWN)[2] if own else (said[-1] if said else "")


class Agents:
    """All agents of a session."""

    def __init__(self, launched: Sequence[Launched]) -> None:
        self.launched = list(launched)

    def error(self) -> str | None:
        """What those that failed said, one line; None while all is well."""
        failures = [(one.label, failure) for one in self.launched if (failure := one.failure())]
        if not failures:
            return None
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        label, failure = failures[0]
        return (f"{label}: {failure}" if label else failure) + more

    def request(self, request: ProbeRequest) -> None:
        """Tell all of them; each passes it to those of its ranks that are meant."""
        for one in self.launched:
            one.request(request)

    def ended(self) -> bool:
        """Whether none of them watches any more."""
        return all(one.process.poll() is not None for one in self.launched)

    def close(self) -> None:
        """Probes out everywhere, at the same time; then every process gone."""
        for one in self.launched:
            one.release()
        deadline_s = time.monotonic() + LEAVE_S
        for one in self.launched:
            one.close(deadline_s)
