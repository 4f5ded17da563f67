"""Text from a model: what the loop writes is what reading everything again would say."""

import inspect
from typing import Any

import pytest
import torch

from pellucid.errors import TokenError, UsageError
from pellucid.generation import loop
from pellucid.generation.loop import finish_reason, generate, prefill
from pellucid.judge.mismatch import CACHED_AGAINST_FULL, find_mismatch
from pellucid.model.cache import Cache
from tests.agreement.engines import CACHED, CHOICES, array, fast

ROPE = CHOICES["positions/rope"]
PROMPTS = [[1, 3, 1], [5], [0, 2, 4, 4, 6]]


def texts(*given: Any, **options: Any) -> list[list[int]]:
    """The tokens of each prompt's text, without the places where it had ended."""
    steps = list(generate(*given, **options))
    return [[token for token in row if token is not None] for row in zip(*steps, strict=True)]


def argmaxes(model: Any, prompt: list[int], count: int) -> list[int]:
    """Greedy text by reading everything again for each token."""
    ids = list(prompt)
    with torch.no_grad():
        for _ in range(min(count, model.config.context_length - len(prompt))):
            ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
    return ids[len(prompt) :]


@pytest.mark.parametrize("name", CACHED)
def test_greedy_text_is_the_argmax_of_full_forwards(name: str) -> None:
    model = fast(CACHED[name], seed=3)
    wanted = [argmaxes(model, prompt, 8) for prompt in PROMPTS]
    assert texts(model, PROMPTS, max_new_tokens=8) == wanted
    assert [texts(model, [prompt], max_new_tokens=8)[0] for prompt in PROMPTS] == wanted


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0], [1, 1, 1, 0], [0]])
@pytest.mark.parametrize("temperature", [0.7, 3.0])
def test_the_text_of_a_seed_does_not_depend_on_its_neighbours(order: list[int], temperature: float) -> None:
    model = fast(ROPE)
    options: dict[str, Any] = {"max_new_tokens": 6, "temperature": temperature, "seed": 7, "stop": {2}}
    alone = [texts(model, [prompt], **options)[0] for prompt in PROMPTS]
    assert texts(model, [PROMPTS[row] for row in order], **options) == [alone[row] for row in order]


def test_each_prompt_may_have_a_seed_of_its_own() -> None:
    model, options = fast(ROPE), {"max_new_tokens": 6, "temperature": 3.0}
    alone = [texts(model, [p], seed=i, **options)[0] for i, p in enumerate(PROMPTS)]
    assert texts(model, PROMPTS, seed=range(3), **options) == alone
    same = texts(model, [[1]] * 4, seed=[5, 6, 5, 6], **options)
    assert same[0] == same[2] != same[1] == same[3]


def test_a_seed_means_one_text_and_no_seed_means_any() -> None:
    model, options = fast(ROPE), {"max_new_tokens": 5, "temperature": 5.0}
    one, same, other = (texts(model, PROMPTS, seed=seed, **options) for seed in (1, 1, 2))
    assert one == same != other
    assert len({str(texts(model, PROMPTS, **options)) for _ in range(8)}) > 1


def test_a_text_ends_with_the_stop_token_that_is_given_out() -> None:
    model = fast(ROPE, seed=3)
    free = texts(model, PROMPTS, max_new_tokens=7)
    stop = free[1][1]
    steps = list(generate(model, PROMPTS, max_new_tokens=7, stop=[stop]))
    for row, text in enumerate(free):
        end = text.index(stop) + 1 if stop in text else len(text)
        assert [step[row] for step in steps] == text[:end] + [None] * (len(steps) - end)


def test_the_loop_ends_when_every_text_has_ended() -> None:
    model = fast(ROPE, seed=3)
    first = texts(model, [[1]], max_new_tokens=1)[0][0]
    assert list(generate(model, [[1], [1]], max_new_tokens=7, stop=[first])) == [[first, first]]


