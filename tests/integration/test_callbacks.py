"""A training that records itself: by the Recorder, by the callbacks of Transformers and Lightning."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_S

import tuiadvisor

pytest.importorskip("torch")
pytestmark = [pytest.mark.slow, pytest.mark.extended]

# Each trains until its recording holds so much that there is a verdict, and prints the summary.
COMMON = """
import json, time
from pathlib import Path
import torch
OUTPUT = Path("run.tuirec")
def work():
    time.sleep(0.005)
def enough(limit_s=240, begin=time.monotonic()):
    size = OUTPUT.stat().st_size if OUTPUT.exists() else 0
    return size > 60_000 or time.monotonic() - begin > limit_s
"""
PLAIN = """
from tuiadvisor.integrations.recorder import Recorder
from tuiadvisor.integrations.trackers import summary
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
optimizer = torch.optim.AdamW(model.parameters())
recorder = Recorder(OUTPUT)
assert recorder.start()
while not enough():
    work()
    model(torch.randn(32, 64)).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
print(json.dumps(summary(recorder.finish())))
"""
TRANSFORMERS = """
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from tuiadvisor.integrations.huggingface import TuiadvisorCallback
class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 1 << 20
    def __getitem__(self, at):
        ids = torch.randint(0, 100, (16,))
        return {"input_ids": ids, "labels": ids}
class Stop(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        work()
        control.should_training_stop = enough()
model = GPT2LMHeadModel(GPT2Config(vocab_size=100, n_positions=16, n_embd=32, n_layer=2, n_head=2))
arguments = TrainingArguments("out", max_steps=1 << 19, per_device_train_batch_size=2, use_cpu=True,
                              report_to=[], save_strategy="no", disable_tqdm=True)
ours = TuiadvisorCallback(OUTPUT)
Trainer(model, arguments, train_dataset=Tokens(), callbacks=[ours, Stop()]).train()
print(json.dumps(ours.summary))
"""
LIGHTNING = """
import lightning.pytorch as pl
from lightning.pytorch.loggers import CSVLogger
from tuiadvisor.integrations.lightning import TuiadvisorCallback
class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 1)
    def training_step(self, batch, _):
        work()
        self.trainer.should_stop = enough()
        return self.layer(batch[0]).mean()
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())
data = torch.utils.data.TensorDataset(torch.randn(1 << 18, 64))
ours = TuiadvisorCallback(OUTPUT)
trainer = pl.Trainer(max_epochs=100, accelerator="cpu", devices=1, callbacks=[ours], logger=CSVLogger("logs"),
                     enable_progress_bar=False, enable_checkpointing=False, enable_model_summary=False)
trainer.fit(Model(), torch.utils.data.DataLoader(data, batch_size=8))
print(json.dumps(ours.summary))
"""


def trained(program: str, folder: Path) -> dict[str, object]:
    """The summary that the program printed."""
    (folder / "train.py").write_text(COMMON + program)
    command = [sys.executable, "-W", "ignore", "train.py"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_plain_loop_records_itself(tmp_path: Path) -> None:
    figures = trained(PLAIN, tmp_path)
    run = tuiadvisor.open(tmp_path / "run.tuirec")
    assert figures == run.summary()
    assert run.view.step.median_s is not None
    assert run.view.run.world_size == 1


def test_transformers_trainer_records_itself(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    assert "tuiadvisor/step_median_s" in trained(TRANSFORMERS, tmp_path)


def test_lightnings_trainer_records_itself_and_logs_it(tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    assert "tuiadvisor/step_median_s" in trained(LIGHTNING, tmp_path)
    (metrics,) = (tmp_path / "logs").rglob("metrics.csv")
    assert "tuiadvisor/step_median_s" in metrics.read_text()
