"""The unembeddings by hand, on the teaching model."""

import dataclasses

import pytest

import pellucid
from pellucid.parts.unembeddings import TiedUnembedding

# linear: An unembedding of its own, on the numbers of the teaching model.


def test_linear_unembedding_compares_with_its_own_directions() -> None:
    """(.19557, .80443) times W_U = [[1, 0, 0, 1], [0, 1, 1, 0]]."""
    logits = pellucid.load("abcd").trace("A B").tape["logits"][0, 1]
    assert logits == pytest.approx([0.19557, 0.80443, 0.80443, 0.19557], abs=5e-6)


# tied: A tied unembedding reads with the embedding, and the embedding learns from both ends.


def tied() -> pellucid.Model:
    model = pellucid.load("abcd")
    weights = {name: value for name, value in model.weights.items() if name != "unembed.weight"}
    config = dataclasses.replace(model.config, unembedding=TiedUnembedding())
    return model.replace(config=config, weights=weights)


def test_tied_unembedding_compares_with_the_embedding() -> None:
    """(.19557, .80443) with A(1,0) B(0,1) C(1,1) D(1,−1)."""
    logits = tied().trace("A B").tape["logits"][0, 1]
    assert logits == pytest.approx([0.19557, 0.80443, 1.0, -0.60886], abs=5e-6)


def test_tied_embedding_gets_both_parts_of_its_gradient() -> None:
    tape = tied().trace("A B", target="C", backward=True).tape
    parts = tape["d.embed.weight.via.embedded"] + tape["d.embed.weight.via.logits"]
    assert tape["d.embed.weight"] == pytest.approx(parts)
    assert tape["d.embed.weight.via.logits"][2].any(), "C is never read, only wanted"
    assert not tape["d.embed.weight.via.embedded"][2].any()
