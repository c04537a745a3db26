"""A trained run as a folder that transformers loads: safetensors, configuration, tokenizer, and the model's code."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

from onecurve.data.shards import MANIFEST, TOKENIZER
from onecurve.data.sources import end_of_text
from onecurve.errors import OnecurveError, optional
from onecurve.plan.recipe import Job, Member, TokenTask, jobs, load_recipe
from onecurve.plan.shape import TransformerModel
from onecurve.run import human
from onecurve.store import is_run, new_folder, read_config, write_atomic
from onecurve.train import checkpoint, transformer
from onecurve.train.devices import World

FORMATS = ("huggingface",)
BYTES = "bytes"
CODE = ("configuration_onecurve.py", "modeling_onecurve.py")


@dataclass(frozen=True)
class Trained:
    """What a run directory was trained from, and where its weights are."""

    path: Path
    job: Job
    member: Member
    checkpoints: Path
    step: int

    @property
    def model(self) -> TransformerModel:
        """What all sizes of its family share."""
        model = self.job.recipe.model
        assert isinstance(model, TransformerModel)
        return model

    @property
    def weights(self) -> str:
        """What the weights are, in words that change with them."""
        identity = self.checkpoints / f"step-{self.step:08d}" / checkpoint.IDENTITY
        return f"step {self.step} of {self.job.steps}, {hashlib.sha256(identity.read_bytes()).hexdigest()[:12]}"

    def facts(self) -> dict[str, Any]:
        """What a score of it is put against: name, family, size, tokens, training FLOPs (6 N + 12 L S d a token)."""
        tokens = float(self.step * self.job.batch)
        shape = transformer.transformer_shape(self.model, self.job.size)
        band = self.job.size.band
        return {
            "name": self.member.config.name,
            "family": self.member.parameterisation + ("" if band is None else f", {band:g} TPP"),
            "n_params": self.member.config.n_params,
            "tokens": tokens,
            "flops": shape.flops_per_token * tokens,
            "weights": self.weights,
        }


def find_trained(path: Path) -> Trained:
    """The recipe and the newest checkpoint of a run directory that `onecurve train` wrote.

    Raises OnecurveError where the folder is no such run, is of MLPs, or has no checkpoint.
    """
    if not is_run(path):
        raise OnecurveError(f"{path}: not a run directory (it has no run.json); name one, such as ladder/runs/NAME")
    ladder = path.resolve().parent.parent / "ladder.toml"
    if not ladder.is_file():
        raise OnecurveError(
            f"{path}: its recipe is not there ({ladder}); weights are kept by `onecurve train`, in the folder of the "
            "whole ladder, not in runs that were read from logs or copied out of it"
        )
    recipe = load_recipe(ladder)
    if not isinstance(recipe.model, TransformerModel):
        raise OnecurveError(f"{path}: a run of residual MLPs, which no downstream task and no other program is for")
    name = read_config(path)[0].name
    for job in jobs(recipe):
        for member in job.members:
            if member.config.name == name:
                folder = ladder.parent / "checkpoints" / job.name
                step = checkpoint.latest(folder)
                if not step:
                    raise OnecurveError(f"{path}: has no checkpoint in {folder}; train it for longer")
                return Trained(path, job, member, folder, step)
    raise OnecurveError(f"{path}: run {name!r} is none of the runs of {ladder}; was the recipe changed?")


def load_weights(trained: Trained) -> transformer.Transformer:
    """The transformer of a run on the CPU in float32, with the weights of its newest checkpoint."""
    saved = checkpoint.read_identity(trained.checkpoints, trained.step)
    checkpoint.check_identity(trained.checkpoints, trained.step, trained.job.identity() | {"data": saved.get("data")})
    with torch.device("meta"):
        model = transformer.build(trained.job)
    model.to_empty(device="cpu")
    state = {"weights": {name: p.detach() for name, p in model.named_parameters()}}
    checkpoint.load(trained.checkpoints, trained.step, state, World())
    return model.eval()


def export_huggingface(path: Path, out: Path, tokenizer: str | None = None) -> Trained:
    """Write a run as a folder for transformers; it appears whole or not at all.

    ``tokenizer`` is a tokenizers file, or "bytes"; by default what the run's corpus was prepared with. Raises
    OnecurveError where the run has no weights or no tokenizer, or where ``out`` holds something already.
    """
    save_file = optional("safetensors.torch", "safetensors", "huggingface").save_file
    with new_folder(out) as part:
        trained = find_trained(path)
        words = _tokenizer(trained, tokenizer)
        model = load_weights(trained)
        tensors = {_renamed(name): p.detach().contiguous() for name, p in model.named_parameters()}
        save_file(tensors, part / "model.safetensors", metadata={"format": "pt"})
        for name in CODE:
            shutil.copyfile(str(files("onecurve.train") / "hub" / name), part / name)
        content: dict[str, Mapping[str, Any]] = {
            "config.json": _config(trained, model, words),
            "generation_config.json": {"do_sample": False} | words.special_ids(),
            "tokenizer.json": words.file,
            "tokenizer_config.json": {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "model_max_length": trained.model.context,
                "clean_up_tokenization_spaces": False,
                **({} if words.end is None else dict.fromkeys(("bos_token", "eos_token", "pad_token"), words.end)),
            },
        }
        for name, value in content.items():
            write_atomic(part / name, json.dumps(value, indent=2, ensure_ascii=False) + "\n")
        write_atomic(part / "README.md", _card(trained))
    return trained


def _renamed(name: str) -> str:
    """Embeddings are modules of their own there."""
    return f"{name}.weight" if name in ("embedding", "positions", "readout") else name


def _config(trained: Trained, model: transformer.Transformer, words: _Tokenizer) -> dict[str, Any]:
    m, shape = trained.model, model.shape
    first = next(iter(model.blocks))
    assert isinstance(first, transformer.Block)
    return {
        "architectures": ["OnecurveForCausalLM"],
        "model_type": "onecurve",
        "auto_map": {
            "AutoConfig": "configuration_onecurve.OnecurveConfig",
            "AutoModelForCausalLM": "modeling_onecurve.OnecurveForCausalLM",
        },
        "dtype": "float32",
        "vocab_size": m.vocabulary,
        "hidden_size": shape.width,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "head_size": shape.head_size,
        "intermediate_size": shape.ffn,
        "max_position_embeddings": m.context,
        "positions": m.positions,
        "activation": m.activation,
        "norm": m.norm,
        "norm_gain": m.norm_gain,
        "norm_eps": m.norm_eps,
        "qk_norm": m.qk_norm,
        "tied": m.tied,
        "input_multiplier": model.input_multiplier,
        "output_multiplier": model.output_multiplier,
        "branch_multiplier": first.multiplier,
        "attention_scale": first.scale,
        "use_cache": True,
        **words.special_ids(),
        "onecurve": trained.facts() | {"version": version("onecurve")},
    }


@dataclass(frozen=True)
class _Tokenizer:
    """A tokenizers file's content, and the token that ends a text, where it has one."""

    file: Mapping[str, Any]
    end: str | None
    end_id: int | None

    def special_ids(self) -> dict[str, int]:
        if self.end_id is None:
            return {}
        return dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), self.end_id)


