"""Two runs side by side: as the seventh screen, and as plain text for `compare` without --json.

In: Comparison.  Out: lines, or a str of at most 80 columns; imports no Textual.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from tuiadvisor.text import format as text_of
from tuiadvisor.text.line import BLANK, Line, beside, crop, fit, indent, line, rule, spread, wrap
from tuiadvisor.text.printed_page import page_text, page_width
from tuiadvisor.tui.contract.desk import Compare, ListRuns, MarkBefore
from tuiadvisor.tui.contract.page import Command, Page, only_on
from tuiadvisor.tui.draw import bars
from tuiadvisor.tui.pages import sections
from tuiadvisor.tui.pages.as_it_is import as_it_is
from tuiadvisor.tui.pages.details import bullet
from tuiadvisor.tui.pages.runs import MOST_MARKS, Columns, Runs

if TYPE_CHECKING:
    from tuiadvisor.text.line import Span
    from tuiadvisor.tui.contract.desk import MarkedBefore
    from tuiadvisor.tui.contract.feed import FeedState
    from tuiadvisor.tui.contract.page import Place
    from tuiadvisor.views.comparison import (
        Comparison,
        DistributionSide,
        FindingChange,
        PhaseChange,
        RunSide,
    )
    from tuiadvisor.views.run_list import RunEntry
    from tuiadvisor.views.run_view import RunView

GAP = 2
MARGIN = 1
WIDE = 116  # columns from which two blocks stand side by side
MOST_BESIDE = (
    16  # recordings of the same job that are shown, and that are read at a time to see which they are
)
MOST_LOOKED_AT = 128  # newest recordings of whatever job
OUTCOMES = {
    "improved": "▼ IMPROVED",
    "regressed": "▲ REGRESSED",
    "no change": "= NO CHANGE",
    "not decided": "? NOT DECIDED",
    "not comparable": "? NOT COMPARABLE",
}
OUTCOME_BADGES = {
    "improved": "badge:keep",
    "regressed": "badge:stop",
    "no change": "badge:info",
    "not decided": "badge:tune",
    "not comparable": "badge:tune",
}


def plain_comparison(
    comparison: Comparison, *, plain_ascii: bool | None = None, width: int | None = None
) -> str:
    """The whole comparison, each line ended by a newline; None asks stdout (and the locale)."""
    width = page_width() if width is None else width
    rows = [
        *_sentence(comparison, width),
        BLANK,
        *_step_block(comparison, width),
        *_distribution_block(comparison, width),
        *_phase_block(comparison, width),
        BLANK,
        *_bottleneck_block(comparison, width),
        *_environment_block(comparison, width),
    ]
    return page_text([crop(row, width) for row in rows], plain_ascii=plain_ascii)


def show_compare(place: Place) -> None:
    """The comparison; without one, the recordings beside this one are looked up."""
    if place.desk.comparison is None and not place.desk.runs:
        place.shell.ask(ListRuns())
    place.show("compare")


def compare_with(place: Place, path: str) -> None:
    """What is shown with another recording; the older of the two files is the state before."""
    desk = place.desk
    age = {entry.path: number for number, entry in enumerate(desk.runs)}  # the newest first
    pair = sorted((path, desk.open_path), key=lambda each: -age.get(each, 0))
    place.shell.ask(Compare(*pair))


def compare_marked(place: Place) -> None:
    """Compare the two marked recordings."""
    marked = place.at(Runs).in_time()
    if len(marked) < MOST_MARKS:
        place.say(f"c: two recordings must be marked with m, {len(marked) or 'none'} is so far")
        return
    place.shell.ask(Compare(*marked))
    place.show("compare")


def swap(place: Place) -> None:
    """Compare the other way round."""
    comparison = place.desk.comparison
    if comparison is None:
        place.say("w: nothing is compared yet")
        return
    place.shell.ask(Compare(comparison.after.path, comparison.before.path))


def compare_again(place: Place) -> None:
    """Compare the same two once more: one of them may have gone on."""
    comparison = place.desk.comparison
    if comparison is None:
        place.say("u: nothing is compared yet")
        return
    place.say("u: reading both again; until then this is the former comparison")
    place.shell.ask(Compare(comparison.before.path, comparison.after.path))


def no_run(state: FeedState, _page: Page) -> str:
    """Something must have been seen that can be compared."""
    return "" if state.view is not None and state.view.last_step is not None else "no step has been seen yet"


ON_RUNS = only_on("runs", "only on the list of recordings: press 8")


class ComparePage(Page):
    """The seventh screen: before and after."""

    name = "compare"
    title = "Compare"
    about = (
        "Only what lies beyond the noise of two runs of the same code is called a change; * marks phases "
        "that changed beyond it. The interval is 95 %."
    )
    is_screen = True
    commands: ClassVar = (
        Command(
            "compare", ("7",), "7", "Compare", "two recordings, before and after", "screens", show_compare
        ),
        Command(
            "mark",
            ("m",),
            "m",
            "Mark",
            "mark a recording and go to the next row, or take its mark away; c compares two",
            "runs",
            lambda place: place.say(place.at(Runs).mark()),
            ON_RUNS,
        ),
        Command(
            "compare_marked",
            ("c",),
            "c",
            "Compare marked",
            "the two marked recordings; the older one is before",
            "runs",
            compare_marked,
            ON_RUNS,
        ),
        Command(
            "swap",
            ("w",),
            "w",
            "Swap",
            "swap before and after",
            "runs",
            swap,
            only_on("compare", "only on a comparison: press 7"),
        ),
        Command(
            "mark_before",
            ("B",),
            "B",
            "Before",
            "this run is the state before a change: the job's next recorded run is compared with it by itself",
            "runs",
            lambda place: place.shell.ask(MarkBefore()),
            no_run,
        ),
    )
    does: ClassVar = {"refresh": compare_again}
    opens: ClassVar = {"before": compare_with}
    labels: ClassVar = {"refresh": "Compare anew"}
    abouts: ClassVar = {
        "open": "compare this recording with the one that is shown",
        "refresh": "compare the same two as they are now",
    }
    of_run = False
    about_run = True
    terms = ("steady", "throughput", "noise")
    keys = ("open", "runs", "swap", "refresh", "copy", "help", "quit")

    def refusal(self, command: Command, state: FeedState) -> str:
        """Without a comparison there is none to turn round or to make anew."""
        if command.name in ("swap", "refresh") and self.desk.comparison is None:
            return "nothing is compared yet"
        return super().refusal(command, state)

    def lines(self, state: FeedState, width: int, height: int) -> list[Line]:
        """Return the comparison, or what to do for one and the recordings that it could be with."""
        room = width - 2 * MARGIN
        comparison = self.desk.comparison
        worth = self.desk.comparison_worth
        self.wanted = ()
        if comparison is None:
            rows = [*self._marked(state, room), *_nothing(self.desk.comparison_note, room)]
            if not self.desk.comparison_note:
                rows += self._same_job(state, room)
                rows += as_it_is(state.view, room, height - len(rows) - 1)
        else:
            rows = [*self._of_others(comparison, state, room)]
            rows += [*_screen(comparison, room, worth, self._how_new(state)), *self._marked(state, room)]
        if comparison is not None and self.desk.comparison_note:
            rows = [line((self.desk.comparison_note, "warn")), *rows]
        return self.arranged([indent(row, MARGIN) if row.spans else row for row in rows], width, height)

    def _of_others(self, comparison: Comparison, state: FeedState, width: int) -> list[Line]:
        """Say so where the run that the header names is neither of the two."""
        shown = self.desk.open_path
        if state.view is None or not (shown or self.desk.has_live):
            return []
        pair = (comparison.before.path, comparison.after.path)
        is_one = _is_one_of(shown, pair) if shown else self.desk.compared_step is not None
        if is_one:
            return []
        said = "Of two recordings, not of the live run."
        if shown:
            name = Path(shown).name
            said = (
                f"Of two others, not of {name}, which is open: m on 8 Runs marks it and another, c compares."
            )
        return [line((text, "warn")) for text in wrap(said, width)]

    def _how_new(self, state: FeedState) -> str:
        """Up to which step a run that goes on was compared."""
        step = self.desk.compared_step
        if step is None:
            return ""
        goes_on = "" if state.view is None or state.view.ended else "; made anew as it goes on, sooner with u"
        return f"of the live run up to step {step:,}{goes_on}"

    def _marked(self, state: FeedState, width: int) -> list[Line]:
        """Return what B marked, of the job that is shown where there is such, and what follows from it."""
        if not self.desk.before:
            return []
        label = state.view.run.label if state.view is not None else None
        marked = next((each for each in self.desk.before if each.label == label), self.desk.before[-1])
        said = (
            f"{marked.name} ({marked.label}), marked at step {marked.step:,}; all its recorded steps count. "
        )
        if self.desk.comparison is not None and self.desk.compared_step is not None:
            said += "The live run is compared with it."
        else:
            shows_live = self.desk.has_live and not self.desk.open_path
            said += _what_follows(marked, state.view if shows_live else None)
        rows = [rule("marked with B: the state before a change", width)]
        return [*rows, *(line((text, "text")) for text in wrap(said, width)), BLANK]

    def _same_job(self, state: FeedState, width: int) -> list[Line]:
        """Return the recordings of the job that is shown, newest first; rows not read yet are asked for."""
        shown = self.desk.open_path
        newest = [entry for entry in self.desk.runs if entry.path != shown][:MOST_LOOKED_AT]
        if not shown or state.view is None or not newest:
            return []
        label = state.view.run.label
        # Those known to be of another job, however new, take no place.
        beside = [entry for entry in newest if _may_be_of(entry, label)][:MOST_BESIDE]
        self.wanted = tuple(entry.path for entry in beside if entry.state == "unread")
        found = [entry for entry in beside if entry.label == label and entry.last_step is not None]
        num_open = sum(entry.state in ("unread", "reading") for entry in newest)
        looked = (
            f"{num_open} of {len(newest)} not read yet" if num_open else f"newest {len(newest)} looked at"
        )
        rows = [BLANK, rule(f"other recordings of {label}", width, looked)]
        if not found:
            return [*rows, *([] if num_open else [line(("none beside this one", "dim"))])]
        return [*rows, *_table(found, width)]


def _is_one_of(path: str, pair: tuple[str, str]) -> bool:
    """By its place, however that is written."""
    return Path(path).absolute() in {Path(each).absolute() for each in pair}


def _may_be_of(entry: RunEntry, label: str) -> bool:
    """Whether a recording is of a job, or not read yet."""
    return entry.state in ("unread", "reading") or (entry.label == label and entry.last_step is not None)


def _what_follows(marked: MarkedBefore, live: RunView | None) -> str:
    """Return when the next comparison comes; live is None where no run goes on or an older one is shown."""
    wanted = f"{marked.steps_after} steady steps"
    if live is None or live.run.label != marked.label or marked.is_live:
        here = "It is this run. " if marked.is_live and live is not None else ""
        return f"{here}The next recorded run of {marked.label} is compared with it here after {wanted}."
    seen = min(live.window.num_steps, marked.steps_after)
    return f"The live run is compared with it after {wanted}: {seen} so far."


def _table(entries: list[RunEntry], width: int) -> list[Line]:
    """Return rows as on the list of recordings; enter compares."""
    page, columns = Runs(), Columns(tuple(entries), width)
    rows = [crop(page.row(entry, columns), width) for entry in entries]
    aimed = [Line(row.spans, ("before", entry.path)) for row, entry in zip(rows, entries, strict=True)]
    return [crop(columns.head(), width), *aimed]


def _nothing(note: str, width: int) -> list[Line]:
    said = note or (
        "Nothing compared yet. B on a recorded run marks it as the state before a change: the job's next recorded run "
        "is compared with it here by itself. With a recording open, enter on another one of its job compares the two; "
        "on 8 Runs m marks any two, and c compares them. From the command line: tuiadvisor compare BEFORE AFTER --tui"
    )
    return [rule("compare", width), BLANK, *(line((text, "dim")) for text in wrap(said, width))]


def _screen(comparison: Comparison, width: int, worth: str, how_new: str) -> list[Line]:
    badge = f" {OUTCOMES[comparison.verdict]} "
    room = width - len(badge) - 1
    sentence = comparison.sentence.partition(": ")[2] or comparison.sentence
    head = wrap(sentence[:1].upper() + sentence[1:], room)
    rows = [line((badge, OUTCOME_BADGES[comparison.verdict]), " ", (head[0] if head else "", "strong"))]
    rows += [indent(line((text, "strong")), len(badge) + 1) for text in head[1:]]
    rows += [indent(line((text, "accent")), len(badge) + 1) for text in wrap(worth, room)]
    rows += [row for text in comparison.cautions for row in bullet("note:", text, width, "warn")]
    rows += _gate(comparison)
    files = f"before {comparison.before.path} · after {comparison.after.path}"
    files += f" · {how_new}" if how_new else ""
    rows += [*(line((text, "dim")) for text in wrap(files, width)), BLANK]
    if width < WIDE:
        # On a low screen the picture, not the last of fourteen figures, is what one sees first.
        rows += [*_distribution_block(comparison, width)[1:], *([BLANK] if comparison.distribution else [])]
        rows += [*_step_block(comparison, width), *_phase_block(comparison, width), BLANK]
        return [*rows, *_bottleneck_block(comparison, width), *_environment_block(comparison, width)]
    half = (width - 3) // 2
    left = [*_step_block(comparison, half), BLANK, *_bottleneck_block(comparison, half)]
    right = [*_distribution_block(comparison, half)[1:], *([BLANK] if comparison.distribution else [])]
    right += [*_phase_block(comparison, half, lead=False), *_environment_block(comparison, half)]
    return [*rows, *beside(left, half, right)]


def _sentence(comparison: Comparison, width: int) -> list[Line]:
    rows = [line(text) for text in wrap(comparison.sentence, width)]
    rows += [row for text in comparison.cautions for row in bullet("note:", text, width)]
    return rows + _gate(comparison)


def _step_block(comparison: Comparison, width: int) -> list[Line]:
    return [rule("a step", width), *_sides(comparison, width)]


CHART_ROWS = 2  # of each run's distribution
SIDE_WIDTH = 8


def _distribution_block(comparison: Comparison, width: int) -> list[Line]:
    """Return both runs' step lengths above each other on one scale: who is shorter, and who scatters less."""
    found = comparison.distribution
    if found is None:
        return []
    room = width - SIDE_WIDTH
    # One height for both: the same share of the steps is as tall above as below.
    drawn = [bars.squeezed(side.shares, room, sum) for side in (found.before, found.after)]
    top = max((value for values in drawn for value in values if value is not None), default=0.0)
    rows = [BLANK, rule("how long its steps are", width, "share of all steps, pauses included")]
    for name, side, values in (("before", found.before, drawn[0]), ("after", found.after, drawn[1])):
        chart = bars.column_chart(
            [value or None for value in values], room, CHART_ROWS, top or None, unknown=" "
        )
        rows += [indent(row, SIDE_WIDTH) for row in chart[:-1]]
        rows.append(line((fit(name, SIDE_WIDTH), "strong"), *chart[-1].spans))
        rows.append(crop(indent(line((_quantiles(side), "dim")), SIDE_WIDTH), width))
    first, last = text_of.seconds(found.first_s), text_of.seconds(found.last_s)
    scale = spread(line((f"{bars.TICK}{first}", "dim")), line((f"{last}{bars.TICK}", "dim")), room)
    return [*rows, indent(scale, SIDE_WIDTH)]


