"""A shared recording names nobody: not in any payload, header or unknown field; and its diagnosis stays."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_run import MS, Fault, Job, encoded, frames

from tuiadvisor.advisor.fold import diagnose
from tuiadvisor.cli import main
from tuiadvisor.events import EVENT_NAMES
from tuiadvisor.exporters.anonymize import anonymize
from tuiadvisor.exporters.anonymize_model import is_of_probe
from tuiadvisor.exporters.rewrite import write_recording
from tuiadvisor.exporters.versions import device_model, platform_name, version
from tuiadvisor.exporters.words import allowed_words, scrub
from tuiadvisor.report.document import document
from tuiadvisor.stream.frames import FrameKind, decode, encode, pack_columns

HOSTS = {"node0": "zeus-gpu-017.acme.example", "node1": "zeus-gpu-003.acme.example"}
COMMAND = (
    "/home/mallory/venv/bin/python -u /scratch/skunkworks/finetune_llama.py --api-key hunter2 --user mallory"
)
SECRETS = (
    "zeus", "acme", "mallory", "skunkworks", "finetune", "hunter2", "secretproject", "feedbeef", "b00tb00t", "GPU-9f3a",
    "venv", "scratch",
)  # fmt: skip
PIDS = (41713, 41714, 41715, 41716, 40001)
JOB = Job(num_ranks=4, num_steps=120, ranks_per_host=2).with_faults(Fault("backward", (2,), 8 * MS))


def text(name: str) -> str:
    for plain, real in HOSTS.items():
        name = name.replace(plain, real)
    return name


def secret_frames() -> list[bytes]:
    """A recording with names in every field that can carry text, and in fields nobody knows."""
    run = {
        "schema": 1, "created_wall_ns": 17, "tuiadvisor": "0.1.0", "label": "secretproject.py", "command": COMMAND,
        "hub_host": "login.acme.example", "site": "acme", "nested": {"user": "mallory"},
    }  # fmt: skip
    parts = [encode(FrameKind.RUN, "hub", 0, 0, run)]
    source = {f"{plain}/1/1": f"{real}/40001/17{index}" for index, (plain, real) in enumerate(HOSTS.items())}
    for frame in frames(JOB):
        name = source[frame.source]
        if frame.kind == FrameKind.HELLO:
            payload = hello(frame.payload)
            parts.append(encoded(replace(frame, source=name, payload=payload)))
            continue
        columns = {**frame.payload["columns"], "mallory": 7, "note": [1] * frame.payload["rows"]}  # type: ignore[dict-item]
        parts.append(
            encoded(replace(frame, source=name, payload={**frame.payload, "columns": columns, "by": "acme"}))
        )
    host = text("node0")
    name = source["node0/1/1"]
    states = [
        {
            "rank": 0,
            "state": "live",
            "detail": "sent by mallory from /home/mallory (pid 41713)",
            "phase": "forward",
        },
        {"rank": 1, "state": "acme", "phase": "skunkworks", "step": 4},
    ]
    sample = {
        "host": host, "mono_ns": 5, "wall_ns": 6, "cpu": 0.5, "num_cpus": 2, "acme": 3, "uid": 41713,
        "gpus": [{"index": 0, "name": "acme GPU", "uuid": "GPU-9f3a", "pids": [41713], "power_w": 300.0,
                  "throttle_reasons": ["power cap", "mallory"]}],
        "ranks": [{"rank": 0, "cpu_s": 1.5, "mallory": 1}],
    }  # fmt: skip
    gap = {"what": "agent silent", "source": name, "why": f"no frame of {host} for 3 s", "num_frames": 1}
    parts += [
        encode(FrameKind.STATUS, name, 100, 10**10, {"host": host, "mono_ns": 5, "wall_ns": 6, "ranks": states}),
        encode(FrameKind.HOST, name, 101, 10**10, sample),
        encode(FrameKind.EVENTS, name, 102, 10**10, {**pack_columns([(0, 1, 5, 1, 2, 0, 3, 4, 0)],
               ("rank", "kind", "step", "begin_ns", "end_ns", "group", "seq", "num_bytes", "detail")), "x": "acme"}),
        encode(FrameKind.GAP, "hub", 1, 1, gap),
        encode(FrameKind.GAP, "hub", 2, 1, {"what": "mallory", "source": "acme/1/2", "why": COMMAND}),
        encode(FrameKind.BYE, name, 103, 10**10, {"reason": "stopped by SIGTERM of mallory@zeus"}),
    ]  # fmt: skip
    return parts


def hello(payload: dict[str, object]) -> dict[str, object]:
    ranks = [
        {
            **entry,
            "pid": PIDS[entry["rank"]],
            "command": COMMAND,
            "label": "finetune_llama.py",
            "git_commit": "feedbeef",
            "torch": "2.6.0+acme.17",
            "cuda": "12.4",
            "hooks": {"optimizer": "ok", "mallory": "ok", "backward": "ImportError: /home/mallory/acme.py"},
            "parallel": {"dp": 4, "skunkworks": 2},
        }
        for entry in payload["ranks"]  # type: ignore[attr-defined]
    ]
    return {
        **payload,
        "host": text(str(payload["host"])),
        "agent_pid": 40001,
        "boot_id": "b00tb00t",
        "python": "3.11.7",
        "platform": "Linux-5.14.0-acme.el9.x86_64-x86_64-with-glibc2.34",
        "gpus": ["NVIDIA H100 80GB HBM3", "acme TPU"],
        "driver": "550.54.15-acme",
        "ranks": ranks,
    }


def anonymized(parts: list[bytes]) -> list[bytes]:
    return list(anonymize(lambda _what: iter(parts)))


def everything(parts: list[bytes]) -> str:
    """All bytes of the frames and all of their payloads, opened, as one text."""
    raw = b"".join(parts).decode("latin-1")
    return raw + "".join(json.dumps([decode(data).source, decode(data).payload]) for data in parts)


@pytest.mark.slow
def test_no_secret_is_left_in_any_byte() -> None:
    """Hosts, users, paths, commands, commits, serial numbers, process ids: none of them, anywhere."""
    before, after = everything(secret_frames()), everything(anonymized(secret_frames()))
    assert all(secret in before for secret in SECRETS), "the test must be able to fail"
    assert [] == [secret for secret in SECRETS if secret.lower() in after.lower()]
    assert all(re.search(rf"\b{pid}\b", before) for pid in PIDS)
    opened = "".join(
        json.dumps([decode(data).source, decode(data).payload]) for data in anonymized(secret_frames())
    )
    assert [] == [pid for pid in PIDS if re.search(rf"\b{pid}\b", opened)]


def test_no_sampled_stack_is_left() -> None:
    """Files and functions of the training are its owner's."""
    frame = {"name": "secret_function", "file": "skunkworks/train.py", "line": 3, "own": 1}
    look = {"rank": 0, "look": 1, "of": 0, "frames": [frame], "stacks": [[0]], "samples": [0, 0]}
    payload: dict[str, object] = {"host": HOSTS["node0"], "ranks": [], "stacks": [look]}
    parts = [*secret_frames(), encode(FrameKind.STATUS, "node0/1/1", 10_000, 1, payload)]
    assert "secret_function" in "".join(json.dumps(decode(data).payload) for data in parts)
    left = "".join(json.dumps(decode(data).payload) for data in anonymized(parts))
    assert "secret_function" not in left
    assert "skunkworks" not in left


