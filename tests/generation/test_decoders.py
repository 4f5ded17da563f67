"""A model is decoded by what is fastest, if its first steps are the module's; a large one says why not."""

import logging
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import pellucid
from pellucid.engine.cpu import library
from pellucid.engine.cpu.decoder import NativeDecoder
from pellucid.engine.taps import record
from pellucid.engine.transformer import Transformer
from pellucid.generation import decoders
from pellucid.generation.decoders import decode_module, find_wrong_step, make_decoder, read_tokens
from tests.engine.cpu.models import FAMILIES, make_config, make_module

SIZES = {"vocab_size": 40, "d_model": 16, "n_layer": 1, "n_head": 2, "context_length": 16}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_healthy_decoder_is_far_from_the_bound(family: str, dtype: torch.dtype) -> None:
    module = make_module(family).to(dtype)
    got, wanted = (read_tokens(decoder, module, torch.float32) for decoder in (NativeDecoder(module), module))
    allowed = decoders.NARROW_TOLERANCE if dtype == torch.bfloat16 else 1e-3
    assert float((got - wanted).detach().abs().max() / wanted.detach().abs().max()) < allowed / 5


@pytest.mark.parametrize("is_nan", [False, True])
def test_a_decoder_with_other_logits_is_not_used_and_its_library_is_removed(
    monkeypatch: pytest.MonkeyPatch, is_nan: bool
) -> None:
    right, reasons, removed = NativeDecoder.forward_packed, list[str](), list[object]()

    def wrong(self: NativeDecoder, rows: object, wanted: object) -> Tensor:
        logits = right(self, rows, wanted)  # type: ignore[arg-type]
        return logits * torch.nan if is_nan else logits.roll(1, -1)

    monkeypatch.setattr(NativeDecoder, "forward_packed", wrong)
    monkeypatch.setattr("pellucid.generation.decoders.remove_built", lambda built: not removed.append(built))
    module = make_module("llama")
    assert decode_module(module, reasons.append) is module
    assert "first steps" in reasons[0] and "builds it again" in reasons[0] and len(removed) == 1
    assert decode_module(module, reasons.append) is module  # nor for a second text
    assert reasons[1] == reasons[0] and len(removed) == 1


def test_a_module_is_compared_once_and_not_while_it_is_watched() -> None:
    module = make_module("llama")
    decoder = NativeDecoder(module)
    with record("logits", model=module) as seen:
        assert find_wrong_step(decoder, module) is None
    assert not seen and module not in decoders._compared
    assert find_wrong_step(decoder, module) is None and module in decoders._compared


def test_a_model_of_one_position_and_a_model_of_nan_are_decoded() -> None:
    short = Transformer(replace(make_config("llama"), context_length=1))
    assert isinstance(decode_module(short), NativeDecoder)
    module = make_module("llama")
    with torch.no_grad():
        module.embed.weight.fill_(torch.nan)
    assert isinstance(decode_module(module), NativeDecoder)


def test_only_a_library_of_the_users_folder_is_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    loaded = library.load_library()
    monkeypatch.setenv("PELLUCID_HOME", str(tmp_path))
    assert not library.remove_built(loaded)


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
        monkeypatch.setattr(decoders, "LARGE", 1)
        decoders._say_once.cache_clear()
        make_decoder(model)
        make_decoder(model)
    assert [record.getMessage() for record in caplog.records] == [
        "decoding runs in PyTorch: the compiled decoder does not have a soft cap."
    ]
