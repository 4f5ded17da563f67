"""The served model, which all endpoints share, and the engine that runs it in another process."""

import time
from dataclasses import dataclass, field, replace
from functools import cached_property

from pellucid.base.errors import show
from pellucid.formats.pretrained import Pretrained
from pellucid.generation.answers.logprobs import TokenTexts
from pellucid.server.http.limits import RequestError
from pellucid.server.openai.answers.explorer import AnswerExplorer, KeptAnswers
from pellucid.server.openai.metrics import Metrics
from pellucid.server.openai.reading.prompts import PromptEncoder
from pellucid.server.openai.worker.client import EngineClient


@dataclass
class ServedModel:
    """A model under the name by which clients ask for it. No weight is read in this process."""

    name: str
    pretrained: Pretrained
    engine: EngineClient
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
