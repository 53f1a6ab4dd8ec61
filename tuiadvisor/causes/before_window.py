"""Since when something stands that was there already in the first step that is compared.

In: what the run as a whole tells of its pace, what the finding costs.  Out: words. The window's first step is no
beginning; where the run's steps became longer by just what the finding costs, that is told beside it, as seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.metrics.window.waves import ALIKE
from tuiadvisor_rules.message import share

if TYPE_CHECKING:
    from tuiadvisor.causes.facts import Facts
    from tuiadvisor.metrics.series.what_if import Gain

UNSEEN: Final = "since the first step compared"
LEAST_WAITS: Final = 0.2  # of the growth is waiting where as many as four of five ranks are late (chosen)


def since_before(facts: Facts, gain: Gain | None) -> str:
    """'since the first step compared (steps are 27 % longer since about step 2,944)'; gain: without who is awaited."""
    shift = facts.run_shift
    if shift is None or gain is None or shift.is_gradual or shift.before_s <= 0:
        return UNSEEN
    grown_s = shift.after_s - shift.before_s
    # None on devices, where phases do not say how a step grew.
    is_waiting = shift.waits is None or shift.waits >= LEAST_WAITS
    if not is_waiting or abs(grown_s - gain.loss_s) > ALIKE * gain.loss_s:
        return UNSEEN
    longer = share(grown_s / shift.before_s)
    return f"{UNSEEN} (steps are {longer} longer since about step {shift.since_step:,})"
