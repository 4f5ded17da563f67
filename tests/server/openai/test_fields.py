"""Every field of every request: what OpenAI documents, what others send, and how each is read."""

import typing
from typing import Any

import pytest

from pellucid.generation.settings.foreign_keys import EXPLANATIONS, HABITS
from pellucid.generation.settings.table import SETTINGS
from pellucid.server.http.limits import RequestError
from pellucid.server.openai.fields import (
    ALL,
    FIELDS,
    FORMAT_FIELDS,
    GENERATION,
    MESSAGE_FIELDS,
    PART_FIELDS,
    SCHEMA_FIELDS,
    STREAM_FIELDS,
    FieldEndpoint,
    get_fields,
    read_fields,
)
from tests.server.field_strategies import SMALLEST


def refusal(endpoint: FieldEndpoint, **given: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        read_fields(endpoint, {**SMALLEST[endpoint], **given})
    assert caught.value.status == 400
    return caught.value


def openai_keys() -> dict[str, tuple[set[str], set[str]]]:
    """Returns the keys that the `openai` package documents, and those of the table, object by object."""
    from openai.types import completion_create_params as completion
    from openai.types import embedding_create_params as embedding
    from openai.types import shared_params as shared
    from openai.types.chat import (
        ChatCompletionContentPartTextParam,
        ChatCompletionMessageParam,
        ChatCompletionStreamOptionsParam,
    )
    from openai.types.chat import chat_completion_content_part_param as part
    from openai.types.chat import completion_create_params as chat
    from openai.types.chat.chat_completion_assistant_message_param import ContentArrayOfContentPart
    from openai.types.shared_params.response_format_json_schema import JSONSchema

    def keys(*kinds: Any) -> set[str]:
        return {key for kind in kinds for key in typing.get_type_hints(kind)}

    def union(alias: Any) -> tuple[Any, ...]:
        return typing.get_args(alias)

    return {
        "completions": (
            keys(completion.CompletionCreateParamsNonStreaming, completion.CompletionCreateParamsStreaming),
            set(get_fields("completions")),
        ),
        "chat": (
            keys(chat.CompletionCreateParamsNonStreaming, chat.CompletionCreateParamsStreaming),
            set(get_fields("chat")),
        ),
        "embeddings": (keys(embedding.EmbeddingCreateParams), set(get_fields("embeddings"))),
        "messages": (keys(*union(ChatCompletionMessageParam)), set(MESSAGE_FIELDS)),
        "parts": (
            keys(
                ChatCompletionContentPartTextParam,
                *union(part.ChatCompletionContentPartParam),
                *union(ContentArrayOfContentPart),
            ),
            set(PART_FIELDS),
        ),
        "stream_options": (keys(ChatCompletionStreamOptionsParam), set(STREAM_FIELDS)),
        "response_format": (
            keys(shared.ResponseFormatText, shared.ResponseFormatJSONObject, shared.ResponseFormatJSONSchema),
            set(FORMAT_FIELDS),
        ),
        "json_schema": (keys(JSONSchema), set(SCHEMA_FIELDS)),
    }


def test_every_field_that_openai_documents_has_a_row() -> None:
    found = openai_keys()
    missing = {place: documented - listed for place, (documented, listed) in found.items()}
    assert not any(missing.values()), missing
    assert len(found["chat"][0]) > 30 and {"role", "content", "tool_calls"} <= found["messages"][0]


@pytest.mark.parametrize("endpoint", GENERATION)
def test_every_setting_is_a_field_with_its_own_bounds(endpoint: FieldEndpoint) -> None:
    fields = get_fields(endpoint)
    assert set(SETTINGS) == {row.setting for row in fields.values() if row.setting}
    for row in fields.values():
        if row.setting and row.inner is None:
            setting = SETTINGS[row.setting]
            assert (row.type, row.bounds, row.then) == (setting.type, setting.bounds, setting.then)


@pytest.mark.parametrize("endpoint", GENERATION)
def test_other_libraries_names_are_refused_with_ours(endpoint: FieldEndpoint) -> None:
    fields = get_fields(endpoint)
    assert {*HABITS, *EXPLANATIONS, "max_new_tokens"} <= set(fields)
    for name, ours in (
        ("stop_token_ids", "stop_ids"),
        ("n_predict", "max_tokens"),
        ("guided_json", "json_schema"),
    ):
        error = refusal(endpoint, **{name: 1})
        assert error.param == name and ours in str(error)


def test_no_message_names_a_field_that_there_is_not() -> None:
    for row in FIELDS:
        if row.field.name != "max_new_tokens":
            assert "max_new_tokens" not in row.field.meaning


@pytest.mark.parametrize("endpoint", ALL)
def test_every_row_is_complete(endpoint: FieldEndpoint) -> None:
    for name, row in get_fields(endpoint).items():
        assert (row.type is not None) is (row.fate == "used"), name
        assert row.meaning.endswith(".") and row.meaning[0].isupper() | row.meaning[0].isdigit(), name
        if row.type is not None:
            assert row.text and (row.default_text or row.default is not None or row.is_required), name


@pytest.mark.parametrize("endpoint", ALL)
def test_null_is_a_field_that_is_not_given(endpoint: FieldEndpoint) -> None:
    nothing = dict.fromkeys(get_fields(endpoint))
    assert read_fields(endpoint, nothing | SMALLEST[endpoint]) == read_fields(endpoint, SMALLEST[endpoint])


@pytest.mark.parametrize("endpoint", ALL)
def test_every_default_is_a_value_that_the_field_accepts(endpoint: FieldEndpoint) -> None:
    for name, row in get_fields(endpoint).items():
        if row.fate == "used" and row.default is not None and not row.is_required:
            assert row.read(row.default, name) == row.default


def test_a_template_of_a_client_is_never_used() -> None:
    for name, value in {"chat_template": "{{ messages }}", "chat_template_kwargs": {"a": 1}}.items():
        for endpoint in GENERATION:
            assert refusal(endpoint, **{name: value}).param == name


@pytest.mark.parametrize(
    "given",
    [
        {"tools": [], "tool_choice": "none"},
        {"best_of": 2, "n": 2},
        {"best_of": 1},
        {"logit_bias": {}},
        {"reasoning_effort": "none", "verbosity": "medium"},
        {"user": "u", "store": True, "metadata": {"a": "b"}, "service_tier": "flex"},
        {"response_format": {"type": "text"}},
        {"stream": True, "stream_options": {"include_usage": True, "include_obfuscation": False}},
    ],
)
@pytest.mark.parametrize("endpoint", GENERATION)
def test_what_asks_for_nothing_new_is_accepted(endpoint: FieldEndpoint, given: dict[str, Any]) -> None:
    read_fields(endpoint, {**SMALLEST[endpoint], **given})


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"best_of": 3, "n": 2}, "best_of"),
        ({"n": 65}, "n"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"logit_bias": {str(id): 0 for id in range(1025)}}, "logit_bias"),
        ({"temperature": "1"}, "temperature"),
        ({"top_k": True}, "top_k"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"stream": True, "stream_options": {"usage": True}}, "stream_options.usage"),
        ({"response_format": {"type": "json_object"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "text", "json_schema": {"schema": {}}}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": 3}}},
            "response_format.json_schema.schema",
        ),
        ({"response_format": {"type": "text"}, "json_schema": {}}, "response_format"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"temprature": 1}, "temprature"),
    ],
)
@pytest.mark.parametrize("endpoint", GENERATION)
def test_the_wrong_field_is_named(endpoint: FieldEndpoint, given: dict[str, Any], param: str) -> None:
    assert refusal(endpoint, **given).param == param


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ("A", ""),
        ({"content": "A"}, ".role"),
        ({"role": "usr", "content": "A"}, ".role"),
        ({"role": "tool", "content": "A"}, ".role"),
        ({"role": "user"}, ".content"),
        ({"role": "user", "content": 3}, ".content"),
        ({"role": "user", "content": []}, ".content"),
        ({"role": "user", "content": ["A"]}, ".content[0]"),
        ({"role": "user", "content": [{"type": "text"}]}, ".content[0].text"),
        (
            {
                "role": "user",
                "content": [{"type": "text", "text": "A"}, {"type": "image_url", "image_url": {}}],
            },
            ".content[1].type",
        ),
        ({"role": "assistant", "content": "A", "tool_calls": [{}]}, ".tool_calls"),
        ({"role": "assistant", "content": None, "tool_calls": [{}]}, ".tool_calls"),
        ({"role": "user", "content": "A", "colour": 1}, ".colour"),
    ],
)
def test_the_wrong_place_of_a_conversation_is_named(message: Any, place: str) -> None:
    good = {"role": "user", "content": "A"}
    assert refusal("chat", messages=[good, message]).param == f"messages[1]{place}"


