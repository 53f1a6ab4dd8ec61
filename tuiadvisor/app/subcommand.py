"""Another command of ours, run beside the screens: what it is doing and what came of it, in one sentence.

A process of its own, so that screens neither wait for it nor stumble over it; ended with them it leaves in order.
"""

from __future__ import annotations

import subprocess
import tempfile
from typing import TYPE_CHECKING, Any, Final

import orjson

from tuiadvisor import log
from tuiadvisor.ownpython import own_environment, python_command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAX_ANSWER_BYTES: Final = 64 << 20
LEAVE_S: Final = 15.0  # it takes probes out of ranks, from outside if they hang


class Subcommand:
    """One running command with --json."""

    def __init__(
        self, arguments: Sequence[str], doing: str, summary: Callable[[dict[str, Any]], str]
    ) -> None:
        """doing: what to say meanwhile. summary: the sentence for its document."""
        self.sentence = doing
        self._summary = summary
        self._answer = tempfile.TemporaryFile()  # noqa: SIM115 - closed with it
        self._complaint = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            python_command("tuiadvisor", *arguments, "--json"),
            stdin=subprocess.DEVNULL,
            stdout=self._answer,
            stderr=self._complaint,
            env=own_environment() | log.for_command(),
            start_new_session=True,  # Ctrl-C in the terminal is for the screens, which end us in order
        )
        self.is_running = True

    def look(self) -> bool:
        """Whether it has just ended; the sentence then says what came of it."""
        if not self.is_running or self._process.poll() is None:
            return False
        self.is_running = False
        self._answer.seek(0)
        raw = self._answer.read(MAX_ANSWER_BYTES)
        try:
            self.sentence = self._summary(orjson.loads(raw))
        except (ValueError, KeyError, TypeError, IndexError):  # no JSON, or none of what was asked for
            self._complaint.seek(0)
            lines = self._complaint.read(1 << 16).decode(errors="replace").strip().splitlines()
            self.sentence = lines[-1] if lines else f"it ended with exit code {self._process.returncode}"
        self._answer.close()
        self._complaint.close()
        return True

    def stop(self) -> None:
        """End it in order, however far it is."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(LEAVE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self.look()


def capture_subcommand(rank: int, pid: int) -> Subcommand:
    """A profiler window in one rank."""
    arguments = ["capture", str(rank), "--pid", str(pid)]
    return Subcommand(arguments, f"capturing 3 steps of rank {rank} …", _capture_sentence)


def stacks_subcommand(rank: int, pids: Sequence[int]) -> Subcommand:
    """Where a rank of a job that hangs is, and which collective is waited for. pids: of all ranks on this machine."""
    arguments = ["stacks", str(rank), "--pid", *map(str, pids)]
    return Subcommand(arguments, f"looking where rank {rank} is …", _stacks_sentence)


def _stacks_sentence(document: dict[str, Any]) -> str:
    (entry,) = document["ranks"]
    where = entry["stack"] or entry["native"]
    call = f"in {entry['call']}, " if entry["call"] else ""
    words = (
        f"rank {entry['rank']} is {call}at {where[0]}" if where else f"rank {entry['rank']}: {entry['why']}"
    )
    return "; ".join([words, *(call["words"] for call in document["stuck"][:1]), "more: tuiadvisor stacks"])


def _capture_sentence(document: dict[str, Any]) -> str:
    (entry,) = document["capture"]["ranks"]
    if not entry["file"]:
        return f"no trace of rank {entry['rank']}: {entry['why']}"
    row = next((row for row in document["per_rank"] if row["rank"] == entry["rank"]), {"overlap": None})
    overlap = (
        "overlap unknown"
        if row["overlap"] is None
        else f"{100 * row['overlap']:.0f} % of communication hidden"
    )
    still_s = sum(entry["cost"][key] or 0.0 for key in ("start_s", "stop_s", "write_s"))
    return (
        f"rank {entry['rank']}: {overlap}; trace in {entry['file']} (ui.perfetto.dev opens it); "
        f"cost: {1000 * still_s:.0f} ms pause" + (f"; {entry['why']}" if entry["why"] else "")
    )
