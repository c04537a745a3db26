"""Each step of mending can be left undone; what cannot be mended is named with the next step."""

from __future__ import annotations

import gzip
import json
import sqlite3
import time

import numpy as np
import pytest
from typer.testing import CliRunner

from onecurve import OnecurveError, read
from onecurve.cli import app
from onecurve.frame import Columns
from onecurve.logs.clean import MENDS
from onecurve.logs.discover import discover

from .made import mlflow


def json_log(folder, rows, settings=None, end="\n"):
    folder.mkdir(parents=True, exist_ok=True)
    first = {"event": "hparams", "hparams": {"n_params": 1e6} | (settings or {})}
    text = "\n".join(json.dumps(row) for row in [first, *rows])
    (folder / "metrics.jsonl").write_text(text + end)
    return folder


def step(k, loss=2.0, **more):
    return {"event": "log", "step": k, "metrics": {"train/loss": loss, **more}}


REWOUND = [*map(step, range(1, 6)), *map(step, range(4, 9))]
REPEATED = [step(1), step(2), step(2, 3.0), step(3)]
SUMMARISED = [step(1), step(2), {"event": "summary", "summary": {"train/loss": 9.0}}]


@pytest.mark.parametrize(
    ("rows", "end", "which", "what"),
    [
        (REWOUND, "\n", "rewinds", "2 points rewritten after a resume"),
        (REPEATED, "\n", "repeats", "1 points that the next one repeats"),
        ([step(1), step(2)], '\n{"event": "lo', "torn", "1 torn last records"),
    ],
)
def test_what_is_not_to_be_mended_is_refused(tmp_path, rows, end, which, what):
    log = json_log(tmp_path / "run", rows, end=end)
    table = read([log])
    assert what in [f"{count} {name}" for name, count in table.dropped.items()]
    for names in ([which], ["all"], list(MENDS)):
        with pytest.raises(OnecurveError, match=f"{what}, and --no-mend {which}"):
            read([log], unmended=names)
    others = [name for name in MENDS if name != which]
    assert read([log], unmended=others).runs[0].curve() == table.runs[0].curve()


def test_summary_rows_are_dropped_or_kept(tmp_path):
    rows = [{"step": k, "loss": 3.0 - k / 10} for k in (10, 20, 30)]
    rows.append({"step": 31, "train_runtime": 5.0, "loss": 2.9})
    state = {"global_step": 31, "max_steps": 31, "log_history": rows, "best_metric": None}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    (tmp_path / "runs.csv").write_text(f"run,n_params\n{tmp_path.name},1e6\n")
    found = read([tmp_path / "trainer_state.json"], tmp_path / "runs.csv")
    assert found.dropped == {"summary rows": 1} and len(found.runs[0].curve()) == 3
    kept = read([tmp_path / "trainer_state.json"], tmp_path / "runs.csv", unmended=["summaries"])
    assert kept.dropped == {} and kept.runs[0].curve().loss[-1] == 2.9


@pytest.mark.parametrize("end", ["\n", "\n{torn"])  # by columns, and line by line
def test_summaries_of_json_lines_have_no_step(tmp_path, end):
    log = json_log(tmp_path / "run", SUMMARISED, end=end)
    (raw,) = discover(log).logs
    assert np.isnan(raw.summaries["train/loss"].step).all() and raw.summaries["train/loss"].value.tolist() == [9.0]
    assert read([log]).dropped["summary rows"] == 1
    kept = read([log], unmended=["summaries"])
    assert kept.dropped["points without a step"] == 1 and len(kept.runs[0].curve()) == 2


def test_means_stay_where_they_were_logged(tmp_path):
    rows = [{"step": k, "loss": 1.0 + k} for k in (100, 200, 300)]
    state = {"global_step": 300, "log_history": rows, "best_metric": None}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    (tmp_path / "runs.csv").write_text(f"run,n_params\n{tmp_path.name},1e6\n")
    found = read([tmp_path / "trainer_state.json"], tmp_path / "runs.csv", unmended=["means"])
    assert found.runs[0].curves["loss"].x.tolist() == [100.0, 200.0, 300.0]


def test_an_unknown_step_of_mending_is_named(tmp_path):
    log = json_log(tmp_path / "run", [step(1), step(2)])
    with pytest.raises(OnecurveError, match=r"no mending 'gaps'.*rewinds, repeats, torn, summaries, means, and all"):
        read([log], unmended=["gaps"])


def test_the_command_line_leaves_a_step_undone(tmp_path):
    log = json_log(tmp_path / "run", REWOUND)
    done = CliRunner().invoke(app, ["read", str(log)])
    assert done.exit_code == 0 and "2 points rewritten after a resume" in done.output
    done = CliRunner().invoke(app, ["read", str(log), "--no-mend", "rewinds", "--no-mend", "torn"])
    assert done.exit_code == 0 and "Not usable yet" in done.output and "--no-mend rewinds" in done.output


