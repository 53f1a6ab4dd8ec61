"""What the probe says of a model, against the model: sums, settings, odd models, what it costs."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from probing import probed  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from tuiadvisor.efficiency.flops import token_flops, why_not_countable  # noqa: E402
from tuiadvisor.efficiency.gathering import believed  # noqa: E402
from tuiadvisor.views.efficiency import Stack  # noqa: E402
from tuiadvisor_probes.forward_look import packed_facts  # noqa: E402
from tuiadvisor_probes.model_walk import Walk  # noqa: E402

VOCABULARY, WIDTH, LAYERS, HEADS, LENGTH, BATCH = 96, 32, 2, 4, 24, 4
STEPS = 14
A_SECOND = 1_000_000_000


class SelfAttention(nn.Module):
    """Queries, keys and values from one product."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)
        self.n_head = HEADS

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, HEADS, width // HEADS).transpose(1, 2)
            for part in self.qkv(x).split(width, 2)
        )
        # Written out: torch counts no FLOPs of scaled dot product attention on a CPU.
        weights = ((q @ k.transpose(-2, -1)) * (width // HEADS) ** -0.5).softmax(-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    """Attention and two products."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(WIDTH), SelfAttention()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.norm(x))
        return x + self.down(functional.gelu(self.up(x)))


class Transformer(nn.Module):
    """A small one."""

    def __init__(self, *, tied: bool = False) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, ids: Any) -> Any:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def ids() -> Any:
    return torch.randint(0, VOCABULARY, (BATCH, LENGTH))


def trained(
    folder: Path,
    model: Any,
    batches: Callable[[], Iterable[Any]],
    *,
    autocast: bool = False,
    optimizers: list[Any] | None = None,
) -> dict[str, Any]:
    """The facts after a short training under the probe."""
    steppers = optimizers or [torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1e-3)]
    with probed(folder) as observed:
        for batch in batches():
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                loss = model(batch).float().pow(2).mean()
            loss.backward()
            for optimizer in steppers:
                optimizer.step()
                optimizer.zero_grad()
        return dict(observed.info["model"])


def walked(*models: Any) -> dict[str, Any]:
    """The walk alone, to its end."""
    walk = Walk(list(models))
    while not walk.advance(A_SECOND):
        pass
    return walk.told(is_cut=False)


def test_formula_and_torchs_own_counter_agree(tmp_path: Path) -> None:
    """Within 2 %: the formula gives each weight and all pairs, the counter sees the products themselves."""
    model = Transformer()
    facts = trained(tmp_path, model, lambda: [ids() for _ in range(STEPS)])
    with FlopCounterMode(display=False) as counter:
        model(ids()).sum().backward()
    each = token_flops(Stack(believed(facts)), LENGTH)
    assert each.model is not None
    assert each.model * BATCH * LENGTH == pytest.approx(counter.get_total_flops(), rel=0.02)
    assert each.hardware == each.model
    assert facts["input"] == f"{BATCH}x{LENGTH}"
    assert facts["micro_steps"] == 1
    assert facts["autocast"] == "off"
    assert facts["params"] == sum(p.numel() for p in model.parameters())
    assert facts["layers"] == LAYERS


def test_autocast_loader_and_settings_are_seen(tmp_path: Path) -> None:
    data = [torch.randint(0, VOCABULARY, (LENGTH,)) for _ in range(BATCH * STEPS)]
    loader = torch.utils.data.DataLoader(data, batch_size=BATCH)
    former = torch.is_autocast_enabled("cpu")
    facts = trained(tmp_path, Transformer(), lambda: loader, autocast=True)
    assert facts["autocast"] == "bfloat16"
    assert facts["workers"] == 0
    assert facts["threads"] == torch.get_num_threads()
    assert facts["sdp"]
    assert facts["tf32"] is False
    assert torch.is_autocast_enabled("cpu") == former


def test_nothing_of_the_model_has_changed(tmp_path: Path) -> None:
    """No attribute, hook or class of it is another one afterwards."""
    model = Transformer()
    before = [
        (id(module), sorted(vars(module)), type(module), type(module).__call__) for module in model.modules()
    ]
    trained(tmp_path, model, lambda: [ids() for _ in range(STEPS)])
    after = [
        (id(module), sorted(vars(module)), type(module), type(module).__call__) for module in model.modules()
    ]
    assert before == after


def test_tied_embedding_is_multiplied_once() -> None:
    apart, tied = walked(Transformer()), walked(Transformer(tied=True))
    assert tied["tied"] is True
    assert "tied" not in apart
    assert tied["mm"] == apart["mm"]
    assert tied["params"] == apart["params"] - VOCABULARY * WIDTH
    assert apart["embedding"] == (VOCABULARY + LENGTH) * WIDTH
    assert tied["embedding"] == LENGTH * WIDTH
    assert tied["head"] == apart["head"] == VOCABULARY * WIDTH


