"""Parts of the overview, each a pure function from a RunView to lines of a given width.

The overview arranges them to the size of the screen; `once` prints them one after the other.
"""

from __future__ import annotations

from time import localtime, strftime
from typing import TYPE_CHECKING

from rich.cells import cell_len

from tuiadvisor.text import format as text_of
from tuiadvisor.text.goodput import name_of
from tuiadvisor.text.line import Line, Span, crop, fit, indent, length, line, spread, wrap, wrap_within
from tuiadvisor.text.wording import counted_losses
from tuiadvisor.tui.draw import bars
from tuiadvisor.views.lost_by import LENSES, NOWHERE, lens_share

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tuiadvisor.views.run_view import DeviceView, Finding, ProbeWork, RunView

DECISIONS = {"tune": "◆ TUNE", "rescale": "⇄ RESCALE", "stop": "■ STOP", "keep": "✓ KEEP", "hang": "■ HANG"}
SEVERITIES = {"critical": "■ critical", "warning": "▲ warning", "info": "● info"}
SEVERITY_ROLES = {"critical": "bad", "warning": "warn", "info": "accent"}
SEVERITY_WIDTH = 15  # of severity, pattern and the blank before a finding's sentence
LEAST_TOLD = 0.01  # of the wall time: less is missing by rounding, too


NO_STEP_SEEN = "no step was seen"
WHERE_IT_STANDS = "Does it hang? C shows the line of code at which each rank stands."


def stands_from_the_start(view: RunView) -> bool:
    """No step was seen, and of each live rank it was found out why: it may have hung before anybody came."""
    live = [row for row in view.ranks if row.state == "live"]
    return view.last_step is None and bool(live) and all(row.state_detail for row in live)


def not_enough(view: RunView) -> str:
    """Return "not enough yet: 12 more steps", or "" where there is enough for a verdict."""
    if view.window.enough:
        return ""
    if view.window.why_undecided:
        return f"not decided: {view.window.why_undecided}"
    if view.window.no_step_words:
        return f"not enough yet: {view.window.no_step_words}"
    missing = view.window.num_missing_steps
    return f"not enough yet: {text_of.count(missing, 'more step')}" if missing > 0 else "not enough steps yet"


def badge(decision: str, *, is_open: bool) -> tuple[str, str]:
    """Return the words and colours of a session's decision; is_open: there is none yet."""
    return (" … NOT YET ", "badge") if is_open else (f" {DECISIONS[decision]} ", badge_role(decision))


def badge_role(decision: str) -> str:
    """Return the colours of a decision: a hang is as red as what is to be stopped."""
    return f"badge:{'stop' if decision == 'hang' else decision}"


def verdict(view: RunView, width: int, max_rows: int) -> list[Line]:
    """Return badge and sentence, then what follows from it, in at most `max_rows` rows."""
    decision = view.decided.decision
    open_badge = " … OPEN " if view.window.why_undecided else " … NOT YET "
    badge = f" {DECISIONS[decision]} " if decision else open_badge
    role = badge_role(decision) if decision else "badge"
    sentence = view.decided.sentence
    if view.stall is not None:
        # A hang comes before what could be tuned: nothing can while no step completes.
        badge, role = " ■ STALLED ", "badge:stop"
        sentence = sentence.removeprefix("Stalled:").strip()
    if decision and sentence.lower().startswith(f"{decision}:"):
        sentence = sentence.partition(":")[2].strip()
    waiting = not_enough(view)
    if (
        waiting
        and decision is None
        and not any(words in sentence.lower() for words in ("not enough", "not decided"))
    ):
        sentence = f"{waiting}. {sentence}".strip()
    room = width - len(badge) - 1
    rows = wrap(sentence or "no verdict yet", room)
    lines = [line((badge, role), " ", (text, "strong")) for text in rows[:1]]
    lines += [indent(line((text, "strong")), len(badge) + 1) for text in rows[1:]]
    if stands_from_the_start(view) and not view.ended:
        lines = [*_cut(lines, max_rows - 1, width), indent(line((WHERE_IT_STANDS, "accent")), len(badge) + 1)]
    if view.decided.would_change:
        change = wrap(f"would change it: {view.decided.would_change}", room)
        lines = _cut(lines, max(max_rows - len(change), 1), width)
        lines += [indent(line((text, "dim")), len(badge) + 1) for text in change]
    elif view.decided.next_constraint and len(lines) < max_rows - 1:
        limit = view.decided.next_constraint
        link = ":" if decision == "keep" else " is"
        words = f"{text_of.following_label(decision, limit)}{link} {text_of.phase_name(limit)}"
        lines.append(indent(line((words, "dim")), len(badge) + 1))
    return _cut(lines, max_rows, width)


