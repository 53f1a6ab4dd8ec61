"""What each pattern's station shows and concludes, from measured values and stated intent only.

In: Material.  Out: evidence items and one conclusion a pattern. Nothing is concluded from what was not observed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.phases import COMPUTE_AND_REST
from tuiadvisor.scaling.decide import sized
from tuiadvisor.session.candidates import LAST_RESORT
from tuiadvisor.session.ceilings import MEASURE_LINK, link
from tuiadvisor.session.cost_station import NOT_STATED, cost_conclusion, cost_evidence, device_hours, lost_to
from tuiadvisor.session.economics import break_even_steps, step_without, warmup_share
from tuiadvisor.session.evidence import (
    compute_to_communication,
    fixed_and_growing,
    gain_of_twice,
    largest_parts,
    late_parts,
    measured_parts,
    part_words,
    share_of_step,
    step_words,
)
from tuiadvisor.session.intent import PRESET
from tuiadvisor.session.limits import amount
from tuiadvisor.session.measured import measured_answers
from tuiadvisor.session.remaining import startup
from tuiadvisor.session.seven import seven_questions
from tuiadvisor.session.sizes import ranking, sizes
from tuiadvisor.session.sums import sum_words
from tuiadvisor.session.tuning import tuning, why_not
from tuiadvisor.views.goodput import waterfall_words
from tuiadvisor.views.measured import EXPOSED
from tuiadvisor.views.names import limit_name
from tuiadvisor_rules.message import seconds, share

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.session.candidates import Candidate
    from tuiadvisor.session.evidence import Facts
    from tuiadvisor.session.intent import Intent
    from tuiadvisor.session.material import Item, Material
    from tuiadvisor.views.run_view import PastFinding

RECORD: Final = "tuiadvisor record --for 60s -o run.tuirec"


def _span(past: PastFinding) -> str:
    steps = [f"{step:,}" for step in (past.first_step, past.last_step) if step is not None]
    return f"step {' to '.join(steps)}" if steps else "an unknown step"


def _p1(material: Material) -> list[Item]:
    run, item = material.run, material.item
    parts = largest_parts(run)
    items = [
        item("step", step_words(run), RECORD),
        item("parts of the step", ", ".join(part_words(part) for part in parts[:5]) or None, RECORD),
    ]
    items += [item("finding", finding.message) for finding in run.findings]
    items += [item("remark", finding.message) for finding in run.notes]
    if not run.findings and run.enough:
        items.append(item("findings", "none above info"))
    items += [
        item(
            f"over by now: {past.finding.id.replace('_', ' ')}",
            f"seen from {_span(past)}: {past.finding.message}",
        )
        for past in run.past
    ]
    items += [
        item(name.replace("_", " "), f"{found.answer}, {found.because}")
        for name, found in measured_answers(run).items()
    ]
    following = material.verdict.next_constraint
    items.append(item("next constraint", following and limit_name(following), RECORD))
    return items


def _p1_concludes(material: Material) -> str:
    run, verdict = material.run, material.verdict
    if not run.enough:
        why = run.why_undecided or "too few steady steps to name the stage that sets the pace"
        return f"Open: {why}."
    following = limit_name(verdict.next_constraint or "unknown")
    finding = next((entry for entry in run.findings if entry.id == verdict.finding), None)
    if finding is None:
        is_part = verdict.next_constraint in COMPUTE_AND_REST
        return f"No stage stands out above info; the {'longest part' if is_part else 'largest loss'} is {following}."
    bound, after = "", "After"
    if finding.loss_s_per_step is not None and run.step_s is not None:
        prospect = material.case.prospect
        left = step_without(run.step_s, (finding.loss_s_per_step,))
        if prospect is not None and prospect.finding == finding.id:
            left = run.step_s / max(prospect.expected, 1.0)  # as the verdict and the hypothesis say it
        bound, after = f" Without it a step would still take {seconds(left)};", "after"
    title = finding.title[0].lower() + finding.title[1:]
    return f"What sets the pace: {title} (layer: {finding.layer}).{bound} {after} that the constraint is {following}."


def _p2(material: Material) -> list[Item]:
    run, item = material.run, material.item
    recorded = measured_parts(run, material.others)
    parts = recorded or fixed_and_growing(run)
    split = None
    if parts is not None:
        split = f"{seconds(parts[0])} of a step stay the same at any batch, {seconds(parts[1])} grow with it"
        split += ", by the batches recorded" if recorded else " if compute and input grow in proportion"
    measure = TWICE_THE_BATCH if late_parts(run) else RECORD
    items = [item("fixed and growing part", split, measure)]
    cost_s = _warmup_s(run)
    warmup = (
        None if cost_s is None else f"slow first steps cost {seconds(cost_s)} beyond what they take later"
    )
    is_from_start = run.wall is not None and run.wall.from_start
    if warmup is None and is_from_start and run.wall is not None and run.wall.end_to_end is not None:
        warmup = "no slow first steps were seen beyond the start-up"
    longer = "a longer recording from the start: " if is_from_start else ""
    items.append(item("warm-up", warmup, f"{longer}tuiadvisor run -o run.tuirec -- COMMAND"))
    lost = material.checkpoint_s
    across = "record across two checkpoints"
    if run.has_checkpoint_steps:
        across += " that come alone: those seen were short beside their steps, or beside another pause"
    items.append(item("one checkpoint", None if lost is None else seconds(lost), across))
    once = once_words(material)
    items += [item("overhead by length", once)] if once else []
    items += _goodput(material)
    return items


TWICE_THE_BATCH: Final = "record the same training at twice the batch, then: tuiadvisor advise TWICE ONCE"
LENGTHS: Final = (1, 10, 100)
LITTLE: Final = 0.01  # of a run: what is paid once and takes less is amortized


def once_words(material: Material) -> str:
    """What is paid once as a share of runs of growing length, and from where on it hardly counts. "": not known."""
    run, intent = material.run, material.intent
    once_s = sum(cost for cost in (_warmup_s(run), startup(run, material.answers)) if cost)
    if not once_s or not run.step_s:
        return ""
    num_steps, unit = (
        (intent.steps_per_epoch, " epochs") if intent.steps_per_epoch else (1000.0, " thousand steps")
    )
    unit_s = num_steps * run.step_s
    shares = ", ".join(f"{100 * once_s / (once_s + length * unit_s):.2g} % of {length}" for length in LENGTHS)
    enough = once_s * (1 - LITTLE) / LITTLE / unit_s
    return (
        f"{seconds(once_s)} of start-up and warm-up are {shares}{unit}; "
        f"below {100 * LITTLE:.0f} % from {enough:.3g}{unit} on: twice the data halve the share"
    )


def _goodput(material: Material) -> list[Item]:
    """One figure of what was, one of what will be; the second is what hours and costs rest on."""
    run, item, pace = material.run, material.item, material.pace
    items = []
    if run.goodput is not None:
        of = "recorded time"
        if run.wall is not None and run.wall.end_to_end is not None:
            of = f"wall time {'from the start of the process' if run.wall.from_start else 'seen'}"
        items.append(item("goodput", f"{100 * run.goodput:.0f} % of the {of} was useful work"))
    if run.wall is not None and run.wall.waterfall:
        items.append(item("where it went", waterfall_words(run.wall)))
    ahead = pace.goodput(material.remaining_steps)
    if ahead is not None and (pace.lost or material.remaining_steps is not None):
        why = f", {100 * pace.lost:.2g} % lost to {lost_to(material)} as stated" if pace.lost else ""
        items.append(item("goodput of the rest", f"{100 * ahead:.0f} %{why}"))
    return items


def _p2_concludes(material: Material) -> str:
    said = []
    recorded, parts = measured_parts(material.run, material.others), fixed_and_growing(material.run)
    if recorded is not None:
        twice = gain_of_twice(recorded)
        said.append(f"By the batches recorded twice the work a step raises throughput {twice:.2f}x.")
    elif parts is not None and sum(parts) > 0:
        said.append(
            f"Twice the work a step would raise throughput {gain_of_twice(parts):.2f}x if compute and input grow in "
            "proportion, more where they do not: one batch does not tell."
        )
    elif late := late_parts(material.run):
        said.append(
            f"What twice the work a step brings is unknown: {late[0].title[0].lower()}{late[0].title[1:]}, and one "
            "batch does not tell whether that grows with it."
        )
    parts_s = [cost for cost in (_warmup_s(material.run), startup(material.run, material.answers)) if cost]
    if parts_s and material.remaining_steps and material.run.step_s:
        cost_s = sum(parts_s)
        share = warmup_share(cost_s, material.remaining_steps, material.run.step_s)
        said.append(f"Starting again would cost {seconds(cost_s)}, {100 * share:.2g} % of what remains.")
    said += _compiled(material)
    plan = material.checkpoints
    if plan is not None:
        now = ""
        if plan.current_h is not None and plan.current_lost_share is not None:
            now = f"; every {60 * plan.current_h:.3g} min as now loses {100 * plan.current_lost_share:.2g} %"
        said.append(
            f"Checkpoints every {60 * plan.interval_h:.3g} min lose least, "
            f"{100 * plan.lost_share:.2g} % of the time{now}."
        )
    return (
        " ".join(said) or "Open: neither the fixed part of a step nor warm-up or checkpoints were observed."
    )


def _warmup_s(run: Facts) -> float | None:
    """Of the waterfall, which has the very first step too; else of the finding."""
    if run.wall is not None and run.wall.end_to_end is not None:
        return next((part.seconds for part in run.wall.waterfall if part.kind == "warmup"), None)
    warmup = next((entry for entry in run.notes if entry.id == "warmup"), None)
    cost_s = warmup.evidence.get("warmup_s") if warmup else None
    return float(cost_s) if isinstance(cost_s, int | float) else None


def _compiled(material: Material) -> list[str]:
    """Slow first steps against shorter ones after: compilation, autotuning, caching, measured by two recordings."""
    run, said = material.run, []
    for other in material.others:
        slow, fast = _warmup_s(run) or 0.0, _warmup_s(other) or 0.0
        if other.num_devices != run.num_devices or not (run.step_s and other.step_s) or fast <= slow:
            continue
        if not (run.samples_per_step and run.samples_per_step == other.samples_per_step):
            continue
        said.append(_paid_back(material, other.name, fast - slow, run.step_s - other.step_s))
    return said


def _paid_back(material: Material, name: str, lost_s: float, saved_s: float) -> str:
    steps, remaining = break_even_steps(lost_s, saved_s), material.remaining_steps
    text = f"{name} loses {seconds(lost_s)} more in slow first steps and its steps are "
    if steps is None:
        return text + "no shorter: it never pays."
    left = ""
    if remaining is not None:
        left = f"; {remaining:,.0f} remain, so it {'pays' if steps <= remaining else 'does not pay'}"
    return text + f"{seconds(saved_s)} shorter: earned back after {steps:,.0f} steps{left}."


def _p3(material: Material) -> list[Item]:
    items = [material.item("objective", _objective_words(material.intent))]
    items += [material.item(row.name, row.words()) for row in sizes(material)]
    items += [material.item(name, f"no alternative: {reason}") for name, reason in material.refused]
    return items


def _objective_words(intent: Intent) -> str:
    """And what it is preset by: a stated one has no purpose beside it that decides."""
    if intent.objective is None:
        return NOT_STATED
    is_preset = intent.purpose is not None and intent.objective == PRESET[intent.purpose]
    return (
        f"{intent.objective}, as a purpose that is {intent.purpose} asks for"
        if is_preset
        else intent.objective
    )


def _p3_concludes(material: Material) -> str:
    rows = sizes(material)
    ranked = ranking(rows)
    objective = material.intent.objective
    if not ranked and len(rows) > 1 and len({row.num_devices for row in rows}) == 1:
        text = f"{len(rows)} runs of one size: tuiadvisor compare tells whether one is faster."
    elif not ranked:
        text = "One configuration was recorded: metrics cannot disagree yet."
    elif len(set(ranked.values())) == 1:
        text = f"All three metrics prefer {next(iter(ranked.values()))}."
    else:
        text = (
            "The metrics disagree: "
            + ", ".join(f"{name} prefers {best}" for name, best in ranked.items())
            + "."
        )
    if objective is None:
        return f"{text} No objective is stated, so no configuration is preferred: tuiadvisor intent --set objective=…"
    return f"{text} You decide by {objective}" + (f": {ranked[objective]}." if objective in ranked else ".")


def _p4(material: Material) -> list[Item]:
    run, item = material.run, material.item
    exposed = share_of_step(run, run.comm_exposed_s)
    exposed_words = None if exposed is None else f"{100 * exposed:.0f} % of the step"
    return [
        item("compute against communication", _ratio_words(run), RECORD),
        *([] if run.num_ranks == 1 else [item("exposed communication", exposed_words, RECORD)]),
        *(item("scaling", row.scaling_words()) for row in sizes(material) if row.scaling_words()),
        *_arithmetic(material),
        *_workloads(material),
        *_ceilings(material),
    ]


def _arithmetic(material: Material) -> list[Item]:
    """MFU, or what it lacks; nothing of a recording that says nothing of its program."""
    run = material.run
    if run.mfu is None and not run.mfu_why:
        return []
    words = None if run.mfu is None else f"{share(run.mfu)} of what the devices could compute"
    return [material.item("MFU", words, run.mfu_why)]


def _workloads(material: Material) -> list[Item]:
    """Other workloads beside this one: each by its own measures, for a sample of one is no sample of the other."""
    if not material.different:
        return []
    several = (material.run, *material.different)
    ratios = [compute_to_communication(one) for one in several if one.num_ranks != 1]
    # All of it and what is exposed of it are two measures: side by side stands the one that every run has.
    is_mixed = len({ratio[1] for ratio in ratios if ratio is not None}) > 1
    rows = [
        material.item(
            f"workload {one.name}",
            workload_words(one, material.price, material.intent.device_power_w, of_exposed=is_mixed),
        )
        for one in several
    ]
    note = "not ranked: their samples are different work; weigh total cost against what each result is worth"
    return [*rows, material.item("workloads", note)]


NO_PEER: Final = "no communication: one rank"


def _ratio_words(run: Facts, *, of_exposed: bool = False) -> str | None:
    """None: not seen. of_exposed: for who compares it with runs of which no more is known."""
    if run.num_ranks == 1:
        return NO_PEER
    ratio = compute_to_communication(run, of_exposed=of_exposed)
    return None if ratio is None else f"{ratio[0]:.2g} s of compute for a second of {ratio[1]}"


def workload_words(
    run: Facts, price: float | None, stated_power_w: float | None, *, of_exposed: bool = False
) -> str:
    """Compute to communication, efficiency, cost and energy of one configuration."""
    parts = [
        "devices unknown" if run.num_devices is None else sized(run.num_devices),
        _ratio_words(run, of_exposed=of_exposed) or "compute to communication unknown",
        "goodput unknown" if run.goodput is None else f"goodput {100 * run.goodput:.0f} %",
        "MFU unknown" if run.mfu is None else f"MFU {share(run.mfu)}",
    ]
    spent = device_hours(run, 1000.0)
    if spent is not None:
        parts.append(f"1000 steps take {spent:.3g} device-hours")
        parts += [f"cost {sum_words(spent * price)}"] if price is not None else []
        power_w = run.device_power_w if run.device_power_w is not None else stated_power_w
        parts.append(
            "energy unknown: state device_power_w" if power_w is None else f"{spent * power_w / 1000:.3g} kWh"
        )
    return ", ".join(parts)


def _ceilings(material: Material) -> list[Item]:
    """Where the exchange is worth the question: is it the link or the message?"""
    run = material.run
    if (
        run.backend not in {None, "nccl"}
        or run.num_ranks == 1
        or (share_of_step(run, run.transfer_s) or 0.0) < EXPOSED
    ):
        return []
    found = link(run, material.machine)
    known = not found.answer.startswith("Unknown")
    return [material.item("link or message", found.answer if known else None, MEASURE_LINK)]


def _p4_concludes(material: Material) -> str:
    ratio = compute_to_communication(material.run)
    several = [row for row in sizes(material) if row.scaling_words()]
    if several:
        text = "Measured sizes: " + "; ".join(row.scaling_words() or "" for row in several) + "."
        if any(row.regime != "strong" for row in several):
            text += " The total batch differs: a larger one may need more samples for the same result."
        return text
    if material.run.num_ranks == 1:
        return (
            "One device: there is no gradient communication; what more devices would lose is unknown until a second "
            "size is run."
        )
    if ratio is None:
        return "Open: compute or communication was not observed."
    leaning = "communication outweighs compute: more devices would mostly add waiting" if ratio[0] < 1 else (
        "compute outweighs communication; how far that holds with more devices needs a second size")  # fmt: skip
    return f"At this size {leaning}."


def _p5(material: Material) -> list[Item]:
    titles = {found.id: found.title for found in reversed(material.run.findings)}
    items = [
        material.item(
            f"change: {titles.get(one.finding, one.finding)}", candidate_words(one, material.run.step_s)
        )
        for one in material.candidates
    ]
    lacking = [name for name in PRICES_A_CHANGE if getattr(material.intent, name) is None]
    if items and lacking:
        items.append(material.item("net saving", None, f"tuiadvisor intent --set {lacking[0]}=N"))
    card = seven_questions(material.run, material.candidates, material.answers)
    return [*items, *(material.item(question, answer, measure) for question, answer, measure in card)]


PRICES_A_CHANGE: Final = ("remaining_steps", "price_per_device_hour", "engineer_hour_price")


def candidate_words(one: Candidate, step_s: float | None) -> str:
    """A change as a purchase, in one line."""
    gain = "gain unknown"
    if one.gain_s is not None and step_s is not None:
        low, high = seconds(max(one.gain_s.low, 0.0)), seconds(one.gain_s.high)
        gain = f"at most the loss of {seconds(one.gain_s.expected)} a step ({low} to {high})"
    whose = "by your estimate" if one.is_stated else "by the rule"
    parts = [gain]
    parts += (
        [f"effort {one.effort_hours:g} h {whose}"] if one.effort_hours is not None else ["effort unknown"]
    )
    parts += [f"risk {one.risk}", f"upkeep {one.upkeep}", f"tied to {one.ties}"]
    if one.saved_h is not None:
        parts.append(f"saves {one.saved_h.low:.3g} to {one.saved_h.high:.3g} h once it is made")
    if one.net is not None:
        parts.append(f"net {amount(one.net.low)} to {amount(one.net.high)}")
    if one.pays_below_h is not None:
        parts.append(f"pays if it takes less than {one.pays_below_h:.3g} h")
    parts += [f"below the cut-off: {one.why_not}"] if one.why_not else []
    parts += [one.order] if one.order else []
    return f"{'; '.join(parts)}: {one.action}"


def _p5_concludes(material: Material) -> str:
    if not material.run.findings:
        return "Nothing measured asks for a change: every one would add complexity for no proven gain."
    if material.case.unpriced is not None:
        return "What the largest finding costs was not measured: try its cheapest change, and measure again."
    if material.case.prospect is None:
        return "The largest finding has no measured gain: it decides nothing before it is measured."
    refused = why_not(material.case, tuning(material.case))
    if refused:
        return f"The change does not pay: {refused}."
    return (
        "The change pays on what is known." if material.case.effort_hours is not None else _by_order(material)
    )


def _by_order(material: Material) -> str:
    """Of changes whose effort is a rule's word."""
    cut = sorted({one.why_not for one in material.candidates} - {LAST_RESORT})
    if cut and all(cut):
        return (
            f"None passes the cut-off by its rule's hours: {'; '.join(cut)}. It pays if it is ready sooner, or where "
            "more runs are planned."
        )
    return "Worth trying in the order of effort; whether it pays is open until its effort is stated."


EVIDENCE: Final[dict[str, Callable[[Material], list[Item]]]] = {
    "P1": _p1, "P2": _p2, "P3": _p3, "P4": _p4, "P5": _p5, "P6": cost_evidence,
}  # fmt: skip
CONCLUSIONS: Final[dict[str, Callable[[Material], str]]] = {
    "P1": _p1_concludes, "P2": _p2_concludes, "P3": _p3_concludes,
    "P4": _p4_concludes, "P5": _p5_concludes, "P6": cost_conclusion,
}  # fmt: skip
