"""A verdict to keep names the largest loss beside it, also where a smaller one that blames nobody comes first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from synthetic_run import MS, Fault, Job, folded, frames
from test_advisor_oddities import crowd_frames

from tuiadvisor.advisor.judge.verdict import _largest

STEP_S = 0.0056


def judged(headline: str, loss_s: float) -> Any:
    """A finding with its loss, sure to a tenth."""
    gain = SimpleNamespace(loss_s=loss_s, loss_low_s=0.9 * loss_s, step_s=STEP_S)
    return SimpleNamespace(headline=headline, gain=gain)


EXCHANGE = judged("80 % of the step is exposed gradient communication, on an oversubscribed host", 0.0045)
ROTATING = judged("a rotating straggler costs 10 % of the step", 0.00057)
UNKNOWN: Any = SimpleNamespace(headline="a host busy with other work", gain=None)


def test_the_larger_loss_beside_one_that_blames_nobody_is_named() -> None:
    """Goodput 8 %, four fifths of the step on the wire: the sentence named the rotating tenth alone."""
    said = f" Largest loss seen: {EXCHANGE.headline}."
    assert _largest([ROTATING, UNKNOWN, EXCHANGE], beside=ROTATING) == said
    assert _largest([EXCHANGE, ROTATING], beside=ROTATING) == said


def test_what_the_sentence_says_already_is_not_said_twice() -> None:
    assert _largest([EXCHANGE, ROTATING], beside=EXCHANGE) == ""
    assert _largest([ROTATING, UNKNOWN], beside=ROTATING) == ""
    assert _largest([UNKNOWN], beside=UNKNOWN) == _largest([]) == ""


def test_a_step_that_hardly_computes_is_kept_for_want_of_a_cause_not_of_a_loss() -> None:
    """Compute 5 %, four fifths on the wire beside other work: "no loss is worth acting on" stood below it."""
    job = Job(num_ranks=2, num_steps=400, faults=(Fault("comm", None, 60 * MS),))
    view = folded([*frames(job), *crowd_frames(job, run_queue=13, wait_share=0.05)]).view()
    assert view.verdict.decision == "keep"
    (kept,) = [finding for finding in view.findings if finding.id == "healthy"]
    for said in (view.verdict.sentence, kept.title, kept.message, view.verdict.because):
        assert "worth acting on" not in said
    assert "compute is only" in view.verdict.sentence
    assert "compute takes only" in kept.message
    calm = folded(frames(Job(num_ranks=2, num_steps=400))).view()
    assert "no loss found is worth acting on; the mean step takes" in calm.verdict.sentence
