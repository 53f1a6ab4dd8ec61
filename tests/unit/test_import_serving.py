"""Metrics pages of serving processes: figures against the requests behind them, what is unknown, what is refused."""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

import serving_pages as pages
from serving_pages import RECORDINGS, Load, requests

from tuiadvisor.cli import main
from tuiadvisor.errors import TuiadvisorError
from tuiadvisor.importers.serving.names import SERVERS, usual
from tuiadvisor.importers.serving.page import MAX_BYTES, MAX_LINE, MAX_SERIES, read_page
from tuiadvisor.importers.serving.reading import serving_document, serving_view
from tuiadvisor.report.serving import html_serving, markdown_serving
from tuiadvisor.text.serving import summary
from tuiadvisor.views.serving import ServingView

pytestmark = pytest.mark.slow

CALM, BUSY = requests(400, 1), requests(900, 2, queue_s=1.5, prefill_s=0.2)
REQUIRED = {
    "ttft_p50_s", "ttft_p99_s", "tpot_p50_s", "tpot_p99_s", "running", "waiting", "kv_cache_usage", "preemptions",
    "goodput_rps", "findings",
}  # fmt: skip


def view(*texts: str, limits: dict[str, float] | None = None, **stated: Any) -> ServingView:
    """What is read of these pages."""
    held = tuple(read_page(text.encode(), f"page {number}") for number, text in enumerate(texts, 1))
    return serving_view(held, limits or {}, **stated)


def figures(*texts: str, limits: dict[str, float] | None = None, **stated: Any) -> dict[str, Any]:
    """The JSON of these pages, as a script sees it."""
    found: dict[str, Any] = json.loads(json.dumps(serving_document(view(*texts, limits=limits, **stated))))
    return found["serving"]


def reason(found: dict[str, Any], metric: str) -> str:
    """Why it is unknown."""
    return next(entry["why"] for entry in found["unknown"] if entry["metric"] == metric)


def true_quantile(values: list[float], share: float) -> float:
    return sorted(values)[math.ceil(share * len(values)) - 1]


def without(text: str, name: str) -> str:
    """The page without a metric."""
    return "".join(line for line in text.splitlines(keepends=True) if name not in line)


# --- recorded pages


def test_the_recordings_are_those_of_the_requests_the_tests_know() -> None:
    """They are written anew by tests/serving_pages.py; but for the moment at which each series was made."""

    def comparable(text: str) -> list[str]:
        return [line for line in text.splitlines() if "_created" not in line]

    assert {path.name for path in RECORDINGS.iterdir()} == set(pages.recordings())
    for name, text in pages.recordings().items():
        assert comparable((RECORDINGS / name).read_text()) == comparable(text), name


@pytest.mark.parametrize(
    ("name", "server", "signals", "running", "waiting", "kv", "preemptions"),
    [
        ("vllm.prom", "vLLM", {"ttft", "tpot", "itl", "e2e", "queue", "prefill"}, 6, 0, 0.3, 0),
        ("vllm-v0.prom", "vLLM", {"ttft", "tpot", "itl", "e2e", "queue", "prefill"}, 6, 0, 0.42, 2),
        ("vllm-engines.prom", "vLLM", {"ttft", "tpot", "itl", "e2e", "queue", "prefill"}, 33, 22, 0.97, 9),
        ("sglang.prom", "SGLang", {"ttft", "tpot", "itl", "e2e", "queue"}, 24, 31, 0.34, 0),
        ("tgi.prom", "TGI", {"tpot", "e2e", "queue"}, 16, 12, None, None),
    ],
)
def test_a_recorded_page_tells_its_signals_within_their_buckets(  # noqa: PLR0917 - a row of the table
    name: str,
    server: str,
    signals: set[str],
    running: int,
    waiting: int,
    kv: float | None,
    preemptions: int | None,
) -> None:
    """The true quantiles of the requests lie between the ends that are told, whatever the server calls them."""
    ended = BUSY if name in {"sglang.prom", "tgi.prom"} else CALM
    gaps = [gap for one in ended for gap in one.tokens_s]
    by_request = {"vllm.prom", "vllm-engines.prom"}
    truth = {
        "ttft": [one.ttft_s for one in ended],
        "tpot": [one.tpot_s for one in ended] if name in by_request else gaps,
        "itl": gaps,
        "e2e": [one.e2e_s for one in ended],
        "queue": [one.queue_s for one in ended],
        "prefill": [one.prefill_s for one in ended],
    }
    if server == "TGI":  # a mean with the prefill in it
        truth["tpot"] = [(one.e2e_s - one.queue_s) / (1 + len(one.tokens_s)) for one in ended]
    found = view((RECORDINGS / name).read_text())
    (model,) = found.models
    assert server == found.server
    assert signals == set(model.latencies) - {"prompt_tokens"}
    for signal in signals:
        latency = model.latencies[signal]
        assert len(truth[signal]) == latency.num
        assert latency.mean_s == pytest.approx(sum(truth[signal]) / len(truth[signal]))
        for bounds, share in ((latency.p50, 0.5), (latency.p99, 0.99)):
            assert bounds is not None
            assert bounds.high is not None
            assert bounds.low <= true_quantile(truth[signal], share) <= bounds.high + 1e-9
            assert bounds.value is not None
            assert bounds.low <= bounds.value <= bounds.high
    shown = figures((RECORDINGS / name).read_text())
    assert REQUIRED <= set(shown)
    assert (running, waiting, kv, preemptions) == (
        shown["running"], shown["waiting"], shown["kv_cache_usage"], shown["preemptions"],
    )  # fmt: skip
    assert ("request" if name in by_request | {"tgi.prom"} else "token") == shown["tpot_per"]


