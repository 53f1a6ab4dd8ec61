"""FLOPs of one step, by the graphs that its backwards are about to walk.

Parameters tell the FLOPs of transformers alone: of any other model it matters on how many rows each weight is used.
Autograd's graph keeps it. Its nodes say which operations there were, the shapes of their outputs and which of their
inputs need gradients; nothing of a tensor is read, no saved one is unpacked (that may run code of the host), nothing is
asked of a device. For one whole step each backward is looked at before it begins, 1 us a node; then all is as before.
Counted like torch's FlopCounterMode: products of matrices, convolutions, attention (a causal mask is not halved).
What may multiply within and does not say how makes the whole unknown: custom and compiled functions, recurrent layers.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from functools import update_wrapper
from math import prod
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from .forward_look import without_dynamo
from .guard import INSPECTION, attempt

if TYPE_CHECKING:
    from collections.abc import Callable

    from .host import Host

MAX_NS = 20_000_000  # of all backwards of the step together
NODES_BETWEEN_CLOCKS = 64
MAX_STEPS = 8  # until one of them was seen whole
# Where the two factors stand among a node's inputs.
PRODUCTS = {
    "MmBackward0": 0,
    "BmmBackward0": 0,
    "MvBackward0": 0,
    "DotBackward0": 0,
    "AddmmBackward0": 1,
    "BaddbmmBackward0": 1,
}
CONVOLUTION = "ConvolutionBackward0"
ATTENTION = "ScaledDotProduct"
# Wrappers' own, which compute nothing.
TRANSPARENT = ("_DDPSinkBackward", "RegisterPostBackwardFunctionBackward")
OPAQUE_BEGINS = ("Sparse", "Mkldnn", "Linalg", "Fft", "CudnnRnn", "MiopenRnn", "Trilinear", "Cdist", "Addbmm")
OPAQUE_PARTS = ("Attention", "Convolution", "Conv2D", "Conv3D", "GroupedMm", "BackwardBackward", "Linear")


class Unseen(Exception):  # noqa: N818 - no error: a graph that does not tell
    """What a graph holds that makes its FLOPs unknown."""


class GraphLook:
    """Stands in the place of our own backward hook until the backwards of one whole step were seen."""

    def __init__(self, probe: Host) -> None:
        self.probe = probe
        self.former: Callable[..., Any] | None = None
        self.first_step = 0
        self.by_step: dict[int, int] = {}
        self.why = ""
        self.spent_ns = self.num_polls = 0

    def arm(self) -> None:
        """From the next backward on."""
        patch = self.probe.backward_patch
        if patch is None:
            return
        former, look = patch.replacement, self

        def tuiadvisor_look(*args: Any, **kwargs: Any) -> Any:
            look.before(args, kwargs)
            return former(*args, **kwargs)

        update_wrapper(tuiadvisor_look, former, updated=())  # picklers take it by the name it has
        inline = getattr(former, "_torchdynamo_inline", None)
        if inline is not None:
            tuiadvisor_look._torchdynamo_inline = inline  # type: ignore[attr-defined]
        if patch.exchange(tuiadvisor_look):
            self.former, self.first_step = former, self.probe.clock.step + 1  # this one has begun already

    def disarm(self) -> None:
        """All as before; what somebody put on top of us meanwhile keeps us, and we do nothing more."""
        former, self.former = self.former, None
        if former is not None and self.probe.backward_patch is not None:
            self.probe.backward_patch.exchange(former)

    def is_done(self) -> bool:
        """Asked at borders of steps: whether a step was seen whole, or none will be."""
        self.num_polls += 1
        if self.former is None or self.why:
            return True
        return self.num_polls > MAX_STEPS or any(step < self.probe.clock.step for step in self.by_step)

    def told(self) -> dict[str, int | str]:
        """`graph_flops` of one step of this rank, or why not."""
        if self.why:
            return {"graph_unseen": self.why[:90]}
        whole = [step for step in self.by_step if step < self.probe.clock.step]
        return {"graph_flops": self.by_step[min(whole)]} if whole else {}

    def before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A backward is about to begin. Never raises."""
        clock = self.probe.clock
        if self.former is None or self.why or get_ident() != clock.own[0] or clock.step < self.first_step:
            return
        if self.by_step and clock.step > min(self.by_step):
            return  # seen whole
        begin_ns = monotonic_ns()
        if not without_dynamo(attempt, INSPECTION, self._count, clock.step, args, kwargs):
            self.why = self.why or "what could not be looked at"
        self.spent_ns += monotonic_ns() - begin_ns

    def _count(self, step: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        if kwargs.get("retain_graph") or kwargs.get("create_graph") or any(args[2:4]):
            self.why = "what a second backward needs, too"
            return False
        try:
            tensors = args[0] if args else kwargs.get("tensors")
            losses = tensors if isinstance(tensors, (list, tuple)) else (tensors,)
            found = graph_flops([loss.grad_fn for loss in losses], MAX_NS - self.spent_ns)
        except Unseen as why:
            self.why = str(why)
            return False
        self.by_step[step] = self.by_step.get(step, 0) + found
        return True


def graph_flops(roots: list[Any], budget_ns: int) -> int:
    """Forward and backward of all that these nodes hang on. Raises Unseen where a graph does not tell."""
    custom = sys.modules["torch"].autograd.function.BackwardCFunction
    waiting = [node for node in roots if node is not None]
    seen = set(waiting)
    end_ns = monotonic_ns() + budget_ns
    total = num = 0
    while waiting:
        node = waiting.pop()
        num += 1
        if not num % NODES_BETWEEN_CLOCKS and monotonic_ns() > end_ns:
            raise Unseen("too many operations")
        name = node.name()
        inputs = node.next_functions
        total += node_flops(node, name, inputs, custom)
        for before, _ in inputs:
            if before is not None and before not in seen:
                seen.add(before)
                waiting.append(before)
    return total


def node_flops(node: Any, name: str, inputs: Any, custom: Any) -> int:
    """Of one operation, its forward and its own part of backward."""
    first = PRODUCTS.get(name)
    if first is not None:
        return _product(node, name, inputs[first : first + 2])
    if name == CONVOLUTION:
        return _convolution(node, inputs)
    if name.startswith(ATTENTION):
        return _attention(node, inputs)
    if isinstance(node, custom) and name not in TRANSPARENT:
        raise Unseen("a function of its own: " + name.removesuffix("Backward"))
    if name.startswith(OPAQUE_BEGINS) or any(part in name for part in OPAQUE_PARTS):
        raise Unseen("an operation whose shapes are not seen: " + name.removesuffix("Backward0"))
    return 0


def _product(node: Any, name: str, factors: Any) -> int:
    out = _shape(node, 0)
    left, right = (_shape(*factor) for factor in factors)
    if left is None and right is None:
        raise Unseen("a product of frozen matrices")
    length = left[-1] if left else right[-2] if len(right) > 1 else right[0]  # type: ignore[index,arg-type]
    if name == "MmBackward0" and left is None and out[0] == length:  # type: ignore[index]
        raise Unseen("a product with a square matrix that may be sparse")
    return 2 * prod(out or ()) * length * _times(factors)


def _convolution(node: Any, inputs: Any) -> int:
    out, weight, given = _shape(node, 0), _shape(*inputs[1]), _shape(*inputs[0])
    if weight is None or out is None:
        raise Unseen("a convolution whose weight is frozen")
    places = out
    if node._saved_transposed:  # each place of the input is multiplied by the kernel, not each of the output
        places = given or (out[0], weight[0], *_before_transposed(node, out, weight))
    return 2 * prod(places) * prod(weight) // weight[0] * _times(inputs[:2])


def _before_transposed(node: Any, out: tuple[int, ...], weight: tuple[int, ...]) -> list[int]:
    """Places along each dimension of what a transposed convolution was given."""
    return [
        (size + 2 * padding - dilation * (kernel - 1) - extra - 1) // stride + 1
        for size, kernel, stride, padding, dilation, extra in zip(  # noqa: B905 - torch's own, of one length
            out[2:],
            weight[2:],
            node._saved_stride,
            node._saved_padding,
            node._saved_dilation,
            node._saved_output_padding,
        )
    ]


def _attention(node: Any, inputs: Any) -> int:
    out = _shape(node, 0)
    query, key, value = (_shape(*one) for one in inputs[:3])
    if out is None or len(out) != 4:
        raise Unseen("an attention of other dimensions")
    batch, heads, length, width = out
    with_keys = key or value
    if with_keys is None or not (query or key):
        raise Unseen("an attention whose keys are frozen")
    head = (query or key)[-1]  # type: ignore[index]
    return 2 * batch * heads * length * with_keys[-2] * (head + width) * 3


def _times(factors: Any) -> int:
    """Forward, and once more for each factor that gets a gradient."""
    return 1 + sum(node is not None for node, _ in factors)


def _shape(node: Any, number: int) -> tuple[int, ...] | None:
    """Of a node's output; None: its input needs no gradient, so nothing is known of it."""
    if node is None:
        return None
    return tuple(int(length) for length in node._input_metadata[number].shape)