def test_what_is_missing_may_be_given_under_another_endpoints_name() -> None:
    assert refusal("chat", prompt="A").param == "prompt"
    assert refusal("completions", messages=[{"role": "user", "content": "A"}]).param == "messages"


def test_a_conversation_becomes_roles_and_texts() -> None:
    answer = {"role": "assistant", "content": "B", "refusal": None, "tool_calls": [], "annotations": []}
    parts = [{"type": "text", "text": "C"}, {"type": "text", "text": "D"}]
    given = [{"role": "developer", "content": "A", "name": "n"}, answer, {"role": "user", "content": parts}]
    assert read_fields("chat", {"messages": given})["messages"] == [
        {"role": "system", "content": "A"},
        {"role": "assistant", "content": "B"},
        {"role": "user", "content": "C\nD"},
    ]


def test_lists_are_bounded() -> None:
    message = {"role": "user", "content": "A"}
    assert len(read_fields("chat", {"messages": [message] * 1024})["messages"]) == 1024
    for endpoint, name, value in (
        ("chat", "messages", [message] * 1025),
        ("chat", "messages", []),
        ("completions", "prompt", ["A"] * 129),
        ("embeddings", "input", ["A"] * 2049),
        ("embeddings", "input", []),
    ):
        assert refusal(endpoint, **{name: value}).param == name  # type: ignore[arg-type]


def test_top_logprobs_goes_with_logprobs() -> None:
    assert refusal("chat", top_logprobs=2).param == "top_logprobs"
    assert refusal("chat", logprobs=True, top_logprobs=21).param == "top_logprobs"
    assert (
        read_fields("chat", {**SMALLEST["chat"], "logprobs": True, "top_logprobs": 20})["top_logprobs"] == 20
    )
    assert refusal("chat", logprobs=1).param == refusal("completions", logprobs=True).param == "logprobs"


def test_no_new_token_is_for_echo() -> None:
    assert read_fields("completions", {"prompt": "A", "max_tokens": 0, "echo": True})["max_tokens"] == 0
    assert refusal("chat", max_completion_tokens=3, max_tokens=3).param == "max_tokens"