def test_run_directories_and_tables_are_not_mended(tmp_path):
    log = json_log(tmp_path / "run", [step(1), step(2)])
    assert CliRunner().invoke(app, ["read", str(log), "-o", str(tmp_path / "out")]).exit_code == 0
    assert any("--no-mend ignored" in w for w in read([tmp_path / "out"], unmended=["torn"]).warnings)
    (tmp_path / "t.csv").write_text("run,n_params,tokens,train_loss\na,1e6,1,2\na,1e6,2,1\n")
    assert any("--no-mend ignored" in w for w in read([tmp_path / "t.csv"], unmended=["torn"]).warnings)


BATCH = {"global_batch_size": 64, "seq_length": 128}


def test_steps_that_are_micro_batches_are_named(tmp_path):
    told = BATCH | {"max_steps": 10, "gradient_accumulation_steps": 4}
    log = json_log(tmp_path / "run", [step(k) for k in range(1, 41)], told)
    (words,) = [w for w in read([log]).warnings if "micro-batches" in w]
    assert "4 to a step of the optimiser (they run to 40 where 10 are planned)" in words and "--x" in words
    log = json_log(tmp_path / "other", [step(k, tokens=2048 * k) for k in range(1, 41)], told | {"max_steps": 40})
    (words,) = [w for w in read([log]).warnings if "micro-batches" in w]
    assert "that share of the batch" in words
    log = json_log(tmp_path / "right", [step(k, tokens=8192 * k) for k in range(1, 11)], told)
    assert not [w for w in read([log]).warnings if "micro-batches" in w]


def test_a_batch_that_is_ramped_up_is_counted_token_by_token(tmp_path):
    tokens = np.cumsum(np.where(np.arange(1, 41) <= 20, 1024, 8192))
    rows = [step(k, loss=2.0 + 1 / k, **({"tokens": int(t)} if k % 2 == 0 else {})) for k, t in enumerate(tokens, 1)]
    log = json_log(tmp_path / "run", rows)
    run = read([log]).runs[0]
    assert run.x_name == "tokens"
    np.testing.assert_allclose(run.curve().x, tokens, rtol=1e-12)


def test_tokens_may_be_told(tmp_path):
    rows = [step(k, seen=k * 512) for k in range(1, 20)]
    log = json_log(tmp_path / "run", rows, BATCH)
    assert read([log]).runs[0].curve().x[-1] == 19 * 8192
    told = read([log], columns=Columns(x="seen")).runs[0]
    assert (told.x_name, told.curve().x[-1]) == ("tokens", 19 * 512)
    on_steps = read([log], columns=Columns(x="step")).runs[0]
    assert (on_steps.x_name, on_steps.curve().x[-1]) == ("step", 19)
    with pytest.raises(OnecurveError, match="no series 'other' for --x; it has seen, train/loss"):
        read([log], columns=Columns(x="other"))


def test_logs_without_tokens_keep_all_on_steps_and_are_named(tmp_path):
    json_log(tmp_path / "a", [step(1), step(2)], BATCH)
    json_log(tmp_path / "b", [step(1), step(2)])
    found = read([tmp_path])
    assert {run.x_name for run in found.runs} == {"step"}
    assert any("1 of 2 logs do not say their tokens (b)" in w for w in found.warnings)


def test_dates_in_the_future_are_told(tmp_path):
    pytest.importorskip("torch")
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path / "tb") as writer:
        for k in range(5):
            writer.add_scalar("train/loss", 2.0, k, walltime=time.time() + 3e8)
    (log,) = discover(tmp_path / "tb").logs
    assert any("in the future" in note for note in log.notes)
    file = mlflow(tmp_path / "mlflow.db")
    assert not any("future" in note for log in discover(file).logs for note in log.notes)
    with sqlite3.connect(file) as db:
        db.execute("UPDATE metrics SET timestamp = ?", (4_000_000_000_000,))
    assert all("2096-10-02, in the future" in log.notes[0] for log in discover(file).logs)


def test_a_packed_file_is_named_and_not_opened(tmp_path):
    (tmp_path / "metrics.jsonl.gz").write_bytes(gzip.compress(b"{}"))
    with pytest.raises(OnecurveError, match=r"metrics.jsonl.gz: packed; unpack it"):
        read([tmp_path / "metrics.jsonl.gz"])
    json_log(tmp_path / "run", [step(1), step(2)])
    assert any("packed; unpack it" in w for w in read([tmp_path]).warnings)
