"""A recording as a whole: its frames, the view at its end, what begins where."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.app.looks import Looks, piece_bytes
from tuiadvisor.events import NOTHING_GIVEN
from tuiadvisor.stream.index import FILE_HEADER_BYTES
from tuiadvisor.stream.recordingindex import RecordingIndex
from tuiadvisor.stream.source import FileSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tuiadvisor.events import GivenWork
    from tuiadvisor.views.run_view import RunView


def frames_of(path: str, say: Callable[[str], None] = lambda _note: None) -> Iterator[bytes]:
    """All whole frames of a recording, in order. say: told at the end what is damaged or cut off, where anything is."""
    source = FileSource(path)
    try:
        while frames := source.read(0.0):
            yield from frames
        if note := source.status.note:
            say(note)
    finally:
        source.close()


def whole_view(
    path: str, given: GivenWork = NOTHING_GIVEN, say: Callable[[str], None] = lambda _note: None
) -> RunView:
    """The view at a recording's end, with what was over by then.

    given: work of a step, wins over what the recording says. say: told what is damaged or cut off, where anything is;
    the view's losses say so, too.
    """
    advisor, looks = Advisor(given=given), Looks()
    source = FileSource(path)
    try:
        while frames := source.read(0.0, piece_bytes(source.num_bytes)):
            advisor.feed_many(frames)
            looks.look(advisor, source.share)
        if note := source.status.note:
            say(note)
    finally:
        source.close()
    return with_note(looks.last(advisor.view()), note)


def with_note(view: RunView, note: str) -> RunView:
    """With what is damaged or cut off among what was not seen: JSON, reports and Python have no standard error."""
    if not note:
        return view
    return replace(view, losses=replace(view.losses, notes=(*view.losses.notes, note)))


def view_at(
    path: str, step: int, given: GivenWork = NOTHING_GIVEN, say: Callable[[str], None] = lambda _note: None
) -> RunView:
    """The view as a replay shows it at this job step, of what was recorded by then; given, say: as `whole_view`."""
    with RecordingIndex(path) as index:
        end = index.offset_of_step(step)
    advisor, offset = Advisor(given=given), FILE_HEADER_BYTES
    for frame in frames_of(path, say):
        if offset >= end:
            break
        advisor.feed_many([frame])
        offset += len(frame)
    return advisor.view_at(step)


def end_view(path: str) -> RunView:
    """The view at a recording's end alone, for lists of many."""
    advisor = Advisor()
    advisor.feed_many(frames_of(path))
    return advisor.view()


def finding_marks(view: RunView) -> tuple[tuple[int, str], ...]:
    """(step, label) of everything that begins at a known step, also of what was over later."""
    now = ((found.since_step, found.title) for found in view.findings)
    then = ((past.first_step, past.finding.title) for past in view.past)
    return tuple((step, title) for step, title in (*now, *then) if step is not None)