def lenses(view: RunView, width: int) -> list[Line]:
    """Return all four lenses in one row: what each takes of the wall time, or the figure that stands for it."""
    if view.wall is None:
        return []
    mfu = view.efficiency.mfu if view.efficiency is not None else None
    told = [
        (f"lost to {LENSES['L-BALANCE']}", lens_share(view, "L-BALANCE")),
        (f"to {LENSES['L-AMORT']}", lens_share(view, "L-AMORT")),
    ]
    if fit_share := lens_share(view, "L-CODESIGN"):
        told.append((f"to {LENSES['L-CODESIGN']}", fit_share))
    useful = (name_of(view), view.useful_share)
    rows = [[*told, ("MFU", mfu), useful], [*told, useful]]
    if all(share is None for _, share in rows[0]):
        return []  # as of an imported trace: four times unknown tells nothing
    unexplained = lens_share(view, NOWHERE) or 0.0
    if unexplained >= LEAST_TOLD:  # without it what is lost and what is useful would not sum up
        rows.insert(0, [*told, ("not explained", unexplained), ("MFU", mfu), useful])
    fitting = (row for shares in rows if length(row := _shares(shares)) <= width)
    return [next(fitting, crop(_shares(rows[-1]), width))]


def _shares(told: list[tuple[str, float | None]]) -> Line:
    spans: list[Span] = []
    for name, share in told:
        spans += [
            ("  " * bool(spans) + f"{name} ", "dim"),
            (text_of.share(share), "unknown" if share is None else "text"),
        ]
    return Line(tuple(spans))


def _cut(lines: list[Line], max_rows: int, width: int) -> list[Line]:
    """Keep the first rows; an ellipsis at the end of the last one where rows were left off."""
    if len(lines) <= max_rows or max_rows <= 0:
        return [crop(row, width) for row in lines[: max(max_rows, 0)]]
    last = lines[max_rows - 1]
    return [*lines[: max_rows - 1], crop(Line((*last.spans, (" …", "dim"))), width)]


def step_figures(view: RunView, width: int, max_rows: int = 3) -> list[Line]:
    """Return step time, of which the phases are shares, and throughput; what does not fit has a row of its own.

    No figure is cut: of one that has no room at all nothing is shown.
    """
    step = view.step
    told: list[list[Span]] = [
        [("mean ", "dim"), figure(text_of.seconds(step.mean_s))],
        [("p95 ", "dim"), figure(text_of.seconds(step.p95_s))],
    ]
    if view.without_step_s is not None:  # the rates are those of the time before
        told.append([("no step for ", "dim"), (text_of.timer(view.without_step_s), "bad")])
        return _in_whole_parts(told, width, max_rows)
    told.append([figure(text_of.rate(step.throughput_steps_s, "steps/s"))])
    if step.rates_of:  # else it would contradict the mean beside it
        told[-1].append((f" {step.rates_of}", "dim"))
    for value, what in ((step.throughput_samples_s, "samples"), (step.throughput_tokens_s, "tokens")):
        if value is not None:
            told.append([figure(text_of.rate(value, f"{what}/s"))])
    plain = _in_whole_parts(told, width, max_rows)
    if view.slowdown is None:
        return plain
    slowed = [("evened out ", "dim"), figure(text_of.factor(view.slowdown))]
    for last in ([*slowed, (" faster", "dim")], slowed):  # it is worth no row of its own
        rows = _in_whole_parts([*told, last], width, max_rows)
        if len(rows) == len(plain) and last[0] in rows[-1].spans:
            return rows
    return plain


