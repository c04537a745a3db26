"""Runs that watch themselves: in a plain loop, under two processes, in other trainers where they are installed."""

from __future__ import annotations

import logging
import subprocess
import sys
from types import SimpleNamespace

import pytest

from onecurve import OnecurveError
from onecurve.store import dumps
from onecurve.train.callbacks import Watch, hugging_face_watch, lightning_watch
from onecurve.watch.reference import Reference

from ..watch.conftest import family, healthy, with_fault

REF = Reference.of(family(seeds=4))
N = 3.2e6
BAD = with_fault(healthy(N, 5), lambda f: 1.0 + 0.2 * (f > 0.6))


def follow(watch: Watch, run=BAD) -> float:
    c = run.curves["loss"]
    for x, loss in zip(c.x, c.loss, strict=True):
        if watch(x, loss):
            break
    return float(x) / run.end


def test_a_plain_loop_stops_at_the_alarm(tmp_path, caplog):
    file = tmp_path / "reference.json"
    file.write_text(dumps(REF.to_dict()))
    told = []
    watch = Watch(file, N, BAD.end, on_alarm="stop", tell=told.append)
    with caplog.at_level(logging.INFO, logger="onecurve.watch"):
        assert 0.6 < follow(watch) < 0.65
    assert told == watch.events and told[-1].kind == "departure" and watch.checkpoint
    assert [r.levelname for r in caplog.records][-1] == "ERROR"


def test_what_an_alarm_does_is_a_choice():
    log, checkpoint = (Watch(REF, N, BAD.end, on_alarm=what) for what in ("log", "checkpoint"))
    assert follow(log) == follow(checkpoint) == 1.0 and not log.checkpoint
    with pytest.raises(OnecurveError, match="on_alarm is 'shout'"):
        Watch(REF, N, BAD.end, on_alarm="shout")


def test_the_alert_of_weights_and_biases(monkeypatch):
    alerts = []
    run = SimpleNamespace(alert=lambda **kw: alerts.append(kw))
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(run=run))
    follow(Watch(REF, N, BAD.end))
    assert [a["title"] for a in alerts] == ["onecurve: departure"] and alerts[0]["level"] == "ERROR"


def test_the_hugging_face_callback_by_hand(monkeypatch):
    # The Trainer itself is asked below, where it is installed; a callback needs nothing of its base class.
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(TrainerCallback=object))
    callback = hugging_face_watch(Watch(REF, N, BAD.end, on_alarm="stop"), tokens_per_step=BAD.end / 1000)
    control = SimpleNamespace(should_save=False, should_training_stop=False)
    for k, loss in enumerate(BAD.curves["loss"].loss, start=1):
        state = SimpleNamespace(global_step=k, num_input_tokens_seen=0)
        callback.on_log(None, state, control, {"learning_rate": 1.0})
        callback.on_log(None, state, control, {"loss": float(loss)})
        if control.should_training_stop:
            break
    assert 600 < k < 650 and control.should_save
    with pytest.raises(OnecurveError, match="include_num_input_tokens_seen"):
        hugging_face_watch(Watch(REF, N, BAD.end)).on_log(None, state, control, {"loss": 1.0})


RANKS = """
import sys
import torch.distributed as dist
sys.path.insert(0, {tests!r})
from onecurve.train.callbacks import Watch
from onecurve.watch.reference import Reference
from conftest import family, healthy, with_fault

dist.init_process_group("gloo")
bad = with_fault(healthy(3.2e6, 5), lambda f: 1.0 + 0.2 * (f > 0.6))
watch = Watch(Reference.of(family(seeds=4)), 3.2e6, bad.end, on_alarm="stop")
c = bad.curves["loss"]
for k, (x, loss) in enumerate(zip(c.x, c.loss)):
    # Ranks other than 0 see a loss of their own, in which nothing is wrong.
    if watch(x, loss if dist.get_rank() == 0 else 1.0):
        break
print(f"rank stopped at {{k}}", flush=True)
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_ranks_stop_after_the_same_step(tmp_path, request):
    script = tmp_path / "ranks.py"
    script.write_text(RANKS.format(tests=str(request.path.parent.parent / "watch")))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    stops = [line for line in done.stdout.splitlines() if line.startswith("rank stopped")]
    assert len(stops) == 2 and stops[0] == stops[1]


@pytest.mark.slow
def test_the_real_hugging_face_trainer(tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    import torch

    class Blind(torch.nn.Module):
        """A model whose loss is what the watched curve says."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(()))

        def forward(self, labels=None, **_):
            return {"loss": labels.float().mean() + 0.0 * self.weight, "logits": self.weight.view(1)}

    losses = BAD.curves["loss"].loss
    data = [{"labels": torch.tensor(float(v))} for v in losses]
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), per_device_train_batch_size=1, max_steps=1000, logging_steps=1, report_to=[],
        use_cpu=True, disable_tqdm=True, logging_nan_inf_filter=False, save_strategy="no",
    )  # fmt: skip
    trainer = transformers.Trainer(
        Blind(), arguments, train_dataset=data,
        callbacks=[hugging_face_watch(Watch(REF, N, BAD.end, on_alarm="stop"), BAD.end / 1000)],
    )  # fmt: skip
    trainer._get_train_sampler = lambda *_: torch.utils.data.SequentialSampler(data)
    trainer.train()
    assert 600 < trainer.state.global_step < 650


@pytest.mark.slow
def test_the_real_lightning(tmp_path):
    lightning = pytest.importorskip("lightning.pytorch")
    import torch

    class Blind(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(()))

        def training_step(self, batch, _):
            loss = batch.mean() + 0.0 * self.weight
            self.log("train_loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    watch = Watch(REF, N, BAD.end, on_alarm="stop")
    data = torch.utils.data.DataLoader(torch.tensor(BAD.curves["loss"].loss), batch_size=1)
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        callbacks=[lightning_watch(watch, BAD.end / 1000, checkpoint=str(tmp_path / "alarm.ckpt"))],
    )  # fmt: skip
    trainer.fit(Blind(), data)
    assert 600 < trainer.global_step < 650 and (tmp_path / "alarm.ckpt").exists()
