"""An event is one line of ASCII that holds one JSON object."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.server.openai.answers.event_stream import EventWriter
from pellucid.server.openai.answers.plan import AnswerForm, AnswerPlan, PlannedPrompt
from pellucid.server.openai.endpoints.chat import CHAT_FORM
from pellucid.server.openai.endpoints.completions import COMPLETION_FORM

FORMS = [COMPLETION_FORM, CHAT_FORM]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def make_plan(form: AnswerForm, n: int = 2, has_usage: bool = False) -> AnswerPlan:
    return AnswerPlan(form, 'a "model"', (PlannedPrompt((1,), 7),), {}, n=n, has_usage=has_usage)


def parse(event: bytes) -> dict[str, object]:
    assert event.startswith(b"data: ") and event.endswith(b"\n\n") and event.isascii()
    assert len(event[:-2].splitlines()) == 1 and len(event[:-2].decode().splitlines()) == 1
    found: dict[str, object] = json.loads(event[6:])
    return found


@pytest.mark.parametrize("form", FORMS)
@given(text=TEXT, has_usage=st.booleans())
def test_an_event_without_numbers_is_the_short_form_of_one_with(
    form: AnswerForm, text: str, has_usage: bool
) -> None:
    writer = EventWriter(make_plan(form, has_usage=has_usage))
    found = parse(writer.format_text(1, text))
    assert found == parse(writer.format_choice(1, text, None))
    assert text in str(found["choices"]) or json.dumps(text) in json.dumps(found["choices"])
    assert found["model"] == 'a "model"' and found["object"] == form.event_object
    assert ("usage" in found) is has_usage


def test_an_event_has_what_goes_with_a_text() -> None:
    writer = EventWriter(make_plan(COMPLETION_FORM))
    more = {"seed": 7, "explain": {"tokens": []}}
    event = parse(writer.format_choice(1, "\u2028é", {"tokens": ["a"]}, "stop", more))
    choice = {"index": 1, "text": "\u2028é", "logprobs": {"tokens": ["a"]}, "finish_reason": "stop", **more}
    assert event["choices"] == [choice]


def test_the_first_event_of_a_chat_has_the_role_of_each_choice() -> None:
    first = [parse(event)["choices"] for event in EventWriter(make_plan(CHAT_FORM)).first]
    delta = {"role": "assistant", "content": ""}
    rest = {"logprobs": None, "finish_reason": None}
    assert first == [[{"index": 0, "delta": delta, **rest}], [{"index": 1, "delta": delta, **rest}]]
    assert EventWriter(make_plan(COMPLETION_FORM)).first == []


def test_usage_comes_in_an_event_without_choices() -> None:
    event = parse(EventWriter(make_plan(CHAT_FORM, has_usage=True)).format_usage(5, 2))
    assert event["choices"] == []
    assert event["usage"] == {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
