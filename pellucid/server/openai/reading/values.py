"""The values of a POST request: its JSON body, read by the table of fields, for the model that is served."""

from typing import Any

from starlette.requests import Request

from pellucid.server.http.request import check_no_query, read_json
from pellucid.server.openai.fields import FieldEndpoint, read_fields
from pellucid.server.openai.served_model import ServedModel


async def read_values(served: ServedModel, request: Request, endpoint: FieldEndpoint) -> dict[str, Any]:
    """Returns the used values of a request; raises where a field is wrong, or names another model."""
    check_no_query(request.scope)
    body = await read_json(request.scope, request.receive, request.scope["access"].limits)
    values = read_fields(endpoint, body)
    served.check_name(values["model"])
    return values
