"""The prompts of a command: each with the request that continues it, and its results as data."""

import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pellucid.base.errors import PellucidError, TokenError
from pellucid.generation.chat import ask, open_chat
from pellucid.generation.complete import check_request, complete
from pellucid.generation.prompt_file import PromptRecord
from pellucid.generation.request import Completion, Request
from pellucid.generation.settings.keywords import GenerationCall
from pellucid.generation.settings.sampling import Sampling
from pellucid.generation.settings.token_names import resolve_tokens
from pellucid.text.chat_template import Chat
from pellucid.text.prompts import encode_start, parse_prompt

if TYPE_CHECKING:
    from pellucid.generation.scheduler import Engine
    from pellucid.model import Model


@dataclass(frozen=True)
class PromptJob:
    """A prompt as it was given, and its request."""

    record: PromptRecord
    request: Request
    is_text: bool
    """Whether what follows is text; else it is ids."""

    @property
    def shown(self) -> str:
        """The prompt as text."""
        given = self.record.prompt
        return given if isinstance(given, str) else str(list(given))

    def text_of(self, completion: Completion) -> str:
        """Returns the text of a completion: ids, each after a space, where there is no other."""
        return completion.text if self.is_text else "".join(f" {id}" for id in completion.ids)

    def to_data(self, completion: Completion, rate: float | None = None) -> dict[str, Any]:
        """Returns a completion as a JSON line has it; `rate` is in tokens a second."""
        head = {} if self.record.id is None else {"id": self.record.id}
        choice = {"choice": completion.choice} if self.request.sampling.n > 1 else {}
        return {
            **head,
            "prompt": self.record.prompt,
            **choice,
            "text": self.text_of(completion),
            "ids": list(completion.ids),
            "finish": completion.finish,
            "tokens_per_second": rate,
        }


def make_jobs(
    model: "Model",
    records: Sequence[PromptRecord],
    call: GenerationCall,
    *,
    chat: bool = False,
    system: str | None = None,
    ledger: bool = False,
) -> list[PromptJob]:
    """Returns the request of each prompt; a wrong one is named by its file and line.

    With `chat` a prompt is the user's message in the model's chat template, after the `system` message.
    """
    found = []
    with open_chat(model) if chat else nullcontext() as talk:
        for record in records:
            try:
                ids, is_text, ends = _encode(model, record, call.parse_special, talk, system)
                sampling = _read_sampling(model, record, call, ends)
                check_request(model, request := Request(tuple(ids), sampling, ledger=ledger))
            except PellucidError as error:
                raise type(error)(f"{record.where}: {error}" if record.where else str(error)) from None
            found.append(PromptJob(record, request, is_text))
    return found


def _encode(
    model: "Model", record: PromptRecord, parse_special: bool, talk: Chat | None, system: str | None
) -> tuple[list[int], bool, list[int] | None]:
    """Returns the ids of a prompt, whether what follows is text, and the tokens that end an answer."""
    if talk is None:
        prompt = parse_prompt(model, record.prompt)
        return encode_start(model, prompt, parse_special), isinstance(prompt, str), None
    if not isinstance(record.prompt, str):
        raise TokenError("a message of a conversation is text, not ids.")
    messages = [] if system is None else [{"role": "system", "content": system}]
    ids, ends = ask(model, talk, [*messages, {"role": "user", "content": record.prompt}])
    return ids, True, ends


def _read_sampling(
    model: "Model", record: PromptRecord, call: GenerationCall, ends: list[int] | None
) -> Sampling:
    own = resolve_tokens(model.pretrained.tokenizer, record.sampling)
    if ends is not None and call.origins.get("stop_ids", "model") == "model":
        own = {"stop_ids": ends} | own
    return call.sampling.merge(own) if own else call.sampling


def run_jobs(
    engine: "Engine", jobs: Sequence[PromptJob]
) -> Iterator[tuple[PromptJob, list[Completion], float | None]]:
    """Yields each job with its completions, in order, and of one alone its tokens a second."""
    if len(jobs) == 1:
        handle = engine.add(jobs[0].request)
        times = [time.perf_counter() for _ in handle]
        is_streamed = jobs[0].request.sampling.beams == 1  # the tokens of beams come all at the end
        yield jobs[0], handle.result(), token_rate(times) if is_streamed else None
        return
    requests = [job.request for job in jobs]
    for job, completions in zip(jobs, complete(engine, requests), strict=True):
        yield job, completions, None


def token_rate(times: Sequence[float]) -> float | None:
    """Returns the tokens a second after the first, of the times at which they came; None where all came at
    once.

    >>> token_rate([5.0, 5.5, 6.0])
    2.0
    """
    return (len(times) - 1) / (times[-1] - times[0]) if times and times[-1] > times[0] else None
