"""The served model, which all endpoints share, and the engine that runs it in another process."""

import os
import re
import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from starlette.requests import Request

from pellucid.base.errors import UsageError, show
from pellucid.formats.pretrained import Pretrained
from pellucid.generation.answers.logprobs import TokenTexts
from pellucid.server.http.limits import RequestError
from pellucid.server.http.request import check_no_query, read_json
from pellucid.server.openai.answers.explorer import AnswerExplorer, KeptAnswers
from pellucid.server.openai.fields import FieldEndpoint, read_fields
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

    async def read_values(self, request: Request, endpoint: FieldEndpoint) -> dict[str, Any]:
        """Returns the used values of the JSON body of a POST request; raises where a field is wrong, or names
        another model."""
        check_no_query(request.scope)
        body = await read_json(request.scope, request.receive, request.scope["access"].limits)
        values = read_fields(endpoint, body)
        self.check_name(values["model"])
        return values

    def check_name(self, name: str | None) -> None:
        """Raises where a request names another model; it may name none."""
        if name not in (None, self.name):
            raise RequestError(
                f"the model {show(name)} is not served here: use {self.name!r}, or omit model.",
                404,
                param="model",
                code="model_not_found",
            )


# ---- its name

_OTHER = re.compile(r"[^A-Za-z0-9._:/-]+")
_NAME = re.compile(r"[A-Za-z0-9._:/-]{1,128}")
_FILES = (".gguf", ".toml")


def check_model_name(name: str) -> str:
    """Returns a name; raises where a client could not send it as it is."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"--name must have 1 to 128 of the characters A-Z a-z 0-9 . _ : / - alone; got {show(name)}."
        )
    return name


def make_model_name(source: str) -> str:
    """Returns the name of a model that is opened from a source: of a path, its last part.

    >>> make_model_name("smollm2"), make_model_name("hf:org/small"), make_model_name("/models/my model.gguf")
    ('smollm2', 'org/small', 'my-model')
    >>> make_model_name("runs/a/model")
    'a'
    """
    if source.startswith("hf:"):
        last = source.removeprefix("hf:")
    else:
        path = Path(os.path.abspath(source))
        last = (path.parent if path.name == "model" else path).name  # a run has its model in model/
        last = last.removesuffix(path.suffix) if path.suffix in _FILES else last
    return _OTHER.sub("-", last).strip("-")[:128] or "model"
