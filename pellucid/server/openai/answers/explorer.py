"""The explorer of the served model: answers that are kept, its page, and what the page asks about them.

An answer is kept as its tokens, under a trace id; nothing is computed to keep one.

The page asks `open` with the trace id of an answer; its tokens are then run in the explorer's process, once,
and everything else is asked about that run. The process starts when the first question comes, so that
a server whose answers are not opened holds no second copy of the weights.
"""

import asyncio
import json
import secrets
import time
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from pellucid.base.errors import PellucidError, unknown
from pellucid.base.formatting import pluralize
from pellucid.server.explorer import list_questions
from pellucid.server.explorer.app import answer_question, redirect_to_page, send_page_file
from pellucid.server.explorer.bundle import read_page_files
from pellucid.server.explorer.client import ExplorerWorker
from pellucid.server.http.limits import RequestError
from pellucid.server.http.request import check_media_type

if TYPE_CHECKING:
    from pellucid.server.openai.served_model import ServedModel

MOST_ANSWERS = 1000
MOST_TOKENS = 8_000_000
"""Tokens of all answers together, of 4 bytes each."""
PREFIX = "tr_"
OPEN = "open"
"""The question that the server answers itself."""
OTHER_FILES = {"runs", "log", "ledger"}
"""Questions about files beside the model, such as training runs: they are not a client's business."""
RETRY_SECONDS = 10.0
"""How long a start that failed is not tried again."""

AnswerRun = asyncio.Task[tuple[int, bytes]]
"""Its result is an HTTP status and a body."""
FileStamp = tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True)
class KeptAnswer:
    """The token ids of an answer. How the new ones were chosen is the matter of a ledger."""

    prompt: "array[int]"
    new: "array[int]"

    def __len__(self) -> int:
        return len(self.prompt) + len(self.new)


class KeptAnswers:
    """The answers that were used last, by their trace ids, which cannot be guessed.

    >>> answers = KeptAnswers()
    >>> answers.get(answers.keep([4, 5], [6])).new.tolist()
    [6]
    """

    def __init__(self, most: int = MOST_ANSWERS, most_tokens: int = MOST_TOKENS) -> None:
        self._most, self._most_tokens = most, most_tokens
        self._kept: dict[str, KeptAnswer] = {}  # the least recently used first
        self._tokens = 0

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, prompt: Iterable[int], new: Iterable[int]) -> str:
        """Returns the trace id of an answer; the least recently used ones go until the limits hold."""
        id, answer = PREFIX + secrets.token_urlsafe(12), KeptAnswer(array("I", prompt), array("I", new))
        self._kept[id] = answer
        self._tokens += len(answer)
        while len(self._kept) > self._most or (self._tokens > self._most_tokens and len(self._kept) > 1):
            self._tokens -= len(self._kept.pop(next(iter(self._kept))))
        return id

    def get(self, id: str) -> KeptAnswer:
        """Returns the answer of a trace id, which is then the one used last; raises where it is not kept."""
        answer = self._kept.pop(id, None)
        if answer is None:
            raise RequestError(
                f"this answer is no longer kept: the server keeps the {self._most:,} that were used last, "
                'until it ends. Ask for it again with "explain": true.',
                404,
                param="answer",
            )
        self._kept[id] = answer
        return answer


