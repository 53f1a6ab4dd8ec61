"""Public training programs that were not written for tuiadvisor, and what makes each of them run small and on CPUs.

None of their code is here: arguments, names of shims (`shims/sitecustomize.py`), data made up, and where a number is
fixed in the source, that number replaced in a passing copy.
"""

from __future__ import annotations

import json
import pickle
import random
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ENDLESS = str(10**8)


@dataclass(frozen=True)
class Program:
    """One public program."""

    name: str
    repository: str  # folder below STRANGERS, of the same name as the public repository
    folder: str  # of the program, below the repository; copied before it runs
    command: tuple[str, ...]  # after python, or after the launcher's own arguments; {port}: a free one
    num_ranks: int = 1
    launcher: str = ""  # torchrun, fabric, or "": the program itself starts its ranks
    shims: tuple[str, ...] = ("seed",)
    needs: tuple[str, ...] = ()  # packages beside torch
    prepare: Callable[[Path], None] | None = None
    edits: tuple[tuple[str, str, str], ...] = ()  # file, pattern, replacement
    environment: tuple[tuple[str, str], ...] = ()
    log: str = ""  # a line printed each `every` steps; groups: loss, and ms where it tells a step's time
    every: float = 1  # steps between two such lines of one rank
    is_deterministic: bool = True
    faults: tuple[str, ...] = ()  # of disturbances.DISTURBANCES; (): the ones that fit the number of ranks
    finds: tuple[str, ...] = ()  # any of these findings is right under the fault; (): the ones that fit
    names: tuple[int, ...] | None = None  # ranks that the finding has to name; None: the disturbed one
    tolerated: tuple[str, ...] = ()  # findings above info that are true of the program itself, see `why`
    abstains: str = ""  # in the verdict under a fault: it cannot be known who is late, and that is said
    refused: str = ""  # what is said instead of a verdict, where that is right
    why: str = ""
    seconds: int = 12

    @property
    def disturbances(self) -> tuple[str, ...]:
        """Of `disturbances.py`."""
        return self.faults or (("pulses", "renice") if self.num_ranks > 1 else ("limit",))

    @property
    def expected(self) -> tuple[str, ...]:
        """Findings of which one has to be there under the fault."""
        return self.finds or (("straggler",) if self.num_ranks > 1 else ("cpu_limit",))


def characters(path: str) -> Callable[[Path], None]:
    """A text of letters drawn by lot."""

    def prepare(folder: Path) -> None:
        (folder / path).write_text("".join(random.Random(1).choices("abcdefghij klmnop\n", k=200_000)))

    return prepare


def token_ids(folder: Path) -> None:
    """Token ids of two bytes each, as nanoGPT keeps them."""
    import numpy as np

    target = folder / "data" / "noise"
    target.mkdir(parents=True)
    for name in ("train", "val"):
        np.random.default_rng(1).integers(0, 500, 200_000, dtype=np.uint16).tofile(target / f"{name}.bin")
    (target / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 512}))


def words(folder: Path) -> None:
    """Three files of words drawn by lot."""
    target = folder / "noise"
    target.mkdir()
    drawn = random.Random(1)
    for name, num in (("train", 20_000), ("valid", 200), ("test", 200)):
        lines = (" ".join(f"w{drawn.randrange(500)}" for _ in range(20)) for _ in range(num))
        (target / f"{name}.txt").write_text("\n".join(lines))


def instructions(folder: Path) -> None:
    """Questions and answers of words drawn by lot."""
    drawn = random.Random(1)

    def sentence(num: int) -> str:
        return " ".join(f"w{drawn.randrange(500)}" for _ in range(num))

    rows = [
        {"instruction": sentence(8), "input": "", "output": sentence(drawn.randint(10, 30))}
        for _ in range(2000)
    ]
    (folder / "noise.json").write_text(json.dumps(rows))
    # The package has changed since; only a name of it is used, in an annotation.
    (folder / "openai.py").write_text("class openai_object:\n    OpenAIObject = dict\n")


def waves(folder: Path) -> None:
    """Sine waves of 16 moments, as many as the program's own generator makes longer ones."""
    import numpy as np

    starts = np.random.default_rng(1).integers(-80, 80, (100, 1))
    np.save(folder / "waves.npy", np.sin((np.arange(16) + starts) / 20.0))
    (folder / "matplotlib.py").write_text("def use(*_):\n    pass\n")
    (folder / "pyplot.py").write_text("")


def png(path: Path, drawn: random.Random, size: int, colours: int, high: int) -> None:
    """A square of noise; colours: 1 or 3; values below high."""
    rows = b"".join(b"\0" + bytes(drawn.choices(range(high), k=size * colours)) for _ in range(size))
    header = struct.pack(">IIBBBBB", size, size, 8, 0 if colours == 1 else 2, 0, 0, 0)
    parts = b"\x89PNG\r\n\x1a\n"
    for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 1)), (b"IEND", b"")):
        parts += struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    path.write_bytes(parts)


