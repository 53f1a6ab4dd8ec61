"""Where this process is: the training thread's stack, and how far each process group got; or its stack time and again.

Run by itself in an injected thread, without the rest of the probe. In: a folder.  Out: `state.json` in it. It only
reads: no collective is called. The sequence number of a group is that of the last collective that this process has
entered (Gloo's count messages, too).

Asked for its flight recorders, it also writes what they hold, each into a file of its own. torch makes that text under
the interpreter's lock, 17 to 20 us an entry (2,000 of Gloo's: 35 ms); its recorder's own lock it holds for the copy
alone. NCCL's asks the device's events and waits for none.
"""

from __future__ import annotations

import _thread
import contextlib
import json
import os
import sys
import threading
import time
from typing import Any

if globals().get("__package__"):  # else its functions stand beside these, see `payload.standalone_code`
    from .group_sequence import sequence_number
    from .other_frames import LEAVES_A_DICT, callers, exceptions, tops, variables

MAX_FRAMES = 40
MAX_SAMPLES = 500
FEW_SAMPLES = 80
LONGEST = 3  # times the window
MAX_GROUPS = 64
MAX_MEMBERS = 4096
MAX_SPANS = 512
MAX_RECORDED = 8000  # entries that a recorder may hold if it is to be asked: 0.15 s of the interpreter
MAX_RECORDED_BYTES = 8 << 20
RECORDED = {"fr": "_dump_fr_trace_json", "nccl": "_dump_nccl_trace_json"}  # "fr": of Gloo
RECORDED_SIZES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
MAX_CODE_BYTES = 20_000  # its reading takes a microsecond an instruction under the interpreter's lock
C10D = os.path.join("torch", "distributed", "distributed_c10d.py")
FUNCTIONAL = os.path.join("torch", "distributed", "_functional_collectives.py")
ENGINE = "_engine_run_backward"
CONTEXTS = os.path.join("torch", "utils", "_contextlib.py")
DECORATED = "decorate_context"  # @torch.no_grad() around a function
WITHOUT_GRADIENTS = ("no_grad", "inference_mode")
MAX_VALUES = 400  # of a frame
GLUE = ("c10d_logger.py",)  # decorators around every call
OURS = ("tuiadvisor_hook", "tuiadvisor_callback")
FOLDER = os.sep + "tuiadvisor_probes" + os.sep
IMPORTING = "<frozen importlib"
PROBE = "_tuiadvisor_probe.install"
WAITING_FILES = (
    "threading.py",
    "queue.py",
    "selectors.py",
    os.path.join("concurrent", "futures", "thread.py"),
)
TRAINING_FILES = tuple(
    os.path.join("torch", part, "")
    for part in ("distributed", "autograd", "optim", os.path.join("nn", "modules"))
)
# Methods of C in which a rank waits for others; no frame of Python shows them.
WAITS = {"wait": "wait", "_broadcast_coalesced": "broadcast", "_verify_params_across_processes": "all_gather"}


def report(folder: str) -> None:
    """Write what this process knows of itself."""
    ident, frame = training_frame()
    said: dict[str, Any] = {"stack": stack_of(frame), "groups": []}
    if ident != threading.main_thread().ident:
        said["thread"], said["thread_name"] = native_id(ident), thread_name(ident)
    try:
        said["call"], inside = call_of(frame)
        said["groups"] = groups()
        said["rank"] = own_rank()
        said.update(whom(inside))
    except Exception as error:  # noqa: BLE001 - a torch we were not written for: the stack is still worth telling
        said["why"] = type(error).__name__ + ": " + str(error)[:200]
    write(folder, said)


def training_frame() -> tuple[int, Any]:
    """(ident of the thread that trains, where it is)."""
    frames: dict[int, Any] = tops()
    if threading.get_ident() != threading.main_thread().ident:
        frames.pop(threading.get_ident(), None)  # our own
    ident = training_thread(frames)
    frame = frames.get(ident)
    # Where only the main thread could run us we lie on top of its own code, beneath us the line that ran us.
    stack: list[Any] = callers(frame)
    ours = [number for number, one in enumerate(stack) if one.f_globals is globals()]
    theirs = stack[ours[-1] + 2 :] if ours else stack
    return ident, theirs[0] if theirs else None


