"""One training forward seen from inside its hook: what the model is given, and in which precision it computes.

For that one call the hook of a forward asks us whether gradients are enabled, then all is as before. A file of its own:
it runs around the model, so dynamo has to be kept out of it (`compiled.AROUND_THE_MODEL`), and each mark costs.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from .attributes import NOTHING, entries, is_operated_unheard, own, shape_and_type, unheard
from .guard import INSPECTION, attempt
from .step_clock import LOOKING

if TYPE_CHECKING:
    from .host import Host

HOOK_CODE = "tuiadvisor_hook"
MAX_FRAMES = 24  # between a border and the hook that met it
# What a model is told of sequences that share a row; position ids, too, where they begin anew within one.
PACKED_NAMES = (
    *(
        "cu_seqlens",
        "cu_seqlens_q",
        "cu_seq_lens",
        "cu_seq_lens_q",
        "seq_idx",
        "sequence_ids",
        "document_ids",
    ),
    *("doc_ids", "seqlens", "seq_lens", "segment_ids", "block_mask"),
)
POSITIONS = "position_ids"
MAX_LOOKED_AT = 1 << 16  # position ids in the host's memory, looked through once
INPUT_NAMES = ("input_ids", "inputs_embeds", "pixel_values", "inputs", "x")


def parts_of(module: Any) -> dict[str, Any]:
    """The modules in it; a scripted one has them elsewhere."""
    found = own(module).get("_modules")
    return found if isinstance(found, dict) else {}


def without_dynamo(function: Any, *arguments: Any) -> Any:
    """Call it unseen by torch.compile: a border may lie inside of a compiled call, and our frames hold parameters.

    As `torch._dynamo.disable` does for a function.
    """
    set_eval_frame = None
    if "torch._dynamo.eval_frame" in sys.modules:
        core = getattr(sys.modules["torch"], "_C", None)
        place = getattr(getattr(core, "_dynamo", None), "eval_frame", None)
        set_eval_frame = getattr(place, "set_eval_frame", None)
    if set_eval_frame is None:
        return function(*arguments)
    former = set_eval_frame(None)
    try:
        return function(*arguments)
    finally:
        set_eval_frame(former)


class ForwardLook:
    """One training forward seen from inside its hook: what it is given, and in which precision it computes."""

    def __init__(self, probe: Host, root: Any) -> None:
        self.probe = probe
        parts = (root, *parts_of(root).values())
        self.root_accelerated = any(
            own(part).get("_original_forward", NOTHING) is not NOTHING for part in parts if part is not None
        )
        self.former: Any = None
        self.fast: set[int] = set()
        self.found: dict[str, Any] = {}
        self.is_done = False

    def arm(self) -> None:
        """The next forward asks us whether gradients are enabled."""
        forwards, roots = self.probe.forwards, self.probe.roots
        self.former, forwards.is_grad_enabled = forwards.is_grad_enabled, self
        self.fast = set(roots.fast)
        roots.fast.clear()  # the very set that the hooks hold
        self.probe.clock.alert(LOOKING, True)

    def disarm(self) -> None:
        """All as before."""
        if self.former is not None:
            self.probe.forwards.is_grad_enabled, self.former = self.former, None
            self.probe.roots.fast.update(self.fast)
            self.probe.clock.alert(LOOKING, False)

    def __call__(self) -> bool:
        """Asked by the hook of a forward, in the training thread."""
        asked = self.former
        is_enabled = bool(asked()) if asked is not None else bool(sys.modules["torch"].is_grad_enabled())
        if is_enabled and not self.is_done:
            without_dynamo(attempt, INSPECTION, self.take)
        return is_enabled

    def take(self) -> None:
        """Read the frame of the hook that asks."""
        for names in hook_frames():
            given = names.get("args")
            if type(given) is tuple and given and own(given[0]).get("training"):
                self.is_done = True
                self.disarm()
                self.found |= self._precision()
                self.found |= input_facts(given[1:], names.get("kwargs") or {})
                self.found |= packed_facts(given[1:], names.get("kwargs") or {})
                return

    def _precision(self) -> dict[str, Any]:
        torch: Any = sys.modules["torch"]
        kind = self.probe.device_kind or "cpu"
        try:
            is_on = torch.is_autocast_enabled(kind)
            dtype = torch.get_autocast_dtype(kind) if is_on else None
        except (TypeError, AttributeError):  # before torch 2.4
            is_cpu = kind == "cpu"
            is_on = torch.is_autocast_cpu_enabled() if is_cpu else torch.is_autocast_enabled()
            dtype = torch.get_autocast_cpu_dtype() if is_cpu else torch.get_autocast_gpu_dtype()
        if not is_on and self.root_accelerated:  # Accelerate switches it on inside of the forward
            named = os.environ.get("ACCELERATE_MIXED_PRECISION", "no")
            return {"autocast": {"bf16": "bfloat16", "fp16": "float16", "fp8": "fp8"}.get(named, "off")}
        return {"autocast": str(dtype).rpartition(".")[2] if is_on else "off"}


def hook_frames() -> list[dict[str, Any]]:
    """Locals of the probe's hooks around us, the innermost first."""
    found = []
    frame: Any = sys._getframe(1)
    for _ in range(MAX_FRAMES):
        if frame is None:
            break
        if frame.f_code.co_name == HOOK_CODE:
            found.append(dict(frame.f_locals))
        frame = frame.f_back
    return found


def input_facts(given: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """Shape and type of what the model is called with."""
    candidates = [named[name] for name in INPUT_NAMES if name in named]
    for value in (*candidates, *given, *named.values()):
        one = value[0] if type(value) in (list, tuple) and value else value
        if type(one) is dict and "input_ids" in one:
            one = one["input_ids"]
        told = shape_and_type(one)
        if told is not None:
            shape, dtype = told
            return {"input": "x".join(str(length) for length in shape)[:60], "input_dtype": _dtype(dtype)}
    return {}


def packed_facts(given: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """By what sequences of several lengths are seen in one row: equal tokens may be unequal work then."""
    tensor_class = sys.modules["torch"].Tensor
    batches = [held for held in map(entries, given) if held is not None]
    for names in (named, *batches):
        seen = [name for name in PACKED_NAMES if dict.get(names, name) is not None]
        if seen:
            return {"packed": seen[0]}
        positions: Any = dict.get(names, POSITIONS)
        # On a device their values would have to be waited for.
        if (
            type(positions) is tensor_class
            and is_operated_unheard()
            and positions.device.type == "cpu"
            and positions.dim() == 2
            and positions.numel() <= MAX_LOOKED_AT
            and int((positions == 0).sum()) > positions.shape[0]
        ):
            return {"packed": POSITIONS}
    for value in (*given, *named.values()):
        if issubclass(type(value), tensor_class):
            with unheard():
                if tensor_class.is_nested.__get__(value):
                    return {"packed": "nested tensor"}
    return {}


def _dtype(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]
