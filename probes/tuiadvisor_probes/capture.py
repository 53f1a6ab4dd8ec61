"""A short window of torch's own profiler in the training thread, from one step border to another.

Loaded into a probe that is there already, only when somebody asks, and gone with the window. In: a folder that whoever
asked has made.  Out: `trace.json` and `state.json` in it. The folder is also the wish: once it is gone, nobody waits
for the trace and the window ends at the next border without one. A profiler of the host's comes first: one that runs
keeps ours out, one that starts puts ours out.

Memory: what the profiler notes it keeps, and when it stops it needs seven times as much again; both are the training's,
in whose control group the kernel would end its largest process. So a window ends early, with the steps it has, before
it takes more than whoever asked allows (half of what is free in memory, or where the file will lie), and gives back to
the system what it has freed.
"""

from __future__ import annotations

import json
import os
import sys
from threading import get_ident
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from . import compiled
from . import step_clock as sc
from .guard import is_the_hosts
from .patch import Patch

if TYPE_CHECKING:
    from collections.abc import Callable

    from .host import Host

FLAG_CAPTURE = 256
TRACE_NAME, STATE_NAME, ASKED_NAME = "trace.json", "state.json", "asked"
# Of whoever asked: how many are enough, since a trace of more would not fit in some rank.
STEPS_NAME = "steps"
TELLS_AFTER = 4  # steps: then it says how many such would fit; what the first one takes is not what each does
BORDERS_BEFORE = 2  # one whole step without the profiler, to compare with
WAITING, RECORDING, DONE, REFUSED = "waiting", "recording", "done", "refused"
LEFT = "the probe left before the window was over"
# Of what the process grows by while it records, all that the trace takes until it is written: 221 bytes an event while
# it records, 1,530 to 1,690 at the most (torch 2.13, CPU; with shapes 490 and 3,680).
MOST_OF_GROWTH = 8
# Before an event is recorded: 0.4 MiB, and the buffers that kernels are noted in (Kineto's own limit for them).
START_BYTES, START_CUDA_BYTES = 16 << 20, 144 << 20
HOST_PROFILES = "a profiler of the training's own runs in this process"

_window: Window | None = None


def begin(
    folder: str,
    num_steps: int,
    between_ns: tuple[int, int],
    with_shapes: bool = False,
    most: tuple[int, str] = (0, ""),
) -> None:
    """Ask for a window of num_steps, to begin at a step border between these two moments (monotonic clock).

    most: bytes that this process may grow by for it, 0 where nothing limits it, and what limits it.
    """
    global _window
    if not is_first(folder):
        return  # asked twice: the first request arrived after all
    install: Any = sys.modules.get(__name__.rpartition(".")[0] + ".install")
    probe = getattr(install, "_probe", None)
    if probe is None:
        put_state(folder, {"state": REFUSED, "why": "the probe has left this process"})
    elif _window is not None:
        put_state(folder, {"state": REFUSED, "why": "another capture is under way in this process"})
    else:
        put_state(folder, {"state": WAITING})
        _window = Window(probe, folder, num_steps, *between_ns)
        _window.with_shapes = with_shapes
        _window.most_bytes, _window.most_why = most
        _window.arm()


