"""What each pattern's station shows and concludes, from measured values and stated intent only.

In: Material.  Out: evidence items and one conclusion a pattern. Nothing is concluded from what was not observed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuiadvisor.session.ceilings import MEASURE_LINK, link
from tuiadvisor.session.decide import best_move, tuning, why_not
from tuiadvisor.session.economics import SECONDS_PER_HOUR, break_even_steps, step_without, warmup_share
from tuiadvisor.session.evidence import (
    compute_to_communication,
    fixed_and_growing,
    largest_parts,
    part_words,
    share_of_step,
)
from tuiadvisor.session.intent import not_stated
from tuiadvisor.session.measured import measured_answers
from tuiadvisor.session.remaining import MAX_LOST, startup
from tuiadvisor.session.seven import seven_questions
from tuiadvisor.session.sizes import ranking, sizes
from tuiadvisor.views.goodput import waterfall_words
from tuiadvisor.views.names import limit_name
from tuiadvisor_rules.message import seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from tuiadvisor.session.candidates import Candidate
    from tuiadvisor.session.evidence import Facts
    from tuiadvisor.session.material import Item, Material

RECORD: Final = "tuiadvisor record --for 60s -o run.rec"
NOT_STATED: Final = "not stated"
EXPOSED: Final = 0.1  # of the step: the kineto plugin's "deserves a look"


def _p1(material: Material) -> list[Item]:
    run, item = material.run, material.item
    parts = largest_parts(run)
    items = [
        item("step", None if run.step_s is None else seconds(run.step_s), RECORD),
        item("parts of the step", ", ".join(part_words(part) for part in parts[:5]) or None, RECORD),
    ]
    items += [item(f"finding {finding.id}", finding.message) for finding in run.findings]
    items += [item(f"note {finding.id}", finding.message) for finding in run.notes]
    if not run.findings and run.enough:
        items.append(item("findings", "none above info"))
    items += [
        item(name.replace("_", " "), f"{found.answer}: {found.because}")
        for name, found in measured_answers(run).items()
    ]
    following = material.verdict.next_constraint
    items.append(item("next constraint", following and following.replace("_", " "), RECORD))
    return items


def _p1_concludes(material: Material) -> str:
    run, verdict = material.run, material.verdict
    if not run.enough:
        why = run.why_undecided or "too few steady steps to name the stage that sets the pace"
        return f"Open: {why}."
    following = limit_name(verdict.next_constraint or "unknown")
    finding = next((entry for entry in run.findings if entry.id == verdict.finding), None)
    if finding is None:
        return f"No stage stands out above info; the longest part is {following}."
    bound = ""
    if finding.loss_s_per_step is not None and run.step_s is not None:
        left = step_without(run.step_s, (finding.loss_s_per_step,))
        bound = f" Without it a step would still take {seconds(left)};"
    title = finding.title[0].lower() + finding.title[1:]
    return f"What sets the pace: {title} (layer {finding.layer}).{bound} after that the constraint is {following}."


def _p2(material: Material) -> list[Item]:
    run, item = material.run, material.item
    parts = fixed_and_growing(run)
    split = None
    if parts is not None:
        split = f"{seconds(parts[0])} of a step stay the same at any batch, {seconds(parts[1])} grow with it"
    items = [item("fixed and growing part", split, RECORD)]
    cost_s = _warmup_s(run)
    warmup = (
        None if cost_s is None else f"slow first steps cost {seconds(cost_s)} beyond what they take later"
    )
    items.append(item("warm-up", warmup, "tuiadvisor run --record run.rec -- COMMAND"))
    lost = material.checkpoint_s
    items.append(
        item("one checkpoint", None if lost is None else seconds(lost), "record across two checkpoints")
    )
    items += _goodput(material)
    return items


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
        why = f", {100 * pace.lost:.2g} % lost to {_lost_to(material)} as stated" if pace.lost else ""
        items.append(item("goodput of the rest", f"{100 * ahead:.0f} %{why}"))
    return items


def _lost_to(material: Material) -> str:
    fails = bool(material.intent.failures_per_day)
    if material.pace.has_checkpoints:
        return "restarts, work done again and checkpoints" if fails else "checkpoints"
    return "restarts (work done again not counted: the checkpoint interval is unknown)"


def _p2_concludes(material: Material) -> str:
    said = []
    parts = fixed_and_growing(material.run)
    if parts is not None and sum(parts) > 0:
        gain = 2 * (parts[0] + parts[1]) / (parts[0] + 2 * parts[1]) if parts[1] else 2.0
        said.append(f"Twice the work a step would raise throughput at most {gain:.2f}x.")
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
    items = [material.item("objective", material.intent.objective or NOT_STATED)]
    items += [material.item(row.name, row.words()) for row in sizes(material)]
    items += [material.item(name, f"no alternative: {reason}") for name, reason in material.refused]
    return items


def _p3_concludes(material: Material) -> str:
    ranked = ranking(sizes(material))
    objective = material.intent.objective
    if not ranked:
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
    ratio = compute_to_communication(run)
    text = None if ratio is None else f"{ratio[0]:.2g} s of compute for a second of {ratio[1]}"
    exposed = share_of_step(run, run.comm_exposed_s)
    return [
        item("compute against communication", text, RECORD),
        item(
            "exposed communication", None if exposed is None else f"{100 * exposed:.0f} % of the step", RECORD
        ),
        *(item("scaling", row.scaling_words()) for row in sizes(material) if row.scaling_words()),
        *_workloads(material),
        *_ceilings(material),
    ]


def _workloads(material: Material) -> list[Item]:
    """Other workloads beside this one: each by its own measures, for a sample of one is no sample of the other."""
    if not material.different:
        return []
    rows = [
        material.item(
            f"workload {one.name}", workload_words(one, material.price, material.intent.device_power_w)
        )
        for one in (material.run, *material.different)
    ]
    note = "not ranked: their samples are different work; weigh total cost against what each result is worth"
    return [*rows, material.item("workloads", note)]


def workload_words(run: Facts, price: float | None, stated_power_w: float | None) -> str:
    """Compute to communication, efficiency, cost and energy of one configuration."""
    ratio = compute_to_communication(run)
    parts = [
        "devices unknown" if run.num_devices is None else f"{run.num_devices} devices",
        "compute to communication unknown"
        if ratio is None
        else f"{ratio[0]:.2g} s of compute for a second of {ratio[1]}",
        "goodput unknown" if run.goodput is None else f"goodput {100 * run.goodput:.0f} %",
        "MFU unknown" if run.mfu is None else f"MFU {100 * run.mfu:.0f} %",
    ]
    spent = _device_hours(run, 1000.0)
    if spent is not None:
        parts.append(f"1000 steps take {spent:.3g} device-hours")
        parts += [f"cost {spent * price:,.2f}"] if price is not None else []
        power_w = run.device_power_w if run.device_power_w is not None else stated_power_w
        parts.append("energy unknown" if power_w is None else f"{spent * power_w / 1000:.3g} kWh")
    return ", ".join(parts)


def _device_hours(run: Facts, num_steps: float) -> float | None:
    if run.step_s is None or run.num_devices is None:
        return None
    return run.num_devices * run.step_s * num_steps / SECONDS_PER_HOUR


def _ceilings(material: Material) -> list[Item]:
    """Where the exchange is worth the question: is it the link or the message?"""
    run = material.run
    if (
        run.backend not in {None, "nccl"}
        or run.num_devices == 1
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
    if material.run.num_devices == 1:
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
    items = [
        material.item(f"change for {one.finding}", candidate_words(one, material.run.step_s))
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
        gain = f"at most {seconds(one.gain_s.expected)} a step ({low} to {high})"
    whose = "by your estimate" if one.is_stated else "by the rule"
    parts = [gain]
    parts += (
        [f"effort {one.effort_hours:g} h {whose}"] if one.effort_hours is not None else ["effort unknown"]
    )
    parts += [f"risk {one.risk}", f"upkeep {one.upkeep}", f"tied to {one.ties}"]
    if one.saved_h is not None:
        parts.append(f"saves {one.saved_h.low:.3g} to {one.saved_h.high:.3g} h")
    if one.net is not None:
        parts.append(f"net {one.net.low:,.0f} to {one.net.high:,.0f}")
    if one.pays_below_h is not None:
        parts.append(f"pays if it takes less than {one.pays_below_h:.3g} h")
    parts += [f"below the cut-off: {one.why_not}"] if one.why_not else []
    parts += [one.order] if one.order else []
    return f"{'; '.join(parts)}: {one.action}"


def _p5_concludes(material: Material) -> str:
    if not material.run.findings:
        return "Nothing measured asks for a change: every one would add complexity for no proven gain."
    if material.case.prospect is None:
        return "The largest finding has no measured gain: it decides nothing before it is measured."
    refused = why_not(material.case, tuning(material.case))
    if refused:
        return f"The change does not pay: {refused}."
    if material.case.effort_hours is None:
        return "Worth trying in the order of effort; whether it pays is open until its effort is stated."
    return "The change pays on what is known."


def _p6(material: Material) -> list[Item]:
    run, case = material.run, material.case
    hours = case.hours_now
    devices = run.num_devices
    spent = None if hours is None or devices is None else hours * devices
    rows = [
        (
            "rest of the run",
            None if hours is None else f"{hours:.4g} h",
            "tuiadvisor intent --set remaining_steps=N",
        ),
        (
            "device-hours",
            None if spent is None else f"{spent:.4g}",
            "tuiadvisor intent --set remaining_steps=N",
        ),
        (
            "cost of the rest",
            None if spent is None or material.price is None else f"{spent * material.price:,.2f}",
            "tuiadvisor intent --set price_per_device_hour=X",
        ),
    ]
    if run.step_s and devices:
        rows.append(("device-hours of 1000 steps", f"{devices * run.step_s / 3.6:.3g}", ""))
    if devices and run.samples_per_step and run.step_s:
        rows.append(
            (
                "device-hours of a million samples",
                f"{devices * run.step_s / run.samples_per_step * 1e6 / 3600:.3g}",
                "",
            )
        )
    rows += _epoch(material)
    rows += _energy(material, spent)
    items = [material.item(*row) for row in rows]
    for entry in case.moves:
        price = ""
        if entry.cost_saved is not None and entry.hours_saved > 0 > entry.cost_saved:
            price = f"; each hour saved costs {-entry.cost_saved / entry.hours_saved:,.2f}"
        saved = f"{abs(entry.hours_saved):.3g} h {'sooner' if entry.hours_saved > 0 else 'later'}"
        items.append(
            material.item(
                f"{entry.num_devices} devices", f"{saved}, {entry.device_hours:.4g} device-hours{price}"
            )
        )
    missing = [name for name in not_stated(material.intent) if name != "currency"]
    items.append(material.item(NOT_STATED, ", ".join(missing) or "nothing"))
    return items


def _epoch(material: Material) -> list[tuple[str, str | None, str]]:
    """What one epoch takes, where its steps were stated."""
    num_steps = material.intent.steps_per_epoch
    spent = None if num_steps is None else _device_hours(material.run, num_steps)
    if spent is None:
        return []
    cost = "" if material.price is None else f", {spent * material.price:,.2f}"
    return [("device-hours of an epoch", f"{spent:.4g}{cost}", "")]


def _energy(material: Material, spent_h: float | None) -> list[tuple[str, str | None, str]]:
    """Of the rest and of a sample, by the devices' own meters, else by the power that was stated."""
    run, intent = material.run, material.intent
    power_w = run.device_power_w if run.device_power_w is not None else intent.device_power_w
    if power_w is None:
        return []
    whose = "measured" if run.device_power_w is not None else "stated"
    rows: list[tuple[str, str | None, str]] = [("power of a device", f"{power_w:.4g} W, {whose}", "")]
    if spent_h is not None:
        kwh = spent_h * power_w / 1000
        price = intent.energy_price_per_kwh
        rows.append(
            (
                "energy of the rest",
                f"{kwh:.4g} kWh" + (f", {kwh * price:,.2f}" if price is not None else ""),
                "",
            )
        )
    if run.samples_per_step and run.step_s and run.num_devices:
        joule = run.step_s * run.num_devices * power_w
        rows.append(("samples a joule", f"{run.samples_per_step / joule:.3g}", ""))
    return rows


