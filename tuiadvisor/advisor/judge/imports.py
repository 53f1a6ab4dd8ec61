"""What an imported trace itself says of late ranks, beside what its steps come to.

In: findings and a verdict on a recording, and what the import said.  Out: the same without what would contradict it.
The import compares collective by collective on one clock; the steps hold sums only. So it has the last word on who
arrives last: where it names nobody, or could not compare, the steps name nobody either.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tuiadvisor.causes.cause import rank_words
from tuiadvisor.metrics.diagnosis import MIN_STEADY_STEPS
from tuiadvisor.views.run_view import Verdict

if TYPE_CHECKING:
    from tuiadvisor.advisor.judge.findings import Judged
    from tuiadvisor.views.run_view import Imported


MORE_TO_COME: Final = re.compile(r"^Not enough yet: ((\d+) more ([^.,]+))(?:, about .*?)?\.(?=\s|$)")
MORE_WOULD: Final = (
    "a capture of four times as many would leave chance half the room"  # of the root of their number
)
AGAIN_WOULD: Final = "when the job runs again tuiadvisor record sees it"
# Of the time ranks wait for those that come last: as rule straggler's moderate_loss.
MAX_WAITS_KEPT: Final = 0.05
OF_DUMPS: Final = "flight-recorder"  # kind of an import that holds a hang and no steps
# What is said of time within no phase, in words of a trace: no hook was there, and the job is over.
TRACE_WORDS: Final = (
    ("in code without a hook", "outside the phases that the trace shows"),
    ("in code that no hook sees", "outside the phases that the trace shows"),
    ("a part of the loop that no hook sees", "a part of the loop that the trace does not show"),
    (" (py-spy top --pid PID shows the lines)", ""),
)
LEAST_OF_BOUND: Final = 0.5  # op_verdict's NAMES_A_CAUSE: what explains half of a slowdown
NO_VERDICT: Final = Verdict(None, "", None, None, None, None, "", "")
WOULD_TELL: Final = "traces of 20 steps of all ranks (torch.profiler) or tuiadvisor record would tell"
WHY_BLIND: Final = {
    "steplog": f"a log of steps tells how long they were, not what they waited for; {WOULD_TELL}",
    "spans": f"the log's spans are the host's, and what the devices did meanwhile is not in it; {WOULD_TELL}",
    "part": "only a part of the traces was read so far",
}


def why_blind(imported: Imported | None) -> str:
    """Why the steps of an import decide nothing, however many they are; empty where they may."""
    return "" if imported is None else WHY_BLIND.get(imported.kind, "")


def is_part(imported: Imported | None) -> bool:
    """Whether the source is still being read: what is not there yet is not missing."""
    return imported is not None and imported.kind == "part"


def may_be_apart(imported: Imported | None) -> bool:
    """Whether steps of one number may be of other moments on each rank: then they tell nobody's arrival."""
    return imported is not None and bool(imported.uncompared) and imported.late_ranks is None


def named_at_the_end(imported: Imported | None) -> tuple[int, ...] | None:
    """Whom an import that was read to its end names; None where more steps may come."""
    return None if imported is None or is_part(imported) else imported.late_ranks or ()


def in_words_of_a_trace(judged: list[Judged], imported: Imported | None) -> list[Judged]:
    """The findings as they are told of an import."""
    if imported is None:
        return judged
    return [
        replace(
            entry,
            headline=_of_trace(entry.headline),
            finding=replace(
                entry.finding,
                title=_of_trace(entry.finding.title),
                message=_of_trace(entry.finding.message),
                actions=tuple(replace(one, text=_of_trace(one.text)) for one in entry.finding.actions),
            ),
        )
        for entry in judged
    ]


def _of_trace(text: str) -> str:
    for live, traced in TRACE_WORDS:
        text = text.replace(live, traced)
    return text


def not_contradicted(judged: list[Judged], imported: Imported | None) -> list[Judged]:
    """Without findings that name ranks which the import does not."""
    if imported is None or (imported.late_ranks is None and imported.steps_tell):
        return judged
    named = set(imported.late_ranks or ())
    return [entry for entry in judged if entry.rule.scope != "straggler" or named >= set(entry.finding.ranks)]


def led_by_the_source(judged: list[Judged], imported: Imported | None) -> list[Judged]:
    """First what lies with the ranks that the source's own what-if names, where a mere bound stands before it.

    Both see the same loss: with a heavy stage a pipeline idles, and what more micro-batches could save at best is no
    more than what the stage costs. Below half of that bound the bound stays first.
    """
    if imported is None or not imported.cause_ranks or not judged or not judged[0].at_best:
        return judged
    bound_s = judged[0].finding.loss_s_per_step or 0.0
    for entry in judged[1:]:
        is_its = entry.finding.severity != "info" and {*entry.finding.ranks} == {*imported.cause_ranks}
        if is_its and (entry.finding.loss_s_per_step or 0.0) >= LEAST_OF_BOUND * bound_s:
            return [entry, *(one for one in judged if one is not entry)]
    return judged