def write(folder: str, said: dict[str, Any]) -> None:
    """Hand out an answer, whole or not at all."""
    path = os.path.join(folder, "state.json")
    with open(path + ".new", "w") as file:
        json.dump(said, file)
    os.replace(path + ".new", path)


def recorded(folder: str) -> None:
    """Write what the flight recorders of this process's groups hold; a folder that is gone takes the request back."""
    if not os.path.isdir(folder):
        return
    said: dict[str, Any] = {"groups": [], "recorders": {}}
    begin_ns = time.thread_time_ns()
    try:
        ident, frame = training_frame()
        said["call"], said["evaluates"] = call_of(frame)[0], int(evaluates(frame))
        said["ends"] = int(is_ending(ident))
        said["rank"], said["groups"] = own_rank(), groups(in_spans=True)
        backends = " ".join(group["backend"] for group in said["groups"])
        for name, backend in (("fr", "gloo"), ("nccl", "nccl")):
            if backend in backends:
                said["recorders"][name] = why_not_recorded(folder, name)
        said["groups"] = groups(in_spans=True)  # after the calls, which a group's number then covers
    except Exception as error:  # noqa: BLE001 - a torch we were not written for
        said["why"] = type(error).__name__ + ": " + str(error)[:200]
    said["spent_us"] = (time.thread_time_ns() - begin_ns) // 1000
    write(folder, said)


def why_not_recorded(folder: str, name: str) -> str:
    """Write what one recorder holds into a file of its name; why not, "" where it is there."""
    c10d: Any = sys.modules.get("torch._C._distributed_c10d")
    dump = getattr(c10d, RECORDED[name], None)
    if dump is None:
        version = getattr(sys.modules.get("torch"), "__version__", "?")
        return (
            "torch "
            + str(version)[:40]
            + " hands out no flight recorder for "
            + ("NCCL" if name == "nccl" else "Gloo")
        )
    for variable in RECORDED_SIZES:
        size = os.environ.get(variable, "")
        if size.isdigit() and int(size) > MAX_RECORDED:
            return variable + "=" + size[:20] + ": too many entries to ask for while the interpreter waits"
    raw = dump()
    raw = raw.encode() if isinstance(raw, str) else raw
    if not isinstance(raw, bytes) or len(raw) > MAX_RECORDED_BYTES:
        return "its flight recorder gave no text, or too much of it"
    with open(os.path.join(folder, name + ".json"), "wb") as file:
        file.write(raw)
    return ""


def spans_of(ranks: list[int]) -> list[list[int]]:
    """[first, distance, how many] of evenly spaced stretches of ascending numbers; empty where there are too many."""
    spans: list[list[int]] = []
    for rank in ranks:
        last = spans[-1] if spans else None
        if last is not None and last[2] == 1:
            last[1], last[2] = rank - last[0], 2
        elif last is not None and rank == last[0] + last[1] * last[2]:
            last[2] += 1
        else:
            spans.append([rank, 1, 1])
    return spans if len(spans) <= MAX_SPANS else []


def sample(folder: str, window_ns: int, period_ns: int, budget_ppm: int) -> None:
    """Look where the training thread is, again and again for a while, in a thread of our own that ends with it.

    A folder that is gone takes the request back.

    budget_ppm: millionths of the time that the looking may take; it gets rarer to keep them.
    """
    _thread.start_new_thread(sample_quietly, (folder, window_ns, period_ns, budget_ppm))


def sample_quietly(folder: str, window_ns: int, period_ns: int, budget_ppm: int) -> None:
    """As `take_samples`; an error of ours says nothing on the training's terminal."""
    with contextlib.suppress(Exception):
        take_samples(folder, window_ns, period_ns, budget_ppm)


