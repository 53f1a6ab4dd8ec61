"""Many hostile inputs thrown at each decoder directly, thousands a second, counted per decoder.

Run: python tests/fuzz.py [--inputs 1000000] [--seed 5] [--only kineto]; part of `make fuzz`. An input is a small good
one with a few bytes changed, cut, doubled or replaced by something odd (tests/unit/fuzzing.py), or JSON with a value of
another kind; behind right checksums where a format has them; or made whole of odd parts. An answer or a refusal in one
line is right; anything else is a finding: another exception, more than TIME_S of processor time, more than MEMORY_BYTES
beyond what the process had. Here are what travels and is recorded, importers and rules; what processes show of
themselves is in fuzz_processes.py, what people and other machines write in fuzz_files.py.
Input N alone: --only TARGET --first N --inputs 1 with the same seed. Exit code 1 if anything was found.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import importlib.util
import json
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "unit"))

import numpy as np
import orjson
import serving_pages
import test_import_ceilings as ceilings
import test_import_flight_recorder as dumps
import test_import_kineto as traces
import test_import_ops as tables
from fuzz_files import file_targets
from fuzz_processes import process_targets
from fuzz_target import CSV_ODD, Target, from_file, hurt_json, with_odd
from fuzzed_parquet import good_parquets, hurt_parquet, odd_parquet
from fuzzing import TOML_ODD, damaged
from test_fuzz import FRAMES, RUN, resealed

from tuiadvisor.advisor.steps.step_store import FOLDED
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers.fio import fio_document
from tuiadvisor.importers.flight_recorder import read_dump
from tuiadvisor.importers.kineto import read_trace
from tuiadvisor.importers.kinetoreport import kineto_document, kineto_summary
from tuiadvisor.importers.nccl_tests import nccl_document
from tuiadvisor.importers.ops import read_ops
from tuiadvisor.importers.rank_metrics import read_rank_metric
from tuiadvisor.importers.serving.judging import serving_rules
from tuiadvisor.importers.serving.page import read_page
from tuiadvisor.importers.serving.reading import serving_document, serving_view
from tuiadvisor.importers.step_logs import read_step_log
from tuiadvisor.report.serving import html_serving, markdown_serving
from tuiadvisor.stream.frames import (
    HEADER,
    FrameError,
    FrameKind,
    decode,
    encode,
    is_index,
    split,
    unpack_columns,
)
from tuiadvisor.stream.recording import (
    FILE_HEADER,
    FILE_MAGIC,
    FILE_VERSION,
    RecordingReader,
    RecordingWriter,
)
from tuiadvisor.stream.recordingindex import RecordingIndex
from tuiadvisor.stream.scan import scanned
from tuiadvisor.stream.tables import unpack_tables
from tuiadvisor.text.serving import summary
from tuiadvisor_rules.evaluate import judge
from tuiadvisor_rules.loader import catalog_dir, load_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

TIME_S = 2.0
MEMORY_BYTES = 1 << 30
MAX_FINDINGS = 5  # of one decoder: the rest would say the same


class TooSlowError(Exception):
    """An input took more than TIME_S of processor time."""


def hurt_frame(good: bytes, chance: random.Random) -> bytes:
    """A payload with wrong values, or wrong bytes, behind a right checksum; of a damaged frame, bytes."""
    try:
        if chance.random() < 0.4:
            return resealed(good, chance)
        frame = decode(good)
        payload = orjson.loads(hurt_json(orjson.dumps(frame.payload), chance))
        return encode(frame.kind, frame.source, frame.seq, frame.time_ns, payload)
    except (ValueError, TypeError, FrameError):  # no JSON any more, or none that a frame carries
        return damaged(good, chance)


# -- what reads ----------------------------------------------------------------------------------------------


def read_frame(data: bytes) -> object:
    """Both ways of unpacking agree."""
    frame = decode(data)
    if frame.kind == FrameKind.STEPS:
        (table,) = unpack_tables([frame.payload], FOLDED)
        columns = unpack_columns(frame.payload, FOLDED)
        assert not isinstance(table, TuiadvisorError), table
        assert np.array_equal(table, np.stack([columns[name] for name in FOLDED]))
    return frame


def read_recording(path: Path) -> object:
    """Whole frames and what is passed over make up the file."""
    with RecordingReader(path) as reader, RecordingIndex(path) as index:
        scan, found = scanned(reader)
        num_bytes = sum(stretch.num_frames for stretch in scan.stretches)
        assert num_bytes == found.num_frames
        reader.rewind()
        frames = list(reader.frames())
        num_bytes = sum(len(located.data) for located in frames) + found.num_index_bytes
        assert num_bytes + found.num_bad_bytes + found.num_tail_bytes + FILE_HEADER.size == found.num_bytes
        last_step, offset = index.last_step(), index.offset_of_step(7)
        assert (
            index.end
            == scan.end
            == (frames[-1].offset + len(frames[-1].data) if frames else FILE_HEADER.size)
        )
        return last_step, offset, index.position_s(offset), index.offset_at(index.duration_s / 2)


def read_serving(data: bytes) -> object:
    """One page, and it against the good one in both orders: figures, JSON, text and reports."""
    page, good = read_page(data, "page"), read_page(SERVING[0], "good")
    limits = {"ttft": 0.3, "tpot": 0.02, "e2e": 0.7}
    for pages in ((page,), (good, page), (page, good)):
        try:
            view = serving_view(pages, limits, every_s=60.0, rules=SERVING_RULES)
        except TuiadvisorError:  # two pages of different servers
            continue
        orjson.dumps(serving_document(view))
        words = summary(view), markdown_serving(view, "fuzz"), html_serving(view, "fuzz")
        for model in view.models:
            for latency in model.latencies.values():
                for found in (latency.p50, latency.p99):
                    assert (
                        found is None or found.value is None or found.low <= found.value <= (found.high or 0)
                    )
            requests = model.goodput.requests
            assert requests is None or 0 <= requests.low <= (requests.high or 0)
        assert all(words)
    return page


def read_rule(path: Path) -> object:
    """Loaded and judged by its own cases."""
    rule = load_rule(path)
    return [judge(rule, case.metrics).fires for case in rule.cases]


# -- good inputs and how they are hurt -----------------------------------------------------------------------


def hurt_page(good: bytes, chance: random.Random) -> bytes:
    """A metrics page with other values, lines less, twice or elsewhere; or one whose lines are hurt."""
    if chance.random() < 0.3:
        return with_odd(PROMETHEUS_ODD)(good, chance)
    lines = good.splitlines(keepends=True)
    for _ in range(chance.randint(1, 6)):
        place = chance.randrange(len(lines))
        head, _, value = lines[place].rpartition(b" ")
        kind = chance.random()
        if kind < 0.6 and not head.startswith(b"#"):
            lines[place] = head + b" " + (chance.choice(SERVING_VALUES) + b"\n")
        elif kind < 0.75:
            del lines[place]
        elif kind < 0.85:
            lines[place] = lines[place].replace(
                b'model_name="', b'model_name="' + chance.choice((b"x", b"", b"\x1b"))
            )
        elif kind < 0.95:
            lines.insert(chance.randrange(len(lines)), lines[place].replace(b'engine="0"', b'engine="1"'))
        else:
            lines[place] = head + value
    return b"".join(lines)


def hurt_recording(good: bytes, chance: random.Random) -> bytes:
    """Bytes of the file, or frames with a right checksum around a wrong payload."""
    if chance.random() < 0.5:
        return damaged(good, chance, (b"TUIF", b"\0" * 16, RUN[:40], FRAMES[3]))
    frames = list(FRAMES[:6])
    frames[chance.randrange(6)] = hurt_frame(chance.choice(FRAMES), chance)
    return FILE_HEADER.pack(FILE_MAGIC, FILE_VERSION, 0) + b"".join(frames)


def with_index(folder: Path) -> bytes:
    """A recording with an INDEX frame every few frames, the last one at its end."""
    path = folder / "indexed.tuirec"
    writer = RecordingWriter(path, FRAMES[0], 4000)
    for data in FRAMES[1:30]:
        writer.append(data)
    writer.close()
    return path.read_bytes()


def hurt_indexed(good: bytes, chance: random.Random) -> bytes:
    """Frames left out, doubled or exchanged, INDEX frames that say something else behind a right checksum; or bytes."""
    if chance.random() < 0.3:
        return damaged(good, chance, (b"TUIF", b"\0" * 16))
    frames = list(split(good[FILE_HEADER.size :]))
    for _ in range(chance.choice((1, 1, 2))):
        at, way = chance.randrange(len(frames)), chance.random()
        indexes = [
            number for number, frame in enumerate(frames) if len(frame) > HEADER.size and is_index(frame)
        ]
        if way < 0.7 and indexes:
            at = chance.choice(indexes[-2:])
            frames[at] = hurt_frame(frames[at], chance)
        elif way < 0.8:
            frames.insert(at, frames[chance.randrange(len(frames))])
        elif way < 0.9 and len(frames) > 1:
            del frames[at]
        else:
            frames[at] = hurt_frame(frames[at], chance)
    return good[: FILE_HEADER.size] + b"".join(frames)


def parquet_targets(folder: Path) -> list[Target]:
    """Parquet tables for `import ops`: damaged bytes of several files, and odd tables; needs pyarrow."""
    if importlib.util.find_spec("pyarrow") is None:
        return []
    read = from_file(folder / "ops.parquet", read_ops)
    return [
        Target("ops, parquet bytes", good_parquets(), hurt_parquet, read),
        Target("ops, parquet tables", [b""], lambda _, chance: odd_parquet(chance), read),
    ]


def good_trace(folder: Path) -> bytes:
    """A few kernels of the two kinds."""
    events = [
        traces.event(name, 1e9 + 1000 * number, 150.0, stream=7 + number % 2)
        for number, name in enumerate(["ampere_sgemm_128x64_nn", traces.ALL_REDUCE] * 6)
    ]
    return gzip.decompress(traces.trace(folder / "good.json.gz", events, 1, 4).read_bytes())


FIO = json.dumps(
    {
        "fio version": "fio-3.36",
        "global options": {"ioengine": "libaio", "bs": "1M", "direct": "1"},
        "jobs": [
            {
                "jobname": "read",
                "error": 0,
                "job options": {"rw": "read"},
                "read": {"io_bytes": 1 << 30, "bw_bytes": 2_000_000_000, "bw": 1_953_125, "iops": 1907.0},
                "write": {"io_bytes": 0, "bw_bytes": 0, "bw": 0, "iops": 0.0},
            }
        ],
    }
).encode()
# Few enough lines that thousands of pages are read a minute.
SERVING_LEFT_OUT = (b"_created", b"e2e", b"prefill", b"prompt", b"inter_token", b"HELP")
SERVING_VALUES = (b"+Inf", b"NaN", b"-1", b"0", b"1", b"7", b"0.5", b"1e308", b"9007199254740993", b"1e-300")
SERVING = [
    b"".join(
        line
        for line in text.encode().splitlines(keepends=True)
        if not any(word in line for word in SERVING_LEFT_OUT)
    )
    for text in (
        serving_pages.vllm({"0": (serving_pages.requests(30), serving_pages.Load(waiting=2, preemptions=1))}),
        serving_pages.sglang(serving_pages.requests(20), serving_pages.Load(), num_ranks=2),
        serving_pages.tgi(serving_pages.requests(20), serving_pages.Load()),
        serving_pages.triton({"a": (3, 1.0, 0.1), "tensorrt_llm": (3, 0.9, 0.1)}),
    )
]
SERVING_RULES = serving_rules()
PROMETHEUS_ODD = (
    *(
        b"+Inf",
        b"NaN",
        b"-1",
        b"1e308",
        b"0.5",
        b"9" * 400,
        b"1_0",
        b"0x1",
        b"\n",
        b"{",
        b"}",
        b'"',
        b"\\",
        b'\\"',
    ),
    *(
        b'le="',
        b",",
        b"=",
        b"# TYPE ",
        b"# HELP ",
        b" counter\n",
        b"_total",
        b"_bucket",
        b"vllm:",
        b"\xff",
        b"\0",
    ),
    *(
        b'{engine="0"}',
        b"\x1b[2J",
        "\u202e".encode(),
        b' # {a="b"} 1 2',
        b"\r",
        b"\x85",
        b"process_start_time_seconds 1\n",
    ),
)
METRIC = json.dumps(
    {"event_time": ["1", "2", "3"], "0": [1, None, "3"], "1": ["", 2.5, 1e3], "7": [1, 2, 3]}
).encode()
STEP_LOG = b"step,step_time_s,wall_ms\n" + b"".join(b"%d,54.7%d,17448%d\n" % (n, n, n) for n in range(20))


def targets(folder: Path) -> list[Target]:
    """Every decoder of bytes that come from outside."""
    rules = [file.read_bytes() for file in sorted(catalog_dir().glob("*.toml"))]
    ops = tables.written(folder / "good.csv", tables.pipeline(range(1))).read_bytes()
    late = dumps.dump(folder, 2, [dumps.entry(7, state="completed"), dumps.entry(8)]).read_bytes()
    recording = FILE_HEADER.pack(FILE_MAGIC, FILE_VERSION, 0) + b"".join(FRAMES[:8])
    csv_odd, toml_odd = with_odd(CSV_ODD), with_odd(TOML_ODD)
    return [
        Target("frame", FRAMES[:40], hurt_frame, read_frame),
        Target("frame bytes", FRAMES[:40], damaged, read_frame),
        Target("recording", [recording], hurt_recording, from_file(folder / "run.tuirec", read_recording)),
        Target("index", [with_index(folder)], hurt_indexed, from_file(folder / "run.tuirec", read_recording)),
        Target("kineto", [good_trace(folder)], hurt_json, from_file(folder / "rank1.json", read_trace)),
        Target(
            "kineto, report",
            [good_trace(folder)],
            hurt_json,
            from_file(folder / "rank1.json", lambda path: kineto_summary(kineto_document(path))),
        ),
        Target("flight-recorder", [late], hurt_json, from_file(folder / "rank02.json", read_dump)),
        Target("ops", [ops], csv_odd, from_file(folder / "ops.csv", read_ops)),
        Target("step_logs", [STEP_LOG], csv_odd, from_file(folder / "log.csv", read_step_log)),
        Target("rank_metrics", [METRIC], hurt_json, from_file(folder / "metric.json", read_rank_metric)),
        Target(
            "nccl-tests",
            [ceilings.printed(4, 1).encode(), ceilings.printed(2, 1, old=True).encode()],
            csv_odd,
            from_file(folder / "nccl.txt", nccl_document),
        ),
        Target("fio", [FIO], hurt_json, from_file(folder / "fio.json", fio_document)),
        Target("serving", SERVING, hurt_page, read_serving),
        Target("rules", rules, toml_odd, from_file(folder / "rule.toml", read_rule)),
        *parquet_targets(folder),
        *process_targets(folder),
        *file_targets(folder),
    ]


# -- the run -------------------------------------------------------------------------------------------------


@dataclass
class Count:
    """What came of one decoder's inputs."""

    num_inputs: int = 0
    num_answers: int = 0
    num_refused: int = 0
    num_findings: int = 0
    longest_s: float = 0.0
    spent_s: float = 0.0


