"""The plan of one answer, before the engine is asked: prompts with their seeds, what is returned, and whether
that fits the model and the engine."""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pellucid import __version__
from pellucid.base.errors import PellucidError
from pellucid.generation.answers.lines import GenerateRequest, ScoredToken
from pellucid.generation.answers.logprobs import LogprobsTable, TokenTexts
from pellucid.generation.context import check_fits
from pellucid.generation.settings.sampling import Sampling
from pellucid.server.http.limits import RequestError
from pellucid.server.http.request import request_errors
from pellucid.server.openai.reading.sampling import list_sources
from pellucid.server.openai.served_model import ServedModel

FINGERPRINT = f"pellucid-{__version__}"
MOST_SEED = 2**53
"""Seeds that are drawn are below it: a client whose numbers are floats can send one back."""

MOST_LOGPROBS = 2**20
"""Of one answer: about 250 megabytes of memory, and 40 of JSON."""
MOST_ECHO = 2**25
"""Characters of prompts that one answer repeats."""


@dataclass(frozen=True)
class AnswerForm:
    """How an endpoint writes an answer."""

    id_prefix: str
    whole_object: str
    event_object: str
    make_content: Callable[[str], dict[str, Any]]
    """Of a whole choice, from its text."""
    make_logprobs: Callable[[TokenTexts, Sequence[ScoredToken], int], LogprobsTable]
    before_text: bytes
    """Of a choice in an event: what stands before its text, and after it."""
    after_text: bytes
    first_content: bytes = b""
    """The content of a choice's first event; without it, the first event has text."""


@dataclass(frozen=True)
class PlannedPrompt:
    """A prompt with the seed of its choices."""

    ids: tuple[int, ...]
    seed: int
    text: str = ""
    """What the offsets of new tokens count from the end of, and what an echo begins with; "" where the answer
    has neither."""
    hidden: int = 0
    """Characters of tokens before the text, such as the bos token, which are not in it."""


@dataclass(frozen=True)
class AnswerPlan:
    """One answer: its prompts, and what is returned for each of their choices."""

    form: AnswerForm
    model: str
    prompts: tuple[PlannedPrompt, ...]
    sampling: Mapping[str, Any]
    """The settings of every prompt but the seed, as `Sampling.read` reads them."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """The field of the request that gives each setting."""
    n: int = 1
    top_logprobs: int | None = None
    has_echo: bool = False
    has_explanation: bool = False
    has_ledger: bool = False
    has_usage: bool = False
    """Whether the last event of a stream has the usage."""
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))

    def make_requests(self) -> list[GenerateRequest]:
        """Returns what the engine is asked, one request for each prompt."""
        return [
            GenerateRequest(
                prompt.ids,
                {**self.sampling, "seed": prompt.seed},
                self.top_logprobs,
                prompt_logprobs=self.has_echo and self.top_logprobs is not None,
                explain=self.has_explanation,
                ledger=self.has_ledger,
            )
            for prompt in self.prompts
        ]

    def make_head(self, object: str) -> dict[str, Any]:
        """Returns what a whole answer and every event begin with; the seed, where all prompts have one."""
        seeds = {prompt.seed for prompt in self.prompts}
        return {
            "id": self.form.id_prefix + self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": FINGERPRINT,
            **({"seed": seeds.pop()} if len(seeds) == 1 else {}),
        }


def make_plan(
    served: ServedModel,
    form: AnswerForm,
    values: Mapping[str, Any],
    sampling: Sampling,
    prompts: Sequence[PlannedPrompt],
    top_logprobs: int | None,
) -> AnswerPlan:
    """Returns the plan of an answer to a request with these values; raises where it would hold too much."""
    plan = AnswerPlan(
        form,
        served.name,
        tuple(prompts),
        sampling.to_dict(),
        list_sources(values),
        n=sampling.n,
        top_logprobs=top_logprobs,
        has_echo=values.get("echo", False),
        has_explanation=values["explain"],
        has_ledger=values["ledger"],
        has_usage=values["stream_options"]["include_usage"],
    )
    check_size(plan)
    return plan


def choose_seed(sampling: Sampling) -> int:
    """Returns the seed of a prompt: the request's own, or one that is drawn."""
    return secrets.randbelow(MOST_SEED) if sampling.seed is None else sampling.seed


def make_usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    """
    >>> make_usage(5, 2)
    {'prompt_tokens': 5, 'completion_tokens': 2, 'total_tokens': 7}
    """
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


# ---- whether it fits the model and the engine


def check_sampling(served: ServedModel, sampling: Sampling) -> None:
    """Raises where a token is beyond the vocabulary, or there are more choices or beams than slots."""
    vocab_size = served.pretrained.config.vocab_size
    try:
        sampling.check_vocabulary(vocab_size)
    except PellucidError as error:
        name = str(error).partition(":")[0].partition(" ")[0]  # a message begins with the setting's name
        raise RequestError(str(error), param=name) from None
    slots, needed = served.engine.load.slots, max(sampling.n, sampling.beams)
    if slots and needed > slots:
        name = "n" if sampling.n >= sampling.beams else "beams"
        raise RequestError(
            f"{name} must be at most {slots}, the texts that this server generates at once; got {needed}.",
            param=name,
        )


def check_prompt_length(
    served: ServedModel, sampling: Sampling, length: int, param: str, new_param: str = "max_tokens"
) -> None:
    """Raises where a prompt, alone or with the new tokens that are asked for, does not fit the context; the
    error names the field of the one or of the other."""
    config, new = served.pretrained.config, sampling.max_new_tokens or 0
    if sampling.context == "refuse" and length + new > config.context_length:
        has_room = length < config.context_length
        raise served.encoder.make_context_error(length, new_param if has_room else param, new)
    with request_errors(param):
        check_fits(length, sampling, config.context_length, config.mask.bidirectional_prefix)


def check_prompt_count(served: ServedModel, count: int) -> None:
    """Raises where a request has more prompts than run or wait at once, however often it is sent again."""
    most = served.engine.load.most_requests
    if most and count > most:
        raise RequestError(
            f"prompt must have at most {most} texts, which are all that run or wait at once; got {count}.",
            param="prompt",
        )


def check_size(plan: AnswerPlan) -> None:
    """Raises where an answer would have more numbers, or more of its prompts, than the server holds for one.

    A prompt is repeated with each of its choices, and so are its numbers: few bytes can ask for gigabytes.
    """
    new, echoed = plan.sampling.get("max_new_tokens") or 0, plan.has_echo
    if plan.top_logprobs is not None:
        tokens = sum(new + len(prompt.ids) * echoed for prompt in plan.prompts)
        count = tokens * plan.n * (1 + plan.top_logprobs)
        if count > MOST_LOGPROBS:
            raise RequestError(
                f"an answer has at most {MOST_LOGPROBS:,} log-probabilities, and this could have {count:,}: "
                "ask for fewer at each place, for fewer tokens or choices, or send fewer prompts at a time.",
                param="logprobs",
            )
    characters = sum(len(prompt.text) for prompt in plan.prompts) * plan.n * echoed
    if characters > MOST_ECHO:
        raise RequestError(
            f"an answer repeats at most {MOST_ECHO:,} characters of prompts, and echo would repeat "
            f"{characters:,}: send fewer prompts at a time, or ask for fewer choices.",
            param="echo",
        )


def find_place(param: str, place: int, count: int) -> str:
    """Returns the name of one of some prompts, as an error has it.

    >>> find_place("prompt", 1, 3), find_place("prompt", 0, 1)
    ('prompt[1]', 'prompt')
    """
    return f"{param}[{place}]" if count > 1 else param
