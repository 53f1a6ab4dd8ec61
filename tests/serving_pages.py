"""Metrics pages in the true shape of each server, from requests whose latencies are known.

Names and buckets are those of vLLM's vllm/v1/metrics/loggers.py, of SGLang's metrics/collector.py, of TGI's router (35
buckets of 0.0001 x 1.5^n) and of the READMEs of Triton and its TensorRT-LLM backend. vLLM and SGLang write theirs with
prometheus_client, so do we. Run: python tests/serving_pages.py writes tests/recordings/serving anew.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

RECORDINGS = Path(__file__).parent / "recordings" / "serving"
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
CREATED_S = 1_790_000_000.0

TTFT = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
TTFT_V0 = TTFT[:16]
ITL = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0),
)
LATENCY = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0),
    *(240.0, 480.0, 960.0, 1920.0, 7680.0),
)
PROMPT = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
SGLANG_TTFT = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400)
SGLANG_ITL = (
    *(0.002, 0.004, 0.006, 0.008, 0.010, 0.015, 0.020, 0.025, 0.030, 0.035, 0.040, 0.060, 0.080, 0.100),
    *(0.200, 0.400, 0.600, 0.800, 1.0, 2.0, 4.0, 6.0, 8.0),
)
SGLANG_E2E = (*SGLANG_TTFT, 600, 1200, 1800, 2400)
SGLANG_QUEUE = (0.0, 0.1, 0.2, 0.5, 1, 2, 3, 4, 5, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90, 100, 200)
TGI_DURATION = tuple(0.0001 * 1.5**number for number in range(1, 36))


@dataclass(frozen=True)
class Request:
    """One that has ended."""

    queue_s: float
    prefill_s: float
    tokens_s: tuple[float, ...]  # between tokens
    num_prompt_tokens: int

    @property
    def ttft_s(self) -> float:
        return self.queue_s + self.prefill_s

    @property
    def tpot_s(self) -> float:
        return math.fsum(self.tokens_s) / len(self.tokens_s) if self.tokens_s else 0.0

    @property
    def e2e_s(self) -> float:
        return self.ttft_s + math.fsum(self.tokens_s)


@dataclass(frozen=True)
class Load:
    """An engine at one moment."""

    running: int = 4
    waiting: int = 0
    kv: float = 0.3
    preemptions: int = 0


def requests(
    num: int, seed: int = 1, *, queue_s: float = 0.002, prefill_s: float = 0.08, token_s: float = 0.018
) -> list[Request]:
    """Some with these means."""
    chance = random.Random(seed)  # noqa: S311 - no secrets
    return [
        Request(
            chance.expovariate(1 / queue_s),
            chance.lognormvariate(0, 0.4) * prefill_s,
            tuple(chance.lognormvariate(0, 0.3) * token_s for _ in range(chance.randint(4, 40))),
            chance.randint(20, 900),
        )
        for _ in range(num)
    ]


class Pages:
    """A registry as a server fills it."""

    def __init__(
        self, *, names: tuple[str, ...] = ("engine", "model_name"), started_s: float | None = CREATED_S
    ) -> None:
        self.registry = CollectorRegistry()
        self.names = names
        self.gauges: dict[str, Gauge] = {}
        self.counters: dict[str, Counter] = {}
        self.histograms: dict[str, Histogram] = {}
        if started_s is not None:
            Gauge(
                "process_start_time_seconds",
                "Start time of the process since unix epoch in seconds.",
                registry=self.registry,
            ).set(started_s)

    def gauge(self, name: str, labels: tuple[str, ...], value: float) -> None:
        if name not in self.gauges:
            self.gauges[name] = Gauge(name, name, self.names, registry=self.registry)
        self.gauges[name].labels(*labels).set(value)

    def count(self, name: str, labels: tuple[str, ...], more: float) -> None:
        if name not in self.counters:
            self.counters[name] = Counter(name, name, self.names, registry=self.registry)
        self.counters[name].labels(*labels).inc(more)

    def observe(
        self, name: str, labels: tuple[str, ...], values: list[float], edges: tuple[float, ...]
    ) -> None:
        if name not in self.histograms:
            self.histograms[name] = Histogram(name, name, self.names, registry=self.registry, buckets=edges)
        held = self.histograms[name].labels(*labels)
        for value in values:
            held.observe(value)

    def text(self) -> str:
        return generate_latest(self.registry).decode()


def vllm(
    engines: dict[str, tuple[list[Request], Load]],
    *,
    model: str = MODEL,
    v0: bool = False,
    pages: Pages | None = None,
) -> str:
    """The page of vLLM: 0.11 and later, or that of V0."""
    held = pages or Pages(names=("model_name",) if v0 else ("engine", "model_name"))
    for engine, (ended, load) in engines.items():
        labels = (model,) if v0 else (engine, model)
        held.gauge("vllm:num_requests_running", labels, load.running)
        held.gauge("vllm:num_requests_waiting", labels, load.waiting)
        held.gauge("vllm:gpu_cache_usage_perc" if v0 else "vllm:kv_cache_usage_perc", labels, load.kv)
        held.count("vllm:num_preemptions", labels, load.preemptions)
        held.count("vllm:prompt_tokens", labels, sum(one.num_prompt_tokens for one in ended))
        held.count("vllm:generation_tokens", labels, sum(1 + len(one.tokens_s) for one in ended))
        held.observe(
            "vllm:time_to_first_token_seconds", labels, [one.ttft_s for one in ended], TTFT_V0 if v0 else TTFT
        )
        gaps = [gap for one in ended for gap in one.tokens_s]
        name = "vllm:time_per_output_token_seconds" if v0 else "vllm:inter_token_latency_seconds"
        held.observe(name, labels, gaps, ITL[:13] if v0 else ITL)
        if not v0:
            tpots = [one.tpot_s for one in ended]
            held.observe("vllm:request_time_per_output_token_seconds", labels, tpots, ITL)
        held.observe("vllm:e2e_request_latency_seconds", labels, [one.e2e_s for one in ended], LATENCY)
        held.observe("vllm:request_queue_time_seconds", labels, [one.queue_s for one in ended], LATENCY)
        held.observe("vllm:request_prefill_time_seconds", labels, [one.prefill_s for one in ended], LATENCY)
        held.observe("vllm:request_prompt_tokens", labels, [one.num_prompt_tokens for one in ended], PROMPT)
    return held.text()


def sglang(ended: list[Request], load: Load, *, num_ranks: int = 1) -> str:
    """SGLang's page; with --enable-metrics-for-all-schedulers every tensor rank tells the same."""
    scheduler = Pages(names=("engine_type", "model_name", "pp_rank", "tp_rank"), started_s=None)
    for rank in range(num_ranks):
        labels = ("unified", MODEL, "0", str(rank))
        scheduler.gauge("sglang:num_running_reqs", labels, load.running)
        scheduler.gauge("sglang:num_queue_reqs", labels, load.waiting)
        scheduler.gauge("sglang:token_usage", labels, load.kv)
        scheduler.gauge("sglang:cache_hit_rate", labels, 0.25)
        scheduler.gauge("sglang:num_retracted_reqs", labels, 0)
        scheduler.count("sglang:num_retracted_requests", labels, load.preemptions)
        scheduler.observe("sglang:queue_time_seconds", labels, [one.queue_s for one in ended], SGLANG_QUEUE)
    tokenizer = Pages(names=("model_name",), started_s=None)
    tokenizer.count("sglang:generation_tokens", (MODEL,), sum(1 + len(one.tokens_s) for one in ended))
    tokenizer.observe(
        "sglang:time_to_first_token_seconds", (MODEL,), [one.ttft_s for one in ended], SGLANG_TTFT
    )
    gaps = [gap for one in ended for gap in one.tokens_s]
    tokenizer.observe("sglang:inter_token_latency_seconds", (MODEL,), gaps, SGLANG_ITL)
    tokenizer.observe(
        "sglang:e2e_request_latency_seconds", (MODEL,), [one.e2e_s for one in ended], SGLANG_E2E
    )
    return scheduler.text() + tokenizer.text()


