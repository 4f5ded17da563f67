"""Healthy models of every kind, by name: families, types, sizes, gains, choices, quantized, trained ones.

None of them may ever be called wrong.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pellucid.base.quantized import Scheme
from pellucid.formats import gguf, model_folder
from pellucid.formats.pretrained import Pretrained
from pellucid.formats.quantizing import quantize_pretrained
from tests.agreement.engines import DIFFERENT, FAMILY
from tests.faults.loaded import quantized
from tests.formats.gguf import random_models
from tests.formats.huggingface.models import FAMILIES, random_model
from tests.formats.tokenizers import bpe_file
from tests.model import folders
from tests.small_choices import small
from tests.training.small_run_folders import trained as train_run
from tests.verification.checks.trained import trained

Write = Callable[[Path], Path]
"""Writes a model into a new folder and returns its path."""
GAINS = (1e-3, 0.03, 0.3, 3.0, 10.0)
TYPES = ("F32", "F16", "Q8_0")
SIZES = ((8, 2, 1), (24, 3, 3), (48, 4, 2), (80, 5, 1), (144, 6, 3), (192, 4, 4))
"""d_model, n_head and n_kv_head: multiples of few numbers, and of none that kernels like."""


def _huggingface(folder: Path, family: str, seed: int, dtype: str) -> Path:
    _, writer = random_model(family, seed, **({"vocab_size": 300} if seed % 2 else {}))
    written = writer(folder / "model", dtype=dtype)
    return bpe_file(written) if seed % 2 else written


def _ours(folder: Path, shape: dict[str, Any], gain: float = 1.0, seed: int = 0) -> Path:
    model = random_models.model(shape)
    weights = {name: gain * weight for name, weight in random_models.weights(model.config, seed).items()}
    return _write(folder, Pretrained(model.name, model.config, weights, model.tokenizer, model.provenance))


def _write(folder: Path, model: Pretrained) -> Path:
    model_folder.write(folder / "model", model)
    return folder / "model"


def _gguf(folder: Path, shape: dict[str, Any], type: str) -> Path:
    gguf.write(folder / "model.gguf", random_models.model(shape), type)
    return folder / "model.gguf"


def _blocks(folder: Path, kind: str) -> Path:
    quantized(kind)(folder / "model.gguf")
    return folder / "model.gguf"


def _stored(folder: Path, shape: dict[str, Any], scheme: Scheme, keep: tuple[str, ...] = ()) -> Path:
    return _write(folder, quantize_pretrained(random_models.model(shape), scheme, keep))


def _trained(folder: Path) -> Path:
    return _write(folder, trained())


def _run(folder: Path, changes: tuple[str, ...]) -> Path:
    train_run(folder / "run", *changes)
    return folder / "run"


def _size(width: int, heads: int, kv_heads: int) -> dict[str, Any]:
    return random_models.LLAMA | {"d_model": width, "n_head": heads, "n_kv_head": kv_heads, "d_ff": width + 8}


CHOICES: dict[str, dict[str, Any]] = {
    "window": {"mask": {"kind": "window", "size": 9}},
    "untied": {"unembedding": "linear", "biases": ["qkv", "output", "mlp", "unembed"]},
    "linear attention": {"attention": "linear_elu", "positions": "none"},
    "capped": {"score_cap": {"kind": "tanh", "limit": 5.0}, "logit_cap": {"kind": "tanh", "limit": 9.0}},
    "t5": {"positions": "t5"},
    "short": {"context_length": 2},
}
"""Choices beyond those of a family, for quantized weights."""
RUNS: dict[str, tuple[str, ...]] = {
    "plain": (),
    "float32": ("train.dtype=float32",),
    "bfloat16": ("train.dtype=bfloat16",),
    "bfloat16 weights": ("train.dtype=bfloat16", "train.weights=bfloat16"),
    "accumulated": ("train.accumulate=2",),
    "averaged": ("train.ema=0.9",),
    "muon": ("optimizer.kind=muon",),
    "sgd": ("optimizer.kind=sgd",),
    "smoothed": ("train.label_smoothing=0.1", "train.z_loss=0.001"),
    "stories": ("data.path=stories:easy",),
}
SCHEMES = {"int8": Scheme(8), "int4": Scheme(4, 32), "int8 in groups": Scheme(8, 32)}
QUANTIZED: dict[str, tuple[str | None, Write]] = (
    {
        f"{family} as {weights}": (weights, functools.partial(folders.huggingface, family=family))
        for family in FAMILIES
        for weights in ("int8", "int4")
    }
    | {
        f"{name} ×{gain:g} as {weights}": (
            weights,
            functools.partial(_ours, shape=random_models.ARCHITECTURES[name], gain=gain, seed=1),
        )
        for name in ("llama", "gpt2")
        for gain in GAINS
        for weights in ("int8", "int4")
    }
    | {
        f"width {size[0]} as {weights}": (weights, functools.partial(_ours, shape=_size(*size)))
        for size in SIZES
        for weights in ("int8", "int4")
    }
    | {
        f"{choice} as {weights}": (weights, functools.partial(_ours, shape=random_models.LLAMA | change))
        for choice, change in CHOICES.items()
        for weights in ("int8", "int4")
    }
    | {
        f"stored {name} {scheme}": (None, functools.partial(_stored, shape=shape, scheme=SCHEMES[scheme]))
        for name, shape in random_models.ARCHITECTURES.items()
        for scheme in SCHEMES
    }
    | {
        "stored without the embedding": (
            None,
            functools.partial(
                _stored, shape=random_models.LLAMA, scheme=SCHEMES["int4"], keep=("embed.weight",)
            ),
        )
    }
    | {
        f"gguf {kind} as {weights}": (weights, functools.partial(_blocks, kind=kind))
        for kind in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")
        for weights in ("file", "int8")
    }
)
"""Healthy models whose weights are quantized: how they are held when they are opened, and their writers."""
HEALTHY: dict[str, Write] = (
    {
        f"{family} {seed} {dtype}": functools.partial(_huggingface, family=family, seed=seed, dtype=dtype)
        for family in FAMILIES
        for seed in range(9)
        for dtype in ("float32", "bfloat16", "float16")
    }
    | {
        f"{name} ×{gain:g}": functools.partial(_ours, shape=shape, gain=gain, seed=1)
        for name, shape in random_models.ARCHITECTURES.items()
        for gain in GAINS
    }
    | {
        name: functools.partial(_ours, shape=random_models.LLAMA | {field: small(FAMILY[field], kind)})
        for name in DIFFERENT
        for field, _, kind in [name.partition("/")]
    }
    | {
        f"gguf {name} {type}": functools.partial(_gguf, shape=shape, type=type)
        for name, shape in random_models.ARCHITECTURES.items()
        for type in TYPES
    }
    | {
        f"gguf {name}": functools.partial(
            _gguf, shape=random_models.LLAMA | {"positions": positions}, type="F32"
        )
        for name, positions in {"yarn": random_models.YARN, "llama3": random_models.LLAMA3}.items()
    }
    | {f"width {size[0]}": functools.partial(_ours, shape=_size(*size)) for size in SIZES}
    | {
        f"context {length}": functools.partial(_ours, shape=random_models.LLAMA | {"context_length": length})
        for length in (1, 2, 3, 5, 130, 200, 300)
    }
    | {f"seed {seed}": functools.partial(_ours, shape=random_models.QWEN3, seed=seed) for seed in range(30)}
    | {f"run {name}": functools.partial(_run, changes=changes) for name, changes in RUNS.items()}
    | {"trained": _trained, "abcd": lambda folder: Path("abcd")}
    | {family: functools.partial(folders.huggingface, family=family) for family in FAMILIES}
    | {name: write for name, (_, write) in QUANTIZED.items()}
)
"""Every healthy model by its name."""