def passed(kind: FrameKind, payload: dict[str, object]) -> dict[str, object]:
    """What is left of one frame's payload."""
    (data,) = anonymized([encode(kind, "zeus/40001/5", 0, 1, payload)])
    return decode(data).payload


def test_a_device_keeps_its_figures_and_paths_and_loses_its_names() -> None:
    """Also each part of one that is divided; parts of parts there are none."""
    part = {
        "index": 0, "uuid": "MIG-9f3a", "name": "acme GPU", "sm": 0.5, "parts": [{"index": 9}],
        "peer_paths": ["PIX", "acme", None, ["PIX"], 7], "nic_path": "acme",
    }  # fmt: skip
    whole = {
        "index": 0, "name": "NVIDIA H100 80GB HBM3", "uuid": "GPU-9f3a", "nic_path": "PXB", "is_lost": True,
        "xids": [79, "mallory", None], "pids": [41713, "mallory", 41713], "throttle_reasons": ["power cap", 4],
        "peer_paths": ["SAME", "SYS"], "parts": [part, "acme"],
    }  # fmt: skip
    lost = {"index": 1, "is_lost": "acme", "xids": "acme", "pids": 4, "throttle_reasons": None, "parts": []}
    first, second = passed(FrameKind.HOST, {"host": "zeus", "gpus": [whole, lost, None]})["gpus"]  # type: ignore[misc]
    (inner,) = first.pop("parts")
    assert {
        "index": 0, "name": "NVIDIA H100 80GB HBM3", "uuid": "GPU-0", "nic_path": "PXB", "is_lost": True,
        "xids": [79], "pids": [1, 1], "throttle_reasons": ["power cap"], "peer_paths": ["SAME", "SYS"],
    } == first  # fmt: skip
    assert {
        "index": 0, "uuid": "GPU-0", "name": "device", "sm": 0.5, "nic_path": None,
        "peer_paths": ["PIX", None, None, None, None],
    } == inner  # fmt: skip
    assert {"index": 1, "parts": None} == second


