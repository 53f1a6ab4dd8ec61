"""A serving process: nothing of a training, so no window measures it; `import serving` judges its rules on pages."""

from __future__ import annotations

from typing import Final

from tuiadvisor.causes.cause import Cause


def _latency(name: str, what: str) -> str:
    """The metrics of one kind of latency."""
    return f"""
serving {name}_p50_s s {what}, median, interpolated within its bucket
serving {name}_p99_s s {what}, 99th percentile, interpolated within its bucket; unknown beyond the last edge
serving {name}_p99_low_s s lower edge of the bucket in which that 99th percentile lies
serving {name}_mean_s s {what}, mean
serving {name}_tail ratio at least, of the 99th percentile to the median"""


def _with_objective(name: str, what: str) -> str:
    """Of one for which an objective can be stated."""
    return f"""{_latency(name, what)}
serving {name}_slo_s s the objective stated for it
serving {name}_missed_share share of the observations that surely exceeded the objective"""


SERVING: Final = Cause(
    rules=(
        "serving_decode_slow",
        "serving_decode_stalls",
        "serving_engines_uneven",
        "serving_kv_full",
        "serving_long_prompts",
        "serving_preemptions",
        "serving_prefill_slow",
        "serving_queue_room",
        "serving_queue_time",
        "serving_room_left",
        "serving_slow_requests",
        "serving_slow_start",
    ),
    metrics=f"""
serving num_requests count requests that left a latency in the window
serving num_running count requests being worked on at the moment of the last page, all engines
serving num_waiting count requests in the queue at that moment, all engines
serving num_waiting_before count requests in the queue on the first of two pages
serving longest_queue count requests in the longest queue of one engine
serving shortest_queue count requests in the shortest queue of one engine
serving num_engines count engines or data-parallel ranks that the page tells apart
serving kv_share share of the KV cache in use, of the fullest engine
serving kv_least_share share of the KV cache in use, of the emptiest engine
serving kv_is_known flag the page tells how full the KV cache is
serving preemptions count requests put back into the queue for want of KV cache, in the window
serving preemptions_per_request ratio preemptions for each request in the window
serving prefix_hit_share share of the prompt tokens found in the prefix cache
serving queue_is_known flag the page tells the queue's part of the time to the first token
serving queue_words text the queue's parts of these, as far as they are known
serving queue_of_ttft_share share of the mean time to the first token spent in the queue
serving queue_of_e2e_share share of the mean request spent in the queue
serving prefill_of_ttft_share share of the mean time to the first token spent in prefill
serving prompt_tail ratio at least, of the 99th percentile of prompt lengths to their median
serving tpot_per text what one time per output token is of: a request or a token
serving objectives_met flag the 99th percentiles keep to all objectives stated
{_with_objective("ttft", "time to the first token").strip()}
{_with_objective("tpot", "time per output token").strip()}
{_with_objective("e2e", "whole request").strip()}
{_latency("itl", "time between two tokens").strip()}
{_latency("queue", "time in the queue").strip()}
""",
    scope="serving",
)