def _p6_concludes(material: Material) -> str:
    case, intent = material.case, material.intent
    if material.pace.lost >= MAX_LOST:
        return "With the restarts and the checkpoint interval that are stated nothing would ever be finished."
    if case.hours_now is None:
        return "Open: how much of the run remains is not stated, so neither cost nor break-even can be told."
    said = []
    if intent.deadline_h is not None:
        met = "met" if case.hours_now <= intent.deadline_h else "missed"
        said.append(
            f"At this speed the deadline in {intent.deadline_h:.3g} h is {met} ({case.hours_now:.3g} h)."
        )
    else:
        said.append(f"The rest takes {case.hours_now:.3g} h; no deadline is stated.")
    said += _reckoning(material)
    if material.price is None:
        said.append("Without a price costs stay in device-hours.")
    said += _within_limits(material)
    best = best_move(case)
    if best is not None:
        said.append(f"Of the measured sizes {best.num_devices} devices serve the objective best.")
    elif not case.moves:
        said.append("The price of more speed needs a recording at another size.")
    return " ".join(said)


def _reckoning(material: Material) -> list[str]:
    """What the hours hold beside the steps."""
    pace, steps = material.pace, material.remaining_steps
    parts = []
    if pace.startup_s:
        parts.append(f"{seconds(pace.startup_s)} to start again")
    if pace.lost:
        parts.append(f"{100 * pace.lost:.2g} % lost to {_lost_to(material)}")
    if not parts or steps is None or pace.step_s is None:
        return []
    alone = steps * pace.step_s / SECONDS_PER_HOUR
    return [f"That is {alone:.3g} h of steps and {', '.join(parts)}."]


