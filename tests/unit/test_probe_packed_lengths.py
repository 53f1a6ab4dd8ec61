"""Sequences that share a row of a batch: their squared lengths, or nothing where the batch does not tell them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from probing import probed
from torch.utils.data import DataLoader

from tuiadvisor.events import EventKind
from tuiadvisor_probes.packed_lengths import squares


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        ({"cu_seqlens": torch.tensor([0, 3, 5], dtype=torch.int32)}, (2, 5, 13)),
        ({"cu_seq_lens_q": torch.tensor([[0, 3, 5]])}, (2, 5, 13)),
        ({"seq_lens": torch.tensor([3, 2])}, (2, 5, 13)),
        ({"position_ids": torch.tensor([[0, 1, 2, 0, 1], [0, 1, 2, 3, 4]])}, (3, 10, 38)),
    ],
)
def test_every_way_of_telling_them(batch: dict[str, Any], expected: tuple[int, int, int]) -> None:
    """(sequences, tokens, sum of squares)."""
    assert squares(batch) == expected


@pytest.mark.parametrize(
    "batch",
    [
        torch.ones(4, 8),
        [torch.ones(4, 8)],
        {"input_ids": torch.ones(4, 8, dtype=torch.int64)},
        {"position_ids": torch.tensor([[2, 3, 0, 1]])},  # begins within a sequence
        {"position_ids": torch.tensor([[0.0, 1.0]])},
        {"cu_seqlens": torch.tensor([0, 5, 3])},
        {"cu_seqlens": torch.zeros(1 << 17, dtype=torch.int64)},
        {"cu_seqlens": [0, 3, 5]},
        {"seq_lens": torch.empty(0, dtype=torch.int64)},
    ],
)
def test_what_does_not_tell_them_is_unknown(batch: Any) -> None:
    """No length is made up."""
    assert squares(batch) is None


def test_a_burst_tells_them_of_each_batch(tmp_path: Path) -> None:
    """As the loader hands it out."""
    batches = [
        {"x": torch.ones(2, 8), "cu_seqlens": torch.tensor([0, number, 20], dtype=torch.int32)}
        for number in range(1, 13)
    ]
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with probed(tmp_path, detail_s=600) as observed:
        for batch in DataLoader(batches, batch_size=None):
            optimizer.zero_grad()
            model(batch["x"]).mean().backward()
            optimizer.step()
    told = observed.events(EventKind.PACKED_BATCH)
    assert len(told) >= 8
    assert {(one["group"], one["seq"]) for one in told} == {(2, 20)}
    first = min(one["step"] for one in told)
    lengths = {one["step"]: one["detail"] for one in told}
    number = next(n for n in range(1, 13) if n * n + (20 - n) ** 2 == lengths[first])
    assert all(
        lengths[step] == (number + step - first) ** 2 + (20 - number - step + first) ** 2 for step in lengths
    )
