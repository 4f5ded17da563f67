"""The list of models has the served one, under a name that may have slashes."""

import asyncio
import json
from typing import Any

import pytest
from openai import OpenAI
from starlette.requests import Request

from pellucid.formats.resolve import open_model
from pellucid.server.http.limits import RequestError
from pellucid.server.openai.endpoints.about import show_model
from pellucid.server.openai.served_model import ServedModel
from tests.server.served import Served


def test_the_served_model_is_the_only_one(served: Served) -> None:
    with OpenAI(base_url=served.base_url, api_key=served.key, max_retries=0) as client:
        (model,) = client.models.list().data
        assert (model.id, model.object, model.owned_by) == ("tiny", "model", "pellucid")
        assert model.created == served.app.served.created
        assert client.models.retrieve("tiny") == model
        assert model.model_extra == {"max_model_len": 128}


@pytest.mark.parametrize("name", ["org/tiny", "tiny/", "tiny:1", "org%2Ftiny", "", "%2e%2e/tiny", "Tiny"])
def test_another_model_is_not_found(served: Served, name: str) -> None:
    answer = served.ask("GET", f"/v1/models/{name}")
    error = json.loads(answer.body)["error"]
    assert (answer.status, error["code"], error["param"]) == (404, "model_not_found", "model")


def test_a_name_may_be_escaped(served: Served) -> None:
    assert served.ask("GET", "/v1/models/t%69ny").status == 200


def test_a_name_may_have_slashes() -> None:
    engine: Any = None
    served = ServedModel("org/small:1", open_model("abcd"), engine)

    def ask(name: str) -> Any:
        request = Request({"type": "http", "path_params": {"name": name}})
        return json.loads(asyncio.run(show_model(served, request)).body)

    assert ask("org/small:1")["id"] == "org/small:1"
    with pytest.raises(RequestError):
        ask("small:1")
