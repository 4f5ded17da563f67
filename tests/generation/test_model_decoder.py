"""A model is decoded by what is fastest, and a large one that is not says why."""

import logging

import pytest

import pellucid
from pellucid.engine.cpu.decoder import NativeDecoder
from pellucid.generation import model_decoder
from pellucid.generation.model_decoder import make_decoder

SIZES = {"vocab_size": 40, "d_model": 16, "n_layer": 1, "n_head": 2, "context_length": 16}


def make_model(**choices: object) -> pellucid.Model:
    return pellucid.Model.from_config(pellucid.ModelConfig.from_dict(SIZES | choices))


def test_a_model_is_decoded_by_the_compiled_decoder() -> None:
    assert isinstance(make_decoder(make_model(positions="rope")), NativeDecoder)


def test_a_large_model_that_is_not_says_which_choice_it_was_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = make_model(score_cap={"kind": "tanh", "limit": 30.0})
    with caplog.at_level(logging.WARNING):
        assert make_decoder(model) is model.module
        assert not caplog.records
        monkeypatch.setattr(model_decoder, "LARGE", 1)
        model_decoder._say_once.cache_clear()
        make_decoder(model)
        make_decoder(model)
    assert [record.getMessage() for record in caplog.records] == [
        "decoding runs in PyTorch: the compiled decoder does not have a soft cap."
    ]
