"""Lets a program that was written for GPUs and downloads run on CPUs, its files unchanged.

On PYTHONPATH of the program's processes alone. STRANGER_SHIMS names what is replaced, as NAME or NAME=VALUE with commas
between them; nothing is imported that the program does not import itself.

Only what a program calls to set itself up is replaced: never an optimizer, a forward, a backward or a collective.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import os
import random
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

SHIMS = dict(part.partition("=")[::2] for part in os.environ.get("STRANGER_SHIMS", "").split(",") if part)


def _without(function: Callable[..., Any], *dropped: str) -> Callable[..., Any]:
    """The function, called without some of its keywords."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **{name: value for name, value in kwargs.items() if name not in dropped})

    return call


def _for_the_program(function: Callable[..., Any], answer: Any) -> Callable[..., Any]:
    """The answer for the program's own modules; torch, and whoever watches, are told the truth."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(1).f_globals.get("__name__", "").partition(".")[0]
        return function(*args, **kwargs) if caller in ("torch", "tuiadvisor_probes") else answer

    return call


def seed(torch: Any) -> None:
    """Programs that draw their data without a seed draw the same each time."""
    torch.manual_seed(1)
    random.seed(1)


def device(torch: Any) -> None:
    """Any device asked for is the CPU; value: the type of the two or more that a program is told it has."""
    told = torch.device(SHIMS["device"] or "cpu")

    def on_cpu(value: Any) -> Any:
        is_index = isinstance(value, int) and not isinstance(value, bool)
        is_name = isinstance(value, str) and value.partition(":")[0] in ("cuda", "cpu")
        return torch.device("cpu") if is_index or is_name or isinstance(value, torch.device) else value

    def moving(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def move(self: Any, *args: Any, **kwargs: Any) -> Any:
            where = {name: on_cpu(value) for name, value in kwargs.items()}
            return function(self, *map(on_cpu, args), **where)

        return move

    def making(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def make(*args: Any, **kwargs: Any) -> Any:
            if "device" in kwargs:
                kwargs["device"] = on_cpu(kwargs["device"])
            return function(*args, **kwargs)

        return make

    for owner in (torch.Tensor, torch.nn.Module):
        owner.to = moving(owner.to)
        owner.cuda = lambda self, *_args, **_kwargs: self
    torch.nn.Module.to_empty = moving(torch.nn.Module.to_empty)
    torch.Tensor.pin_memory = lambda self, *_args: self
    if told.type != "cpu":  # DTensor's dispatch wants torch's own functions
        for name in ("randint", "randn", "rand", "zeros", "ones", "full", "tensor", "arange"):
            setattr(torch, name, making(getattr(torch, name)))
    torch.cuda.set_device = lambda *_args: None
    num = int(os.environ.get("WORLD_SIZE", "2"))
    answers: dict[str, Any] = {"is_available": True, "device_count": num, "current_accelerator": told}
    for name, answer in answers.items():
        setattr(torch.accelerator, name, _for_the_program(getattr(torch.accelerator, name), answer))
    torch.cuda.device_count = _for_the_program(torch.cuda.device_count, num)
    torch.accelerator.set_device_index = torch.accelerator.set_device_idx = lambda *_args: None
    torch.accelerator.device_index = lambda *_args: None
    loader, wrapper = torch.utils.data.DataLoader, torch.nn.parallel.DistributedDataParallel
    loader.__init__ = _without(loader.__init__, "pin_memory")
    wrapper.__init__ = _without(wrapper.__init__, "device_ids", "output_device")


def gloo(torch: Any) -> None:
    """Whatever backend a program asks for."""
    distributed = torch.distributed
    start = distributed.init_process_group

    @functools.wraps(start)
    def init(_backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        kept = {name: value for name, value in kwargs.items() if name not in ("backend", "device_id")}
        return start("gloo", *args, **kept)

    distributed.init_process_group = distributed.distributed_c10d.init_process_group = init
    distributed.get_default_backend_for_device = lambda *_args: "gloo"


def no_operators(torch: Any) -> None:
    """Lets a torchvision that was built for CUDA be imported beside a torch for CPUs: its operators are missing."""
    from importlib.metadata import version
    from importlib.util import find_spec

    if torch.version.cuda is None and find_spec("torchvision") and "+cpu" not in version("torchvision"):
        for part in ("_meta_registrations", "_autograd_registrations"):
            sys.modules[f"torchvision.{part}"] = ModuleType(f"torchvision.{part}")


def plain_attention(torch: Any) -> None:
    """Attention by single operators: the fused one of CPUs cannot be sharded."""
    torch.backends.cuda.enable_flash_sdp(False)


class Noise:
    """Random images; at the top of a module, so that processes started by spawn can be sent them."""

    num, shape = 60_000, (28, 28)

    def __init__(self, *_args: Any, train: bool = True, transform: Any = None, **_kwargs: Any) -> None:
        import torch
        from PIL import Image

        generator = torch.Generator().manual_seed(int(train))
        drawn = torch.randint(0, 256, (256, *self.shape), generator=generator)
        self.images = [Image.fromarray(image) for image in drawn.to(torch.uint8).numpy()]
        self.length, self.transform = self.num if train else 1000, transform

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image = self.images[index % 256]
        return (image if self.transform is None else self.transform(image)), index % 10


class ColourNoise(Noise):
    """In three colours."""

    num, shape = 50_000, (32, 32, 3)  # type: ignore[assignment]


def images(torchvision: Any) -> None:
    """Noise instead of MNIST and CIFAR-10: sizes and classes of the real ones, nothing read or downloaded."""
    torchvision.datasets.MNIST, torchvision.datasets.CIFAR10 = Noise, ColourNoise


def _words() -> list[str]:
    return [f"w{number}" for number in range(500)]


def _sentences(num: int, drawn: random.Random) -> list[str]:
    return [" ".join(drawn.choices(_words(), k=drawn.randint(20, 40))) for _ in range(num)]


def _tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {word: number for number, word in enumerate(["[PAD]", "[UNK]", *_words()])}
    inner = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]", eos_token="[UNK]", model_max_length=128
    )


def hub(transformers: Any) -> None:
    """Small random models and a tokenizer of 500 words, whatever name a program asks the hub for."""
    sizes = {"hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 192}
    bert = transformers.BertConfig(vocab_size=512, **sizes)
    llama = transformers.LlamaConfig(vocab_size=512, num_key_value_heads=4, **sizes)
    transformers.AutoTokenizer.from_pretrained = lambda *_args, **_kwargs: _tokenizer()
    transformers.AutoModelForSequenceClassification.from_pretrained = lambda *_args, **_kwargs: (
        transformers.BertForSequenceClassification(bert)
    )
    transformers.AutoModelForCausalLM.from_pretrained = lambda *_args, **_kwargs: (
        transformers.LlamaForCausalLM(llama)
    )
    llama.architectures = ["LlamaForCausalLM"]  # a program may ask which class to load
    transformers.AutoConfig.from_pretrained = lambda *_args, **_kwargs: llama
    transformers.AutoProcessor.from_pretrained = transformers.AutoTokenizer.from_pretrained
    transformers.LlamaForCausalLM.from_pretrained = lambda *_args, **_kwargs: transformers.LlamaForCausalLM(
        llama
    )
    trainer = transformers.Trainer
    trainer.__init__ = _without(trainer.__init__, "tokenizer")  # a keyword of the time these were written


def hub_data(datasets: Any) -> None:
    """Pairs of random sentences, whatever data set a program asks the hub for."""

    def load(*_args: Any, **_kwargs: Any) -> Any:
        def split(num: int, number: int) -> Any:
            drawn = random.Random(number)
            columns = {
                "sentence1": _sentences(num, drawn),
                "sentence2": _sentences(num, drawn),
                "label": [index % 2 for index in range(num)],
                "idx": list(range(num)),
            }
            return datasets.Dataset.from_dict(columns)

        return datasets.DatasetDict({"train": split(20_000, 1), "validation": split(64, 2)})

    datasets.load_dataset = load


def hub_metrics(evaluate: Any) -> None:
    """A metric that counts nothing."""

    class Nothing:
        def add_batch(self, **_kwargs: Any) -> None:
            """Forget it."""

        def compute(self, **_kwargs: Any) -> dict[str, float]:
            """No figures."""
            return {"accuracy": 0.0, "f1": 0.0}

    evaluate.load = lambda *_args, **_kwargs: Nothing()


def wikitext(demos: Any) -> None:
    """Random tokens for Lightning's demonstrations."""
    import torch

    class Tokens(torch.utils.data.Dataset):  # type: ignore[misc, type-arg]
        vocab_size = 1000

        def __len__(self) -> int:
            return 80_000

        def __getitem__(self, index: int) -> Any:
            generator = torch.Generator().manual_seed(int(index) % 512)
            drawn = torch.randint(0, 1000, (36,), generator=generator)
            return drawn[:-1], drawn[1:]

    demos.WikiText2 = Tokens


