"""`POST /v1/chat/completions`: the answer to a conversation, which the model's own chat template writes."""

from typing import Any

from pellucid.generation.answers.logprobs import make_chat_logprobs
from pellucid.generation.settings.keywords import own_settings
from pellucid.server.openai.answers.plan import (
    AnswerForm,
    AnswerPlan,
    PlannedPrompt,
    check_prompt_length,
    check_sampling,
    choose_seed,
    make_plan,
)
from pellucid.server.openai.reading.sampling import list_sources, read_sampling
from pellucid.server.openai.served_model import ServedModel


def _make_message(text: str) -> dict[str, Any]:
    return {"message": {"role": "assistant", "content": text, "refusal": None}}


CHAT_FORM = AnswerForm(
    id_prefix="chatcmpl-",
    whole_object="chat.completion",
    event_object="chat.completion.chunk",
    make_content=_make_message,
    make_logprobs=make_chat_logprobs,
    before_text=b'"delta":{"content":',
    after_text=b"}",
    first_content=b'"delta":{"role":"assistant","content":""}',
)


async def plan_chat(served: ServedModel, values: dict[str, Any]) -> AnswerPlan:
    """Returns what the answer to a request consists of; raises where a message or a setting is refused.

    Without a number of new tokens an answer has what the context still holds.
    """
    own = own_settings(served.pretrained)
    check_sampling(served, read_sampling(values, own))  # before the template runs
    ids, stop_ids = await served.encoder.ask(values["messages"])
    room = max(1, served.pretrained.config.context_length - len(ids))
    sampling = read_sampling({"stop_ids": stop_ids, **values}, own, room)
    new_param = list_sources(values).get("max_new_tokens", "messages")
    check_prompt_length(served, sampling, len(ids), "messages", new_param)
    prompt = PlannedPrompt(ids, choose_seed(sampling))
    top_logprobs = values["top_logprobs"] if values["logprobs"] else None
    return make_plan(served, CHAT_FORM, values, sampling, [prompt], top_logprobs)