def test_a_text_ends_where_the_context_is_full() -> None:
    """Prompt and text together have the context's length, also where the prompt alone fills it."""
    model, prompts = fast(ROPE), [[1] * 6, [2] * 8, [3] * 3]
    written = texts(model, prompts, max_new_tokens=100)
    assert list(map(len, written)) == [2, 0, 5]
    assert written == [argmaxes(model, prompt, 100) for prompt in prompts]
    assert list(generate(model, [[2] * 8], max_new_tokens=1)) == []


def slid(model: Any, prompt: list[int], count: int) -> list[int]:
    """Greedy text by full forward passes over a window that is cropped to its last half when it is full."""
    room, half = model.config.context_length, max(model.config.context_length // 2, 1)
    window, written = list(prompt), list[int]()
    with torch.no_grad():
        for _ in range(count):
            window = window[-half:] if len(window) > room else window
            written.append(int(model(torch.tensor([window]))[0, -1].argmax()))
            window.append(written[-1])
    return written


@pytest.mark.rotating
@pytest.mark.parametrize("name", CACHED)
def test_past_the_context_a_text_is_that_of_full_forwards_over_its_last_half(name: str) -> None:
    model = fast(CACHED[name], seed=3)
    room = model.config.context_length
    prompts = [[1, 3, 1], [5] * room, [0, 2, 4, 4, 6], [1, 2, 3, 4] * room]
    wanted = [slid(model, prompt, 3 * room) for prompt in prompts]
    assert texts(model, prompts, max_new_tokens=3 * room, past_context=True) == wanted
    assert texts(model, prompts[:1], max_new_tokens=3 * room, past_context=True) == wanted[:1]


def test_past_the_context_a_text_still_ends_with_a_stop_token() -> None:
    model = fast(ROPE, seed=3)
    free = texts(model, PROMPTS, max_new_tokens=40, past_context=True)
    stop = [free[0][20]]
    ended = texts(model, PROMPTS, max_new_tokens=40, past_context=True, stop=stop)
    for text, whole in zip(ended, free, strict=True):
        assert text == (whole[: whole.index(stop[0]) + 1] if stop[0] in whole else whole)


def test_asking_for_more_than_the_context_allocates_no_more_than_the_context() -> None:
    assert len(texts(fast(ROPE), [[1]], max_new_tokens=10**12)[0]) == 7
    forever = generate(fast(ROPE), [[1]], max_new_tokens=10**12, past_context=True)
    assert len([next(forever) for _ in range(20)]) == 20


@pytest.mark.parametrize(
    ("ids", "asked", "reason"),
    [([1, 9], 5, "stop"), ([1, 9], 2, "stop"), ([1, 2], 2, "length"), ([1], 2, "context"), ([], 0, "length")],
)
def test_a_text_says_why_it_ended(ids: list[int], asked: int, reason: str) -> None:
    assert finish_reason(ids, asked, {9}) == reason


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        *[("max_new_tokens", value) for value in (1.5, "5", None, True, -1, [5], 10**30)],
        *[("temperature", value) for value in ("a", None, True, -1, 10**400)],
        *[("seed", value) for value in ("x", 1.5, True, b"x", [1.5], 2**63)],
        *[("past_context", value) for value in (1, None, "yes")],
    ],
)
def test_a_wrong_argument_is_refused_by_name_before_anything_runs(parameter: str, value: Any) -> None:
    with pytest.raises(UsageError, match=rf"^{parameter} must be "):
        generate(fast(ROPE), [[1]], **{"max_new_tokens": 2, parameter: value})


def test_no_new_tokens_is_an_empty_text() -> None:
    assert list(generate(fast(ROPE), PROMPTS, max_new_tokens=0)) == []


def test_tokens_are_given_out_one_step_at_a_time() -> None:
    model, blocks = fast(ROPE), list[int]()
    model.blocks[0].register_forward_pre_hook(lambda *_: blocks.append(1))
    steps = generate(model, [[1, 2]], max_new_tokens=4)
    assert inspect.isgenerator(steps) and blocks == []
    for count in (1, 2, 3, 4):
        assert len(next(steps)) == 1 and len(blocks) == count
    assert list(steps) == [] and len(blocks) == 4


