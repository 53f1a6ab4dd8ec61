"""One recording as the session reads it.

In: nothing.  Out: Recorded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tuiadvisor.views.run_view import RunView


@dataclass(frozen=True, slots=True)
class Recorded:
    """What it is called, its view, gradient bytes and collectives of a step if they were seen.

    is_file: name is the path of a recording, which commands may name; a live run that nobody records has none.
    """

    name: str
    view: RunView
    gradient_bytes: int | None = None
    num_collectives: int | None = None
    is_file: bool = True
