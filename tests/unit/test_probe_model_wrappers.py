"""What the probe says of models that frameworks wrap, shard and quantize: whole sizes, and what they were told.

The wrappers are classes of the names and with the attributes that torch's, DeepSpeed's and others' have.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from test_probe_model_facts import walked  # noqa: E402
from torch import nn  # noqa: E402

from tuiadvisor_probes import model_walk  # noqa: E402


def kind(name: str, *bases: type, module: str = "torch.somewhere") -> Any:
    """A class that is called so."""
    return type(name, bases or (nn.Module,), {"__module__": module})


def wrapped(name: str, inner: Any, module: str = "torch.somewhere", **attributes: Any) -> Any:
    """A module of such a class around another."""
    made = kind(name, module=module)()
    made.module = inner
    for label, value in attributes.items():
        object.__setattr__(made, label, value)
    return made


POLICY = SimpleNamespace(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


def info(module: Any, name: str) -> Any:
    return SimpleNamespace(module=module, param_name=name)


def test_a_flat_parameter_is_told_by_what_it_is_made_of() -> None:
    """FSDP1 takes each weight out of its module and holds a shard of them all; a shared one counts once."""
    up, head = nn.Linear(16, 32), nn.Linear(32, 16, bias=False)
    for linear in (up, head):
        linear._parameters.clear()
    flat = SimpleNamespace(
        requires_grad=True,
        dtype=torch.float32,
        _param_infos=(info(up, "weight"), info(up, "bias")),
        _shapes=((32, 16), (32,)),
        _shared_param_infos=(
            SimpleNamespace(module=head, param_name="weight", prim_module=up, prim_param_name="weight"),
            SimpleNamespace(module=head, param_name="bias", prim_module=up, prim_param_name="none"),
        ),
    )
    model = wrapped(
        "FullyShardedDataParallel",
        nn.Sequential(up, head),
        mixed_precision=POLICY,
        sharding_strategy=SimpleNamespace(name="HYBRID_SHARD"),
        _handle=SimpleNamespace(flat_param=flat),
    )
    model.register_parameter(model_walk.FLAT, nn.Parameter(torch.zeros(7)))
    told = walked(model)
    assert (544, 544, 512, "float32") == (told["params"], told["trainable"], told["mm"], told["param_dtype"])
    assert ("FSDP1", "FSDP1: whole sizes", "HYBRID_SHARD") == (
        told["wrappers"],
        told["sharding"],
        told["sharding_strategy"],
    )
    assert ("bfloat16", "float32", "Sequential") == (
        told["mixed_precision"],
        told["reduce_dtype"],
        told["class"],
    )


def test_a_handle_without_a_flat_parameter_says_nothing_of_sizes() -> None:
    """What is left are the modules' own."""
    told = walked(wrapped("FullyShardedDataParallel", nn.Linear(16, 32), _handle=None))
    assert (544, "FSDP1") == (told["params"], told["wrappers"])
    assert {"sharding", "mixed_precision", "sharding_strategy"}.isdisjoint(told)


def test_a_dtensor_has_its_whole_shape_and_its_mesh() -> None:
    """FSDP2 makes each module's class one of its own; a dimension without a name has its place."""
    state = SimpleNamespace(_mp_policy=SimpleNamespace(param_dtype=torch.bfloat16, reduce_dtype=None))
    fsdp = kind("FSDPModule", object)
    fsdp._get_fsdp_state = lambda _: state
    linear = kind("FSDPLinear", fsdp, nn.Linear)(16, 32, bias=False)
    linear.weight.device_mesh = SimpleNamespace(mesh_dim_names=("dp", "tp"), shape=(4, 2, 3))
    told = walked(linear)
    assert (512, "DTensor: whole sizes", "dp=4 tp=2 dim2=3") == (told["mm"], told["sharding"], told["mesh"])
    assert ("FSDP2", "bfloat16") == (told["wrappers"], told["mixed_precision"])
    assert "reduce_dtype" not in told


@pytest.mark.parametrize(
    ("config", "stage"),
    [
        (SimpleNamespace(zero_config=SimpleNamespace(stage=3)), 3),
        (SimpleNamespace(stage=1), 1),
        (SimpleNamespace(stage="two"), None),
    ],
)
def test_what_zero_has_sharded_away_counts_with_its_whole_size(config: Any, stage: int | None) -> None:
    """A weight that is elsewhere has no element here."""
    linear = nn.Linear(16, 32, bias=False)
    linear.weight = nn.Parameter(torch.empty(0))
    linear.weight.ds_shape = torch.Size((32, 16))
    told = walked(wrapped("DeepSpeedEngine", linear, module="deepspeed.runtime.engine", _config=config))
    assert (512, "ZeRO-3: whole sizes", "DeepSpeed") == (told["mm"], told["sharding"], told["wrappers"])
    assert stage == told.get("zero_stage")


