"""A finding's evidence for people: what a figure is called, and its value with the unit that its name ends in.

In: names and values of evidence.  Out: str; an unobserved value is the word "unknown", never a zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuiadvisor.text.format import (
    PHASE_NAMES,
    UNKNOWN,
    count,
    factor,
    num_bytes,
    phase_name,
    rate,
    seconds,
    share,
    significant,
)

if TYPE_CHECKING:
    from collections.abc import Callable

# What the figures of the shipped rules are called for people; others are read off the identifier.
NAMES = {
    "excess_s": "late by, in the steps in which it is late",
    "excess_share": "late by, share of a mean step",
    "excess_core_wait_s": "waits longer for a core than its peers by",
    "pageable_share": "of the traced time, copying from pageable memory to a device",
    "pageable_words": "copies from pageable memory",
    "cpu_limit_cores": "CPU limit of its container, cores",
    "nice": "nice value of its training thread",
    "peers_nice": "nice value of its peers'",
    "priority_lower": "a lower priority than the others",
    "priority_words": "nice values",
    "cpu_limit_share": "of the time, the limit can have held a typical rank back",
    "throttled_share": "periods in which the CPU limit held a typical rank back",
    "loss_share": "lost, of the mean steady step",
    "loss_share_low": "lost at least (95 %)",
    "loss_low_s": "lost a step at least (95 %)",
    "loss_high_s": "lost a step at most (95 %)",
    "cover": "explained by this phase",
    "hit_share": "steps in which it is late",
    "score": "speed relative to its peers (1: as fast)",
    "straggler_slowdown": "faster with the ranks' work evened out",
    "cores_per_rank": "cores for each rank",
    "gc_share": "garbage collection, share of the pauses",
    "excess_gc_s": "collects garbage longer than its peers by",
    "samples_ratio": "samples a step, times its peers'",
    "tokens_ratio": "tokens a step, times its peers'",
    "memory_share": "memory in use",
    "memory_left_s": "full in",
    "memory_span_s": "seen to grow over",
    "data_wait_first_s": "data wait a step, at first",
    "data_wait_last_s": "data wait a step, at last",
    "data_wait_growth_share": "data wait grown by, share of the step",
    "hideable_s": "could be hidden behind compute at most",
    "bucket_hideable_s": "order and size of buckets could hide at most",
    "bucket_saved_s": "the wanted size of buckets would save",
    "bucket_saved_low_s": "it would save at least (95 %)",
    "bucket_saved_high_s": "it would save at most (95 %)",
    "bucket_cap_wanted": "bucket_cap_mb that would",
    "first_bucket_s": "first bucket ready, after backward began",
    "exchange_backward_s": "backward until its last gradient",
    "exchange_ratio": "all-reduce against backward (up to 1: can be hidden)",
    "exchange_steps": "steps seen bucket by bucket",
    "length_fit": "lateness that tokens explain",
    "length_spread": "tokens differ between ranks by",
    "length_loss_share": "lost to uneven lengths, share of the step",
    "length_loss_share_low": "lost to uneven lengths at least (95 %)",
    "collection_share": "lost to ranks that collect garbage apart",
    "collection_share_low": "lost to that at least (95 %)",
    "collection_length_s": "a typical collection",
    "collection_steps": "steps in which the others wait for one",
    "stretches_share": "lost in stretches of slower steps",
    "stretches_share_low": "lost in them at least (95 %)",
    "stretches_longer": "their steps are longer by",
    "stretches_steps": "steps that one lasts",
    "stretches_num": "stretches seen to begin",
    "held_share": "kept from running, share of the looks or of its time",
    "held_share_of_others": "the same of the typical other rank",
    "held_share_low": "surely beyond it",
    "ready_per_core": "runnable threads per core",
    "core_wait_share": "time a typical rank waits for a core",
    "turn_taking_share": "lost to stragglers that vary",
    "wandering_share": "lost to a rotating straggler",
    "wandering_share_low": "lost to it at least (95 %)",
    "wandering_steps": "a rank stays late for about",
    "onset_seen": "its beginning was seen",
    "cpu_share_of_compute": "of its compute, on a core",
    "wait_on_core_share": "of its wait for data, its thread on a core at most",
    "unobserved": "phases not observed",
    "storage_share": "waiting for storage, share of the looks at who reads for it",
    "peers_storage_share": "the same of its typical peer",
    "seen_cause": "seen to make it late",
    "named_line": "named by its stacks",
    "named_line_share": "of the loss, spent there",
    "transfer_s": "communication after the last arrival",
    "transfer_share": "that communication, share of the step",
    "transfer_share_low": "that communication at least (95 %)",
    "wait_spread_share": "ranks' waits differ by at most (nine of ten steps)",
    "wait_launched_share": "of that wait the thread had launched all before",
    "comm_exposed_share": "exposed communication",
    "overlap": "communication hidden by compute",
    "data_wait_share": "waiting for data, share of the step",
    "objectives_met": "stated objectives that are met",
    "preemptions": "requests preempted",
    "checkpoint_share": "writing checkpoints, share of the step",
    "checkpoint_share_low": "writing checkpoints at least (95 %)",
    "checkpoint_loss_s": "a step would be shorter by",
    "copy_share": "between batch and forward, share of the step",
    "copy_share_low": "between batch and forward at least (95 %)",
    "copy_loss_s": "a step would be shorter by up to",
    "data_wait_share_low": "waiting for data at least (95 %)",
    "data_wait_loss_s": "a step would be shorter by",
    "device_step_s": "step on the device's own clock",
    "launched_share": "phases that end with their launches, share of the step",
    "device_behind_share": "device behind the training thread at most",
    "compute_share": "computing, share of the step",
    "step_s": "mean step",
    "steady_steps": "steady steps seen",
    "num_pauses": "pauses seen",
    "period_steps": "steps between two pauses",
    "length_s": "length of a pause",
    "longest_s": "longest pause",
    "second_s": "second longest pause",
    "steps": "at steps",
    "lengths_s": "lengths of the pauses, s",
    "cause": "cause",
    "still_s": "no progress for",
    "num_still_missing": "ranks the others wait for",
    "num_ranks_missing": "ranks not recorded",
    "barrier_wait_s": "the last recorded rank still waits",
    "barrier_wait_share": "that wait, share of the step",
    "level_shift_share": "step longer by",
    "level_shift_cover": "growth explained by this phase",
    "warmup_steps": "slow first steps",
    "warmup_s": "lost to them in all",
    "warmup_share": "lost to them, share of the time seen",
    "warmup_break_even_steps": "run length at which they cost 5 %",
    "speedup": "step shorter without it",
    "speedup_low": "shorter at least (95 %)",
    "speedup_high": "shorter at most (95 %)",
    "waiting": "who waits",
    "collectives": "collectives, by the ranks' flight recorders",
    "steps_seen": "steps of it seen",
    "even_loss_s": "a step shorter, its work spread evenly, by",
    "pace_loss_s": "a step shorter at the others' pace by",
    "pace_loss_share": "that, share of the step",
    "pace_loss_share_low": "that share at least (95 %)",
    "is_work": "heavy by its work, no slow rank",
    "is_partition": "heavy in every pipeline of the job",
    "pipeline_bubble": "idle share of the pipeline's time",
    "pipeline_ideal_bubble": "idle at best, stages equal",
    "pipeline_fill_share": "idle by filling and draining",
    "pipeline_imbalance_share": "idle by waiting for longer stages",
    "pipeline_delay_share": "idle between chunks, as by sends",
    "pipeline_micro_batches": "micro-batches a step",
    "pipeline_micro_batches_wanted": "micro-batches for a small bubble",
    "pipeline_ranks": "ranks of the pipeline",
    "pipeline_stages": "stages of the pipeline",
    "mfu": "MFU",
    "full_precision": "products in fp32 or TF32",
    "half_saves_share": "half precision saves at best, of the step",
    "tf32_is_off": "TF32 is off",
    "tf32_saves_share": "TF32 saves at best, of the step",
    "odd_weights_share": "weights in sides no multiple of 8",
    "loader_workers": "workers of the DataLoader",
    "workers_wanted": "workers that would keep up",
    "loader_batches": "batches seen in detail",
    "collate_share": "of making a batch in collate",
    "readers_storage_share": "readers waiting for storage, of the looks at them",
    "readers_running_share": "loader workers computing, of the looks at them",
    "device_utilization": "GPU utilization: some kernel ran",
    "device_sm_active": "multiprocessors with work",
    "device_tensor_active": "tensor cores at work",
    "device_dram_active": "device memory, of its peak rate",
    "cpus_far": "CPUs on another NUMA node than the device",
    "memory_far": "memory on another NUMA node than the device",
    "far_words": "where they are",
    "devices_differ": "devices differ",
    "shares_differ": "shares of devices differ",
    "unlike_words": "which devices",
    "share_words": "multiprocessors by rank",
    "devices_shared": "ranks share a device",
    "sharing_words": "ranks that share",
    "lanes_missing": "PCIe lanes missing",
    "lanes_words": "how many",
    "num_running": "requests running",
    "num_waiting": "requests waiting",
    "num_engines": "engines",
    "longest_queue": "requests in the longest queue of an engine",
    "shortest_queue": "requests in the shortest queue of an engine",
    "kv_share": "KV cache in use, fullest engine",
    "kv_least_share": "KV cache in use, emptiest engine",
    "preemptions_per_request": "preemptions for each request",
    "prefix_hit_share": "prompt tokens found in the prefix cache",
    "queue_of_ttft_share": "queue, share of the time to the first token",
    "queue_of_e2e_share": "queue, share of the request",
    "prefill_of_ttft_share": "prefill, share of the time to the first token",
    "prompt_tail": "longest prompts, times the median, at least",
    "tpot_per": "one time per output token is of a",
    **{
        f"{signal}_{name}": words
        for signal, what in (
            ("ttft", "TTFT"),
            ("tpot", "TPOT"),
            ("itl", "ITL"),
            ("e2e", "request"),
            ("queue", "queue"),
        )
        for name, words in (
            ("p50_s", f"{what}, median"),
            ("p99_s", f"{what}, 99th percentile"),
            ("p99_low_s", f"{what}, 99th percentile at least"),
            ("mean_s", f"{what}, mean"),
            ("tail", f"{what}, 99th percentile over median, at least"),
            ("slo_s", f"{what}, objective"),
            ("missed_share", f"{what}, beyond the objective at least"),
        )
    },
}


def name_of(name: str) -> str:
    """A name of a finding's evidence in words: 'peers_data_wait_s' is 'peers data wait'."""
    if name in PHASE_NAMES:
        return PHASE_NAMES[name]
    if name in NAMES:
        return NAMES[name]
    if name.startswith("excess_") and name.endswith("_s"):
        # "excess_backward_s": how much longer than the peers the late rank spends in that phase.
        return f"later than its peers by, in {phase_name(name[7:-2])}"
    ending = next((ending for ending, _ in _UNITS if name.endswith(ending)), "")
    return name.removesuffix(ending).replace("_", " ")


