"""Greedy text is that of `transformers`, token for token, through the whole of either program."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pellucid
from tests.formats.huggingface.models import CONTEXT, FAMILIES, random_model
from tests.golden.make_huggingface import float64_throughout

COUNT, LONGEST = 64, 12


def theirs(model: Any, ids: list[int], count: int) -> list[int]:
    """The text of their own loop with their own cache, in float64 throughout; the model is built anew, for
    its tables are made when it is built. Of a window of 1 their cache keeps `[-1 + 1 :]`, all and not none,
    so there they go without."""
    import torch

    cached = getattr(model.config, "sliding_window", None) != 1
    with float64_throughout():
        twin = type(model)(model.config).double().eval()
        twin.load_state_dict(model.state_dict())
        written = twin.generate(
            torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids)),
            max_new_tokens=count,
            do_sample=False,
            use_cache=cached,
        )
    return list(written[0, len(ids) :].tolist())


def compare(folder: Path, family: str, seed: int, **changes: Any) -> list[int]:
    """Both programs on a random model and a random prompt; the text on which they agree."""
    room = {CONTEXT[family]: COUNT + LONGEST}
    model, writer = random_model(family, seed, **(room | {"eos_token_id": None} | changes))
    ours = pellucid.load(writer(folder), dtype="float64")
    random = np.random.default_rng(seed)
    ids = random.integers(0, ours.config.vocab_size, random.integers(1, LONGEST + 1)).tolist()
    wanted = theirs(model, ids, COUNT)
    assert ours.generate(ids, COUNT) == wanted
    return wanted


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_text_is_that_of_transformers(tmp_path: Path, family: str) -> None:
    assert len(compare(tmp_path, family, 0)) == COUNT


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(100, 140))
@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_text_of_many_models_is_that_of_transformers(tmp_path: Path, family: str, seed: int) -> None:
    assert len(compare(tmp_path, family, seed)) == COUNT


@pytest.mark.parametrize("family", FAMILIES)
def test_a_text_ends_where_theirs_ends(tmp_path: Path, family: str) -> None:
    """With half of the vocabulary as ends, it is over soon."""
    changes = {"vocab_size": 20, "eos_token_id": list(range(0, 20, 2))}
    texts = [compare(tmp_path / str(seed), family, seed, **changes) for seed in range(3)]
    assert all(text[-1] % 2 == 0 and all(id % 2 for id in text[:-1]) for text in texts if len(text) < COUNT)
    assert min(map(len, texts)) < COUNT
