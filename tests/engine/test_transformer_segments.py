"""Packed rows in the fast engine: each document computes what it computes alone, on every path."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pellucid.base.errors import UsageError
from pellucid.config import ModelConfig
from pellucid.engine.cache import Cache
from pellucid.engine.loss import loss
from pellucid.engine.taps import record
from pellucid.engine.transformer import Transformer, split_segments
from tests.agreement.engines import CHOICES, DIFFERENT, SIZES, fast, gradients

DOCUMENTS = [[1, 3, 1], [5, 0], [2, 4, 6]]


def pack(documents: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Returns one row of ids, and its segments."""
    segments = [i for i, document in enumerate(documents) for _ in document]
    return torch.tensor([[id for document in documents for id in document]]), torch.tensor([segments])


def check_alone(model: Transformer, documents: list[list[int]]) -> None:
    ids, segments = pack(documents)
    logits = model(ids, segments=segments)
    loss(logits, ids).backward()
    got = gradients(model)
    model.zero_grad()
    at = 0
    for document in documents:
        row = torch.tensor([document])
        single = model(row)
        here = slice(at, at := at + len(document))
        torch.testing.assert_close(logits[:, here], single, rtol=1e-12, atol=1e-12)
        (loss(single, row) * len(document) / ids.numel()).backward()
    for name, grad in gradients(model).items():
        size = max(float(abs(grad).max()), 1.0)
        assert float(abs(got[name] - grad).max()) <= 1e-12 * size, name


@pytest.mark.parametrize("name", DIFFERENT)
def test_each_document_of_a_packed_row_computes_what_it_computes_alone(name: str) -> None:
    check_alone(fast(CHOICES[name], scale=0.25), DOCUMENTS)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=4), min_size=1, max_size=2),
    st.sampled_from(["rope", "alibi", "learned"]),
    st.sampled_from(["softmax", "linear_elu"]),
    st.sampled_from(["causal", "none"]),
)
def test_any_documents_are_apart(
    documents: list[list[int]], positions: str, attention: str, mask: str
) -> None:
    positions = "rope" if attention != "softmax" and positions == "alibi" else positions
    choices = {"positions": positions, "attention": attention, "mask": mask, "n_layer": 1}
    check_alone(fast(ModelConfig.from_dict(SIZES | choices)), documents)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_number_of_another_document_is_read(dtype: torch.dtype) -> None:
    """Other tokens in one document leave the logits of the rest bit for bit as they were."""
    model = fast(CHOICES["positions/rope"], dtype=dtype)
    ids, segments = pack(DOCUMENTS)
    changed = ids.clone()
    changed[0, 3:5] = torch.tensor([6, 6])
    before, after = model(ids, segments=segments), model(changed, segments=segments)
    same = segments[0] != 1
    assert torch.equal(before[0, same], after[0, same]) and not torch.equal(before, after)


def test_a_segment_is_a_run_of_equal_numbers_and_positions_restart() -> None:
    segments, positions = split_segments(torch.tensor([[4, 4, 0, 4], [1, 1, 1, 1]]))
    assert segments.tolist() == [[1, 1, 2, 3], [1, 1, 1, 1]]
    assert positions.tolist() == [[0, 1, 0, 0], [0, 1, 2, 3]]


def test_one_segment_is_the_row_without_segments() -> None:
    model, (ids, segments) = fast(CHOICES["positions/rope"]), pack(DOCUMENTS)
    torch.testing.assert_close(model(ids, segments=segments * 0), model(ids), rtol=1e-12, atol=1e-12)


def test_a_recording_has_the_mask_of_the_segments() -> None:
    model, (ids, segments) = fast(CHOICES["positions/rope"]), pack(DOCUMENTS)
    with record() as seen:
        model(ids, segments=segments)
    same = segments[:, :, None] == segments[:, None]
    assert torch.equal(seen["mask"].bool(), (same & torch.ones_like(same).tril())[:, None])


def test_activation_checkpointing_gives_the_same_gradients() -> None:
    model, (ids, segments) = fast(CHOICES["positions/rope"]), pack(DOCUMENTS)
    found = []
    for checkpointing in (False, True):
        model.checkpointing = checkpointing
        model.zero_grad()
        loss(model(ids, segments=segments), ids).backward()
        found.append(gradients(model))
    assert all((found[0][name] == found[1][name]).all() for name in found[0])


def test_a_compiled_model_gives_the_same_logits() -> None:
    config = dataclasses.replace(CHOICES["positions/rope"], n_layer=1)
    model, (ids, segments) = fast(config), pack(DOCUMENTS)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(
        compiled(ids, segments=segments), model(ids, segments=segments), rtol=1e-12, atol=1e-12
    )


def test_a_cache_or_given_positions_or_another_shape_are_refused() -> None:
    model, (ids, segments) = fast(CHOICES["positions/rope"]), pack(DOCUMENTS)
    cache = Cache(model.config, 1, 8, dtype=torch.float64)
    with pytest.raises(UsageError, match="cache"):
        model(ids, segments=segments, cache=cache)
    with pytest.raises(UsageError, match="positions"):
        model(ids, segments=segments, positions=segments)
    with pytest.raises(UsageError, match="shape"):
        model(ids, segments=segments[:, :-1])
