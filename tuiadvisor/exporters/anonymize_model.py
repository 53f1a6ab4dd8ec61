"""What a rank tells of its model, without the user's own words.

In: the description of a model.  Out: its numbers, and texts in torch's and the probe's own words.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tuiadvisor.exporters.versions import device_model
from tuiadvisor.exporters.words import allowed_words

if TYPE_CHECKING:
    from tuiadvisor.exporters.harmless import Payload

_MODEL_TEXTS: Final = (
    *("param_dtype", "param_dtypes", "mixed_precision", "autocast", "input", "input_dtype"),
    *("recompute", "wrappers", "sdp", "odd_shape"),
    "packed",
)
_MODEL_NUMBERS: Final = (
    *(
        "steps_before",
        "params",
        "trainable",
        "embedding",
        "conv",
        "mm",
        "mm_frozen",
        "mm_frozen_before",
        "mm_expert",
        "mm_odd",
    ),
    *(
        "mm_recomputed",
        "lora",
        "uninitialized",
        "not_looked_at",
        "models",
        "modules",
        "layers",
        "heads",
        "head",
        "multiprocessors",
    ),
    *(
        "attention_width",
        "attention_unclear",
        "tied",
        "experts",
        "top_k",
        "cut",
        "compiled",
        "quantized",
        "fp8",
    ),
    *("tf32", "cudnn_tf32", "cudnn_benchmark", "threads", "micro_steps", "workers", "pin_memory", "prefetch"),
    *(
        "persistent_workers",
        "encoder_decoder",
        "gathered_us",
        "config_layers",
        "config_heads",
        "config_hidden",
    ),
    *("config_head_size", "config_window", "config_vocabulary", "config_experts", "config_top_k"),
)
_TYPE_OR_SHAPE: Final = re.compile(
    r"(?:bfloat|float|complex|int|uint|qint|quint)[0-9]{1,3}(?:_e[0-9]m[0-9](?:fn|fnu|fnuz|b11fnuz)?)?|bool|[0-9]{1,12}(?:x[0-9]{1,12})*"
)


def model_of(told: object) -> Payload:
    """Numbers, and texts in torch's own words; a class's name and what the environment says are the user's."""
    if not isinstance(told, dict):
        return {}
    kept: Payload = {name: value for name in _MODEL_NUMBERS if isinstance(value := told.get(name), int)}
    for name in _MODEL_TEXTS:
        said = told.get(name)
        if isinstance(said, str) and is_of_probe(said):
            kept[name] = said
    if isinstance(device := told.get("device_name"), str):
        kept["device_name"] = device_model(device)
    return {"model": kept}


def is_of_probe(text: str) -> bool:
    """Types, shapes, and what the probe itself calls wrappers and kernels: nobody's own words."""
    return all(
        _TYPE_OR_SHAPE.fullmatch(word) or set(re.findall(r"[^\W\d_]+|[^\w]", word)) <= allowed_words()
        for word in text.split()
    )