def test_adapters_on_a_frozen_model() -> None:
    """A low-rank adapter as PEFT names it: its parts lie in dicts called lora_A and lora_B."""

    class Adapted(nn.Module):
        def __init__(self, base: Any) -> None:
            super().__init__()
            self.base_layer = base
            self.lora_A = nn.ModuleDict({"default": nn.Linear(WIDTH, 2, bias=False)})
            self.lora_B = nn.ModuleDict({"default": nn.Linear(2, 3 * WIDTH, bias=False)})

    model = Transformer()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    whole = walked(model)["mm_frozen"]
    for layer in model.layers:
        layer.attention.qkv = Adapted(layer.attention.qkv)
    found = walked(model)
    adapters = LAYERS * 2 * (WIDTH + 3 * WIDTH)
    assert found["lora"] == found["mm"] == found["trainable"] == adapters
    assert found["mm_frozen"] == whole
    assert found["mm_frozen_before"] == WIDTH * 3 * WIDTH  # the first product needs no gradient of its input
    assert found["layers"] == LAYERS


class WrappedAttention(nn.Module):
    """torch's own, with one more projection behind it: minGPT-ddp's MultiheadAttentionLayer."""

    def __init__(self) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.c_proj = nn.Linear(WIDTH, WIDTH)


def test_an_attention_that_wraps_another_is_one() -> None:
    model = Transformer()
    for layer in model.layers:
        layer.attention = WrappedAttention()
    found = walked(model)
    assert found["layers"] == LAYERS
    assert found["attention_width"] == LAYERS * WIDTH
    assert found["heads"] == HEADS


def test_attentions_side_by_side_in_a_wrapper_all_count() -> None:
    class AttentionStack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.ModuleList(WrappedAttention() for _ in range(3))
            self.unclear = nn.Linear(WIDTH, WIDTH)

    found = walked(AttentionStack())
    assert found["layers"] == 3
    assert found["attention_width"] == 3 * WIDTH
    assert "attention_unclear" not in found


def test_experts_and_how_many_a_token_visits() -> None:
    class Mixture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(WIDTH, 4, bias=False)
            self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
            self.top_k = 2

    found = walked(nn.Sequential(Mixture(), Mixture()))
    assert (found["experts"], found["top_k"]) == (4, 2)
    assert found["mm_expert"] == 2 * 4 * WIDTH * WIDTH
    in_transformer = {**believed(found), "layers": 1, "attention_width": 1}
    assert token_flops(Stack(in_transformer), 0).weights == 2 * (4 * WIDTH + 2 * WIDTH * WIDTH)


class Raising(nn.Module):
    """Every look at it beyond its own dict fails."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)

    @property
    def config(self) -> Any:
        raise RuntimeError("not yet")

    def __getattr__(self, name: str) -> Any:
        if name in {"inner", "weight"}:
            return super().__getattr__(name)
        raise ValueError(name)

    def forward(self, x: Any) -> Any:
        return self.inner(x)


def test_a_model_whose_attributes_raise(tmp_path: Path) -> None:
    facts = trained(tmp_path, Raising(), lambda: [torch.randn(BATCH, WIDTH) for _ in range(STEPS)])
    assert facts["mm"] == WIDTH * WIDTH
    assert facts["not_looked_at"] == 0


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.torch.jit:FutureWarning")  # from Python 3.14 on
def test_lazy_meta_and_scripted_modules() -> None:
    lazy = walked(nn.Sequential(nn.LazyLinear(8), nn.Linear(8, 8)))
    assert lazy["uninitialized"] >= 1
    assert "lazy" in why_not_countable(Stack(believed(lazy)))
    with torch.device("meta"):
        assert walked(nn.Linear(1 << 16, 1 << 15, bias=False))["mm"] == 1 << 31
    scripted = walked(torch.jit.script(nn.Sequential(nn.Linear(16, 8), nn.Linear(8, 8))))
    assert scripted["scripted"] is True
    assert scripted["mm"] == 16 * 8 + 8 * 8


def test_two_models_of_one_training_are_no_transformer(tmp_path: Path) -> None:
    """Two roots with parameters of their own: their batches may differ, so nothing is added up."""
    first, second = nn.Linear(WIDTH, WIDTH), nn.Sequential(nn.Linear(WIDTH, WIDTH))
    optimizers = [torch.optim.SGD(one.parameters(), lr=1e-3) for one in (first, second)]

    class Both:
        def __call__(self, x: Any) -> Any:
            return second(first(x))

    facts = trained(
        tmp_path, Both(), lambda: [torch.randn(BATCH, WIDTH) for _ in range(24)], optimizers=optimizers
    )
    assert facts["models"] == 2
    assert "2 models" in why_not_countable(Stack(believed(facts)))


def test_a_model_that_shows_itself_while_another_is_looked_at_is_counted(tmp_path: Path) -> None:
    """A GAN's optimizers step one after the other, so its second root is found a step later than the first."""
    inner, outer = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)
    turns = [(torch.optim.SGD(one.parameters(), lr=1e-3), one) for one in (outer, inner)]
    with probed(tmp_path) as seen:
        for _ in range(16):
            for optimizer, _model in turns:
                outer(inner(torch.randn(BATCH, WIDTH))).mean().backward()
                optimizer.step()
                optimizer.zero_grad()
        facts = seen.info["model"]
    assert facts["models"] == 2


