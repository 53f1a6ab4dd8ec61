"""One rank of a training as a framework's users write it, on CPU and gloo; rank 1 is slow in forward.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=... python tests/frameworks.py FRAMEWORK FOLDER

Runs until it is killed. Models are tiny and random: nothing is downloaded.
"""

from __future__ import annotations

import importlib
import itertools
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RANK = int(
    os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0"))
)  # Lightning's own launcher sets the second
LATE_S = 0.2 if RANK == 1 else 0.0
TOKENS = 16
FOREVER = 10_000_000
STEPS_UNTIL_READY = 8
READS_UNTIL_READY = 60  # thirty batches: past the start, before the first evaluation
WATCHED_S = 5.0  # before the rank of the elastic job dies


class Tokens(Dataset):
    """Token ids made from their index; says when training is under way."""

    num_read = 0

    def __len__(self) -> int:
        return FOREVER

    def __getitem__(self, index: int) -> dict[str, Any]:
        Tokens.num_read += 1
        if Tokens.num_read == READS_UNTIL_READY:
            (Path(sys.argv[2]) / f"ready.{os.getpid()}").touch()
        ids = torch.arange(index, index + TOKENS) % 60
        return {"input_ids": ids, "labels": ids}


class Model(nn.Module):
    """Predicts the token itself; takes its time on rank 1."""

    def __init__(self, late_s: float = LATE_S) -> None:
        super().__init__()
        self.late_s = late_s
        self.embedding = nn.Embedding(64, 32)
        self.body = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
        self.head = nn.Linear(32, 64)

    def forward(self, input_ids: Any, labels: Any = None) -> Any:
        """Loss of a batch."""
        time.sleep(0.005 + self.late_s)
        scores = self.head(self.body(self.embedding(input_ids)))
        return nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten())


def loader() -> Any:
    """Two sequences a batch."""
    return DataLoader(Tokens(), batch_size=2)


def transformers(folder: str) -> None:
    """Hugging Face's Trainer with an evaluation now and then."""
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    config = GPT2Config(vocab_size=64, n_positions=TOKENS, n_embd=32, n_layer=2, n_head=2)

    class Slow(GPT2LMHeadModel):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            time.sleep(0.005 + LATE_S)
            return super().forward(*args, **kwargs)

    arguments = TrainingArguments(
        output_dir=folder,
        remove_unused_columns=False,
        max_steps=FOREVER,
        per_device_train_batch_size=2,
        use_cpu=True,
        ddp_backend="gloo",
        report_to=[],
        disable_tqdm=True,
        logging_strategy="no",
        save_strategy="steps",
        save_steps=60,
        save_total_limit=1,
        eval_strategy="steps",
        eval_steps=60,
    )
    few = torch.utils.data.Subset(Tokens(), range(8))
    Trainer(model=Slow(config), args=arguments, train_dataset=Tokens(), eval_dataset=few).train()


def accelerate(_folder: str) -> None:
    """A plain loop made distributed by Accelerate, two batches a step."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = Model()
    prepared = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), loader())
    model, optimizer, batches = prepared
    while True:
        for batch in batches:
            with accelerator.accumulate(model):
                accelerator.backward(model(**batch))
                optimizer.step()
                optimizer.zero_grad()


def lightning(folder: str, few: Any = None) -> None:
    """A LightningModule whose training_step calls its layers directly. few: batches to validate on."""
    import lightning.pytorch as pl

    class Lit(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = Model()

        def training_step(self, batch: Any, _index: int) -> Any:
            return self.model(**batch)

        def validation_step(self, batch: Any, _index: int) -> None:
            self.model(**batch)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    trainer = pl.Trainer(
        accelerator="cpu",
        devices=int(os.environ.get("WORLD_SIZE", "2")),
        strategy="ddp",
        max_steps=FOREVER,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    trainer.fit(Lit(), loader(), few)


def lightning_alone(folder: str) -> None:
    """The same by its own launcher: the script is rank 0 and starts rank 1; it validates before it trains."""
    lightning(folder, DataLoader(torch.utils.data.Subset(Tokens(), range(4)), batch_size=2))


def deepspeed(_folder: str) -> None:
    """The engine's forward, backward and step with ZeRO stage 1."""
    import deepspeed as ds

    backend: Any = importlib.import_module("deepspeed.comm.torch")
    backend.build_shm_op = lambda: None  # would compile C++ for a minute
    ds.init_distributed(dist_backend="gloo")
    model = Model()
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 1,
        "zero_optimization": {"stage": 1},
        "zero_allow_untested_optimizer": True,
    }
    optimizer = torch.optim.AdamW(model.parameters())
    engine, *_ = ds.initialize(model=model, optimizer=optimizer, config=config)
    for batch in loader():
        engine.backward(engine(**batch))
        engine.step()


class Slow(nn.Module):
    """A layer that sleeps, in a pipeline's second stage for longer."""

    def __init__(self, late_s: float) -> None:
        super().__init__()
        self.late_s = late_s
        self.body = nn.Linear(32, 32)

    def forward(self, batch: Any) -> Any:
        """As long as it takes."""
        time.sleep(0.005 + self.late_s)
        return self.body(batch)


