"""Packed rows in the specification: each document computes exactly what it computes alone.

For every choice, tests/engine/test_transformer_segments.py says so of the fast engine, and the cover in
tests/choices, in which rows are packed and are not, that both engines say the same.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pellucid.base.errors import TapeError
from pellucid.config import ModelConfig
from pellucid.explanation.derive import derive
from pellucid.explanation.trace import Trace
from pellucid.reference.op import Array
from pellucid.reference.tape import Tape
from pellucid.reference.training import forward
from pellucid.reference.transformer import cache
from tests.agreement.engines import SIZES
from tests.reference.models import check_explained, weights

DOCUMENTS = [[1, 3, 1], [5, 0], [2, 4, 6]]


def model(**more: Any) -> ModelConfig:
    return ModelConfig.from_dict(SIZES | {"n_layer": 1} | more)


def pack(documents: list[list[int]]) -> tuple[list[list[int]], list[list[int]]]:
    """Returns one row of ids, and its segments."""
    segments = [i for i, document in enumerate(documents) for _ in document]
    return [[id for document in documents for id in document]], [segments]


def run(config: ModelConfig, ids: list[list[int]], segments: Any = None) -> Tape:
    tape = forward(config, weights(config, 0, 0.5), ids, ids, segments=segments)
    tape.backward(tape.ref("loss"))
    return tape


def check_alone(config: ModelConfig, documents: list[list[int]]) -> None:
    ids, segments = pack(documents)
    packed, at = run(config, ids, segments), 0
    grads: dict[str, Array] = {}
    for document in documents:
        single, here = run(config, [document]), slice(at, at + len(document))
        np.testing.assert_allclose(packed["logits"][0, here], single["logits"][0], rtol=1e-12, atol=1e-12)
        at = here.stop
        for ref in single.parameters():
            part = single[f"d.{ref.name}"] * len(document) / len(ids[0])
            grads[ref.name] = grads.get(ref.name, 0.0) + part
    for name, grad in grads.items():
        size = max(float(np.abs(grad).max()), 1.0)
        np.testing.assert_allclose(packed[f"d.{name}"], grad, atol=1e-12 * size, err_msg=name)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=4), min_size=1, max_size=2),
    st.sampled_from(["rope", "t5", "learned"]),
    st.sampled_from(["causal", "none", {"kind": "window", "size": 3}]),
)
def test_any_documents_are_apart(documents: list[list[int]], positions: str, mask: Any) -> None:
    check_alone(model(positions=positions, mask=mask, n_head=2, d_model=8), documents)


def test_a_segment_is_a_run_of_equal_numbers() -> None:
    ids, _ = pack(DOCUMENTS)
    config = model()
    tapes = [
        run(config, ids, [numbers]) for numbers in ([0, 0, 0, 1, 1, 2, 2, 2], [7, 7, 7, -1, -1, 7, 7, 7])
    ]
    assert np.array_equal(tapes[0]["logits"], tapes[1]["logits"])
    assert tapes[1]["segments"].tolist() == [[0, 0, 0, 1, 1, 2, 2, 2]]


def test_without_segments_a_document_sees_the_one_before_it() -> None:
    ids, segments = pack(DOCUMENTS)
    apart, together = run(model(), ids, segments), run(model(), ids)
    assert np.array_equal(apart["logits"][0, :3], together["logits"][0, :3])
    assert not np.allclose(apart["logits"][0, 3:], together["logits"][0, 3:])


@pytest.mark.rotating
@pytest.mark.parametrize(
    "more",
    [
        {"positions": "learned"},
        {"positions": "t5", "attention": {"kind": "tiled", "tile": 2}},
        {"positions": "alibi", "attention": {"kind": "tiled", "tile": 2}},
        {"positions": "sinusoidal", "attention": "linear_elu"},
        {"mask": "none", "positions": "rope"},
    ],
)
def test_every_cell_is_explained_and_replayed(more: dict[str, Any]) -> None:
    tape = run(model(**more, n_head=2, d_model=4), [[1, 3, 2]], [[0, 0, 1]])
    check_explained(tape)


def test_the_mask_of_two_documents_says_why() -> None:
    trace = Trace(run(model(), [[1, 3, 2]], [[0, 0, 1]]))
    text = str(derive(trace, "mask[0,0,2,1]", depth=1))
    assert "mask_pos" in text and "same" in text and "= 0" in text
    assert "1 if seg" in str(derive(trace, "same_segment[0,0,2,1]", depth=0))


@pytest.mark.parametrize("segments", [[[0, 0]], [0, 0, 1], [[0.0, 0.0, 1.0]]])
def test_segments_that_do_not_number_every_token_are_refused(segments: Any) -> None:
    with pytest.raises(TapeError, match="segments"):
        run(model(), [[1, 3, 2]], segments)


def test_a_cache_continues_one_sequence_and_no_segments() -> None:
    config = model()
    past = cache(run(config, [[1, 3]]), config)
    with pytest.raises(TapeError, match="segments"):
        forward(config, weights(config), [[2]], past=past, segments=[[0]])
