"""What a GPU kernel is by its name: computation, communication, copy, or communication of no known library.

In: the kernel's name, its category, its arguments.  Out: a kind of `metrics.traces.gpu_timeline` and a collective.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from tuiadvisor.metrics.traces.gpu_timeline import COMM, COMM_GUESSED, COMPUTE, MEMORY

GPU_CATEGORIES: Final = frozenset(
    ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset", "mtia_ccp_events")
)
# Kineto's names of what launches (libkineto/include/ActivityType.h), and older ones.
LAUNCH_CATEGORIES: Final = frozenset(
    (
        *(
            "cuda_runtime",
            "cuda_driver",
            "runtime",
            "hip_runtime",
            "xpu_runtime",
            "xpu_driver",
            "mtia_runtime",
        ),
        *("privateuse1_runtime", "privateuse1_driver"),
    )
)

LIBRARY: Final = re.compile(
    r"nccl|rccl|deep_ep::|::ep::(internode|intranode)|nvshmem|msccl|oneccl|(?<![a-z])hccl", re.IGNORECASE
)
LOOKS_LIKE: Final = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|send_?recv|cross_device_reduce"
    r"|multimem|symm_?mem|_(one|two)_?shot|ring_(ll|simple)",
    re.IGNORECASE,
)
GENERIC: Final = re.compile(r"(?:nccl|rccl|msccl)\w*_Generic", re.IGNORECASE)  # of any collective
UNNAMED: Final = re.compile(r"\(anonymous namespace\)::")
COPY: Final = re.compile(r"Memcpy|Memset|dma")
TO_DEVICE: Final = "HtoD"  # as CUPTI's names of copies have it, and ROCm's
COLLECTIVE: Final = re.compile(
    r"(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|send_?recv|broadcast|reduce)", re.IGNORECASE
)

# Between two ranks, whatever the group: NCCL has one kernel for these and for all-to-all.
PAIRWISE: Final = "sendrecv"
POINT_TO_POINT: Final = frozenset(("point-to-point", "send", "recv"))
SENDS: Final = frozenset(("c10d::send", "c10d::recv_", "c10d::recv_any_source_"))
# Who has sent its part of these leaves before the others come: they neither end together nor make all wait.
ONE_SIDED: Final = frozenset(("broadcast", "reduce", *POINT_TO_POINT))

# Of torch's scalar types by their names (c10/core/ScalarType.h), as the profiler writes a collective's.
ELEMENT_BYTES: Final = {
    **dict.fromkeys(("bool", "byte", "char", "float8_e4m3fn", "float8_e5m2"), 1),
    **dict.fromkeys(("half", "bfloat16", "short"), 2),
    **dict.fromkeys(("float", "int"), 4),
    **dict.fromkeys(("double", "long", "complexfloat"), 8),
}
MAX_ELEMENTS: Final = 1 << 48  # beyond any memory: a stranger's number stays within eight bytes


def kind_of(name: str, category: str, arguments: dict[str, Any]) -> int:
    """COMPUTE, COMM, MEMORY or COMM_GUESSED. The profiler's own "Collective name" outranks the kernel's name."""
    kind = _by_name(name, category)
    if kind in (COMPUTE, COMM_GUESSED) and category == "kernel" and arguments.get("Collective name"):
        return COMM
    return kind


@lru_cache(maxsize=1 << 16)  # a trace repeats few names very often, and they are long
def _by_name(name: str, category: str) -> int:
    if "memcpy" in category or "memset" in category or COPY.match(name):
        return MEMORY
    if category != "kernel":
        return COMPUTE
    if LIBRARY.search(name):
        return COMM
    return COMM_GUESSED if LOOKS_LIKE.search(name) else COMPUTE


def is_to_device(name: str) -> bool:
    """Whether a copy's name says that it is from the host to the device."""
    return COPY.match(name) is not None and TO_DEVICE in name


def collective_of(name: str, arguments: dict[str, Any]) -> str:
    """What ranks match by: collective and process group; names differ between library versions, these do not."""
    declared = arguments.get("Collective name")
    source = declared if isinstance(declared, str) and declared else short_name(name)
    found = COLLECTIVE.search(source)
    collective = found.group(1).replace("_", "").lower() if found else source.strip()[:80]
    group = arguments.get("Process Group Name")
    return f"{collective}@{group}" if isinstance(group, str | int) and group != "" else collective


def moved_bytes(arguments: dict[str, Any]) -> int:
    """Of a communication kernel's arguments, the larger of input and output; -1 where they do not say."""
    size = ELEMENT_BYTES.get(str(arguments.get("dtype")).lower())
    counts = [arguments.get("In msg nelems"), arguments.get("Out msg nelems")]
    known = [count for count in counts if type(count) is int and 0 <= count <= MAX_ELEMENTS]
    return max(known) * size if known and size is not None else -1


def short_name(name: str) -> str:
    """A kernel's name without what it takes; a namespace without a name is no list of that."""
    named = UNNAMED.sub("", name).partition("(")[0]
    return named.removeprefix("void ").strip()[:80] or name[:80]


def all_wait(collective: str) -> bool:
    """Does nobody leave this collective of `collective_of` before all have entered it?"""
    name = collective.partition("@")[0]
    return name not in ONE_SIDED and not is_generic(name)


def told_apart(collective: str, called: set[str]) -> str:
    """The same name; of a pairwise kernel that says no more by what the thread called, where that is no all-to-all."""
    if collective != PAIRWISE or not called & SENDS or any("alltoall" in name for name in called):
        return collective
    return "point-to-point"


def is_generic(name: str) -> bool:
    """Whether a communication kernel's name tells no collective: RCCL has one kernel for all."""
    return GENERIC.search(name) is not None
