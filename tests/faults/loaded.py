"""Subjects whose files are unusual: other types of numbers, shards, scaled RoPE, bos, chat templates."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pellucid.formats import gguf
from pellucid.formats.gguf import quants, writing
from tests.faults.subjects import SUBJECTS, Subject, verify_model, void
from tests.formats import tokenizers
from tests.formats.gguf import random_models
from tests.formats.huggingface.models import random_model
from tests.model import folders

CHAT = (
    "{% for m in messages %}<TURN>{{ m['role'] }}\n{{ m['content'] }}<END>\n{% endfor %}"
    "{% if add_generation_prompt %}<TURN>assistant\n{% endif %}"
)
LLAMA3 = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 4.0, "low_freq_factor": 1.0} | {
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
ROPES = {
    "theta": {"rope_type": "default", "rope_theta": 5e5},
    "linear": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0},
    "yarn": {
        "rope_type": "yarn",
        "rope_theta": 1e4,
        "factor": 4.0,
        "original_max_position_embeddings": 16,
    },
    "llama3": LLAMA3,
}


def add(name: str, write: Callable[[Path], object], file: str = "model") -> None:
    """Adds a subject whose model `write` writes."""
    SUBJECTS[name] = Subject(
        lambda folder: void(write(folder / file)), lambda folder, check: verify_model(folder / file, check)
    )


def small_numbers(dtype: str) -> Callable[[Path], Path]:
    """Returns a writer of a Llama in shards, whose first keys are small: their types differ there."""

    def write(folder: Path) -> Path:
        import copy

        import torch

        model, _ = random_model("llama", 0, **folders.LLAMA)
        saved = copy.deepcopy(model)
        with torch.no_grad():
            saved.model.layers[0].self_attn.k_proj.weight.mul_(2.0**-16)
        saved.to(getattr(torch, dtype)).save_pretrained(folder, max_shard_size="20KB")
        return tokenizers.bpe_file(folder)

    return write


def quantized(kind: str) -> Callable[[Path], None]:
    """Returns a writer of a GGUF file in a type that only the `gguf` package writes."""

    def write(path: Path) -> None:
        import gguf as package

        type = quants.BY_NAME[kind]

        def encode(numbers: Any) -> Any:
            data = package.quants.quantize(numbers, package.GGMLQuantizationType(type.code))
            return np.ascontiguousarray(data).view(type.block).reshape(-1)

        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(writing.KINDS, kind, type.code)
            patch.setitem(writing.FILE_TYPES, kind, type.code)
            patch.setitem(quants.BY_NAME, kind, replace(type, encode=encode))
            gguf.write(path, random_models.model(random_models.LLAMA), kind)

    return write


def with_normalizer(folder: Path) -> Path:
    """A tokenizer that writes é as one letter before it encodes."""
    folders.huggingface(folder, "llama")
    table = tokenizers.bpe_table() | {"normalizer": {"type": "NFC"}}
    (folder / "tokenizer.json").write_text(json.dumps(table))
    return folder


def llama(**changes: Any) -> Callable[[Path], Path]:
    return lambda folder: folders.huggingface(folder, "llama", **changes)


def gguf_of(config: dict[str, Any], **more: Any) -> Callable[[Path], None]:
    return lambda path: gguf.write(path, random_models.model(config, **more), "F32")


for _dtype in ("bfloat16", "float16"):
    add(f"llama {_dtype}", small_numbers(_dtype))
for _kind in ("Q4_0", "Q4_1", "Q5_0", "Q8_0"):
    add(f"gguf {_kind}", quantized(_kind), "model.gguf")
for _name, _rope in ROPES.items():
    add(f"llama {_name}", llama(rope_parameters=_rope))
for _name, _positions in {"yarn": random_models.YARN, "llama3": random_models.LLAMA3}.items():
    add(f"gguf {_name}", gguf_of(random_models.LLAMA | {"positions": _positions}), "model.gguf")
add("gguf qwen2", gguf_of(random_models.QWEN2, came_from="qwen2"), "model.gguf")
add("gguf gpt2", gguf_of(random_models.GPT2), "model.gguf")
add("llama untied", llama(tie_word_embeddings=False, attention_bias=True))
add("llama eps", llama(rms_norm_eps=1e-3))
add(
    "mistral far window",
    lambda folder: folders.huggingface(
        folder, "mistral", sliding_window=100, max_position_embeddings=160, num_hidden_layers=1
    ),
)
add(
    "llama bos",
    lambda folder: tokenizers.bpe_file(
        llama()(folder),
        tokenizers.TEMPLATE,
        chat_template=CHAT.replace("<TURN>", "<s>").replace("<END>", "</s>"),
    ),
)
add("llama add_bos", lambda folder: tokenizers.bpe_file(llama()(folder), None, add_bos_token=True))
add("llama normalizer", with_normalizer)
add(
    "many merges",
    lambda folder: folders.ours(
        folder,
        random_models.LLAMA | {"vocab_size": random_models.SIZE},
        tokenizer=random_models.tokenizer(random_models.MANY_MERGES),
    ),
)
add(
    "gguf bos",
    gguf_of(
        random_models.LLAMA,
        add_bos=True,
        chat_template=CHAT.replace("<TURN>", "<|turn|>").replace("<END>", "<|end|>"),
    ),
    "model.gguf",
)