def take_samples(folder: str, window_ns: int, period_ns: int, budget_ppm: int) -> None:
    """As `sample`. At irregular distances: a regular one may be in step with the training's."""
    frames: dict[int, Any] = tops()
    frames.pop(threading.get_ident(), None)
    ident = training_thread(frames)
    frames.clear()  # they hold what the training's functions hold
    places: dict[tuple[str, str, int], int] = {}
    stacks: dict[tuple[int, ...], int] = {}
    samples: list[int] = []
    begin_ns, spent_ns, chance = time.monotonic_ns(), -time.thread_time_ns(), os.getpid()
    while os.path.isdir(folder) and is_wanted(time.monotonic_ns() - begin_ns, window_ns, len(samples)):
        stack = tuple(places.setdefault(place, len(places)) for place in places_of(tops().get(ident)))
        samples.append(stacks.setdefault(stack, len(stacks)))
        chance = (chance * 1103515245 + 12345) % (1 << 31)
        wait_ns = period_ns // 2 + chance % period_ns
        spent = spent_ns + time.thread_time_ns()
        wait_ns = max(wait_ns, spent * 1000000 // budget_ppm - (time.monotonic_ns() - begin_ns))
        time.sleep(min(wait_ns, window_ns) / 1e9)
    said = {
        "frames": list(places),
        "stacks": list(stacks),
        "samples": samples,
        "window_ns": time.monotonic_ns() - begin_ns,
        "spent_ns": spent_ns + time.thread_time_ns(),
    }
    write(folder, said)


def is_wanted(elapsed_ns: int, window_ns: int, num: int) -> bool:
    """Until the window is over; longer where the budget left too few samples to compare."""
    limit_ns = window_ns * (LONGEST if num < FEW_SAMPLES else 1)
    return elapsed_ns < limit_ns and num < MAX_SAMPLES


def is_left_out(code: Any) -> bool:
    """Whether a frame is the probe's or the importer's: the training's author can change neither."""
    return code.co_name in OURS or FOLDER in code.co_filename or code.co_filename.startswith(IMPORTING)


def places_of(frame: Any) -> list[tuple[str, str, int]]:
    """(function, file, line) of the innermost frames, innermost first; ours and the importer's are left out."""
    lines = [(one.f_code, one.f_lineno or 0) for one in callers(frame)]
    kept = [(code, line) for code, line in lines if not is_left_out(code)]
    return [(code.co_name[:200], code.co_filename[-300:], line) for code, line in kept[:MAX_FRAMES]]


def training_thread(frames: dict[int, Any]) -> int:
    """Ident of the thread that trains: the one the probe listens to, if there is a probe and it knows another.

    Else the main thread, unless that only waits or has nothing to do with torch (Ray's), and just one other is at the
    training: inside of torch, or in code that uses it.
    """
    main = threading.main_thread().ident or 0
    probe: Any = getattr(sys.modules.get(PROBE), "_probe", None)
    known = getattr(getattr(probe, "clock", None), "thread_ident", main)
    if known != main and known in frames:
        return int(known)
    is_aside = waits_for_a_thread(frames.get(main)) or not uses_torch(frames.get(main))
    for is_at_it in (is_in_torch, uses_torch):
        found = [
            ident for ident, frame in frames.items() if is_at_it(frame) and not waits_for_a_thread(frame)
        ]
        if main in found or not is_aside:
            return main
        if len(found) == 1:
            return found[0]
    return main


def waits_for_a_thread(frame: Any) -> bool:
    """Whether the innermost code is the library's of threads, queues, futures or an event loop."""
    return frame is None or frame.f_code.co_filename.endswith(WAITING_FILES)


def is_in_torch(frame: Any) -> bool:
    """Whether a frame of the stack is in what a training calls of torch."""
    names = {one.f_code.co_filename for one in callers(frame)}
    return any(part in name for name in names for part in TRAINING_FILES)


def uses_torch(frame: Any) -> bool:
    """Whether code on the stack has torch among its names."""
    torch = sys.modules.get("torch")
    found: list[Any] = callers(frame)
    return torch is not None and any(
        one.f_globals.get(name) is torch for one in found for name in ("torch", "th")
    )


def native_id(ident: int) -> int:
    """As the kernel counts the thread, in this process's eyes; 0 where that is not known."""
    thread = threading._active.get(ident)  # type: ignore[attr-defined]  # never current_thread(): that makes one
    return int(getattr(thread, "native_id", 0) or 0)


def thread_name(ident: int) -> str:
    """What the program calls the thread."""
    return str(getattr(threading._active.get(ident), "name", ""))[:80]  # type: ignore[attr-defined]


def stack_of(frame: Any) -> list[str]:
    """The innermost frames, innermost first: function (folder/file.py:line). Ours and the importer's are left out."""
    return [
        name + " (" + os.sep.join(file.split(os.sep)[-2:]) + ":" + str(line) + ")"
        for name, file, line in places_of(frame)
    ]


def call_of(frame: Any) -> tuple[str | None, Any]:
    """(the call of torch.distributed the thread is in, its frame).

    The call is "backward" inside autograd's engine, None in other code.
    """
    name = inside = None
    stack: list[Any] = callers(frame)
    for one in stack:
        code = one.f_code
        if code.co_name in OURS:
            original = variables(one).get("original")
            if getattr(original, "__name__", "") == "wait":
                return "wait", None
        elif code.co_filename.endswith((C10D, FUNCTIONAL)):
            if not code.co_name.startswith(("_", "<")) or name is None:
                name, inside = str(code.co_name), one  # the outermost is what the caller asked for
        elif name is None and code.co_name == ENGINE:
            return "backward", None
        elif name is None and "torch" + os.sep + "_ops.py" in code.co_filename:
            pass  # the way from Python to an operator
        elif not code.co_filename.endswith(GLUE):
            # Waiting for a collective's handle is a method of C: the caller's own frame is the innermost.
            return (name, inside) if name else (wait_in_c(one), None)
    return name, inside


def is_ending(ident: int) -> bool:
    """Whether a thread is on its way out: in a `finally` or a handler beneath Ctrl-C, a signal or sys.exit."""
    handled: Any = exceptions().get(ident)
    error = (
        handled[1] if isinstance(handled, tuple) else handled
    )  # (type, error, traceback) before Python 3.12
    for _ in range(MAX_FRAMES):  # what it handles meanwhile has the former one as its context
        if error is None or isinstance(error, (KeyboardInterrupt, SystemExit)):
            break
        error = error.__context__
    return isinstance(error, (KeyboardInterrupt, SystemExit))


def evaluates(frame: Any) -> bool:
    """Whether a thread evaluates: beneath a function without gradients, or none of the models at hand is in training.

    Of a training that steps one model and asks another, which is in eval mode, that is not known: False. An optimizer's
    step is without gradients too, as LBFGS's around its closures: that is no evaluation.

    A look is left with the frames up to Python 3.12, and is not taken again before the probe had them forget it.
    """
    probe: Any = getattr(sys.modules.get(PROBE), "_probe", None)
    if not LEAVES_A_DICT:
        return looks_like_evaluation(frame)
    if not hasattr(probe, "looked_at"):
        return False
    if not probe.looked_at:
        ident = probe.clock.thread_ident or -1
        probe.looked_at = ident
        probe.evaluated = looks_like_evaluation(frame)
        probe.looked_at = ident  # again: a step may have ended in the middle of it
    return bool(probe.evaluated)


def looks_like_evaluation(frame: Any) -> bool:
    """As `evaluates`, of the frames as they are."""
    module_class: Any = getattr(sys.modules.get("torch.nn"), "Module", None)
    modes: set[bool] = set()
    stack: list[Any] = callers(frame) if module_class is not None else []
    for one in stack:
        values = variables(one)
        if one.f_code.co_name == DECORATED and one.f_code.co_filename.endswith(CONTEXTS):
            maker = getattr(values.get("ctx_factory"), "__self__", None)
            if type(maker).__name__ in WITHOUT_GRADIENTS and not is_optimizers(values):
                return True
        for value in list(values.values())[:MAX_VALUES]:
            # issubclass(type()): isinstance asks __class__, which dead weak proxies answer by raising.
            if issubclass(type(value), module_class) and has_parameters(value):
                modes.add(bool(value.training and getattr(value, "module", value).training))
    return modes == {False}


def has_parameters(module: Any) -> bool:
    """By what modules keep themselves: `parameters()` may be of the training's own and do anything."""
    seen, waiting = {id(module)}, [module]
    while waiting:
        one = waiting.pop()
        held = [_kept(one, name) for name in ("_parameters", "_modules")]
        if not all(issubclass(type(names), dict) for names in held):  # a scripted module keeps them elsewhere
            if type(one).__module__.startswith("torch.") and next(one.parameters(), None) is not None:
                return True
            continue
        if any(parameter is not None for parameter in dict.values(held[0])):
            return True
        for child in dict.values(held[1]):
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                waiting.append(child)
    return False


def _kept(module: Any, name: str) -> Any:
    """As `attributes.kept`, which is not there where we run alone."""
    if any(name in kind.__dict__ for kind in type(module).__mro__):
        return None
    try:
        return object.__getattribute__(module, name)
    except AttributeError:
        return None


def is_optimizers(values: dict[str, Any]) -> bool:
    """Whether torch's frame around a decorated function, by its variables, is around the step of an optimizer."""
    found = sys.modules.get("torch.optim.optimizer")
    arguments = values.get("args")
    return (
        found is not None
        and getattr(values.get("func"), "__name__", "") == "step"
        and type(arguments) is tuple
        and len(arguments) > 0
        and issubclass(type(arguments[0]), found.Optimizer)
    )


def wait_in_c(frame: Any) -> str | None:
    """The method of C in which a frame waits for other ranks; None where it calls none such."""
    method = called_method(frame)
    if method == "get":  # of a store: returns once somebody has set the key
        code = frame.f_code
        names = (*code.co_names, *code.co_varnames, *code.co_freevars)
        return "store.get" if any("store" in name.lower() for name in names) else None
    return WAITS.get(method or "")


def called_method(frame: Any) -> str | None:
    """The method whose call a frame is in, by its code; None where it is in none, or that is not plain."""
    dis: Any = sys.modules.get("dis")  # torch has imported it
    if dis is None or len(frame.f_code.co_code) > MAX_CODE_BYTES:
        return None
    name = last = None
    for instruction in dis.get_instructions(frame.f_code):
        if instruction.offset > frame.f_lasti:
            break
        last = instruction
        if instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            name = str(instruction.argval)
    return name if last is not None and "CALL" in last.opname else None


def whom(frame: Any) -> dict[str, Any]:
    """Of a call into distributed_c10d: the name of its process group, and the other side of a message."""
    values = variables(frame) if frame is not None and frame.f_code.co_filename.endswith(C10D) else {}
    if "group" not in values:
        return {}
    c10d: Any = sys.modules["torch.distributed.distributed_c10d"]
    group = values["group"]
    if group is None or group is c10d.GroupMember.WORLD:
        group = c10d._get_default_group()
    peers = [values.get(name) for name in ("src", "dst")]
    return {
        "call_group": str(c10d._world.pg_names.get(group, ""))[:100],
        "call_peer": next((peer for peer in peers if type(peer) is int), None),
    }


def own_rank() -> int | None:
    """The rank, None where there is no process group."""
    c10d: Any = sys.modules.get("torch.distributed.distributed_c10d")
    return int(c10d.get_rank()) if c10d is not None and c10d.is_initialized() else None


def groups(*, in_spans: bool = False) -> list[dict[str, Any]]:
    """Every process group this process belongs to: name, purpose, backend, global ranks, last sequence number.

    in_spans: the ranks as `spans_of`, all of them.
    """
    c10d: Any = sys.modules.get("torch.distributed.distributed_c10d")
    if c10d is None or not c10d.is_initialized():
        return []
    world = c10d._world
    found = []
    taken = getattr(world, "pg_backend_config", {})  # where nobody chose one
    for group, (chosen, _store) in list(world.pg_map.items())[:MAX_GROUPS]:
        backend = taken.get(group, chosen) if chosen == "undefined" else chosen
        members = sorted(world.pg_group_ranks.get(group, {}))
        found.append(
            {
                "name": str(world.pg_names.get(group, ""))[:100],
                "purpose": str(getattr(group, "group_desc", "") or "").replace("undefined", "")[:100],
                "backend": str(backend)[:40],
                **({"spans": spans_of(members)} if in_spans else {"members": members[:MAX_MEMBERS]}),
                "seq": sequence_number(group),
            }
        )
    return found
