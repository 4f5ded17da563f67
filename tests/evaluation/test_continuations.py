"""The log-likelihood of a continuation is that of the whole text's tokens after the context's."""

import dataclasses
import random
from pathlib import Path
from typing import Any

import pytest
import torch

import pellucid
from pellucid import TokenError, UsageError
from pellucid.config import ModelConfig
from pellucid.evaluation import continuations
from pellucid.evaluation.continuations import encode_pair, score_continuations
from pellucid.formats.pretrained import Pretrained
from pellucid.model import Model
from pellucid.text.kinds import train
from pellucid.text.tokenizer import Special, Tokenizer
from tests.model import folders

CHOICES: dict[str, dict[str, Any]] = {
    "rotary": {"positions": "rope"},
    "learned positions": {"positions": "learned"},
    "a window": {"mask": {"kind": "window", "size": 3}},
    "linear attention": {"attention": "linear_elu"},
}
SEPARATED = Special(bos="<s>", eos="</s>")


def make_model(**changes: Any) -> Model:
    sizes = {"vocab_size": 30, "context_length": 24, "n_layer": 2, "n_head": 2, "d_model": 8}
    config = ModelConfig(**(sizes | changes))
    return Model.from_config(config, seed=1, dtype="float64")


def make_pretrained(tokenizer: Tokenizer | None, add_bos: bool = False) -> Pretrained:
    return dataclasses.replace(make_model().pretrained, tokenizer=tokenizer, add_bos=add_bos)


def make_pairs(count: int, seed: int = 0) -> list[tuple[list[int], list[int]]]:
    """Contexts of 3 to 9 tokens with four continuations of 1 to 6 each."""
    draw = random.Random(seed)
    pairs = []
    for _ in range(count):
        context = [draw.randrange(30) for _ in range(draw.randint(3, 9))]
        pairs += [(context, [draw.randrange(30) for _ in range(draw.randint(1, 6))]) for _ in range(4)]
    return pairs


def compute_whole(model: Model, context: list[int], ids: list[int]) -> list[float]:
    """ln p of each token of the continuation, by one pass over the whole text."""
    found = torch.log_softmax(model.logits(context + ids).double(), -1)
    return [float(found[len(context) - 1 + at, id]) for at, id in enumerate(ids)]


@pytest.mark.parametrize("choices", CHOICES)
def test_a_score_is_that_of_one_pass_over_the_whole_text(choices: str) -> None:
    model, pairs = make_model(**CHOICES[choices]), make_pairs(3)
    for (context, ids), score in zip(pairs, score_continuations(model.module, pairs), strict=True):
        assert score.logprobs == pytest.approx(compute_whole(model, context, ids), abs=1e-12)
        assert score.total == pytest.approx(sum(score.logprobs), abs=1e-12)


def test_a_continuation_is_greedy_where_greedy_decoding_writes_it() -> None:
    model, context = make_model(), [3, 1, 4]
    written = model.generate(context, 5)
    other = [*written[:3], (written[3] + 1) % 30]
    pairs = [(context, written), (context, other), (context, written[:1])]
    assert [score.is_greedy for score in score_continuations(model.module, pairs)] == [True, False, True]


def test_a_score_does_not_depend_on_other_questions() -> None:
    """Bit for bit, in float32 too: a file and a part of it say the same about a question."""
    module = make_model(d_model=64, n_head=4, context_length=120).module.float()
    draw = random.Random(2)
    pairs = [
        ([draw.randrange(30) for _ in range(length)], [draw.randrange(30) for _ in range(count)])
        for length in (9, 50, 3, 33, 32, 70, 1, 5)  # some share a call, and some have their own
        for count in (1, 4, 40)
    ]
    together = list(score_continuations(module, pairs))
    alone = [score for pair in pairs for score in score_continuations(module, [pair])]
    assert together == alone


def test_many_and_long_continuations_are_computed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    model, (context, _) = make_model(), make_pairs(1)[0]
    pairs = [(context, ids) for _, ids in make_pairs(3)]
    wanted = list(score_continuations(model.module, pairs))
    for name, most in {"TOKENS": 3, "CONTINUATIONS": 2, "CONTEXTS": 2, "POSITIONS": 20}.items():
        monkeypatch.setattr(continuations, f"MOST_{name}", most)
    for found, score in zip(score_continuations(model.module, pairs), wanted, strict=True):
        assert found.logprobs == pytest.approx(score.logprobs, abs=1e-12)