def _in_whole_parts(told: list[list[Span]], width: int, max_rows: int) -> list[Line]:
    """Return parts in as few rows as they need, none cut in two."""
    rows: list[list[Span]] = [[]]
    for part in told:
        gap: list[Span] = [("   ", "dim")] if rows[-1] else []
        if gap and length([*rows[-1], *gap, *part]) > width:
            gap = []
            rows.append([])
        rows[-1] += [*gap, *part]
    return [crop(Line(tuple(each)), width) for each in rows[:max_rows]]


def figure(text: str) -> Span:
    """Return a number in the role of a number, "unknown" in its own."""
    return (text, "unknown" if text.startswith(text_of.UNKNOWN) else "strong")


def trend(view: RunView, width: int, rows: int) -> list[Line]:
    """Return the chart of the step time from the first step to the newest, its axis and the row of its marks."""
    values = view.trend.step_s
    if not any(value is not None for value in values):
        none = (
            NO_STEP_SEEN
            if view.is_without_steps
            else "no whole step seen yet: the trend starts with the first"
        )
        return [line((none, "dim"))][:rows]
    first, size = view.trend.first_step, view.trend.steps_per_bucket
    has_marks = rows > 1 and (bool(view.trend.marks) or rows >= ROWS_WITH_MARKS)
    has_axis = rows > 2 or (rows > 1 and not has_marks)
    chart_rows = max(rows - has_marks - has_axis, 1)
    lines = bars.column_chart(values, width, chart_rows, text_of.readable_top(values))
    scale = line((_trend_scale(view), "dim"))
    if has_axis:
        axis = bars.step_axis(first, size, len(values), width, _step_labels(view))
        lines.append(axis if has_marks else spread(axis, scale, width))
    if has_marks:
        marks = bars.chart_marks(view.trend.marks, first, size, len(values), width)
        lines.append(spread(marks, scale, width))
    return lines


def _step_labels(view: RunView) -> Callable[[int], str]:
    """Return what is said of a step below the chart: its number and, of those whose end is known, the time of day."""

    def label(step: int) -> str:
        number = f"{max(step, 0):,}"  # where ranks were met in different steps the first may stand before all counts
        ended_s = view.step_times.at(step) if view.step_times is not None else None
        return number if ended_s is None else f"{number} {strftime('%H:%M', localtime(ended_s))}"

    return label


ROWS_WITH_MARKS = 4
THROUGHPUT_ROWS = 3


def throughput(view: RunView, width: int, room: int) -> list[Line]:
    """Return the throughput over the steps of the trend above, or nothing where there are no rows to spare."""
    values = view.trend.throughput_steps_s
    known = [value for value in values if value is not None]
    if room < THROUGHPUT_ROWS or not known:
        return []
    label = line(("throughput of these steps", "dim"))
    scale = line((f"highest {text_of.rate(max(known), 'steps/s')}", "dim"))
    lowest = bars.squeezed(values, width, min)  # a drop must not vanish between its neighbours
    return [spread(label, scale, width), *bars.column_chart(lowest, width, THROUGHPUT_ROWS - 1, max(known))]


def _trend_scale(view: RunView) -> str:
    """Return what the height of the chart means, and what was cut."""
    shown = [value for value in view.trend.step_s if value is not None]
    top = text_of.readable_top(shown)
    cut = f"cut at {text_of.seconds(top)}, " if max(shown) > top else ""
    return f"{cut}tallest {text_of.seconds(max(shown))}"