def test_cards_and_places_keep_kinds_and_numbers() -> None:
    """A card is called by its owner, a policy by the kernel; nodes and figures are nobody's."""
    figures = {"numa_node": 1, "rate_bits_s": 4 * 10**11, "sent_bytes_s": 1.5, "new_errors": 0}
    cards: list[dict[str, object]] = [
        {"name": "mlx5_mallory", "kind": "infiniband", **figures, "mallory": 7},
        {"name": "acme0", "kind": "acme"},
    ]
    ranks = [
        {"rank": 0, "cpu_nodes": [0, None, 1], "memory_nodes": None, "memory_policy": "bind"},
        {"rank": 1, "memory_policy": "acme"},
    ]
    found = passed(FrameKind.HOST, {"nics": cards, "ranks": ranks, "cpu_per_core": [0.5, None, 1]})
    assert [
        {"name": "card0", "kind": "infiniband", **figures},
        {"name": "card1", "kind": None},
    ] == found["nics"]
    assert [
        {"rank": 0, "cpu_nodes": [0, 1], "memory_nodes": None, "memory_policy": "bind"},
        {"rank": 1, "memory_policy": None},
    ] == found["ranks"]
    assert [0.5, 1] == found["cpu_per_core"]
    bare = passed(FrameKind.HOST, {"cpu_per_core": None, "nics": None})
    assert ([], []) == (bare["cpu_per_core"], bare["nics"])


def test_a_model_keeps_its_figures_and_torchs_words() -> None:
    """The class is the user's, as is a setting of the environment; a sentence is no type and no shape."""
    model = {
        "class": "SkunkworksForCausalLM", "params": 7_000_000, "layers": 32, "compiled": True, "heads": "acme",
        "param_dtype": "bfloat16", "wrappers": "FSDP DDP", "input": "4x2048", "allocator": "acme:mallory",
        "sdp": "flash/mallory", "odd_shape": "acme" * 30, "recompute": 4, "device_name": "NVIDIA at acme!",
    }  # fmt: skip
    rank = {
        "rank": 0, "model": model, "pipeline": {"stages": 4, "ranks": None, "mallory": 1},
        "parallel": {"tp": 2, "dp": None, "skunkworks": 4}, "schedule": "ScheduleOfMallory",
    }  # fmt: skip
    (entry,) = passed(FrameKind.HELLO, {"host": "zeus", "ranks": [rank]})["ranks"]  # type: ignore[misc]
    assert {
        "params": 7_000_000, "layers": 32, "compiled": True, "param_dtype": "bfloat16", "wrappers": "FSDP DDP",
        "input": "4x2048", "device_name": "device",
    } == entry["model"]  # fmt: skip
    assert {"stages": 4} == entry["pipeline"]
    assert {"tp": 2} == entry["parallel"]
    assert "other" == entry["schedule"]
    odd = {"rank": 0, "model": {"device_name": 7, "params": "acme"}}
    (entry,) = passed(FrameKind.HELLO, {"ranks": [odd]})["ranks"]  # type: ignore[misc]
    assert {"rank": 0, "model": {}} == entry
    odd = {"rank": 0, "model": "acme", "pipeline": None, "parallel": None, "hooks": None}
    (entry,) = passed(FrameKind.HELLO, {"ranks": [odd]})["ranks"]  # type: ignore[misc]
    assert {"rank": 0} == entry