def pictures(folder: Path) -> None:
    """Noise and masks of two classes; a log that goes nowhere."""
    drawn = random.Random(1)
    for name, colours, high in (("imgs", 3, 256), ("masks", 1, 2)):
        target = folder / "data" / name
        target.mkdir(parents=True, exist_ok=True)
        for number in range(400):
            png(target / f"{number}.png", drawn, 64, colours, high)
    (folder / "wandb.py").write_text(
        "class Run:\n    config = {}\n    def log(self, *_):\n        pass\n"
        "def init(**_):\n    return Run()\n"
        "def Histogram(_):\n    return None\n"
        "def Image(_):\n    return None\n"
    )


def classes(folder: Path) -> None:
    """Folders of noise, one a class, for training and validation."""
    drawn = random.Random(1)
    for split, num in (("train", 400), ("validation", 16)):
        for label in ("one", "two"):
            target = folder / "noise" / split / label
            target.mkdir(parents=True)
            for number in range(num):
                png(target / f"{number}.png", drawn, 72, 3, 256)


def texts(folder: Path) -> None:
    """Documents of words drawn by lot in Parquet files, and a tokenizer that numbers letters."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    target = folder / "base_data_climbmix"
    target.mkdir()
    drawn = random.Random(1)
    for number in range(2):
        rows = [
            " ".join(f"w{drawn.randrange(500)}" for _ in range(drawn.randint(5, 60))) for _ in range(4000)
        ]
        pq.write_table(pa.table({"text": rows}), target / f"shard_{number:05d}.parquet", row_group_size=500)
    (folder / "nanochat" / "tokenizer.py").write_text(
        "import torch\n"
        "class Letters:\n"
        "    def get_vocab_size(self):\n        return 256\n"
        "    def get_bos_token_id(self):\n        return 0\n"
        "    def encode(self, texts, prepend=0, **_):\n"
        "        return [[prepend, *text.encode()] for text in texts]\n"
        "def get_tokenizer():\n    return Letters()\n"
        "def get_token_bytes(device='cpu'):\n    return torch.ones(256, dtype=torch.int64, device=device)\n"
    )
    (folder / "wandb.py").write_text("")


def citations(folder: Path) -> None:
    """A graph drawn by lot: papers with their words and one of seven classes, and who cites whom."""
    target, drawn = folder / "data" / "cora", random.Random(1)
    target.mkdir(parents=True, exist_ok=True)
    papers = (
        " ".join([str(paper), *(str(int(drawn.random() < 0.02)) for _ in range(300)), f"c{paper % 7}"])
        for paper in range(1600)
    )
    (target / "cora.content").write_text("\n".join(papers))
    cited = (f"{drawn.randrange(1600)} {drawn.randrange(1600)}" for _ in range(4000))
    (target / "cora.cites").write_text("\n".join(cited))


def classes_and_unet(folder: Path) -> None:
    """The pictures of `classes`, and the configuration of a small denoiser."""
    classes(folder)
    sizes = {
        "_class_name": "UNet2DModel", "sample_size": 16, "in_channels": 3, "out_channels": 3,
        "layers_per_block": 1, "block_out_channels": [16, 32], "norm_num_groups": 8,
        "down_block_types": ["DownBlock2D", "AttnDownBlock2D"], "up_block_types": ["AttnUpBlock2D", "UpBlock2D"],
    }  # fmt: skip
    (folder / "unet.json").write_text(json.dumps(sizes))


def paragraphs(folder: Path) -> None:
    """Lines of JSON whose text is words drawn by lot."""
    target, drawn = folder / "noise", random.Random(1)
    target.mkdir()
    for name, num in (("train", 2000), ("test", 16)):
        texts_of = (
            " ".join(f"w{drawn.randrange(500)}" for _ in range(drawn.randint(10, 40))) for _ in range(num)
        )
        (target / f"{name}.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts_of))


def prompts(folder: Path) -> None:
    """Questions alone, and a reward that looks at an answer's length."""
    target, drawn = folder / "noise", random.Random(1)
    target.mkdir()
    for name, num in (("train", 2000), ("test", 16)):
        rows = ({"prompt": " ".join(f"w{drawn.randrange(500)}" for _ in range(6))} for _ in range(num))
        (target / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "lengths.py").write_text(
        "def reward(completions, **_):\n    return [float(len(one) % 7) for one in completions]\n"
    )


NANOGPT = (
    "train.py", "--dataset=noise", "--compile=False", "--n_layer=3", "--n_head=4", "--n_embd=128",
    "--block_size=64", "--batch_size=8", "--gradient_accumulation_steps=4", "--eval_iters=1", "--dtype=float32",
    f"--eval_interval={ENDLESS}", f"--max_iters={ENDLESS}",
    "--log_interval=1",  # else it tells the time of one step in ten
)  # fmt: skip
NANOGPT_LOG = r"iter \d+: loss (?P<loss>[\d.]+), time (?P<ms>[\d.]+)ms"
WORD_MODEL = (
    "main.py", "--data", "noise", "--emsize", "64", "--nhid", "64", "--log-interval", "20",
)  # fmt: skip
WORD_LOG = r"ms/batch +(?P<ms>[\d.]+) \| loss +(?P<loss>[\d.]+)"

