"""A job that hangs, asked by the product itself: who has not entered which collective, live and in the recording."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from live_views import follow
from training import running

from tuiadvisor.advisor.fold import Advisor
from tuiadvisor.advisor.judge.hang import NO_ANSWER
from tuiadvisor.app.live_session import Session
from tuiadvisor.stream.source import FileSource, LiveSource
from tuiadvisor.views.run_view import RunView
from tuiadvisor.views.stall import Stall

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not hasattr(torch._C._distributed_c10d, "_dump_fr_trace_json"),
        reason="no flight recorder of Gloo (pip install 'torch>=2.13')",
    ),
]
SCRIPT = Path(__file__).parents[1] / "hanging_training.py"


@contextmanager
def hanging(
    tmp_path: Path, kind: str, num_ranks: int = 3, *, is_unasked: bool = False
) -> Iterator[tuple[LiveSource, Advisor, list[int], Path]]:
    """A job that was watched while it was well and is on its way into the hang; the recording.

    is_unasked: its launcher is stopped, so that how a rank ended can be read for as long as a busy agent needs.
    """
    when, path = tmp_path / "now", tmp_path / "run.tuirec"
    with (
        running(num_ranks, "--hang", kind, "--when", str(when), script=SCRIPT) as (training, ranks),
        Session([training.pid], str(path), "train.py", "") as session,
    ):
        advisor = Advisor()
        with closing(session.source()) as source:
            follow(source, advisor, lambda view: (view.last_step or 0) > 20 and len(view.ranks) == num_ranks)
            if kind == "stop":
                os.kill(ranks[-1].pid, signal.SIGSTOP)
            else:
                if is_unasked:
                    os.kill(training.pid, signal.SIGSTOP)
                when.touch()
            try:
                yield source, advisor, [rank.pid for rank in ranks], path
            finally:
                os.kill(training.pid, signal.SIGCONT)


def told(source: LiveSource, advisor: Advisor) -> Stall:
    """The stall once all flight recorders that can answer have: on a busy machine one comes later."""

    def is_told(view: RunView) -> bool:
        stall = view.stall
        return (
            stall is not None and bool(stall.evidence) and NO_ANSWER not in {why for _, why in stall.unasked}
        )

    view = follow(source, advisor, is_told)
    assert view.stall is not None
    (finding,) = [each for each in view.findings if each.id == "hang"]
    assert view.stall.evidence == finding.evidence["collectives"]
    assert view.stall.evidence in finding.message
    assert "hang" == view.verdict.decision
    return view.stall


def test_the_rank_that_skips_a_collective_is_named_with_it_and_so_does_the_recording(tmp_path: Path) -> None:
    """Ranks 0 and 1 wait in the all-reduce that rank 2 has not entered; the file says the same afterwards."""
    with hanging(tmp_path, "skip") as (source, advisor, _, path):
        stall = told(source, advisor)
        (wait,) = stall.collectives
        assert ("default_pg", "gloo:all_reduce", (0, 1), (2,), ()) == (
            wait.description, wait.operation, wait.waiting, wait.missing, wait.unknown,
        )  # fmt: skip
        call = f"all_reduce (collective {wait.seq} of group default_pg)"
        assert f"ranks 0 and 1 wait for rank 2, which has not entered {call}" == stall.words
        reread, again = FileSource(path), Advisor()
        while frames := reread.read(0):
            for frame in frames:
                again.feed(frame)
        reread.close()
        view = again.view()
        assert view.stall is not None
        assert (stall.words, stall.collectives) == (view.stall.words, view.stall.collectives)


@pytest.mark.extended
def test_ranks_in_different_collectives_are_told_and_nobody_is_missing(tmp_path: Path) -> None:
    """Rank 0 broadcasts where the others reduce."""
    with hanging(tmp_path, "differ") as (source, advisor, _, _):
        stall = told(source, advisor)
        assert () == stall.missing
        assert stall.different.endswith(": rank 0 broadcast, ranks 1 and 2 all_reduce")
        assert stall.different in stall.words


@pytest.mark.extended
def test_a_hang_of_a_subgroup_is_told_there_and_not_by_its_victims(tmp_path: Path) -> None:
    """Rank 0 waits for rank 1 in their pair; rank 2 waits for both in the group of all."""
    with hanging(tmp_path, "pair") as (source, advisor, _, _):
        stall = told(source, advisor)
        assert (1,) == stall.missing
        assert stall.words.endswith(
            "rank 1, which has not entered all_reduce (collective 1 of group 1, ranks 0 and 1)"
        )


@pytest.mark.extended
def test_a_stopped_rank_is_not_asked_and_nobody_else_is_named(tmp_path: Path) -> None:
    """SIGSTOP: the others' recorders say where they wait, and no more."""
    with hanging(tmp_path, "stop") as (source, advisor, pids, _):
        told(source, advisor)
        # That its thread is stopped may come with the next status.
        view = follow(source, advisor, lambda view: view.stall is not None and view.stall.held == "stopped")
        stall = view.stall
        assert stall is not None
        assert ("stopped", (2,), ((2, "it is stopped"),)) == (stall.held, stall.missing, stall.unasked)
        assert f"kill -CONT {pids[2]}" == stall.command
        assert "ranks 0 and 1 wait for rank 2, stopped by a signal or a debugger; they are in " in stall.words


