"""Models scored by the real harness: numbers that follow in closed form or from our own model, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from onecurve import OnecurveError
from onecurve.data.prose import prose_items
from onecurve.data.shards import open_shards, write_shards
from onecurve.plan.recipe import Recipe
from onecurve.scores.suites import BITS_PER_BYTE, CELERITY7, PROSE
from onecurve.scores.table import read_result, read_scores
from onecurve.train import evaluate as of
from onecurve.train.evaluate import evaluate, ratio
from onecurve.train.export import byte_tokenizer, export_huggingface, find_trained, load_weights
from onecurve.train.ladder import train_ladder

from ..cli.test_collapse import onecurve

CONTEXT = 160


def recipe(**task: str) -> Recipe:
    return Recipe.model_validate(
        {
            "task": {"kind": "tokens"} | task,
            "model": {"kind": "transformer", "context": CONTEXT, "head_size": 8},
            "ladder": {
                "sizes": [{"name": name, "width": width, "layers": 1} for name, width in (("a", 16), ("b", 24))],
                "base_width": 16,
                "base_layers": 1,
                "parameterisations": ["completep"],
                "seeds": 1,
            },
            "optimiser": {"learning_rate": 0.02, "batch": 8 * CONTEXT, "weight_decay": 0.1},
            "schedule": {"shape": "linear", "warmup": 0.1},
            "horizon": {"tokens_per_param": 5.0},
            "evaluation": {"points": 4, "samples": 8 * CONTEXT},
        }
    )


@pytest.fixture(scope="module")
def ladder(tmp_path_factory):
    pytest.importorskip("lm_eval")
    out = tmp_path_factory.mktemp("evaluated") / "ladder"
    train_ladder(recipe(), out, lambda state: None, workers=1)
    return out


@pytest.fixture
def run(ladder):
    path = ladder / "runs" / "completep-a-seed-0"
    yield path
    shutil.rmtree(path / "scores", ignore_errors=True)


def told(*arguments, **options) -> list[str]:
    lines: list[str] = []
    evaluate(*arguments, lambda *words: lines.append("  ".join(words)), **options)
    return lines


def score(run: Path, task: str) -> dict:
    return read_result(run / "scores" / f"{task}.json")


def test_the_ratio_has_the_spread_of_its_draws():
    rng = np.random.default_rng(0)
    bottom = rng.integers(50, 500, (2000, 60))
    top = 2.0 * bottom + 30.0 * rng.standard_normal(bottom.shape)
    found = np.array([ratio(t, b) for t, b in zip(top, bottom, strict=True)])
    assert found[:, 0].mean() == pytest.approx(2.0, rel=1e-3)
    assert found[:, 1].mean() == pytest.approx(found[:, 0].std(), rel=0.05)
    assert ratio(np.array([3.0]), np.array([2]))[0] == 1.5 and np.isnan(ratio(np.array([3.0]), np.array([2]))[1])


def test_documents_are_spread_evenly(monkeypatch):
    documents = [np.full(1000, k) for k in range(100)]
    monkeypatch.setattr(of, "TEXT_BYTES", 10_000)
    chosen = [int(d[0]) for d in of._spread(documents)]
    assert len(chosen) == 10 and set(np.diff(chosen)) == {10}
    assert len(list(of._spread(documents[:1] * 3))) == 3
    assert len(list(of._spread([np.zeros(50_000)]))) == 1


@pytest.mark.slow
def test_the_harness_gives_what_our_own_model_says(run):
    limit = 60
    lines = told([run], {PROSE: None, BITS_PER_BYTE: None}, limit=limit)
    assert len(lines) == 2 and "acc, 60 examples" in lines[0]
    ours, right = load_weights(find_trained(run)), 0
    for item in prose_items().items[:limit]:
        each = []
        for choice in item["choices"]:
            ids = torch.tensor(list(f"{item['context']}{choice}".encode()))
            with torch.no_grad():
                logs = ours(ids[None, :-1])[0].log_softmax(-1).gather(1, ids[1:, None])[:, 0]
            each.append(float(logs[-len(choice.encode()) :].sum()))
        right += int(np.argmax(each) == item["gold"])
    found = score(run, PROSE)
    share = right / limit
    assert found["value"] == pytest.approx(share) and found["chance"] == 0.25 and found["cut"] == 0.0
    assert found["stderr"] == pytest.approx(np.sqrt(share * (1 - share) / (limit - 1)))

    held = np.asarray(open_shards(run.parent.parent / "data").held_out)
    bits = size = 0.0
    for document in np.split(held, np.flatnonzero(held == 0)):
        text = bytes(document[document != 0].astype(np.uint8)).decode("utf-8", "replace").encode()
        ids = torch.tensor([0, *text])
        for at in range(0, len(text), CONTEXT):
            window = ids[at : at + CONTEXT + 1]
            with torch.no_grad():
                bits += float(F.cross_entropy(ours(window[None, :-1])[0], window[1:], reduction="sum")) / np.log(2)
        size += len(text)
    found = score(run, BITS_PER_BYTE)
    assert found["metrics"]["bytes"] == size and found["value"] == pytest.approx(bits / size, rel=1e-5)


@pytest.mark.slow
def test_a_ladder_is_scored_once_and_goes_to_the_frontier(ladder):
    runs = ladder / "runs"
    first = told([runs], {BITS_PER_BYTE: None}, limit=5)
    assert len(first) == 2 and not any("kept" in line for line in first)
    assert all("kept" in line for line in told([runs], {BITS_PER_BYTE: None}, limit=5))
    assert not any("kept" in line for line in told([runs], {BITS_PER_BYTE: None}, limit=4))
    s = read_scores([runs], published=False)
    assert s.score == BITS_PER_BYTE and s.name == ("completep-a-seed-0", "completep-b-seed-0")
    said = onecurve("frontier", runs, "--score", BITS_PER_BYTE)
    assert said.code == 0 and "On the frontier of bits per byte and compute" in said.out
    file = runs / "completep-a-seed-0" / "scores" / f"{BITS_PER_BYTE}.json"
    file.write_text("{")
    assert ["kept" in line for line in told([runs], {BITS_PER_BYTE: None}, limit=4)] == [False, True]
    content = json.loads(file.read_text())
    content["model"]["weights"] = "of another step"
    file.write_text(json.dumps(content))
    assert ["kept" in line for line in told([runs], {BITS_PER_BYTE: None}, limit=4)] == [False, True]
    shutil.rmtree(runs / "completep-a-seed-0" / "scores")
    shutil.rmtree(runs / "completep-b-seed-0" / "scores")


@pytest.mark.slow
def test_a_killed_evaluation_goes_on_with_the_next_task(run):
    command = [sys.executable, "-m", "onecurve", "evaluate", run, "--tasks", f"{BITS_PER_BYTE},{PROSE}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    first = run / "scores" / f"{BITS_PER_BYTE}.json"
    deadline = time.monotonic() + 300
    while not first.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert [f.name for f in (run / "scores").glob("*.json")] == [first.name]
    before = first.read_bytes()
    lines = told([run], {BITS_PER_BYTE: None, PROSE: None})
    assert "kept" in lines[0] and "kept" not in lines[1]
    assert first.read_bytes() == before


def invented(path: str, name: str | None = None, **_: object):
    """Data in the form of each of the seven tasks, made up."""
    import datasets

    rng = np.random.default_rng(0)

    def words(count: int = 4) -> str:
        return " ".join(rng.choice(["one", "curve", "for", "all", "sizes"], count))

    def row(k: int) -> dict:
        labels = {"text": [words() for _ in range(4)], "label": ["A", "B", "C", "D"]}
        return {
            "allenai/ai2_arc": {"question": words(), "choices": labels, "answerKey": "ABCD"[k % 4]},
            "aps/super_glue": {"passage": words(9), "question": words(), "label": k % 2, "idx": k},
            "Rowan/hellaswag": {
                "ctx_a": words(),
                "ctx_b": words(),
                "activity_label": words(1),
                "endings": [words() for _ in range(4)],
                "label": str(k % 4),
            },
            "baber/piqa": {"goal": words(), "sol1": words(), "sol2": words(), "label": k % 2},
            "lighteval/siqa": {
                "context": words(),
                "question": words(),
                "answerA": words(),
                "answerB": words(),
                "answerC": words(),
                "label": str(1 + k % 3),
            },
            "allenai/winogrande": {
                "sentence": f"{words()} _ {words()}",
                "option1": words(1),
                "option2": words(1),
                "answer": str(1 + k % 2),
            },
        }[path]

    part = datasets.Dataset.from_list([row(k) for k in range(40)])
    return datasets.DatasetDict(dict.fromkeys(("train", "validation", "test"), part))


@pytest.mark.slow
def test_the_seven_tasks_with_the_shots_of_the_paper(run, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets, "load_dataset", invented)
    monkeypatch.setattr(of, "_work_offline_where_the_hub_is_out_of_reach", lambda: None)
    said = onecurve("evaluate", run, "--tasks", "celerity7", "--limit", 12)
    assert said.code == 0, said.err
    found = {task: score(run, task) for task in CELERITY7}
    assert {task: f["measured"]["shots"] for task, f in found.items()} == dict(CELERITY7)
    assert {task: f["metric"] for task, f in found.items()} == {
        task: "acc" if task in ("boolq", "social_iqa", "winogrande") else "acc_norm" for task in CELERITY7
    }
    assert found["arc_easy"]["examples"] == 12 and found["boolq"]["chance"] == 0.5
    # 25 examples are more than a context of 160 bytes holds.
    assert found["arc_challenge"]["cut"] == 1.0 and "100% of prompts cut to the context" in said.out
    s = read_scores([run], published=False)
    assert s.score == "accuracy" and s.value[0] == pytest.approx(np.mean([f["value"] for f in found.values()]))
    assert len(read_scores([run])) == 11


@pytest.mark.slow
def test_data_that_cannot_be_had_is_one_message(run, monkeypatch):
    import datasets

    def offline(path: str, *_: object, **__: object):
        raise ConnectionError(f"Couldn't reach {path!r} on the Hub")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    said = onecurve("evaluate", run, "--tasks", "celerity7")
    assert (
        said.code == 2 and "the data of arc_challenge, arc_easy, boolq, hellaswag, piqa, social_iqa, winogr" in said.err
    )
    assert "Couldn't reach 'allenai/ai2_arc'" in said.err and "set HF_HOME to it" in said.err
    assert not (run / "scores").exists()
    said = onecurve("evaluate", run, "--tasks", "arc_esy")
    assert said.code == 2 and "no task 'arc_esy' (did you mean 'arc_easy'?)" in said.err


@pytest.fixture
def folder(run, tmp_path):
    export_huggingface(run, tmp_path / "hf")
    return tmp_path / "hf"


@pytest.mark.slow
def test_an_exported_model_is_the_run(run, folder, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("All sizes fall onto one curve, or they do not. Ünicode too. " * 9)
    (folder / "modeling_onecurve.py").write_text("raise SystemExit('code of the folder was run')")
    told([run, folder], {BITS_PER_BYTE: None}, text=text)
    assert score(folder, BITS_PER_BYTE)["value"] == pytest.approx(score(run, BITS_PER_BYTE)["value"], rel=1e-6)
    told_facts = {k: v for k, v in score(folder, BITS_PER_BYTE)["model"].items() if k != "weights"}
    assert told_facts == {k: v for k, v in score(run, BITS_PER_BYTE)["model"].items() if k != "weights"}
    assert told([run, run], {BITS_PER_BYTE: None}, text=text) == [f"{run.name}  {BITS_PER_BYTE}  kept"]
    assert "kept" not in told([run], {BITS_PER_BYTE: None})[0]
    with pytest.raises(OnecurveError, match="is a model without a corpus; bits_per_byte needs a text"):
        told([folder], {BITS_PER_BYTE: None}, limit=1)


@pytest.mark.slow
def test_a_model_of_transformers_own_with_all_bytes_alike(tmp_path):
    pytest.importorskip("lm_eval")
    transformers = pytest.importorskip("transformers")
    small = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.LlamaConfig(vocab_size=256, max_position_embeddings=64, **small)
    model = transformers.LlamaForCausalLM(config)
    torch.nn.init.zeros_(model.lm_head.weight)
    out = tmp_path / "llama"
    model.save_pretrained(out)
    text = tmp_path / "text.txt"
    text.write_text("Every byte costs eight bits.\n" * 20)
    with pytest.raises(OnecurveError, match=r"llama: has no tokenizer .* or give --tokenizer tokenizer.json"):
        told([out], {BITS_PER_BYTE: None}, text=text)
    (tmp_path / "tokenizer.json").write_text(json.dumps(byte_tokenizer()))
    told([out], {BITS_PER_BYTE: None}, text=text, tokenizer=str(tmp_path / "tokenizer.json"), tokens=1e6)
    found = score(out, BITS_PER_BYTE)
    assert found["value"] == pytest.approx(8.0, rel=1e-6) and found["model"]["n_params"] == model.num_parameters()
    s = read_scores([out], published=False)
    assert s.compute[0] == pytest.approx(6 * model.num_parameters() * 1e6)
    assert said_of(out, tokenizer=str(text)).startswith(f"{text}: not a tokenizers file")
    (out / "config.json").write_text(json.dumps({"model_type": "none-such"}))
    assert "transformers cannot load it" in said_of(out, tokenizer=str(tmp_path / "tokenizer.json"))
    (out / "model.safetensors").unlink()
    assert "has no weights" in said_of(out)
    (out / "config.json").write_text("[]")
    assert "not the configuration of a model for transformers" in said_of(out)


def said_of(path: Path, **options) -> str:
    with pytest.raises(OnecurveError) as error:
        told([path], {BITS_PER_BYTE: None}, text=Path(__file__), **options)
    return str(error.value)


@pytest.mark.slow
def test_what_is_refused(run, ladder, tmp_path, monkeypatch):
    assert "no such file or folder" in said_of(tmp_path / "nothing")
    assert "holds no model; name a run directory" in said_of(tmp_path)
    (tmp_path / "empty.txt").touch()
    with pytest.raises(OnecurveError, match="--text is empty"):
        told([run], {BITS_PER_BYTE: None}, text=tmp_path / "empty.txt")
    with monkeypatch.context() as patched:
        patched.setattr(of, "_free", lambda: {"memory": 2**30, "GPU memory": 10_000})
        assert "0.0 GiB of GPU memory are free; score it on a larger machine" in said_of(run)
    yaml = tmp_path / "long.yaml"
    (tmp_path / "long.json").write_text(
        json.dumps({"context": "x", "choices": ["short", "long " * 50], "gold": 0}) + "\n"
    )
    yaml.write_text(
        f"task: long\ndataset_path: json\ndataset_kwargs: {{data_files: {{test: {tmp_path / 'long.json'}}}}}\n"
        "test_split: test\noutput_type: multiple_choice\ndoc_to_text: '{{context}}'\ndoc_to_target: gold\n"
        "doc_to_choice: choices\n"
    )
    with pytest.raises(OnecurveError, match="long: an answer has 251 tokens, and the model's context is 160"):
        told([run], {str(yaml): None})
    other = tmp_path / "copied"
    shutil.copytree(ladder, other, ignore=shutil.ignore_patterns("data", "checkpoints"))
    assert "has no checkpoint" in said_of(other / "runs" / run.name)


@pytest.mark.slow
def test_a_run_without_a_tokenizer(tmp_path):
    pytest.importorskip("lm_eval")
    ids = np.tile(np.arange(300), 400)
    write_shards(tmp_path / "ids", [ids[k:] for k in range(120)], "numbers", 300)
    train_ladder(
        recipe(data=str(tmp_path / "ids")).model_copy(
            update={"model": recipe().model.model_copy(update={"vocabulary": 300})}
        ),
        tmp_path / "ladder",
        lambda state: None,
        workers=1,
    )
    assert "has no tokenizer: its corpus" in said_of(tmp_path / "ladder" / "runs" / "completep-a-seed-0")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--tasks", "piqa,piqa"), "--tasks names 'piqa' twice"),
        (("--tokens", "-1"), "--tokens is -1"),
        (("--limit", "0"), ""),
    ],
)
def test_the_command_line_refuses(tmp_path, arguments, words, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    said = onecurve("evaluate", tmp_path, *arguments)
    assert said.code == 2 and words in said.err and "Traceback" not in said.err


def test_what_is_not_installed_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "lm_eval" else name)
    said = onecurve("evaluate", tmp_path)
    assert said.code == 2 and "evaluations need lm_eval, not installed: pip install 'onecurve[evaluate]'" in said.err
    assert os.environ.get("TQDM_DISABLE") in (None, "1")