def value_of(name: str, value: float | str | None) -> str:
    """A value of a finding's evidence, its unit read off the end of its name."""
    if value is None:
        return UNKNOWN
    if isinstance(value, str):
        return value
    if name in _BY_NAME or isinstance(value, bool):
        return _BY_NAME.get(name, _yes_no)(value)
    if name in _SHARES or name.endswith(("_share", "_share_low")):
        return share(value)
    for ending, text in _UNITS:
        if name.endswith(ending):
            return text(value)
    return f"{value:,.0f}" if float(value).is_integer() else significant(value)


def _yes_no(value: float) -> str:
    return "yes" if value else "no"


_SHARES = frozenset(
    {
        "share",
        "overlap",
        "last_arrivals",
        "cover",
        "level_shift_cover",
        "cpu_share_of_compute",
        "pipeline_bubble",
        "pipeline_ideal_bubble",
        "device_utilization",
        "device_sm_active",
        "device_tensor_active",
        "device_dram_active",
        *PHASE_NAMES,
    }
)
# Longest ending first: "_bytes_s" ends in "_s" too.
_UNITS: tuple[tuple[str, Callable[[float], str]], ...] = (
    ("_bytes_s", lambda value: f"{num_bytes(value)}/s"),
    ("_steps_s", lambda value: rate(value, "steps/s")),
    ("_s_per_step", seconds),
    ("_bytes", num_bytes),
    ("_steps", lambda value: f"{value:,.0f}"),
    ("_ns", lambda value: seconds(value / 1e9)),
    ("_ms", lambda value: seconds(value / 1e3)),
    ("_s", seconds),
)
_BY_NAME: dict[str, Callable[[float], str]] = {
    **dict.fromkeys(("speedup", "speedup_low", "speedup_high", "straggler_slowdown"), factor),
    **dict.fromkeys(
        ("period_steps", "warmup_steps", "warmup_break_even_steps", "steady_steps"),
        lambda value: count(round(value), "step"),
    ),
    "onset_seen": _yes_no,
    "is_partition": _yes_no,
    "objectives_met": _yes_no,
    **dict.fromkeys(
        (
            "cpus_far",
            "memory_far",
            "devices_differ",
            "shares_differ",
            "lanes_missing",
            "priority_lower",
            "full_precision",
            "tf32_is_off",
        ),
        _yes_no,
    ),
}