def buckets(name: str, labels: str, values: list[float], edges: tuple[float, ...]) -> list[str]:
    """A histogram as servers not written in Python print it."""
    ordered = sorted(values)
    comma = "," if labels else ""
    lines = [
        f'{name}_bucket{{{labels}{comma}le="{edge!r}"}} {bisect_left(ordered, edge + 1e-18)}'
        for edge in edges
    ]
    lines.append(f'{name}_bucket{{{labels}{comma}le="+Inf"}} {len(values)}')
    tail = f"{{{labels}}}" if labels else ""
    return [
        f"# TYPE {name} histogram",
        *lines,
        f"{name}_sum{tail} {math.fsum(values)!r}",
        f"{name}_count{tail} {len(values)}",
    ]


def tgi(ended: list[Request], load: Load) -> str:
    """The router's page."""
    lines = ["# TYPE tgi_request_count counter", f"tgi_request_count {len(ended) + load.running}", ""]
    lines += ["# TYPE tgi_request_success counter", f"tgi_request_success {len(ended)}", ""]
    lines += ["# TYPE tgi_queue_size gauge", f"tgi_queue_size {load.waiting}", ""]
    lines += ["# TYPE tgi_batch_current_size gauge", f"tgi_batch_current_size {load.running}", ""]
    lines += buckets("tgi_request_duration", "", [one.e2e_s for one in ended], TGI_DURATION)
    lines += buckets("tgi_request_queue_duration", "", [one.queue_s for one in ended], TGI_DURATION)
    tpots = [(one.e2e_s - one.queue_s) / (1 + len(one.tokens_s)) for one in ended]  # prefill included
    lines += buckets("tgi_request_mean_time_per_token_duration", "", tpots, TGI_DURATION)
    return "\n".join(lines) + "\n"


