"""Two ranks that shard one small transformer in several ways and say what the probe's walk makes of it.

`torchrun --nproc-per-node 2 tests/sharded_models.py FOLDER` writes FOLDER/facts-RANK.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from tuiadvisor_probes.model_walk import Walk

WIDTH, VOCABULARY = 16, 40


def model() -> Any:
    """Embedding, two layers, a head that is tied to the embedding."""
    embedding, head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
    head.weight = embedding.weight
    layers = [nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, WIDTH)) for _ in range(2)]
    return nn.Sequential(embedding, *layers, head)


def facts(whole: Any) -> dict[str, Any]:
    """The walk to its end."""
    walk = Walk([whole])
    while not walk.advance(1_000_000_000):
        pass
    return walk.told(is_cut=False)


def main(folder: Path) -> None:
    """Every way of sharding in turn."""
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
    found = {"plain": facts(model()), "ddp": facts(nn.parallel.DistributedDataParallel(model()))}
    wraps = ModuleWrapPolicy({nn.Sequential})
    for name, keeps in (("fsdp1", False), ("fsdp1_orig", True)):
        wrapped = FullyShardedDataParallel(
            model(), auto_wrap_policy=wraps, use_orig_params=keeps, device_id=torch.device("cpu")
        )
        found[name] = facts(wrapped)
    sharded = model()
    for layer in (sharded[1], sharded[2]):
        fully_shard(layer, mesh=mesh)
    policy = MixedPrecisionPolicy(reduce_dtype=torch.float32)
    found["fsdp2"] = facts(fully_shard(sharded, mesh=mesh, mp_policy=policy))
    (folder / f"facts-{dist.get_rank()}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
