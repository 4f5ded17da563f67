"""The model over HTTP: every route with what answers it."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from pellucid.server.http.app import Shell, ShellRoute
from pellucid.server.http.limits import Access, Scope
from pellucid.server.openai.answers.explorer import answer_about_model, open_page, send_page
from pellucid.server.openai.endpoints.chat import answer_chat
from pellucid.server.openai.endpoints.completions import complete
from pellucid.server.openai.endpoints.embeddings import embed
from pellucid.server.openai.endpoints.health import show_health, show_metrics
from pellucid.server.openai.endpoints.models import list_models, show_model
from pellucid.server.openai.endpoints.tokenizing import detokenize, show_tokenizer, tokenize
from pellucid.server.openai.served_model import ServedModel

Endpoint = Callable[[ServedModel, Request], Awaitable[Response]]

ENDPOINTS: Mapping[tuple[str, str], Endpoint] = {
    ("GET", "/health"): show_health,
    ("GET", "/metrics"): show_metrics,
    ("GET", "/explore"): open_page,
    ("GET", "/explore/"): send_page,
    ("GET", "/explore/{name}"): send_page,
    ("GET", "/api/{question}"): answer_about_model,
    ("POST", "/api/{question}"): answer_about_model,
    ("POST", "/v1/completions"): complete,
    ("POST", "/v1/chat/completions"): answer_chat,
    ("POST", "/v1/embeddings"): embed,
    ("GET", "/v1/models"): list_models,
    ("GET", "/v1/models/{name:path}"): show_model,
    ("POST", "/tokenize"): tokenize,
    ("POST", "/detokenize"): detokenize,
    ("GET", "/tokenizer_info"): show_tokenizer,
}
"""What answers each route, by its method and path."""
PUBLIC_PATHS = frozenset({"/health", "/explore", "/explore/", "/explore/{name}"})
"""The routes that ask for no key: the files of the page hold no number."""


class ServeApp(Shell):
    """The endpoints of one model."""

    def __init__(self, served: ServedModel, access: Access) -> None:
        self.served = served
        methods: dict[tuple[str, Endpoint], list[str]] = {}
        for (method, path), endpoint in ENDPOINTS.items():
            methods.setdefault((path, endpoint), []).append(method)
        routes = [self._make_route(*place, found) for place, found in methods.items()]
        super().__init__(routes, access)
        self._paths = frozenset(route.path for route in routes)

    def _make_route(self, path: str, endpoint: Endpoint, methods: list[str]) -> ShellRoute:
        answer: Callable[..., Any] = partial(endpoint, self.served)
        return ShellRoute(path, answer, methods, is_public=path in PUBLIC_PATHS)

    def record_answer(self, scope: Scope, status: int | None) -> None:
        self.served.metrics.count_request(scope["path"], status, self._paths)