def no_compiler(torch_backend: Any) -> None:
    """DeepSpeed's collectives without the C++ that it would build for a minute."""
    torch_backend.build_shm_op = lambda: None


# Name of a shim: the module after whose import it is applied, and what it does.
KNOWN: dict[str, tuple[str, Callable[[Any], None]]] = {
    "seed": ("torch", seed),
    "device": ("torch", device),
    "gloo": ("torch", gloo),
    "no_operators": ("torch", no_operators),
    "plain_attention": ("torch", plain_attention),
    "images": ("torchvision", images),
    "hub": ("transformers", hub),
    "hub_data": ("datasets", hub_data),
    "hub_metrics": ("evaluate", hub_metrics),
    "wikitext": ("lightning.pytorch.demos", wikitext),
    "no_compiler": ("deepspeed.comm.torch", no_compiler),
}


class Finder(importlib.abc.MetaPathFinder):
    """Lets the others find a module, and changes it right after it ran."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[Callable[[Any], None]]] = {}
        self.is_asking = False
        for name in SHIMS:
            module, change = KNOWN[name]
            self.waiting.setdefault(module, []).append(change)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The others' answer, with a loader that changes the module."""
        if self.is_asking or fullname not in self.waiting:
            return None
        self.is_asking = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self.is_asking = False
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            for change in self.waiting.pop(
                fullname, []
            ):  # many ask for a spec only to see whether it is there
                change(sys.modules.get(fullname, module))  # a module may have put another one in its place

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if SHIMS:
    sys.meta_path.insert(0, Finder())
