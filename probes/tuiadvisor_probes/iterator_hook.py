"""Data wait of iterators that are no DataLoader: generators and classes with `__next__`, from Python 3.12 on.

Only with evidence. If no loader has delivered by the third step, sys.monitoring watches one step or two for Python
code that, called between two phases in the training thread, hands out a batch of tensors from a generator or a
`__next__`. The code found is then timed alone (0.5 us an event); all else runs unobserved again.
Not seen: Python before 3.12, iterators written in C, and functions that make a batch: their time is `other`.
"""

from __future__ import annotations

import sys
from threading import get_ident
from typing import TYPE_CHECKING, Any

from . import phases
from . import step_clock as sc
from .attributes import own
from .data_hook import count_batch, first_tensor
from .guard import INSPECTION, attempt

if TYPE_CHECKING:
    from types import CodeType

    from .host import Host

TOOL_NAME = "tuiadvisor"
FIRST_STEP = 3
NUM_STEPS_SEARCHED = 2
MAX_CODES = 8
# Python's documentation gives the others to debuggers (0), coverage (1), profilers (2) and optimizers (5): one of them
# that starts while we held its slot would end with "tool is already in use".
FREE_SLOTS = (4, 3)
SLOTS_TAKEN = "both slots of sys.monitoring that no kind of tool has for itself are taken"
_GENERATOR = 0x20  # CO_GENERATOR


def install(probe: Host) -> None:
    """Search once steps pass without a loader's batch."""

    def is_unseen() -> bool:
        return probe.clock.step >= FIRST_STEP and not _is_observed(probe.clock)

    def search() -> None:
        if hasattr(sys, "monitoring"):
            IteratorSearch(probe).begin()
        else:
            probe.absent("data_wait", "no DataLoader in use; other iterators are seen from Python 3.12 on")

    probe.when(is_unseen, None, "", search)


def _is_observed(clock: sc.StepClock) -> bool:
    return bool(clock.observed & 1 << phases.DATA_WAIT)


def _is_batch(value: object) -> bool:
    """Whether tensors are handed out that are no model's own: those of a loop over its parameters are no batch."""
    tensor = first_tensor(value)
    if tensor is None or issubclass(type(tensor), sys.modules["torch"].nn.Parameter):
        return False
    return not own(tensor).get("_is_param")


def _is_torchs(code: CodeType) -> bool:
    """Whether it is torch's own and no loader: what a module holds, a batch that is split into micro-batches."""
    home = str(sys.modules["torch"].__file__).removesuffix("__init__.py")
    return code.co_filename.startswith(home) and not code.co_filename.startswith(f"{home}utils/data/")