def step_title(name: str, view: RunView) -> str:
    """Return the head of the step's figures: on whose clock, and which of them rest on the user's word."""
    on_devices = view.clock == "device" and view.imported is None
    clock = ", the devices' clocks" if on_devices else ""
    given = f", {' and '.join(view.step.given)} as given" if view.step.given else ""
    return f"{name}{clock}{given}"


def window(view: RunView) -> str:
    """Return which steps the figures are from, and which were left out."""
    return windows(view)[0]


def windows(view: RunView) -> tuple[str, ...]:
    """Return the same in ever fewer words: the change that it begins with, then what was left out, gives way."""
    left_out = text_of.left_out(view.window.excluded)
    steps = text_of.steps(view.window.first_step, view.window.last_step)
    steps = "no steps" if view.is_without_steps else steps
    whose = f", {alone}" if (alone := rank_alone(view)) else ""
    told = f"{steps}, without {left_out}{whose}" if left_out else f"{steps}{whose}"
    change = view.window.change
    fuller = (f"{told}: {change}", f"{steps}{whose}: {change}") if change else ()
    return (*fuller, told, f"{steps}{whose}")


def phases(view: RunView, width: int, max_rows: int) -> list[Line]:
    """Return the step as a stacked bar and its legend."""
    bar = Line(tuple(bars.stacked_bar(view.step.shares, width, named=True)))
    return [bar, *bars.legend(view.step.shares, view.step.seconds, width, max_rows - 1)]


def phases_notes(view: RunView) -> tuple[str, ...]:
    """Return what the bar is a mean of, and the phases nobody observed; in ever fewer words."""
    names = ", ".join(bars.SHORT_NAMES[phase] for phase in bars.unknown_phases(view.step.shares))
    if len(bars.unknown_phases(view.step.shares)) > 4:
        names = "most phases"
    whose = rank_alone(view) or "mean over ranks"
    return (f"{whose} · unknown: {names}", f"{whose} · unknown: some phases", whose) if names else (whose,)


def rank_alone(view: RunView) -> str:
    """Return whose figures of a step all are, where there are others whose steps are too few to compare."""
    alone = view.step.of_rank is not None and max(len(view.ranks), view.run.world_size or 0) > 1
    return f"of rank {view.step.of_rank} alone" if alone else ""


def communication(view: RunView, width: int, max_rows: int) -> list[Line]:
    """Return what communication costs and how much of it is hidden."""
    overlap = view.overlap
    if overlap.comm_total_s is None and overlap.comm_exposed_s is None:
        return []
    exposed = text_of.seconds(overlap.comm_exposed_s)
    hidden = text_of.share(overlap.overlap)
    unseen = " (how much more is hidden is unknown)" if overlap.comm_total_s is None else ""
    text = f"exposed communication {exposed} a step{unseen}"
    if overlap.skew_s is not None and overlap.transfer_s is not None:
        late, moving = text_of.seconds(overlap.skew_s), text_of.seconds(overlap.transfer_s)
        text += f": {late} waiting for the last rank, {moving} moving data"
    if overlap.comm_total_s is not None:
        # Timed in some steps only, whose exposed time is not that of all of them: a share, no second figure.
        sample = f"the {text_of.share(overlap.sampled_share)} of steps seen in detail"
        if overlap.num_sampled_steps is not None:
            sample = f"{text_of.count(overlap.num_sampled_steps, 'step')} seen in detail"
        text += f"; {hidden} of all communication is hidden behind compute ({sample})"
    return _cut([line((row, "dim")) for row in wrap(text, width)], max_rows, width)


def clock(view: RunView) -> str:
    """Return whose clock the steps of a page are by, "" for the host's of ranks that compute there."""
    return "by the devices' clocks" if view.clock == "device" else ""


