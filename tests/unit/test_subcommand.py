"""Commands beside the screens: what they say meanwhile, at the end, and when they are cut short."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from patience import wait_until
from snapshot import views

from tuiadvisor.agent.hello import host_name
from tuiadvisor.app.live_feed import LiveFeed
from tuiadvisor.app.subcommand import Subcommand, _capture_sentence, _stacks_sentence
from tuiadvisor.stream.probe_request import ProbeRequest
from tuiadvisor.tui.contract.feed import Capture, Detail


def ended(subcommand: Subcommand) -> str:
    """Its sentence once it has ended."""
    wait_until(subcommand.look)
    return subcommand.sentence


def test_the_document_becomes_a_sentence() -> None:
    """Of a command that succeeds."""
    subcommand = Subcommand(["doctor"], "looking", lambda found: str(found["schema"]))
    assert "looking" == subcommand.sentence
    assert "1" == ended(subcommand)
    assert not subcommand.look()


@pytest.mark.slow
def test_the_last_line_of_a_complaint_is_the_sentence() -> None:
    """Of a command that fails: what, where, what next."""
    sentence = ended(Subcommand(["info", "/nowhere.tuirec"], "looking", lambda _: "never"))
    assert "/nowhere.tuirec" in sentence


def test_stopping_ends_it() -> None:
    """The screens leave no process behind."""
    subcommand = Subcommand(["info", "/nowhere.tuirec"], "looking", lambda _: "never")
    subcommand.stop()
    assert not subcommand.is_running


def test_capture_sentence_tells_overlap_place_and_cost() -> None:
    """And an unknown overlap as unknown."""
    cost = {"start_s": 0.001, "stop_s": 0.02, "write_s": None}
    entry = {"rank": 2, "file": "d/rank2.json", "why": None, "cost": cost}
    document: dict[str, Any] = {"capture": {"ranks": [entry]}, "per_rank": [{"rank": 2, "overlap": 0.254}]}
    said = _capture_sentence(document)
    assert "25 % of communication hidden" in said
    assert "d/rank2.json" in said
    assert said.endswith("21 ms pause")
    entry["why"] = "it ended after 1 of 3 steps: more would take more memory"
    assert _capture_sentence(document).endswith(
        "21 ms pause; it ended after 1 of 3 steps: more would take more memory"
    )
    entry["why"] = None
    document["per_rank"][0]["overlap"] = None
    assert "overlap unknown" in _capture_sentence(document)
    document["per_rank"] = [{"rank": None, "overlap": 0.254}]  # a trace that does not say of which rank it is
    assert "overlap unknown; trace in d/rank2.json" in _capture_sentence(document)


def test_stacks_sentence_tells_where_and_what_is_waited_for() -> None:
    """The innermost frame of the rank, who waits in which collective; a rank without frames says why."""
    stuck = [{"words": "rank 0 waits in barrier of group 0, sequence 7; rank 1 has not entered it"}]
    entry = {"rank": 1, "stack": ["read (data.py:3)"], "native": None, "call": None, "why": None}
    document: dict[str, Any] = {"stuck": stuck, "ranks": [entry]}
    said = _stacks_sentence(document)
    assert said.startswith("rank 1 is at read (data.py:3); rank 0 waits in barrier of group 0")
    entry |= {"stack": [], "why": "it is stopped"}
    assert _stacks_sentence(document).startswith("rank 1: it is stopped; rank 0 waits")


def test_a_rank_of_a_job_that_hangs_is_looked_at_and_not_profiled() -> None:
    """Without steps a window would never end; the answer names the command that fits."""
    feed = LiveFeed(SimpleNamespace(status=None), lambda: None)  # type: ignore[arg-type]
    view = views.straggler()
    feed.view = replace(view, findings=(replace(view.findings[0], id="hang"),))
    feed._obey(Capture(0))
    assert "there, run tuiadvisor stacks 0" in feed._notice()


def test_detail_is_asked_of_ones_own_agents_only() -> None:
    """All ranks, or the one that is open; the agents of another session take no requests from here."""
    requests: list[ProbeRequest] = []
    feed = LiveFeed(SimpleNamespace(status=None), lambda: None, requests.append)  # type: ignore[arg-type]
    feed._obey(Detail(()))
    feed._obey(Detail((2,)))
    assert [ProbeRequest(burst_ms=3000), ProbeRequest(burst_ms=3000, ranks=frozenset({2}))] == requests
    assert "rank 2: every call of the next 3 s" in feed._notice()
    visitor = LiveFeed(SimpleNamespace(status=None), lambda: None)  # type: ignore[arg-type]
    visitor._obey(Detail(()))
    assert "another session" in visitor._notice()


def test_a_rank_on_another_machine_is_not_captured_from_here() -> None:
    """The screens say where to run it."""
    feed = LiveFeed(SimpleNamespace(status=None), lambda: None)  # type: ignore[arg-type]
    feed.view = views.straggler()
    host = feed.view.ranks[0].host
    assert host != host_name()
    feed._obey(Capture(0))
    assert f"runs on {host}: there, run tuiadvisor capture 0" in feed._notice()
    feed._obey(Capture(99))
    assert "not known" in feed._notice()