def deepspeed_pipeline(folder: str) -> None:
    """DeepSpeed's pipeline engine: two stages of one layer, the second one's forward is five times as long."""
    import deepspeed as ds
    from deepspeed.pipe import PipelineModule

    backend: Any = importlib.import_module("deepspeed.comm.torch")
    backend.build_shm_op = lambda: None  # would compile C++ for a minute
    ds.init_distributed(dist_backend="gloo")
    layers = [Slow(0.0), Slow(0.02)]
    model = PipelineModule(
        layers=layers, loss_fn=nn.functional.mse_loss, num_stages=2, partition_method="uniform"
    )
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 4,
        "zero_allow_untested_optimizer": True,
    }
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad])
    engine, *_ = ds.initialize(model=model, optimizer=optimizer, config=config)
    samples = itertools.repeat((torch.ones(2, 32), torch.zeros(2, 32)))
    for number in itertools.count():
        engine.train_batch(samples)
        if number == STEPS_UNTIL_READY:
            (Path(folder) / f"ready.{os.getpid()}").touch()


def spawned(rank: int, world: int, store: str) -> None:
    """One rank of `torch.multiprocessing.spawn`, which has no environment variables."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    model = nn.parallel.DistributedDataParallel(Model(0.025 if rank == 1 else 0.0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in loader():
        optimizer.zero_grad()
        model(**batch).backward()
        optimizer.step()


def spawn(folder: str) -> None:
    """Ranks as children of a script."""
    import torch.multiprocessing as mp

    mp.spawn(spawned, args=(2, f"{folder}/store"), nprocs=2)


def elastic(folder: str) -> None:
    """Rank 1 of the first round dies; torchrun starts both again."""
    died = Path(folder) / "died"
    if RANK == 1 and not died.exists():
        import threading

        def die_once_watched() -> None:
            while "_tuiadvisor_probe.install" not in sys.modules:
                time.sleep(0.2)
            time.sleep(WATCHED_S)
            died.touch()
            os._exit(3)

        threading.Thread(target=die_once_watched, daemon=True).start()
    # A store a round: gloo took the dead rank's address out of torchrun's own.
    store = f"file://{folder}/store.{os.environ['TORCHELASTIC_RESTART_COUNT']}"
    world = int(os.environ["WORLD_SIZE"])
    torch.distributed.init_process_group("gloo", init_method=store, rank=RANK, world_size=world)
    model = nn.parallel.DistributedDataParallel(Model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in loader():
        optimizer.zero_grad()
        model(**batch).backward()
        optimizer.step()


def ray_loop(config: dict[str, Any]) -> None:
    """What a worker of Ray Train runs, in a thread of its own; rank 1 is slow in forward."""
    from ray import train
    from ray.train.torch import prepare_data_loader, prepare_model

    torch.set_num_threads(1)
    rank = train.get_context().get_world_rank()
    model = prepare_model(Model(0.2 if rank == 1 else 0.0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.utils.data.TensorDataset(torch.arange(400 * TOKENS).reshape(400, TOKENS) % 60)
    batches = prepare_data_loader(DataLoader(data, batch_size=2))
    num_steps = 0
    while True:
        for (ids,) in batches:
            optimizer.zero_grad()
            model(ids, ids).backward()
            optimizer.step()
            num_steps += 1
            if num_steps == READS_UNTIL_READY // 2:
                (Path(config["folder"]) / f"ready.{os.getpid()}").touch()


def ray(folder: str) -> None:
    """Ray Train with two workers, on a cluster of its own."""
    import ray as cluster

    cluster.init(num_cpus=2, include_dashboard=False, _temp_dir=os.environ["RAY_FOLDER"], log_to_driver=False)
    ray_fit(folder)


def ray_nodes(folder: str) -> None:
    """The same on two nodes, one worker each; says where the cluster's head is."""
    import ray as cluster
    from ray.cluster_utils import Cluster

    os.environ["RAY_TMPDIR"] = os.environ["RAY_FOLDER"]
    Path(os.environ["RAY_FOLDER"], "ray").mkdir(exist_ok=True)
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    nodes.add_node(num_cpus=1)
    cluster.init(address=nodes.address, log_to_driver=False)
    (Path(folder) / "address").write_text(nodes.address)
    ray_fit(folder)


def ray_fit(folder: str) -> None:
    """Two workers on the cluster we are connected to."""
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    TorchTrainer(
        ray_loop,
        train_loop_config={"folder": folder},
        scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
        run_config=RunConfig(storage_path=f"{folder}/results"),
    ).fit()


FRAMEWORKS = {
    "transformers": transformers,
    "accelerate": accelerate,
    "lightning": lightning,
    "lightning_alone": lightning_alone,
    "deepspeed": deepspeed,
    "deepspeed_pipeline": deepspeed_pipeline,
    "ray": ray,
    "ray_nodes": ray_nodes,
    "spawn": spawn,
    "elastic": elastic,
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    FRAMEWORKS[sys.argv[1]](sys.argv[2])
