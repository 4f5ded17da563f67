"""Ten predictions with probabilities of one or two digits, and states whose logits are given."""

import numpy as np
import torch

from pellucid.evaluation.calibration.states import HeldStates

PROBS = np.array(
    [
        [0.90, 0.05, 0.05],
        [0.90, 0.05, 0.05],
        [0.70, 0.20, 0.10],
        [0.20, 0.70, 0.10],
        [0.10, 0.20, 0.70],
        [0.70, 0.10, 0.20],
        [0.50, 0.30, 0.20],
        [0.30, 0.50, 0.20],
        [0.50, 0.25, 0.25],
        [0.50, 0.10, 0.40],
    ]
)
TARGETS = np.array([0, 1, 0, 1, 0, 0, 0, 2, 1, 0])
"""Right, by row: yes no, yes yes no yes, yes no no yes."""


def make_states(logits: np.ndarray, targets: np.ndarray, per_document: int = 2) -> HeldStates:
    """Returns states that are their own logits, in documents of a few targets each."""
    documents = np.arange(len(targets)) // per_document
    names = tuple(f"text#{i}" for i in range(int(documents.max(initial=-1)) + 1))
    return HeldStates(
        lambda hidden: hidden,
        torch.tensor(np.asarray(logits, np.float64)),
        np.asarray(targets, np.int64),
        documents,
        np.arange(len(targets)) % per_document + 1,
        names,
        logits.shape[-1],
    )


def ten_states() -> HeldStates:
    return make_states(np.log(PROBS), TARGETS)


def random_states(seed: int, count: int = 40, vocabulary: int = 7, scale: float = 3.0) -> HeldStates:
    """Returns states whose targets are drawn from the model's own probabilities at another temperature."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(count, vocabulary)) * scale
    true = np.exp((logits - logits.max(-1, keepdims=True)) / rng.uniform(0.5, 3.0))
    true /= true.sum(-1, keepdims=True)
    targets = np.array([rng.choice(vocabulary, p=row) for row in true])
    return make_states(logits, targets, per_document=5)
