"""How many parameters a model has and what they are for: a walk over its modules in short turns.

In: modules of the host.  Out: a flat dict of numbers and short texts. Only what a module keeps in its own dict is read,
past `__getattr__` and properties: an attribute of the host may compute, communicate or raise. Shapes and types are
read, never values: nothing is asked of a device.
"""

from __future__ import annotations

import sys
from time import monotonic_ns
from typing import Any

from .attributes import own, unheard
from .forward_look import parts_of
from .guard import INSPECTION, attempt

EXPERT, RECOMPUTED, ADAPTER = 1, 2, 4  # bits that a module hands down to what is in it
EMBEDDING, CONVOLUTION, MATRIX = range(3)
LOOKS_BETWEEN_CLOCKS = 16
MAX_SCRIPTED = 10_000  # parameters of a scripted module
HEADS = ("num_heads", "n_head", "n_heads", "num_attention_heads", "nhead")
HEAD_SIZES = ("head_dim", "attention_head_size", "d_kv", "key_value_proj_dim")
WIDTHS = ("all_head_size", "embed_dim", "n_embd", "d_model", "hidden_size", "inner_dim", "dim")
TOP_K = ("top_k", "topk", "num_experts_per_tok", "moe_top_k", "num_selected_experts")
FLAT = "_flat_param"  # FSDP1's own name for its shard
EXPERT_NAMES = ("experts", "local_experts")
# Of torch, Megatron, fairseq, Hugging Face: T5, BART, Whisper.
CROSS_ATTENTION = frozenset(
    {"multihead_attn", "cross_attn", "cross_attention", "encoder_attn", "EncDecAttention"}
)
QUANTIZED = ("Params4bit", "Int8Params", "QTensor", "HQQLinear")


def first_number(names: Any, keys: tuple[str, ...]) -> int:
    """The first of these that is a positive whole number; 0: none."""
    for key in keys:
        value = names.get(key)
        if type(value) is int and value > 0:
            return value
    return 0


def product(shape: Any) -> int:
    """Elements of a shape."""
    size = 1
    for length in shape:
        size *= int(length)
    return size


