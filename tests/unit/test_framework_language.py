"""A finding speaks the language of the framework that shards the model: its words, and levers that exist there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuiadvisor.causes.framework import OF_THE_LOOP, of_stack
from tuiadvisor.views.efficiency import Stack
from tuiadvisor_rules.condition import RuleError
from tuiadvisor_rules.evaluate import judge
from tuiadvisor_rules.loader import catalog_dir, load_rule

SEEN = {
    "transfer_share": 0.5,
    "transfer_share_low": 0.45,
    "transfer_s": 0.05,
    "cores_per_rank": 4,
    "host_crowded": 0,
    "cpu_limited": 0,
    "host_packed": 0,
    "crowd_note": "",
    "crowd_words": "",
    "hide_words": "",
    "held_words": "",
    "spread_words": "",
    "exchange_held_back": 0,
}


def said(**facts: int | str) -> tuple[str, str]:
    """(what is said of exposed communication, all levers in a row) where the probes told these facts of the model."""
    rule = load_rule(catalog_dir() / "communication_bound.toml")
    outcome = judge(rule, {**SEEN, **of_stack(Stack({"models": 1, **facts}))})
    assert "critical" == outcome.level
    words = f"{outcome.rule.title} {outcome.headline} {outcome.message} {outcome.rule.verify}"
    return words, " ".join(action.text for action in outcome.rule.actions)


@pytest.mark.parametrize(
    ("facts", "lever", "foreign"),
    [
        ({"wrappers": "DDP"}, "bucket_cap_mb", ("fully_shard", "zero_optimization")),
        ({}, "async_op=True", ("fully_shard", "bucket_cap_mb", "no_sync", "bf16_compress_hook")),
        ({"wrappers": "FSDP2", "mesh": "dp=4"}, "reshard_after_forward", ("no_sync", "bucket_cap_mb")),
        ({"wrappers": "FSDP1", "sharding_strategy": "FULL_SHARD"}, "BACKWARD_PRE", ("bucket_cap_mb",)),
        ({"wrappers": "FSDP1", "sharding_strategy": "NO_SHARD"}, "no_sync", ("SHARD_GRAD_OP",)),
        ({"wrappers": "DeepSpeed", "zero_stage": 3}, "stage3_prefetch_bucket_size", ("no_sync", "DDP(")),
        ({"wrappers": "DeepSpeed", "zero_stage": 2}, "reduce_bucket_size", ("stage3", "DDP(")),
        ({"mesh": "tp=2"}, "tensor parallel", ("bucket_cap_mb", "no_sync")),
    ],
)
def test_levers_are_those_of_the_framework(
    facts: dict[str, int | str], lever: str, foreign: tuple[str, ...]
) -> None:
    """And none of another one's."""
    _, levers = said(**facts)
    assert lever in levers
    assert not [name for name in foreign if name in levers]


def test_what_a_loop_exchanges_itself_is_not_called_gradients() -> None:
    """Four all_gather in forward without a wrapper were "exposed gradient communication", with buckets as the cure."""
    words, _ = said()
    assert "gradient" not in words
    assert "the collectives that the training loop calls itself" in words
    assert OF_THE_LOOP == of_stack(Stack({"models": 1}))["comm_words"]


@pytest.mark.parametrize("wrappers", ["FSDP1", "FSDP2"])
def test_gathered_parameters_are_no_gradients_and_do_not_shrink_with_accumulation(wrappers: str) -> None:
    """Every micro-batch gathers them anew."""
    words, _ = said(wrappers=wrappers)
    assert "gradient communication" not in words
    assert "twice the micro-batches" not in words
    assert "gathering parameters" in words


def test_a_variant_without_a_text_is_refused(tmp_path: Path) -> None:
    """One line that names the file."""
    shipped = (catalog_dir() / "communication_bound.toml").read_text()
    for addition, word in (
        ('[[variants]]\nwhen = "is_fsdp2 == 1"\n', "says instead"),
        ('[[variants]]\nwhen = "no_such == 1"\nwhy = "because"\n', "no_such"),
        ('[[variants]]\nif = "is_fsdp2 == 1"\nwhy = "because"\n', "'if'"),
    ):
        path = tmp_path / "communication_bound.toml"
        path.write_text(shipped + "\n" + addition)
        with pytest.raises(RuleError, match=word):
            load_rule(path)
