"""Scores of trained models: tasks of EleutherAI's evaluation harness, and bits per byte of held-out text.

Every score is a file of its own, written as soon as it is known, so a killed evaluation goes on with the next task.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import random
import socket
import sys
import tempfile
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from onecurve.data.prose import prose_items
from onecurve.data.shards import Shards, open_shards
from onecurve.data.sources import text_files
from onecurve.errors import OnecurveError, did_you_mean, optional, some
from onecurve.plan.recipe import TokenTask
from onecurve.scores.suites import BITS_PER_BYTE, PROSE, SUITES
from onecurve.scores.table import FOLDER, SCHEMA, no_better_than_chance, read_result
from onecurve.store import RUN, dumps, is_run, write_atomic
from onecurve.train.devices import device
from onecurve.train.export import Trained, export_huggingface, find_trained

EXTRA = "evaluate"
CONFIG = "config.json"
TEXT_BYTES = 1 << 20
"""Held-out text of a run that is read, at most: whole documents, spread evenly over the held-out part."""
METRICS = ("acc_norm", "acc", "exact_match", "f1", BITS_PER_BYTE)
"""What is taken for the score of a task, the first that it has: a share, or bits per byte."""
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
_CPU_TOKENS = 4096
"""That go through a model at once on a CPU; more leave its cache."""
_GPU_SEQUENCES = 512
_HELD_OUT = "held out of"
_NOTHING_ELSE = {"local_files_only": True, "trust_remote_code": False}
_PATIENCE = 3.0
"""Seconds in which the hub must answer."""

Tell = Callable[[str, str, str], None]
"""Told (model, task, what became of it)."""


@dataclass(frozen=True)
class Subject:
    """A model to be scored."""

    path: Path
    """The run directory, or the folder of a model for transformers; its scores go into it."""
    trained: Trained | None
    """Where it is a run."""
    facts: Mapping[str, Any]
    """What its scores are put against: name, family, n_params, tokens, flops, and which weights these are."""
    weight_bytes: int


def evaluate(
    paths: Sequence[Path],
    tasks: Mapping[str, int | None],
    tell: Tell,
    *,
    text: Path | None = None,
    tokenizer: str | None = None,
    tokens: float | None = None,
    limit: int | None = None,
) -> list[Path]:
    """Score models on tasks, into ``scores/TASK.json`` of each; the models' folders.

    ``paths`` are run directories, folders of models for transformers, and folders of these. ``tasks`` are names of the
    harness (tasks, groups, or YAML files), ``bits_per_byte`` and ``stdlib_prose``, with their shots; None where the
    task's own default holds. Scores that are there, of the same weights, shots, limit and text, are kept. ``text`` is a
    file or folder for bits per byte, in place of the held-out part of each run's corpus; ``tokens`` the training tokens
    of a model that does not tell; ``limit`` scores the first examples of a task alone.

    Raises OnecurveError before anything is scored for an unknown task, data that cannot be had, and a model that does
    not fit into memory; for a model without a tokenizer when it is its turn.
    """
    found = [subject for path in paths for subject in find_subjects(path, tokens)]
    subjects = list({subject.path.resolve(): subject for subject in found}.values())
    for subject in subjects:
        refuse_larger_than_memory(subject)
    asked = _Asked(tasks, limit, None if text is None else _of_files(text))
    needed = {task for subject in subjects for task in tasks if not asked.is_there(subject, task, task)}
    for subject in subjects:
        if asked.texts is None and BITS_PER_BYTE in tasks and not asked.is_there(subject, BITS_PER_BYTE, BITS_PER_BYTE):
            _corpus(subject)
    loaded = load_tasks([task for task in tasks if task in needed - {BITS_PER_BYTE}])
    for subject in subjects:
        name, todo = str(subject.facts["name"]), list[tuple[str, _Task | None]]()
        for asked_for in tasks:
            for task in loaded.get(asked_for, [None]):
                file = asked_for if task is None else task.file
                if asked.is_there(subject, asked_for, file):
                    tell(name, file, "kept")
                else:
                    todo.append((asked_for, task))
        if todo:
            with _scored(subject, tokenizer) as (model, facts):
                for asked_for, task in todo:
                    if task is None:
                        file, result = asked_for, _bits_per_byte(model, asked.texts or _held_out(subject, model), limit)
                    else:
                        file, result = task.file, _harness(model, task, tasks[asked_for], limit)
                    content = {"schema": SCHEMA, "task": file} | result | {"model": facts}
                    write_atomic(subject.path / FOLDER / f"{file}.json", dumps(content) + "\n")
                    tell(name, file, words_of(result))
    return [subject.path for subject in subjects]


def words_of(result: Mapping[str, Any]) -> str:
    """One score in words.

    Examples:
        >>> words_of({"metric": "acc", "value": 0.5, "stderr": 0.01, "examples": 100, "chance": 0.25, "cut": 0.0})
        '0.5000 ± 0.0100 (acc, 100 examples)'
        >>> words_of({"metric": "acc", "value": 0.26, "stderr": 0.01, "examples": 100, "chance": 0.25, "cut": 0.5})
        '0.2600 ± 0.0100 (acc, 100 examples; no better than chance, 0.25; 50% of prompts cut to the context)'
    """
    notes = [f"{result['metric']}, {result['examples']} {'texts' if result['metric'] == BITS_PER_BYTE else 'examples'}"]
    chance = result["chance"]
    if no_better_than_chance(result["value"], result["stderr"], chance):
        notes.append(f"no better than chance, {chance:.3g}")
    if result["cut"]:
        notes.append(f"{result['cut']:.0%} of prompts cut to the context")
    return f"{result['value']:.4f} ± {result['stderr']:.4f} ({'; '.join(notes)})"


def find_subjects(path: Path, tokens: float | None = None) -> list[Subject]:
    """The models of a path: a run, a folder of a model for transformers, or all that a folder holds.

    Raises OnecurveError where there is none, or one has no weights.
    """
    if is_run(path):
        trained = find_trained(path)
        facts = trained.facts()
        return [Subject(path, trained, facts, 4 * int(facts["n_params"]))]
    if (path / CONFIG).is_file():
        return [_folder(path, tokens)]
    if not path.exists():
        raise OnecurveError(f"{path}: no such file or folder")
    inside = sorted({file.parent for name in (RUN, CONFIG) for file in path.rglob(name)})
    if not inside:
        raise OnecurveError(
            f"{path}: holds no model; name a run directory of `onecurve train` (with {RUN}), a folder that "
            f"transformers loads (with {CONFIG}), or a folder of these"
        )
    return [subject for folder in inside for subject in find_subjects(folder, tokens)]


def _folder(path: Path, tokens: float | None) -> Subject:
    config = _config(path)
    files = next((found for pattern in _WEIGHTS if (found := sorted(path.glob(pattern)))), None)
    if files is None:
        raise OnecurveError(f"{path}: has no weights ({' or '.join(_WEIGHTS)}); copy them beside its {CONFIG}")
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    told = config.get("onecurve")
    facts: dict[str, Any] = {"name": path.resolve().name, "family": "", "n_params": None, "tokens": None, "flops": None}
    if isinstance(told, dict):
        facts |= {key: told.get(key) for key in facts}
    if tokens is not None:
        facts |= {"tokens": tokens, "flops": None}
    return Subject(path, None, facts | {"weights": digest.hexdigest()[:12]}, sum(file.stat().st_size for file in files))


def _config(path: Path) -> dict[str, Any]:
    file = path / CONFIG
    try:
        content = json.loads(file.read_text("utf-8"))
        if not isinstance(content, dict) or "model_type" not in content:
            raise ValueError("it names no model_type")
    except (OSError, ValueError, RecursionError) as error:
        raise OnecurveError(f"{file}: not the configuration of a model for transformers ({error})") from None
    return cast("dict[str, Any]", content)


def _is_ours(folder: Path) -> bool:
    return _config(folder)["model_type"] == "onecurve"


def refuse_larger_than_memory(subject: Subject) -> None:
    """Raise OnecurveError where a model's weights do not fit into the memory that is free."""
    for where, free in _free().items():
        if subject.weight_bytes > free:
            raise OnecurveError(
                f"{subject.path}: its weights are {subject.weight_bytes / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB "
                f"of {where} are free; score it on a larger machine, or stop what fills this one"
            )


