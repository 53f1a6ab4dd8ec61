"""A job on asynchronous devices that stands: that it does, in which collective, and who has not entered it.

The training (tests/asynchronous_hanging_training.py) knows nothing of us. Its ranks stand where those of CUDA do: in a
look at the loss, or where they launch, because the queue is full. `record` writes what is then folded as a screen does.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from patience import PATIENCE_S, wait_until
from training import running

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.stream.source import FileSource
from tuiadvisor.views.run_view import RunView
from tuiadvisor.views.stall import Stall

pytest.importorskip("torch")
from asynchronous_runs import tuiadvisor

pytestmark = [pytest.mark.slow, pytest.mark.alone]
SCRIPT = Path(__file__).parents[1] / "asynchronous_hanging_training.py"
NUM_STEPS = 30  # before it stops: the run has shown how long its steps are
RECORD_FOR = "4m"  # it is ended before


class Watched:
    """A recording that still grows, folded as it comes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        wait_until(path.exists, "record writes")
        self.source, self.advisor = FileSource(path, follow=True), Advisor()
        self.said: list[RunView] = []

    def until(self, condition: Callable[[RunView], object]) -> RunView:
        """The first view that satisfies it; all are kept."""

        def looks() -> bool:
            for frame in self.source.read(0.5):
                self.advisor.feed(frame)
            self.said.append(self.advisor.view())
            return bool(condition(self.said[-1]))

        wait_until(looks, seen=lambda: (self.said[-1].verdict, self.said[-1].stall))
        return self.said[-1]


@contextmanager
def stopping(folder: Path, kind: str, num_ranks: int, *arguments: str) -> Iterator[Watched]:
    """A training under `record` that was well for a while and has been told to stop."""
    when, path = folder / "now", folder / "run.tuirec"
    options = ["--stops", kind, "--when", str(when), *arguments]
    with running(num_ranks, *options, script=SCRIPT) as (training, _):
        command = ["record", "--pid", str(training.pid), "-o", str(path), "--for", RECORD_FOR]
        with subprocess.Popen(
            [sys.executable, "-m", "tuiadvisor", *command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as record:
            try:
                watched = Watched(path)
                watched.until(lambda view: (view.last_step or 0) > NUM_STEPS and len(view.ranks) == num_ranks)
                when.touch()
                yield watched
            finally:
                record.send_signal(signal.SIGINT)
                record.wait(PATIENCE_S)
        assert training.poll() is None, "the training must not notice"


def told(watched: Watched) -> Stall:
    """The hang once the flight recorders of all ranks were heard, live; the finding and the verdict say it, too."""

    def is_told(view: RunView) -> bool:
        stall = view.stall
        return stall is not None and bool(stall.evidence) and not stall.unasked

    view = watched.until(is_told)
    assert view.stall is not None
    for before in watched.said:  # before all were heard nobody else was named
        assert before.stall is None or set(before.stall.missing) <= set(view.stall.missing)
    (finding,) = [found for found in view.findings if found.id == "hang"]
    assert set(finding.ranks) == set(view.stall.missing)
    assert view.verdict.decision == "hang"
    return view.stall


LOOKS = [
    pytest.param(("--sync-every", "1"), id="all four look at the loss"),
    pytest.param(("--only-looks", "0"), id="rank 0 logs"),
    pytest.param(("--sync-every", "0"), id="nobody looks"),
]


@pytest.mark.parametrize(
    ("num_ranks", "looks"),
    [
        pytest.param(2, LOOKS[0].values[0], id="all look at the loss"),
        *[pytest.param(4, *looks.values, id=looks.id, marks=pytest.mark.extended) for looks in LOOKS],
    ],
)
def test_a_thread_that_never_launches_its_exchange_is_named_with_it(
    num_ranks: int, looks: tuple[str, ...], tmp_path: Path
) -> None:
    """The others have entered it, and what they launched behind it."""
    last = num_ranks - 1
    with stopping(tmp_path, "host", num_ranks, *looks) as watched:
        stall = told(watched)
        assert stall.missing == (last,)
        assert stall.waiting == tuple(range(last))
        first = stall.collectives[0]
        assert (first.operation, first.missing, first.unknown) == ("nccl:all_reduce", (last,), ())
        assert f"rank {last}, which has not entered all_reduce (collective {first.seq} " in stall.words
    # What was recorded says the same afterwards.
    document = json.loads(tuiadvisor("diagnose", str(watched.path), "--json").stdout)
    assert document["stall"]["missing"] == [last]
    assert document["stall"]["collectives"][0]["seq"] == first.seq


@pytest.mark.extended
@pytest.mark.parametrize("looks", LOOKS)
def test_a_device_that_stops_is_a_hang_and_nobody_is_named(looks: tuple[str, ...], tmp_path: Path) -> None:
    """All threads have launched the exchange, some of them many more; no device is through it."""
    with stopping(tmp_path, "device", 4, *looks) as watched:
        stall = told(watched)
        assert stall.missing == ()
        assert stall.waiting == (0, 1, 2, 3)
        (wait,) = stall.collectives
        assert (wait.operation, wait.missing, wait.unknown) == ("nccl:all_reduce", (), ())
        assert stall.evidence


@pytest.mark.extended
@pytest.mark.parametrize("kind", ["host", "device"])
def test_without_a_flight_recorder_nobody_is_named(kind: str, tmp_path: Path) -> None:
    """Rank 0 alone looks at the loss; the others stand where they launch, or where a batch does not come."""
    with stopping(tmp_path, kind, 4, "--only-looks", "0", "--no-recorder") as watched:
        view = watched.until(lambda view: view.stall is not None and "off" in str(view.stall.unasked))
        assert view.verdict.decision == "hang"
        assert view.stall is not None
        assert view.stall.waiting == (0, 1, 2, 3)
    assert {()} == {seen.stall.missing for seen in watched.said if seen.stall is not None}


@pytest.mark.extended
@pytest.mark.parametrize("looks", LOOKS)
@pytest.mark.parametrize(("kind", "pause_s"), [("pause", 4.0), ("save", 9.0)])
def test_a_pause_that_ends_is_no_hang(
    kind: str, pause_s: float, looks: tuple[str, ...], tmp_path: Path
) -> None:
    """Of one rank, for which all others wait: before, meanwhile and afterwards nobody calls it one."""
    with stopping(tmp_path, kind, 4, *looks, "--pause-s", str(pause_s)) as watched:
        step = watched.said[-1].last_step or 0
        watched.until(lambda view: (view.last_step or 0) > step + 2 * NUM_STEPS)
    assert not (tmp_path / "now").exists()
    for view in watched.said:
        assert view.stall is None
        assert [] == [found for found in view.findings if found.id == "hang"]
