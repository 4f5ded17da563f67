"""Logits, scores and texts of the model that `load` returns."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pellucid
from pellucid.base.errors import ConfigError, TokenError, UsageError
from pellucid.explanation import engines
from pellucid.generation import slots
from pellucid.model import Model
from pellucid.text.kinds import train
from pellucid.text.tokenizer import Special
from pellucid.verification.mismatch import CACHED_AGAINST_FULL
from tests.formats.gguf import random_models

Places = dict[str, Path]
IDS = [3, 1, 4, 1, 5, 9, 2, 6]


def tiny(**more: Any) -> Model:
    return Model(random_models.model(random_models.LLAMA, **more), dtype="float64")


def near(a: torch.Tensor, b: torch.Tensor) -> bool:
    return float((a - b).abs().max()) <= CACHED_AGAINST_FULL * float(b.abs().max())


# ---- logits


def test_one_list_gives_one_row_of_scores_for_each_token() -> None:
    model = tiny()
    logits = model.logits(IDS)
    assert logits.shape == (len(IDS), model.config.vocab_size) and not logits.requires_grad
    wanted = model.trace(IDS).tape["logits"][0]
    assert np.abs(logits.numpy() - wanted).max() < 1e-10


@pytest.mark.parametrize("make", [list, tuple, np.array, torch.tensor, lambda ids: np.array(ids, np.uint16)])
def test_ids_may_be_any_kind_of_list(make: Any) -> None:
    model = tiny()
    assert torch.equal(model.logits(make(IDS)), model.logits(IDS))
    assert torch.equal(model.logits(make([IDS, IDS[::-1]])), model.logits([IDS, IDS[::-1]]))


@pytest.mark.parametrize("kind", ["ours", "learned positions"])
def test_rows_of_different_lengths_are_what_each_is_alone(kind: str, places: Places) -> None:
    model = pellucid.load(places[kind], dtype="float64")
    rows = [IDS, IDS[:3], [7], IDS[::-1]]
    logits = model.logits(rows)
    assert logits.shape == (4, len(IDS), model.config.vocab_size)
    for row, got in zip(rows, logits, strict=True):
        assert near(got[: len(row)], model.logits(row))
        assert got[len(row) :].isnan().all()


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ([], "ids must be whole numbers"),
        ([[]], "ids must be whole numbers"),
        ([[], []], "ids must be whole numbers"),
        ([272], "ids go from 0 to 271; got 272"),
        ([[1, 2], [-1]], "ids go from 0 to 271; got -1"),
        ([0.5, 1.0], "ids must be whole numbers"),
        ([0] * 65, "65 tokens do not fit this model's context of 64"),
        ([[1], 2], "ids must be whole numbers"),
        ([1, [2]], "ids must be whole numbers"),
        ([[[1]]], "ids must be whole numbers"),
        ([None], "ids must be whole numbers"),
        ([True], "ids must be whole numbers"),
        ([0, False], "ids must be whole numbers"),
        (np.array([True]), "ids must be whole numbers"),
        ([[1, 2], []], "at least one in each"),
        ([10**30], "an id is beyond every vocabulary"),
        ([[1], [-(10**5000)]], "an id is beyond every vocabulary"),
    ],
)
def test_ids_that_cannot_be_read_are_refused_in_words(ids: Any, words: str) -> None:
    with pytest.raises(TokenError, match=words):
        tiny().logits(ids)


def test_ids_are_never_rounded() -> None:
    for ask in (tiny().encode, tiny().score):
        for ids in ([0.5], ["1"], [[1]], [None]):
            with pytest.raises(TokenError, match="ids must be whole numbers"):
                ask(ids)
    for ask_several in (tiny().generate, tiny().trace):
        for ids in ([0.5], [None], [[0.5]], [[1], 2], [[[1]]], [True]):
            with pytest.raises(TokenError, match="ids must be whole numbers"):
                ask_several(ids)
    assert tiny().encode(np.array([3, 4], np.uint8)) == tiny().encode(torch.tensor([3, 4])) == [3, 4]


# ---- scores


def test_a_score_is_the_log_probability_of_each_token_given_those_before() -> None:
    model = tiny()
    score = model.score(IDS)
    wanted = torch.log_softmax(model.logits(IDS), -1)
    assert score.ids == IDS and len(score) == len(IDS)
    assert score.logprobs[0] is None
    assert score.logprobs[1:] == pytest.approx([float(wanted[t, id]) for t, id in enumerate(IDS[1:])])
    assert score.total == pytest.approx(sum(found for found in score.logprobs if found is not None))
    assert score.perplexity == pytest.approx(math.exp(-score.total / (len(IDS) - 1)))


def test_a_score_agrees_with_the_specification_s_loss() -> None:
    model = tiny()
    trace = model.trace(IDS[:1], target=IDS[1:])
    assert model.score(IDS).perplexity == pytest.approx(math.exp(trace.tape["loss"]), rel=1e-12)


def test_a_text_is_scored_token_by_token_and_can_be_printed() -> None:
    model = tiny()
    score = model.score("the cat")
    assert score.tokens == [model.token(id) for id in model.encode("the cat")]
    first, *rest = str(score).splitlines()
    assert first.strip() == repr(score.tokens[0]) and len(rest) == len(score) - 1
    assert dict(score)[score.tokens[-1]] == score.logprobs[-1]


def test_a_single_token_has_no_score() -> None:
    score = tiny().score([3])
    assert score.logprobs == [None] and score.total == 0 and math.isnan(score.perplexity)


# ---- texts


def test_a_log_likelihood_is_the_sum_of_the_scores_of_its_tokens() -> None:
    model = pellucid.load("abcd", dtype="float64")
    score = model.score("A B C")
    assert model.loglikelihood("A", " B C") == pytest.approx(score.total, abs=1e-12)
    assert model.loglikelihood("A ", "B C") == model.loglikelihood("A", " B C")
    assert model.loglikelihood("A B", [" C", " D"])[0] == pytest.approx(score.logprobs[-1], abs=1e-12)


@pytest.mark.parametrize("wrong", [None, 7, b"a", [" B", 7]])
def test_a_continuation_is_a_text_or_several(wrong: Any) -> None:
    with pytest.raises(UsageError):
        pellucid.load("abcd").loglikelihood("A", wrong)
    assert pellucid.load("abcd").loglikelihood("A", []) == []


def test_text_goes_on_as_text_and_ids_as_ids() -> None:
    model = tiny(generation={})
    ids = model.generate(model.encode("the cat"), 6)
    assert isinstance(ids, list) and len(ids) == 6
    text = model.generate("the cat", 6)
    assert isinstance(text, str)
    known = [id for id in ids if id < model.tokenizer.vocab_size]
    assert text == model.tokenizer.decode(known)


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_the_stream_s_pieces_are_the_text(temperature: float) -> None:
    model = tiny(generation={})
    pieces = list(model.stream("naïve 日本", 20, temperature, seed=4))
    assert "".join(pieces) == model.generate("naïve 日本", 20, temperature, seed=4)
    assert len(pieces) == 20  # one for each token


def test_the_text_of_greedy_ids_is_the_argmax_of_the_logits() -> None:
    model = tiny(generation={})
    ids = list(IDS)
    for id in model.generate_ids(IDS, 5):
        assert id == int(model.logits(ids)[-1].argmax())
        ids.append(id)


def test_a_text_stops_at_an_end_token_which_is_given_out_but_not_written() -> None:
    free = tiny(generation={}).generate(IDS, 6)
    end = free[2]
    for generation in ({"eos_token_id": end}, {"eos_token_id": [9999, end]}):
        model = tiny(generation=generation)
        assert model.generate(IDS, 6) == free[: free.index(end) + 1]
    model = tiny(generation={})
    prompt = "the cat"
    ids = model.generate(model.encode(prompt), 6)
    stopped = tiny(generation={"eos_token_id": ids[3]})
    before = [id for id in ids[: ids.index(ids[3])] if id < model.tokenizer.vocab_size]
    assert stopped.generate(prompt, 6) == model.tokenizer.decode(before)


def test_where_the_file_names_no_end_the_tokenizer_s_is_taken() -> None:
    model = tiny(generation={})
    assert model.eos_ids == [model.tokenizer.id_of("<|end|>")]
    assert tiny(generation={"eos_token_id": [1, 2]}).eos_ids == [1, 2]
    assert tiny(generation={}, tokenizer=None).eos_ids == []


def test_a_model_that_wants_a_first_token_gets_it() -> None:
    plain, begun = tiny(generation={}), tiny(generation={}, add_bos=True)
    bos = begun.tokenizer.id_of("<|begin|>")
    assert begun.encode("the") == [bos, *plain.encode("the")]
    assert begun.encode([5, 6]) == [5, 6]  # ids are taken as they are
    assert begun.encode("") == [bos]
    assert begun.score("the").ids == begun.trace("the").run["ids"][0] == begun.encode("the")
    assert begun.generate("the", 5) == "".join(
        begun.decode_stream("the", plain.generate(begun.encode("the"), 5))
    )


def test_a_target_gets_no_first_token_of_its_own() -> None:
    model = tiny(add_bos=True)
    run = model.trace("the", target=" cat").run
    assert run["ids"][0] == (model.encode("the") + model.tokenizer.encode(" cat"))[:-1]


def test_an_id_beyond_the_tokenizer_is_written_as_nothing() -> None:
    """Vocabularies are padded to round numbers, and a random model may say such a number."""
    model = tiny(generation={})
    beyond = model.tokenizer.vocab_size
    assert beyond < model.config.vocab_size
    assert "".join(model.decode_stream("a", [*model.encode("b"), beyond, *model.encode("c")])) == "bc"
    assert model.token(beyond) == str(beyond)


def test_a_model_without_a_tokenizer_takes_ids_and_says_so_for_text(places: Places) -> None:
    model = pellucid.load(places["without a tokenizer"])
    assert len(model.generate(IDS, 4)) == 4
    assert model.score(IDS).tokens == [str(id) for id in IDS]
    assert model.trace(IDS).run["tokens"] == [str(id) for id in IDS]
    for ask in (model.generate, model.score, model.trace, model.encode):
        with pytest.raises(TokenError, match=r"token ids, \[1, 2, 3\]"):
            ask("the cat")
    with pytest.raises(TokenError, match="came without a tokenizer"):
        model.trace(IDS, target="the")


def test_a_seed_is_one_text() -> None:
    model = tiny(generation={})
    one, same, other = (model.generate("the", 20, 1.0, seed) for seed in (1, 1, 2))
    assert one == same != other


def test_an_empty_text_starts_from_the_token_that_a_text_begins_with() -> None:
    model = tiny(generation={"eos_token_id": 1})
    bos = model.tokenizer.id_of("<|begin|>")
    assert bos is not None
    assert list(model.generate_ids("", 5)) == model.generate([bos], 5)
    plain = train("words", ["a b"], special=Special())
    for empty, ask in (("", tiny(generation={}, tokenizer=plain).generate), ([], model.generate)):
        with pytest.raises(TokenError, match="the prompt is empty"):
            ask(empty)


def test_changing_the_dtype_changes_only_the_fast_engine(places: Places) -> None:
    wide, narrow = (pellucid.load(places["ours"], dtype=dtype) for dtype in ("float64", "bfloat16"))
    assert not torch.equal(wide.logits(IDS), narrow.logits(IDS).double())
    assert np.array_equal(wide.trace(IDS).tape["logits"], narrow.trace(IDS).tape["logits"])
    assert replace(wide.pretrained, weights={}) == replace(
        narrow.pretrained, weights={}, tokenizer=wide.tokenizer
    )


@pytest.mark.parametrize(("dtype", "bits"), [("float16", 10), ("bfloat16", 7)])
def test_a_weight_of_float64_is_rounded_once_and_not_called_modified(dtype: str, bits: int) -> None:
    wide = pellucid.load("abcd", dtype=dtype)
    just_above = np.full_like(wide.weights["embed.weight"], 1 + 2.0 ** -(bits + 1) + 2.0**-40, np.float64)
    model = wide.replace(weights={**wide.weights, "embed.weight": just_above})
    assert (model.module.embed.weight == 1 + 2.0**-bits).all()
    assert model.modified_weight("embed.weight") is None


def test_an_id_or_a_seed_that_no_machine_word_holds_is_refused_in_words() -> None:
    for ask in (tiny().score, tiny().trace, tiny().generate):
        with pytest.raises(TokenError, match="beyond every vocabulary"):
            ask([1, 10**30])
    with pytest.raises(UsageError, match="seed must be a whole number"):
        tiny().generate([1], temperature=1.0, seed=10**30)


# ---- several prompts


@pytest.mark.parametrize("make", [list, torch.tensor, np.array])
def test_several_lists_of_ids_give_a_list_of_each(make: Any) -> None:
    model, rows = tiny(generation={}), [IDS[:3], IDS[3:6]]
    options: dict[str, Any] = {"max_new_tokens": 7, "temperature": 2.0}
    together = model.generate(make(rows), seed=5, **options)
    assert together == [model.generate(row, seed=5, **options) for row in rows]
    together = model.generate(make(rows), seed=[5, 9], **options)
    assert together == [
        model.generate(row, seed=seed, **options) for row, seed in zip(rows, [5, 9], strict=True)
    ]


def test_several_texts_give_a_list_of_texts_that_do_not_depend_on_each_other() -> None:
    model, prompts = tiny(generation={}), ["the", "a naïve cat", "the"]
    options: dict[str, Any] = {"max_new_tokens": 9, "temperature": 1.5, "seed": 3}
    assert model.generate(prompts, **options) == [model.generate(prompt, **options) for prompt in prompts]
    assert model.generate(["the"], 3) == [model.generate("the", 3)]
    assert model.generate(["the", ""], 3) == [model.generate("the", 3), model.generate("", 3)]


# ---- the cache, special tokens


@pytest.mark.parametrize("cache", ["float32", "bfloat16", "int8", torch.int8, "torch.bfloat16"])
def test_the_cache_may_be_of_a_smaller_type(cache: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[torch.dtype] = []
    kept = slots.Cache

    def noted(*given: Any, dtype: torch.dtype, **more: Any) -> Any:
        made.append(dtype)
        return kept(*given, dtype=dtype, **more)

    monkeypatch.setattr(slots, "Cache", noted)
    model = tiny(generation={})
    assert len(model.generate(IDS, 4, cache=cache)) == 4
    assert "".join(model.stream("the", 4, cache=cache)) == model.generate("the", 4, cache=cache)
    assert {str(dtype).removeprefix("torch.") for dtype in made} == {str(cache).removeprefix("torch.")}
    with pytest.raises(ConfigError, match="int8"):
        model.generate(IDS, 4, cache="int4")


def test_special_tokens_of_a_prompt_are_parsed_only_if_asked() -> None:
    model = tiny(generation={})
    end, prompt = model.tokenizer.id_of("<|end|>"), "the<|end|>cat"
    assert end not in model.encode(prompt) and end in model.encode(prompt, parse_special=True)
    parsed = model.encode(prompt, True)
    assert model.score(prompt, parse_special=True).ids == parsed
    assert list(model.generate_ids(prompt, 5, parse_special=True)) == model.generate(parsed, 5)
    text = model.generate(prompt, 5, parse_special=True)
    assert text == "".join(model.decode_stream(parsed, model.generate(parsed, 5)))
    assert text == "".join(model.stream(prompt, 5, parse_special=True))


# ---- the module


def test_the_module_cannot_be_put_in_another_s_place() -> None:
    model = tiny()
    with pytest.raises(AttributeError, match="module"):
        model.module = torch.nn.Linear(1, 1)  # type: ignore[misc, assignment]


def test_a_module_that_is_compiled_in_place_goes_on(tmp_path: Path) -> None:
    model = tiny(generation={})
    logits, text = model.logits(IDS), model.generate("the", 5)
    model.module.compile(backend="eager")  # the names are what is tested; code is slow to make
    assert near(model.logits(IDS), logits) and model.generate("the", 5) == text
    model.save(tmp_path / "saved")
    assert torch.equal(pellucid.load(tmp_path / "saved", dtype="float64").logits(IDS), logits)


def test_every_view_shows_the_weights_that_the_module_has_now() -> None:
    model, name = tiny(), "blocks.0.attn.q_proj.weight"
    before, old = model.trace(IDS).tape["logits"], np.array(model.weights[name])
    assert model.module and np.array_equal(model.trace(IDS).tape["logits"], before)
    model.module.get_parameter(name).data.mul_(-3)  # behind autograd's back
    assert np.array_equal(model.weights[name], -3 * old)
    spec, fast = (model.trace(IDS, path=path).tape for path in ("reference", "eager"))
    assert not np.allclose(spec["logits"], before)
    assert np.abs(spec["logits"] - fast["logits"]).max() < 1e-10
    assert np.array_equal(model.replace().weights[name], -3 * old)


def test_what_is_no_longer_there_is_reported_by_its_name() -> None:
    model = tiny()
    del model.module.final_norm.weight
    with pytest.raises(UsageError, match=r"final_norm\.weight"):
        model.weights["final_norm.weight"]
    model.module.embed.weight = torch.nn.Parameter(torch.zeros(2, 2))
    with pytest.raises(UsageError, match=r"embed\.weight.*\(2, 2\)"):
        model.weights["embed.weight"]


@pytest.mark.parametrize("text", ["a", "The cat"])
def test_logits_of_a_text_are_those_of_its_ids(text: str) -> None:
    model = tiny()
    assert model.logits(text).equal(model.logits(model.encode(text)))
    assert model.logits([text, text]).equal(model.logits([model.encode(text)] * 2))


def test_a_model_says_what_it_is() -> None:
    model = tiny()
    count = sum(value.size for value in model.weights.values())
    assert repr(model) == f"<Model {model.name}: {count:,} parameters, float64 on cpu>"
    model.module.to(torch.bfloat16)
    assert (model.dtype, model.device) == ("bfloat16", "cpu") and "bfloat16" in repr(model)


def test_the_name_in_a_file_cannot_reach_a_terminal() -> None:
    model = tiny()
    hostile = Model(replace(model.pretrained, name="a\x1b]0;b\x07\n\u202e"))
    assert repr(hostile).startswith(r"<Model a\x1b]0;b\x07\x0a\u202e: ") and repr(hostile).isprintable()


@pytest.mark.parametrize("path", ["eager", "fused"])
def test_a_trace_leaves_the_module_s_gradients_alone(path: str) -> None:
    model = tiny()
    model.module.logits(model.module.hidden_states(torch.tensor([IDS]))).sum().backward()
    held = {name: value.grad for name, value in model.module.named_parameters()}
    kept = {name: None if slope is None else slope.clone() for name, slope in held.items()}
    model.trace(IDS, target=[1], path=path, backward=True)
    for name, value in model.module.named_parameters():
        slope, wanted = value.grad, kept[name]
        assert slope is held[name] and (slope is wanted or torch.equal(slope, wanted))  # type: ignore[arg-type]


def test_a_frozen_module_has_no_gradient_to_show() -> None:
    model = tiny()
    model.module.requires_grad_(False)
    with pytest.raises(UsageError, match="frozen"):
        model.trace(IDS, target=[1], path="eager", backward=True)


def test_gradients_of_a_partly_frozen_module_are_those_that_are_left() -> None:
    model = tiny()
    whole = model.trace(IDS, target=[1], path="eager", backward=True).tape
    model.module.embed.requires_grad_(False)
    part = engines.run(model.module, [IDS], [[1] * len(IDS)], backward=True)
    assert "d.embed.weight" in whole and "d.embed.weight" not in part.values
    assert "d.blocks.0.attn.q_proj.weight" in part.values
