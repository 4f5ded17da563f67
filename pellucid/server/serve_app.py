"""The model over HTTP: every route with what answers it."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from pellucid.server.app import Shell, ShellRoute
from pellucid.server.limits import Access
from pellucid.server.served import ServedModel

Endpoint = Callable[[ServedModel, Request], Awaitable[Response]]

ENDPOINTS: Mapping[tuple[str, str], Endpoint] = {}
"""What answers each route, by its method and path; every one of them asks for the key."""


class ServeApp(Shell):
    """The endpoints of one model."""

    def __init__(self, served: ServedModel, access: Access) -> None:
        self.served = served
        routes = [self._make_route(*place, endpoint) for place, endpoint in ENDPOINTS.items()]
        super().__init__(routes, access)

    def _make_route(self, method: str, path: str, endpoint: Endpoint) -> ShellRoute:
        answer: Callable[..., Any] = partial(endpoint, self.served)
        return ShellRoute(path, answer, (method,))