def unconfirmed(judged: list[Judged], imported: Imported | None) -> tuple[int, ...]:
    """Ranks that the steps name and an import that could not compare its ranks does not."""
    if imported is None or imported.late_ranks is not None or imported.steps_tell:
        return ()
    late = [entry for entry in judged if entry.rule.scope == "straggler" and entry.finding.severity != "info"]
    return tuple(sorted({rank for entry in late for rank in entry.finding.ranks}))


def outweighed(found: Verdict, judged: list[Judged], late: tuple[int, ...]) -> bool:
    """Whether what ranks would cost that are late by the steps alone is more than what the verdict is about."""
    of_late = [
        one.finding for one in judged if one.rule.scope == "straggler" and {*one.finding.ranks} & {*late}
    ]
    chosen = [one.finding for one in judged if one.finding.id == found.finding]
    lost_s = max((one.loss_s_per_step or 0.0 for one in chosen), default=0.0)
    return max((one.loss_s_per_step or 0.0 for one in of_late), default=0.0) > lost_s


def of_import(
    verdict: Verdict,
    imported: Imported | None,
    late: tuple[int, ...] = (),
    *,
    is_less: bool = False,
    is_cut: bool = False,
    missing: tuple[int, ...] = (),
) -> Verdict:
    """With what the import says: a trace of few steps gets no more of them.

    late: as of `unconfirmed`. is_less: the verdict is about less than these cost, as of `outweighed`.
    is_cut: the source has more steps than were looked at. missing: ranks that nothing in it is of.
    """
    if imported is None:
        return verdict
    verdict = replace(verdict, sentence=_of_trace(verdict.sentence), because=_of_trace(verdict.because))
    is_open = verdict.decision == "keep" or (verdict.decision == "tune" and is_less)
    if is_open and (why := _why_not_kept(imported, late)):
        # What the import says leads the sentence already, see below.
        once = why.removesuffix(f", but {imported.because}") if imported.because in imported.says else why
        verdict = replace(NO_VERDICT, sentence=f"Not decided: {once}.", because=why, is_final=True)
    if why_blind(imported):
        return replace(verdict, sentence=_led(imported, verdict.sentence), because=imported.because)
    # Nobody can wait for more steps of a trace; where its ranks cannot be compared they need not decide, either.
    would = "would decide" if imported.late_ranks is not None else "are needed"
    sentence = MORE_TO_COME.sub(
        rf"Not enough steps looked at: \1 {would}." if is_cut else lambda found: _too_short(found, would),
        verdict.sentence,
    )
    if verdict.decision is None:
        sentence = _led(imported, sentence) + _all_would_tell(imported, missing)
    none = ", and the trace has no more" if verdict.decision is None and not is_cut else ""
    is_said = imported.because in sentence
    said = f"; the import: {imported.because}" if imported.because and not is_said else ""
    return replace(verdict, sentence=sentence, because=f"{verdict.because.rstrip('.')}{none}{said}")


def _all_would_tell(imported: Imported, missing: tuple[int, ...]) -> str:
    """Which ranks may be why nothing is decided, where the import itself does not say it already."""
    if not missing or is_part(imported) or "no trace" in imported.because:
        return ""
    return f" Nothing here is of {rank_words(missing)}; a capture of all ranks would tell."


def _too_short(found: re.Match[str], would: str) -> str:
    """What a trace lacks, and what the next one has to hold: of this one nobody gets more steps."""
    held = max(MIN_STEADY_STEPS - int(found[2]), 0)
    return (
        f"Not enough steps in this trace: it holds {held} of the {MIN_STEADY_STEPS} {found[3]} that {would}; the next "
        f"capture has to hold {MIN_STEADY_STEPS} in a row."
    )


def _why_not_kept(imported: Imported, late: tuple[int, ...]) -> str:
    """Why what the import found is no reason to keep a run as it is, though its steps are; empty: it may be kept."""
    if late:
        are = "is" if len(late) == 1 else "are"
        return (
            f"by the sums of its steps {rank_words(late)} {are} late, which the source cannot confirm; when the job "
            "runs again tuiadvisor record sees who arrives last"
        )
    if imported.uncompared:
        return (
            f"{rank_words(imported.uncompared)} could not be compared: communication ends together with no other "
            "rank's, as in traces of other steps or of another job; a capture that begins at the same step on all "
            "ranks would tell"
        )
    if imported.waits_share is not None and imported.waits_share >= MAX_WAITS_KEPT:
        would = "" if "a longer capture" in imported.because else f" ({MORE_WOULD})"
        why = f"the steps do not tell why{would}"
        if imported.late_ranks:
            who = rank_words(imported.late_ranks)
            why = f"the trace does not show what makes {who} late; {AGAIN_WOULD}"
        return f"{why}, but {imported.because}"
    return ""


def _led(imported: Imported, sentence: str) -> str:
    """What the import says, before that the steps decide nothing: whoever looks at the source hears the same first."""
    said = imported.says.strip().rstrip(".")
    return f"{said[0].upper()}{said[1:]}. {sentence}" if said else sentence
