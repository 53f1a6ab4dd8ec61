"""Folders and rings of the very process that was found, and of no other that has its id meanwhile.

In: a RankProcess.  Out: as in `session`, whose functions know only the id. InjectError where it is another process's
now: what was made below its /proc/PID/root is deleted again before anything is handed to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuiadvisor.agent import session
from tuiadvisor.inject.identity import OtherProcessError, the_same
from tuiadvisor.inject.refusals import refusal, refuse_unseen

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.agent.discovery import RankProcess
    from tuiadvisor.agent.session import RingSession


def new_session(process: RankProcess) -> RingSession:
    """As `create_session`."""
    return _made(process, lambda: session.create_session(process.pid, process.uid))


def new_folder(process: RankProcess) -> RingSession:
    """As `create_folder`."""
    return _made(process, lambda: session.create_folder(process.pid, process.uid))


def present_session(process: RankProcess) -> RingSession | None:
    """As `adopt_session`."""
    found = None
    try:
        with the_same(process.identity):
            found = session.adopt_session(process.pid)
    except OtherProcessError as other:
        if found is not None:
            found.close()
        raise refusal(process.pid, other.reason, other.what) from None
    return found


def _made(process: RankProcess, make: Callable[[], RingSession]) -> RingSession:
    made = None
    try:
        with the_same(process.identity):
            refuse_unseen(process.pid)
            made = make()
    except OtherProcessError as other:
        if made is not None:
            made.remove()
        raise refusal(process.pid, other.reason, other.what) from None
    return made
