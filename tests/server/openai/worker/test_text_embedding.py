"""The embedding of a text is the mean of its final hidden states, however many tokens are read at a time."""

import math

import pytest
import torch

import pellucid
from pellucid.base.errors import UsageError
from pellucid.engine.transformer import Transformer
from pellucid.model import Model
from pellucid.server.openai.worker import text_embedding
from pellucid.server.openai.worker.text_embedding import TextEmbedding


def compute(model: Model, prompt: tuple[int, ...]) -> list[float]:
    embedding = TextEmbedding(model, prompt)
    while not embedding.read():
        pass
    return embedding.to_list()


def test_the_parts_of_a_prompt_give_what_the_whole_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    model, prompt = pellucid.load("abcd"), (0, 1, 2, 3, 3, 2, 1, 0, 1, 2)
    whole = compute(model, prompt)
    for chunk in (1, 3, 5, 10):
        monkeypatch.setattr(text_embedding, "CHUNK", chunk)
        embedding = TextEmbedding(model, prompt)
        reads = [embedding.read() for _ in range(-(-len(prompt) // chunk))]
        assert reads == [False] * (len(reads) - 1) + [True]
        assert embedding.to_list() == pytest.approx(whole, abs=1e-6)


def test_hidden_states_that_are_not_numbers_have_no_embedding(monkeypatch: pytest.MonkeyPatch) -> None:
    model = pellucid.load("abcd")
    for value in (math.nan, 0.0, math.inf):
        states = torch.full((1, 2, model.config.d_model), value)
        monkeypatch.setattr(Transformer, "hidden_states", lambda *_, states=states: states)
        with pytest.raises(UsageError):
            compute(model, (0, 1))