def triton(models: dict[str, tuple[int, float, float]], *, used: int = 5800, waiting: int = 3) -> str:
    """Triton with the TensorRT-LLM backend. models: name -> (requests, seconds of all, seconds of all in the queue)."""
    of = 'model="tensorrt_llm",version="1"'
    lines = [
        "# HELP nv_trt_llm_request_metrics TRT LLM request metrics",
        "# TYPE nv_trt_llm_request_metrics gauge",
        *(
            f'nv_trt_llm_request_metrics{{model="tensorrt_llm",request_type="{kind}",version="1"}} {value}'
            for kind, value in (
                ("waiting", waiting),
                ("context", 1),
                ("scheduled", 12),
                ("max", 512),
                ("active", 15),
            )
        ),
        "# HELP nv_trt_llm_kv_cache_block_metrics TRT LLM KV cache block metrics",
        "# TYPE nv_trt_llm_kv_cache_block_metrics gauge",
        *(
            f'nv_trt_llm_kv_cache_block_metrics{{kv_cache_block_type="{kind}",{of}}} {value}'
            for kind, value in (("tokens_per", 64), ("used", used), ("free", 6239 - used), ("max", 6239))
        ),
    ]
    for name, place, text in (
        ("nv_inference_request_success", 0, "Number of successful inference requests, all batch sizes"),
        ("nv_inference_request_duration_us", 1, "Cumulative inference request duration in microseconds"),
        ("nv_inference_queue_duration_us", 2, "Cumulative inference queuing duration in microseconds"),
    ):
        lines += [f"# HELP {name} {text}", f"# TYPE {name} counter"]
        for model, numbers in models.items():
            value = numbers[place] if place == 0 else round(numbers[place] * 1e6)
            lines.append(f'{name}{{model="{model}",version="1"}} {value}')
    lines += ["# TYPE nv_inference_pending_request_count gauge"]
    lines += [
        f'nv_inference_pending_request_count{{model="{model}",version="1"}} {waiting}' for model in models
    ]
    lines += ["# TYPE nv_gpu_utilization gauge", 'nv_gpu_utilization{gpu_uuid="GPU-1"} 0.94']
    return "\n".join(lines) + "\n"


def recordings() -> dict[str, str]:
    """What lies in RECORDINGS; no page tells when it was written but by its own clock."""
    calm, busy = requests(400, 1), requests(900, 2, queue_s=1.5, prefill_s=0.2)
    later = Pages()
    vllm({"0": (calm, Load(running=6))}, pages=later)
    saturated = Load(running=61, waiting=37, kv=0.985, preemptions=118)
    return {
        "vllm.prom": vllm({"0": (calm, Load(running=6))}),
        "vllm-later.prom": vllm({"0": (busy, saturated)}, pages=later),
        "vllm-engines.prom": vllm(
            {
                "0": (calm[:200], Load(running=30, waiting=22, kv=0.97, preemptions=9)),
                "1": (calm[200:], Load(running=3, waiting=0, kv=0.11)),
            }
        ),
        "vllm-v0.prom": vllm({"0": (calm, Load(running=6, kv=0.42, preemptions=2))}, v0=True),
        "sglang.prom": sglang(busy, Load(running=24, waiting=31, kv=0.34), num_ranks=4),
        "tgi.prom": tgi(busy, Load(running=16, waiting=12)),
        "triton.prom": triton(
            {
                "ensemble": (1200, 2600.0, 0.9),
                "preprocessing": (1200, 14.0, 2.1),
                "tensorrt_llm": (1200, 2570.0, 310.0),
                "postprocessing": (1200, 9.0, 1.0),
            }
        ),
    }


if __name__ == "__main__":
    RECORDINGS.mkdir(exist_ok=True)
    for name, text in recordings().items():
        (RECORDINGS / name).write_text(text)