def test_a_rank_that_left_by_os_exit_is_told_with_its_exit_code(tmp_path: Path) -> None:
    """Torchrun waits for the others, which wait for it: it was "which rank is missing was not observed"."""
    with hanging(tmp_path, "leave", is_unasked=True) as (source, advisor, _, _):
        view = follow(source, advisor, lambda view: view.stall is not None)
        assert view.stall is not None
        assert ((2,), (0, 1), "gone") == (view.stall.missing, view.stall.waiting, view.stall.held)
        assert "ranks 0 and 1 wait for rank 2, which left with exit code 0 after step " in view.stall.words
        assert "; ranks 0 and 1 still wait" in view.verdict.sentence


def test_an_evaluation_on_one_rank_is_told_as_that_and_is_no_hang(tmp_path: Path) -> None:
    """The others wait in a barrier for a rank whose model is in eval mode and that computes: it was a stall."""
    with hanging(tmp_path, "evaluate") as (source, advisor, _, _):
        said: list[str] = []

        def goes_on(view: RunView) -> bool:
            said.append(view.verdict.sentence)
            assert [] == [each for each in view.findings if each.id == "hang"]
            return any("in evaluation" in one for one in said) and not view.verdict.sentence.startswith(
                "No step"
            )

        follow(source, advisor, goes_on)
        told = [one for one in said if one.startswith("No step for ") and "seen to move" not in one]
        assert told
        assert all(": ranks 1 and 2 wait for rank 0, which is in evaluation (" in one for one in told), told


@pytest.mark.extended
def test_a_hang_inside_of_an_evaluation_is_told(tmp_path: Path) -> None:
    """Rank 0 sleeps within it."""
    with hanging(tmp_path, "evaluate-stuck") as (source, advisor, _, _):
        assert (0,) == told(source, advisor).missing


def test_a_rank_that_ends_alone_and_waits_for_the_others_in_its_finally_hangs(tmp_path: Path) -> None:
    """By sys.exit: they wait in their all-reduce. "Rank 2 is ending and has not finished" was said for ever."""
    with hanging(tmp_path, "end") as (source, advisor, _, _):
        stall = told(source, advisor)
        assert ((2,), (0, 1)) == (stall.missing, stall.waiting)
        how = "which is ending (KeyboardInterrupt or SystemExit) and stands in barrier"
        assert stall.words.startswith(
            f"ranks 0 and 1 wait for rank 2, {how}; ranks call different operations "
        )


@pytest.mark.extended
def test_a_rank_that_left_is_told_where_the_others_wait_unseen(tmp_path: Path) -> None:
    """They ask a store in a loop of Python: no hang is seen, but who is gone since when is."""
    with hanging(tmp_path, "leave-store", is_unasked=True) as (source, advisor, _, _):
        view = follow(source, advisor, lambda view: view.verdict.sentence.startswith("No step for "))
        assert view.stall is None
        assert " s: rank 2 left with exit code 0 after step " in view.verdict.sentence
        assert "; ranks 0 and 1 have made no step since" in view.verdict.sentence


@pytest.mark.extended
def test_who_writes_while_the_others_wait_in_a_barrier_is_not_said_to_hang(tmp_path: Path) -> None:
    """15 s without a hook: that it has not entered the barrier is said, and is over when the job goes on."""
    with hanging(tmp_path, "write") as (source, advisor, _, _):
        view = follow(source, advisor, lambda view: view.stall is not None or view.no_step is not None)
        assert view.stall is None
        assert view.no_step is not None
        words = "ranks 1 and 2 wait at a barrier for rank 0, which is in code without a hook"
        assert (words, False) == (view.no_step.words, view.no_step.is_at_work)
        assert [] == [each for each in view.findings if each.id == "hang"]
        step = view.last_step or 0
        view = follow(source, advisor, lambda view: (view.last_step or 0) > step + 20)
        assert view.stall is None
        assert [] == [each for each in view.findings if each.id == "hang"]