def test_tensor_ranks_of_one_engine_count_once() -> None:
    """SGLang with metrics of all schedulers tells each request once a rank."""
    one = figures(pages.sglang(BUSY, Load(running=24, waiting=31, preemptions=7)))
    four = figures(pages.sglang(BUSY, Load(running=24, waiting=31, preemptions=7), num_ranks=4))
    assert one == four
    assert 7 == four["preemptions"]


def test_triton_keeps_an_ensemble_apart_from_its_parts() -> None:
    """Their requests are the same: nothing is summed, and a mean is no quantile."""
    found = serving_document(view((RECORDINGS / "triton.prom").read_text()))
    assert all(found["serving"][name] is None for name in REQUIRED - {"findings"})
    models = {one["model"]: one for one in found["models"]}
    assert {"ensemble", "preprocessing", "tensorrt_llm", "postprocessing"} == set(models)
    engine = models["tensorrt_llm"]
    assert 2570.0 / 1200 == pytest.approx(engine["e2e_mean_s"])
    assert 310.0 / 1200 == pytest.approx(engine["queue_mean_s"])
    assert engine["e2e_p99_s"] is None
    assert "a mean and no quantile" in reason(engine, "e2e")
    assert (12, 3) == (engine["running"], engine["waiting"])
    assert engine["kv_cache_usage"] == pytest.approx(5800 / 6239)
    text = summary(view((RECORDINGS / "triton.prom").read_text()))
    assert "kv_cache_block_metrics is not on the page (of 3 of 4 models)" in text
    assert "Triton has no metric of preemptions" in text
    assert not any("preemptions" in line and "models)" in line for line in text.splitlines())
    alone = figures((RECORDINGS / "triton.prom").read_text(), model="tensorrt_llm")
    assert 12 == alone["running"]


def test_the_pages_of_triton_with_vllm_in_it_are_those_of_vllm() -> None:
    """The same names beside Triton's own, the model under Triton's label."""
    held = pages.Pages(names=("version", "model"))
    text = pages.vllm({"1": (CALM, Load(running=5))}, model="llama", pages=held) + pages.triton(
        {"llama": (9, 1.0, 0.1)}
    )
    found = view(text)
    assert "vLLM" == found.server
    assert {"llama", "tensorrt_llm"} >= {one.model for one in found.models}
    (model,) = [one for one in found.models if one.model == "llama"]
    assert 400 == model.latencies["ttft"].num


# --- names of versions


@pytest.mark.parametrize(
    ("written", "as_usual"),
    [
        ("ray_vllm_num_requests_running", "vllm:num_requests_running"),
        ("kserve_vllm:num_requests_running", "vllm:num_requests_running"),
        ("vllm_num_requests_running", "vllm:num_requests_running"),
        ("ray_sglang_token_usage", "sglang:token_usage"),
        ("trtllm:e2e_request_latency_seconds", "trtllm_e2e_request_latency_seconds"),
        ("tgi_queue_size", "tgi_queue_size"),
        ("my_vllm_metric", "my_vllm_metric"),
    ],
)
def test_other_spellings_are_read_as_the_servers_own(written: str, as_usual: str) -> None:
    assert as_usual == usual(written)