def _free() -> dict[str, int]:
    """Free bytes of every memory that a model goes through, the one that it stays in last."""
    memory = optional("psutil", "evaluations", EXTRA).virtual_memory()
    out = {"memory": int(memory.available)}
    if torch.cuda.is_available():
        out["GPU memory"] = int(torch.cuda.mem_get_info()[0])
    return out


@dataclass(frozen=True)
class _Texts:
    """Documents for bits per byte, and what tells them from others."""

    name: str
    documents: tuple[str, ...]


def _of_files(path: Path) -> _Texts:
    raw = list(text_files([path]))
    documents = tuple(text for data in raw if (text := data.decode("utf-8", "replace")))
    if not documents:
        raise OnecurveError(f"{path}: --text is empty; give a file of text, or a folder of such files")
    return _named(path.name, documents)


def _named(name: str, documents: tuple[str, ...]) -> _Texts:
    digest = hashlib.sha256(b"".join(hashlib.sha256(text.encode()).digest() for text in documents))
    return _Texts(f"{name}, {digest.hexdigest()[:12]}", documents)


def _corpus(subject: Subject) -> Shards:
    """The corpus of a run. Raises OnecurveError for a model that has none, or that held nothing out."""
    words = f"{BITS_PER_BYTE} needs a text: give one that no model has seen, with --text FILE"
    if subject.trained is None:
        raise OnecurveError(f"{subject.path}: is a model without a corpus; {words}")
    task = subject.trained.job.recipe.task
    assert isinstance(task, TokenTask) and task.data is not None
    corpus = open_shards(Path(task.data))
    if not len(corpus.held_out):
        raise OnecurveError(f"{subject.path}: its corpus ({task.data}) has no held-out part; {words}")
    return corpus


