"""What a late rank is seen to do decides which levers its finding offers."""

from __future__ import annotations

import pytest

from tuiadvisor_rules.evaluate import judge
from tuiadvisor_rules.loader import catalog_dir, load_rule

FLAGS = (
    "in_copy",
    "in_device",
    "in_launches",
    "in_data",
    "in_checkpoint",
    "in_collection",
    "lacks_cores",
    "is_limited",
    "is_stopped",
)
SEEN = {
    "cover": 0.9,
    "ranks": "rank 0",
    "phase_words": "somewhere",
    "since_words": "since step 57",
    "hidden_words": "",
    "excess_s": 0.014,
    "hit_share": 0.99,
    "loss_s": 0.0135,
    "loss_share": 0.39,
    "loss_share_low": 0.37,
    "excess_share": 0.4,
    "steps_seen": 100,
    "host_packed": 0,
}


@pytest.mark.parametrize(
    ("flag", "lever", "foreign"),
    [
        ("in_checkpoint", "async_save", "data shard"),
        ("in_copy", "pin_memory=True", "lines of code"),
        ("in_device", "Compare its device", "lines of code"),
        ("in_launches", "between launches", "data shard"),
        ("in_data", "data shard", "gc.freeze"),
        ("in_collection", "gc.freeze", "async_save"),
        ("lacks_cores", "cores of its own", "async_save"),
        ("is_limited", "resources.limits.cpu", "data shard"),
        ("is_stopped", "stops it", "data shard"),
        (None, "what this rank alone does", "async_save"),
    ],
)
def test_levers_are_those_of_what_the_rank_does(flag: str | None, lever: str, foreign: str) -> None:
    """And none of another cause."""
    rule = load_rule(catalog_dir() / "straggler.toml")
    outcome = judge(rule, {**SEEN, **{name: int(name == flag) for name in FLAGS}})
    assert "critical" == outcome.level
    levers = " ".join(action.text for action in outcome.rule.actions)
    assert lever in levers
    assert foreign not in levers