def test_a_page_as_ray_writes_it_tells_the_same() -> None:
    """Colons become underlines, and a prefix is put before."""
    text = pages.vllm({"0": (CALM, Load(running=6))})
    assert figures(text) == figures(text.replace("vllm:", "ray_vllm_"))


def test_a_new_name_that_counts_nothing_gives_way_to_the_old_one() -> None:
    """Both are there between two versions."""
    text = pages.vllm({"0": (CALM, Load())})
    empty = re.sub(
        r"(vllm:request_time_per_output_token_seconds_(?:bucket|count|sum)\{.*\}) .*", r"\1 0.0", text
    )
    assert "token" == figures(empty)["tpot_per"]
    assert "request" == figures(text)["tpot_per"]


def test_the_gauge_of_retracted_requests_is_no_count() -> None:
    """SGLang's num_retracted_reqs is of the latest batch."""
    text = without(pages.sglang(BUSY, Load()), "num_retracted_requests")
    found = figures(text)
    assert found["preemptions"] is None
    assert "num_retracted_requests" in reason(found, "preemptions")


def test_a_whole_and_its_priorities_count_once() -> None:
    """SGLang writes the whole under an empty priority."""
    text = (
        "# TYPE sglang:num_queue_reqs gauge\n"
        'sglang:num_queue_reqs{model_name="m",priority=""} 9.0\n'
        'sglang:num_queue_reqs{model_name="m",priority="1"} 4.0\n'
        'sglang:num_queue_reqs{model_name="m",priority="2"} 5.0\n'
    )
    assert 9 == figures(text)["waiting"]


def test_every_server_of_the_table_says_why_it_lacks_what_it_lacks() -> None:
    """A page with nothing but its prefix: each signal is unknown, with a reason."""
    for server in SERVERS:
        found = figures(f"{server.prefix}something 1\n")
        known = {entry["metric"] for entry in found["unknown"]}
        assert {"ttft", "tpot", "e2e", "running", "waiting", "kv", "preemptions"} <= known, server.name
        assert all(entry["why"] for entry in found["unknown"])
        assert found["goodput_rps"] is None


# --- two pages


def test_two_pages_tell_what_came_between_them() -> None:
    """Calm requests before, busy ones between: quantiles, counts and rates are of these alone."""
    texts = [(RECORDINGS / name).read_text() for name in ("vllm.prom", "vllm-later.prom")]
    found = figures(*texts, every_s=60.0, limits={"ttft": 0.5})
    assert 900 == found["ttft_num"]
    truth = [one.ttft_s for one in BUSY]
    low, high = found["ttft_p99_bounds_s"]
    assert low <= true_quantile(truth, 0.99) <= high
    kept = sum(value <= 0.5 for value in truth)
    assert found["goodput_rps"] == pytest.approx(kept / 60)
    assert [kept / 60, kept / 60] == pytest.approx(found["goodput_rps_bounds"])
    assert 118 == found["preemptions"]
    assert 15.0 == found["requests_s"]


def test_pages_in_the_wrong_order_are_a_server_that_began_anew() -> None:
    texts = [(RECORDINGS / name).read_text() for name in ("vllm-later.prom", "vllm.prom")]
    found = figures(*texts, every_s=60.0, limits={"ttft": 0.5})
    assert found["ttft_p50_s"] is found["goodput_rps"] is found["preemptions"] is None
    assert "restarted" in reason(found, "ttft")
    assert "wrong order" in reason(found, "preemptions")
    assert 6 == found["running"]  # of the moment, whoever runs


def test_another_process_counts_anew_even_where_its_counts_are_higher() -> None:
    """process_start_time_seconds, or the moment at which a series was made, tells it."""
    before = pages.vllm({"0": (CALM[:50], Load())})
    held = pages.Pages(started_s=pages.CREATED_S + 900)
    after = pages.vllm({"0": (BUSY, Load(preemptions=3))}, pages=held)
    found = figures(before, after, every_s=60.0)
    assert found["ttft_p50_s"] is found["preemptions"] is None
    assert "restarted" in reason(found, "ttft")
    hidden = [re.sub(r"process_start_time_seconds \S+", "", text) for text in (before, after)]
    moved = re.sub(r"(_created\{[^}]*\}) \S+", r"\1 1.79e+09", hidden[0])
    later = re.sub(r"(_created\{[^}]*\}) \S+", r"\1 1.7900009e+09", hidden[1])
    assert "restarted" in reason(figures(moved, later, every_s=60.0), "ttft")