def _quantiles(side: DistributionSide) -> str:
    """Return where the steps lie: their middle, what holds nine of ten, and what is longer than the scale."""
    least, _, middle, _, most = side.quantiles_s
    said = f"median {text_of.seconds(middle)}, 90 %: {text_of.seconds(least)} to {text_of.seconds(most)}"
    if side.beyond:
        said += f"; {text_of.share(side.beyond)} beyond, to {text_of.seconds(side.longest_s)}"
    return said


def _phase_block(comparison: Comparison, width: int, *, lead: bool = True) -> list[Line]:
    if not comparison.phases:
        return []
    head = rule("phases", width, "mean over ranks, of all steady steps; * beyond noise")
    return [*([BLANK] if lead else []), head, *_phases(comparison)]


def _bottleneck_block(comparison: Comparison, width: int) -> list[Line]:
    rows = [rule("bottleneck", width)]
    rows += [line(text) for text in wrap(comparison.bottleneck.sentence, width)]
    if comparison.goodput is not None:
        rows += [line(text) for text in wrap(comparison.goodput.sentence, width)]
    return rows + [row for finding in comparison.findings for row in _finding(finding, width)]


def _environment_block(comparison: Comparison, width: int) -> list[Line]:
    if not comparison.environment:
        return []
    rows = [BLANK, rule("not the same in both", width)]
    for entry in comparison.environment:
        rows += bullet(f"{entry.what}:", f"{entry.before} → {entry.after}", width)
    return rows


