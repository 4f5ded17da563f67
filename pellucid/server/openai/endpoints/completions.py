"""`POST /v1/completions`: what follows a prompt, or each of several."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import Response

from pellucid.generation.answers.logprobs import make_completion_logprobs
from pellucid.generation.output import DECODED_PROMPT
from pellucid.generation.settings.keywords import own_settings
from pellucid.server.openai.answers.choices import make_whole
from pellucid.server.openai.answers.event_stream import EventStream
from pellucid.server.openai.answers.plan import (
    AnswerForm,
    AnswerPlan,
    PlannedPrompt,
    check_prompt_count,
    check_prompt_length,
    check_sampling,
    choose_seed,
    find_place,
    make_plan,
)
from pellucid.server.openai.reading.sampling import read_sampling
from pellucid.server.openai.served_model import ServedModel
from pellucid.text.tokenizer import Tokenizer

COMPLETION_FORM = AnswerForm(
    id_prefix="cmpl-",
    whole_object="text_completion",
    event_object="text_completion",
    make_content=lambda text: {"text": text},
    make_logprobs=make_completion_logprobs,
    before_text=b'"text":',
    after_text=b"",
)


PlanAnswer = Callable[[ServedModel, dict[str, Any]], Awaitable[AnswerPlan]]
"""Returns what an answer consists of, given the values of its request."""


async def generate_answer(
    endpoint: Literal["completions", "chat"], plan_answer: PlanAnswer, served: ServedModel, request: Request
) -> Response:
    """Returns the answer to a request; its clock starts before the body is read."""
    meter = served.metrics.begin_answer()
    values = await served.read_values(request, endpoint)
    plan = await plan_answer(served, values)
    if values["stream"]:
        return EventStream(served, plan, meter)
    return await make_whole(served, plan, request.receive, meter)


async def plan_completions(served: ServedModel, values: dict[str, Any]) -> AnswerPlan:
    """Returns what the answer to a request consists of; raises where a prompt or a setting is refused."""
    sampling = read_sampling(values, own_settings(served.pretrained))
    check_sampling(served, sampling)
    check_prompt_count(served, len(values["prompt"]))
    has_text = values["echo"] or values["logprobs"] is not None
    prompts, given = list[PlannedPrompt](), values["prompt"]
    for place, prompt in enumerate(given):
        param = find_place("prompt", place, len(given))
        if isinstance(prompt, str):
            ids = await served.encoder.encode(prompt, param)
        else:
            ids = served.encoder.check_ids(prompt, param)
        check_prompt_length(served, sampling, len(ids), param)
        text, hidden = "", 0
        if has_text:
            spelled = spell_prompt(served.pretrained.tokenizer, ids, sampling.max_new_tokens == 0)
            text, hidden = find_given(prompt, spelled)
            await asyncio.sleep(0)  # between the many prompts of a list others have their turn
        prompts.append(PlannedPrompt(ids, choose_seed(sampling), text, hidden))
    return make_plan(served, COMPLETION_FORM, values, sampling, prompts, values["logprobs"])


def spell_prompt(tokenizer: Tokenizer | None, ids: Sequence[int], is_whole: bool) -> str:
    """Returns the text of a prompt's tokens. What waits for a further token, such as half a character at its
    end, belongs to the text that follows, unless the prompt is the whole text."""
    if tokenizer is None:
        return ""
    known = [id for id in ids if id < tokenizer.vocab_size]
    text = tokenizer.decode(known)
    if is_whole:
        return text
    stream = tokenizer.decode_stream()
    for id in known[-DECODED_PROMPT:]:  # as the engine does before the first new token
        stream.feed(id)
    return text.removesuffix(stream.end())


def find_given(prompt: str | Sequence[int], spelled: str) -> tuple[str, int]:
    """Returns the text of a prompt as it was given, and how many characters its tokens have before it.

    A tokenizer that does not keep a text as it is makes it what the tokens spell.

    >>> find_given("A B", "<s>A B"), find_given([1, 2], "A B")
    (('A B', 3), ('A B', 0))
    """
    if isinstance(prompt, str) and spelled.endswith(prompt):
        return prompt, len(spelled) - len(prompt)
    return spelled, 0
