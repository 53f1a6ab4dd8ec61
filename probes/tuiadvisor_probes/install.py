"""Put the probe into the process it was loaded into, and take it out again without a trace.

`install(ring_path)` runs in the injected thread while training goes on; `Probe.remove` runs in the training thread
at a step's end (asked by the agent, or because the agent's lease ran out), or in an injected thread when no step
comes, or at exit.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import time
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

from . import (
    buckets,
    collective_hooks,
    data_hook,
    deepspeed_pipeline,
    framework_hooks,
    functional_waits,
    iterator_hook,
    loader_stages,
    mark_hooks,
    model_facts,
    model_hooks,
    native,
    optimizer_hook,
    phases,
    pipeline_hooks,
    sharded_waits,
    uncounted,
)
from . import ring as ring_file
from . import step_clock as sc
from .accelerator import watch_captures
from .attributes import parameters_of, unheard
from .background_saves import BackgroundSaves
from .calibration import calibrate
from .compiled import AROUND_THE_MODEL, hide_from_tracing, is_in_use
from .detail import Detail
from .eval_span import EvalSpan
from .group_sequence import ITSELF, Sequences
from .guard import INSPECTION, Hook, all_of, attempt, is_the_hosts
from .other_frames import callers, forget_variables, tops
from .patch import Patch
from .process import as_json, describe_process, imported
from .roots import Roots
from .training_thread import NOBODY, TrainingThread

if TYPE_CHECKING:
    from collections.abc import Callable

    from .buckets import Layout

KIND_BROADCAST, KIND_HOOK_DISABLED, KIND_DETACHED = 2, 37, 38
COMMAND_WORD, LEASE_WORD = ring_file.OFFSET_COMMAND // 8, ring_file.OFFSET_LEASE // 8
REASON_ASKED, REASON_LEASE, REASON_EXIT, REASON_ORPHAN = range(4)
PARTS = (
    data_hook,
    loader_stages,
    model_hooks,
    collective_hooks,
    functional_waits,
    sharded_waits,
    deepspeed_pipeline,
    pipeline_hooks,
    framework_hooks,
    mark_hooks,
    optimizer_hook,
    iterator_hook,
    model_facts,
)
BUSY_STEPS, SELDOM = 32, 64  # conditions are asked after each of the first steps, then after every 64th
NO_CLOCK = (
    "time.monotonic_ns is replaced in this process, as by freezegun: nothing tells how long its steps take"
)
BREATH_S = 0.003  # as the agent's between two modules

_probe: Probe | None = None


class Probe:
    """All that is installed in this process: the ring, the clock, patches and registrations."""

    def __init__(self, ring_path: str) -> None:
        self.ring = ring_file.RingWriter(ring_path)
        thread = threading.main_thread().ident or 0
        self.clock = sc.StepClock(self.ring, thread, self.on_step)
        self.hooks: list[Hook] = []
        self.patches: list[Any] = []
        self.registrations: list[Any] = []
        self.absences: dict[str, str] = {}
        self.groups: dict[int, str] = {}
        self.pipeline: dict[str, Any] = {}
        self.gradient_module: Any = None  # weak: the host decides how long its model lives
        self.gradient_bytes = sc.UNKNOWN
        self.known_ddp: dict[int, Any] = {}  # id -> weak reference
        self.layouts: dict[int, Layout] = {}  # of the buckets, by id of a DDP module
        self.awaited_modules: list[tuple[str, str | None, Callable[[Any], None]]] = []
        self.clock.momentary = (
            1 << phases.FORWARD | 1 << phases.EVAL
        )  # a forward may vanish into compiled code later
        self.num_modules = 0  # in sys.modules, when we last looked
        self.next_look = 0  # a step
        self.awaited: list[tuple[Callable[[], bool], str | None, Callable[[], None]]] = []
        self.sequences = Sequences()
        self.detail = Detail(self.clock)
        self.saves = BackgroundSaves(self.clock)
        self.thread = TrainingThread(self)
        self.unstepped = ""  # name of a thread that runs backward without any optimizer step
        self.unmeasured = ""  # why no step is measured; empty where they are
        self.stepping = ""  # class of an optimizer whose step was under way when the probe came
        self.detail_hook = self.hook("detail")
        self.bucket_hook = self.hook("buckets")
        self.eval_span = self.clock.eval_span = EvalSpan(self.clock)
        self.forwards = model_hooks.Forwards(self)
        self.looked_at = 0  # ident of the thread that has to forget what another saw of its variables
        self.evaluated = False  # what that look found
        self.roots = Roots(self)
        self.steps_before: int | None = None
        self.model_facts: dict[str, Any] = {}  # of the model and of torch's settings, once they are known
        self.looks_for_device = True  # until the first optimizer step
        self.device_kind: str | None = None  # where it has a clock of its own
        self.device_uuid: str | None = None
        self.captures: list[None] = []  # graphs that are being captured
        self.memory: Any = None  # DeviceMemory, where the training is on a device
        self.shards: Any = None  # ShardedWaits, where FSDP2 was imported
        self.removed = False

    def hook(self, name: str) -> Hook:
        """A new numbered hook."""
        hook = Hook(name, len(self.hooks), self._disabled)
        self.hooks.append(hook)
        return hook

    def absent(self, name: str, why: str) -> None:
        """A signal that cannot be had in this process."""
        self.absences[name] = why

    def when_loaded(self, module_name: str, name: str | None, install: Callable[[Any], None]) -> None:
        """install(module) now, or after the step in which the host has imported it; name: the signal that waits."""
        module = imported(module_name)
        if module is not None:
            self._install_late(name or module_name, lambda: install(module))
            return
        if name is not None:
            self.absent(name, module_name + " is not imported")
        self.awaited_modules.append((module_name, name, install))

    def when(
        self, is_so: Callable[[], bool], name: str | None, why_not: str, install: Callable[[], None]
    ) -> None:
        """install() now, or after the step at which is_so() holds; name, why_not: the signal that waits."""
        if _holds(is_so):
            self._install_late(name or "late", install)
            return
        if name is not None:
            self.absent(name, why_not)
        self.awaited.append((is_so, name, install))

    def _install_late(self, name: str, install: Callable[[], None]) -> None:
        """One that cannot be installed is reported absent, the others go on."""
        self.absences.pop(name, None)
        try:
            install()
        except BaseException as error:
            self.absent(name, type(error).__name__ + ": " + str(error)[:120])
            if is_the_hosts(error):
                raise

    def _look_for_late_parts(self) -> None:
        """Modules imported and conditions met since the last step."""
        self.num_modules = len(sys.modules)
        modules, conditions = tuple(self.awaited_modules), tuple(self.awaited)
        come = [late for late in modules if late[0] in sys.modules]
        for late in come:
            self.awaited_modules.remove(late)
            self.when_loaded(*late)  # waits on where it is half imported
        for condition in conditions:
            is_so, name, install = condition
            if _holds(is_so):
                self.awaited.remove(condition)
                self._install_late(name or "late", install)
        if len(self.awaited_modules) + len(self.awaited) < len(modules) + len(conditions):
            self.put_info()

    def patch(
        self, owner: Any, name: str, make_replacement: Callable[[Any], Any], *, by_value: bool = False
    ) -> Patch:
        """Replace an attribute and remember it; by_value: the owner may be a class of the training's own script."""
        patch = Patch(owner, name, make_replacement, by_value=by_value)
        self.patches.append(patch)
        if self.removed:  # by another thread meanwhile
            patch.remove()
        return patch

    def registration(self, handle: Any) -> None:
        """Remember a handle with remove()."""
        self.registrations.append(handle)

    def _disabled(self, hook: Hook) -> None:
        ring = self.ring
        ring.put_u64(ring_file.OFFSET_DISABLED, ring.get_u64(ring_file.OFFSET_DISABLED) | 1 << hook.index)
        ring.put_u64(ring_file.OFFSET_ERRORS, ring.get_u64(ring_file.OFFSET_ERRORS) + 1)
        unknown = sc.UNKNOWN
        ring.put_event(KIND_HOOK_DISABLED, (self.clock.step, 0, 0, unknown, unknown, unknown, hook.index))
        self.put_info()

    def knows_ddp(self, module: Any) -> bool:
        """Whether this DDP module was seen before."""
        known = self.known_ddp.get(id(module))
        return known is not None and known() is module

    @property
    def has_wrapper(self) -> bool:
        """Whether a DDP module announced itself; then no other root is looked for."""
        return bool(self.known_ddp)

    def found_ddp(self, module: Any) -> None:
        """A DDP module ran forward; the largest one's group aligns the ranks, its parameters size the gradients."""
        self._keep_living({id(module): weakref.ref(module)})
        self.layouts.pop(id(module), None)
        if self.clock.device is not None:
            self.clock.device.knows_exchange = True
        if (
            _bytes_of(module) > self.gradient_bytes
            or self.gradient_module is None
            or not self.gradient_module()
        ):
            self._align_by(module)

    def _keep_living(self, new: dict[int, Any]) -> None:
        """Of the known DDP modules, with new ones."""
        known = {number: one for number, one in self.known_ddp.items() if one() is not None} | new
        self.known_ddp = known
        self.clock.sole_ddp = next(iter(known.values())) if len(known) == 1 else None

    def _align_by_who_is_left(self) -> None:
        """The module whose group aligned the ranks has gone."""
        self._keep_living({})
        left = [module for module in (known() for known in self.known_ddp.values()) if module is not None]
        if left:
            self._align_by(max(left, key=_bytes_of))
        else:
            self.clock.group_seq = self.clock.group_of = None
            self.clock.comm_bytes = sc.UNKNOWN
            self._use_default_group()

    def _align_by(self, module: Any) -> None:
        self.gradient_module = reference = weakref.ref(module)

        def group_seq() -> int:
            live = reference()
            if live is None:
                self._align_by_who_is_left()
                return sc.UNKNOWN
            return self.sequences.of(live.process_group)

        # The core asks the group itself; where that does not count, through us.
        counts = self.sequences.way_of(module.process_group) == ITSELF
        self.clock.group_seq, self.clock.group_of = group_seq, reference if counts else None
        self.clock.comm_bytes = self.gradient_bytes = _bytes_of(module)
        self.clock.last_seq = sc.UNKNOWN
        self.put_info()

    def broadcast_seen(self, begin_ns: int, end_ns: int, _args: tuple[Any, ...], _result: Any) -> None:
        """DDP's buffers were broadcast from rank 0 at the start of a forward."""
        unknown = sc.UNKNOWN
        self.ring.put_event(KIND_BROADCAST, (self.clock.step, begin_ns, end_ns, unknown, unknown, unknown, 0))

    def found_group(self, name: str, number: int) -> None:
        """A process group was used from Python for the first time."""
        self.groups[number] = name
        self.put_info()

    def buckets(self, module: Any, ready: list[int]) -> Layout | None:
        """Which gradients this module sends together, looked up once; None: not known yet."""
        found = self.layouts.get(id(module))
        if found is None:
            found = attempt(self.bucket_hook, buckets.layout, module, ready)
            if found is not None:
                self.layouts[id(module)] = found
        return found

    def on_step(self) -> None:
        """After a step, when it and those before it were written: the agent's wishes, and its lease."""
        if self.looked_at:
            is_own, self.looked_at = self.looked_at == threading.get_ident(), 0
            for frame in callers(sys._getframe(1)) if is_own else []:
                attempt(INSPECTION, forget_variables, frame)
        words = self.clock.words
        if words[COMMAND_WORD]:
            self.remove(REASON_ASKED)
            return
        if 0 < words[LEASE_WORD] < self.clock.begin:
            self.remove(REASON_LEASE)
            return
        if self.eval_span.end_ns:
            self.eval_span.close()
        if self.memory is not None:
            self.clock.peak_bytes = self.memory.peak_bytes(self.clock.step - 1, self.clock.begin)
        if self.saves.futures or self.saves.threads:
            self.saves.look()
        if self.detail_hook.active:
            attempt(self.detail_hook, self.detail.after_steps)
        if self.gradient_module is not None:
            attempt(INSPECTION, self.roots.look_inside, self.gradient_module)
        step = self.clock.step
        is_due = step >= self.next_look
        if len(sys.modules) != self.num_modules or (is_due and self.awaited):
            self.next_look = step + (1 if step < BUSY_STEPS else SELDOM)
            self._look_for_late_parts()

    def put_info(self) -> None:
        """Describe rank, versions and hooks in the ring's info area."""
        info = describe_process()
        hooks = {
            hook.name: "ok" if hook.active else hook.error
            for hook in self.hooks
            if not (hook.active and hook.name.startswith("install"))
        }
        info["hooks"] = {**hooks, **self.absences}  # an absence explains more than an idle hook
        info["groups"] = {str(number): name for number, name in self.groups.items()}
        info["gradient_bytes"] = self.gradient_bytes
        info["device"] = self.device_kind or info["device"]
        info["device_uuid"] = self.device_uuid
        info["model"] = self.model_facts
        info["core"] = "native" if native.core is not None else "python"
        if native.why_not not in {"", native.NOT_ASKED}:
            info["core_why"] = native.why_not
        info["ddp"] = self.gradient_module is not None
        info.update(
            (name, said) for name in ("unmeasured", "unstepped", "stepping") if (said := getattr(self, name))
        )
        if self.pipeline:
            info["pipeline"] = self.pipeline
            info["parallel"] = {"pp": self.pipeline["ranks"]} if "ranks" in self.pipeline else {}
        self.ring.put_info(as_json(info))

    def install(self) -> None:
        """Hook by hook; one that cannot be installed is reported absent and the others go on."""
        self.ring.put_u64(ring_file.OFFSET_STATE, ring_file.STATE_INSTALLING)
        self.ring.put_u64(ring_file.OFFSET_CLOCKS, time.time_ns())
        self.ring.put_u64(ring_file.OFFSET_CLOCKS + 8, time.monotonic_ns())
        self.clock.cost.transition_ns.value = calibrate()
        breathe()
        package = __name__.rpartition(".")[0]
        if not hide_from_tracing(package, AROUND_THE_MODEL, breathe):
            self.absent("compile_guard", "this torch cannot keep dynamo out of the probe's frames")
        self.when(is_in_use, None, "", lambda: self._hide_all(package))
        self._use_default_group()
        breathe()
        now = time.monotonic_ns()
        self.clock.restart(now)
        self.absent("h2d", "no device")
        self.captures = watch_captures(self)
        for part in PARTS:
            attempt(self.hook("install_" + part.__name__.rpartition(".")[2]), part.install, self)
        attempt(self.detail_hook, self.detail.start)
        breathe()
        self.num_modules = len(sys.modules)
        atexit.register(self.at_exit)
        self.put_info()
        self.ring.put_u64(ring_file.OFFSET_STATE, ring_file.STATE_LIVE)

    def _hide_all(self, package: str) -> None:
        hide_from_tracing(package)

    def _use_default_group(self) -> None:
        c10d: Any = imported("torch.distributed.distributed_c10d")
        if c10d is None or not c10d.is_initialized():
            return

        def group_seq() -> int:
            world = c10d.GroupMember.WORLD
            if world is None:
                return sc.UNKNOWN
            return self.sequences.of(world)

        self.clock.group_seq, self.clock.group_of = group_seq, None

    def at_exit(self) -> None:
        """The process ends in order: the last step is written and everything comes out."""
        if os.getpid() == self.clock.pid:
            attempt(INSPECTION, self._flush_last_step)
            self.remove(REASON_EXIT)

    def remove(self, reason: int, state: int = ring_file.STATE_DETACHED) -> None:
        """Take every patch and registration out, tell the ring, forget ourselves.

        A signal's handler that raises meanwhile does so when all that is done.
        """
        if self.removed:
            return
        self.removed = True
        once = [self.eval_span.close, self._flush_last_step] if reason != REASON_LEASE else []
        ways_out = [installed.remove for installed in (*self.patches, *reversed(self.registrations))]
        all_of(
            Hook("leaving", 0, lambda _: None),
            [
                self.ring.close,  # where another thread writes just now, it closes when that has
                # Now, not when the collector finds the cycle: a mapping holds a file descriptor. A hook that is in the
                # middle of something meets a released buffer, which its guard swallows.
                self.clock.let_go,
                # The next attach may come at once, and must not take our names for a probe that is there.
                partial(self.ring.put_u64, ring_file.OFFSET_STATE, state),
                _forget,
                partial(self._say_goodbye, reason),
                *ways_out,
                self._fall_silent,
                *(lambda: once and once.pop()() for _ in once),
            ],
        )

    def _fall_silent(self) -> None:
        self.clock.active = False
        for hook in self.hooks:
            hook.active = False
        self.detail.end()

    def _say_goodbye(self, reason: int) -> None:
        self.registrations.clear()
        self.patches.clear()
        self.awaited_modules.clear()
        self.awaited.clear()
        atexit.unregister(self.at_exit)
        self.gradient_module = None
        self.clock.group_seq = self.clock.group_of = self.clock.sole_ddp = self.clock.awaited = None
        self.clock.device = None
        unknown = sc.UNKNOWN
        self.ring.put_event(KIND_DETACHED, (self.clock.step, 0, 0, unknown, unknown, unknown, reason))
        self.clock.words[sc.NOW] = sc.UNKNOWN

    def _flush_last_step(self) -> None:
        clock = self.clock
        if threading.get_ident() == clock.thread_ident:
            clock.flush()
        elif clock.thread_ident in tops():  # the step in the making is its own
            clock.write_kept()
        else:
            clock.hand_over(NOBODY, time.monotonic_ns())


