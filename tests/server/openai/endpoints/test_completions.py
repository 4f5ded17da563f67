"""`/v1/completions` asks the engine what the request says, and answers in OpenAI's form."""

import dataclasses
from typing import Any

import pytest

from pellucid.generation.answers.lines import End, GenerateRequest, Piece, ScoredToken
from pellucid.server.http.limits import RequestError
from pellucid.server.openai.answers import plan as answer_plan
from pellucid.server.openai.endpoints.completions import find_given, spell_prompt
from pellucid.server.openai.metrics import EngineLoad
from tests.evaluation.small_models import bpe
from tests.server.scripted_engine import Called, Reply, Script, ScriptedEngine, get_pretrained, say

PATH = "/v1/completions"
TOKENIZER = bpe()


def ask(script: Script | None = None, **body: Any) -> tuple[Reply, list[GenerateRequest]]:
    engine = ScriptedEngine(lambda request: script or Script(say(" cat", " sat")))
    return Called(engine).ask(PATH, **({"prompt": "the"} | body)), engine.asked


def test_a_whole_answer_has_openais_form() -> None:
    reply, asked = ask(seed=7)
    found = reply.json
    assert reply.status == 200 and reply.headers["content-type"] == "application/json"
    assert found.pop("id").startswith("cmpl-") and found.pop("created") > 1_700_000_000
    assert found.pop("system_fingerprint").startswith("pellucid-")
    assert found == {
        "object": "text_completion",
        "model": "model",
        "seed": 7,
        "choices": [{"index": 0, "text": " cat sat", "logprobs": None, "finish_reason": "stop", "seed": 7}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    }
    assert asked == [GenerateRequest((261,), {"temperature": 1.0, "max_new_tokens": 16, "seed": 7})]


@pytest.mark.parametrize(
    ("prompt", "ids"),
    [
        ("the", [(261,)]),
        (["the", "the the"], [(261,), (261, 290)]),
        ([5, 6], [(5, 6)]),
        ([[5, 6], [7]], [(5, 6), (7,)]),
        ("", [(0,)]),
    ],
)
def test_a_prompt_is_a_text_or_ids_or_several_of_either(prompt: Any, ids: Any) -> None:
    reply, asked = ask(prompt=prompt)
    assert reply.status == 200 and [request.prompt for request in asked] == ids
    assert reply.json["usage"]["prompt_tokens"] == sum(map(len, ids))


def test_choices_are_numbered_prompt_by_prompt() -> None:
    def write(request: GenerateRequest) -> Script:
        first = request.prompt[0]
        return Script([[Piece(0, choice, f"{first}.{choice}", 1, None, "length") for choice in (2, 0, 1)]])

    engine = ScriptedEngine(write)
    found = Called(engine).ask(PATH, prompt=[[5], [6]], n=3).json["choices"]
    assert [choice["index"] for choice in found] == list(range(6))
    assert [choice["text"] for choice in found] == ["5.0", "5.1", "5.2", "6.0", "6.1", "6.2"]
    assert [request.sampling["n"] for request in engine.asked] == [3, 3]


def test_an_answer_of_too_many_numbers_is_refused_before_the_engine_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answer_plan, "MOST_LOGPROBS", 1000)
    reply, asked = ask(prompt=[[5] * 10] * 3, n=2, logprobs=20, echo=True, max_tokens=0)
    assert reply.status == 400 and reply.json["error"]["param"] == "logprobs" and not asked


def test_more_prompts_than_can_ever_run_or_wait_are_refused_at_once() -> None:
    engine = ScriptedEngine(lambda request: Script(say("a")))
    engine.load = EngineLoad(slots=2, most_requests=3)
    assert Called(engine).ask(PATH, prompt=["a"] * 3).status == 200
    reply = Called(engine).ask(PATH, prompt=["a"] * 4)
    assert (reply.status, reply.json["error"]["param"]) == (400, "prompt") and len(engine.asked) == 3