def test_between_two_tokens_the_caller_is_in_its_own_mode() -> None:
    """Somebody who streams may train or record between two tokens."""
    model = fast(ROPE)
    one = generate(model, [[1]], max_new_tokens=4)
    two = generate(model, [[2]], max_new_tokens=4)
    next(one), next(two), next(one)
    assert not torch.is_inference_mode_enabled() and torch.is_grad_enabled()
    one.close()
    model(torch.tensor([[1]])).sum().backward()
    assert len(list(two)) == 3 and not torch.is_inference_mode_enabled()


@pytest.mark.rotating
@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 512])
@pytest.mark.parametrize("name", CACHED)
def test_a_prompt_is_read_in_chunks_of_any_size(chunk: int, name: str) -> None:
    model = fast(CACHED[name])
    cache = Cache(model.config, len(PROMPTS), 8, dtype=torch.float64)
    with torch.no_grad():
        scores = prefill(model, PROMPTS, cache, chunk)
        for row, prompt in enumerate(PROMPTS):
            wanted = model(torch.tensor([prompt]))[0, -1]
            assert find_mismatch("logits", array(scores[row, 0]), array(wanted), CACHED_AGAINST_FULL) is None
    assert cache.lengths.tolist() == list(map(len, PROMPTS))


def test_a_long_prompt_s_text_does_not_depend_on_the_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fast(ROPE)
    whole = texts(model, PROMPTS, max_new_tokens=3)
    monkeypatch.setattr(loop.prefill, "__defaults__", (2,))
    assert texts(model, PROMPTS, max_new_tokens=3) == whole


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
def test_a_smaller_cache_writes_text_of_the_right_shape(dtype: torch.dtype) -> None:
    written = texts(fast(ROPE), PROMPTS, max_new_tokens=3, cache_dtype=dtype)
    assert list(map(len, written)) == [3, 3, 3]


@pytest.mark.parametrize(
    ("prompts", "options", "error", "words"),
    [
        ([], {}, TokenError, "a prompt is empty"),
        ([[1], []], {}, TokenError, "a prompt is empty; give at least one token"),
        ([[0] * 9], {}, TokenError, "9 tokens do not fit this model's context of 8; shorten the prompt"),
        ([[7]], {}, TokenError, "ids go from 0 to 6; got 7"),
        ([[1], [-1, 2]], {}, TokenError, "ids go from 0 to 6; got -1"),
        ([[1]], {"max_new_tokens": -1}, UsageError, "max_new_tokens must be a whole number ≥ 0, not -1"),
        ([[1], [2, 10**30]], {}, TokenError, "ids go from 0 to 6"),
        ([[-(10**5000)]], {}, TokenError, "ids go from 0 to 6"),
        ([[1]], {"seed": 2**63}, UsageError, "seed must be a whole number"),
        ([[1]], {"seed": -(10**5000)}, UsageError, "seed must be a whole number"),
        ([[1]], {"seed": 1.5}, UsageError, "seed must be a whole number"),
        ([[1], [2]], {"seed": [1]}, UsageError, "1 seeds for 2 prompts"),
        ([[1]], {"temperature": -0.5}, UsageError, "temperature must be a finite number ≥ 0"),
        ([[1]], {"temperature": float("nan")}, UsageError, "temperature must be a finite number ≥ 0"),
    ],
)
def test_what_cannot_be_written_is_refused_in_words(
    prompts: list[list[int]], options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        next(generate(fast(ROPE), prompts, **{"max_new_tokens": 2, **options}))


def test_a_model_that_sees_ahead_says_why_it_cannot_write() -> None:
    with pytest.raises(UsageError, match="with the mask 'none'"):
        next(generate(fast(CHOICES["mask/none"]), [[1]], max_new_tokens=1))


def test_prompts_may_be_any_sequences() -> None:
    model = fast(ROPE)
    assert texts(model, (range(3),), max_new_tokens=2) == texts(model, [[0, 1, 2]], max_new_tokens=2)