def test_a_context_that_is_too_long_loses_its_beginning() -> None:
    model = make_model()
    context, ids = [at % 7 for at in range(40)], [5, 6, 7]
    (score,) = score_continuations(model.module, [(context, ids)])
    fits = 24 + 1 - 3  # the last token is predicted and not read
    assert score.n_dropped == 40 - fits
    (short,) = score_continuations(model.module, [(context[-fits:], ids)])
    assert (short.logprobs, short.n_dropped) == (score.logprobs, 0)


def test_what_cannot_be_scored_is_refused() -> None:
    module = make_model().module
    with pytest.raises(TokenError, match="25 tokens"):
        list(score_continuations(module, [([1], [2] * 25)]))
    with pytest.raises(TokenError):
        list(score_continuations(module, [([], [2])]))
    with pytest.raises(TokenError):
        list(score_continuations(module, [([1], [])]))
    prefix = make_model(mask={"kind": "prefix", "length": 4}).module
    with pytest.raises(UsageError, match="at least 4"):
        list(score_continuations(prefix, [([1, 2], [3])]))
    assert list(score_continuations(prefix, [([1, 2, 3, 4], [3])]))


# ---- the border between context and continuation

BYTES = train("bytes", [], special=SEPARATED)


def encode(text: str) -> list[int]:
    return BYTES.encode(text)


def test_blanks_at_the_end_of_a_context_belong_to_the_continuation() -> None:
    model = make_pretrained(BYTES)
    assert encode_pair(model, "ab", " c") == (encode("ab"), encode(" c"))
    assert encode_pair(model, "ab \n", "c") == (encode("ab"), encode(" \nc"))


def test_the_bos_token_is_in_front_of_the_context_alone() -> None:
    bos = BYTES.id_of("<s>")
    assert encode_pair(make_pretrained(BYTES, add_bos=True), "ab", " c") == (
        [bos, *encode("ab")],
        encode(" c"),
    )


@pytest.mark.parametrize("add_bos", [False, True])
@pytest.mark.parametrize("context", ["", " "])
def test_an_empty_context_is_the_token_that_begins_a_text(context: str, add_bos: bool) -> None:
    found = encode_pair(make_pretrained(BYTES, add_bos), context, "c")
    assert found == ([BYTES.id_of("<s>")], encode(f"{context}c"))


def test_a_context_or_a_continuation_without_a_token_is_refused() -> None:
    with pytest.raises(TokenError, match="empty"):
        encode_pair(make_pretrained(train("bytes", [], special=Special())), "", "c")
    with pytest.raises(TokenError, match="tokenizer"):
        encode_pair(make_pretrained(None), "a", "c")
    with pytest.raises(TokenError):
        encode_pair(make_pretrained(BYTES), "a", "")


def test_a_continuation_inside_the_last_token_of_its_context_is_refused() -> None:
    """ "t" and "the" are one token each."""
    tokenizer = train("bpe", ["the the the"], vocab_size=300)
    assert len(tokenizer.encode("t")) == len(tokenizer.encode("the")) == 1
    with pytest.raises(TokenError, match="context's last token"):
        encode_pair(make_pretrained(tokenizer), "t", "he")


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_log_likelihood_is_that_of_transformers(family: str, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = pellucid.load(folders.huggingface(tmp_path, family))
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path)
    pairs = [encode_pair(model.pretrained, "the thing in", text) for text in (" the tin", " a bath", "ner")]
    for (context, ids), score in zip(pairs, score_continuations(model.module, pairs), strict=True):
        with torch.no_grad():
            logits = theirs(torch.tensor([context + ids])).logits[0, len(context) - 1 : -1]
        found = torch.log_softmax(logits.double(), -1)[torch.arange(len(ids)), torch.tensor(ids)]
        assert score.total == pytest.approx(float(found.sum()), abs=1e-4)
