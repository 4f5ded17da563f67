"""An application: routes behind the checks that every request passes, and one form for every error."""

import asyncio
import logging
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Message, Receive, Scope, Send

from pellucid.base.errors import did_you_mean
from pellucid.server.http.limits import (
    CHECKS,
    SECURITY_HEADERS,
    Access,
    RequestError,
    check_key,
    make_error_body,
)
from pellucid.server.http.request import ClientDisconnected

logger = logging.getLogger(__name__)


class ShellRoute(Route):
    """A route that asks for the key, unless it is public."""

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        methods: Sequence[str] = ("GET",),
        is_public: bool = False,
    ) -> None:
        super().__init__(path, endpoint, methods=methods)
        self.methods: set[str]
        self.is_public = is_public

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self.is_public:
            check_key(scope["access"], scope)
            if scope["app"].is_ending:
                raise make_ending_error()
        if scope["method"] not in self.methods:
            allowed = sorted(self.methods)
            message = f"the method of this path is {' or '.join(allowed)}."
            raise RequestError(message, 405, Allow=", ".join(allowed))
        # Not by the route's own `app`, whose handler of errors would stand before every event of a stream.
        response = await self.endpoint(Request(scope, receive, send))
        await response(scope, receive, send)


class Shell:
    """The ASGI application: checks a request, lets a route answer it, and adds the security headers."""

    def __init__(self, routes: Iterable[ShellRoute], access: Access) -> None:
        self.routes = list(routes)
        self.access = access
        self.is_ending = False
        """Whether a signal came: requests that have begun are answered, and new ones are refused."""
        self.n_running = 0
        """Requests that have begun and are not answered yet."""
        self._router = Router(self.routes, redirect_slashes=False, default=self._refuse_path)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.n_running += 1
        try:
            await self._answer(scope, receive, send)
        finally:
            self.n_running -= 1

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_started = False

        async def send_secure(message: Message) -> None:
            nonlocal is_started
            if message["type"] == "http.response.start":
                is_started = True
                self.record_answer(scope, message["status"])
                message["headers"] = [*message.get("headers", ()), *SECURITY_HEADERS]
            await send(message)

        try:
            for check in CHECKS:
                check(self.access, scope)
            inner = {**scope, "app": self, "access": self.access}
            await self._router(inner, receive, send_secure)
        except ClientDisconnected:
            if not is_started:
                self.record_answer(scope, None)
        except asyncio.CancelledError:  # the time in which a last answer may be given is over
            if is_started:
                raise
            await make_refusal(make_ending_error())(scope, receive, send_secure)
        except Exception as error:
            if is_started:
                log_fault(error)
                raise
            await make_refusal(error)(scope, receive, send_secure)

    async def _refuse_path(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises for a path that no route has, with the one that was probably meant."""
        paths = [route.path for route in self.routes if "{" not in route.path]
        hint = did_you_mean(scope["path"], paths)
        # the path itself is not quoted: it may hold a key
        raise RequestError(f"there is no such path: the paths are {', '.join(paths)}.{hint}", 404)

    def record_answer(self, scope: Scope, status: int | None) -> None:
        """Called once for each request, with its answer's status; None where the client left before."""


def make_ending_error() -> RequestError:
    """Returns the refusal of a server that ends; the client's next request needs another connection."""
    return RequestError("the server is ending.", 503, Retry_After="10", Connection="close")


def make_refusal(error: Exception) -> Response:
    """Returns the answer to a request that a check or a route refused; anything else is a fault of ours."""
    match error:
        case RequestError():
            body = make_error_body(str(error), error.status, error.param, error.code)
            return make_answer(body, error.status, error.headers)
        case HTTPException(status_code=status):
            return make_answer(make_error_body(f"{error.detail}.", status), status, dict(error.headers or {}))
    log_fault(error)
    return make_answer(make_error_body("the server failed; its terminal says how.", 500), 500)


def log_fault(error: BaseException) -> None:
    """Logs where a fault of ours happened: classes and lines, without messages, which may quote a prompt."""
    lines = list[str]()
    fault: BaseException | None = error
    while fault is not None:
        lines[:0] = [*traceback.format_tb(fault.__traceback__), f"{type(fault).__name__}\n"]
        fault = fault.__cause__ or fault.__context__
    logger.error("a request failed\n%s", "".join(lines).rstrip())


def make_answer(body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Returns an answer in JSON."""
    return Response(body, status, headers, media_type="application/json")
