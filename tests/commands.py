"""Every command of the command line that needs no training, with something small to do, for tests that try them all."""

from __future__ import annotations

import sys
from pathlib import Path

UNIT = Path(__file__).parent / "unit"
# What only runs beside a training, shows screens, serves a page or an assistant, or starts what the user names.
BESIDE_A_TRAINING = frozenset(
    {"watch", "record", "run", "arm", "capture", "stacks", "serve", "detach", "demo", "mcp"}
)


def file_commands(folder: Path) -> list[list[str]]:
    """The command lines; what they read and write lies in this folder."""
    if str(UNIT) not in sys.path:
        sys.path.append(str(UNIT))
    from synthetic_run import Fault, Job
    from test_contents import recording
    from test_import_ceilings import fio_text, job, printed
    from test_import_flight_recorder import stuck
    from test_import_nsys import export
    from test_import_ops import pipeline, written
    from test_import_rocprof import traces as rocprof

    run = recording(folder / "run.tuirec", Job(num_steps=60, faults=(Fault("backward", (2,), 0.015),)))
    other = recording(folder / "other.tuirec", Job(num_ranks=4, num_steps=60))
    (folder / "nccl.txt").write_text(printed())
    (folder / "fio.json").write_text(fio_text(job(1e9)))
    (folder / "sizes.csv").write_text("devices,step_s\n1,1.0\n2,0.55\n4,0.3\n8,0.2\n")
    (folder / "dumps").mkdir()
    stuck(folder / "dumps")
    (folder / "traces").mkdir()
    (folder / "traces" / "rank0.json").write_text(TRACE)
    written(folder / "ops.csv", pipeline())
    intent = ["--intent", folder / "intent.toml"]
    lines: list[list[object]] = [
        ["replay", run, "--once"],
        ["home", folder, "--once"],
        ["runs", folder, "--once"],
        ["fleet", folder, "--once"],
        ["diagnose", run, *intent],
        ["diagnose", run, "--json", *intent],
        ["advise", run, "--why", "idle", *intent],
        ["advise", run, "--json", *intent],
        ["intent", "--set", "objective=time", "--file", folder / "intent.toml"],
        ["intent", "--json", "--file", folder / "intent.toml"],
        ["compare", run, other],
        ["report", "-o", folder / "report.md", run],
        ["info", run],
        ["scale", "--table", folder / "sizes.csv", "--json"],
        ["open", folder / "traces"],
        ["import", "kineto", folder / "traces"],
        ["import", "nsys", export(folder / "report.sqlite", num_steps=2)],
        ["import", "rocprof", rocprof(folder / "rocprof", 1, 2)],
        ["import", "ops", folder / "ops.csv"],
        ["import", "flight-recorder", folder / "dumps"],
        ["import", "nccl-tests", folder / "nccl.txt"],
        ["import", "fio", folder / "fio.json"],
        ["import", "serving", UNIT.parent / "recordings" / "serving" / "vllm.prom", "--ttft-slo", "500ms"],
        ["trim", "--steps", "10:20", "-o", folder / "short.tuirec", run],
        ["anonymize", "-o", folder / "nobody.tuirec", run],
        ["export", "--format", "chrome-trace", "-o", folder / "trace.json", run],
        ["rules", "list"],
        ["rules", "show", "straggler"],
        ["rules", "check"],
        ["doctor"],
        ["completion", "bash"],
    ]
    return [[str(word) for word in line] for line in lines]


TRACE = (
    '{"distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": ['
    '{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 0, "dur": 1000},'
    '{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 100, "dur": 500,'
    ' "args": {"stream": 7}}]}'
)
