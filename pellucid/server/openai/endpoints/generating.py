"""The course of both endpoints of generated text: read a request, plan its answer, send it."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import Response

from pellucid.server.openai.answers.event_stream import EventStream
from pellucid.server.openai.answers.plan import AnswerPlan
from pellucid.server.openai.answers.whole import make_whole
from pellucid.server.openai.reading.values import read_values
from pellucid.server.openai.served_model import ServedModel

MakePlan = Callable[[ServedModel, dict[str, Any]], Awaitable[AnswerPlan]]
"""Returns what an answer consists of, given the values of its request."""


async def generate_answer(
    served: ServedModel, request: Request, endpoint: Literal["completions", "chat"], make_plan: MakePlan
) -> Response:
    """Returns the answer to a request; its clock starts before the body is read."""
    meter = served.metrics.begin_answer()
    values = await read_values(served, request, endpoint)
    plan = await make_plan(served, values)
    if values["stream"]:
        return EventStream(served, plan, meter)
    return await make_whole(served, plan, request.receive, meter)
