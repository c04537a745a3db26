"""Readers on what the real tools write, killed and resumed; from the extra `loggers`, skipped without it."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest

from onecurve import read
from onecurve.logs.discover import discover

pytestmark = pytest.mark.slow

COMMON = """
import os, sys
STEPS = range(1, 201)
def loss(k): return 2.0 + (k / 200) ** -0.3
CONFIG = dict(n_params=1000000, learning_rate=1e-3, weight_decay=0.1, global_batch_size=64, seq_length=128,
              max_steps=200, lr_scheduler_type="linear", seed=0)
"""
LOSS = np.array([2.0 + (k / 200) ** -0.3 for k in range(1, 201)])


def run(script: str, folder, *arguments: str, code: int | None = 0) -> None:
    """A script of its own process, as people run their tools; its folder is the working directory."""
    done = subprocess.run(
        [sys.executable, "-c", COMMON + textwrap.dedent(script), *arguments],
        cwd=folder, capture_output=True, text=True, check=False, timeout=400,
    )  # fmt: skip
    assert code is None or done.returncode == code, done.stderr[-3000:]


def one_run(found):
    (got,) = found.runs
    assert (got.config.n_params, got.config.batch_tokens, got.config.horizon) == (1e6, 8192.0, 200 * 8192.0)
    assert np.array_equal(got.curve().x, 8192.0 * np.arange(1, 201))
    assert np.array_equal(got.curve().loss, LOSS)


def test_wandb_offline(tmp_path):
    pytest.importorskip("wandb")
    script = """
    import wandb
    run = wandb.init(project="p", name="one", dir=".", config=CONFIG, mode="offline")
    for k in STEPS:
        run.log({"train/loss": loss(k)}, step=k)
    run.finish()
    """
    run(script, tmp_path)
    one_run(read([tmp_path / "wandb"]))


def test_wandb_killed(tmp_path):
    pytest.importorskip("wandb")
    script = """
    import time, wandb
    run = wandb.init(project="p", name="one", dir=".", config=CONFIG, mode="offline")
    for k in STEPS:
        run.log({"train/loss": loss(k)}, step=k)
    time.sleep(2)
    os.kill(os.getpid(), 9)
    """
    run(script, tmp_path, code=-9)
    (log,) = discover(tmp_path / "wandb").logs
    series = log.series["train/loss"]
    assert len(series) > 0 and np.array_equal(series.value, LOSS[: len(series)])


@pytest.mark.parametrize("store", ["sqlite:///mlflow.db", "mlruns"])
def test_mlflow(tmp_path, store):
    pytest.importorskip("mlflow")
    script = """
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "1"
    import mlflow
    mlflow.set_tracking_uri(sys.argv[1] if ":" in sys.argv[1] else "file://" + os.path.abspath(sys.argv[1]))
    mlflow.set_experiment("e")
    with mlflow.start_run(run_name="one") as run:
        mlflow.log_params(CONFIG)
        for k in list(STEPS)[:120]:
            mlflow.log_metric("train_loss", loss(k) if k < 100 else 9.0, step=k)
        mlflow.log_metric("other", float("nan"), step=1)
    with mlflow.start_run(run_id=run.info.run_id):  # resumed from step 100
        for k in list(STEPS)[99:]:
            mlflow.log_metric("train_loss", loss(k), step=k)
    """
    run(script, tmp_path, store)
    found = read([tmp_path / store.rsplit("/", 1)[-1]])
    one_run(found)
    assert found.dropped["points rewritten after a resume"] == 21


def test_trackio(tmp_path):
    pytest.importorskip("trackio")
    script = """
    os.environ["TRACKIO_DIR"] = os.getcwd()
    import trackio
    trackio.init(project="proj", name="one", config=CONFIG)
    for k in STEPS:
        trackio.log({"train_loss": loss(k), "x": float("nan")}, step=k)
    trackio.finish()
    """
    run(script, tmp_path)
    one_run(read([tmp_path]))


TRAINER = """
import torch
from torch import nn
from transformers import Trainer, TrainingArguments
torch.manual_seed(0)
class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Linear(4, 1)
    def forward(self, x, labels):
        return {"loss": ((self.w(x) - labels) ** 2).mean()}
data = [{"x": torch.randn(4), "labels": torch.randn(1)} for _ in range(64)]
arguments = TrainingArguments("out", max_steps=int(sys.argv[1]), save_steps=20, logging_steps=5, report_to=[],
                              use_cpu=True, per_device_train_batch_size=8, save_total_limit=2, disable_tqdm=True)
Trainer(Line(), arguments, train_dataset=data).train(resume_from_checkpoint=len(sys.argv) > 2)
"""


def test_a_transformers_trainer_that_was_resumed(tmp_path):
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    run(TRAINER, tmp_path, "40")
    run(TRAINER, tmp_path, "80", "resume")
    logs = discover(tmp_path / "out").logs
    assert len(logs) == 1  # its checkpoints are one run
    assert logs[0].series["loss"].step.tolist() == list(np.arange(5.0, 81.0, 5.0))
    assert "train_loss" not in logs[0].series
    (tmp_path / "runs.csv").write_text("run,n_params\nout,5\n")
    found = read([tmp_path / "out"], tmp_path / "runs.csv")
    assert found.runs[0].curves["loss"].x.tolist() == list(np.arange(2.5, 80.0, 5.0))  # means over five steps


LIGHTNING = """
import pathlib
import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger
class Line(LightningModule):
    def __init__(self, optim, betas=(0.9, 0.95), place=pathlib.Path("x")):
        super().__init__()
        self.save_hyperparameters()
        self.w = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        loss = ((self.w(batch) - 1) ** 2).mean()
        self.log("train_loss", loss)
        if self.global_step == int(sys.argv[2]):
            os.kill(os.getpid(), 9)
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)
torch.manual_seed(0)
data = torch.utils.data.DataLoader(torch.randn(400, 4), batch_size=4)
logger = CSVLogger(".", name="csv", version=0, flush_logs_every_n_steps=1)
logger.log_hyperparams(CONFIG)
Trainer(max_steps=int(sys.argv[1]), logger=logger, log_every_n_steps=1, enable_checkpointing=False, accelerator="cpu",
        enable_progress_bar=False, enable_model_summary=False).fit(Line({"name": "sgd", "momentum": 0.5}), data)
"""


def test_lightning_s_csv_logger(tmp_path):
    pytest.importorskip("lightning")
    run(LIGHTNING, tmp_path, "60", "-1")
    (log,) = discover(tmp_path / "csv").logs
    assert log.format == "CSV log"
    assert log.series["train_loss"].step.tolist() == list(np.arange(60.0))
    assert log.settings["optim.momentum"] == 0.5  # beside what YAML has no plain form of: tuples, paths
    (got,) = read([tmp_path / "csv"]).runs
    c = got.config
    assert (c.n_params, c.batch_tokens, c.learning_rate, c.weight_decay, c.seed) == (1e6, 8192.0, 1e-3, 0.1, 0)


def test_lightning_s_csv_logger_killed(tmp_path):
    pytest.importorskip("lightning")
    run(LIGHTNING, tmp_path, "60", "33", code=-9)
    (log,) = discover(tmp_path / "csv").logs
    assert log.series["train_loss"].step.tolist() == list(np.arange(len(log.series["train_loss"])))
    assert len(log.series["train_loss"]) >= 30