def device(view: RunView, width: int, max_rows: int) -> list[Line]:
    """Return which clock the times are from, where the ranks compute on devices."""
    if view.clock == "device":
        steps = text_of.count(view.window.num_steps, "measured step")
        text = f"all times are the devices' own, of {steps}"
        if view.device is not None:
            text += f"; the typical device {pace(view.device)}"
    elif view.run.device and view.run.device != "cpu" and not view.is_without_steps:
        text = "times are the host's clock: when work was launched, not when the device did it"
    else:
        return []
    return _cut([line((row, "dim")) for row in wrap(text, width)], max_rows, width)


def pace(device: DeviceView) -> str:
    """Return whether a device keeps pace with the thread that feeds it."""
    if device.keeps_pace is None:
        return f"{text_of.UNKNOWN}: keeps pace with its thread or not"
    if device.keeps_pace:
        return "keeps pace with its thread, so waits for launches"
    behind = device.behind_share
    if behind is not None and behind >= 1:
        return f"is {text_of.significant(behind)} steps behind its thread"
    return f"is behind its thread by {text_of.share(behind)} of a step"


def culprits(view: RunView, width: int, max_rows: int) -> list[Line]:
    """Return one line a straggler: who, why, what it costs, since when."""
    why = next((entry.why for entry in view.unknown if entry.metric == "stragglers"), "")
    if why and not view.stragglers:
        said = wrap_within(f"who is late is {text_of.UNKNOWN}: {why}", width, max_rows)
        return [line((told, "dim")) for told in said]
    lines = []
    hosts = {rank.rank: rank.host for rank in view.ranks}
    is_one_host = len(set(hosts.values())) == 1  # the header names it
    for straggler in view.stragglers:
        cause = text_of.phase_name(straggler.cause)
        since = text_of.since(straggler.since_step, seen=straggler.onset_seen)
        lines.append(
            line(
                ("▶ ", "bad"),
                (f"rank {straggler.rank}", "strong"),
                ("" if is_one_host else f" on {hosts.get(straggler.rank) or 'an unknown host'}", "dim"),
                " arrives last: ",
                (cause, "strong"),
                (f", costs {text_of.seconds(straggler.loss_s_per_step)}/step", "text"),
                (f" {since}" if since else "", "dim"),
                ("" if straggler.persistent else ", unevenly", "dim"),
                target=("rank", str(straggler.rank)),
            )
        )
    if len(lines) > max_rows > 0:
        more = len(lines) - max_rows + 1
        who = "1 more rank that arrives" if more == 1 else f"{more} more ranks that arrive"
        left = line((f"  and {who} late: see 2 Ranks", "dim"))
        lines = [*lines[: max_rows - 1], left]
    return [crop(row, width) for row in lines[: max(max_rows, 0)]]


def finding(key: str, found: Finding, width: int, max_rows: int = 1) -> list[Line]:
    """Return a finding in one row: severity, sentence, what it costs; a title that is cut there in so many."""
    cost = f"{text_of.seconds(found.loss_s_per_step)}/step" if found.loss_s_per_step is not None else ""
    room = width - len(cost) - 2 if cost else width
    sentence, target = _sentence(found, room - SEVERITY_WIDTH), ("finding", key)
    texts = wrap(sentence, room - SEVERITY_WIDTH)
    if not 1 < len(texts) <= max_rows:
        texts = [sentence]
    left = line(
        (fit(SEVERITIES[found.severity], 11), SEVERITY_ROLES[found.severity]),
        (fit(found.pattern, 3), "dim"),
        (texts[0], "text"),
    )
    rows = [spread(crop(left, room), line((cost, "strong")), width)]
    rows += [indent(line(text), SEVERITY_WIDTH - 1) for text in texts[1:]]
    return [Line(row.spans, target) for row in rows]


def _sentence(found: Finding, room: int) -> str:
    """Return the whole sentence, or the title where the sentence does not fit: nothing half said."""
    if found.message and (cell_len(found.message) <= room or not found.title):
        return found.message
    return found.title


