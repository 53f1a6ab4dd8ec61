"""Which wrapper shards the model or reduces its gradients: in whose terms a finding is told, and which levers exist.

Flags are unknown where no probe looked at the model; a rule then speaks of gradients, in DDP's terms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.causes.cause import Cause
from tuiadvisor.causes.tensor_mates import TENSOR_AXES

if TYPE_CHECKING:
    from tuiadvisor.causes.cause import Values
    from tuiadvisor.causes.facts import Facts
    from tuiadvisor.metrics.diagnosis import Diagnosis
    from tuiadvisor.views.efficiency import Stack

METRICS: Final = """
job is_fsdp1 flag 1 if FullyShardedDataParallel wraps the model and gathers its parameters
job is_fsdp2 flag 1 if fully_shard does
job is_zero3 flag 1 if DeepSpeed partitions parameters (ZeRO stage 3)
job is_zero flag 1 if DeepSpeed's engine reduces gradients and keeps parameters whole (ZeRO stages 0 to 2)
job is_tensor_parallel flag 1 if layers are split over ranks, which exchange activations
job is_own_exchange flag 1 if nothing wraps the model: what ranks exchange the loop itself sends
job is_sharded flag 1 if ranks hold shards of the parameters and gather them to compute
job comm_words text what the ranks exchange: gradients, or parameters and gradients
"""
NAMES: Final = tuple(line.split()[1] for line in METRICS.strip().splitlines())
GRADIENTS: Final = "gradient communication"
OF_SHARDS: Final = "gathering parameters and reducing gradients"
OF_THE_LOOP: Final = "the loop's own communication"
KEEPS_WHOLE: Final = "NO_SHARD"  # FSDP1's strategy that is DDP


def measure_job(_diagnosis: Diagnosis, facts: Facts) -> Values:
    """By what the probes saw of the model."""
    if facts.stack is None or not facts.stack.number("models"):
        return {**dict.fromkeys(NAMES), "comm_words": GRADIENTS}
    return of_stack(facts.stack)


def of_stack(stack: Stack) -> Values:
    """The metrics of one set of facts."""
    wrappers, sharding = stack.text("wrappers").split(), stack.text("sharding")
    fsdp1 = "FSDP1" in wrappers and stack.text("sharding_strategy") != KEEPS_WHOLE
    fsdp2 = "FSDP2" in wrappers
    zero3 = stack.number("zero_stage") == 3 or sharding.startswith("ZeRO-3")
    mesh = stack.text("mesh").split()
    is_own = stack.is_own_exchange
    axes = [axis.partition("=")[0].lower() for axis in mesh]
    return {
        "is_fsdp1": int(fsdp1),
        "is_fsdp2": int(fsdp2),
        "is_zero3": int(zero3),
        "is_zero": int("DeepSpeed" in wrappers and not zero3),
        "is_tensor_parallel": int(
            sharding.startswith("tensor parallel") or any(axis in TENSOR_AXES for axis in axes)
        ),
        "is_own_exchange": int(is_own),
        "is_sharded": int(fsdp1 or fsdp2 or zero3),
        "comm_words": OF_SHARDS if fsdp1 or fsdp2 or zero3 else OF_THE_LOOP if is_own else GRADIENTS,
    }


FRAMEWORK: Final = Cause(rules=(), metrics=METRICS, measure_job=measure_job, needs_device=False)
