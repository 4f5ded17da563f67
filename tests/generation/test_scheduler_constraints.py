"""Constrained requests through the engine: whatever the model and the settings, the output parses."""

import json
import re
from functools import cache
from typing import Any

import pytest
import torch

from pellucid.base.errors import UsageError
from pellucid.config import ModelConfig
from pellucid.data.generated.stories import parse
from pellucid.engine.transformer import Transformer
from pellucid.generation.request import Completion, Request
from pellucid.generation.scheduler import Engine
from pellucid.generation.settings.sampling import Sampling
from pellucid.text.tokenizer import Tokenizer
from pellucid.text.word_level import WordTokenizer
from tests.agreement.engines import SIZES, fast
from tests.generation.constraints.walks import TOKENIZERS

SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}},
    "required": ["n", "tags"],
}
PATTERN = r"[a-z]+(, [a-z]+)* and \d{2,}"
SETTINGS: list[dict[str, Any]] = [
    {},
    {"temperature": 1.5, "seed": 1, "n": 2},
    {"temperature": 1.0, "seed": 2, "top_k": 1, "repetition_penalty": 1.5},
    {"beams": 2},
]
KINDS = {
    "regex": (PATTERN, "bpe", lambda text: re.fullmatch(PATTERN, text)),
    "json_schema": (json.dumps(SCHEMA), "characters", lambda text: json.loads(text).keys() == {"n", "tags"}),
    "grammar": ("stories:tiny", "stories", lambda text: parse("tiny", text)),
}


@cache
def make_model(vocab_size: int, seed: int = 0) -> Transformer:
    """A model with random weights, and more rows than its tokenizer has tokens."""
    sizes = {**SIZES, "vocab_size": vocab_size + 2, "context_length": 96, "n_layer": 1}
    return fast(ModelConfig(**sizes), seed, dtype=torch.float32)  # type: ignore[arg-type]


def run(tokenizer: Tokenizer, stop: bool, sampling: Sampling, **options: Any) -> list[Completion]:
    end = tokenizer.id_of("<end>")
    stop_ids = [end] if stop and end is not None else []
    engine = Engine(make_model(tokenizer.vocab_size), tokenizer, stop_ids=stop_ids, slots=2, **options)
    return engine.add(Request((1, 3), sampling)).result()


@pytest.mark.rotating
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("stop", [True, False], ids=["stop", "endless"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_output_of_the_engine_parses(kind: str, stop: bool, settings: dict[str, Any]) -> None:
    spec, tokens, is_valid = KINDS[kind]
    tokenizer = TOKENIZERS[tokens]()
    for limit in (33,) if settings else (33, None):
        sampling = Sampling(**{kind: spec}, max_new_tokens=limit, **settings)
        for completion in run(tokenizer, stop, sampling):
            assert is_valid(completion.text), completion
            assert completion.finish in ("stop", "length")


def test_speculation_does_not_change_a_constrained_text() -> None:
    tokenizer = TOKENIZERS["stories"]()
    for settings in SETTINGS[:3]:
        sampling = Sampling(grammar="stories:tiny", **settings)
        alone = run(tokenizer, True, sampling)
        draft = make_model(tokenizer.vocab_size, seed=1)
        for options in ({"lookup": True}, {"draft": draft, "draft_tokens": 3}):
            assert [one.ids for one in run(tokenizer, True, sampling, **options)] == [
                one.ids for one in alone
            ]


def test_a_model_without_stop_tokens_ends_where_nothing_can_follow() -> None:
    [found] = run(TOKENIZERS["characters"](), False, Sampling(regex="a(bc|d)e", max_new_tokens=9))
    assert re.fullmatch("a(bc|d)e", found.text)
    assert found.finish == "stop"


def test_a_stream_of_a_constrained_text_is_its_text() -> None:
    tokenizer = TOKENIZERS["bpe"]()
    engine = Engine(make_model(tokenizer.vocab_size), tokenizer)
    handle = engine.add(Request((5,), Sampling(regex="(é|日|x){5}y", max_new_tokens=20)))
    streamed = "".join(token.text for token in handle)
    assert streamed == handle.result()[0].text
    assert re.fullmatch("(é|日|x){5}y", streamed)


def test_the_text_of_words_does_not_begin_with_the_space_after_the_prompt() -> None:
    tokenizer = WordTokenizer(("A", "B", "C", "D"))
    engine = Engine(make_model(4), tokenizer)
    [found] = engine.add(Request((0, 1), Sampling(regex="[CD]( [AB])+", max_new_tokens=4))).result()
    assert re.fullmatch("[CD]( [AB])+", found.text)


def test_too_little_room_is_refused_before_anything_runs() -> None:
    tokenizer = TOKENIZERS["characters"]()
    engine = Engine(make_model(tokenizer.vocab_size), tokenizer)
    with pytest.raises(UsageError, match="use 95 or more"):
        engine.add(Request((1, 3), Sampling(regex="a{95}")))  # 94 tokens fit
    assert engine.add(Request((1, 3), Sampling(regex="a{94}"))).result()[0].text == "a" * 94
    with pytest.raises(UsageError, match="tokenizer"):
        Engine(make_model(4)).add(Request((1,), Sampling(regex="a")))


def test_the_ledger_says_what_the_constraint_removed() -> None:
    tokenizer = TOKENIZERS["characters"]()
    engine = Engine(make_model(tokenizer.vocab_size), tokenizer)
    handle = engine.add(Request((1, 3), Sampling(regex="[ab]{3}", max_new_tokens=9), ledger=True))
    for entry in handle.result()[0].entries:
        assert [removal.sampler for removal in entry.removed] == ["constraint"]
        assert entry.kept == 2
