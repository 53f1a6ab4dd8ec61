"""Why a rank that is attached to makes no steps, from what its probe and its process were seen to do.

In: the ring's header, a few times a second until the first step is in it, and /proc.  Out: a sentence, empty while
there is nothing to say. Cost: a few reads of the header, and two files of /proc a second; of one that
waits also what all processes are, twice a minute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.agent import procfs
from tuiadvisor.agent.candidates import LOADER_WORKER, TORCH_FILE, family
from tuiadvisor.phases import PHASES
from tuiadvisor_probes import ring as ring_file

if TYPE_CHECKING:
    from tuiadvisor.agent.info import ProbeInfo

NS: Final = 10**9
AFTER_NS: Final = 5 * NS  # of the rank's own time
LOOK_EVERY_NS: Final = NS
SAID_S: Final = (5, 10, 30, 60, 120, 300, 600, 1800, 3600)
IDLE_SHARE: Final = 0.02  # of one core, by all its threads
BELOW_EVERY_NS: Final = 30 * NS  # all processes are looked at
MAX_BELOW: Final = 8  # processes named
RPC_THREADS: Final = "TP_"  # TensorPipe's, which carries torch.distributed.rpc
ENDS_STEPS: Final = {"optimizer": "optimizer steps", "backward": "backward"}  # hook -> what it sees
OK: Final = "ok"  # as the probe says of a hook that works
OTHERS: Final = ((b"/jaxlib/", "JAX"), (b"/tensorflow/", "TensorFlow"), (b"/mlx/", "MLX"))


class Stepless:
    """Mutable: one a rank and probe."""

    def __init__(self, pid: int) -> None:
        self.why = ""
        self.idle_since_ns = 0  # our clock; while none of its threads does anything, and never did since
        self._pid = pid
        self._has_stepped = False
        self._since_ns = 0
        self._stepped_ns = self._now_ns = 0  # when its first step was seen, and the last look
        self._began: dict[int, int] = {}  # phase -> since when the thread was seen in it the last time
        self._looked_ns = 0
        self._first_ticks: int | None = None
        self._below: list[int] = []  # processes with torch that this one has started
        self._below_at_ns = 0

    def look(self, reader: ring_file.RingReader, info: ProbeInfo, now_ns: int, clock_now_ns: int) -> None:
        """Once in every round. now_ns: our clock; clock_now_ns: the same moment on the rank's."""
        self._now_ns = now_ns
        if self._has_stepped:
            self.why, self.idle_since_ns = info.unmeasured or "", 0
            return
        self._since_ns = self._since_ns or now_ns
        phase, since_ns, _ = reader.now()
        if since_ns > 0:
            self._began[phase] = since_ns
        if reader.get_u64(ring_file.OFFSET_STEP_HEAD):
            self._has_stepped, self.why = True, info.unmeasured or ""
            self._stepped_ns = now_ns
        elif now_ns - self._looked_ns >= LOOK_EVERY_NS:
            self._looked_ns = now_ns
            self.idle_since_ns = 0
            self.why = info.unmeasured or self._found(
                info, phase, now_ns, clock_now_ns - since_ns if since_ns > 0 else 0
            )

    def of_rank(self, rank: int | None) -> str:
        """The sentence; also of several processes that train each for itself, as Hogwild does: none has a number."""
        if (
            rank is None
            and not self.why
            and self._has_stepped
            and self._now_ns - self._stepped_ns >= AFTER_NS
        ):
            return (
                "its steps belong to no rank, as it is in no process group; "
                f"if it trains on its own, watch it alone (--pid {self._pid})"
            )
        return self.why

    def _found(self, info: ProbeInfo, phase: int, now_ns: int, for_ns: int) -> str:
        found = procfs.stat(self._pid)
        if found is None:
            return ""
        if self._first_ticks is None:
            self._first_ticks = found.cpu_ticks
        elapsed_ns = now_ns - self._since_ns
        if elapsed_ns < AFTER_NS:
            return ""
        if found.state in "Tt":
            return f"it is stopped (SIGSTOP, or a debugger); kill -CONT {self._pid} lets it go on"
        if 0 <= phase < len(PHASES) and PHASES[phase] != "other" and for_ns >= AFTER_NS:
            return (
                f"it has been in one {PHASES[phase]} for over {_over_s(for_ns)} s: "
                "either it takes that long, or it hangs"
            )
        return self._of_phases(info, for_ns) or self._of_nothing_seen(found.cpu_ticks, elapsed_ns)

    def _of_phases(self, info: ProbeInfo, for_ns: int) -> str:
        """for_ns: how long the present phase lasts."""
        seen = {PHASES[index] for index in self._began if 0 <= index < len(PHASES)}
        if "optimizer" in seen or (info.stepping and seen & {"forward", "backward"}):
            return "its first step since the attach is not over"
        if failed := _failed_hook(info):
            return failed
        if "backward" in seen or info.unstepped:
            where = f" in its thread {info.unstepped}" if info.unstepped else ""
            return f"backward runs{where}, but no optimizer of torch.optim steps, which is where a step ends"
        if seen & {"forward", "eval"} and for_ns >= AFTER_NS:
            return (
                f"its model ran forward, and for over {_over_s(for_ns)} s neither a backward nor another forward has "
                f"followed: it waits or works where no hook is, or it hangs (tuiadvisor stacks --pid {self._pid} tells)"
            )
        if seen & {"forward", "eval"}:
            return "its model runs forward and no backward follows: it evaluates or serves"
        return ""

    def _of_nothing_seen(self, ticks: int, elapsed_ns: int) -> str:
        used_s = (ticks - (self._first_ticks or 0)) / procfs.TICKS_PER_S
        if used_s < IDLE_SHARE * elapsed_ns / NS:
            if not self._below_at_ns or self._now_ns - self._below_at_ns >= BELOW_EVERY_NS:
                self._below, self._below_at_ns = self._with_torch_below(), self._now_ns
            if self._below:
                named = " ".join(map(str, self._below[:MAX_BELOW]))
                return (
                    "it waits, and processes that it started have loaded torch: "
                    f"watch them, or one of them (--pid {named})"
                )
            self.idle_since_ns = self._since_ns
            return (
                "none of its threads is doing anything: it waits, has finished or hangs "
                f"(tuiadvisor stacks --pid {self._pid} tells where)"
            )
        nothing = "no backward and no optimizer step of PyTorch was seen in any of its threads"
        if any(name.startswith(RPC_THREADS) for name in procfs.thread_names(self._pid)):
            return (
                f"{nothing}, and it takes part in torch.distributed.rpc: distributed autograd and a "
                "DistributedOptimizer run on whichever workers hold the parameters, and their steps are not measured"
            )
        maps = procfs.read(self._pid, "maps") or b""
        other = next((name for part, name in OTHERS if part in maps), None)
        if other is not None:
            return f"{nothing}: it has {other} loaded, whose steps are not seen"
        return f"{nothing}: it prepares, evaluates or serves, or its step takes longer than it was watched"

    def _with_torch_below(self) -> list[int]:
        table = procfs.snapshot()
        return [
            one.pid
            for one in sorted(table.values(), key=lambda one: one.pid)
            if self._pid in family(one.pid, table)
            and one.is_alive
            and one.comm != LOADER_WORKER
            and procfs.maps_file(one.pid, TORCH_FILE)
        ]


def _over_s(for_ns: int) -> int:
    """The number that is said: one that changes would be news every second."""
    return max(s for s in SAID_S if s <= for_ns / NS)


def _failed_hook(info: ProbeInfo) -> str:
    """Of the hooks that end a step one that is off: there may be steps, and none is seen."""
    for name in ENDS_STEPS:
        if (told := info.hooks.get(name, OK)) != OK:
            return f"the probe's hook on {ENDS_STEPS[name]} is off ({told})"
    return ""