def is_first(folder: str) -> bool:
    """Whether no other request of the same wish has come, in whichever thread. OSError if the folder is gone."""
    try:
        os.close(os.open(os.path.join(folder, ASKED_NAME), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    return True


def resident_bytes() -> int:
    """Of this process; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def give_back() -> None:
    """To the system what the C library holds free: of a trace of a gigabyte it keeps as much. Glibc alone can."""
    ctypes: Any = sys.modules.get("ctypes")  # torch imports it
    if ctypes is not None:
        try:
            ctypes.CDLL(None).malloc_trim(0)
        except (OSError, AttributeError, TypeError):  # no such function, or nothing to look it up in
            return


def put_state(folder: str, state: dict[str, Any]) -> None:
    """Replace state.json at one blow, for a reader that looks at any moment. OSError if the folder is gone."""
    path = os.path.join(folder, STATE_NAME)
    with open(path + ".new", "w") as file:
        json.dump(state, file)
    os.replace(path + ".new", path)


class Window:
    """One capture. `arm` runs in the injected thread, everything else at borders in the training thread."""

    def __init__(self, probe: Host, folder: str, num_steps: int, not_before_ns: int, give_up_ns: int) -> None:
        self.probe = probe
        self.folder = folder
        self.num_steps = num_steps
        self.not_before_ns = not_before_ns
        self.give_up_ns = give_up_ns
        self.autograd: Any = sys.modules.get("torch.autograd.profiler")
        self.torch: Any = sys.modules.get("torch")
        self.former: Callable[[], None] = probe.clock.on_step
        self.profiler: Any = None
        self.step_range: Any = None
        self.patches: list[Patch] = []
        self.way_out: Patch | None = None
        self.border_ns = 0
        self.step_ns_before: list[int] = []
        self.step_ns_inside: list[int] = []
        self.cost_ns: dict[str, int] = {}
        self.first_step = sc.UNKNOWN
        self.is_over = False
        self.with_shapes = False  # of operands: more is written an operator
        self.most_bytes, self.most_why = 0, ""
        self.bytes_before = 0
        self.told_fit = num_steps

    def arm(self) -> None:
        """Come by at every border from now on."""
        if compiled.is_in_use():
            compiled.hide_from_tracing(__name__.rpartition(".")[0], ("capture",))
        self.probe.registration(self)  # a probe that leaves takes us out
        self.probe.clock.on_step = self.at_border

    def at_border(self) -> None:
        """A step has just been written, the next one begins."""
        if not self.is_over:
            try:
                self.look()
            except BaseException as error:
                is_the_hosts_own = is_the_hosts(error)
                who = "a signal's handler raised amid it" if is_the_hosts_own else "the profiler failed"
                self.end(REFUSED, who + ": " + type(error).__name__ + ": " + str(error)[:200])
                if is_the_hosts_own:
                    raise
        self.former()
        if not self.is_over:
            self.probe.clock.max_kept = 1  # at every border

    def look(self) -> None:
        """Begin, go on or end, whichever it is time for."""
        now = monotonic_ns()
        if not os.path.isdir(self.folder):
            self.end(REFUSED, "nobody waits for it")
        elif self.profiler is None:
            if self.border_ns:
                self.step_ns_before.append(now - self.border_ns)
            self.border_ns = now
            if len(self.step_ns_before) >= BORDERS_BEFORE - 1 and now >= self.not_before_ns:
                self.start()
            elif now > self.give_up_ns:
                self.end(REFUSED, "no step border came in time")
        else:
            self.step_ns_inside.append(now - self.border_ns)
            num_steps = len(self.step_ns_inside)
            num_fit = self.num_fit() if self.most_bytes else self.num_steps
            if num_steps == self.num_steps:
                self.finish("")
            elif num_steps >= min(num_fit, self.num_enough()):
                why = ", with all ranks: one of them has no room for the trace of more"
                if num_steps >= min(num_fit, self.told_fit):
                    why = ": more would take more memory than " + self.most()
                self.finish(
                    "it ended after " + str(num_steps) + " of " + str(self.num_steps) + " steps" + why
                )
            else:
                if self.most_bytes and num_steps == TELLS_AFTER:
                    self.told_fit = num_fit
                    put_state(self.folder, {"state": RECORDING, "fits": num_fit})
                self.mark_step()
                self.border_ns = monotonic_ns()

    def num_fit(self) -> int:
        """So many steps like those that it has would fit, by the memory they have taken."""
        num_steps = len(self.step_ns_inside)
        grown = max(resident_bytes() - self.bytes_before, 1)
        return self.most_bytes * num_steps // (grown * MOST_OF_GROWTH)

    def num_enough(self) -> int:
        """As whoever asked has said since: the ranks of a job end together, or the others wait for one that writes."""
        try:
            with open(os.path.join(self.folder, STEPS_NAME), "rb") as file:
                return int(file.read(20))
        except (OSError, ValueError):
            return self.num_steps

    def most(self) -> str:
        """The limit in words."""
        return str(self.most_bytes >> 20) + " MiB (" + self.most_why + ")"

    # --- the profiler

    def start(self) -> None:
        """Switch the profiler on; what that takes is counted, and belongs to the step that begins."""
        if self.autograd is None:
            self.end(REFUSED, "torch.autograd.profiler is not imported in this process")
            return
        if self.host_profiles():
            self.end(REFUSED, HOST_PROFILES)
            return
        needed = START_CUDA_BYTES if self.uses_cuda() else START_BYTES
        if 0 < self.most_bytes < needed:
            what = "a trace takes " + str(needed >> 20) + " MiB of memory to begin with, more than "
            self.end(REFUSED, what + self.most())
            return
        begin_ns = monotonic_ns()
        give_back()  # else what is recorded first would lie where the process has grown to before, and not be seen
        profiler = self.autograd.profile(record_shapes=self.with_shapes)
        activity = self.autograd.ProfilerActivity
        if self.uses_cuda() and activity.CUDA in self.autograd._supported_activities():
            profiler.kineto_activities.add(activity.CUDA)
        self.profiler = profiler  # before it is on: a signal's handler may raise right behind that line
        profiler._prepare_trace()
        profiler._start_trace()
        self.say_who()
        self.bytes_before = resident_bytes()
        for name in ("_prepare_profiler", "_enable_profiler"):
            self.patches.append(Patch(self.autograd, name, self.giving_way))
        self.first_step = self.probe.clock.step
        put_state(self.folder, {"state": RECORDING})
        self.mark_step()
        self.border_ns = monotonic_ns()
        self.cost_ns["start"] = self.border_ns - begin_ns

    def finish(self, why: str) -> None:
        """Switch it off and write the trace, all at this border: it stands still here once and then never again."""
        stop_ns = monotonic_ns()
        results = self.stop()
        write_ns = monotonic_ns()
        results.save(os.path.join(self.folder, TRACE_NAME))
        del results
        give_back()
        end_ns = monotonic_ns()
        self.cost_ns |= {"stop": write_ns - stop_ns, "write": end_ns - write_ns}
        self.end(DONE, why)

    def stop(self) -> Any:
        """The recorded events, unparsed (parsing takes half a second on torch 2.4). Ours alone is switched off."""
        self.profiler = None
        self.leave_step()
        for patch in self.patches:
            patch.remove()
        self.patches.clear()
        if self.uses_cuda():
            self.torch.cuda.synchronize()  # as torch's profiler does when it stops: kernels under way belong to it
        results = self.autograd._disable_profiler()
        self.autograd._run_on_profiler_stop()
        return results

    def host_profiles(self) -> bool:
        """Whether somebody else's profiler is on."""
        is_on = getattr(self.torch._C._autograd, "_profiler_enabled", bool)
        return bool(getattr(self.autograd, "_is_profiler_enabled", False) or is_on())

    def uses_cuda(self) -> bool:
        """Whether this process computes on a GPU."""
        return bool(self.torch.cuda.is_initialized())

    def say_who(self) -> None:
        """The rank and the size of the job, where trace readers look for them."""
        own = {"threads": self.torch.get_num_threads()}
        self.torch._C._autograd._add_metadata_json("tuiadvisor", json.dumps(own))
        dist = sys.modules.get("torch.distributed")
        if dist is None or not dist.is_available() or not dist.is_initialized():
            return
        who = {"backend": dist.get_backend(), "rank": dist.get_rank(), "world_size": dist.get_world_size()}
        self.torch._C._autograd._add_metadata_json("distributedInfo", json.dumps(who))

    def mark_step(self) -> None:
        """Name the step in the trace and in the ring."""
        self.leave_step()
        clock = self.probe.clock
        clock.flags |= FLAG_CAPTURE
        self.step_range = self.autograd.record_function("ProfilerStep#" + str(clock.step))
        self.step_range.__enter__()

    def leave_step(self) -> None:
        """Close the step's name in the trace."""
        step_range, self.step_range = self.step_range, None
        if step_range is not None:
            step_range.__exit__(None, None, None)

    def giving_way(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Before the host's own profiler starts, ours goes: two in one thread are an error, and would be the host's."""

        def tuiadvisor_hook(*args: Any, **kwargs: Any) -> Any:
            if not self.is_over and get_ident() == self.probe.clock.own[0]:
                self.end(REFUSED, "the training started a profiler of its own, ours made way")
            return original(*args, **kwargs)

        return tuiadvisor_hook

    # --- the end

    def end(self, state: str, why: str) -> None:
        """Everything out, and what came of it into the folder. Raises at its end what is the host's, nothing else."""
        global _window
        if self.is_over:
            return
        self.is_over = True
        _window = None
        clock = self.probe.clock
        clock.flags |= FLAG_CAPTURE if self.first_step != sc.UNKNOWN else 0
        raised: BaseException | None = None
        try:
            if self.profiler is not None:
                self.stop()
        except BaseException as error:  # noqa: BLE001 - the guard
            raised = error
            why += " (it did not stop in order: " + str(error)[:100] + ")"
        try:
            if self.way_out is not None:
                self.way_out.remove()
            if clock.on_step == self.at_border:
                clock.on_step = self.former
            if self in self.probe.registrations:
                self.probe.registrations.remove(self)
            said = {
                "first_step": self.first_step,
                "cost_ns": self.cost_ns,
                "step_ns_before": self.step_ns_before[-64:],
                "step_ns_inside": self.step_ns_inside,
            }
            put_state(self.folder, {"state": state, "why": why, **said})
        except BaseException as error:  # noqa: BLE001 - the folder is gone: nobody is left to tell
            raised = raised if raised is not None and is_the_hosts(raised) else error
        sys.modules.pop(__name__, None)
        if raised is not None and is_the_hosts(raised):
            raise raised

    def remove(self) -> None:
        """The probe leaves. Another thread cannot stop the profiler: the training thread does, when it names a range.

        That is at its next batch, forward or optimizer step: torch itself enters a record_function in each of them.
        """
        if self.is_over:
            return
        if self.profiler is None or get_ident() == self.probe.clock.thread_ident:
            self.end(REFUSED, LEFT)
        else:
            self.way_out = Patch(self.autograd.record_function, "__enter__", self.leaving)

    def leaving(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The training thread passes here: out now."""

        def tuiadvisor_hook(*args: Any, **kwargs: Any) -> Any:
            if not self.is_over and get_ident() == self.probe.clock.thread_ident:
                self.end(REFUSED, LEFT)
            return original(*args, **kwargs)

        return tuiadvisor_hook