def test_an_engine_that_is_gone_makes_the_interval_unknown_and_a_new_one_does_not() -> None:
    """Whose counts are gone cannot be told apart; a new one has counted nothing before."""
    one = pages.vllm({"0": (CALM, Load())})
    two = pages.vllm({"0": (CALM, Load()), "1": (BUSY, Load())})
    assert "gone on the second" in reason(figures(two, one, every_s=60.0), "ttft")
    assert 900 == figures(one, two, every_s=60.0)["ttft_num"]


def test_without_the_time_between_two_pages_rates_are_unknown_and_shares_are_not() -> None:
    texts = [(RECORDINGS / name).read_text() for name in ("vllm.prom", "vllm-later.prom")]
    found = figures(*texts, limits={"ttft": 0.5})
    assert found["goodput_rps"] is None
    assert "--every SECONDS" in found["goodput_why"]
    assert 0 < found["goodput_share"] < 1


def test_an_idle_minute_has_no_quantile() -> None:
    """Nothing was counted: unknown, not 0."""
    text = pages.vllm({"0": (CALM, Load())})
    found = figures(text, text, every_s=60.0, limits={"ttft": 0.5})
    assert found["ttft_p50_s"] is found["goodput_rps"] is None
    assert "nothing was counted" in reason(found, "ttft")
    assert 0 == found["preemptions"]


# --- goodput


def test_goodput_without_an_objective_asks_for_one() -> None:
    found = figures(pages.vllm({"0": (CALM, Load())}), since_start_s=100.0)
    assert found["goodput_rps"] is None
    assert "--ttft-slo" in found["goodput_why"]
    assert found["decision"] is None


def test_an_objective_between_two_edges_is_interpolated_and_bounded() -> None:
    limit = 0.085  # between the edges 0.08 and 0.1
    found = figures(pages.vllm({"0": (CALM, Load())}), limits={"ttft": limit}, since_start_s=100.0)
    kept = sum(one.ttft_s <= limit for one in CALM)
    low, high = found["goodput_rps_bounds"]
    assert low < high
    assert low <= kept / 100 <= high
    assert low <= found["goodput_rps"] <= high


def test_joint_goodput_is_bounded_and_never_a_product() -> None:
    """Each histogram knows its own objective alone."""
    limits = {"ttft": 0.08, "e2e": 0.5}
    found = figures(pages.vllm({"0": (CALM, Load())}), limits=limits, since_start_s=100.0)
    truth = sum(one.ttft_s <= 0.08 and one.e2e_s <= 0.5 for one in CALM)
    low, high = found["goodput_rps_bounds"]
    assert low <= truth / 100 <= high
    assert found["goodput_rps"] is None
    assert "which requests kept to all of them" in found["goodput_why"]


def test_an_objective_by_token_leaves_goodput_open() -> None:
    """V0 counts tokens: which requests they are of is not told."""
    found = figures(
        (RECORDINGS / "vllm-v0.prom").read_text(), limits={"ttft": 0.5, "tpot": 0.05}, since_start_s=100.0
    )
    assert found["goodput_rps"] is None
    assert [0.0, 4.0] == found["goodput_rps_bounds"]
    assert "by token" in found["goodput_why"]


def test_an_objective_beyond_the_last_edge_has_ends_alone() -> None:
    """V0's first-token buckets end at 10 s."""
    slow = [*requests(50, 3), *requests(50, 4, queue_s=90.0)]
    text = pages.vllm({"0": (slow, Load())}, v0=True)
    found = figures(text, limits={"ttft": 15.0}, since_start_s=100.0)
    low, high = found["goodput_share_bounds"]
    assert low < sum(one.ttft_s <= 15 for one in slow) / 100 <= high == 1.0
    assert found["goodput_rps"] is None
    assert "beyond the last edge" in found["goodput_why"]
    assert found["ttft_p99_s"] is None
    assert [10.0, None] == found["ttft_p99_bounds_s"]


