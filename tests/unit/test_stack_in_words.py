"""Model, loader and settings of a run in words: what was seen is said, what was not is left out, never made up."""

from __future__ import annotations

import pytest

from tuiadvisor.text.efficiency import dtype_word, mfu_words, stack_facts
from tuiadvisor.views.efficiency import Efficiency, Stack


def words(**facts: int | str) -> dict[str, str]:
    return dict(stack_facts(Stack({"params": 1_000_000, **facts})))


def test_of_a_model_that_was_not_counted_nothing_is_made_up() -> None:
    """A run whose probe saw nothing has no row, nor has one that was never asked."""
    assert [] == stack_facts(Stack({}))
    assert [] == stack_facts(None)
    assert ("model", "GPT, ? parameters") in stack_facts(Stack({"class": "GPT"}))


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"class": "GPT"}, "GPT, 1.00 M parameters"),
        ({"trainable": 1_000_000}, "a model, 1.00 M parameters"),
        ({"trainable": 20_000}, "a model, 1.00 M parameters, 20.0 k of them trained"),
        ({"trainable": 0}, "a model, 1.00 M parameters, none of them trained"),
        ({"cut": 1}, "a model, 1.00 M parameters; cut: it has more modules than the probe looks at"),
    ],
)
def test_a_model_is_told_with_what_of_it_trains(facts: dict[str, int | str], said: str) -> None:
    assert said == words(**facts)["model"]


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (
            {"embedding": 2_000, "head": 2_000, "tied": 1},
            "embedding 2.00 k · head 2.00 k · embedding and head are tied",
        ),
        ({"lora": 3_000}, "adapters 3.00 k"),
        ({"mm_expert": 4_000, "experts": 8, "top_k": 2}, "experts 4.00 k · 8 experts a layer, 2 a token"),
        ({"experts": 8, "config_top_k": 1}, "8 experts a layer, 1 a token"),
        ({"experts": 8}, "8 experts a layer, ? a token"),
        ({"mm_odd": 1, "odd_shape": "4096x127"}, "dimensions that are no multiple of 8: 4096x127"),
    ],
)
def test_parts_of_a_model_are_told_where_it_has_them(facts: dict[str, int | str], said: str) -> None:
    assert said == words(**facts)["parts"]


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"param_dtype": "float32", "autocast": "bfloat16"}, "parameters fp32 · autocast bf16"),
        ({"mixed_precision": "float16"}, "FSDP computes in fp16"),
        ({"device_name": "H100", "tf32": 1, "cudnn_benchmark": 0}, "TF32 on · cudnn.benchmark off"),
        (
            {"device_name": "H100", "tf32": 0, "cudnn_benchmark": 1, "threads": 4},
            "TF32 off · cudnn.benchmark on",
        ),
        ({"tf32": 1, "threads": 4}, "4 threads"),  # TF32 is nothing to a CPU, its threads are
        ({"threads": 1}, "1 thread"),
    ],
)
def test_precision_is_told_as_it_matters_on_this_device(facts: dict[str, int | str], said: str) -> None:
    assert said == words(**facts)["precision"]


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"layers": 32, "heads": 16, "attention": "flash"}, "32 layers · 16 heads · flash"),
        ({"layers": 1, "sdp": "flash, math"}, "1 layer · SDPA may use flash, math"),
        ({"layers": 2}, "2 layers"),
        ({"heads": 16, "attention": "flash"}, None),  # no transformer's
    ],
)
def test_attention_is_told_of_what_has_layers(facts: dict[str, int | str], said: str | None) -> None:
    assert said == words(**facts).get("attention")


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"workers": 0, "persistent_workers": 0}, "no workers · pin_memory off"),
        (
            {"workers": 4, "pin_memory": 1, "prefetch": 2, "persistent_workers": 1},
            "4 workers · pin_memory on · prefetch 2 · persistent",
        ),
        ({"workers": 1, "persistent_workers": 0}, "1 worker · pin_memory off · restarted each epoch"),
        ({"pin_memory": 1}, None),  # no loader was seen
    ],
)
def test_a_loader_is_told_as_it_was_made(facts: dict[str, int | str], said: str | None) -> None:
    assert said == words(**facts).get("loader")


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"wrappers": "DDP", "compiled": 1}, "DDP · compiled"),
        ({"zero_stage": 0}, "ZeRO stage 0"),
        ({"sharding": "FSDP2", "reduce_dtype": "float32"}, "FSDP2 · gradients reduced in float32"),
        ({"recompute": "yes", "mesh": "dp 4 x tp 2"}, "activations recomputed · dp 4 x tp 2"),
        ({"recompute": "maybe"}, "activations perhaps recomputed"),
        ({"recompute": "no", "compiled": 0}, None),
    ],
)
def test_what_a_model_is_wrapped_in_is_one_row(facts: dict[str, int | str], said: str | None) -> None:
    assert said == words(**facts).get("wrapped")


def test_an_unknown_mfu_says_why() -> None:
    assert "unknown: no peak is known" == mfu_words(Efficiency(why="no peak is known"))
    assert "unknown: not observed" == mfu_words(Efficiency())


def test_a_known_mfu_says_of_what() -> None:
    """And where the peak is from, where that is known."""
    found = Efficiency(mfu=0.4, peak_flops=989e12, dtype="bfloat16", peak_source="NVIDIA's data sheet")
    assert "40 % of 989 TFLOP/s bf16 a device, NVIDIA's data sheet" == mfu_words(found)


def test_a_dtype_without_a_word_is_called_by_its_own_name() -> None:
    assert ("bf16", "float8_e4m3fn", "unknown") == tuple(map(dtype_word, ("bfloat16", "float8_e4m3fn", None)))