@pytest.mark.parametrize("key", ["imported", "traced"])
def test_of_a_trace_its_kind_and_figures_are_kept(key: str) -> None:
    """No file, no kernel, no device of its notes."""
    told = {
        "kind": "kineto", "source": "/scratch/mallory/rank0.json", "words": "no step of mallory was seen",
        "because": "acme", "late_ranks": [3, None], "ranks": [0, None, 1], "steps": None,
        "device": {"resolution_ns": 1000, "kernels": ["skunkworks_gemm"]},
        "arithmetic": {"flops_per_step": 1e12, "peak_source": "acme data sheet"}, "notes": ["/home/mallory"],
    }  # fmt: skip
    found = passed(FrameKind.RUN, {"schema": 1, key: told})
    kept: dict[str, object] = found[key]  # type: ignore[assignment]
    assert ("kineto", "script0.py", [3]) == (kept["kind"], kept["source"], kept["late_ranks"])
    assert ({"resolution_ns": 1000}, {"flops_per_step": 1e12}) == (kept["device"], kept["arithmetic"])
    assert (([0, 1], []) if key == "traced" else (None, None)) == (kept.get("ranks"), kept.get("steps"))
    assert [] == [secret for secret in (*SECRETS, "json") if secret in json.dumps(found).lower()]
    bare = passed(
        FrameKind.RUN, {key: {"kind": "acme", "device": "acme", "arithmetic": 7, "late_ranks": None}}
    )
    lists = {"ranks": [], "steps": []} if key == "traced" else {}
    assert {key: {"kind": "other", "late_ranks": None, **lists}} == bare
    assert {} == passed(FrameKind.RUN, {key: None})


def test_columns_that_cannot_be_opened_are_left_out() -> None:
    """They could hold anything, and no reading of the recording would miss them."""
    good = pack_columns([(0,) * len(EVENT_NAMES)], EVENT_NAMES)
    frames_ = [
        encode(FrameKind.EVENTS, "zeus/40001/5", seq, 1, payload)
        for seq, payload in enumerate(({**good, "columns": {"rank": "acme"}}, good))
    ]
    assert [1] == [decode(data).seq for data in anonymized(frames_)]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("hub", "hub"),
        ("zeus/40001/5", "node0/1/0"),
        ("zeus/mallory/5", "node0/0/0"),
        ("zeus/" + "4" * 40 + "/5", "node0/0/0"),
        ("zeus", "node0/0/0"),
    ],
)
def test_a_source_is_a_place_and_a_number(source: str, said: str) -> None:
    """Whatever a stranger's agent calls itself."""
    (data,) = anonymized([encode(FrameKind.BYE, source, 0, 1, {"reason": "done"})])
    assert said == decode(data).source


def test_the_diagnosis_stays_but_for_names() -> None:
    """The same document once hosts, commands and process ids are set aside."""
    parts = secret_frames()
    before, after = document(diagnose(parts)), document(diagnose(anonymized(parts)))
    for found in (before, after):
        for row in found["per_rank"]:  # type: ignore[attr-defined]
            del row["pid"], row["state_detail"]
        del found["run"], found["hosts"]
        found["losses"].pop("notes")  # type: ignore[attr-defined]
    said, told = (re.sub(r"--pid \d+", "--pid PID", json.dumps(found)) for found in (before, after))
    for index, host in enumerate(sorted(["login.acme.example", *HOSTS.values()])):
        said = said.replace(host, f"node{index}")
    assert json.loads(said) == json.loads(told)
    assert [2] == after["findings"][0]["ranks"]  # type: ignore[index]


def test_the_same_name_becomes_the_same_name() -> None:
    """A host in frames, sources and gaps keeps one name; two hosts keep two, in their order."""
    after = [decode(data) for data in anonymized(secret_frames())]
    hosts = {
        (frame.source.split("/")[0], frame.payload["host"]) for frame in after if frame.payload.get("host")
    }
    assert {("node1", "node1"), ("node2", "node2")} == hosts
    gaps = [frame.payload["source"] for frame in after if frame.kind == FrameKind.GAP]
    assert gaps[0] in {frame.source for frame in after}
    commands = {
        entry["command"]
        for frame in after
        if frame.kind == FrameKind.HELLO
        for entry in frame.payload["ranks"]
    }
    assert {"command 0"} == commands


