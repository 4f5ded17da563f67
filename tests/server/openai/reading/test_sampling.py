"""The settings of a request: its fields, and the model's own."""

from typing import Any

import pytest

from pellucid.generation.settings.sampling import Sampling
from pellucid.server.http.limits import RequestError
from pellucid.server.openai.fields import FieldEndpoint, read_fields
from pellucid.server.openai.reading.sampling import read_sampling


def sampling(endpoint: FieldEndpoint, own: dict[str, Any] | None = None, **given: Any) -> Sampling:
    needed = {"messages": [{"role": "user", "content": "A"}]} if endpoint == "chat" else {"prompt": "A"}
    return read_sampling(read_fields(endpoint, {**needed, **given}), own, 40 if endpoint == "chat" else None)


def test_the_defaults_are_those_of_openai() -> None:
    assert sampling("completions") == Sampling(temperature=1.0, max_new_tokens=16)
    assert sampling("chat") == Sampling(temperature=1.0, max_new_tokens=40)


def test_what_is_given_goes_before_the_models_own_settings_and_those_before_the_defaults() -> None:
    own = {"do_sample": True, "temperature": 0.6, "top_k": 40}
    assert sampling("chat", own) == Sampling(temperature=0.6, top_k=40, max_new_tokens=40)
    assert sampling("chat", own, temperature=0).temperature == 0
    assert sampling("chat", {"do_sample": False}).temperature == 0


def test_a_beam_search_draws_nothing() -> None:
    assert sampling("chat", None, beams=2).temperature == 0
    assert sampling("chat", {"num_beams": 3}).beams == 3


def test_every_name_of_the_number_of_tokens_is_read() -> None:
    assert sampling("chat", max_tokens=3).max_new_tokens == 3
    assert sampling("chat", max_completion_tokens=3).max_new_tokens == 3


def test_a_response_format_is_a_schema() -> None:
    form = {
        "type": "json_schema",
        "json_schema": {"name": "x", "schema": {"type": "integer"}, "strict": True},
    }
    assert sampling("chat", response_format=form).json_schema == '{"type": "integer"}'
    assert sampling("chat", response_format={"type": "text"}).json_schema is None


@pytest.mark.parametrize(
    ("given", "param", "words"),
    [
        ({"min_new_tokens": 5, "max_completion_tokens": 3}, "min_new_tokens", "max_completion_tokens=3"),
        ({"min_new_tokens": 50}, "min_new_tokens", "max_tokens=40"),
        ({"n": 2, "temperature": 0}, "n", "temperature"),
        ({"keep": 3}, "keep", "context"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}, "regex": "a"},
            "regex",
            "response_format",
        ),
    ],
)
def test_settings_that_cannot_be_combined_are_named_as_the_request_names_them(
    given: dict[str, Any], param: str, words: str
) -> None:
    with pytest.raises(RequestError) as caught:
        sampling("chat", **given)
    assert caught.value.param == param and caught.value.status == 400
    assert words in str(caught.value) and "max_new_tokens" not in str(caught.value)
