"""A tensor that is pickled, for a collective of objects say, is no checkpoint; a file of the old format is one."""

from __future__ import annotations

import io
import pickle
import threading
from pathlib import Path

import pytest
from probing import probed

from tuiadvisor.events import StepFlag

torch = pytest.importorskip("torch")
NUM_STEPS = 12
SAVES_AT = 8


@pytest.mark.parametrize("core", ["python", "native"], indirect=True)
@pytest.mark.usefixtures("core")
def test_only_a_save_is_a_checkpoint(tmp_path: Path) -> None:
    """A PPO that broadcasts its metrics was told of a checkpoint that takes 0 us and holds up all ranks."""
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with probed(tmp_path) as observed:
        for number in range(NUM_STEPS):
            loss = model(torch.ones(2, 4)).sum()
            loss.backward()
            optimizer.step()
            pickle.dumps({"loss": loss.detach()})
            aside = threading.Thread(target=pickle.dumps, args=(torch.ones(3),))
            aside.start()
            aside.join()
            if number == SAVES_AT:
                torch.save(model.state_dict(), io.BytesIO(), _use_new_zipfile_serialization=False)
    marked = [row for row in observed.steps if row["flags"] & StepFlag.CHECKPOINT]
    assert 1 == len(marked)
    assert marked[0]["checkpoint_ns"] > 0
    assert not any(row["flags"] & StepFlag.SAVING for row in observed.steps)
    assert [0] * (len(observed.steps) - 1) == [
        row["checkpoint_ns"] for row in observed.steps if row not in marked
    ]