class Walk:
    """Resumed at several borders; what it holds of the host it lets go when it is done."""

    def __init__(self, roots: list[Any]) -> None:
        nn: Any = sys.modules.get("torch.nn")
        conv: Any = sys.modules.get("torch.nn.modules.conv")
        self.embedding_classes = (getattr(nn, "Embedding", ()), getattr(nn, "EmbeddingBag", ()))
        self.conv_classes = getattr(conv, "_ConvNd", ())
        self.attention_class = getattr(nn, "MultiheadAttention", ())
        self.roots = list(reversed(roots))
        self.stack: list[tuple[Any, int]] = []
        self.seen_modules: set[int] = set()
        self.seen: dict[Any, int] = {}  # parameter -> what it was counted as
        self.flat: dict[
            tuple[int, str], tuple[Any, Any, bool, Any]
        ] = {}  # FSDP1's: (key, shape, trains, dtype)
        self.in_forward: dict[type, bool] = {}  # class -> its forward calls a checkpoint
        self.sums = dict.fromkeys(
            ("params", "trainable", "embedding", "conv", "mm", "mm_frozen", "mm_frozen_before", "mm_expert"),
            0,
        )
        self.sums |= dict.fromkeys(("lora", "mm_recomputed", "mm_odd", "uninitialized", "not_looked_at"), 0)
        self.dtypes: dict[str, int] = {}  # of matrices
        self.facts: dict[str, Any] = {}
        self.wrappers: list[str] = []
        self.num_models = self.num_modules = 0
        self.attention: dict[int, int] = {}  # module -> width of its attention; 0: unclear
        self.holder: dict[int, int] = {}  # module still to be looked at -> the one of these it lies in
        self.largest_odd = 0
        self.trains_before = self.is_new_root = False
        self.recompute = "no"

    def advance(self, budget_ns: int) -> bool:
        """Look at some more modules; whether all were seen."""
        end_ns = monotonic_ns() + budget_ns
        while self.stack or self.roots:
            if not self.stack:
                self._begin(self.roots.pop())
            for _ in range(LOOKS_BETWEEN_CLOCKS):
                if not self.stack:
                    break
                module, marks = self.stack.pop()
                params = self.sums["params"]
                self.num_modules += 1
                with unheard():
                    if attempt(INSPECTION, self._look, module, marks) is None:
                        self.sums["not_looked_at"] += 1
                if self.is_new_root and self.sums["params"] > params:
                    self.is_new_root = False
                    self.num_models += 1
            if monotonic_ns() > end_ns:
                return not (self.stack or self.roots)
        return True

    def _begin(self, root: Any) -> None:
        if "class" not in self.facts:
            inner = root
            for _ in range(4):  # of what a wrapper wraps
                held = attempt(INSPECTION, parts_of, inner) or {}
                found = held.get("module", held.get("_orig_mod"))
                if found is None:
                    break
                inner = found
            self.facts["class"] = type(inner).__name__[:60]
        self.trains_before = False
        self.is_new_root = True  # a wrapper of one that was seen brings no parameters of its own
        self.stack.append((root, 0))

    def _look(self, module: Any, marks: int) -> bool:
        if id(module) in self.seen_modules:
            return True
        self.seen_modules.add(id(module))
        kind, names = type(module), own(module)
        name = kind.__name__
        children, parameters = names.get("_modules"), names.get("_parameters")
        self._wrapper(module, kind, name, names)
        marks = self._recomputed(kind, name, names, marks)
        if not isinstance(children, dict) or not isinstance(parameters, dict):
            self._scripted(module, marks)
            return True
        if name.startswith(("Float8", "FP8")) or kind.__module__.startswith("transformer_engine"):
            self.facts["fp8"] = True
        use = self._use(kind, name)
        for label, parameter in list(parameters.items()):
            if label == FLAT:  # what it is made of was told by its handle
                continue
            if parameter is not None or (id(module), label) in self.flat:
                self._parameter(module, label, parameter, use, marks)
        for key in [key for key in self.flat if key[0] == id(module) and key[1] not in parameters]:
            self._parameter(module, key[1], None, use, marks)
        if not CROSS_ATTENTION.isdisjoint(children):  # its keys are of another sequence
            self.facts["encoder_decoder"] = True
        holder = self._attention(module, names, children, parameters)
        held = [child for child in children.values() if child is not None]
        for label, child in reversed(list(children.items())):
            if child is not None:
                is_experts = label in EXPERT_NAMES or type(child).__name__.endswith("Experts")
                if is_experts:
                    self._experts(child, names, held)
                handed = marks | EXPERT * is_experts | ADAPTER * str(label).startswith("lora_")
                self.stack.append((child, handed))
                self.holder[id(child)] = holder
        return True

    def _use(self, kind: type, name: str) -> int:
        if issubclass(kind, self.embedding_classes) or name.endswith(
            ("Embedding", "Embeddings", "EmbeddingBag")
        ):
            return EMBEDDING
        return CONVOLUTION if self.conv_classes and issubclass(kind, self.conv_classes) else MATRIX

    # --- parameters

    def _parameter(self, module: Any, label: str, parameter: Any, use: int, marks: int) -> None:
        flat = self.flat.get((id(module), label))
        if flat is not None:
            key, shape, trains, dtype = flat
        else:
            key, trains, dtype = id(parameter), bool(parameter.requires_grad), parameter.dtype
            try:
                shape = parameter.shape
            except RuntimeError:  # a lazy module's, before its first forward
                self.sums["uninitialized"] += 1
                return
            shape = self._whole(parameter, shape)
        if type(parameter).__name__ in QUANTIZED:
            self.facts["quantized"] = True
        held = (tuple(shape), str(dtype).rpartition(".")[2], trains)
        self._count(key, label, held, use=use, marks=marks)

    def _whole(self, parameter: Any, shape: Any) -> Any:
        """The shape of all shards together, where this process holds one."""
        mesh = getattr(parameter, "device_mesh", None)
        if mesh is not None and "sharding" not in self.facts:  # a DTensor's shape is the whole one
            self.facts["sharding"] = "DTensor: whole sizes"
            dims = getattr(mesh, "mesh_dim_names", None) or ()
            sizes = tuple(getattr(mesh, "shape", ()))
            self.facts["mesh"] = " ".join(
                str(dims[place] if place < len(dims) else "dim" + str(place)) + "=" + str(size)
                for place, size in enumerate(sizes)
            )[:60]
        whole = getattr(parameter, "ds_shape", None)
        if whole is not None and 0 in tuple(shape):
            self.facts["sharding"] = "ZeRO-3: whole sizes"
            return whole
        if getattr(parameter, "tensor_model_parallel", False):
            self.facts["sharding"] = "tensor parallel: sizes of one rank"
        return shape

    def _count(
        self, key: Any, label: str, held: tuple[tuple[int, ...], str, bool], *, use: int, marks: int
    ) -> None:
        shape, dtype, trains = held  # trains: its gradient is computed
        sums, size = self.sums, product(shape)
        former = self.seen.get(key)
        if former is not None:
            if (former, use) in ((EMBEDDING, MATRIX), (MATRIX, EMBEDDING)) and "tied" not in self.facts:
                self.facts["tied"] = True
                if former == EMBEDDING:  # it is multiplied once, as the head
                    sums["embedding"] -= size
                    self.facts["head"] = size
                    self._matrix(shape, size, dtype, marks, trains=trains)
            return
        if use == MATRIX and len(shape) > 1 and ("pos" in label or "embed" in label or "token" in label):
            use = EMBEDDING  # added or looked up, not multiplied
        self.seen[key] = use
        sums["params"] += size
        sums["trainable"] += size if trains else 0
        if marks & ADAPTER or "lora_" in label:
            sums["lora"] += size
        if use == EMBEDDING:
            sums["embedding"] += size
        elif use == CONVOLUTION:
            sums["conv"] += size
        elif len(shape) > 1 and size:
            if not marks & ADAPTER and "weight" in label and len(shape) == 2:
                self.facts["head"] = size  # the last one that is counted stays
            self._matrix(shape, size, dtype, marks, trains=trains)
        self.trains_before = self.trains_before or trains

    def _matrix(self, shape: tuple[int, ...], size: int, dtype: str, marks: int, *, trains: bool) -> None:
        sums = self.sums
        sums["mm" if trains else "mm_frozen"] += size
        if not trains and not self.trains_before:
            sums["mm_frozen_before"] += size
        if marks & EXPERT:
            sums["mm_expert"] += size
        if marks & RECOMPUTED:
            sums["mm_recomputed"] += size
        self.dtypes[dtype] = self.dtypes.get(dtype, 0) + size
        if any(length % 8 for length in shape[-2:]) and min(shape[-2:]) >= 8:
            sums["mm_odd"] += size
            if size > self.largest_odd:
                self.largest_odd = size
                self.facts["odd_shape"] = "x".join(map(str, shape))[:40]

    def _scripted(self, module: Any, marks: int) -> None:
        """A module whose parts are not Python's own: its parameters in one list."""
        self.facts["scripted"] = True
        if not type(module).__module__.startswith("torch."):  # what its own method does is not known
            self.sums["not_looked_at"] += 1
            return
        for number, (label, parameter) in enumerate(module.named_parameters()):
            if number >= MAX_SCRIPTED:
                self.sums["not_looked_at"] += 1
                return
            last = label.rpartition(".")[2]
            self._parameter(module, last, parameter, EMBEDDING if "emb" in label else MATRIX, marks)

    # --- what a module is

    def _wrapper(self, module: Any, kind: type, name: str, names: Any) -> None:
        bases = [base.__name__ for base in kind.__mro__]
        if "FSDPModule" in bases:
            self._wrapped("FSDP2")
            self._mixed_precision(getattr(module._get_fsdp_state(), "_mp_policy", None))
        elif name == "FullyShardedDataParallel":
            self._wrapped("FSDP1")
            self._mixed_precision(names.get("mixed_precision"))
            strategy = getattr(names.get("sharding_strategy"), "name", None)
            if isinstance(strategy, str):
                self.facts.setdefault("sharding_strategy", strategy[:40])
            self._flat(names.get("_handle"))
        elif name == "DistributedDataParallel" or "DistributedDataParallel" in bases:
            self._wrapped("DDP")
        elif name == "OptimizedModule" or names.get("_compiled_call_impl") is not None:
            self.facts["compiled"] = True
        elif kind.__module__.startswith("deepspeed") and name.endswith("Engine"):
            self._wrapped("DeepSpeed")
            config = names.get("_config")
            stage = getattr(
                getattr(config, "zero_config", config), "stage", None
            )  # int, or an enumeration of ints
            if isinstance(stage, int):
                self.facts.setdefault("zero_stage", int(stage))

    def _wrapped(self, name: str) -> None:
        if name not in self.wrappers:
            self.wrappers.append(name)

    def _mixed_precision(self, policy: Any) -> None:
        """What FSDP gathers parameters in and reduces gradients in, where it is told to."""
        for name, fact in (("param_dtype", "mixed_precision"), ("reduce_dtype", "reduce_dtype")):
            dtype = getattr(policy, name, None)
            if dtype is not None:
                self.facts.setdefault(fact, str(dtype).rpartition(".")[2])

    def _flat(self, handle: Any) -> None:
        """FSDP1 holds its shard of one flat parameter; what it is made of stands beside it."""
        flat = getattr(handle, "flat_param", None)
        if flat is None:
            return
        self.facts["sharding"] = "FSDP1: whole sizes"
        for info, shape in zip(flat._param_infos, flat._shapes):  # noqa: B905 - torch's own, of one length
            key = (id(info.module), info.param_name)
            self.flat[key] = (key, shape, bool(flat.requires_grad), flat.dtype)
        for info in getattr(flat, "_shared_param_infos", ()):
            primary = self.flat.get((id(info.prim_module), info.prim_param_name))
            if primary is not None:
                self.flat[id(info.module), info.param_name] = primary

    def _recomputed(self, kind: type, name: str, names: Any, marks: int) -> int:
        switch = names.get("gradient_checkpointing")
        if name == "CheckpointWrapper" or switch is True:
            self.recompute = "yes"
            return marks | RECOMPUTED
        if switch is False or self.recompute != "no":
            return marks
        calls = self.in_forward.get(kind)
        if calls is None:
            code = getattr(kind.__dict__.get("forward"), "__code__", None)
            calls = self.in_forward[kind] = any(
                "checkpoint" in word for word in getattr(code, "co_names", ())
            )
        if calls:
            self.recompute = "maybe"
        return marks

    def _attention(
        self, module: Any, names: Any, children: dict[str, Any], parameters: dict[str, Any]
    ) -> int:
        """The attention that the module's children lie in, as its id; 0: none."""
        holder = self.holder.pop(id(module), 0)
        kind = type(module)
        lower = kind.__name__.lower()
        is_torchs = self.attention_class and issubclass(kind, self.attention_class)
        if not is_torchs and "attention" not in lower and "attn" not in lower:
            return holder
        linear = [child for child in children.values() if child is not None and _multiplies(child)]
        if not linear and not any(len(p.shape) > 1 for p in parameters.values() if p is not None):
            return holder
        heads, size = first_number(names, HEADS), first_number(names, HEAD_SIZES)
        width = heads * size or first_number(names, WIDTHS)
        if not width and linear:
            base = parts_of(linear[-1]).get("base_layer")  # a low-rank adapter's
            width = first_number(own(linear[-1] if base is None else base), ("in_features", "nx"))
        self.attention.pop(holder, None)  # it only wraps this one: the two are one attention
        self.attention[id(module)] = width
        if heads:
            self.facts["heads"] = heads
        return id(module)

    def _experts(self, child: Any, names: Any, beside: list[Any]) -> None:
        parts = own(child)
        held = parts_of(child)
        count = len(held) or first_number(parts, ("num_experts", "num_local_experts"))
        if not count:
            shapes = [p.shape for p in (parts.get("_parameters") or {}).values() if p is not None]
            count = next((int(shape[0]) for shape in shapes if len(shape) == 3), 0)
        self.facts["experts"] = max(count, self.facts.get("experts", 0))
        for holder in (names, parts, *map(own, beside)):
            top_k = first_number(holder, TOP_K)
            if top_k:
                self.facts["top_k"] = top_k
                return

    # --- what came of it

    def told(self, *, is_cut: bool) -> dict[str, Any]:
        """All of it; a number that is not there was not seen."""
        found = {**self.sums, **self.facts}
        found |= {"models": self.num_models, "modules": self.num_modules, "recompute": self.recompute}
        found |= {"layers": len(self.attention), "attention_width": sum(self.attention.values())}
        if 0 in self.attention.values():
            found["attention_unclear"] = True
        if is_cut:
            found["cut"] = True
        if self.wrappers:
            found["wrappers"] = " ".join(self.wrappers)
        if self.dtypes:
            by_size = sorted(self.dtypes, key=lambda name: -self.dtypes[name])
            found["param_dtype"] = by_size[0]
            found["param_dtypes"] = " ".join(by_size[:4])
        return found


def _multiplies(module: Any) -> bool:
    name = type(module).__name__
    return "Linear" in name or "Conv1D" in name
