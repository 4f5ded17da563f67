"""The decoder computes one token of each text by kernels; everything else is the module's."""

from typing import Any

import pytest
import torch

from pellucid.base.errors import UsageError
from pellucid.engine.cache import Cache
from pellucid.engine.gpu.decoder import GpuDecoder
from pellucid.engine.taps import edit, record
from tests.engine.gpu.models import make_ids, make_module, make_rows


@pytest.fixture
def decoder(device: torch.device) -> GpuDecoder:
    return GpuDecoder(make_module(device), 2)


def count_launches(decoder: GpuDecoder, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns a list that gets the number of texts of every step that kernels compute."""
    from pellucid.engine.gpu.step import DecodeStep

    run, counts = DecodeStep.run, list[int]()

    def count(step: DecodeStep, *args: Any, **options: Any) -> None:
        counts.append(step.count)
        run(step, *args, **options)

    monkeypatch.setattr(DecodeStep, "run", count)
    return counts


@torch.no_grad()
def test_prompts_and_caches_of_integers_are_the_modules(
    decoder: GpuDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts, (row, other) = count_launches(decoder, monkeypatch), make_rows(decoder, 2)
    ids = make_ids(7)
    expected = decoder.module.forward_packed([(other, ids)], [6])
    assert torch.equal(decoder.forward_packed([(row, ids)], [6]), expected)
    decoder.forward_packed([(row, [1]), (other, [2, 3])], [0])
    decoder.forward_packed([(row, [1]), (row, [2])], [0])
    (int8,) = make_rows(decoder, 1, dtype=torch.int8)
    decoder.forward_packed([(int8, ids[:1])], [0])
    whole = Cache(decoder.config, 2, 8, device=decoder.device)
    decoder.forward_cached(torch.tensor([[1], [2]], device=decoder.device), whole)
    assert counts == []
    assert not decoder.can_loop(int8.whole) and decoder.can_loop(row.whole)


@torch.no_grad()
def test_more_texts_than_a_step_has_are_the_modules(
    decoder: GpuDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts, rows = count_launches(decoder, monkeypatch), make_rows(decoder, 3)
    logits = decoder.forward_packed([(row, [4]) for row in rows], [2, 0])
    assert counts == [] and logits.shape == (2, 53)


@torch.no_grad()
def test_logits_that_are_wanted_are_those_of_their_places(decoder: GpuDecoder) -> None:
    rows = make_rows(decoder, 2)
    both = decoder.forward_packed([(rows[0], [4]), (rows[1], [9])], [0, 1])
    for row in rows:
        row.crop(0)
    assert torch.equal(decoder.forward_packed([(rows[0], [4]), (rows[1], [9])], [1]), both[1:])
    assert [int(row.host_lengths[0]) for row in rows] == [1, 1]


@torch.no_grad()
def test_a_full_cache_takes_no_token(decoder: GpuDecoder) -> None:
    (row,) = make_rows(decoder, 1, capacity=3)
    decoder.forward_packed([(row, [1, 2, 3])], [])
    with pytest.raises(UsageError):
        decoder.forward_packed([(row, [4])], [0])


@torch.no_grad()
def test_another_cache_is_bound_and_its_texts_are_read(decoder: GpuDecoder) -> None:
    found = []
    for _ in range(2):
        (row,) = make_rows(decoder, 1)
        decoder.module.forward_packed([(row, make_ids(4))], [])
        found.append(decoder.forward_packed([(row, [5])], [0]))
    assert torch.equal(*found)


@torch.no_grad()
def test_a_recording_of_every_value_and_an_edit_run_the_module(
    decoder: GpuDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts, (row,) = count_launches(decoder, monkeypatch), make_rows(decoder, 1)
    with record("blocks.*.attn.pattern", model=decoder.module) as seen:
        decoder.forward_packed([(row, [3])], [0])
        assert not decoder.can_loop(row.whole)
    with edit("blocks.0.attn.z", lambda z: 0 * z, model=decoder.module):
        decoder.forward_packed([(row, [3])], [0])
        assert not decoder.can_loop(row.whole)
    assert counts == [] and seen["blocks.0.attn.pattern"].shape == (1, 4, 1, 1)
