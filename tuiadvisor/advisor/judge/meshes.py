"""What the mesh of a model says of who meets whom.

In: StepTable, roster.  Out: whether the order of arrival at the gradients is told by who waits least.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuiadvisor.causes.tensor_mates import tensor_groups
from tuiadvisor.metrics.steps.exchange_groups import wait_apart

if TYPE_CHECKING:
    from tuiadvisor.advisor.cluster.membership import Roster
    from tuiadvisor.metrics.steps.step_table import StepTable


def exchange_apart(table: StepTable, roster: Roster) -> bool:
    """Whether ranks of one place in their tensor parallel groups wait longer for each other than those of another."""
    meshes = {str(fact.model["mesh"]) for fact in roster.ranks.values() if fact.model.get("mesh")}
    if len(meshes) != 1:
        return False
    groups = tensor_groups(meshes.pop(), len(table.ranks))
    return wait_apart(table, list(zip(*groups, strict=True)))