def test_each_prompt_has_a_fresh_seed_unless_one_is_given() -> None:
    reply, asked = ask(prompt=["a", "b"])
    seeds = [request.sampling["seed"] for request in asked]
    assert seeds[0] != seeds[1] and "seed" not in reply.json and all(0 <= seed < 2**53 for seed in seeds)
    assert [choice["seed"] for choice in reply.json["choices"]] == seeds
    reply, asked = ask(prompt=["a", "b"], seed=-3)
    assert [request.sampling["seed"] for request in asked] == [-3, -3] and reply.json["seed"] == -3


def test_the_models_own_settings_hold_where_the_request_says_nothing() -> None:
    engine = ScriptedEngine(lambda request: Script(say("a")))
    pretrained = dataclasses.replace(get_pretrained(), generation={"temperature": 0.6, "top_k": 40})
    Called(engine, pretrained).ask(PATH, prompt="a", top_k=0, stop=["x", "y"], logit_bias={"5": -1})
    expected = {"temperature": 0.6, "max_new_tokens": 16, "stop": ["x", "y"], "logit_bias": {"5": -1.0}}
    assert {**engine.asked[0].sampling, "seed": 0} == {**expected, "seed": 0}


# ---- echo and log-probabilities


def test_an_echo_is_the_prompt_as_it_was_given() -> None:
    assert ask(prompt="the", echo=True)[0].json["choices"][0]["text"] == "the cat sat"
    assert ask(prompt=[261], echo=True)[0].json["choices"][0]["text"] == "the cat sat"
    assert ask(prompt=["a", "b"], echo=True)[0].json["choices"][1]["text"] == "b cat sat"


def test_an_echo_with_log_probabilities_lists_the_prompt_too() -> None:
    ids = TOKENIZER.encode("the cat")
    prompt = tuple(ScoredToken(id, i * 3, -1.0 * i if i else None) for i, id in enumerate(ids))
    new = ScoredToken(5, 0, -0.25, ((5, -0.25), (6, -3.0)))
    script = Script([[Piece(0, 0, "!", 1, (new,), "length")]], prompt)
    reply, asked = ask(script, prompt="the cat", echo=True, logprobs=2, max_tokens=1)
    choice = reply.json["choices"][0]
    texts = [TOKENIZER.decode([id]) for id in (*ids, 5)]
    assert asked[0].prompt_logprobs and asked[0].top_logprobs == 2
    assert choice["text"] == "the cat!"
    assert choice["logprobs"]["tokens"] == texts
    assert choice["logprobs"]["token_logprobs"] == [None, *(-1.0 * i for i in range(1, len(ids))), -0.25]
    assert choice["logprobs"]["text_offset"] == [*(i * 3 for i in range(len(ids))), 7]
    assert choice["logprobs"]["top_logprobs"][-1] == {texts[-1]: -0.25, TOKENIZER.decode([6]): -3.0}


def test_offsets_count_from_the_start_of_the_prompt_without_an_echo_too() -> None:
    script = Script([[Piece(0, 0, "!", 1, (ScoredToken(5, 0, -1.0),), "stop")]])
    reply, asked = ask(script, prompt="the cat", logprobs=0)
    assert reply.json["choices"][0]["logprobs"]["text_offset"] == [7]
    assert asked[0].top_logprobs == 0 and not asked[0].prompt_logprobs


def test_a_prompt_may_be_scored_without_a_new_token() -> None:
    prompt = (ScoredToken(261, 0), ScoredToken(263, 3, -2.0))
    script = Script([[Piece(0, 0, "", 0, None, "length")]], prompt)
    choice = ask(script, prompt="the cat", echo=True, logprobs=0, max_tokens=0)[0].json["choices"][0]
    assert choice["text"] == "the cat" and choice["finish_reason"] == "length"
    assert choice["logprobs"]["token_logprobs"] == [None, -2.0]


