"""The served model, which all endpoints share, and the engine that runs it in another process."""

import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, Protocol

from pellucid.base.errors import show
from pellucid.formats.pretrained import Pretrained
from pellucid.generation.answers.lines import End, GenerateRequest, Piece, ScoredToken
from pellucid.generation.answers.logprobs import TokenTexts
from pellucid.server.http.limits import RequestError
from pellucid.server.openai.answers.explorer import AnswerExplorer
from pellucid.server.openai.answers.kept import KeptAnswers
from pellucid.server.openai.metrics import EngineLoad, Metrics
from pellucid.server.openai.reading.prompts import PromptEncoder

EngineState = Literal["loading", "ready", "unhealthy"]


class RunningRequest(Protocol):
    """A prompt in the engine."""

    prompt: tuple[ScoredToken, ...]
    """The scored tokens of the prompt, before the first piece where they were asked for."""
    end: End | None
    """Its end, when all pieces were read."""

    async def read(self) -> list[Piece]:
        """Returns the pieces that came since the last call, and waits where there are none; [] at the end.

        It raises a RequestError where the request cannot be run, or the engine failed.
        """
        ...

    def cancel(self) -> None:
        """Ends it, at any time; whatever it holds in the engine is free at once, and where `read` waits, it
        returns []."""
        ...


class ServingEngine(Protocol):
    """The engine as the endpoints see it: a process of its own, or a test's stand-in."""

    @property
    def state(self) -> EngineState: ...

    @property
    def load(self) -> EngineLoad: ...

    def generate(self, request: GenerateRequest) -> RunningRequest:
        """Sends a prompt to the engine. It raises a RequestError where the queue is full (429), or where the
        engine does not run (503), both with Retry-After."""
        ...

    async def embed(self, prompt: tuple[int, ...]) -> list[float]:
        """Returns the mean of the final hidden states of a prompt, normalized to length 1."""
        ...


@dataclass
class ServedModel:
    """A model under the name by which clients ask for it. No weight is read in this process."""

    name: str
    pretrained: Pretrained
    engine: ServingEngine
    source: str = ""
    """The MODEL argument, which the explorer shows; by default its path."""
    weights: str | None = None
    """How the explorer holds the matrices, so that its numbers are those of the answers."""
    created: int = field(default_factory=lambda: int(time.time()))
    """When it began to be served, in seconds since 1970."""
    metrics: Metrics = field(default_factory=Metrics)
    answers: KeptAnswers = field(default_factory=KeptAnswers)
    """Those that may be opened in the explorer: `answers.keep(prompt_ids, new_ids)` returns the trace id."""
    explorer: AnswerExplorer = field(init=False)
    """What opens them, in a process of its own."""
    encoder: PromptEncoder = field(init=False)
    """Texts and conversations as ids."""

    def __post_init__(self) -> None:
        path = self.pretrained.provenance.path
        self.explorer = AnswerExplorer(path, self.answers, self.source, self.weights)
        self.encoder = PromptEncoder(self.pretrained)

    def limit_context(self, capacity: int) -> None:
        """Makes requests keep to slots of that many tokens, which are fewer than the model's context."""
        config = replace(self.pretrained.config, context_length=capacity)
        self.pretrained = replace(self.pretrained, config=config)
        self.encoder.context = capacity

    async def close(self) -> None:
        """Ends what was started to answer requests, apart from the engine."""
        await self.encoder.close()
        await self.explorer.close()

    @cached_property
    def token_texts(self) -> TokenTexts:
        """The text of every token, as log-probabilities list it."""
        return TokenTexts(self.pretrained.tokenizer)

    def check_name(self, name: str | None) -> None:
        """Raises where a request names another model; it may name none."""
        if name not in (None, self.name):
            raise RequestError(
                f"the model {show(name)} is not served here: use {self.name!r}, or omit model.",
                404,
                param="model",
                code="model_not_found",
            )
