"""The explorer over HTTP: the files of its page, and `/api/QUESTION` for what the page asks."""

import time
from collections.abc import Mapping
from typing import Protocol

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from pellucid.errors import unknown
from pellucid.server.app import ShellRoute, make_answer
from pellucid.server.limits import RequestError
from pellucid.server.request import check_no_query, parse_query, read_json

MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


class Worker(Protocol):
    """What answers questions: the process that holds the session, or a test's stand-in."""

    methods: Mapping[str, str]
    """Every question with its HTTP method."""

    async def ask(self, question: str, parameters: Mapping[str, object], is_text: bool) -> tuple[int, bytes]:
        """Returns the HTTP status and the JSON of an answer; with `is_text` every parameter is a text."""
        ...


def make_explorer_routes(worker: Worker, files: Mapping[str, bytes]) -> list[ShellRoute]:
    """Returns the routes of the explorer. `files` are those of the page, by name: no path is ever joined."""

    async def redirect(request: Request) -> Response:
        return RedirectResponse("/explore/", 307)

    async def send_file(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in files:
            raise RequestError("there is no such path.", 404)
        return Response(files[name], media_type=MEDIA_TYPES.get(name.rpartition(".")[2], "text/plain"))

    async def answer(request: Request) -> Response:
        return await answer_question(worker, request)

    return [
        ShellRoute("/", redirect, is_public=True),
        ShellRoute("/explore", redirect, is_public=True),
        ShellRoute("/explore/", send_file, is_public=True),
        ShellRoute("/explore/{name}", send_file, is_public=True),
        ShellRoute("/api/{question}", answer, ("GET", "POST")),
    ]


async def answer_question(worker: Worker, request: Request) -> Response:
    """Returns the answer to a question, with the time that it took in `Server-Timing`."""
    name, limits = request.path_params["question"], request.scope["access"].limits
    if name not in worker.methods:
        raise RequestError(unknown("a question", name, worker.methods), 404)
    method = worker.methods[name]
    if request.method != method:
        raise RequestError(f"the question {name} is asked with {method}.", 405, Allow=method)
    if method == "GET":
        given = parse_query(request.scope["query_string"], limits)
    else:
        check_no_query(request.scope)
        given = await read_json(request.scope, request.receive, limits)
    began = time.perf_counter()
    status, body = await worker.ask(name, given, method == "GET")
    milliseconds = 1000 * (time.perf_counter() - began)
    return make_answer(body, status, {"Server-Timing": f"answer;dur={milliseconds:.1f}"})