def _tokenizer(trained: Trained, told: str | None) -> _Tokenizer:
    """The tokenizer as told, else that of the run's corpus."""
    task = trained.job.recipe.task
    assert isinstance(task, TokenTask)
    if told is None and task.data is not None:
        corpus = Path(task.data)
        if (corpus / TOKENIZER).is_file():
            told = str(corpus / TOKENIZER)
        elif (corpus / MANIFEST).is_file() and json.loads((corpus / MANIFEST).read_text())["vocabulary"] == 256:
            told = BYTES
    if told is None:
        raise OnecurveError(
            f"{trained.path}: has no tokenizer: its corpus ({task.data}) holds none; give the file that it was "
            f"prepared with, --tokenizer tokenizer.json, or --tokenizer {BYTES} where every byte is a token"
        )
    if told == BYTES:
        if trained.model.vocabulary < 256:
            raise OnecurveError(
                f"{trained.path}: --tokenizer {BYTES} has 256 tokens, and model.vocabulary is "
                f"{trained.model.vocabulary}"
            )
        return _Tokenizer(byte_tokenizer(), "\0", 0)
    library = optional("tokenizers", "tokenizer files", "huggingface")
    try:
        loaded = library.Tokenizer.from_file(told)
        content = json.loads(Path(told).read_text("utf-8"))
    except Exception as error:  # the library raises plain Exception
        raise OnecurveError(f"{told}: not a tokenizers file ({error})") from None
    if loaded.get_vocab_size() > trained.model.vocabulary:
        raise OnecurveError(
            f"{told}: has {loaded.get_vocab_size()} tokens, but model.vocabulary of {trained.path} is "
            f"{trained.model.vocabulary}; give the file that the run's corpus was prepared with"
        )
    end = end_of_text(loaded)
    return _Tokenizer(content, *(end or (None, None)))


def byte_tokenizer() -> dict[str, Any]:
    """A tokenizers file in which every byte is a token and byte 0 ends a text.

    Bytes are written as the characters that byte-level BPE uses for them: printable ones stand for themselves, the
    others follow from U+0100 on in order.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in set(printable)]
    letters = {b: chr(b) for b in printable} | {b: chr(0x100 + k) for k, b in enumerate(others)}
    # Byte 0 is found in the text before bytes become letters, so it stands for itself.
    vocabulary = {"\0" if b == 0 else letters[b]: b for b in range(256)}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    end = {"id": 0, "content": "\0", "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [end | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": [],
        },
    }


def _card(trained: Trained) -> str:
    facts = trained.facts()
    return f"""# {facts["name"]}

A decoder-only transformer of {human(facts["n_params"])} parameters that onecurve {version("onecurve")} trained on
{human(facts["tokens"])} tokens ({facts["weights"]}).

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained(".", trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained(".")
```

The model's code is in this folder; it needs torch and transformers alone. `config.json` keeps the recipe's settings.
"""