def _within_limits(material: Material) -> list[str]:
    """The cheapest measured size in time, and the fastest within the budget; where a limit is stated."""
    case, intent, said = material.case, material.intent, []
    if case.hours_now is None or case.num_devices is None:
        return []
    sizes_now = [(case.num_devices, case.hours_now, case.num_devices * case.hours_now)]
    rows = sizes_now + [(entry.num_devices, entry.hours, entry.device_hours) for entry in case.moves]
    if intent.deadline_h is not None:
        met = [row for row in rows if row[1] <= intent.deadline_h]
        cheapest = min(met, key=lambda row: (row[2], row[0]), default=None)
        size = "none of the measured ones" if cheapest is None else f"{cheapest[0]} devices"
        said.append(f"Cheapest size that meets the deadline: {size}.")
    if intent.budget is not None and material.price is not None:
        met = [row for row in rows if row[2] * material.price <= intent.budget]
        fastest = min(met, key=lambda row: (row[1], row[0]), default=None)
        size = "none of the measured ones" if fastest is None else f"{fastest[0]} devices"
        said.append(f"Fastest size within the budget: {size}.")
    return said


EVIDENCE: Final[dict[str, Callable[[Material], list[Item]]]] = {
    "P1": _p1, "P2": _p2, "P3": _p3, "P4": _p4, "P5": _p5, "P6": _p6,
}  # fmt: skip
CONCLUSIONS: Final[dict[str, Callable[[Material], str]]] = {
    "P1": _p1_concludes, "P2": _p2_concludes, "P3": _p3_concludes,
    "P4": _p4_concludes, "P5": _p5_concludes, "P6": _p6_concludes,
}  # fmt: skip
