"""Messages between the HTTP process and the engine's process, one line of JSON each time.

    {"id": 7, "do": "generate", "request": {"prompt": [1, 2], "sampling": {"seed": 3}}}     to the engine
    {"id": 7, "do": "cancel"}
    {"id": 8, "do": "embed", "prompt": [1, 2]}

    {"ready": {"slots": 32, "capacity": 2048, "cache_bytes": 4096}}                         its first line, or
    {"failed": {"message": "…", "kind": "FileError"}}                                       why it ends
    {"pieces": [[7, 0, " the", 1, null, null]], "slots": 1, "queue": 0}                     one for each step

A line of the engine has what changed since the last one, under the keys of `StepLine`; the rows of a list are
the tuples below, without their names, since there is one for each token. A line comes every second, even
where nothing changed, so that a process that hangs is noticed. Every `generate` and `embed` has one end.
"""

import json
from typing import Any, NamedTuple


class EngineOptions(NamedTuple):
    """How a model is run: the one argument of the engine's process, as a JSON object with these keys."""

    model: str
    """A folder, a file or a name, as every command takes it."""
    slots: int | None = None
    """Texts that run at once; None: 32, or as many as half of the free memory holds."""
    queue: int = 256
    """Requests that wait beyond one for each slot. The HTTP process refuses more; the engine takes all that
    it is sent, also where one request holds many slots."""
    dtype: str = "float32"
    device: str = "cpu"
    cache: str | None = None
    """The type of keys and values; None: the model's own."""
    weights: str | None = None
    """How the matrices are held: int8, int4 or file; None: as floats, or as their folder has them."""


class EngineReady(NamedTuple):
    """What the engine's process runs with, when the model is loaded."""

    slots: int
    capacity: int
    """Tokens of a slot."""
    cache_bytes: int
    """Of the keys and values of all slots."""


class GenerateRequest(NamedTuple):
    """A prompt for the engine; `sampling` is a table that `Sampling.read` reads."""

    prompt: tuple[int, ...]
    sampling: dict[str, Any]
    top_logprobs: int | None = None
    """None: no log-probabilities. 0: those of the chosen tokens; more: of the most probable tokens too."""
    prompt_logprobs: bool = False
    """Whether the tokens of the prompt are scored as well, in the same way."""
    explain: bool = False
    """Whether every new token comes with its entropy, rank and surprisal."""
    ledger: bool = False


class ScoredToken(NamedTuple):
    """A token with the numbers that a request asked for; those that it did not ask for are None."""

    id: int
    offset: int
    """Characters of the text before it: of the prompt for its tokens, of the new text for new ones."""
    logprob: float | None = None
    """ln p under the model's own logits, before temperature and filters; None of a prompt's first token."""
    top: tuple[tuple[int, float], ...] = ()
    """The most probable tokens with their log-probabilities, the largest first."""
    entropy: float | None = None
    rank: int | None = None
    """Of its logit, from 0."""
    surprisal: float | None = None


class Piece(NamedTuple):
    """New text of one choice of a request.

    It has whole characters and no beginning of a stop text. `tokens` are those that it shows, so that tokens,
    log-probabilities and text go together; they are empty where the request asked for no numbers.
    """

    request: int
    choice: int
    text: str
    new_tokens: int
    """Tokens since the choice's last piece, those of a stop text included."""
    tokens: tuple[ScoredToken, ...] | None = None
    finish: str | None = None
    """Of `FINISH_REASONS`; set in the choice's last piece."""


class PromptScores(NamedTuple):
    """Tokens of a prompt with their log-probabilities, those of a long one in several lines; they come before
    the request's first piece."""

    request: int
    tokens: tuple[ScoredToken, ...]


class End(NamedTuple):
    """The end of a request: nothing follows about it."""

    request: int
    seed: int | None = None
    """The seed that was used, also where none was given."""
    error: str | None = None
    """Why it failed; its choices then have no finish reason."""
    is_fault: bool = False
    """Whether the error is the server's and not the request's."""
    ledger: dict[str, Any] | None = None
    embedding: list[float] | None = None


class StepLine(NamedTuple):
    """What changed since the last line, and how full the engine is."""

    pieces: list[Piece]
    prompts: list[PromptScores]
    ends: list[End]
    slots: int
    """Slots in use."""
    queue: int
    """Requests that wait for one."""


def format_step(line: StepLine) -> bytes:
    """Returns the line of a step.

    >>> format_step(StepLine([Piece(7, 0, " the", 1)], [], [], 1, 0))
    b'{"pieces":[[7,0," the",1,null,null]],"slots":1,"queue":0}\\n'
    """
    table = {key: value for key, value in line._asdict().items() if value != []}
    return json.dumps(table, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def parse_step(line: bytes) -> StepLine:
    """Returns the step of a line.

    >>> parse_step(b'{"pieces":[[7,0," the",1,null,null]],"slots":1,"queue":0}\\n').pieces
    [Piece(request=7, choice=0, text=' the', new_tokens=1, tokens=None, finish=None)]
    """
    found = json.loads(line)
    return StepLine(
        [_read_piece(row) for row in found.get("pieces", ())],
        [PromptScores(request, _read_tokens(rows)) for request, rows in found.get("prompts", ())],
        [End(*row) for row in found.get("ends", ())],
        found["slots"],
        found["queue"],
    )


def _read_piece(row: list[Any]) -> Piece:
    if row[4] is not None:
        row[4] = _read_tokens(row[4])
    return Piece._make(row)


def _read_tokens(rows: list[list[Any]]) -> tuple[ScoredToken, ...]:
    return tuple(
        ScoredToken(id, offset, logprob, tuple((token, score) for token, score in top), *rest)
        for id, offset, logprob, top, *rest in rows
    )
