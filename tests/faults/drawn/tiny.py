"""The tiny models and runs on which a mutation is tried."""

import json
from pathlib import Path
from typing import Any, ClassVar

import pellucid
from pellucid.model import Model
from tests.faults.in_training import DROPOUT, NARROW, SINGLE, TEXT
from tests.formats.gguf import random_models
from tests.model import folders

LLAMA = random_models.LLAMA
TOKENIZER = random_models.tokenizer


class TinyModel:
    """The models by name: their shape, and how their weights are held."""

    ALL: ClassVar[dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {
        "llama": (LLAMA, {}),
        "gpt2": (random_models.GPT2 | {"d_model": 72, "d_ff": 100}, {}),
        "window": (random_models.QWEN3 | {"mask": {"kind": "window", "size": 9}}, {}),
        "alibi": (random_models.BLOOM | {"context_length": 400}, {}),
        "int4": (LLAMA | {"biases": ["qkv"], "d_ff": 104}, {"weights": "int4"}),
        "int8": (LLAMA | {"positions": random_models.YARN}, {"weights": "int8"}),
        "bfloat16": (LLAMA, {"dtype": "bfloat16"}),
        "linear": (LLAMA | {"attention": "linear_elu", "positions": "none"}, {}),
        "capped": (
            LLAMA
            | {"positions": "t5", "score_cap": {"kind": "tanh", "limit": 5.0}}
            | {"mlp": "relu_squared"},
            {},
        ),
    }


_TEXT = ("data.path=FOLDER/text", "data.tokenizer=bytes", "model.context_length=24")
_LINES = (*_TEXT, "data.split=line")
_STEPS = "steps=6"
_TURNS = (("user", "how many"), ("assistant", "the"))
RUNS: dict[str, tuple[str, ...]] = {
    "dropout run": (DROPOUT, SINGLE, "train.accumulate=2", _STEPS),
    "bfloat16 run": (
        *NARROW,
        "data.path=task:addition",
        "train.initialization=gpt2",
        "train.ema=0.8",
        _STEPS,
    ),
    "chunked run": (
        *(*_TEXT, SINGLE, "train.logits_chunk=5", "train.label_smoothing=0.1", "train.z_loss=0.01"),
        *("optimizer.kind=muon", "evaluation.batches=2", _STEPS),
    ),
    "packed run": (
        *(*_LINES, SINGLE, "data.rows=packed", "train.activation_checkpointing=true", _STEPS),
        'train.class_weights={"a"=0.2, "e"=3.0}',
    ),
    "padded run": (*_LINES, SINGLE, "data.rows=padded", "train.accumulate=2", "optimizer.kind=sgd", _STEPS),
    "streamed run": (*_TEXT, SINGLE, "data.rows=streams", "train.freeze=embed.*", _STEPS),
    "mixed run": (
        *(*_TEXT[1:], 'data.path=["FOLDER/text","FOLDER/other"]', "data.mixture_weights=[0.3,0.7]", SINGLE),
        *("optimizer.kind=adam", "train.clip=0.0", _STEPS),
    ),
    "stories run": (
        "data.path=stories:easy",
        "model.context_length=40",
        SINGLE,
        "schedule.kind=linear",
        _STEPS,
    ),
    "chat run": (
        "data.path=FOLDER/chat.jsonl",
        "start=FOLDER/chat/model",
        "model={}",
        "evaluation.sample=0",
        SINGLE,
        _STEPS,
    ),
    "adapter run": (
        "data.path=FOLDER/text",
        "model={context_length=24}",
        SINGLE,
        "start=FOLDER/models/gpt2",
        "lora.rank=3",
        "lora.dropout=0.1",
        _STEPS,
    ),
}
"""Changes of a recipe by name; `FOLDER` is the folder of the subjects."""
_CHATS = [
    [{"role": role, "content": f"{word} {number}" * (number % 3 + 1)} for role, word in _TURNS]
    for number in range(24)
]


def prepare(folder: Path) -> None:
    """Writes what the subjects read, without a mutation."""
    for name, (shape, _) in TinyModel.ALL.items():
        folders.ours(folder / "models" / name, shape)
    from tests.faults import loaded  # which imports transformers

    (folder / "chat").mkdir()
    loaded.SUBJECTS["llama bos"].prepare(folder / "chat")
    (folder / "text").write_text(TEXT)
    (folder / "chat.jsonl").write_text("".join(f"{json.dumps({'messages': turns})}\n" for turns in _CHATS))
    (folder / "other").write_text(TEXT.replace("cat", "owl").replace("birds", "mice and 3 cats"))


def open_tiny(folder: Path, name: str) -> Model:
    return pellucid.load(folder / "models" / name, **TinyModel.ALL[name][1])
