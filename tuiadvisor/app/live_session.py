"""A live session: a hub and the agents as processes of their own, and the way out of it; or a visit to another's hub.

Screens may stop, hang or die without stopping the recording; the hub may die without touching the ranks. Leaving asks
the agent to take its probes out, then the hub to close its file.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import orjson

from tuiadvisor import log
from tuiadvisor.app.nothing_recorded import remove_if_nothing
from tuiadvisor.errors import FailureError, TuiadvisorError
from tuiadvisor.events import NOTHING_GIVEN, GivenWork
from tuiadvisor.launch.address import listening_endpoint, reachable_url
from tuiadvisor.launch.agents import how_it_ended
from tuiadvisor.launch.local import LocalLauncher
from tuiadvisor.ownpython import own_environment, python_command
from tuiadvisor.stream.keys import Invitation, SessionKeys, make_session_keys, write_invitation
from tuiadvisor.stream.probe_request import ProbeRequest
from tuiadvisor.stream.relay import Relay
from tuiadvisor.stream.source import LiveSource
from tuiadvisor.stream.wire import fits_socket

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuiadvisor.launch.agents import Agents, Launcher

logger: Final = log.Logger(__name__)
HUB_START_S: Final = 10.0
HUB_STOP_S: Final = 5.0
FOLDER_PREFIX: Final = "tuiadvisor-session-"
LONGEST_SOCKET: Final = "viewers"


@dataclass(frozen=True, slots=True)
class Share:
    """Let viewers on other machines in: where the hub listens for them, and a file for each key of theirs."""

    files: tuple[Path, ...]
    address: str  # a name or number of this machine


@dataclass(frozen=True, slots=True)
class Terms:
    """What the user says of a session."""

    work: GivenWork = NOTHING_GIVEN  # of one step of the job
    budget_ppm: int | None = None  # millionths of the step time that the probes may take; None: as they think


DEFAULT_TERMS: Final = Terms()


class Session:
    """Hub and agents of one watch or record; a context manager."""

    def __init__(
        self,
        pids: Sequence[int],
        record: str | None,
        label: str,
        command: str,
        *,
        launcher: Launcher | None = None,
        share: Share | None = None,
        terms: Terms = DEFAULT_TERMS,
    ) -> None:
        """record: the file to write; None keeps the frames in a private file that goes with the session.

        launcher: brings the agents; default: one to this machine, for `pids`.
        """
        remove_left_folders()
        self.folder = Path(tempfile.mkdtemp(prefix=_own_prefix()))
        self._sockets = _place_for_sockets(self.folder)
        self.record = Path(record) if record else self.folder / "run.tuirec"
        self.is_dropped = False  # nothing was recorded, and the file is gone
        self._has_begun = False  # the file: whatever was there before would have been refused
        self._share = share
        self._terms = terms
        self._shared: list[Path] = []  # files that were written
        self._agents: Agents | None = None
        self._relay: Relay | None = None
        chosen = launcher or LocalLauncher(pids)
        try:
            endpoint = chosen.agents_endpoint(self._sockets)
            # A private socket needs no keys; a port that others reach does, loopback included.
            num_viewers = len(share.files) if share else 1
            is_local = not share and endpoint.startswith("ipc:")
            keys = None if is_local else make_session_keys(chosen.num_keys(), num_viewers)
            self.hub, self.viewer_url, agents_url = self._start_hub(label, command, endpoint, keys)
            is_open = keys is not None and not agents_url.startswith("ipc:")
            self._agents = chosen.start(agents_url, keys.agents if keys and is_open else ())
            if terms.budget_ppm is not None:
                self.request(ProbeRequest(budget_ppm=terms.budget_ppm))
        except BaseException:
            self.close()
            self.drop_if_nothing()
            raise

    def __enter__(self) -> Self:
        """Already started."""
        return self

    def __exit__(self, error_class: type[BaseException] | None, *_: object) -> None:
        """Leave without a trace; what failed before anything was seen leaves no recording of nothing either."""
        self.close()
        if error_class is not None:
            self.drop_if_nothing()

    def forward(self, upper: Invitation) -> None:
        """Send what the agents say on to the hub above, too."""
        self._relay = Relay(self.source(), upper)
        self._relay.start()

    def source(self) -> LiveSource:
        """A new viewer of this session's hub."""
        return LiveSource(self.viewer_url)

    def request(self, request: ProbeRequest) -> None:
        """Tell the agents what is wanted, by the pipe that only we can write to."""
        if self._agents is not None:
            self._agents.request(request)

    @property
    def agent(self) -> subprocess.Popen[bytes]:
        """The process of the first agent, or of the ssh or srun that runs it."""
        if self._agents is None:
            raise FailureError("no agent was started")
        return self._agents.launched[0].process

    def agent_error(self) -> str | None:
        """What an agent said before it ended by itself with an error; None while all run or after a good end."""
        return self._agents.error() if self._agents else None

    def why_hub_ended(self) -> str:
        """What it said before it ended by itself."""
        code = self.hub.poll()
        said = _last_line(self.folder / "hub.log") if code == FailureError.exit_code else ""
        return said or f"the hub {how_it_ended(code)}; what it wrote before is kept, and no rank waits for it"

    def why_silent(self) -> str:
        """What to say when nothing at all came."""
        return self.agent_error() or "no data came from the ranks; `tuiadvisor doctor` tells more"

    def agent_ended(self) -> bool:
        """Whether no agent has anything left to watch."""
        return self._agents is not None and self._agents.ended()

    def close(self) -> None:
        """Probes out, recording closed, private files gone."""
        if self._agents is not None:
            self._agents.close()
        if self._relay is not None:
            self._relay.stop()
        if "hub" in self.__dict__:
            _stop(self.hub, HUB_STOP_S)
            logger.info("the hub ended with code %d", self.hub.returncode)
        for file in self._shared:
            file.unlink(missing_ok=True)  # it opens nothing any more
        for folder in {self.folder, self._sockets}:
            shutil.rmtree(folder, ignore_errors=True)

    def drop_if_nothing(self) -> None:
        """After the end: remove a recording of nothing, which would only stand in the way of the next try."""
        self.is_dropped = self.is_dropped or (self._has_begun and remove_if_nothing(self.record))

    def _start_hub(
        self, label: str, command: str, endpoint: str, keys: SessionKeys | None
    ) -> tuple[subprocess.Popen[bytes], str, str]:
        # With "=": a file or a script may be called -train.py.
        arguments = [f"--record={self.record}", f"--endpoint={endpoint}"]
        arguments += [f"--viewer=ipc://{self._sockets}/viewers", f"--parent={os.getpid()}"]
        arguments += [f"--label={label}", f"--command={command[:4000]}"]
        for name, value in self._terms.work.document().items():
            arguments += [f"--{name.replace('_', '-')}={value}"]
        arguments += ["--keys"] if keys else []
        arguments += [f"--share={listening_endpoint(self._share.address)}"] if self._share else []
        log_options, descriptors = log.for_child()
        with (self.folder / "hub.log").open("ab") as words:
            hub = subprocess.Popen(
                python_command("tuiadvisor.stream.hub", *log_options, *arguments),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=words,
                env=own_environment(),
                start_new_session=True,  # Ctrl-C in the terminal is ours to handle: first out, then off
                pass_fds=descriptors,
            )
        logger.info("started the hub as process %d", hub.pid)
        self.hub = hub
        if hub.stdin is None or hub.stdout is None:
            raise FailureError("the hub did not start")
        with contextlib.suppress(BrokenPipeError), hub.stdin:
            hub.stdin.write(orjson.dumps(keys.hub.document()) + b"\n" if keys else b"")
        line = hub.stdout.readline()
        if not line:
            is_mistake = hub.wait(HUB_START_S) == TuiadvisorError.exit_code
            said = _last_line(self.folder / "hub.log")
            raise (
                TuiadvisorError(said)
                if said and is_mistake
                else FailureError(said or "the hub did not start")
            )
        self._has_begun = True
        endpoints = orjson.loads(line)
        if self._share and keys:
            url = reachable_url(self._share.address, int(endpoints["share"].rpartition(":")[2]))
            for file, key in zip(self._share.files, keys.viewers, strict=True):
                write_invitation(file, Invitation(url, key))
                self._shared.append(file)
        return hub, endpoints["viewer"], endpoints["endpoint"]


