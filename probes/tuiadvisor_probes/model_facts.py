"""What is trained, and with which settings: gathered once at a few borders of early steps, never within one.

The walk over the modules takes turns of a millisecond, at most MAX_TURNS of them; a model that is not through by then
is cut and said so. Settings are torch's plain getters. Shape and precision of the input are read from the frame of one
training forward: for that one call the hook asks its own way instead of the fast one, then all is as before.
"""

from __future__ import annotations

import os
import sys
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from .attributes import own
from .forward_look import ForwardLook, hook_frames, without_dynamo
from .guard import INSPECTION, attempt, is_the_hosts
from .model_walk import Walk
from .phases import NUM_PHASES
from .ring import HEADER_BYTES, STEP_STRUCT

if TYPE_CHECKING:
    from .host import Host

FIRST_STEP = 3  # wrappers and roots have shown themselves by then
TURN_NS = 1_000_000
MAX_TURNS = 24
MAX_BORDERS = 8  # until the input was seen
MAX_GATHERED = 4  # times, as more models show themselves
MICRO_STEPS = NUM_PHASES + 10  # place in a record, its mark included
CONFIG_NAMES = ("config", "cfg", "model_config", "model_args", "args", "params", "hparams")
WRAPPED_NAMES = ("module", "_orig_mod", "model", "base_model")
CONFIG_KEYS = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "depth"),
    "heads": ("num_attention_heads", "n_head", "num_heads", "n_heads"),
    "hidden": ("hidden_size", "n_embd", "d_model", "dim", "embed_dim"),
    "head_size": ("head_dim", "d_kv"),
    "window": ("sliding_window",),
    "vocabulary": ("vocab_size",),
    "experts": ("num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts"),
    "top_k": ("num_experts_per_tok", "moe_top_k", "top_k_experts"),
}


def install(probe: Host) -> None:
    """Wait for a model."""
    ModelFacts(probe).wait()


class ModelFacts:
    """One gathering after another, for as many models as show themselves."""

    def __init__(self, probe: Host) -> None:
        self.probe = probe
        self.num_roots = self.num_walked = self.num_gathered = 0
        self.restart()

    def restart(self) -> None:
        """The next gathering begins from nothing."""
        self.walk: Walk | None = None
        self.look: ForwardLook | None = None
        self.loader: dict[str, Any] = {}
        self.num_turns = self.num_borders = self.cost_ns = 0

    def wait(self) -> None:
        """Come by at the borders of the next steps."""
        self.probe.when(self.advance, None, "", self.tell)

    def roots(self) -> list[Any]:
        """Wrappers that announced themselves, and roots that were found."""
        probe = self.probe
        references = [*probe.known_ddp.values(), *probe.roots.modules]
        return [module for module in (reference() for reference in references) if module is not None]

    def advance(self) -> bool:
        """One turn; whether all is known that can be. What fails is not tried again."""
        begin_ns = monotonic_ns()
        is_done = without_dynamo(attempt, INSPECTION, self._advance)
        self.cost_ns += monotonic_ns() - begin_ns
        return is_done is not False

    def _advance(self) -> bool:
        probe = self.probe
        if probe.clock.step < FIRST_STEP:
            return False
        roots = self.roots()
        if self.walk is None:
            if (
                len(roots) <= self.num_roots
            ):  # models that went tell nothing new, and what they were stays true
                self.num_roots = len(roots)
                return False
            self.walk, self.num_walked = Walk(roots), len(roots)
            self.look = ForwardLook(probe, roots[0])
            self.look.arm()
        self.loader = self.loader or loader_facts(probe.clock)
        is_walked = self.walk.advance(TURN_NS) or self.num_turns >= MAX_TURNS
        self.num_turns += 1
        self.num_borders += 1
        return is_walked and (self.look is None or self.look.is_done or self.num_borders >= MAX_BORDERS)

    def tell(self) -> None:
        """Into the info area, and wait for more models."""
        without_dynamo(self._tell)

    def _tell(self) -> None:
        walk, look = self.walk, self.look
        if walk is None:
            return
        begin_ns = monotonic_ns()
        if look is not None:
            look.disarm()
        roots = self.roots()
        if not walk.num_modules:  # what could not be looked at is not known, and no model of nothing
            return
        is_cut = bool(walk.stack or walk.roots)
        facts = walk.told(is_cut=is_cut)
        facts |= attempt(INSPECTION, config_facts, roots) or {}
        facts |= settings(self.probe)
        facts["micro_steps"] = attempt(INSPECTION, micro_steps, self.probe)
        facts["steps_before"] = self.probe.steps_before
        facts |= {**self.loader, **(look.found if look is not None else {})}
        facts["gathered_us"] = (self.cost_ns + monotonic_ns() - begin_ns) // 1000
        self.probe.model_facts = {name: value for name, value in facts.items() if value not in ("", None)}
        self.num_roots = self.num_walked  # one may have shown itself meanwhile
        self.num_gathered += 1
        self.restart()
        self.probe.put_info()
        if self.num_gathered < MAX_GATHERED:
            self.wait()