def finding_block(key: str, found: Finding, width: int, max_rows: int) -> list[Line]:
    """Return a finding with its whole sentence, for screens with room."""
    cost = f"{text_of.seconds(found.loss_s_per_step)}/step" if found.loss_s_per_step is not None else ""
    head = line(
        (f"{SEVERITIES[found.severity]}  ", SEVERITY_ROLES[found.severity]),
        (found.title, "strong"),
        (f"  {found.pattern}", "dim"),
    )
    room = width - len(cost) - 2 if cost else width
    target = ("finding", key)
    rows = [Line(spread(crop(head, room), line((cost, "strong")), width).spans, target)]
    rows += [Line(indent(line(text), 2).spans, target) for text in wrap(found.message, width - 2)]
    return _cut(rows, max_rows, width)


def loss_title(view: RunView) -> str:
    """Return what the rows of `losses` are: something lost, notes, or where an imported trace is from."""
    kinds = [head for head, _, _ in _loss_kinds(view)]
    return {"▲ lost": "lost", "▲ note": "notes", "imported": "source"}[kinds[0]] if kinds else ""


def losses(view: RunView, width: int, max_rows: int) -> list[Line]:
    """Return what was lost and what has to be known of the figures, each under its name; nothing without either."""
    kinds = _loss_kinds(view)
    if len(kinds) > max_rows:
        rest = [
            text if head[0] == "▲" else f"{head} {text}" for head, _, texts in kinds[1:] for text in texts
        ]
        kinds = [(*kinds[0][:2], [*kinds[0][2], *rest])]
    lines: list[Line] = []
    for head, role, texts in kinds:
        rows = [_counted(texts, width - 9)] if max_rows == 1 else wrap("; ".join(texts), width - 9)
        lines.append(line((fit(head, 9), role), (rows[0], role)))
        lines += [indent(line((text, role)), 9) for text in rows[1:]]
    return _cut(lines, max_rows, width)


def _loss_kinds(view: RunView) -> list[tuple[str, str, list[str]]]:
    """(head, role, texts): that a trace was imported is no loss, and of what a note tells its own words say."""
    words = "" if view.imported is None else view.imported.words
    notes = [note for note in view.losses.notes if not (words and note.endswith(words))]
    if view.imported is not None and not words:
        notes = [note for note in notes if not note.startswith("not live")]
    kinds = [
        ("▲ lost", "warn", list(counted_losses(view.losses))),
        ("▲ note", "warn", notes),
        ("imported", "dim", [f"from {words}"] if words else []),
    ]
    return [kind for kind in kinds if kind[2]]


def _counted(notes: Sequence[str], room: int) -> str:
    """Return the notes that fit whole, the first one always, and how many more the log has."""
    for shown in range(len(notes), 0, -1):
        left = len(notes) - shown
        tail = f"; {left} more: L" if left else ""
        text = "; ".join(notes[:shown])
        if cell_len(text) + len(tail) <= room:
            return text + tail
    return fit(notes[0], max(room - len(tail), 1)) + tail


def unknowns(view: RunView, width: int, max_rows: int) -> list[Line]:
    """Return the metrics nobody could observe, with the reason."""
    if not view.unknown:
        return []
    text = "; ".join(f"{text_of.phase_name(item.metric)}: {item.why}" for item in view.unknown)
    rows = wrap(text, width - 9)
    lines = [line(("unknown  ", "unknown"), (rows[0], "dim"))]
    lines += [indent(line((row, "dim")), 9) for row in rows[1:]]
    return _cut(lines, max_rows, width)


