"""Small snapshots to save, each step's own, and the question whether two are the same to the bit."""

import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from pellucid.config import ModelConfig
from pellucid.text.word_level import WordTokenizer
from pellucid.training.saving.checkpoint import Snapshot

WORDS = WordTokenizer(("A", "B", "C", "D", "E"))
CONFIG = ModelConfig.from_dict(
    {"vocab_size": 5, "context_length": 4, "n_layer": 1, "n_head": 2, "d_model": 4, "d_ff": 6}
)
RECIPE = {"out": "runs/a", "steps": 1000, "optimizer": {"kind": "adamw", "lr": 3e-4}}
ENVIRONMENT = {"torch": "2.11", "threads": 2}


def snapshot(step: int, dtype: torch.dtype = torch.float32) -> Snapshot:
    """What a run could be at this step: numbers drawn from a generator seeded by the step."""
    draw = torch.Generator().manual_seed(step)

    def drawn() -> dict[str, torch.Tensor]:
        shapes = CONFIG.parameters()
        return {name: torch.randn(shape, generator=draw).to(dtype) for name, shape in shapes.items()}

    moments = {f"{name}.exp_avg": tensor.float() for name, tensor in drawn().items()}
    return Snapshot(
        step=step,
        config=CONFIG,
        trainable=drawn(),
        tokenizer=WORDS,
        optimizer=moments | {"embed.weight.step": torch.tensor(float(step))},
        weights=drawn(),
        rng={"torch": draw.get_state()},
        loader={"format": 1, "at.row": step},
        plain={"rng": {"python": [3, list(range(20)), None]}, "optimizer": {"lr": 0.1 + step}},
        meters={"best": 1 / (step + 1), "smoothed": None, "tokens": 32 * step},
    )


def bits(tensor: torch.Tensor) -> tuple[str, tuple[int, ...], bytes]:
    flat = tensor.detach().flatten()
    same = flat.view(torch.int16) if tensor.dtype == torch.bfloat16 else flat  # NumPy has no bfloat16
    return str(tensor.dtype), tuple(tensor.shape), same.numpy().tobytes()


def contents(given: Snapshot) -> dict[str, Any]:
    """All of a snapshot but its name, so that == compares every bit."""
    tables = {
        key: getattr(given, key) for key in ("weights", "trainable", "averaged_adapters", "optimizer", "rng")
    }
    plain = (given.step, given.config.to_dict(), given.loader, given.plain, given.meters)
    return {
        **{key: {name: bits(tensor) for name, tensor in table.items()} for key, table in tables.items()},
        "plain": json.dumps(plain, sort_keys=True),
        "tokenizer": given.tokenizer and given.tokenizer.vocab_size,
    }


@contextlib.contextmanager
def in_memory() -> Iterator[Path]:
    """A folder for the tests that save thousands of times; on a disk where there is none in memory."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)
