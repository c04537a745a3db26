"""Settings that tools keep beside their curves."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest

from onecurve import read
from onecurve.logs.discover import discover

CONFIG = {"learning_rate": 1e-3, "weight_decay": 0.1, "max_steps": 9, "seed": 3, "lr_scheduler_type": "linear"}
BATCH = {"n_params": 1e6, "global_batch_size": 64, "seq_length": 128}


@pytest.fixture
def writer(tmp_path):
    pytest.importorskip("torch")
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path / "run") as opened:
        for k in range(1, 10):
            opened.add_scalar("train/loss", 2.0 + 1 / k, k)
        yield opened


def is_read(path):
    (run,) = read([path]).runs
    c = run.config
    assert (c.n_params, c.batch_tokens, c.horizon, c.learning_rate, c.seed) == (1e6, 8192.0, 9 * 8192.0, 1e-3, 3)
    assert c.schedule is not None and c.schedule.shape == "linear"
    assert np.array_equal(run.curve().x, 8192.0 * np.arange(1, 10))


def test_json_texts_of_tensorboard(writer, tmp_path):
    writer.add_text("args", json.dumps(CONFIG, indent=2))
    writer.add_text("model_config", json.dumps(BATCH))
    writer.add_text("notes", "a long story " * 100)
    writer.flush()
    is_read(tmp_path / "run")


def test_one_text_a_setting_as_megatron_writes_them(writer, tmp_path):
    for name, value in (CONFIG | BATCH).items():
        writer.add_text(name, str(value), global_step=0)
    writer.flush()
    is_read(tmp_path / "run")


def test_hyperparameters_of_tensorboard(writer, tmp_path):
    writer.add_hparams(CONFIG | BATCH | {"compile": True}, {"hparam/metric": 1.0}, run_name=".")
    writer.flush()
    is_read(tmp_path / "run")
    assert discover(tmp_path / "run").logs[0].settings["compile"] == 1.0  # as torch writes what is true


def test_lightning_s_file_beside_tensorboard(writer, tmp_path):
    lines = [f"{k}: {v}" for k, v in (CONFIG | BATCH).items()] + [
        f"bad: !!python/object/apply:os.system ['touch {tmp_path / 'called'}']"
    ]
    writer.flush()
    (tmp_path / "run" / "hparams.yaml").write_text("\n".join(lines))
    is_read(tmp_path / "run")  # a tag's value is nothing, and the others stand
    assert "bad" not in discover(tmp_path / "run").logs[0].settings
    assert not (tmp_path / "called").exists()


def test_a_link_beside_a_log_is_not_followed(writer, tmp_path):
    writer.flush()
    (tmp_path / "elsewhere.yaml").write_text("learning_rate: 1.0\n")
    (tmp_path / "run" / "hparams.yaml").symlink_to(tmp_path / "elsewhere.yaml")
    assert discover(tmp_path / "run").logs[0].settings == {}


def test_parameters_are_counted_from_the_header_of_the_weights(tmp_path):
    place = tmp_path / "out" / "checkpoint-20"
    place.mkdir(parents=True)
    rows = [{"step": k, "loss": 2.0 + 1 / k} for k in (10, 20)]
    state = {"global_step": 20, "max_steps": 40, "log_history": rows, "best_metric": None}
    (place / "trainer_state.json").write_text(json.dumps(state))
    (place / "config.json").write_text(json.dumps({"hidden_size": 64, "architectures": ["X"], "vocab_size": 100}))
    for k, shapes in enumerate([{"a": [100, 64]}, {"b": [64, 64], "c": [64]}]):
        header = {"__metadata__": {"format": "pt"}} | {
            name: {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]} for name, shape in shapes.items()
        }
        text = json.dumps(header).encode()
        (place / f"model-{k}.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
    (run,) = read([tmp_path / "out"]).runs
    assert run.config.n_params == 100 * 64 + 64 * 64 + 64
    (log,) = discover(tmp_path / "out").logs
    assert (log.settings["hidden_size"], log.settings["max_steps"]) == (64, 40)


@pytest.mark.parametrize(
    "content", [b"", b"\1", b"\xff" * 9, struct.pack("<Q", 2) + b"[]", struct.pack("<Q", 9) + b"{"]
)
def test_weights_that_cannot_be_read_count_nothing(tmp_path, content):
    rows = [{"step": k, "loss": 2.0} for k in (10, 20)]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"global_step": 20, "log_history": rows}))
    (tmp_path / "config.json").write_bytes(content)
    (tmp_path / "model.safetensors").write_bytes(content)
    (log,) = discover(tmp_path).logs
    assert log.settings == {}


def test_what_torchtitan_says_before_it_starts(tmp_path):
    lines = [
        "[titan] 2026-12-01 - root - INFO - Model llama3 debugmodel size: 6,139,136 total parameters",
        "[titan] 2026-12-01 - root - INFO - Training starts at step 1, with local batch size 8, global batch size 64, "
        "gradient accumulation steps 1, sequence length 2048, total steps 10 (warmup 2)",
        *(f"step: {k:2d}  loss: {8 - k / 10}  grad_norm: 1.4  memory: 1.0GiB(1%)  tps: 900" for k in range(1, 11)),
    ]
    (tmp_path / "a.log").write_text("\n".join(lines) + "\n")
    (run,) = read([tmp_path / "a.log"]).runs
    assert (run.config.n_params, run.config.batch_tokens) == (6139136, 64 * 2048)
    assert run.config.horizon == 10 * 64 * 2048


def test_what_nanogpt_says_before_it_starts(tmp_path):
    lines = ["tokens per iteration will be: 491,520", "number of parameters: 123.59M"]
    lines += [f"step {k}: train loss {9 - k / 100:.4f}, val loss {9 - k / 100:.4f}" for k in (0, 100, 200)]
    (tmp_path / "a.log").write_text("\n".join(lines) + "\n")
    (run,) = read([tmp_path / "a.log"]).runs
    assert (run.config.n_params, run.config.batch_tokens) == (123.59e6, 491520)
