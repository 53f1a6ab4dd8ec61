"""The places of the slider "what if": each finding cured, and twice the buckets; by the gains that were judged.

In: judged findings, the exchange's model, the mean step.  Out: Prospects; none where nothing was judged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.causes.cause import rank_words
from tuiadvisor.views.prospect import Prospect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tuiadvisor.advisor.judge.findings import Judged
    from tuiadvisor.views.communication import ExchangeView

WINDOW: Final = "90 % interval, from the loss measured in the judged steps"
MODEL: Final = "screen 4's model of one link, if compute leaves the exchange a core"


def prospects(
    judged: list[Judged], exchange: ExchangeView | None, mean_s: float | None
) -> tuple[Prospect, ...]:
    """In the order of the findings, then the buckets."""
    found = [*_cured(judged)]
    if exchange is not None and mean_s:
        found += _more_buckets(exchange, mean_s)
    return tuple(found)


def _cured(judged: list[Judged]) -> Iterator[Prospect]:
    for entry in judged:
        gain = entry.gain
        if gain is None or gain.loss_s <= 0 or gain.step_s <= 0:
            continue
        ranks = entry.finding.ranks
        whom = f"rank {ranks[0]} fixed" if len(ranks) == 1 else f"without “{entry.finding.title}”"
        if entry.cure:
            whom = f"{rank_words(ranks)} {entry.cure}"
        if entry.hides is not None and entry.hides.own is not None:
            whom += f", and without {entry.hides.words}"
        then_s = gain.step_s - gain.loss_s
        at_best = not ranks or entry.at_best  # what all ranks lose can be made less, seldom nothing
        yield Prospect(
            whom,
            gain.step_s,
            then_s,
            gain.step_s / gain.speedup_high,
            gain.step_s / gain.speedup_low,
            at_best,
            WINDOW,
            then_s / gain.step_s,
        )


def _more_buckets(exchange: ExchangeView, mean_s: float) -> Iterator[Prospect]:
    """The size of buckets that comes next to twice as many as there are."""
    wanted = 2 * len(exchange.buckets)
    more = [one for one in exchange.sizes if one.num_buckets >= wanted]
    if not more or not exchange.buckets:
        return
    chosen = min(more, key=lambda one: one.num_buckets)
    then_s = mean_s - min(max(chosen.saved_s, 0.0), mean_s)
    words = f"{chosen.num_buckets} buckets, not {len(exchange.buckets)} (cap {chosen.cap_mib} MiB)"
    yield Prospect(words, mean_s, then_s, then_s, mean_s, at_best=True, basis=MODEL, share=then_s / mean_s)
