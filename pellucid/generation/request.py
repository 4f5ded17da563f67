"""A request to the engine, and what comes back: tokens as they are chosen, and the finished texts."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pellucid.base.arguments import check_bool, check_int, check_int_list, check_type
from pellucid.base.errors import UsageError
from pellucid.base.schema import Field, read
from pellucid.generation.ledger.entry import NOT_IN_LEDGER, BeamNode, Entry, SpeculativeStep
from pellucid.generation.samplers.own_probabilities import TokenUncertainty, TopLogprobs
from pellucid.generation.settings.sampling import Sampling
from pellucid.generation.settings.table import TokenId

FINISH_REASONS = ("stop", "length", "cancelled", "error")
"""A stop token or text; `max_new_tokens`, or a full context; the caller cancelled; an error."""

MOST_TOP = 20
"""The most probable tokens that are listed with a token."""
MOST_PROMPT = 2**20
"""Tokens of a prompt in a JSON request: more than any context holds."""
FLAGS = ("logprobs", "ledger", "prompt_logprobs", "uncertainty")
"""The keys of a request that say what to return beside the text."""


@dataclass(frozen=True)
class Request:
    """Prompt ids, how to continue them, and what to return beside the text."""

    prompt: tuple[int, ...]
    sampling: Sampling = field(default_factory=Sampling)
    logprobs: bool = False
    """Whether each token comes with the logarithm of its probability under the model's own logits."""
    ledger: bool = False
    """Whether each token comes with its entry."""
    prompt_logprobs: bool = False
    """Whether the result has the log-probability of every token of the prompt, given those before it."""
    top_logprobs: int = 0
    """How many of the most probable tokens come with each log-probability, of new tokens and of the
    prompt's."""
    uncertainty: bool = False
    """Whether each token comes with its entropy, rank and surprisal under the model's own logits."""

    def __post_init__(self) -> None:
        prompt = check_type("prompt", self.prompt, (list, tuple), "a list of token ids")
        object.__setattr__(self, "prompt", tuple(check_int_list("prompt", prompt)))
        check_type("sampling", self.sampling, Sampling, "a pellucid.Sampling")
        for flag in FLAGS:
            check_bool(flag, getattr(self, flag))
        check_int("top_logprobs", self.top_logprobs, least=0, most=MOST_TOP)
        if self.top_logprobs and not (self.logprobs or self.prompt_logprobs):
            raise UsageError(
                "top_logprobs are listed with the log-probabilities of tokens: ask for logprobs or "
                "prompt_logprobs too."
            )


REQUEST_FIELDS = (
    Field("prompt", tuple[TokenId, ...], most=MOST_PROMPT),
    Field("sampling", Sampling, {}),
    Field("top_logprobs", int, 0, least=0, most=MOST_TOP),
    *(Field(name, bool, False) for name in FLAGS),
)


def read_request(table: Any, what: str = "a request") -> Request:
    """Returns the request of a JSON table. Its prompt is ids; a text is encoded by the caller.

    >>> found = read_request({"prompt": [1, 2], "sampling": {"seed": 7}, "ledger": True})
    >>> found.prompt, found.sampling, found.ledger, found.logprobs
    ((1, 2), Sampling(seed=7), True, False)
    """
    return read(REQUEST_FIELDS, table, what, Request)


class Token(NamedTuple):
    """One token of choice `choice`: what the engine emits while a request runs."""

    choice: int
    id: int
    text: str = ""
    """What is complete with this token, without stop texts; "" where there is no tokenizer."""
    logprob: float | None = None
    entry: Entry | None = None
    offset: int = 0
    """Characters of the new text that were decoded before it, whether or not they are held back."""
    finish: str | None = None
    """One of `FINISH_REASONS` where its choice ends with it."""
    is_cut: bool = False
    """Whether a stop text ended its choice, so that some of the decoded characters are not in the text."""
    top: TopLogprobs = ()
    """The most probable tokens, where the request asked for them."""
    uncertainty: TokenUncertainty | None = None


@dataclass(frozen=True)
class Completion:
    """One finished choice of a request."""

    choice: int
    ids: tuple[int, ...]
    """The new tokens, a stop token included."""
    text: str
    finish: str
    """One of `FINISH_REASONS`."""
    logprobs: tuple[float, ...] = ()
    entries: tuple[Entry, ...] = ()
    score: float | None = None
    """Of a beam: its log-probability over the length penalty."""
    seed: int | None = None
    """Of its random numbers: the sampling's, or the one that was chosen where it has none."""
    speculative: tuple[SpeculativeStep, ...] = ()
    beams: tuple[BeamNode, ...] = ()
    """The tree of a beam search, the same for all choices of a request."""
    node: int | None = None
    """The place in that tree of the choice's last token."""
    top_logprobs: tuple[TopLogprobs, ...] = field(default=(), metadata=NOT_IN_LEDGER)
    """The most probable tokens at each place, where the request asked for them."""
