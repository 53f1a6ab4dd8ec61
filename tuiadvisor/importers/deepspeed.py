"""`import deepspeed LOG`: the summary that DeepSpeed's communication logger prints.

In: a training's output with the tables of deepspeed.comm.log_summary() (deepspeed/utils/comms_logging.py, log_all): an
operation's name in a row of its own, then a row a message size; with show_straggler a second table.  Out: the document.
Where it was printed more than once the last of each counts: counts and times are from the beginning on.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers.files import opened

if TYPE_CHECKING:
    from pathlib import Path

MAX_LINE: Final = 1 << 16
MAX_LINES: Final = 20_000_000
MAX_ROWS: Final = 20_000
SHOWN: Final = 12
HEAD: Final = re.compile(r"Comm\. Op\s+Message Size\s+Count\s+Total Latency\(ms\)")
STRAGGLER: Final = re.compile(
    r"Comm\. Op\s+Message Size\s+Count\s+Total comm lat\(ms\)\s+Total straggler\(ms\)"
)
NUMBER: Final = r"(\d{1,15}(?:\.\d{1,6})?)"
ROW: Final = re.compile(
    rf"^\s+(\d{{1,9}}(?:\.\d{{1,4}})?) ?([KMGTPEZY]?B)\s+(\d{{1,15}})\s+{NUMBER}\s+{NUMBER}\s+{NUMBER}\s+{NUMBER}\s*$"
)
# Begins as a row does: a size and a count; of its times one is negative, not a number, or not there.
ODD_ROW: Final = re.compile(r"^\s+\d{1,9}(?:\.\d{1,4})? ?[KMGTPEZY]?B\s+\d{1,15}\b")
# Its first size may stand beside it, as where a terminal or a page joined the lines.
NAME: Final = re.compile(r"^([A-Za-z_][\w.]{0,60})(\s+[\d.]{1,14} ?[KMGTPEZY]?B\s+\d.{0,400})?\s*$")
# What launchers put before each line: "node01: ", "[rank0]: ", "0: ".
PREFIX: Final = re.compile(
    r"^(?:\[[^\]]{1,40}\]:?|[\w.-]{1,64}:) ?(?=\s{10}|[A-Za-z_]\w*(?:\s*$|\s+[\d.]+ ?[KMGTPEZY]?B\s)|Comm\. Op)"
)
UNITS: Final = {
    unit: 1024**at for at, unit in enumerate(("B", "KB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"))
}
NONE: Final = (
    "no table of DeepSpeed's comms logger: enable comms_logger and call deepspeed.comm.log_summary()"
)


def deepspeed_document(path: Path) -> dict[str, Any]:
    """The last tables. TuiadvisorError where there is none."""
    sums, waits, num_odd = _read(path)
    if not sums:
        raise TuiadvisorError(f"{path}: {NONE}")
    rows: list[dict[str, Any]] = [
        {
            "op": op,
            "bytes": size,
            "calls": row[0],
            "total_s": row[1] / 1e3,
            "mean_s": row[2] / 1e3,
            "algbw_gbit_s": row[3],
            "busbw_gbit_s": row[4],
            "transfer_s": waits[op, size][1] / 1e3 if (op, size) in waits else None,
            "wait_s": waits[op, size][2] / 1e3 if (op, size) in waits else None,
        }
        for (op, size), row in sums.items()
    ]
    rows.sort(key=lambda row: -row["total_s"])
    total = sum(row["total_s"] for row in rows)
    known = [row["wait_s"] for row in rows if row["wait_s"] is not None]
    unknown = [{"metric": "steps", "why": "the logger sums calls from the beginning on"}]
    if not known:
        unknown.append({"metric": "waiting", "why": "printed without show_straggler=True"})
    unknown.append({"metric": "late rank", "why": "the table is of one rank: who came last is not in it"})
    return {
        "schema": 1,
        "source": {"kind": "deepspeed", "path": str(path)},
        "collectives": rows,
        "total_s": total,
        "wait_s": sum(known) if known else None,
        "unknown": unknown,
        "losses": [f"{num_odd} row{'s' * (num_odd > 1)} with a time that is no number: not in the sums"]
        if num_odd
        else [],
    }


Table = dict[tuple[str, int], tuple[int, float, float, float, float]]


def _read(path: Path) -> tuple[Table, Table, int]:
    """Sums, waits, and how many rows of either have no numbers."""
    tables: dict[str, Table] = {"": {}, "sums": {}, "waits": {}}
    odd = {"sums": 0, "waits": 0}
    inside, op, number = "", "", 0
    with opened(path) as file:
        while (raw := file.readline(MAX_LINE)) and number < MAX_LINES:
            number += 1
            line = raw.decode("utf-8", "replace").rstrip("\n\r")
            line = PREFIX.sub("", line, count=1)
            if STRAGGLER.search(line) or HEAD.search(line):
                inside = "waits" if STRAGGLER.search(line) else "sums"
                tables[inside], odd[inside], op = {}, 0, ""
                if inside == "sums":
                    tables["waits"], odd["waits"] = {}, 0
                continue
            if inside and (name := NAME.match(line)):
                op, line = name[1], name[2] or ""
            if inside and op and (row := ROW.match(line)):
                size = round(float(row[1]) * UNITS.get(row[2], 1))
                if len(tables[inside]) < MAX_ROWS:
                    one, two, three, four = (float(row[at]) for at in (4, 5, 6, 7))
                    tables[inside][op, size] = (int(row[3]), one, two, three, four)
            elif inside and op and ODD_ROW.match(line):
                odd[inside] += 1
    return tables["sums"], tables["waits"], sum(odd.values())


def deepspeed_summary(document: dict[str, Any]) -> str:
    """The document in lines."""
    total = document["total_s"]
    wait = "unknown" if document["wait_s"] is None else f"{document['wait_s']:.4g} s"
    lines = [
        f"{document['source']['path']}: communication {total:.4g} s, of it waiting for later ranks {wait}",
        f"{'operation':>28} {'bytes':>14} {'calls':>9} {'total s':>10} {'mean ms':>10} {'bus Gbit/s':>11}",
    ]
    lines += [
        f"{row['op']:>28} {row['bytes']:>14,} {row['calls']:>9,} {row['total_s']:>10.4g} "
        f"{1e3 * row['mean_s']:>10.4g} {row['busbw_gbit_s']:>11.4g}"
        for row in document["collectives"][:SHOWN]
    ]
    if len(document["collectives"]) > SHOWN:
        lines.append(f"and {len(document['collectives']) - SHOWN} more")
    lines += [f"unknown {item['metric']}: {item['why']}" for item in document["unknown"]]
    return "\n".join([*lines, *(f"lost: {loss}" for loss in document["losses"])])
