"""The process of the explorer: `python -m pellucid.server.explorer.process SOURCE [PATH [WEIGHTS]]`.

    {"id": 1, "question": "cell", "parameters": {"at": "probs[t=1,v=2]"}, "is_text": true}    a line in
    1 200 {"at": "probs[t=1,v=2]", …}                                                         a line out

A line out is the id of the question, an HTTP status and the body, so that the parent passes the body on
without reading it. The first line out has the HTTP method of each question, or says why the source cannot be
opened. A question that computes for long (POST, or about a trace that must be computed again) is answered in
a thread of its own, one at a time, while the others are answered. The process ends when its input does.
"""

import contextlib
import json
import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from pellucid.base.errors import PellucidError, quote, unknown
from pellucid.base.worker import describe_failure, open_output
from pellucid.server.explorer import find_question, list_questions

if TYPE_CHECKING:
    from pellucid.server.explorer.session import Session

MOST_ANSWER = 500_000
"""Bytes of an answer."""
MOST_WAITING, MOST_RUNS = 256, 4
"""Questions that may wait for an answer, and among them those that compute for long."""
DEBUG = "PELLUCID_DEBUG"
"""The environment variable with which unexpected errors print their traceback."""


class QuestionLine(NamedTuple):
    """One question, as a line in states it."""

    id: int
    question: str
    parameters: dict[str, Any]
    is_text: bool


class QuestionWorker:
    """Answers lines with a session: `write` gets each line out, in the order in which answers are found."""

    def __init__(self, session: "Session", write: Callable[[bytes], None]) -> None:
        self.session, self._write = session, write
        self._short = queue.Queue[QuestionLine](MOST_WAITING)
        self._long = queue.Queue[QuestionLine](MOST_RUNS)
        for waiting in (self._short, self._long):
            threading.Thread(target=self._answer_all, args=(waiting,), daemon=True).start()

    def receive(self, line: bytes) -> None:
        """Takes a line in; it never waits."""
        asked = QuestionLine(**json.loads(line))
        is_long = self._computes_long(asked)
        try:
            (self._long if is_long else self._short).put_nowait(asked)
        except queue.Full:
            most = f"{MOST_RUNS} runs" if is_long else f"{MOST_WAITING} questions"
            self._write(format_error(asked.id, 503, f"{most} are waiting already: try again later."))

    def _computes_long(self, asked: QuestionLine) -> bool:
        """Returns whether a question computes by its nature, or is about a trace that must be computed
        again."""
        from pellucid.server.explorer.question import get_method, is_looked_up, read_signature

        if asked.question not in list_questions():
            return False
        known = read_signature(find_question(asked.question).answer)
        traces = [asked.parameters.get(parameter.name) for parameter in known if is_looked_up(parameter)]
        return get_method(asked.question) == "POST" or any(map(self.session.must_compute, traces))

    def _answer_all(self, waiting: "queue.Queue[QuestionLine]") -> None:
        while True:
            self._write(answer_line(self.session, waiting.get()))


def answer_line(session: "Session", asked: QuestionLine) -> bytes:
    """Returns the line out of a question, whatever happens."""
    from pellucid.server.explorer.question import ask

    if asked.question not in list_questions():
        return format_error(asked.id, 404, unknown("a question", asked.question, list_questions()))
    try:
        line = format_line(asked.id, 200, ask(session, asked.question, asked.parameters, asked.is_text))
    except PellucidError as error:
        return format_error(asked.id, 400, str(error))
    except MemoryError:
        return format_error(asked.id, 500, f"there is not enough memory for the question {asked.question}.")
    except Exception as error:
        if os.environ.get(DEBUG):
            traceback.print_exc()
        what = f"{type(error).__name__}: {quote(error)}"
        hint = f"The variable {DEBUG}=1 prints where."
        return format_error(asked.id, 500, f"the question {asked.question} failed with {what}. {hint}")
    if len(line) > MOST_ANSWER:
        size = f"{len(line):,} bytes; {MOST_ANSWER:,} are the most"
        return format_error(
            asked.id, 500, f"the answer to {asked.question} has {size}. Ask for less at once."
        )
    return line


def format_line(id: int, status: int, body: Any) -> bytes:
    """Returns a line out; half of a surrogate pair stays the escape that JSON has for it."""
    text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return f"{id} {status} {text}\n".encode("utf-8", "backslashreplace")


def format_error(id: int, status: int, message: str) -> bytes:
    """Returns the line out of a question without an answer."""
    return format_line(id, status, {"error": {"message": message}})


def main(source: str, path: str = "", weights: str = "") -> None:
    """Opens the source, read from a path and with its matrices held as named where these are given, and
    answers until standard input ends."""
    write = open_output()
    try:
        from pellucid.server.explorer.question import get_method
        from pellucid.server.explorer.session import Session

        session = Session.open(source, path or None, weights or None)
    except PellucidError as error:
        write(describe_failure(error))
        return
    ready = {name: get_method(name) for name in list_questions()}
    write(json.dumps({"ready": ready}).encode() + b"\n")
    worker = QuestionWorker(session, write)
    for line in sys.stdin.buffer:
        worker.receive(line)
    os._exit(0)  # a run in a thread is not waited for


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
