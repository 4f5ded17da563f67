"""The explorer over HTTP: the files of its page, and `/api/QUESTION` for what the page asks."""

import hmac
import json
import secrets
import time
from collections.abc import Iterable, Mapping
from typing import Protocol

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from pellucid.base.errors import unknown
from pellucid.server.http.app import Shell, ShellRoute, make_answer
from pellucid.server.http.limits import Access, RequestError, make_error_body
from pellucid.server.http.request import check_no_query, parse_query, read_json

MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


class Answerer(Protocol):
    """What answers questions: the process that holds the session, or a test's stand-in."""

    @property
    def methods(self) -> Mapping[str, str]:
        """Every question with its HTTP method."""
        ...

    async def ask(self, question: str, parameters: Mapping[str, object], is_text: bool) -> tuple[int, bytes]:
        """Returns the HTTP status and the JSON of an answer; with `is_text` every parameter is a text."""
        ...


class Entrance:
    """An address that opens the page once, with the key.

    The command line of a browser can be read by every user of the machine, so the key is not in it.
    """

    def __init__(self, access: Access) -> None:
        self.access = access
        self._token: str | None = None

    def make_link(self) -> str:
        """Returns an address that works once."""
        self._token = secrets.token_urlsafe(24)
        return f"http://127.0.0.1:{self.access.port}/open/{self._token}"

    async def open(self, request: Request) -> Response:
        given = request.path_params["token"].encode()
        if self._token is None or not hmac.compare_digest(self._token.encode(), given):
            raise RequestError("this address has been used: open the one that the command printed.", 404)
        self._token = None
        return RedirectResponse(f"/explore/#key={self.access.key}", 303)


class ExplorerApp(Shell):
    """The explorer's page and questions. `files` are those of the page, by name: no path is ever joined."""

    def __init__(
        self, worker: Answerer, files: Mapping[str, bytes], access: Access, more: Iterable[ShellRoute] = ()
    ) -> None:
        self.worker, self.files, self.entrance = worker, files, Entrance(access)
        routes = [
            ShellRoute("/", redirect_to_page, is_public=True),
            ShellRoute("/explore", redirect_to_page, is_public=True),
            ShellRoute("/explore/", self.send_file, is_public=True),
            ShellRoute("/explore/{name}", self.send_file, is_public=True),
            ShellRoute("/open/{token}", self.entrance.open, is_public=True),
            ShellRoute("/api/{question}", self.answer, ("GET", "POST")),
        ]
        super().__init__([*routes, *more], access)

    @property
    def address(self) -> str:
        """The address of the page; a browser does not send what follows the #."""
        return f"http://127.0.0.1:{self.access.port}/explore/#key={self.access.key}"

    async def send_file(self, request: Request) -> Response:
        return await send_page_file(self.files, request)

    async def answer(self, request: Request) -> Response:
        return await answer_question(self.worker, request)


async def redirect_to_page(request: Request) -> Response:
    """Returns the way to the page, from an address without the last slash."""
    return RedirectResponse("/explore/", 307)


async def send_page_file(files: Mapping[str, bytes], request: Request) -> Response:
    """Returns a file of the page, the page itself by default."""
    name = request.path_params.get("name", "index.html")
    if name not in files:
        raise RequestError("there is no such path.", 404)
    return Response(files[name], media_type=MEDIA_TYPES.get(name.rpartition(".")[2], "text/plain"))


async def answer_question(worker: Answerer, request: Request) -> Response:
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
    if status != 200:
        body = make_error_body(json.loads(body)["error"]["message"], status)
    return make_answer(body, status, {"Server-Timing": f"answer;dur={milliseconds:.1f}"})