def test_anonymizing_twice_changes_nothing_that_matters() -> None:
    """Names of ours go through again and stay as many."""
    once = anonymized(secret_frames())
    twice = anonymized(once)
    assert len(once) == len(twice)
    assert diagnose(once).verdict == diagnose(twice).verdict


def test_of_a_model_only_the_probe_s_own_words_are_kept() -> None:
    """Types, shapes, wrappers and kernels as the probe writes them; sixty letters of somebody's passed before."""
    ours = (
        *("float32", "bfloat16 float32", "float8_e4m3fn", "64x3x224x224", "DDP FSDP2", "off", "maybe"),
        *("flash mem_efficient cudnn math", "position_ids", "cu_seqlens_q", "nested tensor", "none"),
    )
    assert [] == [text for text in ours if not is_of_probe(text)]
    theirs = (
        "AcmeSecretModel",
        "DDP AcmeShard",
        "alice",
        "xé",
        "../x",
        "float32acme",
        "bfloat16;alice",
    )
    assert [] == [text for text in theirs if is_of_probe(text)]


def test_what_is_harmless_is_kept() -> None:
    """Versions, models, states and our own words survive; a site's part of them does not."""
    assert ("2.6.0+cu124", "2.6.0", None) == (
        version("2.6.0+cu124"),
        version("2.6.0+acme.17"),
        version("acme"),
    )
    assert "Linux-5.14 x86_64 glibc2.34" == platform_name(
        "Linux-5.14.0-acme.el9.x86_64-x86_64-with-glibc2.34"
    )
    assert ("NVIDIA H100 80GB HBM3", "device") == (
        device_model("NVIDIA H100 80GB HBM3"),
        device_model("NVIDIA at acme!"),
    )
    assert "killed by SIGKILL after step 341" == scrub("killed by SIGKILL after step 341")
    assert "no DataLoader in use; other iterators are seen from Python ... on" == scrub(
        "no DataLoader in use; other iterators are seen from Python 3.12 on"
    )
    assert "4711" not in scrub("process 4711 is gone")
    assert len(allowed_words()) > 300


@settings(max_examples=200, deadline=None)
@given(
    st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=30),
    st.sampled_from([" ", "/", "=", ""]),
)
def test_no_foreign_word_survives_scrubbing(secret: str, glue: str) -> None:
    """Whatever is put into a message, only words of ours come out."""
    words = re.findall(r"[^\W\d_]+", scrub(f"killed by{glue}{secret}{glue}after step 3"))
    assert set(words) <= allowed_words()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.from_regex(r"zq[a-z0-9]{4,10}", fullmatch=True), min_size=6, max_size=6, unique=True))
def test_random_names_do_not_survive(names: list[str]) -> None:
    """Any name in any place, known or unknown key."""
    host, user, script, key, value, state = names
    rank = {"rank": 0, "pid": 77123, "command": f"/home/{user}/{script}.py", "label": script, "state": state,
            key: value, "hooks": {key: value}, "detail": f"{user}@{host}:{value}"}  # fmt: skip
    parts = [
        encode(FrameKind.RUN, "hub", 0, 0, {"label": script, "hub_host": host, key: value}),
        encode(
            FrameKind.HELLO,
            f"{host}/77123/5",
            0,
            1,
            {"host": host, "ranks": [rank], key: [value], "platform": value},
        ),
        encode(FrameKind.BYE, f"{host}/77123/5", 1, 2, {"reason": f"{value} {key}"}),
    ]
    after = everything(anonymized(parts))
    assert [] == [name for name in names if name in after]


def test_the_command_writes_an_owner_only_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """And never over an existing one; damage is left behind."""
    source, target = tmp_path / "run.tuirec", tmp_path / "shared.tuirec"
    write_recording(str(source), iter(secret_frames()))
    source.write_bytes(source.read_bytes() + b"damage by mallory")
    assert 0 == main(["anonymize", str(source), "-o", str(target)])
    assert 0o600 == target.stat().st_mode & 0o777
    assert b"mallory" not in target.read_bytes()
    assert 2 == main(["anonymize", str(source), "-o", str(target)])
    assert "exists already" in capfd.readouterr().err
