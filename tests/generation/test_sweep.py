"""A sweep gives the texts that each setting gives by itself, with statistics that can be checked by hand."""

import math
from typing import Any

import pytest

from pellucid.base.errors import UsageError
from pellucid.data.generated.stories import story
from pellucid.data.sources.generated import spaced_words
from pellucid.generation.request import Completion
from pellucid.generation.sweep import SweepRow, accepted_share, combine, find_level, parse_sweep, sweep
from pellucid.model import Model
from tests.formats.gguf import random_models


@pytest.fixture(scope="module")
def model() -> Model:
    return Model(random_models.model(random_models.LLAMA, generation={}))


def test_each_text_is_the_one_of_its_settings_alone(model: Model) -> None:
    result = sweep(model, "the cat", {"temperature": [0, 1.5], "top_k": [0, 3]}, max_new_tokens=6, seed=5)
    assert [dict(row.settings) for row in result.rows] == [
        {"temperature": t, "top_k": k} for t in (0, 1.5) for k in (0, 3)
    ]
    for row in result.rows:
        alone = model.generate("the cat", 6, seed=5, **row.settings)  # type: ignore[arg-type]
        assert row.text == alone
    scored = model.score(model.encode("the cat") + list(result.rows[0].completions[0].ids))
    new = [value for value in scored.logprobs[-6:] if value is not None]
    assert result.rows[0].mean_surprisal == pytest.approx(-math.fsum(new) / 6, rel=1e-5)
    assert result.grammar is None and result.rows[0].accepted is None


def test_every_row_has_the_same_seed_also_where_none_is_given(model: Model) -> None:
    result = sweep(model, "the", {"temperature": [1.5, 1.5]}, max_new_tokens=6, n=2)
    first, second = result.rows
    assert first.completions == second.completions and len(first.completions) == 2
    assert result.to_data()["rows"][0]["texts"][0] == first.text


def test_the_statistics_are_those_of_the_tokens() -> None:
    done = Completion(0, (1, 2, 1, 2, 1, 2, 1, 9), "", "stop", (-1.0, -3.0))
    row = SweepRow({}, (done,), frozenset({9}))
    assert row.mean_surprisal == 2
    assert row.distinct_2_grams == 2 / 6  # 12, 21 of six pairs
    assert row.repeated_4_grams == 2 / 4  # 1212 and 2121, each once again
    empty = SweepRow({}, (Completion(0, (9,), "", "stop"),), frozenset({9}))
    assert empty.mean_surprisal is empty.distinct_2_grams is empty.repeated_4_grams is None


def test_sentences_are_judged_by_the_stories_of_the_level() -> None:
    text = story("easy", 1, 3).text
    cut = text.index(". ") + 1
    assert accepted_share("easy", "", [text]) == accepted_share("easy", text[:cut], [text[cut:]]) == 1
    assert accepted_share("easy", "", [text[:cut] + " Bang. Bang. Bang."]) == 1 / 4
    assert accepted_share("easy", text[:10], [text[10:20]]) is None


def test_a_model_of_the_stories_is_known_by_its_words(model: Model) -> None:
    assert find_level(model) is None
    words = spaced_words("easy")
    shape = random_models.LLAMA | {"vocab_size": words.vocab_size}
    trained = Model(random_models.model(shape, tokenizer=words, generation={"eos_token_id": 0}))
    assert find_level(trained) == "easy"
    result = sweep(trained, "Long ago,", {"temperature": [0]}, max_new_tokens=20)
    assert result.grammar == "easy"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("temperature=0.5,0.8,2", ("temperature", [0.5, 0.8, 2.0])),
        ("top-k=1,40", ("top_k", [1, 40])),
        ('stop=[["a,b"], ["c"]]', ("stop", [("a,b",), ("c",)])),
        ("context=refuse,crop", ("context", ["refuse", "crop"])),
    ],
)
def test_a_sweep_is_read_from_a_command_line(text: str, wanted: Any) -> None:
    assert parse_sweep(text) == wanted


@pytest.mark.parametrize(
    "text", ["temperature", "temperature=", "temprature=1", "top_k=a", "stop=[x", "top_p=2"]
)
def test_what_is_not_a_sweep_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_sweep(text)


@pytest.mark.parametrize("values", [{}, {"x": [1]}, {"top_k": []}, {"top_k": 3}, {"top_k": list(range(65))}])
def test_impossible_values_are_refused(values: Any) -> None:
    with pytest.raises(UsageError):
        combine(values)
