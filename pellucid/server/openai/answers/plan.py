"""The plan of one answer, before the engine is asked: prompts with their seeds, and what is returned."""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pellucid import __version__
from pellucid.generation.answers.lines import GenerateRequest, ScoredToken
from pellucid.generation.answers.logprobs import LogprobsTable, TokenTexts

FINGERPRINT = f"pellucid-{__version__}"
MOST_SEED = 2**53
"""Seeds that are drawn are below it: a client whose numbers are floats can send one back."""


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


def draw_seed() -> int:
    """Returns the seed of a prompt whose request gives none."""
    return secrets.randbelow(MOST_SEED)


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
