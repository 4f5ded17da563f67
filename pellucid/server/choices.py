"""What a choice of an answer has beside its text: log-probabilities, its seed, and what Pellucid adds."""

from collections.abc import Sequence
from typing import Any

from pellucid.server.answer_plan import AnswerPlan
from pellucid.server.engine_lines import End, ScoredToken
from pellucid.server.limits import RequestError
from pellucid.server.logprobs import LogprobsTable, make_explained_tokens
from pellucid.server.served import ServedModel

FINISH_REASONS = frozenset(("stop", "length"))
"""With which a choice ends by itself; at any other the engine failed."""


class ChoiceTables:
    """The tables of every choice of an answer; choice i of prompt p has the index p · n + i."""

    def __init__(self, served: ServedModel, plan: AnswerPlan) -> None:
        self._served, self._plan, self._texts = served, plan, served.token_texts
        self._new_ids: list[list[int]] = [[] for _ in range(len(plan.prompts) * plan.n)]
        self._unfinished = set(range(len(self._new_ids)))

    def make_prompt_logprobs(self, place: int, tokens: Sequence[ScoredToken]) -> LogprobsTable | None:
        """Returns the log-probabilities of a prompt, where the answer repeats it and they are asked for."""
        if self._plan.top_logprobs is None:
            return None
        return self._plan.form.make_logprobs(self._texts, tokens, -self._plan.prompts[place].hidden)

    def make_logprobs(self, index: int, tokens: Sequence[ScoredToken]) -> LogprobsTable | None:
        """Returns the log-probabilities of new tokens, where they are asked for."""
        if self._plan.top_logprobs is None:
            return None
        start = len(self._plan.prompts[index // self._plan.n].text)
        return self._plan.form.make_logprobs(self._texts, tokens, start)

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


def join_logprobs(first: LogprobsTable | None, second: LogprobsTable | None) -> LogprobsTable | None:
    """Returns one table of two whose lists go on, as those of a prompt and of what follows it."""
    if first is None or second is None:
        return first or second
    return {name: values + second[name] for name, values in first.items()}