def too_slow(*_: object) -> None:
    """The timer's handler."""
    raise TooSlowError


def made(target: Target, seed: int, number: int) -> bytes:
    """An input by its number, the same every time."""
    chance = random.Random(f"{seed} {target.name} {number}")  # noqa: S311 - as it says
    return target.hurt(chance.choice(target.good), chance)


def one_input(target: Target, data: bytes, count: Count) -> str:
    """Try it; what is wrong, or nothing."""
    begin_s = time.process_time()
    count.num_inputs += 1
    signal.setitimer(signal.ITIMER_VIRTUAL, TIME_S)
    try:
        target.read(data)
        count.num_answers += 1
    except target.refusals as error:
        count.num_refused += 1
        if not str(error) or "\n" in str(error):
            return f"a refusal that is not one line: {str(error)!r}"
    except Exception:  # noqa: BLE001 - this is what we look for
        return traceback.format_exc(limit=-3)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        took_s = time.process_time() - begin_s
        count.longest_s, count.spent_s = max(count.longest_s, took_s), count.spent_s + took_s
    return ""


def run(seed: int, first: int, num_inputs: int, chosen: Sequence[Target]) -> bool:
    """Throw inputs at the decoders in turn; prints the table, and each finding when it comes."""
    counts: dict[str, Count] = {target.name: Count() for target in chosen}
    signal.signal(signal.SIGVTALRM, too_slow)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for number in range(first, first + -(-num_inputs // len(chosen))):
        for target in chosen:
            count = counts[target.name]
            if count.num_findings >= MAX_FINDINGS:
                continue
            if wrong := one_input(target, made(target, seed, number), count):
                count.num_findings += 1
                print(f"FOUND {target.name}, input {number} of seed {seed}: {wrong}", flush=True)
    print(
        "| decoder | inputs | answered | refused | found | slowest | inputs/s |\n|---|---|---|---|---|---|---|"
    )
    for name, count in counts.items():
        print(
            f"| {name} | {count.num_inputs:,} | {count.num_answers:,} | {count.num_refused:,} | {count.num_findings} "
            f"| {1e3 * count.longest_s:.0f} ms | {count.num_inputs / max(count.spent_s, 1e-9):,.0f} |"
        )
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{sum(count.num_inputs for count in counts.values()):,} inputs, seed {seed}, {peak_mb:.0f} MB at most"
    )
    return any(count.num_findings for count in counts.values())


def main() -> int:
    """1 if anything was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", default="")
    options: Any = parser.parse_args()
    with contextlib.ExitStack() as stack:
        shared = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - files that are written a million times
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=shared)))
        every = targets(folder)
        chosen = [target for target in every if options.only in {"", target.name}]
        if not chosen:
            parser.error(f"--only: one of {', '.join(target.name for target in every)}")
        return int(run(options.seed, options.first, options.inputs, chosen))


if __name__ == "__main__":
    sys.exit(main())
