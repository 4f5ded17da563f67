"""A small model with a draft of it, and settings of every kind."""

import copy
from typing import Any

import torch

from pellucid.config import ModelConfig
from pellucid.engine.transformer import Transformer
from pellucid.generation.settings.sampling import Sampling
from tests.agreement.engines import fast

SIZES = {"vocab_size": 12, "context_length": 64, "n_layer": 2, "n_head": 2, "d_model": 16, "d_ff": 24}


def make_models(seed: int = 0, noise: float = 0.1, **sizes: Any) -> tuple[Transformer, Transformer]:
    """A random model, and a draft of it: the same weights with noise."""
    target = fast(ModelConfig.from_dict(SIZES | sizes), seed=seed, dtype=torch.float32)
    draft = copy.deepcopy(target)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in draft.parameters():
            parameter += noise * torch.randn(parameter.shape, generator=generator)
    return target, draft


SAMPLINGS = {
    "greedy": Sampling(),
    "temperature": Sampling(temperature=0.8, seed=7),
    "filters": Sampling(temperature=1.3, top_k=8, top_p=0.9, min_p=0.02, typical_p=0.95, seed=8),
    "penalties": Sampling(
        temperature=1.0, repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.2, seed=9
    ),
    "bias": Sampling(temperature=0.9, logit_bias={3: 2.0, 4: -3.0}, banned_tokens=(5,), seed=10),
    "greedy with penalties": Sampling(repetition_penalty=1.5, forced_tokens=(4, 4)),
}
