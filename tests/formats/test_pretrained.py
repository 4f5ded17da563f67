"""Weights as a person meets them: short at a prompt, and nothing is read to show them."""

from dataclasses import replace

import numpy as np
import pytest

from pellucid.base.dtypes import Array
from pellucid.formats.pretrained import LazyTensor, LazyWeights
from pellucid.text.kinds import train
from pellucid.text.tokenizer import Special
from tests.formats.gguf import random_models


def unread() -> Array:
    raise AssertionError("it was read")


def test_weights_are_short_at_a_prompt_and_a_table_in_a_notebook() -> None:
    many = LazyWeights({f"blocks.{i}.<b>.weight": LazyTensor((2, 3), unread) for i in range(1000)})
    assert repr(many).startswith(
        "<LazyWeights: 1,000 arrays with 6,000 numbers: blocks.0.<b>.weight [2, 3], "
    )
    assert len(repr(many)) < 300
    html = many._repr_html_()
    assert "blocks.7.&lt;b&gt;.weight" in html and "<b>" not in html and len(html) < 200_000
    assert (
        repr(LazyWeights({"x": LazyTensor((3,), lambda: np.zeros(3))}))
        == "<LazyWeights: 1 array with 3 numbers: x [3]>"
    )


@pytest.mark.parametrize(
    ("special", "wanted"),
    [
        (Special("<s>", "<e>"), "<s>"),
        (Special(None, "<e>"), "<e>"),
        (Special(), "\n"),
    ],
)
def test_a_text_begins_with_bos_or_with_what_separates_documents_or_lines(
    special: Special, wanted: str
) -> None:
    tokenizer = train("characters", ["a\nb"], special=special)
    made = random_models.model(random_models.LLAMA, generation={}, tokenizer=tokenizer)
    assert made.start_id == tokenizer.id_of(wanted) is not None
    assert replace(made, generation={"bos_token_id": 7}).start_id == 7
    assert replace(made, tokenizer=train("words", ["a b"], special=Special())).start_id is None
    assert replace(made, tokenizer=None).start_id is None
