"""What to measure where a GPU is at hand for half an hour: `python tests/gpu/programme.py -o FILE.md`.

The tests of this folder, then situations.py (what the whole command says of known faults) and each part of parts.py,
most worth first, in a process of its own with a limit of four minutes; what does not fit into --minutes is named. A
part that fails is a row, not the end. Without a device every row is a skip, and the exit code 0. The table is written
anew after each part: a machine that is taken away leaves what was measured.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
PART_S: Final = 240.0
END_S: Final = 45.0  # that a situation under way takes at most
NAMES: Final = (
    "tests", "situations", "phases", "cost", "hazards", "nccl", "borders", "threads", "host_ahead", "counters",
    "nccl_pair",
)  # fmt: skip
Row = tuple[str, str, str, str]


def run(name: str, device: str, limit_s: float) -> list[Row]:
    """Rows of one part; what it started looks for its folder, and ends with it."""
    with tempfile.TemporaryDirectory(prefix="gpu-", ignore_cleanup_errors=True) as folder:
        return _run(name, device, limit_s, folder)


def _run(name: str, device: str, limit_s: float, folder: str) -> list[Row]:
    if name == "tests":
        command = [sys.executable, "-m", "pytest", "-q", "-rs", "--timeout", str(int(limit_s)), str(HERE)]
    elif name == "situations":
        rehearse = [] if device == "cuda" else ["--rehearse", "--seconds", "4"]
        minutes = str((limit_s - END_S) / 60)
        script = str(HERE / "situations.py")
        command = [sys.executable, script, "-o", folder, "--minutes", minutes, *rehearse]
    else:
        command = [sys.executable, __file__, "--part", name, "--device", device]
    begin_s = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired as late:
        text = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else ""
        return [*rows_of(name, text), (name, "the part", f"no end within {limit_s:.0f} s", "")]
    took = f"{time.monotonic() - begin_s:.0f} s"
    lines = (done.stdout.strip() or done.stderr.strip()).splitlines() or ["nothing printed"]
    if name == "tests":
        failed = [line for line in lines if line.startswith("FAILED")]
        return [
            *((name, line[:160], "failed", "passed") for line in failed),
            (name, "tests/gpu", lines[-1], "passed"),
        ]
    rows = rows_of(name, done.stdout)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["nothing printed"])[-1]
        rows.append((name, "the part", f"failed after {took}: {last[:200]}", ""))
    return rows


def rows_of(name: str, text: str) -> list[Row]:
    """The rows that a part printed, one JSON list a line."""
    lines = [line for line in text.splitlines() if line.startswith("[")]
    return [(name, what, seen, wanted) for what, seen, wanted in map(json.loads, lines)]


def table(rows: list[Row], device: str) -> str:
    """Markdown."""
    head = [f"{device}; {platform.platform()}, Python {platform.python_version()}", ""]
    lines = ["| part | what | seen | wanted |", "|---|---|---|---|"]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([*head, *lines, ""])


def device_name() -> str | None:
    """Of the first CUDA device, with torch's version; None: there is none."""
    import torch

    if not torch.cuda.is_available():
        return None
    return f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}, NCCL {torch.cuda.nccl.version()}"


def print_part(name: str, device: str) -> None:
    """One part, in this process."""
    from parts import PARTS

    for row in PARTS[name](device):
        print(json.dumps(row), flush=True)


def main() -> None:
    """Run what fits."""
    parser = argparse.ArgumentParser(description="measurements on one GPU, most worth first")
    parser.add_argument("-o", "--output", type=Path, help="write the table here too, after each part")
    parser.add_argument("--minutes", type=float, default=28.0)
    parser.add_argument(
        "--only", nargs="+", choices=NAMES, default=list(NAMES), metavar="PART", help=", ".join(NAMES)
    )
    parser.add_argument(
        "--rehearse",
        action="store_true",
        help="without a device: the same code on the CPU, figures mean nothing",
    )
    parser.add_argument("--part", choices=NAMES, help=argparse.SUPPRESS)
    parser.add_argument("--device", default="cuda", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        print_part(options.part, options.device)
        return
    found = device_name()
    device = "cuda" if found else "cpu"
    rows: list[Row] = []
    end_s = time.monotonic() + 60 * options.minutes
    for name in options.only:
        left_s = end_s - time.monotonic()
        if found is None and not options.rehearse:
            rows.append((name, "the part", "skipped: no CUDA device", ""))
        elif left_s < PART_S / 4:
            rows.append((name, "the part", "not begun: the time was over", ""))
        else:
            rows += run(name, device, min(PART_S, left_s))
        if options.output:
            options.output.write_text(table(rows, found or "no CUDA device"), encoding="utf-8")
    print(table(rows, found or "no CUDA device"))


if __name__ == "__main__":
    main()
