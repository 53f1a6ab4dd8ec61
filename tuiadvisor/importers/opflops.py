"""FLOPs and bytes of the operators in a trace that was recorded with shapes.

In: events of a trace.  Out: OpWork, one a name and shape. Of operators that call each other only the innermost is
counted: `linear` and `matmul` are their `addmm`, `mm` or `bmm`. On a device the time is that of the kernels launched
by the operator ("External id"), on a CPU its own. Attention's FLOPs are those of all pairs: a mask is not halved.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Final

import orjson

from tuiadvisor.efficiency.roofline import OpWork

if TYPE_CHECKING:
    from collections.abc import Callable

Dims = list[list[int]]
Given = list[str]  # operands that are no tensors, as the trace writes them
Counted = tuple[float, float]  # FLOPs, elements read or written
Work = tuple[tuple[str, str, str], float, float]  # name, shapes and type; FLOPs; bytes
MAX_SHAPES: Final = 4096
OTHERS: Final = ("others", "", "")
MAX_OPERATORS: Final = 1_000_000
MAX_WORKS: Final = 20_000  # different calls that are remembered, each of so many characters at most
MAX_CALL: Final = 1_000
DTYPES: Final = {
    "float": "float32",
    "c10::bfloat16": "bfloat16",
    "c10::half": "float16",
    "double": "float64",
    "c10::float8_e4m3fn": "fp8",
    "c10::float8_e5m2": "fp8",
}
BYTES: Final = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8, "fp8": 1}
ATTENTION: Final = (
    "aten::_scaled_dot_product_flash_attention",
    "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_cudnn_attention",
    "aten::_scaled_dot_product_flash_attention_for_cpu",
)
BACKWARD_PRODUCTS: Final = 2.5  # of the two of forward: five, one of them computed again


def _mm(dims: Dims, _given: Given) -> Counted:
    (m, k), (_, n) = dims[0][-2:], dims[1][-2:]
    return 2.0 * m * k * n, float(m * k + k * n + m * n)


def _addmm(dims: Dims, given: Given) -> Counted:
    flops, size = _mm(dims[1:], given)
    return flops, size + prod(dims[0])


def _bmm(dims: Dims, given: Given) -> Counted:
    flops, size = _mm(dims, given)
    return dims[0][0] * flops, dims[0][0] * size


def _baddbmm(dims: Dims, given: Given) -> Counted:
    flops, size = _bmm(dims[1:], given)
    return flops, size + prod(dims[0])


def _attention(dims: Dims, _given: Given) -> Counted:
    (batch, heads, length, size), others, values = dims[0], dims[1], dims[2]
    flops = 2.0 * batch * heads * length * others[2] * (size + values[3])
    return flops, float(2 * prod(dims[0]) + prod(others) + prod(values))


def _attention_backward(dims: Dims, given: Given) -> Counted:
    flops, size = _attention(dims[1:4], given)
    return BACKWARD_PRODUCTS * flops, 2 * size


def _convolution(dims: Dims, given: Given) -> Counted:
    image, weight = dims[0], dims[1]
    strides, paddings, spreads = (_list(given, place) for place in (3, 4, 5))
    if given[6] == "True":  # transposed
        raise ValueError
    out = []
    for place, length in enumerate(image[2:]):
        kernel = weight[2 + place]
        reach = _at(spreads, place) * (kernel - 1) + 1
        out.append((length + 2 * _at(paddings, place) - reach) // _at(strides, place) + 1)
    flops = 2.0 * image[0] * prod(out) * prod(weight)
    return flops, float(prod(image) + prod(weight) + image[0] * weight[0] * prod(out))


def _convolution_backward(dims: Dims, given: Given) -> Counted:
    gradient, image, weight = dims[:3]
    wanted = given[-1].split(",")[:2]
    num = sum("True" in one or one.strip(" []") == "1" for one in wanted) or 2
    flops = 2.0 * gradient[0] * prod(gradient[2:]) * prod(weight)
    return num * flops, float(num * (prod(gradient) + prod(image) + prod(weight)))


def _list(given: Given, place: int) -> list[int]:
    return [int(part) for part in given[place].strip("[]").split(",") if part.strip()]


def _at(values: list[int], place: int) -> int:
    return values[place if len(values) > place else -1]


COUNTED: Final[dict[str, Callable[[Dims, Given], Counted]]] = {
    "aten::mm": _mm,
    "aten::addmm": _addmm,
    "aten::bmm": _bmm,
    "aten::baddbmm": _baddbmm,
    "aten::_scaled_mm": _mm,
    "aten::convolution": _convolution,
    "aten::convolution_backward": _convolution_backward,
    **dict.fromkeys(ATTENTION, _attention),
    **dict.fromkeys((name + "_backward" for name in ATTENTION), _attention_backward),
}


class OpShapes:
    """Grows while a trace is read; one operator's entry is held until its kernels have come."""

    def __init__(self) -> None:
        self.device: str | None = None
        self.num_shaped = 0
        self._operators: list[tuple[int, int, int, tuple[str, str, str], float, float]] = []
        self._by_external: dict[int, int] = {}  # external id -> index of the operator
        self._kernel_ns: dict[int, int] = {}  # external id -> time of its kernels
        self._threads: dict[str, int] = {}
        self._works: dict[bytes, Work] = {}
        self.num_kernels = 0

    def operator(self, event: dict[str, Any], begin_ns: int, duration_ns: int) -> None:
        """A CPU operator, if it has shapes."""
        arguments = event.get("args")
        dims = arguments.get("Input Dims") if isinstance(arguments, dict) else None
        name = event.get("name")
        if not isinstance(arguments, dict) or not isinstance(dims, list) or not isinstance(name, str):
            return
        if len(self._operators) >= MAX_OPERATORS or not name.startswith("aten::"):
            return
        self.num_shaped += 1
        key, flops, size = self._known(name, dims, arguments)
        external = arguments.get("External id")
        thread_id = self._threads.setdefault(str(event.get("tid"))[:40], len(self._threads))
        if isinstance(external, int):
            self._by_external[external] = len(self._operators)
        self._operators.append((thread_id, begin_ns, duration_ns, key, flops, size))

    def _known(self, name: str, dims: list[Any], arguments: dict[str, Any]) -> Work:
        """What it computes; a step has the same operators again and again."""
        concrete = arguments.get("Concrete Inputs") if name in COUNTED else None
        try:
            call = orjson.dumps((name, dims, arguments.get("Input type"), concrete))
        except TypeError:  # nested too deep, or a number beyond 64 bits
            call = b""
        found = self._works.get(call)
        if found is None:
            found = _work(name, dims, arguments)
            if 0 < len(call) <= MAX_CALL and len(self._works) < MAX_WORKS:
                self._works[call] = found
        return found

    def kernel(self, event: dict[str, Any], duration_ns: int) -> None:
        """A kernel on a device."""
        self.num_kernels += 1
        arguments = event.get("args")
        external = arguments.get("External id") if isinstance(arguments, dict) else None
        if isinstance(external, int):
            self._kernel_ns[external] = self._kernel_ns.get(external, 0) + duration_ns

    def works(self) -> tuple[OpWork, ...]:
        """One entry a name and shape; what an operator calls belongs to it where its FLOPs are counted as a whole."""
        owners, times = self._nested()
        if self.num_kernels:
            times = [0] * len(self._operators)
            for external, spent in self._kernel_ns.items():
                index = self._by_external.get(external)
                if index is not None:
                    times[owners[index]] += spent
        sums: dict[tuple[str, str, str], list[float]] = {}
        for (_, _, _, key, flops, size), spent in zip(self._operators, times, strict=True):
            if spent <= 0:
                continue
            is_new = key not in sums and len(sums) >= MAX_SHAPES
            entry = sums.setdefault(OTHERS if is_new else key, [0, 0.0, 0.0, 0.0])
            entry[0] += 1
            entry[1] += spent / 1e9
            entry[2] += 0.0 if is_new else flops
            entry[3] += 0.0 if is_new else size
        return tuple(
            OpWork(key[0], key[1], key[2], int(calls), spent, flops, size)
            for key, (calls, spent, flops, size) in sums.items()
        )

    def _nested(self) -> tuple[list[int], list[int]]:
        """(the operator that each one's time belongs to, each one's time without that of others)."""
        held = self._operators
        owners, times = list(range(len(held))), [duration for _, _, duration, _, _, _ in held]
        stack: list[int] = []
        for index in sorted(owners, key=lambda i: (held[i][0], held[i][1], -held[i][2])):
            thread, begin, duration = held[index][:3]
            while stack and (held[stack[-1]][0] != thread or sum(held[stack[-1]][1:3]) <= begin):
                stack.pop()
            if stack and held[stack[-1]][4] > 0:  # one that is counted lets no other onto the stack
                owners[index], times[index] = stack[-1], 0
                continue
            if stack:
                times[stack[-1]] -= duration
            stack.append(index)
        return owners, times


def _work(name: str, dims: list[Any], arguments: dict[str, Any]) -> Work:
    shapes, dtype = _shapes(dims), _dtype(arguments.get("Input type"))
    flops = size = 0.0
    count = COUNTED.get(name)
    concrete = arguments.get("Concrete Inputs")
    given = [one if isinstance(one, str) else "" for one in concrete] if isinstance(concrete, list) else []
    if count is not None:
        try:
            flops, elements = count(shapes, given)
        except (ValueError, IndexError, TypeError):
            flops = elements = 0.0
        size = elements * BYTES.get(dtype, 4)
    words = "·".join("x".join(map(str, one)) for one in shapes[:3])[:60]
    return (name.removeprefix("aten::"), words, dtype), flops, size


def _shapes(dims: list[Any]) -> Dims:
    return [
        [int(length) for length in one]
        for one in dims
        if isinstance(one, list)
        and one
        and all(isinstance(length, int) and 0 <= length < 1 << 40 for length in one)
    ]


def _dtype(types: Any) -> str:
    """Of the first operand that is a floating-point tensor."""
    for one in types if isinstance(types, list) else ():
        if isinstance(one, str) and one.lower() in DTYPES:
            return DTYPES[one.lower()]
    return ""
