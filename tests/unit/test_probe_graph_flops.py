"""FLOPs of a step by the graphs of its backwards, against torch's own counter; what they do not tell is unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from probing import probed  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from tuiadvisor_probes.graph_flops import Unseen, graph_flops  # noqa: E402

BATCH, STEPS = 6, 16
A_SECOND = 1_000_000_000


def mlp() -> Any:
    return nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 3))


def frozen(model: Any, *numbers: int) -> Any:
    for number in numbers:
        model[number].requires_grad_(False)
    return model


class Attending(nn.Module):
    """torch's attention written out, and a product of batches."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x: Any) -> Any:
        return torch.einsum("bij,bkj->bik", self.attention(x, x, x)[0], x)


MODELS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "layers that are all products": (mlp, (BATCH, 10)),
    "without a bias": (lambda: nn.Sequential(nn.Linear(10, 4, bias=False), nn.Linear(4, 2)), (BATCH, 10)),
    "rows of sequences": (mlp, (BATCH, 7, 10)),
    "frozen in the middle": (lambda: frozen(mlp(), 2), (BATCH, 10)),
    "convolutions": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten()),
        (BATCH, 3, 17, 17),
    ),
    "transposed": (
        lambda: nn.Sequential(
            nn.ConvTranspose2d(5, 8, 4, 2, 1), nn.ConvTranspose2d(8, 3, 3, output_padding=1, stride=2)
        ),
        (BATCH, 5, 4, 6),
    ),
    "one dimension": (lambda: nn.Conv1d(3, 8, 5, dilation=2), (BATCH, 3, 40)),
    "attention": (Attending, (BATCH, 9, 16)),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_graph_holds_what_torchs_own_counter_counts(name: str) -> None:
    make, shape = MODELS[name]
    model = make()
    with FlopCounterMode(display=False) as counter:
        loss = model(torch.randn(*shape)).sum()
        found = graph_flops([loss.grad_fn], A_SECOND)
        loss.backward()
    assert found == counter.get_total_flops() > 0


def test_a_convolution_in_groups_multiplies_its_own_channels_alone() -> None:
    """Torch's counter takes all channels for the gradient of its weight."""
    given = torch.randn(BATCH, 8, 12, requires_grad=True)
    loss = nn.Conv1d(8, 8, 3, groups=4)(given).sum()
    assert graph_flops([loss.grad_fn], A_SECOND) == 3 * 2 * (BATCH * 8 * 10) * (2 * 3)


def test_attention_by_one_kernel_is_counted_though_torch_does_not_on_a_cpu() -> None:
    """2 products of 2·B·H·T·T·d forward, twice as much backward."""
    query, key, value = (torch.randn(2, 4, 16, 8, requires_grad=True) for _ in range(3))
    out = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    assert graph_flops([out.grad_fn], A_SECOND) == 3 * 2 * (2 * 2 * 4 * 16 * 16 * 8)


class Own(torch.autograd.Function):  # type: ignore[misc]
    """A kernel of somebody's own."""

    @staticmethod
    def forward(_context: Any, x: Any) -> Any:
        return x @ x.T

    @staticmethod
    def backward(_context: Any, gradient: Any) -> Any:
        return gradient


X = torch.randn(BATCH, 10)
OPAQUE = {
    "a function of its own": lambda: Own.apply(mlp()(X)),
    "checkpointed the old way": lambda: checkpoint(mlp(), X.clone().requires_grad_(), use_reentrant=True),
    "compiled": lambda: torch.compile(mlp(), backend="aot_eager")(X),
    "recurrent": lambda: nn.LSTM(10, 8)(X)[0],
    "a sparse matrix": lambda: torch.sparse.mm(torch.eye(BATCH).to_sparse(), mlp()(X)),
    "a frozen convolution": lambda: frozen([nn.Conv1d(1, 1, 3), nn.Conv1d(1, 1, 3)], 1)[1](
        nn.Conv1d(1, 1, 3)(X[:, None])
    ),
    "bilinear": lambda: nn.Bilinear(10, 10, 4)(X, X),
}


@pytest.mark.parametrize("name", OPAQUE)
def test_what_may_multiply_unseen_makes_the_whole_unknown(name: str) -> None:
    with pytest.raises(Unseen):
        graph_flops([OPAQUE[name]().sum().grad_fn], A_SECOND)


def test_a_graph_that_takes_too_long_is_given_up() -> None:
    with pytest.raises(Unseen, match="too many"):
        graph_flops([nn.Sequential(*(mlp()[3] for _ in range(99)))(mlp()(X)).sum().grad_fn], -1)


def trained(folder: Path, model: Any, *, backwards: int = 1, **options: Any) -> dict[str, Any]:
    """The facts after a short training; every patch is put back."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    former = torch.autograd.backward
    with probed(folder) as seen:
        held = torch.autograd.backward
        for _ in range(STEPS):
            for _ in range(backwards):
                model(X).pow(2).mean().backward(**options)
            optimizer.step()
            optimizer.zero_grad()
        assert torch.autograd.backward is held
        assert seen.errors == 0
        facts = dict(seen.info["model"])
    assert torch.autograd.backward is former
    return facts


@pytest.mark.parametrize("backwards", [1, 3])
def test_the_probe_counts_one_whole_step(tmp_path: Path, backwards: int) -> None:
    """Of all its micro-batches, and our hook is the very same afterwards."""
    facts = trained(tmp_path, mlp(), backwards=backwards)
    weights = 10 * 32 + 32 * 32 + 32 * 3
    assert facts["graph_flops"] == backwards * BATCH * (6 * weights - 2 * 10 * 32)
    assert "graph_unseen" not in facts


def test_a_graph_that_is_kept_is_not_counted_twice(tmp_path: Path) -> None:
    facts = trained(tmp_path, mlp(), retain_graph=True)
    assert "graph_flops" not in facts
    assert "second backward" in facts["graph_unseen"]


def test_the_weights_are_the_same_bit_for_bit(tmp_path: Path) -> None:
    ended = []
    for watched in (False, True):
        torch.manual_seed(3)
        model = mlp()
        if watched:
            trained(tmp_path, model)
        else:
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
            for _ in range(STEPS):
                model(X).pow(2).mean().backward()
                optimizer.step()
                optimizer.zero_grad()
        ended.append([p.detach().clone() for p in model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*ended, strict=True))