class IteratorSearch:
    """One tool of sys.monitoring: first looking at all code, then timing what was found."""

    def __init__(self, probe: Host) -> None:
        self.probe = probe
        self.clock = probe.clock
        self.hook = probe.hook("data_iterator")
        self.monitoring: Any = getattr(sys, "monitoring", None)
        self.tool = sc.UNKNOWN
        self.codes: list[CodeType] = []
        self.last_step = self.clock.step + NUM_STEPS_SEARCHED
        self.open: list[CodeType] = []

    def begin(self) -> None:
        """Watch all code for a while, in a slot of sys.monitoring that is nobody's."""
        for tool in FREE_SLOTS:
            if self.monitoring.get_tool(tool) is None:
                self.monitoring.use_tool_id(tool, TOOL_NAME)
                self.tool = tool
                break
        else:
            self.probe.absent("data_wait", SLOTS_TAKEN)
            return
        self.probe.registration(self)
        events = self.monitoring.events
        for event, function in ((events.PY_YIELD, self._handed_out), (events.PY_RETURN, self._handed_out)):
            self.monitoring.register_callback(self.tool, event, function)
        self.monitoring.set_events(self.tool, events.PY_YIELD | events.PY_RETURN)
        self.probe.when(lambda: self.clock.step >= self.last_step, None, "", self._end_search)

    def _handed_out(self, code: CodeType, _offset: int, value: object) -> object:
        """Some code yields or returns: the evidence, if it is a batch and the training waits for it."""
        if get_ident() != self.clock.own[0] or not self.hook.active:
            return None
        is_iterator = bool(code.co_flags & _GENERATOR) or code.co_name == "__next__"
        if not is_iterator:
            return self.monitoring.DISABLE  # for good: what will be timed must never be disabled
        is_waited_for = self.clock.phase == phases.OTHER and len(self.codes) < MAX_CODES
        if is_waited_for and code not in self.codes and attempt(INSPECTION, _is_batch, value):
            if _is_torchs(code):
                return self.monitoring.DISABLE
            self.codes.append(code)
        return None

    def _end_search(self) -> None:
        """Stop looking; time what handed out batches."""
        monitoring, events = self.monitoring, self.monitoring.events
        monitoring.set_events(self.tool, 0)
        if not self.codes or _is_observed(self.clock):
            self.remove()
            if not _is_observed(self.clock):
                self.probe.absent(
                    "data_wait", "no DataLoader in use and no Python iterator hands out tensors"
                )
            return
        callbacks = (
            (events.PY_UNWIND, self._raised),
            (events.PY_START, self._begins),
            (events.PY_RESUME, self._begins),
            (events.PY_YIELD, self._ends),
            (events.PY_RETURN, self._ends),
        )
        for event, function in callbacks:
            monitoring.register_callback(self.tool, event, function)
        for code in self.codes:
            wanted = events.PY_START | events.PY_RETURN
            if code.co_flags & _GENERATOR:
                wanted |= events.PY_RESUME | events.PY_YIELD
            monitoring.set_local_events(self.tool, code, wanted)
        monitoring.set_events(self.tool, events.PY_UNWIND)  # cannot be had for single code
        # Another generator may take over and would not be seen: each step says for itself whether this one ran.
        self.clock.momentary |= 1 << phases.DATA_WAIT
        self.probe.absences.pop("data_wait", None)
        self.probe.put_info()

    def _begins(self, code: CodeType, _offset: int) -> None:
        if not self.hook.active or get_ident() != self.clock.own[0]:
            return
        try:
            if self.open and self.open[-1] is code:  # its end was missed
                self.open.pop()
                self.clock.leave()
            if self.clock.phase in (phases.OTHER, phases.DATA_WAIT) and self.clock.enter(phases.DATA_WAIT):
                self.open.append(code)
        except Exception as error:  # noqa: BLE001 - the guard: an exception here would reach the host's generator
            self.hook.failed(error)

    def _ends(self, code: CodeType, _offset: int, value: object) -> None:
        if not self.open or self.open[-1] is not code or get_ident() != self.clock.own[0]:
            return
        try:
            self.open.pop()
            self.clock.leave()
            if value is not None and self.clock.phase != phases.DATA_WAIT:
                self.clock.said |= 1 << phases.DATA_WAIT
                count_batch(self.clock, value)
        except Exception as error:  # noqa: BLE001 - the guard, as above
            self.hook.failed(error)

    def _raised(self, code: CodeType, _offset: int, _error: object) -> None:
        self._ends(code, 0, None)

    def remove(self) -> None:
        """Give the slot back; the code runs uninstrumented again."""
        if self.tool == sc.UNKNOWN:
            return
        monitoring, events = self.monitoring, self.monitoring.events
        monitoring.set_events(self.tool, 0)
        for code in self.codes:
            monitoring.set_local_events(self.tool, code, 0)
        for event in (events.PY_START, events.PY_RESUME, events.PY_YIELD, events.PY_RETURN, events.PY_UNWIND):
            monitoring.register_callback(self.tool, event, None)
        monitoring.free_tool_id(self.tool)
        self.tool = sc.UNKNOWN
