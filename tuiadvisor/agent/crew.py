"""Threads that attach: an executor that can be left while one of them hangs.

In: jobs.  Out: their futures. concurrent.futures joins its threads when the interpreter ends, whatever they wait for: a
read below /proc, or of a file system whose server is gone, may never return. These threads end with the process. What
holds a rank is a process of its own (inject.tracer), which completes what it has begun without us.
"""

from __future__ import annotations

import threading
from concurrent.futures import Executor, Future, wait
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.log import Logger

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_THREADS: Final = 16
# After everybody was asked to leave. A tracer gives its rank up within 5 s, and leaving has taken longer; whoever
# started the agent over a network kills it after 12.
FINISH_S: Final = 3.0
logger: Final = Logger(__name__)

_Job = tuple[Future[Any], "Callable[..., Any]", tuple[Any, ...], dict[str, Any]]


class Crew(Executor):
    """At most so many jobs at once, in the order given."""

    def __init__(self, max_threads: int = MAX_THREADS) -> None:
        self._max_threads = max_threads
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._open: set[Future[Any]] = set()
        self._num_threads = 0

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        """Have it done, when a thread is free."""
        future: Future[Any] = Future()
        self._open = {job for job in self._open if not job.done()} | {future}
        if self._num_threads < min(len(self._open), self._max_threads):
            threading.Thread(target=self._work, name="attach", daemon=True).start()
            self._num_threads += 1
        self._jobs.put((future, function, arguments, options))
        return future

    def finish(self, limit_s: float = FINISH_S) -> None:
        """Begin nothing more, and wait so long for what has begun."""
        for future in self._open:
            future.cancel()
        wait(self._open, limit_s)
        for _ in range(self._num_threads):
            self._jobs.put(None)
        self._num_threads = 0

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, function, arguments, options = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = function(*arguments, **options)
            except BaseException as error:  # the one who asks for the result gets it
                if not isinstance(
                    error, TuiadvisorError
                ):  # a bug, or a file that fails; nobody may ask any more
                    logger.exception("a thread of the crew failed")
                future.set_exception(error)
            else:
                future.set_result(result)
            del job, future
