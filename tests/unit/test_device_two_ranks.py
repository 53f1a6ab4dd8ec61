"""Two ranks on devices: there is no third one that stands for what is normal, and no middle that is either's."""

from __future__ import annotations

from dataclasses import replace

import pytest
from simulated_devices import DeviceJob, Fault, true_loss_s, view_of

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("every", "seconds"), [(20, 0.08), (25, 0.1), (40, 0.15)])
def test_pause_of_one_of_two_ranks_is_one_step_longer_not_two_by_half(every: int, seconds: float) -> None:
    """What a thread does after its exchange lies in its own step, and in the next one of the other rank."""
    job = replace(DeviceJob(), num_ranks=2, num_steps=300)
    job = job.with_faults(Fault("save", (1,), seconds, every=every))
    view = view_of(job)

    (found,) = [one for one in view.findings if one.loss_s_per_step is not None]
    assert ("periodic_pause", (1,), "other") == (found.id, found.ranks, found.phase)
    assert true_loss_s(job) == pytest.approx(found.loss_s_per_step, rel=0.1)
