"""The line of code that makes a rank late, from a real training to the screens' card and the recording."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S, wait_until
from training import end, launch, wait_for_ranks

from tuiadvisor.agent import procfs, stack_samples
from tuiadvisor.agent.discovery import RankProcess
from tuiadvisor.app.live_feed import LiveFeed
from tuiadvisor.app.live_session import Session
from tuiadvisor.tui.contract.feed import Stacks
from tuiadvisor.views.stack_card import StackCard

pytest.importorskip("torch")
NO_DIFFERENCE = "no difference between rank 1 and rank 0 beyond sampling noise"
SCRIPT = Path(__file__).parents[1] / "sleeper_training.py"


def line_of(text: str) -> str:
    """file:line of the training's script where this stands."""
    lines = SCRIPT.read_text().splitlines()
    return f"{SCRIPT.name}:{next(index for index, line in enumerate(lines, 1) if text in line)}"


def told(*arguments: str) -> dict[str, Any]:
    """A command's document."""
    done = subprocess.run(
        [sys.executable, "-m", "tuiadvisor", *arguments], capture_output=True, check=True, timeout=PATIENCE_S
    )
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def looked(feed: LiveFeed, num_before: int) -> StackCard:
    """The card of a press, which ten more do not multiply."""
    for _ in range(11):
        feed.command(Stacks(1, "straggler"))

    def has_card() -> bool:
        view = feed.latest().view
        return (
            view is not None and len(view.cards) > num_before and view.cards[0].num_peer_samples is not None
        )

    wait_until(has_card, "the card is there")
    view = feed.latest().view
    assert view is not None
    assert len(view.cards) == num_before + 1
    return view.cards[0]


def sampled_from_inside(process: RankProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without py-spy a thread inside looks, within its budget, and is gone afterwards."""
    monkeypatch.setattr(stack_samples, "find_spy", lambda: None)
    budget_ppm, window_s = 2500, 1.0
    threads = set(procfs.threads(process.pid))
    target = stack_samples._Target(process, process.rank or 0, process.pid, False, budget_ppm, False)
    found = stack_samples._one(target, window_s)
    assert (found["way"], found["why"]) == ("inside", "")
    frames: Any = found["frames"]
    stacks: Any = found["stacks"]
    samples: Any = found["samples"]
    places = {
        f"{frame['file']}:{frame['line']}" for stack in stacks for frame in (frames[index] for index in stack)
    }
    assert f"tests/{line_of('time.sleep(seconds)')}" in places
    raw = json.loads(stack_samples.samples_inside(process, window_s, budget_ppm))
    assert raw["spent_ns"] <= 1.5 * raw["window_ns"] * budget_ppm / 1e6  # the last sample may go beyond
    assert len(samples) > 1

    def has_left() -> bool:
        return set(procfs.threads(process.pid)) <= threads

    wait_until(has_left, "the thread inside has ended")


def test_the_line_of_code_that_makes_a_rank_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 1 waits at a line of its own: the card names it; once it no longer does there is no difference."""
    file = tmp_path / "run.tuirec"
    training = launch(2, ["0.02", "0.02"], SCRIPT)
    try:
        ranks = wait_for_ranks(training, 2)
        with Session([rank.pid for rank in ranks], str(file), "sleeper", "sleeper") as session:
            feed = LiveFeed(session.source(), session.agent_error, session.request)
            feed.start()
            try:
                wait_until(
                    lambda: bool((view := feed.latest().view) and view.stragglers), "a straggler is named"
                )
                # On a crowded machine another line may truly take longer for 2 s, but not time after time.
                cards = [looked(feed, 0)]
                while cards[-1].lines[0].name != "wait" and len(cards) < 3:
                    cards.append(looked(feed, len(cards)))
                card = cards[-1]
                first = card.lines[0]
                assert (card.rank, card.peer, first.place, first.name) == (
                    1, 0, line_of("time.sleep(late_s)"), "wait",
                )  # fmt: skip
                assert (first.differs, first.peer_num) == (True, 0)
                assert card.step_s is not None
                assert first.seconds == pytest.approx(first.share * card.step_s)
                assert card.words.startswith("rank 1 spends ")
                alone = told("stacks", "1", "--lines", "--json", "--pid", *(str(rank.pid) for rank in ranks))
                assert (first.place, True) == (
                    alone["card"]["lines"][0]["place"], alone["card"]["lines"][0]["differs"],
                )  # fmt: skip
                os.kill(next(rank.pid for rank in ranks if rank.rank == 1), signal.SIGUSR1)
                twins = [looked(feed, len(cards))]  # likewise
                while twins[-1].words != NO_DIFFERENCE and len(twins) < 3:
                    twins.append(looked(feed, len(cards) + len(twins)))
                assert twins[-1].words == NO_DIFFERENCE
                sampled_from_inside(ranks[0], monkeypatch)
            finally:
                feed.stop()
    finally:
        end(training)
    document = told("diagnose", str(file), "--json")
    assert [one.words for one in reversed([*cards, *twins])] == [each["words"] for each in document["stacks"]]


ALONE = """
import time, torch
def read(): time.sleep(0.02)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
print('ready', flush=True)
while True:
    read()
    model(torch.ones(1, 8)).sum().backward()
    optimizer.step()
"""


def test_a_process_without_peers_is_told_its_own_lines(tmp_path: Path) -> None:
    """Nobody is there to be compared with, and that is said."""
    script = tmp_path / "alone.py"
    script.write_text(ALONE)
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        card = told("stacks", "--lines", "--json", "--pid", str(process.pid))["card"]
        assert (card["lines"][0]["place"], card["lines"][0]["name"], card["peer"]) == (
            "alone.py:3",
            "read",
            None,
        )
        assert "no peer's stacks were seen" in card["words"]
    finally:
        process.kill()
        process.communicate()
