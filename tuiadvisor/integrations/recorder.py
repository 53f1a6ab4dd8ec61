"""Starts and ends a recording of the training that this process belongs to, in processes of their own.

Whatever fails is one warning; the training goes on.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

logger: Final = logging.getLogger("tuiadvisor")
START_S: Final = 120.0
END_S: Final = 60.0  # the last steps are read, the probes taken out
_STARTED: Final = re.compile(r"as process (\d+);")


class Recorder:
    """Of one training on one machine. Every process may have one; that of rank 0 records."""

    def __init__(self, output: str | os.PathLike[str]) -> None:
        self._output = Path(output)
        self._fd: int | None = None  # a pidfd: the recording process, whoever else gets its number

    @property
    def is_recording(self) -> bool:
        """Whether it has been started, and not been ended."""
        return self._fd is not None

    def start(self) -> bool:
        """Begin; False, with a warning where something is wrong, if nothing is recorded from here."""
        if _number("RANK", 0) != 0 or self.is_recording:
            return False
        on_node, everywhere = _number("LOCAL_WORLD_SIZE", 1), _number("WORLD_SIZE", 1)
        if everywhere > on_node:
            logger.warning(
                "tuiadvisor: ranks on several machines: use tuiadvisor record --hosts or --slurm instead"
            )
            return False
        # torchrun's process stands for all its ranks.
        pid = os.getppid() if on_node > 1 else os.getpid()
        words = ["record", "-o", str(self._output), "--daemon", "--pid", str(pid)]
        try:
            done = _ours(words, START_S)
            found = _STARTED.search(done.stdout)
            if done.returncode or found is None:
                logger.warning("%s", _last_line(done.stderr) or "tuiadvisor: no recording was started")
                return False
            self._fd = os.pidfd_open(int(found[1]))
        except (OSError, subprocess.SubprocessError) as error:
            logger.warning("tuiadvisor: no recording was started: %s", error)
            return False
        return True

    def finish(self) -> dict[str, Any] | None:
        """End it; the document of `diagnose --json`, None (with a warning) where there is none."""
        if self._fd is None:
            return None
        fd, self._fd = self._fd, None
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            signal.pidfd_send_signal(fd, signal.SIGTERM)
        try:
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            if not poll.poll(END_S * 1000):
                logger.warning("tuiadvisor: the recording has not ended in %.0f s", END_S)
            done = _ours(["diagnose", str(self._output), "--json"], START_S)
            if done.returncode:
                logger.warning("%s", _last_line(done.stderr))
                return None
            document: dict[str, Any] = json.loads(done.stdout)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            logger.warning("tuiadvisor: no verdict: %s", error)
            return None
        finally:
            os.close(fd)
        return document


def _ours(words: list[str], patience_s: float) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "tuiadvisor", *words]
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=patience_s, check=False
    )


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else default


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]
