"""Health, as an operator asks for it: whether the server answers, without a key, and what it has counted."""

import json

from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from pellucid.server.http.app import make_answer
from pellucid.server.openai.served_model import ServedModel


async def show_health(served: ServedModel, request: Request) -> Response:
    """Answers GET /health: 200 with `ready`, else 503 with `loading`, `unhealthy` or `ending`."""
    state = "ending" if request.app.is_ending else served.engine.state
    return make_answer(json.dumps({"status": state}).encode(), 200 if state == "ready" else 503)


async def show_metrics(served: ServedModel, request: Request) -> Response:
    """Answers GET /metrics, in Prometheus' text format."""
    body = served.metrics.write(served.engine.load)
    return Response(body, headers={"content-type": CONTENT_TYPE_LATEST})
