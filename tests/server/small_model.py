"""A model of 2.5 million random weights whose tokenizer reads any text: small, but not a toy."""

import dataclasses
from pathlib import Path

import numpy as np

from pellucid.config import preset
from pellucid.text.kinds import train
from pellucid.text.tokenizer import Special
from pellucid.workbench.model import Model

TEXT = Path(__file__).parents[2] / "README.md"
SIZES = {
    "vocab_size": 1024,
    "context_length": 512,
    "n_layer": 5,
    "d_model": 192,
    "d_ff": 768,
    "n_head": 6,
    "n_kv_head": 6,
    "d_head": 32,
}


def make_small_model(seed: int = 0) -> Model:
    """Returns the model; it ends a text by itself about once in a thousand tokens."""
    tokenizer = train("bpe", [TEXT.read_text("utf-8")], SIZES["vocab_size"], Special("<end>", "<end>"))
    model = Model.from_config(dataclasses.replace(preset("tiny"), **SIZES), tokenizer=tokenizer, seed=seed)
    weights = {
        name: np.asarray(4 * array if array.ndim > 1 else array) for name, array in model.weights.items()
    }
    return model.replace(weights=weights)
