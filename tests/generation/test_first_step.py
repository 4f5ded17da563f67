"""A decoder whose first steps are not the module's does not decode."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from pellucid.engine.cpu import library
from pellucid.engine.cpu.decoder import NativeDecoder
from pellucid.engine.taps import record
from pellucid.engine.transformer import Transformer
from pellucid.generation import first_step
from pellucid.generation.decoders import make_decoder
from pellucid.generation.first_step import find_wrong_step, read_tokens
from tests.engine.cpu.models import FAMILIES, make_config, make_module


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_healthy_decoder_is_far_from_the_bound(family: str, dtype: torch.dtype) -> None:
    module = make_module(family).to(dtype)
    got, wanted = (read_tokens(decoder, module, torch.float32) for decoder in (NativeDecoder(module), module))
    allowed = first_step.NARROW_TOLERANCE if dtype == torch.bfloat16 else 1e-3
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
    assert make_decoder(module, reasons.append) is module
    assert "first steps" in reasons[0] and "builds it again" in reasons[0] and len(removed) == 1
    assert make_decoder(module, reasons.append) is module  # nor for a second text
    assert reasons[1] == reasons[0] and len(removed) == 1


def test_a_module_is_compared_once_and_not_while_it_is_watched() -> None:
    module = make_module("llama")
    decoder = NativeDecoder(module)
    with record("logits", model=module) as seen:
        assert find_wrong_step(decoder, module) is None
    assert not seen and module not in first_step._compared
    assert find_wrong_step(decoder, module) is None and module in first_step._compared


def test_a_model_of_one_position_and_a_model_of_nan_are_decoded() -> None:
    short = Transformer(replace(make_config("llama"), context_length=1))
    assert isinstance(make_decoder(short), NativeDecoder)
    module = make_module("llama")
    with torch.no_grad():
        module.embed.weight.fill_(torch.nan)
    assert isinstance(make_decoder(module), NativeDecoder)


def test_only_a_library_of_the_users_folder_is_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    loaded = library.load_library()
    monkeypatch.setenv("PELLUCID_HOME", str(tmp_path))
    assert not library.remove_built(loaded)
