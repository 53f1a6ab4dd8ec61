"""How much of a step computes is told only where the hooks see all that computes."""

from __future__ import annotations

import pytest
from synthetic_run import MS, Job, final_view

from tuiadvisor.phases import HOOKED
from tuiadvisor.session.evidence import compute_share, compute_to_communication, facts

UNSEEN = {
    "nothing": (),
    "gradients by torch.func": ("forward", "backward"),
    "forward in compiled code": ("forward",),
}


@pytest.mark.parametrize("unseen", UNSEEN.values(), ids=UNSEEN.keys())
def test_work_that_no_hook_sees_is_no_overhead(unseen: tuple[str, ...]) -> None:
    """Of a step whose gradients torch.func makes it said: compute is 3 %, the rest is waiting and overhead."""
    observed = tuple(name for name in HOOKED if name not in unseen)
    view = final_view(Job(observed=observed, other_s=30 * MS))
    told = [one.id for one in view.findings if one.id == "little_compute"]
    told_facts = facts("run", view)
    assert told == ([] if unseen else ["little_compute"])
    assert (compute_share(told_facts) is None) == bool(unseen)
    assert (compute_to_communication(told_facts) is None) == bool(unseen)


@pytest.mark.parametrize(("other_ms", "is_told"), [(0.3, False), (30, True)])
def test_what_no_hook_sees_is_told_apart_from_overhead(other_ms: float, is_told: bool) -> None:
    """Of a pipeline that calls model.forward() it said that all but 29 % was waiting and overhead; 37 % was unseen."""
    view = final_view(Job(other_s=other_ms * MS, data_s=25 * MS))
    (found,) = [one for one in view.findings if one.id == "little_compute"]
    assert ("passes in code that no hook sees" in found.message) == is_told
    assert found.message.endswith("the rest is waiting and overhead.")
