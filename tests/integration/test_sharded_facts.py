"""The walk over models that two ranks share out: whole sizes, whatever a rank holds of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

SCRIPT = Path(__file__).parents[1] / "sharded_models.py"


def test_every_way_of_sharding_tells_whole_sizes(tmp_path: Path) -> None:
    """DDP, FSDP1 with and without the original parameters, FSDP2: as the model before it was wrapped."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        str(SCRIPT),
    ]
    done = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    for rank in range(2):
        found = json.loads((tmp_path / f"facts-{rank}.json").read_text())
        plain = found.pop("plain")
        assert plain["params"] == 40 * 16 + 2 * (16 * 32 * 2 + 32 + 16)
        assert set(found) == {"ddp", "fsdp1", "fsdp1_orig", "fsdp2"}
        for name, facts in found.items():
            for key in ("params", "trainable", "mm", "embedding", "tied", "models", "not_looked_at"):
                assert facts[key] == plain[key], (name, key)
        assert found["fsdp2"]["mesh"] == "dp=2"
        assert found["fsdp1"]["wrappers"] == "FSDP1"
        assert found["fsdp1"]["sharding_strategy"] == "FULL_SHARD"
        assert found["fsdp2"]["reduce_dtype"] == "float32"