def _bytes_of(module: Any) -> int:
    """Of its gradients."""
    with unheard():
        return sum(parameter.nbytes for parameter in parameters_of(module) if parameter.requires_grad)


def breathe() -> None:
    """Between two pieces of the way in: the interpreter to the training, where we are in a thread of our own."""
    uncounted.end()
    if threading.get_ident() != threading.main_thread().ident:
        time.sleep(BREATH_S)
    uncounted.begin()


def _holds(is_so: Callable[[], bool]) -> bool:
    """A condition that cannot be asked yet does not hold yet: a module may be half imported by another thread."""
    try:
        return is_so()
    except Exception as error:  # the guard: asked again after a later step
        if is_the_hosts(error):
            raise
        return False


def forget_modules() -> None:
    """Drop the probe's names from the interpreter's tables; running frames keep what they still need."""
    package = __name__.rpartition(".")[0]
    folder = os.path.dirname(os.path.abspath(__file__))
    for name in [name for name in sys.modules if name == package or name.startswith(package + ".")]:
        del sys.modules[name]
    for path in [
        path for path in sys.path_importer_cache if path == folder or path.startswith(folder + os.sep)
    ]:
        del sys.path_importer_cache[path]


def _forget() -> None:
    global _probe
    _probe = None
    forget_modules()


