"""What a recording holds as plain text, for `info` without --json.

In: Contents.  Out: str, at most 80 columns but for long names; imports no Textual.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tuiadvisor.text import format as text_of
from tuiadvisor.text.line import BLANK, Line, crop, line, rule
from tuiadvisor.text.printed_page import page_text, page_width
from tuiadvisor.text.wording import missing_ranks
from tuiadvisor.tui.pages.details import bullet
from tuiadvisor.tui.pages.sections import probe_work

if TYPE_CHECKING:
    from tuiadvisor.views.contents import Contents, HostContents

MAX_HOSTS = 16


def plain_contents(held: Contents, *, plain_ascii: bool | None = None) -> str:
    """The whole inventory, each line ended by a newline; plain_ascii None asks stdout and the locale."""
    width = page_width()
    rows: list[Line] = []
    for name, text in _facts(held):
        rows += bullet(f"{name + ':':14}", text, width)
    rows += [BLANK, rule("hosts", width, f"{len(held.hosts):,}")]
    for host in held.hosts[:MAX_HOSTS]:
        rows += bullet(host.host, _host(host), width)
    if len(held.hosts) > MAX_HOSTS:
        rows.append(
            line(f"and {text_of.count(len(held.hosts) - MAX_HOSTS, 'more host')}; --json lists them all")
        )
    rows += [BLANK, rule("damage and losses", width)]
    wrong = _wrong(held)
    rows += [row for text in wrong for row in bullet("-", text, width)] if wrong else [line("none")]
    return page_text([crop(row, width) for row in rows], plain_ascii=plain_ascii)


def _facts(held: Contents) -> list[tuple[str, str]]:
    run, unknown = held.run, text_of.UNKNOWN
    created = unknown
    if held.created_wall_s is not None:
        created = datetime.fromtimestamp(held.created_wall_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    software = [
        f"torch {run.torch or unknown}",
        f"python {run.python or unknown}",
        run.backend or "unknown backend",
        run.device or "unknown device",
        *(f"{name} {value}" for name, value in sorted(run.software.items())),
    ]
    states = ", ".join(f"{number:,} {state}" for state, number in held.states.items())
    layout = " · ".join(f"{name} {size}" for name, size in sorted(run.parallel.items()))
    file_size, step_size = held.bytes_per_rank_step, held.step_bytes_per_rank_step
    size = unknown
    if file_size is not None and step_size is not None:
        size = f"{file_size:.1f} B a rank-step, {step_size:.1f} B of them step records"
    kinds = ", ".join(
        f"{kind.num_frames:,} {name} ({text_of.num_bytes(kind.num_bytes)})"
        for name, kind in sorted(held.kinds.items())
    )
    return [
        (
            "recording",
            f"{held.path}, {text_of.num_bytes(held.num_bytes)}, by tuiadvisor {held.recorded_by or unknown}",
        ),
        ("created", created),
        ("job", run.label or "unnamed"),
        ("command", run.command or unknown),
        (
            "ranks",
            f"{held.num_ranks:,} of {text_of.count(run.world_size)} recorded"
            + (f": {states}" if states else ""),
        ),
        ("software", " · ".join(filter(None, software))),
        *([("layout", layout)] if layout else []),
        (
            "steps",
            f"{text_of.steps(held.first_step, held.last_step)}, {text_of.count(held.num_rank_steps, 'rank-step')}"
            + (
                f"; {held.num_early_steps:,} before step 0 on some ranks only" if held.num_early_steps else ""
            ),
        ),
        (
            "events",
            f"{text_of.count(held.num_events, 'collective or mark', 'collectives and marks')} one by one",
        ),
        *([("work a step", _given(held))] if held.given.document() else []),
        ("probe", probe_work(held.probe) if held.probe else unknown),
        ("duration", text_of.seconds(held.duration_s)),
        ("end", held.ended or "the run went on, or the recording was cut"),
        ("size", size),
        ("frames", kinds or "none"),
        *([("opened", held.opened)] if held.opened else []),
    ]


def _given(held: Contents) -> str:
    work = held.given.document()
    return (
        ", ".join(f"{value:,} {name.removesuffix('_per_step')}" for name, value in work.items())
        + ", as given"
    )


def _host(host: HostContents) -> str:
    parts = [
        text_of.ranks(tuple(sorted(host.ranks))),
        text_of.count(host.num_cpus, "core"),
        f"{text_of.num_bytes(host.memory_bytes)} memory",
        ", ".join(sorted({f"{host.gpus.count(name)} {name}" for name in host.gpus})) or "no GPU seen",
        host.platform or "",
        text_of.count(host.num_samples, "sample"),
    ]
    if host.num_agents > 1:
        parts.append(f"{host.num_agents} agents")
    return " · ".join(filter(None, parts))


def _wrong(held: Contents) -> list[str]:
    losses = held.losses
    counted = [
        (losses.events_dropped, "records dropped in the ranks' rings"),
        (losses.frames_lost, "frames lost on the way"),
        (losses.frames_bad, "frames that could not be read"),
        (losses.hooks_disabled, "hooks that were disabled"),
    ]
    found = [*held.damage.notes, *(f"{number:,} {what}" for number, what in counted if number)]
    if losses.ranks_missing:
        found.append(f"not recorded: {missing_ranks(losses)}")
    return [*found, *losses.notes]
