"""What was measured of this folder's machine, for commands that hold a run against it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.events import GivenWork

if TYPE_CHECKING:
    from tuiadvisor.events import MeasuredPeak


def measured_peaks() -> tuple[MeasuredPeak, ...]:
    """Of its processor. A file that cannot be read is told where ceilings are asked for, and stops no watch."""
    from tuiadvisor.session.machine import read_machine  # noqa: PLC0415 - not before the first frame

    try:
        return read_machine().peaks
    except TuiadvisorError:
        return ()


def measured_here() -> GivenWork:
    """The same for a run that is watched: everything else that is given stands in its frames."""
    return GivenWork(measured=measured_peaks())
