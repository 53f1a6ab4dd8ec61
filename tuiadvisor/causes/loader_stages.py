"""What is said of a data loader's stages: who is behind, and whether more worker processes could help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.metrics.steps.loader_stage import joined, loader_wait

if TYPE_CHECKING:
    from tuiadvisor.causes.cause import Values
    from tuiadvisor.metrics.steps.loader_stage import LoaderBatches, LoaderWait, Stage

# Of the time until the batches were there: "in 93 % of that time no batch was ready, ...".
STAGE_WORDS: Final[dict[Stage, str]] = {
    "workers": "no batch was ready anywhere: its worker processes are behind",
    "turn": "later batches were ready and the next in turn was not: one worker is slower than the others",
    "pin": "finished batches lay before the thread that pins memory: that thread is behind",
    "ready": "a batch lay ready: taking it over (shared memory, unpickling, a core for the thread) is what takes long",
}
# More processes that make batches change nothing where made batches wait.
NO_MORE_WORKERS: Final[frozenset[Stage]] = frozenset({"turn", "pin", "ready"})
LITTLE_COLLATE: Final = 0.05  # of making a batch: below it nobody has to look there
METRICS: Final = """
job loader_words text which stage of the data loaders the ranks wait for; empty where it was not seen
job loader_batches count batches whose way through the data loader was seen in detail
job loader_pins flag 1 if made batches wait for the thread that pins memory; 0 if not, unknown where it was not seen
job loader_hands_over flag 1 if taking over a batch that lies ready takes long; 0 if not, unknown where it was not seen
job loader_keeps_turn flag 1 if ready batches wait for one whose turn it is; 0 if not, unknown where it was not seen
job collate_share share of the time in which the training thread makes a batch itself that it collates
job collate_words text the same in words; empty where it was not seen
"""


def measure(loaders: dict[int, LoaderBatches]) -> tuple[Values, LoaderWait | None]:
    """Of all ranks' loaders together."""
    together = joined(list(loaders.values()))
    wait = loader_wait(together) if together is not None else None
    stage = wait.stage if wait is not None and wait.stage else None
    return {
        "loader_words": stage_words(wait),
        "loader_batches": wait.num_batches if wait is not None else None,
        "loader_pins": _flag(stage, "pin"),
        "loader_hands_over": _flag(stage, "ready"),
        "loader_keeps_turn": _flag(stage, "turn"),
        "collate_share": wait.collate_share if wait is not None else None,
        "collate_words": _collate_words(wait),
    }, wait


def stage_words(wait: LoaderWait | None) -> str:
    """'; in 93 % of that time no batch was ready ...'; empty where no stage holds most of the time."""
    words = STAGE_WORDS.get(wait.stage) if wait is not None else None
    if wait is None or words is None:
        return ""
    until = "" if wait.seen_until is None else f" up to step {wait.seen_until:,}, with the same wait"
    return f"; in {100 * wait.share:.0f} % of that time {words} ({wait.num_batches} batches seen{until})"


def own_words(batches: LoaderBatches | None) -> str:
    """Of one late rank's loader, in brackets behind its phase; empty where nothing was seen."""
    wait = loader_wait(batches) if batches is not None else None
    if wait is None:
        return ""
    words = STAGE_WORDS.get(wait.stage)
    if words is not None:
        return f" (in {100 * wait.share:.0f} % of it {words})"
    made = "its training thread makes the batches itself, without workers"
    return f" ({made}{_collate_words(wait)})" if wait.stage == "own" else ""


def _collate_words(wait: LoaderWait | None) -> str:
    share = wait.collate_share if wait is not None else None
    return f", {100 * share:.0f} % of it in collate" if share is not None and share >= LITTLE_COLLATE else ""


def _flag(stage: Stage | None, name: Stage) -> int | None:
    return None if stage is None else int(stage == name)