def hosts(view: RunView, width: int, max_rows: int) -> list[Line]:
    """Return one line a host: CPU, memory, load, disk, network."""
    lines = []
    for host in view.hosts:
        parts = [f"cpu {text_of.share(host.cpu)}", f"mem {text_of.share(host.memory)}"]
        if host.load_1m is not None:
            cores = f"/{host.num_cpus}" if host.num_cpus else ""
            parts.append(f"load {text_of.significant(host.load_1m)}{cores}")
        if host.disk_read_bytes_s is not None:
            parts.append(f"disk {text_of.num_bytes(host.disk_read_bytes_s)}/s")
        if host.disk_reads_s_mean is not None:
            parts.append(f"{text_of.significant(host.disk_reads_s_mean)} reads/s")
        if host.net_bytes_s is not None:
            parts.append(f"net {text_of.num_bytes(host.net_bytes_s)}/s")
        name = fit(host.host, min(max(len(each.host) for each in view.hosts), 16))
        # Figures are whole or not there: of few hosts in a second row, of many the last ones give way.
        rows = _in_rows(parts, width - len(name) - 2)[: 2 if 2 * len(view.hosts) <= max_rows else 1]
        lines.append(crop(line(name, "  ", (rows[0], "dim")), width))
        lines += [indent(line((text, "dim")), len(name) + 2) for text in rows[1:]]
        told = host.gpus or (wrap(host.no_gpus, width - len(name) - 2) if host.no_gpus else [])
        lines += [crop(indent(line((one, "dim")), len(name) + 2), width) for one in told]
    if len(lines) > max_rows > 0:
        more = line((f"and {text_of.count(len(lines) - max_rows + 1, 'more line')} of hosts", "dim"))
        lines = [*lines[: max_rows - 1], more]
    return lines[: max(max_rows, 0)]


def _in_rows(parts: Sequence[str], width: int) -> list[str]:
    """Return the parts with a dot between, broken between them alone."""
    rows: list[str] = []
    for part in parts:
        if rows and cell_len(rows[-1]) + cell_len(part) + 3 <= width:
            rows[-1] += f" · {part}"
        else:
            rows.append(part)
    return rows


def probe_work(work: ProbeWork) -> str:
    """Return what the probes take of a step, and how many steps they saw in detail.

    At least: hooks can time themselves, not what the training pays for the caches that they took.
    """
    over = ", hidden: the devices are a step behind" if work.is_hidden else ""
    if work.is_over and not work.is_hidden:
        is_always_on = work.always_on is not None and work.budget is not None and work.always_on > work.budget
        cause = "without detail, too" if is_always_on else "by what it sees in detail"
        over = f", over its budget of {text_of.small_share(work.budget)} {cause}"
    names = {"": "", "native": " (native hooks)", "python": " (Python hooks)"}
    core = names.get(work.core, f" (hooks {work.core})")
    cost = f"probe {text_of.at_least(work.cost)} of step{over}{core}"
    return f"{cost}; detail {text_of.share(work.detail)} of steps"


def probe_work_in_short(work: ProbeWork) -> str:
    """Return the same for a line without room: the cost, and whether it is over the budget."""
    over = f", over its {text_of.small_share(work.budget)}" if work.is_over and not work.is_hidden else ""
    return f"probe {text_of.at_least(work.cost)} of step{over}"


def source(view: RunView, width: int) -> Line:
    """Return where the figures come from and what watching costs."""
    read = [text_of.count(view.num_frames, "frame")]
    if view.event_time_s is not None:
        read.append(f"{text_of.seconds(view.event_time_s)} seen")
    worth = [] if view.useful_share is None else [f"{name_of(view)} {text_of.share(view.useful_share)}"]
    cost = [f"probe cost {text_of.at_least(view.probe_cost)}"] * 2
    if view.probe is not None:
        cost = [probe_work(view.probe), probe_work_in_short(view.probe)]
    if view.imported is not None:  # no probe was there
        cost = []
    # What watching costs, if in short, and what the run is worth stay.
    choices = [[*read[first:], *cost[:1], *worth] for first in range(len(read) + 1)] + [[*cost[1:], *worth]]
    parts = next((parts for parts in choices if len(" · ".join(parts)) <= width), choices[-1])
    return crop(line((" · ".join(parts), "dim")), width)