class Visit:
    """A hub that others started: watched, never changed; a context manager like a session."""

    is_dropped = False  # what it records is another's

    def __init__(self, invitation: Invitation) -> None:
        self._url = invitation.url
        self._source = LiveSource(invitation.url, key=invitation.key)

    def __enter__(self) -> Self:
        """Nothing to start."""
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to stop: its feed closes the source."""

    def source(self) -> LiveSource:
        """The one viewer of this visit."""
        return self._source

    request = None  # they obey whoever started them

    def agent_error(self) -> str | None:
        """Agents are another's: what they lack comes with the frames."""
        return None

    def why_silent(self) -> str:
        """What to say when nothing at all came: a hub that refuses a key does not say so."""
        if self._source.status.history_share is not None:
            return f"{self._url}: the hub answers, but no rank has been found yet; --for 5m waits longer"
        return f"{self._url}: no hub answers there, or not to this key; take both from its --share FILE"

    def agent_ended(self) -> bool:
        """The hub's end is the end."""
        return self._source.status.ended


def _stop(process: subprocess.Popen[bytes], patience_s: float) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _last_line(path: Path) -> str:
    try:
        lines = path.read_text(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""


def _short_places() -> list[Path]:
    """Where the path of a socket stays short; private folders are made in them."""
    places = [Path(os.environ.get("XDG_RUNTIME_DIR", "")), Path("/tmp")]  # noqa: S108
    return [place for place in places if place.is_absolute() and os.access(place, os.W_OK | os.X_OK)]


def _place_for_sockets(folder: Path) -> Path:
    """The session's folder, or another of ours alone where the temporary folder's name is too long for a socket."""
    if fits_socket(folder / LONGEST_SOCKET):
        return folder
    short = next((one for one in _short_places() if fits_socket(one / folder.name / LONGEST_SOCKET)), None)
    # With no shorter place the hub says what is wrong.
    return folder if short is None else Path(tempfile.mkdtemp(prefix=_own_prefix(), dir=short))


def _own_prefix() -> str:
    return f"{FOLDER_PREFIX}{os.getpid()}-"


def remove_left_folders() -> None:
    """Delete private folders of our own whose command was killed: logs, and recordings nobody asked to keep."""
    places = {Path(tempfile.gettempdir()), *_short_places()}
    for folder in (found for place in places for found in place.glob(f"{FOLDER_PREFIX}*")):
        owner = folder.name.removeprefix(FOLDER_PREFIX).partition("-")[0]
        with contextlib.suppress(OSError):
            is_ours = folder.lstat().st_uid == os.geteuid() and folder.is_dir() and not folder.is_symlink()
            if is_ours and owner.isdigit() and not Path(f"/proc/{owner}").exists():
                shutil.rmtree(folder, ignore_errors=True)