def micro_steps(probe: Host) -> int | None:
    """Backwards in the newest step that was written; None before the first."""
    writer = probe.ring
    if not writer.num_steps:
        return None
    place = HEADER_BYTES + (writer.num_steps - 1) % writer.step_capacity * STEP_STRUCT.size
    record = STEP_STRUCT.unpack_from(writer.map, place)
    return int(record[MICRO_STEPS]) or None


def loader_facts(clock: Any) -> dict[str, Any]:
    """Of the DataLoader whose hook closes this step, if it is one."""
    return attempt(INSPECTION, _loader_facts, clock) or {}


def _loader_facts(clock: Any) -> dict[str, Any]:
    loaders: Any = sys.modules.get("torch.utils.data.dataloader")
    base = getattr(loaders, "_BaseDataLoaderIter", None)
    # The native core has no frame and says it itself.
    iterators = [getattr(clock, "iterator", None), *(names.get("iterator") for names in hook_frames())]
    for iterator in iterators:
        if base is None or not isinstance(iterator, base):
            continue
        held = own(iterator)
        workers = held.get("_num_workers")
        if type(workers) is not int:
            return {}
        found = {"workers": workers, "pin_memory": bool(held.get("_pin_memory"))}
        if workers:
            found["persistent_workers"] = bool(held.get("_persistent_workers"))
            if type(held.get("_prefetch_factor")) is int:
                found["prefetch"] = held.get("_prefetch_factor")
        return found
    return {}


def config_facts(roots: list[Any]) -> dict[str, Any]:
    """What a model's own configuration says of its shape, under the names that libraries use."""
    for root in roots:
        module = root
        for _ in range(5):
            names = own(module)
            for name in CONFIG_NAMES:
                values = _values(names.get(name))
                found = {
                    "config_" + fact: next(
                        (value for key in keys if type(value := values.get(key)) is int), None
                    )
                    for fact, keys in CONFIG_KEYS.items()
                }
                if found["config_layers"] and (found["config_hidden"] or found["config_heads"]):
                    if values.get("is_encoder_decoder") is True:
                        found["encoder_decoder"] = True
                    if type(values.get("_attn_implementation_internal")) is str:
                        found["attention"] = values.get("_attn_implementation_internal")[:30]
                    return found
            parts = names.get("_modules")
            if not isinstance(parts, dict):
                break
            module = next((parts[name] for name in WRAPPED_NAMES if parts.get(name) is not None), None)
            if module is None:
                break
    return {}


def _values(config: Any) -> Any:
    if type(config) is dict:
        return config
    if config is None or isinstance(config, (type, str, int, float)):
        return {}
    return attempt(INSPECTION, own, config) or {}


def settings(probe: Host) -> dict[str, Any]:
    """What torch was told: plain getters; one that this torch does not have is left out."""
    torch: Any = sys.modules.get("torch")
    core: Any = getattr(torch, "_C", None)
    found: dict[str, Any] = {}
    for name, ask in (
        ("tf32", lambda: _tf32(core)),
        ("cudnn_tf32", lambda: bool(core._get_cudnn_allow_tf32())),
        ("cudnn_benchmark", lambda: bool(core._get_cudnn_benchmark())),
        ("sdp", lambda: _sdp(core)),
        ("threads", lambda: int(torch.get_num_threads())),
        ("device_name", lambda: _device(probe, torch, "name")),
        # Fewer than its kind has under CUDA MPS and in a part of a device.
        ("multiprocessors", lambda: _device(probe, torch, "multi_processor_count")),
    ):
        try:
            found[name] = ask()
        except Exception as error:  # the guard: another torch
            if is_the_hosts(error):
                raise
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        if os.environ.get(name):
            found["allocator"] = os.environ[name][:80]
    if found.get("device_name") and os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"):
        found["mps_share"] = os.environ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"][:8]
    return found


def _tf32(core: Any) -> bool:
    """Past the deprecated names, which warn, and refuse where the new ones were used."""
    ask = getattr(core, "_get_fp32_precision_getter", None)
    return ask("cuda", "matmul") == "tf32" if ask is not None else bool(core._get_cublas_allow_tf32())


def _sdp(core: Any) -> str:
    """Kernels that scaled dot product attention may choose from."""
    names = ("flash", "mem_efficient", "cudnn", "math")
    flags = ((name, getattr(core, "_get_" + name + "_sdp_enabled", None)) for name in names)
    return " ".join(name for name, ask in flags if ask is not None and ask()) or "none"


def _device(probe: Host, torch: Any, name: str) -> Any:
    """A property of a device that is in use already; torch keeps them."""
    if probe.device_kind in (None, "cpu") or not torch.cuda.is_initialized():
        return None
    value = getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), name)
    return int(value) if isinstance(value, int) else str(value)[:80]
