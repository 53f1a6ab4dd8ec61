"""The modules whose forward is the step's forward, found where no wrapper class announces them.

The root of an optimizer is the largest module in the training thread's frames that owns parameters the optimizer
steps. Its class is patched (`__call__`: hooks and an instance's own `forward` run inside) and other instances pass
through: an instance hook would travel into every pickled or copied model. A compiled root is called through torch's
OptimizedModule, which is patched the same way; its graphs stay as they are. A root that is never called itself, as a
policy with methods of its own (stable-baselines3), runs by its parts: then theirs is the step's forward.
"""

from __future__ import annotations

import sys
import weakref
from threading import get_ident
from typing import TYPE_CHECKING, Any

from . import compiled, phases
from .attributes import parameters_of, values_of
from .forward_look import parts_of
from .guard import INSPECTION, STAY_OUT, attempt
from .other_frames import callers, forget_variables, tops, variables
from .pickled import is_by_value

if TYPE_CHECKING:
    from .host import Host

MAX_ROOTS = 8
MAX_PARTS = 8  # of one root, those with the most parameters
MAX_DEPTH = 3  # parts of parts
MAX_VALUES_PER_FRAME = 400
MAX_ATTRIBUTES = 64
STEPS_UNTIL_CALLED = 8
MANY = 1 << 62
# More than in other steps: three batches for which no forward was seen. A step that only saves or meets once more has
# two or four; where it has as many, a hook too many costs a transition, one too few an evaluation on this rank alone.
UNSEEN_TRANSITIONS = 6
NOT_CALLED = "the model is never called from Python: it runs inside compiled code or by parts"
OWN_CALL = (
    "the model's class is of the script and has a __call__ of its own, which is pickled and compiled by value"
)
NOT_FOUND = "no module in the training thread's frames owns the optimizer's parameters"


class Roots:
    """Roots found so far, by id; an optimizer is searched for once."""

    def __init__(self, probe: Host) -> None:
        self.probe = probe
        self.searched: set[int] = set()  # ids of optimizers
        self.ids: set[int] = set()
        self.fast: set[int] = set()  # of these the hooks that need not ask whether they are meant
        self.modules: list[Any] = []  # weak references
        self.classes: set[type] = set()
        self.uncalled: list[
            tuple[Any, set[int]]
        ] = []  # weak references, each with its optimizer's parameters' ids
        self.depth = 0
        self.hook: Any = None
        self.next_search = 0
        self.num_searches = 0
        self.is_checked = False
        self.why_not = ""
        self.fewest = MANY  # transitions of the steps that were written last

    def is_due(self, optimizer: Any) -> bool:
        """Whether to search: for a new optimizer, and now and then while no forward is seen (compiled since then?)."""
        if id(optimizer) not in self.searched:
            return len(self.searched) < MAX_ROOTS
        clock = self.probe.clock
        if clock.step < self.next_search:
            return False
        clock.catch_up()
        return not clock.observed & 1 << phases.FORWARD

    def search(self, optimizer: Any) -> None:
        """Find and patch the root of an optimizer; 60-100 us, seldom."""
        self.searched.add(id(optimizer))
        probe = self.probe
        self.num_searches += 1
        self.next_search = probe.clock.step + (STEPS_UNTIL_CALLED << min(self.num_searches, 10))
        if self.hook is None:
            self.hook = probe.hook("forward_root")
        parameters = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        modules = attempt(self.hook, find_root_modules, probe.clock.thread_ident, parameters) or []
        for module in modules:
            self.add(module)
            self.uncalled.append((weakref.ref(module), parameters))
        if self.ids:
            probe.absences.pop("forward_root", None)
            if not self.is_checked:
                self.is_checked = True
                self._check_later()
        else:
            probe.absent("forward_root", self.why_not or NOT_FOUND)
        probe.put_info()

    def _check_later(self) -> None:
        probe = self.probe
        last_step = probe.clock.step + STEPS_UNTIL_CALLED
        probe.when(lambda: probe.clock.step >= last_step, None, "", self._check)

    def _check(self) -> None:
        """A root that is never called is no observation: its parts may be, unless compiled code runs them."""
        if self.probe.clock.settled[-1][4] & 1 << phases.FORWARD:
            self.uncalled.clear()
        elif self.depth < MAX_DEPTH and not compiled.is_in_use() and self._add_parts():
            self.depth += 1
            self._check_later()
        else:
            self.uncalled.clear()
            self.probe.absent("forward_root", NOT_CALLED)

    def _add_parts(self) -> bool:
        """Time the parts of what is never called; False where there are none."""
        parts: list[tuple[Any, set[int]]] = []
        for reference, parameters in self.uncalled[:MAX_ROOTS]:
            root = reference()
            children = {} if root is None else parts_of(root)
            owned = [
                (attempt(INSPECTION, _count_owned, part, parameters) or 0, part)
                for part in dict.fromkeys(children.values())
                if part is not None
            ]
            owned.sort(key=lambda pair: -pair[0])
            parts += [(part, parameters) for count, part in owned[:MAX_PARTS] if count]
        for part, _ in parts:
            self.add(part, is_root=False)
        self.uncalled[:] = [(weakref.ref(part), parameters) for part, parameters in parts]
        return bool(parts)

    def look_inside(self, wrapper: Any) -> None:
        """Whether a step just written fetched batches that the wrapper's forward did not see: then what it wraps did.

        wrapper: weak reference to a DDP module. Who evaluates `model.module` is seen from the next time on. Nobody else
        pays for a hook inside of the wrapper's, and compiled code keeps its graphs.
        """
        probe, settled, live = self.probe, self.probe.clock.settled, wrapper()
        if live is None or id(live.module) in self.ids or not settled or compiled.is_in_use():
            return
        counts = [row[5] for row in settled]
        fewest, self.fewest = min(self.fewest, *counts), min(counts)  # long steps are written one by one
        was_seen = probe.eval_span.last_step >= probe.clock.step - probe.clock.num_settled
        if max(counts) - fewest >= UNSEEN_TRANSITIONS and not was_seen:
            self.add(live.module, is_root=False)

    def add(self, module: Any, *, is_root: bool = True) -> None:
        """Time the calls of one module from now on, unless a hook would be pickled or compiled with its class.

        is_root: False for a part, which is not what is looked at as the model.
        """
        if self.hook is None:
            self.hook = self.probe.hook("forward_root")
        owner = type(module)
        is_new = owner not in self.classes
        if is_new and is_by_value(owner) and owner.__call__ is not sys.modules["torch.nn"].Module.__call__:
            self.why_not = OWN_CALL
            return
        self.ids.add(id(module))
        self.fast.add(id(module))
        if is_root:
            self.modules.append(weakref.ref(module))
        if not is_new:
            return
        self.classes.add(owner)
        ids, fast, forwards, hook = self.ids, self.fast, self.probe.forwards, self.hook

        def phase(args: tuple[Any, ...]) -> int:
            return forwards.phase(args) if id(args[0]) in ids else STAY_OUT

        self.probe.patch(
            owner,
            "__call__",
            lambda original: forwards.timed(original, hook, phase, fast, ids),
            by_value=True,
        )