def test_a_part_of_one_tensor_parallel_rank_is_told_to_be_one() -> None:
    """Megatron marks its weights; FLOPs are refused for them."""
    linear = nn.Linear(16, 32, bias=False)
    linear.weight.tensor_model_parallel = True
    assert "tensor parallel: sizes of one rank" == walked(linear)["sharding"]


@pytest.mark.parametrize(
    ("model", "fact", "expected"),
    [
        (wrapped("DistributedDataParallel", nn.Linear(8, 8)), "wrappers", "DDP"),
        (kind("Own", kind("DistributedDataParallel"))(), "wrappers", "DDP"),
        (wrapped("OptimizedModule", nn.Linear(8, 8)), "compiled", True),
        (wrapped("Any", nn.Linear(8, 8), _compiled_call_impl=print), "compiled", True),
        (kind("Float8Linear", nn.Linear)(8, 8), "fp8", True),
        (kind("Linear", nn.Linear, module="transformer_engine.pytorch")(8, 8), "fp8", True),
    ],
)
def test_a_wrapper_is_known_by_its_class(model: Any, fact: str, expected: object) -> None:
    """Also one that inherits from it."""
    assert expected == walked(model)[fact]


def test_wrappers_around_each_other_are_named_once_and_the_model_is_inside() -> None:
    """Four of them at most are looked through for its name."""
    inner: Any = kind("GPT")()
    inner.head = nn.Linear(16, 32)
    one = wrapped(
        "OptimizedModule", wrapped("DistributedDataParallel", wrapped("DistributedDataParallel", inner))
    )
    told = walked(one)
    assert ("GPT", "DDP", 1) == (told["class"], told["wrappers"], told["models"])
    deep = inner
    for _ in range(6):
        deep = wrapped("Wrapper", deep)
    assert "Wrapper" == walked(deep)["class"]


def test_quantized_weights_are_told() -> None:
    """Their sizes count packed bytes: no FLOPs follow from them."""
    linear = nn.Linear(16, 32, bias=False)
    weight = linear.weight
    name = min(model_walk.QUANTIZED)
    weight.__class__ = type(name, (nn.Parameter,), {})
    assert walked(linear)["quantized"] is True


def test_parameters_that_are_looked_up_are_no_products() -> None:
    """Learned positions lie beside the layers; what is both looked up and multiplied is the head."""
    model: Any = kind("GPT")()
    model.wpe_pos = nn.Parameter(torch.zeros(24, 32))
    model.head, model.emb = nn.Linear(32, 96, bias=False), nn.Embedding(96, 32)
    model.emb.weight = model.head.weight
    told = walked(model)
    assert (24 * 32 + 96 * 32, 24 * 32, 96 * 32) == (told["params"], told["embedding"], told["mm"])
    assert told["tied"] is True


def test_what_cannot_be_looked_at_is_counted() -> None:
    """A parameter that is none, and more of a scripted module's than are looked at."""
    linear = nn.Linear(16, 32)
    linear._parameters["weight"] = object()
    assert 1 == walked(linear)["not_looked_at"]


def test_of_a_scripted_module_so_many_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parts are not Python's own."""
    monkeypatch.setattr(model_walk, "MAX_SCRIPTED", 2)

    class Scripted:
        def named_parameters(self) -> Any:
            yield from nn.ModuleDict({"emb": nn.Embedding(8, 8), "a": nn.Linear(8, 8)}).named_parameters()

    assert (0, 1) == (
        walked(Scripted())["params"],
        walked(Scripted())["not_looked_at"],
    )  # a method of the training's
    Scripted.__module__ = "torch.jit._script"
    told = walked(Scripted())
    assert (1, 64, 128) == (told["not_looked_at"], told["embedding"], told["params"])
    assert told["scripted"] is True


def test_experts_in_one_parameter_are_its_first_dimension() -> None:
    """Grouped products hold them so; how many a token visits stands where the router is."""
    layer: Any = kind("MoE")()
    layer.experts = kind("GroupedExperts")()
    layer.experts.weight = nn.Parameter(torch.zeros(4, 16, 32))
    layer.router = kind("Router")()
    object.__setattr__(layer.router, "top_k", 2)
    told = walked(layer)
    assert (4, 2, 4 * 16 * 32) == (told["experts"], told["top_k"], told["mm_expert"])
    del layer.router
    assert "top_k" not in walked(layer)


def test_an_attention_whose_width_cannot_be_told_is_unclear() -> None:
    """One without a matrix is no attention of its own."""
    unclear: Any = kind("FusedAttention")()
    unclear.weight = nn.Parameter(torch.zeros(3, 32, 32))
    told = walked(unclear)
    assert (1, 0, True) == (told["layers"], told["attention_width"], told["attention_unclear"])
    empty: Any = kind("AttentionMask")()
    empty.scale = nn.Parameter(torch.zeros(32))
    assert 0 == walked(empty)["layers"]
