"""The prompts of a command: read from a file, each with the request that continues it, and its results as
lines of a file.

A line of a file of prompts has an id and settings of its own where it has them:

{"prompt": "Once upon a time", "id": 7, "sampling": {"temperature": 0.8}}
"a prompt alone"
[1, 2, 3]
"""

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pellucid.base.errors import FileError, PellucidError, TokenError, file_errors
from pellucid.base.files import UNPAIRED, Kind, check_output, check_readable, new_file, read_text, write_line
from pellucid.base.schema import Field, read
from pellucid.generation.chat import ask, open_chat
from pellucid.generation.generate import check_request, complete
from pellucid.generation.request import Completion, Request
from pellucid.generation.settings.keywords import GenerationCall
from pellucid.generation.settings.sampling import Sampling
from pellucid.generation.settings.token_names import resolve_tokens
from pellucid.text.chat_template import Chat
from pellucid.text.prompts import encode_start, parse_prompt

if TYPE_CHECKING:
    from pellucid.generation.scheduler import Engine
    from pellucid.model import Model

MOST_BYTES = 1 << 30
"""Of a file of prompts."""
KEYS = (
    Field("prompt", str | tuple[int, ...]),
    Field("id", str | int | None, None),
    Field("sampling", Mapping[str, Any], {}),
)
"""The keys of a line of prompts."""
RESULT_KEYS = ("prompt", "text", "ids", "finish")
"""Keys that every line has."""
MOST_LINE = 1 << 26
"""Of a first line that is read to recognize a file."""


@dataclass(frozen=True)
class PromptRecord:
    """A prompt that was given: a text or ids, and what its line says about it."""

    prompt: str | tuple[int, ...]
    id: str | int | None = None
    """Returned with the result, so that the two can be matched."""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """Settings of this prompt alone."""
    where: str = ""
    """The file and the line, for messages."""


def read_prompt_file(path: Path) -> list[PromptRecord]:
    """Returns the prompts of a JSONL file; all of them are read before anything is generated."""
    return read_prompt_lines(read_text(path, MOST_BYTES), str(path))


def read_prompt_lines(text: str, name: str) -> list[PromptRecord]:
    """Returns the prompt of each line that is not blank; `name` is that of the file, for messages."""
    lines = enumerate(text.split("\n"), 1)  # a text may have other line ends inside its quotes
    found = [_read_line(line, f"{name}, line {number}") for number, line in lines if line.strip()]
    if not found:
        raise FileError(f'{name} has no prompts: a line is a JSON object such as {{"prompt": "Once"}}.')
    return found


def _read_line(line: str, where: str) -> PromptRecord:
    try:
        given = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FileError(
            f'{where} is not JSON: {error}. A line is {{"prompt": "…"}}, a text in quotes, or ids, [1, 2].'
        ) from None
    table = given if isinstance(given, dict) else {"prompt": given}
    return PromptRecord(**read(KEYS, table, where, path=f"{where}: ", error=FileError), where=where)


# ---- the requests


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


# ---- the results


def format_line(result: Mapping[str, Any]) -> str:
    """Returns a result as one line of JSON."""
    return json.dumps(result, ensure_ascii=False)


class ResultFile:
    """A JSONL file that grows by one line for each result.

    It is created, or with `force` an older one is replaced, together with the first result: what is refused
    before leaves everything as it was. Every line is whole, also when the process is killed.
    """

    def __init__(self, path: Path, force: bool = False) -> None:
        check_output(path, RESULTS, force)
        self.path, self._force = path, force
        self._file: int | None = None

    def write(self, result: Mapping[str, Any]) -> None:
        """Writes one line, to the system before this returns."""
        line = f"{format_line(result)}\n".encode("utf-8", UNPAIRED)
        if self._file is None:
            with new_file(self.path, RESULTS, self._force) as file:
                file.write(line)
            with file_errors("write", self.path):
                self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            return
        with file_errors("write", self.path):
            write_line(self._file, line)

    def __enter__(self) -> "ResultFile":
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            with file_errors("write", self.path):
                os.fsync(self._file)
            os.close(self._file)


def _why_not(path: Path) -> str:
    check_readable(path)
    if path.is_dir():
        return "it is a folder"
    with path.open("rb") as file:
        first = file.readline(MOST_LINE)
    try:
        found = json.loads(first) if first else dict.fromkeys(RESULT_KEYS)
    except (ValueError, RecursionError):
        return "its first line is not JSON"
    known = isinstance(found, dict) and set(RESULT_KEYS) <= set(found)
    return "" if known else f"its first line does not have the keys {', '.join(RESULT_KEYS)}"


RESULTS = Kind("a file of results", _why_not)