def find_root_modules(thread_ident: int, parameters: set[int]) -> list[Any]:
    """The largest owner of the parameters (ids) in our own thread's frames, and its compiled form if it is there too.

    None in another thread's: its variables are left alone.
    """
    module_class = sys.modules["torch.nn"].Module
    frames = sys.modules.get("torch._dynamo.eval_frame")
    compiled_class = getattr(frames, "OptimizedModule", ())
    best: dict[bool, tuple[int, Any]] = {}
    seen: set[int] = set()
    for frame in callers(tops()[thread_ident]) if thread_ident == get_ident() else []:
        for holder in (variables(frame), frame.f_globals if frame.f_back is None else {}):
            for value in list(holder.values())[:MAX_VALUES_PER_FRAME]:
                for candidate in (value, *_attributes(value)):
                    # issubclass(type()): isinstance asks __class__, which dead weak proxies answer by raising.
                    kind = type(candidate)
                    if not issubclass(kind, module_class) or id(candidate) in seen:
                        continue
                    seen.add(id(candidate))
                    count = attempt(INSPECTION, _count_owned, candidate, parameters) or 0
                    is_compiled = bool(compiled_class) and issubclass(kind, compiled_class)
                    if count > best.get(is_compiled, (0, None))[0]:
                        best[is_compiled] = (count, candidate)
        forget_variables(frame)
    largest = max((count for count, _ in best.values()), default=0)
    return [module for count, module in best.values() if count == largest]


def _count_owned(module: Any, parameters: set[int]) -> int:
    return sum(1 for parameter in parameters_of(module) if id(parameter) in parameters)


def _attributes(value: Any) -> list[Any]:
    """Attributes of a trainer-like object in a frame; nothing for builtins, classes and modules.

    Past what the object's class makes of a look: dead weak proxies raise, lazy objects begin to work.
    """
    if type(value).__module__ in ("builtins", "types") or issubclass(type(value), type):
        return []
    return values_of(value)[:MAX_ATTRIBUTES]
