"""What kind of computation a kernel is, by its name: matrix products, attention, convolutions, norms and so on.

In: a kernel's name.  Out: a key of KINDS. Names as cuBLAS, CUTLASS, cuDNN, Triton, Flash Attention, ROCm's
Tensile and PyTorch's own kernels have them; the first that fits counts, what fits none is "other".
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from tuiadvisor.metrics.traces.gpu_timeline import COMM, COMM_GUESSED, MEMORY

COMMUNICATION: Final = "communication"
COPIES: Final = "copies"
OTHER: Final = "other"
KINDS: Final = (
    ("attention", r"flash|fmha|attention|\battn|_attn|sdpa|mha_"),
    ("optimizer", r"multi_tensor_apply|FusedAdam|FusedOptimizer|adamw?_kernel|foreach"),
    ("norm", r"norm|(?:^|[^a-z])bn_"),
    ("convolution", r"conv|dgrad|wgrad|implicit_gemm|winograd|MIOpen|im2col|\bcudnn.*(?:fprop|bprop)"),
    ("matrix product", r"gemm|gemv|matmul|cublas|cutlass|Cijk_|\bmm_|_mm_|nvjet|splitK|xmma|ampere_|hopper_|sm\d\d_"),
    ("softmax and loss", r"softmax|nll_loss|cross_entropy|loss"),
    ("embedding and index", r"embedding|index|gather|scatter|sort|topk|cub::|radix"),
    ("reduction", r"reduce|\bsum_|mean"),
    ("dropout and random", r"dropout|philox|distribution|random"),
    ("element by element", r"elementwise|pointwise|vectorized|triton_poi|Functor|copy|cast|fill|gelu|relu|silu"),
    ("compiled", r"^triton_|\btriton\b"),
    # Operators of a CPU.
    ("matrix product", r"aten::(?:\w*mm|linear)$"),
    ("element by element", r"aten::(?:add|sub|mul|div|zero|threshold)"),
)  # fmt: skip
PATTERNS: Final = tuple((name, re.compile(pattern, re.IGNORECASE)) for name, pattern in KINDS)


@lru_cache(maxsize=1 << 14)
def compute_kind(name: str, kind: int) -> str:
    """kind: of `metrics.traces.gpu_timeline`, which tells communication and copies."""
    if kind in (COMM, COMM_GUESSED):
        return COMMUNICATION
    if kind == MEMORY:
        return COPIES
    return next((found for found, pattern in PATTERNS if pattern.search(name)), OTHER)