def test_an_encoder_and_decoder_are_told_by_cross_attention() -> None:
    found = walked(nn.Transformer(WIDTH, 2, 1, 1, 2 * WIDTH, batch_first=True))
    assert found["encoder_decoder"] is True
    assert "encoder and decoder" in why_not_countable(Stack(believed(found)))


def test_convolutions_are_not_counted_by_their_weights() -> None:
    found = walked(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8, 4)))
    assert found["conv"] == 3 * 8 * 9 + 8
    assert "convolutions" in why_not_countable(Stack(believed(found)))


def test_odd_sizes_and_recomputation_are_named() -> None:
    found = walked(nn.Sequential(nn.Linear(WIDTH, 50), nn.Linear(64, 64)))
    assert found["mm_odd"] == WIDTH * 50
    assert found["odd_shape"] == f"50x{WIDTH}"
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    again = walked(nn.Sequential(checkpoint_wrapper(nn.Linear(64, 64)), nn.Linear(64, 64)))
    assert again["recompute"] == "yes"
    assert again["mm_recomputed"] == 64 * 64

    class Calls(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.utils.checkpoint.checkpoint(torch.sin, x)

    assert walked(Calls())["recompute"] == "maybe"
    assert walked(nn.Linear(8, 8))["recompute"] == "no"


@pytest.mark.slow
def test_twenty_thousand_modules_are_cut_and_said_so(tmp_path: Path) -> None:
    """Each turn ends soon after its budget, and the walk ends: they are more than can be looked at in 24 ms."""
    crowd = nn.ModuleList(nn.Identity() for _ in range(20_000))

    class Crowded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.crowd, self.last = crowd, nn.Linear(WIDTH, WIDTH)

        def forward(self, x: Any) -> Any:
            return self.last(x)

    facts = trained(tmp_path, Crowded(), lambda: [torch.randn(BATCH, WIDTH) for _ in range(40)])
    assert facts["cut"] is True
    assert facts["modules"] < 20_000
    assert "more modules" in why_not_countable(Stack(believed(facts)))


def test_a_turn_looks_at_few_modules_beyond_its_budget() -> None:
    """Counted in modules, not in time: with no budget at all one turn looks at one handful."""
    walk = Walk([nn.Sequential(*(nn.Linear(8, 8) for _ in range(1000)))])
    turns = 0
    while not walk.advance(0):
        turns += 1
    assert turns > 30
    assert walk.told(is_cut=False)["mm"] == 64_000


def test_gathering_is_done_once_and_its_time_is_told(tmp_path: Path) -> None:
    begin = time.perf_counter_ns()
    facts = trained(tmp_path, Transformer(), lambda: [ids() for _ in range(STEPS)])
    assert 0 < facts["gathered_us"] * 1000 < time.perf_counter_ns() - begin


def test_what_a_model_was_is_still_told_when_the_training_has_let_it_go(tmp_path: Path) -> None:
    """At its end a training frees its model, and the last borders find none: that is no model of 0 parameters."""

    def steps(model: Any, parameters: list[Any], make: Callable[[], Any]) -> None:
        optimizer = torch.optim.SGD(parameters, lr=1e-3)
        for _ in range(STEPS):
            model(make()).float().pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    with probed(tmp_path) as observed:
        model = Transformer()
        steps(model, list(model.parameters()), ids)
        whole = dict(observed.info["model"])
        assert whole["params"] == sum(p.numel() for p in model.parameters())
        del model
        gc.collect()
        weight = torch.randn(4, 4, requires_grad=True)
        steps(lambda x: x @ weight, [weight], lambda: torch.randn(4, 4))
        assert dict(observed.info["model"]) == whole


@pytest.mark.parametrize(
    ("named", "seen"),
    [
        ({"cu_seqlens": 1}, "cu_seqlens"),
        ({"position_ids": [[0, 1, 2, 0, 1, 0]]}, "position_ids"),
        ({"position_ids": [[0, 1, 2, 3], [0, 1, 2, 3]]}, None),
        ({"attention_mask": [[1, 1, 1]]}, None),
    ],
)
def test_packed_sequences_are_seen_by_what_the_model_is_given(
    named: dict[str, Any], seen: str | None
) -> None:
    """Named or in a dict; positions that begin once a row are no packing."""
    given = {name: torch.tensor(value) for name, value in named.items()}
    assert seen == packed_facts((), given).get("packed")
    assert seen == packed_facts((given,), {}).get("packed")
