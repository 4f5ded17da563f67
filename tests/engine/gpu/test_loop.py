"""A loop on the device chooses the tokens that the module's logits say, and ends texts by itself."""

import pytest
import torch

from pellucid.engine.cache import Cache
from pellucid.engine.gpu.decoder import GpuDecoder
from pellucid.engine.gpu.loop import DecodeLoop, LoopText
from tests.engine.gpu.models import make_ids, make_module, make_rows

LENGTHS = (6, 0, 3)


@pytest.fixture
def decoder(device: torch.device) -> GpuDecoder:
    return GpuDecoder(make_module(device, vocab_size=31, d_model=16, n_head=2, n_kv_head=1, d_ff=24), 4)


@torch.no_grad()
def begin(decoder: GpuDecoder, left: int = 9) -> tuple[list[Cache], DecodeLoop]:
    rows = make_rows(decoder, len(LENGTHS))
    for place, (row, length) in enumerate(zip(rows, LENGTHS, strict=True)):
        if length:
            decoder.module.forward_packed([(row, make_ids(length, 31, place))], [])
    return rows, decoder.begin_loop([LoopText(row, 5 + place, left) for place, row in enumerate(rows)])


@torch.no_grad()
def choose_greedily(decoder: GpuDecoder, count: int) -> list[list[int]]:
    """Returns the module's tokens of each step."""
    rows, loop = begin(decoder)
    ids, found = [text.id for text in loop.texts], []
    for _ in range(count):
        logits = decoder.module.forward_packed(
            [(row, [id]) for row, id in zip(rows, ids, strict=True)], range(3)
        )
        ids = logits.argmax(-1).tolist()
        found.append(ids)
    return found


@torch.no_grad()
def test_steps_that_are_launched_ahead_choose_the_modules_tokens(decoder: GpuDecoder) -> None:
    expected = choose_greedily(decoder, 5)
    _, loop = begin(decoder)
    for _ in range(3):
        loop.launch()
    found = [loop.take()]
    for _ in range(2):
        loop.launch()
    assert (loop.n_ahead, loop.is_ready or decoder.device.type == "cuda") == (4, True)
    found += [loop.take() for _ in range(4)]
    assert found == expected


@torch.no_grad()
def test_a_text_that_is_ended_writes_no_more_keys_and_others_go_on(decoder: GpuDecoder) -> None:
    expected = choose_greedily(decoder, 4)
    rows, loop = begin(decoder)
    loop.launch()
    assert loop.take() == expected[0]
    loop.end(0)
    keys = rows[0].layers[0].buffers[0]
    held = keys.clone()
    for step in (1, 2, 3):
        loop.launch()
        assert loop.take()[1:] == expected[step][1:]
    assert torch.equal(keys, held)


@torch.no_grad()
def test_texts_end_by_themselves_after_the_tokens_that_they_may_draw(decoder: GpuDecoder) -> None:
    rows, loop = begin(decoder, left=2)
    for _ in range(2):
        assert loop.can_launch
        loop.launch()
    assert not loop.can_launch
    state = decoder.buffers.state
    assert state[2].tolist() == [-1] * 4
    assert state[1, :3].tolist() == [length + 1 for length in LENGTHS]  # the last token is not read
    keys = rows[0].layers[0].buffers[0]
    assert keys[0, :, LENGTHS[0] + 1].abs().sum() > 0 and keys[0, :, LENGTHS[0] + 2].abs().sum() == 0


@torch.no_grad()
def test_a_logit_that_is_not_a_number_ends_its_text_alone(decoder: GpuDecoder) -> None:
    expected = choose_greedily(decoder, 1)
    rows, loop = begin(decoder)
    values = rows[0].layers[0].buffers[1]
    values[0, 0, 0, 0] = torch.nan
    loop.launch()
    assert loop.take() == [-1, *expected[0][1:]]
    assert decoder.buffers.slots.tolist()[0] == -1


@torch.no_grad()
def test_a_loop_whose_state_was_replaced_says_so(decoder: GpuDecoder) -> None:
    rows, loop = begin(decoder)
    loop.launch()
    decoder.forward_packed([(rows[0], [1])], [0])
    with pytest.raises(RuntimeError):
        loop.launch()
    with pytest.raises(RuntimeError):
        loop.take()
    held = decoder.buffers.slots.clone()
    loop.end(1)
    assert torch.equal(decoder.buffers.slots, held)
