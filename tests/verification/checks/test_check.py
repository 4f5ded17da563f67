"""A reduced model computes what the first blocks of the model compute."""

import numpy as np
import torch

from pellucid.model import Model
from pellucid.reference.training import forward
from pellucid.verification.checks.check import ReducedModel, Subject
from tests.formats.gguf import random_models


def subject(shape: dict[str, object] = random_models.GPT2) -> Subject:
    return Subject(Model(random_models.model(shape)))


def test_it_has_the_first_blocks_tokens_and_positions() -> None:
    model = ReducedModel(subject(), layers=1, vocabulary=100, context=9)
    assert (model.config.n_layer, model.config.vocab_size, model.config.context_length) == (1, 100, 9)
    whole = model.subject.weights
    assert np.array_equal(model.weights["embed.weight"], whole["embed.weight"][:100])
    assert np.array_equal(model.weights["positions.weight"], whole["positions.weight"][:9])
    assert "blocks.1.attn.q_proj.weight" not in model.weights


def test_a_model_that_is_smaller_stays_as_it_is() -> None:
    model = ReducedModel(subject(), layers=9, vocabulary=10**6, context=10**6)
    assert model.config == model.subject.config


def test_both_engines_agree_on_it() -> None:
    model = ReducedModel(subject(), layers=2, vocabulary=50, context=8)
    ids = model.ids(8)
    assert max(ids) < 50
    got = model.module(torch.float64)(torch.tensor([ids]))[0].detach().numpy()
    assert np.allclose(got, forward(model.config, model.weights, [ids])["logits"][0], atol=1e-10)


def test_a_module_may_be_reduced_further() -> None:
    module = ReducedModel(subject(), context=20).module(torch.float32, context=5, layers=1)
    assert (module.config.context_length, module.config.n_layer, module.dtype) == (5, 1, torch.float32)