def _held_out(subject: Subject, model: Any) -> _Texts:
    """Documents of the held-out part of a run's corpus, parted at the token that ends a text."""
    corpus, words = _corpus(subject), model.tokenizer
    end = words.eos_token_id
    ids = np.asarray(corpus.held_out)
    cuts = np.flatnonzero(ids == end) if end is not None else np.empty(0, np.int64)
    if not cuts.size:  # nothing parts the documents, so any stretch is as good as another
        cuts = np.arange(1, len(ids) // 4096 + 1) * 4096
    documents = [part for part in np.split(ids, cuts) if part.size > 1]
    texts = [str(words.decode(part[part != end].tolist())) for part in _spread(documents)]
    return _named(f"{_HELD_OUT} {corpus.source}", tuple(text for text in texts if text))


def _spread(documents: Sequence[NDArray[np.integer]]) -> Iterator[NDArray[np.integer]]:
    """Documents spread evenly over all, until there is text enough."""
    sizes = np.array([part.size for part in documents])
    share = min(1.0, TEXT_BYTES / sizes.sum())
    step = np.ceil(np.arange(len(documents) + 1) * share)
    for part, chosen in zip(documents, np.diff(step) > 0, strict=True):
        if chosen:
            yield part


@dataclass(frozen=True)
class _Asked:
    """What is to be scored, and how."""

    tasks: Mapping[str, int | None]
    limit: int | None
    texts: _Texts | None

    def is_there(self, subject: Subject, task: str, name: str) -> bool:
        """Whether a model has the score of that name, of these weights, shots, limit and text."""
        file = subject.path / FOLDER / f"{name}.json"
        if not file.is_file():
            return False
        try:
            found = read_result(file)
        except OnecurveError:
            return False  # it is damaged: scored again
        model, measured = found["model"], found["measured"]
        return (
            all(model[key] == subject.facts[key] for key in ("weights", "tokens"))
            and measured["limit"] == self.limit
            and self.tasks[task] in (None, measured["shots"])
            and (task != BITS_PER_BYTE or self._is_of(str(measured["text"])))
        )

    def _is_of(self, text: str) -> bool:
        return text.startswith(_HELD_OUT) if self.texts is None else text == self.texts.name


@dataclass(frozen=True)
class _Task:
    """A task of the harness, or a group of tasks that has a mean of its own."""

    name: str
    item: Any
    metric: str
    source: str | None = None
    """What it was made from, where it was made here."""

    @property
    def file(self) -> str:
        """The name of its score; whether lower is better is told by it."""
        return f"{self.name}_{BITS_PER_BYTE}" if self.metric == BITS_PER_BYTE else self.name


def load_tasks(names: Sequence[str]) -> dict[str, list[_Task]]:
    """Tasks of the harness with their data. Raises OnecurveError for all that are unknown or cannot be had."""
    if not names:
        return {}
    with _quiet():
        manager, out = _manager(names), dict[str, list[_Task]]()
        unknown = [name for name in names if name not in (PROSE, *manager.all_tasks) and not name.endswith(".yaml")]
        if unknown:
            known = [BITS_PER_BYTE, PROSE, *SUITES, *manager.all_tasks]
            raise OnecurveError(
                f"--tasks: no task {some([repr(name) + did_you_mean(name, known) for name in unknown])}; there are "
                f"{BITS_PER_BYTE}, {PROSE}, {', '.join(SUITES)}, and the tasks of lm-eval (`lm-eval ls tasks`)"
            )
        failed: dict[str, str] = {}
        for name in names:
            try:
                out[name] = _prose() if name == PROSE else _from_harness(manager, name)
            except OnecurveError:
                raise
            except Exception as error:  # what can go wrong in a task's data has no common kind
                failed[name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"
        if failed:
            raise OnecurveError(_not_had(failed))
    return out


def _not_had(failed: Mapping[str, str]) -> str:
    first, why = next(iter(failed.items()))
    cache = Path(os.environ.get("HF_HOME", "~/.cache/huggingface"))
    return (
        f"--tasks: the data of {', '.join(failed)} cannot be had here ({first}: {why}). Where the hub can be reached, "
        f"run `HF_HOME=tasks lm-eval run --model dummy --tasks {','.join(failed)} --limit 1`, copy the folder tasks "
        f"here and set HF_HOME to it (now {cache}); or leave these tasks out"
    )


def _manager(names: Sequence[str]) -> Any:
    """The harness's index of tasks; without its own where they are not asked for, which takes seconds."""
    manager = optional("lm_eval.tasks", "evaluations", EXTRA).TaskManager
    own = any(name != PROSE and not name.endswith(".yaml") for name in names)
    if own:
        _work_offline_where_the_hub_is_out_of_reach()
    return manager(include_defaults=own)


def _work_offline_where_the_hub_is_out_of_reach() -> None:
    """Without this each task tries for half a minute; data that is there already is found all the same."""
    hub: Any = import_module("huggingface_hub.constants")
    data: Any = import_module("datasets.config")
    if hub.HF_HUB_OFFLINE or urllib.request.getproxies():
        return
    host = urllib.parse.urlsplit(str(hub.ENDPOINT))
    try:
        socket.create_connection((host.hostname, host.port or 443), _PATIENCE).close()
    except OSError:
        hub.HF_HUB_OFFLINE = data.HF_HUB_OFFLINE = True


def _from_harness(manager: Any, name: str) -> list[_Task]:
    found = manager.load([name])
    if name in (groups := found.get("groups", {})):
        group = groups[name]
        metrics = [m.metric for m in group.aggregate_metric_list or []]
        if not metrics:
            raise OnecurveError(
                f"--tasks: {name} is a group without a score of its own; name its members: {some(group.child_names)}"
            )
        return [_Task(name, group, _metric(name, metrics))]
    return [_Task(key, task, _metric(key, list(task.aggregation()))) for key, task in found["tasks"].items()]


def _metric(name: str, there: Sequence[str]) -> str:
    metric = next((m for m in METRICS if m in there), None)
    if metric is None:
        raise OnecurveError(
            f"--tasks: {name} is scored by {', '.join(there)}; scores here are one of {', '.join(METRICS)}"
        )
    return metric


def _prose() -> list[_Task]:
    made = prose_items()
    datasets = import_module("datasets")

    def dataset(**_: Any) -> Any:
        return datasets.DatasetDict({"test": datasets.Dataset.from_list(list(made.items))})

    config = {
        "task": PROSE,
        "custom_dataset": dataset,
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "context",
        "target_delimiter": "",
        "doc_to_target": "gold",
        "doc_to_choice": "choices",
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
        "metadata": {"version": 1.0},
    }
    task = import_module("lm_eval.api.task").ConfigurableTask(config=config)
    return [_Task(PROSE, task, "acc", made.source)]


@contextmanager
def _scored(subject: Subject, tokenizer: str | None) -> Generator[tuple[Any, Mapping[str, Any]]]:
    """A model as the harness takes it, and its facts."""
    if subject.trained is None:
        yield _loaded(subject, subject.path, tokenizer)
        return
    with tempfile.TemporaryDirectory() as folder:
        export_huggingface(subject.path, Path(folder) / "model", tokenizer)
        yield _loaded(subject, Path(folder) / "model", None)


def _loaded(subject: Subject, folder: Path, tokenizer: str | None) -> tuple[Any, Mapping[str, Any]]:
    with _quiet():
        transformers = optional("transformers", "evaluations", EXTRA)
        words = _tokenizer(transformers, subject.path, folder, tokenizer)
        try:
            if _is_ours(folder):  # our own code, not what lies in the folder
                maker = import_module("onecurve.train.hub.modeling_onecurve").OnecurveForCausalLM
            else:
                maker = transformers.AutoModelForCausalLM
            network = maker.from_pretrained(str(folder), dtype="auto", **_NOTHING_ELSE).eval().to(device())
        except (OSError, ValueError, KeyError, RuntimeError, ImportError) as error:
            raise OnecurveError(
                f"{subject.path}: transformers cannot load it ({str(error).strip().splitlines()[0]}); models that "
                "need code of their own are not run"
            ) from None
        n_params = subject.facts["n_params"] or sum(p.numel() for p in network.parameters())
        model = _model_class()(network, words)
    return model, {**subject.facts, "n_params": n_params}


def _tokenizer(transformers: Any, path: Path, folder: Path, told: str | None) -> Any:
    try:
        if told is not None:
            words = transformers.PreTrainedTokenizerFast(tokenizer_file=told)
        else:
            maker = transformers.PreTrainedTokenizerFast if _is_ours(folder) else transformers.AutoTokenizer
            words = maker.from_pretrained(str(folder), **_NOTHING_ELSE)
    except Exception as error:  # the libraries raise plain Exception too
        if told is not None:
            raise OnecurveError(f"{told}: not a tokenizers file ({error})") from None
        raise OnecurveError(
            f"{path}: has no tokenizer that transformers can load; copy its tokenizer.json and tokenizer_config.json "
            "there, or give --tokenizer tokenizer.json"
        ) from None
    if words.pad_token_id is None:  # what pads is never looked at
        words.pad_token = words.eos_token or words.convert_ids_to_tokens(0)
    return words


def _batch(network: Any, length: int) -> int:
    """Sequences of a length that go through a model at once: those that half of the free memory holds."""
    config = network.config.get_text_config()
    width, heads = int(config.hidden_size), int(getattr(config, "num_attention_heads", 1))
    inner = int(getattr(config, "intermediate_size", None) or 4 * width)
    # Logits and their logarithms, the widest activations, and the attention logits with their bias; float32.
    each = 4 * length * (3 * int(config.vocab_size) + 8 * width + 3 * inner + 3 * heads * length)
    most = _GPU_SEQUENCES if network.device.type == "cuda" else max(1, _CPU_TOKENS // length)
    return max(1, min(most, list(_free().values())[-1] // 2 // each))


def _model_class() -> Any:
    """The harness's model for transformers, which finds its batch size and counts the prompts that it cuts."""
    hf = optional("lm_eval.models.huggingface", "evaluations", EXTRA).HFLM

    class Fitting(hf):  # type: ignore[misc, valid-type]
        def __init__(self, network: Any, words: Any) -> None:
            prefix = words.bos_token_id if words.bos_token_id is not None else words.eos_token_id
            # Where no token ends a text, any one stands before the first.
            super().__init__(network, "causal", tokenizer=words, prefix_token_id=0 if prefix is None else prefix)
            self.prompts = self.cut = 0

        def _loglikelihood_tokens(self, requests: Any, *args: Any, **options: Any) -> Any:
            lengths = np.array([[len(context), len(rest)] for _, context, rest in requests]).reshape(-1, 2)
            longest = int(lengths[:, 1].max(initial=0))
            if longest > self.max_length:
                raise OnecurveError(
                    f"an answer has {longest} tokens, and the model's context is {self.max_length}; leave this task "
                    "out, or train with a longer model.context"
                )
            both = lengths.sum(axis=1)
            self.prompts += len(both)
            self.cut += int((both > self.max_length + 1).sum())
            answer = super()._loglikelihood_tokens
            options |= _bars()
            return self._in_memory(min(int(both.max(initial=1)), self.max_length), answer, requests, *args, **options)

        def loglikelihood(self, requests: Any, **_: Any) -> Any:
            return super().loglikelihood(requests, **_bars())

        def generate_until(self, requests: Any, **_: Any) -> Any:
            return self._in_memory(self.max_length, super().generate_until, requests, **_bars())

        def _in_memory(self, length: int, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
            """What a call gives with as many sequences at once as memory holds, fewer where that was too many."""
            self.batch_size_per_gpu = _batch(self.model, length)
            while True:
                try:
                    return call(*args, **options)
                except torch.OutOfMemoryError:
                    if self.batch_size_per_gpu == 1:
                        raise OnecurveError(f"one sequence of {length} tokens does not fit into memory") from None
                    self.batch_size_per_gpu //= 2
                    torch.cuda.empty_cache()

    return Fitting


def _bars() -> dict[str, bool]:
    """The harness's bars are for somebody who looks."""
    return {"disable_tqdm": not sys.stderr.isatty()}


def _harness(model: Any, task: _Task, shots: int | None, limit: int | None) -> dict[str, Any]:
    """The result of one task or group."""
    model.prompts = model.cut = 0
    with _quiet():
        try:
            found = _evaluated(model, task, shots, limit)
        except OnecurveError as error:
            raise OnecurveError(f"--tasks: {task.name}: {error}") from None
    scores: Mapping[str, Any] = found["results"][task.name]
    key = next(key for key in scores if key.partition(",")[0] == task.metric)
    used = found["n-shot"].get(task.name)
    return {
        "metric": task.metric,
        "value": float(scores[key]),
        "stderr": _number(scores.get(key.replace(task.metric, f"{task.metric}_stderr", 1))),
        "metrics": {name: value for name, value in scores.items() if "," in name and isinstance(value, (int, float))},
        "measured": {"shots": used if isinstance(used, int) else None, "limit": limit, "text": task.source},
        "examples": sum(int(n["effective"]) for n in found["n-samples"].values()),
        "chance": _chance(task.item),
        "cut": model.cut / model.prompts if model.prompts else 0.0,
        "version": found["versions"].get(task.name),
        "harness": f"lm-eval {version('lm-eval')}",
    }


def _evaluated(model: Any, task: _Task, shots: int | None, limit: int | None) -> Mapping[str, Any]:
    """The harness's results of one task or group, with the seeds that its own command line takes."""
    loaded = import_module("lm_eval.tasks").TaskManager(include_defaults=False).load([task.item])
    for member in loaded["tasks"].values():
        own = member.get_config("num_fewshot")
        if own is None or (shots is not None and own != 0):
            member.set_config("num_fewshot", shots or 0)
        member.set_fewshot_seed(1234)
    random.seed(0)
    np.random.seed(1234)  # noqa: NPY002  (the harness's tasks draw from it)
    torch.manual_seed(1234)
    return import_module("lm_eval.evaluator").evaluate(model, loaded, limit=limit, log_samples=False)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else float("nan")


def _chance(task: Any) -> float | None:
    """The accuracy of guessing: one over the number of choices, averaged over the examples."""
    if getattr(task, "OUTPUT_TYPE", None) != "multiple_choice":
        return None
    choices = Counter(instance.doc_id for instance in task.instances)
    return float(np.mean(1.0 / np.array(list(choices.values())))) if choices else None


def _bits_per_byte(model: Any, texts: _Texts, limit: int | None) -> dict[str, Any]:
    """Negative log likelihood in bits over UTF-8 bytes, of all texts together.

    Every text begins anew, after the token that ends one; what is longer than the context is read in windows that do
    not overlap, as in training. The standard error is that of a ratio, the texts taken as drawn one by one.
    """
    chosen = texts.documents[:limit]
    with _quiet():
        bits = _nats(model, chosen) / np.log(2.0)
    size = np.array([len(text.encode()) for text in chosen])
    value, stderr = ratio(bits, size)
    return {
        "metric": BITS_PER_BYTE,
        "value": value,
        "stderr": stderr,
        "metrics": {"bits": float(bits.sum()), "bytes": int(size.sum())},
        "measured": {"shots": None, "limit": limit, "text": texts.name},
        "examples": len(chosen),
        "chance": None,
        "cut": 0.0,
        "version": None,
        "harness": f"lm-eval {version('lm-eval')}",
    }


@torch.no_grad()
def _nats(model: Any, texts: Sequence[str]) -> NDArray[np.float64]:
    """(T,) negative log likelihood of every text, in windows as long as the model's context."""
    coded = [[model.prefix_token_id, *model.tok_encode(text, add_special_tokens=False)] for text in texts]
    length = min(model.max_length, max(map(len, coded)) - 1)
    rows = [(k, ids[at : at + length + 1]) for k, ids in enumerate(coded) for at in range(0, len(ids) - 1, length)]
    owner = np.array([k for k, _ in rows])
    windows = torch.full((len(rows), length + 1), -1)
    for window, (_, ids) in zip(windows, rows, strict=True):
        window[: len(ids)] = torch.tensor(ids)
    out = np.zeros(len(texts))
    at_once = _batch(model.model, length)
    for k, part in enumerate(windows.to(model.device).split(at_once)):
        inputs, targets = part[:, :-1].clamp_min(0), part[:, 1:]
        logits = model.model(inputs, use_cache=False).logits.float()
        nats = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1, reduction="none")
        sums = nats.view(targets.shape).double().sum(dim=1).cpu().numpy()
        np.add.at(out, owner[k * at_once :][: len(sums)], sums)
    return out


def ratio(top: NDArray[np.float64], bottom: NDArray[np.integer]) -> tuple[float, float]:
    """The ratio of two sums, and its standard error by the delta method (Cochran, Sampling Techniques, eq. 6.13).

    Examples:
        >>> ratio(np.array([2.0, 4.0]), np.array([1, 2]))
        (2.0, 0.0)
    """
    value = float(top.sum() / bottom.sum())
    if top.size < 2:
        return value, float("nan")
    off = top - value * bottom
    return value, float(np.sqrt(top.size / (top.size - 1) * (off**2).sum()) / bottom.sum())


@contextmanager
def _quiet() -> Generator[None]:
    """The harness and its libraries log a line for every prompt that is cut, and for much else that we count."""
    loggers = [logging.getLogger(name) for name in ("lm_eval", "datasets", "huggingface_hub", "transformers")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
