"""An answer that is sent when it is complete."""

import json
from itertools import chain

from starlette.responses import Response
from starlette.types import Receive

from pellucid.generation.answers.lines import ScoredToken
from pellucid.generation.answers.logprobs import encode_logprobs
from pellucid.server.http.app import make_answer
from pellucid.server.openai.answers.choices import FINISH_REASONS, ChoiceTables
from pellucid.server.openai.answers.plan import AnswerPlan, make_usage
from pellucid.server.openai.answers.running import RunningAnswer
from pellucid.server.openai.metrics import AnswerMeter
from pellucid.server.openai.served_model import ServedModel


class WholeChoice:
    """The pieces of a choice."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.tokens: list[ScoredToken] = []
        self.finish: str | None = None


async def make_whole(
    served: ServedModel, plan: AnswerPlan, receive: Receive, meter: AnswerMeter | None = None
) -> Response:
    """Returns the answer when every choice has ended."""
    choices = [WholeChoice() for _ in range(len(plan.prompts) * plan.n)]
    async with RunningAnswer(served.engine, plan.make_requests(), receive, meter, plan.sources) as answer:
        while found := await answer.read():
            for place, pieces in found:
                for piece in pieces:
                    choice = choices[place * plan.n + piece.choice]
                    choice.texts.append(piece.text)
                    choice.tokens += piece.tokens or ()
                    choice.finish = piece.finish or choice.finish
        tables, written = ChoiceTables(served, plan), list[str]()
        for index, choice in enumerate(choices):
            if choice.finish in FINISH_REASONS:
                written.append(await _write_choice(plan, tables, answer, index, choice))
        tables.check_finished()
    head = json.dumps(plan.make_head(plan.form.whole_object))[:-1]
    usage = json.dumps(make_usage(answer.prompt_tokens, answer.completion_tokens))
    return make_answer(f'{head}, "choices": [{", ".join(written)}], "usage": {usage}}}'.encode())


async def _write_choice(
    plan: AnswerPlan, tables: ChoiceTables, answer: RunningAnswer, index: int, choice: WholeChoice
) -> str:
    """Returns the JSON of a choice."""
    place = index // plan.n
    running, text = answer.running[place], "".join(choice.texts)
    parts = tables.list_logprobs(index, choice.tokens)
    if plan.has_echo:
        text = plan.prompts[place].text + text
        parts = chain(tables.list_prompt_logprobs(place, running.prompt), parts)
    logprobs = await encode_logprobs(parts)
    first = json.dumps({"index": index, **plan.form.make_content(text)})
    last = {"finish_reason": choice.finish, **tables.make_last(index, choice.tokens, running.end)}
    return f'{first[:-1]}, "logprobs": {logprobs}, {json.dumps(last, allow_nan=False)[1:]}'