def _gate(comparison: Comparison) -> list[Line]:
    gate = comparison.gate
    if gate is None:
        return []
    words = {None: "cannot be told", True: "exceeded", False: "kept"}[gate.exceeded]
    return [line(f"limit of {text_of.share(gate.limit)} slower: {words}")]


def _goodput(comparison: Comparison) -> list[tuple[str, str, str]]:
    change = comparison.goodput
    if change is None:
        return []
    return [
        ("goodput", text_of.share(change.before), text_of.share(change.after)),
        ("  of steady steps", text_of.share(change.before_steady), text_of.share(change.after_steady)),
    ]


def _sides(comparison: Comparison, room: int) -> list[Line]:
    before, after = comparison.before, comparison.after
    rows = [
        ("", "before", "after"),
        ("mean, all steady", text_of.seconds(before.step_s), text_of.seconds(after.step_s)),
        ("95th percentile", text_of.seconds(before.p95_s), text_of.seconds(after.p95_s)),
        ("pauses included", text_of.seconds(before.every_step_s), text_of.seconds(after.every_step_s)),
        *_as_judged(before, after),
        *_goodput(comparison),
        ("steady steps", text_of.count(before.num_steady_steps), text_of.count(after.num_steady_steps)),
        ("throughput", _throughput(before), _throughput(after)),
        ("ranks", text_of.count(before.unit.world_size), text_of.count(after.unit.world_size)),
        ("samples a step", _number(before.unit.samples_per_step), _number(after.unit.samples_per_step)),
        *_input(before, after),
        (
            "parameters",
            text_of.count(before.unit.num_parameters),
            text_of.count(after.unit.num_parameters),
        ),
        (
            "gradient",
            text_of.num_bytes(before.unit.gradient_bytes),
            text_of.num_bytes(after.unit.gradient_bytes),
        ),
        (
            "collectives",
            text_of.count(before.unit.num_collectives),
            text_of.count(after.unit.num_collectives),
        ),
    ]
    width = min(max(len(text) for row in rows for text in row[1:]) + GAP, (room - 20) // 2)
    return [
        line("  ", (fit(name, 18), "dim"), _figure(old, width), _figure(new, width))
        for name, old, new in rows
    ]


def _input(before: RunSide, after: RunSide) -> list[tuple[str, str, str]]:
    """What tells of a step's work where its samples are unknown."""
    old, new = before.unit, after.unit
    if (old.samples_per_step and new.samples_per_step) or not (old.input_shape or new.input_shape):
        return []
    return [("model's input", old.input_shape or text_of.UNKNOWN, new.input_shape or text_of.UNKNOWN)]


def _throughput(side: RunSide) -> str:
    """Without a unit where it is unknown: two of those did not fit beside each other."""
    samples_s = side.rates.samples_s
    return text_of.UNKNOWN if samples_s is None else text_of.rate(samples_s, "samples/s")


def _as_judged(before: RunSide, after: RunSide) -> list[tuple[str, str, str]]:
    """What `diagnose` says of each run by itself, where that is another figure: it looks at its newest steps."""
    judged = (text_of.seconds(before.judged_s), text_of.seconds(after.judged_s))
    if judged == (text_of.seconds(before.step_s), text_of.seconds(after.step_s)):
        return []
    return [("as diagnose judges", *judged), ("  over its steps", _judged(before), _judged(after))]


def _judged(side: RunSide) -> str:
    if side.judged_steps is None:
        return text_of.UNKNOWN
    return text_of.steps(*side.judged_steps).removeprefix("steps ")


def _figure(text: str, width: int) -> Span:
    return (fit(text, width, "right"), sections.figure(text)[1])


def _number(value: float | None) -> str:
    return text_of.UNKNOWN if value is None else f"{value:,.6g}"


def _phases(comparison: Comparison) -> list[Line]:
    widths = (("before", 11), ("after", 11), ("change", 12))
    rows = [line(fit("", 18), *((fit(name, size, "right"), "dim") for name, size in widths))]
    return rows + [_phase(entry) for entry in comparison.phases if entry.before_s or entry.after_s]


def _phase(entry: PhaseChange) -> Line:
    change = text_of.UNKNOWN
    if entry.change_s is not None:
        size = text_of.seconds(abs(entry.change_s))
        sign = "" if size.startswith("0 ") else "+" if entry.change_s > 0 else "-"
        change = f"{sign}{size}"
    figures = (text_of.seconds(entry.before_s), text_of.seconds(entry.after_s), change)
    role = "text" if not entry.significant else "bad" if (entry.change_s or 0) > 0 else "good"
    letter = (bars.PHASE_LETTERS[entry.phase], f"phase:{entry.phase}")
    return line(
        letter,
        (" " + fit(text_of.phase_name(entry.phase), 16), "text"),
        *(_figure(text, 11) for text in figures[:2]),
        (fit(figures[2], 12, "right"), "unknown" if figures[2] == text_of.UNKNOWN else role),
        " *" if entry.significant else "",
    )


def _finding(entry: FindingChange, width: int) -> list[Line]:
    costs = _costs(entry.loss_before_s, entry.loss_after_s)
    is_priced = entry.loss_before_s is not None or entry.loss_after_s is not None
    left = "most of it is still there" if is_priced else "it is still there"
    note = {"hidden": left, "uncovered": "it was there before"}.get(entry.state)
    ranks = entry.ranks_after or entry.ranks_before
    whose = (
        text_of.ranks(ranks) if ranks and not is_priced and "rank" not in entry.title.lower().split() else ""
    )
    said = "; ".join(part for part in (costs if is_priced else whose, note) if part)
    return bullet(f"{entry.state}:", f"{entry.title} ({said})" if said else entry.title, width)


def _costs(before_s: float | None, after_s: float | None) -> str:
    """What a finding costs a step; of one that is there in one run alone, that."""
    if before_s is None or after_s is None:
        return f"{text_of.seconds(after_s if before_s is None else before_s)} a step"
    return f"{text_of.seconds(before_s)} → {text_of.seconds(after_s)} a step"
