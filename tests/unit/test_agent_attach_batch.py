"""Ranks attached for a moment: in together, and out again as they were, whatever becomes of each."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from patience import PATIENCE_S
from test_agent_attach import Probe, rank_process

from tuiadvisor.agent import attach_batch
from tuiadvisor.agent.attach import Injector
from tuiadvisor.agent.attach_batch import AttachBatch
from tuiadvisor.agent.discovery import RankProcess
from tuiadvisor.events import RankState
from tuiadvisor.inject import Identity, InjectError, Injection
from tuiadvisor_probes import ring as ring_file


class Ranks:
    """Processes with a played probe each, which comes up as it is put in and leaves when it is told from outside."""

    def __init__(self) -> None:
        self.probes: dict[int, Probe] = {}
        self.children: dict[int, subprocess.Popen[bytes]] = {}
        self.refused: set[int] = set()
        self.says: dict[int, bytes] = {}

    def add(self, rank: int | None, says: bytes | None = None) -> RankProcess:
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        self.children[child.pid], self.probes[child.pid] = child, Probe()
        self.says[child.pid] = says or b'{"rank": %d, "python": "3.11.7"}' % (rank or 0)
        return rank_process(child.pid, rank)

    @property
    def injector(self) -> Injector:
        return replace(Probe().injector(), inject=self.inject)

    def inject(self, target: Identity, code: str) -> Injection:
        if target.pid in self.refused:
            raise InjectError(target.pid, "ptrace_forbidden", "tracing is forbidden", "run as root")
        probe = self.probes[target.pid]
        found = probe.inject(target, code)
        if code == "#detach":
            probe.writer.put_u64(ring_file.OFFSET_STATE, ring_file.STATE_DETACHED)
        else:
            probe.come_up(self.says[target.pid])
        return found

    def codes(self, process: RankProcess) -> list[str]:
        """What was run in it: a ring's path for the probe, "#detach"."""
        return self.probes[process.pid].codes

    def end(self, process: RankProcess) -> None:
        self.children[process.pid].kill()
        self.children[process.pid].communicate()

    def close(self) -> None:
        for pid, child in self.children.items():
            child.kill()
            child.communicate()
            for writer in self.probes[pid].writers:
                writer.close()


@pytest.fixture(name="ranks")
def _ranks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ranks]:
    monkeypatch.setattr(attach_batch, "LEAVE_S", 0.0)  # none of them makes a step at which it could leave
    monkeypatch.setattr(attach_batch, "PUSH_OUT_S", PATIENCE_S)
    made = Ranks()
    yield made
    made.close()


def within_patience(attach: Callable[[], None]) -> bool:
    """Whether it returned because all was clear, not because its time was over."""
    begin_s = time.monotonic()
    attach()
    return time.monotonic() - begin_s < PATIENCE_S


def test_ranks_are_in_together_and_out_as_they_were(ranks: Ranks) -> None:
    """Who makes no step is taken out from outside; of the rings nothing is left."""
    processes = [ranks.add(rank) for rank in (0, 1)]
    with AttachBatch(processes, ranks.injector) as batch:
        assert within_patience(lambda: batch.attach(PATIENCE_S))
        assert [RankState.LIVE] * 2 == [link.state for link in batch.links]
        assert [0, 1] == [link.rank for link in batch.links]

    for process in processes:
        ring_path, detach = ranks.codes(process)
        assert "#detach" == detach
        assert not os.path.exists(ring_path)  # noqa: PTH110  # a text that an injection was given
    assert [RankState.DETACHED] * 2 == [link.state for link in batch.links]


def test_one_that_cannot_be_had_holds_nobody_up(ranks: Ranks) -> None:
    """Refused or ended: it is settled, with its reason, and the others are live."""
    well, refused, ended = (ranks.add(rank) for rank in (0, 1, 2))
    ranks.refused.add(refused.pid)
    ranks.end(ended)
    with AttachBatch([well, refused, ended], ranks.injector) as batch:
        assert within_patience(lambda: batch.attach(PATIENCE_S))
        states = [link.state for link in batch.links]
        assert [RankState.LIVE, RankState.REFUSED] == states[:2]
        assert batch.links[2].is_over
        assert "tracing is forbidden; run as root" == batch.links[1].detail
        assert not batch.advance(batch.links[2])


def test_only_the_chosen_ranks_are_kept(ranks: Ranks) -> None:
    """One whose number shows only inside it is looked at and let go; another is not even touched."""
    known, other, hidden, wanted = ranks.add(0), ranks.add(1), ranks.add(None), ranks.add(None)
    ranks.says[hidden.pid] = b'{"rank": 2, "python": "3.11.7"}'
    ranks.says[wanted.pid] = b'{"rank": 3, "python": "3.11.7"}'
    with AttachBatch([known, other, hidden, wanted], ranks.injector) as batch:
        assert within_patience(lambda: batch.attach(PATIENCE_S, chosen={0, 3}))
        assert [0, 3] == [link.rank for link in batch.links]
        assert [] == ranks.codes(other)
        assert "#detach" == ranks.codes(hidden)[-1]
        assert ["#detach"] not in (ranks.codes(known)[1:], ranks.codes(wanted)[1:])


def test_a_training_of_one_process_is_rank_0(ranks: Ranks) -> None:
    """It has no process group, and neither its environment nor its probe knows a rank."""
    with AttachBatch([ranks.add(None, says=b'{"python": "3.11.7"}')], ranks.injector) as batch:
        batch.attach(PATIENCE_S)
        assert [0] == [link.rank for link in batch.links]


def test_a_probe_that_does_not_say_who_it_is_is_waited_for_no_longer_than_asked(ranks: Ranks) -> None:
    """It is live, but what it runs in is not known yet."""
    with AttachBatch([ranks.add(0, says=b'{"rank": 0}')], ranks.injector) as batch:
        batch.attach(0.1)
        assert not attach_batch.is_settled(batch.links[0])
