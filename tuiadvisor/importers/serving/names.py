"""What each server calls a signal on its metrics page: one table, newest names first.

Sources: vLLM vllm/v1/metrics/loggers.py and (V0) vllm/engine/metrics.py; SGLang
python/sglang/srt/metrics/collector.py; TGI docs/source/reference/metrics.md; TensorRT-LLM
tensorrt_llm/metrics/collector.py; Triton docs/user_guide/metrics.md, of its TensorRT-LLM backend the README; Dynamo
docs/observability/metrics.md. A name that ends in _total on the page stands here without that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, Literal

Per = Literal["request", "token"]
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Source:
    """One metric that carries a signal. factor: seconds, or counts, for one of its units."""

    name: str
    factor: float = 1.0
    per: Per = "request"  # what one observation of a histogram is of
    labels: Labels = ()  # only series with these
    of: tuple[str, Labels] | None = None  # a share: to be divided by this metric


@dataclass(frozen=True, slots=True)
class Server:
    """One kind of server. What it has no metric for is not in the tables, and `lacks` says why and what to do."""

    name: str
    prefix: str
    histograms: dict[str, tuple[Source, ...]] = field(default_factory=dict)
    gauges: dict[str, tuple[Source, ...]] = field(default_factory=dict)
    counters: dict[str, tuple[Source, ...]] = field(default_factory=dict)
    means: dict[str, tuple[Source, Source]] = field(default_factory=dict)  # signal -> (time spent, how often)
    lacks: dict[str, str] = field(default_factory=dict)
    models_overlap: bool = False  # a request may count for several models: an ensemble and its parts


MODEL_LABELS: Final = ("model_name", "model")  # Triton names vLLM's model as its own
SIGNALS: Final = ("ttft", "tpot", "itl", "e2e", "queue", "prefill", "prompt_tokens")
BESIDE: Final = ("itl", "prompt_tokens")  # of which nobody misses what is not there
MS, US = 1e-3, 1e-6

VLLM: Final = Server(
    "vLLM",
    "vllm:",
    {
        "ttft": (Source("vllm:time_to_first_token_seconds"),),
        "tpot": (
            Source("vllm:request_time_per_output_token_seconds"),
            Source("vllm:inter_token_latency_seconds", per="token"),
            Source("vllm:time_per_output_token_seconds", per="token"),
        ),
        "itl": (
            Source("vllm:inter_token_latency_seconds", per="token"),  # since 0.10.2
            Source("vllm:time_per_output_token_seconds", per="token"),  # gone with 0.13
        ),
        "e2e": (Source("vllm:e2e_request_latency_seconds"),),
        "queue": (Source("vllm:request_queue_time_seconds"),),
        "prefill": (Source("vllm:request_prefill_time_seconds"),),
        "prompt_tokens": (Source("vllm:request_prompt_tokens"),),
    },
    {
        "running": (Source("vllm:num_requests_running"),),
        "waiting": (Source("vllm:num_requests_waiting"),),
        "kv": (Source("vllm:kv_cache_usage_perc"), Source("vllm:gpu_cache_usage_perc")),  # since 0.9.2; V0
    },
    {
        "preemptions": (Source("vllm:num_preemptions"),),
        "generated": (Source("vllm:generation_tokens"),),
        "prefix_queries": (Source("vllm:prefix_cache_queries"), Source("vllm:gpu_prefix_cache_queries")),
        "prefix_hits": (Source("vllm:prefix_cache_hits"), Source("vllm:gpu_prefix_cache_hits")),
    },
)

SGLANG: Final = Server(
    "SGLang",
    "sglang:",
    {
        "ttft": (Source("sglang:time_to_first_token_seconds"),),
        "tpot": (
            Source("sglang:request_time_per_output_token_seconds"),
            Source("sglang:inter_token_latency_seconds", per="token"),
            Source("sglang:time_per_output_token_seconds", per="token"),
        ),
        "itl": (
            Source("sglang:inter_token_latency_seconds", per="token"),
            Source("sglang:time_per_output_token_seconds", per="token"),  # the older name
        ),
        "e2e": (Source("sglang:e2e_request_latency_seconds"),),
        "queue": (Source("sglang:queue_time_seconds"),),
        "prompt_tokens": (Source("sglang:prompt_tokens_histogram"),),
    },
    {
        "running": (Source("sglang:num_running_reqs"),),
        "waiting": (Source("sglang:num_queue_reqs"),),
        "kv": (Source("sglang:token_usage"),),
        "prefix_share": (Source("sglang:cache_hit_rate"),),
    },
    # num_retracted_reqs is a gauge of the latest batch, no count.
    {
        "preemptions": (Source("sglang:num_retracted_requests"),),
        "generated": (Source("sglang:generation_tokens"),),
    },
    lacks={"prefill": "SGLang has no metric of prefill time"},
)

TGI: Final = Server(
    "TGI",
    "tgi_",
    {
        "tpot": (Source("tgi_request_mean_time_per_token_duration"),),
        "e2e": (Source("tgi_request_duration"),),
        "queue": (Source("tgi_request_queue_duration"),),
        "prompt_tokens": (Source("tgi_request_input_length"),),
    },
    {"running": (Source("tgi_batch_current_size"),), "waiting": (Source("tgi_queue_size"),)},
    lacks={
        "ttft": "TGI has no metric of the time to the first token: measure it at the client, or state --e2e-slo",
        "kv": "TGI has no metric of its KV cache",
        "preemptions": "TGI has no metric of preemptions: it admits only what fits",
        "prefill": "TGI has no metric of a request's prefill",
    },
)

TRTLLM: Final = Server(
    "TensorRT-LLM",
    "trtllm_",
    {
        "ttft": (Source("trtllm_time_to_first_token_seconds"),),
        "tpot": (
            Source("trtllm_time_per_output_token_seconds"),
        ),  # of a request: (last - first) / (tokens - 1)
        "e2e": (Source("trtllm_e2e_request_latency_seconds"),),
        "queue": (Source("trtllm_request_queue_time_seconds"),),
    },
    {
        "running": (Source("trtllm_num_requests_running"),),
        "waiting": (Source("trtllm_num_requests_waiting"),),
        "kv": (Source("trtllm_kv_cache_utilization"),),
        "prefix_share": (Source("trtllm_kv_cache_hit_rate"),),
    },
    lacks={"preemptions": "TensorRT-LLM has no metric of preemptions"},
)

DYNAMO: Final = Server(
    "Dynamo",
    "dynamo_",
    {
        "ttft": (Source("dynamo_frontend_time_to_first_token_seconds"),),
        "tpot": (Source("dynamo_frontend_inter_token_latency_seconds", per="token"),),
        "itl": (Source("dynamo_frontend_inter_token_latency_seconds", per="token"),),
        "e2e": (Source("dynamo_frontend_request_duration_seconds"),),
    },
    {"kv": (Source("dynamo_component_kvstats_gpu_cache_usage_percent"),)},
    lacks=dict.fromkeys(
        ("running", "waiting", "queue", "prefill", "preemptions"),
        "Dynamo's frontend counts requests in prefill as queued: import the page of a worker",
    )
    | {"kv": "Dynamo's frontend has no KV cache: import the page of a worker"},
)

TRITON: Final = Server(
    "Triton",
    "nv_",
    {"ttft": (Source("nv_inference_first_response_histogram_ms", MS),)},
    {
        "running": (Source("nv_trt_llm_request_metrics", labels=(("request_type", "scheduled"),)),),
        "waiting": (
            Source("nv_trt_llm_request_metrics", labels=(("request_type", "waiting"),)),
            Source("nv_inference_pending_request_count"),
        ),
        "kv": (
            Source("nv_trt_llm_kv_cache_block_metrics", labels=(("kv_cache_block_type", "fraction"),)),
            Source(
                "nv_trt_llm_kv_cache_block_metrics",
                labels=(("kv_cache_block_type", "used"),),
                of=("nv_trt_llm_kv_cache_block_metrics", (("kv_cache_block_type", "max"),)),
            ),
        ),
    },
    # Sums of microseconds: they tell a mean and no quantile.
    means={
        "e2e": (
            Source("nv_inference_request_duration_us", US),
            Source("nv_inference_request_success"),
        ),
        "queue": (
            Source("nv_inference_queue_duration_us", US),
            Source("nv_inference_request_success"),
        ),
    },
    lacks={
        "ttft": "Triton reports the first response only with --metrics-config histogram_latencies=true and a decoupled "
        "model",
        "tpot": "Triton has no metric of time per output token: measure it at the client",
        "e2e": "Triton's page has sums of latencies, which give a mean and no quantile: measure at the client",
        "queue": "Triton's page has sums of queueing, which give a mean and no quantile",
        "preemptions": "Triton has no metric of preemptions",
        "prefill": "Triton has no metric of prefill",
    },
    models_overlap=True,
)

# In this order: Triton's page may carry vLLM's metrics, Dynamo's a worker's.
SERVERS: Final = (VLLM, SGLANG, TRTLLM, TGI, DYNAMO, TRITON)
# Ray and KServe put a prefix before it, other collectors write "_" for ":".
_OTHER_SPELLING: Final = re.compile(r"(?:ray_|kserve_)?(vllm|sglang)[:_]|(trtllm):")


def usual(name: str) -> str:
    """The name as the server itself writes it."""
    found = _OTHER_SPELLING.match(name)
    if found is None:
        return name
    prefix = f"{found[1]}:" if found[1] else "trtllm_"
    return prefix + name[found.end() :]