@pytest.mark.parametrize(("kept", "met"), [(990, True), (989, False)])
def test_an_objective_is_met_by_ninety_nine_in_a_hundred(kept: int, met: bool) -> None:
    lines = pages.buckets(
        "vllm:time_to_first_token_seconds", "", [0.1] * kept + [2.0] * (1000 - kept), (0.5, 1.0)
    )
    found = figures("\n".join(lines) + "\n", limits={"ttft": 0.5})
    assert met is found["ttft_slo_met"]
    assert ("keep" if met else "tune") == found["decision"]
    undecided = figures("\n".join(lines) + "\n", limits={"ttft": 0.4})
    assert undecided["ttft_slo_met"] in {None, False}


# --- findings


@pytest.mark.parametrize(
    ("text", "limits", "wanted", "layer"),
    [
        (pages.vllm({"0": (CALM, Load(waiting=40, kv=0.97))}), {}, "serving_kv_full", "gpu-memory"),
        (pages.vllm({"0": (CALM, Load(waiting=40, kv=0.2))}), {}, "serving_queue_room", "application"),
        (pages.vllm({"0": (CALM, Load(preemptions=50))}), {}, "serving_preemptions", "gpu-memory"),
        (pages.vllm({"0": (BUSY, Load())}), {}, "serving_queue_time", "application"),
        (pages.vllm({"0": (BUSY, Load())}), {"ttft": 0.5}, "serving_slow_start", "application"),
        (
            pages.vllm({"0": (requests(300, 5, prefill_s=2.0), Load())}),
            {"ttft": 0.5},
            "serving_prefill_slow",
            "gpu-compute",
        ),
        (pages.vllm({"0": (CALM, Load())}), {"tpot": 0.01}, "serving_decode_slow", "gpu-memory"),
        (pages.vllm({"0": (CALM, Load())}), {"e2e": 0.3}, "serving_slow_requests", "application"),
        ((RECORDINGS / "vllm-engines.prom").read_text(), {}, "serving_engines_uneven", "scheduler"),
        (pages.vllm({"0": (CALM, Load(kv=0.05))}), {"ttft": 0.5}, "serving_room_left", "scheduler"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 40 else "",
)
def test_a_symptom_is_found_with_its_layer_and_levers(
    text: str, limits: dict[str, float], wanted: str, layer: str
) -> None:
    """Each shows in findings; none of the others is needed for it."""
    found = {entry["id"]: entry for entry in figures(text, limits=limits)["findings"]}
    assert wanted in found
    assert layer == found[wanted]["layer"]
    assert found[wanted]["actions"]
    assert "unknown" not in found[wanted]["message"]


def test_what_is_behind_a_missed_objective_decides_and_has_the_lever() -> None:
    """With an objective stated the same page may not say less than without one."""
    page = (RECORDINGS / "vllm-later.prom").read_text()
    plain, missed = figures(page), figures(page, limits={"ttft": 0.5})
    assert [one["decision"] for one in (plain, missed)] == ["rescale", "rescale"]
    assert missed["findings"][0]["id"] == "serving_kv_full"
    assert missed["sentence"] == (
        "60 % of the requests get their first token later than 500 ms: the KV cache is 98 % full and 37 requests "
        "wait for one engine."
    )
    assert "objective" in missed["verify"]
    alone = figures(pages.vllm({"0": (CALM, Load())}), limits={"e2e": 0.3})
    assert alone["sentence"] == "78 % of the requests take longer than 300 ms."


def test_requests_that_no_page_counts_are_not_none() -> None:
    gauge = '# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name="m"} 3\n'
    assert "0 request" not in summary(view(gauge))
    assert "model m" in summary(view(gauge))


def test_a_stall_of_single_tokens_is_found_and_a_long_prompt_among_short_ones() -> None:
    stalling = [
        pages.Request(0.001, 0.01 if number % 40 else 1.0, (0.02,) * 18 + ((1.5,) if number % 2 else ()), 50)
        for number in range(400)
    ]
    long = [
        pages.Request(one.queue_s, one.prefill_s, one.tokens_s, 9000 if one.prefill_s > 0.5 else 50)
        for one in stalling
    ]
    found = {entry["id"] for entry in figures(pages.vllm({"0": (long, Load())}))["findings"]}
    assert {"serving_decode_stalls", "serving_long_prompts"} <= found


def test_a_calm_server_within_its_objectives_is_kept() -> None:
    found = figures((RECORDINGS / "vllm.prom").read_text(), limits={"ttft": 0.5, "tpot": 0.05})
    assert [] == found["findings"]
    assert "keep" == found["decision"]


def test_a_rule_of_the_user_changes_a_threshold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for trainings."""
    folder = tmp_path / "tuiadvisor" / "rules"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text(
        'id = "serving_queue_room"\n[thresholds]\nqueue = { value = 100, source = "our batch jobs" }\n'
    )
    text = pages.vllm({"0": (CALM, Load(waiting=40, kv=0.2))})
    assert "serving_queue_room" in {entry["id"] for entry in figures(text)["findings"]}
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert [] == figures(text)["findings"]


# --- several models


def test_models_are_kept_apart_and_their_load_is_summed() -> None:
    """One's objective is not the other's."""
    held = pages.Pages()
    pages.vllm({"0": (CALM, Load(running=6, kv=0.3))}, model="small", pages=held)
    text = pages.vllm({"1": (BUSY, Load(running=20, waiting=4, kv=0.7))}, model="large", pages=held)
    found = serving_document(view(text, limits={"ttft": 0.5}))
    assert {"small", "large"} == {one["model"] for one in found["models"]}
    assert (26, 4, 0.7) == tuple(found["serving"][name] for name in ("running", "waiting", "kv_cache_usage"))
    assert found["serving"]["ttft_p50_s"] is found["serving"]["goodput_rps"] is None
    assert {"large"} == {entry["model"] for entry in found["serving"]["findings"]}
    assert 400 == figures(text, model="small")["ttft_num"]
    with pytest.raises(TuiadvisorError, match="no model 'smal'; there is large, small"):
        figures(text, model="smal")


# --- what is no page, and hostile ones


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "empty"),
        (b"\n \n", "empty"),
        (b"\xff\xfe\x00", "not text"),
        (b"<!doctype html>\n<html><body>vLLM</body></html>\n", "line 1 is no line of a metrics page"),
        (b'{"object": "list", "data": []}\n', "no line of a metrics page|no metrics in it"),
        (b"# just a comment\n", "no metrics in it"),
        (b'vllm:num_requests_running{model_name="m} 3\n', "line 1 is no line"),
        (b"# HELP vllm:x y\n# TYPE vllm:x gauge\nvllm:x three\n", "line 3 is no line"),
        (b'vllm:x{a="b",a="c"} 3\n', "line 1 is no line"),
        (b'vllm:x{a="b"} 3\nvllm:x{a="b"} 4\n', "is there twice"),
        (b"vllm:x{" + b'a="' * MAX_LINE + b"} 1\n", "more than 8192 characters"),
        (b"vllm:x 1\n" + b"\n" * MAX_BYTES, "larger than 8 MiB"),
        (
            b"vllm:x{" + b",".join(b'a%d="b"' % number for number in range(60)) + b"} 1\n",
            "more than 40 labels",
        ),
        (
            b"".join(b'vllm:x{a="%d"} 1\n' % number for number in range(MAX_SERIES + 1)),
            f"more than {MAX_SERIES} series",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_is_no_page_is_one_line(raw: bytes, says: str) -> None:
    with pytest.raises(TuiadvisorError, match=says) as caught:
        read_page(raw, "page")
    assert 2 == caught.value.exit_code
    assert "\n" not in str(caught.value)


def test_a_page_of_something_else_is_unknown_and_says_what_to_name() -> None:
    """Another exporter's page is a page."""
    found = figures("# TYPE node_load1 gauge\nnode_load1 0.4\n")
    assert all(found[name] is None for name in REQUIRED - {"findings"})
    assert "no metric of a known server" in reason(found, "serving")
    assert "unknown server" in summary(view("node_load1 0.4\n"))


def test_other_metrics_on_the_page_are_not_even_read() -> None:
    """Whatever they hold."""
    text = (RECORDINGS / "vllm.prom").read_text()
    assert figures(text) == figures(text + 'python_info{broken="} 1\n' + "x" * 100_000 + "\n")


@pytest.mark.parametrize(
    ("line", "metric"),
    [
        ('vllm:kv_cache_usage_perc{engine="0",model_name="m"} 93.5\n', "kv"),
        ('vllm:num_requests_running{engine="0",model_name="m"} NaN\n', "running"),
        ('vllm:num_requests_waiting{engine="0",model_name="m"} -3\n', "waiting"),
        ('vllm:num_preemptions_total{engine="0",model_name="m"} +Inf\n', "preemptions"),
        ('vllm:time_to_first_token_seconds_bucket{le="x",model_name="m"} 1\n', "ttft"),
        ('vllm:time_to_first_token_seconds_bucket{le="+Inf",model_name="m"} 1.5\n', "ttft"),
    ],
)
def test_a_figure_that_cannot_be_is_unknown_with_its_reason(line: str, metric: str) -> None:
    """Neither shown nor a traceback."""
    found = figures(line)
    assert reason(found, metric)
    names = {"kv": "kv_cache_usage", "ttft": "ttft_p50_s"}
    assert found[names.get(metric, metric)] is None


def test_hostile_names_obey_nobody(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Colours, directions and markup in a model's name: not in the terminal, not in JSON, not in reports."""
    hostile = "\x1b[31mred\u202e<script>alert(1)</script>|**`"
    text = pages.vllm({"0": (CALM, Load()), "\x1b]0;title\x07": (CALM, Load())}, model=hostile)
    path = tmp_path / "page.prom"
    path.write_text(text)
    assert 0 == main(["import", "serving", str(path), "-o", str(tmp_path / "page.html")])
    assert 0 == main(["import", "serving", str(path), "--json"])
    shown = capsysbinary.readouterr().out
    assert b"\x1b" not in shown
    assert "\u202e".encode() not in shown
    for written in ((tmp_path / "page.html").read_text(), markdown_serving(view(text), "a test")):
        assert "\x1b" not in written
        assert "\u202e" not in written
        assert "<script>" not in written


# --- the command


def test_the_command_prints_writes_and_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Text, JSON, reports; 2 for what is no page, with one line."""
    page = str(RECORDINGS / "vllm.prom")
    assert 0 == main(["import", "serving", page, "--ttft-slo", "500ms", "--tpot-slo", "0.05"])
    shown = capsys.readouterr().out
    assert "KEEP: All objectives stated are met" in shown
    assert "80.9 ms (80.0 ms to 100 ms)" in shown
    for name in ("page.json", "page.md", "page.html"):
        assert 0 == main(["import", "serving", page, "-o", str(tmp_path / name)])
        assert "meta-llama" in (tmp_path / name).read_text()
    capsys.readouterr()
    assert 0 == main(["import", "serving", page, "--json", "--e2e-slo", "2s"])
    document = json.loads(capsys.readouterr().out)
    assert REQUIRED <= set(document["serving"])
    assert ("serving", 1, "since_start") == (document["kind"], document["schema"], document["window"]["kind"])
    for words, says in (
        ([str(tmp_path / "none.prom")], "cannot read"),
        ([str(tmp_path / "page.md")], "no line of a metrics page"),
        (["file:///etc/passwd"], "only http and https"),
        (["ftp://host/metrics"], "only http and https"),
        (["http://user:secret@host/metrics"], "must hold no password"),
        (["http:///metrics"], "no address"),
        (["http://host:99999/metrics"], "no address"),
        ([page, page, page], "name one address"),
        ([page, "http://127.0.0.1:1/metrics"], "name one address"),
        ([page, "--every", "60"], "--every needs"),
        ([page, "-o", "x.pdf"], "written as"),
    ):
        assert 2 == main(["import", "serving", *words])
        told = capsys.readouterr().err
        assert says in told
        assert 1 == told.count("\n")


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "fast", "", "5h"])
def test_an_objective_that_is_no_latency_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["import", "serving", "x", f"--ttft-slo={text}"])
    assert 2 == left.value.code
    assert "is not a latency" in capsys.readouterr().err


def test_reports_hold_what_the_terminal_shows() -> None:
    """The same rows, escaped."""
    found = view((RECORDINGS / "vllm-engines.prom").read_text(), limits={"ttft": 0.5})
    html, text = html_serving(found, "a test"), markdown_serving(found, "a test")
    for words in ("Engines are unevenly loaded", "80.9 ms (80.0 ms to 100 ms)", "engine 1"):
        assert words in html
        assert words in text
        assert words in summary(found)
    assert "default-src 'none'" in html