def test_the_bos_token_is_listed_and_is_not_in_the_text() -> None:
    prompt = (ScoredToken(0, 0), ScoredToken(261, 5, -2.0))  # offsets in <end>the
    script = Script([[Piece(0, 0, "!", 1, (ScoredToken(5, 0, -1.0),), "stop")]], prompt)
    engine = ScriptedEngine(lambda request: script)
    pretrained = dataclasses.replace(get_pretrained(), add_bos=True)
    choice = Called(engine, pretrained).ask(PATH, prompt="the", echo=True, logprobs=1).json["choices"][0]
    assert engine.asked[0].prompt == (0, 261) and choice["text"] == "the!"
    assert choice["logprobs"]["tokens"][:2] == ["<end>", "the"]
    assert choice["logprobs"]["text_offset"] == [0, 0, 3]


def test_half_a_character_at_the_end_of_a_prompt_belongs_to_what_follows() -> None:
    first, *_ = ids = TOKENIZER.encode("▖")
    assert len(ids) == 3
    assert spell_prompt(TOKENIZER, ids[:2], False) == "" and spell_prompt(TOKENIZER, ids, False) == "▖"
    assert spell_prompt(TOKENIZER, [5, first], True) == TOKENIZER.decode([5, first])
    assert spell_prompt(TOKENIZER, [5, 10_000], True) == TOKENIZER.decode([5])
    assert spell_prompt(None, [1], True) == ""


def test_a_prompt_that_its_tokens_do_not_spell_is_what_they_spell() -> None:
    assert find_given("The Cat", "the cat") == ("the cat", 0)
    assert find_given("cat", " cat") == ("cat", 1)


# ---- what Pellucid adds


def test_explain_gives_each_token_its_entropy_rank_and_surprisal_and_keeps_the_answer() -> None:
    token = ScoredToken(5, 0, None, (), 1.5, 2, 0.75)
    called = Called(ScriptedEngine(lambda request: Script([[Piece(0, 0, "$", 1, (token,), "stop")]])))
    choice = called.ask(PATH, prompt="the", explain=True).json["choices"][0]
    assert called.engine.asked[0].explain and choice["logprobs"] is None
    trace = choice["explain"].pop("trace")
    text = TOKENIZER.decode([5])
    assert choice["explain"] == {
        "tokens": [{"token": text, "id": 5, "entropy": 1.5, "rank": 2, "surprisal": 0.75}]
    }
    kept = called.served.answers.get(trace)
    assert kept.prompt.tolist() == [261] and kept.new.tolist() == [5]


def test_a_ledger_comes_with_the_first_choice_of_its_prompt() -> None:
    ledger = {"seed": 7, "completions": []}
    pieces = [[Piece(0, 0, "a", 1, None, "stop"), Piece(0, 1, "b", 1, None, "stop")]]
    reply, asked = ask(Script(pieces, end=End(0, ledger=ledger)), prompt=["a", "b"], n=2, ledger=True)
    assert [choice.get("ledger") for choice in reply.json["choices"]] == [ledger, None, ledger, None]
    assert all(request.ledger for request in asked)


# ---- refusals, before the engine is asked


