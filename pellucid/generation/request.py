"""A request to the engine, and what comes back: tokens as they are chosen, and the finished texts."""

from dataclasses import dataclass, field

from pellucid.generation.entry import BeamNode, Entry, SpeculativeStep
from pellucid.generation.sampling import Sampling

FINISH_REASONS = ("stop", "length", "context", "cancelled", "error")
"""A stop token or text; `max_new_tokens`; a full context; the caller cancelled; an error."""


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


@dataclass(frozen=True)
class Token:
    """One token of choice `choice`: what the engine emits while a request runs."""

    choice: int
    id: int
    text: str = ""
    """What is complete with this token, without stop texts; "" where there is no tokenizer."""
    logprob: float | None = None
    entry: Entry | None = None


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
