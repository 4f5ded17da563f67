"""A JSON request is read strictly: every key is known, and every value can be."""

import json
from typing import Any

import pytest

from pellucid.base.errors import UsageError
from pellucid.generation.request import MOST_PROMPT, Request, read_request
from pellucid.generation.settings.sampling import Sampling


def test_a_request_is_its_table() -> None:
    text = '{"prompt": [1, 2], "sampling": {"temperature": 1, "logit_bias": {"3": -1}}, "logprobs": true}'
    wanted = Request((1, 2), Sampling(temperature=1, logit_bias={3: -1}), logprobs=True)
    assert read_request(json.loads(text)) == wanted
    assert read_request({"prompt": []}) == Request(())


@pytest.mark.parametrize(
    "table",
    [
        [],
        {},
        {"prompt": "A B"},
        {"prompt": [1.0]},
        {"prompt": [True]},
        {"prompt": [-1]},
        {"prompt": [2**70]},
        {"prompt": [1], "sampling": []},
        {"prompt": [1], "sampling": {"temprature": 1}},
        {"prompt": [1], "sampling": {"temperature": float("nan")}},
        {"prompt": [1], "sampling": {"n": 10**6}},
        {"prompt": [1], "ledger": 1},
        {"prompt": [1], "ledgers": True},
        {"prompt": [1] * (MOST_PROMPT + 1)},
    ],
)
def test_anything_else_is_refused(table: Any) -> None:
    with pytest.raises(UsageError):
        read_request(table)


def test_a_message_says_under_which_key_a_setting_stands() -> None:
    with pytest.raises(UsageError, match=r"^sampling\.temperature"):
        read_request({"prompt": [1], "sampling": {"temperature": -1}})


def test_the_most_probable_tokens_are_listed_with_log_probabilities() -> None:
    wanted = Request((1,), logprobs=True, top_logprobs=20)
    assert read_request({"prompt": [1], "logprobs": True, "top_logprobs": 20}) == wanted
    assert Request((1,), prompt_logprobs=True, top_logprobs=1).top_logprobs == 1
    for count in (-1, 21, 1.0, True, None, "1"):
        with pytest.raises(UsageError):
            read_request({"prompt": [1], "logprobs": True, "top_logprobs": count})
    with pytest.raises(UsageError, match="logprobs"):
        Request((1,), top_logprobs=3)