@pytest.mark.parametrize(
    ("body", "status", "param", "code"),
    [
        ({"prompt": "a " * 40}, 400, "prompt", "context_length_exceeded"),
        ({"prompt": [5] * 33}, 400, "prompt", "context_length_exceeded"),
        ({"prompt": [5] * 32, "max_tokens": 1}, 400, "prompt", "context_length_exceeded"),
        ({"prompt": [5] * 17}, 400, "max_tokens", "context_length_exceeded"),
        ({"prompt": ["a", "a " * 40]}, 400, "prompt[1]", "context_length_exceeded"),
        ({"max_tokens": 32}, 400, "max_tokens", "context_length_exceeded"),
        ({"prompt": [300]}, 400, "prompt", None),
        ({"prompt": [[5], [-1]]}, 400, "prompt[1][0]", None),
        ({"model": "another"}, 404, "model", "model_not_found"),
        ({"n": 5}, 400, "n", None),
        ({"beams": 5}, 400, "beams", None),
        ({"n": 2, "temperature": 0}, 400, "n", None),
        ({"temperature": -1}, 400, "temperature", None),
        ({"logit_bias": {"300": 1}}, 400, "logit_bias", None),
        ({"banned_tokens": list(range(300))}, 400, "banned_tokens", None),
        ({"stop": [""]}, 400, "stop", None),
        ({"logprobs": 21}, 400, "logprobs", None),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_cannot_be_run_never_reaches_the_engine(
    body: Any, status: int, param: str, code: str | None, stream: bool
) -> None:
    reply, asked = ask(**body, stream=stream)
    assert reply.status == status and not asked, reply.json
    assert (reply.error["param"], reply.error["code"]) == (param, code)


def test_a_prompt_that_fills_the_context_is_answered() -> None:
    assert ask(prompt=[5] * 31, max_tokens=1)[0].status == 200
    assert ask(prompt=[5] * 32, max_tokens=0, echo=True)[0].status == 200
    assert ask(prompt=[5] * 31, max_tokens=9, context="crop")[0].status == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("prompts", [1, 2])
def test_what_the_engine_refuses_has_its_own_status_and_the_name_of_the_field(
    stream: bool, prompts: int
) -> None:
    body: dict[str, Any] = {"prompt": ["the"] * prompts, "stream": stream}
    reply, _ = ask(Script(error=RequestError("regex='(' cannot be used.", 400)), **body)
    assert reply.status == 400 and reply.error["param"] == "regex"
    reply, _ = ask(Script(error=RequestError("max_new_tokens=5 is not enough.", 400)), **body)
    assert reply.error["message"] == "max_tokens=5 is not enough." and reply.error["param"] == "max_tokens"
    schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "what"}}}
    refused = Script(error=RequestError("json_schema, at #: the type is wrong.", 400))
    assert ask(refused, **body, response_format=schema)[0].error["param"] == "response_format"
    reply, _ = ask(Script(error=RequestError("the engine ended.", 503, Retry_After="5")), **body)
    assert reply.status == 503 and reply.headers["retry-after"] == "5"


@pytest.mark.parametrize(("status", "count"), [(400, 0), (503, 1)])
def test_only_failures_of_the_server_are_counted_as_errors(status: int, count: int) -> None:
    engine = ScriptedEngine(lambda request: Script(error=RequestError("it failed.", status)))
    called = Called(engine)
    assert called.ask(PATH, prompt="a").status == status
    assert f"pellucid_errors_total {count}.0".encode() in called.served.metrics.write(engine.load)


def test_a_choice_that_the_engine_ended_is_not_an_answer() -> None:
    assert ask(Script(say("a", finish="cancelled")))[0].status == 500
    assert ask(Script())[0].status == 500


def test_a_whole_answer_is_not_sent_to_a_client_that_left() -> None:
    engine = ScriptedEngine(lambda request: Script(say("a", "b", finish=""), end=None))
    called = Called(engine)
    reply = called.ask(PATH, leaves_after=0, prompt="a")
    assert reply == Reply() and all(request.is_cancelled.is_set() for request in engine.running)
    assert b"pellucid_cancellations_total 1.0" in called.served.metrics.write(engine.load)


def test_a_model_without_a_tokenizer_continues_ids() -> None:
    engine = ScriptedEngine(
        lambda request: Script([[Piece(0, 0, "", 1, (ScoredToken(5, 0, -1.0),), "stop")]])
    )
    pretrained = dataclasses.replace(get_pretrained(), tokenizer=None)
    called = Called(engine, pretrained)
    choice = called.ask(PATH, prompt=[1, 2], echo=True, logprobs=0).json["choices"][0]
    assert choice["text"] == "" and choice["logprobs"]["tokens"] == ["#5"]
    assert called.ask(PATH, prompt="text").status == 400