class AnswerExplorer:
    """Answers questions about one model: `path` is the file or folder that the engine reads, too, `source`
    the name under which it is shown, and `weights` how its matrices are held."""

    def __init__(
        self, path: Path, answers: KeptAnswers, source: str = "", weights: str | None = None
    ) -> None:
        self._path, self._answers, self._source = path, answers, source or str(path)
        self._weights = weights
        self._stamp = stamp_files(path)
        self._starting: asyncio.Task[ExplorerWorker | RequestError] | None = None
        self._failed_at, self._is_closed = 0.0, False
        self._worker: ExplorerWorker | None = None
        self._runs: dict[str, AnswerRun] = {}

    @property
    def methods(self) -> Mapping[str, str]:
        """Every question that is served with its HTTP method, once the process has started."""
        known = self._worker.methods if self._worker else {}
        served = {name: method for name, method in known.items() if name not in OTHER_FILES}
        return {**served, OPEN: "POST"} if served else {}

    async def start(self) -> None:
        """Starts the process where it does not run; raises where it cannot be started."""
        if self._is_closed:
            raise RequestError("the server is ending.", 503, Retry_After="10")
        if self._starting is None or (self._starting.done() and self._can_start_again()):
            self._worker, self._runs = None, {}  # its runs went with it
            self._starting = asyncio.create_task(self._start())
        found = await asyncio.shield(self._starting)
        if isinstance(found, RequestError):
            raise RequestError(str(found), found.status, **found.headers)

    def _can_start_again(self) -> bool:
        if self._worker is None:
            return time.monotonic() > self._failed_at + RETRY_SECONDS
        return not self._worker.is_alive

    async def _start(self) -> ExplorerWorker | RequestError:
        try:
            worker = await ExplorerWorker.start(self._source, str(self._path), self._weights)
        except PellucidError as error:
            self._failed_at = time.monotonic()
            return RequestError(f"the explorer cannot be started: {error}", 503, Retry_After="10")
        if stamp_files(self._path) != self._stamp:
            await worker.close()
            self._failed_at = time.monotonic()
            return RequestError(
                "the model's files have changed since it was loaded, so that the explorer would show other "
                "numbers than the answers have: start the server again.",
                503,
            )
        self._worker = worker
        return worker

    async def ask(
        self, question: str, parameters: Mapping[str, object], is_text: bool = False
    ) -> tuple[int, bytes]:
        """Returns the HTTP status and the JSON of an answer, as `ExplorerWorker.ask` does."""
        assert self._worker is not None
        if question == OPEN:
            return await self._open(self._worker, parameters)
        return await self._worker.ask(question, parameters, is_text)

    async def _open(self, worker: ExplorerWorker, parameters: Mapping[str, object]) -> tuple[int, bytes]:
        """Returns the trace in which an answer was run; all who ask meanwhile wait for the same run."""
        id = parameters.get("answer")
        if not isinstance(id, str) or len(parameters) > 1:
            raise RequestError(f'{OPEN} needs {{"answer": ID}}, the trace id of an answer.', param="answer")
        answer, runs = self._answers.get(id), self._runs
        known = runs.get(id)
        if known is None or known.done():
            status, body = await worker.ask("session")
            if status != 200:
                return status, body
            session = json.loads(body)
            if runs.get(id) is known and not is_listed(known, session):  # no one else has begun meanwhile
                runs[id] = asyncio.create_task(run_answer(worker, answer, session["most_tokens"]))
                if len(runs) > MOST_ANSWERS:  # the oldest may be of an answer that is kept no more
                    del runs[next(iter(runs))]
        return await asyncio.shield(runs[id])

    async def close(self) -> None:
        """Ends the process, also while it starts."""
        self._is_closed = True
        if self._starting is None:
            return
        self._starting.cancel()
        await asyncio.wait([self._starting])
        if self._worker is not None:
            await self._worker.close()


def is_listed(run: AnswerRun | None, session: Mapping[str, Any]) -> bool:
    """Returns whether a finished run has a trace that the session lists: of very many it lists the newest."""
    if run is None:
        return False
    status, body = run.result()
    return status == 200 and json.loads(body)["trace"] in {trace["id"] for trace in session["traces"]}


async def run_answer(worker: ExplorerWorker, answer: KeptAnswer, most: int) -> tuple[int, bytes]:
    """Runs the first tokens of an answer, the new ones as the target, so that the page lists the probability
    of each. The body has the id of the trace, and a note where there are more than `most`."""
    prompt = answer.prompt[:most]
    target = answer.new[: most + 1 - len(prompt)] if len(answer.prompt) <= most else answer.new[:0]
    given = {"ids": prompt.tolist(), "target_ids": target.tolist() or None}
    status, body = await worker.ask("run", given)
    if status == 200 and (omitted := len(answer) - len(prompt) - len(target)):
        note = (
            f"The last {pluralize(omitted, 'token')} of this answer are not in the trace: the explorer takes "
            f"at most {most:,} of this model."
        )
        body = json.dumps({**json.loads(body), "note": note}).encode()
    return status, body


def stamp_files(path: Path) -> FileStamp:
    """Returns what differs when a model's files are written again: name, time, size and place of each."""
    try:
        files = sorted(path.iterdir()) if path.is_dir() else [path] if path.is_file() else []
        stats = [(file.name, file.stat()) for file in files]
    except OSError:
        return ()
    return tuple((name, stat.st_mtime_ns, stat.st_size, stat.st_ino) for name, stat in stats)


# ---- endpoints


async def open_page(served: "ServedModel", request: Request) -> Response:
    """Leads to the page; what follows the # stays with the browser."""
    return await redirect_to_page(request)


async def send_page(served: "ServedModel", request: Request) -> Response:
    """Sends a file of the page, which holds no number."""
    return await send_page_file(read_page_files(), request)


async def answer_about_model(served: "ServedModel", request: Request) -> Response:
    """Answers a question of the page."""
    if request.method == "POST":
        check_media_type(request.scope)  # a form of another page starts no process
    name, known = request.path_params["question"], [*sorted({*list_questions()} - OTHER_FILES), OPEN]
    if name not in known:  # such as a path of another server's API: it starts no process either
        raise RequestError(unknown("a question of the explorer, below /api,", name, known), 404)
    await served.explorer.start()
    return await answer_question(served.explorer, request)
