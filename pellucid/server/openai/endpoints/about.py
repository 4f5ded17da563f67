"""Answers about the server itself: its health, what it has counted, and the one model that is served."""

import json
from typing import Any

from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from pellucid.server.http.app import make_answer
from pellucid.server.openai.served_model import ServedModel


async def list_models(served: ServedModel, request: Request) -> Response:
    """Answers with a list of one model."""
    return make_answer(json.dumps({"object": "list", "data": [describe_model(served)]}).encode())


async def show_model(served: ServedModel, request: Request) -> Response:
    """Answers with the model of that name, which may have slashes; 404 where it is not the served one."""
    served.check_name(request.path_params["name"])
    return make_answer(json.dumps(describe_model(served)).encode())


def describe_model(served: ServedModel) -> dict[str, Any]:
    """Returns a model as OpenAI's clients read it, and the length of its context as vLLM's do."""
    return {
        "id": served.name,
        "object": "model",
        "created": served.created,
        "owned_by": "pellucid",
        "max_model_len": served.pretrained.config.context_length,
    }


async def show_health(served: ServedModel, request: Request) -> Response:
    """Answers GET /health: 200 with `ready`, else 503 with `loading`, `unhealthy` or `ending`."""
    state = "ending" if request.app.is_ending else served.engine.state
    return make_answer(json.dumps({"status": state}).encode(), 200 if state == "ready" else 503)


async def show_metrics(served: ServedModel, request: Request) -> Response:
    """Answers GET /metrics, in Prometheus' text format."""
    body = served.metrics.write(served.engine.load)
    return Response(body, headers={"content-type": CONTENT_TYPE_LATEST})