def install(ring_path: str) -> bool:
    """Install once a process; False if a probe is there already (its ring stays in use)."""
    global _probe
    if _probe is not None:
        return False
    if type(time.monotonic_ns) is not type(time.process_time_ns):
        ring = ring_file.RingWriter(ring_path)
        ring.put_info(json.dumps({"error": NO_CLOCK}).encode())
        ring.put_u64(ring_file.OFFSET_STATE, ring_file.STATE_FAILED)
        ring.close()
        forget_modules()
        return False
    uncounted.begin()
    probe = Probe(ring_path)
    hook = probe.hook("install")
    try:
        _probe = probe
        attempt(hook, probe.install)
    except BaseException:  # a signal's handler raised it, in the main thread: the host's, and it goes on
        _take_back(hook, probe, ring_file.BROKEN_OFF)
        raise
    finally:
        uncounted.end()
    if not hook.active:
        _take_back(hook, probe, hook.error)
    return True


def _take_back(hook: Hook, probe: Probe, why: str) -> None:
    """What is there of it."""
    info = json.dumps({"error": why}).encode()
    leave = partial(probe.remove, REASON_ORPHAN, ring_file.STATE_FAILED)
    all_of(hook, [leave, partial(probe.ring.put_info, info)])


def uninstall() -> bool:
    """Remove the probe from any thread; False if there is none."""
    if _probe is None:
        return False
    _probe.remove(REASON_ASKED)
    return True
