"""What the screens show of a trace while it is read: progress, the steps so far as those of a part, nothing judged."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from test_import_kineto import Event, event, trace

from tuiadvisor.app.opening import LeftError, OpeningDesk
from tuiadvisor.cli.first_picture import FirstPicture
from tuiadvisor.importers import traceevents
from tuiadvisor.importers.imported import Reading
from tuiadvisor.importers.kinetorun import kineto_run
from tuiadvisor.tui.control.frame import notice
from tuiadvisor.tui.pages.device_work import DeviceWorkPage
from tuiadvisor.tui.pages.waiting import waiting

if TYPE_CHECKING:
    from pathlib import Path

    from tuiadvisor.tui.contract.feed import FeedState

NUM_STEPS = 30


class Told:
    """Stands for the screens: keeps what it was told."""

    def __init__(self, leaves_after: int = 1 << 30) -> None:
        self.opening = OpeningDesk(lambda _: None, "replay", "reading")  # type: ignore[arg-type,return-value]
        self.states: list[FeedState] = []
        self.leaves_after = leaves_after

    def tell(self, *told: Any) -> None:
        if len(self.states) >= self.leaves_after:
            self.opening.stop()
        self.opening.tell(*told)
        self.states.append(self.opening.latest())


def marks_and_operators(step: int) -> list[Event]:
    """A step of 10 ms, with operators behind its mark that take room in the file."""
    at = 1e9 + 10_000 * step
    mark = event(f"ProfilerStep#{step}", at, 10_000.0, "user_annotation")
    return [mark, *(event("aten::mm", at + 10 * n, 5.0, "cpu_op", pad="x" * 200) for n in range(40))]


def written(folder: Path, num_ranks: int) -> Path:
    """A file a rank; kernels stand behind everything else, as the profiler writes them."""
    folder.mkdir()
    for rank in range(num_ranks):
        events = [one for step in range(NUM_STEPS) for one in marks_and_operators(step)]
        events += [
            event("gemm", 1e9 + 10_000 * step, 9_000.0, stream=7, correlation=step)
            for step in range(NUM_STEPS)
        ]
        trace(folder / f"rank{rank}.json", events, rank, num_ranks)
    return folder


@pytest.fixture
def _in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traceevents, "CHUNK_BYTES", 1 << 14)
    monkeypatch.setattr("tuiadvisor.cli.first_picture.TELL_EVERY_S", 0.0)
    monkeypatch.setattr("tuiadvisor.cli.first_picture.PICTURE_EVERY_S", 0.0)
    monkeypatch.setattr("tuiadvisor.cli.first_picture.PICTURE_SHARE", 1e9)


@pytest.mark.slow
@pytest.mark.usefixtures("_in_small_pieces")
@pytest.mark.parametrize("num_ranks", [1, 2])
def test_steps_that_were_read_are_shown_as_a_part_and_never_judged(tmp_path: Path, num_ranks: int) -> None:
    """They grow while it is read; lengths are right at any moment, everything else is unknown."""
    told = Told()
    _, run = kineto_run(written(tmp_path / "job", num_ranks), progress=FirstPicture(told))  # type: ignore[arg-type]
    pictured = [state for state in told.states if state.view is not None]
    seen = [state.view.last_step for state in pictured if state.view is not None]
    assert len({*seen}) > 2
    assert min(one for one in seen if one is not None) < NUM_STEPS - 1
    shares = [state.progress[0] for state in told.states if state.progress is not None]
    assert shares == sorted(shares)
    assert 100 == shares[-1]
    for state in pictured:
        view = state.view
        assert view is not None
        assert view.verdict.decision is None
        assert "only a part of the traces was read so far" in view.verdict.sentence
        assert () == view.findings == view.stragglers == view.losses.ranks_missing
        assert 0.01 == pytest.approx(view.step.median_s or 0.01)
        assert None is view.step.seconds["forward"] is view.goodput
        assert not view.ended
        assert "(read so far)" in view.run.label
        kernels = "\n".join(row.text for row in DeviceWorkPage().lines(state, 80, 24))
        assert "The traces are still being read" in kernels
        (row,) = notice(state, 80, 24)
        assert "reading · only the steps read so far" in "".join(text for text, _ in row.spans)
    assert NUM_STEPS == len(run.ranks[0].steps)
    assert "kineto" == run.kind


@pytest.mark.usefixtures("_in_small_pieces")
def test_before_the_first_mark_what_was_read_is_told(tmp_path: Path) -> None:
    """No step yet: how many events, and of which file; a name obeys nobody."""
    folder = tmp_path / "job"
    folder.mkdir()
    events = [event("aten::mm", 1e9 + 10 * n, 5.0, "cpu_op", pad="x" * 200) for n in range(900)]
    trace(folder / "rank0\x1b[2J.json", [*events, *marks_and_operators(0)], 0, 1)
    told = Told()
    kineto_run(folder, progress=FirstPicture(told))  # type: ignore[arg-type]
    early = next(state for state in told.states if "events" in state.message)
    assert early.view is None
    assert "rank0?[2J.json; " in early.message
    assert "No step yet" in early.message
    assert any("of 100" in "".join(text for text, _ in row.spans) for row in waiting(early, 80, 24))


@pytest.mark.usefixtures("_in_small_pieces")
def test_who_leaves_ends_the_reading(tmp_path: Path) -> None:
    """Q does not wait for a gigabyte."""
    told = Told(leaves_after=2)
    with pytest.raises(LeftError):
        kineto_run(written(tmp_path / "job", 1), progress=FirstPicture(told))  # type: ignore[arg-type]
    assert 2 == len(told.states)


def test_a_desk_that_was_left_is_not_made() -> None:
    """The thread ends with nothing opened and nothing to complain of."""
    begun, left = threading.Event(), threading.Event()

    def make(opening: OpeningDesk) -> Any:
        begun.set()
        while True:
            left.wait(0.01)
            opening.tell("reading", "", None, None)

    opening = OpeningDesk(make, "replay", "reading")
    opening.begin()
    assert begun.wait(60)
    opening.stop()
    assert opening.failure is None


def test_pictures_take_a_bounded_part_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told a thousand times at one moment, the steps are worked out once."""
    monkeypatch.setattr("tuiadvisor.cli.first_picture.time.monotonic", lambda: 5.0)
    asked: list[int] = []

    def part() -> None:
        asked.append(1)

    picture = FirstPicture(Told())  # type: ignore[arg-type]
    picture._pictured_s, picture._wait_s = 4.0, 2.0
    for _ in range(1000):
        picture(Reading("rank0.json", 1, 1, 0.5, 100, part))
    assert [] == asked
