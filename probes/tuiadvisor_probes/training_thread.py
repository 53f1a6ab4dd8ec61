"""Which thread of the process trains: the one whose hooks are listened to, at first the main thread.

Ray, notebooks' executors and servers run the loop in another one. A thread trains if it has run a backward and then an
optimizer step: not a loader's thread, not one that infers or evaluates, and not one of autograd's own, which may step
an optimizer inside of a backward that another thread has asked for. Whoever does is adopted while the thread that is
listened to has not trained itself, has ended, or has not stepped between two of the stranger's steps and is not about
to. Where both train, neither is measured: a sum of two loops would be true of none. All of this lies where a hook has
seen that a thread is not the training thread; for that one nothing is added.
"""

from __future__ import annotations

import os
import threading
from _thread import allocate_lock, get_ident
from time import monotonic_ns
from typing import TYPE_CHECKING

from . import phases
from . import step_clock as sc
from .guard import attempt
from .other_frames import tops

if TYPE_CHECKING:
    from .host import Host

NOBODY = 1  # no thread's ident; 0 is a forked child's
MAX_THREADS = 64
OVERLAPS_UNTIL_REFUSED = 2
TRAINING_PHASES = (
    phases.FORWARD,
    phases.BACKWARD,
    phases.OPTIMIZER,
)  # not of a server, an evaluation, a loader
STEPS_WITHOUT_BACKWARD = 8  # of a loop whose backward passes no hook
ALONE_AGAIN_NS = 30_000_000_000
AUTOGRADS_NAME = "pt_autograd"
TWO_TRAIN = (
    "several threads of this process train at the same time or in turns ({names}): their steps cannot be told apart, "
    "so none is measured; let each train in a process of its own"
)


class TrainingThread:
    """Strangers' backwards and steps, and what follows from them."""

    __slots__ = (
        "backwards",
        "clock",
        "hook",
        "lock",
        "num_adopted",
        "num_overlaps",
        "orphans",
        "own",
        "probe",
        "stepped",
        "thin",
        "unbacked",
    )

    def __init__(self, probe: Host) -> None:
        self.probe = probe
        self.clock = probe.clock
        self.own = probe.clock.own
        self.thin = probe.clock.thin
        self.hook = probe.hook("training_thread")
        self.backwards: set[int] = set()  # idents of strangers that have run one
        # ident of a stranger -> when it last began an optimizer step, and how many the owner had made by then
        self.stepped: dict[int, tuple[int, int]] = {}
        self.unbacked: dict[int, int] = {}  # ident -> steps without a backward before them
        self.lock = allocate_lock()  # strangers may come in the same moment
        self.orphans = (
            0  # steps of threads that asked for no backward, as autograd's, since the last backward
        )
        self.num_adopted = 0
        self.num_overlaps = 0

    def backward(self) -> None:
        """A stranger is about to run a backward."""
        ident = get_ident()
        if (ident not in self.backwards or self.orphans) and self.own[0] and self.hook.active:
            attempt(self.hook, self._backward, ident)

    def steps(self) -> bool:
        """A stranger begins an optimizer step: whether it is the training thread from now on."""
        ident = get_ident()
        if self.thin.phase == phases.BACKWARD and ident not in self.backwards:
            return False  # a step inside of the training thread's backward, once a parameter
        if not self.own[0] or not self.hook.active or not self.lock.acquire(blocking=False):
            return False
        try:
            return bool(attempt(self.hook, self._steps, ident))
        finally:
            self.lock.release()

    def _backward(self, ident: int) -> None:
        if self.orphans and ident in self.backwards and self.own[0] != NOBODY and not self._has_trained():
            self._adopt(ident)  # its optimizers step inside of its backwards, in autograd's threads
        self.orphans = 0
        if len(self.backwards) >= MAX_THREADS:  # of threads that have ended, most of them
            self.backwards.clear()
        self.backwards.add(ident)
        if not self.probe.unstepped and not self._has_trained():
            self.probe.unstepped = _name(ident)
            self.probe.put_info()

    def _steps(self, ident: int) -> bool:
        clock = self.clock
        if ident not in self.backwards and not self._steps_alone(ident):
            return False
        if not clock.active or os.getpid() != clock.pid or _is_autograds():
            return False
        now = monotonic_ns()
        num_owners = clock.step + clock.stepped
        _, num_before = self.stepped.get(ident, (0, sc.UNKNOWN))
        if len(self.stepped) >= MAX_THREADS:
            self.stepped.clear()
        self.stepped[ident] = now, num_owners
        owner = self.own[0]
        if owner == NOBODY:
            others_ns = [stepped for other, (stepped, _) in self.stepped.items() if other != ident]
            return now - max(others_ns, default=0) > ALONE_AGAIN_NS and self._adopt(ident)
        if not self._has_trained() or owner not in tops():
            return self._adopt(ident)
        if clock.phase in TRAINING_PHASES or -1 < num_before < num_owners:
            self.num_overlaps += 1
            if self.num_overlaps >= OVERLAPS_UNTIL_REFUSED:
                self._refuse(ident)
            return False
        return num_before >= 0 and self._adopt(ident)

    def _steps_alone(self, ident: int) -> bool:
        """Whether a thread that is Python's own has stepped so often that its backward must be one we cannot see."""
        thread = threading._active.get(ident)  # type: ignore[attr-defined]  # never current_thread(): that makes one
        if thread is None or isinstance(thread, threading._DummyThread):
            self.orphans += 1
            return False
        if len(self.unbacked) >= MAX_THREADS:
            self.unbacked.clear()
        self.unbacked[ident] = num_steps = self.unbacked.get(ident, 0) + 1
        return num_steps >= STEPS_WITHOUT_BACKWARD

    def _has_trained(self) -> bool:
        """Whether the thread that is listened to has, as far as was seen."""
        clock = self.clock
        if self.num_adopted or clock.step or clock.stepped:
            return True
        clock.catch_up()
        return bool(clock.observed & 1 << phases.BACKWARD)

    def _adopt(self, ident: int) -> bool:
        """This thread is the training thread from now on; the step that it is in has begun unseen."""
        self.num_adopted += 1
        self.num_overlaps = 0
        self.stepped.clear()
        self.unbacked.clear()
        self.clock.hand_over(ident, monotonic_ns())
        if self.probe.unmeasured or self.probe.unstepped:
            self.probe.unmeasured = self.probe.unstepped = ""
            self.probe.put_info()
        return self.clock.active

    def _refuse(self, ident: int) -> None:
        names = sorted((_name(ident), _name(self.own[0])))
        self.stepped[self.own[0]] = monotonic_ns(), 0
        self.backwards.add(self.own[0])
        self.clock.hand_over(NOBODY, monotonic_ns())
        self.probe.unmeasured = TWO_TRAIN.format(names=" and ".join(names))
        self.probe.put_info()


def _name(ident: int) -> str:
    thread = threading._active.get(ident)  # type: ignore[attr-defined]
    return str(thread.name)[:40] if thread is not None else "a thread of a library"


def _is_autograds() -> bool:
    """Whether this is a thread of autograd's own, by the name that torch gives it from 2.5 on."""
    try:
        with open("/proc/thread-self/comm") as file:
            return file.read().startswith(AUTOGRADS_NAME)
    except OSError:
        return False
