"""Small models of every kind, and the two questions that several tests ask of a tape."""

from collections.abc import Callable
from typing import Any

import numpy as np

from pellucid.base.names import IGNORE_INDEX
from pellucid.base.quantized import Scheme, is_quantizable, quantize
from pellucid.config import ModelConfig
from pellucid.explanation.derive import record_arithmetic
from pellucid.explanation.expression import compute
from pellucid.explanation.trace import Trace
from pellucid.reference.op import Array, Index
from pellucid.reference.optimizers import update
from pellucid.reference.tape import Step, Tape
from pellucid.reference.training import forward
from pellucid.verification.mismatch import Mismatch, find_mismatch, largest
from pellucid.verification.replay import replay

_SIZES = {"context_length": 4, "n_layer": 2, "n_head": 2, "d_model": 4, "d_ff": 6}

CONFIGS = {
    name: ModelConfig.from_dict(_SIZES | choices)
    for name, choices in {
        "gpt2": {
            "vocab_size": 5,
            "positions": "learned",
            "norm": "layer_norm",
            "mlp": "gelu_tanh",
            "biases": ["qkv", "output", "mlp", "norm"],
        },
        "llama": {
            "vocab_size": 7,
            "n_head": 4,
            "n_kv_head": 2,
            "d_model": 6,
            "d_head": 4,
            "d_ff": 5,
            "positions": {"kind": "rope", "base": 100.0, "layout": "halves"},
            "norm": "rms_norm",
            "mlp": "swiglu",
            "unembedding": "linear",
        },
        "llama_pairs": {
            "vocab_size": 5,
            "n_kv_head": 1,
            "d_head": 4,
            "positions": {"kind": "rope", "base": 100.0, "layout": "pairs"},
            "norm": "rms_norm",
            "mlp": "swiglu",
        },
        "guide": {
            "vocab_size": 6,
            "positions": "sinusoidal",
            "norm": "layer_norm",
            "mlp": "gelu",
            "unembedding": "linear",
            "biases": ["output", "mlp", "norm", "unembed"],
        },
        "relu": {"vocab_size": 5, "positions": "learned", "norm": "rms_norm", "mlp": "relu"},
        "bare": {
            "vocab_size": 5,
            "d_ff": 0,
            "positions": "none",
            "mask": "none",
            "norm": "none",
            "mlp": "none",
            "residual": "none",
            "output": "none",
        },
    }.items()
}

IDS = [[1, 3, 1], [0, 2, 4]]
TARGETS = [[3, IGNORE_INDEX, 2], [2, 4, 0]]


def weights(config: ModelConfig, seed: int = 0, scale: float = 0.5) -> dict[str, Array]:
    """Random weights, norms' gains around 1."""
    random = np.random.default_rng(seed)
    return {
        name: scale * random.standard_normal(shape) + name.endswith("norm.weight")
        for name, shape in config.parameters().items()
    }


def quantized_weights(config: ModelConfig, scheme: str = "int8", seed: int = 0) -> dict[str, Any]:
    """The same with every matrix quantized."""
    return {
        name: quantize(weight.astype(np.float32), Scheme.from_name(scheme))
        if is_quantizable(name, weight.shape)
        else weight
        for name, weight in weights(config, seed).items()
    }


def backpropagated(config: ModelConfig) -> Tape:
    """Forward, loss and backward, one target not counted."""
    tape = forward(config, weights(config), IDS, TARGETS)
    tape.backward(tape.ref("loss"))
    return tape


def updated(config: ModelConfig) -> Tape:
    """Forward, loss, backward, clipping and AdamW."""
    tape = backpropagated(config)
    update(tape, "adamw", lr=0.01, clip=0.1)
    return tape


def alone(tape: Tape, step: Step, index: Index) -> float:
    """One cell from the slices that it reads."""
    return step.op.cell(index, [tape.values[name] for name in step.inputs], step.attrs)


def explained(top: int) -> Callable[[Tape, Step, Index], float]:
    """One cell from the arithmetic that is printed for it, `top` terms of a long sum."""
    return lambda tape, step, index: compute(record_arithmetic(Trace(tape), step, index, top))


def wrong_cell(
    tape: Tape, cell: Callable[[Tape, Step, Index], float], phase: str | None = None
) -> Mismatch | None:
    """The first step, of all or of a phase, whose cells, computed one by one, are not its array."""
    roles = set(tape.roles.values())
    scales = {r: largest(v for name, v in tape.values.items() if tape.roles[name] == r) for r in roles}
    for step in (step for step in tape.steps.values() if phase in (None, step.phase)):
        wanted = tape.values[step.name]
        got = np.empty(wanted.shape)
        for index in np.ndindex(wanted.shape):
            got[index] = cell(tape, step, index)
        if found := find_mismatch(step.name, got, wanted, 1e-12, scales[tape.roles[step.name]]):
            return found
    return None


def check_explained(tape: Tape) -> None:
    """Fails unless every step replays exactly, every cell is explained alone, and every value has a name."""
    assert replay(Trace(tape)).exact == len(tape.steps)
    assert wrong_cell(tape, alone) is None
    assert wrong_cell(tape, explained(top=100)) is None
    for name in tape.steps:
        about = Trace(tape).about(name)
        assert len(about.axes) == tape[name].ndim and about.meaning, name
