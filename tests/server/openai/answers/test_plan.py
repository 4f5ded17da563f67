"""What one answer may hold: a request of few bytes asks for no gigabytes."""

import pytest

from pellucid.server.http.limits import RequestError
from pellucid.server.openai.answers.plan import (
    MOST_ECHO,
    MOST_LOGPROBS,
    AnswerPlan,
    PlannedPrompt,
    check_size,
)
from pellucid.server.openai.endpoints.completions import COMPLETION_FORM


def plan(length: int, new: int, *, n: int = 1, top: int | None = None, echo: bool = True) -> AnswerPlan:
    prompts = (PlannedPrompt((1,) * length, 7, "a" * length),)
    sampling = {"max_new_tokens": new}
    return AnswerPlan(COMPLETION_FORM, "model", prompts, sampling, n=n, top_logprobs=top, has_echo=echo)


def test_the_numbers_of_an_answer_are_counted_with_every_choice() -> None:
    tokens = MOST_LOGPROBS // 4
    check_size(plan(tokens - 10, 10, n=4, top=0))
    check_size(plan(tokens, 1, n=32, top=None))
    check_size(plan(tokens, 1, n=32, top=20, echo=False))
    for refused in (
        plan(tokens - 10, 11, n=4, top=0),
        plan(tokens - 10, 10, n=2, top=2),
        plan(1, tokens, n=4, top=20, echo=False),
    ):
        with pytest.raises(RequestError) as error:
            check_size(refused)
        assert error.value.param == "logprobs" and error.value.status == 400


def test_the_prompts_of_an_answer_are_repeated_up_to_a_limit() -> None:
    check_size(plan(MOST_ECHO // 32, 1, n=32))
    with pytest.raises(RequestError) as error:
        check_size(plan(MOST_ECHO // 32 + 1, 1, n=32))
    assert error.value.param == "echo"