IN_THREAD = "its batches are made in the loop's own thread, without workers: a part of each step"
TINY = "of so small a model most of what two ranks do on shared cores is the exchange"

PROGRAMS = [
    Program(
        "nanoGPT, DDP, 2 micro-batches", "nanoGPT", ".", NANOGPT, num_ranks=2, launcher="torchrun",
        shims=("seed", "device=cuda", "gloo"), prepare=token_ids, log=NANOGPT_LOG, seconds=16,
    ),
    Program(
        "nanoGPT, one process", "nanoGPT", ".", (*NANOGPT, "--device=cpu"), prepare=token_ids, log=NANOGPT_LOG,
        seconds=16,
    ),
    Program(
        "minGPT-ddp", "examples", "distributed/minGPT-ddp/mingpt",
        ("main.py", "data_config.path=noise.txt", "data_config.block_size=32", "data_config.truncate=1.0",
         "gpt_config.n_layer=2", "gpt_config.n_head=4", "gpt_config.n_embd=64", "trainer_config.batch_size=16",
         "trainer_config.use_amp=False", "trainer_config.data_loader_workers=0", "trainer_config.max_epochs=1000"),
        num_ranks=2, launcher="torchrun", shims=("seed", "device=cpu", "gloo"),
        needs=("hydra", "omegaconf", "boto3"), prepare=characters("noise.txt"),
        log=r"\[RANK0\] Epoch \d+ \| Iter \d+ \| Train Loss (?P<loss>[\d.]+)", every=100,
        tolerated=("communication_bound",), why=TINY,
    ),
    Program(
        "DDP tutorial, multigpu_torchrun", "examples", "distributed/ddp-tutorial-series",
        ("multigpu_torchrun.py", ENDLESS, ENDLESS, "--batch_size", "8"),
        num_ranks=2, launcher="torchrun", shims=("seed", "device=cpu", "gloo"),
        log=r"\[GPU0\] Epoch (?P<loss>\d+) ", every=128,
        tolerated=("communication_bound",), why=TINY,
    ),
    Program(
        "DDP tutorial, multigpu (spawn)", "examples", "distributed/ddp-tutorial-series",
        ("multigpu.py", ENDLESS, ENDLESS, "--batch_size", "8"),
        num_ranks=2, shims=("seed", "device=cpu", "gloo"), log=r"\[GPU0\] Epoch (?P<loss>\d+) ", every=128,
        tolerated=("communication_bound",), why=TINY,
    ),
    Program(
        "imagenet --dummy, spawn", "examples", "imagenet",
        ("main.py", "--dummy", "-a", "squeezenet1_1", "-b", "8", "-j", "0", "--multiprocessing-distributed",
         "--world-size", "1", "--rank", "0", "--dist-url", "tcp://127.0.0.1:{port}", "--dist-backend", "gloo",
         "-p", "1", "--seed", "1"),
        num_ranks=2, shims=("seed", "device=cuda", "gloo", "no_operators"), needs=("torchvision",),
        # Both ranks print; the figures of either rank are equal in kind, the loss is not.
        log=r"Epoch: \[0\]\[ *\d+/\d+\].*Time +(?P<s>[\d.]+).*Loss", seconds=25, is_deterministic=False,
    ),
    Program(
        "mnist", "examples", "mnist", ("main.py", "--epochs", "1000"), shims=("seed", "no_operators", "images"),
        needs=("torchvision",), log=r"Train Epoch: .*Loss: (?P<loss>[\d.]+)", every=10,
        tolerated=("input_bound",), why=IN_THREAD,
    ),
    Program(
        "dcgan", "examples", "dcgan",
        ("main.py", "--dataset", "fake", "--batchSize", "8", "--imageSize", "64", "--ngf", "8", "--ndf", "8",
         "--workers", "0", "--niter", "1000", "--manualSeed", "1"),
        shims=("seed", "no_operators"), needs=("torchvision",), log=r"\[\d+/\d+\]\[\d+/\d+\] (?P<loss>Loss_D.*)",
        tolerated=("input_bound",), why=IN_THREAD,
    ),
    Program(
        "vae", "examples", "vae", ("main.py", "--epochs", "1000"), shims=("seed", "no_operators", "images"),
        needs=("torchvision",), log=r"Train Epoch: .*Loss: (?P<loss>[\d.]+)", every=10,
        tolerated=("input_bound",), why=IN_THREAD,
    ),
    Program(
        "word_language_model, its own update", "examples", "word_language_model", WORD_MODEL,
        prepare=words, log=WORD_LOG, every=20,
        refused="no optimizer", why="it updates its parameters itself, which no hook sees: said, not guessed",
    ),
    Program(
        "word_language_model --use-optimizer", "examples", "word_language_model",
        (*WORD_MODEL, "--use-optimizer", "--lr", "0.001", "--model", "Transformer"),
        prepare=words, log=WORD_LOG, every=20,
    ),
    Program(
        "reinforcement_learning, actor-critic", "examples", "reinforcement_learning", ("actor_critic.py",),
        needs=("gymnasium",), log=r"Episode \d+\s+(?P<loss>Last.*)", every=10,
    ),
    Program(
        "cleanrl PPO", "cleanrl", "cleanrl", ("ppo.py", "--total-timesteps", ENDLESS, "--no-cuda"),
        needs=("gymnasium", "tyro", "tensorboard"), log=r"SPS: \d+", every=16, is_deterministic=False,
        tolerated=("periodic_pause",), why="its rollouts take three fifths of the time and come every 16 steps",
    ),
    Program(
        "FSDP2 example", "examples", "distributed/FSDP2", ("example.py",), num_ranks=2, launcher="torchrun",
        shims=("seed", "device=cpu", "gloo"),
        edits=(("example.py", r"range\(10\)", f"range({ENDLESS})"), ("example.py", r"(?<=n_layers=)10", "3"),
               ("example.py", r"(?<=batch_size = )32", "4")),
        tolerated=("communication_bound",), why=TINY,
    ),
    Program(
        "tensor parallel + FSDP example", "examples", "distributed/tensor_parallelism", ("fsdp_tp_example.py",),
        num_ranks=4, launcher="torchrun", shims=("seed", "device=cpu", "gloo", "plain_attention"),
        edits=(("fsdp_tp_example.py", r"(?<=num_iterations = )10", ENDLESS),
               ("fsdp_tp_example.py", r"dim=256", "dim=64"), ("fsdp_tp_example.py", r"32000", "1000"),
               ("fsdp_tp_example.py", r"\(8, 256\)", "(4, 64)"),
               ("llama2_model.py", r"is_causal=True", "is_causal=False")),  # torch makes its mask on one rank alone
        log=r"2D iter (?P<loss>\d+) complete",
    ),
    Program(
        "tensor parallel example", "examples", "distributed/tensor_parallelism", ("tensor_parallel_example.py",),
        num_ranks=2, launcher="torchrun", shims=("seed", "device=cpu", "gloo"),
        edits=(("tensor_parallel_example.py", r"(?<=num_iters = )10", ENDLESS),),
        log=r"Tensor Parallel iter (?P<loss>\d+) completed",
        tolerated=("communication_bound",), why=TINY,
    ),
    Program(
        "minGPT adder", "minGPT", ".", ("projects/adder/adder.py", "--trainer.num_workers=0"),
        shims=("seed",), environment=(("PYTHONPATH", "."),),
        log=r"; iter \d+: train loss (?P<loss>[\d.]+)", every=10,  # the time that it tells is of one step in ten
        tolerated=("input_bound",), why=IN_THREAD,
    ),
    Program(
        "Accelerate nlp_example", "accelerate", "examples", ("nlp_example.py", "--cpu"),
        num_ranks=2, launcher="torchrun", shims=("seed", "no_operators", "hub", "hub_data", "hub_metrics"),
        needs=("accelerate", "transformers", "datasets", "evaluate"),
        edits=(("nlp_example.py", r'"num_epochs": 3', '"num_epochs": 1000'),),
    ),
    Program(
        "Accelerate complete_nlp_example", "accelerate", "examples",
        ("complete_nlp_example.py", "--cpu", "--checkpointing_steps", "200", "--output_dir", "kept"),
        num_ranks=2, launcher="torchrun", shims=("seed", "no_operators", "hub", "hub_data", "hub_metrics"),
        needs=("accelerate", "transformers", "datasets", "evaluate"),
        edits=(("complete_nlp_example.py", r'"num_epochs": 3', '"num_epochs": 1000'),),
    ),
    Program(
        "stanford_alpaca (HF Trainer)", "stanford_alpaca", ".",
        ("train.py", "--model_name_or_path", "none", "--data_path", "noise.json", "--output_dir", "kept",
         "--per_device_train_batch_size", "4", "--num_train_epochs", "1000", "--logging_steps", "1",
         "--save_strategy", "no", "--use_cpu", "--ddp_backend", "gloo", "--report_to", "none",
         "--disable_tqdm", "True"),
        num_ranks=2, launcher="torchrun", shims=("seed", "no_operators", "hub"), needs=("transformers", "accelerate"),
        prepare=instructions, log=r"'loss': '?(?P<loss>[\d.e-]+)",
        tolerated=("communication_bound",), why=TINY,
    ),
    Program(
        "Lightning Fabric language_model", "pytorch-lightning", "examples/fabric/language_model", ("train.py",),
        num_ranks=2, launcher="fabric", shims=("seed", "no_operators", "wikitext"), needs=("lightning",),
        edits=(("train.py", r"% 200", "% 5"),),
        log=r"iteration: \d+ - loss (?P<loss>[\d.]+)", every=5,
    ),
    Program(
        "Lightning transformer", "pytorch-lightning", "examples/pytorch/basics", ("transformer.py",),
        shims=("seed", "no_operators", "wikitext"), needs=("lightning",),
        seconds=40,  # at a quarter of a core a step takes a second
    ),
    Program(
        "DeepSpeed cifar, ZeRO 1", "DeepSpeedExamples", "training/cifar",
        ("cifar10_deepspeed.py", "--deepspeed", "--stage", "1", "--dtype", "fp32", "--log-interval", "20",
         "-e", "1000"),
        num_ranks=2, launcher="torchrun", shims=("seed", "no_operators", "images", "gloo", "no_compiler"),
        needs=("deepspeed", "torchvision"), log=r"\[ *\d+, +\d+\] loss: +(?P<loss>[\d.]+)", every=20,
        environment=(("DS_ACCELERATOR", "cpu"),),
        tolerated=("communication_bound", "input_bound"), why=f"{TINY}; {IN_THREAD}",
    ),
    Program(
        "DLRM", "dlrm", ".",
        ("dlrm_s_pytorch.py", "--mini-batch-size", "64", "--data-generation", "random", "--data-size", "6400000",
         "--arch-embedding-size", "1000-1000-1000", "--arch-sparse-feature-size", "16", "--arch-mlp-bot",
         "13-64-16", "--arch-mlp-top", "64-32-1", "--print-freq", "50", "--print-time", "--nepochs", "1000"),
        needs=("sklearn", "onnx"),
        edits=(("dlrm_s_pytorch.py", r"use_cuda=use_gpu, ", ""),),  # torch 2.14 has it no more
        log=r" ms/it, loss (?P<loss>[\d.]+)", every=50,  # its own time is without the data
        tolerated=("input_bound",), why="it draws its batches in the loop's own thread: most of a step of 5 ms",
    ),
    Program(
        "pytorch-cifar", "pytorch-cifar", ".", ("main.py",), shims=("seed", "no_operators", "images"),
        needs=("torchvision",),
        edits=(("main.py", r"batch_size=128", "batch_size=4"), ("main.py", r"SimpleDLA\(\)", "MobileNetV2()"),
               ("main.py", r"num_workers=2", "num_workers=0"),
               ("utils.py", r"_, term_width = .*", "term_width = 80")),  # there is no terminal
        log=r"Tot: .* Loss: (?P<loss>[\d.]+)", seconds=20,
    ),
    Program(
        "mnist_hogwild, two processes that never wait", "examples", "mnist_hogwild", ("main.py", "--epochs", "1000"),
        shims=("seed", "no_operators", "images"), needs=("torchvision",), is_deterministic=False,
        log=r"Train Epoch: .*Loss: (?P<loss>[\d.]+)", every=5,  # both print, each every ten
        refused="processes that it started have loaded torch",
        why="its processes train each for itself: no ranks, and said so",
    ),
    Program(
        "time_sequence_prediction (LBFGS)", "examples", "time_sequence_prediction", ("train.py", "--steps", ENDLESS),
        prepare=waves, log=r"^test loss: (?P<loss>[\d.e-]+)",
        edits=(("train.py", r"torch\.load\('traindata\.pt'\)", "np.load('waves.npy')"),
               ("train.py", r"import matplotlib\.pyplot as plt", "import pyplot as plt"),
               ("train.py", r"future = 1000", "future = 10"),
               ("train.py", r"(?s)        # draw the result.*", "")),
    ),
    Program(
        "Pytorch-UNet", "Pytorch-UNet", ".", ("train.py", "-e", "1000", "-b", "2", "-s", "0.5"),
        shims=("seed", "no_operators"), needs=("torchvision", "PIL", "tqdm"), prepare=pictures,
        edits=(("train.py", r"num_workers=os\.cpu_count\(\)", "num_workers=1"),
               *(("unet/unet_model.py", rf"\b{wide}\b", str(wide // 8)) for wide in (64, 128, 256, 512, 1024))),
        # Its bar is drawn twice a step, of short ones ten times a second only.
        log=r" \d+/360 .*loss \(batch\)=(?P<loss>[\d.e-]+)", every=0.5, seconds=25, is_deterministic=False,
        environment=(("TQDM_MININTERVAL", "0"),),
        tolerated=("periodic_data_wait", "input_bound"),
        why="it starts its worker anew after each evaluation and waits for it, and one worker is short of keeping up",
    ),
    Program(
        "cleanrl TD3, an actor every second step", "cleanrl", ".",
        ("cleanrl/td3_continuous_action.py", "--env-id", "Pendulum-v1", "--learning-starts", "200", "--no-cuda",
         "--total-timesteps", ENDLESS, "--buffer-size", "10000"),
        needs=("gymnasium", "tyro", "tensorboard"), environment=(("PYTHONPATH", "."),),
        edits=(("cleanrl/td3_continuous_action.py", r'infos\["final_observation"\]\[idx\]', "next_obs[idx]"),),
        log=r"SPS: \d+", every=100, is_deterministic=False,
    ),
    Program(
        "timm train.py", "pytorch-image-models", ".",
        ("train.py", "noise", "--model", "mobilenetv3_small_050", "--num-classes", "2", "--img-size", "64", "-b", "8",
         "--workers", "1", "--device", "cpu", "--log-interval", "1", "--epochs", "1000", "--output", "kept"),
        num_ranks=2, launcher="torchrun", shims=("seed", "no_operators", "gloo"), needs=("torchvision", "yaml"),
        edits=(("train.py", r"device_ids=\[device\], ", ""),),
        prepare=classes, log=r"Train: .*Loss: (?P<loss>[\d.]+)", is_deterministic=False,
        tolerated=("communication_bound", "periodic_pause"),
        why="at an epoch's end, every 50 steps, its rank 0 saves alone; " + TINY,
    ),
    Program(
        "nanochat base_train, MuonAdamW without DDP", "nanochat", ".",
        ("-m", "scripts.base_train", "--device-type", "cpu", "--depth", "2", "--aspect-ratio", "32", "--head-dim", "32",
         "--max-seq-len", "64", "--device-batch-size", "8", "--total-batch-size", "2048", "--num-iterations", ENDLESS,
         "--eval-every", "-1", "--core-metric-every", "-1", "--sample-every", "-1", "--window-pattern", "L"),
        num_ranks=2, launcher="torchrun", shims=("seed", "gloo"), needs=("pyarrow", "filelock"), prepare=texts,
        environment=(("NANOCHAT_BASE_DIR", "."), ("PYTHONPATH", ".")),
        edits=(("nanochat/common.py", r'is_ddp_requested and device_type == "cuda"', "is_ddp_requested"),
               ("nanochat/common.py", r"device = torch\.device\(.cuda.*", "device = torch.device('cpu')"),
               ("nanochat/common.py", r"torch\.cuda\.set_device\(device\)", "pass"),
               ("nanochat/optim.py", r"\.get_future\(\)", ""),
               ("nanochat/optim.py", r"ReduceOp\.AVG", "ReduceOp.SUM")),
        log=r"step \d+/\d+ .*loss: (?P<loss>[\d.]+)",
        tolerated=("communication_bound",), why=TINY,
    ),
    Program(
        "Accelerate local_sgd, every 8 steps", "accelerate", "examples/by_feature",
        ("local_sgd.py", "--cpu"), num_ranks=2, launcher="torchrun",
        tolerated=("periodic_pause",), why="it averages its parameters every 8 steps: a pause that all ranks begin",
        shims=("seed", "no_operators", "hub", "hub_data", "hub_metrics"),
        needs=("accelerate", "transformers", "datasets", "evaluate"),
        seconds=40,  # who is late is told by four of its meetings, every 8 steps
        edits=(("local_sgd.py", r'"num_epochs": 3', '"num_epochs": 1000'),),
    ),
    Program(
        "Accelerate gradient_accumulation", "accelerate", "examples/by_feature",
        ("gradient_accumulation.py", "--cpu", "--gradient_accumulation_steps", "4"), num_ranks=2, launcher="torchrun",
        shims=("seed", "no_operators", "hub", "hub_data", "hub_metrics"),
        needs=("accelerate", "transformers", "datasets", "evaluate"),
        edits=(("gradient_accumulation.py", r'"num_epochs": 3', '"num_epochs": 1000'),),
    ),
    Program(
        "DeepSpeed pipeline, two stages", "DeepSpeedExamples", "training/pipeline_parallelism",
        ("train.py", "--deepspeed_config=ds_config.json", "-p", "2", "--steps", ENDLESS, "--backend", "gloo"),
        num_ranks=2, launcher="torchrun", shims=("seed", "device=cpu", "no_operators", "images", "gloo", "no_compiler"),
        needs=("deepspeed", "torchvision"), environment=(("DS_ACCELERATOR", "cpu"),),
        edits=(("ds_config.json", r": 256", ": 4"), ("ds_config.json", r": 8,", ": 1,"),
               ("ds_config.json", r'"steps_per_print" : 10', '"steps_per_print" : 1'),
               ("train.py", r"Resize\(256\)", "Resize(72)"), ("train.py", r"CenterCrop\(224\)", "CenterCrop(64)")),
        log=r"steps: \d+ loss: +(?P<loss>[\d.]+)", seconds=25,
        tolerated=("heavy_stage",), why="its first stage holds all convolutions, the second what is behind them",
    ),
    Program(
        "x-transformers train_copy", "x-transformers", ".", ("train_copy.py",),
        needs=("einops", "einx", "loguru", "tqdm", "torch_einops_utils"),
        edits=(("train_copy.py", r"(?<=BATCH_SIZE = )32", "4"),),
        log=r"(?:^|[\s\]])\d+: (?P<loss>\d[\d.]+)$",
        tolerated=("periodic_pause",), why="it generates a sequence, token by token, every 100 steps",
    ),
    Program(
        "makemore", "makemore", ".", ("makemore.py", "--num-workers", "1"), needs=("tensorboard",),
        log=r"^step \d+ \| loss (?P<loss>[\d.]+)", every=10,  # the time that it tells is of one step in ten
        tolerated=("periodic_pause", "input_bound"),
        why="it evaluates and samples every few hundred steps; one worker collates a batch name by name",
    ),
    Program(
        "pygcn, a graph in one batch", "pygcn", ".", ("-m", "pygcn.train", "--no-cuda", "--epochs", ENDLESS),
        needs=("scipy",), environment=(("PYTHONPATH", "."), ("PYTHONHASHSEED", "0")), prepare=citations,
        edits=(("pygcn/utils.py", r"\.\./data/cora/", "data/cora/"),),
        log=r"^Epoch: \d+ loss_train: (?P<loss>[\d.]+)",
    ),
    Program(
        "MAE pre-training of a ViT", "mae", ".",
        ("main_pretrain.py", "--data_path", "noise", "--model", "mae_vit_base_patch16", "--input_size", "64",
         "--batch_size", "4", "--epochs", "1000", "--num_workers", "1", "--device", "cpu", "--output_dir", "kept",
         "--log_dir", "kept"),
        num_ranks=2, launcher="torchrun", shims=("seed", "device=cuda", "gloo", "no_operators"),
        needs=("torchvision", "timm", "tensorboard"), prepare=classes,
        edits=(("main_pretrain.py", r"assert timm\.__version__.*", ""),
               ("main_pretrain.py", r"optim_factory\.add_weight_decay", "optim_factory.param_groups_weight_decay"),
               ("util/misc.py", r"from torch\._six import inf", "from math import inf"),
               ("util/pos_embed.py", r"np\.float\b", "float"),
               ("engine_pretrain.py", r"torch\.cuda\.synchronize\(\)", "pass"),
               ("models_mae.py", r"qk_scale=None, ", ""), ("models_mae.py", r"img_size=224", "img_size=64"),
               ("models_mae.py", r"embed_dim=768, depth=12, num_heads=12", "embed_dim=96, depth=3, num_heads=4"),
               ("models_mae.py", r"decoder_embed_dim=512, decoder_depth=8", "decoder_embed_dim=64, decoder_depth=1")),
        # An epoch's last line is less than twenty steps after the one before.
        log=r"Epoch: \[\d+\]  \[ *\d*0/\d+\].* loss: (?P<loss>[\d.]+)", every=20,
        tolerated=("communication_bound", "input_bound"), why=f"{TINY}; one worker makes the pictures of a rank",
        seconds=20,
    ),
    Program(
        "diffusers train_unconditional, EMA", "diffusers", "examples/unconditional_image_generation",
        ("train_unconditional.py", "--train_data_dir", "noise/train", "--model_config_name_or_path", "unet.json",
         "--resolution", "16", "--train_batch_size", "4", "--num_epochs", "1000", "--use_ema", "--logger",
         "tensorboard", "--output_dir", "kept", "--checkpointing_steps", "100", "--save_images_epochs", "5",
         "--save_model_epochs", "1000", "--ddpm_num_inference_steps", "5", "--dataloader_num_workers", "1"),
        num_ranks=2, launcher="torchrun", shims=("seed", "gloo", "no_operators"),
        needs=("diffusers", "accelerate", "datasets", "torchvision", "tensorboard"), prepare=classes_and_unet,
        # Its bar is drawn once a step only where it does not draw itself.
        environment=(("ACCELERATE_USE_CPU", "true"), ("HF_HOME", "hf"), ("TQDM_MININTERVAL", "1000000")),
        edits=(("train_unconditional.py", r"(?m)^check_min_version.*", ""),),
        log=r"loss=(?P<loss>[\d.e-]+), .*step=\d+", seconds=20,
        tolerated=("communication_bound", "periodic_pause"), why=f"{TINY}; it saves every 100 steps",
    ),
    Program(
        "TRL SFT", "trl", ".",
        ("-m", "trl.scripts.sft", "--model_name_or_path", "none", "--dataset_name", "noise", "--output_dir", "kept",
         "--per_device_train_batch_size", "4", "--gradient_accumulation_steps", "2", "--num_train_epochs", "1000",
         "--logging_steps", "1", "--save_strategy", "no", "--use_cpu", "--ddp_backend", "gloo", "--report_to", "none",
         "--disable_tqdm", "True", "--bf16", "False", "--gradient_checkpointing", "False"),
        num_ranks=2, launcher="torchrun", shims=("seed", "no_operators", "hub"),
        needs=("transformers", "accelerate", "datasets"), prepare=paragraphs,
        environment=(("PYTHONPATH", "."), ("HF_HOME", "hf")), log=r"'loss': '?(?P<loss>[\d.e-]+)",
        tolerated=("communication_bound",), why=TINY, seconds=20,
    ),
    Program(
        "cleanrl SAC, three optimizers", "cleanrl", ".",
        ("cleanrl/sac_continuous_action.py", "--env-id", "Pendulum-v1", "--learning-starts", "200", "--no-cuda",
         "--total-timesteps", ENDLESS, "--buffer-size", "10000"),
        needs=("gymnasium", "tyro", "tensorboard"), environment=(("PYTHONPATH", "."),),
        edits=(("cleanrl/sac_continuous_action.py", r'infos\["final_observation"\]\[idx\]', "next_obs[idx]"),
               ("cleanrl/sac_continuous_action.py", r"global_step % 100 ==", "global_step % 10 ==")),
        log=r"SPS: \d+", every=10, is_deterministic=False,
    ),
    Program(
        "mnist_forward_forward, a layer after the other", "examples", "mnist_forward_forward",
        ("main.py", "--train_size", "500", "--test_size", "100", "--epochs", ENDLESS), needs=("torchvision",),
        shims=("seed", "no_operators", "images"), log=r"^Loss: +(?P<loss>[\d.e-]+)", every=10,
    ),
    Program(
        "Lightning's bug report, its launcher, validation", "pytorch-lightning", "examples/pytorch/bug_report",
        ("bug_report_model.py",), num_ranks=2, needs=("lightning",),
        edits=(("bug_report_model.py", r"limit_train_batches=1,\s+limit_val_batches=1,",
                'limit_train_batches=100, limit_val_batches=10, accelerator="cpu", devices=2, strategy="ddp",'),
               ("bug_report_model.py", r"max_epochs=1,", "max_epochs=-1,"),
               ("bug_report_model.py", r"num_sanity_val_steps=0", "num_sanity_val_steps=2"),
               ("bug_report_model.py", r"RandomDataset\(32, 64\), batch_size=2",
                "RandomDataset(32, 6400), batch_size=32"),
               ("bug_report_model.py", r"torch\.nn\.Linear\(32, 2\)",
                "torch.nn.Sequential(torch.nn.Linear(32, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 512))")),
        tolerated=("communication_bound", "input_bound"), why=f"{TINY}; {IN_THREAD}", seconds=16,
    ),
    Program(
        "Lightning Fabric PPO", "pytorch-lightning", "examples/fabric/reinforcement_learning",
        ("train_fabric.py", "--total-timesteps", ENDLESS), num_ranks=2, launcher="fabric",
        needs=("lightning", "gymnasium", "torchmetrics", "tensorboard"),
        edits=(("train_fabric.py", r"(agent, optimizer = fabric\.setup.*)",  # Lightning wants to be told by now
                r"\1; [agent.mark_forward_method(n) for n in dir(PPOLightningAgent) if n[:5] in ('get_a', 'estim')]"),),
        tolerated=("communication_bound", "periodic_pause"), why=f"{TINY}; its rollouts are pauses of all ranks",
        seconds=20,
    ),
    Program(
        "Lightning Fabric k-fold, five models in turns", "pytorch-lightning", "examples/fabric/kfold_cv",
        ("train_fabric.py", "--batch-size", "8", "--epochs", "1000", "--log-interval", "10"),
        num_ranks=2, launcher="fabric", shims=("seed", "no_operators", "images"),
        needs=("lightning", "torchvision", "torchmetrics", "sklearn"),
        edits=(("train_fabric.py", r"kfold\.split\(dataset\)", "kfold.split(range(2000))"),
               # Every rank prints, and once more where a fold begins.
               ("train_fabric.py", r"\(batch_idx == 0\) or \((.*) == 0\)", r"fabric.is_global_zero and \1 == 0")),
        log=r"Train Epoch: .*Loss: (?P<loss>[\d.]+)", every=10,
        is_deterministic=False, seconds=16,
        tolerated=("input_bound", "communication_bound"), why=f"{IN_THREAD}; {TINY}",
    ),
    Program(
        "sequence parallel example", "examples", "distributed/tensor_parallelism", ("sequence_parallel_example.py",),
        num_ranks=2, launcher="torchrun", shims=("seed", "device=cpu", "gloo"),
        edits=(("sequence_parallel_example.py", r"(?<=num_iters = )10", ENDLESS),),
        log=r"Sequence Parallel iter (?P<loss>\d+) completed",
        tolerated=("communication_bound",), why=TINY,
    ),
    Program(
        "TRL GRPO, generation every fourth step", "trl", ".",
        ("-m", "trl.scripts.grpo", "--model_name_or_path", "none", "--dataset_name", "noise", "--output_dir", "kept",
         "--reward_funcs", "lengths.reward", "--num_generations", "4", "--max_completion_length", "12",
         "--per_device_train_batch_size", "4", "--steps_per_generation", "4", "--num_train_epochs", "1000",
         "--logging_steps", "1", "--save_strategy", "no", "--use_cpu", "--ddp_backend", "gloo", "--report_to", "none",
         "--disable_tqdm", "True", "--bf16", "False", "--gradient_checkpointing", "False"),
        num_ranks=2, launcher="torchrun", shims=("seed", "no_operators", "hub"),
        needs=("transformers", "accelerate", "datasets"), prepare=prompts, is_deterministic=False,
        environment=(("PYTHONPATH", "."), ("HF_HOME", "hf")), log=r"'loss': '?(?P<loss>-?[\d.e-]+)",
        tolerated=("communication_bound", "periodic_pause"), why=f"{TINY}; it generates its batches every four steps",
        seconds=20,
    ),
]  # fmt: skip
