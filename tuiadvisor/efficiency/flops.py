"""FLOPs of a training step from what the model is made of.

In: Stack, length of a sequence.  Out: FLOPs a token, forward and backward, or why they are not known.

A token passes each weight that is multiplied: 2 FLOPs forward, 2 for the weight's gradient, 2 for its input's (PaLM,
2204.02311, appendix B). Attention adds 12 * sum over layers of (heads * head size) * length a token; a causal mask is
not halved, as PaLM and torchtitan count and Megatron does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tuiadvisor.views.efficiency import Stack

STATE: Final = "state --flops-per-step"
COUNT: Final = "count them: tuiadvisor capture RANK --flops, then state --flops-per-step"
NOT_A_TRANSFORMER: Final = (
    "parameters tell the FLOPs of transformers alone: none of its layers is recognized as attention, and on how many "
    f"rows each weight is used was not seen; {COUNT}"
)
MOSTLY_CONVOLUTIONS: Final = 0.01  # of the multiplied weights; an image's patches are less
FORMULA: Final = "6·N + 12·L·H·d·T a token, each weight once, causal not halved"


@dataclass(frozen=True, slots=True)
class TokenFlops:
    """Of one token, forward and backward; hardware: with what is computed again. None: not known, and why."""

    model: float | None
    hardware: float | None = None
    why: str = ""
    weights: float = 0.0  # multiplied, active ones of a mixture of experts
    attention: float = 0.0  # part of model


def why_not_countable(stack: Stack) -> str:
    """Why the parameters do not tell the FLOPs; empty where they do."""
    multiplied = (stack.number("mm") or 0) + (stack.number("mm_frozen") or 0)
    experts = stack.number("mm_expert") or 0
    reasons = (
        (not stack.facts, f"no model was seen, or the recording is older than this figure: {STATE}"),
        (stack.facts.get("cut"), f"the model has more modules than the probe looks at: {STATE}"),
        (stack.number("not_looked_at"), f"some modules could not be looked at: {STATE}"),
        (stack.number("uninitialized"), f"some of its lazy modules had no size yet: {STATE}"),
        (stack.facts.get("quantized"), f"its weights are quantized, so their number is not known: {STATE}"),
        (stack.text("sharding").startswith("tensor parallel"), f"a rank sees its shards alone: {STATE}"),
        (
            (stack.number("conv") or 0) > MOSTLY_CONVOLUTIONS * multiplied,
            f"it is made of convolutions, whose FLOPs depend on the image's size; {COUNT}",
        ),
        ((stack.number("models") or 0) > 1, f"{stack.number('models')} models are trained together; {COUNT}"),
        (stack.facts.get("encoder_decoder"), f"encoder and decoder see tokens of their own: {STATE}"),
        (not multiplied, f"no weight that is multiplied was seen: {STATE}"),
        # How often a weight is used, and on how many rows, is known of a transformer over token ids alone.
        (
            not (stack.number("layers") or stack.number("config_layers")),
            NOT_A_TRANSFORMER,
        ),
        (
            (stack.number("layers") or 0) != (stack.number("config_layers") or stack.number("layers") or 0)
            and stack.number("layers"),
            f"its configuration tells of other layers than were seen (weights shared by several?); {COUNT}",
        ),
        (
            stack.number("mm_frozen") and not stack.number("lora"),
            f"some of its weights are frozen, and whether gradients pass them was not seen; {COUNT}",
        ),
        (
            experts and not _active_share(stack),
            f"how many of its experts a token visits was not seen: {STATE}",
        ),
    )
    return next((why for holds, why in reasons if holds), "")


def token_flops(stack: Stack, length: float | None) -> TokenFlops:
    """Of one token in a sequence of this length."""
    why = why_not_countable(stack)
    width = attention_width(stack)
    if not why and width is None:
        why = f"the width of its attention was not seen: {STATE}"
    if not why and width and length is None:
        why = "the length of a sequence was not seen: state --tokens-per-step and --samples-per-step"
    if why:
        return TokenFlops(None, why=why)
    trained, frozen = float(stack.number("mm") or 0), float(stack.number("mm_frozen") or 0)
    before = float(stack.number("mm_frozen_before") or 0)
    idle = float(stack.number("mm_expert") or 0) * (1 - (_active_share(stack) or 1.0))
    if idle > max(trained, frozen):  # in part trained and in part frozen: which of them rest is not known
        return TokenFlops(None, why=f"which of its experts are frozen was not seen: {STATE}")
    if trained >= frozen:
        trained -= idle
    else:
        frozen -= idle
    frozen = max(frozen, before)
    window = stack.number("config_window")
    span = min(length or 0.0, window) if window else length or 0.0
    # Attention of frozen models with adapters passes gradients like any other.
    attention = 12.0 * (width or 0.0) * span
    model = 6 * trained + 4 * (frozen - before) + 2 * before + attention
    return TokenFlops(
        model, _hardware(stack, model, trained + frozen, attention), "", trained + frozen, attention
    )


def attention_width(stack: Stack) -> float | None:
    """Heads times head size, summed over the layers; 0 without attention, None where it cannot be told."""
    found = stack.number("attention_width") or 0
    if stack.number("layers") and found and not stack.facts.get("attention_unclear"):
        return float(found)
    layers, hidden = stack.number("config_layers"), stack.number("config_hidden")
    if layers:
        heads, size = stack.number("config_heads"), stack.number("config_head_size")
        each = heads * size if heads and size else hidden
        return float(layers * each) if each else None
    return None if stack.number("layers") else 0.0


def _active_share(stack: Stack) -> float | None:
    """Of the experts, in one token; 1 without any."""
    if not stack.number("mm_expert"):
        return 1.0
    top_k = stack.number("top_k") or stack.number("config_top_k")
    experts = stack.number("experts") or stack.number("config_experts")
    return top_k / experts if top_k and experts and top_k <= experts else None


def _hardware(stack: Stack, model: float, weights: float, attention: float) -> float | None:
    """With a second forward of what is computed again; None where nobody can tell what is."""
    said = stack.text("recompute")
    if said == "no":
        return model
    every = float((stack.number("mm") or 0) + (stack.number("mm_frozen") or 0))
    again = float(stack.number("mm_recomputed") or 0)
    if said != "yes" or not again or not every:
        return None
    layers = max(every - float(stack.number("head") or 0), again)
    return model + 2 * weights * again / every + attention / 3 * again / layers
