"""Choices of an answer: log-probabilities, seed and what Pellucid adds; and the answer that is sent whole."""

import json
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from starlette.responses import Response
from starlette.types import Receive

from pellucid.generation.answers.lines import End, ScoredToken
from pellucid.generation.answers.logprobs import (
    LogprobsTable,
    encode_logprobs,
    join_logprobs,
    make_explained_tokens,
)
from pellucid.server.http.app import make_answer
from pellucid.server.http.limits import RequestError
from pellucid.server.openai.answers.plan import AnswerPlan, make_usage
from pellucid.server.openai.answers.running import RunningAnswer
from pellucid.server.openai.metrics import AnswerMeter
from pellucid.server.openai.served_model import ServedModel

FINISH_REASONS = frozenset(("stop", "length"))
"""With which a choice ends by itself; at any other the engine failed."""
MOST_LISTED = 256
"""Tokens whose numbers are written before other requests have their turn: a few milliseconds."""


class ChoiceTables:
    """The tables of every choice of an answer; choice i of prompt p has the index p · n + i."""

    def __init__(self, served: ServedModel, plan: AnswerPlan) -> None:
        self._served, self._plan, self._texts = served, plan, served.token_texts
        self._new_ids: list[list[int]] = [[] for _ in range(len(plan.prompts) * plan.n)]
        self._unfinished = set(range(len(self._new_ids)))

    def list_prompt_logprobs(self, place: int, tokens: Sequence[ScoredToken]) -> Iterator[LogprobsTable]:
        """Yields the log-probabilities of a prompt, where they are asked for, some tokens at a time."""
        return self._list_logprobs(tokens, -self._plan.prompts[place].hidden)

    def list_logprobs(self, index: int, tokens: Sequence[ScoredToken]) -> Iterator[LogprobsTable]:
        """Yields the log-probabilities of new tokens, where they are asked for, some tokens at a time."""
        return self._list_logprobs(tokens, len(self._plan.prompts[index // self._plan.n].text))

    def make_logprobs(self, index: int, tokens: Sequence[ScoredToken]) -> LogprobsTable | None:
        """Returns the log-probabilities of a few new tokens, where they are asked for."""
        return join_logprobs(self.list_logprobs(index, tokens))

    def _list_logprobs(self, tokens: Sequence[ScoredToken], shift: int) -> Iterator[LogprobsTable]:
        if self._plan.top_logprobs is not None:
            for start in range(0, max(len(tokens), 1), MOST_LISTED):
                some = tokens[start : start + MOST_LISTED]
                yield self._plan.form.make_logprobs(self._texts, some, shift)

    def make_more(self, index: int, tokens: Sequence[ScoredToken]) -> dict[str, Any]:
        """Returns what else goes with new tokens."""
        if not self._plan.has_explanation or not tokens:
            return {}
        self._new_ids[index] += (token.id for token in tokens)
        return {"explain": {"tokens": make_explained_tokens(self._texts, tokens)}}

    def make_last(self, index: int, tokens: Sequence[ScoredToken], end: End | None) -> dict[str, Any]:
        """Returns what goes with the last tokens: the seed, the trace id of an explained choice, and with the
        first choice of a prompt, its ledger."""
        self._unfinished.discard(index)
        place, choice = divmod(index, self._plan.n)
        prompt, more = self._plan.prompts[place], self.make_more(index, tokens)
        if self._plan.has_explanation:
            trace = self._served.answers.keep(prompt.ids, self._new_ids[index])
            more = {"explain": {"trace": trace, "tokens": [], **more.get("explain", {})}}
        if self._plan.has_ledger and choice == 0 and end is not None:
            more["ledger"] = end.ledger
        return {"seed": prompt.seed, **more}

    def check_finished(self) -> None:
        """Raises where the engine ended a choice that had not ended by itself."""
        if self._unfinished:
            raise RequestError("the engine ended this answer before it was complete.", 500)


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
